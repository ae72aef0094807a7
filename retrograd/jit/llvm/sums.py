"""Kernels that add up what chunks of another kernel left apart, and small things they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.conv_chunks import ARGUMENTS, chunk_bounds, chunk_count, pointers
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.text import Int, Module, Type, Val

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["fold_each", "write_sum", "write_zeros"]


def fold_each(f: Fn, vectors: Sequence[Val]) -> Val:
    """The sums of the lanes of as many vectors as one has lanes, side by side."""
    found, group = list(vectors), vectors[0].type.lanes
    while group > 1:
        half = group // 2
        lanes = range(2 * found[0].type.lanes)
        low = [n for n in lanes if n % group < half]
        high = [n for n in lanes if n % group >= half]
        pairs = zip(found[::2], found[1::2], strict=True)
        found = [f.add(f.shuffle(a, b, low), f.shuffle(a, b, high)) for a, b in pairs]
        group = half
    return found[0]


def write_sum(module: Module, name: str, parts: int, length: int, t: Type) -> KernelInfo:
    """out[j] = sum over k of x[k, j], k in order; of one column, in lanes. Buffers: x, out."""
    f = Fn(module, name, ARGUMENTS)
    chunks = 1
    if length == 1:
        _total(f, parts, t)
    else:
        chunks = chunk_count(length, 16 * parts * length)
        _columns(f, parts, length, t, chunks)
    f.done()
    size = t.bits // 8
    return KernelInfo(name, chunks, 0, parts * length, (parts + 1) * length * size)


def _total(f: Fn, count: int, t: Type) -> None:
    lanes = f.machine.lanes(t.bits // 8)
    x, out = pointers(f, 2)
    whole = count // lanes * lanes
    with f.loop(0, whole, lanes, carry=[f.zero(t.by(lanes))]) as loop:
        loop.next = [f.add(loop.carry[0], f.load(t.by(lanes), f.at(x, loop.i, t)))]
    total = f.fold("add", loop.results[0])
    with f.loop(whole, count, carry=[total]) as rest:
        rest.next = [f.add(rest.carry[0], f.load(t, f.at(x, rest.i, t)))]
    f.store(rest.results[0], out)


def _columns(f: Fn, parts: int, length: int, t: Type, chunks: int) -> None:
    lanes = f.machine.lanes(t.bits // 8)
    x, out = pointers(f, 2)

    def column(at: Int, kind: Type) -> None:
        start = f.load(kind, f.at(x, at, t))
        with f.loop(1, parts, carry=[start]) as loop:
            spot = f.at(x, f.plus(f.times(loop.i, length), at), t)
            loop.next = [f.add(loop.carry[0], f.load(kind, spot))]
        f.store(loop.results[0], f.at(out, at, t))

    low, high = chunk_bounds(f, f.arg("chunk"), chunks, length // lanes)
    with f.loop(low, high) as loop:
        column(f.times(loop.i, lanes), t.by(lanes))
    last = f.compare("eq", f.arg("chunk"), f.integer(chunks - 1))
    with f.when(last), f.loop(length // lanes * lanes, length) as rest:
        column(rest.i, t)


def write_zeros(module: Module, name: str, count: int, t: Type) -> KernelInfo:
    """A few zeros. Buffers: out."""
    f = Fn(module, name, ARGUMENTS)
    (out,) = pointers(f, 1)
    with f.loop(0, count) as loop:
        f.store(f.zero(t), f.at(out, loop.i, t))
    f.done()
    return KernelInfo(name, 1, 0, 0, count * t.bits // 8)
