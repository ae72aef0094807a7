"""Axes of Fourier transforms as kernels.

A group of lines has a line in each lane. Lines that lie side by side are read where they are;
those along the last axis are transposed into vectors and back, and groups that are not full are
read number by number. Long lines along the last axis have all lanes for themselves (`Inline`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.conv_chunks import (
    ARGUMENTS,
    chunk_bounds,
    chunk_count,
    parted,
    pointers,
)
from retrograd.jit.llvm.fft_chain import Chain, Deep, End, Style, deep
from retrograd.jit.llvm.fft_half import Half
from retrograd.jit.llvm.fft_inline import Inline, sides
from retrograd.jit.llvm.fft_lines import Lines, Scattered
from retrograd.jit.llvm.fft_plan import Spot, Table, roots
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.text import I8, I64, Int, Module, Type, Val
from retrograd.jit.llvm.triangle_pack import clear

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Axis",
    "Leg",
    "Side",
    "beside",
    "inline",
    "lanes_of",
    "parted_by",
    "write_axes",
]


LINE = 64  # bytes that caches take at once
SOON, FAR = 2, 1 << 16  # transforms until memory is written; bytes of one that are too many


@dataclass(frozen=True)
class Side:
    """What is read or written along the axis: `length` numbers, as `Spot.kind` has them."""

    kind: str
    length: int

    @property
    def parts(self) -> int:
        """Scalars of a number."""
        return 2 if self.kind == "complex" else 1

    @property
    def rows(self) -> int:
        """Rows of vectors for a number."""
        return 1 if self.kind == "pairs" else 2

    @property
    def step(self) -> int:
        """Rows of vectors for a scalar."""
        return 2 if self.kind == "real" else 1

    def spot(self, inner: int) -> Spot:
        """How the numbers of lines side by side lie, of which there are `inner`."""
        return Spot(self.kind, 2 * inner, inner) if self.kind != "real" else Spot("real", inner)


@dataclass(frozen=True)
class Axis:
    """Transforms of `length` along an axis of [outer][length][inner]."""

    outer: int
    inner: int
    length: int
    type: Type
    source: Side
    target: Side
    before: str = ""  # what Half does before the stages,
    after: str = ""  # and after them
    inverse: bool = False
    scale: float = 1.0

    @property
    def flops(self) -> int:
        """As everyone counts them."""
        return 5 * self.lines * self.length * max(1, self.length.bit_length() - 1)

    @property
    def lines(self) -> int:
        """How many transforms there are."""
        return self.outer * self.inner

    @property
    def bytes(self) -> int:
        """Read and written."""
        many = sum(s.length * s.parts for s in (self.source, self.target))
        return self.lines * many * (self.type.bits // 8)


def write_axes(
    module: Module, name: str, axes: Sequence[Leg], parts: int = 1
) -> tuple[KernelInfo, np.ndarray]:
    """One kernel for some axes, and the table that is its last buffer.

    All axes of one of `parts` equal parts of the arrays, and then of the next; see `parted_by`.
    """
    f, table = Fn(module, name, ARGUMENTS), Table()
    *buffers, factors = pointers(f, max(max(leg.ends) for leg in axes) + 2)
    writers = [
        (_Lines if inline(leg.axis, lanes_of(module, leg.axis)) else _Groups)(
            f, leg.axis, table, [*(buffers[k] for k in leg.ends), factors]
        )
        for leg in axes
    ]
    units = [w.plan() for w in writers]
    flops = sum(leg.axis.flops for leg in axes)
    many = parts if parts > 1 else units[0]
    chunks = chunk_count(many, flops)
    low, high = chunk_bounds(f, f.arg("chunk"), chunks, many)
    with f.loop(low, high) as loop:
        if parts == 1:
            writers[0].unit(loop.i)
        else:
            for w, count in zip(writers, units, strict=True):
                first = f.times(loop.i, count // parts)
                with f.loop(first, f.plus(first, count // parts)) as inner:
                    w.unit(inner.i)
    f.done()
    size = axes[0].axis.type.bits // 8
    moved = sum(leg.axis.bytes for leg in axes)
    info = KernelInfo(name, chunks, size * max(w.scratch for w in writers), flops, moved)
    return info, table.array(f"f{size}")


class Leg(NamedTuple):
    """An axis, and the numbers of the buffers that it reads and writes.

    They may be the same one, if what is written is as large as what is read.
    """

    axis: Axis
    ends: tuple[int, int]


def lanes_of(module: Module, a: Axis) -> int:
    """Numbers in a vector."""
    return module.machine.lanes(a.type.bits // 8)


def parted_by(a: Axis, parts: int, lanes: int) -> bool:
    """Whether units of an axis belong to one of so many parts of the array each."""
    whole = a.lines // parts % lanes == 0
    return a.outer % parts == 0 and (inline(a, lanes) or beside(a, lanes) or whole)


def beside(a: Axis, lanes: int) -> bool:
    """Whether lines side by side make groups of their own: not if those are nearly empty."""
    return 2 * a.inner > lanes


def inline(a: Axis, lanes: int) -> bool:
    """Whether each line has all lanes for itself."""
    ends = a.source.kind, a.before or a.after, a.target.kind
    able = ends in (
        ("complex", "", "complex"),
        ("pairs", "apart", "complex"),
        ("pairs", "doubled", "complex"),
        ("complex", "together", "pairs"),
    )
    wide = a.length // 2 + 1 >= lanes  # or a line has no whole vector
    return able and a.inner == 1 and wide and sides(a.length, lanes) is not None


class _Writer(ABC):
    """The units of work of one axis."""

    def __init__(self, f: Fn, a: Axis, table: Table, buffers: Sequence[Val]) -> None:
        self.f, self.module, self.a, self.factors = f, f.module, a, table
        self.source, self.target, self.table = buffers
        self.lanes = lanes_of(f.module, a)
        self.type = a.type.by(self.lanes)
        self.style = Style(a.inverse, a.inverse, a.scale)
        self.scratch = 0  # scalars

    @abstractmethod
    def plan(self) -> int:
        """What all units share; how many there are."""

    @abstractmethod
    def unit(self, number: Val) -> None:
        """Write one."""


class _Lines(_Writer):
    """Lines one by one."""

    def plan(self) -> int:
        a, sizes = self.a, sides(self.a.length, self.lanes)
        assert sizes
        half = a.before or a.after
        self.inline = Inline(self.f, self.type, sizes, self.factors, self.style, half)
        self.scratch = self.inline.room
        return a.outer

    def unit(self, number: Val) -> None:
        f, a = self.f, self.a
        wide = [s.length * s.parts for s in (a.source, a.target)]
        source = f.at(self.source, f.times(number, wide[0]), a.type)
        target = f.at(self.target, f.times(number, wide[1]), a.type)
        many = wide[1] * (a.type.bits // 8)
        if many <= FAR:
            _called(f, f.at(target, SOON * wide[1], a.type), many)
        self.inline.line(source, target, self.table, f.arg("scratch"))


def _called(f: Fn, at: Val, many: int) -> None:
    """Call for memory that is written soon. What is read in order comes without that."""
    f.module.declare("llvm.prefetch.p0", "void", "ptr, i32, i32, i32")
    with f.loop(0, many, LINE) as loop:
        spot = f.at(at, loop.i, I8)  # behind the last line of all nothing happens
        f.emit(f"call void @llvm.prefetch.p0({spot}, i32 1, i32 2, i32 1)")


class _Groups(_Writer):
    """As many lines as lanes at once."""

    def plan(self) -> int:
        f, a = self.f, self.a
        self.chain = self._chain()
        self.split = self.chain.split
        self.beside = beside(a, self.lanes)
        self.width = a.inner if self.beside else a.lines
        self.blocks = -(-self.width // self.lanes)
        longest = max(
            self.chain.length, *(s.length * s.rows // 2 for s in (a.source, a.target))
        )
        self.room = (longest + 1) * 2 * self.lanes
        self.buffers = [f.arg("scratch"), f.at(f.arg("scratch"), self.room, a.type)]
        self.halves = 0
        if {a.before, a.after} & {"apart", "together"}:
            self.halves = self.factors.add(roots(2 * a.length, np.arange(a.length // 2 + 1)))
        self.scratch = 2 * self.room
        if isinstance(self.chain, Deep):
            ends = self.scratch, self.scratch + self.chain.room
            self.chain.near = [f.at(f.arg("scratch"), at, a.type) for at in ends]
            self.scratch += 2 * self.chain.room
        return self.blocks * (a.outer if self.beside else 1)

    def _chain(self) -> Chain | Deep:
        if short := deep(self.a.length):
            return Deep(self.f, self.type, short, self.factors, self.style)
        return Chain(self.f, self.type, self.a.length, self.factors, self.style)

    def unit(self, number: Val) -> None:
        f = self.f
        outer, block = parted(f, number, self.blocks) if self.beside else (0, number)
        begin = f.times(block, self.lanes)
        first = f.plus(f.times(outer, self.width), begin)
        if self.width % self.lanes == 0:
            self._full(outer, begin)
            return
        full = f.compare("slt", f.integer(block), f.const(I64, self.width // self.lanes))
        if self.width >= self.lanes and (self.beside or self.a.inner == 1):
            with f.when(full):
                self._full(outer, begin)
            with f.when(f.compare("eq", full, f.const(full.type, 0))):
                self._some(first, f.const(I64, self.width % self.lanes))
        else:
            left = f.sub(f.const(I64, self.width), f.integer(begin))
            self._some(first, f.integer(f.lesser(left, self.lanes)))

    def _full(self, outer: Int, begin: Int) -> None:
        """A group of as many lines as lanes."""
        f, a, t = self.f, self.a, self.a.type
        if self.beside:
            ends = []
            for side, base in ((a.source, self.source), (a.target, self.target)):
                number = f.plus(f.times(outer, side.length * a.inner), begin)
                at = f.at(base, f.times(number, side.parts), t)
                ends.append(End(at, side.spot(a.inner)))
            self._run(*ends)
            return
        wide = [s.length * s.parts for s in (a.source, a.target)]
        if a.inner > 1 or min(wide) < self.lanes:
            self._some(f.integer(begin), f.const(I64, self.lanes))
            return
        x, skip = self.buffers[0], [f.times(begin, n) for n in wide]
        into = Lines(self.type, wide[0], a.source.step, back=False)
        f.call(into.write(self.module), None, f.at(self.source, skip[0], t), x)
        found = self._run(End(x, self.split))
        out = Lines(self.type, wide[1], a.target.step, back=True)
        f.call(out.write(self.module), None, f.at(self.target, skip[1], t), found)

    def _some(self, first: Int, lanes: Val) -> None:
        """A group whose lines are found one by one."""
        f, a, x = self.f, self.a, self.buffers[0]
        clear(f, x, self.room * (a.type.bits // 8))
        for side, back in ((a.source, False), (a.target, True)):
            if back:
                x = self._run(End(x, self.split))
            move = Scattered(self.type, side.length, side.parts, side.rows, a.inner, back)
            base = self.target if back else self.source
            f.call(move.write(self.module), None, base, x, f.integer(first), lanes)

    def _run(self, source: End, target: End | None = None) -> Val:
        """All that is done with a group; where the result is."""
        a = self.a
        if a.before:
            source = self._half(a.before, source, None)
        if not a.after:
            return self.chain.run(self.table, source, target, self.buffers).at
        source = self.chain.run(self.table, source, None, self.buffers)
        return self._half(a.after, source, target).at

    def _half(self, what: str, source: End, target: End | None) -> End:
        """What is before the stages, or after them."""
        f, a = self.f, self.a
        spare = next(b for b in self.buffers if b != source.at)
        target = target or End(spare, self.split)
        long = a.target.length if what == "first" else a.length
        half = Half(self.type, what, long, source.spot, target.spot)
        at = f.at(self.table, self.halves, a.type)
        f.call(half.write(self.module), None, source.at, target.at, at)
        return target
