"""What a target asks of a kernel: its buffers, its vector axis, its reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from retrograd.jit.loops.expr import CHECKS, Assign, Buffer, Expr, For, Store, Var, dynamics
from retrograd.jit.loops.index import Dynamic, Quotient
from retrograd.jit.loops.vocabulary import EXTREMA, FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from retrograd.jit.loops.expr import Kernel, Stmt
    from retrograd.jit.loops.index import Axis, Ix

__all__ = [
    "Reduction",
    "assigned",
    "buffers",
    "expressions",
    "invariants",
    "jumps",
    "operands",
    "plain_columns",
    "plain_lines",
    "reductions",
    "shared",
    "statements",
    "stride",
    "vector_axis",
    "without",
]


def statements(body: Sequence[Stmt]) -> Iterator[Assign | Store]:
    """All statements, those in loops too."""
    for s in body:
        if isinstance(s, For):
            yield from statements(s.body)
        else:
            yield s


def loop_axes(body: Sequence[Stmt]) -> set[Axis]:
    """The axes of all loops among statements."""
    found: set[Axis] = set()
    for s in body:
        if isinstance(s, For):
            found |= {*s.axes} | loop_axes(s.body)
    return found


def expressions(body: Sequence[Stmt]) -> Iterator[Expr]:
    """All expressions of statements, and of their indices, each once."""
    seen: set[int] = set()
    for s in statements(body):
        roots = [s.expr]
        if isinstance(s, Store):
            roots += [d.expr for d in dynamics(s.index)]
        for root in roots:
            yield from root.walk(seen)


def buffers(kernel: Kernel) -> list[Buffer]:
    """The buffers it reads, then those it writes, in the order of writing."""
    found: dict[Buffer, None] = {}
    for e in expressions(kernel.body):
        if e.op == "load":
            found.setdefault(e.data[0])
    for s in statements(kernel.body):
        if isinstance(s, Store):
            found.setdefault(s.buffer)
    return list(found)


def operands(kernel: Kernel) -> list[Buffer]:
    """The buffers that a kernel is given, in their order."""
    return [b for b in buffers(kernel) if b.constant is None]


def accesses(body: Sequence[Stmt]) -> Iterator[Ix]:
    """The indices of all loads and stores."""
    for e in expressions(body):
        if e.op == "load":
            yield e.data[1]
    for s in statements(body):
        if isinstance(s, Store):
            yield s.index


def stride(ix: Ix, axis: Axis) -> int | None:
    """Elements from one turn of an axis to the next; None if that is not constant."""
    if ix.terms.get(axis) is not None:
        others = without(ix, axis)
        return None if axis in others.axes() else ix.terms[axis]
    return None if axis in ix.axes() else 0


def without(ix: Ix, axis: Axis) -> Ix:
    """The index without one axis."""
    return type(ix)(ix.const, {a: c for a, c in ix.terms.items() if a is not axis})


NARROW, LONG = 4, 64  # axes that leave lanes idle, where there is one that does not


def vector_axis(kernel: Kernel) -> tuple[Axis | None, bool]:
    """The axis that becomes lanes, and whether it is one of the independent (vertical)."""
    loops = [s for s in kernel.body if isinstance(s, For)]
    outer = [a for a in kernel.axes if a.extent > 1]
    inner = [s.axes[-1] for s in loops if s.axes and reductions(s) is not None]
    seen = list(accesses(kernel.body))
    busy = list(accesses(loops)) or seen  # what is done in each turn of a loop counts first
    best: tuple[tuple[int, int], Axis | None, bool] = ((0, 0), None, True)
    for axis, vertical in [*((a, True) for a in reversed(outer)), *((a, False) for a in inner)]:
        if not vertical and any(axis not in s.axes for s in loops):
            continue
        if vertical and axis.extent <= NARROW and any(a.extent >= LONG for a in outer):
            continue  # most lanes would be idle
        score = (
            _nearness(busy, axis, vertical=vertical),
            _nearness(seen, axis, vertical=vertical),
        )
        if score > best[0]:
            best = (score, axis, vertical)
    found = outer[-1] if best[1] is None and outer else best[1]
    if found and best[2] and _one_by_one(kernel, found):
        return None, True
    return found, best[2]


def _one_by_one(kernel: Kernel, axis: Axis) -> bool:
    """Whether lanes along an axis would gather all they read, add to it, and scatter that."""
    loops = [s for s in kernel.body if isinstance(s, For)]
    adds = any(isinstance(s, Store) and _rereads(loop, s) for loop in loops for s in loop.body)
    dear = any(e.op in FUNCTIONS and e.op not in EXTREMA for e in expressions(kernel.body))
    near = any(stride(ix, axis) == 1 for ix in accesses(kernel.body))
    return adds and jumps(kernel) and not dear and not near


def _nearness(seen: Sequence[Ix], axis: Axis, *, vertical: bool) -> int:
    """How well an axis would do as lanes: whether elements lie side by side along it."""
    steps = [stride(i, axis) for i in seen]
    near = sum(2 if s == 1 else 1 if s == 0 else 0 for s in steps)
    score = near * 4 + (2 if axis.extent >= 16 else 0) + (1 if vertical else 0)
    return score + (1000 if 1 in steps else 0)


SCALAR = CHECKS | {"guard", "place", "cast", "complex", "rem"}  # not said in wide vectors


def plain_columns(kernel: Kernel, vector: Axis) -> bool:
    """Whether loops go down columns of float32 by arithmetic alone, lines lying in order."""
    if not any(isinstance(s, For) for s in kernel.body):
        return False
    for e in expressions(kernel.body):
        called = e.op in FUNCTIONS and e.op not in EXTREMA
        if called and vector in e.axes:
            return False
    return plain_lines(kernel, vector)


def plain_lines(kernel: Kernel, vector: Axis) -> bool:
    """Whether all of a line is float32, by arithmetic and functions, and lies in order."""
    for e in expressions(kernel.body):
        plain = e.op not in SCALAR and e.dtype.name in ("float32", "bool")
        if not plain and vector in e.axes:
            return False
    return all(
        stride(ix, vector) in (0, 1) or shared(ix, vector) for ix in accesses(kernel.body)
    )


def shared(ix: Ix, axis: Axis) -> Quotient | None:
    """What says which element several turns of an axis in a row have in common, if they do."""
    found = [a for a in ix.terms if isinstance(a, Quotient) and a.of == type(ix).of(axis)]
    if len(found) != 1:
        return None
    others = type(ix)(ix.const, {a: c for a, c in ix.terms.items() if a is not found[0]})
    return None if axis in others.axes() else found[0]


def jumps(kernel: Kernel) -> bool:
    """Whether it stores at places that are known at run time."""
    stores = [s for s in statements(kernel.body) if isinstance(s, Store)]
    return any(isinstance(a, Dynamic) for s in stores for a in s.index.terms)


class Reduction(NamedTuple):
    """var = op(var, expr), turn after turn, read nowhere else in the loop."""

    var: Var
    op: str
    expr: Expr
    entry: int
    last: int
    dtype: np.dtype
    identity: Any


def _identity(op: str, dtype: np.dtype) -> Any:
    if op in EXTREMA:
        low = op != "minimum"
        if dtype.kind == "f":
            return -np.inf if low else np.inf
        if dtype.kind == "b":
            return not low
        info = np.iinfo(dtype)
        return info.min if low else info.max
    return {"add": 0, "mul": 1, "or": False, "and": True}[op]


def reductions(loop: For) -> list[Reduction] | None:
    """The reductions of a loop, if all that it assigns are some, whose order is free."""
    found: list[Reduction] = []
    if loop.until is not None or any(isinstance(s, For) for s in loop.body):
        return None
    reads: dict[Var, int] = {}  # by how many statements, and in how many of its states
    for s in statements(loop.body):
        for e in expressions([s]):
            if e.op == "var":
                reads[e.data[0]] = reads.get(e.data[0], 0) + 1
    own = [s for s in loop.body if isinstance(s, Assign)]
    for s in own:
        e = s.expr
        if e.op not in ("add", "mul", "or", "and", *EXTREMA):
            return None
        mine = [a for a in e.args if a.op == "var" and a.data == (s.var, s.turn - 1)]
        other = [a for a in e.args if a.op != "var" or a.data != (s.var, s.turn - 1)]
        if len(mine) != 1 or len(other) != 1 or reads.get(s.var) != 1:
            return None
        if any(x is mine[0] for x in other[0].walk()):
            return None
        if e.op in ("or", "and") and e.dtype.kind != "b":
            return None
        found.append(
            Reduction(
                s.var, e.op, other[0], s.turn - 1, s.turn, e.dtype, _identity(e.op, e.dtype)
            )
        )
    if loop.reverse or len({r.var for r in found}) != len(own):
        return None
    if any(isinstance(s, Store) and _rereads(loop, s) for s in loop.body):
        return None
    return found


def _rereads(loop: For, store: Store) -> bool:
    """Whether a loop reads what it writes: its turns are not free then."""
    return any(e.op == "load" and e.data[0] is store.buffer for e in expressions(loop.body))


def assigned(body: Sequence[Stmt]) -> tuple[dict[Var, int], dict[Var, int]]:
    """For each variable that statements assign: its turn before, and its turn after."""
    entry: dict[Var, int] = {}
    last: dict[Var, int] = {}
    for s in statements(body):
        if isinstance(s, Assign):
            entry.setdefault(s.var, s.turn - 1)
            last[s.var] = s.turn
    return entry, last


def invariants(body: Sequence[Stmt], inner: set[Axis]) -> list[Expr]:
    """The largest expressions that loops over `inner` do not change, to be computed before.

    What is behind a guard stays there: its memory may not exist. Variables and buffers that
    the loop writes change in it.
    """
    found: dict[Expr, None] = {}
    steady = _steadiness(body, inner | loop_axes(body))

    def visit(e: Expr) -> None:
        if e in seen:
            return
        seen.add(e)
        if e.op in ("number", "var", "place"):
            return
        if steady(e):
            found.setdefault(e)
            return
        for a in (e.args[0], e.args[2]) if e.op == "guard" else e.args:
            visit(a)
        for d in _inner(e):
            visit(d.expr)

    seen: set[Expr] = set()
    for s in statements(body):
        visit(s.expr)
    return list(found)


def _steadiness(body: Sequence[Stmt], inner: set[Axis]) -> Callable[[Expr], bool]:
    """Whether an expression stays the same while loops over `inner` run."""
    changing = set(assigned(body)[0])
    written = {s.buffer for s in statements(body) if isinstance(s, Store)}
    fixed: dict[Expr, bool] = {}

    def steady(e: Expr) -> bool:
        if e not in fixed:
            if e.op == "var":
                fixed[e] = e.data[0] not in changing
            elif e.op == "load" and e.data[0] in written:
                fixed[e] = False
            elif e.op in CHECKS and not all(a.extent for a in inner):
                fixed[e] = False  # in a loop that never turns, nothing is wrong
            else:
                roots = [*e.args, *(d.expr for d in _inner(e))]
                fixed[e] = not (e.axes & inner) and all(map(steady, roots))
        return fixed[e]

    return steady


def _inner(e: Expr) -> list[Any]:
    if e.op == "load":
        return dynamics(e.data[1])
    return dynamics(e.data) if e.op == "place" else []
