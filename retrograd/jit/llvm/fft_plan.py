"""Fourier transforms in stages: radices, tables of roots of one, and where numbers are.

A group of lines is transformed at once, a line in each lane. A stage (Stockham's) reads numbers
that are `turns * apart` from each other, and writes those that belong together side by side:
so the last one leaves them in their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.machine import Machine
    from retrograd.jit.llvm.text import Int, Type, Val

__all__ = [
    "PRIMES",
    "Spot",
    "Stage",
    "Table",
    "factors",
    "radices",
    "roots",
    "smooth",
    "stages",
]

PRIMES = (2, 3, 5, 7, 11, 13)
MANY = 32  # registers that a butterfly of eight numbers is written for

Pair = tuple["Val", "Val"]  # real and imaginary part


class Stage(NamedTuple):
    """Butterflies of `radix` numbers, for each of `turns` factors `apart` times."""

    radix: int
    turns: int
    apart: int


def smooth(n: int) -> bool:
    """Whether a length has no other factors than those that there are butterflies for."""
    for p in PRIMES:
        while n % p == 0:
            n //= p
    return n == 1


def radices(n: int, machine: Machine) -> list[int]:
    """The factors of a length: few, but no more than registers hold."""
    odd = []
    for p in PRIMES[1:]:
        while n % p == 0:
            odd.append(p)
            n //= p
    twos = n.bit_length() - 1
    if machine.registers < MANY:
        return [4] * (twos // 2) + odd + [2] * (twos % 2)
    some = -(-twos // 3)
    each, more = divmod(twos, some) if some else (0, 0)
    return [2 ** (each + 1)] * more + odd + [2**each] * (some - more)


def stages(n: int, machine: Machine) -> list[Stage]:
    """The stages of a transform, in their order; at least one."""
    found, apart = [], 1
    for r in radices(n, machine) or [1]:
        found.append(Stage(r, n // (apart * r), apart))
        apart *= r
    return found


def roots(n: int, numbers: np.ndarray) -> np.ndarray:
    """exp(-2j * pi * k / n) for each k in float64: found in the first eighth of the circle."""
    k = 8 * (numbers % n)
    eighth, rest = k // n, k % n
    back = eighth % 2 == 1
    middle = back & (rest == 0)
    angle = (np.pi / 4) * np.where(back, n - rest, rest) / n
    c, s = np.cos(angle), np.sin(angle)
    c[middle], s[middle] = np.sqrt(0.5), np.sqrt(0.5)  # as both should be
    quarter = (eighth + 1) // 2 % 4
    s = np.where(back, -s, s)  # about the nearest axis: quarter * 90 degrees, plus or minus
    re = np.choose(quarter, [c, -s, -c, s])
    im = np.choose(quarter, [s, c, -s, -c])
    return re - 1j * im


def factors(s: Stage) -> np.ndarray:
    """What a stage multiplies by: [turns][radix - 1], none if there is one turn."""
    if s.turns == 1:
        return np.zeros(0, complex)
    return roots(s.radix * s.turns, np.arange(s.turns)[:, None] * np.arange(1, s.radix))


class Table:
    """The factors of a kernel, one list after the other."""

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []
        self.size = 0

    def add(self, numbers: np.ndarray) -> int:
        """Pairs of parts for each number; where they begin, in scalars."""
        return self.put(np.ascontiguousarray(numbers).view(np.float64))

    def put(self, scalars: np.ndarray) -> int:
        """Scalars as they are; where they begin."""
        at = self.size
        self.parts.append(scalars.ravel())
        self.size += scalars.size
        return at

    def array(self, dtype: str) -> np.ndarray:
        """All of it."""
        return np.concatenate([np.zeros(0), *self.parts]).astype(dtype)


@dataclass(frozen=True)
class Spot:
    """Where numbers are, a vector of them for neighbouring lines, in rows of scalars.

    complex: parts alternate, lane by lane. pairs: a vector of real parts, and one of imaginary
    parts `gap` scalars later. real: no imaginary part.
    """

    kind: str
    pitch: int  # scalars from number to number
    gap: int = 0
    back: bool = False  # lanes in reverse

    @property
    def name(self) -> str:
        """One for each set of fields."""
        return f"{self.kind}{self.pitch}x{self.gap}" + "back" * self.back

    def read(self, f: Fn, t: Type, base: Val, number: Int) -> Pair:
        """The parts of a number."""
        at, lanes = f.at(base, f.times(number, self.pitch), t), self._lanes(t)
        if self.kind == "real":
            return self._turned(f, f.load(t, at)), f.zero(t)
        if self.kind == "pairs":
            parts = f.load(t, at), f.load(t, f.at(at, self.gap, t))
            return self._turned(f, parts[0]), self._turned(f, parts[1])
        low, high = f.load(t, at), f.load(t, f.at(at, t.lanes, t))
        re, im = ([2 * lane + part for lane in lanes] for part in (0, 1))
        return f.shuffle(low, high, re), f.shuffle(low, high, im)

    def write(self, f: Fn, value: Pair, base: Val, number: Int) -> None:
        """Store a number; of real ones, the real part."""
        (re, im), t = value, value[0].type
        at = f.at(base, f.times(number, self.pitch), t)
        if self.kind == "complex":
            mixed = [lane + part for lane in self._lanes(t) for part in (0, t.lanes)]
            f.store(f.shuffle(re, im, mixed[: t.lanes]), at)
            f.store(f.shuffle(re, im, mixed[t.lanes :]), f.at(at, t.lanes, t))
            return
        f.store(self._turned(f, re), at)
        if self.kind == "pairs":
            f.store(self._turned(f, im), f.at(at, self.gap, t))

    def _lanes(self, t: Type) -> Sequence[int]:
        return range(t.lanes)[:: -1 if self.back else 1]

    def _turned(self, f: Fn, x: Val) -> Val:
        return f.shuffle(x, None, self._lanes(x.type)) if self.back else x
