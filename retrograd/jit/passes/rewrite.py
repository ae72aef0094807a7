"""What passes are written with: a graph that is being written, node by node.

A pass walks over the nodes once, in order, and says what each becomes. Graphs inside ops
(bodies of loops, branches) go through the same pass first.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from retrograd.core.exact import Exact
from retrograd.core.op import Op
from retrograd.core.spec import Spec
from retrograd.ir.graph import Graph, Node
from retrograd.ir.text import bodies
from retrograd.ops.literal import Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Writer", "effectful", "rewritten"]


class Writer:
    """A graph that grows: nodes are added, and their results are numbered."""

    def __init__(self, inputs: Sequence[Spec]) -> None:
        self.inputs = tuple(inputs)
        self.specs = list(inputs)
        self.nodes: list[Node] = []
        self._makers: list[Node | None] = [None] * len(self.inputs)
        self._literals: dict[Op, int] = {}

    def maker(self, value: int) -> Node | None:
        """The node that makes a value; None for inputs."""
        return self._makers[value]

    def keep(self, node: Node) -> range:
        """Add a node, whose inputs are values of this graph; a literal only once."""
        first = len(self.specs)
        if isinstance(node.op, Literal):
            known = self._literals.setdefault(node.op, first)
            if known < first:
                return range(known, known + 1)
            node = dataclasses.replace(node, tags=())  # it is never dropped, nor made again
        self.nodes.append(node)
        self.specs += node.specs
        self._makers += [node] * len(node.specs)
        return range(first, len(self.specs))

    def add(self, op: Op, inputs: Sequence[int], like: Node) -> range:
        """Add an op, with the line and tags of the node that it is written for."""
        return self.keep(self.node(op, inputs, like))

    def node(self, op: Op, inputs: Sequence[int], like: Node) -> Node:
        """An op on values of this graph, not added yet."""
        found = op.shape(*(self.specs[i] for i in inputs))
        specs = (found,) if isinstance(found, Spec) else tuple(found)
        return Node(op, tuple(inputs), specs, like.where, like.tags)

    def literal(self, array: Any, like: Node | None = None) -> int:
        """A constant, which is written once."""
        value = Exact(array)
        where = like.where if like else None
        return self.keep(Node(Literal(value), (), (value.spec,), where))[0]

    def inline(self, graph: Graph, inputs: Sequence[int], like: Node | None = None) -> Any:
        """Write a graph's nodes, on given inputs, with the line and tags of `like`."""
        numbers = list(inputs)
        for node in graph.nodes:
            place, moved = like or node, tuple(numbers[i] for i in node.inputs)
            numbers += self.keep(Node(node.op, moved, node.specs, place.where, place.tags))
        return [numbers[i] for i in graph.outputs]

    def graph(self, outputs: Sequence[int]) -> Graph:
        """What was written."""
        return Graph(self.inputs, tuple(self.nodes), tuple(outputs))


def rewritten(
    graph: Graph,
    visit: Callable[[Writer, Node], Sequence[int]],
    within: Callable[[Graph], Graph],
) -> Graph:
    """The graph with each node as what `visit` makes of it, and bodies as `within` does.

    `visit` gets a node whose inputs are values of the writer, and returns the values that
    stand for its results.
    """
    writer = Writer(graph.inputs)
    numbers = list(range(len(graph.inputs)))
    for node in graph.nodes:
        op = _mapped(node.op, within)
        inputs = tuple([numbers[i] for i in node.inputs])
        if op is not node.op or inputs != node.inputs:
            node = dataclasses.replace(node, op=op, inputs=inputs)
        numbers += visit(writer, node)
    return writer.graph([numbers[i] for i in graph.outputs])


def _mapped(op: Op, f: Callable[[Graph], Graph]) -> Op:
    """The op with f of each graph in its fields."""
    if not bodies(op):
        return op
    changes = {n: _within(getattr(op, n), f) for n in op.fields}
    return op.replace(**changes)


def _within(value: Any, f: Callable[[Graph], Graph]) -> Any:
    if isinstance(value, Graph):
        return f(value)
    if isinstance(value, Op):
        return _mapped(value, f)
    return tuple(_within(v, f) for v in value) if type(value) is tuple else value


def effectful(op: Op) -> bool:
    """Whether an op, or one in a body of it, does more than compute its results."""
    if op.effect:
        return True
    return any(effectful(node.op) for _, body in bodies(op) for node in body.nodes)
