"""What follows a product or a convolution, done to its results while they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from retrograd.jit.llvm.conv_chunks import parted
from retrograd.jit.llvm.gemm_tile import prefetch
from retrograd.jit.llvm.loops import Writer
from retrograd.jit.llvm.text import I8, I64, PTR
from retrograd.jit.loops.analyse import buffers, expressions
from retrograd.jit.loops.coalesce import coalesce
from retrograd.jit.loops.expr import Store
from retrograd.jit.loops.index import Ix, flat
from retrograd.jit.loops.vocabulary import FUNCTIONS

if TYPE_CHECKING:
    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.text import Int, Val
    from retrograd.jit.llvm.values import Num
    from retrograd.jit.loops.expr import Buffer
    from retrograd.jit.steps import Finished, Product

__all__ = ["Epilogue", "PixelEpilogue"]

LONG = 20  # operations of a function such as exp, about


class Epilogue:
    """The function that write_gemm calls; `values` are the buffers after the product's own."""

    operands = 3  # buffers of the product itself

    def __init__(
        self, product: Product | Finished, shape: tuple[int, ...], rows: int = 0
    ) -> None:
        assert product.built is not None
        self.rows = rows  # of a matrix as it is computed: turns of a batch may be among them
        self.product, self.shape = product, shape
        self.kernel = product.built.kernel
        own = (product.out, product.target)
        self.buffers = [
            b for b in buffers(self.kernel) if b.constant is None and b.name not in own
        ]
        self.values = [b.name for b in self.buffers]
        place = flat(map(Ix.of, self.kernel.axes), shape)
        loads = [e.data for e in expressions(self.kernel.body) if e.op == "load"]
        stores = [(s.buffer, s.index) for s in self.kernel.body if isinstance(s, Store)]
        here = {b for b, ix in (*loads, *stores) if ix == place}
        # buffers that are read or written where results are
        self.beside = [(i, b.dtype.itemsize) for i, b in enumerate(self.buffers) if b in here]

    def __call__(
        self, f: Fn, acc: Val, batch: Val, row: Val, col: Val, mask: Val | None
    ) -> Val:
        """Store what is made of the results, and give back what their own memory shall hold."""
        writer = Finisher(f, self, acc)
        *lead, down, across = self.kernel.axes
        if self.rows > self.shape[-2]:
            turn, row = map(f.integer, parted(f, row, self.shape[-2]))
            batch = f.integer(f.plus(f.times(batch, self.rows // self.shape[-2]), turn))
        writer.at.update({down: row, across: col})
        for axis in reversed([a for a in lead if a.extent > 1]):
            size = f.integer(axis.extent)
            writer.at[axis] = f.rem(batch, size)
            batch = f.div(batch, size)
        writer.vector, writer.lanes, writer.mask = across, acc.type.lanes, mask
        return writer.finish()


class PixelEpilogue(Epilogue):
    """The function that convolutions and pools call: results are pixels, and channels."""

    def __init__(self, product: Finished, shape: tuple[int, ...]) -> None:
        super().__init__(product, shape)
        self.operands = len(product.inputs) + 1
        coalesce(self.kernel)  # most often the pixels are one axis then
        found = expressions(self.kernel.body)
        self.work = sum(LONG if e.op in FUNCTIONS else 1 for e in found)  # for each result

    def __call__(  # type: ignore[override]
        self, f: Fn, acc: Val, pixel: Val, channel: Val, mask: Val | None
    ) -> Val:
        """As above, for lanes of one pixel from a channel on."""
        writer = Finisher(f, self, acc)
        axes = [a for a in self.kernel.axes if a.extent != 1] or list(self.kernel.axes[-1:])
        wide, rest = self.shape[-1], cast("Int", pixel)
        for axis in reversed(axes):
            many, last = axis.extent // wide, axis is axes[0]
            rest, here = (rest, rest) if last else parted(f, rest, many)
            writer.at[axis] = f.integer(f.plus(f.times(here, wide), channel))
            wide, channel = 1, f.integer(0)
        writer.vector, writer.lanes, writer.mask = axes[-1], acc.type.lanes, mask
        return writer.finish()

    def ahead(self, f: Fn, pixel: Val, channel: Val) -> None:
        """Call for what will be read beside a result, long before it is there."""
        place = f.integer(f.plus(f.times(pixel, self.shape[-1]), channel))
        for i, size in self.beside:
            base = f.load(PTR, f.at(f.arg("bufs"), self.operands + i, I64))
            prefetch(f, f.at(base, f.times(place, size), I8))

    def row(self, f: Fn, acc: Val, _: Val, row: Val, col: Val, mask: Val | None) -> Val:
        """The same where windows are single pixels, for a row of the product that it is."""
        return self(f, acc, row, col, mask)


class Finisher(Writer):
    """A kernel's writer whose product is in a register."""

    def __init__(self, f: Fn, epilogue: Epilogue, acc: Val) -> None:
        super().__init__(f, epilogue.kernel, [])
        self.epilogue, self.acc = epilogue, acc
        bufs = f.arg("bufs")
        for i, b in enumerate(epilogue.buffers):
            self.base[b] = f.load(PTR, f.at(bufs, epilogue.operands + i, I64))

    def load(self, buffer: Buffer, ix: Ix) -> Num:
        """Elements of a buffer, or the product itself."""
        if buffer.name == self.epilogue.product.out:
            return (self.acc,)
        return super().load(buffer, ix)

    def finish(self) -> Val:
        """All stores; the value for the product's own memory."""
        product = self.epilogue.product
        stores: list[Any] = [s for s in self.kernel.body if isinstance(s, Store)]
        found = [self.value(s.expr) for s in stores]
        kept = self.acc
        for s, x in zip(stores, found, strict=True):
            if s.buffer.name == product.target:
                kept = self.f.splat(x[0], self.lanes)
            else:
                self.store(s.buffer, s.index, x)
        return kept
