"""The elements at given ranks of each row as a kernel: bits found by counting, nothing moved.

Elements are compared as integers in their order. The one at a rank is the largest number that
at most as many elements as the rank are below: its bits are found from the highest to the
lowest, each by a pass that counts. A row stays in the first caches, and counting takes no
branch, and no step that has to wait for another.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.conv_chunks import ARGUMENTS, chunk_bounds, chunk_count, pointers
from retrograd.jit.llvm.gemm_tile import load_some, some_lanes
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.launches import Kernels
from retrograd.jit.llvm.text import I1, I32, I64, Module, Type, Val
from retrograd.jit.llvm.topk_kernels import Keyed, ordered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec

__all__ = ["LONGEST", "MOST", "SHORTEST", "RankKernels"]

MOST = 16  # ranks: for more, a row is sorted as soon
SHORTEST = 128  # elements in a row: fewer are sorted as soon
LONGEST = 1 << 18  # elements in a row, whose keys each thread holds
TOGETHER = 4  # ranks whose bits are found by the same passes
COUNTERS = 8  # sums at a time, so that additions do not wait for each other
WORK = 8  # operations on an element for each rank, about


class RankKernels(Kernels):
    """Ranked."""

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Floats, and few ranks of rows that are not too long."""
        x = specs[0]
        fits = x.size and SHORTEST <= x.shape[-1] <= LONGEST and 0 < len(set(op.ranks)) <= MOST
        return bool(super().takes(op, specs) and fits)

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        """One kernel; x, then values and places."""
        *lead, length = specs[0].shape
        ranks = Ranks(self.writer.module, length, t)
        self.launches = [(_write(ranks, name, prod(lead), op.ranks), (0, 1, 2))]


def _write(ranks: Ranks, name: str, rows: int, wanted: Sequence[int]) -> KernelInfo:
    """The kernel. Buffers: x, values, places."""
    f, t, length = Fn(ranks.module, name, ARGUMENTS), ranks.type, ranks.length
    flops, distinct = rows * length * WORK * len(set(wanted)), sorted(set(wanted))
    chunks = chunk_count(rows, flops)
    x, values, places = pointers(f, 3)
    low, high = chunk_bounds(f, f.arg("chunk"), chunks, rows)
    with f.loop(low, high) as row:
        line = f.at(x, f.times(row.i, length), t)
        ranks.read(f, line)
        for n in range(0, len(distinct), TOGETHER):
            group = distinct[n : n + TOGETHER]
            for rank, place in zip(group, ranks.found(f, group), strict=True):
                value = f.load(t, f.at(line, place, t))
                for out in (i for i, r in enumerate(wanted) if r == rank):
                    to = f.plus(f.times(row.i, len(wanted)), out)
                    f.store(value, f.at(values, to, t))
                    f.store(place, f.at(places, to, I64))
    f.done()
    moved = rows * (length * ranks.size + len(wanted) * (ranks.size + 8))
    return KernelInfo(name, chunks, ranks.scratch, flops, moved)


@dataclass(frozen=True)
class Ranks(Keyed):
    """A row's elements as integers in scratch, and which of them are at ranks."""

    module: Module
    length: int
    type: Type

    @property
    def turn(self) -> int:
        """Elements in one turn of a loop that counts for one rank."""
        return self.lanes * COUNTERS

    @property
    def padded(self) -> int:
        """Elements in scratch: whole turns, the last filled with what is above all."""
        return -(-self.length // self.turn) * self.turn

    @property
    def scratch(self) -> int:
        """Bytes of it."""
        return self.padded * self.size

    def read(self, f: Fn, line: Val) -> None:
        """A row into scratch."""
        keys, t = f.arg("scratch"), self.whole.by(self.lanes)
        full = self.length // self.lanes * self.lanes
        with f.loop(0, full, self.lanes) as loop:
            x = f.load(self.type.by(self.lanes), f.at(line, loop.i, self.type))
            f.store(ordered(f, x), f.at(keys, loop.i, t))
        above = f.const(t, 2 ** (t.bits - 1) - 1)
        for i in range(full, self.padded, self.lanes):
            kept, key = self.length - i, above
            if kept > 0:
                x = load_some(f, self.type.by(self.lanes), f.at(line, i, self.type), kept)
                key = f.select(some_lanes(f, self.lanes, kept), ordered(f, x), above)
            f.store(key, f.at(keys, i, t))

    def found(self, f: Fn, wanted: Sequence[int]) -> list[Val]:
        """Where the elements at these ranks are."""
        t, many = self.whole, len(wanted)
        least = [f.const(t, -(2 ** (t.bits - 1)))] * many
        with f.loop(0, t.bits, 1, [*least, *[f.const(t, 0)] * many]) as loop:
            key, below = loop.carry[:many], loop.carry[many:]
            top = f.const(t, -(2 ** (t.bits - 1)))
            bit = f.bitwise("lshr", top, f.convert("trunc", loop.i, t))
            more = [f.bitwise("xor", k, bit) for k in key]
            counts = self._counted(f, more)
            for n, (rank, count) in enumerate(zip(wanted, counts, strict=True)):
                fits = f.compare("sle", count, f.const(t, rank))
                loop.next[n] = f.select(fits, more[n], key[n])
                loop.next[many + n] = f.select(fits, count, below[n])
        ends = zip(wanted, loop.results[:many], loop.results[many:], strict=True)
        return [
            self._place(f, key, f.sub(f.const(t, rank), below)) for rank, key, below in ends
        ]

    def _counted(self, f: Fn, limits: Sequence[Val]) -> list[Val]:
        """How many elements are below each of the limits."""
        t = self.whole.by(self.lanes)
        wide = [f.splat(limit, self.lanes) for limit in limits]
        unrolled = max(1, COUNTERS // len(limits))
        step = self.lanes * (1 << (unrolled.bit_length() - 1))  # a part of a turn
        sums = [f.zero(t)] * (len(limits) * step // self.lanes)
        with f.loop(0, self.padded, step, sums) as loop:
            for v in range(step // self.lanes):
                spot = f.at(f.arg("scratch"), f.plus(loop.i, v * self.lanes), t)
                keys = f.load(t, spot)
                for n, limit in enumerate(wide):
                    at = v * len(wide) + n
                    less = f.convert("sext", f.compare("slt", keys, limit), self.whole)
                    loop.next[at] = f.sub(loop.carry[at], less)
        parts = [loop.results[n :: len(wide)] for n in range(len(wide))]
        return [f.fold("add", self._sum(f, part)) for part in parts]

    def _sum(self, f: Fn, parts: Sequence[Val]) -> Val:
        first, *others = parts
        for other in others:
            first = f.add(first, other)
        return first

    def _place(self, f: Fn, key: Val, number: Val) -> Val:
        """Where the element of this number is among those of one key, in first-come order."""
        t, wide = self.whole.by(self.lanes), f.splat(key, self.lanes)
        number = f.convert("sext", number, I64)
        zero = f.const(I64, 0)
        begin = [number, number, zero, f.const(I32, 0)]

        def past(carry: list[Val]) -> Val:
            return f.compare("slt", carry[0], zero)

        with f.loop(0, self.padded, self.lanes, begin, unless=past) as loop:
            same = f.compare("eq", f.load(t, f.at(f.arg("scratch"), loop.i, t)), wide)
            same = f.convert("bitcast", same, Type("i", self.lanes))
            same = f.convert("zext", same, I32)
            many = f.convert("zext", f.intrinsic("ctpop", same), I64)
            loop.next = [f.sub(loop.carry[0], many), loop.carry[0], loop.i, same]
        _, skipped, base, same = loop.results
        with f.loop(0, skipped, 1, [same]) as loop:
            (left,) = loop.carry
            loop.next = [f.bitwise("and", left, f.sub(left, f.const(I32, 1)))]
        lane = f.intrinsic("cttz", loop.results[0], f.const(I1, 1))
        return f.add(base, f.convert("zext", lane, I64))
