"""cond: one of two programs, as one op with derivatives. Only the chosen one runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.autodiff.batch import vmap
from retrograd.autodiff.forward import jvp
from retrograd.autodiff.reverse import flat_vjp
from retrograd.control.scan_push import captured_first
from retrograd.core import dtype as dt
from retrograd.core import tree
from retrograd.core.errors import ArgumentError, DtypeError, ShapeError
from retrograd.core.interpret import PURE, RAW, apply, current, lift, using
from retrograd.core.op import FUNCTIONS, Op, front, function, op
from retrograd.core.rules import Keep
from retrograd.core.spec import Spec
from retrograd.ir.evaluate import evaluate, silent
from retrograd.ir.graph import Graph
from retrograd.ir.trace import trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["cond"]


@op
class Cond(Op):
    """yes(*operands) where the predicate holds, else no(*operands)."""

    yes: Graph
    no: Graph
    outputs = ("*results",)
    bodied = True
    host = "runs the chosen program"

    def shape(self, *args: Spec) -> tuple[Spec, ...]:
        return self.yes.output_specs

    def forward(self, *args: Any) -> tuple[Any, ...]:
        chosen = self.yes if bool(args[0]) else self.no
        with using(RAW):
            return tuple(np.asarray(o) for o in evaluate(chosen, *args[1:]))

    def batch(self, size: int, args: Sequence[Any], mapped: Sequence[bool]) -> tuple[Any, ...]:
        if not mapped[0]:
            axes = tuple(0 if m else None for m in mapped[1:])
            both = [vmap(_program(g), in_axes=axes) for g in (self.yes, self.no)]
            return branched(both[0], both[1], args[0], list(args[1:]))
        pick, operands = args[0], front(size, args[1:], mapped[1:])
        yes, no = (vmap(_program(g))(*operands) for g in (self.yes, self.no))
        return tuple(
            FUNCTIONS["where"](FUNCTIONS["reshape"](pick, (size, *(1,) * (a.ndim - 1))), a, b)
            for a, b in zip(yes, no, strict=True)
        )

    @classmethod
    def reverse(cls, mask: int) -> Any:
        return CondPull(mask)

    @classmethod
    def ahead(cls, mask: int) -> Any:
        return CondPush()

    @staticmethod
    def samples(rng):
        specs = [Spec((3,), dt.float64)] * 2
        yes, _ = trace(lambda x, y: [FUNCTIONS["tanh"](x) * y], specs)
        no, _ = trace(lambda x, y: [x + y], specs)
        for choice in (True, False):
            yield Cond(yes, no), np.asarray(choice), rng.normal(size=3), rng.normal(size=3)


def _program(graph: Graph) -> Callable[..., list[Any]]:
    return lambda *a: evaluate(graph, *a)


def branched(yes: Any, no: Any, predicate: Any, operands: list[Any]) -> Any:
    """Cond of two Python functions of flat tensors; what either captures is an operand too."""
    specs = [x.spec for x in operands]
    graphs = [trace(f, specs) for f in (yes, no)]
    (a, first), (b, second) = graphs
    wide = [s.spec for s in (*first, *second)]
    k = len(first)

    def padded(graph: Graph, start: int, count: int) -> Graph:
        inner = captured_first(graph, count)
        widened, _ = trace(
            lambda *xs: evaluate(inner, *xs[start : start + count], *xs[len(wide) :]),
            [*wide, *specs],
        )
        return widened

    op = Cond(padded(a, 0, k), padded(b, k, len(second)))
    _agree(op)
    return apply(op, predicate, *first, *second, *operands)


def _agree(op: Cond) -> None:
    if op.yes.output_specs != op.no.output_specs:
        listed = [", ".join(map(str, g.output_specs)) for g in (op.yes, op.no)]
        raise ShapeError(
            f"cond: both functions must return the same shapes and dtypes; one returns "
            f"{listed[0]}, the other {listed[1]}"
        )


def _hot(specs: Sequence[Spec]) -> list[int]:
    return [i for i, s in enumerate(specs) if dt.is_inexact(s.dtype)]


class CondPush:
    """jvp: the same choice between the two pushed-forward programs."""

    keeps = None

    def keep(self, values: Any) -> Any:
        """Predicate and operands."""
        return (values[0],)

    def push(self, op: Cond, tangents: Sequence[Any], kept: Any) -> list[Any]:
        """The tangents of the results."""
        predicate, *operands = kept[0]
        hot = _hot([o.spec for o in operands])
        ts = [
            op.zeros(operands[i].spec) if tangents[i + 1] is None else tangents[i + 1]
            for i in hot
        ]
        n = len(operands)

        def pushed(graph: Graph) -> Any:
            def program(*a: Any) -> list[Any]:
                primals, given = list(a[:n]), dict(zip(hot, a[n:], strict=True))
                full = [given.get(i, p) for i, p in enumerate(primals)]
                outs, found = jvp(_program(silent(graph)), primals, full)
                return [found[i] for i in _hot([o.spec for o in outs])]

            return program

        found = iter(branched(pushed(op.yes), pushed(op.no), predicate, [*operands, *ts]))
        return [next(found) if dt.is_inexact(s.dtype) else None for s in op.shape()]


class CondPull:
    """vjp: the same choice between the two pulled-back programs; keeps the operands."""

    keeps = (Keep("args", 0, spec=False),)

    def __init__(self, mask: int) -> None:
        self.mask = mask

    def keep(self, values: Any) -> Any:
        """Predicate and operands."""
        return (values[0],)

    def pull(self, op: Cond, g: Sequence[Any], kept: Any, count: int) -> list[Any]:
        """The cotangents of the operands; none of the predicate."""
        raw = current.get() is RAW
        with using(PURE if raw else current.get()):
            predicate, *operands = [lift(v) for v in kept[0]]
            hot = [i for i in _hot([o.spec for o in operands]) if self.mask >> (i + 1) & 1]
            outs = _hot(op.shape())
            gs = [
                FUNCTIONS["zeros"](s.shape, dtype=s.dtype) if g[i] is None else lift(g[i])
                for i, s in enumerate(op.shape())
                if i in outs
            ]
            pair = [_pulled(graph, len(operands), hot, outs) for graph in (op.yes, op.no)]
            found = branched(pair[0], pair[1], predicate, [*operands, *gs])
        result: list[Any] = [None] * count
        for i, c in zip(hot, found, strict=True):
            result[i + 1] = c.array if raw else c
        return result


def _pulled(graph: Graph, n: int, hot: list[int], outs: list[int]) -> Any:
    once = silent(graph)

    def program(*a: Any) -> list[Any]:
        operands, gs = list(a[:n]), a[n:]

        def chosen(*xs: Any) -> list[Any]:
            full = list(operands)
            for i, x in zip(hot, xs, strict=True):
                full[i] = x
            found = evaluate(once, *full)
            return [found[i] for i in outs]

        at = [operands[i] for i in hot]
        _, pull = flat_vjp(chosen, at)
        zeros = FUNCTIONS["zeros_like"]
        return [zeros(p) if c is None else c for c, p in zip(pull(list(gs)), at, strict=True)]

    return program


@function
def cond(
    predicate: Any, yes: Callable[..., Any], no: Callable[..., Any], *operands: Any
) -> Any:
    """yes(*operands) if the predicate holds, else no(*operands); only the chosen one runs.

    Both must return the same structure, shapes and dtypes. Under vmap with a mapped
    predicate both run and the results are selected.
    """
    predicate = lift(predicate)
    if predicate.shape != () or predicate.dtype != dt.bool:
        raise DtypeError(f"cond: the predicate must be one truth value; got {predicate.spec}")
    leaves, structure = tree.flatten(operands)
    leaves = [lift(x) for x in leaves]
    shapes: list[Any] = []

    def flat(f: Callable[..., Any]) -> Callable[..., list[Any]]:
        def program(*xs: Any) -> list[Any]:
            out, shape = tree.flatten(f(*tree.unflatten(structure, xs)))
            shapes.append(shape)
            return [lift(o) for o in out]

        return program

    outs = branched(flat(yes), flat(no), predicate, leaves)
    if shapes[0] != shapes[1]:
        raise ArgumentError(
            f"cond: both functions must return one structure; got {shapes[0]} and {shapes[1]}"
        )
    return tree.unflatten(shapes[0], outs)
