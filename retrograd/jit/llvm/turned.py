"""Squares of memory turned over: rows become columns, by shuffles in registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm_pack import transposed
from retrograd.jit.llvm.text import PTR, Type, Val

if TYPE_CHECKING:
    from retrograd.jit.llvm.text import Module

__all__ = ["Turned"]


@dataclass(frozen=True)
class Turned:
    """target[c * to + r] = source[r * since + c], and zeros beyond `rows`: (source, target).

    `size` is the number of rows and of columns as they are computed, `rows` and `columns`
    those that exist: nothing else is read or written outside of a whole square.
    """

    type: Type
    size: int
    rows: int
    columns: int
    since: int  # elements from one row of the source to the next
    to: int

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        ends = f"{self.rows}_{self.columns}_{self.since}_{self.to}".replace("-", "m")
        name = f"turned_{self.type.suffix}_{self.size}_{ends}"
        return module.once(name, lambda: self._write(module, name))

    def _write(self, module: Module, name: str) -> None:
        args = [("source", PTR), ("target", PTR)]
        f = Fn(module, name, args, attributes="nounwind noinline")
        side = min(self.size, f.machine.lanes(self.type.bits // 8))
        for row in range(0, self.size, side):
            for column in range(0, self.columns, side):
                self._square(f, row, column, side)
        f.done()

    def _square(self, f: Fn, row: int, column: int, side: int) -> None:
        """One vector by one vector."""
        t = self.type.by(side)
        source, target = f.arg("source"), f.arg("target")
        rows: list[Val] = [
            f.load(t, f.at(source, r * self.since + column, t)) if r < self.rows else f.zero(t)
            for r in range(row, row + side)
        ]
        for n, x in enumerate(transposed(f, rows, side)[: self.columns - column]):
            f.store(x, f.at(target, (column + n) * self.to + row, t))
