"""Stages of Fourier transforms: butterflies of 1 to 8 numbers, times roots of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.fft_plan import Spot, Stage, roots
from retrograd.jit.llvm.text import PTR, Int, Module, Type, Val, spell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.llvm.fft_plan import Pair

__all__ = ["ARGUMENTS", "Work", "loaded", "times", "turned"]

ARGUMENTS = [("source", PTR), ("target", PTR), ("table", PTR)]


@dataclass(frozen=True)
class Work:
    """One stage: (source, target, table). `turn_in`, `turn_out`: parts change places.

    With both ends turned, it is the inverse transform that is computed.
    """

    type: Type  # of a vector
    stage: Stage
    source: Spot
    target: Spot
    turn_in: bool = False
    turn_out: bool = False
    scale: float = 1.0
    more: str = ""  # of the last stage: what its results are multiplied by, from `table` too

    @property
    def name(self) -> str:
        """One for each set of fields."""
        s = self.stage
        ends = f"{self.source.name}_{self.target.name}_{self.turn_in:d}{self.turn_out:d}"
        number = spell(self.type.scalar, self.scale)
        return (
            f"fft_{self.type.suffix}_{s.radix}_{s.turns}_{s.apart}_{ends}_{number}{self.more}"
        )

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        return module.once(self.name, lambda: self._write(module))

    def _write(self, module: Module) -> None:
        f = Fn(module, self.name, ARGUMENTS, attributes="nounwind noinline")
        s = self.stage
        if s.turns == 1:
            with f.loop(0, s.apart) as inner:
                self._body(f, 0, inner.i)
        elif s.apart == 1:
            with f.loop(0, s.turns) as outer:
                self._body(f, outer.i, 0)
        else:
            with f.loop(0, s.turns) as outer, f.loop(0, s.apart) as inner:
                self._body(f, outer.i, inner.i)
        f.done()

    def _body(self, f: Fn, p: Int, q: Int) -> None:
        """One butterfly."""
        s, t = self.stage, self.type
        first = f.plus(f.times(p, s.apart), q)
        source = self._moved(f, self.source, f.arg("source"), first)
        step = s.turns * s.apart
        given = [self.source.read(f, t, source, k * step) for k in range(s.radix)]
        found = _butterfly(f, [turned(x) for x in given] if self.turn_in else given)
        if s.turns > 1:
            at = f.at(f.arg("table"), f.times(p, 2 * (s.radix - 1)), t)
            later = [times(f, x, *loaded(f, t, at, j)) for j, x in enumerate(found[1:])]
            found = [found[0], *later]
        elif self.more:
            found = [self._more(f, x, f.plus(q, j * s.apart)) for j, x in enumerate(found)]
        if self.scale != 1:
            by = f.const(t, self.scale)
            found = [(f.mul(re, by), f.mul(im, by)) for re, im in found]
        place = f.plus(f.times(p, s.apart * s.radix), q)
        target = self._moved(f, self.target, f.arg("target"), place)
        for j, x in enumerate(found):
            self.target.write(f, turned(x) if self.turn_out else x, target, j * s.apart)

    def _moved(self, f: Fn, spot: Spot, base: Val, number: Int) -> Val:
        return f.at(base, f.times(number, spot.pitch), self.type)

    def _more(self, f: Fn, x: Pair, number: Int) -> Pair:
        """Times a factor: one for all lanes, or one for each."""
        t, table = self.type, f.arg("table")
        if self.more == "all":
            return times(f, x, *loaded(f, t, table, number))
        return times(f, x, *Spot("pairs", 2 * t.lanes, t.lanes).read(f, t, table, number))


def turned(x: Pair) -> Pair:
    """The parts in each other's place."""
    return x[1], x[0]


def loaded(f: Fn, t: Type, at: Val, number: Int) -> Pair:
    """A factor of a table, in all lanes."""
    spot = f.at(at, f.times(number, 2), t)
    re, im = f.load(t.scalar, spot), f.load(t.scalar, f.at(spot, 1, t))
    return f.splat(re, t.lanes), f.splat(im, t.lanes)


def times(f: Fn, x: Pair, re: Val, im: Val) -> Pair:
    """A product of complex numbers."""
    real = f.fma(x[0], re, f.neg(f.mul(x[1], im)))
    return real, f.fma(x[0], im, f.mul(x[1], re))


# -- butterflies -------------------------------------------------------------------------------


def _plus(f: Fn, a: Pair, b: Pair) -> Pair:
    return f.add(a[0], b[0]), f.add(a[1], b[1])


def _minus(f: Fn, a: Pair, b: Pair) -> Pair:
    return f.sub(a[0], b[0]), f.sub(a[1], b[1])


def _beside(f: Fn, a: Pair, b: Pair) -> tuple[Pair, Pair]:
    """a - 1j * b and a + 1j * b."""
    less = f.add(a[0], b[1]), f.sub(a[1], b[0])
    return less, (f.sub(a[0], b[1]), f.add(a[1], b[0]))


def _butterfly(f: Fn, x: Sequence[Pair]) -> list[Pair]:
    """The transform of a few numbers."""
    if len(x) == 1:
        return list(x)
    if len(x) == 2:
        return [_plus(f, *x), _minus(f, *x)]
    if len(x) == 4:
        return _four(f, x)
    return _eight(f, x) if len(x) == 8 else _odd(f, x)


def _four(f: Fn, x: Sequence[Pair]) -> list[Pair]:
    a, b = _plus(f, x[0], x[2]), _minus(f, x[0], x[2])
    c, d = _plus(f, x[1], x[3]), _minus(f, x[1], x[3])
    less, more = _beside(f, b, d)
    return [_plus(f, a, c), less, _minus(f, a, c), more]


def _eight(f: Fn, x: Sequence[Pair]) -> list[Pair]:
    """Two of four; those of odd numbers are turned by eighths."""
    even, odd = _four(f, x[::2]), _four(f, x[1::2])
    t = x[0][0].type
    half, other = f.const(t, np.sqrt(0.5)), f.const(t, -np.sqrt(0.5))
    low, high = [], []
    for k, (a, b) in enumerate(zip(even, odd, strict=True)):
        if k % 2 == 0:
            one, two = (_plus(f, a, b), _minus(f, a, b)) if k == 0 else _beside(f, a, b)
        else:
            total, rest = f.add(b[0], b[1]), f.sub(b[1], b[0])
            re, im = (total, rest) if k == 1 else (rest, total)
            by, back = (half, other) if k == 1 else (other, half)
            one = f.fma(re, half, a[0]), f.fma(im, by, a[1])
            two = f.fma(re, other, a[0]), f.fma(im, back, a[1])
        low.append(one)
        high.append(two)
    return low + high


def _odd(f: Fn, x: Sequence[Pair]) -> list[Pair]:
    """An odd number of them: cosines of sums, sines of differences."""
    n, t = len(x), x[0][0].type
    some = range(1, n // 2 + 1)
    sums = [_plus(f, x[k], x[n - k]) for k in some]
    rest = [_minus(f, x[k], x[n - k]) for k in some]
    total = x[0]
    for one in sums:
        total = _plus(f, total, one)
    low, high = [], []
    for j in some:
        by = roots(n, j * np.arange(1, n // 2 + 1))
        even, odd = x[0], None
        for k, w in enumerate(by):
            c, s = f.const(t, w.real), f.const(t, -w.imag)
            even = f.fma(sums[k][0], c, even[0]), f.fma(sums[k][1], c, even[1])
            if odd is None:
                odd = f.mul(rest[k][0], s), f.mul(rest[k][1], s)
            else:
                odd = f.fma(rest[k][0], s, odd[0]), f.fma(rest[k][1], s, odd[1])
        assert odd is not None
        less, more = _beside(f, even, odd)
        low.append(less)
        high.append(more)
    return [total, *low, *reversed(high)]
