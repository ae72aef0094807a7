"""What each node of a graph is to the compiler: an array expression, loops, a product, a call.

`Lowering` runs an op's `lower` on the loop language, in the table of one kernel.
"""

from __future__ import annotations

import inspect
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.op import Elementwise
from retrograd.jit.loops.arrays import Array, stored, stretched
from retrograd.jit.loops.expr import Buffer, NotLoweredError, cast, number
from retrograd.jit.loops.index import Ix
from retrograd.jit.loops.record import Frame, Out, Recorder, Row
from retrograd.jit.loops.vocabulary import FUNCTIONS
from retrograd.ops.cast import Astype
from retrograd.ops.linalg import Matmul
from retrograd.ops.literal import Literal
from retrograd.ops.reduce import Sum, count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrograd.ir.graph import Graph, Node
    from retrograd.jit.loops.expr import Expr

__all__ = [
    "CALL",
    "DEAR",
    "INLINE",
    "LOOPS",
    "PRODUCT",
    "Lowering",
    "kind_of",
    "price",
    "price_of",
]

INLINE, LOOPS, PRODUCT, CALL = "inline", "loops", "product", "call"
SMALL = 64  # elements of a literal that is written into code
SHORT = 8  # elements of a sum that is written out
DEAR = 12  # operations of a function such as exp, about
CHEAP = ("abs", "larger", "maximum")  # functions that are an instruction or two
SLOW = {"div": 6, "sqrt": 6}  # instructions that take as long as so many others


@cache
def _writes_outputs(cls: Any) -> bool:
    """Whether `lower` names its outputs: the form that is written in loops."""
    names = inspect.signature(cls.lower).parameters  # type: ignore[attr-defined]
    return any(o in names for o in cls.outputs)  # type: ignore[attr-defined]


def kind_of(graph: Graph, node: Node) -> str:
    """Which of the four a node is."""
    op: Any = node.op
    if op.host or op.effect or not hasattr(op, "lower"):
        return CALL
    if isinstance(op, Literal):
        return INLINE if op.value.spec.size <= SMALL else CALL
    if isinstance(op, Matmul):
        return PRODUCT
    return _tried(op, tuple(graph.specs[i] for i in node.inputs), node.specs)[0]


def price_of(graph: Graph, node: Node) -> int:
    """A guess at how many operations an element of an inline node takes."""
    return _tried(node.op, tuple(graph.specs[i] for i in node.inputs), node.specs)[1]


@lru_cache(maxsize=4096)
def _tried(op: Any, specs: tuple[Any, ...], outs: tuple[Any, ...]) -> tuple[str, int]:
    """Lower once on symbols, to see whether the loop language has all it says, and how much."""
    total = 0
    try:
        low = Lowering({})
        arrays = [stored(low.table, Buffer(s.shape, s.dtype, i)) for i, s in enumerate(specs)]
        found = low.lowered(op, arrays, outs)
        for made, spec in zip(found, outs, strict=True):
            if isinstance(made, Array) and spec.size:
                total += sum(map(price, made.at(Frame(spec.shape).index).walk()))
    except NotLoweredError:
        return CALL, 0
    return (INLINE if all(isinstance(f, Array) for f in found) else LOOPS), total


def price(e: Expr) -> int:
    """A guess at how many operations an expression takes, beside its arguments."""
    if e.op in ("number", "load", "place", "cast"):
        return 0
    if e.op in SLOW:
        return SLOW[e.op]
    return DEAR if e.op in FUNCTIONS and e.op not in CHEAP else 1


class Lowering:
    """Ops of one kernel, lowered into its table."""

    def __init__(self, table: dict, frame: Any = None) -> None:
        self.table = table
        self.k = Recorder(table, FUNCTIONS, frame)

    def lowered(self, op: Any, arrays: Sequence[Array], outs: Sequence[Any]) -> list[Any]:
        """The outputs of an op: arrays, or the `Out`s that its loops write."""
        kind: Any = type(op)
        if isinstance(op, Elementwise) and not _writes_outputs(kind):
            return [self._elementwise(op, arrays, outs[0])]
        if isinstance(op, Sum) and 0 < count(arrays[0].shape, op.axis) <= SHORT:
            return [_written_out(arrays[0], op.axis, outs[0])]
        if _writes_outputs(kind):
            made = [Out(self.k, s.shape, s.dtype) for s in outs]
            op.lower(self.k, *arrays, *made)
            for a, b, out in self.k.gemms:
                _product_loops(self, a, b, out)
            self.k.gemms.clear()
            return [m.array or m for m in made]
        found = op.lower(self.k, *arrays)
        found = list(found) if isinstance(found, tuple) else [found]
        return [self._as(f, s) for f, s in zip(found, outs, strict=True)]

    def _as(self, x: Array, spec: Any) -> Array:
        if x.dtype == spec.dtype:
            return remembered(Array(spec.shape, spec.dtype, x.at))
        return Array(spec.shape, spec.dtype, lambda index: cast(x.at(index), spec.dtype))

    def _elementwise(self, op: Any, arrays: Sequence[Array], spec: Any) -> Array:
        def at(index: tuple[Ix, ...]) -> Any:
            args = [stretched(a, index) for a in arrays]
            found = op.lower(self.k, *args)
            return cast(number(self.table, found, spec.dtype), spec.dtype)

        return remembered(Array(spec.shape, spec.dtype, self.k.later(at)))


def _written_out(x: Array, axis: tuple[int, ...], spec: Any) -> Array:
    """A sum of a few elements as an expression: what reads it needs no memory for it."""
    places = list(np.ndindex(*(x.shape[a] for a in axis)))

    def at(index: tuple[Ix, ...]) -> Any:
        rows = iter(index if len(index) < x.ndim else _outside(index, axis))
        spots = [None if a in axis else next(rows) for a in range(x.ndim)]
        found = None
        for place in places:
            given = map(Ix, place)
            here = x.at(tuple(next(given) if s is None else s for s in spots))
            found = here if found is None else found + here
        return found

    return remembered(Array(spec.shape, spec.dtype, at))


def _outside(index: tuple[Ix, ...], axis: tuple[int, ...]) -> list[Ix]:
    return [i for a, i in enumerate(index) if a not in axis]


def remembered(x: Array) -> Array:
    """The array, whose expressions are made once for each index."""
    known: dict[Any, Any] = {}
    at: Callable[[Any], Any] = x.at

    def once(index: tuple[Ix, ...]) -> Any:
        if index not in known:
            known[index] = at(index)
        return known[index]

    return Array(x.shape, x.dtype, once)


def is_movement(op: Any) -> bool:
    """Whether an inline op only says where elements are."""
    return not isinstance(op, (Elementwise, Astype, Sum)) and not getattr(op, "draws", False)


def _product_loops(low: Lowering, a: Array, b: Array, out: Out) -> None:
    """A matrix product as plain loops, for numbers that have no kernel of their own."""
    lead = len(out.shape) - 2
    k, depth = low.k, a.shape[-1]
    shape = (*out.shape, depth)
    frame = k.framed(shape, (len(shape) - 1,))
    total = k.var(0)
    for step in Row(k, frame).steps():
        *batch, i, j, t = step.index
        left = stretched(a, (*batch[:lead], i, t))
        right = stretched(b, (*batch[:lead], t, j))
        total.value = total.value + left * right
    out[Row(k, frame)] = total.value
