"""scan: a loop over the leading axis that carries a state, as one op with derivatives."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.autodiff.batch import vmap
from retrograd.autodiff.forward import jvp
from retrograd.autodiff.reverse import flat_vjp
from retrograd.core import dtype as dt
from retrograd.core import tree
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import PURE, RAW, apply, current, lift, using
from retrograd.core.op import FUNCTIONS, Op, front, function, op
from retrograd.core.replay import region_now
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ir.evaluate import evaluate, silent
from retrograd.ir.graph import Graph
from retrograd.ir.trace import trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["scan"]


@op
class Scan(Op):
    """carry, y = body(consts, carry, x) for each x along axis 0; the last carry and all ys."""

    body: Graph  # inputs: consts, carry, x; outputs: carry, y
    consts: int
    carry: int
    length: int
    reverse_time: bool = False
    outputs = ("*results",)
    saves = True
    bodied = True
    host = "runs its body step by step"

    def shape(self, *args: Spec) -> tuple[Spec, ...]:
        outs = self.body.output_specs
        ys = [s.with_shape((self.length, *s.shape)) for s in outs[self.carry :]]
        return (*outs[: self.carry], *ys)

    def forward(self, *args: Any) -> tuple[Any, ...]:
        with using(RAW):
            return tuple(self._loop(args, keep=False)[0])

    def save(self, *args: Any) -> tuple[list[Any], Any]:
        """The results, and what the backward loop needs: inputs and every carry."""
        if current.get() is not PURE or region_now.get() is not None:
            outs, carries = self._stacked(args)  # in a checkpoint: values that can be replayed
        else:
            with using(RAW):
                found, kept = self._loop([a.array for a in args], keep=True)
            outs = [Tensor(o) for o in found]
            carries = [Tensor(c) for c in kept]
        return outs, (list(args), carries)

    def _order(self) -> range:
        return range(self.length)[:: -1 if self.reverse_time else 1]

    def _loop(self, args: Sequence[Any], *, keep: bool) -> tuple[list[Any], list[Any]]:
        """Step by step on bare arrays; with `keep`, also every carry before its step."""
        consts, carry = args[: self.consts], list(args[self.consts : self.consts + self.carry])
        xs = args[self.consts + self.carry :]
        ys = [np.empty(s.shape, s.dtype) for s in self.shape()[self.carry :]]
        kept = [np.empty((self.length, *np.shape(c)), c.dtype) for c in carry if keep]
        for t in self._order():
            for row, c in zip(kept, carry, strict=False):
                row[t] = c
            outs = evaluate(self.body, *consts, *carry, *(x[t] for x in xs))
            carry = [np.asarray(c) for c in outs[: self.carry]]
            for row, y in zip(ys, outs[self.carry :], strict=True):
                row[t] = y
        return [*carry, *ys], kept

    def _stacked(self, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The same through the seam: a scan whose body also returns its carry."""
        n = self.consts

        def body(*a: Any) -> list[Any]:
            return [*evaluate(self.body, *a), *a[n : n + self.carry]]

        outs = looped(body, self.body.inputs, (n, self.carry), self, args)
        cut = len(self.body.outputs)
        return list(outs[:cut]), list(outs[cut:])

    def batch(self, size: int, args: Sequence[Any], mapped: Sequence[bool]) -> tuple[Any, ...]:
        carried = slice(self.consts, self.consts + self.carry)
        args, mapped = list(args), list(mapped)
        args[carried] = front(size, args[carried], mapped[carried])
        mapped[carried] = [True] * self.carry
        first = self.consts + self.carry
        swap = FUNCTIONS["moveaxis"]
        moved = [
            swap(a, 0, 1) if m and i >= first else a
            for i, (a, m) in enumerate(zip(args, mapped, strict=True))
        ]
        body = vmap(
            lambda *a: evaluate(self.body, *a), in_axes=tuple(0 if m else None for m in mapped)
        )
        specs = [
            s.with_shape((size, *s.shape)) if m else s
            for s, m in zip(self.body.inputs, mapped, strict=True)
        ]
        outs = looped(body, specs, (self.consts, self.carry), self, moved)
        ys = [swap(y, 1, 0) for y in outs[self.carry :]]
        return (*outs[: self.carry], *ys)

    @classmethod
    def reverse(cls, mask: int) -> Any:
        return ScanPull(mask)

    @classmethod
    def ahead(cls, mask: int) -> Any:
        return ScanPush()

    @staticmethod
    def samples(rng):
        def body(a, h, x):
            h = FUNCTIONS["tanh"](a * h + x)
            return [h, h * x]

        specs = [Spec((3,), dt.float64)] * 3
        graph, captured = trace(body, specs)
        for back in (False, True):
            yield (
                Scan(captured_first(graph, len(captured)), 1, 1, 4, back),
                rng.normal(size=3),
                rng.normal(size=3),
                rng.normal(size=(4, 3)),
            )


def looped(
    f: Any, specs: Sequence[Spec], counts: tuple[int, int], like: Scan, args: Any
) -> Any:
    """Scan f over args, with the length of `like`; what f captures becomes more consts."""
    graph, captured = trace(f, specs)
    consts, carry = counts
    k = len(captured)
    op = Scan(captured_first(graph, k), consts + k, carry, like.length, like.reverse_time)
    return apply(op, *captured, *args)


def smooth(specs: Sequence[Spec]) -> list[int]:
    """Positions of the specs that have derivatives."""
    return [i for i, s in enumerate(specs) if dt.is_inexact(s.dtype)]


class ScanPush:
    """jvp: a scan over values and tangents side by side."""

    def keep(self, values: Any) -> Any:
        """The inputs."""
        return values[0]

    def push(self, op: Scan, tangents: Sequence[Any], kept: Sequence[Any]) -> list[Any]:
        """The tangents of the results."""
        inputs, n, carry, once = op.body.inputs, op.consts, op.carry, silent(op.body)
        where = smooth(inputs)

        def body(*a: Any) -> list[Any]:
            primals, given = _unsplit(a, inputs, where, n, carry)
            outs, pushed = jvp(lambda *p: evaluate(once, *p), primals, given)
            hot = smooth([o.spec for o in outs])
            done = [outs[:carry], [pushed[i] for i in hot if i < carry]]
            more = [outs[carry:], [pushed[i] for i in hot if i >= carry]]
            return [x for part in (*done, *more) for x in part]

        ts = [op.zeros(kept[i].spec) if tangents[i] is None else tangents[i] for i in where]
        args, specs, parts = _split(kept, ts, inputs, where, n, carry)
        return _tangents(op, looped(body, specs, parts, op, args))


def _sections(
    values: Sequence[Any], tangents: Sequence[Any], where: list[int], n: int, carry: int
):
    """consts, their tangents, carry, its tangents, xs, their tangents."""
    bounds = [(0, n), (n, n + carry), (n + carry, len(values))]
    out = []
    for low, high in bounds:
        out.append(list(values[low:high]))
        out.append([t for i, t in zip(where, tangents, strict=True) if low <= i < high])
    return out


def _split(
    values: Any, tangents: Any, inputs: Any, where: list[int], n: int, carry: int
) -> Any:
    parts = _sections(values, tangents, where, n, carry)
    kinds = _sections(inputs, [inputs[i] for i in where], where, n, carry)
    sizes = [len(p) for p in parts]
    counts = (sizes[0] + sizes[1], sizes[2] + sizes[3])
    return [a for p in parts for a in p], [s for k in kinds for s in k], counts


def _unsplit(a: Sequence[Any], inputs: Any, where: list[int], n: int, carry: int) -> Any:
    order = _sections(range(len(inputs)), [("t", i) for i in where], where, n, carry)
    flat = [key for part in order for key in part]
    found = dict(zip(flat, a, strict=True))
    primals = [found[i] for i in range(len(inputs))]
    given = [found.get(("t", i), found[i]) for i in range(len(inputs))]
    return primals, given


def _tangents(op: Scan, outs: Sequence[Any]) -> list[Any]:
    specs = op.body.output_specs
    hot = smooth(specs)
    first = [i for i in hot if i < op.carry]
    rest = [i for i in hot if i >= op.carry]
    found: list[Any] = [None] * len(specs)
    for i, t in zip(first, outs[op.carry :], strict=False):
        found[i] = t
    start = op.carry + len(first) + len(specs) - op.carry
    for i, t in zip(rest, outs[start:], strict=False):
        found[i] = t
    return found


class ScanPull:
    """vjp: a scan the other way, whose body is the vjp of the body at the saved carry."""

    def __init__(self, mask: int) -> None:
        self.mask = mask

    keeps = ()

    def keep(self, values: Any) -> Any:
        """Not used: `save` keeps."""
        return ()

    def pull(self, op: Scan, g: Sequence[Any], kept: Any, count: int) -> list[Any]:
        """The cotangents of the inputs."""
        raw = current.get() is RAW
        with using(PURE if raw else current.get()):
            found = self._pull(op, [None if c is None else lift(c) for c in g], kept)
        return [c.array if raw and c is not None else c for c in found]

    def _pull(self, op: Scan, g: Sequence[Any], kept: Any) -> list[Any]:
        args, carries = kept
        n, carry, inputs = op.consts, op.carry, op.body.inputs
        outs = op.body.output_specs
        hot_consts = [i for i in smooth(inputs) if i < n and self.mask >> i & 1]
        hot_carry = [i for i in range(carry) if dt.is_inexact(outs[i].dtype)]
        hot_y = [i for i in range(carry, len(outs)) if dt.is_inexact(outs[i].dtype)]
        hot_x = [i for i in smooth(inputs) if i >= n + carry and self.mask >> i & 1]
        targets = [*hot_consts, *(n + i for i in hot_carry), *hot_x]

        def body(*a: Any) -> list[Any]:
            split = iter(a)
            take = lambda k: [next(split) for _ in range(k)]  # noqa: E731
            consts, sums, gs = take(n), take(len(hot_consts)), take(len(hot_carry))
            h, xs, gy = take(carry), take(len(inputs) - n - carry), take(len(hot_y))
            primals = [*consts, *h, *xs]
            found = _body_vjp(silent(op.body), primals, targets, hot_carry + hot_y, gs + gy)
            k, m = len(hot_consts), len(hot_carry)
            added = [s + c for s, c in zip(sums, found[:k], strict=True)]
            return [*added, *found[k : k + m], *found[k + m :]]

        zero = FUNCTIONS["zeros"]
        sums = [zero(inputs[i].shape, dtype=inputs[i].dtype) for i in hot_consts]
        full = [
            FUNCTIONS["zeros"](s.shape, dtype=s.dtype) if c is None else c
            for c, s in zip(g, op.shape(), strict=True)
        ]
        given = [*args[:n], *sums, *(full[i] for i in hot_carry), *carries, *args[n + carry :]]
        given += [full[i] for i in hot_y]
        specs = [*inputs[:n], *(s.spec for s in sums), *(outs[i] for i in hot_carry)]
        specs += [*inputs[n : n + carry], *inputs[n + carry :], *(outs[i] for i in hot_y)]
        backwards = op.replace(reverse_time=not op.reverse_time)
        found = looped(body, specs, (n, len(sums) + len(hot_carry)), backwards, given)
        result: list[Any] = [None] * len(args)
        places = [*hot_consts, *(n + i for i in hot_carry), *hot_x]
        for i, c in zip(places, found, strict=True):
            result[i] = c
        return result


def _body_vjp(
    body: Graph, primals: Any, targets: list[int], hot: list[int], gs: Any
) -> list[Any]:
    """Cotangents of the chosen inputs of a body, zeros where none flows."""

    def chosen(*xs: Any) -> list[Any]:
        full = list(primals)
        for i, x in zip(targets, xs, strict=True):
            full[i] = x
        outs = evaluate(body, *full)
        return [outs[i] for i in hot]

    at = [primals[i] for i in targets]
    _, pull = flat_vjp(chosen, at)
    return [
        FUNCTIONS["zeros"](p.shape, dtype=p.dtype) if c is None else c
        for c, p in zip(pull(gs), at, strict=True)
    ]


@function
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    *,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """carry, y = f(carry, x) for each x along the leading axis of xs; (last carry, all ys).

    carry, xs and ys are trees. The carry keeps its structure, shapes and dtypes. Tensors
    that f uses from outside are differentiated too.
    """
    first, shape_of_carry = tree.flatten(init)
    first = [lift(c) for c in first]
    rows, shape_of_xs = tree.flatten(xs)
    rows = [lift(x) for x in rows]
    steps = _steps(rows, length)
    shape_of_y: list[Any] = []
    n = len(first)

    def body(*a: Any) -> list[Any]:
        found = f(tree.unflatten(shape_of_carry, a[:n]), tree.unflatten(shape_of_xs, a[n:]))
        carry = _carried(found, shape_of_carry)
        ys, shape = tree.flatten(found[1])
        shape_of_y[:] = [shape]
        return [*carry, *ys]

    specs = [*(c.spec for c in first), *(x.spec.with_shape(x.shape[1:]) for x in rows)]
    graph, captured = trace(body, specs)
    _check_carry(graph, n)
    k = len(captured)
    op = Scan(captured_first(graph, k), k, n, steps, bool(reverse))
    outs = apply(op, *captured, *first, *rows)
    carry, ys = outs[:n], outs[n:]
    return tree.unflatten(shape_of_carry, carry), tree.unflatten(shape_of_y[0], ys)


def _carried(found: Any, shape: Any) -> list[Any]:
    """The leaves of the carry that a step returned."""
    if not isinstance(found, tuple) or len(found) != 2:
        raise ArgumentError("scan: the function must return (carry, y)")
    carry, given = tree.flatten(found[0])
    if given != shape:
        raise ShapeError(f"scan: the carry is {shape}; the function returns {given}")
    return carry


def _steps(rows: list[Any], length: int | None) -> int:
    for x in rows:
        if not x.ndim:
            raise ShapeError("scan: xs need a leading axis to walk along; got a tensor without")
    sizes = {x.shape[0] for x in rows} | ({length} if length is not None else set())
    if len(sizes) != 1:
        raise ShapeError(
            f"scan: leading axes and length must be one number; got {sorted(sizes)}"
            if sizes
            else "scan: give xs or length"
        )
    return sizes.pop()


def _check_carry(graph: Graph, n: int) -> None:
    for i in range(n):
        if graph.output_specs[i] != graph.inputs[i]:
            raise ShapeError(
                f"scan: carry leaf {i} goes in as {graph.inputs[i]} and comes out as "
                f"{graph.output_specs[i]}; it must keep its shape and dtype"
            )


def captured_first(graph: Graph, hidden: int) -> Graph:
    """The graph with its last `hidden` inputs put first."""
    given = len(graph.inputs) - hidden

    def moved(i: int) -> int:
        return i + hidden if i < given else i - given if i < given + hidden else i

    nodes = tuple(
        dataclasses.replace(node, inputs=tuple(map(moved, node.inputs))) for node in graph.nodes
    )
    inputs = (*graph.inputs[given:], *graph.inputs[:given])
    return Graph(inputs, nodes, tuple(map(moved, graph.outputs)))
