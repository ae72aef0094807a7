"""Matrix products that add up much for few results: in parts that are then added."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.ops.linalg import Matmul
from retrograd.ops.reduce import Sum
from retrograd.ops.shape import PermuteDims, Reshape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.ir.graph import Node
    from retrograd.jit.passes.rewrite import Writer

__all__ = ["split_product"]

DEEP = 1 << 12  # terms that are worth it
MANY = 1 << 18  # results of which parts would take too much memory
FEW = 1 << 12  # results of which there may be many parts
PARTS, MORE = range(8, 17), range(16, 33)
LESS = range(7, 3, -1)


def split_product(writer: Writer, node: Node) -> Sequence[int]:
    """A product in equal parts of its terms, if it is deep; by shape alone.

    Each part reads its own rows of both operands: they are read once, and by all threads.
    """
    x1, x2 = (writer.specs[i] for i in node.inputs)
    parts = _parts(x1.shape, x2.shape) if x1.dtype.name in ("float32", "float64") else 1
    if parts == 1:
        return writer.keep(node)
    (m, k), n = x1.shape, x2.shape[-1]
    (a,) = writer.add(Reshape((m, parts, k // parts)), node.inputs[:1], node)
    (a,) = writer.add(PermuteDims((1, 0, 2)), [a], node)
    (b,) = writer.add(Reshape((parts, k // parts, n)), node.inputs[1:], node)
    some = writer.add(Matmul(), [a, b], node)
    return writer.add(Sum(axis=(0,)), some, node)


def _parts(x1: tuple[int, ...], x2: tuple[int, ...]) -> int:
    if len(x1) != 2 or len(x2) != 2:
        return 1
    (m, k), n = x1, x2[-1]
    if k < DEEP or m * n > MANY or k < 8 * max(m, n) or not m * n:
        return 1
    counts = [*(MORE if m * n <= FEW else ()), *PARTS, *LESS]
    return next((p for p in counts if k % p == 0), 1)
