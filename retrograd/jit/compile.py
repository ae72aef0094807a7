"""From a traced graph to a program: from the cache, or by passes and then the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit import eager_memory
from retrograd.jit.llvm import stored
from retrograd.jit.llvm.machine import chosen

if TYPE_CHECKING:
    from retrograd.ir.graph import Graph
    from retrograd.jit.limit import Limit
    from retrograd.jit.llvm.machine import Machine
    from retrograd.jit.llvm.ready import Program, Written

__all__ = ["compiled"]


def compiled(
    graph: Graph,
    donated: tuple[int, ...] = (),
    machine: Machine | None = None,
    limit: Limit | None = None,
    *,
    fast: bool = False,
) -> Program:
    """The program of a graph. `donated`: inputs whose memory outputs may take."""
    eager_memory.clear()
    machine = machine or chosen()
    key = None if limit else stored.key_of(graph, donated, machine, fast=fast)
    if key is None:
        return _built(graph, donated, machine, limit, fast=fast)
    found = stored.find(key, lambda: _written(graph, donated, machine, fast=fast))
    if found is None:
        found = _built(graph, donated, machine, None, fast=fast)
        stored.keep(key, found)
    return found


# What builds is loaded when it is needed: it takes longer to load than a program of the cache.


def _built(
    graph: Graph,
    donated: tuple[int, ...],
    machine: Machine,
    limit: Limit | None,
    *,
    fast: bool,
) -> Program:
    from retrograd.jit.llvm.budget import plans  # noqa: PLC0415
    from retrograd.jit.llvm.kernels import kernels_of  # noqa: PLC0415
    from retrograd.jit.llvm.program import build  # noqa: PLC0415
    from retrograd.jit.passes import optimized  # noqa: PLC0415

    graph = optimized(graph, kernels_of, fast=fast)
    if limit is None:
        return build(graph, machine, donated)
    found = plans(graph, machine, donated, limit.threads, disk=bool(limit.spill))
    return build(graph, machine, donated, course=found.within(limit.who, limit.nbytes))


def _written(
    graph: Graph, donated: tuple[int, ...], machine: Machine, *, fast: bool
) -> Written:
    """How a program from the cache was written: it is written again, and not compiled."""
    from retrograd.jit.llvm.kernels import kernels_of  # noqa: PLC0415
    from retrograd.jit.llvm.program import Writer  # noqa: PLC0415
    from retrograd.jit.passes import optimized  # noqa: PLC0415

    writer = Writer(optimized(graph, kernels_of, fast=fast), machine, donated)
    return writer.account(writer.written())
