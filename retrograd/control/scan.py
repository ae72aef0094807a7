"""scan: a loop over the leading axis that carries a state, as one op with derivatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.autodiff.batch import vmap
from retrograd.autodiff.reverse import flat_vjp
from retrograd.control.scan_push import ScanPush, captured_first, looped, smooth
from retrograd.control.scan_steps import Steps
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
from retrograd.memory.sizes import bytes_of, room_for_loops
from retrograd.memory.spill import directory_of

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
    room: int | None = None  # bytes for the carries that the backward loop needs
    spill: str | None = None  # the directory for those that go to a file
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
        """The results, and what the backward loop needs: inputs and every carry, or some."""
        if self.room is not None:
            return FUNCTIONS["scan_few"](self, args)
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
        step = Steps(self.body)
        for t in self._order():
            for row, c in zip(kept, carry, strict=False):
                row[t] = c
            outs = step([*consts, *carry, *[x[t] for x in xs]])
            carry = [np.asarray(c) for c in outs[: self.carry]]
            for row, y in zip(ys, outs[self.carry :], strict=True):
                row[t] = y
        return [*carry, *ys], kept

    def _stacked(self, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The same through the seam: a scan whose body also returns its carry."""
        n = self.consts

        def body(*a: Any) -> list[Any]:
            return [*evaluate(self.body, *a), *a[n : n + self.carry]]

        outs = looped(body, self.body.inputs, (n, self.carry), self.replace(room=None), args)
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
        if op.room is not None:
            return FUNCTIONS["scan_revolve"](op, self.mask, g, kept)
        args, carries = kept
        return pulled(op, self.mask, args, carries, g)


def pulled(op: Scan, mask: int, args: Any, carries: Any, g: Sequence[Any]) -> list[Any]:
    """The cotangents of a scan's inputs, from all its carries."""
    back = Backward(op, mask)
    sums = [op.zeros(op.body.inputs[i]) for i in back.consts]
    full = [op.zeros(s) if c is None else c for c, s in zip(g, op.shape(), strict=True)]
    n, carry = op.consts, op.carry
    given = [*args[:n], *sums, *(full[i] for i in back.carry), *carries, *args[n + carry :]]
    given += [full[i] for i in back.ys]
    backwards = op.replace(reverse_time=not op.reverse_time, room=None)
    counts = (n, len(sums) + len(back.carry))
    return back.placed(looped(back.step, back.specs, counts, backwards, given))


class Backward:
    """One step of a scan, backwards: which cotangents flow, and how."""

    def __init__(self, op: Scan, mask: int) -> None:
        self.op = op
        n, carry, inputs, outs = op.consts, op.carry, op.body.inputs, op.body.output_specs
        hot, flows = smooth(inputs), smooth(outs)
        self.consts = [i for i in hot if i < n and mask >> i & 1]
        self.carry = [i for i in flows if i < carry]
        self.ys = [i for i in flows if i >= carry]
        self.xs = [i for i in hot if i >= n + carry and mask >> i & 1]
        self.targets = [*self.consts, *(n + i for i in self.carry), *self.xs]
        specs = [*inputs[:n], *(inputs[i] for i in self.consts)]
        specs += [*(outs[i] for i in self.carry), *inputs[n:], *(outs[i] for i in self.ys)]
        self.specs = specs

    def step(self, *a: Any) -> list[Any]:
        """From consts, their sums, cotangents of the carry, carry, x, and cotangents of y."""
        op, split = self.op, iter(a)
        n, carry, inputs = op.consts, op.carry, op.body.inputs
        take = lambda k: [next(split) for _ in range(k)]  # noqa: E731
        consts, sums, gs = take(n), take(len(self.consts)), take(len(self.carry))
        h, xs, gy = take(carry), take(len(inputs) - n - carry), take(len(self.ys))
        primals, flows = [*consts, *h, *xs], self.carry + self.ys
        found = _body_vjp(silent(op.body), primals, self.targets, flows, gs + gy)
        added = [s + c for s, c in zip(sums, found, strict=False)]
        return [*added, *found[len(sums) :]]

    def placed(self, found: Sequence[Any]) -> list[Any]:
        """The cotangents in the places of the inputs."""
        result: list[Any] = [None] * len(self.op.body.inputs)
        for i, c in zip(self.targets, found, strict=True):
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
    budget: int | str | None = None,
    spill: Any = False,
) -> tuple[Any, Any]:
    """carry, y = f(carry, x) for each x along the leading axis of xs; (last carry, all ys).

    carry, xs and ys are trees. The carry keeps its structure, shapes and dtypes. Tensors
    that f uses from outside are differentiated too. The backward pass needs the carry before
    every step; with a `budget` it keeps as many as fit in those bytes and runs steps again, as
    few as can be. With `spill`, True or a directory, some go to a file: none runs again twice.
    """
    room = room_for_loops.get() if budget is None else bytes_of("scan", budget)
    place = directory_of("scan", spill)
    first, shape_of_carry = tree.flatten(init)
    rows, shape_of_xs = tree.flatten(xs)
    first, rows = [lift(c) for c in first], [lift(x) for x in rows]
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
    op = Scan(captured_first(graph, k), k, n, steps, bool(reverse), room, place)
    outs = apply(op, *captured, *first, *rows)
    return tree.unflatten(shape_of_carry, outs[:n]), tree.unflatten(shape_of_y[0], outs[n:])


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
