"""The kernel of a convolution and of its gradient by x: results from windows of a source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
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
from retrograd.jit.llvm.conv_pieces import Piece, pieces, relative
from retrograd.jit.llvm.conv_shape import Run
from retrograd.jit.llvm.conv_tile import Epilogue, Soon, Tile
from retrograd.jit.llvm.gemm_tile import load_some, some_lanes, store_some
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.text import I1, I32, I64, LINE, PTR, Int, Module, Type, Val

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.llvm.conv_layout import Blocks, Layout
    from retrograd.jit.llvm.conv_shape import Axis, Convolution

__all__ = ["Epilogue", "Windows"]


# Lines that are called for at a time. Where there are more, channels are many: most of their
# blocks find the row in the second cache, where the first has left it.
MOST_SOON = 64
SHORT = 600  # operations of an epilogue, written for every vector of a tile


@dataclass(frozen=True)
class Windows:
    """Results [batch, *result sizes, channels] from source, weights: the buffers, with out."""

    module: Module
    name: str
    conv: Convolution
    axes: tuple[Axis, ...]
    layout: Layout
    source: int  # channels of the source
    pixels: int  # at most, in a tile
    images: int  # in a tile: a divisor of the batch
    epilogue: Epilogue | None = None
    linkage: str = "internal"

    @property
    def type(self) -> Type:
        """Of the numbers."""
        return self.conv.type

    @cached_property
    def pieces(self) -> list[Piece]:
        """Of the last axis."""
        return pieces(self.axes[-1], self.pixels)

    @cached_property
    def rows(self) -> int:
        """Results, but for the last axis."""
        return self.conv.batch // self.images * prod(a.result for a in self.axes[:-1])

    @cached_property
    def segments(self) -> int:
        """Parts of a row; long rows, and few, are parted."""
        tiles = sum(p.many for p in self.pieces)
        if not self.rows or not tiles:
            return 1
        return max(-(-tiles // 64), min(tiles, -(-MOST_CHUNKS // self.rows)))

    @cached_property
    def together(self) -> int:
        """Units whose sources and results stay in the cache while channels change."""
        last = self.axes[-1]
        row = (last.source * self.source + last.result * self.layout.channels) or 1
        row *= self.images
        return max(1, min(64, NEAR * 8 // (row * self.type.bits) * self.segments))

    def write(self) -> KernelInfo:
        """Put the kernel into the module."""
        f = Fn(self.module, self.name, ARGUMENTS, linkage=self.linkage)
        units = self.rows * self.segments
        chunks = chunk_count(units, self.conv.flops)
        if units and self.layout.channels and self.pieces:
            low, high = chunk_bounds(f, f.arg("chunk"), chunks, units)
            many = self.together if self.layout.total > 1 else max(1, units)
            x, w, out = pointers(f, 3)
            with f.loop(low, high, many) as loop:
                stop = f.lesser(f.plus(loop.i, many), high)
                for blocks in self.layout.blocks:
                    self._blocks(f, blocks, (loop.i, stop), (x, w, out))
        f.done()
        return KernelInfo(self.name, chunks, 0, self.conv.flops, self.conv.bytes)

    def _blocks(
        self, f: Fn, blocks: Blocks, units: tuple[Int, Int], ends: tuple[Val, Val, Val]
    ) -> None:
        layout, t = self.layout, self.type
        turns = 1 if blocks.groups else layout.groups * blocks.many
        with f.loop(0, turns) as loop:
            group, block = group_and_block(f, layout, blocks, loop.i if turns > 1 else 0)
            first, by_block, by_group = layout.weights(blocks)
            channel = f.plus(
                f.plus(f.times(group, layout.width), f.times(block, blocks.width)), blocks.first
            )
            source = f.plus(f.times(group, layout.depth), f.times(block, blocks.source))
            if blocks.groups:
                first_source = blocks.first // blocks.groups.width * layout.depth
                source = f.plus(source, first_source)
            weight = f.plus(f.plus(f.times(group, by_group), f.times(block, by_block)), first)
            x, w = f.at(ends[0], source, t), f.at(ends[1], weight, t)
            out = f.at(ends[2], channel, t)
            with f.loop(*units) as unit:
                self._unit(f, blocks, unit.i, (x, w, out, f.integer(channel)))

    def _unit(self, f: Fn, blocks: Blocks, unit: Val, ends: tuple[Val, Val, Val, Val]) -> None:
        """A row of results, or a segment of it, for one block of channels."""
        row, segment = parted(f, unit, self.segments)
        x, w, counts, pixel = self._outer(f, blocks, row, ends[0], ends[1])
        tiles = sum(p.many for p in self.pieces)
        low, high = chunk_bounds(f, segment, self.segments, tiles)
        at = 0
        for piece in self.pieces:
            start: Int = at
            stop: Int = at + piece.many
            if self.segments > 1:
                start, stop = larger(f, at, low), f.lesser(at + piece.many, high)
            with f.loop(start, stop) as loop:
                number = f.plus(f.times(f.plus(loop.i, -at), piece.size), piece.first)
                self._tile(f, blocks, piece, (number, pixel), (x, w, *ends[2:]), counts)
            at += piece.many

    def _outer(
        self, f: Fn, blocks: Blocks, row: Int, x: Val, w: Val
    ) -> tuple[Val, Val, list[Val], Int]:
        """Source and weights of the first taps of a row, how many on each axis, its pixel."""
        place = self.source * self.axes[-1].source
        counts: list[Val] = []
        tap = self._tap(blocks) * self.axes[-1].taps
        position: Int = row
        for a in reversed(self.axes[:-1]):
            position, here = parted(f, position, a.result)
            first, count, source = self._look_up(f, a, here)
            x = f.at(x, f.times(source, place), self.type)
            w = f.at(w, f.times(first, tap), self.type)
            counts.insert(0, count)
            place, tap = place * a.source, tap * a.taps
        # The rows of the other images of the tile come between those of this one.
        skipped = (self.images - 1) * prod(a.result for a in self.axes)
        pixel = f.plus(f.times(row, self.axes[-1].result), f.times(position, skipped))
        return f.at(x, f.times(position, place * self.images), self.type), w, counts, pixel

    def _look_up(self, f: Fn, axis: Axis, here: Int) -> list[Val]:
        """First tap, number of taps, first source of a result."""
        table = self.module.table(np.array(axis.table, np.int32))
        spot = f.at(table, f.times(here, 3), I32)
        numbers = [f.load(I32, f.at(spot, n, I32)) for n in range(3)]
        return [f.convert("sext", n, I64) for n in numbers]

    def _tap(self, blocks: Blocks) -> int:
        """Elements of weights from tap to tap of the last axis."""
        return self.layout.depth * self.layout.row(blocks)

    def _tile(
        self,
        f: Fn,
        blocks: Blocks,
        piece: Piece,
        spot: tuple[Int, Int],
        ends: tuple[Val, ...],
        counts: Sequence[Val],
    ) -> None:
        number, row = spot
        x, w, out, channel = ends
        phase, t = piece.phase, self.type
        result = f.plus(f.times(number, phase.step), phase.start)
        source = f.times(number, phase.advance)
        first: Int = 0
        if piece.runs is None:
            first, count, source = self._look_up(f, self.axes[-1], result)
            counts = [*counts, count]
        elif piece.runs:  # what is left is relative, so that phases share functions
            first, source = piece.runs[0].tap, f.plus(source, piece.runs[0].offset)
        x = f.at(x, f.times(source, self.source), t)
        w = f.at(w, f.times(first, self._tap(blocks)), t)
        pixel = f.integer(f.plus(row, result))
        out = f.at(out, f.times(pixel, self.layout.channels), t)
        tile = self._function(blocks, piece)
        many = f.integer(blocks.many if blocks.groups else 1)
        spots = (f.arg("bufs"), pixel, channel) if tile.epilogue else ()
        self._where_seen(f, piece, counts, tile, (x, w, out, many), spots)
        if self.epilogue and not tile.epilogue:
            self._finish_blocks(f, blocks, piece, (out, pixel, channel))

    def _finish_blocks(
        self, f: Fn, blocks: Blocks, piece: Piece, spot: tuple[Val, Val, Val]
    ) -> None:
        out, pixel, channel = spot
        finish = self._finish(blocks, piece)
        with f.loop(0, blocks.many if blocks.groups else 1) as loop:
            skip = f.times(loop.i, blocks.width)
            here = f.integer(f.plus(channel, skip))
            f.call(finish, None, f.arg("bufs"), f.at(out, skip, self.type), pixel, here)

    def _where_seen(
        self,
        f: Fn,
        piece: Piece,
        counts: Sequence[Val],
        tile: Tile,
        ends: tuple[Val, ...],
        spots: tuple[Val, ...],
    ) -> None:
        """Call a tile function; where no tap is seen at all, the one that writes zeros."""
        axes = self.axes if piece.runs is None else self.axes[:-1]
        none: Val | None = None
        for axis, count in zip(axes, counts, strict=True):
            if not all(n for _, n, _ in axis.table):
                here = f.compare("eq", count, f.integer(0))
                none = f.bitwise("or", none, here) if none else here
        name = tile.write(self.module)
        if none is None:
            f.call(name, None, *ends, *counts, *spots)
            return
        with f.when(f.bitwise("xor", none, f.const(I1, 1))):
            f.call(name, None, *ends, *counts, *spots)
        zeros = replace(tile, runs=(), outer=()).write(self.module)
        with f.when(none):
            f.call(zeros, None, *ends, *spots)

    def _function(self, blocks: Blocks, piece: Piece) -> Tile:
        layout, tap = self.layout, self._tap(blocks)
        place, step = self.source, tap
        outer: list[tuple[int, int]] = []
        for a in reversed(self.axes):
            outer.insert(0, (place * a.source_step, step * a.tap_step))
            place, step = place * a.source, step * a.taps
        last = self.axes[-1]
        runs = piece.runs
        if runs is None:
            runs = (Run(0, 0, 1, (0,)),)
        else:
            runs, outer = relative(runs), outer[:-1]
        tile = Tile(
            self.type,
            piece.size,
            blocks.vectors,
            blocks.kept,
            runs,
            layout.depth,
            piece.phase.advance * self.source,
            self.source,
            last.source_step,
            layout.row(blocks),
            tap,
            last.tap_step,
            piece.phase.step * layout.channels,
            tuple(outer),
            (self.images, place, prod(a.result for a in self.axes) * layout.channels),
            blocks.groups,
            soon=None if blocks.groups else self._soon(piece),
        )
        work = getattr(self.epilogue, "work", 1) * self.images * piece.size * blocks.vectors
        if not self.epilogue or work > SHORT:
            return tile
        steps = prod(a.result for a in self.axes), piece.phase.step
        return replace(tile, after=self.name, steps=steps, epilogue=self.epilogue)

    def _soon(self, piece: Piece) -> Soon | None:
        """Sources to call for, where tiles and the rows after them read them in their order."""
        if not self.module.machine.told or len(self.axes) < 2 or not piece.runs:
            return None
        last, down = self.axes[-1], self.axes[-2]
        if self.images > 1 or self.layout.groups > 1 or down.stride != down.jump:
            return None
        row = last.source * self.source
        size = piece.size * piece.phase.advance * self.source
        step = -(-size // down.taps)
        if step * self.type.bits > MOST_SOON * LINE * 8:
            return None
        return Soon(row * ((down.taps - 1) * down.source_step + 1), step)

    def _finish(self, blocks: Blocks, piece: Piece) -> str:
        """A function that applies the epilogue to a tile, in place."""
        step = piece.phase.step
        shape = f"{piece.size}x{blocks.vectors}_{blocks.kept}_{step}"
        name = f"{self.name}_finish_{shape}"
        return self.module.once(name, lambda: self._write_finish(name, blocks, piece))

    def _write_finish(self, name: str, blocks: Blocks, piece: Piece) -> None:
        assert self.epilogue
        args = [("bufs", PTR), ("out", PTR), ("pixel", I64), ("channel", I64)]
        f = Fn(self.module, name, args, attributes="nounwind noinline")
        t, step = self.type.by(self.layout.lanes), piece.phase.step
        image = prod(a.result for a in self.axes)
        with f.loop(0, self.images) as images, f.loop(0, piece.size) as loop:
            further = f.plus(f.times(images.i, image), f.times(loop.i, step))
            pixel = f.integer(f.plus(f.arg("pixel"), further))
            row = f.at(f.arg("out"), f.times(further, self.layout.channels), t)

            def apply(skip: Int, kept: int) -> None:
                at = f.at(row, skip, t)
                mask = some_lanes(f, t.lanes, kept) if kept < t.lanes else None
                channel = f.integer(f.plus(f.arg("channel"), skip))
                x = load_some(f, t, at, kept)
                store_some(f, self.epilogue(f, x, pixel, channel, mask), at, kept)  # type: ignore[misc]

            whole = blocks.vectors - (blocks.kept < t.lanes)
            with f.loop(0, whole * t.lanes, t.lanes) as across:
                apply(across.i, t.lanes)
            if blocks.kept < t.lanes:
                apply(whole * t.lanes, blocks.kept)
        f.done()
