"""Loops over two axes, of which operands lie along one and results along the other.

Lanes run along the last axis; an operand that lies along the one before it would be gathered,
a cache line for every lane. So squares of as many turns of both as there are lanes are turned
over in registers, and the turns find their vectors in a tile.

Some squares go below each other, which write neighbouring lines, then the next ones of the same
rows. Where turns are little work, every second square is one further along its rows: what is
written goes to two groups of rows in turns, what is read comes from two columns, which are in
other channels of memory and other sets of the caches. Turns of more work, with operands that
are not turned over, take up to three times as long if they are staggered so.

CPUs that are to be told what comes (not AMD's) take a sixth to a fifth less time with four
squares below each other, which write 256 bytes of a row, than with eight, three or five. Narrow
ones look ahead in 32 pages at a time, no more: with two, which read from so many rows, they
take two thirds of the time, and Granite Rapids a fourteenth less. CPUs that read memory in
bursts (Zen 5) turn squares over in bands: see bands.py.

Where vectors are shorter than a line and results leave past the caches, such turns have lanes
for a whole line: halves of lines that come one by one take up to four times as long.

Where rows are apart by whole pages, all lines of a column are at the same place of their pages:
loads wait for a store to that place, of any page, until it is done. So the square that stores
there is the last of those below each other.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from retrograd.jit.llvm.gemm_pack import transposed
from retrograd.jit.llvm.gemm_tile import prefetch
from retrograd.jit.llvm.parts import CHUNKS
from retrograd.jit.llvm.text import I64, LINE, Int
from retrograd.jit.llvm.values import in_memory
from retrograd.jit.llvm.walks import Tile, Walks, safe
from retrograd.jit.loops.analyse import expressions, stride
from retrograd.jit.loops.expr import For, Store, dynamics
from retrograd.jit.loops.vocabulary import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrograd.jit.llvm.text import Type, Val
    from retrograd.jit.loops.expr import Buffer, Kernel
    from retrograd.jit.loops.index import Axis, Ix

__all__ = ["Squares"]

LIGHT = 4  # operations of a turn that is written out
MANY = 4  # operands that are turned over, at most
LEAST = 1 << 14  # elements that are worth it
ENOUGH = 3 * CHUNKS  # squares below each other that chunks divide
PAGE = 1 << 12  # bytes


class Order(NamedTuple):
    """How squares follow each other."""

    tall: int  # squares below each other, before those beside them
    ahead: int  # squares of the same rows that are called for
    staggered: bool = False  # whether every second one is one further
    paged: bool = False  # whether the one that is in the way comes last


PLAIN, LIGHT_ONES = Order(3, 3), Order(8, 2, staggered=True)
FEW_ROWS, FEWEST = Order(4, 1), Order(2, 1)  # for CPUs that are to be told, and frugal ones
PAGES = Order(16, 2, staggered=True, paged=True)
IN_ROWS = Order(1, 6)  # lines of several vectors: rows are read from end to end
BESIDE = Order(1, 2)  # for CPUs that read memory in bursts: what is left of bands


class Squares(Walks):
    """The part of a kernel's writer that turns operands over."""

    kernel: Kernel
    wanted: list[tuple[Buffer, Ix]]  # operands that are turned over
    turned: Axis | None = None  # the axis that they lie along
    unit: int  # lanes that are written at a time, at least

    @property
    def stay(self) -> int:
        """Squares below each other that chunks do not part."""
        return 1

    @property
    def light(self) -> bool:
        """Whether turns are so little work that they are written out, with all in registers."""
        work = sum(1 for _ in expressions(self.kernel.body))
        return len(self.wanted) == 1 and work <= LIGHT and self.lanes <= 16

    def settle(self, axes: list[Axis]) -> None:
        """See which operands of a kernel lie along the axis before the lanes'."""
        self.wanted = []
        if len(axes) < 2 or axes[-1] is not self.vector or not (self.vertical and self.lanes):
            return
        if any(isinstance(s, For) for s in self.kernel.body):
            return
        narrow = self.lanes
        for vectors in dict.fromkeys((self._line(), 1)):
            self.lanes = narrow * vectors
            if self._turns(axes[-2], axes[-1]) and (vectors == 1 or self.light):
                self.unit *= vectors
                self.turned, self.soon = axes[-2], None  # what is read next is not behind this
                return
        self.lanes = narrow

    def _line(self) -> int:
        """Vectors that light turns store together: a line, where it leaves past the caches.

        But two vectors of a function such as tanh are too many for registers.
        """
        hard = any(e.op in FUNCTIONS for e in expressions(self.kernel.body))
        leaving = bool(self.past.fresh) and not hard
        return max(1, LINE // self.f.machine.vector_bytes) if leaving else 1

    def _turns(self, axis: Axis, last: Axis) -> bool:
        """Whether squares of so many lanes are turned over; what is wanted for them."""
        n = self.lanes
        if min(axis.extent, last.extent) < n or axis.extent * last.extent < LEAST:
            return False
        loads = dict.fromkeys(e.data for e in expressions(self.kernel.body) if e.op == "load")
        written = {s.buffer for s in self.kernel.body if isinstance(s, Store)}
        whole = 0, axis.extent // n * n
        self.wanted = [
            (b, ix)
            for b, ix in loads
            if self._along(b, ix, axis) and safe([(b, ix)], axis, n) == whole
        ]
        few = 0 < len(self.wanted) <= MANY
        return few and not any(b in written for b, _ in self.wanted)

    def beside(self, split: Axis | None) -> Axis | None:
        """The axis that chunks divide: operands that are turned over are read in whole rows."""
        last, few = self.vector, ENOUGH * self.lanes
        if self.turned is None or split is not self.turned or last is None:
            return split
        return last if last.extent >= few else split

    @property
    def paged(self) -> bool:
        """Whether rows of an operand are apart by whole pages."""
        assert self.vector is not None
        ((buffer, ix),) = self.wanted
        return (stride(ix, self.vector) or 1) * buffer.dtype.itemsize % PAGE == 0

    @cached_property
    def squares(self) -> Order:
        """By how much work turns are, and how far rows are apart."""
        if not self.light:
            return PLAIN
        if self.f.machine.bursts and self._line() == 1:
            return BESIDE
        if self.f.machine.told and self._line() == 1:
            return FEWEST if self.f.machine.frugal else FEW_ROWS
        if self.paged:
            return PAGES
        return LIGHT_ONES if self._line() == 1 else IN_ROWS

    def _turn_over(self) -> None:
        """Call for tiles that come soon, and fill these."""
        f, n, axis = self.f, self.lanes, self.turned
        assert axis is not None
        for buffer, ix in self.wanted:
            t = in_memory(buffer.dtype)
            spot, step, down = self._ends(buffer, ix, axis)
            self._call(t, spot, step, down=down)
            if self.light:
                there = n if self.left is None else self.left  # behind it is other memory
                spots = (f.at(spot, row * step, t) for row in range(there))
                rows = [f.load(t.by(n), s) for s in spots] + [f.zero(t.by(n))] * (n - there)
                self.tiles[buffer, ix] = Tile(None, down, transposed(f, rows, n))
        if not self.light:
            self._fill(self.wanted, axis)

    def _call(self, t: Type, spot: Val, step: int, *, down: bool) -> None:
        """Call for lines of the same rows as a square's, some squares ahead."""
        f, n, ahead = self.f, self.lanes, self.squares.ahead
        for row, along in product(range(n), range(0, n, LINE * 8 // t.bits)):
            beside = row * step + along + (-ahead if down else ahead) * n
            prefetch(f, f.at(spot, beside, t), near=False)

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
        self._middle((begin, end), span, body)
        for start, stop, test in ((0, begin, first), (end, limit, final)):
            with f.when(test), f.loop(start, stop) as turn:
                self._inside(axis, turn.i, lambda: self._strips(last, *span, body))

    def _middle(
        self, ends: tuple[Int, Int], span: tuple[Int, Int], body: Callable[[], None]
    ) -> None:
        """Squares, some below each other before those beside them."""
        f, n, last, (begin, end) = self.f, self.lanes, self.vector, ends
        assert last is not None
        tall = n * self.squares.tall
        with f.loop(span[0], span[1], tall) as group, f.loop(begin, end, n) as block:
            low, high = group.i, f.integer(f.lesser(f.plus(group.i, tall), span[1]))
            if self.squares.staggered:
                self._in_turns((low, high), block.i, (begin, end), body)
            else:
                self._strips(last, low, high, lambda: self._square(block.i, body))

    def _in_turns(
        self, span: tuple[Val, Val], start: Val, ends: tuple[Int, Int], body: Callable[[], None]
    ) -> None:
        """Squares below each other, every second one further."""
        f, n, last, (low, high) = self.f, self.lanes, self.vector, span
        assert last is not None

        def square() -> None:
            odd = f.bitwise("and", f.sub(f.integer(self.at[last]), low), f.integer(n))
            further = f.add(start, odd)
            over = f.compare("eq", further, f.integer(ends[1]))
            self._square(f.select(over, f.integer(ends[0]), further), body)

        if not self.squares.paged:
            self._strips(last, low, high, square)
            return
        after = self._after(span, start)
        with f.loop(0, 2) as part:
            first = f.compare("eq", part.i, f.integer(0))
            self._strips(
                last, f.select(first, after, low), f.select(first, high, after), square
            )

    def _after(self, span: tuple[Val, Val], start: Val) -> Val:
        """Behind the square that stores at the place in a page which all of them load from."""
        f, (buffer, ix), (low, high) = self.f, self.wanted[0], span
        axis, last, n = self.turned, self.vector, self.lanes
        assert axis is not None
        assert last is not None
        stores = [s for s in self.kernel.body if isinstance(s, Store)]
        along = [s for s in stores if stride(s.index, last) == 1 and not dynamics(s.index)]
        if not along:
            return low
        spots: list[Val] = []

        def look() -> None:
            to = along[0].buffer
            first, _, _ = self.spread(along[0].index)
            spots.append(self._ends(buffer, ix, axis)[0])
            spots.append(f.at(self.base[to], first, in_memory(to.dtype)))

        self._inside(last, low, lambda: self._inside(axis, start, look))
        loads, writes = (f.convert("ptrtoint", spot, I64) for spot in spots)
        apart = f.bitwise("and", f.sub(loads, writes), f.integer(PAGE - 1))
        square = f.div(apart, f.integer(n * along[0].buffer.dtype.itemsize))
        after = f.add(low, f.mul(f.add(square, f.integer(1)), f.integer(n)))
        return f.select(f.compare("slt", after, high), after, low)

    def _square(self, start: Val, body: Callable[[], None]) -> None:
        """The turns of the axis from `start` on, as many as there are lanes."""
        f, n, axis = self.f, self.lanes, self.turned
        assert axis is not None
        self._hoist(self.kernel.body, {axis})
        self._inside(axis, start, self._turn_over)
        for k in range(n) if self.light else ():
            self.turn = k
            self._inside(axis, f.add(start, f.integer(k)), body)
        if not self.light:
            with f.loop(0, n) as turn:
                self.turn = turn.i
                self._inside(axis, f.add(start, turn.i), body)
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
