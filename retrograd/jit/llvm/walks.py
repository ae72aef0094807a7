"""Loops that are run as they are written, and those along rows that lie in order.

Where lanes are rows, each turn of a loop along them would gather a column and scatter one.
So squares of as many turns as there are lanes are turned over in registers: they are read
and written in whole vectors, and the turns between find their columns in a tile. What is
computed, and in which order, is the same.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from retrograd.jit.llvm.places import Places
from retrograd.jit.llvm.turned import Turned
from retrograd.jit.llvm.values import Num, grouped, in_memory, narrowed, widened
from retrograd.jit.loops.analyse import assigned, expressions, stride, without
from retrograd.jit.loops.expr import For, Store, dynamics

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from retrograd.jit.llvm.text import Int, Val
    from retrograd.jit.loops.expr import Buffer, Stmt, Var
    from retrograd.jit.loops.index import Axis, Ix

__all__ = ["Walks", "safe"]

MANY = 8  # tiles of a loop, at most: all of them stay in the first cache


class Tile(NamedTuple):
    """Columns of a square of memory; row n of it is turn n of the loop, or from the end.

    They are in memory, or in registers if turns are written one after the other.
    """

    memory: Val | None
    down: bool
    rows: Sequence[Val] = ()


class Walks(Places):
    """The part of a kernel's writer that runs loops turn by turn."""

    vertical: bool

    def __init__(self, f: Any, order: list[Buffer]) -> None:
        super().__init__(f, order)
        self.vars: dict[tuple[Var, int], Num] = {}
        self.tiles: dict[tuple[Buffer, Ix], Tile] = {}
        self.turn: Int = 0  # of the square that is walked through
        self.left: int | None = None  # lanes of the last vector, while it is written

    @abstractmethod
    def _block(self, stmts: Sequence[Stmt]) -> None: ...

    @abstractmethod
    def _hoist(self, stmts: Sequence[Stmt], inner: set[Axis]) -> None: ...

    @abstractmethod
    def _current(self, var: Var, turn: int) -> Num: ...

    @abstractmethod
    def _inside(self, axis: Axis, i: Any, body: Callable[[], None]) -> None: ...

    # -- loops ---------------------------------------------------------------------------

    def plain(self, loop: For) -> None:
        """A loop as it is written, its variables carried from turn to turn."""
        entry, last = assigned(loop.body)
        held = list(entry)
        carry = [self._current(v, entry[v]) for v in held]
        self._hoist(loop.body, set(loop.axes))

        def body(now: list[Num]) -> list[Num]:
            for v, x in zip(held, now, strict=True):
                self.vars[v, entry[v]] = x
            self._block(loop.body)
            return [self.vars[v, last[v]] for v in held]

        over = None
        if loop.until is not None:
            before = held[: held.index(loop.until)]
            over = partial(self.over, sum(len(self.vars[v, entry[v]]) for v in before))
        tiles = self._tiled(loop)
        if tiles:
            found = self._squares(loop, tiles, carry, body)
        else:
            found = self._nest(list(loop.axes), carry, body, loop, over)
        for v, x in zip(held, found, strict=True):
            self.vars[v, last[v]] = x

    def _nest(
        self, axes: list[Axis], carry: list[Num], body: Any, loop: For, over: Any
    ) -> list[Num]:
        if not axes:
            return body(carry)

        def inner(now: list[Num], i: Val) -> list[Num]:
            out: list[Num] = []

            def turn() -> None:
                out[:] = self._nest(axes[1:], now, body, loop, over)

            self._inside(axes[0], i, turn)
            return out

        return self._looped((0, axes[0].extent), carry, inner, loop, over)

    def _looped(
        self, span: tuple[Int, Int], carry: list[Num], body: Any, loop: For, over: Any = None
    ) -> list[Num]:
        """for i in span: what is carried = body(what is carried, i)."""
        sizes = [len(c) for c in carry]
        given = [v for c in carry for v in c]
        with self.f.loop(*span, 1, given, down=loop.reverse, unless=over) as at:
            out = body(grouped(at.carry, sizes), at.i)
            at.next = [v for x in out for v in x]
        return grouped(at.results, sizes)

    # -- squares -------------------------------------------------------------------------

    def _tiled(self, loop: For) -> list[tuple[Buffer, Ix]]:
        """The loads and stores of a loop that go along rows, each lane along its own."""
        if not (self.vertical and self.lanes and self.vector and len(loop.axes) == 1):
            return []
        if loop.until is not None or any(isinstance(s, For) for s in loop.body):
            return []
        if loop.axes[0].extent < 2 * self.lanes:
            return []
        stores = [(s.buffer, s.index) for s in loop.body if isinstance(s, Store)]
        written = {b for b, _ in stores}
        loads = list(dict.fromkeys(e.data for e in expressions(loop.body) if e.op == "load"))
        if any(b in written for b, _ in loads):
            return []
        alone = [b for b, _ in stores]
        both = [*loads, *(s for s in stores if alone.count(s[0]) == 1)]
        return [(b, ix) for b, ix in both if self._along(b, ix, loop.axes[0])][:MANY]

    def _along(self, buffer: Buffer, ix: Ix, axis: Axis) -> bool:
        """Whether lanes are rows of memory, which an axis runs along."""
        assert self.vector is not None
        step, size = stride(ix, self.vector), buffer.dtype.itemsize
        if buffer.constant is not None or buffer.dtype.kind not in "fiu" or size not in (4, 8):
            return False
        if step in (None, 0, 1) or dynamics(ix):
            return False
        if stride(ix, axis) not in (1, -1):
            return False
        low, high = safe([(buffer, ix)], axis, self.lanes)
        return low <= self.lanes and high > axis.extent - 2 * self.lanes

    def _squares(
        self, loop: For, wanted: list[tuple[Buffer, Ix]], carry: list[Num], body: Any
    ) -> list[Num]:
        """The loop in squares; what does not fill one, or is near an end, turn by turn."""
        axis, n = loop.axes[0], self.lanes
        written = {s.buffer for s in loop.body if isinstance(s, Store)}
        low, high = safe(wanted, axis, n)
        high = max(low, high)

        def one(now: list[Num], i: Val) -> list[Num]:
            out: list[Num] = []
            self._inside(axis, i, lambda: out.extend(body(now)))
            return out

        def square(now: list[Num], i: Val) -> list[Num]:
            start = self.f.times(i, n)
            self._inside(axis, start, lambda: self._fill(wanted, axis, written))

            def turn(now: list[Num], i: Val) -> list[Num]:
                self.turn = i
                return one(now, self.f.add(self.f.integer(start), i))

            out = self._looped((0, n), now, turn, loop)
            self._inside(axis, start, lambda: self._empty(loop))
            self.tiles = {}
            return out

        parts: list[tuple[tuple[int, int], Any]] = [
            ((0, low), one),
            ((low // n, high // n), square),
            ((high, axis.extent), one),
        ]
        for span, run in reversed(parts) if loop.reverse else parts:
            if span[0] < span[1]:
                carry = self._looped(span, carry, run, loop)
        return carry

    def _ends(self, buffer: Buffer, ix: Ix, axis: Axis) -> tuple[Val, int, bool]:
        """The least address of a square, the step between its rows, and the way through it."""
        down = stride(ix, axis) == -1
        first, step, rest = self.spread(ix - (self.lanes - 1) if down else ix)
        assert rest is None
        return self.f.at(self.base[buffer], first, in_memory(buffer.dtype)), step, down

    def _fill(
        self, wanted: list[tuple[Buffer, Ix]], axis: Axis, written: Container[Buffer] = ()
    ) -> None:
        """Tiles for all that is wanted, with what is read in them."""
        f, n = self.f, self.lanes
        for buffer, ix in wanted:
            t = in_memory(buffer.dtype)
            memory = f.alloca(t, n * n)
            spot, step, down = self._ends(buffer, ix, axis)
            self.tiles[buffer, ix] = Tile(memory, down)
            if buffer not in written:
                turn = Turned(t, n, n if self.left is None else self.left, n, step, n)
                f.call(turn.write(f.module), None, spot, memory)

    def _empty(self, loop: For) -> None:
        """What is written, from its tiles to where it belongs."""
        f, n = self.f, self.lanes
        for s in loop.body:
            if isinstance(s, Store) and (s.buffer, s.index) in self.tiles:
                spot, step, _ = self._ends(s.buffer, s.index, loop.axes[0])
                t = in_memory(s.buffer.dtype)
                turn = Turned(t, n, n, n if self.left is None else self.left, n, step)
                memory = self.tiles[s.buffer, s.index].memory
                assert memory is not None
                f.call(turn.write(f.module), None, memory, spot)

    # -- loads and stores ----------------------------------------------------------------

    def _spot(self, buffer: Buffer, tile: Tile) -> Val:
        f, n = self.f, self.lanes
        assert tile.memory is not None
        row = f.sub(f.integer(n - 1), f.integer(self.turn)) if tile.down else self.turn
        return f.at(tile.memory, f.times(row, n), in_memory(buffer.dtype))

    def load(self, buffer: Buffer, ix: Ix) -> Num:
        """Elements of a buffer, ready to compute with."""
        tile = self.tiles.get((buffer, ix))
        if tile is None:
            return super().load(buffer, ix)
        if tile.rows:
            assert isinstance(self.turn, int)
            x = tile.rows[self.lanes - 1 - self.turn if tile.down else self.turn]
        else:
            spot = self._spot(buffer, tile)
            x = self.f.load(in_memory(buffer.dtype).by(self.lanes), spot, 16)
        return (widened(self.f, x, buffer.dtype),)

    def store(self, buffer: Buffer, ix: Ix, x: Num) -> None:
        """Write elements of a buffer."""
        tile = self.tiles.get((buffer, ix))
        if tile is None:
            super().store(buffer, ix, x)
            return
        lanes = self.f.splat(narrowed(self.f, x[0], buffer.dtype), self.lanes)
        self.f.store(lanes, self._spot(buffer, tile), 16)


def safe(wanted: list[tuple[Buffer, Ix]], axis: Axis, n: int) -> tuple[int, int]:
    """The turns whose squares lie in memory; those behind a test may not, near an end."""
    low, high = 0, axis.extent // n * n
    for buffer, ix in wanted:
        size, step = int(np.prod(buffer.shape)), stride(ix, axis)
        least, most = without(ix, axis).range
        if step == -1:  # seen from the other end of the buffer
            least, most = size - 1 - most, size - 1 - least
        while low < high and least + low < 0:
            low += n
        while low < high and most + high > size:
            high -= n
    return low, high
