"""The gradient of an SSD, chunk by chunk, from states and their cotangents between chunks.

A unit is a chunk of a group: the scores C_t.B_s and their cotangents are those of all its
heads. With H the state that enters, G the cotangent of that which leaves, per head:

    dW = g x'      W = CB K      dx = W' g + w B G      dCB = dW K
    dC = e g H' + dCB B          dB = w x G' + dCB' C

and what e, w and K are to blame for goes to the log decays, whose sums run backwards.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.conv_chunks import ARGUMENTS, MOST_CHUNKS, chunk_bounds, parted
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.ssd import INNER, Matrix, Room, call_rows, dense, transpose
from retrograd.jit.llvm.ssd_product import Far, product
from retrograd.jit.llvm.ssd_states import (
    Bufs,
    Spot,
    far_rows,
    far_state,
    following,
    skip_of,
    times_of,
    valid_of,
)
from retrograd.jit.llvm.ssd_times import Row, Times, widened
from retrograd.jit.llvm.text import F64, I64, PTR, Int, Module, Val

if TYPE_CHECKING:
    from retrograd.jit.llvm.ssd import Ssd

__all__ = ["BACK", "write_back"]

BACK = (
    *("g_y", "x", "B", "C", "da", "scale", "gamma", "A", "D", "states", "gstates"),
    *("gx", "gdt", "gda", "gB", "gC", "ggamma", "gscale", "gA", "gD"),
)


LONG = 3  # of the blames


class Blames(NamedTuple):
    """Vectors of L numbers in scratch: cotangents of what a time has.

    The first three are float64 whatever the op's dtype: what later times are to blame for
    cancels in their sums, and would leave what was rounded.
    """

    rows: Val  # of cs, from K's rows
    columns: Val  # of scale, from K's columns
    cs: Val
    diagonal: Val  # of gamma
    read: Val  # C_t . (g H')_t
    added: Val  # B_t . (x G')_t, of w

    @classmethod
    def of(cls, room: Room, n: Ssd) -> Blames:
        """Memory of their own."""
        return cls.at(room.f, room.matrix(3 + LONG * F64.bits // n.type.bits, n.L).at, n)

    @classmethod
    def at(cls, f: Fn, first: Val, n: Ssd) -> Blames:
        """Those that begin at `first`."""
        short = f.at(first, LONG * n.L, F64)
        return cls(
            *(f.at(first, k * n.L, F64) for k in range(LONG)),
            *(f.at(short, k * n.L, n.type) for k in range(3)),
        )


class Chunk:
    """The matrices of a unit, in scratch."""

    def __init__(self, f: Fn, n: Ssd) -> None:
        room = Room(f, n.type)
        self.times, self.blames = Times.of(room, n), Blames.of(room, n)
        self.x, self.g, self.dx = (room.matrix(n.L, n.P) for _ in range(3))
        deep = (room.matrix(n.L, n.R) for _ in range(5))
        self.B, self.C, self.dB, self.dC, self.rows = deep
        self.CB, self.dCB, self.W, self.dW = (room.matrix(n.L, n.L) for _ in range(4))
        self.xt, self.turned = room.matrix(n.P, n.L), room.matrix(n.P, n.R)
        self.Bt = room.matrix(n.R, n.L)
        self.bytes = room.bytes


def write_back(module: Module, name: str, n: Ssd) -> KernelInfo:
    """All cotangents but that of the initial state. Buffers: BACK; gA and gD for each chunk."""
    units = n.batch * n.chunks * n.groups
    chunks = min(MOST_CHUNKS, units)
    f = Fn(module, name, ARGUMENTS)
    bufs, c, t = Bufs(f, BACK), Chunk(f, n), n.type
    low, high = chunk_bounds(f, f.arg("chunk"), chunks, units)
    with f.loop(low, high) as unit:
        rest, group = parted(f, unit.i, n.groups)
        batch, chunk = parted(f, rest, n.chunks)
        first = f.times(chunk, n.L)
        valid = valid_of(f, n, first)
        rows = partial(_rows, f, n, bufs, (batch, first), (group, n.groups, n.r))
        dense(f, t, rows("B"), c.B, valid)
        dense(f, t, rows("C"), c.C, valid)
        transpose(f, t, c.B, c.Bt)
        product(f, t, c.C, c.Bt, c.CB)
        for matrix in (c.dB, c.dC, c.dCB):
            _clear(f, n, matrix)
        with f.loop(0, n.q) as turn:
            head = f.plus(f.times(group, n.q), turn.i)
            _head(f, n, bufs, c, (Spot(batch, head, first), chunk, valid))
        product(f, t, c.dCB, c.B, c.dC, more=True, part="low")
        product(f, t, c.dCB.T, c.C, c.dB, more=True, part="high")
        call_rows(f, t, c.dB, rows("gB"), valid)
        call_rows(f, t, c.dC, rows("gC"), valid)
    f.done()
    inner = n.L * n.P * 3 // 2 + 3 * n.R * n.P
    flops = n.flops(inner) + n.flops(2 * n.L * n.R) // n.q
    moved = 3 * n.batch * n.time * (n.heads * n.p + n.groups * n.r) * n.size + 2 * n.states
    return KernelInfo(name, chunks, c.bytes, flops, moved)


def _rows(
    f: Fn, n: Ssd, bufs: Bufs, where: tuple[Int, Int], which: tuple[Int, int, int], name: str
) -> tuple[Val, int, int]:
    """The rows of a group or head in a buffer: where, numbers in a row, and between rows."""
    at = n.rows(f, bufs[name], *where, which)
    return at, which[2], which[1] * which[2]


def _clear(f: Fn, n: Ssd, matrix: Matrix) -> None:
    with f.loop(0, matrix.rows * matrix.columns, n.lanes) as loop:
        f.store(f.zero(n.type.by(n.lanes)), f.at(matrix.at, loop.i, n.type))


def _later(f: Fn, n: Ssd, bufs: Bufs, spot: Spot, chunk: Int) -> tuple[Far, ...]:
    """What to call for on the way: where dx goes, what the next head reads."""
    then, slot = following(f, n, spot, chunk)
    return (
        far_rows(f, n, bufs["gx"], spot),
        far_rows(f, n, bufs["x"], then),
        far_rows(f, n, bufs["g_y"], then),
        far_state(f, n, bufs["states"], then, slot),
        far_state(f, n, bufs["gstates"], then, f.plus(slot, 1)),
    )


def _head(f: Fn, n: Ssd, bufs: Bufs, c: Chunk, where: tuple[Spot, Int, Int]) -> None:
    """One head of a chunk."""
    (spot, chunk, valid), t = where, n.type
    place = spot.batch, spot.low
    channels = partial(_rows, f, n, bufs, place, (spot.head, n.heads, n.p))
    times_of(f, n, bufs, spot, c.times)
    dense(f, t, channels("x"), c.x, valid)
    dense(f, t, channels("g_y"), c.g, valid)
    transpose(f, t, c.x, c.xt)
    gx, x, g, H, leaving = _later(f, n, bufs, spot, chunk)
    product(f, t, c.g, c.xt, c.dW, later=[gx])
    skip = f.load(t, n.shared(f, bufs["D"], n.D, spot.batch, spot.head))
    blame = _write_blame(f.module, n)
    given = c.times.cs, c.CB.at, c.dW.at, c.W.at, c.dCB.at, c.blames.rows
    gD = f.call(blame, t, *given, skip_of(f, n, skip))
    assert gD
    entered = Matrix(n.state(f, bufs["states"], spot.batch, spot.head, chunk), n.R, n.P)
    after = f.plus(chunk, 1)
    G = Matrix(n.state(f, bufs["gstates"], spot.batch, spot.head, after), n.R, n.P)
    product(f, t, c.W.T, c.g, c.dx, part="high", later=[x])
    dense(f, t, (c.B.at, n.R, n.R), c.rows, n.L, c.times.w)
    product(f, t, c.rows, G, c.dx, more=True, later=[g])
    call_rows(f, t, c.dx, channels("gx"), valid)
    dots = _write_dots(f.module, n)
    transpose(f, t, entered, c.turned)
    product(f, t, c.g, c.turned, c.rows, later=[H])
    f.call(dots, None, c.C.at, c.rows.at, c.dC.at, c.times.e, c.blames.read)
    transpose(f, t, G, c.turned)
    product(f, t, c.x, c.turned, c.rows, later=[leaving])
    f.call(dots, None, c.B.at, c.rows.at, c.dB.at, c.times.w, c.blames.added)
    _finish(f, n, bufs, c, (spot, chunk, valid), (entered, G, gD))


def _write_blame(module: Module, n: Ssd) -> str:
    """(to, CB, dW, W, dCB, blames, skip): W, blames, more of dCB; the trace of dW."""
    name = f"ssd_blame_{n.type.suffix}_{n.L}"

    def write() -> None:
        args = [(k, PTR) for k in ("to", "CB", "dW", "W", "dCB", "blames")]
        f = Fn(module, name, [*args, ("skip", n.type)], n.type, attributes=INNER)
        t, wide = n.type, n.type.by(n.lanes)
        to, long = Blames.at(f, f.arg("blames"), n), F64.by(n.lanes)
        with f.loop(0, n.L, n.lanes) as loop:
            f.store(f.zero(long), f.at(to.columns, loop.i, F64))
        with f.loop(0, n.L, carry=[f.zero(t)]) as down:
            row = Row(f, n, down.i)
            with f.loop(0, row.end, n.lanes, carry=[f.zero(long)]) as across:
                near = row.near(across.i)
                at = {k: f.at(f.arg(k), near.spot, t) for k in ("CB", "dW", "W", "dCB")}
                CB, dW = f.load(wide, at["CB"]), f.load(wide, at["dW"])
                f.store(row.weight(near, CB), at["W"])
                f.store(f.fma(dW, near.K, f.load(wide, at["dCB"])), at["dCB"])
                dL = widened(f, f.mul(f.mul(dW, CB), near.below))
                column = f.at(to.columns, across.i, F64)
                f.store(f.add(f.load(long, column), dL), column)
                across.next = [f.fma(dL, widened(f, near.scale), across.carry[0])]
            row.zeros(f.arg("W"))
            f.store(f.fold("add", across.results[0]), f.at(to.rows, down.i, F64))
            here = f.times(down.i, n.L + 1)
            CB, dW = (f.load(t, f.at(f.arg(k), here, t)) for k in ("CB", "dW"))
            f.store(f.mul(CB, dW), f.at(to.diagonal, down.i, t))
            down.next = [f.add(down.carry[0], dW)]
        f.done(down.results[0])

    return module.once(name, write)


def _write_dots(module: Module, n: Ssd) -> str:
    """(left, right, total, weights, dots): left_t.right_t; total_t += weights_t right_t."""
    name = f"ssd_dots_{n.type.suffix}_{n.L}_{n.R}"

    def write() -> None:
        args = [(k, PTR) for k in ("left", "right", "total", "weights", "dots")]
        f = Fn(module, name, args, attributes=INNER)
        t, wide = n.type, n.type.by(n.lanes)
        with f.loop(0, n.L) as down:
            weight = f.splat(f.load(t, f.at(f.arg("weights"), down.i, t)), n.lanes)
            with f.loop(0, n.R, n.lanes, carry=[f.zero(wide)]) as across:
                place = f.plus(f.times(down.i, n.R), across.i)
                spots = [f.at(f.arg(k), place, t) for k in ("left", "right", "total")]
                left, right, total = (f.load(wide, s) for s in spots)
                f.store(f.fma(weight, right, total), spots[2])
                across.next = [f.fma(left, right, across.carry[0])]
            f.store(f.fold("add", across.results[0]), f.at(f.arg("dots"), down.i, t))
        f.done()

    return module.once(name, write)


def _finish(
    f: Fn,
    n: Ssd,
    bufs: Bufs,
    c: Chunk,
    where: tuple[Spot, Int, Int],
    found: tuple[Matrix, Matrix, Val],
) -> None:
    """What a head's times get, from all blames; A's and D's share of the chunk."""
    (spot, chunk, valid), t = where, n.type
    H, G, gD = found
    at = spot.head, n.heads, 1
    names = {"dt": ("gdt",) * 3, "one": ("gda",) * 3, "two": ("gda", "ggamma", "gscale")}
    out = (n.rows(f, bufs[k], spot.batch, spot.low, at) for k in names[n.kind])
    A = n.shared(f, bufs["A"], n.A, spot.batch, spot.head)
    given = c.times.cs, c.blames.rows, H.at, G.at, A, *out, f.integer(valid)
    gA = f.call(_write_finish(f.module, n), t, *given)
    assert gA
    if n.kind == "dt":
        part = f.plus(f.times(chunk, n.batch), spot.batch)
        part = f.plus(f.times(part, n.heads), spot.head)
        f.store(gA, f.at(bufs["gA"], part, t))
        f.store(gD, f.at(bufs["gD"], part, t))


def _write_finish(module: Module, n: Ssd) -> str:
    """(to, blames, H, G, A, da, gamma, scale, valid): cotangents with time; that of A."""
    name = f"ssd_finish_{n.type.suffix}_{n.kind}_{n.heads}_{n.L}_{n.R}_{n.P}"
    return module.once(name, lambda: _Finish(module, name, n).write())


class _Finish:
    """Writes the function above."""

    def __init__(self, module: Module, name: str, n: Ssd) -> None:
        args = [(k, PTR) for k in ("to", "blames", "H", "G", "A", "da", "gamma", "scale")]
        self.f = Fn(module, name, [*args, ("valid", I64)], n.type, attributes=INNER)
        self.n, self.t, self.wide = n, n.type, n.type.by(n.lanes)
        self.times = Times(*(self._vector("to", k) for k in range(len(Times._fields))))
        self.blames = Blames.at(self.f, self.f.arg("blames"), n)

    def _vector(self, name: str, k: int) -> Val:
        return self.f.at(self.f.arg(name), k * self.n.L, self.t)

    def write(self) -> None:
        """The whole."""
        f, n = self.f, self.n
        last = f.add(self._weights(), widened(f, self._passed()))
        rate = f.load(self.t, f.arg("A")) if n.kind == "dt" else None
        # Times beyond the end are to blame for nothing.
        with f.loop(0, f.arg("valid"), carry=[last, f.zero(F64)], down=True) as loop:
            run = f.add(loop.carry[0], f.load(F64, f.at(self.blames.cs, loop.i, F64)))
            gA = self._store(loop.i, run, loop.carry[1], rate)
            loop.next = [run, gA]
        f.done(f.convert("fptrunc", loop.results[1], self.t))

    def _one(self, vector: Val, i: Int) -> Val:
        return self.f.load(self.t, self.f.at(vector, i, self.t))

    def _store(self, i: Val, blame: Val, gA: Val, rate: Val | None) -> Val:
        f, n = self.f, self.n
        run = f.convert("fptrunc", blame, self.t)
        at = f.times(i, n.heads)
        gamma = self._one(self.blames.diagonal, i)
        scale = f.load(F64, f.at(self.blames.columns, i, F64))
        scale = f.convert("fptrunc", scale, self.t)
        if n.kind == "dt":
            assert rate
            gdt = f.fma(run, rate, f.add(gamma, scale))
            f.store(gdt, f.at(f.arg("da"), at, self.t))
            return f.fma(blame, widened(f, self._one(self.times.scale, i)), gA)
        found = {"da": run, "gamma": gamma, "scale": scale} if n.kind == "two" else {"da": run}
        for k, x in found.items():
            f.store(x, f.at(f.arg(k), at, self.t))
        return gA

    def _weights(self) -> Val:
        """cs's blames but for the last's; scale's; the sum of those that w passes on."""
        f, times, b = self.f, self.times, self.blames
        long = F64.by(self.n.lanes)
        with f.loop(0, self.n.L, self.n.lanes, carry=[f.zero(long)]) as loop:
            short = (*times[1:5], b.read, b.added)
            found = (f.load(self.wide, f.at(v, loop.i, self.t)) for v in short)
            e, fade, w, scale, read, added = (widened(f, x) for x in found)
            columns = f.at(b.columns, loop.i, F64)
            rows, total = f.load(long, f.at(b.rows, loop.i, F64)), f.load(long, columns)
            u = f.mul(added, w)
            cs = f.sub(f.fma(e, read, rows), f.fma(total, scale, u))
            f.store(cs, f.at(b.cs, loop.i, F64))
            f.store(f.fma(added, fade, total), columns)
            loop.next = [f.add(loop.carry[0], u)]
        return f.fold("add", loop.results[0])

    def _passed(self) -> Val:
        """What the decay of the whole chunk is to blame for: e G.H."""
        f, n = self.f, self.n
        with f.loop(0, n.R * n.P, n.lanes, carry=[f.zero(self.wide)]) as loop:
            H, G = (f.load(self.wide, f.at(f.arg(k), loop.i, self.t)) for k in ("H", "G"))
            loop.next = [f.fma(H, G, loop.carry[0])]
        return f.mul(f.fold("add", loop.results[0]), self._one(self.times.e, n.L - 1))
