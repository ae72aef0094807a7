"""Transforms of real numbers: an even number of them are half as many complex ones.

Their transform z is taken apart into that of the even ones, and of the odd ones. With m = n / 2
and w = exp(-2j * pi / n), for each k:

    even = (z[k] + conj(z[m - k])) / 2      odd = (z[k] - conj(z[m - k])) / 2j
    x[k] = even + w**k * odd                x[m - k] = conj(even - w**k * odd)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.fft_stage import ARGUMENTS, loaded, times
from retrograd.jit.llvm.text import Module, Type, Val

if TYPE_CHECKING:
    from retrograd.jit.llvm.fft_plan import Pair, Spot

__all__ = ["Half"]


@dataclass(frozen=True)
class Half:
    """(source, target, table): what is done before or after the stages.

    apart: the m + 1 first numbers of a transform of real ones, from that of m pairs. together:
    the way back, times n. mirror: all numbers, from those up to the middle. first: a copy of
    `length` numbers.
    """

    type: Type  # of a vector
    what: str
    length: int  # of what the stages transform
    source: Spot
    target: Spot

    @property
    def name(self) -> str:
        """One for each set of fields."""
        ends = f"{self.source.name}_{self.target.name}"
        return f"fft_{self.what}_{self.type.suffix}_{self.length}_{ends}"

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        return module.once(self.name, lambda: self._write(module))

    def _write(self, module: Module) -> None:
        f = Fn(module, self.name, ARGUMENTS, attributes="nounwind noinline")
        if self.what == "apart":
            self._apart(f)
        elif self.what == "together":
            self._together(f)
        elif self.what == "mirror":
            self._mirror(f)
        else:
            with f.loop(0, self.length) as loop:
                self._put(f, self._get(f, loop.i), loop.i)
        f.done()

    def _get(self, f: Fn, number: Val | int) -> Pair:
        return self.source.read(f, self.type, f.arg("source"), number)

    def _put(self, f: Fn, value: Pair, number: Val | int) -> None:
        self.target.write(f, value, f.arg("target"), number)

    def _apart(self, f: Fn) -> None:
        t, m = self.type, self.length
        re, im = self._get(f, 0)
        self._put(f, (f.add(re, im), f.zero(t)), 0)
        self._put(f, (f.sub(re, im), f.zero(t)), m)
        half = f.const(t, 0.5)
        with f.loop(1, m // 2 + 1) as loop:
            k, other = loop.i, f.sub(f.integer(m), loop.i)
            (a, b), (c, d) = self._get(f, k), self._get(f, other)
            even = f.mul(f.add(a, c), half), f.mul(f.sub(b, d), half)
            odd = f.mul(f.add(b, d), half), f.mul(f.sub(c, a), half)
            turn = times(f, odd, *loaded(f, t, f.arg("table"), k))
            self._put(f, (f.add(even[0], turn[0]), f.add(even[1], turn[1])), k)
            self._put(f, (f.sub(even[0], turn[0]), f.sub(turn[1], even[1])), other)

    def _together(self, f: Fn) -> None:
        t, m = self.type, self.length
        low, high = self._get(f, 0)[0], self._get(f, m)[0]
        self._put(f, (f.add(low, high), f.sub(low, high)), 0)
        with f.loop(1, m // 2 + 1) as loop:
            k, other = loop.i, f.sub(f.integer(m), loop.i)
            (a, b), (c, d) = self._get(f, k), self._get(f, other)
            even = f.add(a, c), f.sub(b, d)
            re, im = loaded(f, t, f.arg("table"), k)
            odd = times(f, (f.sub(a, c), f.add(b, d)), re, f.neg(im))
            self._put(f, (f.sub(even[0], odd[1]), f.add(even[1], odd[0])), k)
            self._put(f, (f.add(even[0], odd[1]), f.sub(odd[0], even[1])), other)

    def _mirror(self, f: Fn) -> None:
        t, n = self.type, self.length
        self._put(f, (self._get(f, 0)[0], f.zero(t)), 0)
        with f.loop(1, (n + 1) // 2) as loop:
            re, im = self._get(f, loop.i)
            self._put(f, (re, im), loop.i)
            self._put(f, (re, f.neg(im)), f.sub(f.integer(n), loop.i))
