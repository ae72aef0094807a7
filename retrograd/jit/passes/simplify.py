"""simplify: each node by the rules of the table, until none applies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.jit.passes import rules_moves, rules_numbers  # they fill the table
from retrograd.jit.passes.rewrite import Writer, rewritten
from retrograd.jit.passes.table import RULES, View, rules_of
from retrograd.ops.shape import BroadcastTo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.ir.graph import Graph, Node

__all__ = ["RULES", "rules_moves", "rules_numbers", "simplify"]

TURNS = 32  # more than any chain of rules is long: each makes a node simpler


def simplify(graph: Graph) -> Graph:
    """Apply the table of exact algebraic rules, from the first node to the last."""
    return rewritten(graph, _visit, simplify)


def _visit(writer: Writer, node: Node) -> Sequence[int]:
    for _ in range(TURNS):
        found = _simpler(writer, node)
        if found is None:
            break
        if isinstance(found, int):
            return [found]
        node = found
    return writer.keep(node)


def _simpler(writer: Writer, node: Node) -> int | Node | None:
    """A value or node that a rule puts in place of this one; None if no rule applies."""
    if len(node.specs) != 1:
        return None
    view = View(writer, node)
    for rule in rules_of(type(node.op)):
        found = _fitted(writer, node, rule(view))
        if found is not None:
            return found
    return None


def _fitted(writer: Writer, node: Node, found: Any) -> int | Node | None:
    """What a rule found, in the shape of the node; None where the dtype is another."""
    if found is None:
        return None
    if not isinstance(found, int):
        op, inputs = found
        new = writer.node(op, inputs, node)
        return new if new.specs == node.specs else None
    spec = writer.specs[found]
    if spec == node.specs[0]:
        return found
    if spec.dtype != node.specs[0].dtype:
        return None
    return writer.node(BroadcastTo(node.specs[0].shape), (found,), node)
