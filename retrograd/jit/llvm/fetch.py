"""Call for the rows that come next, a little at a time with the work before them.

Rows of a large matrix are in the third cache or in memory, each in a page of its own. Read in a
burst, they take long; asked for in time, they are in the second cache when their turn comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm_tile import prefetch
from retrograd.jit.llvm.text import I64, PTR, Module, Type

__all__ = ["Fetch"]

LINE = 64  # bytes


@dataclass(frozen=True)
class Fetch:
    """Some rows of a matrix, in parts: (source, part) calls for the lines of one part."""

    type: Type
    rows: int
    columns: int  # next to each other
    stride: int  # from a row to the next
    parts: int

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        sizes = self.rows, self.columns, self.stride, self.parts
        name = f"fetch_{self.type.suffix}_{'_'.join(map(str, sizes))}"
        return module.once(name, lambda: self._write(module, name))

    def _write(self, module: Module, name: str) -> None:
        f = Fn(module, name, [("source", PTR), ("part", I64)], attributes="nounwind noinline")
        line = LINE * 8 // self.type.bits
        each = ceil(self.columns / line / self.parts)
        source = f.at(f.arg("source"), f.times(f.arg("part"), each * line), self.type)
        for row in range(self.rows):
            for n in range(each):
                prefetch(f, f.at(source, row * self.stride + n * line, self.type), near=False)
        f.done()
