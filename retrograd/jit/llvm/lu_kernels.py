"""Kernels of what is found by elimination: systems and inverses.

A large matrix is shared by all threads, with a launch for each panel that is factored. Small
ones are dealt out to threads, each as a whole. Right-hand sides are panels that go through the
same turns; then they are solved from the last row up.
"""

from __future__ import annotations

from abc import abstractmethod
from math import ceil, prod
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.carry import copy
from retrograd.jit.llvm.conv_chunks import MOST_CHUNKS
from retrograd.jit.llvm.faults import MATRIX, of_matrices
from retrograd.jit.llvm.lu import write_advance, write_panel, write_square
from retrograd.jit.llvm.lu_tiny import Group, Lanes, eliminated, line, solved
from retrograd.jit.llvm.text import I1, I64, Val
from retrograd.jit.llvm.triangle_pack import clear, dealt, turned
from retrograd.jit.llvm.triangle_sides import Sides, stacked
from retrograd.jit.llvm.triangle_stages import moved
from retrograd.jit.llvm.triangle_tile import BACK, Panels, write_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.triangle_stages import Places

__all__ = ["Elimination", "InvKernels", "SolveKernels"]

SMALL = 6  # panels of a matrix that one thread takes alone
MEDIUM, MANY = 16, 8  # the same if there are many matrices, and how many are
TINY, NARROW = 6, 8  # rows, and columns of right-hand sides, of matrices that lanes have
LONG = 64  # turns: such a loop can be interrupted


class Elimination(Lanes):
    """What they share. Panels of the matrix come first, then those of right-hand sides."""

    fails = True  # matrices may be refused, and long loops can be interrupted
    turned = False  # whether it is the transpose that is factored
    sides = 0  # panels of right-hand sides
    tiny = TINY  # rows of a matrix that a lane has
    stages: tuple[str, ...] = ("begin", "turn", "result")
    stack: int
    dims: Sequence[tuple[int, ...]]
    s: Panels

    def arrange(self, n: int, work: tuple[int, int]) -> None:
        """One kernel for all, or one for each stage."""
        strides = line(self.dims, len(self.names))
        if n <= self.tiny and strides is not None:
            self.together = False
            self.many(self.stack, work, lambda at, g: self.lanes(at, g, n, strides))
            return
        s = self.s = Panels.of(self.writer.machine, n, self.type)
        room = {"work": s.whole * s.size, "low": s.half * s.size}
        room |= {"pivots": 8 * s.rows, "flags": 8 * s.count}
        room |= self.more()
        self.all = s.count + self.sides
        self.together = s.count > (MEDIUM if self.stack >= MANY else SMALL)
        if not self.together:
            self.whole("all", room, self.dims, work, self.alone)
            return
        self.room = room
        chunks = min(MOST_CHUNKS, self.all)
        for what in self.stages:
            cost = (work[0], 0) if what == "turn" else (0, work[1])
            self.stage(what, getattr(self, what), chunks, cost)

    def more(self) -> dict[str, int]:
        """Other memory."""
        return {}

    @abstractmethod
    def lanes(self, at: Places, g: Group, n: int, strides: tuple[int, ...]) -> None:
        """All of some matrices, one in each lane."""

    def alone(self, f: Fn, at: Places, number: Val) -> None:
        """All stages of one matrix."""
        only = f.const(I64, 0), f.const(I64, 1)
        self.begin(f, at, number, *only)
        with f.loop(0, self.turns) as loop:
            self.turn(f, at, loop.i, *only)
        for what in self.stages[2:]:
            getattr(self, what)(f, at, number, *only)

    @property
    def turns(self) -> int:
        """The last panel is not taken off anything unless there are right-hand sides."""
        return self.s.count if self.sides else self.s.count - 1

    def body(self, at: Places) -> None:
        """All launches."""
        if "lanes" in self.kernels:
            self.launch("lanes", at)
            return
        if not self.together:
            self.launch("all", at)
            return
        f = self.writer.f
        with f.loop(0, self.stack) as loop:
            here = {**at, **moved(f, self.type, self.names, at, loop.i, self.dims)}
            self.launch("begin", here, loop.i)
            with f.loop(0, self.turns) as turn:
                self.launch("turn", here, turn.i)
                if self.s.count > LONG:
                    self.writer.turned()
            for what in self.stages[2:]:
                self.launch(what, here, loop.i)

    # -- stages ------------------------------------------------------------------------------

    def begin(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """Fill all panels, and factor the first."""
        s = self.s
        fill = write_square(f.module, s, turn=self.turned)
        with dealt(f, 0, self.all, chunk, chunks) as j:
            with f.when(f.compare("slt", j, f.const(I64, s.count))):
                f.call(fill, None, at[self.names[0]], self.panel(f, at, j), j)
            with f.when(f.compare("eq", j, f.const(I64, 0))):
                self.factor(f, at, j)
            if self.sides:
                with f.when(f.compare("sge", j, f.const(I64, s.count))):
                    self.fill(f, at, f.sub(j, f.const(I64, s.count)))

    def turn(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """Take panel `word` off all after it; whoever has the next one factors that."""
        s, count, following = self.s, f.const(I64, self.s.count), f.integer(f.plus(word, 1))
        low = f.at(at["low"], s.falling(f, word), s.type)
        with dealt(f, following, self.all, chunk, chunks) as j:
            with f.when(f.compare("slt", j, count)):
                panel = self.panel(f, at, j)
                advance = write_advance(f.module, s, s.block)
                f.call(advance, None, low, at["pivots"], panel, word)
                self.keep(f, at, (word, j), panel)
                with f.when(f.compare("eq", j, following)):
                    self.factor(f, at, j)
            if self.sides:
                with f.when(f.compare("sge", j, count)):
                    self.advance(f, at, (word, f.sub(j, count)))

    def factor(self, f: Fn, at: Places, j: Val) -> None:
        """Factor a panel that all before it were taken off."""
        s = self.s
        low = f.at(at["low"], s.falling(f, j), s.type)
        name = write_panel(f.module, s)
        bad = f.call(name, I64, self.panel(f, at, j), low, at["pivots"], j)
        assert bad
        f.store(bad, f.at(at["flags"], j, I64), 8)

    def keep(self, f: Fn, at: Places, where: tuple[Val, Val], panel: Val) -> None:
        """What is wanted of a block of rows of the upper factor."""

    def fill(self, f: Fn, at: Places, q: Val) -> None:
        """A panel of right-hand sides."""

    def advance(self, f: Fn, at: Places, where: tuple[Val, Val]) -> None:
        """What a panel of the matrix makes of one of right-hand sides."""

    @abstractmethod
    def result(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """Write what was asked for."""

    # -- places ------------------------------------------------------------------------------

    def panel(self, f: Fn, at: Places, j: Val) -> Val:
        """A panel of the matrix."""
        return f.at(at["work"], self.s.full(f, j), self.type)

    def singular(self, f: Fn, at: Places) -> Val:
        """Whether a pivot was 0."""
        with f.loop(0, self.s.count, carry=[f.const(I64, 0)]) as loop:
            one = f.load(I64, f.at(at["flags"], loop.i, I64), 8)
            loop.next = [f.bitwise("or", loop.carry[0], one)]
        return f.compare("ne", loop.results[0], f.const(I64, 0))


class Substitution(Elimination, Sides):
    """Systems: the upper factor is kept as tiles read it."""

    op: Any
    of: tuple[int, ...]  # the shape of the matrices
    check = True

    def more(self) -> dict[str, int]:
        """The upper factor, and right-hand sides."""
        s = self.s
        right = self.panels * s.rows * self.width
        return {"up": s.half * s.size, "right": right * s.size}

    def factor(self, f: Fn, at: Places, j: Val) -> None:
        """The block on the diagonal is also a part of the upper factor."""
        super().factor(f, at, j)
        s, skip = self.s, self.s.falling(f, j)
        low, up = (f.at(at[n], skip, s.type) for n in ("low", "up"))
        copy(f, up, low, s.block**2 * s.size)

    def keep(self, f: Fn, at: Places, where: tuple[Val, Val], panel: Val) -> None:
        """A block of the upper factor, transposed."""
        s, (k, j) = self.s, where
        skip = f.plus(s.falling(f, k), f.times(f.sub(j, k), s.block**2))
        block = f.at(panel, f.times(k, s.block**2), s.type)
        turned(f, s, block, f.at(at["up"], skip, s.type))

    def fill(self, f: Fn, at: Places, q: Val) -> None:
        """Columns of the right-hand side."""
        s, w, side = self.s, self.width, self.side(f, at, q)
        self.move(f, {**at, "panel": side}, q, out=False)
        if s.tail:
            clear(f, f.at(side, s.n * w, s.type), (s.rows - s.n) * w * s.size)

    def side(self, f: Fn, at: Places, q: Val) -> Val:
        """A panel of right-hand sides."""
        return f.at(at["right"], f.times(q, self.s.rows * self.width), self.type)

    def advance(self, f: Fn, at: Places, where: tuple[Val, Val]) -> None:
        """The same turn that columns of the matrix have."""
        (k, q), s = where, self.s
        low, name = (
            f.at(at["low"], s.falling(f, k), s.type),
            write_advance(f.module, s, self.width),
        )
        f.call(name, None, low, at["pivots"], self.side(f, at, q), k)

    def result(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """Solve some panels from the last row up; say if there is no solution."""
        count = f.const(I64, self.panels)
        first, last = (f.div(f.mul(count, f.integer(f.plus(chunk, n))), chunks) for n in (0, 1))
        self.upward(f, at, (first, last))
        bad = self.singular(f, at)
        with f.loop(first, last) as loop:
            side = self.side(f, at, loop.i)
            if not self.check:
                with f.when(bad), f.loop(0, self.s.rows * self.width) as each:
                    nan = f.const(self.type, float("nan"))
                    f.store(nan, f.at(side, each.i, self.type))
            self.move(f, {**at, "panel": side}, loop.i, out=True)
        if self.check:
            told = f.bitwise("and", f.compare("eq", chunk, f.const(I64, 0)), bad)
            self.tell(f, at, word, told)

    def mine(self, f: Fn, chunk: Val, chunks: Val) -> tuple[Val, Val]:
        """The panels of right-hand sides that a chunk solves."""
        count = f.const(I64, self.panels)
        ends = chunk, f.integer(f.plus(chunk, 1))
        low, high = (f.div(f.mul(count, n), chunks) for n in ends)
        return low, high

    def number(self, f: Fn, word: Val) -> Val:
        """Of a matrix, in its own stack."""
        return word

    def lanes(self, at: Places, g: Group, n: int, strides: tuple[int, ...]) -> None:
        """Systems of a few rows."""
        f, m = g.f, self.columns
        a = g.read(at[self.names[0]], strides[0], (n, n), turn=self.turned)
        sides = self.given(at, g, (n, m), strides)
        bad, _ = eliminated(g, a, sides)
        solved(g, a, sides)
        if self.check:
            self.tell(f, at, g.numbers, bad)
        else:
            nan = g.number(float("nan"))
            sides = [[f.select(bad, nan, x) for x in row] for row in sides]
        g.write(sides, at["out"], strides[-1])

    @abstractmethod
    def given(self, at: Places, g: Group, shape: tuple[int, int], strides: Any) -> Any:
        """Right-hand sides in lanes."""

    def tell(self, f: Fn, at: Places, number: Val, bad: Val) -> None:
        """Note the first matrix that is singular."""
        said = of_matrices(self.op.name, "is singular", self.names[0], self.of)
        any_bad = f.intrinsic("vector.reduce.or", bad, result=I1) if bad.type.lanes else bad
        with f.when(any_bad):
            note = self.writer.faults.note
            note(f, at["status"], self.node, said, self.number(f, number), bad, MATRIX)

    def upward(self, f: Fn, at: Places, bounds: tuple[Val, Val]) -> None:
        """Back substitution: what is read of the factor is near for all panels."""
        s, w, t = self.s, self.width, self.type
        rows = write_rows(f.module, s, w, BACK)
        with f.loop(0, s.count, down=True) as up, f.loop(*bounds) as loop:
            by = f.at(at["up"], s.falling(f, up.i), t)
            x = f.at(self.side(f, at, loop.i), f.times(up.i, s.block * w), t)
            f.call(rows, None, by, x, f.integer(s.below(f, up.i)))


class SolveKernels(Substitution):
    """Solve."""

    names = ("x1", "x2", "out")

    def prepare(self, op: Any, specs: Sequence[Spec]) -> None:
        """One matrix for all right-hand sides has their columns side by side."""
        (*own, n, _), (*_, m) = specs[0].shape, specs[1].shape
        self.op, self.of, self.turned = op, specs[0].shape, op.turned
        self.dims = stacked([s.shape[:-2] for s in specs], (n * n, n * m, n * m))
        self.stack, self.m, self.columns = prod(d[0] for d in self.dims), m, m
        self.tiny = TINY if m <= NARROW else 0
        self.gathers = prod(own) == 1 < self.stack and n > self.tiny
        work = self.stack * n * n * m + prod(own) * n**3 // 3
        if self.gathers:
            self.columns, self.stack, self.dims = m * self.stack, 1, [(1, 0, 0, 0)]
        lanes = self.writer.machine.lanes(self.type.bits // 8)
        block = Panels.of(self.writer.machine, n, self.type).block
        self.width = min(block, ceil(self.columns / lanes) * lanes)
        nbytes = self.stack * n * (n + 2 * self.columns) * self.type.bits // 8
        self.sides = self.panels
        self.arrange(n, (work, nbytes))

    def given(self, at: Places, g: Group, shape: tuple[int, int], strides: Any) -> Any:
        """The second operand."""
        return g.read(at["x2"], strides[1], shape)

    def number(self, f: Fn, word: Val) -> Val:
        """Where the matrix of a system is among those that were given."""
        kind, square = word.type, self.of[-1] ** 2
        at = f.zero(kind)
        for length, stride, *_ in self.dims[::-1]:
            size = f.const(kind, length)
            at = f.add(at, f.mul(f.rem(word, size), f.const(kind, stride // square)))
            word = f.div(word, size)
        return at


class InvKernels(Substitution):
    """Inv: the right-hand side is the identity."""

    names = ("x", "out")

    def prepare(self, op: Any, specs: Sequence[Spec]) -> None:
        """As many columns as rows."""
        *lead, n, _ = specs[0].shape
        self.op, self.of = op, specs[0].shape
        self.check = getattr(op, "check", False)
        self.stack, self.m, self.columns = prod(lead), n, n
        self.dims = [(self.stack, n * n, n * n)]
        self.width = Panels.of(self.writer.machine, n, self.type).block
        work, self.sides = self.stack * n**3, self.panels
        self.arrange(n, (work, 2 * self.stack * n * n * self.type.bits // 8))

    def given(self, at: Places, g: Group, shape: tuple[int, int], strides: Any) -> Any:
        """The identity."""
        n = range(shape[0])
        return [[g.number(float(i == j)) for j in n] for i in n]

    def fill(self, f: Fn, at: Places, q: Val) -> None:
        """Ones on the diagonal."""
        s, w, side = self.s, self.width, self.side(f, at, q)
        clear(f, side, s.rows * w * s.size)
        first = f.integer(f.times(q, w))
        with f.loop(0, f.lesser(f.sub(f.const(I64, s.n), first), w)) as loop:
            spot = f.plus(f.times(f.add(first, loop.i), w), loop.i)
            f.store(f.const(s.type, 1), f.at(side, spot, s.type))
