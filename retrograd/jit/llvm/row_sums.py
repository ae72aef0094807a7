"""Sums of rows that go to the same place, as kernels: first where all go, then place by place.

The rows are put in the order of their targets, equal ones as they come, by counting. Then
each row of the result is summed in registers, a block of its columns at a time, and stored
once. Chunks share out what is read and written: one may end inside of a target, between two
blocks, so that a target that most rows go to does not keep one thread busy.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.conv_chunks import MOST_CHUNKS
from retrograd.jit.llvm.gemm_tile import load_some, prefetch, store_some
from retrograd.jit.llvm.launches import REAL
from retrograd.jit.llvm.recurrent_rows import zero
from retrograd.jit.llvm.text import I32, I64, LINE, Int, Type, Val
from retrograd.jit.llvm.triangle_stages import Staged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.triangle_stages import Places

__all__ = ["RowSumKernels"]

BLOCK = 8  # vectors of a row that are summed together
AHEAD = 2048  # bytes from what is read to what is called for
WORTH = 1 << 16  # numbers, read or written, that are worth a chunk
NUMBER = 4  # bytes of the number of a row
WORK = 8  # operations for a row that is put in order, about
MOST = 2**31 - 2  # rows that have such numbers


class RowSumKernels(Staged):
    """IndexAdd along the first axes."""

    fails = True  # indices may be out of range
    names = ("x", "indices", "out")

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Rows of real floats that are dense."""
        x, _ = specs
        first = op.batch_axes
        along = tuple(range(first, first + len(op.axes)))
        return x.dtype.name in REAL and op.axes == along and op.place == first and prod(op.to)

    def prepare(self, op: Any, specs: Sequence[Spec]) -> None:
        """Sizes, and two kernels."""
        x, indices = specs
        sizes, rest = op.sizes(op.to)
        self.sizes, self.batch = sizes[op.batch_axes :], prod(sizes[: op.batch_axes])
        self.targets, self.width = prod(sizes), prod(rest)
        self.each = prod(indices.shape[op.batch_axes + 1 :])
        self.count, self.index = self.batch * self.each, indices.dtype
        self._cut()
        self.room = {
            "ends": NUMBER * (self.targets + 2),
            "order": NUMBER * (self.count + self.ahead),
            "target": NUMBER * self.count,
        }
        rows = self.count + self.targets
        work = rows * self.width
        keys = indices.nbytes + sum(self.room.values())
        chunks = max(1, min(MOST_CHUNKS, rows, work // WORTH))
        self.stage("sort", self.sort, 1, (WORK * rows, keys))
        self.stage("sum", self.sum, chunks, (x.size, work * x.dtype.itemsize))

    def _cut(self) -> None:
        """Columns into blocks of as many vectors each; of the last, some may be beyond."""
        size = self.type.bits // 8
        self.lanes = self.writer.machine.lanes(size)
        vectors = -(-self.width // self.lanes)
        self.columns = -(-vectors // -(-vectors // BLOCK)) * self.lanes
        self.full, rest = divmod(self.width, self.columns)
        self.blocks = self.full + bool(rest)
        self.ahead = max(2, AHEAD // (min(self.columns, self.width) * size))

    def body(self, at: Places) -> None:
        """Both."""
        self.launch("sort", at)
        self.launch("sum", at)

    # -- the order of the rows -----------------------------------------------------------------

    def sort(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """The rows that go to each target, one target after the other; where those of each end.

        What counts them says at last where they end, for the next target is where they begin.
        """
        after, target, one = f.at(at["ends"], 1, I32), at["target"], f.const(I32, 1)
        zero(f, at["ends"], self.room["ends"])
        with f.loop(0, self.batch) as own, f.loop(0, self.each) as each:
            row = self._target(f, at, own.i, each.i)
            number = f.plus(f.times(own.i, self.each), each.i)
            f.store(f.convert("trunc", row, I32), f.at(target, number, I32))
            many = f.at(after, row, I32)
            f.store(f.add(f.load(I32, many), one), many)
        with f.loop(0, self.targets, carry=[f.const(I32, 0)]) as loop:
            many = f.at(after, loop.i, I32)
            loop.next = [f.add(loop.carry[0], f.load(I32, many))]
            f.store(loop.carry[0], many)
        f.store(f.const(I32, self.count), f.at(after, self.targets, I32))
        with f.loop(0, self.count) as loop:
            place = f.at(after, self._number(f, target, loop.i), I32)
            to = f.load(I32, place)
            f.store(f.add(to, one), place)
            spot = f.at(at["order"], f.convert("sext", to, I64), I32)
            f.store(f.convert("trunc", loop.i, I32), spot)
        zero(f, f.at(at["order"], self.count, I32), NUMBER * self.ahead)

    def _target(self, f: Fn, at: Places, own: Val, each: Val) -> Val:
        """The row that the coordinates of one row of x name, in its part of the batch."""
        row: Int = own
        for c, n in enumerate(self.sizes):
            first = f.times(f.plus(f.times(own, len(self.sizes)), c), self.each)
            kind = Type("i", 8 * self.index.itemsize)
            i = f.load(kind, f.at(at["indices"], f.plus(first, each), kind))
            if self.index.name == "uint64":  # what does not fit must not come out negative
                i = f.intrinsic("umin", i, f.const(I64, 2**63 - 1))
            i = f.convert("sext" if self.index.kind == "i" else "zext", i, I64)
            row = f.plus(f.times(row, n), self._checked(f, at, i, n))
        return f.integer(row)

    def _checked(self, f: Fn, at: Places, i: Val, n: int) -> Val:
        """From the front; out of range is noted, and is 0."""
        given, size, none = i, f.const(I64, n), f.const(I64, 0)
        i = f.select(f.compare("slt", i, none), f.add(i, size), i)
        bad = f.compare("uge", i, size)
        with f.when(bad):
            self.writer.faults.note(f, at["status"], self.node, n, given, bad, "i")
        return f.select(bad, none, i)

    # -- sums ----------------------------------------------------------------------------------

    def sum(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """Some targets; of the first and of the last, perhaps some blocks only."""
        none, blocks = f.const(I64, 0), f.const(I64, self.blocks)
        first, low = self._edge(f, at["ends"], chunk, chunks)
        last, high = self._edge(f, at["ends"], f.add(chunk, f.const(I64, 1)), chunks)
        some = f.convert("zext", f.compare("ne", high, none), I64)
        with f.loop(first, f.add(last, some)) as loop:
            begin = f.select(f.compare("eq", loop.i, first), low, none)
            end = f.select(f.compare("eq", loop.i, last), high, blocks)
            rows = (
                self._number(f, at["ends"], loop.i),
                self._number(f, at["ends"], f.plus(loop.i, 1)),
            )
            with f.loop(begin, f.lesser(end, self.full)) as block:
                self._block(f, at, loop.i, rows, f.times(block.i, self.columns))
            if self.full < self.blocks:
                with f.when(f.compare("sgt", end, f.const(I64, self.full))):
                    self._block(f, at, loop.i, rows, self.full * self.columns)

    def _edge(self, f: Fn, ends: Val, chunk: Val, chunks: Val) -> tuple[Val, Val]:
        """Where a chunk begins, by the rows that are read and written before: target, block."""
        blocks = f.const(I64, self.blocks)
        rows = f.const(I64, (self.count + self.targets) * self.blocks)
        mine = f.div(f.mul(chunk, rows), chunks)

        def before(t: Val) -> Val:
            return f.add(self._number(f, ends, t), t)

        sides = [f.const(I64, 0), f.const(I64, self.targets + 1)]
        with f.loop(0, (self.targets + 1).bit_length(), carry=sides) as loop:
            low, high = loop.carry
            middle = f.bitwise("lshr", f.add(low, high), f.const(I64, 1))
            done = f.compare("sle", f.mul(before(middle), blocks), mine)
            loop.next = [f.select(done, middle, low), f.select(done, high, middle)]
        t = loop.results[0]
        here, then = before(t), before(f.add(t, f.const(I64, 1)))
        return t, f.div(f.sub(mine, f.mul(here, blocks)), f.sub(then, here), signed=False)

    def _block(self, f: Fn, at: Places, t: Val, rows: tuple[Val, Val], column: Int) -> None:
        """One block of a target: the sum of its rows, from 0, in their order."""
        kind = self.type.by(self.lanes)
        wide = self.width - column if isinstance(column, int) else self.columns
        spots = [(s, min(self.lanes, wide - s)) for s in range(0, wide, self.lanes)]
        x = f.at(at["x"], column, self.type)
        with f.loop(*rows, carry=[f.zero(kind)] * len(spots)) as loop:
            soon = self._row(f, x, self._number(f, at["order"], f.plus(loop.i, self.ahead)))
            for s in range(0, wide, 8 * LINE // self.type.bits):
                prefetch(f, f.at(soon, s, self.type))
            row = self._row(f, x, self._number(f, at["order"], loop.i))
            for n, (s, count) in enumerate(spots):
                more = load_some(f, kind, f.at(row, s, self.type), count)
                loop.next[n] = f.add(loop.carry[n], more)
        out = f.at(self._row(f, at["out"], t), column, self.type)
        for (s, count), total in zip(spots, loop.results, strict=True):
            store_some(f, total, f.at(out, s, self.type), count)

    def _row(self, f: Fn, base: Val, number: Val) -> Val:
        return f.at(base, f.times(number, self.width), self.type)

    def _number(self, f: Fn, base: Val, i: Int) -> Val:
        """One of those that are kept."""
        return f.convert("sext", f.load(I32, f.at(base, i, I32)), I64)
