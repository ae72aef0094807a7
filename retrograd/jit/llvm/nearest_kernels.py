"""The nearest points as a kernel: the distances of one point after the other, in scratch.

The others lie coordinate by coordinate, so that those of many are subtracted at once; then
the first few of the distances are found as `topk` finds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.conv_chunks import (
    ARGUMENTS,
    chunk_bounds,
    chunk_count,
    parted,
    pointers,
)
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.launches import Kernels
from retrograd.jit.llvm.text import I64, Module, Type, Val
from retrograd.jit.llvm.topk_kernels import MOST, TIMES, Few

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec

__all__ = ["NearestKernels"]

METRICS = ("squared", "euclidean", "manhattan", "chebyshev")
DEPTH = 32  # coordinates: distances in more are products of matrices
ABREAST = 4  # vectors of distances at a time


class NearestKernels(Kernels):
    """Nearest: the points of y turned over, then distances and the first of them."""

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Metrics that are arithmetic, in few coordinates; few of many points."""
        x, y = specs
        some = x.size and y.size and x.shape[-1] <= DEPTH and op.metric in METRICS
        most = min(MOST, y.shape[-2] // TIMES)
        return bool(super().takes(op, specs) and some and 0 < op.k <= most)

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        """Two kernels, and the points by coordinates between them."""
        x, y = specs
        few = Few(self.writer.module, name, y.shape[-2], op.k, t, largest=False)
        rows = _Rows(few, prod(x.shape[:-2]), x.shape[-2], x.shape[-1], op.metric, op.others)
        self.temporaries = (rows.batch * rows.depth * rows.pitch * few.size,)
        self.launches = [
            (rows.laid(self.writer.module, f"{name}_points"), (1, 3)),
            (rows.write(), (0, 2, 3)),
        ]


@dataclass(frozen=True)
class _Rows:
    """Sets of points, and what is near to each."""

    few: Few
    batch: int
    points: int
    depth: int
    metric: str
    others: bool

    @property
    def pitch(self) -> int:
        """Points of y, in whole blocks of vectors."""
        block = ABREAST * self.few.lanes
        return -(-self.few.length // block) * block

    def laid(self, module: Module, name: str) -> KernelInfo:
        """Coordinate by coordinate, all points. Buffers: y, what is made of it."""
        f, t, n = Fn(module, name, ARGUMENTS), self.few.type, self.few.length
        y, out = pointers(f, 2)
        lines = self.batch * self.depth
        chunks = chunk_count(lines, 4 * lines * n)
        low, high = chunk_bounds(f, f.arg("chunk"), chunks, lines)
        with f.loop(low, high) as line:
            own, k = parted(f, line.i, self.depth)
            since = f.at(y, f.plus(f.times(own, n * self.depth), k), t)
            to = f.at(out, f.times(line.i, self.pitch), t)
            with f.loop(0, n) as at:
                f.store(f.load(t, f.at(since, f.times(at.i, self.depth), t)), f.at(to, at.i, t))
            with f.loop(n, self.pitch) as at:
                f.store(f.zero(t), f.at(to, at.i, t))
        f.done()
        moved = 2 * lines * n * self.few.size
        return KernelInfo(name, chunks, 0, moved, moved)

    def write(self) -> KernelInfo:
        """The places. Buffers: x, out, the points of y by coordinates."""
        few, rows = self.few, self.batch * self.points
        f, t = Fn(few.module, few.name, ARGUMENTS), few.type
        flops = rows * few.length * (3 * self.depth + 8)
        chunks = chunk_count(rows, flops)
        x, out, points = pointers(f, 3)
        lists = few.lists(f)
        line = f.at(f.arg("scratch"), few.scratch // few.size, t)
        low, high = chunk_bounds(f, f.arg("chunk"), chunks, rows)
        with f.loop(low, high) as row:
            own, number = parted(f, row.i, self.points)
            against = f.at(points, f.times(own, self.depth * self.pitch), t)
            self._distances(f, f.at(x, f.times(row.i, self.depth), t), against, line)
            if self.others:
                f.store(f.const(t, inf), f.at(line, number, t))
            few.found(f, line, lists)
            first = f.times(row.i, few.k)

            def leave(n: Val, place: Val) -> None:
                f.store(place, f.at(out, f.plus(first, n), I64))

            few.leave(f, lists, leave)
        f.done()
        moved = rows * (self.depth * few.size + few.k * 8) + self.batch * self.pitch * few.size
        need = few.scratch + self.pitch * few.size
        return KernelInfo(few.name, chunks, need, flops, moved)

    def _distances(self, f: Fn, x: Val, points: Val, line: Val) -> None:
        """Of one point to all."""
        lanes, t = self.few.lanes, self.few.type.by(self.few.lanes)
        with f.loop(0, self.pitch, ABREAST * lanes) as block:
            sums = [f.zero(t)] * ABREAST
            with f.loop(0, self.depth, 1, sums) as loop:
                mine = f.splat(f.load(t.scalar, f.at(x, loop.i, t)), lanes)
                first = f.at(points, f.plus(f.times(loop.i, self.pitch), block.i), t)
                for v, total in enumerate(loop.carry):
                    apart = f.sub(mine, f.load(t, f.at(first, v * lanes, t)))
                    loop.next[v] = self._with(f, total, apart)
            for v, total in enumerate(loop.results):
                f.store(total, f.at(f.at(line, block.i, t), v * lanes, t))

    def _with(self, f: Fn, total: Val, apart: Val) -> Val:
        """A distance with one more coordinate; NaN stays."""
        if self.metric in ("squared", "euclidean"):
            return f.fma(apart, apart, total)
        far = f.intrinsic("fabs", apart)
        return f.add(total, far) if self.metric == "manhattan" else f.maximum(total, far)
