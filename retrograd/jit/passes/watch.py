"""watch: after each op, one that looks at what went in and what came out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.core import dtype as dt
from retrograd.jit.passes.rewrite import Writer, rewritten
from retrograd.ops.literal import Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrograd.core.op import Op
    from retrograd.ir.graph import Graph, Node

__all__ = ["watch"]


def watch(graph: Graph, look: Callable[[Op, int], Op]) -> Graph:
    """Put look(op, number of its operands), on operands and results, after ops of floats."""

    def visit(writer: Writer, node: Node) -> Sequence[int]:
        made: Any = writer.keep(node)
        floats = any(dt.is_inexact(s.dtype) for s in node.specs)
        if floats and not isinstance(node.op, Literal):
            writer.add(look(node.op, len(node.inputs)), (*node.inputs, *made), node)
        return made

    return rewritten(graph, visit, lambda body: watch(body, look))
