"""What an SSD's chunk has for each time: log decays summed, their exponentials, weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.math import FUNCTIONS
from retrograd.jit.llvm.text import F64, I64, PTR, Int, Module, Type, Val

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.llvm.ssd import Room, Ssd

__all__ = ["Times", "faded", "fill_times", "widened", "write_weights"]

INNER = "nounwind noinline"
NAMES = ("cs", "e", "f", "w", "scale", "gamma", "rest")


class Times(NamedTuple):
    """Vectors of L numbers in scratch, one after another.

    cs: log decays summed from the chunk's start; e = exp(cs); f = exp(last cs - cs);
    w = f scale; scale and gamma, the weights of tokens; rest: what rounding took from cs, as
    a decay between two times near to each other is the difference of two long sums.
    """

    cs: Val
    e: Val
    f: Val
    w: Val
    scale: Val
    gamma: Val
    rest: Val

    @classmethod
    def of(cls, room: Room, n: Ssd) -> Times:
        """Memory of their own, all of it whole vectors."""
        first = room.matrix(len(NAMES), n.L).at
        return cls(*(room.f.at(first, k * n.L, n.type) for k in range(len(NAMES))))


def faded(f: Fn, x: Val) -> Val:
    """exp of log decays; 0 where it is next to nothing, as in the NumPy kernel."""
    least = f.const(x.type, -60 if x.type.bits == 32 else -600)
    return f.select(f.compare("olt", x, least), f.zero(x.type), FUNCTIONS["exp"](f, x))


class Sources(NamedTuple):
    """Where a head's numbers begin in (batch, time, heads), and its A."""

    da: Val  # dt of the kind "dt"
    scale: Val
    gamma: Val
    A: Val


def fill_times(f: Fn, n: Ssd, given: Sources, valid: Int, to: Times) -> None:
    """Compute a chunk's."""
    name = f"ssd_times_{n.type.suffix}_{n.kind}_{n.heads}_{n.L}"
    f.module.once(name, lambda: _write_times(f.module, name, n))
    f.call(name, None, *given, f.integer(valid), to.cs)


def _write_times(module: Module, name: str, n: Ssd) -> None:
    args = [("da", PTR), ("scale", PTR), ("gamma", PTR), ("A", PTR), ("valid", I64)]
    f = Fn(module, name, [*args, ("to", PTR)], attributes=INNER)
    t, wide = n.type, n.type.by(n.lanes)
    cs, e, fade, w, scale, gamma, rest = (
        f.at(f.arg("to"), k * n.L, t) for k in range(len(NAMES))
    )
    rate = f.load(t, f.arg("A")) if n.kind == "dt" else None
    with f.loop(0, f.arg("valid"), carry=[f.zero(F64)]) as loop:
        at = f.times(loop.i, n.heads)
        x = f.load(t, f.at(f.arg("da"), at, t))
        both = [x, x] if rate else [f.const(t, 1)] * 2
        if n.kind == "two":
            both = [f.load(t, f.at(f.arg(k), at, t)) for k in ("scale", "gamma")]
        step = widened(f, x)
        total = f.add(loop.carry[0], f.mul(step, widened(f, rate)) if rate else step)
        for target, value in zip(
            (cs, rest, scale, gamma), (*_parts(f, total, t), *both), strict=True
        ):
            f.store(value, f.at(target, loop.i, t))
        loop.next = [total]
    last = _parts(f, loop.results[0], t)
    with f.loop(f.arg("valid"), n.L) as beyond:
        for target, value in zip(
            (cs, rest, scale, gamma), (*last, *[f.zero(t)] * 2), strict=True
        ):
            f.store(value, f.at(target, beyond.i, t))
    end = [f.splat(x, n.lanes) for x in last]
    with f.loop(0, n.L, n.lanes) as loop:
        here = [f.load(wide, f.at(v, loop.i, t)) for v in (cs, rest)]
        f.store(faded(f, here[0]), f.at(e, loop.i, t))
        left = faded(f, _between(f, end, here))
        f.store(left, f.at(fade, loop.i, t))
        weight = f.mul(left, f.load(wide, f.at(scale, loop.i, t)))
        f.store(weight, f.at(w, loop.i, t))
    f.done()


def widened(f: Fn, x: Val) -> Val:
    """As float64."""
    return f.convert("fpext", x, F64)


def _parts(f: Fn, total: Val, t: Type) -> tuple[Val, Val]:
    """A sum as a number of type t, and what that leaves of it."""
    near = f.convert("fptrunc", total, t)
    return near, f.convert("fptrunc", f.sub(total, widened(f, near)), t)


def _between(f: Fn, later: Sequence[Val], sooner: Sequence[Val]) -> Val:
    """The difference of two sums that are given in parts."""
    whole, rest = (f.sub(a, b) for a, b in zip(later, sooner, strict=True))
    return f.add(whole, rest)


def write_weights(module: Module, n: Ssd) -> str:
    """W = CB K, below the diagonal and on it, where the skip is added: (to, CB, W, skip)."""
    name = f"ssd_weights_{n.type.suffix}_{n.L}"

    def write() -> None:
        args = [("to", PTR), ("CB", PTR), ("W", PTR), ("skip", n.type)]
        f = Fn(module, name, args, attributes=INNER)
        with f.loop(0, n.L) as down:
            row = Row(f, n, down.i)
            with f.loop(0, row.end, n.lanes) as across:
                near = row.near(across.i)
                CB = f.load(row.wide, f.at(f.arg("CB"), near.spot, n.type))
                f.store(row.weight(near, CB), f.at(f.arg("W"), near.spot, n.type))
            row.zeros(f.arg("W"))
        f.done()

    return module.once(name, write)


class Near(NamedTuple):
    """A vector of a row of K: where, what decays to it, and K itself."""

    spot: Int
    scale: Val
    below: Val  # exp(cs_t - cs_s) where s < t
    on: Val  # whether s = t
    K: Val


class Row:
    """One row of K, written into a function with the arguments `to` and `skip`."""

    def __init__(self, f: Fn, n: Ssd, t: Val) -> None:
        self.f, self.n, self.t = f, n, t
        self.wide = n.type.by(n.lanes)
        self.now, self.gamma = [self._one(k) for k in (0, 6)], self._one(5)
        whole = f.div(t, f.integer(n.lanes))
        self.end = f.times(f.plus(whole, 1), n.lanes)  # vectors beyond are zeros

    def _one(self, number: int) -> Val:
        f, n = self.f, self.n
        spot = f.at(f.arg("to"), f.plus(self.t, number * n.L), n.type)
        return f.splat(f.load(n.type, spot), n.lanes)

    def near(self, s: Val) -> Near:
        """The vector at s."""
        f, n = self.f, self.n
        *then, scale = (
            f.load(self.wide, f.at(f.arg("to"), f.plus(s, k * n.L), n.type)) for k in (0, 6, 4)
        )
        places = f.add(f.iota(I64.by(n.lanes)), f.splat(s, n.lanes))
        t = f.splat(self.t, n.lanes)
        under, on = f.compare("slt", places, t), f.compare("eq", places, t)
        below = f.select(under, faded(f, _between(f, self.now, then)), f.zero(self.wide))
        K = f.select(on, self.gamma, f.mul(below, scale))
        return Near(f.plus(f.times(self.t, n.L), s), scale, below, on, K)

    def weight(self, near: Near, CB: Val) -> Val:
        """CB K, with the skip on the diagonal."""
        f = self.f
        skip = f.splat(f.arg("skip"), self.n.lanes)
        W = f.mul(CB, near.K)
        return f.select(near.on, f.add(W, skip), W)

    def zeros(self, W: Val) -> None:
        """The rest of the row."""
        f, n = self.f, self.n
        with f.loop(self.end, n.L, n.lanes) as loop:
            f.store(f.zero(self.wide), f.at(W, f.plus(f.times(self.t, n.L), loop.i), n.type))
