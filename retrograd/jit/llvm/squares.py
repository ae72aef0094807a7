"""Loops over two axes, of which operands lie along one and results along the other.

Lanes run along the last axis; an operand that lies along the one before it would be gathered,
a cache line for every lane. So squares of as many turns of both as there are lanes are turned
over in registers, and the turns find their vectors in a tile.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.fetch import Fetch
from retrograd.jit.llvm.gemm_pack import transposed
from retrograd.jit.llvm.parts import CHUNKS
from retrograd.jit.llvm.text import I64, LINE, Int
from retrograd.jit.llvm.values import in_memory
from retrograd.jit.llvm.walks import Tile, Walks, safe
from retrograd.jit.loops.analyse import expressions
from retrograd.jit.loops.expr import For, Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrograd.jit.loops.expr import Buffer, Kernel
    from retrograd.jit.loops.index import Axis, Ix

__all__ = ["Squares"]

LIGHT = 4  # operations of a turn that is written out
MANY = 4  # operands that are turned over, at most
LEAST = 1 << 14  # elements that are worth it
AHEAD = 3  # squares of the same rows
ABREAST = 3  # squares that write neighbouring lines before the next lines are read


class Squares(Walks):
    """The part of a kernel's writer that turns operands over."""

    kernel: Kernel
    wanted: list[tuple[Buffer, Ix]]  # operands that are turned over
    turned: Axis | None = None  # the axis that they lie along

    @cached_property
    def light(self) -> bool:
        """Whether turns are so little work that they are written out, with all in registers."""
        work = sum(1 for _ in expressions(self.kernel.body))
        return len(self.wanted) == 1 and work <= LIGHT and self.lanes <= 16

    def settle(self, axes: list[Axis]) -> None:
        """See which operands of a kernel lie along the axis before the lanes'."""
        self.wanted = []
        if len(axes) < 2 or axes[-1] is not self.vector or not (self.vertical and self.lanes):
            return
        axis, n = axes[-2], self.lanes
        if min(axis.extent, axes[-1].extent) < n or axis.extent * axes[-1].extent < LEAST:
            return
        if any(isinstance(s, For) for s in self.kernel.body):
            return
        loads = dict.fromkeys(e.data for e in expressions(self.kernel.body) if e.op == "load")
        written = {s.buffer for s in self.kernel.body if isinstance(s, Store)}
        whole = 0, axis.extent // n * n
        self.wanted = [
            (b, ix)
            for b, ix in loads
            if self._along(b, ix, axis) and safe([(b, ix)], axis, n) == whole
        ]
        if 0 < len(self.wanted) <= MANY and not any(b in written for b, _ in self.wanted):
            self.turned = axis

    def beside(self, split: Axis | None) -> Axis | None:
        """The axis that chunks divide: operands that are turned over are read in whole rows."""
        last, few = self.vector, CHUNKS * ABREAST * self.lanes
        if self.turned is None or split is not self.turned or last is None:
            return split
        return last if last.extent >= few else split

    def _turn_over(self) -> None:
        """Call for tiles that come soon, and fill these."""
        f, n, axis = self.f, self.lanes, self.turned
        assert axis is not None
        for buffer, ix in self.wanted:
            t = in_memory(buffer.dtype)
            spot, step, down = self._ends(buffer, ix, axis)
            fetch = Fetch(t, n, n, step).write(f.module)
            f.call(fetch, None, f.at(spot, -AHEAD * n if down else AHEAD * n, t))
            if self.light:
                spots = (f.at(spot, r * step, t) for r in range(n))
                rows = transposed(f, [f.load(t.by(n), s) for s in spots], n)
                self.tiles[buffer, ix] = Tile(None, down, rows)
        if not self.light:
            self._fill(self.wanted, axis)

    @abstractmethod
    def _strips(self, axis: Axis, low: Any, high: Any, body: Callable[[], None]) -> None: ...

    def _over(
        self, low: Any, high: Any, span: tuple[Any, Any], body: Callable[[], None]
    ) -> None:
        """Turns of the axis in squares, and what does not fill one turn by turn."""
        f, n, axis, last = self.f, self.lanes, self.turned, self.vector
        assert axis is not None
        assert last is not None
        skip = self._skipped(last, span[0])
        # chunks begin and end with squares, but for the first and the last
        first = f.compare("eq", f.integer(low), f.integer(0))
        final = f.compare("eq", f.integer(high), f.integer(axis.extent))
        begin, after = f.plus(low, skip), f.integer(f.plus(high, skip))
        limit = f.select(final, f.integer(axis.extent), after)
        whole = f.div(f.sub(limit, f.integer(begin)), f.integer(n))
        end = f.plus(begin, f.times(whole, n))
        with (
            f.loop(span[0], span[1], n * ABREAST) as group,
            f.loop(begin, end, n) as block,
        ):

            def square() -> None:
                self._hoist(self.kernel.body, {axis})
                self._inside(axis, block.i, self._turn_over)
                for k in range(n) if self.light else ():
                    self.turn = k
                    self._inside(axis, f.add(block.i, f.integer(k)), body)
                if not self.light:
                    with f.loop(0, n) as turn:
                        self.turn = turn.i
                        self._inside(axis, f.add(block.i, turn.i), body)
                self.tiles = {}

            some = f.lesser(f.plus(group.i, n * ABREAST), span[1])
            self._strips(last, group.i, some, square)
        for start, stop, test in ((0, begin, first), (end, limit, final)):
            with f.when(test), f.loop(start, stop) as turn:
                self._inside(axis, turn.i, lambda: self._strips(last, *span, body))

    def _skipped(self, last: Axis, start: Any) -> Int:
        """Turns before the first square, less than one, so that no vector is in two lines."""
        f, (buffer, ix), axis = self.f, self.wanted[0], self.turned
        assert axis is not None
        size, starts = buffer.dtype.itemsize, []
        line = min(LINE, self.lanes * size)

        def look() -> None:
            spot, step, down = self._ends(buffer, ix, axis)
            if not (down or axis.extent % self.lanes or step * size % line):
                starts.append(f.convert("ptrtoint", spot, I64))

        self._inside(last, start, lambda: self._inside(axis, 0, look))
        if not starts:
            return 0
        left = f.bitwise("and", f.sub(f.integer(0), starts[0]), f.integer(line - 1))
        whole = f.compare("eq", f.rem(left, f.integer(size)), f.integer(0))
        return f.select(whole, f.div(left, f.integer(size)), f.integer(0))
