"""Steps of a loop on bare arrays: a graph that runs many times is looked at once."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from retrograd.core import dtype as dt
from retrograd.core.executor import LIGHT, slot
from retrograd.core.interpret import compute
from retrograd.core.where import retold
from retrograd.ir.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.ir.graph import Node

__all__ = ["Steps", "lean"]


class Steps:
    """A graph to run on arrays, as `evaluate` does under Raw: the same ops, the same bits.

    Which ops are heavy, and which compute in more than they store, its specs say beforehand.
    """

    __slots__ = ("outputs", "rows")

    def __init__(self, graph: Graph) -> None:
        last, specs = graph.last_uses, graph.specs
        self.outputs = graph.outputs
        self.rows = [
            (_way([specs[i] for i in n.inputs]), n.op, n.inputs, last.get(at, ()), n.where)
            for at, n in enumerate(graph.nodes)
        ]

    def __call__(self, values: list[Any]) -> list[Any]:
        """The outputs from the inputs; the list of those is used up."""
        token = retold.set(None)
        try:
            for way, op, inputs, last, where in self.rows:
                retold.set(where)
                out = way(op, [values[i] for i in inputs])
                if type(out) is tuple:
                    values += out
                else:
                    values.append(out)
                for i in last:
                    values[i] = None
        finally:
            retold.reset(token)
        return [values[i] for i in self.outputs]


def _way(specs: Sequence[Any]) -> Any:
    """How an op runs on such operands."""
    if any(s.dtype in dt.HALF for s in specs):
        return compute
    return _asked if any(s.size >= LIGHT for s in specs) else _plain


def _plain(op: Any, given: list[Any]) -> Any:
    return op.forward(*given)


def _asked(op: Any, given: list[Any]) -> Any:
    """By kernels where they take it."""
    found = slot.forward(op, given)
    return op.forward(*given) if found is None else found


def lean(graph: Graph) -> Graph:
    """The graph without nodes that no output needs: a derivative seldom needs the value.

    Those that act stay, and those with bodies, in which some may.
    """
    needed, end = set(graph.outputs), len(graph.specs)
    nodes: list[tuple[int, Node]] = []
    for node in reversed(graph.nodes):
        end -= len(node.specs)
        made = range(end, end + len(node.specs))
        if node.op.effect or node.op.bodied or not needed.isdisjoint(made):
            needed.update(node.inputs)
            nodes.append((end, node))
    if len(nodes) == len(graph.nodes):
        return graph
    number = {i: i for i in range(len(graph.inputs))}
    for start, node in reversed(nodes):
        for k in range(len(node.specs)):
            number[start + k] = len(number)
    kept = (
        dataclasses.replace(node, inputs=tuple(number[i] for i in node.inputs))
        for _, node in reversed(nodes)
    )
    return Graph(graph.inputs, tuple(kept), tuple(number[i] for i in graph.outputs))
