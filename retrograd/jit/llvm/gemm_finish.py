"""What is done to the results of a matrix product before they stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm_tile import some_lanes
from retrograd.jit.llvm.text import I64, PTR, Int, Module, Type, Val

__all__ = ["Epilogue", "Finish"]


class Epilogue(Protocol):
    """What is done to a result before it stays: bias, activation, residual, ..."""

    def __call__(
        self, f: Fn, acc: Val, batch: Val, row: Val, col: Val, mask: Val | None
    ) -> Val:
        """The value for C; lanes of `acc` run along columns from `col`, where mask."""
        ...


@dataclass(frozen=True)
class Finish:
    """A pass over finished results: the epilogue, applied in loops.

    (bufs, c, batch, row, col, rows, vectors, edge): `vectors` whole vectors in each row, and
    if `edge` the `tail` lanes after them. With lanes 0 a vector is one number. The results are
    in c, or in a `tile` that is given after these.
    """

    name: str
    type: Type
    lanes: int
    tail: int
    c: tuple[int, int]  # strides of rows and of columns
    tile: tuple[int, int] | None = None  # the same of the tile, if there is one

    def write(self, module: Module, epilogue: Epilogue) -> str:
        """Put the function into the module; its name."""
        numbers = ["batch", "row", "col", "rows", "vectors", "edge"]
        args = [("bufs", PTR), ("c", PTR), *((n, I64) for n in numbers)]
        args += [("tile", PTR)] if self.tile else []
        f = Fn(module, self.name, args, attributes="nounwind noinline")
        t, width = self.type.by(self.lanes), max(self.lanes, 1)

        def apply(i: Val, skip: Int, mask: Val | None) -> None:
            at = self._at(f, "c", self.c, i, skip)
            source = self._at(f, "tile", self.tile, i, skip) if self.tile else at
            x = f.masked_load(t, source, mask) if mask else f.load(t, source)
            row, col = f.add(f.arg("row"), i), f.plus(f.arg("col"), skip)
            y = epilogue(f, x, f.arg("batch"), row, f.integer(col), mask)
            if mask:
                f.masked_store(y, at, mask)
            else:
                f.store(y, at)

        with f.loop(0, f.arg("rows")) as down:
            with f.loop(0, f.arg("vectors")) as across:
                apply(down.i, f.times(across.i, width), None)
            if self.tail:
                with f.when(f.compare("ne", f.arg("edge"), f.const(I64, 0))):
                    skip = f.times(f.arg("vectors"), width)
                    apply(down.i, skip, some_lanes(f, self.lanes, self.tail))
        return f.done()

    def _at(self, f: Fn, name: str, strides: tuple[int, int], i: Val, skip: Int) -> Val:
        offset = f.plus(f.times(i, strides[0]), f.times(skip, strides[1]))
        return f.at(f.arg(name), offset, self.type)
