"""Where the operands of a matrix product are, how they are copied, and the loops over them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrograd.jit.llvm.gemm_pack import Pack, Slab
from retrograd.jit.llvm.text import I64, Int, Val

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.gemm_plan import Plan, Split

__all__ = ["Operands", "Spot"]


@dataclass(frozen=True)
class Spot:
    """Where in the product the code being written is."""

    a: Val  # the matrices of this turn of the batch
    b: Val
    c: Val
    batch: Val
    k: Val  # first step of this block, and their number
    depth: Val


class Operands:
    """The part of a kernel's writer that knows its matrices."""

    def __init__(self, f: Fn, plan: Plan) -> None:
        self.f, self.plan, self.gemm = f, plan, plan.gemm

    def _a(self, first: Int, tile: Val) -> Val:
        """The panel of A for a tile, of a block that begins with tile `first`."""
        f, plan = self.f, self.plan
        if plan.woven:  # two by turns: one is read while the other is filled
            skip = f.bitwise("and", tile, f.const(I64, 1))
        else:
            skip = f.sub(tile, f.integer(first))
        return f.at(f.arg("scratch"), f.times(skip, plan.height * plan.depth), self.gemm.type)

    def _b(self, spot: Spot, first: Int, panel: Val, column: Val) -> Val:
        """Columns of B for a tile: a panel of a block that begins with `first`, if packed."""
        f, plan = self.f, self.plan
        if not plan.pack_b:
            return self._source_b(spot, column)
        skip = f.times(f.sub(panel, f.integer(first)), plan.width * plan.depth)
        return f.at(f.arg("scratch"), f.plus(skip, plan.room_a), self.gemm.type)

    def _c(self, spot: Spot, row: Val, column: Val) -> Val:
        f, gemm = self.f, self.gemm
        place = f.plus(f.times(row, gemm.c[0]), f.times(column, gemm.c[1]))
        return f.at(spot.c, place, gemm.type)

    def _pack(self, spot: Spot, source: Val, target: Val, size: int, *, edge: bool) -> None:
        """Copy columns of B to a panel."""
        f, gemm, plan = self.f, self.gemm, self.plan
        width = size * plan.unit
        count = width - plan.unit + plan.tail if edge else width
        odd = gemm.k % f.machine.lanes(gemm.size)
        pack = Pack(gemm.type, width, count, gemm.b[::-1], odd).write(f.module)
        f.call(pack, None, source, target, spot.depth)

    def _source_a(self, spot: Spot, row: Val) -> Val:
        f, (down, deep) = self.f, self.gemm.a
        place = f.plus(f.times(row, down), f.times(spot.k, deep))
        return f.at(spot.a, place, self.gemm.type)

    def _source_b(self, spot: Spot, column: Val) -> Val:
        f, (deep, across) = self.f, self.gemm.b
        place = f.plus(f.times(column, across), f.times(spot.k, deep))
        return f.at(spot.b, place, self.gemm.type)

    def _pack_a(self, spot: Spot, block: tuple[Int, Int]) -> None:
        """Copy a block of A to panels, one for each tile."""
        f, gemm, plan = self.f, self.gemm, self.plan
        odd = gemm.k % f.machine.lanes(gemm.size)
        for low, high, height, _ in plan.rows.segments():
            if gemm.a[0] == 1:
                room = plan.height * plan.depth
                slab = Slab(gemm.type, plan.height, height, gemm.a[1], room)
                first, end = map(f.integer, self._within(block, (low, high)))
                source = self._source_a(spot, f.integer(self._start(plan.rows, first)))
                self._slab(spot, slab, source, self._a(block[0], first), f.sub(end, first))
                continue
            pack = Pack(gemm.type, plan.height, height, gemm.a, odd).write(f.module)
            with self._tiles(plan.rows, block, (low, high)) as (tile, row):
                target = self._a(block[0], tile)
                f.call(pack, None, self._source_a(spot, row), target, spot.depth)

    def _slab(self, spot: Spot, slab: Slab, source: Val, target: Val, count: Val) -> None:
        """Copy so many panels: all of a row before the next."""
        name = slab.write(self.f.module)
        self.f.call(name, None, source, target, spot.depth, count)

    def _pack_b(self, spot: Spot, block: tuple[Int, Int]) -> None:
        """Copy a block of B to panels."""
        f, gemm, plan = self.f, self.gemm, self.plan
        for first, end, width, edge in plan.columns.segments(edge=bool(plan.tail)):
            size = width * plan.unit
            if gemm.b[1] == 1 and not edge:
                slab = Slab(gemm.type, size, size, gemm.b[0], plan.width * plan.depth)
                low, high = map(f.integer, self._within(block, (first, end)))
                column = f.integer(f.times(self._start(plan.columns, low), plan.unit))
                target = self._b(spot, block[0], low, column)
                self._slab(spot, slab, self._source_b(spot, column), target, f.sub(high, low))
                continue
            with self._tiles(plan.columns, block, (first, end)) as (panel, unit):
                column = f.integer(f.times(unit, plan.unit))
                target = self._b(spot, block[0], panel, column)
                self._pack(spot, self._source_b(spot, column), target, width, edge=edge)

    # -- loops --------------------------------------------------------------------------

    def _bounds(self, counts: tuple[int, int, int]) -> list[tuple[Int, Int]]:
        """Of this chunk: the range along each side of the grid."""
        f, rest = self.f, self.f.arg("chunk")
        bounds: list[tuple[Int, Int]] = []
        for parts, count in zip(self.plan.grid[::-1], counts[::-1], strict=True):
            if parts == 1:
                bounds.append((0, count))
                continue
            size = f.const(I64, parts)
            mine, rest = f.rem(rest, size), f.div(rest, size)
            low = f.div(f.mul(mine, f.const(I64, count)), size)
            more = f.mul(f.add(mine, f.const(I64, 1)), f.const(I64, count))
            bounds.append((low, f.div(more, size)))
        return bounds[::-1]

    def _matrices(self, bufs: list[Val], turn: Val) -> list[Val]:
        """The matrices of one turn of the batch."""
        f, rest = self.f, turn
        places: list[Int] = [0, 0, 0]
        for number, (count, *strides) in enumerate(self.gemm.batch[::-1], start=1):
            last = number == len(self.gemm.batch)
            index = rest if last else f.rem(rest, f.const(I64, count))
            rest = rest if last else f.div(rest, f.const(I64, count))
            places = [
                f.plus(p, f.times(index, s)) for p, s in zip(places, strides, strict=True)
            ]
        return [f.at(b, p, self.gemm.type) for b, p in zip(bufs, places, strict=True)]

    def _start(self, split: Split, tile: Int) -> Int:
        """Where a tile begins: each beyond the large ones is one short."""
        f = self.f
        if split.large == split.count:
            return f.times(tile, split.size)
        whole = f.lesser(tile, split.large)
        return f.plus(f.times(tile, split.size - 1), whole)

    @contextmanager
    def _tiles(
        self, split: Split, block: tuple[Int, Int], run: tuple[int, int]
    ) -> Iterator[tuple[Val, Val]]:
        """Loop over the tiles of a block that are in a run: number, and where it begins."""
        with self._each(*self._within(block, run)) as tile:
            yield self.f.integer(tile), self.f.integer(self._start(split, tile))

    def _within(self, block: tuple[Int, Int], run: tuple[int, int]) -> tuple[Int, Int]:
        """The tiles of a block that are in a run; there may be none."""
        f, (low, high) = self.f, block
        if isinstance(low, int):
            low = max(low, run[0])
        elif run[0]:
            limit = f.const(I64, run[0])
            low = f.select(f.compare("sgt", low, limit), low, limit)
        return low, f.lesser(high, run[1])

    @contextmanager
    def _blocks(self, span: tuple[Int, Int], size: int) -> Iterator[tuple[Int, Int]]:
        """Loop over a range, so many at a time."""
        with self._each(*span, size) as first:
            yield first, self.f.lesser(self.f.plus(first, size), span[1])

    @contextmanager
    def _deep(self, matrices: list[Val], turn: Val) -> Iterator[Spot]:
        """Loop over the blocks of k."""
        f, k, depth = self.f, self.gemm.k, self.plan.depth
        a, b, c = matrices
        with self._each(0, max(k, 1), depth) as first:
            left = f.plus(f.times(first, -1), k)
            yield Spot(a, b, c, turn, f.integer(first), f.integer(f.lesser(left, depth)))

    @contextmanager
    def _each(self, low: Int, high: Int, step: int = 1) -> Iterator[Int]:
        """Loop over a range; a single turn of it is written without one."""
        if isinstance(low, int) and isinstance(high, int) and low < high <= low + step:
            yield low
            return
        with self.f.loop(low, high, step) as loop:
            yield loop.i
