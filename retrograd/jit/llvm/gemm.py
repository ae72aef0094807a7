"""Matrix products as kernels: any sizes, any strides, batches, an epilogue.

    info = write_gemm(module, "product", Gemm(m, n, k, F32, (k, 1), (n, 1), (n, 1)))

The kernel's buffers are A, B, C, and whatever its epilogue reads or writes beyond. Results
are tiles in registers; operands are read where they are if that is fast, and copied to
dense panels in scratch if not. k is added up in blocks, in order, within one chunk.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod
from typing import Any, NamedTuple

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm_dots import Dots
from retrograd.jit.llvm.gemm_finish import Epilogue, Finish
from retrograd.jit.llvm.gemm_operands import Operands, Spot
from retrograd.jit.llvm.gemm_pack import Spill
from retrograd.jit.llvm.gemm_plan import Gemm, Plan, make_plan, wants_swap
from retrograd.jit.llvm.gemm_tile import Tile
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.text import I8, I64, PTR, Int, Module, Val

__all__ = ["Epilogue", "Gemm", "write_gemm"]

LINE = 64  # bytes of a cache line
LONG = 128  # steps of k: rows that the hardware does not call for in time
SHORT = 32  # steps of k that are written out: of so few, a loop would be a quarter of the work
TWICE = 2  # steps of k in a turn, where what the loop itself takes would be missed
SPARE = 4  # registers beside sums and vectors of b: with fewer, sums of two steps go to memory
KERNEL = [("bufs", PTR), ("chunk", I64), ("scratch", PTR)]


def write_gemm(
    module: Module,
    name: str,
    gemm: Gemm,
    *,
    epilogue: Epilogue | None = None,
    apart: bool = False,
    later: int = 0,
    linkage: str = "internal",
) -> KernelInfo:
    """Put a kernel for `gemm` into the module: floats of 32 and 64 bits, integers of any.

    The epilogue is applied once to each result, after all of k; without columns side by
    side, or when lanes had to run along rows, it gets one number at a time. With `apart`, C
    is not touched before: the epilogue may read there what was before, of the same element.
    With `later`, so many bytes of one more buffer, the last, are called for on the way.
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
    writer = _Writer(f, plan, finish, swapped=swapped, apart=apart and epilogue is not None)
    writer.expect(epilogue, later)
    writer.write()
    return KernelInfo(name, prod(plan.grid), plan.scratch, gemm.flops, gemm.bytes)


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


class _Writer(Operands):
    """Writes the loops of a kernel around the functions that do the work."""

    def __init__(
        self, f: Fn, plan: Plan, finish: str | None, *, swapped: bool, apart: bool
    ) -> None:
        super().__init__(f, plan)
        self.finish, self.swapped, self.apart = finish, swapped, apart
        self.next: list[Val] = []  # what the tile being written calls for
        self.weft: list[Val] = []  # what it packs for the tile below: from, to, steps of k
        self.beside: list[int] = []  # buffers that the epilogue touches where results go
        self.lines = 0  # that each row of a tile calls for of what comes later
        self.later: Val | None = None  # memory of the place in it
        self.spills = not apart and not plan.dots and self.gemm.c[1] != 1
        if self.spills or apart:
            self.tile = f.alloca(self.gemm.type, plan.rows.size * plan.width)

    def expect(self, epilogue: Any, later: int) -> None:
        """See what to call for: what an epilogue touches beside results, and what is next.

        What caches hold need not be called for.
        """
        f, gemm, plan = self.f, self.gemm, self.plan
        if not (self.swapped or plan.dots or self.spills) and plan.fetch:
            found = getattr(epilogue, "beside", ())
            self.beside = [epilogue.operands + i for i, size in found if size == gemm.size]
        if later and not plan.dots:
            _, down, across = plan.grid
            tiles = ceil(plan.rows.count / down) * ceil(plan.columns.count / across)
            tiles *= ceil(gemm.k / plan.depth)
            self.lines = ceil(later / (LINE * tiles * plan.rows.size))
            self.later = f.alloca(PTR, 1)
            last = 3 + len(getattr(epilogue, "buffers", ()))
            f.store(f.load(PTR, f.at(f.arg("bufs"), last, I64), 8), self.later)

    def write(self) -> None:
        """The whole kernel."""
        f, plan, gemm = self.f, self.plan, self.gemm
        bufs = [f.load(PTR, f.at(f.arg("bufs"), i, I64), 8) for i in range(3)]
        if self.swapped:
            bufs[:2] = bufs[1::-1]
        counts = gemm.products, plan.rows.count, plan.columns.count
        batches, rows, columns = self._bounds(counts)
        with f.loop(*batches) as turn:
            matrices = self._matrices(bufs, turn.i)
            if plan.across:
                blocks = self._blocks(columns, plan.column_block)
                with blocks as part, self._deep(matrices, turn.i) as spot:
                    self._wide(spot, rows, part)
            else:
                blocks = self._blocks(rows, plan.row_block)
                with blocks as block, self._deep(matrices, turn.i) as spot:
                    self._high(spot, block, columns)
        f.done()

    def _high(self, spot: Spot, rows: tuple[Int, Int], columns: tuple[Int, Int]) -> None:
        """A block of rows that stays in the second cache: panel by panel of B."""
        f, plan = self.f, self.plan
        for first, end, width, edge in plan.columns.segments(edge=bool(plan.tail)):
            with self._tiles(plan.columns, columns, (first, end)) as (_, unit):
                column = f.integer(f.times(unit, plan.unit))
                self._down(spot, rows, column, (width, edge))

    def _wide(self, spot: Spot, rows: tuple[Int, Int], columns: tuple[Int, Int]) -> None:
        """A block of columns that stays in the second cache: row by row of tiles."""
        plan = self.plan
        if plan.pack_b and not plan.keeps:
            self._pack_b(spot, columns)
        if plan.woven:
            self._across(spot, rows, columns, rows[0])
            return
        with self._blocks(rows, plan.row_block) as block:
            if plan.pack_a:
                self._pack_a(spot, block)
            self._across(spot, block, columns, rows[0])

    def _down(
        self, spot: Spot, rows: tuple[Int, Int], column: Val, kind: tuple[int, bool]
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

    def _across(
        self, spot: Spot, rows: tuple[Int, Int], columns: tuple[Int, Int], top: Int
    ) -> None:
        """All tiles of a block, row by row: what they read of A stays in the first cache."""
        f, plan = self.f, self.plan
        wides = plan.columns.segments(edge=bool(plan.tail))
        share = self._share(spot, columns) if plan.woven else spot.depth
        for low, high, height, _ in plan.rows.segments():
            first, last = self._within(rows, (low, high))
            if plan.woven:  # the others are packed by tiles
                self._pack_a(spot, (first, f.lesser(last, f.plus(first, 1))))
            with self._tiles(plan.rows, rows, (low, high)) as (tile, row):
                a = self._a(rows[0], tile) if plan.pack_a else self._source_a(spot, row)
                for first, end, width, edge in wides:
                    with self._tiles(plan.columns, columns, (first, end)) as (panel, unit):
                        column = f.integer(f.times(unit, plan.unit))
                        b = self._b(spot, columns[0], panel, column)
                        part = _Part(row, column, height, width, edge)
                        turn = (
                            f.sub(tile, f.integer(rows[0])),
                            f.sub(panel, f.integer(columns[0])),
                        )
                        if plan.woven:
                            now = tile, f.integer(last), turn[1]
                            self._weave(spot, now, share, height)
                        else:
                            self.next = self._next(spot, part, turn, rows[1])
                        at = a, b, self._c(spot, row, column)
                        source = self._source_b(spot, column)
                        self._either(spot, at, part, source, (tile, top))

    def _share(self, spot: Spot, columns: tuple[Int, Int]) -> Val:
        """Steps of k that each tile of a row packs for the next row."""
        f = self.f
        panels = f.integer(f.plus(columns[1], f.times(columns[0], -1)))
        more = f.sub(f.add(spot.depth, panels), f.const(I64, 1))
        return f.div(more, panels)

    def _weave(self, spot: Spot, now: tuple[Val, Val, Val], share: Val, height: int) -> None:
        """Say what a tile packs: its share of the rows of the tile below; what it calls for.

        That is the rows below these. Where there are none below, the last are packed again:
        the same numbers to their place.
        """
        f, plan, (tile, end, panel) = self.f, self.plan, now
        assert plan.calls
        down, deep = self.gemm.a
        below, then = (f.lesser(f.plus(tile, n), f.plus(end, -1)) for n in (1, 2))
        k = f.integer(f.lesser(f.mul(panel, share), f.sub(spot.depth, share)))
        to = f.at(self._a(0, f.integer(below)), f.times(k, plan.height), self.gemm.type)
        rows = [
            self._source_a(spot, f.integer(self._start(plan.rows, n))) for n in (below, then)
        ]
        if down == 1:
            skip = f.plus(f.times(k, deep), height - 1)
        else:
            skip = f.times(panel, plan.calls.lines * (LINE // self.gemm.size))
        source = f.at(rows[0], f.times(k, deep), self.gemm.type)
        self.next, self.weft = [f.at(rows[1], skip, self.gemm.type)], [source, to, share]

    def _next(self, spot: Spot, part: _Part, turn: tuple[Val, Val], end: Int) -> list[Val]:
        """Where what a tile calls for begins: the tile's numbers in its block are `turn`."""
        f, plan, calls, (tile, panel) = self.f, self.plan, self.plan.calls, turn
        if calls is None:
            return []
        if self.gemm.a[1] == 1:
            first = f.integer(f.plus(part.row, part.height))
            skip = f.times(panel, calls.lines * (LINE // self.gemm.size))
        else:
            first = f.integer(self._start(plan.rows, end))
            number = f.plus(f.times(tile, plan.column_block), panel)
            skip = f.times(number, calls.runs * calls.stride)
        return [f.at(self._source_a(spot, first), skip, self.gemm.type)]

    # -- tiles --------------------------------------------------------------------------

    def _either(
        self,
        spot: Spot,
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
        self, spot: Spot, at: tuple[Val, Val, Val], part: _Part, panel: Val | None = None
    ) -> None:
        """Compute one tile; if there is a panel, leave there what it reads of B."""
        f, plan, gemm = self.f, self.plan, self.gemm
        a, b, c = at
        name = self._function(part, keep=panel is not None)
        to = [*([panel] if panel else []), *self.next, *self._beside(spot, c), *self._later()]
        to += self.weft
        where = self.tile if self.spills or self.apart else c
        more = f.const(I64, 0) if self.spills or self.apart else self._more(spot)
        f.call(name, None, a, b, where, spot.depth, more, *to)
        if self.spills:
            sizes = [f.const(I64, part.height), f.const(I64, part.columns(plan))]
            spill = Spill(gemm.type, plan.width, gemm.c).write(f.module)
            f.call(spill, None, self.tile, c, *sizes, self._more(spot))

    def _more(self, spot: Spot) -> Val:
        """1 if there are results of earlier blocks of k."""
        f = self.f
        return f.convert("zext", f.compare("ne", spot.k, f.const(I64, 0)), I64)

    def _finished(self, spot: Spot, c: Val, part: _Part) -> None:
        """The epilogue, after the last block of k."""
        if not self.finish:
            return
        with self.f.when(self._last(spot)):
            self._finish(c, spot.batch, part)

    def _beside(self, spot: Spot, c: Val) -> list[Val]:
        """Where what the epilogue will touch beside c begins; before the last block of k, c."""
        if not self.beside:
            return []
        f, last = self.f, self._last(spot)
        start = f.load(PTR, f.at(f.arg("bufs"), 2, I64), 8)
        skip = f.sub(*(f.convert("ptrtoint", p, I64) for p in (c, start)))
        bases = [f.load(PTR, f.at(f.arg("bufs"), i, I64), 8) for i in self.beside]
        return [f.select(last, f.at(base, skip, I8), c) for base in bases]

    def _later(self) -> list[Val]:
        """Where the part begins that a tile calls for of what another kernel reads."""
        if self.later is None:
            return []
        f = self.f
        start = f.load(PTR, self.later)
        f.store(f.at(start, self.lines * self.plan.rows.size * LINE, I8), self.later)
        return [start]

    def _last(self, spot: Spot) -> Val:
        """Whether a block of k is the last one."""
        f = self.f
        end = f.add(spot.k, f.const(I64, self.plan.depth))
        return f.compare("sge", end, f.const(I64, self.gemm.k))

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
        frugal = self.f.machine.frugal
        ahead = not (plan.pack_a or frugal) and a[1] == 1 and gemm.k >= LONG
        fetch = plan.fetch and not inside
        beside = (len(self.beside), gemm.c[0]) if self.beside else (0, 0)
        flags = ahead, fetch, keep
        calls = (plan.calls,) if plan.calls else ()
        few = gemm.k if gemm.k <= min(SHORT, plan.depth) and not keep else 0
        soon = plan.pack_a and self.f.machine.told
        spread = self.f.machine.spreads and bool(few) and width == 1 and a[1] == 1
        shape = t, height, width, a, b, c
        tile = Tile(*shape, *tails, *flags, calls, beside, self.lines, depth=few, soon=soon)
        if plan.woven:
            tile = replace(tile, weft=(*gemm.a, plan.height))
        twice = frugal and (soon or self._roomy(height, width))
        tile = replace(tile, spread=spread, turns=TWICE if twice else 1)
        if few and not spread and plan.follows and self.f.machine.bursts:
            tile = replace(tile, matrix=gemm.batch[-1][2])
        return tile.write(self.f.module)

    def _roomy(self, height: int, width: int) -> bool:
        """Whether LLVM may load early for several steps and still hold all sums."""
        return height * width + width + SPARE <= self.f.machine.registers

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
