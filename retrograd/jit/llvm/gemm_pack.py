"""Copy parts of matrices to where tiles read them fast, and results to where they belong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm_tile import AHEAD, load_some, prefetch
from retrograd.jit.llvm.text import I64, PTR, Module, Type, Val

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Pack", "Slab", "Spill", "transposed"]

NEXT = 4  # rows from the one that is read whole to the one that is called for


@dataclass(frozen=True)
class Pack:
    """A dense panel [k][width], `count` of whose lanes exist: (source, target, depth).

    target[k * width + lane] is source[lane * strides[0] + k * strides[1]]; zeros elsewhere.
    """

    type: Type
    width: int
    count: int
    strides: tuple[int, int]  # of lanes and of k, in the source
    odd: int  # steps of k in the last block beyond whole vectors

    @property
    def name(self) -> str:
        """One for each set of fields."""
        shape = f"{self.type.suffix}_{self.width}_{self.count}"
        return f"gemm_pack_{shape}_{self.strides[0]}_{self.strides[1]}_{self.odd}"

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        return module.once(self.name, lambda: self._write(module))

    def _write(self, module: Module) -> None:
        args = [("source", PTR), ("target", PTR), ("depth", I64)]
        f = Fn(module, self.name, args, attributes="nounwind noinline")
        if self.strides[0] == 1:
            self._copy(f)
        elif self.strides[1] == 1 and self.type.bits >= 32:
            self._transpose(f)
        else:
            self._one_by_one(f)
        f.done()

    def _lanes(self, f: Fn) -> int:
        """Of a vector: all that the machine has, or those of a narrow panel."""
        return min(self.width, f.machine.lanes(self.type.bits // 8))

    def _copy(self, f: Fn) -> None:
        """Lanes are side by side in the source."""
        t = self.type.by(self._lanes(f))
        ends = [f.arg("source"), f.arg("target")]
        with f.loop(0, f.arg("depth"), carry=ends) as loop:
            source, target = loop.carry
            for at in range(0, self.width, t.lanes):
                x = load_some(f, t, f.at(source, at, t), min(t.lanes, self.count - at))
                f.store(x, f.at(target, at, t))
            for at in range(0, self.count, 512 // self.type.bits):
                prefetch(f, f.at(source, AHEAD * self.strides[1] + at, t), near=False)
            loop.next = [f.at(source, self.strides[1], t), f.at(target, self.width, t)]

    def _transpose(self, f: Fn) -> None:
        """Steps of k are side by side in the source: blocks, by a network of shuffles."""
        lanes, depth = self._lanes(f), f.arg("depth")
        with f.loop(0, f.sub(depth, f.const(I64, lanes - 1)), lanes) as loop:
            self._block(f, loop.i, lanes)
        if self.odd % lanes:
            rest = f.bitwise("and", depth, f.const(I64, lanes - 1))
            with f.when(f.compare("ne", rest, f.const(I64, 0))):
                self._block(f, f.sub(depth, rest), self.odd % lanes)

    def _block(self, f: Fn, k: Val, steps: int) -> None:
        """One vector of k, for all lanes of a panel."""
        lanes, t = self._lanes(f), self.type
        source = f.at(f.arg("source"), k, t)
        target = f.at(f.arg("target"), f.times(k, self.width), t)
        whole = self.count // lanes * lanes
        if whole:
            with f.loop(0, whole, lanes) as loop:
                here = f.at(source, f.times(loop.i, self.strides[0]), t)
                self._square(f, here, f.at(target, loop.i, t), lanes, steps)
        if whole < self.count:
            here = f.at(source, whole * self.strides[0], t)
            self._square(f, here, f.at(target, whole, t), self.count - whole, steps)

    def _square(self, f: Fn, source: Val, target: Val, valid: int, steps: int) -> None:
        """One vector by one vector: `valid` lanes exist, `steps` of k."""
        lanes = self._lanes(f)
        short = min(lanes, 128 // self.type.bits)  # what shuffles are cheap within
        for first in range(0, steps, short):
            have = min(short, steps - first)
            rows = [
                self._row(f, source, (range(g, lanes, short), valid), first, have)
                for g in range(short)
            ]
            for n, x in enumerate(transposed(f, rows, short)[:have]):
                f.store(x, f.at(target, (first + n) * self.width, self.type))

    def _row(self, f: Fn, source: Val, rows: tuple[range, int], first: int, have: int) -> Val:
        """Pieces of every short-th row, one after another in a vector."""
        short = self.type.by(min(rows[0].step, rows[0].stop))
        pieces = [
            load_some(f, short, f.at(source, r * self.strides[0] + first, short), have)
            if r < rows[1]
            else f.zero(short)
            for r in rows[0]
        ]
        while len(pieces) > 1:
            size = 2 * pieces[0].type.lanes
            pieces = [
                f.shuffle(a, b, range(size))
                for a, b in zip(pieces[::2], pieces[1::2], strict=True)
            ]
        return pieces[0]

    def _one_by_one(self, f: Fn) -> None:
        t = self.type
        with f.loop(0, f.arg("depth")) as loop:
            source = f.at(f.arg("source"), f.times(loop.i, self.strides[1]), t)
            target = f.at(f.arg("target"), f.times(loop.i, self.width), t)
            with f.loop(0, self.count) as lane:
                x = f.load(t, f.at(source, f.times(lane.i, self.strides[0]), t))
                f.store(x, f.at(target, lane.i, t))
            with f.loop(self.count, self.width) as lane:
                f.store(f.zero(t), f.at(target, lane.i, t))


def transposed(f: Fn, rows: Sequence[Val], short: int) -> list[Val]:
    """Squares of `short` side by side, each transposed: interleave halves until done."""
    rows, lanes, turn = list(rows), rows[0].type.lanes, 1
    if short == lanes == 16:
        return _sixteen(f, rows)
    while turn < short:
        half = short // 2
        both = []
        for i in range(half):
            for high in (0, half):
                picks = [
                    at + high + n // 2 + (lanes if n % 2 else 0)
                    for at in range(0, lanes, short)
                    for n in range(short)
                ]
                both.append(f.shuffle(rows[i], rows[i + half], picks))
        rows, turn = both, turn * 2
    return rows


def _sixteen(f: Fn, rows: list[Val]) -> list[Val]:
    """A square of 16, by shuffles that stay in quarters and others that move whole quarters."""
    quarters = range(0, 16, 4)
    low, high = [0, 16, 1, 17], [2, 18, 3, 19]  # numbers of a and of b by turns
    for gap in (1, 2):
        for i in (i for i in range(16) if not i & gap):
            both = rows[i], rows[i + gap]
            rows[i], rows[i + gap] = (
                f.shuffle(*both, [q + p for q in quarters for p in picks])
                for picks in (low, high)
            )
        low, high = [0, 1, 16, 17], [2, 3, 18, 19]  # then pairs
    even, odd = [0, 8, 16, 24], [4, 12, 20, 28]  # quarters of a, then of b
    for gap in (4, 8):
        for i in (i for i in range(16) if not i & gap):
            both = rows[i], rows[i + gap]
            rows[i], rows[i + gap] = (
                f.shuffle(*both, [q + n for q in picks for n in range(4)])
                for picks in (even, odd)
            )
    return [rows[q + n] for q in quarters for n in (0, 2, 1, 3)]


@dataclass(frozen=True)
class Slab:
    """Panels side by side, filled row by row: (source, target, depth, count).

    What is a Pack for each of `count` panels of `lanes`, but reads each row of the source as a
    whole: rows that are far apart are then read once.
    """

    type: Type
    width: int  # of a panel
    lanes: int  # of a panel that exist
    stride: int  # of k, in the source; lanes are side by side
    panel: int  # elements from one panel to the next

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        shape = f"{self.type.suffix}_{self.width}_{self.lanes}_{self.stride}_{self.panel}"
        name = f"gemm_slab_{shape}"
        return module.once(name, lambda: self._write(module, name))

    def _write(self, module: Module, name: str) -> None:
        args = [("source", PTR), ("target", PTR), ("depth", I64), ("count", I64)]
        f = Fn(module, name, args, attributes="nounwind noinline")
        t = self.type.by(min(self.width, f.machine.lanes(self.type.bits // 8)))
        ends = [f.arg("source"), f.arg("target")]
        with f.loop(0, f.arg("depth"), carry=ends) as loop:
            rows = list(loop.carry)
            with f.loop(0, f.arg("count"), carry=rows) as across:
                source, target = across.carry
                for at in range(0, self.width, t.lanes):
                    have = min(t.lanes, self.lanes - at)
                    x = load_some(f, t, f.at(source, at, t), have) if have > 0 else f.zero(t)
                    f.store(x, f.at(target, at, t))
                for at in range(0, self.lanes, 512 // self.type.bits):
                    prefetch(f, f.at(source, NEXT * self.stride + at, t), near=f.machine.told)
                across.next = [f.at(source, self.lanes, t), f.at(target, self.panel, t)]
            loop.next = [f.at(rows[0], self.stride, t), f.at(rows[1], self.width, t)]
        f.done()


@dataclass(frozen=True)
class Spill:
    """A dense tile, put where columns are not side by side: (tile, c, rows, columns, more)."""

    type: Type
    width: int
    c: tuple[int, int]

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        name = f"gemm_spill_{self.type.suffix}_{self.width}_{self.c[0]}_{self.c[1]}"
        return module.once(name, lambda: self._write(module, name))

    def _write(self, module: Module, name: str) -> None:
        numbers = ["rows", "columns", "more"]
        args = [("tile", PTR), ("c", PTR), *((n, I64) for n in numbers)]
        f = Fn(module, name, args, attributes="nounwind noinline")
        t = self.type
        adds = f.compare("ne", f.arg("more"), f.const(I64, 0))
        with f.loop(0, f.arg("rows")) as down, f.loop(0, f.arg("columns")) as across:
            inside = f.plus(f.times(down.i, self.width), across.i)
            x = f.load(t, f.at(f.arg("tile"), inside, t))
            spot = f.plus(f.times(down.i, self.c[0]), f.times(across.i, self.c[1]))
            at = f.at(f.arg("c"), spot, t)
            f.store(f.select(adds, f.add(f.load(t, at), x), x), at)
        f.done()
