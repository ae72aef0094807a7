"""Blocks of a weight gradient that are held in registers while images go by.

A tile function has the signature (x, g, dw, images, rows, pixels): it adds to dw the products
of images x rows x pixels places of x and g, at least one of each. Its own rows are the
weights of neighbouring taps and source channels, its lanes are result channels. With `calls`
it has two arguments more, where in x and g the share of the next band begins that it calls for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.conv_tile import Groups, named, spread
from retrograd.jit.llvm.gemm_tile import load_some, prefetch, store_some
from retrograd.jit.llvm.repeat import repeat
from retrograd.jit.llvm.text import I64, PTR, Module, Type, Val

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.llvm.conv_soon import Calls

__all__ = ["WeightTile"]

LOOPS = ("images", "rows", "pixels")
SOON = 12  # pixels from the one that is read to the one that is called for


@dataclass(frozen=True)
class WeightTile:
    """taps x depth x vectors of weights."""

    type: Type
    taps: int
    depth: int  # source channels
    vectors: int
    kept: int  # lanes of the last vector that exist
    place: int  # in x, from tap to tap
    x: tuple[int, int, int]  # in x, from image, row and pixel of g to the next
    g: tuple[int, int, int]
    dw: int  # in dw, from row to row
    groups: Groups | None = None
    whole: bool = False  # all lanes of g exist
    calls: Calls | None = None

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        name = named("conv_weight_tile", self)
        return module.once(name, lambda: self._write(module, name))

    def _write(self, module: Module, name: str) -> None:
        counts = [(n, I64) for n in LOOPS]
        args = [("x", PTR), ("g", PTR), ("dw", PTR), *counts]
        if self.calls:
            args += [("x_soon", PTR), ("g_soon", PTR)]
        f = Fn(module, name, args, attributes="nounwind noinline")
        t = self.type.by(module.machine.lanes(self.type.bits // 8))
        spots = [
            (f.at(f.arg("dw"), i * self.dw + j * self._width(t), t), self._lanes(j))
            for i in range(self.taps * self.depth)
            for j in range(self.vectors)
        ]
        sums = [load_some(f, t, at, kept) for at, kept in spots]
        soon = self._soon(f)
        found = self._loops(f, 0, [f.arg("x"), f.arg("g"), *soon, *sums])
        for x, (at, kept) in zip(found[len(soon) :], spots, strict=True):
            store_some(f, x, at, kept)
        f.done()

    def _soon(self, f: Fn) -> list[Val]:
        """What is called for first, in x, in g and in dw."""
        if not self.calls:
            return []
        dw = f.at(f.arg("dw"), self.taps * self.depth * self.dw, self.type)
        return [f.arg("x_soon"), f.arg("g_soon"), dw]

    def _loops(self, f: Fn, level: int, carry: Sequence[Val]) -> list[Val]:
        if level == len(LOOPS):
            return self._step(f, carry[0], carry[1], carry[2:])
        with repeat(f, f.arg(LOOPS[level]), carry) as loop:
            x, g, *rest = loop.carry
            soon: list[Val] = []
            if self.calls and LOOPS[level] == "rows":
                lanes = f.machine.lanes(self.type.bits // 8)
                shape = self.vectors, lanes, self.dw
                soon, rest = self.calls.write(f, self.type, rest[:3], shape), rest[3:]
            sums = self._loops(f, level + 1, [x, g, *rest])
            ends = [f.at(x, self.x[level], self.type), f.at(g, self.g[level], self.type)]
            loop.next = [*ends, *soon, *sums]
        return loop.results[2:]

    def _lanes(self, vector: int) -> int:
        """How many lanes of a vector exist; 0 is all."""
        return self.kept if self.groups or vector == self.vectors - 1 else 0

    def _width(self, t: Type) -> int:
        """Result channels from vector to vector."""
        return self.groups.lanes if self.groups else t.lanes

    def _step(self, f: Fn, x: Val, g: Val, sums: Sequence[Val]) -> list[Val]:
        t, total = sums[0].type, list(sums)
        across = [
            load_some(f, t, f.at(g, j * self._width(t), t), 0 if self.whole else self._lanes(j))
            for j in range(self.vectors)
        ]
        if f.machine.told and not self.groups:
            self._call_soon(f, f.at(x, SOON * self.x[2], t))
        for s in range(self.taps):
            here = f.at(x, s * self.place, t)
            if self.groups:
                self._narrow(f, here, across, total, s * self.depth * self.vectors)
                continue
            for c in range(self.depth):
                a = f.splat(f.load(self.type, f.at(here, c, t)), t.lanes)
                for j, b in enumerate(across):
                    n = (s * self.depth + c) * self.vectors + j
                    total[n] = f.fma(a, b, total[n])
        return total

    def _call_soon(self, f: Fn, x: Val) -> None:
        """Call for a pixel of x, of which a tile reads few channels: their lines, two at most.

        Few of a row's lines are read, far from each other, and other tiles read the others.
        """
        for channel in dict.fromkeys((0, self.depth - 1)):
            prefetch(f, f.at(x, channel, self.type))

    def _narrow(self, f: Fn, x: Val, across: list[Val], total: list[Val], first: int) -> None:
        t, groups = total[0].type, self.groups
        assert groups
        for j, b in enumerate(across):
            channel = spread(f, t, groups, f.at(x, j * groups.count * self.depth, t))
            for c in range(self.depth):
                n = first + c * self.vectors + j
                total[n] = f.fma(channel(c), b, total[n])
