"""Call for the rows of a square that comes next, with the work before it.

Rows of a large matrix are in the third cache or in memory, each in a page of its own. Read in a
burst, they take long; asked for in time, they are in the second cache when their turn comes.
"""

from __future__ import annotations

from dataclasses import dataclass

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm_tile import prefetch
from retrograd.jit.llvm.text import PTR, Module, Type

__all__ = ["Fetch"]

LINE = 64  # bytes


@dataclass(frozen=True)
class Fetch:
    """Some rows of a matrix: (source) calls for their lines."""

    type: Type
    rows: int
    columns: int  # next to each other
    stride: int  # from a row to the next

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        sizes = self.rows, self.columns, self.stride
        name = f"fetch_{self.type.suffix}_{'_'.join(map(str, sizes))}"
        return module.once(name, lambda: self._write(module, name))

    def _write(self, module: Module, name: str) -> None:
        f = Fn(module, name, [("source", PTR)], attributes="nounwind noinline")
        for row in range(self.rows):
            for at in range(0, self.columns, LINE * 8 // self.type.bits):
                spot = f.at(f.arg("source"), row * self.stride + at, self.type)
                prefetch(f, spot, near=False)
        f.done()
