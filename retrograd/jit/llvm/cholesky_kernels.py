"""Cholesky's kernels: the op, and its gradient.

A large matrix is shared by all threads, with a launch for each block of rows. Small ones are
dealt out to threads, each as a whole.
"""

from __future__ import annotations

from abc import abstractmethod
from math import prod
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.cholesky import write_begin, write_result, write_turn, wrong
from retrograd.jit.llvm.cholesky_back import (
    write_back_begin,
    write_back_result,
    write_back_turn,
    write_corner,
)
from retrograd.jit.llvm.conv_chunks import MOST_CHUNKS
from retrograd.jit.llvm.faults import MATRIX, of_matrices
from retrograd.jit.llvm.text import I64, Val
from retrograd.jit.llvm.triangle_stages import Staged, moved
from retrograd.jit.llvm.triangle_tile import Panels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.triangle_stages import Places

__all__ = ["CholeskyGradKernels", "CholeskyKernels"]

SMALL = 6  # panels of a matrix that one thread takes alone
MEDIUM, MANY = 16, 8  # the same if there are many matrices, and how many are
LONG = 64  # turns: such a loop can be interrupted


class Factoring(Staged):
    """What both share: panels are filled, turns change them, a result is read from them."""

    fails = True  # matrices may be refused, and long loops can be interrupted
    thirds: int  # of n^3: multiplications and additions

    def prepare(self, op: Any, specs: Sequence[Spec]) -> None:
        """One kernel for all, or one for each stage."""
        *lead, n, _ = specs[0].shape
        self.op, self.of = op, specs[0].shape
        self.stack, self.s = prod(lead), Panels.of(self.writer.machine, n, self.type)
        s, square = self.s, n * n
        self.dims = [(self.stack, *[square] * len(self.names))]
        room, flops = self.needs(), self.thirds * n**3 // 3
        nbytes = len(self.names) * square * s.size
        most = MEDIUM if self.stack >= MANY else SMALL
        self.together = s.count > most
        if not self.together:
            work = self.stack * flops, self.stack * nbytes
            self.whole("all", room, self.dims, work, self.alone)
            return
        self.room = room
        chunks = min(MOST_CHUNKS, s.count)
        for what in ("begin", "turn", "result"):
            cost = (self.stack * flops, 0) if what == "turn" else (0, self.stack * nbytes)
            self.stage(what, getattr(self, what), chunks, cost)

    @abstractmethod
    def needs(self) -> dict[str, int]:
        """The bytes of the panels, by name."""

    @abstractmethod
    def begin(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """Fill the panels."""

    @abstractmethod
    def turn(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """One block of rows."""

    @abstractmethod
    def result(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """Write the matrix."""

    def alone(self, f: Fn, at: Places, number: Val) -> None:
        """All stages of one matrix."""
        only = f.const(I64, 0), f.const(I64, 1)
        self.begin(f, at, number, *only)
        with f.loop(0, self.s.count - 1) as loop:
            self.turn(f, at, loop.i, *only)
        self.result(f, at, number, *only)

    def body(self, at: Places) -> None:
        """All launches."""
        if not self.together:
            self.launch("all", at)
            return
        f = self.writer.f
        with f.loop(0, self.stack) as loop:
            here = {**at, **moved(f, self.type, self.names, at, loop.i, self.dims)}
            self.launch("begin", here, loop.i)
            with f.loop(0, self.s.count - 1) as turn:
                self.launch("turn", here, turn.i)
                if self.s.count > LONG:
                    self.writer.turned()
            self.launch("result", here, loop.i)


class CholeskyKernels(Factoring):
    """Cholesky."""

    names = ("x", "out")
    thirds = 1

    def needs(self) -> dict[str, int]:
        """A triangle, and what was wrong."""
        return {"work": self.s.half * self.s.size, "flags": 8 * (self.s.count + 1)}

    def begin(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """Panels of x."""
        name = write_begin(f.module, self.s)
        f.call(name, None, at["x"], at["work"], at["flags"], chunk, chunks)

    def turn(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """The first block of rows of what is left."""
        name = write_turn(f.module, self.s)
        f.call(name, None, at["work"], at["flags"], word, chunk, chunks)

    def result(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """The factor; whoever has the first chunk says if there is none."""
        odd, failed = wrong(f, self.s, at["flags"])
        bad = f.convert("zext", f.bitwise("or", odd, failed), I64)
        name = write_result(f.module, self.s, upper=self.op.upper)
        f.call(name, None, at["work"], at["out"], bad, chunk, chunks)
        if self.op.check:
            first = f.compare("eq", chunk, f.const(I64, 0))
            told = f.bitwise("and", first, f.compare("ult", odd, failed))
            said = of_matrices(self.op.name, "is not positive definite", "x", self.of)
            with f.when(told):
                note = self.writer.faults.note
                note(f, at["status"], self.node, said, word, told, MATRIX)


class CholeskyGradKernels(Factoring):
    """CholeskyGrad."""

    names = ("g", "out", "dx")
    thirds = 2

    def needs(self) -> dict[str, int]:
        """The factor, and what becomes the gradient."""
        return {"lows": self.s.half * self.s.size, "work": self.s.whole * self.s.size}

    def begin(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """Panels of both."""
        name = write_back_begin(f.module, self.s)
        f.call(name, None, *(at[n] for n in ("g", "out", "lows", "work")), chunk, chunks)

    def turn(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """The last block of rows of what is left."""
        name = write_back_turn(f.module, self.s)
        f.call(name, None, at["lows"], at["work"], word, chunk, chunks)

    def result(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """The first block of all is still missing: whoever writes the first panel finds it."""
        first = f.const(I64, 0)
        with f.when(f.compare("eq", chunk, first)):
            corner = write_corner(f.module, self.s)
            f.call(corner, None, at["lows"], at["work"], first)
        name = write_back_result(f.module, self.s)
        f.call(name, None, at["work"], at["dx"], chunk, chunks)
