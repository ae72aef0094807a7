"""Mamba-1's selective scan as a kernel: lanes are channels, the state stays near the core.

The rates and the state of a block of channels are tables (state, lanes) in scratch; decays
are computed where they are used. What is shared by the batch is read with strides of 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.conv_chunks import ARGUMENTS, MOST_CHUNKS, chunk_bounds, parted
from retrograd.jit.llvm.gemm_tile import load_some, store_some
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.math import FUNCTIONS
from retrograd.jit.llvm.text import I64, PTR, Int, Module, Type, Val

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Block", "Selective", "Strides", "write_scan"]

AHEAD = 8  # steps of time by which memory is called for
UNROLL = 4  # places of the state in a turn
FLOPS = 24  # for each place of the state and time, an exponential among them

Strides = tuple[int, ...]


class Shared(NamedTuple):
    """Where the operands that a batch may share have their elements."""

    A: Strides  # batch, channel, state
    D: Strides  # batch, channel
    bias: Strides
    initial: Strides


@dataclass(frozen=True)
class Selective:
    """The sizes of one scan, and what belongs to it."""

    batch: int
    time: int
    channels: int
    state: int
    shared: Shared
    soft: bool
    gated: bool
    type: Type

    @classmethod
    def of(cls, u: Sequence[int], shapes: Sequence[Sequence[int]], **more: Any) -> Selective:
        """From the shapes of u, and of A, D, bias and initial."""
        *lead, s, i = u
        r = shapes[0][-1] if shapes[0] else 1
        cores = ((i, r), (i,), (i,), (i, r))
        found = (strides(x, core) for x, core in zip(shapes, cores, strict=True))
        return cls(prod(lead), s, i, r, Shared(*found), **more)

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return self.type.bits // 8

    @property
    def flops(self) -> int:
        """Of a sweep over all states."""
        return FLOPS * self.batch * self.time * self.channels * self.state

    @property
    def bytes(self) -> int:
        """Of the operands with time."""
        wide = 4 if self.gated else 3
        each = wide * self.channels + 2 * self.state
        return self.batch * self.time * each * self.size


def strides(shape: Sequence[int], core: Sequence[int]) -> Strides:
    """Of batch and core; 0 along what an operand does not have."""
    if not shape:
        return (0,) * (len(core) + 1)
    own = [prod(core[n + 1 :]) for n in range(len(core))]
    return (prod(core) if len(shape) > len(core) else 0, *own)


class Block:
    """The lanes of a block of channels inside a function: how they are read and written."""

    def __init__(self, f: Fn, scan: Selective, count: int, batch: Int, channel: Int) -> None:
        self.f, self.scan, self.count = f, scan, count
        self.batch, self.channel = batch, channel
        self.lanes = f.machine.lanes(scan.size)
        self.t = scan.type.by(self.lanes)

    def timed(self, pointer: Val, t: Int) -> Val:
        """The place of these channels in (batch, time, channels)."""
        f, n = self.f, self.scan
        row = f.plus(f.times(self.batch, n.time), t)
        return f.at(pointer, f.plus(f.times(row, n.channels), self.channel), self.t)

    def row(self, pointer: Val, t: Int) -> Val:
        """The row of a time in (batch, time, state)."""
        f, n = self.f, self.scan
        row = f.plus(f.times(self.batch, n.time), t)
        return f.at(pointer, f.times(row, n.state), self.t)

    def load(self, pointer: Val) -> Val:
        """Numbers of these channels, side by side."""
        return load_some(self.f, self.t, pointer, self.count)

    def store(self, x: Val, pointer: Val) -> None:
        """Numbers of these channels, side by side."""
        store_some(self.f, x, pointer, self.count)

    def near(self, table: Val, k: Int) -> Val:
        """The place of vector k of a table in scratch."""
        return self.f.at(table, self.f.times(k, self.lanes), self.t)

    def vector(self, pointer: Val, by: Strides) -> Val:
        """D or the bias of these channels."""
        f = self.f
        spot = f.at(pointer, f.times(self.batch, by[0]), self.t)
        if not by[1]:
            return f.splat(f.load(self.t.scalar, spot), self.lanes)
        return self.load(f.at(spot, self.channel, self.t))

    def tables(self, pointer: Val, by: Strides, table: Val, *, out: bool = False) -> None:
        """(channels, state) to a table (state, lanes), zeros in lanes beyond; or back."""
        f, one = self.f, self.t.scalar
        first = f.plus(f.times(self.batch, by[0]), f.times(self.channel, by[1]))
        with f.loop(0, self.scan.state) as k:
            if not out and self.count < self.lanes:
                f.store(f.zero(self.t), self.near(table, k.i))
            with f.loop(0, self.count) as lane:
                inner = f.plus(f.times(lane.i, by[1]), f.times(k.i, by[2]))
                far = f.at(pointer, f.plus(first, inner), one)
                close = f.at(table, f.plus(f.times(k.i, self.lanes), lane.i), one)
                source, target = (close, far) if out else (far, close)
                f.store(f.load(one, source), target)

    def splat(self, row: Val, k: Int) -> Val:
        """One number of a row, in every lane."""
        f = self.f
        return f.splat(f.load(self.t.scalar, f.at(row, k, self.t)), self.lanes)

    def step(self, raw: Val) -> Val:
        """The size of a step: softplus, if asked."""
        if not self.scan.soft:
            return raw
        f = self.f
        small = FUNCTIONS["exp"](f, f.neg(f.intrinsic("fabs", raw)))
        more = FUNCTIONS["log1p"](f, small)
        return f.add(f.maximum(raw, f.zero(self.t)), more)

    def places(self, body: Callable[[Int, list[Val]], list[Val]], carry: list[Val]) -> list:
        """All places of the state in turn, some at a time; `body` carries vectors on."""
        f, whole = self.f, self.scan.state // UNROLL * UNROLL
        with f.loop(0, whole, UNROLL, carry=carry) as loop:
            held = list(loop.carry)
            for n in range(UNROLL):
                held = body(f.plus(loop.i, n), held)
            loop.next = held
        held = list(loop.results)
        for k in range(whole, self.scan.state):
            held = body(k, held)
        return held

    def ahead(self, *spots: Val) -> None:
        """Call for memory that later steps read: rows are too far apart for the hardware."""
        f = self.f
        f.module.declare("llvm.prefetch.p0", "void", "ptr, i32, i32, i32")
        for p in spots:
            at = f.at(p, AHEAD * self.scan.channels, self.t)
            f.emit(f"call void @llvm.prefetch.p0({at}, i32 0, i32 3, i32 1)")


def buffers(f: Fn, *numbers: int) -> list[Val]:
    """Some of the kernel's buffers."""
    return [f.load(PTR, f.at(f.arg("bufs"), n, I64), align=8) for n in numbers]


def counts(lanes: int, channels: int) -> list[int]:
    """How many lanes blocks have: all, and of the last one the rest."""
    return [c for c in (min(lanes, channels // lanes * lanes), channels % lanes) if c]


def each_block(f: Fn, scan: Selective, block: Int, call: Callable[[int], object]) -> None:
    """Call the code of whole blocks, or that of the last one, where that is block's."""
    lanes = f.machine.lanes(scan.size)
    kinds = counts(lanes, scan.channels)
    if len(kinds) == 1:
        call(kinds[0])
        return
    last = f.integer(scan.channels // lanes)
    for kind, word in zip(kinds, ("ne", "eq"), strict=True):
        with f.when(f.compare(word, f.integer(block), last)):
            call(kind)


def write_scan(module: Module, name: str, scan: Selective) -> KernelInfo:
    """Forward. Buffers: u, delta, A, B, C, D, z, bias, initial, y, final."""
    lanes = module.machine.lanes(scan.size)
    blocks = -(-scan.channels // lanes)
    units = scan.batch * blocks
    chunks = min(MOST_CHUNKS, units)
    for count in counts(lanes, scan.channels):
        _write_block(module, f"{name}_{count}", scan, count)
    f = Fn(module, name, ARGUMENTS)
    low, high = chunk_bounds(f, f.arg("chunk"), chunks, units)
    with f.loop(low, high) as loop:
        batch, block = parted(f, loop.i, blocks)
        given = f.arg("bufs"), f.arg("scratch"), f.integer(batch)
        channel = f.integer(f.times(block, lanes))
        each_block(f, scan, block, lambda kind: f.call(f"{name}_{kind}", None, *given, channel))
    f.done()
    scratch = 2 * scan.state * module.machine.vector_bytes
    return KernelInfo(name, chunks, scratch, scan.flops, scan.bytes)


def _write_block(module: Module, name: str, scan: Selective, count: int) -> None:
    """The whole time of one block of channels."""
    args = [("bufs", PTR), ("scratch", PTR), ("batch", I64), ("channel", I64)]
    f = Fn(module, name, args, attributes="nounwind noinline")
    at = Block(f, scan, count, f.arg("batch"), f.arg("channel"))
    u, delta, A, B, C, D, z, bias, initial, y, final = buffers(f, *range(11))
    rates = f.arg("scratch")
    h = at.near(rates, scan.state)
    at.tables(A, scan.shared.A, rates)
    at.tables(initial, scan.shared.initial, h)
    skip, bias = at.vector(D, scan.shared.D), at.vector(bias, scan.shared.bias)
    with f.loop(0, scan.time) as loop:
        spots = [at.timed(p, loop.i) for p in ((u, delta, z) if scan.gated else (u, delta))]
        at.ahead(*spots)
        x = at.load(spots[0])
        dt = at.step(f.add(at.load(spots[1]), bias))
        into, out = at.row(B, loop.i), at.row(C, loop.i)
        found = advance(at, (rates, h, h), (dt, f.mul(dt, x)), into, (out, f.mul(skip, x)))
        if scan.gated:
            gate = at.load(spots[2])
            found = f.mul(found, f.mul(gate, FUNCTIONS["sigmoid"](f, gate)))
        at.store(found, at.timed(y, loop.i))
    by = scan.channels * scan.state, scan.state, 1
    at.tables(final, by, h, out=True)
    f.done()


def advance(
    at: Block,
    tables: tuple[Val, Val, Val],
    step: tuple[Val, Val],
    into: Val,
    read: tuple[Val, Val] | None = None,
    decays: Val | None = None,
) -> Val:
    """The states of one step from those before, and what is read of them, if asked.

    `tables`: the rates, states before, states after; decays are kept where told to.
    """
    f, (rates, before, after), (dt, write) = at.f, tables, step

    def place(k: Int, held: list[Val]) -> list[Val]:
        a = FUNCTIONS["exp"](f, f.mul(dt, f.load(at.t, at.near(rates, k))))
        if decays is not None:
            f.store(a, at.near(decays, k))
        h = f.fma(a, f.load(at.t, at.near(before, k)), f.mul(write, at.splat(into, k)))
        f.store(h, at.near(after, k))
        return [f.fma(h, at.splat(read[0], k), held[0])] if read else held

    found = at.places(place, [read[1]] if read else [])
    return found[0] if found else dt
