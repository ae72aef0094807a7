"""cut: a graph of values and their derivatives in two, with what goes from one to the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from retrograd.ir.graph import Graph
from retrograd.jit.passes.rewrite import Writer, effectful
from retrograd.ops.shape import BroadcastTo, PermuteDims, Reshape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.ir.graph import Node

__all__ = ["Halves", "cut"]

_VIEWS = (BroadcastTo, PermuteDims, Reshape)  # made again rather than kept


class Halves(NamedTuple):
    """The first graph returns its results, then what the second takes before its own inputs."""

    first: Graph
    second: Graph
    kept: int  # values that go from the first to the second


def cut(graph: Graph, given: int, outs: int) -> Halves:
    """The first `outs` outputs of the first `given` inputs; and the others of all inputs.

    What does not depend on the later inputs is computed in the first graph; but constants
    and views of what is kept are made in the second.
    """
    later = _later(graph, given)
    made = _makers(graph)
    again = _again(graph, outs, later, made)
    kept = _kept(graph, given, outs, later, made, again)
    first = _written(
        graph,
        range(given),
        [n for at, n in enumerate(graph.nodes) if at not in later],
        [*graph.outputs[:outs], *kept],
        made,
    )
    inner = [*kept, *range(given, len(graph.inputs))]
    nodes = [n for at, n in enumerate(graph.nodes) if at in later or at in again]
    return Halves(first, _written(graph, inner, nodes, graph.outputs[outs:], made), len(kept))


def _makers(graph: Graph) -> dict[int, int]:
    """The number of the node that makes a value, for values that are made."""
    found, first = {}, len(graph.inputs)
    for at, node in enumerate(graph.nodes):
        for _ in node.specs:
            found[first] = at
            first += 1
    return found


def _later(graph: Graph, given: int) -> set[int]:
    """The nodes that depend on the later inputs."""
    late = set(range(given, len(graph.inputs)))
    nodes, first = set(), len(graph.inputs)
    for at, node in enumerate(graph.nodes):
        values = range(first, first + len(node.specs))
        first += len(node.specs)
        if late.intersection(node.inputs):
            nodes.add(at)
            late.update(values)
    return nodes


def _needed(graph: Graph, outs: int, nodes: set[int]) -> list[int]:
    """What some nodes and the later outputs read, in order, each once."""
    reads = [i for at in sorted(nodes) for i in graph.nodes[at].inputs]
    return list(dict.fromkeys([*reads, *graph.outputs[outs:]]))


def _again(graph: Graph, outs: int, later: set[int], made: dict[int, int]) -> set[int]:
    """The nodes of the first part that the second makes again: constants, and views."""
    constant: set[int] = set()
    for at, node in enumerate(graph.nodes):
        fixed = all(made.get(i) in constant for i in node.inputs)
        if fixed and not effectful(node.op) and at not in later:
            constant.add(at)
    found: set[int] = set()
    stack = _needed(graph, outs, later)
    while stack:
        at = made.get(stack.pop(), -1)
        if at < 0 or at in later or at in found:
            continue
        if at in constant or isinstance(graph.nodes[at].op, _VIEWS):
            found.add(at)
            stack += graph.nodes[at].inputs
    return found


def _kept(
    graph: Graph,
    given: int,
    outs: int,
    later: set[int],
    made: dict[int, int],
    again: set[int],
) -> list[int]:
    second = later | again
    return [
        i
        for i in _needed(graph, outs, second)
        if made.get(i, -1) not in second and not given <= i < len(graph.inputs)
    ]


def _written(
    graph: Graph,
    inputs: Sequence[int],
    nodes: Sequence[Node],
    outputs: Sequence[int],
    made: dict[int, int],
) -> Graph:
    """A graph of some nodes, on some values as inputs."""
    writer = Writer([graph.specs[i] for i in inputs])
    numbers = {old: new for new, old in enumerate(inputs)}
    first: dict[int, int] = {}
    for value, at in made.items():
        first.setdefault(at, value)
    starts = {id(n): first.get(at, 0) for at, n in enumerate(graph.nodes)}
    for node in nodes:
        moved = tuple(numbers[i] for i in node.inputs)
        found = writer.keep(type(node)(node.op, moved, node.specs, node.where, node.tags))
        numbers.update({starts[id(node)] + k: v for k, v in enumerate(found)})
    return writer.graph([numbers[i] for i in outputs])
