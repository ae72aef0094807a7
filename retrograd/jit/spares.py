"""Cheaper ways to values that a kernel writes together with others.

A product stores its results and what is made of them at once; so the second can be made again
from the first alone. Only what is computed element by element: it has the same bits in
whatever kernel it stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.jit.group import Builder
from retrograd.jit.loops.analyse import expressions, statements
from retrograd.jit.loops.expr import CHECKS, For
from retrograd.jit.loops.record import Frame, MismatchError
from retrograd.jit.lowering import INLINE
from retrograd.jit.steps import Call, Loops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.fuse import Fusion
    from retrograd.jit.steps import Step

__all__ = ["spares"]


def spares(fusion: Fusion, steps: Sequence[Step]) -> list[Loops]:
    """Kernels that make one value each, of values that are in memory when it was made.

    `steps` are those of the fusion, in the order in which they run.
    """
    graph = fusion.graph
    memory = set(range(len(graph.inputs)))
    found: list[Loops] = []
    for step in steps:
        writes = _writes(fusion, step)
        memory.update(writes)
        if isinstance(step, Call) or len(writes) < 2:
            continue
        for v in writes:
            if v in fusion.results or fusion.kinds[fusion.maker[v][0]] != INLINE:
                continue
            spare = _alone(fusion, v)
            if spare is not None and set(spare.reads) <= memory:
                found.append(spare)
    return found


def _writes(fusion: Fusion, step: Any) -> Sequence[int]:
    return fusion.outs(step.node) if isinstance(step, Call) else step.writes


def _alone(fusion: Fusion, v: int) -> Loops | None:
    """The kernel of one value."""
    try:
        built = Builder(fusion, Frame(fusion.graph.specs[v].shape), [v]).build()
    except MismatchError:
        return None
    body = built.kernel.body
    if any(isinstance(s, For) for s in statements(body)):
        return None
    if any(e.op in CHECKS for e in expressions(body)):
        return None
    return Loops(built.kernel, [fusion.maker[v][0]], sorted(built.reads), built.stores)
