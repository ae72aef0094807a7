"""Elimination of many matrices of a few rows at once: each lane has a matrix of its own."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from retrograd.jit.llvm.conv_chunks import chunk_bounds, chunk_count
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.text import I1, I64, Type, Val
from retrograd.jit.llvm.triangle_stages import Staged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.triangle_stages import Places

__all__ = ["Group", "Lanes", "eliminated", "line", "solved"]

Matrix = list[list[Val]]


@dataclass(frozen=True)
class Group:
    """Matrices, one for each lane, and their numbers; of too few, the last one is repeated."""

    f: Fn
    type: Type
    numbers: Val

    def number(self, value: float) -> Val:
        """In every lane."""
        return self.f.const(self.type, value)

    def spots(self, stride: int, skip: int) -> Val:
        """Where an element of each matrix is."""
        f, kind = self.f, self.numbers.type
        return f.add(f.mul(self.numbers, f.const(kind, stride)), f.const(kind, skip))

    def read(
        self, source: Val, stride: int, shape: tuple[int, int], *, turn: bool = False
    ) -> Matrix:
        """Matrices, or their transposes."""
        rows, columns = map(range, shape)
        lines = [
            [self.element(source, stride, i * shape[1] + j) for j in columns] for i in rows
        ]
        return [list(row) for row in zip(*lines, strict=True)] if turn else lines

    def element(self, source: Val, stride: int, skip: int) -> Val:
        """One element of each matrix."""
        if not stride:
            one = self.f.load(self.type.scalar, self.f.at(source, skip, self.type))
            return self.f.splat(one, self.type.lanes)
        return self.f.gather(self.type, source, self.spots(stride, skip))

    def write(self, x: Matrix, target: Val, stride: int) -> None:
        """Matrices to their places."""
        for i, row in enumerate(x):
            for j, one in enumerate(row):
                self.f.scatter(one, target, self.spots(stride, i * len(row) + j))


class Lanes(Staged):
    """Kernels that may have a matrix in each lane."""

    def many(
        self, count: int, work: tuple[int, int], one: Callable[[Places, Group], None]
    ) -> None:
        """A kernel `lanes`: one(places, group) for as many matrices as there are lanes."""
        lanes = self.writer.machine.lanes(self.type.bits // 8)
        groups = ceil(count / lanes)
        chunks, whole = chunk_count(groups, 8 * work[0]), I64.by(lanes)
        f, at, _ = self._begun("lanes")
        with f.loop(*chunk_bounds(f, f.arg("chunk"), chunks, groups)) as loop:
            first = f.splat(f.integer(f.times(loop.i, lanes)), lanes)
            numbers, last = f.add(first, f.iota(whole)), f.const(whole, count - 1)
            if count % lanes:
                numbers = f.select(f.compare("slt", numbers, last), numbers, last)
            one(at, Group(f, self.type.by(lanes), numbers))
        f.done()
        self.kernels["lanes"] = KernelInfo(f.name, chunks, 0, *work)


def eliminated(g: Group, a: Matrix, sides: Matrix) -> tuple[Val, Val]:
    """Factor in place, sides along with it; where a pivot was 0, and whether signs change."""
    f, n = g.f, len(a)
    none = f.const(I1.by(g.type.lanes), 0)
    bad, odd = none, none
    for k in range(n):
        where = _pivot(g, [a[i][k] for i in range(k, n)])
        for i in range(k + 1, n):
            chosen = f.compare("eq", where, f.const(where.type, i - k))
            odd = f.bitwise("xor", odd, chosen)
            for rows in (a, sides):
                _exchange(f, rows, (k, i), chosen)
        zero = f.compare("oeq", a[k][k], g.number(0))
        bad = f.bitwise("or", bad, zero)
        pivot = f.select(zero, g.number(1), a[k][k])
        for i in range(k + 1, n):
            by = f.neg(f.div(a[i][k], pivot))
            a[i][k + 1 :] = [f.fma(by, x, y) for x, y in zip(a[k], a[i], strict=True)][k + 1 :]
            sides[i] = [f.fma(by, x, y) for x, y in zip(sides[k], sides[i], strict=True)]
    return bad, odd


def _pivot(g: Group, column: Sequence[Val]) -> Val:
    """The place of the largest magnitude, the first one; nan is more than all others."""
    f, whole = g.f, Type("i", g.type.bits, g.type.lanes)
    positive = f.const(whole, 2 ** (whole.bits - 1) - 1)
    sizes = [f.bitwise("and", f.bits(x), positive) for x in column]
    best, where = sizes[0], f.zero(whole)
    for i, size in enumerate(sizes[1:], 1):
        more = f.compare("ugt", size, best)
        best, where = f.select(more, size, best), f.select(more, f.const(whole, i), where)
    return where


def _exchange(f: Fn, rows: Matrix, pair: tuple[int, int], chosen: Val) -> None:
    k, i = pair
    both = list(zip(rows[k], rows[i], strict=True))
    rows[k] = [f.select(chosen, y, x) for x, y in both]
    rows[i] = [f.select(chosen, x, y) for x, y in both]


def solved(g: Group, a: Matrix, sides: Matrix) -> None:
    """Back substitution, in place."""
    f, n = g.f, len(a)
    for i in reversed(range(n)):
        for j in range(i + 1, n):
            by = f.neg(a[i][j])
            sides[i] = [f.fma(by, x, y) for x, y in zip(sides[j], sides[i], strict=True)]
        sides[i] = [f.div(x, a[i][i]) for x in sides[i]]


def line(dims: Sequence[tuple[int, ...]], operands: int) -> tuple[int, ...] | None:
    """The strides of a stack whose matrices are evenly apart in each operand, else None."""
    found, count = (0,) * operands, 1
    for length, *strides in dims[::-1]:
        if length == 1:
            continue
        if count == 1:
            found = tuple(strides)
        elif any(s != count * t for s, t in zip(strides, found, strict=True)):
            return None
        count *= length
    return found
