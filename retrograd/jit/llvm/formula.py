"""A graph of elementwise ops as arithmetic in registers, for kernels that take a function."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from retrograd.jit.llvm.launches import REAL
from retrograd.jit.llvm.numbers import compute
from retrograd.jit.llvm.values import constant
from retrograd.jit.loops.arrays import stored
from retrograd.jit.loops.expr import Buffer, NotLoweredError
from retrograd.jit.loops.index import flat
from retrograd.jit.loops.record import Frame
from retrograd.jit.loops.vocabulary import FUNCTIONS
from retrograd.jit.lowering import INLINE, Lowering, kind_of
from retrograd.jit.passes import optimized

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.ir.graph import Graph
    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.text import Val
    from retrograd.jit.llvm.values import Num
    from retrograd.jit.loops.arrays import Array
    from retrograd.jit.loops.expr import Expr

__all__ = ["Formula"]

PLACES = frozenset({"place", "guard", "checked", "required", "var"})  # more than arithmetic
LONG = 20  # operations of a function such as exp, about


class Formula:
    """The outputs of a graph at one place, from its inputs there: all of one shape."""

    def __init__(self, inputs: Sequence[Buffer], outputs: Sequence[Expr]) -> None:
        self.inputs, self.outputs = inputs, outputs
        found = {id(e): e for out in outputs for e in out.walk()}.values()
        self.work = sum(LONG if e.op in FUNCTIONS else 1 for e in found)

    @classmethod
    def of(cls, graph: Graph) -> Formula | None:
        """The formula of a graph; None if it is more than arithmetic on its inputs."""
        graph = optimized(graph)
        shape = graph.inputs[0].shape
        every = (*graph.inputs, *graph.output_specs)
        if any(s.shape != shape or s.dtype.name not in REAL for s in every):
            return None
        if any(kind_of(graph, n) != INLINE for n in graph.nodes):
            return None
        frame = Frame(shape)
        here = flat(frame.index, shape)
        inputs = [Buffer(s.shape, s.dtype, i) for i, s in enumerate(graph.inputs)]
        try:
            outputs = [a.at(frame.index) for a in _arrays(graph, inputs)]
        except NotLoweredError:
            return None
        found = [e for out in outputs for e in out.walk()]
        if any(e.op in PLACES or (e.op == "load" and e.data[1] != here) for e in found):
            return None
        return cls(inputs, outputs)

    def __call__(self, f: Fn, given: Sequence[Val], wanted: Sequence[int]) -> list[Val]:
        """Some of the outputs, from vectors of all inputs."""
        lanes = given[0].type.lanes
        values: dict[int, Num] = {}

        def value(e: Expr) -> Num:
            if id(e) not in values:
                values[id(e)] = written(e)
            return values[id(e)]

        def written(e: Expr) -> Num:
            if e.op == "load":
                return (given[e.data[0].name],)
            if e.op == "number":
                return constant(f, np.frombuffer(e.data, e.dtype)[0], e.dtype)
            args = [value(a) for a in e.args]
            return compute(f, e.op, args, [a.dtype for a in e.args], e.dtype)

        return [f.splat(value(self.outputs[i])[0], lanes) for i in wanted]


def _arrays(graph: Graph, inputs: Sequence[Buffer]) -> list[Array]:
    """The outputs of a graph as array expressions."""
    low = Lowering({})
    arrays = [stored(low.table, b) for b in inputs]
    for node in graph.nodes:
        arrays += low.lowered(node.op, [arrays[i] for i in node.inputs], node.specs)
    return [arrays[i] for i in graph.outputs]
