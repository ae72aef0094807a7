"""How a matrix product is cut: tiles, blocks for the caches, chunks for the threads.

Everything follows from shapes, strides and the machine, so that bits do too. Its cores only say
how many chunks there are: results are added up in the same order in any.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import ceil, prod
from typing import TYPE_CHECKING

from retrograd.jit.llvm.gemm_tile import Calls

if TYPE_CHECKING:
    from retrograd.jit.llvm.machine import Machine
    from retrograd.jit.llvm.text import Type

__all__ = ["Gemm", "Plan", "Split", "make_plan"]

MOST_CHUNKS = 32
LINE = 64  # bytes of a cache line
MANY = 128  # rows: enough to be worth copying vectors that lie across two lines
FEW = 4  # rows or columns: too few to be worth transposing the other operand
L1, L2 = 32 * 1024, 256 * 1024  # bytes that a panel and a block may take
NEAR = 1 << 20  # bytes of a block of columns that stays in the second cache
ASIDE = NEAR // 2  # bytes of rows that are packed at a time, beside it
DEPTH, DEEP = 256, 384  # steps of k in a block; in one of packed rows
# Rows, columns, steps of k that are read often enough to be packed, and bytes of rows that are
# too many to be read in place; for each vector register, as tiles of few read more often.
LARGE, WIDE = 16, 32 * 1024
SHALLOW, LONG = 64, 512  # steps of k, columns: so few, and so many, that storing is the work
FAR = 1 << 17  # bytes of results that a program of many layers has in no near cache
FLOW = 10  # bytes in a cycle that the second cache gives without making anybody wait
STREAM = 16  # as above, when a matrix is read once: so many rows at a time


@dataclass(frozen=True)
class Gemm:
    """c[..., i, j] = sum over k of a[..., i, k] * b[..., k, j]; strides in elements.

    Strides may be any, so that transposed and sliced operands are nothing special. C may not
    overlap another operand.
    """

    m: int
    n: int
    k: int
    type: Type
    a: tuple[int, int]  # strides of rows and of k
    b: tuple[int, int]  # strides of k and of columns
    c: tuple[int, int]  # strides of rows and of columns
    batch: tuple[tuple[int, int, int, int], ...] = ()  # (count, strides of a, b, c)
    lines: tuple[bool, bool] = (True, True)  # whether a and b surely begin with a cache line

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.type.bits // 8

    @cached_property
    def products(self) -> int:
        """How many matrices come out."""
        return prod(count for count, *_ in self.batch)

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.m * self.n * self.k * self.products

    @property
    def bytes(self) -> int:
        """What must be read and written at least."""
        mats = [(self.m, self.k), (self.k, self.n), (self.m, self.n)]
        total = 0
        for which, shape in enumerate(mats, start=1):
            copies = prod(d[0] for d in self.batch if d[which])
            total += shape[0] * shape[1] * copies
        return total * self.size

    def folded(self) -> Gemm:
        """The same with turns of the batch as more rows, where all read the same b."""
        if not self.batch:
            return self
        *rest, (count, a, b, c) = self.batch
        down = (a, c) if self.m == 1 else (self.a[0], self.c[0])
        if b or (a, c) != (self.m * down[0], self.m * down[1]):
            return self
        rows = (down[0], self.a[1]), self.b, (down[1], self.c[1])
        sizes = self.m * count, self.n, self.k, self.type
        return Gemm(*sizes, *rows, tuple(rest), self.lines).folded()

    def swapped(self) -> Gemm:
        """The same results as C^T = B^T A^T."""
        batch = tuple((count, b, a, c) for count, a, b, c in self.batch)
        a, b, c = self.b[::-1], self.a[::-1], self.c[::-1]
        return Gemm(self.n, self.m, self.k, self.type, a, b, c, batch, self.lines[::-1])

    @property
    def slanted(self) -> bool:
        """Whether vectors of b may lie across two cache lines."""
        return not self.lines[1] or bool(self.b[0] * self.size % LINE)


@dataclass(frozen=True)
class Split:
    """A length in `count` pieces: `large` ones of `size`, then ones that are one less."""

    size: int
    large: int
    count: int

    @classmethod
    def of(cls, length: int, most: int) -> Split:
        """As even as can be, with pieces of at most `most`."""
        count = max(1, ceil(length / most))
        size, large = divmod(length, count)
        return cls(size + 1, large, count) if large else cls(size, count, count)

    def segments(self, *, edge: bool = False) -> list[tuple[int, int, int, bool]]:
        """(first, end, size, is the edge) of runs of equal pieces; the edge runs alone."""
        cuts = [(0, self.large, self.size), (self.large, self.count, self.size - 1)]
        runs = [(*cut, False) for cut in cuts if cut[0] < cut[1]]
        if edge:
            first, end, size, _ = runs.pop()
            runs += [(first, end - 1, size, False)] if end - first > 1 else []
            runs.append((end - 1, end, size, True))
        return runs


@dataclass(frozen=True)
class Plan:
    """A way to compute a Gemm."""

    gemm: Gemm
    rows: Split  # in rows
    columns: Split  # in units
    unit: int  # columns in a unit: the lanes of a vector, or 1 for inner products
    pack_a: bool
    pack_b: bool
    depth: int  # steps of k in a block
    row_block: int  # tiles in a block
    column_block: int  # panels of B in a block
    grid: tuple[int, int, int]  # chunks along batch, rows, columns
    woven: bool = False  # whether tiles pack what the next row of tiles reads of A

    @property
    def dots(self) -> bool:
        """Whether lanes run along k."""
        return self.unit == 1

    @property
    def tail(self) -> int:
        """Columns in the last unit; 0: all."""
        return self.gemm.n % self.unit

    @property
    def across(self) -> bool:
        """Whether tiles go row by row: A is packed, or little is added up and much stored."""
        return self.pack_a or (not self.dots and self.gemm.k <= SHALLOW and self.gemm.n >= LONG)

    @property
    def keeps(self) -> bool:
        """Whether the first tile of a block packs B as it goes: B is dense along columns."""
        return self.pack_b and self.gemm.b[1] == 1 and (self.woven or not self.pack_a)

    @property
    def fetch(self) -> bool:
        """Whether results are so many that they may have to come from afar to be written."""
        return self.gemm.m * self.gemm.n * self.gemm.size >= FAR

    @property
    def calls(self) -> Calls | None:
        """What tiles call for: each a part of the rows of A that are packed next."""
        if not self.pack_a:
            return None
        line, (down, deep) = LINE // self.gemm.size, self.gemm.a
        if self.woven and down == 1:  # of each step of k the last line: others were called for
            runs = ceil(self.depth / self.fewest / self.rows.size)
            return Calls(runs * deep, 1, runs, deep)
        if deep == 1:  # of the next tile's rows, so many lines beside each panel of B
            return Calls(down, ceil(self.depth / line / self.column_block))
        lines = ceil(self.row_block * self.rows.size / line / self.rows.size)
        steps = ceil(self.depth / (self.row_block * self.column_block))
        return Calls(lines * line, lines, steps, deep)  # of the next block's, some steps of k

    @property
    def fewest(self) -> int:
        """Panels of B in the smallest block."""
        count, parts, most = self.columns.count, self.grid[2], self.column_block
        chunks = {count * (n + 1) // parts - count * n // parts for n in range(parts)}
        return min(size % most or most for size in chunks)

    @property
    def weaves(self) -> bool:
        """Whether the tiles of a row can pack the next, a number of each row with each step."""
        depths = {self.depth, self.gemm.k % self.depth or self.depth}
        most = self.fewest
        return self.pack_a and all(ceil(d / most) <= d // self.rows.size for d in depths)

    @property
    def follows(self) -> bool:
        """Whether each matrix of a batch begins where the one before it ends, without gaps."""
        gemm, sizes = self.gemm, (self.gemm.m, self.gemm.k, self.gemm.n)
        packed = self.pack_a or self.pack_b
        if not gemm.batch or packed or self.columns.count > 1 or self.tail:
            return False
        (m, k, n), (_, *apart) = sizes, gemm.batch[-1]
        dense = (gemm.a, gemm.b, gemm.c) == ((k, 1), (n, 1), (n, 1))
        return dense and tuple(apart) == (m * k, k * n, m * n)

    @property
    def height(self) -> int:
        """Rows in a panel of packed A: those of a tile, in whole or half vectors."""
        half = max(1, self.unit // 2)
        if self.rows.size <= half:
            return half
        return ceil(self.rows.size / self.unit) * self.unit

    @property
    def width(self) -> int:
        """Columns in a panel of packed B."""
        return self.columns.size * self.unit

    @property
    def room_a(self) -> int:
        """Elements of scratch for A."""
        tiles = min(self.row_block, ceil(self.rows.count / self.grid[1])) + self.woven
        return tiles * self.height * self.depth if self.pack_a else 0

    @property
    def scratch(self) -> int:
        """Bytes of scratch for a thread."""
        panels = min(self.column_block, ceil(self.columns.count / self.grid[2]))
        columns = self.width * (panels if self.across else 1) if self.pack_b else 0
        return (self.room_a + columns * self.depth) * self.gemm.size


def wants_swap(gemm: Gemm, lanes: int) -> bool:
    """Whether C^T = B^T A^T is the better problem: its columns are dense, or there are more."""
    if gemm.c[1] != 1 and gemm.c[0] == 1 and gemm.m > 1:
        return True
    narrow = gemm.n * 2 <= lanes and gemm.n < gemm.m
    return narrow and (gemm.a[0] == 1 or gemm.n == 1) and not wants_dots(gemm, lanes)


def wants_dots(gemm: Gemm, lanes: int) -> bool:
    """Whether lanes should run along k: one operand is thin, both are dense along k."""
    dense = gemm.a[1] == 1 and gemm.b[0] == 1 and gemm.k >= lanes
    return dense and min(gemm.m, gemm.n) <= FEW


def make_plan(gemm: Gemm, machine: Machine, *, whole: bool = False) -> Plan:
    """The tiles, blocks and chunks of a problem with m, n >= 1; `whole`: one block of k."""
    lanes = machine.lanes(gemm.size)
    if wants_dots(gemm, lanes):
        rows, columns = Split.of(gemm.m, FEW), Split.of(gemm.n, 8 if gemm.m == 1 else FEW)
        plan = Plan(gemm, rows, columns, 1, False, False, gemm.k, 1, 1, (1, 1, 1))
        return _blocked(plan, machine)
    a, b = _packs(gemm, machine.registers)
    rows, columns = _tiles(gemm, lanes, machine, packed=a)
    width = (ceil(rows.size / lanes) if a else columns.size) * lanes
    depth = max(1, gemm.k) if whole else _depth(gemm, width, a=a, b=b)
    plan = Plan(gemm, rows, columns, lanes, a, b, depth, 1, 1, (1, 1, 1))
    return _blocked(plan, machine)


def _depth(gemm: Gemm, width: int, *, a: bool, b: bool) -> int:
    """Steps of k in a block: all, or even parts in whole vectors."""
    most = DEEP if a else DEPTH
    if a or b:
        most = min(most, L1 // (width * gemm.size))
    if gemm.m <= FEW and gemm.b[1] == 1 and gemm.k * gemm.n * gemm.size > 2 * L2:
        most = STREAM
    if gemm.k <= (most if a else most * 3 // 2):
        return max(gemm.k, 1)
    return ceil(gemm.k / ceil(gemm.k / most) / 16) * 16


def _packs(gemm: Gemm, registers: int) -> tuple[bool, bool]:
    """Which operands are copied to dense panels: what caches do not hold, or read in halves."""
    large, wide = LARGE * registers, WIDE * registers
    b = gemm.k * abs(gemm.b[0]) * gemm.size > 2 * L2 and gemm.m > 2 * FEW
    b = b or (gemm.slanted and gemm.m >= MANY)
    a = max(gemm.m * gemm.a[0], gemm.k * gemm.a[1]) * gemm.size > wide and gemm.n >= 128
    if gemm.a[0] == 1:
        a = a and (gemm.m >= large or gemm.n < large)
    else:
        a = a and gemm.a[1] == 1 and min(gemm.m, gemm.n, gemm.k) >= large
    return a, b or a or gemm.b[1] != 1


def _tiles(gemm: Gemm, lanes: int, machine: Machine, *, packed: bool) -> tuple[Split, Split]:
    """The tile that registers and sizes suit best."""
    spare = 1 if machine.fma else 2
    vectors, best = ceil(gemm.n / lanes), None
    # High tiles read many rows at once: not if these are far apart, in the same cache sets.
    near = packed or gemm.m * gemm.k * gemm.size <= L1
    for width in range(1, 5 if gemm.m > FEW else 9):
        most = (machine.registers - spare - width) // width
        for height in range(1, min(most, gemm.m, 30) + 1):
            rows, columns = Split.of(gemm.m, height), Split.of(vectors, width)
            # A's panel stays in the first cache, B's come from the second.
            flow = width * machine.vector_bytes / FLOW if packed else 0
            cost = _cost(rows, columns, min(gemm.k, DEPTH), flow)
            cost *= 1 if near or rows.size <= 8 else 1.06
            if best is None or cost < best[0]:
                best = cost, rows, columns
    assert best is not None
    return best[1], best[2]


def _cost(rows: Split, columns: Split, depth: int, flow: float) -> float:
    """Cycles of all tiles: multiplications, loads, latency; a call, its rows and stores."""
    total = 0.0
    for first, end, height, _ in rows.segments():
        for left, right, width, _ in columns.segments():
            step = max(height * width / 2, (height + width) / 2, 4, flow)
            each = depth * step + 12 + height * (width + 3)
            total += (end - first) * (right - left) * each
    return total


def _blocked(plan: Plan, machine: Machine) -> Plan:
    """With chunks, and blocks that fit the caches."""
    plan = replace(plan, grid=_grid(plan, machine.cores))
    down, across = L2, L2
    if plan.pack_a:  # of rows that are dense along k, each tile's when its turn comes
        down, across = ASIDE if plan.gemm.a[0] == 1 else 0, NEAR
    step = max(1, plan.depth * plan.gemm.size)
    rows = _even(ceil(plan.rows.count / plan.grid[1]), down // (step * plan.rows.size))
    columns = _even(ceil(plan.columns.count / plan.grid[2]), across // (step * plan.width))
    plan = replace(plan, row_block=rows, column_block=columns)
    # Beside multiply-adds of whole lines cores have time for more; frugal ones have not.
    idle = machine.masks and not machine.frugal
    return replace(plan, row_block=1, woven=True) if idle and plan.weaves else plan


def _even(count: int, most: int) -> int:
    """Tiles in a block, such that blocks are alike; most may be exceeded by a quarter."""
    return ceil(count / max(1, ceil(count / max(1, most * 5 // 4))))


UNEVEN = 0.05  # of a chunk: how much later one of two equal threads is done
THREADS = ((1, 3), (2, 6), (4, 2), (8, 0.5), (16, 0.1))  # how many, and how much they count


def _grid(plan: Plan, cores: int) -> tuple[int, int, int]:
    """Chunks along batch, rows, columns: even for many threads, little packed twice."""
    gemm = plan.gemm
    sides = gemm.products, plan.rows.count, plan.columns.count
    most = max(1, min(MOST_CHUNKS, max(gemm.flops >> 17, gemm.bytes >> 15)))
    i, j, k = (range(1, min(side, most) + 1) for side in sides)
    grids = [g for g in product(i, j, k) if prod(g) <= most]
    threads = [(p, weight) for p, weight in THREADS if p <= max(cores, 2)]
    return min(grids, key=lambda g: (_time(plan, g, threads), prod(g)))


def _time(plan: Plan, grid: tuple[int, int, int], threads: list[tuple[int, float]]) -> float:
    """What a grid costs: cycles of all threads until the last is done."""
    gemm, lanes = plan.gemm, plan.unit
    batch = ceil(gemm.products / grid[0])
    m = ceil(plan.rows.count / grid[1]) * plan.rows.size
    n = ceil(plan.columns.count / grid[2]) * plan.columns.size * lanes
    speed = 1 / (2 * max(lanes, 8))
    a = m * gemm.k * 0.15
    if plan.pack_a:  # once for each block of columns
        a = m * gemm.k * 1.5 * ceil(n * plan.depth * gemm.size / NEAR)
    b = n * gemm.k * (1.4 if plan.pack_a else 0.5 if plan.pack_b and not plan.keeps else 0.2)
    chunk = batch * (m * n * (gemm.k * speed + 0.1) + a + b) + 1000
    chunks = prod(grid)
    turns = {p: ceil(chunks / p) + (UNEVEN if p > 1 else 0) for p, _ in threads}
    return sum(weight * p * turns[p] * chunk for p, weight in threads)
