"""What is called for before it is read.

Rows, while the loops of the row before compute: the first loop over a row reads it from memory,
and does little with it; those after it find it in the first cache. So the second loop calls for
the row that is next; or the first one, where rows are staggered and the second is a row behind.

And what comes soon, where buffers are run through once, from end to end. CPUs look ahead by
themselves, but AMD's do so less well for two or three buffers at a time: called for, sums of
products take a sixth less time, weights minus gradients a tenth. One buffer alone they read
best untold, and of four it makes no difference. The second cache it must be, and a quarter of
a page: into the first, or further ahead, it takes longer than untold, AdamW by a sixth. Zen 5
is told of all that streams, of one buffer two pages ahead: exp and silu take an eighth less
time than with less, AdamW 3 % more.

Products and convolutions have calls of their own, in their tiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from retrograd.jit.loops.analyse import expressions, stride
from retrograd.jit.loops.expr import For, dynamics

if TYPE_CHECKING:
    from retrograd.jit.llvm.machine import Machine
    from retrograd.jit.loops.expr import Buffer, Kernel
    from retrograd.jit.loops.index import Axis, Ix

__all__ = ["INTO_SECOND", "Ahead", "Soon", "called_soon", "loop_of", "rows_ahead"]

FAR = 1 << 20  # bytes of a buffer that is not read from a cache
SEVERAL = 2, 3  # buffers that AMD's CPUs are told of


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


class Soon(NamedTuple):
    """How far ahead of what is read lines are called for, and into which cache."""

    nbytes: int
    near: bool


INTO_FIRST, INTO_SECOND = Soon(2 << 10, near=True), Soon(1 << 10, near=False)
FAR_OFF = Soon(8 << 10, near=False)  # of one buffer, for CPUs that read memory in bursts


def called_soon(kernel: Kernel, machine: Machine, *, vertical: bool) -> Soon | None:
    """For a kernel that runs through large buffers once, how it calls for them, if it does."""
    loops = [s for s in kernel.body if isinstance(s, For)]
    read = {e.data[0] for e in expressions(kernel.body) if e.op == "load"}
    if machine.told:
        return None if loops else FAR_OFF if machine.bursts and len(read) == 1 else INTO_FIRST
    large = [b for b in read if np.prod(b.shape) * b.dtype.itemsize >= FAR]
    once = not loops or (len(loops) == 1 and not vertical)
    return INTO_SECOND if once and len(large) in SEVERAL else None
