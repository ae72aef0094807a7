"""Rows that are called for while the loops of the row before compute.

The first loop over a row reads it from memory, and does little with it; those after it find it
in the first cache. So the second loop calls for the row that is next; or the first one, where
rows are staggered and the second is a row behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from retrograd.jit.loops.analyse import expressions, stride
from retrograd.jit.loops.expr import For, dynamics

if TYPE_CHECKING:
    from retrograd.jit.loops.expr import Buffer, Kernel
    from retrograd.jit.loops.index import Axis, Ix

__all__ = ["Ahead", "loop_of", "rows_ahead"]


class Ahead(NamedTuple):
    """Elements that a loop calls for: so many after those at a place."""

    buffer: Buffer
    place: Ix
    step: int


def rows_ahead(kernel: Kernel, axis: Axis | None) -> tuple[For | None, list[Ahead]]:
    """The loop that calls, and for what: rows along `axis` that its first loop reads."""
    loops = [s for s in kernel.body if isinstance(s, For)]
    rows = [a for a in kernel.axes if a.extent > 1]
    if axis is None or len(loops) < 2 or not rows:
        return None, []
    seen = dict.fromkeys(e.data for e in expressions(loops[:1]) if e.op == "load")
    found = [
        Ahead(b, ix, step)
        for b, ix in seen
        if b.constant is None
        and not dynamics(ix)
        and stride(ix, axis) == 1
        and (step := stride(ix, rows[-1]))
    ]
    return loops[1], found


def loop_of(kernel: Kernel) -> Axis | None:
    """The axis that the only loop of a kernel goes along."""
    loops = [s for s in kernel.body if isinstance(s, For)]
    return loops[0].axes[-1] if len(loops) == 1 and loops[0].axes else None
