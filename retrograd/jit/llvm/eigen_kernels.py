"""The kernels of Eigh and Eigvalsh: made tridiagonal, made diagonal, put in order.

One thread makes the matrix tridiagonal. Then rotations are found that make that diagonal, and
vectors are turned by them, in steps: one thread finds some, while others turn strips of vectors
by those of the step before, and then it helps them. Of stacks of matrices each is done by one
thread as a whole.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.eigen_order import write_order, write_result
from retrograd.jit.llvm.eigen_reduce import (
    Symmetric,
    write_begin,
    write_product,
    write_reduce,
)
from retrograd.jit.llvm.eigen_turn import (
    DONE,
    PATIENCE,
    STATE,
    SWEEPS,
    begun,
    room,
    write_apply,
    write_sweeps,
)
from retrograd.jit.llvm.text import I64, Val
from retrograd.jit.llvm.triangle_pack import dealt
from retrograd.jit.llvm.triangle_stages import Staged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.triangle_stages import Places

__all__ = ["EighKernels", "EigvalshKernels"]

LEAST, MOST = 32, 512  # rows: LAPACK keeps the digits of float64 for fewer, and blocks more


class EighKernels(Staged):
    """Eigh."""

    names: tuple[str, ...] = ("x", "w", "vectors")
    vectors = True

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Real matrices of a size that caches hold."""
        return super().takes(op, specs) and LEAST <= specs[0].shape[-1] <= MOST

    def prepare(self, op: Any, specs: Sequence[Spec]) -> None:
        """One kernel for all of a stack, or one for each stage."""
        *lead, n, _ = specs[0].shape
        self.stack = prod(lead)
        s = self.s = Symmetric.of(self.writer.machine, n, self.type)
        self.dims = [(self.stack, n * n, n, n * n)[: len(self.names) + 1]]
        self.most = (PATIENCE + 1) * n * n // (room(s)[0] - n) + PATIENCE
        flops = (9 if self.vectors else 4) * n**3 // 3 * self.stack
        work = flops, self.stack * 2 * n * n * s.size
        self.parts = s.strips + 1 if self.vectors else 1
        if self.stack > 1:
            self.whole("all", self._room(), self.dims, work, self.alone)
            return
        self.room = self._room()
        self.stage("reduce", self.reduce, 1, (4 * n**3 // 3, work[1] // 2))
        self.stage("step", self.step, self.parts, (flops - 4 * n**3 // 3, 0))
        self.stage("order", self.order, 1, (0, 0))
        if self.vectors:
            self.stage("result", self.result, s.strips, (0, work[1] // 2))

    def _room(self) -> dict[str, int]:
        s, (_, sweeps) = self.s, room(self.s)
        small = dict.fromkeys(("d", "e", "order"), 8 * s.n)
        small |= {"up": s.size, "state": 8 * len(STATE)}
        small |= dict.fromkeys(("beside", "product", "tau", "signs"), s.row * s.size)
        whole = {"a": s.n * s.row * s.size, "v": (s.n + 1) * s.row * s.size}
        if self.vectors:
            whole |= {"z": s.strips * s.n * s.across * s.size, "marks": 32 * (sweeps + 1)}
        return whole | small

    def body(self, at: Places) -> None:
        """All launches; turns of vectors as long as there are rotations."""
        if self.stack > 1:
            self.launch("all", at)
            return
        self.launch("reduce", at)
        self._steps(self.writer.f, at, lambda number: self.launch("step", at, number))
        self.launch("order", at)
        if self.vectors:
            self.launch("result", at)

    def alone(self, f: Fn, at: Places, number: Val) -> None:
        """All stages of one matrix."""
        only = f.const(I64, 0), f.const(I64, 1)

        def step(number: Val) -> None:
            with f.loop(0, self.parts) as part:
                self.step(f, at, number, part.i, f.const(I64, self.parts))

        self.reduce(f, at, number, *only)
        self._steps(f, at, step)
        self.order(f, at, number, *only)
        if self.vectors:
            self.result(f, at, number, *only)

    def _steps(self, f: Fn, at: Places, step: Callable[[Val], None]) -> None:
        """One after another; the one after the last rotations turns the vectors by these."""
        none = f.const(I64, 0)
        done = f.at(at["state"], DONE, I64)
        over = partial(f.compare, "ne", none)
        with f.loop(0, self.most, carry=[none], unless=lambda c: over(c[0])) as loop:
            loop.next = [f.load(I64, done)]
            step(loop.i)

    # -- stages ------------------------------------------------------------------------------

    def reduce(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """The tridiagonal matrix, and the vectors of reflections."""
        f.call(write_begin(f.module, self.s), None, at["x"], at["a"], at["up"])
        names = "a", "v", "beside", "product", "tau", "d", "e"
        f.call(write_reduce(f.module, self.s), None, *(at[n] for n in names))
        begun(f, self.s, at["state"])

    def step(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """The first part finds rotations; each other turns a strip by those before."""
        odd = f.bitwise("and", word, f.const(I64, 1))
        with f.when(f.compare("eq", chunk, f.const(I64, 0))):
            self._sweep(f, at, odd)
        if self.vectors:
            with f.when(f.compare("ne", chunk, f.const(I64, 0))):
                strip = f.sub(chunk, f.const(I64, 1))
                self._turn(f, at, (word, f.bitwise("xor", odd, f.const(I64, 1))), strip)

    def _part(self, f: Fn, at: Places, odd: Val) -> list[Val]:
        """One of both parts of the rotations: they, their sweeps, and how many these are."""
        rotations, sweeps = room(self.s)
        turns = f.at(at["a"], f.times(odd, 2 * rotations), self.type)
        count = f.at(at["state"], f.plus(odd, SWEEPS), I64)
        marks = at.get("marks", at["state"])
        return [turns, f.at(marks, f.times(odd, 2 * (sweeps + 1)), I64), count]

    def _sweep(self, f: Fn, at: Places, odd: Val) -> None:
        name = write_sweeps(f.module, self.s, vectors=self.vectors)
        turns, marks, count = self._part(f, at, odd)
        f.call(name, None, at["d"], at["e"], turns, marks, at["state"], count)

    def _turn(self, f: Fn, at: Places, when: tuple[Val, Val], strip: Val) -> None:
        """A strip of the vectors; to begin with, of the reflections' product."""
        s, (word, odd) = self.s, when
        z, none = f.at(at["z"], f.times(strip, s.n * s.across), s.type), f.const(I64, 0)
        with f.when(f.compare("eq", word, none)):
            first = f.integer(f.times(strip, s.across))
            f.call(write_product(f.module, s), None, z, at["v"], at["tau"], first)
        with f.when(f.compare("ne", word, none)):
            f.call(write_apply(f.module, s), None, z, *self._part(f, at, odd))

    def order(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """Eigenvalues in order; which vector each has, and its sign."""
        z = at["z"] if self.vectors else at["d"]
        names = "d", "up", "state", "order", "signs", "w"
        name = write_order(f.module, self.s, vectors=self.vectors)
        f.call(name, None, z, *(at[n] for n in names))

    def result(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """Some rows of the matrix whose columns are the vectors."""
        names = "z", "order", "signs", "vectors"
        with dealt(f, 0, self.s.n, chunk, chunks) as row:
            f.call(write_result(f.module, self.s), None, *(at[n] for n in names), row)


class EigvalshKernels(EighKernels):
    """Eigvalsh."""

    names = ("x", "w")
    vectors = False
