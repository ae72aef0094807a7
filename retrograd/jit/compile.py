"""From a traced graph to a program: passes, then the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import chosen
from retrograd.jit.llvm.program import build
from retrograd.jit.passes import optimized

if TYPE_CHECKING:
    from retrograd.ir.graph import Graph
    from retrograd.jit.llvm.machine import Machine
    from retrograd.jit.llvm.program import Program

__all__ = ["compiled"]


def compiled(
    graph: Graph, donated: tuple[int, ...] = (), machine: Machine | None = None
) -> Program:
    """The program of a graph. `donated`: inputs whose memory outputs may take."""
    return build(optimized(graph, kernels_of), machine or chosen(), donated)
