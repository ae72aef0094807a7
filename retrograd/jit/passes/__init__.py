"""Passes: pure functions from graph to graph, run in this order before anything is compiled.

They are for programs that are about to be compiled: derivatives are taken before. Each keeps
what the graph computes, the inputs and outputs, effects and their order, and of each node that
remains the user's line and the checkpoint it belongs to. None takes more than linear time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.passes.expand import Native, expand, no_kernels
from retrograd.jit.passes.fold import fold
from retrograd.jit.passes.hoist import hoist
from retrograd.jit.passes.layout import layout
from retrograd.jit.passes.merge import cse, dce
from retrograd.jit.passes.relax import relax
from retrograd.jit.passes.share import share
from retrograd.jit.passes.simplify import simplify
from retrograd.jit.passes.split import split

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retrograd.ir.graph import Graph

__all__ = [
    "FAST",
    "PASSES",
    "cse",
    "dce",
    "expand",
    "fold",
    "hoist",
    "layout",
    "optimized",
    "relax",
    "share",
    "simplify",
    "split",
    "steps",
]

# `expand` also takes which ops the target has kernels for. simplify makes literals out of
# repeated ones, which fold then meets: so it comes before and after. Only with fast_math is
# there `relax`, which does not keep the bits.
PASSES = (expand, simplify, fold, layout, simplify, split, cse, share, dce)
FAST = (expand, simplify, fold, layout, simplify, relax, split, cse, share, dce)


def steps(
    graph: Graph, native: Native = no_kernels, *, fast: bool = False
) -> Iterator[tuple[str, Graph]]:
    """The graph after each pass, with the pass's name."""
    for run in FAST if fast else PASSES:
        graph = expand(graph, native) if run is expand else run(graph)
        yield run.__name__, graph


def optimized(graph: Graph, native: Native = no_kernels, *, fast: bool = False) -> Graph:
    """The graph after all passes; with fast_math, results may differ in the last places."""
    *_, (_, last) = steps(graph, native, fast=fast)
    return last
