"""Products of an SSD's matrices, which call for what is needed after them.

The matrices are in scratch and near; what they are filled from, and the states, come from afar.
Read when their turn comes, they would be waited for, all lines at once: so each row of results
calls for a few of them, while there is work to do.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm_plan import Gemm, make_plan
from retrograd.jit.llvm.gemm_tile import LINE, Calls, Tile
from retrograd.jit.llvm.text import I64, PTR, Int, Module, Type, Val

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.llvm.ssd import Matrix

__all__ = ["Far", "product"]


class Far(NamedTuple):
    """Rows in an array that are read or written after a product."""

    at: Val
    rows: int
    numbers: int  # in a row
    step: int  # from a row to the next

    @property
    def place(self) -> tuple[Val, int, int]:
        """Where, numbers in a row, and between rows."""
        return self.at, self.numbers, self.step

    def shared(self, t: Type, rows: int, panels: int) -> tuple[int, Calls]:
        """How many of the rows of results call, and for what each does in each panel."""
        line = LINE // t.bits
        if self.step == self.numbers:  # dense: in equal shares
            lines = ceil(self.rows * self.numbers / (line * rows * panels))
            return rows, Calls(lines * line * panels, lines)
        runs = ceil(self.rows / rows)
        lines = ceil(self.numbers / (line * panels))
        return ceil(self.rows / runs), Calls(runs * self.step, lines, runs, self.step)


def product(
    f: Fn,
    t: Type,
    a: Matrix,
    b: Matrix,
    c: Matrix,
    *,
    more: bool = False,
    part: str = "all",
    later: Sequence[Far] = (),
) -> None:
    """c = a b, or c += a b.

    part: "low" if a is zero above the diagonal, "high" if it is zero below; later: what to
    call for meanwhile.
    """
    writer = _Product(f.module, t, a, c, part, later)
    f.module.once(writer.name, writer.write)
    places = (far.at for far in later)
    f.call(writer.name, None, a.at, b.at, c.at, f.const(I64, int(more)), *places)


class _Product:
    """Writes the function of all products of a shape that call for as much."""

    def __init__(
        self, module: Module, t: Type, a: Matrix, c: Matrix, part: str, later: Sequence[Far]
    ) -> None:
        self.module, self.t, self.part = module, t, part
        self.a, self.shape = a.steps, (c.rows, c.columns, a.columns)
        m, n, k = self.shape
        self.plan = make_plan(Gemm(m, n, k, t, a.steps, (n, 1), (n, 1)), module.machine)
        self.later = [far.shared(t, m, self.plan.columns.count) for far in later]
        numbers = [
            *self.shape,
            *self.a,
            *(x for rows, calls in self.later for x in (rows, *calls)),
        ]
        self.name = f"ssd_product_{t.suffix}_{'_'.join(map(str, numbers))}_{part}"

    def write(self) -> None:
        """All tiles."""
        args = [("a", PTR), ("b", PTR), ("c", PTR), ("more", I64)]
        args += [(f"later{n}", PTR) for n in range(len(self.later))]
        f = Fn(self.module, self.name, args, attributes="nounwind noinline")
        plan = self.plan
        for left, right, width, _ in plan.columns.segments():
            with f.loop(left, right) as across:
                # Pieces before these are one larger.
                column = f.times(f.plus(f.times(across.i, width), left), plan.unit)
                for low, high, height, _ in plan.rows.segments():
                    with f.loop(low, high) as down:
                        row = f.integer(f.plus(f.times(down.i, height), low))
                        self._tile(f, (height, width), (row, column), across.i)
        f.done()

    def _tile(self, f: Fn, size: tuple[int, int], at: tuple[Val, Int], panel: Val) -> None:
        t, (_, n, k), (row, column) = self.t, self.shape, at
        calls = tuple(calls for _, calls in self.later)
        tile = Tile(t, *size, self.a, n, n, calls=calls).write(self.module)
        first: Int = row if self.part == "high" else 0
        last: Int = f.plus(row, size[0]) if self.part == "low" else k
        spot = f.plus(f.times(row, self.a[0]), f.times(first, self.a[1]))
        f.call(
            tile,
            None,
            f.at(f.arg("a"), spot, t),
            f.at(f.arg("b"), f.plus(f.times(first, n), column), t),
            f.at(f.arg("c"), f.plus(f.times(row, n), column), t),
            f.sub(f.integer(last), f.integer(first)),
            f.arg("more"),
            *self._later(f, size[0], row, panel),
        )

    def _later(self, f: Fn, height: int, row: Val, panel: Val) -> list[Val]:
        """Where what a tile calls for begins; beyond the last row, the last ones once more."""
        line, found = LINE // self.t.bits, []
        for n, (rows, calls) in enumerate(self.later):
            here = f.lesser(row, max(rows - height, 0)) if rows < self.shape[0] else row
            skip = f.plus(f.times(here, calls.step), f.times(panel, calls.lines * line))
            found.append(f.at(f.arg(f"later{n}"), skip, self.t))
        return found
