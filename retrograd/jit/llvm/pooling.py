"""Pools in LLVM IR: the largest and the sum of windows, and what gradients spread over them.

    largest, sum, mean:
                   x -> out         for each window, the channels side by side in vectors
    pull:          y, x -> out      y of each window to the first of its largest elements
    spread:        y -> out         y of each window to all of its elements

Along all axes but the last, the places of a window are counted by loops; along the last one
they are known when the code is written, but for windows over an edge where there are many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.conv_chunks import ARGUMENTS, chunk_bounds, parted, pointers
from retrograd.jit.llvm.conv_shape import Axis
from retrograd.jit.llvm.gemm_tile import load_some, some_lanes, store_some
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.repeat import repeat
from retrograd.jit.llvm.text import I32, I64, Int, Module, Type, Val

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Pooling", "axes_of"]

EDGES = 6  # windows of a row whose code is written apart
MOST_TAPS = 16  # places of a row of a window, one after the other
SCATTERED = 16  # places of a window of which one is written alone
ABREAST = 4  # vectors of which each place is compared, where registers hold them
CHUNKS, FEW = 32, 8
LEAST = 1 << 15  # places that are worth a chunk
ALONE = Axis(1, 1, 1, 1, 1, 1, 0)

Body = Callable[..., "list[Val]"]


class Piece(NamedTuple):
    """Windows along the last axis that see as many places."""

    first: int
    stop: int
    source: int  # of the first window
    taps: int


class Window(NamedTuple):
    """The window that is being written: its first element, and its places on the outer axes."""

    source: Val  # elements from the image's first one
    counts: list[Val]
    taps: int
    channel: Int
    kept: int  # lanes that exist; 0 is all


def axes_of(op: Any, sizes: Sequence[int]) -> tuple[Axis, ...]:
    """The windows of a pool along each axis."""
    rows = zip(sizes, op.counts, op.kernel, op.stride, op.dilation, op.before, strict=True)
    return tuple(Axis(n, c, k, 1, s, d, b) for n, c, k, s, d, b in rows)


@dataclass(frozen=True)
class Pooling:
    """A kernel of one of the five."""

    module: Module
    name: str
    kind: str  # largest, sum, mean, pull, spread
    batch: int
    own: tuple[Axis, ...]
    channels: int
    type: Type
    epilogue: Any = None

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """With one place on the last axis, where that is not written out."""
        last = self.own[-1]
        inside = [n for n in range(last.result) if last.table[n][1] == last.taps]
        edges = last.result - len(inside)
        plain = edges <= EDGES and last.taps <= MOST_TAPS
        return self.own if plain else (*self.own, ALONE)

    @cached_property
    def pieces(self) -> list[Piece]:
        """The windows of the last axis."""
        found: list[Piece] = []
        for n, (_, count, source) in enumerate(self.axes[-1].table):
            last = found[-1] if found else None
            step = self.axes[-1].stride
            if last and last.taps == count and last.source + (n - last.first) * step == source:
                found[-1] = last._replace(stop=n + 1)
            else:
                found.append(Piece(n, n + 1, source, count))
        return found

    @property
    def gathers(self) -> bool:
        """Whether each window has a result of its own."""
        return self.kind in ("largest", "sum", "mean")

    @cached_property
    def apart(self) -> bool:
        """Whether no element is in two windows."""
        return all(a.stride > a.dilation * (a.taps - 1) for a in self.own)

    @cached_property
    def covered(self) -> bool:
        """Whether each element is in one window."""
        seen = (sum(count for _, count, _ in a.table) == a.source for a in self.own)
        return self.apart and all(seen)

    @cached_property
    def scatters(self) -> bool:
        """Whether winners get what they are given one by one, and not windows as a whole."""
        taps = prod(a.taps for a in self.own)
        return not self.apart and taps >= SCATTERED and self.module.machine.masks

    @cached_property
    def lanes(self) -> int:
        """Channels side by side."""
        return self.module.machine.lanes(self.type.bits // 8) * self.abreast

    @cached_property
    def abreast(self) -> int:
        """Vectors of channels as one, in registers, while there is work for all threads.

        Whether a place is the largest so far is known some cycles after the one before it.
        """
        machine = self.module.machine
        vectors = -(-self.channels // machine.lanes(self.type.bits // 8))
        most = ABREAST if machine.registers >= 32 else ABREAST // 2
        many = [n for n in (most, ABREAST // 2) if vectors % n == 0]
        fits = (n for n in many if self.batch * vectors // n >= FEW)
        return next(fits, 1) if self.kind == "pull" else 1

    @cached_property
    def grid(self) -> tuple[int, int, int]:
        """Units that are independent of each other, and parts of them and of the channels."""
        rows = prod(a.result for a in self.axes[:-1])
        units = self.batch * (rows if self.gathers else 1)
        work = self.batch * prod(a.result * a.taps for a in self.own) * self.channels
        many = max(1, min(CHUNKS, work // LEAST))
        strips = -(-self.channels // self.lanes)
        across = max(1, min(strips, many, -(-FEW // units)))
        return units, max(1, min(units, many // across)), across

    def write(self) -> KernelInfo:
        """Put the kernel into the module."""
        f = Fn(self.module, self.name, ARGUMENTS)
        units, down, across = self.grid
        part, share = parted(f, f.arg("chunk") if down * across > 1 else 0, across)
        strips = chunk_bounds(f, share, across, -(-self.channels // self.lanes))
        low, high = chunk_bounds(f, part, down, units)
        rows = prod(a.result for a in self.axes[:-1])
        with f.loop(low, high) as unit:
            if self.gathers:
                self._row(f, strips, *parted(f, unit.i, rows))
            else:
                self._image(f, strips, unit.i, rows)
        f.done()
        sizes = [prod(a.source for a in self.own), prod(a.result for a in self.own)]
        moved = self.batch * self.channels * (sum(sizes) + sizes[0] * (self.kind == "pull"))
        taps = prod(a.taps for a in self.own)
        flops = self.batch * self.channels * sizes[1] * taps
        return KernelInfo(self.name, down * across, 0, flops, moved * self.type.bits // 8)

    # -- windows ----------------------------------------------------------------------------

    def _image(self, f: Fn, strips: tuple[Int, Int], image: Val, rows: int) -> None:
        """All windows of an image, after zeros where they do not write."""
        out = pointers(f, 3 if self.kind == "pull" else 2)[-1]
        size = prod(a.source for a in self.own)
        if not self.covered:
            with f.loop(0, size) as pixel:

                def clear(channel: Int, kept: int) -> None:
                    at = self._at(f, out, image, size, pixel.i, channel)
                    store_some(f, f.zero(self.type.by(self.lanes)), at, kept)

                self._strips(f, strips, clear)
        with f.loop(0, rows) as row:
            self._row(f, strips, image, row.i)

    def _row(self, f: Fn, strips: tuple[Int, Int], image: Int, row: Int) -> None:
        """The windows along the last axis."""
        source, counts = self._outer(f, row)
        last = self.axes[-1]
        for piece in self.pieces:
            with f.loop(piece.first, piece.stop) as loop:
                ahead = f.times(f.plus(loop.i, -piece.first), last.stride)
                start = f.integer(f.plus(f.plus(source, piece.source), ahead))
                number = f.integer(f.plus(f.times(row, last.result), loop.i))
                spot = partial(Window, start, counts, piece.taps)
                self._strips(f, strips, partial(self._window, f, image, number, spot))

    def _outer(self, f: Fn, row: Int) -> tuple[Int, list[Val]]:
        """The first element of a row of windows, and their places on each outer axis."""
        source: Int = 0
        counts: list[Val] = []
        place = self.axes[-1].source
        for a in reversed(self.axes[:-1]):
            row, here = parted(f, row, a.result)
            table = self.module.table(np.array(a.table, np.int32))
            spot = f.at(table, f.times(here, 3), I32)
            _, count, first = (
                f.convert("sext", f.load(I32, f.at(spot, n, I32)), I64) for n in range(3)
            )
            source = f.plus(source, f.times(first, place))
            counts.insert(0, count)
            place *= a.source
        return source, counts

    def _strips(self, f: Fn, strips: tuple[Int, Int], body: Callable[[Int, int], None]) -> None:
        """Vectors of channels, the last of which may be short."""
        whole, kept = divmod(self.channels, self.lanes)
        if whole:
            with f.loop(strips[0], f.lesser(strips[1], whole)) as strip:
                body(f.times(strip.i, self.lanes), 0)
        if not kept:
            return
        if strips[1] == whole + 1:
            body(whole * self.lanes, kept)
            return
        with f.when(f.compare("sgt", f.integer(strips[1]), f.integer(whole))):
            body(whole * self.lanes, kept)

    def _at(self, f: Fn, base: Val, image: Int, size: int, pixel: Int, channel: Int) -> Val:
        place = f.times(f.plus(f.times(image, size), pixel), self.channels)
        return f.at(base, f.plus(place, channel), self.type)

    def _window(
        self,
        f: Fn,
        image: Int,
        number: Val,
        spot: Callable[[Int, int], Window],
        channel: Int,
        kept: int,
    ) -> None:
        t, window = self.type.by(self.lanes), spot(channel, kept)
        sizes = prod(a.source for a in self.own), prod(a.result for a in self.own)
        ends = pointers(f, 3 if self.kind == "pull" else 2)
        shapes = {"pull": (1, 0, 0), "spread": (1, 0)}.get(self.kind, (0, 1))
        spots = [
            self._at(f, end, image, sizes[of], number if of else window.source, window.channel)
            for end, of in zip(ends, shapes, strict=True)
        ]
        if self.gathers:
            found = self._gathered(f, window, spots[0])
            if self.epilogue:
                pixel = f.integer(f.plus(f.times(image, sizes[1]), number))
                mask = some_lanes(f, t.lanes, window.kept) if window.kept else None
                found = self.epilogue(f, found, pixel, f.integer(window.channel), mask)
            store_some(f, found, spots[1], window.kept)
            return
        y = load_some(f, t, spots[0], window.kept)
        if self.kind == "spread":
            self._given(f, window, spots[1], lambda _: y)
        else:
            self._pulled(f, window, y, *spots[1:])

    def _pulled(self, f: Fn, window: Window, y: Val, x: Val, out: Val) -> None:
        """What a window was given, to the largest of it: the first, or the first NaN."""
        t = y.type
        whole = Type("i", t.bits, t.lanes)
        start = [f.const(t, -np.inf), f.zero(whole)]
        better = self._better(f, t, window, x if self.scatters else None)
        _, where = self._loops(f, window, x, start, better)
        if self.scatters:
            place = f.add(where, f.iota(whole))
            mask = some_lanes(f, t.lanes, window.kept) if window.kept else None
            before = f.gather(t, out, place, mask)
            f.scatter(f.add(before, y), out, place, mask)
            return

        def mine(code: Val) -> Val:
            here = f.splat(f.convert("trunc", code, whole.scalar), t.lanes)
            return f.select(f.compare("eq", where, here), y, f.zero(t))

        self._given(f, window, out, mine)

    def _gathered(self, f: Fn, window: Window, x: Val) -> Val:
        t = self.type.by(self.lanes)

        def add(at: Val, _: Val, carry: list[Val]) -> list[Val]:
            v = load_some(f, t, at, window.kept)
            more = self._larger(f, v, carry[0]) if self.kind == "largest" else None
            return [more or f.add(carry[0], v)]

        start = f.const(t, -np.inf if self.kind == "largest" else 0.0)
        found = self._loops(f, window, x, [start], add)[0]
        if self.kind != "mean":
            return found
        count: Int = window.taps
        for n in window.counts:
            count = f.times(n, count)
        return f.div(found, f.splat(f.convert("sitofp", f.integer(count), self.type), t.lanes))

    def _larger(self, f: Fn, v: Val, best: Val) -> Val:
        """NaN stays; it is looked for in what is new, so that nothing waits for that."""
        return f.maximum(v, best)

    def _beats(self, f: Fn, v: Val, best: Val) -> Val:
        known = f.compare("ord", best, best)
        return f.bitwise("and", f.compare("ugt", v, best), known)

    def _better(self, f: Fn, t: Type, window: Window, start: Val | None) -> Body:
        """The largest, and its number in the window, or how far from `start` it is."""

        def visit(at: Val, code: Val, carry: list[Val]) -> list[Val]:
            best, where = carry
            if start is not None:
                ends = (f.convert("ptrtoint", p, I64) for p in (at, start))
                code = f.bitwise("ashr", f.sub(*ends), f.integer(2 if t.bits == 32 else 3))
            v = load_some(f, t, at, window.kept)
            beats = self._beats(f, v, best)
            here = f.splat(f.convert("trunc", code, where.type.scalar), t.lanes)
            return [f.select(beats, v, best), f.select(beats, here, where)]

        return visit

    def _given(self, f: Fn, window: Window, out: Val, value: Callable[[Val], Val]) -> None:
        """Add to, or put into, each element of a window."""
        t = self.type.by(self.lanes)

        def give(at: Val, code: Val, _: list[Val]) -> list[Val]:
            x = value(code)
            if not self.apart:
                x = f.add(load_some(f, t, at, window.kept), x)
            store_some(f, x, at, window.kept)
            return []

        self._loops(f, window, out, [], give)

    def _loops(
        self, f: Fn, window: Window, start: Val, carry: Sequence[Val], body: Body
    ) -> list[Val]:
        """body(element, its number in the window, carry) for each place, in order."""

        def level(n: int, at: Val, code: Val, held: list[Val]) -> tuple[Val, list[Val]]:
            if n == len(self.axes) - 1:
                step = self.axes[-1].dilation * self.channels
                for j in range(window.taps):
                    here = f.integer(f.plus(code, j))
                    held = body(f.at(at, j * step, self.type), here, held)
                return f.integer(f.plus(code, window.taps)), held
            stride = self.axes[n].dilation * self.channels
            stride *= prod(a.source for a in self.axes[n + 1 :])
            with repeat(f, window.counts[n], [at, code, *held]) as loop:
                inner, count, *mine = loop.carry
                count, mine = level(n + 1, inner, count, mine)
                loop.next = [f.at(inner, stride, self.type), count, *mine]
            return loop.results[1], loop.results[2:]

        return level(0, start, f.integer(0), list(carry))[1]
