"""Right-hand sides of systems: their columns in panels, and back."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from retrograd.jit.llvm.conv_chunks import parted
from retrograd.jit.llvm.text import I64, Int, Val
from retrograd.jit.llvm.triangle_pack import Lines, kinds
from retrograd.jit.llvm.triangle_stages import Staged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.triangle_stages import Places
    from retrograd.jit.llvm.triangle_tile import Panels

__all__ = ["Sides", "stacked"]


class Sides(Staged):
    """Kernels with panels of right-hand sides."""

    s: Panels
    m: int  # columns of a matrix
    columns: int  # of all that are solved for at once
    width: int  # of a panel
    gathers: bool = False  # columns come from several matrices

    @property
    def panels(self) -> int:
        """Panels of one right-hand side."""
        return ceil(self.columns / self.width)

    def move(self, f: Fn, at: Places, k: Val, *, out: bool) -> None:
        """Columns of a right-hand side to a panel, or back."""
        if self.gathers:
            self._gather(f, at, k, out=out)
            return
        w, t, panel = self.width, self.type, at["panel"]
        side = f.at(at["out" if out else "x2"], f.times(k, w), t)
        for columns in kinds(f, k, self.columns, w):
            if out:
                lines, ends = Lines(t, columns, w, self.m), (panel, side)
            else:
                lines, ends = Lines(t, columns, self.m, w, w), (side, panel)
            f.call(lines.write(f.module), None, *ends, f.const(I64, self.s.n))

    def _gather(self, f: Fn, at: Places, k: Val, *, out: bool) -> None:
        """The same, where columns come from several matrices."""
        w, t, n, m = self.width, self.type, self.s.n, self.m
        with f.loop(0, w) as across:
            column = f.plus(f.times(k, w), across.i)
            exists = f.compare("slt", f.integer(column), f.const(I64, self.columns))
            target = f.at(at["panel"], across.i, t)
            with f.when(exists):
                matrix, within = parted(f, column, m)
                skip = f.plus(f.times(matrix, n * m), within)
                side = f.at(at["out" if out else "x2"], skip, t)
                ends, steps = ((target, side), (w, m)) if out else ((side, target), (m, w))
                f.call(Lines(t, 1, *steps).write(f.module), None, *ends, f.const(I64, self.s.n))
            if not out:
                rest = f.bitwise("xor", exists, f.const(exists.type, 1))
                with f.when(rest), f.loop(0, n) as down:
                    f.store(f.zero(t), f.at(target, f.times(down.i, w), t))


def stacked(leads: Sequence[Sequence[int]], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """The axes of a stack, and each operand's strides along them; the result's come last."""
    ndim = max(map(len, leads))
    padded = [(1,) * (ndim - len(lead)) + tuple(lead) for lead in leads]
    shape = [max(lengths) for lengths in zip(*padded, strict=True)]
    strides = []
    for lead, size in zip([*padded, shape], sizes, strict=True):
        steps: list[Int] = []
        for length in lead[::-1]:
            steps.append(0 if length == 1 else size)
            size *= length
        strides.append(steps[::-1])
    return list(zip(shape, *strides, strict=True))  # type: ignore[arg-type]
