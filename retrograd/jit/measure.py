"""How long the steps of a program take here, each by itself and all together."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.jit.execute import Executable
from retrograd.jit.llvm.budget import Plans, plans
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import chosen
from retrograd.jit.llvm.program import build
from retrograd.jit.llvm.timing import Stopwatch
from retrograd.jit.passes import optimized
from retrograd.jit.passes.rewrite import effectful
from retrograd.jit.threads import get_threads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.ir.graph import Graph

__all__ = ["measured_steps", "planned"]

_RUNS, _ENOUGH = 12, 2.0  # at most so many runs, or seconds


def measured_steps(
    graph: Graph, donated: Sequence[int], arrays: Sequence[np.ndarray], threads: int
) -> tuple[list[float], float]:
    """Seconds of each step, and of a whole call: the best of some runs, one if it acts."""
    clock = Stopwatch()
    run = Executable(build(graph, chosen(), donated, clock), threads)
    once = any(effectful(n.op) for n in graph.nodes)
    steps, calls = [], []
    spent = 0.0
    for turn in range(1 if once else _RUNS):
        clock.ticks[:] = 0
        before = time.perf_counter()
        run(arrays)
        calls.append(time.perf_counter() - before)
        steps.append(clock.ticks[:, 0].copy())
        spent += calls[-1] if turn else 0.0  # the first, whose memory is new, is never alone
        if spent > _ENOUGH:
            break
    best = np.min(steps, axis=0) * 1e-9
    top = [float(best[e.number]) for e in clock.entries if not e.depth]
    return top, min(calls)


def planned(lowered: Any, arrays: Sequence[np.ndarray] | None) -> tuple[Plans, list[float]]:
    """The plans of a traced function, and seconds of each unit; last, those of a bare call.

    Measured if there are arrays, otherwise what they may be.
    """
    graph = optimized(lowered.graph, kernels_of, fast=lowered.f.fast_math)
    donated = tuple(i for i, x in enumerate(lowered.call.data) if x.donated)
    threads = lowered.f.threads or get_threads()
    found = plans(graph, chosen(), donated, threads, disk=bool(lowered.f.spill))
    costs = [u.cost for u in found.problem.all_units]
    if arrays is None:
        return found, [*costs, 0.0]
    given = [*arrays, *(t.array for t in lowered.captured)]
    units, whole = measured_steps(graph, donated, given, threads)
    slower = sum(units) / (sum(costs[: len(units)]) or 1.0)
    times = [*units, *(c * slower for c in costs[len(units) :])]
    return found, [*times, max(0.0, whole - sum(units))]
