"""The kernels of distances within one set of points, each pair once.

Points are first laid out by coordinates, so that lanes are neighbours in a row of distances:
those of one point to the points after it, which are also neighbours in the result.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.conv_chunks import ARGUMENTS, chunk_bounds, chunk_count, pointers
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.launches import Kernels
from retrograd.jit.llvm.text import I64

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.text import Int, Module, Type, Val

__all__ = ["PairsKernels"]

METRICS = ("squared", "euclidean", "manhattan", "chebyshev")
ABREAST = 4  # vectors of a row: what one waits for, the others do not


class PairsKernels(Kernels):
    """PairsWithin: points turned over, then the distances."""

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Metrics that are arithmetic, of some points."""
        (x,) = specs
        return (
            super().takes(op, specs) and op.metric in METRICS and x.shape[-2] > 1 and x.size > 0
        )

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        """Two kernels, and the points by coordinates between them."""
        lanes = self.writer.machine.lanes(t.bits // 8)
        *lead, points, depth = specs[0].shape
        rows = Rows(op.metric, prod(lead), points, depth, t, lanes)
        self.temporaries = (rows.batch * depth * rows.pitch * t.bits // 8,)
        module = self.writer.module
        self.launches = [
            (rows.laid(module, f"{name}_points"), (0, 2)),
            (rows.write(module, name), (0, 1, 2)),
        ]


class Rows:
    """Sets of points, and their distances."""

    def __init__(
        self, metric: str, batch: int, points: int, depth: int, t: Type, lanes: int
    ) -> None:
        self.metric, self.batch, self.points, self.depth = metric, batch, points, depth
        self.type, self.lanes = t, lanes
        self.pitch = points + lanes  # the last vectors of a row go beyond its end

    def laid(self, module: Module, name: str) -> KernelInfo:
        """Coordinate by coordinate, all points. Buffers: x, what is made of it."""
        f, t = Fn(module, name, ARGUMENTS), self.type
        x, out = pointers(f, 2)
        n, d = self.points, self.depth
        chunks = chunk_count(self.batch * d, 4 * self.batch * n * d)
        low, high = chunk_bounds(f, f.arg("chunk"), chunks, self.batch * d)
        with f.loop(low, high) as line:
            own, k = (op(line.i, f.integer(d)) for op in (f.div, f.rem))
            since = f.at(x, f.plus(f.times(own, n * d), k), t)
            to = f.at(out, f.times(line.i, self.pitch), t)
            with f.loop(0, n) as at:
                f.store(f.load(t, f.at(since, f.times(at.i, d), t)), f.at(to, at.i, t))
            with f.loop(n, self.pitch) as at:
                f.store(f.zero(t), f.at(to, at.i, t))
        f.done()
        moved = self.batch * n * d * t.bits // 4
        return KernelInfo(name, chunks, 0, moved, moved)

    def write(self, module: Module, name: str) -> KernelInfo:
        """The distances. Buffers: x, out, the points by coordinates."""
        f, n = Fn(module, name, ARGUMENTS), self.points
        pairs = self.batch * n * (n - 1) // 2
        flops = 3 * pairs * self.depth
        chunks = chunk_count(self.batch * (n - 1), flops)
        spots = module.table(self._bounds(chunks))
        low, high = (f.load(I64, f.at(spots, f.plus(f.arg("chunk"), k), I64)) for k in (0, 1))
        given = pointers(f, 3)
        with f.loop(low, high) as loop:
            own, row = (op(loop.i, f.integer(n)) for op in (f.div, f.rem))
            self._row(f, given, loop.i, own, row)
        f.done()
        size = self.type.bits // 8
        moved = (pairs + self.batch * n * self.depth) * size
        return KernelInfo(name, chunks, 0, flops, moved)

    def _bounds(self, chunks: int) -> np.ndarray:
        """The first row of each chunk: about as many pairs in all of them."""
        ends = np.cumsum(np.tile(np.arange(self.points - 1, -1, -1), self.batch))
        inner = np.searchsorted(ends, [ends[-1] * c // chunks for c in range(1, chunks)])
        return np.array([0, *inner, len(ends)], np.int64)

    def _row(self, f: Fn, given: Sequence[Val], point: Val, own: Val, row: Val) -> None:
        """One point against those after it."""
        (x, out, turned), n, t = given, self.points, self.type
        here = f.at(x, f.times(point, self.depth), t)
        there = f.at(turned, f.times(own, self.depth * self.pitch), t)
        before = f.mul(row, f.sub(f.integer(2 * n - 1), row))
        before = f.bitwise("lshr", before, f.integer(1))
        # the pair (row, j) is at before + j - row - 1
        first = f.plus(f.times(own, n * (n - 1) // 2), f.plus(f.sub(before, row), -1))
        to = f.at(out, first, t)
        begin: Int = f.plus(row, 1)
        for many in (ABREAST, 1):
            step = many * self.lanes
            left = f.sub(f.integer(n), f.integer(begin))
            whole = f.mul(f.div(left, f.integer(step)), f.integer(step))
            end = f.plus(begin, whole)
            with f.loop(begin, end, step) as loop:
                for u, far in enumerate(self._far(f, here, there, loop.i, many)):
                    f.store(far, f.at(to, f.plus(loop.i, u * self.lanes), t))
            begin = end
        with f.when(f.compare("slt", f.integer(begin), f.integer(n))):
            (far,) = self._far(f, here, there, begin, 1)
            spots = f.add(f.splat(f.integer(begin), self.lanes), f.iota(I64.by(self.lanes)))
            on = f.compare("slt", spots, f.const(spots.type, n))
            f.masked_store(far, f.at(to, begin, t), on)

    def _far(self, f: Fn, here: Val, there: Val, at: Int, many: int) -> list[Val]:
        """The distances of a point to vectors of points."""
        wide = self.type.by(self.lanes)
        spot = f.at(there, at, wide)
        with f.loop(0, self.depth, carry=[f.zero(wide)] * many) as loop:
            mine = f.splat(f.load(self.type, f.at(here, loop.i, wide)), self.lanes)
            line = f.at(spot, f.times(loop.i, self.pitch), wide)
            loop.next = []
            for u, so_far in enumerate(loop.carry):
                other = f.load(wide, f.at(line, u * self.lanes, wide))
                loop.next.append(self._more(f, so_far, f.sub(mine, other)))
        found = loop.results
        return [f.intrinsic("sqrt", v) for v in found] if self.metric == "euclidean" else found

    def _more(self, f: Fn, so_far: Val, between: Val) -> Val:
        if self.metric in ("squared", "euclidean"):
            return f.add(so_far, f.mul(between, between))
        far = f.intrinsic("fabs", between)
        return f.maximum(so_far, far) if self.metric == "chebyshev" else f.add(so_far, far)
