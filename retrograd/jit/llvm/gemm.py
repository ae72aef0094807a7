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
from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm_pack import Block, Pack, Spill
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
    linkage: str = "internal",
) -> KernelInfo:
    """Put a kernel for `gemm` into the module: floats of 32 and 64 bits, integers of any.

    The epilogue is applied once to each result, after all of k; without columns side by
    side, or when lanes had to run along rows, it gets one number at a time.
    """
    if not (gemm.m and gemm.n and gemm.products):
        Fn(module, name, KERNEL, linkage=linkage).done()
        return KernelInfo(name, 1, 0, 0, 0)
    swapped = wants_swap(gemm, module.machine.lanes(gemm.size))
    plan = make_plan(gemm.swapped() if swapped else gemm, module.machine)
    f = Fn(module, name, KERNEL, linkage=linkage)
    finish = None
    if epilogue:
        whole = swapped or plan.dots or gemm.c[1] != 1
        lanes, tail = (0, 0) if whole else (plan.unit, plan.tail)
        pass_ = Finish(f"{name}_finish", gemm.type, lanes, tail, gemm.c)
        finish = pass_.write(module, epilogue)
    _Writer(f, plan, finish, swapped=swapped).write()
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
    rows: Val  # first row of this block


class _Writer:
    """Writes the loops of a kernel around the functions that do the work."""

    def __init__(self, f: Fn, plan: Plan, finish: str | None, *, swapped: bool) -> None:
        self.f, self.plan, self.gemm = f, plan, plan.gemm
        self.finish, self.swapped = finish, swapped
        self.spills = not plan.dots and self.gemm.c[1] != 1
        if self.spills:
            self.tile = f.alloca(self.gemm.type, plan.rows.size * plan.columns.size * plan.unit)

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
            top = f.integer(self._start(plan.rows, block[0]))
            with f.loop(0, max(gemm.k, 1), plan.depth) as deep:
                left = f.sub(f.const(I64, gemm.k), deep.i)
                depth = f.integer(f.lesser(plan.depth, left))
                spot = _Spot(a, b, c, turn.i, deep.i, depth, top)
                self._deep(spot, block, columns)
        f.done()

    def _deep(self, spot: _Spot, rows: tuple[Int, Int], columns: tuple[Int, Int]) -> None:
        """One block of rows and of k: A is read from near, B panel by panel."""
        f, plan = self.f, self.plan
        if plan.pack_a:
            self._pack_a(spot, rows)
        for first, end, width, edge in plan.columns.segments(edge=bool(plan.tail)):
            with self._tiles(plan.columns, columns, (first, end)) as unit:
                column = f.integer(f.times(unit, plan.unit))
                b = self._b(spot, column, width, edge=edge)
                for low, high, height, _ in plan.rows.segments():
                    with self._tiles(plan.rows, rows, (low, high)) as row:
                        self._tile(spot, b, (row, column), (height, width), edge)

    # -- tiles --------------------------------------------------------------------------

    def _tile(
        self,
        spot: _Spot,
        b: Val,
        at: tuple[Val, Val],
        shape: tuple[int, int],
        edge: bool,  # noqa: FBT001
    ) -> None:
        """Compute one tile, and finish it after the last block of k."""
        f, plan, gemm = self.f, self.plan, self.gemm
        (row, column), t = at, gemm.type
        a = self._a(spot, row)
        place = f.plus(f.times(row, gemm.c[0]), f.times(column, gemm.c[1]))
        c = f.at(spot.c, place, t)
        more = f.convert("zext", f.compare("ne", spot.k, f.const(I64, 0)), I64)
        name = self._function(shape, edge=edge)
        if self.spills:
            f.call(name, None, a, b, self.tile, spot.depth, f.const(I64, 0))
            wide = shape[1] * plan.unit
            taken = wide - plan.unit + plan.tail if edge else wide
            sizes = [f.const(I64, shape[0]), f.const(I64, taken)]
            spill = Spill(t, wide, gemm.c).write(f.module)
            f.call(spill, None, self.tile, c, *sizes, more)
        else:
            f.call(name, None, a, b, c, spot.depth, more)
        if self.finish:
            end = f.add(spot.k, f.const(I64, plan.depth))
            with f.when(f.compare("sge", end, f.const(I64, gemm.k))):
                self._finish(c, spot.batch, at, shape, edge)

    def _function(self, shape: tuple[int, int], *, edge: bool) -> str:
        """The function that computes such a tile."""
        plan, gemm, t = self.plan, self.gemm, self.gemm.type
        height, width = shape
        if plan.dots:
            strides = gemm.a[0], gemm.b[1], gemm.c
            return Dots(t, height, width, gemm.k, *strides).write(self.f.module)
        a = (1, plan.panel) if plan.pack_a else gemm.a
        b = width * plan.unit if plan.pack_b else gemm.b[0]
        c = width * plan.unit if self.spills else gemm.c[0]
        tail = plan.tail if edge else 0
        tails = 0 if plan.pack_b else tail, 0 if self.spills else tail
        ahead = not plan.pack_a and a[1] == 1 and gemm.k >= LONG
        return Tile(t, height, width, a, b, c, *tails, ahead).write(self.f.module)

    def _finish(
        self,
        c: Val,
        batch: Val,
        at: tuple[Val, Val],
        shape: tuple[int, int],
        edge: bool,  # noqa: FBT001
    ) -> None:
        """Apply the epilogue to a tile."""
        f, plan = self.f, self.plan
        height, width = shape
        vectors = self.finish and not (self.swapped or self.spills or plan.dots)
        if vectors:
            sizes = height, width - edge, int(edge)
        else:
            columns = width * plan.unit - (plan.unit - plan.tail if edge else 0)
            sizes = (columns, height, 0) if self.swapped else (height, columns, 0)
        row, column = at[::-1] if self.swapped else at
        assert self.finish
        numbers = [f.const(I64, s) for s in sizes]
        f.call(self.finish, None, f.arg("bufs"), c, batch, row, column, *numbers)

    # -- operands -----------------------------------------------------------------------

    def _a(self, spot: _Spot, row: Val) -> Val:
        f, plan, gemm = self.f, self.plan, self.gemm
        if plan.pack_a:
            return f.at(f.arg("scratch"), f.sub(row, spot.rows), gemm.type)
        return self._source_a(spot, row)

    def _b(self, spot: _Spot, column: Val, size: int, *, edge: bool) -> Val:
        """Columns of B for a tile, packed or not."""
        f, gemm, plan = self.f, self.gemm, self.plan
        source = self._source_b(spot, column)
        if not plan.pack_b:
            return source
        width = size * plan.unit
        count = width - plan.unit + plan.tail if edge else width
        odd = gemm.k % f.machine.lanes(gemm.size)
        pack = Pack(gemm.type, width, count, gemm.b[::-1], odd).write(f.module)
        target = f.at(f.arg("scratch"), plan.panel * plan.depth, gemm.type)
        f.call(pack, None, source, target, spot.depth)
        return target

    def _source_a(self, spot: _Spot, row: Val) -> Val:
        f, (down, deep) = self.f, self.gemm.a
        place = f.plus(f.times(row, down), f.times(spot.k, deep))
        return f.at(spot.a, place, self.gemm.type)

    def _source_b(self, spot: _Spot, column: Val) -> Val:
        f, (deep, across) = self.f, self.gemm.b
        place = f.plus(f.times(column, across), f.times(spot.k, deep))
        return f.at(spot.b, place, self.gemm.type)

    def _pack_a(self, spot: _Spot, block: tuple[Int, Int]) -> None:
        f, gemm, plan = self.f, self.gemm, self.plan
        copy = Block(gemm.type, plan.panel, gemm.a[1]).write(f.module)
        rows = f.sub(f.integer(self._start(plan.rows, block[1])), spot.rows)
        source = self._source_a(spot, spot.rows)
        f.call(copy, None, source, f.arg("scratch"), spot.depth, rows)

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
    ) -> Iterator[Val]:
        """Loop over the tiles of a block that are in a run; where each begins."""
        with self.f.loop(*self._within(block, run)) as loop:
            yield self.f.integer(self._start(split, loop.i))

    def _within(self, block: tuple[Int, Int], run: tuple[int, int]) -> tuple[Int, Int]:
        """The tiles of a block that are in a run; there may be none."""
        f, (low, high) = self.f, block
        if isinstance(low, int):
            low = max(low, run[0])
        elif run[0]:
            limit = f.const(I64, run[0])
            low = f.select(f.compare("sgt", low, limit), low, limit)
        return low, f.lesser(high, run[1])
