"""Triangles in panels: what substitution, factoring and their derivatives are made of.

A square matrix is cut into panels of `block` columns, each dense: [rows][block]. It is padded
with zeros to whole blocks, so that tiles know no edges. With coefficients p, row r of a
solution is x[r] = (c[r] - sum over s of p[s, r] * x[s]) / p[r, r]: s before r if substitution
goes forward, after it if not. Lanes run along x, rows of a tile stay in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm_plan import Split
from retrograd.jit.llvm.text import I64, PTR, Int, Module, Type, Val

if TYPE_CHECKING:
    from retrograd.jit.llvm.machine import Machine

__all__ = ["BACK", "FORWARD", "UPDATE", "Panels", "Strip", "write_root", "write_rows"]

BLOCK = 32  # columns of a panel
MOST_ROWS = 14  # of a tile
DEPTH = 128  # products that are added up before they are taken off
UPDATE, FORWARD, BACK = 0, 1, -1  # subtract products alone; then solve, one way or the other


@dataclass(frozen=True)
class Panels:
    """A square matrix of n rows in panels of `block` columns."""

    type: Type
    n: int
    block: int

    @classmethod
    def of(cls, machine: Machine, n: int, t: Type) -> Panels:
        """As wide as pays: whole vectors, and no wider than the matrix."""
        lanes = machine.lanes(t.bits // 8)
        return cls(t, n, min(BLOCK, ceil(n / lanes) * lanes))

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return self.type.bits // 8

    @property
    def count(self) -> int:
        """How many panels."""
        return ceil(self.n / self.block)

    @property
    def rows(self) -> int:
        """Rows with those of padding."""
        return self.count * self.block

    @property
    def tail(self) -> int:
        """Columns of the last panel that exist; 0: all."""
        return self.n % self.block

    @property
    def half(self) -> int:
        """Numbers in the panels of a triangle."""
        return self.block**2 * self.count * (self.count + 1) // 2

    @property
    def whole(self) -> int:
        """Numbers in the panels of a square."""
        return self.rows**2

    def rising(self, f: Fn, j: Int) -> Int:
        """Where panel j begins if each goes from the first row to its diagonal."""
        both = f.times(j, f.plus(j, 1))  # even
        return f.times(both, self.block**2 // 2)

    def falling(self, f: Fn, j: Int) -> Int:
        """Where panel j begins if each goes from its diagonal to the last row."""
        left = f.plus(f.times(j, -1), 2 * self.count + 1)
        return f.times(f.times(j, left), self.block**2 // 2)

    def full(self, f: Fn, j: Int) -> Int:
        """Where panel j begins if each has all rows."""
        return f.times(j, self.rows * self.block)

    def below(self, f: Fn, j: Int) -> Int:
        """Rows after those of block j."""
        return f.plus(f.times(j, -self.block), self.rows - self.block)


@dataclass(frozen=True)
class Strip:
    """A tile: (p, x, c, t, depth) subtracts p[k, r] * x[k] from row r of c; then may solve.

    `t` is the tile's own triangle, in the panel of p.
    """

    type: Type
    rows: int
    vectors: int
    p: int  # strides of rows
    x: int
    order: int
    unit: bool = False  # the diagonal counts as ones

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        shape = f"{self.type.suffix}_{self.rows}x{self.vectors}_{self.p}_{self.x}"
        kind = {UPDATE: "update", FORWARD: "forward", BACK: "back"}[self.order]
        name = f"triangle_strip_{shape}_{kind}{self.unit:d}"
        return module.once(name, lambda: self._write(module, name))

    def _write(self, module: Module, name: str) -> None:
        pointers = [(n, PTR) for n in ("p", "x", "c", "t")]
        f = Fn(module, name, [*pointers, ("depth", I64)], attributes="nounwind noinline")
        lanes = module.machine.lanes(self.type.bits // 8)
        t = self.type.by(lanes)
        spots = [
            f.at(f.arg("c"), r * self.x + v * lanes, t)
            for r in range(self.rows)
            for v in range(self.vectors)
        ]
        # Sums of some products first, and those taken off: less is lost to rounding.
        with f.loop(0, f.arg("depth"), DEPTH, carry=[f.arg("p"), f.arg("x")]) as part:
            left = f.sub(f.arg("depth"), part.i)
            zeros = [f.zero(t)] * len(spots)
            with f.loop(0, f.lesser(left, DEPTH), carry=[*part.carry, *zeros]) as loop:
                p, x, *sums = loop.carry
                across = [f.load(t, f.at(x, v * lanes, t)) for v in range(self.vectors)]
                for r in range(self.rows):
                    by = f.splat(f.load(self.type, f.at(p, r, t)), lanes)
                    for v, y in enumerate(across):
                        n = r * self.vectors + v
                        sums[n] = f.fma(by, y, sums[n])
                loop.next = [f.at(p, self.p, t), f.at(x, self.x, t), *sums]
            part.next = loop.results[:2]
            for total, at in zip(loop.results[2:], spots, strict=True):
                f.store(f.sub(f.load(t, at), total), at)
        if self.order:
            sums = [f.load(t, at) for at in spots]
            self._solve(f, sums)
            for x, at in zip(sums, spots, strict=True):
                f.store(x, at)
        f.done()

    def _less(self, f: Fn, sums: list[Val], r: int, at: Val, across: list[Val]) -> None:
        """From row r, what the coefficient at a place makes of another row."""
        wide = f.splat(f.load(self.type, at), across[0].type.lanes)
        for v, x in enumerate(across):
            n = r * self.vectors + v
            if f.machine.fma:
                sums[n] = f.fma(f.neg(wide), x, sums[n])
            else:
                sums[n] = f.sub(sums[n], f.mul(wide, x))

    def _solve(self, f: Fn, sums: list[Val]) -> None:
        """Row after row, each taken off those that come later."""
        rows = list(range(self.rows))[:: self.order]
        for n, r in enumerate(rows):
            mine = slice(r * self.vectors, (r + 1) * self.vectors)
            if not self.unit:
                at = f.at(f.arg("t"), r * self.p + r, self.type)
                pivot = f.splat(f.load(self.type, at), sums[0].type.lanes)
                sums[mine] = [f.div(x, pivot) for x in sums[mine]]
            for later in rows[n + 1 :]:
                at = f.at(f.arg("t"), r * self.p + later, self.type)
                self._less(f, sums, later, at, sums[mine])


def write_rows(module: Module, s: Panels, width: int, order: int, *, unit: bool = False) -> str:
    """A block of rows of x, `width` wide: the name of a function.

    UPDATE: (p, x, c, count), `count` rows of p and of x are multiplied and taken off c.
    FORWARD: (p, x, count), both from their first rows, of which `count` come before the block.
    BACK: (p, x, count), both from the block's first rows, and `count` rows come after it.
    """
    kind = {UPDATE: "update", FORWARD: "forward", BACK: "back"}[order]
    name = f"triangle_rows_{s.type.suffix}_{s.block}_{width}_{kind}{unit:d}"
    return module.once(name, lambda: _write_rows(module, name, s, (width, order, unit)))


def _write_rows(module: Module, name: str, s: Panels, kind: tuple[int, int, bool]) -> None:
    width, order, unit = kind
    names = ("p", "x") if order else ("p", "x", "c")
    args = [*((n, PTR) for n in names), ("count", I64)]
    f = Fn(module, name, args, attributes="nounwind noinline")
    vectors, split = _tile(module.machine, s, width)
    lanes = module.machine.lanes(s.size)
    with f.loop(0, width, vectors * lanes) as across:
        x = f.at(f.arg("x"), across.i, s.type)
        c = x if order else f.at(f.arg("c"), across.i, s.type)
        for first, end, height, _ in split.segments()[:: order or 1]:
            strip = Strip(s.type, height, vectors, s.block, width, order, unit).write(module)
            large = min(first, split.large)
            begin = large * split.size + (first - large) * (split.size - 1)
            with f.loop(0, end - first, down=order == BACK) as tile:
                at = f.integer(f.plus(f.times(tile.i, height), begin))
                f.call(strip, None, *_places(f, s, (x, c), at, height, (width, order)))
    f.done()


def _places(
    f: Fn, s: Panels, xc: tuple[Val, Val], at: Val, height: int, kind: tuple[int, int]
) -> list[Val]:
    """Of the tile that begins with row `at` of a block: what its function is given."""
    (x, c), (width, order), t = xc, kind, s.type
    p, count = f.at(f.arg("p"), at, t), f.arg("count")
    if order == UPDATE:
        return [p, x, f.at(c, f.times(at, width), t), p, count]
    if order == FORWARD:
        row = f.plus(count, at)
        here = f.at(x, f.times(row, width), t)
        return [p, x, here, f.at(p, f.times(row, s.block), t), f.integer(row)]
    after = f.plus(at, height)
    rest = f.sub(f.integer(f.plus(count, s.block)), f.integer(after))
    deep = f.at(p, f.times(after, s.block), t)
    down = f.at(x, f.times(after, width), t)
    own = f.at(p, f.times(at, s.block), t)
    return [deep, down, f.at(x, f.times(at, width), t), own, rest]


def _tile(machine: Machine, s: Panels, width: int) -> tuple[int, Split]:
    """Vectors side by side, and how a block is cut into rows."""
    across = width // machine.lanes(s.size)
    vectors = next(v for v in (2, 3, 1) if not across % v)
    spare = 1 if machine.fma else 2
    most = (machine.registers - spare - vectors) // vectors
    return vectors, Split.of(s.block, min(most, MOST_ROWS))


def write_root(module: Module, s: Panels) -> str:
    """(d, rows): the upper triangle u with u^T u = d, in place; 1 if there is none, else 0."""
    name = f"triangle_root_{s.type.suffix}_{s.block}"
    return module.once(name, lambda: _write_root(module, name, s))


def _write_root(module: Module, name: str, s: Panels) -> None:
    args = [("d", PTR), ("rows", I64)]
    f = Fn(module, name, args, I64, attributes="nounwind noinline")
    t, lanes, d = s.type, module.machine.lanes(s.size), f.arg("d")
    vectors = s.block // lanes
    many = next(v for v in (4, 3, 2, 1) if not vectors % v)
    wide = t.by(lanes)
    with f.loop(0, f.arg("rows"), carry=[f.const(I64, 0)]) as loop:
        row = f.at(d, f.times(loop.i, s.block), t)
        with f.loop(0, s.block, many * lanes) as across:
            spots = [f.at(row, f.plus(across.i, v * lanes), t) for v in range(many)]
            with f.loop(0, loop.i, carry=[f.load(wide, at) for at in spots]) as up:
                above = f.at(d, f.times(up.i, s.block), t)
                by = f.neg(f.splat(f.load(t, f.at(above, loop.i, t)), lanes))
                beside = [f.at(above, f.plus(across.i, v * lanes), t) for v in range(many)]
                pairs = zip(up.carry, beside, strict=True)
                up.next = [f.fma(by, f.load(wide, at), x) for x, at in pairs]
            for x, at in zip(up.results, spots, strict=True):
                f.store(x, at)
        corner = f.at(row, loop.i, t)
        pivot = f.load(t, corner)
        good = f.compare("ogt", pivot, f.zero(t))
        root = f.intrinsic("sqrt", pivot)
        with f.loop(0, s.block, lanes) as across:
            at = f.at(row, across.i, t)
            f.store(f.div(f.load(wide, at), f.splat(root, lanes)), at)
        f.store(root, corner)
        loop.next = [f.select(good, loop.carry[0], f.const(I64, 1))]
    f.done(loop.results[0])
