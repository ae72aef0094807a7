"""Matrix products as kernels: any sizes, any strides, batches, an epilogue.

    info = write_gemm(module, "product", Gemm(m, n, k, F32, (k, 1), (n, 1), (n, 1)))

The kernel's buffers are A, B, C, and whatever its epilogue reads or writes beyond. Results
are tiles in registers; operands are read where they are if that is fast, and copied to
dense panels in scratch if not. k is added up in blocks, in order, within one chunk.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm_pack import Pack, Slab, Spill
from retrograd.jit.llvm.gemm_plan import Gemm, Plan, Split, make_plan, wants_swap
from retrograd.jit.llvm.gemm_tile import Dots, Epilogue, Finish, Tile
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.text import I64, PTR, Int, Module, Val

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Epilogue", "Gemm", "write_gemm"]

LONG = 128  # steps of k: rows that the hardware does not call for in time
KERNEL = [("bufs", PTR), ("chunk", I64), ("scratch", PTR)]


def write_gemm(
    module: Module,
    name: str,
    gemm: Gemm,
    *,
    epilogue: Epilogue | None = None,
    apart: bool = False,
    linkage: str = "internal",
) -> KernelInfo:
    """Put a kernel for `gemm` into the module: floats of 32 and 64 bits, integers of any.

    The epilogue is applied once to each result, after all of k; without columns side by
    side, or when lanes had to run along rows, it gets one number at a time. With `apart`, C
    is not touched before: the epilogue may read there what was before, of the same element.
    """
    if not (gemm.m and gemm.n and gemm.products):
        Fn(module, name, KERNEL, linkage=linkage).done()
        return KernelInfo(name, 1, 0, 0, 0)
    swapped = wants_swap(gemm, module.machine.lanes(gemm.size))
    plan = make_plan(gemm.swapped() if swapped else gemm, module.machine, whole=apart)
    f = Fn(module, name, KERNEL, linkage=linkage)
    finish = None
    if epilogue:
        single = swapped or plan.dots or gemm.c[1] != 1
        lanes, tail = (0, 0) if single else (plan.unit, plan.tail)
        tile = ((1, plan.width) if swapped else (plan.width, 1)) if apart else None
        pass_ = Finish(f"{name}_finish", gemm.type, lanes, tail, gemm.c, tile)
        finish = pass_.write(module, epilogue)
    _Writer(f, plan, finish, swapped=swapped, apart=apart and epilogue is not None).write()
    return KernelInfo(name, prod(plan.grid), plan.scratch, gemm.flops, gemm.bytes)


@dataclass(frozen=True)
class _Spot:
    """Where in the product the code being written is."""

    a: Val  # the matrices of this turn of the batch
    b: Val
    c: Val
    batch: Val
    k: Val  # first step of this block, and their number
    depth: Val


class _Part(NamedTuple):
    """A tile: where it begins, its rows and vectors, whether its last vector is not whole."""

    row: Val
    column: Val
    height: int
    width: int
    edge: bool

    def columns(self, plan: Plan) -> int:
        """Its columns that exist."""
        return self.width * plan.unit - (plan.unit - plan.tail if self.edge else 0)


class _Writer:
    """Writes the loops of a kernel around the functions that do the work."""

    def __init__(
        self, f: Fn, plan: Plan, finish: str | None, *, swapped: bool, apart: bool
    ) -> None:
        self.f, self.plan, self.gemm = f, plan, plan.gemm
        self.finish, self.swapped, self.apart = finish, swapped, apart
        self.spills = not apart and not plan.dots and self.gemm.c[1] != 1
        if self.spills or apart:
            self.tile = f.alloca(self.gemm.type, plan.rows.size * plan.width)

    def write(self) -> None:
        """The whole kernel."""
        f, plan, gemm = self.f, self.plan, self.gemm
        bufs = [f.load(PTR, f.at(f.arg("bufs"), i, I64), 8) for i in range(3)]
        if self.swapped:
            bufs[:2] = bufs[1::-1]
        counts = gemm.products, plan.rows.count, plan.columns.count
        batches, rows, columns = self._bounds(counts)
        with f.loop(*batches) as turn, f.loop(*rows, plan.row_block) as down:
            a, b, c = self._matrices(bufs, turn.i)
            block = down.i, f.lesser(f.plus(down.i, plan.row_block), rows[1])
            with f.loop(0, max(gemm.k, 1), plan.depth) as deep:
                left = f.sub(f.const(I64, gemm.k), deep.i)
                depth = f.integer(f.lesser(plan.depth, left))
                spot = _Spot(a, b, c, turn.i, deep.i, depth)
                self._deep(spot, block, columns)
        f.done()

    def _deep(self, spot: _Spot, rows: tuple[Int, Int], columns: tuple[Int, Int]) -> None:
        """One block of rows and of k: row by row, or panel by panel of B."""
        f, plan = self.f, self.plan
        if not plan.across:
            for first, end, width, edge in plan.columns.segments(edge=bool(plan.tail)):
                with self._tiles(plan.columns, columns, (first, end)) as (_, unit):
                    column = f.integer(f.times(unit, plan.unit))
                    self._down(spot, rows, column, (width, edge))
            return
        if plan.pack_a:
            self._pack_a(spot, rows)
        with f.loop(*columns, plan.column_block) as across:
            part = across.i, f.lesser(f.plus(across.i, plan.column_block), columns[1])
            if plan.pack_b and not plan.keeps:
                self._pack_b(spot, part)
            self._across(spot, rows, part)

    def _down(
        self, spot: _Spot, rows: tuple[Int, Int], column: Val, kind: tuple[int, bool]
    ) -> None:
        """All tiles of a block that read the same columns of B; the first may pack them."""
        f, plan, (width, edge) = self.f, self.plan, kind
        source = self._source_b(spot, column)
        b = f.at(f.arg("scratch"), plan.room_a, self.gemm.type) if plan.pack_b else source
        if plan.pack_b and not plan.keeps:
            self._pack(spot, source, b, width, edge=edge)
        for low, high, height, _ in plan.rows.segments():
            with self._tiles(plan.rows, rows, (low, high)) as (tile, row):
                a, c = self._source_a(spot, row), self._c(spot, row, column)
                part = _Part(row, column, height, width, edge)
                self._either(spot, (a, b, c), part, source, (tile, rows[0]))

    def _across(self, spot: _Spot, rows: tuple[Int, Int], columns: tuple[Int, Int]) -> None:
        """All tiles of a block, row by row: what they read of A stays in the first cache."""
        f, plan = self.f, self.plan
        wides = plan.columns.segments(edge=bool(plan.tail))
        for low, high, height, _ in plan.rows.segments():
            with self._tiles(plan.rows, rows, (low, high)) as (tile, row):
                a = self._a(rows[0], tile) if plan.pack_a else self._source_a(spot, row)
                for first, end, width, edge in wides:
                    with self._tiles(plan.columns, columns, (first, end)) as (panel, unit):
                        column = f.integer(f.times(unit, plan.unit))
                        b = self._b(spot, columns[0], panel, column)
                        part = _Part(row, column, height, width, edge)
                        at = a, b, self._c(spot, row, column)
                        source = self._source_b(spot, column)
                        self._either(spot, at, part, source, (tile, rows[0]))

    # -- tiles --------------------------------------------------------------------------

    def _either(
        self,
        spot: _Spot,
        at: tuple[Val, Val, Val],
        part: _Part,
        source: Val,
        turn: tuple[Val, Int],
    ) -> None:
        """Compute and finish a tile; the first of a block's rows may have to pack B."""
        f, (a, b, c) = self.f, at
        if not self.plan.keeps:
            self._tile(spot, at, part)
        else:
            now, first = turn[0], f.integer(turn[1])
            with f.when(f.compare("eq", now, first)):
                self._tile(spot, (a, source, c), part, panel=b)
            with f.when(f.compare("ne", now, first)):
                self._tile(spot, at, part)
        self._finished(spot, c, part)

    def _tile(
        self, spot: _Spot, at: tuple[Val, Val, Val], part: _Part, panel: Val | None = None
    ) -> None:
        """Compute one tile; if there is a panel, leave there what it reads of B."""
        f, plan, gemm = self.f, self.plan, self.gemm
        a, b, c = at
        name = self._function(part, keep=panel is not None)
        to = [panel] if panel else []
        where = self.tile if self.spills or self.apart else c
        more = f.const(I64, 0) if self.spills or self.apart else self._more(spot)
        f.call(name, None, a, b, where, spot.depth, more, *to)
        if self.spills:
            sizes = [f.const(I64, part.height), f.const(I64, part.columns(plan))]
            spill = Spill(gemm.type, plan.width, gemm.c).write(f.module)
            f.call(spill, None, self.tile, c, *sizes, self._more(spot))

    def _more(self, spot: _Spot) -> Val:
        """1 if there are results of earlier blocks of k."""
        f = self.f
        return f.convert("zext", f.compare("ne", spot.k, f.const(I64, 0)), I64)

    def _finished(self, spot: _Spot, c: Val, part: _Part) -> None:
        """The epilogue, after the last block of k."""
        if not self.finish:
            return
        f = self.f
        end = f.add(spot.k, f.const(I64, self.plan.depth))
        with f.when(f.compare("sge", end, f.const(I64, self.gemm.k))):
            self._finish(c, spot.batch, part)

    def _function(self, part: _Part, *, keep: bool) -> str:
        """The function that computes such a tile."""
        plan, gemm, t = self.plan, self.gemm, self.gemm.type
        height, width = part.height, part.width
        if plan.dots:
            strides = gemm.a[0], gemm.b[1], (plan.width, 1) if self.apart else gemm.c
            return Dots(t, height, width, gemm.k, *strides).write(self.f.module)
        packed = plan.pack_b and not keep
        a = (1, plan.height) if plan.pack_a else gemm.a
        b = width * plan.unit if packed else gemm.b[0]
        inside = self.spills or self.apart
        c = plan.width if inside else gemm.c[0]
        tail = plan.tail if part.edge else 0
        tails = 0 if packed else tail, 0 if inside else tail
        ahead = not plan.pack_a and a[1] == 1 and gemm.k >= LONG
        fetch = plan.fetch and not inside
        tile = Tile(t, height, width, a, b, c, *tails, ahead, fetch, keep)
        return tile.write(self.f.module)

    def _finish(self, c: Val, batch: Val, part: _Part) -> None:
        """Apply the epilogue to a tile."""
        f, plan = self.f, self.plan
        if not (self.swapped or self.spills or plan.dots):
            sizes = part.height, part.width - part.edge, int(part.edge)
        elif self.swapped:
            sizes = part.columns(plan), part.height, 0
        else:
            sizes = part.height, part.columns(plan), 0
        at = part.row, part.column
        row, column = at[::-1] if self.swapped else at
        assert self.finish
        numbers = [f.const(I64, s) for s in sizes]
        numbers += [self.tile] if self.apart else []
        f.call(self.finish, None, f.arg("bufs"), c, batch, row, column, *numbers)

    # -- operands -----------------------------------------------------------------------

    def _a(self, first: Int, tile: Val) -> Val:
        """The panel of A for a tile, of a block that begins with tile `first`."""
        f, plan = self.f, self.plan
        skip = f.sub(tile, f.integer(first))
        return f.at(f.arg("scratch"), f.times(skip, plan.height * plan.depth), self.gemm.type)

    def _b(self, spot: _Spot, first: Int, panel: Val, column: Val) -> Val:
        """Columns of B for a tile: a panel of a block that begins with `first`, if packed."""
        f, plan = self.f, self.plan
        if not plan.pack_b:
            return self._source_b(spot, column)
        skip = f.times(f.sub(panel, f.integer(first)), plan.width * plan.depth)
        return f.at(f.arg("scratch"), f.plus(skip, plan.room_a), self.gemm.type)

    def _c(self, spot: _Spot, row: Val, column: Val) -> Val:
        f, gemm = self.f, self.gemm
        place = f.plus(f.times(row, gemm.c[0]), f.times(column, gemm.c[1]))
        return f.at(spot.c, place, gemm.type)

    def _pack(self, spot: _Spot, source: Val, target: Val, size: int, *, edge: bool) -> None:
        """Copy columns of B to a panel."""
        f, gemm, plan = self.f, self.gemm, self.plan
        width = size * plan.unit
        count = width - plan.unit + plan.tail if edge else width
        odd = gemm.k % f.machine.lanes(gemm.size)
        pack = Pack(gemm.type, width, count, gemm.b[::-1], odd).write(f.module)
        f.call(pack, None, source, target, spot.depth)

    def _source_a(self, spot: _Spot, row: Val) -> Val:
        f, (down, deep) = self.f, self.gemm.a
        place = f.plus(f.times(row, down), f.times(spot.k, deep))
        return f.at(spot.a, place, self.gemm.type)

    def _source_b(self, spot: _Spot, column: Val) -> Val:
        f, (deep, across) = self.f, self.gemm.b
        place = f.plus(f.times(column, across), f.times(spot.k, deep))
        return f.at(spot.b, place, self.gemm.type)

    def _pack_a(self, spot: _Spot, block: tuple[Int, Int]) -> None:
        """Copy a block of A to panels, one for each tile."""
        f, gemm, plan = self.f, self.gemm, self.plan
        odd = gemm.k % f.machine.lanes(gemm.size)
        for low, high, height, _ in plan.rows.segments():
            if gemm.a[0] == 1:
                room = plan.height * plan.depth
                slab = Slab(gemm.type, plan.height, height, gemm.a[1], room).write(f.module)
                self._slab(slab, spot, block, (low, high))
                continue
            pack = Pack(gemm.type, plan.height, height, gemm.a, odd).write(f.module)
            with self._tiles(plan.rows, block, (low, high)) as (tile, row):
                target = self._a(block[0], tile)
                f.call(pack, None, self._source_a(spot, row), target, spot.depth)

    def _slab(
        self, name: str, spot: _Spot, block: tuple[Int, Int], run: tuple[int, int]
    ) -> None:
        """Copy the tiles of a block that are in a run: all of a row before the next."""
        f, split = self.f, self.plan.rows
        first, end = map(f.integer, self._within(block, run))
        row = f.integer(self._start(split, first))
        source, target = self._source_a(spot, row), self._a(block[0], first)
        f.call(name, None, source, target, spot.depth, f.sub(end, first))

    def _pack_b(self, spot: _Spot, block: tuple[Int, Int]) -> None:
        """Copy a block of B to panels."""
        f, plan = self.f, self.plan
        for first, end, width, edge in plan.columns.segments(edge=bool(plan.tail)):
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
        with self.f.loop(*self._within(block, run)) as loop:
            yield loop.i, self.f.integer(self._start(split, loop.i))

    def _within(self, block: tuple[Int, Int], run: tuple[int, int]) -> tuple[Int, Int]:
        """The tiles of a block that are in a run; there may be none."""
        f, (low, high) = self.f, block
        if isinstance(low, int):
            low = max(low, run[0])
        elif run[0]:
            limit = f.const(I64, run[0])
            low = f.select(f.compare("sgt", low, limit), low, limit)
        return low, f.lesser(high, run[1])
