"""What a cell of a recurrence is, and what it finds where: states, steps, lengths."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from retrograd.jit.llvm.gemm_tile import load_some, store_some
from retrograd.jit.llvm.text import I64, PTR, Val

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.recurrent_cut import Sizes

__all__ = ["Cell", "Spot", "length"]


class Cell(ABC):
    """What is done to the product of a turn, for a vector of units, row by row.

    `names` are the kernel's buffers after the packed matrix; the last of its words is the
    number of the turn.
    """

    names: tuple[str, ...]
    sums = 0  # numbers that rows add up, for each unit
    fused = False  # whether the turn multiplies its inputs, too
    ahead = False  # whether it reads so much that it should be called for

    @abstractmethod
    def operand(self, w: Spot) -> tuple[Val, int, Val]:
        """The rows to multiply, their stride, and how deep; 0 for no product."""

    def inputs(self, w: Spot) -> tuple[Val, Val]:
        """The rows of inputs, and their packed matrix; if fused."""
        raise TypeError(f"{type(self).__name__} multiplies no inputs")

    def begin(self, w: Spot) -> None:  # noqa: B027  most have nothing to find
        """Find what does not depend on the row."""

    @abstractmethod
    def row(self, w: Spot, r: Val, z: list[Val], sums: list[Val]) -> list[Val]:
        """One row: read, compute, store; the sums with this row's."""


class Spot:
    """Where the code being written is: a turn; in a cell, some units of some rows of it."""

    def __init__(self, f: Fn, s: Sizes, names: Sequence[str], valid: int = 0) -> None:
        self.f, self.s, self.names = f, s, names
        self.lanes = f.machine.lanes(s.size)
        self.t, self.valid = s.type.by(self.lanes), valid
        self.turn = f.load(I64, f.at(f.arg("bufs"), 1 + len(names), I64), 8)
        self.bases: dict[str, Val] = {}
        self.found: dict[str, Val] = {}  # pointers to the first row and unit
        self.far: list[tuple[str, int, int]] = []  # names, strides and gates
        self.given: list[Val] = []  # products of inputs, in a fused turn

    def base(self, name: str) -> Val:
        """The beginning of a buffer."""
        f = self.f
        if name not in self.bases:
            at = f.at(f.arg("bufs"), 1 + self.names.index(name), I64)
            self.bases[name] = f.load(PTR, at, 8)
        return self.bases[name]

    def time(self, *, back: bool = False) -> Val:
        """The step of this turn; in backward, turns go through the steps from the last."""
        f = self.f
        if self.s.backwards == back:
            return self.turn
        return f.sub(f.const(I64, self.s.steps - 1), self.turn)

    def later(self, time: Val, by: int = 1) -> Val:
        """The step after, as the layer goes; before it, if by is -1."""
        return self.f.add(time, self.f.const(I64, -by if self.s.backwards else by))

    def of_time(self, base: Val, time: Val, stride: int) -> Val:
        """A step of a buffer that has all."""
        return self.f.at(base, self.f.times(time, self.s.batch * stride), self.s.type)

    def here(self, base: Val, stride: int) -> Val:
        """The first row and unit of the cell, in one step."""
        f = self.f
        skip = f.plus(f.times(f.arg("row"), stride), f.arg("unit"))
        return f.at(base, skip, self.s.type)

    def find(self, name: str, base: Val, stride: int) -> None:
        """Note where a state begins."""
        self.found[name] = self.here(base, stride)

    def find_step(self, name: str, time: Val, stride: int, gates: int = 1) -> None:
        """Note where a step begins in a buffer that has all: not in a near cache."""
        self.find(name, self.of_time(self.base(name), time, stride), stride)
        self.far.append((name, stride, gates))

    def load(self, name: str, r: Val, stride: int, gate: int = 0) -> Val:
        """The units in a row of what was found."""
        skip = self.f.plus(self.f.times(r, stride), gate * self.s.width)
        return self.some(self.f.at(self.found[name], skip, self.s.type))

    def store(self, x: Val, name: str, r: Val, stride: int, gate: int = 0) -> None:
        """Write the units in a row of what was found."""
        skip = self.f.plus(self.f.times(r, stride), gate * self.s.width)
        store_some(self.f, x, self.f.at(self.found[name], skip, self.s.type), self.valid)

    def some(self, pointer: Val) -> Val:
        """The units at a place."""
        return load_some(self.f, self.t, pointer, self.valid)

    def bias(self, name: str) -> list[Val]:
        """The units of all gates of a bias."""
        f, s = self.f, self.s
        base = f.at(self.base(name), f.arg("unit"), s.type)
        return [self.some(f.at(base, g * s.width, s.type)) for g in range(s.gates)]

    def alive(self, r: Val, time: Val) -> Val:
        """Whether a row's sequence is at a step."""
        f, s = self.f, self.s
        at = f.at(self.base("lengths"), f.plus(f.arg("row"), r), s.length)
        return f.compare("slt", time, length(f, s, at))

    def only(self, on: Val, x: Val) -> Val:
        """x where on, else 0."""
        return self.f.select(on, x, self.f.zero(x.type))


def length(f: Fn, s: Sizes, at: Val) -> Val:
    """A length in memory, in 64 bits."""
    return f.convert("sext" if s.signed else "zext", f.load(s.length, at), I64)
