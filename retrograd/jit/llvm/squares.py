"""Loops over two axes, of which operands lie along one and results along the other.

Lanes run along the last axis; an operand that lies along the one before it would be gathered,
a cache line for every lane. So squares of as many turns of both as there are lanes are turned
over in registers, and the turns find their vectors in a tile.

Squares go by blocks: some below each other, which write neighbouring lines, then the next ones
of the same rows. Where rows are apart by whole pages, all lines of a column are in the same
channel of memory. There a block is two squares wide and its squares are like the fields of a
chessboard, first those of one colour and then of the other: what is written goes to two groups
of rows in turns. What a later block reads is called for with the squares of this one.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from retrograd.jit.llvm.fetch import Fetch
from retrograd.jit.llvm.gemm_pack import transposed
from retrograd.jit.llvm.parts import CHUNKS
from retrograd.jit.llvm.text import I64, LINE, Int
from retrograd.jit.llvm.values import in_memory
from retrograd.jit.llvm.walks import Tile, Walks, safe
from retrograd.jit.loops.analyse import expressions, stride
from retrograd.jit.loops.expr import For, Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrograd.jit.loops.expr import Buffer, Kernel
    from retrograd.jit.loops.index import Axis, Ix

__all__ = ["Squares"]

LIGHT = 4  # operations of a turn that is written out
MANY = 4  # operands that are turned over, at most
LEAST = 1 << 14  # elements that are worth it
ENOUGH = 3 * CHUNKS  # rows of squares that chunks divide


class Blocks(NamedTuple):
    """How blocks of squares are cut, and when they are called for."""

    tall: int  # squares
    wide: int  # squares, and as many colours
    ahead: int  # squares of the same rows


PLAIN, PAGES = Blocks(3, 1, 3), Blocks(16, 2, 2)
PAGE = 1 << 12  # bytes


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
        last, few = self.vector, ENOUGH * self.lanes
        if self.turned is None or split is not self.turned or last is None:
            return split
        return last if last.extent >= few else split

    @cached_property
    def blocks(self) -> Blocks:
        """How squares go: by how far rows are apart that are turned over first."""
        assert self.vector is not None
        buffer, ix = self.wanted[0]
        return PLAIN if (stride(ix, self.vector) or 1) * buffer.dtype.itemsize % PAGE else PAGES

    def _call_for(self, row: Int, turn: Int) -> None:
        """Call for what one square calls for of a block: a few rows of it, from a turn on."""
        f, n, wide, axis, last = self.f, self.lanes, self.blocks.wide, self.turned, self.vector
        assert axis is not None
        assert last is not None
        here = self.at[last]
        for buffer, ix in self.wanted:

            def call(buffer: Buffer = buffer, ix: Ix = ix) -> None:
                spot, step, down = self._ends(buffer, ix, axis)
                t = in_memory(buffer.dtype)
                fetch = Fetch(t, n // wide, wide * n, step).write(f.module)
                f.call(fetch, None, f.at(spot, (1 - wide) * n if down else 0, t))

            self._inside(last, row, partial(self._inside, axis, turn, call))
        self.at[last] = here

    def _turn_over(self) -> None:
        """Fill the tiles of a square."""
        f, n, axis = self.f, self.lanes, self.turned
        assert axis is not None
        if not self.light:
            self._fill(self.wanted, axis)
            return
        for buffer, ix in self.wanted:
            t = in_memory(buffer.dtype)
            spot, step, down = self._ends(buffer, ix, axis)
            spots = (f.at(spot, r * step, t) for r in range(n))
            rows = transposed(f, [f.load(t.by(n), s) for s in spots], n)
            self.tiles[buffer, ix] = Tile(None, down, rows)

    @abstractmethod
    def _strips(self, axis: Axis, low: Any, high: Any, body: Callable[[], None]) -> None: ...

    def _over(
        self, low: Any, high: Any, span: tuple[Any, Any], body: Callable[[], None]
    ) -> None:
        """Turns of the axis in squares, and what does not fill one turn by turn."""
        f, n, axis, last = self.f, self.lanes, self.turned, self.vector
        assert axis is not None
        assert last is not None
        tall, wide, _ = self.blocks
        skip = self._skipped(last, span[0])
        # chunks begin and end with squares, but for the first and the last
        first = f.compare("eq", f.integer(low), f.integer(0))
        final = f.compare("eq", f.integer(high), f.integer(axis.extent))
        begin, after = f.plus(low, skip), f.integer(f.plus(high, skip))
        limit = f.select(final, f.integer(axis.extent), after)
        whole = f.div(f.sub(limit, f.integer(begin)), f.integer(n))
        end = f.plus(begin, f.times(whole, n))
        rest = f.plus(begin, f.times(f.div(whole, f.integer(wide)), wide * n))
        with f.loop(span[0], span[1], n * tall) as group:
            rows = group.i, f.lesser(f.plus(group.i, n * tall), span[1])
            with f.loop(begin, rest, wide * n) as block:
                for colour in range(wide):
                    self._strips(last, *rows, partial(self._field, rows, block.i, colour, body))
            with f.loop(rest, end, n) as block:
                self._strips(last, *rows, partial(self._square, block.i, body))
        for start, stop, test in ((0, begin, first), (end, limit, final)):
            with f.when(test), f.loop(start, stop) as turn:
                self._inside(axis, turn.i, lambda: self._strips(last, *span, body))

    def _field(
        self, rows: tuple[Int, Int], start: Int, colour: int, body: Callable[[], None]
    ) -> None:
        """The square of a block that is of a colour, in the rows where the lanes are."""
        f, n, (_, wide, ahead) = self.f, self.lanes, self.blocks
        assert self.vector is not None
        if wide == 1:
            self._call_for(self.at[self.vector], f.plus(start, ahead * n))
            self._square(start, body)
            return
        first, end = map(f.integer, rows)
        down = f.sub(f.integer(self.at[self.vector]), first)  # a whole number of squares
        before = f.add(down, f.mul(f.sub(end, first), f.integer(colour)))
        part = f.div(before, f.integer(wide), signed=False)  # of all that call for a block
        self._call_for(f.add(first, part), f.plus(start, ahead * n))
        across = f.add(down, f.integer(colour * n))
        across = f.bitwise("and", across, f.integer((wide - 1) * n))
        self._square(f.add(f.integer(start), across), body)

    def _square(self, start: Int, body: Callable[[], None]) -> None:
        """The turns of the axis from `start` on, as many as there are lanes."""
        f, axis = self.f, self.turned
        assert axis is not None
        self._hoist(self.kernel.body, {axis})
        self._inside(axis, start, self._turn_over)
        for k in range(self.lanes) if self.light else ():
            self.turn = k
            self._inside(axis, f.plus(start, k), body)
        if not self.light:
            with f.loop(0, self.lanes) as turn:
                self.turn = turn.i
                self._inside(axis, f.plus(start, turn.i), body)
        self.tiles = {}

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
