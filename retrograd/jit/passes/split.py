"""split: long reductions to a few results, in parts that threads can share."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from retrograd.jit.passes.rewrite import Writer, rewritten
from retrograd.ops.extrema import Extremum
from retrograd.ops.reduce import Sum
from retrograd.ops.shape import Reshape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.ir.graph import Graph, Node

__all__ = ["split"]

ROWS = 64  # results that occupy the threads as they are
LONG = 1 << 15  # elements that are worth it
PARTS = 32


def split(graph: Graph) -> Graph:
    """Reduce what is long and has few results in parts first, by shape alone."""
    return rewritten(graph, _visit, split)


def _visit(writer: Writer, node: Node) -> Sequence[int]:
    op: Any = node.op
    if not isinstance(op, (Sum, Extremum)):
        return writer.keep(node)
    shape = writer.specs[node.inputs[0]].shape
    found = _part(shape, op.axis)
    if found is None:
        return writer.keep(node)
    at, parts = found
    cut = (*shape[:at], parts, shape[at] // parts, *shape[at + 1 :])
    inner = tuple(a + (a >= at) for a in op.axis)
    (x,) = writer.add(Reshape(cut), node.inputs, node)
    (some,) = writer.add(op.replace(axis=inner, keepdims=False), [x], node)
    before = sum(1 for a in range(at) if a not in op.axis)
    (out,) = writer.add(op.replace(axis=(before,), keepdims=False), [some], node)
    if writer.specs[out].shape == node.specs[0].shape:
        return [out]
    return writer.add(Reshape(node.specs[0].shape), [out], node)


def _part(shape: tuple[int, ...], axis: tuple[int, ...]) -> tuple[int, int] | None:
    """The reduced axis to cut, and in how many parts; None if there is nothing to gain."""
    total = prod(shape)
    rows = total // max(1, prod(shape[a] for a in axis))
    if total < LONG or rows >= ROWS:
        return None
    for a in sorted(axis):
        parts = next((p for p in range(PARTS, 3, -1) if shape[a] % p == 0), None)
        if parts is not None and shape[a] > parts:
            return a, parts
    return None
