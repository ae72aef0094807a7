"""One turn of a recurrence as a kernel: a product with the same matrix, and then a cell.

Rows of the turn's operand are multiplied by a matrix that was packed before the first turn.
Tiles of the product go from registers to scratch, and from there through the cell, which has
all gates of a few units at once: a turn needs its threads to meet only at its end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm_tile import Tile, store_some
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.recurrent_cut import KERNEL, Cut, Sizes, bounds
from retrograd.jit.llvm.recurrent_spot import Cell, Spot
from retrograd.jit.llvm.text import I8, I64, PTR, Int, Module, Val

if TYPE_CHECKING:
    from retrograd.jit.llvm.gemm_plan import Split

__all__ = ["write_turn"]

CELL = [("bufs", PTR), ("tile", PTR), ("sums", PTR)]
NUMBERS = ("row", "rows", "unit")


def write_turn(
    module: Module, name: str, cut: Cut, s: Sizes, cell: Cell, *, turns: int
) -> KernelInfo:
    """The kernel of one turn: (packed matrix, the cell's buffers, number of the turn)."""
    f = Fn(module, name, KERNEL)
    w = Spot(f, s, cell.names)
    products = _products(f, w, cut, cell)
    cells = _write_cells(module, name, cut, s, cell)
    ahead = _write_ahead(module, f"{name}_ahead", cut, s, cell) if cell.ahead else ""
    down, across = cut.grid
    part = f.div(f.arg("chunk"), f.const(I64, across))
    panels = bounds(f, f.rem(f.arg("chunk"), f.const(I64, across)), across, cut.panels)
    tiles = bounds(f, part, down, cut.rows.count)
    sums = f.arg("scratch")
    if cell.sums:
        sums = f.at(w.base("sums"), f.times(part, s.kept * s.width), s.type)
    with f.loop(*panels) as panel:
        unit = f.integer(f.times(panel.i, cut.each * cut.lanes))
        for low, high, height, _ in cut.rows.segments():
            with f.loop(_most(f, tiles[0], low), f.lesser(tiles[1], high)) as tile:
                spot = f.integer(_start(f, cut.rows, tile.i)), f.const(I64, height)
                if ahead:
                    f.call(ahead, None, f.arg("bufs"), sums, sums, *spot, unit)
                for product in products:
                    product.write(f, panel.i, spot[0], height)
                _cells(f, cut, cells, sums, panel.i, spot)
    f.done()
    each = 2 * s.batch * s.width * cut.gates * sum(p.cut.depth for p in products)
    moved = cut.packed + s.batch * s.width * (s.kept + 4) * s.size
    scratch = cut.scratch * len(products)
    return KernelInfo(name, down * across, scratch, each * turns, moved * turns)


@dataclass(frozen=True)
class Product:
    """Rows times a packed matrix, into scratch."""

    cut: Cut
    rows: Val
    stride: int
    depth: Val
    packed: Val
    out: Val

    def write(self, f: Fn, panel: Val, row: Val, height: int) -> None:
        """All gates of a panel's units."""
        cut, t = self.cut, self.cut.type
        a = f.at(self.rows, f.times(row, self.stride), t)
        matrix = f.at(self.packed, f.times(panel, cut.depth * cut.columns), t)
        wide = cut.tile * cut.lanes
        tile = Tile(t, height, cut.tile, (self.stride, 1), wide, cut.columns).write(f.module)
        for j in range(0, cut.columns // cut.lanes, cut.tile):
            b = f.at(matrix, j * cut.depth * cut.lanes, t)
            c = f.at(self.out, j * cut.lanes, t)
            f.call(tile, None, a, b, c, self.depth, f.const(I64, 0))


def _products(f: Fn, w: Spot, cut: Cut, cell: Cell) -> list[Product]:
    """The product with the state or the blame, and that with the inputs if it is fused."""
    packed, scratch = f.load(PTR, f.arg("bufs"), 8), f.arg("scratch")
    found = [Product(cut, *cell.operand(w), packed, scratch)]
    if cell.fused:
        rows, matrix = cell.inputs(w)
        other, beyond = replace(cut, depth=w.s.inputs), f.at(scratch, cut.scratch, I8)
        deep = f.const(I64, w.s.inputs)
        found.append(Product(other, rows, w.s.inputs, deep, matrix, beyond))
    return found


def _most(f: Fn, a: Int, b: int) -> Int:
    if isinstance(a, int):
        return max(a, b)
    limit = f.const(I64, b)
    return f.select(f.compare("sgt", a, limit), a, limit)


def _start(f: Fn, split: Split, tile: Val) -> Int:
    """Where a tile begins: each beyond the large ones is one short."""
    if split.large == split.count:
        return f.times(tile, split.size)
    return f.plus(f.times(tile, split.size - 1), f.lesser(tile, split.large))


def _cells(
    f: Fn, cut: Cut, cells: tuple[str, str], sums: Val, panel: Val, rows: tuple[Val, Val]
) -> None:
    """Every block of a panel through the cell; the last may have fewer units."""
    first = f.integer(f.times(panel, cut.each))
    with f.loop(0, f.lesser(cut.each, f.sub(f.const(I64, cut.blocks), first))) as loop:
        block = f.add(first, loop.i)
        tile = f.at(f.arg("scratch"), f.times(loop.i, cut.gates * cut.lanes), cut.type)
        unit = f.integer(f.times(block, cut.lanes))
        given = [f.arg("bufs"), tile, f.at(sums, unit, cut.type), *rows, unit]
        whole, tail = cells
        if whole == tail:
            f.call(whole, None, *given)
        else:
            last = f.const(I64, cut.blocks - 1)
            for name, word in ((whole, "ne"), (tail, "eq")):
                with f.when(f.compare(word, block, last)):
                    f.call(name, None, *given)


def _write_cells(module: Module, name: str, cut: Cut, s: Sizes, cell: Cell) -> tuple[str, str]:
    """The cell's function for whole vectors, and the one for the last."""
    tail = s.width % cut.lanes
    if not tail:
        whole = _write_cell(module, f"{name}_cell", cut, s, cell, 0)
        return whole, whole
    last = _write_cell(module, f"{name}_tail", cut, s, cell, tail)
    if cut.blocks == 1:
        return last, last
    return _write_cell(module, f"{name}_cell", cut, s, cell, 0), last


def _write_cell(module: Module, name: str, cut: Cut, s: Sizes, cell: Cell, valid: int) -> str:
    args = [*CELL, *((n, I64) for n in NUMBERS)]
    f = Fn(module, name, args, attributes="nounwind noinline")
    w = Spot(f, s, cell.names, valid)
    cell.begin(w)
    totals = [f.at(f.arg("sums"), i * s.width, s.type) for i in range(cell.sums)]
    with f.loop(0, f.arg("rows"), carry=[f.zero(w.t)] * cell.sums) as loop:
        row = f.at(f.arg("tile"), f.times(loop.i, cut.columns), s.type)
        z = [f.load(w.t, f.at(row, g * cut.lanes, s.type)) for g in range(cut.gates)]
        if cell.fused:
            row = f.at(row, cut.scratch, I8)
            spots = [f.at(row, g * cut.lanes, s.type) for g in range(cut.gates)]
            w.given = [f.load(w.t, at) for at in spots]
        loop.next = cell.row(w, loop.i, z, list(loop.carry))
    for x, at in zip(loop.results, totals, strict=True):
        store_some(f, f.add(w.some(at), x), at, valid)
    return f.done()


def _write_ahead(module: Module, name: str, cut: Cut, s: Sizes, cell: Cell) -> str:
    """Call for what a cell will read and write, while the product is made.

    Rows of a step are far apart, so that no hardware would see them coming.
    """
    args = [*CELL, *((n, I64) for n in NUMBERS)]
    f = Fn(module, name, args, attributes="nounwind noinline")
    w = Spot(f, s, cell.names)
    cell.begin(w)
    module.declare("llvm.prefetch.p0", "void", "ptr, i32, i32, i32")
    with f.loop(0, f.arg("rows")) as loop:
        for found, stride, gates in w.far:
            for gate in range(gates):
                skip = f.plus(f.times(loop.i, stride), gate * s.width)
                for block in range(cut.each):
                    at = f.at(w.found[found], f.plus(skip, block * cut.lanes), s.type)
                    f.emit(f"call void @llvm.prefetch.p0({at}, i32 0, i32 3, i32 1)")
    return f.done()
