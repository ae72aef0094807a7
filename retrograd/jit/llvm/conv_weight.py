"""The kernel of a gradient by weights: partial results, each from a part of the images."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.conv_chunks import (
    ARGUMENTS,
    MOST_CHUNKS,
    NEAR,
    chunk_bounds,
    chunk_count,
    group_and_block,
    larger,
    parted,
    pointers,
)
from retrograd.jit.llvm.conv_shape import Axis
from retrograd.jit.llvm.conv_soon import Band, Target
from retrograd.jit.llvm.conv_tile import balanced
from retrograd.jit.llvm.conv_weight_tile import WeightTile
from retrograd.jit.llvm.gemm_tile import load_some, store_some
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.text import I32, I64, Int, Module, Val

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrograd.jit.llvm.conv_layout import Blocks, Layout
    from retrograd.jit.llvm.conv_shape import Convolution

__all__ = ["WeightGradient"]

NEAREST = 1 << 15  # bytes that are to stay in the first cache
PARTIALS = 1 << 22  # bytes of partial results
PIXELS = 64  # that are worth it to load and store a tile's weights
TRIVIAL = Axis(1, 1, 1, 1, 1, 1, 0)


@dataclass(frozen=True)
class WeightGradient:
    """A kernel with buffers x, g and partial results [parts][*kernel, in / groups, out]."""

    module: Module
    name: str
    conv: Convolution
    layout: Layout
    rows: int  # weights down a tile, at most
    linkage: str = "internal"

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """At least two: rows and pixels of images."""
        axes = self.conv.axes(backward=False)
        return (TRIVIAL,) * (2 - len(axes)) + axes

    @cached_property
    def bands(self) -> int:
        """Parts of an image whose rows stay in the cache together."""
        down, across = self.axes[-2:]
        source = down.stride * across.source * self.conv.in_channels
        row = source + across.result * self.conv.out_channels
        narrow = any(b.groups for b in self.layout.blocks)
        room = NEAR if self.copied or narrow else NEAREST
        near = room * 8 // (max(row, 1) * self.conv.type.bits)
        if self.copied:
            line = across.result * self._widest * self.conv.type.bits // 8
            near = min(near, NEAREST // max(line, 1))
        near = max(near, -(-PIXELS // max(1, across.result)))
        return max(1, -(-down.result // max(1, near)))

    @cached_property
    def _widest(self) -> int:
        return max((b.vectors for b in self.layout.blocks), default=0) * self.layout.lanes

    @cached_property
    def copied(self) -> bool:
        """Whether a band of g is put side by side for each block of channels.

        It pays where g's rows are far from each other and each is read many times.
        """
        narrow = any(b.groups for b in self.layout.blocks)
        turns = self.conv.taps * self.layout.depth // max(1, self.rows)
        whole = self.conv.out_channels == self._widest if self.layout.blocks else True
        return not narrow and not whole and turns >= 8

    @cached_property
    def scratch(self) -> int:
        """Bytes for the band of g."""
        if not self.copied:
            return 0
        down, across = self.axes[-2:]
        rows = -(-down.result // self.bands)
        pixels = self.stacked * rows * across.result
        return pixels * self._widest * self.conv.type.bits // 8

    @cached_property
    def units(self) -> int:
        """Bands of all images."""
        lead = prod(a.result for a in self.axes[:-2])
        return -(-self.conv.batch // self.stacked) * lead * self.bands

    @cached_property
    def stacked(self) -> int:
        """Images that are summed while weights stay in registers: many, if they are small."""
        if self.bands > 1:
            return 1
        down, across = self.axes[-2:]
        size = down.result * across.result * self._widest * self.conv.type.bits // 8
        return max(1, min(self.conv.batch, NEAREST // max(size, 1)))

    @cached_property
    def parts(self) -> tuple[int, int]:
        """Of the images, each with its own partial result, and of the channels."""
        across = max(1, min(8, self.layout.total, self.conv.flops >> 18))
        size = self.conv.counts[1] * self.conv.type.bits // 8
        most = max(1, min(MOST_CHUNKS // across, PARTIALS // max(size, 1)))
        most = min(most, chunk_count(self.units, self.conv.flops // across))
        # A part that has more than others is waited for: one more of them, or some less.
        near = range(min(most + most // 6, MOST_CHUNKS // across), most * 3 // 4, -1)
        return next((n for n in near if not self.units % n), most), across

    @cached_property
    def band(self) -> Band | None:
        """What is summed together, if what follows it is called for: of images, in order."""
        down, across = self.axes[-2:]
        narrow = any(b.groups for b in self.layout.blocks)
        if not self.module.machine.told or not self._one_tap or narrow or len(self.axes) > 2:
            return None
        rows = -(-down.result // self.bands) * self.stacked
        x = down.stride * across.source * self.conv.in_channels
        weights = self.conv.taps * self.layout.depth
        return Band(rows, x, across.result, self.conv.out_channels, weights)

    @property
    def _one_tap(self) -> bool:
        """Whether each tile has one tap of the last axis."""
        return self.rows < 2 * self.layout.depth or self.axes[-1].taps == 1

    def write(self) -> KernelInfo:
        """Put the kernel into the module."""
        f = Fn(self.module, self.name, ARGUMENTS, linkage=self.linkage)
        down, across = self.parts
        x, g, to = pointers(f, 3)
        chunk: Int = f.arg("chunk") if down * across > 1 else 0
        part, share = parted(f, chunk, across)
        to = f.at(to, f.times(part, self.conv.counts[1]), self.conv.type)
        shares = chunk_bounds(f, share, across, self.layout.total)
        self._clear(f, shares, to)
        if self.conv.flops:
            low, high = chunk_bounds(f, part, down, self.units)
            with f.loop(low, high) as unit:
                write = partial(self._unit, f, unit.i, (x, g, to))
                self._each_block(f, shares, write)
        f.done()
        conv = self.conv
        moved = conv.bytes + conv.counts[1] * (down - 1) * conv.type.bits // 8
        return KernelInfo(self.name, down * across, self.scratch, conv.flops, moved)

    def _each_block(
        self, f: Fn, shares: tuple[Int, Int], write: Callable[[Blocks, Int], None]
    ) -> None:
        """Loops over the channel blocks of this chunk."""
        first = 0
        for blocks in self.layout.blocks:
            stop = first + self.layout.groups * blocks.many
            low, high = larger(f, first, shares[0]), f.lesser(stop, shares[1])
            with f.loop(low, high) as loop:
                write(blocks, f.plus(loop.i, -first))
            first = stop

    def _channels(self, f: Fn, blocks: Blocks, number: Int) -> tuple[Int, Int]:
        """The first source channel and the first result channel of a block."""
        layout = self.layout
        group, block = group_and_block(f, layout, blocks, number)
        result = f.plus(f.times(group, layout.width), f.times(block, blocks.width))
        source = f.plus(f.times(group, layout.depth), f.times(block, blocks.source))
        if blocks.groups:
            source = f.plus(source, blocks.first // blocks.groups.width * layout.depth)
        return source, f.plus(result, blocks.first)

    def _clear(self, f: Fn, shares: tuple[Int, Int], to: Val) -> None:
        t, wide = self.conv.type.by(self.layout.lanes), self.conv.out_channels

        def zero(blocks: Blocks, number: Int) -> None:
            _, result = self._channels(f, blocks, number)
            with f.loop(0, self.conv.taps * self.layout.depth) as row:
                at = f.at(to, f.plus(f.times(row.i, wide), result), t)
                for j in range(blocks.vectors):
                    kept = blocks.kept if blocks.groups or j == blocks.vectors - 1 else 0
                    step = blocks.groups.lanes if blocks.groups else t.lanes
                    store_some(f, f.zero(t), f.at(at, j * step, t), kept)

        self._each_block(f, shares, zero)

    def _unit(
        self, f: Fn, unit: Int, ends: tuple[Val, Val, Val], blocks: Blocks, number: Int
    ) -> None:
        """What a band of an image adds to one block of channels."""
        t, down, across = self.conv.type, *self.axes[-2:]
        source, result = self._channels(f, blocks, number)
        x, g, dw = f.at(ends[0], source, t), f.at(ends[1], result, t), f.at(ends[2], result, t)
        rest, band = parted(f, unit, self.bands)
        low, high = chunk_bounds(f, band, self.bands, down.result)
        lead = prod(axis.result for axis in self.axes[:-2])
        stack, place = parted(f, rest, lead)
        image = f.times(stack, self.stacked)
        images = f.integer(f.lesser(f.plus(f.times(image, -1), self.conv.batch), self.stacked))
        plane = across.result * self.conv.out_channels * down.result
        g = f.at(g, f.times(f.plus(f.times(image, lead), place), plane), t)
        x = f.at(x, f.times(image, self._image), t)
        target = Target(dw, 0, self._next(f, high, x, g) if self.band else None)
        if self.copied:
            g = self._copy(f, blocks, (low, high), images, g)
        self._lead(f, blocks, len(self.axes) - 3, place, (low, high, images), (x, g, target))

    def _next(self, f: Fn, high: Int, x: Val, g: Val) -> tuple[Val, Val]:
        """What follows a band whose rows end at `high`: of the same image or of the next."""
        t, (down, across) = self.conv.type, self.axes[-2:]
        reach = (down.taps - 1) * down.dilation - down.before - down.stride + 1
        row = f.lesser(f.plus(f.times(high, down.stride), reach), down.source)
        x = f.at(x, f.times(row, across.source * self.conv.in_channels), t)
        return x, f.at(g, f.times(high, across.result * self.conv.out_channels), t)

    @property
    def _image(self) -> int:
        """In x, from image to image."""
        return prod(self.conv.in_shape) * self.conv.in_channels

    def _copy(self, f: Fn, blocks: Blocks, band: tuple[Int, Int], images: Val, g: Val) -> Val:
        """A band of g for one block, side by side in scratch; as if it began with row 0."""
        t, wide = self.conv.type.by(self.layout.lanes), blocks.vectors * self.layout.lanes
        first, last = (f.times(edge, self.axes[-1].result) for edge in band)
        to = f.at(f.arg("scratch"), f.times(f.times(first, wide), -1), t)
        here, there = (self._image_of_g(copied=c, wide=wide) for c in (False, True))
        with f.loop(0, images) as image, f.loop(first, last) as pixel:
            at = f.plus(f.times(image.i, here), f.times(pixel.i, self.conv.out_channels))
            source = f.at(g, at, t)
            at = f.plus(f.times(image.i, there), f.times(pixel.i, wide))
            target = f.at(to, at, t)
            for j in range(blocks.vectors):
                kept = blocks.kept if j == blocks.vectors - 1 else 0
                x = load_some(f, t, f.at(source, j * t.lanes, t), kept)
                f.store(x, f.at(target, j * t.lanes, t))
        return to

    def _image_of_g(self, *, copied: bool, wide: int) -> int:
        """In g, or in its copy, from image to image."""
        plane = self.axes[-2].result * self.axes[-1].result
        if copied:
            return plane * wide
        return plane * prod(a.result for a in self.axes[:-2]) * self.conv.out_channels

    def _pixel(self, blocks: Blocks) -> int:
        """In g, from pixel to pixel."""
        return blocks.vectors * self.layout.lanes if self.copied else self.conv.out_channels

    def _lead(
        self,
        f: Fn,
        blocks: Blocks,
        axis: int,
        place: Int,
        band: tuple[Int, Int, Val],
        ends: tuple[Val, Val, Target],
    ) -> None:
        """Taps of the axes before the last two, from the inner one outwards."""
        t, (x, g, dw) = self.conv.type, ends
        plane = self.conv.in_channels * prod(a.source for a in self.axes[axis + 1 :])
        if axis < 0:
            self._down(f, blocks, band, ends)
            return
        a = self.axes[axis]
        place, here = parted(f, place, a.result)
        step = self.layout.depth * prod(b.taps for b in self.axes[axis + 1 :])
        with f.loop(0, a.taps) as tap:
            at = f.plus(f.times(here, a.stride), f.times(tap.i, a.dilation))
            at = f.integer(f.plus(at, -a.before))
            with f.when(f.compare("ult", at, f.integer(a.source))):
                x_ = f.at(x, f.times(at, plane), t)
                dw_ = dw.on(f, f.times(tap.i, step), self.conv.out_channels, t)
                self._lead(f, blocks, axis - 1, place, band, (x_, g, dw_))

    def _down(
        self, f: Fn, blocks: Blocks, band: tuple[Int, Int, Val], ends: tuple[Val, Val, Target]
    ) -> None:
        """Taps of the last axis but one, and the rows of g that see each."""
        t, (x, g, dw), (down, across) = self.conv.type, ends, self.axes[-2:]
        line = across.source * self.conv.in_channels
        step = across.taps * self.layout.depth
        with f.loop(0, down.taps) as tap:
            low, high = self._range(f, down, tap.i)
            low, high = larger(f, low, band[0]), f.lesser(high, band[1])
            rows = f.sub(f.integer(high), f.integer(low))
            with f.when(f.compare("sgt", rows, f.integer(0))):
                at = f.plus(f.times(low, down.stride), f.times(tap.i, down.dilation))
                at = f.plus(at, -down.before)
                x_ = f.at(x, f.times(at, line), t)
                g_ = f.at(g, f.times(low, across.result * self._pixel(blocks)), t)
                dw_ = dw.on(f, f.times(tap.i, step), self.conv.out_channels, t)
                self._across(f, blocks, (band[2], rows), (x_, g_, dw_))

    def _range(self, f: Fn, axis: Axis, tap: Val) -> tuple[Int, Int]:
        """The results that see a tap."""
        ranges = [axis.range_of(n) for n in range(axis.taps)]
        if len(set(ranges)) == 1:
            return ranges[0]
        spot = f.at(self.module.table(np.array(ranges, np.int32)), f.times(tap, 2), I32)
        low, high = (f.load(I32, f.at(spot, n, I32)) for n in range(2))
        return f.convert("sext", low, I64), f.convert("sext", high, I64)

    def _across(
        self, f: Fn, blocks: Blocks, rows: tuple[Val, Val], ends: tuple[Val, Val, Target]
    ) -> None:
        """Taps of the last axis: several together where a tile has room for them."""
        axis = self.axes[-1]
        if self._one_tap:
            with f.loop(0, axis.taps) as tap:
                low, high = self._range(f, axis, tap.i)
                some = f.compare("slt", f.integer(low), f.integer(high))
                with f.when(some):
                    self._depth(f, blocks, (tap.i, 1), (low, high), rows, ends)
            return
        first = 0
        for count in balanced(axis.taps, self.rows // self.layout.depth):
            ranges = [axis.range_of(n) for n in range(first, first + count)]
            low, high = max(r[0] for r in ranges), min(r[1] for r in ranges)
            if low < high:
                self._depth(f, blocks, (first, count), (low, high), rows, ends)
            for n, (start, stop) in enumerate(ranges):
                edges = [(start, low), (high, stop)] if low < high else [(start, stop)]
                for edge in edges:
                    if edge[0] < edge[1]:
                        self._depth(f, blocks, (first + n, 1), edge, rows, ends)
            first += count

    def _depth(
        self,
        f: Fn,
        blocks: Blocks,
        taps: tuple[Int, int],
        span: tuple[Int, Int],
        rows: tuple[Val, Val],
        ends: tuple[Val, Val, Target],
    ) -> None:
        """Source channels, a tile at a time."""
        conv, axis, t = self.conv, self.axes[-1], self.conv.type
        tap, count = taps
        depth, (x, g, dw) = self.layout.depth, ends
        at = f.plus(f.times(span[0], axis.stride), f.times(tap, axis.dilation))
        x = f.at(x, f.times(f.plus(at, -axis.before), conv.in_channels), t)
        g = f.at(g, f.times(span[0], self._pixel(blocks)), t)
        dw = dw.on(f, f.times(tap, depth), conv.out_channels, t)
        pixels = f.integer(f.plus(span[1], f.times(span[0], -1)))
        sizes = [depth] if count > 1 or blocks.groups else balanced(depth, self.rows)
        first = 0
        for size in sorted(set(sizes), reverse=True):
            name = self._function(blocks, count, size).write(self.module)
            with f.loop(0, sizes.count(size)) as loop:
                c = f.plus(f.times(loop.i, size), first)
                to = dw.on(f, c, conv.out_channels, t)
                soon = self.band.spots(f, to, t) if self.band else ()
                f.call(name, None, f.at(x, c, t), g, to.dw, *rows, pixels, *soon)
            first += size * sizes.count(size)

    def _function(self, blocks: Blocks, taps: int, depth: int) -> WeightTile:
        conv, (down, across) = self.conv, self.axes[-2:]
        line = across.source * conv.in_channels
        pixel = self._pixel(blocks)
        image = self._image_of_g(copied=self.copied, wide=pixel)
        return WeightTile(
            conv.type,
            taps,
            depth,
            blocks.vectors,
            blocks.kept,
            across.dilation * conv.in_channels,
            (self._image, down.stride * line, across.stride * conv.in_channels),
            (image, across.result * pixel, pixel),
            conv.out_channels,
            blocks.groups,
            self.copied,
            self.band.calls(taps * depth, blocks.vectors, conv.type) if self.band else None,
        )
