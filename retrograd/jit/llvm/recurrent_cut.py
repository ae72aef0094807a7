"""How a recurrence is cut: tiles for the registers, panels for the caches, chunks for threads.

Its matrix is packed once, before the first turn, in the order in which tiles read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm_pack import Pack
from retrograd.jit.llvm.gemm_plan import MOST_CHUNKS, Split
from retrograd.jit.llvm.gemm_tile import load_some
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.text import I64, PTR, Int, Module, Type, Val

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.llvm.machine import Machine

__all__ = ["KERNEL", "Cut", "Sizes", "bounds", "write_pack"]

KERNEL = [("bufs", PTR), ("chunk", I64), ("scratch", PTR)]
WORK = 17  # bits: multiplications and additions in a chunk that are worth a thread


@dataclass(frozen=True)
class Sizes:
    """A recurrent layer: how long, how wide, which way."""

    steps: int
    batch: int
    inputs: int
    width: int  # units
    gates: int  # columns of the weights, in widths
    kept: int  # columns of what a step keeps for backward, in widths
    backwards: bool
    type: Type
    length: Type  # of the lengths
    signed: bool
    relu: bool = False

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return self.type.bits // 8

    @property
    def stride(self) -> int:
        """Between rows of blame: a line more than its columns, for the sake of cache sets."""
        return self.kept * self.width + 64 // self.size


@dataclass(frozen=True)
class Cut:
    """How the products of all turns are cut: panels of columns, tiles of rows, chunks."""

    type: Type
    lanes: int
    rows: Split
    depth: int
    blocks: int  # vectors of units
    each: int  # such blocks in a panel
    gates: int  # vectors of columns for each block
    tile: int  # vectors of columns in a tile
    grid: tuple[int, int]  # chunks along rows and panels

    @classmethod
    def of(cls, machine: Machine, s: Sizes, gates: int, depth: int) -> Cut:
        """The tiles that registers and sizes suit best."""
        lanes = machine.lanes(s.size)
        blocks, best = ceil(s.width / lanes), None
        choices = (
            [(1, 2 if gates == 4 else gates)] if gates > 1 else [(n, n) for n in (2, 3, 1)]
        )
        for each, tile in choices:
            most = (machine.registers - 1 - tile) // tile
            rows = Split.of(s.batch, min(most, 12))
            cost = ceil(blocks / each) * gates * each / tile * _cost(rows, tile)
            if best is None or cost < best[0]:
                best = cost, each, tile, rows
        assert best is not None
        _, each, tile, rows = best
        grid = _grid(rows.count, ceil(blocks / each), 2 * s.batch * s.width * gates * depth)
        return cls(s.type, lanes, rows, depth, blocks, each, gates, tile, grid)

    @property
    def panels(self) -> int:
        """Panels of columns."""
        return ceil(self.blocks / self.each)

    @property
    def columns(self) -> int:
        """Numbers in a row of a panel."""
        return self.each * self.gates * self.lanes

    @property
    def packed(self) -> int:
        """Bytes of all panels."""
        return self.panels * self.depth * self.columns * self.type.bits // 8

    @property
    def scratch(self) -> int:
        """Bytes for a tile of all gates."""
        return self.rows.size * self.columns * self.type.bits // 8


def _cost(rows: Split, vectors: int) -> float:
    """Cycles for each step of depth: multiplications, loads, latency."""
    return sum(
        (end - first) * max(height * vectors / 2, (height + vectors) / 2, 4)
        for first, end, height, _ in rows.segments()
    )


def _grid(rows: int, panels: int, flops: int) -> tuple[int, int]:
    """Chunks: of panels first, as each has a part of the matrix to itself."""
    most = max(1, min(MOST_CHUNKS, flops >> WORK))
    across = min(panels, most)
    return max(1, min(rows, most // across if across < MOST_CHUNKS // 2 else 1)), across


def bounds(f: Fn, part: Val, parts: int, count: int) -> tuple[Int, Int]:
    """The range of a part of `count` things."""
    if parts == 1:
        return 0, count
    low, high = f.times(part, count), f.times(f.plus(part, 1), count)
    size = f.const(I64, parts)
    return f.div(f.integer(low), size), f.div(f.integer(high), size)


def write_pack(
    module: Module, name: str, cut: Cut, s: Sizes, order: Sequence[int] = ()
) -> KernelInfo:
    """The kernel (matrix, panels): weights for forward, or if `order` for backward.

    Forward, a panel's row has all gates of its units. Backward it is a column of the weights,
    in the `order` of the gates that blame has.
    """
    f = Fn(module, name, KERNEL)
    matrix, panels = (f.load(PTR, f.at(f.arg("bufs"), i, I64), 8) for i in range(2))
    chunks = min(cut.panels, MOST_CHUNKS)
    with f.loop(*bounds(f, f.arg("chunk"), chunks, cut.panels)) as loop:
        target = f.at(panels, f.times(loop.i, cut.depth * cut.columns), s.type)
        tail = s.width - (cut.panels - 1) * cut.each * cut.lanes  # units in the last panel
        full = cut.each * cut.lanes
        write = _turned if order else _gathered
        if tail == full:
            write(f, (matrix, target), loop.i, full, (cut, s, order))
        else:
            last = f.const(I64, cut.panels - 1)
            with f.when(f.compare("ne", loop.i, last)):
                write(f, (matrix, target), loop.i, full, (cut, s, order))
            with f.when(f.compare("eq", loop.i, last)):
                write(f, (matrix, target), loop.i, tail, (cut, s, order))
    f.done()
    return KernelInfo(name, chunks, 0, 0, 2 * cut.packed)


def _gathered(f: Fn, ends: tuple[Val, Val], panel: Val, units: int, how: Any) -> None:
    """Tile after tile, columns of the gates side by side."""
    cut, s, _ = how
    matrix, target = ends
    t = s.type.by(cut.lanes)
    source = f.at(matrix, f.times(panel, cut.each * cut.lanes), s.type)
    across = s.gates * s.width
    with f.loop(0, cut.depth) as loop:
        row = f.at(source, f.times(loop.i, across), s.type)
        for j in range(cut.each * cut.gates):
            block, gate = divmod(j, cut.gates)
            valid = min(cut.lanes, units - block * cut.lanes)
            there = f.at(row, gate * s.width + block * cut.lanes, s.type)
            x = load_some(f, t, there, valid) if valid > 0 else f.zero(t)
            first, within = j // cut.tile * cut.tile, j % cut.tile
            skip = f.plus(f.times(loop.i, cut.tile * cut.lanes), within * cut.lanes)
            f.store(x, f.at(target, f.plus(skip, first * cut.depth * cut.lanes), s.type))


def _turned(f: Fn, ends: tuple[Val, Val], panel: Val, units: int, how: Any) -> None:
    """Rows of the weights are the columns of a panel: transpose, gate by gate."""
    cut, s, order = how
    matrix, target = ends
    across = s.gates * s.width
    source = f.at(matrix, f.times(panel, cut.each * cut.lanes * across), s.type)
    odd = s.width % cut.lanes
    pack = Pack(s.type, cut.columns, units, (across, 1), odd).write(f.module)
    for i, gate in enumerate(order):
        here = f.at(source, gate * s.width, s.type)
        there = f.at(target, i * s.width * cut.columns, s.type)
        f.call(pack, None, here, there, f.const(I64, s.width))
