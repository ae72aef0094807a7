"""Lines into lanes and back: rows of memory become columns of vectors.

What is read and written lies in lines of `floats` scalars. In vectors, scalar i of a line
is in row i, or in row 2 * i where the rows between are imaginary parts that are zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.conv_chunks import parted
from retrograd.jit.llvm.text import I64, PTR, Int, Module, Type, Val

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Lines", "Scattered"]

PIECE = 128  # bits within which shuffles are cheap


@dataclass(frozen=True)
class Lines:
    """(memory, vectors): as many lines as lanes, one after the other in memory."""

    type: Type  # of a vector
    floats: int
    rows: int  # 1, or 2: imaginary parts are zero
    back: bool  # from vectors to memory

    @property
    def name(self) -> str:
        """One for each set of fields."""
        return f"fft_lines_{self.type.suffix}_{self.floats}_{self.rows}_{self.back:d}"

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        return module.once(self.name, lambda: self._write(module))

    def _write(self, module: Module) -> None:
        args = [("memory", PTR), ("vectors", PTR)]
        f = Fn(module, self.name, args, attributes="nounwind noinline")
        w, n = self.type.lanes, self.floats
        with f.loop(0, -(-n // w)) as loop:
            # the last square begins earlier where it would end too late
            whole = n % w == 0
            self._square(
                f, f.times(loop.i, w) if whole else f.lesser(f.times(loop.i, w), n - w)
            )
        f.done()

    def _square(self, f: Fn, first: Int) -> None:
        t = self.type
        memory = f.at(f.arg("memory"), first, t)
        skip = t.lanes * self.rows
        vectors = f.at(f.arg("vectors"), f.times(first, skip), t)
        lines = [f.at(memory, k * self.floats, t) for k in range(t.lanes)]
        rows = [f.at(vectors, k * skip, t) for k in range(t.lanes)]
        source, target = (rows, lines) if self.back else (lines, rows)
        for x, at in zip(_transposed(f, t, source), target, strict=True):
            f.store(x, at)
        if self.rows == 2 and not self.back:
            for at in rows:
                f.store(f.zero(t), f.at(at, t.lanes, t))


def _transposed(f: Fn, t: Type, rows: Sequence[Val]) -> list[Val]:
    """A square of vectors, read in pieces that instructions can put side by side in passing."""
    piece = min(t.lanes, PIECE // t.bits)
    found = []
    for first in range(0, t.lanes, piece):
        several = [
            _joined(f, [f.load(t.by(piece), f.at(at, first, t)) for at in rows[k::piece]])
            for k in range(piece)
        ]
        found += _mixed(f, several, piece)
    return found


def _joined(f: Fn, parts: list[Val]) -> Val:
    """Vectors side by side."""
    while len(parts) > 1:
        both = zip(parts[::2], parts[1::2], strict=True)
        parts = [f.shuffle(a, b, range(2 * a.type.lanes)) for a, b in both]
    return parts[0]


def _mixed(f: Fn, rows: list[Val], piece: int) -> list[Val]:
    """Pieces of vectors transposed where they are: halves are interleaved until all are."""
    lanes = rows[0].type.lanes
    cuts: list[list[int]] = [[], []]
    for first in range(0, lanes, piece):
        for k in range(piece):
            cuts[2 * k // piece] += [first + k, first + k + lanes]
    half = piece // 2
    for _ in range(piece.bit_length() - 1):
        both = zip(rows[:half], rows[half:], strict=True)
        rows = [f.shuffle(a, b, cut) for a, b in both for cut in cuts]
    return rows


@dataclass(frozen=True)
class Scattered:
    """(memory, vectors, first, lanes): some lines by their numbers, one scalar at a time.

    Lines are side by side in blocks of `inner`, with `length` numbers of `parts` scalars.
    """

    type: Type  # of a vector
    length: int
    parts: int
    rows: int  # for each number
    inner: int
    back: bool

    @property
    def name(self) -> str:
        """One for each set of fields."""
        shape = f"{self.length}_{self.parts}_{self.rows}_{self.inner}_{self.back:d}"
        return f"fft_scattered_{self.type.suffix}_{shape}"

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        return module.once(self.name, lambda: self._write(module))

    def _write(self, module: Module) -> None:
        args = [("memory", PTR), ("vectors", PTR), ("first", I64), ("lanes", I64)]
        f = Fn(module, self.name, args, attributes="nounwind noinline")
        t = self.type
        with f.loop(0, f.arg("lanes")) as lane:
            outer, beside = parted(f, f.plus(f.arg("first"), lane.i), self.inner)
            line = f.plus(f.times(outer, self.length * self.inner), beside)
            memory = f.at(f.arg("memory"), f.times(line, self.parts), t)
            vectors = f.at(f.arg("vectors"), lane.i, t)
            with f.loop(0, self.length) as loop:
                here = f.at(memory, f.times(loop.i, self.inner * self.parts), t)
                there = f.at(vectors, f.times(loop.i, self.rows * t.lanes), t)
                for k in range(self.rows):
                    self._move(f, k, f.at(here, k, t), f.at(there, k * t.lanes, t))
        f.done()

    def _move(self, f: Fn, part: int, here: Val, there: Val) -> None:
        t = self.type.scalar
        if part < self.parts:
            source, target = (there, here) if self.back else (here, there)
            f.store(f.load(t, source), target)
        elif not self.back:
            f.store(f.zero(t), there)
