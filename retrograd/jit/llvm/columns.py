"""Sums down columns of wide rows: some rows at a time, from end to end.

Sums of a few columns would stay in registers, but then memory is read in short pieces, one of
each row. So all columns of some rows are added to sums in the first cache, which is as memory
lies. Of each column the same numbers are added in the same order.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.parts import CHUNKS
from retrograd.jit.llvm.rows import Rows
from retrograd.jit.llvm.text import F32
from retrograd.jit.loops.analyse import assigned, expressions, plain_columns, reductions
from retrograd.jit.loops.expr import Assign, For, Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrograd.jit.llvm.text import Int, Val
    from retrograd.jit.loops.expr import Kernel, Var
    from retrograd.jit.loops.index import Axis

__all__ = ["ABREAST", "Columns", "tall"]

ROWS = 4  # that are added at a time, while those after them are called for
ABREAST = 2  # vectors side by side
WIDE = 2 << 10  # bytes of a row: less is read at once, into registers
NEAR = 16 << 10  # bytes of all sums, in the first cache


def tall(kernel: Kernel, vector: Axis | None) -> For | None:
    """The loop of a kernel that goes down columns of wide rows and only collects."""
    loops = [s for s in kernel.body if isinstance(s, For)]
    axes = [a for a in kernel.axes if a.extent != 1]
    if vector is None or len(loops) != 1 or axes[-1:] != [vector]:
        return None
    if max((a.extent for a in axes[:-1]), default=0) < CHUNKS:
        return None
    (loop,), at = loops, kernel.body.index(loops[0])
    found, own = reductions(loop), set(assigned(loop.body)[0])
    if not found or len(loop.axes) != 1 or any(isinstance(s, Store) for s in loop.body):
        return None
    line = vector.extent * F32.bits // 8
    if not WIDE < line <= NEAR // len(found) or loop.axes[0].extent < 2 * ROWS:
        return None
    first, after = kernel.body[:at], kernel.body[at + 1 :]
    starts = all(isinstance(s, Assign) and s.var in own for s in first)
    known = all(e.data[0] in own for e in expressions(after) if e.op == "var")
    return loop if starts and known and plain_columns(kernel, vector) else None


class Columns(Rows):
    """The part of a kernel's writer that runs loops down columns of wide rows."""

    @abstractmethod
    def _strips(self, axis: Axis, low: Any, high: Any, body: Callable[[], None]) -> None: ...

    def _down(self, axis: Axis, loop: For) -> None:
        """The whole body of a kernel, for all columns."""
        f, at, (rows,) = self.f, self.kernel.body.index(loop), loop.axes
        entry, last = assigned(loop.body)
        room, self.below = axis.extent + self.lanes, ROWS
        memory = {v: f.alloca(F32, room) for v in entry}

        def everywhere(body: Callable[[], None]) -> None:
            self._strips(axis, 0, axis.extent, body)

        def begin() -> None:
            self.vars = {}
            self._block(self.kernel.body[:at])
            self._keep(axis, memory, entry)

        def some(start: Int, many: int) -> None:
            self._take(axis, memory, entry)
            self._hoist(loop.body, {rows})
            for row in range(many):
                self._inside(rows, f.plus(start, row), lambda: self._block(loop.body))
                self.vars |= {(v, entry[v]): self.vars[v, last[v]] for v in memory}
            self._keep(axis, memory, last)

        def end() -> None:
            self._take(axis, memory, last)
            self._block(self.kernel.body[at + 1 :])

        whole = rows.extent // ROWS * ROWS
        everywhere(begin)
        with f.loop(0, whole, ROWS) as turn:
            everywhere(lambda: some(turn.i, ROWS))
        if whole < rows.extent:
            everywhere(lambda: some(whole, rows.extent - whole))
        everywhere(end)

    def _keep(self, axis: Axis, memory: dict[Var, Val], turn: dict[Var, int]) -> None:
        """Leave the sums of some columns in memory."""
        for v, base in memory.items():
            (x,) = self._current(v, turn[v])
            self.f.store(self.f.splat(x, self.lanes), self.f.at(base, self.at[axis], F32))

    def _take(self, axis: Axis, memory: dict[Var, Val], turn: dict[Var, int]) -> None:
        """Go on from the sums that were left."""
        f, t = self.f, F32.by(self.lanes)
        spots = {v: f.at(base, self.at[axis], F32) for v, base in memory.items()}
        self.vars = {(v, turn[v]): (f.load(t, spot),) for v, spot in spots.items()}
