"""A transform with all lanes on one line, whose length is n1 * n2.

The line is a matrix [n1][n2]. Its columns are transformed, side by side in lanes, and turned
by roots of one; then its rows are, which become columns on the way. What comes out, column by
column, is in the order in which it is wanted. All of it stays in the nearest cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.fft_chain import Chain, End, Style
from retrograd.jit.llvm.fft_lines import Lines
from retrograd.jit.llvm.fft_plan import Spot, Table, roots, smooth
from retrograd.jit.llvm.fft_stage import ARGUMENTS, times

if TYPE_CHECKING:
    from retrograd.jit.llvm.fft_plan import Pair
    from retrograd.jit.llvm.text import Int, Module, Type, Val

__all__ = ["Inline", "sides"]

APART = ("apart", "doubled")  # doubled: conjugates, twice those that stand for two
FULL = 2.8  # for both factors together: lanes in blocks, for each number that is in one


@lru_cache(maxsize=1024)
def sides(n: int, lanes: int) -> tuple[int, int] | None:
    """Two factors of a length, of as many lanes or more, that leave few lanes empty."""
    if not smooth(n):
        return None
    found = [(a, n // a) for a in range(lanes, n // lanes + 1) if n % a == 0]
    filled = {pair: sum(-(-k // lanes) * lanes / k for k in pair) for pair in found}
    best = min(found, key=lambda pair: (filled[pair], abs(pair[0] - pair[1])), default=None)
    return best if best and filled[best] <= FULL else None


class Inline:
    """One line after the other; `half`: one of APART, or "together", as in `fft_half`."""

    def __init__(
        self, f: Fn, t: Type, sizes: tuple[int, int], table: Table, style: Style, half: str
    ) -> None:
        self.f, self.type, self.half = f, t, half
        self.n1, self.n2 = sizes
        self.length = self.n1 * self.n2
        into = Style(turn_in=style.turn_in, more="each")
        out = Style(turn_out=style.turn_out, scale=style.scale)
        self.first = Chain(f, t, self.n1, table, into)
        self.second = Chain(f, t, self.n2, table, out)
        self.factors = table.put(self._turns())
        self.halves = table.put(self._halves()) if half else 0
        self.gap = self.length + t.lanes  # between the parts of a line
        self.buffer = 2 * max(sizes) * t.lanes
        self.room = 2 * self.buffer + 2 * self.length + (2 * self.gap if half else 0)

    def _turns(self) -> np.ndarray:
        """What columns are multiplied by, [block][n1][2][lanes]."""
        w = self.type.lanes
        first = np.minimum(np.arange(0, self.n2, w), self.n2 - w)
        column = first[:, None, None] + np.arange(w)
        by = roots(self.length, np.arange(self.n1)[:, None] * column)
        return np.stack([by.real, by.imag], 2)

    def _halves(self) -> np.ndarray:
        """What halves are turned by: real parts, then imaginary ones."""
        by = roots(2 * self.length, np.arange(self.length // 2 + 1))
        return np.stack([by.real, by.imag])

    def line(self, source: Val, target: Val, table: Val, scratch: Val) -> None:
        """Transform a line, which is complex numbers in memory on both sides."""
        f, t = self.f, self.type
        own = f.at(scratch, 2 * self.buffer + 2 * self.length, t)
        factors = f.at(table, self.halves, t)
        if self.half == "together":
            name = Along(t, self.half, self.length, self.gap).write(f.module)
            f.call(name, None, source, own, factors)
            source = own
        goal = own if self.half in APART else target
        self._columns(source, table, scratch)
        self._rows(goal, table, scratch)
        if self.half in APART:
            name = Along(t, self.half, self.length, self.gap).write(f.module)
            f.call(name, None, own, target, factors)

    def _end(self, at: Val, first: Int, pitch: int, *, own: bool) -> End:
        """Columns of a matrix: of pairs in memory, or of parts that lie apart."""
        f, t = self.f, self.type
        if own:
            return End(f.at(at, first, t), Spot("pairs", pitch, self.gap))
        return End(f.at(at, f.times(first, 2), t), Spot("complex", 2 * pitch))

    def _first(self, block: Val, end: int) -> Int:
        """Where a block begins: the last one earlier, where it would end too late."""
        return _begin(self.f, self.f.times(block, self.type.lanes), end, self.type.lanes)

    def _buffers(self, scratch: Val) -> tuple[list[Val], Val]:
        f, t = self.f, self.type
        two = [scratch, f.at(scratch, self.buffer, t)]
        return two, f.at(scratch, 2 * self.buffer, t)

    def _columns(self, source: Val, table: Val, scratch: Val) -> None:
        f, t, w = self.f, self.type, self.type.lanes
        buffers, middle = self._buffers(scratch)
        with f.loop(0, -(-self.n2 // w)) as loop:
            first = self._first(loop.i, self.n2)
            here = self._end(source, first, self.n2, own=self.half == "together")
            there = End(f.at(middle, first, t), Spot("pairs", 2 * self.n2, self.n2))
            skip = f.plus(f.times(loop.i, 2 * self.n1 * w), self.factors)
            self.first.run(table, here, there, buffers, f.at(table, skip, t))

    def _rows(self, target: Val, table: Val, scratch: Val) -> None:
        f, t, w = self.f, self.type, self.type.lanes
        buffers, middle = self._buffers(scratch)
        turn = Lines(t, 2 * self.n2, 1, back=False).write(f.module)
        with f.loop(0, -(-self.n1 // w)) as loop:
            first = self._first(loop.i, self.n1)
            rows = f.at(middle, f.times(first, 2 * self.n2), t)
            f.call(turn, None, rows, buffers[0])
            here = End(buffers[0], Spot("pairs", w, self.n2 * w))
            there = self._end(target, first, self.n1, own=self.half in APART)
            self.second.run(table, here, there, buffers)


def _begin(f: Fn, first: Int, end: int, lanes: int) -> Int:
    return first if end % lanes == 0 else f.lesser(first, end - lanes)


@dataclass(frozen=True)
class Along:
    """(source, target, table): as `Half`, along a line of `length`.

    apart, doubled: from parts that are `gap` scalars from each other; together: to such.
    """

    type: Type  # of a vector
    what: str
    length: int
    gap: int

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        name = f"fft_along_{self.what}_{self.type.suffix}_{self.length}_{self.gap}"
        return module.once(name, lambda: self._write(module, name))

    def _write(self, module: Module, name: str) -> None:
        f = Fn(module, name, ARGUMENTS, attributes="nounwind noinline")
        one, t, m = self.type.scalar, self.type, self.length
        x, y = f.arg("source"), f.arg("target")
        if self.what in APART:  # the numbers are a circle
            for at in (x, f.at(x, self.gap, t)):
                f.store(f.load(one, at), f.at(at, m, t))
        many = m // 2 + 1
        with f.loop(0, many, t.lanes) as loop:
            k = f.integer(_begin(f, loop.i, many, t.lanes))
            w = Spot("pairs", 1, many).read(f, t, f.arg("table"), k)
            back = f.sub(f.integer(m - t.lanes + 1), k)
            (self._apart if self.what in APART else self._together)(f, k, back, w)
        if self.what == "together":  # the imaginary parts of these are not read
            low, high = f.load(one, x), f.load(one, f.at(x, 2 * m, t))
            f.store(f.add(low, high), y)
            f.store(f.sub(low, high), f.at(y, self.gap, t))
        elif self.what == "doubled":  # these stand for themselves alone, and are real
            low, high = f.load(one, x), f.load(one, f.at(x, self.gap, t))
            for place, number in ((0, f.add(low, high)), (2 * m, f.sub(low, high))):
                f.store(number, f.at(y, place, t))
                f.store(f.zero(one), f.at(y, place + 1, t))
        f.done()

    def _apart(self, f: Fn, k: Val, back: Val, w: Pair) -> None:
        t, x, y, half = self.type, f.arg("source"), f.arg("target"), f.const(self.type, 0.5)
        a, b = Spot("pairs", 1, self.gap).read(f, t, x, k)
        c, d = Spot("pairs", 1, self.gap, back=True).read(f, t, x, back)
        even, odd = (f.add(a, c), f.sub(b, d)), (f.add(b, d), f.sub(c, a))
        if self.what == "doubled":
            turn = times(f, odd, *w)
            first = f.add(even[0], turn[0]), f.neg(f.add(even[1], turn[1]))
            last = f.sub(even[0], turn[0]), f.sub(even[1], turn[1])
        else:
            even = f.mul(even[0], half), f.mul(even[1], half)
            turn = times(f, (f.mul(odd[0], half), f.mul(odd[1], half)), *w)
            first = f.add(even[0], turn[0]), f.add(even[1], turn[1])
            last = f.sub(even[0], turn[0]), f.sub(turn[1], even[1])
        Spot("complex", 2).write(f, first, y, k)
        Spot("complex", 2, back=True).write(f, last, y, back)

    def _together(self, f: Fn, k: Val, back: Val, w: Pair) -> None:
        t, x, y = self.type, f.arg("source"), f.arg("target")
        a, b = Spot("complex", 2).read(f, t, x, k)
        c, d = Spot("complex", 2, back=True).read(f, t, x, back)
        even = f.add(a, c), f.sub(b, d)
        odd = times(f, (f.sub(a, c), f.add(b, d)), w[0], f.neg(w[1]))
        first = f.sub(even[0], odd[1]), f.add(even[1], odd[0])
        last = f.add(even[0], odd[1]), f.sub(odd[0], even[1])
        Spot("pairs", 1, self.gap).write(f, first, y, k)
        Spot("pairs", 1, self.gap, back=True).write(f, last, y, back)
