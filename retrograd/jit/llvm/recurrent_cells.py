"""The cells of recurrent layers, forward: what a turn does to sums of products.

Buffers that all steps share are found at the step of the turn; a state is read where the turn
before left it. Where a sequence is over, its state stands still and outputs are 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.llvm import math as formulas
from retrograd.jit.llvm.recurrent_spot import Cell
from retrograd.jit.llvm.text import I64

if TYPE_CHECKING:
    from retrograd.jit.llvm.recurrent_spot import Spot
    from retrograd.jit.llvm.text import Val

__all__ = ["Forward", "GruCell", "LstmCell", "RnnCell"]


def ends(w: Spot) -> tuple[Val, Val]:
    """Where the state before a turn is, and where the one after it goes.

    They change places from turn to turn, as other chunks still read the one before; the first
    is the argument, the last is the result.
    """
    f, size = w.f, w.s.batch * w.s.width
    odd = f.bitwise("and", w.turn, f.const(I64, 1))
    state = w.base("states")
    old = f.at(state, f.times(odd, size), w.s.type)
    new = f.at(state, f.times(f.bitwise("xor", odd, f.const(I64, 1)), size), w.s.type)
    last = f.compare("eq", w.turn, f.const(I64, w.s.steps - 1))
    return first_of(w, "h0", old), f.select(last, w.base("h"), new)


def first_of(w: Spot, name: str, other: Val) -> Val:
    """A state's first value in the first turn, else what another place holds."""
    first = w.f.compare("eq", w.turn, w.f.const(I64, 0))
    return w.f.select(first, w.base(name), other)


class Forward(Cell):
    """A cell of h @ w_hh and x @ w_ih, which is there already unless fused."""

    def __init__(self, *, fused: bool) -> None:
        self.fused = fused
        self.names = (*self.names, "x", "packed_x") if fused else self.names

    def inputs(self, w: Spot) -> tuple[Val, Val]:
        """x of the step."""
        return w.of_time(w.base("x"), w.time(), w.s.inputs), w.base("packed_x")

    def given(self, w: Spot, r: Val, name: str, gate: int) -> Val:
        """x @ w_ih of a gate."""
        if self.fused:
            return w.given[gate]
        s = w.s
        return w.load(name, r, s.kept * s.width, s.kept - s.gates + gate)

    def operand(self, w: Spot) -> tuple[Val, int, Val]:
        """The state before."""
        return ends(w)[0], w.s.width, w.f.const(I64, w.s.width)

    def begin(self, w: Spot) -> None:
        """The states, and the step's outputs."""
        s, self.time = w.s, w.time()
        old, new = ends(w)
        w.find("old", old, s.width)
        w.find("new", new, s.width)
        w.find_step("y", self.time, s.width)
        if "gates" in self.names:
            w.find_step("gates", self.time, s.kept * s.width, s.kept)

    def leave(self, w: Spot, r: Val, on: Val, out: Val, old: Val) -> None:
        """The output, and the state that the next turn reads."""
        w.store(w.only(on, out), "y", r, w.s.width)
        w.store(w.f.select(on, out, old), "new", r, w.s.width)


class RnnCell(Forward):
    """out = tanh or relu of what y holds + h @ w_hh + b."""

    names = ("y", "b", "h0", "states", "h", "lengths")

    def begin(self, w: Spot) -> None:
        """The bias too."""
        super().begin(w)
        (self.b,) = w.bias("b")

    def row(self, w: Spot, r: Val, z: list[Val], sums: list[Val]) -> list[Val]:
        """One row."""
        f, s = w.f, w.s
        old = w.load("old", r, s.width)
        total = f.add(f.add(self.given(w, r, "y", 0), self.b), z[0])
        zero = f.zero(w.t)
        out = f.maximum(total, zero) if s.relu else formulas.FUNCTIONS["tanh"](f, total)
        self.leave(w, r, w.alive(r, self.time), out, old)
        return sums


class LstmCell(Forward):
    """Gates of what they hold + h @ w_hh + b; c = f * c + i * g; h = o * tanh(c)."""

    names = ("gates", "y", "cells", "b", "h0", "c0", "states", "h", "lengths")

    def begin(self, w: Spot) -> None:
        """The bias and the cells too."""
        super().begin(w)
        s, cells = w.s, w.base("cells")
        self.b = w.bias("b")
        before = w.of_time(cells, w.later(self.time, -1), s.width)
        w.find("before", first_of(w, "c0", before), s.width)
        w.find_step("cells", self.time, s.width)

    def row(self, w: Spot, r: Val, z: list[Val], sums: list[Val]) -> list[Val]:
        """One row."""
        f, s, wide = w.f, w.s, 4 * w.s.width
        old, c = w.load("old", r, s.width), w.load("before", r, s.width)
        sigmoid, tanh = formulas.FUNCTIONS["sigmoid"], formulas.FUNCTIONS["tanh"]
        gates = []
        for n, part in enumerate(z):
            total = f.add(f.add(self.given(w, r, "gates", n), self.b[n]), part)
            gates.append((tanh if n == 2 else sigmoid)(f, total))
        i, forget, g, o = gates
        new = f.fma(forget, c, f.mul(i, g))
        out, on = f.mul(o, tanh(f, new)), w.alive(r, self.time)
        w.store(f.select(on, new, c), "cells", r, s.width)
        for n, x in enumerate(gates):
            w.store(w.only(on, x), "gates", r, wide, n)
        self.leave(w, r, on, out, old)
        return sums


class GruCell(Forward):
    """m, r, z and n of what the last three hold; h = n + z * (h - n)."""

    names = ("gates", "y", "b_ih", "b_hh", "h0", "states", "h", "lengths")

    def begin(self, w: Spot) -> None:
        """The biases too."""
        super().begin(w)
        inside, outside = w.bias("b_ih"), w.bias("b_hh")
        both = [w.f.add(a, b) for a, b in zip(inside[:2], outside[:2], strict=True)]
        self.b = [*both, inside[2]]
        self.within = outside[2]

    def row(self, w: Spot, r: Val, z: list[Val], sums: list[Val]) -> list[Val]:
        """One row."""
        f, s, wide = w.f, w.s, 4 * w.s.width
        sigmoid, tanh = formulas.FUNCTIONS["sigmoid"], formulas.FUNCTIONS["tanh"]
        old = w.load("old", r, s.width)
        a, b, c = (f.add(self.given(w, r, "gates", g), self.b[g]) for g in range(3))
        m = f.add(z[2], self.within)
        reset, update = sigmoid(f, f.add(a, z[0])), sigmoid(f, f.add(b, z[1]))
        n = tanh(f, f.fma(reset, m, c))
        out, on = f.fma(update, f.sub(old, n), n), w.alive(r, self.time)
        for g, x in enumerate((m, reset, update, n)):
            w.store(w.only(on, x), "gates", r, wide, g)
        self.leave(w, r, on, out, old)
        return sums
