"""Squares that are turned over in bands: two below each other, so that two lines go together.

Memory that is written a line at a time, each in another row, takes twice as long as two
neighbouring lines of each row. But the registers have room for one square. So the squares of a
block, two below each other and four side by side, are turned over into scratch, while what the
block before left there goes to the results, whole rows of the block at a time: reading and
writing go on side by side. A row is read and called for four lines at a time.

Of rows apart by 16 KiB, two squares below each other and four beside were the best of all sizes
from one to eight while memory was slow, and as good as any while it was fast.
"""

from __future__ import annotations

from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

from retrograd.jit.llvm.gemm_pack import transposed
from retrograd.jit.llvm.gemm_tile import prefetch
from retrograd.jit.llvm.squares import Squares
from retrograd.jit.llvm.text import LINE, Int
from retrograd.jit.llvm.values import in_memory
from retrograd.jit.llvm.walks import Tile
from retrograd.jit.loops.analyse import stride

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrograd.jit.llvm.text import Val
    from retrograd.jit.loops.index import Axis

__all__ = ["Bands"]

HIGH, WIDE = 2, 4  # squares of a block
SQUARES = HIGH * WIDE


class Bands(Squares):
    """The part of a kernel's writer that turns operands over a block ahead."""

    @cached_property
    def banded(self) -> bool:
        """Whether turns are little work, for a CPU that reads memory in bursts."""
        machine = self.f.machine
        whole = machine.vector_bytes == LINE and self.turned is not None
        return machine.bursts and whole and self.light

    @property
    def stay(self) -> int:
        """Squares below each other that chunks do not part."""
        return HIGH if self.banded else 1

    def _middle(
        self, ends: tuple[Int, Int], span: tuple[Int, Int], body: Callable[[], None]
    ) -> None:
        """Whole blocks in bands; what is beside and below them square by square."""
        if not self.banded:
            super()._middle(ends, span, body)
            return
        f, n = self.f, self.lanes
        across, across_end = self._whole(ends, WIDE * n)
        down, down_end = self._whole(span, HIGH * n)
        both = f.bitwise("and", across, down)
        with f.when(both):
            self._bands((ends[0], across_end), (span[0], down_end), body)
        super()._middle((across_end, ends[1]), (span[0], down_end), body)
        super()._middle(ends, (down_end, span[1]), body)

    def _whole(self, span: tuple[Int, Int], size: int) -> tuple[Val, Int]:
        """Whether pieces of a size fit, and where the last of them ends."""
        f, (low, high) = self.f, span
        length = f.sub(f.integer(high), f.integer(low))
        count = f.div(length, f.integer(size))
        return f.compare("sgt", count, f.integer(0)), f.plus(low, f.times(count, size))

    def _bands(
        self, across: tuple[Int, Int], down: tuple[Int, Int], body: Callable[[], None]
    ) -> None:
        """Block after block, of which the next is turned over; after the last, it again."""
        f, n, ((buffer, _),) = self.f, self.lanes, self.wanted
        t, size = in_memory(buffer.dtype), SQUARES * n * n
        rooms = [f.alloca(t, size), f.alloca(t, size)]
        wide, high = WIDE * n, HIGH * n
        start, begin = f.integer(down[0]), f.integer(across[0])
        with f.loop(0, SQUARES) as square:
            self._turned_to(self._square_of((start, begin), square.i), rooms[0], square.i)
        with f.loop(start, down[1], high, carry=rooms) as band:
            below = f.lesser(f.plus(band.i, high), f.plus(down[1], -high))
            with f.loop(begin, across[1], wide, carry=band.carry) as block:
                here, there = block.carry
                on = f.integer(f.plus(block.i, wide))
                over = f.compare("eq", on, f.integer(across[1]))
                then = f.select(over, f.integer(below), band.i), f.select(over, begin, on)
                with f.loop(0, SQUARES) as square:
                    rows = self._square_of(then, square.i)
                    self._leave((band.i, block.i), here, square.i, body)
                    self._turned_to(rows, there, square.i)
                block.next = [there, here]
            band.next = list(block.results)

    def _square_of(self, corner: tuple[Val, Val], number: Val) -> list[Val]:
        """The rows of a square of a block; a share of the block after it is called for."""
        f, n, ((buffer, ix),), (_, axis) = self.f, self.lanes, self.wanted, self._both()
        t, (below, beside) = in_memory(buffer.dtype), self._numbered(number)
        found: list[Val] = []

        def look() -> None:
            spot, step, down = self._ends(buffer, ix, axis)
            way, few = -1 if down else 1, n // WIDE
            first = f.at(spot, f.times(beside, few * step - way * n), t)
            for row, line in product(range(few), range(WIDE)):
                soon = f.at(first, row * step + way * (WIDE + line) * n, t)
                prefetch(f, soon, near=False)
            found.extend(f.load(t.by(n), f.at(spot, row * step, t)) for row in range(n))

        at = f.plus(corner[0], f.times(below, n)), f.plus(corner[1], f.times(beside, n))
        self._vector_of(at, look)
        return found

    def _turned_to(self, rows: list[Val], room: Val, number: Val) -> None:
        """A square, turned over, to its place among the rows of a block."""
        f, n, ((buffer, ix),), (_, axis) = self.f, self.lanes, self.wanted, self._both()
        t, (below, beside) = in_memory(buffer.dtype), self._numbered(number)
        start = f.plus(f.times(beside, n * HIGH * n), f.times(below, n))
        columns = transposed(f, rows, n)
        columns = columns[::-1] if stride(ix, axis) == -1 else columns
        for turn, x in enumerate(columns):
            f.store(x, f.at(f.at(room, start, t), turn * HIGH * n, t))

    def _leave(
        self, corner: tuple[Val, Val], room: Val, number: Val, body: Callable[[], None]
    ) -> None:
        """The turns of a block that come with one of the next squares."""
        f, n, (key,) = self.f, self.lanes, self.wanted
        t, few = in_memory(key[0].dtype), WIDE * n // SQUARES
        self.turn = 0
        for turn, below in product(range(few), range(HIGH)):
            row = f.plus(f.times(number, few), turn)
            spot = f.at(room, f.plus(f.times(row, HIGH * n), below * n), t)
            self.tiles[key] = Tile(None, down=False, rows=[f.load(t.by(n), spot)])
            self._vector_of((f.plus(corner[0], below * n), f.plus(corner[1], row)), body)
        self.tiles = {}

    def _numbered(self, number: Val) -> tuple[Val, Val]:
        """How many squares of a block are above one, and before it."""
        f = self.f
        above = f.div(number, f.integer(WIDE))
        return above, f.sub(number, f.mul(above, f.integer(WIDE)))

    def _both(self) -> tuple[Axis, Axis]:
        """Of lanes, and of turns."""
        assert self.vector is not None
        assert self.turned is not None
        return self.vector, self.turned

    def _vector_of(self, place: tuple[Int, Int], body: Callable[[], None]) -> None:
        """Something for a vector of a turn."""
        last, axis = self._both()
        self._inside(last, place[0], lambda: self._inside(axis, place[1], body))
