"""The kernel that adds up the partial results of a gradient by weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.conv_chunks import ARGUMENTS, chunk_bounds, chunk_count, pointers
from retrograd.jit.llvm.info import KernelInfo

if TYPE_CHECKING:
    from retrograd.jit.llvm.conv_shape import Convolution
    from retrograd.jit.llvm.text import Int, Module, Type

__all__ = ["write_sum"]


def write_sum(
    module: Module, name: str, conv: Convolution, parts: int, *, linkage: str = "internal"
) -> KernelInfo:
    """A kernel with buffers partials, dw: the partial results, added in their order."""
    f = Fn(module, name, ARGUMENTS, linkage=linkage)
    size, t = conv.counts[1], conv.type
    lanes = module.machine.lanes(t.bits // 8)
    chunks = chunk_count(-(-size // lanes), size * parts * 4)
    source, to = pointers(f, 2)

    def add(at: Int, kind: Type) -> None:
        total = f.load(kind, f.at(source, at, t))
        for n in range(1, parts):
            total = f.add(total, f.load(kind, f.at(source, f.plus(at, n * size), t)))
        f.store(total, f.at(to, at, t))

    low, high = chunk_bounds(f, f.arg("chunk"), chunks, size // lanes)
    with f.loop(low, high) as loop:
        add(f.times(loop.i, lanes), t.by(lanes))
    last = f.compare("eq", f.arg("chunk"), f.integer(chunks - 1))
    with f.when(last), f.loop(size - size % lanes, size) as loop:
        add(loop.i, t)
    f.done()
    return KernelInfo(name, chunks, 0, size * (parts - 1), size * (parts + 1) * t.bits // 8)
