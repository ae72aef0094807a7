"""The states of an SSD between its chunks, and what is read of them: forward."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.conv_chunks import ARGUMENTS, MOST_CHUNKS, chunk_bounds, parted
from retrograd.jit.llvm.gemm_pack import Pack
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.ssd import Matrix, Room, call_rows, dense, transpose
from retrograd.jit.llvm.ssd_product import Far, product
from retrograd.jit.llvm.ssd_times import Sources, Times, fill_times, write_weights
from retrograd.jit.llvm.text import I64, PTR, Int, Module, Val

if TYPE_CHECKING:
    from retrograd.jit.llvm.selective import Strides
    from retrograd.jit.llvm.ssd import Ssd

__all__ = [
    "READ",
    "STATES",
    "Bufs",
    "Spot",
    "far_rows",
    "far_state",
    "following",
    "skip_of",
    "times_of",
    "valid_of",
    "write_read",
    "write_states",
]

STATES = ("x", "B", "da", "scale", "gamma", "A", "start", "states", "end")
READ = ("x", "B", "C", "da", "scale", "gamma", "A", "D", "states", "y")


class Bufs:
    """A kernel's buffers, by name."""

    def __init__(self, f: Fn, names: tuple[str, ...]) -> None:
        self.f, self.names = f, names

    def __getitem__(self, name: str) -> Val:
        at = self.f.at(self.f.arg("bufs"), self.names.index(name), I64)
        return self.f.load(PTR, at, align=8)


class Spot(NamedTuple):
    """Where in the work the code is."""

    batch: Int
    head: Int
    low: Int  # the chunk's first time


def following(f: Fn, n: Ssd, spot: Spot, chunk: Int) -> tuple[Spot, Int]:
    """Whose turn is next, and its chunk: the next head, or the first one in the next chunk."""
    head = f.plus(spot.head, 1)
    over = f.compare("eq", f.integer(head), f.integer(n.heads))
    head, low, chunk = (
        f.select(over, f.integer(a), f.integer(b))
        for a, b in ((0, head), (f.plus(spot.low, n.L), spot.low), (f.plus(chunk, 1), chunk))
    )
    return Spot(spot.batch, head, low), chunk


def far_rows(f: Fn, n: Ssd, array: Val, spot: Spot) -> Far:
    """What (batch, time, heads, channels) has for a chunk of a head."""
    at = n.rows(f, array, spot.batch, spot.low, (spot.head, n.heads, n.p))
    return Far(at, n.L, n.p, n.heads * n.p)


def far_state(f: Fn, n: Ssd, array: Val, spot: Spot, slot: Int) -> Far:
    """A head's state."""
    return Far(n.state(f, array, spot.batch, spot.head, slot), n.R, n.P, n.P)


def times_of(f: Fn, n: Ssd, bufs: Bufs, spot: Spot, to: Times) -> None:
    """The times of a chunk of a head."""
    at = spot.head, n.heads, 1
    da, scale, gamma = (
        n.rows(f, bufs[k], spot.batch, spot.low, at) for k in ("da", "scale", "gamma")
    )
    A = n.shared(f, bufs["A"], n.A, spot.batch, spot.head)
    fill_times(f, n, Sources(da, scale, gamma, A), valid_of(f, n, spot.low), to)


def valid_of(f: Fn, n: Ssd, low: Int) -> Int:
    """Times of a chunk that exist."""
    return f.lesser(n.L, f.sub(f.integer(n.time), f.integer(low)))


def write_states(module: Module, name: str, n: Ssd, *, back: bool = False) -> KernelInfo:
    """States before, between and after chunks; with `back`, cotangents, from the last.

    Buffers: STATES. Forward a chunk adds sum_t w_t B_t x_t'; backward, where B is C and x the
    cotangent of y, sum_t e_t C_t g_t'.
    """
    units = n.batch * n.heads
    chunks = min(MOST_CHUNKS, units)
    f = Fn(module, name, ARGUMENTS)
    bufs, room, t = Bufs(f, STATES), Room(f, n.type), n.type
    times = Times.of(room, n)
    x, rows, turned = room.matrix(n.L, n.P), room.matrix(n.L, n.R), room.matrix(n.P, n.R)
    low, high = chunk_bounds(f, f.arg("chunk"), chunks, units)
    by: Strides = (n.heads * n.p * n.r, n.p * n.r) if back else n.initial
    with f.loop(low, high) as unit:
        batch, head = parted(f, unit.i, n.heads)
        slot = partial(n.state, f, bufs["states"], batch, head)
        first, last = (n.chunks, 0) if back else (0, n.chunks)
        _begin(f, n, bufs["start"], (batch, head, by), slot(first))
        with f.loop(0, n.chunks, down=back) as chunk:
            spot = Spot(batch, head, f.times(chunk.i, n.L))
            valid = valid_of(f, n, spot.low)
            times_of(f, n, bufs, spot, times)
            dense(f, t, far_rows(f, n, bufs["x"], spot).place, x, valid)
            weights = times.e if back else times.w
            dense(f, t, _group_rows(f, n, bufs["B"], spot).place, rows, valid, weights)
            ends = slot(chunk.i), slot(f.plus(chunk.i, 1))
            old, new = ends[::-1] if back else ends
            _fade(f, n, f.load(t, f.at(times.e, n.L - 1, t)), old, new)
            later = _next_chunk(f, n, bufs, spot, new, -1 if back else 1)
            product(f, t, rows.T, x, Matrix(new, n.R, n.P), more=True, later=later)
        transpose(f, t, Matrix(slot(last), n.R, n.P), turned)
        out = f.at(bufs["end"], f.times(unit.i, n.p * n.r), t)
        call_rows(f, t, turned, (out, n.r, n.r), n.p)
    f.done()
    flops = n.flops(n.P * n.R)
    moved = n.batch * n.time * (n.heads * n.p + n.groups * n.r) * n.size + n.states
    return KernelInfo(name, chunks, room.bytes, flops, moved)


def _next_chunk(f: Fn, n: Ssd, bufs: Bufs, spot: Spot, new: Val, way: int) -> tuple[Far, ...]:
    """What the chunk after this one reads and writes; `way` is -1 if it is before in time."""
    after = Spot(spot.batch, spot.head, f.plus(spot.low, way * n.L))
    return (
        far_rows(f, n, bufs["x"], after),
        _group_rows(f, n, bufs["B"], after),
        Far(f.at(new, way * n.R * n.P, n.type), n.R, n.P, n.P),
    )


def _group_rows(f: Fn, n: Ssd, array: Val, spot: Spot) -> Far:
    """What (batch, time, groups, state) has for a chunk of a head."""
    group = parted(f, spot.head, n.q)[0]
    at = n.rows(f, array, spot.batch, spot.low, (group, n.groups, n.r))
    return Far(at, n.L, n.r, n.groups * n.r)


def _begin(f: Fn, n: Ssd, start: Val, where: tuple[Int, Int, Strides], to: Val) -> None:
    """The state that a call began with, as (R, P)."""
    t, (batch, head, by) = n.type, where
    source = n.shared(f, start, by, batch, head)
    wide, every = t.by(n.lanes), 0 in by[1:]
    value = f.splat(f.load(t, source), n.lanes) if every else f.zero(wide)
    with f.loop(0, n.R * n.P, n.lanes) as loop:
        f.store(value, f.at(to, loop.i, t))
    if not every:
        pack = Pack(t, n.P, n.p, (n.r, 1), n.r % n.lanes).write(f.module)
        f.call(pack, None, source, to, f.const(I64, n.r))


def _fade(f: Fn, n: Ssd, decay: Val, old: Val, new: Val) -> None:
    t = n.type
    decay = f.splat(decay, n.lanes)
    with f.loop(0, n.R * n.P, n.lanes) as loop:
        x = f.load(t.by(n.lanes), f.at(old, loop.i, t))
        f.store(f.mul(x, decay), f.at(new, loop.i, t))


def write_read(module: Module, name: str, n: Ssd) -> KernelInfo:
    """y of all chunks, from the states that enter them. Buffers: READ."""
    units = n.batch * n.chunks * n.groups
    chunks = min(MOST_CHUNKS, units)
    f = Fn(module, name, ARGUMENTS)
    bufs, room, t = Bufs(f, READ), Room(f, n.type), n.type
    times, weights = Times.of(room, n), write_weights(module, n)
    x, y = room.matrix(n.L, n.P), room.matrix(n.L, n.P)
    B, C, read = (room.matrix(n.L, n.R) for _ in range(3))
    Bt, CB, W = room.matrix(n.R, n.L), room.matrix(n.L, n.L), room.matrix(n.L, n.L)
    low, high = chunk_bounds(f, f.arg("chunk"), chunks, units)
    with f.loop(low, high) as unit:
        rest, group = parted(f, unit.i, n.groups)
        batch, chunk = parted(f, rest, n.chunks)
        first = f.times(chunk, n.L)
        valid = valid_of(f, n, first)
        for matrix, which in ((B, "B"), (C, "C")):
            at = n.rows(f, bufs[which], batch, first, (group, n.groups, n.r))
            dense(f, t, (at, n.r, n.groups * n.r), matrix, valid)
        transpose(f, t, B, Bt)
        product(f, t, C, Bt, CB)
        with f.loop(0, n.q) as turn:
            spot = Spot(batch, f.plus(f.times(group, n.q), turn.i), first)
            then, slot = following(f, n, spot, chunk)
            times_of(f, n, bufs, spot, times)
            skip = f.load(t, n.shared(f, bufs["D"], n.D, batch, spot.head))
            f.call(weights, None, times.cs, CB.at, W.at, skip_of(f, n, skip))
            dense(f, t, far_rows(f, n, bufs["x"], spot).place, x, valid)
            out = far_rows(f, n, bufs["y"], spot)
            product(f, t, W, x, y, part="low", later=[out, far_rows(f, n, bufs["x"], then)])
            dense(f, t, (C.at, n.R, n.R), read, n.L, times.e)
            entered = Matrix(n.state(f, bufs["states"], batch, spot.head, chunk), n.R, n.P)
            state = far_state(f, n, bufs["states"], then, slot)
            product(f, t, read, entered, y, more=True, later=[state])
            call_rows(f, t, y, out.place, valid)
    f.done()
    flops = n.flops(n.L * n.P // 2 + n.R * n.P) + n.flops(n.L * n.R) // n.q
    moved = 2 * n.batch * n.time * (n.heads * n.p + n.groups * n.r) * n.size + n.states
    return KernelInfo(name, chunks, room.bytes, flops, moved)


def skip_of(f: Fn, n: Ssd, D: Val) -> Val:
    """D; of the kinds that have none, zero."""
    return D if n.kind == "dt" else f.zero(n.type)
