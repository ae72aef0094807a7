"""The kernels of cofactors: det(x) inv(x)^T, or another way where x is nearly singular."""

from __future__ import annotations

from functools import cache, reduce
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.lu_complete import room_for_cofactors, write_cofactors
from retrograd.jit.llvm.lu_kernels import InvKernels
from retrograd.jit.llvm.lu_values import write_determinant
from retrograd.jit.llvm.text import F64, I64, PTR, Module, Val
from retrograd.jit.llvm.triangle_pack import dealt
from retrograd.ops.decompose.determinant import GOOD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.lu_tiny import Group
    from retrograd.jit.llvm.triangle_stages import Places
    from retrograd.jit.llvm.triangle_tile import Panels

__all__ = ["CofactorsKernels"]

TINY = 4  # rows of matrices whose minors are written out


class CofactorsKernels(InvKernels):
    """Cofactors: the transpose is what is inverted."""

    turned = True
    check = False
    tiny = TINY
    stages = ("begin", "turn", "result", "finish")

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Float64: digits are lost where a matrix is nearly singular."""
        return super().takes(op, specs) and specs[0].dtype.name == "float64"

    def more(self) -> dict[str, int]:
        """Sums of magnitudes, and memory for the other way."""
        other = room_for_cofactors(self.writer.machine, self.s.n)
        return super().more() | {"sums": 16 * self.panels, "det": 64} | other

    def lanes(self, at: Places, g: Group, n: int, strides: tuple[int, ...]) -> None:
        """Of a few rows: polynomials, which do not mind what is singular."""
        f, all_rows = g.f, range(n)
        a = g.read(at["x"], strides[0], (n, n))
        odd = reduce(f.add, [f.sub(x, x) for row in a for x in row])  # 0, or nan for all

        @cache
        def minor(rows: tuple[int, ...], columns: tuple[int, ...]) -> Val:
            if not rows:
                return g.number(1)
            total = None
            for k, j in enumerate(columns):
                rest = minor(rows[1:], columns[:k] + columns[k + 1 :])
                x = a[rows[0]][j]
                x = f.neg(x) if k % 2 else x
                total = f.fma(x, rest, total) if total else f.mul(x, rest)
            assert total
            return total

        def element(i: int, j: int) -> Val:
            without = [tuple(r for r in all_rows if r != skip) for skip in (i, j)]
            x = minor(*without)
            return f.add(f.neg(x) if (i + j) % 2 else x, odd)

        g.write([[element(i, j) for j in all_rows] for i in all_rows], at["out"], strides[1])

    def result(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """Solve some panels, and add up magnitudes in rows of x and of its inverse."""
        s, first = self.s, f.compare("eq", chunk, f.const(I64, 0))
        bounds = self.mine(f, chunk, chunks)
        self.upward(f, at, bounds)
        largest = write_largest(f.module, s, self.width)
        with f.loop(*bounds) as loop:
            spot = f.at(at["sums"], f.times(loop.i, 2), F64)
            f.call(largest, None, at["x"], self.side(f, at, loop.i), spot, loop.i)
        with f.when(first):
            name = write_determinant(f.module, s, logarithm=False)
            f.call(name, None, at["low"], at["pivots"], at["det"])

    def finish(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """Write what was found, or find it another way."""
        good = self.good(f, at)
        det = f.load(F64, at["det"])
        with f.when(good), dealt(f, 0, self.panels, chunk, chunks) as q:
            side = self.side(f, at, q)
            lanes = self.writer.machine.lanes(8)
            with f.loop(0, self.s.rows * self.width, lanes) as loop:
                spot = f.at(side, loop.i, F64)
                f.store(f.mul(f.load(F64.by(lanes), spot), f.splat(det, lanes)), spot)
            self.move(f, {**at, "panel": side}, q, out=True)
        other = f.bitwise("xor", good, f.const(good.type, 1))
        mine = f.bitwise("and", other, f.compare("eq", chunk, f.const(I64, 0)))
        with f.when(mine):
            name = write_cofactors(f.module, self.s.n)
            room = room_for_cofactors(self.writer.machine, self.s.n)
            f.call(name, None, at["x"], at["out"], *(at[n] for n in room))

    def good(self, f: Fn, at: Places) -> Val:
        """Whether the condition number is small."""
        with f.loop(0, self.panels, carry=[f.zero(F64)] * 2) as loop:
            spots = [f.at(at["sums"], f.plus(f.times(loop.i, 2), n), F64) for n in (0, 1)]
            pairs = zip(loop.carry, spots, strict=True)
            loop.next = [f.maximum(x, f.load(F64, spot)) for x, spot in pairs]
        return f.compare("olt", f.mul(*loop.results), f.const(F64, GOOD))


def write_largest(module: Module, s: Panels, width: int) -> str:
    """(x, side, sums, q): of panel q of the inverse's transpose, and as many rows of x.

    The largest sums of magnitudes: in columns of the panel, and in rows of x.
    """
    name = f"lu_largest_{s.n}_{width}"
    return module.once(name, lambda: _write_largest(module, name, s, width))


def _write_largest(module: Module, name: str, s: Panels, width: int) -> None:
    args = [("x", PTR), ("side", PTR), ("sums", PTR), ("q", I64)]
    f = Fn(module, name, args, attributes="nounwind noinline")
    lanes = module.machine.lanes(8)
    wide, none = F64.by(lanes), f.zero(F64)
    with f.loop(0, width, lanes, carry=[f.zero(wide)]) as across:
        column = f.at(f.arg("side"), across.i, F64)
        with f.loop(0, s.n, carry=[f.zero(wide)]) as down:
            x = f.load(wide, f.at(column, f.times(down.i, width), F64))
            down.next = [f.add(down.carry[0], f.intrinsic("fabs", x))]
        across.next = [f.maximum(down.results[0], across.carry[0])]
    f.store(f.fold("maximum", across.results[0]), f.at(f.arg("sums"), 1, F64))
    first = f.integer(f.times(f.arg("q"), width))
    end = f.lesser(f.plus(first, width), s.n)
    whole = s.n // lanes * lanes
    with f.loop(first, end, carry=[none]) as down:
        row = f.at(f.arg("x"), f.times(down.i, s.n), F64)
        with f.loop(0, whole, lanes, carry=[f.zero(wide)]) as across:
            x = f.intrinsic("fabs", f.load(wide, f.at(row, across.i, F64)))
            across.next = [f.add(across.carry[0], x)]
        with f.loop(whole, s.n, carry=[f.fold("add", across.results[0])]) as rest:
            x = f.intrinsic("fabs", f.load(F64, f.at(row, rest.i, F64)))
            rest.next = [f.add(rest.carry[0], x)]
        down.next = [f.maximum(rest.results[0], down.carry[0])]
    f.store(down.results[0], f.arg("sums"))
    f.done()
