"""Blocks of results of a convolution that are held in registers: pixels by channel vectors.

A tile function has the signature (x, w, out, blocks, n0, n1, ...): x is the first source of
the tile, w the weights of the first tap, and n0, n1, ... say how many taps the tile sees
along each outer axis, at least one. Along the last axis, what pixels see is known when the
function is written, so that there is no padding and no test for it. With several groups in a
vector, the function goes on to `blocks` vectors; else it has one block. Layers of the same
sizes share tile functions. With a short epilogue, which is applied to the results in their
registers, the kernel's buffers and the tile's first pixel and channel are arguments too.
A tile may call for the sources of a later one, which would wait for them: see `Soon`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm_tile import load_some, prefetch, some_lanes, store_some
from retrograd.jit.llvm.repeat import repeat
from retrograd.jit.llvm.text import I64, LINE, PTR, Module, Type, Val

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrograd.jit.llvm.conv_shape import Run
    from retrograd.jit.llvm.machine import Machine

__all__ = [
    "Epilogue",
    "Groups",
    "Soon",
    "Tile",
    "balanced",
    "best_tile",
    "equal_parts",
    "named",
    "spread",
]

MOST_UNROLLED = 96  # multiply-adds in one turn of a loop
FEW = 16  # vector registers, with which tiles wait for loads
SOON = 16  # source channels from those whose weights are read to those called for


def named(prefix: str, fields: object) -> str:
    """A name for a function, one for each set of fields."""
    return f"{prefix}_{hashlib.sha256(repr(fields).encode()).hexdigest()[:16]}"


def equal_parts(total: int, most: int) -> list[tuple[int, int]]:
    """(size, how many) of parts of at most `most` that are as equal as can be; larger first."""
    count = -(-total // most)
    each, more = divmod(total, count) if count else (0, 0)
    return [(size, many) for size, many in ((each + 1, more), (each, count - more)) if many]


def balanced(total: int, most: int) -> list[int]:
    """Parts of at most `most` that are as equal as can be, larger ones first."""
    return [size for size, many in equal_parts(total, most) for _ in range(many)]


def best_tile(machine: Machine, down: int, across: int) -> tuple[int, int, int]:
    """Rows and vectors of the tile that covers down x across with the least work; the work."""
    room = machine.registers - (not machine.fma)  # a product, where it is not fused
    loads = 2 if machine.registers > FEW else 3  # halves of a multiply-add that a load takes

    def work(rows: int, vectors: int) -> int:
        def each(a: int, b: int) -> int:
            # arithmetic, loads, weights, latency
            return max(a * b, (a + b) * loads // 2, 3 * b, 10)

        parts = equal_parts(across, vectors)
        lines = equal_parts(down, rows)
        return sum(each(a, b) * m * n for a, m in lines for b, n in parts)

    most = {v: (room - v - 1) // v for v in (1, 2, 3, 4)}
    pairs = [(rows, v) for v, rows in most.items() if rows]
    rows, vectors = min(pairs, key=lambda pair: (work(*pair), -pair[0]))
    return rows, vectors, work(rows, vectors)


class Epilogue(Protocol):
    """What is done to a result before it stays: bias, activation, ..."""

    def __call__(self, f: Fn, acc: Val, pixel: Val, channel: Val, mask: Val | None) -> Val:
        """The value to store; lanes run along channels from `channel`, where mask.

        `pixel` counts all results, batch first. f.arg("bufs") are the kernel's buffers.
        """
        ...


@dataclass(frozen=True)
class Groups:
    """Several groups side by side in a vector: each has `depth` sources, `width` results."""

    count: int
    depth: int
    width: int

    @property
    def lanes(self) -> int:
        """Results in a vector."""
        return self.count * self.width


def spread(f: Fn, t: Type, groups: Groups, x: Val) -> Callable[[int], Val]:
    """Source channel c of each lane's own group, as a function of c; x: those of group 0."""
    span, lanes = groups.count * groups.depth, t.lanes
    low = load_some(f, t, x, min(span, lanes))
    if groups.depth == groups.width == 1:
        return lambda _: low
    high = load_some(f, t, f.at(x, lanes, t), span - lanes) if span > lanes else None

    def channel(c: int) -> Val:
        picks = [min(n, groups.lanes - 1) // groups.width for n in range(lanes)]
        return f.shuffle(low, high, [p * groups.depth + c for p in picks])

    return channel


class Soon(NamedTuple):
    """Sources that a tile calls for: its share of the row that comes when this one is done.

    Until then other tiles read what they have in the caches, at twice the speed or more.
    """

    offset: int  # in x, from the first source of the tile
    step: int  # elements for each tap of the inner one of the outer axes


@dataclass(frozen=True)
class Tile:
    """images x pixels x vectors of results; with `groups`, several groups in a vector."""

    type: Type
    pixels: int
    vectors: int
    kept: int  # lanes of the last vector that exist
    runs: tuple[Run, ...]
    depth: int  # source channels of a group
    pixel: int  # in x, from pixel to pixel
    place: int  # in x, from one source position to the next
    step: int  # source positions from tap to tap
    row: int  # in w, from one source channel to the next
    tap: int  # in w, from place to place of the kernel's last axis
    tap_step: int
    out: int  # in out, from pixel to pixel
    outer: tuple[tuple[int, int], ...]  # in x and in w, from tap to tap of each outer axis
    images: tuple[int, int, int] = (1, 0, 0)  # in a tile; in x and in out from one to the next
    groups: Groups | None = None
    after: str = ""  # the kernel whose epilogue is applied
    steps: tuple[int, int] = (0, 0)  # results from image to image, and from pixel to pixel
    soon: Soon | None = None
    epilogue: Epilogue | None = field(default=None, repr=False)

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        name = named(f"{self.after}_finish" if self.after else "conv_tile", self)
        return module.once(name, lambda: self._write(module, name))

    def _write(self, module: Module, name: str) -> None:
        counts = [(f"n{a}", I64) for a in range(len(self.outer))]
        args = [("x", PTR), ("w", PTR), ("out", PTR), ("blocks", I64), *counts]
        if self.epilogue:
            args += [("bufs", PTR), ("pixel", I64), ("channel", I64)]
        f = Fn(module, name, args, attributes="nounwind noinline")
        ends = [f.arg("x"), f.arg("w"), f.arg("out")]
        channel = [f.arg("channel")] if self.epilogue else []
        if self.groups is None:
            self._block(f, *ends, *channel)
        else:
            with repeat(f, f.arg("blocks"), [*ends, *channel]) as loop:
                x, w, out, *channel = loop.carry
                self._block(f, x, w, out, *channel)
                wide, deep = self.groups.lanes, self.groups.count * self.depth
                steps = zip(loop.carry[:3], (deep, wide, wide), strict=True)
                loop.next = [
                    *(f.at(end, step, self.type) for end, step in steps),
                    *(f.integer(f.plus(c, wide)) for c in channel),
                ]
        f.done()

    def _block(self, f: Fn, x: Val, w: Val, out: Val, channel: Val | None = None) -> None:
        t = self.type.by(f.machine.lanes(self.type.bits // 8))
        sums = [f.zero(t)] * (self.images[0] * self.pixels * self.vectors)
        if channel is not None:
            self._ahead(f, channel, t.lanes)
        for n, total in enumerate(self._outer(f, 0, x, w, sums)):
            p, j = divmod(n, self.vectors)
            image, p = divmod(p, self.pixels)
            spot = image * self.images[2] + p * self.out + j * t.lanes
            kept = self.kept if j == self.vectors - 1 else 0
            if channel is not None:
                total = self._finished(f, total, (image, p, j), channel, kept)
            store_some(f, total, f.at(out, spot, t), kept)

    def _ahead(self, f: Fn, channel: Val, lanes: int) -> None:
        """Call for what the epilogue will read."""
        call = getattr(self.epilogue, "ahead", None)
        if call is None or self.groups:  # such tiles are short, and follow each other closely
            return
        for image in range(self.images[0]):
            for p in range(self.pixels):
                step = image * self.steps[0] + p * self.steps[1]
                pixel = f.integer(f.plus(f.arg("pixel"), step))
                for j in range(self.vectors):
                    call(f, pixel, f.integer(f.plus(channel, j * lanes)))

    def _finished(
        self, f: Fn, total: Val, spot: tuple[int, int, int], channel: Val, kept: int
    ) -> Val:
        assert self.epilogue
        image, p, j = spot
        lanes = total.type.lanes
        pixel = f.plus(f.arg("pixel"), image * self.steps[0] + p * self.steps[1])
        mask = some_lanes(f, lanes, kept) if kept and kept < lanes else None
        here = f.integer(f.plus(channel, j * lanes))
        return self.epilogue(f, total, f.integer(pixel), here, mask)

    def _outer(self, f: Fn, axis: int, x: Val, w: Val, sums: Sequence[Val]) -> list[Val]:
        if axis == len(self.outer):
            return self._runs(f, x, w, list(sums))
        along, weights = self.outer[axis]
        start = x
        with repeat(f, f.arg(f"n{axis}"), [x, w, *sums]) as loop:
            x, w, *sums = loop.carry
            if self.soon and axis == len(self.outer) - 1:
                self._call_sources(f, start, loop.i)
            sums = self._outer(f, axis + 1, x, w, sums)
            loop.next = [f.at(x, along, self.type), f.at(w, weights, self.type), *sums]
        return loop.results[2:]

    def _call_sources(self, f: Fn, x: Val, tap: Val) -> None:
        """Call for a part of what later tiles read: a few lines, since many may be dropped."""
        assert self.soon
        x = f.at(x, f.plus(f.times(tap, self.soon.step), self.soon.offset), self.type)
        for at in range(0, self.soon.step, LINE * 8 // self.type.bits):
            prefetch(f, f.at(x, at, self.type), near=False)

    def _runs(self, f: Fn, x: Val, w: Val, sums: list[Val]) -> list[Val]:
        for run in self.runs:
            here = f.at(x, run.offset * self.place, self.type)
            there = f.at(w, run.tap * self.tap, self.type)
            if self.groups:
                sums = self._narrow(f, run, here, there, sums)
            elif self._dense(run):
                sums = self._depth(f, run, run.length * self.depth, here, there, sums)
            else:
                sums = self._taps(f, run, here, there, sums)
        return sums

    def _seen(self, run: Run) -> list[tuple[int, int]]:
        """(pixel of the tile, where it is in x) for those that a run has."""
        images = range(self.images[0])
        return [
            (n * self.pixels + p, n * self.images[1] + p * self.pixel)
            for n in images
            for p in run.pixels
        ]

    def _dense(self, run: Run) -> bool:
        """Whether taps and channels are one range of memory."""
        one_by_one = self.step == self.tap_step == 1 and self.place == self.depth
        return run.length == 1 or one_by_one

    def _taps(self, f: Fn, run: Run, x: Val, w: Val, sums: Sequence[Val]) -> list[Val]:
        with repeat(f, run.length, [x, w, *sums]) as loop:
            x, w, *sums = loop.carry
            if self.groups:
                sums = self._columns(f, run._replace(length=1), x, w, list(sums))
            else:
                sums = self._depth(f, run, self.depth, x, w, sums)
            loop.next = [
                f.at(x, self.step * self.place, self.type),
                f.at(w, self.tap_step * self.tap, self.type),
                *sums,
            ]
        return loop.results[2:]

    def _depth(
        self, f: Fn, run: Run, depth: int, x: Val, w: Val, sums: Sequence[Val]
    ) -> list[Val]:
        """Sums over `depth` source channels."""
        if not depth:
            return list(sums)
        seen = self._seen(run)
        size = len(seen) * self.vectors
        turns = max(u for u in (1, 2, 3, 4) if u == 1 or (not depth % u and u * size <= 96))
        if depth == turns:
            return self._step(f, run, turns, x, w, list(sums))
        mine = [p * self.vectors + j for p, _ in seen for j in range(self.vectors)]
        total = list(sums)
        with repeat(f, depth, [x, w, *(sums[n] for n in mine)], turns) as loop:
            x, w, *some = loop.carry
            for n, one in zip(mine, some, strict=True):
                total[n] = one
            total = self._step(f, run, turns, x, w, total)
            ends = [f.at(x, turns, self.type), f.at(w, turns * self.row, self.type)]
            loop.next = [*ends, *(total[n] for n in mine)]
        return total

    def _step(self, f: Fn, run: Run, turns: int, x: Val, w: Val, sums: list[Val]) -> list[Val]:
        t = sums[0].type
        for u in range(turns):
            across = [
                f.load(t, f.at(w, u * self.row + j * t.lanes, t)) for j in range(self.vectors)
            ]
            if f.machine.told:
                self._call_soon(f, f.at(w, (u + SOON) * self.row, t), t)
            for p, at in self._seen(run):
                one = f.load(self.type, f.at(x, at + u, t))
                a = f.splat(one, t.lanes)
                for j, b in enumerate(across):
                    n = p * self.vectors + j
                    sums[n] = f.fma(a, b, sums[n])
        return sums

    def _call_soon(self, f: Fn, w: Val, t: Type) -> None:
        """Call for weights: they come from the second cache, anew for each tile."""
        for at in range(0, self.vectors * t.lanes, LINE * 8 // t.bits):
            prefetch(f, f.at(w, at, t))

    def _narrow(self, f: Fn, run: Run, x: Val, w: Val, sums: list[Val]) -> list[Val]:
        size = run.length * len(self._seen(run)) * self.depth
        if run.length == 1 or size <= 2 * MOST_UNROLLED:
            return self._columns(f, run, x, w, sums)
        return self._taps(f, run, x, w, sums)

    def _columns(self, f: Fn, run: Run, x: Val, w: Val, sums: list[Val]) -> list[Val]:
        """Each source is read once and goes to every pixel that sees it."""
        t, groups = sums[0].type, self.groups
        assert groups
        places = [j * self.tap_step * self.tap for j in range(run.length)]
        weights = [
            [load_some(f, t, f.at(w, at + c * self.row, t), self.kept) for at in places]
            for c in range(self.depth)
        ]
        meetings: dict[int, list[tuple[int, int]]] = {}
        for p, first in self._seen(run):
            for j in range(run.length):
                at = first + j * self.step * self.place
                meetings.setdefault(at, []).append((p, j))
        for at in sorted(meetings):
            channel = spread(f, t, groups, f.at(x, at, t))
            for c in range(self.depth):
                a = channel(c)
                for p, j in meetings[at]:
                    sums[p] = f.fma(a, weights[c][j], sums[p])
        return sums
