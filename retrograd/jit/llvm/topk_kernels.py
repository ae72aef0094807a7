"""The largest few of each row as a kernel: one pass that meets few of the elements.

Elements are compared as integers in their order, NaN the largest and both zeros equal. Of
each lane the largest comes first: as many elements as there are lanes are not below the least
of these. Then all that are above the last of the few that are held go to their places among
them, one by one, behind their equals: ties keep first-come order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.conv_chunks import ARGUMENTS, chunk_bounds, chunk_count, pointers
from retrograd.jit.llvm.gemm_tile import load_some, some_lanes
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.launches import Kernels
from retrograd.jit.llvm.text import I1, I32, I64, PTR, Int, Module, Type, Val

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrograd.core.spec import Spec

__all__ = ["MOST", "TIMES", "Few", "Keyed", "Lists", "TopkKernels", "ordered"]

MOST = 96  # held elements: each that comes moves them all
TIMES = 4  # times as many elements in a row: fewer are sorted as well
WORK = 8  # operations on an element, about


class Lists(NamedTuple):
    """Elements that are held, as integers, and where they were."""

    held: Val
    where: Val


class TopkKernels(Kernels):
    """Topk along the last axis."""

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Floats, and few of many along the last axis."""
        x = specs[0]
        last = x.ndim and op.axis == x.ndim - 1 and x.size
        return bool(
            super().takes(op, specs) and last and 0 < op.k <= min(MOST, x.shape[-1] // TIMES)
        )

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        """One kernel; x, then values and places."""
        *lead, length = specs[0].shape
        few = Few(self.writer.module, name, length, op.k, t, op.largest)
        self.launches = [(_write(few, prod(lead)), (0, 1, 2))]


def _write(few: Few, rows: int) -> KernelInfo:
    """The kernel. Buffers: x, values, places."""
    f, flops = Fn(few.module, few.name, ARGUMENTS), rows * few.length * WORK
    chunks = chunk_count(rows, flops)
    x, values, places = pointers(f, 3)
    lists = few.lists(f)
    low, high = chunk_bounds(f, f.arg("chunk"), chunks, rows)
    with f.loop(low, high) as row:
        line = f.at(x, f.times(row.i, few.length), few.type)
        few.found(f, line, lists)
        first = f.times(row.i, few.k)

        def leave(n: Val, place: Val) -> None:
            value = f.load(few.type, f.at(line, place, few.type))
            f.store(value, f.at(values, f.plus(first, n), few.type))
            f.store(place, f.at(places, f.plus(first, n), I64))

        few.leave(f, lists, leave)
    f.done()
    moved = rows * (few.length * few.size + few.k * (few.size + 8))
    return KernelInfo(few.name, chunks, few.scratch, flops, moved)


def ordered(f: Fn, x: Val) -> Val:
    """Floats as integers in the same order: NaN the largest, and both zeros equal."""
    bits = f.bits(f.add(x, f.zero(x.type)))  # -0.0 becomes 0.0
    t = bits.type
    sign = f.bitwise("ashr", bits, f.const(t, t.bits - 1))
    rest = f.bitwise("and", sign, f.const(t, 2 ** (t.bits - 1) - 1))
    odd = 0x7FC00000 if t.bits == 32 else 0x7FF8 << 48  # NaN, above infinity
    return f.select(f.compare("uno", x, x), f.const(t, odd), f.bitwise("xor", bits, rest))


class Keyed:
    """What reads elements as integers in their order."""

    module: Module
    type: Type

    @cached_property
    def lanes(self) -> int:
        """Elements in a vector."""
        return self.module.machine.lanes(self.size)

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.type.bits // 8

    @property
    def whole(self) -> Type:
        """An integer of the size of an element."""
        return Type("i", self.type.bits)


@dataclass(frozen=True)
class Few(Keyed):
    """The first k of a row's elements, by size; lists of them are held in scratch."""

    module: Module
    name: str
    length: int
    k: int
    type: Type
    largest: bool

    @property
    def vectors(self) -> int:
        """Of held elements."""
        return -(-self.k // self.lanes)

    @property
    def scratch(self) -> int:
        """Bytes of both lists, with a vector before each."""
        return 2 * (self.vectors + 1) * self.lanes * self.size

    def lists(self, f: Fn) -> Lists:
        """Elements and places, with one before the first that is above all."""
        t, each = self.whole, (self.vectors + 1) * self.lanes
        held, where = (f.at(f.arg("scratch"), n * each + self.lanes, t) for n in range(2))
        f.store(f.const(t, 2 ** (t.bits - 1) - 1), f.at(held, -1, t))
        f.store(f.const(t, 0), f.at(where, -1, t))
        return Lists(held, where)

    def found(self, f: Fn, line: Val, lists: Lists) -> None:
        """Find those of a row."""
        put = self.module.once(f"{self.name}_put", self._write_put)
        self._begin(f, line, lists)
        full = self.length // self.lanes * self.lanes
        with f.loop(0, full, self.lanes) as loop:
            self._met(f, line, lists, put, loop.i, 0)
        if full < self.length:
            self._met(f, line, lists, put, full, self.length - full)

    def leave(self, f: Fn, lists: Lists, put: Callable[[Val, Val], None]) -> None:
        """put(number, place) for each of them, in order."""
        with f.loop(0, self.k) as loop:
            place = f.load(self.whole, f.at(lists.where, loop.i, self.whole))
            put(loop.i, f.convert("sext", place, I64))

    def _key(self, f: Fn, x: Val) -> Val:
        """Elements as integers: the larger one is wanted first."""
        key = ordered(f, x)
        t = key.type
        return key if self.largest else f.bitwise("xor", key, f.const(t, -1))

    def _begin(self, f: Fn, line: Val, lists: Lists) -> None:
        """Lists of what is less than all that can stay."""
        t, wide = self.whole.by(self.lanes), self.vectors * self.lanes
        least = f.const(self.whole, -(2 ** (t.bits - 1)))
        if self.length >= wide:
            best = [f.const(t, -(2 ** (t.bits - 1)))] * self.vectors
            with f.loop(0, self.length // wide * wide, wide, best) as loop:
                for v, most in enumerate(loop.carry):
                    at = f.at(line, f.plus(loop.i, v * self.lanes), self.type)
                    new = self._key(f, f.load(self.type.by(self.lanes), at))
                    loop.next[v] = f.intrinsic("smax", most, new)
            first, *others = loop.results
            for other in others:
                first = f.intrinsic("smin", first, other)
            least = f.intrinsic("vector.reduce.smin", first, result=self.whole)
            least = f.sub(least, f.const(self.whole, 1))
        for v in range(self.vectors):
            f.store(f.splat(least, self.lanes), f.at(lists.held, v * self.lanes, t))
            f.store(f.zero(t), f.at(lists.where, v * self.lanes, t))

    def _met(self, f: Fn, line: Val, lists: Lists, put: str, i: Int, kept: int) -> None:
        """One vector of elements: those above the last that is held go into the lists."""
        x = load_some(f, self.type.by(self.lanes), f.at(line, i, self.type), kept)
        keys = self._key(f, x)
        last = f.load(self.whole, f.at(lists.held, self.k - 1, self.whole))
        above = f.compare("sgt", keys, f.splat(last, self.lanes))
        if kept:
            above = f.bitwise("and", above, some_lanes(f, self.lanes, kept))
        some = f.convert("bitcast", above, Type("i", self.lanes))
        some = f.convert("zext", some, I32)
        with f.when(f.compare("ne", some, f.const(I32, 0))):
            count = f.convert("zext", f.intrinsic("ctpop", some), I64)
            with f.loop(0, count, 1, [some]) as loop:
                (left,) = loop.carry
                lane = f.intrinsic("cttz", left, f.const(I1, 1))
                less = f.sub(left, f.const(I32, 1))
                loop.next = [f.bitwise("and", left, less)]
                key = f.extract(keys, f.convert("zext", lane, I64))
                place = f.plus(f.convert("zext", lane, I64), i)
                place = f.convert("trunc", f.integer(place), self.whole)
                f.call(put, None, lists.held, lists.where, key, place)

    def _write_put(self) -> None:
        """(held, where, key, place): into the lists, behind all that are not less."""
        args = [("held", PTR), ("where", PTR), ("key", self.whole), ("place", self.whole)]
        f = Fn(self.module, f"{self.name}_put", args, attributes="nounwind noinline")
        t = self.whole.by(self.lanes)
        key, place = (f.splat(f.arg(n), self.lanes) for n in ("key", "place"))
        for v in reversed(range(self.vectors)):
            spots = [
                (f.at(f.arg(n), v * self.lanes, t), f.at(f.arg(n), v * self.lanes - 1, t))
                for n in ("held", "where")
            ]
            (old, before), (mine, other) = ([f.load(t, s) for s in pair] for pair in spots)
            stays, next_ = (f.compare("sge", k, key) for k in (old, before))
            found = f.select(stays, old, f.select(next_, key, before))
            there = f.select(stays, mine, f.select(next_, place, other))
            f.store(found, spots[0][0])
            f.store(there, spots[1][0])
        f.done()
