"""Causal depthwise convolutions as kernels: lanes are channels, rows of time go in blocks.

Rows are found by tables of pointers, which lead to the state before the first time and to
zeros beyond the last: the code of a block knows no edges. Inside it, for one vector of
channels after another, the rows that taps meet stay in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.conv_chunks import (
    ARGUMENTS,
    MOST_CHUNKS,
    chunk_bounds,
    parted,
    pointers,
)
from retrograd.jit.llvm.gemm_tile import load_some, store_some
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.text import I64, PTR, Int, Module, Type, Val

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BLOCK", "Causal", "write_causal", "write_causal_back"]

BLOCK = 8  # rows at a time
UNITS = 16  # wanted: what threads share
LEAST = 32  # rows that are worth a unit
INNER = "nounwind noinline"


@dataclass(frozen=True)
class Causal:
    """The sizes of one convolution."""

    batch: int
    time: int
    channels: int
    taps: int
    weight: int  # numbers between the weights of a batch, 0 if they are shared
    bias: tuple[int, int]  # the same of the bias, and between its channels
    type: Type
    lanes: int

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return self.type.bits // 8

    @cached_property
    def segments(self) -> int:
        """Units of one of the batch."""
        return max(1, min(-(-UNITS // self.batch), self.time // LEAST))

    @property
    def wide(self) -> int:
        """Channels in whole vectors."""
        return -(-self.channels // self.lanes) * self.lanes

    @property
    def bytes(self) -> int:
        """Of an array with time."""
        return self.batch * self.time * self.channels * self.size

    @property
    def flops(self) -> int:
        """Forward."""
        return 2 * self.batch * self.time * self.channels * self.taps


class _Rows:
    """A kernel being written: its units, and pointers to rows."""

    def __init__(self, module: Module, name: str, n: Causal, tables: int) -> None:
        self.f, self.n = Fn(module, name, ARGUMENTS), n
        self.rows = BLOCK + n.taps - 1
        self.tables = [
            self.f.at(self.f.arg("scratch"), k * self.rows, I64) for k in range(tables)
        ]
        self.used = tables * self.rows * 8
        self.used += -self.used % 64

    def room(self, count: int) -> Val:
        """Numbers in scratch."""
        f, n = self.f, self.n
        at = f.at(f.arg("scratch"), self.used // n.size, n.type)
        self.used += count * n.size
        self.used += -self.used % 64
        return at

    def zeros(self, at: Val, count: int) -> None:
        """Whole vectors of zeros."""
        f, n = self.f, self.n
        with f.loop(0, count, n.lanes) as loop:
            f.store(f.zero(n.type.by(n.lanes)), f.at(at, loop.i, n.type))

    def row(self, array: Val, batch: Int, rows: int, t: Int) -> Val:
        """Row t of (batch, rows, channels)."""
        f, n = self.f, self.n
        at = f.plus(f.times(batch, rows), t)
        return f.at(array, f.times(at, n.channels), n.type)

    def past(self, x: Val, state: Val, batch: Int, t: Val) -> Val:
        """x at t, or the state where that is before the first time."""
        f, n = self.f, self.n
        before = self.row(state, batch, n.taps - 1, f.plus(t, n.taps - 1))
        early = f.compare("slt", t, f.integer(0))
        return f.select(early, before, self.row(x, batch, n.time, t))

    def fill(self, table: Val, count: int, place: Callable[[Val], Val]) -> None:
        """A table of pointers to rows, by their numbers in the table."""
        f = self.f
        with f.loop(0, count) as loop:
            f.store(place(loop.i), f.at(table, loop.i, I64), 8)

    def within(self, t: Val, low: Int, high: Int, inside: Val, outside: Val) -> Val:
        """A pointer where low <= t < high, else another."""
        f = self.f
        late = f.compare("slt", t, f.integer(high))
        early = f.compare("sge", t, f.integer(low))
        return f.select(f.bitwise("and", early, late), inside, outside)

    def done(self, chunks: int, flops: int, moved: int) -> KernelInfo:
        """The kernel."""
        self.f.done()
        return KernelInfo(self.f.name, chunks, self.used, flops, moved)


def _columns(f: Fn, n: Causal, body: Callable[[Int, int], None]) -> None:
    """All vectors of channels: where, and how many lanes exist (0: all)."""
    whole = n.channels // n.lanes * n.lanes
    with f.loop(0, whole, n.lanes) as loop:
        body(loop.i, 0)
    if n.channels > whole:
        body(whole, n.channels - whole)


def _pointer(f: Fn, table: str, k: int) -> Val:
    return f.load(PTR, f.at(f.arg(table), k, I64), 8)


def _row(f: Fn, table: str, k: int, at: tuple[Int, int], t: Type) -> Val:
    return load_some(f, t, f.at(_pointer(f, table, k), at[0], t), at[1])


def _taps(f: Fn, n: Causal, c: Int, have: int) -> list[Val]:
    spots = (f.at(f.arg("weight"), f.plus(c, q * n.channels), n.type) for q in range(n.taps))
    return [load_some(f, n.type.by(n.lanes), at, have) for at in spots]


def write_causal(module: Module, name: str, n: Causal) -> KernelInfo:
    """y. Buffers: x, state, weight, bias, y."""
    block = _write_block(module, f"{name}_block", n)
    w = _Rows(module, name, n, 2)
    f, units = w.f, n.batch * n.segments
    chunks = min(MOST_CHUNKS, units)
    x, state, weight, bias, y = pointers(f, 5)
    spare = w.room(n.wide)
    low, high = chunk_bounds(f, f.arg("chunk"), chunks, units)
    with f.loop(low, high) as unit:
        batch, segment = parted(f, unit.i, n.segments)
        first, end = chunk_bounds(f, segment, n.segments, n.time)
        taps = f.at(weight, f.times(batch, n.weight), n.type)
        more = f.at(bias, f.times(batch, n.bias[0]), n.type)
        with f.loop(first, end, BLOCK) as loop:
            start = f.sub(loop.i, f.integer(n.taps - 1))

            def source(k: Val) -> Val:
                t = f.add(start, k)
                found = w.past(x, state, batch, t)
                return w.within(t, 1 - n.taps, n.time, found, w.past(x, state, batch, start))

            def target(k: Val) -> Val:
                t = f.add(loop.i, k)
                return w.within(t, 0, end, w.row(y, batch, n.time, t), spare)

            w.fill(w.tables[0], w.rows, source)
            w.fill(w.tables[1], BLOCK, target)
            f.call(block, None, *w.tables, taps, more)
    return w.done(chunks, n.flops, 2 * n.bytes)


def _write_block(module: Module, name: str, n: Causal) -> str:
    """(x, y, weight, bias): a block of rows, from tables of pointers."""
    args = [(k, PTR) for k in ("x", "y", "weight", "bias")]
    f = Fn(module, name, args, attributes=INNER)
    t = n.type.by(n.lanes)

    def column(c: Int, have: int) -> None:
        taps = _taps(f, n, c, have)
        if n.bias[1]:
            bias = load_some(f, t, f.at(f.arg("bias"), c, t), have)
        else:
            bias = f.splat(f.load(n.type, f.arg("bias")), n.lanes)
        seen = [_row(f, "x", k, (c, have), t) for k in range(n.taps - 1)]
        for k in range(BLOCK):
            seen.append(_row(f, "x", k + n.taps - 1, (c, have), t))
            total = bias
            for q, x in enumerate(seen):
                total = f.fma(taps[q], x, total)
            store_some(f, total, f.at(_pointer(f, "y", k), c, t), have)
            seen.pop(0)

    _columns(f, n, column)
    return f.done()


def write_causal_back(module: Module, name: str, n: Causal) -> KernelInfo:
    """All cotangents; those of weight and bias for each segment and batch.

    Buffers: g, x, state, weight, gx, gstate, gweight, gbias.
    """
    block = _write_back_block(module, f"{name}_block", n)
    w = _Rows(module, name, n, 3)
    f, units, k = w.f, n.batch * n.segments, n.taps
    chunks = min(MOST_CHUNKS, units)
    g, x, state, weight, gx, gstate, gweight, gbias = pointers(f, 8)
    spare, nothing, sums = w.room(n.wide), w.room(n.wide), w.room((k + 1) * n.wide)
    w.zeros(nothing, n.wide)
    low, high = chunk_bounds(f, f.arg("chunk"), chunks, units)
    with f.loop(low, high) as unit:
        batch, segment = parted(f, unit.i, n.segments)
        first, end = chunk_bounds(f, segment, n.segments, n.time)
        # The last segment goes on to where the last result meets the first tap.
        last = f.compare("eq", f.integer(segment), f.integer(n.segments - 1))
        end = f.plus(end, f.select(last, f.integer(k - 1), f.integer(0)))
        taps = f.at(weight, f.times(batch, n.weight), n.type)
        w.zeros(sums, (k + 1) * n.wide)
        with f.loop(first, end, BLOCK) as loop:
            start = f.sub(loop.i, f.integer(k - 1))
            stop = f.lesser(end, n.time)
            spots = _Spots(w, (g, x, state, gx, gstate), (spare, nothing), batch)
            spots.fill(loop.i, start, (stop, end))
            f.call(block, None, *w.tables, taps, sums)
        part = f.plus(f.times(segment, n.batch), batch)
        _leave(w, sums, (gweight, gbias), part)
    return w.done(chunks, 2 * n.flops, 3 * n.bytes)


@dataclass
class _Spots:
    """The tables of the gradient's blocks."""

    w: _Rows
    arrays: tuple[Val, ...]  # g, x, state, gx, gstate
    none: tuple[Val, Val]  # where nothing is written, and where zeros are
    batch: Int

    def fill(self, first: Val, start: Val, ends: tuple[Int, Int]) -> None:
        """For the block from `first` on; rows from `start` on are read."""
        w, f, n, batch = self.w, self.w.f, self.w.n, self.batch
        g, x, state, gx, gstate = self.arrays
        k, (stop, end), (spare, nothing) = n.taps, ends, self.none

        def given(i: Val) -> Val:
            t = f.add(start, i)
            return w.within(t, 0, stop, w.row(g, batch, n.time, t), nothing)

        def source(i: Val) -> Val:
            t = f.add(start, i)
            return w.within(t, 1 - k, stop, w.past(x, state, batch, t), nothing)

        def target(i: Val) -> Val:
            t = f.add(first, i)
            early = w.row(gstate, batch, k - 1, t)
            late = w.row(gx, batch, n.time, f.sub(t, f.integer(k - 1)))
            found = f.select(f.compare("slt", t, f.integer(k - 1)), early, late)
            return w.within(t, 0, end, found, spare)

        w.fill(w.tables[0], w.rows, given)
        w.fill(w.tables[1], w.rows, source)
        w.fill(w.tables[2], BLOCK, target)


def _leave(w: _Rows, sums: Val, outs: tuple[Val, Val], part: Int) -> None:
    """The sums of a unit to their places."""
    f, n = w.f, w.n
    t = n.type.by(n.lanes)
    for q in range(n.taps + 1):
        out, rows = (outs[0], n.taps) if q < n.taps else (outs[1], 1)
        at = f.plus(f.times(part, rows), q if q < n.taps else 0)
        to = f.at(out, f.times(at, n.channels), n.type)

        def move(c: Int, have: int, to: Val = to, q: int = q) -> None:
            x = f.load(t, f.at(sums, f.plus(c, q * n.wide), t))
            store_some(f, x, f.at(to, c, t), have)

        _columns(f, n, move)


def _write_back_block(module: Module, name: str, n: Causal) -> str:
    """(g, x, out, weight, sums): a block of rows, from tables of pointers."""
    args = [(k, PTR) for k in ("g", "x", "out", "weight", "sums")]
    f = Fn(module, name, args, attributes=INNER)
    t, k = n.type.by(n.lanes), n.taps

    def column(c: Int, have: int) -> None:
        taps, at = _taps(f, n, c, have), (c, have)
        places = [f.at(f.arg("sums"), f.plus(c, q * n.wide), t) for q in range(k + 1)]
        sums = [f.load(t, p) for p in places]
        blames, seen = ([_row(f, w, i, at, t) for i in range(k - 1)] for w in ("g", "x"))
        for i in range(BLOCK):
            blames.append(_row(f, "g", i + k - 1, at, t))
            seen.append(_row(f, "x", i + k - 1, at, t))
            total = f.mul(taps[0], blames[-1])
            for q in range(1, k):
                total = f.fma(taps[q], blames[-1 - q], total)
            store_some(f, total, f.at(_pointer(f, "out", i), c, t), have)
            sums = [
                *(f.fma(blames[-1], seen[q], sums[q]) for q in range(k)),
                f.add(sums[k], blames[-1]),
            ]
            blames.pop(0)
            seen.pop(0)
        for p, total in zip(places, sums, strict=True):
            f.store(total, p)

    _columns(f, n, column)
    return f.done()
