"""What follows a matrix product, done to its results while they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.loops import Writer
from retrograd.jit.llvm.text import I64, PTR
from retrograd.jit.loops.analyse import buffers
from retrograd.jit.loops.expr import Store

if TYPE_CHECKING:
    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.text import Val
    from retrograd.jit.llvm.values import Num
    from retrograd.jit.loops.expr import Buffer
    from retrograd.jit.loops.index import Ix
    from retrograd.jit.steps import Product

__all__ = ["Epilogue"]

OPERANDS = 3  # buffers of the product itself


class Epilogue:
    """The function that write_gemm calls; `values` are the buffers after the product's own."""

    def __init__(self, product: Product, shape: tuple[int, ...]) -> None:
        assert product.built is not None
        self.product, self.shape = product, shape
        self.kernel = product.built.kernel
        own = (product.out, product.target)
        self.buffers = [
            b for b in buffers(self.kernel) if b.constant is None and b.name not in own
        ]
        self.values = [b.name for b in self.buffers]

    def __call__(
        self, f: Fn, acc: Val, batch: Val, row: Val, col: Val, mask: Val | None
    ) -> Val:
        """Store what is made of the results, and give back what their own memory shall hold."""
        writer = Finisher(f, self, acc)
        *lead, down, across = self.kernel.axes
        writer.at.update({down: row, across: col})
        for axis in reversed([a for a in lead if a.extent > 1]):
            size = f.integer(axis.extent)
            writer.at[axis] = f.rem(batch, size)
            batch = f.div(batch, size)
        writer.vector, writer.lanes, writer.mask = across, acc.type.lanes, mask
        return writer.finish()


class Finisher(Writer):
    """A kernel's writer whose product is in a register."""

    def __init__(self, f: Fn, epilogue: Epilogue, acc: Val) -> None:
        super().__init__(f, epilogue.kernel, [])
        self.epilogue, self.acc = epilogue, acc
        bufs = f.arg("bufs")
        for i, b in enumerate(epilogue.buffers):
            self.base[b] = f.load(PTR, f.at(bufs, OPERANDS + i, I64))

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
