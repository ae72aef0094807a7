"""Operands that are turned over in bands of several lines, and not in squares of one.

Memory that is written a line at a time, each in another row, takes twice as long as four
neighbouring lines of each row; rows that are read a line at a time, one below the other, a
tenth longer than four lines of each. But the registers have room for one square. So blocks,
four lines of two or four times as many rows as there are lanes, go through scratch: each row
is read from end to end, as many rows as a quarter of a register has numbers are turned over in
such quarters, and where the block before lies so, these are put together to whole lines. Both
go on side by side, a few rows of the one and a few columns of the other at a time.
"""

from __future__ import annotations

from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

from retrograd.jit.llvm.gemm_tile import prefetch
from retrograd.jit.llvm.squares import Squares
from retrograd.jit.llvm.text import LINE, Int
from retrograd.jit.llvm.values import in_memory
from retrograd.jit.llvm.walks import Tile
from retrograd.jit.loops.analyse import stride

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.text import Val
    from retrograd.jit.loops.index import Axis

__all__ = ["Bands"]

WIDE = 4  # lines of a row that are read together
QUARTERS = 4  # of a register, in which shuffles stay
EVEN, ODD = (0, 2, 4, 6), (1, 3, 5, 7)  # quarters of two registers


class Bands(Squares):
    """The part of a kernel's writer that turns operands over a block ahead."""

    @cached_property
    def banded(self) -> bool:
        """Whether turns are little work, for a CPU that reads memory in bursts."""
        if self.turned is None or not (self.f.machine.bursts and self.light):
            return False
        ((buffer, _),) = self.wanted
        return self.lanes * in_memory(buffer.dtype).bits == LINE * 8

    @property
    def high(self) -> int:
        """Lines of a row that are written together: more where rows are whole pages apart.

        Others can take two of each of 32 rows, which the hardware looks ahead for better.
        """
        return 4 if self.paged else 2

    @property
    def parts(self) -> int:
        """Turns of the loop over a block: some rows are read in each, some columns written."""
        return min(self.high, self.lanes // QUARTERS) * WIDE

    @property
    def stay(self) -> int:
        """Squares below each other that chunks do not part."""
        return self.high if self.banded else 1

    def _middle(
        self, ends: tuple[Int, Int], span: tuple[Int, Int], body: Callable[[], None]
    ) -> None:
        """Whole blocks in bands; what is beside and below them square by square."""
        if not self.banded:
            super()._middle(ends, span, body)
            return
        f, n = self.f, self.lanes
        across, across_end = self._whole(ends, WIDE * n)
        down, down_end = self._whole(span, self.high * n)
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
        t, size = in_memory(buffer.dtype), self.high * WIDE * n * n
        rooms = [f.alloca(t, size), f.alloca(t, size)]
        wide, high = WIDE * n, self.high * n
        start, begin = f.integer(down[0]), f.integer(across[0])
        with f.loop(0, self.parts) as part:
            self._turn_over_rows(self._rows((start, begin), part.i), rooms[0], part.i)
        with f.loop(start, down[1], high, carry=rooms) as band:
            below = f.lesser(f.plus(band.i, high), f.plus(down[1], -high))
            with f.loop(begin, across[1], wide, carry=band.carry) as block:
                here, there = block.carry
                on = f.integer(f.plus(block.i, wide))
                over = f.compare("eq", on, f.integer(across[1]))
                then = f.select(over, f.integer(below), band.i), f.select(over, begin, on)
                with f.loop(0, self.parts) as part:
                    rows = self._rows(then, part.i)
                    self._leave((band.i, block.i), here, part.i, body)
                    self._turn_over_rows(rows, there, part.i)
                block.next = [there, here]
            band.next = list(block.results)

    def _rows(self, corner: tuple[Val, Val], part: Val) -> list[list[Val]]:
        """Some rows of a block; those of the block after it are called for."""
        f, n, ((buffer, ix),), (_, axis) = self.f, self.lanes, self.wanted, self._both()
        t, few = in_memory(buffer.dtype), self.high * n // self.parts
        found: list[list[Val]] = []

        def look() -> None:
            spot, step, down = self._ends(buffer, ix, axis)
            way = -n if down else n
            first = f.at(spot, f.times(part, few * step), t)
            for row, line in product(range(few), range(WIDE)):
                prefetch(f, f.at(first, row * step + (WIDE + line) * way, t), near=False)
            for row in range(few):
                spots = (f.at(first, row * step + line * way, t) for line in range(WIDE))
                found.append([f.load(t.by(n), spot) for spot in spots])

        self._at_vector(corner, look)
        return found

    def _turn_over_rows(self, rows: list[list[Val]], room: Val, part: Val) -> None:
        """Rows turned over in quarters: columns lie a quarter of a register apart there."""
        f, n, ((buffer, _),) = self.f, self.lanes, self.wanted
        t, u = in_memory(buffer.dtype), n // QUARTERS
        units, column = len(rows) // u, self.high * QUARTERS * n
        start = f.at(room, f.times(part, units * n), t)
        for unit, line in product(range(units), range(WIDE)):
            some = [row[line] for row in rows[unit * u : (unit + 1) * u]]
            for k, x in enumerate(_in_quarters(f, some)):
                f.store(x, f.at(start, (line * u + k) * column + unit * n, t))

    def _leave(
        self, corner: tuple[Val, Val], room: Val, part: Val, body: Callable[[], None]
    ) -> None:
        """The turns of some columns of a block: those a quarter apart of one line."""
        f, n, (key,), (_, axis) = self.f, self.lanes, self.wanted, self._both()
        t, u = in_memory(key[0].dtype), n // QUARTERS
        some = WIDE * u // self.parts
        self.turn = 0
        for which in range(some):
            column = f.plus(f.times(part, some), which)
            start = f.at(room, f.times(column, self.high * QUARTERS * n), t)
            lines = []
            for high in range(self.high):
                spots = (f.at(start, (high * QUARTERS + k) * n, t) for k in range(QUARTERS))
                lines.append(_quarters(f, [f.load(t.by(n), spot) for spot in spots]))
            line = f.div(f.integer(column), f.integer(u))
            first = f.plus(column, f.times(line, -u))
            for quarter, high in product(range(QUARTERS), range(self.high)):
                place = f.plus(first, quarter * u)
                if stride(key[1], axis) == -1:
                    place = f.plus(f.times(place, -1), n - 1)
                turn = f.plus(f.plus(corner[1], f.times(line, n)), place)
                self.tiles[key] = Tile(None, down=False, rows=[lines[high][quarter]])
                self._at_vector((f.plus(corner[0], high * n), turn), body)
        self.tiles = {}

    def _both(self) -> tuple[Axis, Axis]:
        """The axis of lanes, and that of turns."""
        assert self.vector is not None
        assert self.turned is not None
        return self.vector, self.turned

    def _at_vector(self, place: tuple[Int, Int], body: Callable[[], None]) -> None:
        """Something at a vector of a turn."""
        last, axis = self._both()
        self._inside(last, place[0], lambda: self._inside(axis, place[1], body))


def _in_quarters(f: Fn, rows: list[Val]) -> list[Val]:
    """Two or four rows, of as many numbers in a quarter: result k has those with number k."""
    u, n = len(rows), rows[0].type.lanes
    found = rows
    for _ in range(u // 2):  # halves are interleaved, once for two rows, twice for four
        low, high = (
            [q + p + k * n for q in range(0, n, u) for p in half for k in (0, 1)]
            for half in (range(u // 2), range(u // 2, u))
        )
        pairs = [(found[k], found[k + u // 2]) for k in range(u // 2)]
        found = [f.shuffle(*both, picks) for both in pairs for picks in (low, high)]
    return found


def _quarters(f: Fn, rows: list[Val]) -> list[Val]:
    """Four registers: result k has quarter k of each."""
    n = rows[0].type.lanes
    u = n // QUARTERS
    even, odd = ([q * u + p for q in some for p in range(u)] for some in (EVEN, ODD))
    pairs = [(rows[0], rows[1]), (rows[2], rows[3])]
    halves = [[f.shuffle(a, b, picks) for a, b in pairs] for picks in (even, odd)]
    return [f.shuffle(a, b, picks) for picks in (even, odd) for a, b in halves]
