"""Numbers of a row that several of its loops need: dear ones are kept from the first loop on.

Softmax needs exp for the sum, and again for each result. A row of numbers is in the first cache
when the next loop comes, which costs less than exp.

A load that comes soon after a store to an address a whole number of pages away waits for it. So
the row lies a quarter of a page further than what is read (results lie half a page further, as
`core.lines` says): softmax of large arrays took a tenth longer where it met that.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from retrograd.jit.llvm.text import I8, I64, LINE
from retrograd.jit.llvm.values import in_register
from retrograd.jit.loops.analyse import expressions
from retrograd.jit.loops.expr import For
from retrograd.jit.lowering import DEAR, price

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.text import Int, Type, Val
    from retrograd.jit.loops.expr import Buffer, Expr, Kernel
    from retrograd.jit.loops.index import Axis

__all__ = ["Kept"]

MOST = 16 * 1024  # bytes of a row
PAGE = 1 << 12  # bytes


class Row(NamedTuple):
    """Memory for the numbers of a row, and the loop that fills it."""

    memory: Val
    type: Type
    loop: For


class Kept:
    """The numbers that the loops of a kernel leave for the loops after them."""

    def __init__(
        self,
        f: Fn,
        kernel: Kernel,
        axis: Axis | None,
        lanes: int,
        base: Mapping[Buffer, Val],
    ) -> None:
        self.f, self.axis = f, axis
        self.loop: For | None = None  # that is being written
        self.start: Int = 0  # where its row is kept
        self.length, self.many = 0, 1  # numbers of a row, and rows if they are staggered
        self.rows: dict[int, Row] = {}
        loops = [s for s in kernel.body if isinstance(s, For)]
        if axis is None or not lanes or any(s.axes != (axis,) for s in loops):
            return
        within = [{id(e): e for e in expressions([s])} for s in loops]
        if any(e.op == "guard" for seen in within for e in seen.values()):
            return  # lanes that a test leaves out hold anything
        often = Counter(key for seen in within for key in seen)
        self.length = length = -(-axis.extent // lanes) * lanes
        for at, (loop, seen) in enumerate(zip(loops, within, strict=True)):
            for key, e in seen.items():
                if often[key] > 1 and key not in self.rows and self._dear(e, length):
                    t = in_register(e.dtype)
                    self.many = max(n for n, s in enumerate(within) if key in s) - at
                    read = [e.data[0] for e in seen.values() if _runs_along(e, axis)]
                    memory = self._beside(t, length * self.many, [base[b] for b in read])
                    self.rows[key] = Row(memory, t, loop)
                    return  # one row: kernels rarely have two, and caches are small

    def _dear(self, e: Expr, length: int) -> bool:
        small = length * e.dtype.itemsize <= MOST
        real = e.dtype.kind == "f" and self.axis in e.axes
        return small and real and price(e) >= DEAR

    def _beside(self, t: Type, count: int, read: list[Val]) -> Val:
        """Memory for some numbers, whose place in a page is not that of what is read."""
        f = self.f
        if not read:
            return f.alloca(t, count)
        room = f.alloca(t, count + PAGE // (t.bits // 8))
        here, there = (f.convert("ptrtoint", p, I64) for p in (room, read[0]))
        gap = f.sub(f.add(there, f.integer(PAGE // 4)), here)
        return f.at(room, f.bitwise("and", gap, f.integer(PAGE - LINE)), I8)

    def place(self, row: Val) -> Int:
        """Where a row is kept while those before it are still read."""
        if self.many == 1:
            return 0
        turn = self.f.rem(row, self.f.integer(self.many), signed=False)
        return self.f.times(turn, self.length)

    def found(self, e: Expr, at: Any, lanes: int) -> Val | None:
        """The numbers from a place of the row on, if a loop before has left them."""
        row = self.rows[id(e)]
        if self.loop is None or row.loop is self.loop:
            return None
        return self.f.load(row.type.by(lanes), self._spot(row, at))

    def leave(self, e: Expr, at: Any, x: Val, lanes: int) -> None:
        """Keep the numbers from a place on, if a later loop needs them."""
        row = self.rows[id(e)]
        if row.loop is self.loop:
            self.f.store(self.f.splat(x, lanes), self._spot(row, at))

    def _spot(self, row: Row, at: Int) -> Val:
        return self.f.at(row.memory, self.f.plus(self.start, at), row.type)


def _runs_along(e: Expr, axis: Axis) -> bool:
    return e.op == "load" and axis in e.axes
