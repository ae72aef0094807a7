"""layout: permutations carried along until they cancel, or become how a product is read.

    relu(permute(x) + b)       permute(relu(x + b'))
    sum(permute(x), axis)      permute(sum(x, axis'))
    permute(x @ y)             permute(y) @ permute(x), if the product is for nothing else

so that between convolutions whose channels come last, a program whose channels come second
computes with channels last too. Only small operands are permuted instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.core.op import Elementwise
from retrograd.jit.passes.rewrite import Writer, rewritten
from retrograd.ops.cast import Astype
from retrograd.ops.extrema import Extremum
from retrograd.ops.linalg import Matmul
from retrograd.ops.reduce import Sum
from retrograd.ops.shape import BroadcastTo, PermuteDims, Reshape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.ir.graph import Graph, Node

__all__ = ["layout"]

SMALL = 8  # times smaller than the result: permuting it is not worth a thought
Axes = tuple[int, ...]


def layout(graph: Graph) -> Graph:
    """Carry permutations through elementwise ops and reductions to where they cancel."""
    return _Layout(graph).run()


class _Layout:
    """One run over a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.at, self.first = graph, -1, len(graph.inputs)
        self.known: dict[tuple[int, Axes], int] = {}
        self.single: set[int] = set()  # products that one node reads
        self.uses: dict[int, int] = dict.fromkeys(graph.outputs, 2)
        for node in graph.nodes:
            for v in node.inputs:
                self.uses[v] = self.uses.get(v, 0) + 1

    def run(self) -> Graph:
        return rewritten(self.graph, self.visit, layout)

    def visit(self, writer: Writer, node: Node) -> Sequence[int]:
        self.at, self.first = self.at + 1, self.first + len(node.specs)
        op: Any = node.op
        found = None
        if isinstance(op, PermuteDims):
            return [self.permuted(writer, node.inputs[0], op.axes, node)]
        if isinstance(op, Elementwise | Astype) and not op.draws:
            found = self.elementwise(writer, node)
        elif isinstance(op, Sum | Extremum):
            found = self.reduced(writer, node)
        elif isinstance(op, BroadcastTo):
            found = self.repeated(writer, node)
        if found is not None:
            return [found]
        kept = writer.keep(node)
        if isinstance(op, Matmul) and self.uses.get(self.first - 1) == 1:
            self.single.add(kept[0])
        return kept

    # -- permutations -----------------------------------------------------------------------

    def permuted(self, writer: Writer, value: int, axes: Axes, like: Node) -> int:
        """A value with its axes in another order, by one move or none."""
        inner = _move(writer, value)
        if inner:
            value, axes = inner[0], tuple(inner[1][a] for a in axes)
        if axes == tuple(range(len(axes))):
            return value
        swapped = self.product(writer, value, axes)
        if swapped is not None:
            return swapped
        if (value, axes) not in self.known:
            (self.known[value, axes],) = writer.add(PermuteDims(axes), [value], like)
        return self.known[value, axes]

    def product(self, writer: Writer, value: int, axes: Axes) -> int | None:
        """A product whose last two axes change places: that of its operands, the other way."""
        last, maker = len(axes) - 1, writer.maker(value)
        if axes[:-2] != tuple(range(last - 1)) or maker is None:
            return None
        asked = self.graph.nodes[self.at]
        alone = not isinstance(asked.op, PermuteDims) or self.uses[asked.inputs[0]] == 1
        if value not in self.single or not alone:
            return None
        turned = []
        for v in reversed(maker.inputs):
            n = writer.specs[v].ndim
            turned.append(self.permuted(writer, v, (*range(n - 2), n - 1, n - 2), maker))
        return writer.add(maker.op, turned, maker)[0]

    def turned(self, writer: Writer, value: int, axes: Axes, like: Node) -> int:
        """An operand, in the order of axes that `axes` leads away from."""
        spec, n = writer.specs[value], len(axes)
        if spec.size == 1:
            return value
        if spec.ndim < n:
            to = (*(1 for _ in range(n - spec.ndim)), *spec.shape)
            (value,) = writer.add(Reshape(to), [value], like)
        return self.permuted(writer, value, _inverse(axes), like)

    # -- ops that do not mind ------------------------------------------------------------

    def elementwise(self, writer: Writer, node: Node) -> int | None:
        """The same op before the permutation, if most of what it reads was permuted."""
        axes = self._common(writer, node)
        if axes is None:
            return None
        inputs = [self.turned(writer, v, axes, node) for v in node.inputs]
        (inner,) = writer.add(node.op, inputs, node)
        return self.permuted(writer, inner, axes, node)

    def _common(self, writer: Writer, node: Node) -> Axes | None:
        """The permutation to carry on: that of the most elements that are read."""
        out, others = node.specs[0], 0
        weights: dict[Axes, int] = {}
        for v in dict.fromkeys(node.inputs):
            size, move = writer.specs[v].size, _move(writer, v)
            if size * SMALL <= out.size or not out.ndim:
                continue
            if move and len(move[1]) == out.ndim:
                weights[move[1]] = weights.get(move[1], 0) + size
            elif not isinstance(getattr(writer.maker(v), "op", None), BroadcastTo):
                others += size
        if not weights:
            return None
        axes = max(weights, key=lambda a: weights[a])
        ready = sum(writer.specs[v].size for v in node.inputs if self._ready(v, axes))
        rest = sum(weights.values()) - weights[axes] + others - ready
        return axes if weights[axes] > rest else None

    def _ready(self, value: int, axes: Axes) -> bool:
        """Whether an operand was turned before, for another reader."""
        return (value, _inverse(axes)) in self.known

    def reduced(self, writer: Writer, node: Node) -> int | None:
        """The reduction of the same axes, where they were."""
        move, op = _move(writer, node.inputs[0]), node.op
        if not move:
            return None
        assert isinstance(op, Sum | Extremum)
        value, axes = move
        mine = tuple(sorted(axes[a] for a in op.axis))
        (inner,) = writer.add(op.replace(axis=mine), [value], node)
        if op.keepdims:
            return self.permuted(writer, inner, axes, node)
        left = [axes[a] for a in range(len(axes)) if a not in op.axis]
        order = tuple(sorted(left).index(a) for a in left)
        return self.permuted(writer, inner, order, node)

    def repeated(self, writer: Writer, node: Node) -> int | None:
        """Repeated along the same axes, where they were."""
        move, op = _move(writer, node.inputs[0]), node.op
        assert isinstance(op, BroadcastTo)
        if not move or len(op.to) != len(move[1]):
            return None
        value, axes = move
        to = tuple(op.to[a] for a in _inverse(axes))
        (inner,) = writer.add(BroadcastTo(to), [value], node)
        return self.permuted(writer, inner, axes, node)


def _move(writer: Writer, value: int) -> tuple[int, Axes] | None:
    """The value, and the order of its axes, that another is by a permutation."""
    maker = writer.maker(value)
    if maker is None or not isinstance(maker.op, PermuteDims):
        return None
    return maker.inputs[0], maker.op.axes


def _inverse(axes: Axes) -> Axes:
    return tuple(axes.index(a) for a in range(len(axes)))
