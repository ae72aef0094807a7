"""How a loop kernel is parted: which axis chunks divide, how many vectors go side by side."""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING

from retrograd.jit.loops.analyse import assigned, expressions, jumps, plain_columns, plain_lines
from retrograd.jit.loops.expr import For
from retrograd.jit.loops.vocabulary import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.llvm.machine import Machine
    from retrograd.jit.loops.expr import Kernel
    from retrograd.jit.loops.index import Axis

__all__ = ["CHUNKS", "abreast", "divided", "holding", "together"]

CHUNKS = 16
TURNS = 8  # whole turns that make up for one that is not
START = 8  # vectors that could be read while a part of a row is begun
ENOUGH = 8  # pieces of work for the threads


def together(kernel: Kernel, vector: Axis, lanes: int, machine: Machine) -> int:
    """Vectors side by side as one: columns that are reduced are read in whole lines."""
    if deep(kernel):
        return abreast(kernel, vector, lanes)
    if not plain_columns(kernel, vector):
        return 1
    others = prod(a.extent for a in kernel.axes if a is not vector)
    sums = len(assigned(kernel.body)[0])
    enough = ENOUGH // 2 if jumps(kernel) else ENOUGH  # a jump is worth more than one line
    # A sum of what is read takes no registers besides: two kilobytes of each row stream.
    loops = [s for s in kernel.body if isinstance(s, For)]
    done = [e.op for e in expressions(loops) if e.op not in ("load", "var")]
    more = 4 if len(done) > sums else int(set(done) != {"add"})

    def may(many: int) -> bool:
        strips = ceil(vector.extent / (lanes * many))
        fits = many * (sums + more) <= machine.registers
        least = min(enough, machine.cores) if many > 16 else enough
        return fits and others * strips >= least

    found = [many for many in ((32, 16, 8, 4, 2) if more < 4 else (4, 2)) if may(many)]
    vectors = ceil(vector.extent / lanes)
    return min(reversed([*found, 1]), key=lambda many: _cost(vectors, many))


def _cost(vectors: int, many: int) -> int:
    """Of a row that is read in parts, in vectors."""
    left = vectors % many
    return START * ceil(vectors / many) + vectors + (holding(left) - left) // 2


def holding(vectors: int) -> int:
    """Vectors side by side that hold what is left over: a power of two."""
    return 1 << (vectors - 1).bit_length() if vectors else 0


def deep(kernel: Kernel) -> bool:
    """Whether a turn is so long a chain that a processor sees too little of the next.

    A function such as exp is. Two vectors of one are worth what 16 registers do not hold: sin
    and erf take a fifth to a quarter less time, exp and gelu the same.
    """
    if any(isinstance(s, For) for s in kernel.body):
        return False
    return any(e.op in FUNCTIONS for e in expressions(kernel.body))


def abreast(kernel: Kernel, vector: Axis, lanes: int) -> int:
    """Vectors of a row side by side as one: what one waits for, the other does not."""
    least = lanes * 2 * (1 if vector.extent % (lanes * 2) == 0 else TURNS)
    return 2 if vector.extent >= least and plain_lines(kernel, vector) else 1


def divided(axes: Sequence[Axis], vector: Axis | None, lanes: int) -> Axis | None:
    """The axis that chunks divide: the first that is long, else the longest."""

    def pieces(a: Axis) -> int:
        return a.extent // (max(1, lanes) if a is vector else 1)

    for least in (4 * CHUNKS, CHUNKS):
        for a in axes:
            if pieces(a) >= least:
                return a
    return max(axes, key=pieces, default=None)
