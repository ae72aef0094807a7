"""split: long reductions and deep products, in parts that threads share and caches hold."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from retrograd.jit.passes.deep import split_product
from retrograd.jit.passes.rewrite import Writer, rewritten
from retrograd.ops.extrema import Extremum
from retrograd.ops.linalg import Matmul
from retrograd.ops.reduce import Sum
from retrograd.ops.shape import Reshape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.ir.graph import Graph, Node

__all__ = ["split"]

ROWS = 64  # results that occupy the threads as they are
LONG = 1 << 15  # elements that are worth it
TALL = 1 << 11  # lines that are reduced to one, if they are to stay in a cache meanwhile
LEAST, PARTS, MOST = 4, 32, 64
LINE = 64  # elements
MANY = 1 << 14  # sums of rows that are soon added up


def split(graph: Graph) -> Graph:
    """Reduce what is long and has few results, or tall columns, in parts; by shape alone."""
    return rewritten(graph, _visit, split)


def _visit(writer: Writer, node: Node) -> Sequence[int]:
    op: Any = node.op
    if isinstance(op, Matmul):
        return split_product(writer, node)
    if not isinstance(op, (Sum, Extremum)):
        return writer.keep(node)
    shape = writer.specs[node.inputs[0]].shape
    if len(op.axis) == len(shape) > 1 and _has_rows(shape):
        return _by_rows(writer, node)
    found = _parts(shape, op.axis) if _pays(shape, op.axis) else None
    if found is None:
        return writer.keep(node)
    whole, at, parts = found
    cut = (*shape[:at], parts, shape[at] // parts, *shape[at + 1 :])
    inner = tuple(a + (a >= at) for a in op.axis if a not in whole)
    (x,) = writer.add(Reshape(cut), node.inputs, node)
    (some,) = writer.add(op.replace(axis=inner, keepdims=False), [x], node)
    left = [a for a in range(len(cut)) if a not in inner]
    last = tuple(left.index(a) for a in (*whole, at))
    (out,) = writer.add(op.replace(axis=last, keepdims=False), [some], node)
    if writer.specs[out].shape == node.specs[0].shape:
        return [out]
    return writer.add(Reshape(node.specs[0].shape), [out], node)


def _has_rows(shape: tuple[int, ...]) -> bool:
    """Whether there are many rows, but not too many to add up what is left of them."""
    rows = prod(shape[:-1])
    return ROWS <= rows <= MANY and shape[-1] >= ROWS and rows * shape[-1] >= LONG


def _by_rows(writer: Writer, node: Node) -> Sequence[int]:
    """All rows, then what is left of them: kernels that work row by row can do the first."""
    op: Any = node.op
    last = len(op.axis) - 1
    rows = writer.add(op.replace(axis=(last,), keepdims=False), node.inputs, node)
    op = op.replace(axis=tuple(range(last)), keepdims=False)
    (out,) = writer.add(op, rows, node)
    if not node.specs[0].shape:
        return [out]
    return writer.add(Reshape(node.specs[0].shape), [out], node)


def _pays(shape: tuple[int, ...], axis: tuple[int, ...]) -> bool:
    """Whether threads would have too little to share, or columns no room in a cache."""
    total = prod(shape)
    if total < LONG or not axis:
        return False
    rows = total // max(1, prod(shape[a] for a in axis))
    columns = len(shape) - 1 not in axis and shape[-1] > 1
    return rows < ROWS or (columns and total // rows > TALL)


def _parts(
    shape: tuple[int, ...], axis: tuple[int, ...]
) -> tuple[tuple[int, ...], int, int] | None:
    """Reduced axes to keep whole, the one to cut, in how many; None if none can be cut."""
    axes, whole = sorted(axis), 1
    choices: list[tuple[int, tuple[tuple[int, ...], int, int]]] = []
    for n, a in enumerate(axes):
        if whole <= MOST:  # all of the axes before it, and some of this one
            parts = _cut(shape[a], whole)
            choices.append((whole * parts, (tuple(axes[:n]), a, parts)))
            whole *= shape[a]
        parts = _cut(shape[a], 1)
        choices.append((parts, ((), a, parts)))
    many, best = max(choices, key=lambda c: min(c[0], PARTS))  # the first of equal ones
    return best if many >= LEAST else None


def _cut(size: int, whole: int) -> int:
    """Equal parts of an axis such that there are enough, if they can be found."""
    sizes = [p for p in range(1, min(MOST // whole, size - 1) + 1) if size % p == 0]
    enough = [p for p in sizes if whole * p >= PARTS]
    even = [p for p in enough if size // p % LINE == 0]  # nothing is left over by vectors
    return (even or enough or sizes[-1:] or [1])[0]
