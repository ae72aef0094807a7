"""cse and dce: what is computed twice, and what nobody uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.jit.passes.rewrite import Writer, effectful, rewritten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.ir.graph import Graph, Node

__all__ = ["cse", "dce"]


def cse(graph: Graph) -> Graph:
    """Compute equal ops on equal inputs once; within one checkpoint, never an effect.

    A node of a checkpoint is there to be dropped and computed again: if one outside of it
    took its value from it, or it from one outside, that value would be held for all the time
    between. So only nodes with equal tags are merged. Literals, which are no memory of the
    program, are merged anywhere by the writer.
    """
    known: dict[Any, Sequence[int]] = {}

    def visit(writer: Writer, node: Node) -> Sequence[int]:
        if effectful(node.op):
            return writer.keep(node)
        key = (node.op, node.inputs, node.tags)
        if key not in known:
            known[key] = writer.keep(node)
        return known[key]

    return rewritten(graph, visit, cse)


def dce(graph: Graph) -> Graph:
    """Leave out what neither the outputs nor an effect needs."""
    stays = iter(_stays(graph))

    def visit(writer: Writer, node: Node) -> Sequence[int]:
        return writer.keep(node) if next(stays) else [-1] * len(node.specs)

    return rewritten(graph, visit, dce)


def _stays(graph: Graph) -> list[bool]:
    """For each node whether something needs it: from the last to the first."""
    needed, found, end = set(graph.outputs), [], len(graph.specs)
    for node in reversed(graph.nodes):
        start = end - len(node.specs)
        stays = any(i in needed for i in range(start, end)) or effectful(node.op)
        if stays:
            needed.update(node.inputs)
        found.append(stays)
        end = start
    return found[::-1]
