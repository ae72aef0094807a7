"""What the kernels of convolutions share: arguments, chunks, whole numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.llvm.text import I64, PTR, Int, Val

if TYPE_CHECKING:
    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.conv_layout import Blocks, Layout

__all__ = [
    "ARGUMENTS",
    "MOST_CHUNKS",
    "NEAR",
    "chunk_bounds",
    "chunk_count",
    "group_and_block",
    "larger",
    "parted",
    "pointers",
]

ARGUMENTS = [("bufs", PTR), ("chunk", I64), ("scratch", PTR)]
NEAR = 1 << 19  # bytes that are to stay in the second cache
LEAST = 1 << 18  # flops that are worth a chunk
MOST_CHUNKS = 32


def chunk_count(units: int, flops: int) -> int:
    """Chunks for so many units of work; from shapes alone."""
    return max(1, min(MOST_CHUNKS, units, flops // LEAST))


def chunk_bounds(f: Fn, chunk: Int, chunks: int, units: int) -> tuple[Int, Int]:
    """The units [low, high) of a chunk."""
    if chunks == 1:
        return 0, units

    def edge(n: Int) -> Val:
        return f.div(f.integer(f.times(n, units)), f.const(I64, chunks))

    return edge(chunk), edge(f.plus(chunk, 1))


def pointers(f: Fn, count: int) -> list[Val]:
    """The first buffers of a kernel."""
    bufs = f.arg("bufs")
    return [f.load(PTR, f.at(bufs, n, I64), align=8) for n in range(count)]


def larger(f: Fn, a: Int, b: Int) -> Int:
    """The larger of 64-bit integers."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    x, y = f.integer(a), f.integer(b)
    return f.select(f.compare("sgt", x, y), x, y)


def parted(f: Fn, x: Int, size: int) -> tuple[Int, Int]:
    """x // size and x % size, for x that is not negative."""
    if isinstance(x, int):
        return divmod(x, size)
    if size == 1:
        return x, 0
    by = f.const(I64, size)
    return f.div(x, by, signed=False), f.rem(x, by, signed=False)


def group_and_block(f: Fn, layout: Layout, blocks: Blocks, number: Int) -> tuple[Int, Int]:
    """Which group, and which of its blocks, has a number."""
    return parted(f, number, blocks.many) if layout.groups > 1 else (0, number)
