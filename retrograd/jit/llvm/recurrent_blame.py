"""The cells of recurrent layers, backward: the blame of a step's sums, from what came after.

A turn multiplies the blame of the turn before by the transposed weights, and is then where
that blame came from: the cell of its own step. The blame of states is written where it is
read; in the end it is the result.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from retrograd.jit.llvm import math as formulas
from retrograd.jit.llvm.recurrent_spot import Cell
from retrograd.jit.llvm.text import I64

if TYPE_CHECKING:
    from retrograd.jit.llvm.recurrent_spot import Spot
    from retrograd.jit.llvm.text import Val

__all__ = ["Backward", "GruBlame", "LstmBlame", "RnnBlame"]


class Backward(Cell):
    """A cell of d @ w_hhᵀ, d of the turn before; there is none in the first turn.

    The `last` turn has no step of its own: it leaves the blame of the first state.
    """

    adds = False  # whether blame reaches the state before past the gates, too
    deep: int  # columns of d that are multiplied, in widths

    def __init__(self, *, last: bool = False, inner: bool = False) -> None:
        self.last, self.inner = last, inner
        self.sums = 0 if last else self.sums
        self.ahead = not last

    def operand(self, w: Spot) -> tuple[Val, int, Val]:
        """The blame of the step after."""
        f, s = w.f, w.s
        self.time = w.time(back=True)
        rows = w.of_time(w.base("d"), w.later(self.time), s.stride)
        none = f.compare("eq", w.turn, f.const(I64, 0))
        depth = f.select(none, f.const(I64, 0), f.const(I64, self.deep * s.width))
        return rows, s.stride, depth

    def begin(self, w: Spot) -> None:
        """The blame of the state, and the step's own."""
        s, self.time = w.s, w.time(back=True)
        w.find("dh", w.base("dh"), s.width)
        if not self.last:
            w.find_step("d", self.time, s.stride, s.kept)
            w.find_step("g_y", self.time, s.width)

    def row(self, w: Spot, r: Val, z: list[Val], sums: list[Val]) -> list[Val]:
        """One row."""
        f = w.f
        held = w.load("dh", r, w.s.width)
        given = f.add(z[0], held) if self.adds else z[0]
        came = f.bitwise(
            "and",
            f.compare("ne", w.turn, f.const(I64, 0)),
            w.alive(r, w.later(self.time)),
        )
        dh = f.select(came, given, held)
        if self.last:
            w.store(dh, "dh", r, w.s.width)
            return sums
        blame = self.blame(w, r, dh, w.alive(r, self.time))
        for g, x in enumerate(blame):
            w.store(x, "d", r, w.s.stride, g)
        return [f.add(a, b) for a, b in zip(sums, blame, strict=True)]

    @abstractmethod
    def blame(self, w: Spot, r: Val, dh: Val, on: Val) -> list[Val]:
        """The blame of the step's sums, 0 where it is over; states of blame are stored."""


def gap(w: Spot, x: Val) -> Val:
    """x - x * x: the slope of a sigmoid whose value is x."""
    return w.f.sub(x, w.f.mul(x, x))


def rest(w: Spot, x: Val) -> Val:
    """1 - x * x: the slope of a tanh whose value is x."""
    return w.f.sub(w.f.const(w.t, 1), w.f.mul(x, x))


class RnnBlame(Backward):
    """d = (dh + g_y) * slope."""

    names = ("d", "dh", "sums", "g_y", "y", "lengths")
    sums, deep = 1, 1

    def begin(self, w: Spot) -> None:
        """The outputs too."""
        super().begin(w)
        if not self.last:
            w.find_step("y", self.time, w.s.width)

    def blame(self, w: Spot, r: Val, dh: Val, on: Val) -> list[Val]:
        """One row."""
        f, s = w.f, w.s
        y, total = w.load("y", r, s.width), f.add(dh, w.load("g_y", r, s.width))
        w.store(dh, "dh", r, s.width)
        if s.relu:
            slope = f.select(f.compare("ogt", y, f.zero(w.t)), f.const(w.t, 1), f.zero(w.t))
        else:
            slope = rest(w, y)
        return [w.only(on, f.mul(total, slope))]


class LstmBlame(Backward):
    """The blame of i, f, g and o."""

    sums, deep = 4, 4

    def __init__(self, *, last: bool = False, inner: bool = False) -> None:
        super().__init__(last=last, inner=inner)
        more = ("g_gates", "g_cells") if inner else ()
        self.names = ("d", "dh", "dc", "sums", "g_y", "gates", "cells", "c0", "lengths", *more)

    def begin(self, w: Spot) -> None:
        """The gates and the cells too."""
        super().begin(w)
        if self.last:
            return
        s, wide, cells = w.s, 4 * w.s.width, w.base("cells")
        w.find("dc", w.base("dc"), s.width)
        w.find_step("gates", self.time, wide, 4)
        w.find_step("cells", self.time, s.width)
        first = w.f.compare("eq", w.turn, w.f.const(I64, s.steps - 1))
        before = w.of_time(cells, w.later(self.time, -1), s.width)
        w.find("before", w.f.select(first, w.base("c0"), before), s.width)
        if self.inner:
            w.find_step("g_gates", self.time, wide, 4)
            w.find_step("g_cells", self.time, s.width)

    def blame(self, w: Spot, r: Val, dh: Val, on: Val) -> list[Val]:
        """One row."""
        f, s, wide = w.f, w.s, 4 * w.s.width
        i, forget, g, o = (w.load("gates", r, wide, n) for n in range(4))
        bent = formulas.FUNCTIONS["tanh"](f, w.load("cells", r, s.width))
        before, stood = w.load("before", r, s.width), w.load("dc", r, s.width)
        if self.inner:
            stood = f.add(stood, w.load("g_cells", r, s.width))
        total = f.add(dh, w.load("g_y", r, s.width))
        cell = f.fma(f.mul(total, o), rest(w, bent), stood)
        parts = [f.mul(cell, g), f.mul(cell, before), f.mul(cell, i), f.mul(total, bent)]
        if self.inner:
            parts = [f.add(p, w.load("g_gates", r, wide, n)) for n, p in enumerate(parts)]
        slopes = [gap(w, i), gap(w, forget), rest(w, g), gap(w, o)]
        w.store(dh, "dh", r, s.width)
        w.store(f.select(on, f.mul(cell, forget), stood), "dc", r, s.width)
        return [w.only(on, f.mul(p, d)) for p, d in zip(parts, slopes, strict=True)]


class GruBlame(Backward):
    """The blame of m, r, z and n: the first three go to h's product, the last three to x's."""

    sums, deep, adds = 4, 3, True

    def __init__(self, *, last: bool = False, inner: bool = False) -> None:
        super().__init__(last=last, inner=inner)
        more = ("g_gates",) if inner else ()
        self.names = ("d", "dh", "sums", "g_y", "gates", "y", "h0", "lengths", *more)

    def begin(self, w: Spot) -> None:
        """The gates and the state before too."""
        super().begin(w)
        if self.last:
            return
        f, s, wide = w.f, w.s, 4 * w.s.width
        w.find_step("gates", self.time, wide, 4)
        first = f.compare("eq", w.turn, f.const(I64, s.steps - 1))
        before = w.of_time(w.base("y"), w.later(self.time, -1), s.width)
        w.find("h0", w.base("h0"), s.width)
        w.find("before", f.select(first, w.base("h0"), before), s.width)
        if self.inner:
            w.find_step("g_gates", self.time, wide, 4)

    def blame(self, w: Spot, r: Val, dh: Val, on: Val) -> list[Val]:
        """One row."""
        f, s, wide = w.f, w.s, 4 * w.s.width
        m, reset, z, n = (w.load("gates", r, wide, g) for g in range(4))
        more = [w.load("g_gates", r, wide, g) for g in range(4)] if self.inner else []
        total = f.add(dh, w.load("g_y", r, s.width))
        before = w.load("before", r, s.width)
        if s.backwards:  # y is 0 where the first state still stood
            stood = w.alive(r, w.later(self.time, -1))
            before = f.select(stood, before, w.load("h0", r, s.width))
        dz = f.mul(total, f.sub(before, n))
        dn = f.mul(total, f.sub(f.const(w.t, 1), z))
        if more:
            dz, dn = f.add(dz, more[2]), f.add(dn, more[3])
        dz, dn = f.mul(dz, gap(w, z)), f.mul(dn, rest(w, n))
        dm, dr = f.mul(dn, reset), f.mul(dn, m)
        if more:
            dm, dr = f.add(dm, more[0]), f.add(dr, more[1])
        dr = f.mul(dr, gap(w, reset))
        w.store(f.select(on, f.mul(total, z), dh), "dh", r, s.width)
        return [w.only(on, x) for x in (dm, dr, dz, dn)]
