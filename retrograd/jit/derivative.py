"""Derivatives of jitted functions on a tape: a compiled forward, and a compiled backward.

A call that a tape records runs a program that also returns what the backward needs, and the
tape keeps that. The backward pass runs another one. Where the derivative is differentiated
again, both are run op by op, in the graphs that the programs were made of.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.autodiff.custom import Custom
from retrograd.autodiff.reverse import flat_vjp
from retrograd.core import dtype as dt
from retrograd.core.errors import DerivativeError
from retrograd.core.interpret import EVAL, PURE, apply, current, using
from retrograd.core.replay import region_now
from retrograd.core.tensor import Tensor
from retrograd.ir.evaluate import evaluate
from retrograd.ir.trace import trace
from retrograd.jit.passes import cse, dce, simplify
from retrograd.jit.passes.cut import cut
from retrograd.jit.passes.rewrite import Writer
from retrograd.jit.signature import described

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.ir.graph import Graph

__all__ = ["Derivative", "Derivatives"]


def _tracked(data: Sequence[Any], captured: Sequence[Tensor]) -> tuple[bool, ...]:
    """Which of the inputs of a program a tape may follow."""
    return tuple(
        isinstance(t, Tensor) and t._node is not None and dt.is_inexact(t.dtype)
        for t in (*data, *captured)
    )


def _recordable(lowered: Any) -> bool:
    """Whether a program can be one op on a tape: all it returns are tensors of its own."""
    outside = region_now.get() is None
    return outside and not lowered.f.donate and not any(lowered.results.numbers)


class Derivatives:
    """The derivatives of a jitted function, by signature and by what is followed."""

    def __init__(self, f: Any) -> None:
        self.f = f
        self._lowered: dict[tuple[Any, ...], Any] = {}
        self._known: dict[Any, Derivative | None] = {}
        self._lock = threading.RLock()

    def find(self, read: Any, given: Sequence[tuple[str, Any]]) -> Derivative | None:
        """The programs of a call that is differentiated; None if it is to run op by op."""
        f, key = self.f, tuple(read.key)
        with self._lock:
            if key not in self._lowered:
                program = f.programs.get(key)
                call = described(read.key, given, f.static, f.donate)
                self._lowered[key] = program.lowered if program else f.trace(call)
            lowered = self._lowered[key]
            mask = _tracked(read.data, lowered.captured)
            if not any(mask) or not _recordable(lowered):
                return None
            if (key, mask) not in self._known:
                self._known[key, mask] = _made(lowered, mask)
            return self._known[key, mask]


def _made(lowered: Any, mask: tuple[bool, ...]) -> Derivative | None:
    try:
        return Derivative(lowered, mask)
    except DerivativeError:  # of an op that has none: run op by op, it says so where it should
        return None


class Derivative:
    """The programs of a signature, for the inputs that are followed."""

    def __init__(self, lowered: Any, mask: tuple[bool, ...]) -> None:
        self.lowered, self.mask = lowered, mask
        graph = lowered.graph
        self.outs = len(graph.outputs)
        joint = self._joint(graph)
        halves = cut(joint, len(graph.inputs), self.outs)
        self.graphs = halves.first, halves.second
        self.forward, self.backward = (self._compiled(g) for g in self.graphs)
        self.op = Custom(self.plain, self.save, self.pull, None, lowered.f.who)

    def _joint(self, graph: Graph) -> Graph:
        """Results and cotangents, of inputs and cotangents of results."""
        count = len(graph.inputs)
        seeds = [s for s in graph.output_specs if dt.is_inexact(s.dtype)]

        def both(*boxes: Any) -> list[Any]:
            inputs, gs = list(boxes[:count]), iter(boxes[count:])
            chosen = [x for x, m in zip(inputs, self.mask, strict=True) if m]

            def f(*xs: Any) -> list[Any]:
                given = iter(xs)
                pairs = zip(inputs, self.mask, strict=True)
                return evaluate(graph, *(next(given) if m else x for x, m in pairs))

            outs, pull = flat_vjp(f, chosen, current.get())
            found = pull([next(gs) if dt.is_inexact(o.dtype) else None for o in outs])
            self.there = [c is not None for c in found]
            return [*outs, *(c for c in found if c is not None)]

        specs = [*graph.inputs, *seeds]
        with using(PURE):
            joint, hidden = trace(both, specs)
        writer = Writer(specs)
        fixed = [writer.literal(t.array) for t in hidden]  # arrays that rules made
        found = writer.inline(joint, [*range(len(specs)), *fixed])
        return dce(cse(simplify(writer.graph(found))))

    def _compiled(self, graph: Graph) -> Any:
        from retrograd.jit.compile import compiled  # noqa: PLC0415  it loads LLVM
        from retrograd.jit.execute import Executable  # noqa: PLC0415

        f = self.lowered.f
        return Executable(compiled(graph, fast=f.fast_math), f.threads, fast=f.fast_math)

    # -- the rules of the op -------------------------------------------------------------------

    def plain(self, *xs: Any) -> list[Any]:
        """The function itself, in ops."""
        return evaluate(self.lowered.graph, *xs)

    def save(self, *xs: Any) -> tuple[list[Any], list[Any]]:
        """Results, and what the backward needs."""
        found = self._run(self.forward, self.graphs[0], xs)
        return found[: self.outs], found[self.outs :]

    def pull(self, kept: list[Any], gs: Sequence[Any]) -> list[Any]:
        """The cotangents of all inputs, None for those that are not followed."""
        specs = self.lowered.graph.output_specs
        seeds = [
            Tensor(np.zeros(s.shape, s.dtype)) if g is None else g
            for s, g in zip(specs, gs, strict=True)
            if dt.is_inexact(s.dtype)
        ]
        found = iter(self._run(self.backward, self.graphs[1], [*kept, *seeds]))
        made = iter([next(found) if there else None for there in self.there])
        return [next(made) if m else None for m in self.mask]

    def _run(self, program: Any, graph: Graph, xs: Sequence[Any]) -> list[Any]:
        """By the program; by its ops where these are recorded, traced or mapped."""
        values = current.get() in (EVAL, PURE)
        if values and all(type(x) is Tensor and x._node is None for x in xs):
            return [Tensor(a) for a in program([x.array for x in xs])]
        return evaluate(graph, *xs)

    def __call__(self, data: Sequence[Any], arrays: Sequence[np.ndarray]) -> Any:
        """The results of a call, on the tape."""
        given = [
            x if isinstance(x, Tensor) else Tensor(a) for x, a in zip(data, arrays, strict=True)
        ]
        made = apply(self.op, *given, *self.lowered.captured)
        return self.lowered.results.filled(made)
