"""The gradient of the selective scan: states again, stretch by stretch, from their starts.

A unit is a range of blocks of channels of one of the batch. It first notes the states at the
starts of stretches of time; then, from the last stretch to the first and for each block,
computes the states and decays of the stretch again and goes back through them. What is summed
over channels (the cotangents of B and C) is summed in lanes over the unit's blocks, and over
units by another kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.conv_chunks import ARGUMENTS, MOST_CHUNKS, chunk_bounds, parted
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.math import FUNCTIONS
from retrograd.jit.llvm.selective import Block, advance, buffers, counts, each_block
from retrograd.jit.llvm.sums import fold_each
from retrograd.jit.llvm.text import I64, PTR, Int, Module, Val

if TYPE_CHECKING:
    from retrograd.jit.llvm.selective import Selective

__all__ = ["ScanBack"]

STRETCH = 1 << 15  # bytes of the states of one block in a stretch
UNITS = 16  # wanted: what threads share

# The kernel's buffers: the cotangents of y and of the last state, the operands, results.
G_Y, G_FINAL, U, DELTA, A, B, C, D, Z, BIAS, INITIAL = range(11)
OUT_U, OUT_DELTA, OUT_A, OUT_B, OUT_C, OUT_D, OUT_Z, OUT_BIAS, OUT_INITIAL = range(11, 20)
STARTS = 20

INNER = [
    ("bufs", PTR),
    ("mine", PTR),  # the block's tables: rates, G, the rates' cotangent, then two vectors
    ("near", PTR),  # the stretch's tables
    ("starts", PTR),  # the block's states at the starts of stretches
    ("batch", I64),
    ("channel", I64),
    ("low", I64),
    ("high", I64),
]


@dataclass(frozen=True)
class ScanBack:
    """The kernel of one geometry on one machine."""

    module: Module
    name: str
    scan: Selective

    @cached_property
    def lanes(self) -> int:
        """Channels in a block."""
        return self.module.machine.lanes(self.scan.size)

    @cached_property
    def blocks(self) -> int:
        """Of one of the batch."""
        return -(-self.scan.channels // self.lanes)

    @cached_property
    def parts(self) -> int:
        """Units of one of the batch: B's and C's cotangents have as many parts."""
        return max(1, min(self.blocks, UNITS // self.scan.batch))

    @cached_property
    def length(self) -> int:
        """Steps in a stretch."""
        step = self.scan.state * self.module.machine.vector_bytes
        return max(1, min(self.scan.time, max(4, STRETCH // step)))

    @property
    def stretches(self) -> int:
        """How many there are."""
        return -(-self.scan.time // self.length)

    @property
    def starts(self) -> int:
        """Bytes of the states at the starts of stretches."""
        table = self.scan.state * self.module.machine.vector_bytes
        return self.scan.batch * self.blocks * self.stretches * table

    @property
    def own(self) -> int:
        """Vectors of a block's tables."""
        return 3 * self.scan.state + 2

    @property
    def sums(self) -> int:
        """Vectors of a table of sums: whole squares of lanes."""
        return -(-self.length * self.scan.state // self.lanes) * self.lanes

    @property
    def near(self) -> list[int]:
        """Vectors of: states (one more), decays, steps, two tables of sums, and the rest."""
        r, n = self.scan.state, self.length
        return [(n + 1) * r, n * r, n, self.sums, self.sums, self.sums // self.lanes]

    def write(self) -> KernelInfo:
        """Put the kernel into the module. Buffers: as named above; B and C get parts."""
        for count in counts(self.lanes, self.scan.channels):
            self._enter(count)
            self._again(count)
            self._back(count)
            self._leave(count)
        units = self.scan.batch * self.parts
        chunks = min(MOST_CHUNKS, units)
        f = Fn(self.module, self.name, ARGUMENTS)
        low, high = chunk_bounds(f, f.arg("chunk"), chunks, units)
        with f.loop(low, high) as loop:
            batch, part = parted(f, loop.i, self.parts)
            self._unit(f, f.integer(batch), part)
        f.done()
        most = -(-self.blocks // self.parts)
        scratch = (most * self.own + sum(self.near)) * self.module.machine.vector_bytes
        return KernelInfo(self.name, chunks, scratch, 3 * self.scan.flops, 3 * self.scan.bytes)

    # -- the unit ----------------------------------------------------------------------------

    def _unit(self, f: Fn, batch: Val, part: Int) -> None:
        scan, t = self.scan, self.scan.type
        first, end = chunk_bounds(f, part, self.parts, self.blocks)
        near = f.arg("scratch")
        mine = f.at(near, sum(self.near) * self.lanes, t)
        (starts,) = buffers(f, STARTS)
        table = self.stretches * scan.state * self.lanes

        def call(what: str, block: Val, low: Int, high: Int) -> None:
            own = f.times(f.sub(block, f.integer(first)), self.own * self.lanes)
            number = f.plus(f.times(batch, self.blocks), block)
            given = (
                f.arg("bufs"),
                f.at(mine, own, t),
                near,
                f.at(starts, f.times(number, table), t),
                batch,
                f.integer(f.times(block, self.lanes)),
                f.integer(low),
                f.integer(high),
            )
            name = f"{self.name}_{what}"
            each_block(f, scan, block, lambda kind: f.call(f"{name}_{kind}", None, *given))

        with f.loop(first, end) as block:
            call("enter", block.i, 0, 0)
        with f.loop(0, self.stretches, down=True) as stretch:
            low = f.times(stretch.i, self.length)
            high = f.lesser(f.plus(low, self.length), scan.time)
            self._clear(f)
            with f.loop(first, end) as block:
                call("again", block.i, low, high)
                call("back", block.i, low, high)
            self._fold(f, batch, part, (low, high))
        with f.loop(first, end) as block:
            call("leave", block.i, 0, 0)

    def _table(self, f: Fn, near: Val, number: int) -> Val:
        return f.at(near, sum(self.near[:number]) * self.lanes, self.scan.type)

    def _clear(self, f: Fn) -> None:
        first, t = self._table(f, f.arg("scratch"), 3), self.scan.type.by(self.lanes)
        with f.loop(0, 2 * self.sums * self.lanes, self.lanes) as loop:
            f.store(f.zero(t), f.at(first, loop.i, t))

    def _fold(self, f: Fn, batch: Val, part: Int, bounds: tuple[Int, Int]) -> None:
        """The stretch's cotangents of B and C, of this unit: lanes added up."""
        scan, t = self.scan, self.scan.type.by(self.lanes)
        place = f.plus(f.times(part, scan.batch), batch)
        place = f.times(f.plus(f.times(place, scan.time), bounds[0]), scan.state)
        steps = f.sub(f.integer(bounds[1]), f.integer(bounds[0]))
        folded = self._table(f, f.arg("scratch"), 5)
        f.module.declare("llvm.memcpy.p0.p0.i64", "void", "ptr, ptr, i64, i1")
        for number, out in zip((3, 4), buffers(f, OUT_B, OUT_C), strict=True):
            table = self._table(f, f.arg("scratch"), number)
            with f.loop(0, self.sums, self.lanes) as loop:
                spot = f.at(table, f.times(loop.i, self.lanes), t)
                square = [f.load(t, f.at(spot, n * self.lanes, t)) for n in range(self.lanes)]
                f.store(fold_each(f, square), f.at(folded, loop.i, t))
            size = f.integer(f.times(steps, scan.state * scan.size))
            to = f.at(out, place, t)
            f.emit(f"call void @llvm.memcpy.p0.p0.i64({to}, {folded}, {size}, i1 false)")

    # -- the functions of a block ----------------------------------------------------------

    def _begin(self, what: str, count: int) -> tuple[Fn, Block, list[Val]]:
        name = f"{self.name}_{what}_{count}"
        f = Fn(self.module, name, INNER, attributes="nounwind noinline")
        at = Block(f, self.scan, count, f.arg("batch"), f.arg("channel"))
        own = [at.near(f.arg("mine"), n * self.scan.state) for n in range(4)]
        return f, at, own

    def _enter(self, count: int) -> None:
        """The block's tables, and its states at the starts of stretches."""
        f, at, (rates, G, slope, _) = self._begin("enter", count)
        scan, r = self.scan, self.scan.state
        given = buffers(f, U, DELTA, A, B, BIAS, INITIAL, G_FINAL)
        u, delta, A_, B_, bias, initial, g_final = given
        at.tables(A_, scan.shared.A, rates)
        at.tables(g_final, (scan.channels * r, r, 1), G)
        with f.loop(0, r + 2) as loop:
            f.store(f.zero(at.t), at.near(slope, loop.i))
        bias = at.vector(bias, scan.shared.bias)
        h = self._table(f, f.arg("near"), 0)
        at.tables(initial, scan.shared.initial, h)
        with f.loop(0, self.stretches) as stretch:
            kept = at.near(f.arg("starts"), f.times(stretch.i, r))
            with f.loop(0, r) as k:
                f.store(f.load(at.t, at.near(h, k.i)), at.near(kept, k.i))
            low = f.times(stretch.i, self.length)
            # The last stretch leads to no other's start.
            full = f.compare("slt", stretch.i, f.integer(self.stretches - 1))
            steps = f.select(full, f.integer(self.length), f.integer(0))
            with f.loop(0, steps) as loop:
                t = f.plus(low, loop.i)
                spots = [at.timed(p, t) for p in (u, delta)]
                at.ahead(*spots)
                dt = at.step(f.add(at.load(spots[1]), bias))
                step = dt, f.mul(dt, at.load(spots[0]))
                advance(at, (rates, h, h), step, at.row(B_, t))
        f.done()

    def _again(self, count: int) -> None:
        """The states, decays and steps of a stretch, from its start."""
        f, at, (rates, *_) = self._begin("again", count)
        scan, r, low = self.scan, self.scan.state, f.arg("low")
        u, delta, B_, bias = buffers(f, U, DELTA, B, BIAS)
        bias = at.vector(bias, scan.shared.bias)
        states, decays, sizes = (self._table(f, f.arg("near"), n) for n in range(3))
        start = f.div(low, f.integer(self.length))
        kept = at.near(f.arg("starts"), f.times(start, r))
        with f.loop(0, r) as k:
            f.store(f.load(at.t, at.near(kept, k.i)), at.near(states, k.i))
        with f.loop(low, f.arg("high")) as loop:
            n = f.sub(loop.i, low)
            dt = at.step(f.add(at.load(at.timed(delta, loop.i)), bias))
            f.store(dt, at.near(sizes, n))
            before = at.near(states, f.times(n, r))
            tables = rates, before, at.near(before, r)
            step = dt, f.mul(dt, at.load(at.timed(u, loop.i)))
            advance(at, tables, step, at.row(B_, loop.i), decays=at.near(decays, f.times(n, r)))
        f.done()

    def _back(self, count: int) -> None:
        """Through a stretch from its end: cotangents of the block's operands, and sums."""
        f, at, (_, _, _, rest) = self._begin("back", count)
        scan, low = self.scan, f.arg("low")
        given = buffers(f, G_Y, U, DELTA, D, Z, BIAS, OUT_U, OUT_DELTA, OUT_Z)
        g_y, u, delta, D_, z, bias, out_u, out_delta, out_z = given
        skip, bias = at.vector(D_, scan.shared.D), at.vector(bias, scan.shared.bias)
        held = [f.load(at.t, at.near(rest, n)) for n in range(2)]
        with f.loop(low, f.arg("high"), carry=held, down=True) as loop:
            t, n = loop.i, f.sub(loop.i, low)
            x, g = (at.load(at.timed(p, t)) for p in (u, g_y))
            gy = g
            if scan.gated:
                gate = at.load(at.timed(z, t))
                sig = FUNCTIONS["sigmoid"](f, gate)
                gy = f.mul(g, f.mul(gate, sig))
            dt = f.load(at.t, at.near(self._table(f, f.arg("near"), 2), n))
            y, slope, read = self._places(f, at, t, n, (gy, dt, f.mul(dt, x)))
            gx = f.fma(dt, read, f.mul(skip, gy))
            at.store(gx, at.timed(out_u, t))
            gdt = f.fma(x, read, slope)
            if scan.soft:
                raw = f.add(at.load(at.timed(delta, t)), bias)
                gdt = f.mul(gdt, FUNCTIONS["sigmoid"](f, raw))
            at.store(gdt, at.timed(out_delta, t))
            if scan.gated:
                y = f.fma(skip, x, y)
                one = f.const(at.t, 1)
                bend = f.fma(gate, f.sub(one, sig), one)
                at.store(f.mul(f.mul(g, y), f.mul(sig, bend)), at.timed(out_z, t))
            loop.next = [f.fma(gy, x, loop.carry[0]), f.add(loop.carry[1], gdt)]
        for k, total in enumerate(loop.results):
            f.store(total, at.near(rest, k))
        f.done()

    def _places(self, f: Fn, at: Block, t: Val, n: Val, step: tuple[Val, Val, Val]) -> list:
        """One step back: y, and what the step's size and what was written are to blame for."""
        gy, dt, write = step
        r = self.scan.state
        B_, C_ = (at.row(p, t) for p in buffers(f, B, C))
        rates, G, slope = (at.near(f.arg("mine"), k * r) for k in range(3))
        before, decays, sum_b, sum_c = (
            at.near(self._table(f, f.arg("near"), k), f.times(n, r)) for k in (0, 1, 3, 4)
        )
        after = at.near(before, r)

        def add(to: Val, k: Int, x: Val, y: Val) -> None:
            spot = at.near(to, k)
            f.store(f.fma(x, y, f.load(at.t, spot)), spot)

        def place(k: Int, held: list[Val]) -> list[Val]:
            into, out = at.splat(B_, k), at.splat(C_, k)
            y, gdt, read = held
            blame = f.fma(gy, out, f.load(at.t, at.near(G, k)))
            h = f.load(at.t, at.near(after, k))
            add(sum_c, k, gy, h)
            y = f.fma(h, out, y) if self.scan.gated else y
            faded = f.mul(blame, f.load(at.t, at.near(decays, k)))
            f.store(faded, at.near(G, k))
            w = f.mul(faded, f.load(at.t, at.near(before, k)))
            gdt = f.fma(w, f.load(at.t, at.near(rates, k)), gdt)
            add(slope, k, w, dt)
            add(sum_b, k, blame, write)
            return [y, gdt, f.fma(blame, into, read)]

        return at.places(place, [f.zero(at.t)] * 3)

    def _leave(self, count: int) -> None:
        """What was summed over time, of each of the batch."""
        f, at, (_, G, slope, rest) = self._begin("leave", count)
        n = self.scan
        out_a, out_d, out_bias, out_initial = buffers(f, OUT_A, OUT_D, OUT_BIAS, OUT_INITIAL)
        by = n.channels * n.state, n.state, 1
        at.tables(out_a, by, slope, out=True)
        at.tables(out_initial, by, G, out=True)
        place = f.plus(f.times(f.arg("batch"), n.channels), f.arg("channel"))
        for k, out in enumerate((out_d, out_bias)):
            at.store(f.load(at.t, at.near(rest, k)), f.at(out, place, at.t))
        f.done()
