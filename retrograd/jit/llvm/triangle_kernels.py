"""Triangular systems: columns of the right-hand side are panels, each a thread's own.

The triangle is packed once. A panel is copied to scratch, solved from one end to the other, and
copied out. Few columns are solved one by one, from the triangle where it is.
"""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.conv_chunks import MOST_CHUNKS, parted
from retrograd.jit.llvm.faults import MATRIX, of_matrices
from retrograd.jit.llvm.text import I8, I64, Int, Val
from retrograd.jit.llvm.triangle_few import write_column
from retrograd.jit.llvm.triangle_pack import Lines, clear, dealt, write_fill
from retrograd.jit.llvm.triangle_sides import Sides, stacked
from retrograd.jit.llvm.triangle_stages import moved
from retrograd.jit.llvm.triangle_tile import BACK, FORWARD, Panels, write_rows
from retrograd.memory.problem import rounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.triangle_stages import Places

__all__ = ["TriangleKernels"]

FEW = 4  # columns that are solved one by one
SMALL = 6  # panels of a triangle that a thread takes alone
MEDIUM, MANY = 16, 8  # the same if there are many, and how many are
NEAR, LEAST = 1 << 19, 8  # bytes of panels that go together; groups of panels, for threads


class TriangleKernels(Sides):
    """SolveTriangular."""

    fails = True
    names = ("x1", "x2", "out")

    def prepare(self, op: Any, specs: Sequence[Spec]) -> None:
        """Choose a way by the shapes, and write its kernels."""
        (*own, n, _), (*_, m) = specs[0].shape, specs[1].shape
        self.op, self.of, self.own = op, specs[0].shape, prod(own)
        self.order = FORWARD if op.upper == op.turned else BACK
        self.dims = stacked([s.shape[:-2] for s in specs], (n * n, n * m, n * m))
        self.stack = prod(length for length, *_ in self.dims)
        self.s = Panels.of(self.writer.machine, n, self.type)
        self.columns = m
        self.gathers = self.own == 1 < self.stack and m < self.s.block
        if self.gathers:  # columns of all right-hand sides, side by side
            self.columns = m * self.stack
        self.m, lanes = m, self.writer.machine.lanes(self.s.size)
        self.width = min(self.s.block, ceil(self.columns / lanes) * lanes)
        flops, nbytes = self.stack * n * n * m, self.stack * n * (n + 2 * m) * self.s.size
        self._choose((flops, nbytes))
        if not op.unit_diagonal:
            self.stage("check", self.check, 1, (0, 0))

    def _choose(self, work: tuple[int, int]) -> None:
        s, n = self.s, self.s.n
        panel, triangle = s.rows * self.width * s.size, s.half * s.size
        most = MEDIUM if self.stack >= MANY else SMALL
        if self.columns <= FEW:
            dims = [*self.dims, (self.m, 0, 1, 1)]
            self.whole("columns", {"line": n * s.size}, dims, work, self.few)
        elif self.own > 1 and s.count <= most:
            self.whole("all", {"work": triangle, "panel": panel}, self.dims, work, self.alone)
        else:
            self.room = {"work": triangle}
            sides = self.stack if self.own == 1 and not self.gathers else 1
            self.group = max(1, min(NEAR // panel, self.panels * sides // LEAST, self.panels))
            self.many = ceil(self.panels / self.group) * sides
            chunks = [min(MOST_CHUNKS, many) for many in (s.count, self.many)]
            self.stage("pack", self.pack, chunks[0], (0, work[1]))
            room = rounded(self.group * panel)
            self.stage("solve", self.solve, chunks[1], (work[0], 0), room)

    def body(self, at: Places) -> None:
        """All launches."""
        f = self.writer.f
        if "check" in self.kernels:
            self.launch("check", at)
        for what in ("columns", "all"):
            if what in self.kernels:
                self.launch(what, at)
                return
        if self.own == 1:
            self.launch("pack", at)
            self.launch("solve", at)
            return
        with f.loop(0, self.stack) as loop:
            here = {**at, **moved(f, self.type, self.names, at, loop.i, self.dims)}
            self.launch("pack", here)
            self.launch("solve", here)

    # -- stages -----------------------------------------------------------------------------

    def check(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """Note the first triangle that has 0 on its diagonal."""
        n, t = self.s.n, self.type
        said = of_matrices(self.op.name, "has 0 on its diagonal", "x1", self.of)
        with f.loop(0, self.own) as loop:
            x1 = f.at(at["x1"], f.times(loop.i, n * n), t)
            with f.loop(0, n, carry=[f.const(I64, 0)]) as down:
                x = f.load(t, f.at(x1, f.times(down.i, n + 1), t))
                zero = f.convert("zext", f.compare("oeq", x, f.zero(t)), I64)
                down.next = [f.bitwise("or", down.carry[0], zero)]
            bad = f.compare("ne", down.results[0], f.const(I64, 0))
            with f.when(bad):
                note = self.writer.faults.note
                note(f, at["status"], self.node, said, loop.i, bad, MATRIX)

    def pack(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """The triangle's panels."""
        s, falling = self.s, self.order == BACK
        fill = write_fill(f.module, s, across=self.op.turned, falling=falling, ones=True)
        with dealt(f, 0, s.count, chunk, chunks) as j:
            skip = s.falling(f, j) if falling else s.rising(f, j)
            f.call(fill, None, at["x1"], f.at(at["work"], skip, s.type), j)

    def solve(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """Some panels of right-hand sides."""
        here = {**at, "panel": f.at(f.arg("scratch"), 0, I8)}
        with dealt(f, 0, self.many, chunk, chunks) as number:
            matrix, k = parted(f, number, ceil(self.panels / self.group))
            skip = f.times(matrix, self.s.n * self.m)
            sides = {n: f.at(at[n], skip, self.type) for n in ("x2", "out")}
            first = f.times(k, self.group)
            last = f.lesser(f.plus(first, self.group), self.panels)
            self.some_panels(f, {**here, **sides}, (first, last))

    def alone(self, f: Fn, at: Places, number: Val) -> None:
        """One system as a whole."""
        only = f.const(I64, 0), f.const(I64, 1)
        self.pack(f, at, number, *only)
        with f.loop(0, self.panels) as loop:
            self.some_panels(f, at, (loop.i, f.plus(loop.i, 1)))

    def few(self, f: Fn, at: Places, number: Val) -> None:
        """One column."""
        s, kind = self.s, {"across": self.op.turned, "unit": self.op.unit_diagonal}
        column = write_column(f.module, s.type, s.n, self.order, **kind)
        read, put = (Lines(s.type, 1, *steps) for steps in ((self.m, 1), (1, self.m)))
        rows = f.const(I64, s.n)
        f.call(read.write(f.module), None, at["x2"], at["line"], rows)
        f.call(column, None, at["x1"], at["line"])
        f.call(put.write(f.module), None, at["line"], at["out"], rows)

    # -- panels -----------------------------------------------------------------------------

    def some_panels(self, f: Fn, at: Places, bounds: tuple[Int, Int]) -> None:
        """Copy in, solve, copy out: what is read of the triangle is near, and shared."""
        s, w, t = self.s, self.width, self.type
        rows = write_rows(f.module, s, w, self.order, unit=self.op.unit_diagonal)

        def panel(k: Val) -> Val:
            return f.at(at["panel"], f.times(f.plus(k, f.times(bounds[0], -1)), s.rows * w), t)

        with f.loop(*bounds) as loop:
            here = panel(loop.i)
            self.move(f, {**at, "panel": here}, loop.i, out=False)
            if s.tail:
                clear(f, f.at(here, s.n * w, t), (s.rows - s.n) * w * s.size)
        with f.loop(0, s.count, down=self.order == BACK) as down:
            row = f.integer(f.times(down.i, s.block))
            back = self.order == BACK
            skip = s.falling(f, down.i) if back else s.rising(f, down.i)
            count = f.integer(s.below(f, down.i)) if back else row
            by = f.at(at["work"], skip, t)
            with f.loop(*bounds) as loop:
                x = f.at(panel(loop.i), f.times(row, w) if back else 0, t)
                f.call(rows, None, by, x, count)
        with f.loop(*bounds) as loop:
            self.move(f, {**at, "panel": panel(loop.i)}, loop.i, out=True)
