"""relax: under fast_math, what may be rounded otherwise than it is written.

    a * b + c    one rounding, where nothing else reads a * b
    x / y        x times 1 / y, where y is repeated, so that it is divided once
    tanh(x)      a formula of 6 units in the last place in place of 3

Sums keep their order, no NaN or infinity is assumed away, and random numbers keep their bits:
their ops are none of these. A product that would overflow before c is added does not; a y
whose reciprocal is no normal number makes infinity or loses digits.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from retrograd.core import dtype as dt
from retrograd.jit.passes.rewrite import Writer, rewritten
from retrograd.jit.passes.table import View
from retrograd.ops import arithmetic, elementary, fast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.ir.graph import Graph, Node

__all__ = ["relax"]

_FLOATS = (dt.float32, dt.float64)
_FUSED, _RECIPROCAL, _NEGATIVE = (
    fast.MultiplyAdd(),
    arithmetic.Reciprocal(),
    arithmetic.Negative(),
)


def relax(graph: Graph) -> Graph:
    """Fuse multiply and add, divide once by what is repeated, take cheaper functions."""
    used = Counter(i for node in graph.nodes for i in node.inputs) + Counter(graph.outputs)
    once: set[int] = set()  # values of the new graph that one node reads
    at = iter(_results(graph))
    return rewritten(graph, partial(_visit, used, once, at), relax)


def _results(graph: Graph) -> list[range]:
    """The values that each node makes."""
    found, first = [], len(graph.inputs)
    for node in graph.nodes:
        found.append(range(first, first + len(node.specs)))
        first += len(node.specs)
    return found


def _visit(
    used: Counter, once: set[int], at: object, writer: Writer, node: Node
) -> Sequence[int]:
    made = _relaxed(once, writer, node)
    values: range = next(at)  # type: ignore[call-overload]
    once.update(new for new, old in zip(made, values, strict=True) if used[old] == 1)
    return made


def _relaxed(once: set[int], writer: Writer, node: Node) -> Sequence[int]:
    view = View(writer, node) if len(node.specs) == 1 else None
    if view is None or view.out.dtype not in _FLOATS:
        return writer.keep(node)
    if isinstance(node.op, (arithmetic.Add, arithmetic.Subtract)):
        return _fused(once, writer, view) or writer.keep(node)
    if isinstance(node.op, arithmetic.Divide) and view.spec(1).size < view.out.size:
        (inverse,) = writer.add(_RECIPROCAL, node.inputs[1:], node)
        return writer.add(arithmetic.Multiply(), (node.inputs[0], inverse), node)
    if isinstance(node.op, elementary.Tanh):
        return writer.add(fast.FastTanh(), node.inputs, node)
    return writer.keep(node)


def _fused(once: set[int], writer: Writer, view: View) -> Sequence[int] | None:
    """a * b + c, a * b - c or c - a * b as one node."""
    minus = isinstance(view.op, arithmetic.Subtract)
    for i in (0, 1):
        product = view.made(i, arithmetic.Multiply)
        if product is None or view.inputs[i] not in once:
            continue
        (a, b), c = product.inputs, view.inputs[1 - i]
        if minus and i == 0:
            (c,) = writer.add(_NEGATIVE, (c,), view.node)
        elif minus:
            (a,) = writer.add(_NEGATIVE, (a,), view.node)
        return writer.add(_FUSED, (a, b, c), view.node)
    return None
