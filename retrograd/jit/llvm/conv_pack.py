"""Weights in the order in which a convolution reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.conv_chunks import (
    ARGUMENTS,
    chunk_bounds,
    chunk_count,
    group_and_block,
    pointers,
)
from retrograd.jit.llvm.conv_tile import named
from retrograd.jit.llvm.gemm_tile import load_some
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.text import PTR, Module, Type, Val

if TYPE_CHECKING:
    from retrograd.jit.llvm.conv_layout import Blocks, Layout
    from retrograd.jit.llvm.conv_shape import Convolution

__all__ = ["Arrange"]


@dataclass(frozen=True)
class Arrange:
    """A kernel with buffers w, arranged: weights as `layout` has them.

    Backward, sources are out channels, results are in channels, and taps are turned around.
    """

    module: Module
    name: str
    conv: Convolution
    layout: Layout
    backward: bool
    linkage: str = "internal"

    def write(self) -> KernelInfo:
        """Put the kernel into the module."""
        f = Fn(self.module, self.name, ARGUMENTS, linkage=self.linkage)
        taps = self.conv.taps
        size = self.conv.counts[1]
        chunks = chunk_count(taps, size * 8)
        w, to = pointers(f, 2)
        low, high = chunk_bounds(f, f.arg("chunk"), chunks, taps)
        with f.loop(low, high) as loop:
            if self.layout.packed:
                for blocks in self.layout.blocks:
                    self._blocks(f, blocks, loop.i, w, to)
            else:
                self._turned(f, loop.i, w, to)
        f.done()
        moved = size + (self.layout.packed_size if self.layout.packed else size)
        return KernelInfo(self.name, chunks, 0, 0, moved * self.conv.type.bits // 8)

    def _target(self, f: Fn, tap: Val) -> Val:
        """Which tap it becomes."""
        return f.sub(f.integer(self.conv.taps - 1), tap) if self.backward else tap

    def _blocks(self, f: Fn, blocks: Blocks, tap: Val, w: Val, to: Val) -> None:
        conv, layout, t = self.conv, self.layout, self.conv.type
        wide = conv.out_channels
        deep = conv.in_channels // conv.groups
        first, by_block, by_group = layout.weights(blocks)
        wide_block = blocks.vectors * layout.lanes
        panel = Panel(
            t,
            wide_block,
            wide_block - layout.lanes + blocks.kept,
            layout.depth,
            (wide, 1) if self.backward else (1, wide),
        ).write(f.module)
        target = f.at(to, f.times(self._target(f, tap), layout.depth * wide_block), t)
        source = f.at(w, f.times(tap, deep * wide), t)
        with f.loop(0, layout.groups * blocks.many) as loop:
            group, block = group_and_block(f, layout, blocks, loop.i)
            result = f.plus(f.times(block, blocks.width), blocks.first)
            step = wide if self.backward else 1
            here = f.plus(f.times(group, wide // conv.groups), f.times(result, step))
            there = f.plus(f.plus(f.times(group, by_group), f.times(block, by_block)), first)
            f.call(panel, None, f.at(source, here, t), f.at(target, there, t))

    def _turned(self, f: Fn, tap: Val, w: Val, to: Val) -> None:
        """[taps][in / groups][out] as [taps][out / groups][in], turned around; few numbers."""
        conv, t = self.conv, self.conv.type
        deep, each = conv.in_channels // conv.groups, conv.out_channels // conv.groups
        size = deep * conv.out_channels
        source = f.at(w, f.times(tap, size), t)
        target = f.at(to, f.times(self._target(f, tap), size), t)
        with f.loop(0, conv.groups) as group, f.loop(0, deep) as c, f.loop(0, each) as k:
            from_group, to_group = f.times(group.i, each), f.times(group.i, deep)
            here = f.plus(f.plus(f.times(c.i, conv.out_channels), from_group), k.i)
            there = f.plus(f.plus(f.times(k.i, conv.in_channels), to_group), c.i)
            f.store(f.load(t, f.at(source, here, t)), f.at(target, there, t))


@dataclass(frozen=True)
class Panel:
    """A function (source, target): target[k][lane] = source[lane, k], zero beyond `count`."""

    type: Type
    width: int
    count: int  # lanes that exist
    depth: int
    strides: tuple[int, int]  # of lanes and of k, one of which is 1

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        name = named("conv_panel", self)
        return module.once(name, lambda: self._write(module, name))

    def _write(self, module: Module, name: str) -> None:
        f = Fn(module, name, [("source", PTR), ("target", PTR)], attributes="nounwind noinline")
        lanes = module.machine.lanes(self.type.bits // 8)
        if self.strides[0] == 1:
            self._copy(f, lanes)
        else:
            whole = self.count // lanes * lanes, self.depth // lanes * lanes
            with f.loop(0, whole[0], lanes) as across, f.loop(0, whole[1], lanes) as down:
                self._square(f, across.i, down.i, lanes)
            self._one_by_one(f, (0, whole[0]), (whole[1], self.depth))
            self._one_by_one(f, (whole[0], self.count), (0, self.depth))
            with f.loop(0, self.depth) as k, f.loop(self.count, self.width) as lane:
                at = f.plus(f.times(k.i, self.width), lane.i)
                f.store(f.zero(self.type), f.at(f.arg("target"), at, self.type))
        f.done()

    def _copy(self, f: Fn, lanes: int) -> None:
        t = self.type.by(lanes)
        with f.loop(0, self.depth) as k:
            source = f.at(f.arg("source"), f.times(k.i, self.strides[1]), t)
            target = f.at(f.arg("target"), f.times(k.i, self.width), t)
            for first in range(0, self.width, lanes):
                x = load_some(f, t, f.at(source, first, t), min(lanes, self.count - first))
                f.store(x, f.at(target, first, t))

    def _one_by_one(self, f: Fn, across: tuple[int, int], down: tuple[int, int]) -> None:
        with f.loop(*across) as lane, f.loop(*down) as k:
            here = f.plus(f.times(lane.i, self.strides[0]), k.i)
            there = f.plus(f.times(k.i, self.width), lane.i)
            x = f.load(self.type, f.at(f.arg("source"), here, self.type))
            f.store(x, f.at(f.arg("target"), there, self.type))

    def _square(self, f: Fn, lane: Val, k: Val, lanes: int) -> None:
        """A square of one vector by one vector, by shuffles of rows at halving distances."""
        t, far = self.type.by(lanes), lanes // 2
        here = f.plus(f.times(lane, self.strides[0]), k)
        source = f.at(f.arg("source"), here, t)
        rows = [f.load(t, f.at(source, n * self.strides[0], t)) for n in range(lanes)]
        while far:
            for n in (n for n in range(lanes) if not n & far):
                a, b = rows[n], rows[n + far]
                low = [i if not i & far else lanes + i - far for i in range(lanes)]
                high = [i + far if not i & far else lanes + i for i in range(lanes)]
                rows[n], rows[n + far] = f.shuffle(a, b, low), f.shuffle(a, b, high)
            far //= 2
        target = f.at(f.arg("target"), f.plus(f.times(k, self.width), lane), t)
        for n, x in enumerate(rows):
            f.store(x, f.at(target, n * self.width, t))
