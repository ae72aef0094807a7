"""share: results that another op gives beside its own."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from retrograd.jit.passes.rewrite import Writer, effectful, rewritten

if TYPE_CHECKING:
    from retrograd.ir.graph import Graph, Node

__all__ = ["share"]


def share(graph: Graph) -> Graph:
    """Take an op's result from the op that gives it too (`Op.twin`), if that can come first.

    A pull-back that computes the function again for its slope has the function's result. It
    moves to where the function was, with what it needs; the function is then not needed.
    """
    graph = rewritten(graph, Writer.keep, share)
    done: set[Node] = set()
    while (found := _next(graph, done)) is not None:
        first, moved = found
        done.add(graph.nodes[moved[-1]])
        graph = _moved(graph, first, moved)
    return graph


def _next(graph: Graph, done: set[Node]) -> tuple[int, list[int]] | None:
    """A node whose result another gives; that one's number, after those that it needs."""
    known: dict[Any, int] = {}
    for at, node in enumerate(graph.nodes):
        twin = node.op.twin()
        if twin is not None and node not in done:
            first = known.get((twin, node.inputs[1:], node.tags))
            moved = None if first is None else _needed(graph, first, at)
            if first is not None and moved is not None:
                return first, moved
        known.setdefault((node.op, node.inputs, node.tags), at)
    return None


def _needed(graph: Graph, first: int, last: int) -> list[int] | None:
    """The nodes after `first` that `last` needs, and itself; None if it needs `first` too."""
    makers = [-1] * len(graph.inputs)
    for at, node in enumerate(graph.nodes[: last + 1]):
        makers += [at] * len(node.specs)
    found, stack = set(), [last]
    while stack:
        at = stack.pop()
        if at == first or (at > first and effectful(graph.nodes[at].op)):
            return None
        if at > first and at not in found:
            found.add(at)
            stack += [makers[i] for i in graph.nodes[at].inputs]
    return sorted(found)


def _moved(graph: Graph, first: int, moved: list[int]) -> Graph:
    """The graph with some nodes before `first`, whose result is that of the last of them."""
    inside = set(moved)
    after = [at for at in range(first, len(graph.nodes)) if at not in inside]
    starts, end = [], len(graph.inputs)
    for node in graph.nodes:
        starts.append(end)
        end += len(node.specs)
    writer = Writer(graph.inputs)
    numbers = {i: i for i in range(len(graph.inputs))}
    for at in [*range(first), *moved, *after]:
        node = graph.nodes[at]
        inputs = tuple(numbers[i] for i in node.inputs)
        made = writer.keep(dataclasses.replace(node, inputs=inputs))
        numbers.update(zip(range(starts[at], starts[at] + len(node.specs)), made, strict=True))
        if at == first:
            numbers[starts[first]] = numbers[starts[moved[-1]]]
    return writer.graph([numbers[i] for i in graph.outputs])
