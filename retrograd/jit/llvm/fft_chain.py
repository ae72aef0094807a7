"""A transform's stages, called one after the other: each reads what the one before wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from retrograd.jit.llvm.fft_plan import Spot, Table, factors, roots, stages
from retrograd.jit.llvm.fft_stage import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.text import Int, Type, Val

__all__ = ["Chain", "Deep", "End", "Style", "deep"]

DEEP = 1024  # numbers: two buffers of them, in all lanes, do not stay near


@dataclass(frozen=True)
class Style:
    """How a transform differs from the plain one; the fields of `Work`."""

    turn_in: bool = False
    turn_out: bool = False
    scale: float = 1.0
    more: str = ""


@dataclass(frozen=True)
class End:
    """A place in memory, and how numbers lie there."""

    at: Val
    spot: Spot


class Chain:
    """The stages of transforms of one length; their factors are put into a table."""

    def __init__(self, f: Fn, t: Type, length: int, table: Table, style: Style) -> None:
        self.f, self.type, self.style, self.length = f, t, style, length
        self.stages = stages(length, f.machine)
        self.spots = [table.add(factors(s)) for s in self.stages]
        self.split = Spot("pairs", 2 * t.lanes, t.lanes)

    def run(
        self,
        table: Val,
        source: End,
        target: End | None,
        buffers: Sequence[Val],
        more: Val | None = None,
    ) -> End:
        """Transform; the result is in one of the two buffers if there is no target."""
        f, style, end = self.f, self.style, len(self.stages) - 1
        for k, stage in enumerate(self.stages):
            spare = next(b for b in buffers if b != source.at)
            out = target if target and k == end else End(spare, self.split)
            last = (style.scale, style.more) if k == end else (1.0, "")
            turned = style.turn_in and k == 0, style.turn_out and k == end
            work = Work(self.type, stage, source.spot, out.spot, *turned, *last)
            at = f.at(table, self.spots[k], self.type)
            own = more if more and k == end else at
            f.call(work.write(f.module), None, source.at, out.at, own)
            source = out
        return source


class Deep:
    """A transform of n1 * n2 as many short ones, for which the nearest cache is enough.

    Those of every n2-th number first, turned by roots of one; then those of n2 neighbours.
    """

    def __init__(
        self, f: Fn, t: Type, sizes: tuple[int, int], table: Table, style: Style
    ) -> None:
        self.f, self.type = f, t
        self.n1, self.n2 = sizes
        self.room = 2 * max(sizes) * t.lanes
        self.length = self.n1 * (self.n2 + 1)  # of the buffers
        into = Style(turn_in=style.turn_in, more="all")
        out = Style(turn_out=style.turn_out, scale=style.scale)
        self.first = Chain(f, t, self.n1, table, into)
        self.second = Chain(f, t, self.n2, table, out)
        numbers = np.arange(self.n2)[:, None] * np.arange(self.n1)
        self.factors = table.add(roots(self.n1 * self.n2, numbers))
        self.split = self.first.split
        self.near: list[Val] = []  # two buffers for short ones, set by whoever has memory

    def run(self, table: Val, source: End, target: End | None, buffers: Sequence[Val]) -> End:
        """As `Chain` does; the source may be a buffer, and the target's memory."""
        f, t = self.f, self.type
        middle = End(next(b for b in buffers if b != source.at), self.split)
        target = target or End(next(b for b in buffers if b != middle.at), self.split)
        wide = self.n2 + 1  # rows a power of two apart would take each other's place
        with f.loop(0, self.n2) as loop:
            skip = f.plus(f.times(loop.i, 2 * self.n1), self.factors)
            here = _every(f, t, source, loop.i, self.n2)
            there = _every(f, t, middle, loop.i, wide)
            self.first.run(table, here, there, self.near, f.at(table, skip, t))
        with f.loop(0, self.n1) as loop:
            row = f.at(middle.at, f.times(loop.i, wide * self.split.pitch), t)
            there = _every(f, t, target, loop.i, self.n1)
            self.second.run(table, End(row, self.split), there, self.near)
        return target


def _every(f: Fn, t: Type, end: End, first: Int, step: int) -> End:
    """Every so many numbers."""
    spot = Spot(end.spot.kind, end.spot.pitch * step, end.spot.gap)
    return End(f.at(end.at, f.times(first, end.spot.pitch), t), spot)


def deep(n: int) -> tuple[int, int] | None:
    """The factors of a length that is better transformed as short ones."""
    if n < DEEP:
        return None
    low = next(a for a in range(int(np.sqrt(n)), 0, -1) if n % a == 0)
    return (low, n // low) if 2 * low * low >= n // 2 else None
