"""A routine's steps as the units of a memory problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.reuse import may_fail
from retrograd.jit.steps import Call, Loops
from retrograd.memory.problem import Problem, Unit
from retrograd.ops.literal import Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.ir.graph import Graph
    from retrograd.jit.llvm.info import KernelInfo

__all__ = ["problem_of", "seconds"]

_FLOPS, _BYTES, _DISK, _START = (
    1e11,
    1e10,
    1e9,
    2e-6,
)  # a second's worth, of a machine that is nobody's


def seconds(info: KernelInfo) -> float:
    """What a kernel may take: the same on every machine, so that plans are the same."""
    return info.flops / _FLOPS + info.bytes / _BYTES + _START


def problem_of(
    routine: Any, costs: Sequence[float], more: Sequence[Loops], *, disk: bool = False
) -> Problem:
    """The steps in their order; arguments, outputs and literals have memory of their own.

    `more` are kernels that only run again. `disk`: whether values may go to a file.
    """
    graph = routine.graph
    held = set(graph.outputs) | set(range(len(graph.inputs)))
    units: list[Unit] = []
    fails = [at for at, s in enumerate(routine.steps) if may_fail(graph, s)]
    effects: list[int] = []
    for at, s in enumerate(routine.steps):
        reads, writes = (tuple(dict.fromkeys(vs)) for vs in routine.traffic(s))
        op = graph.nodes[s.node].op if isinstance(s, Call) else None
        spoils = tuple(routine.reuse[v] for v in writes if v in routine.reuse)
        after = [w for w in fails if w != at] if spoils else []
        if op is not None and op.effect:
            after += effects
            effects.append(at)
        if isinstance(op, Literal):
            held.update(writes)
        inner = routine.inner.get(at)
        units.append(
            Unit(
                reads,
                writes,
                costs[at],
                inner.size if inner else 0,
                not (spoils or isinstance(op, Literal) or (op is not None and op.effect)),
                spoils,
                tuple(after),
            )
        )
    sizes = tuple(s.nbytes for s in graph.specs)
    extra = [Unit(tuple(s.reads), tuple(s.writes), _moved(graph, s)) for s in more]
    rate = 1 / _DISK if disk else 0.0
    return Problem(tuple(units), sizes, frozenset(held), tuple(extra), disk=rate)


def _moved(graph: Graph, s: Loops) -> float:
    """What a kernel that was not written yet may take."""
    nbytes = sum(graph.specs[v].nbytes for v in (*s.reads, *s.writes))
    flops = sum(graph.specs[v].size for v in s.writes) * len(s.kernel.body)
    return nbytes / _BYTES + 10 * flops / _FLOPS + _START
