"""Pooling by sums: of windows that repeat along an axis, and of spans that need not."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Linear, op
from retrograd.core.spec import Spec
from retrograd.ops import create, join, pad, reduce, shape, slices
from retrograd.ops.nn import gathered, pool_axis, pool_windows
from retrograd.ops.nn.geometry import Sizes
from retrograd.ops.nn.pool_windows import Framed


@op
class WindowSum(Framed, Linear):
    """The sum of each window. Keeps nothing."""

    native = "pool"
    pooling = "sum"
    finishes = True

    def shape(self, x: Spec) -> Spec:
        return x.with_shape(self.pooled(x))

    def forward(self, x):
        for line in reversed(self.along(x)):
            x = pool_axis.summed(x, line)
        return x

    def transpose(self, g, x: Spec):
        return apply(WindowSpread(*self.frame, self.sizes(x)), g)

    def expand(self, x):
        found = reduce.sum(self.windows(x), axis=-2, dtype=x.dtype)
        return shape.reshape(found, self.pooled(x))

    @staticmethod
    def samples(rng):
        for frame, x, _ in pool_windows.frames(rng):
            yield WindowSum(*frame), x
        yield WindowSum((2,), (1,), (1,), (1,), (3,)), rng.normal(size=(2, 1)) + 1j

    @staticmethod
    def refuses(rng):
        yield WindowSum((2,), (3,), (1,), (0,), (2,)), np.ones((3, 1)), "holds no element"


@op
class WindowSpread(Framed, Linear):
    """Axes of `lengths`, whose elements are the sums of the windows that they lie in."""

    native = "pool"
    pooling = "spread"

    kernel: Sizes
    stride: Sizes
    dilation: Sizes
    before: Sizes
    counts: Sizes
    lengths: Sizes

    def shape(self, y: Spec) -> Spec:
        return y.with_shape(self.result(y))

    def result(self, y: Any) -> Sizes:
        axes = len(self.counts)
        if y.shape[-1 - axes : -1] != self.counts:
            raise ShapeError(
                f"{self.name}: y {y.shape} must have {self.counts} windows before its last axis"
            )
        return (*y.shape[: -1 - axes], *self.lengths, y.shape[-1])

    def forward(self, y):
        to = Spec(self.result(y), y.dtype)
        for line, size in zip(self.along(to), self.lengths, strict=True):
            y = pool_axis.spread(y, line, size)
        return y

    def transpose(self, g):
        return apply(WindowSum(*self.frame), g)

    def expand(self, y):
        apart = pool_windows.each(self, y)
        wide = (*apart.shape[:-2], prod(self.kernel), y.shape[-1])
        return self.unwindowed(shape.broadcast_to(apart, wide), self.result(y))

    @staticmethod
    def samples(rng):
        for frame, x, y in pool_windows.frames(rng):
            axes = len(frame.counts)
            yield WindowSpread(*frame, x.shape[-1 - axes : -1]), y

    @staticmethod
    def refuses(rng):
        two = WindowSpread((2,), (1,), (1,), (0,), (2,), (3,))
        yield two, np.ones((3, 1)), "must have (2,) windows"


class Spans(Linear):
    """Pieces of an axis, from each of `starts` to each of `stops`; they may overlap."""

    axis: int
    starts: Sizes
    stops: Sizes

    def lengths(self, x: Any) -> np.ndarray:
        """How many elements each has, along the axis of x."""
        found = np.subtract(self.stops, self.starts).astype(dt.real_of(x.dtype))
        return found.reshape(-1, *(1,) * (x.ndim - 1 - self.axis))

    def pieces(self) -> Any:
        """(position, slice) of each."""
        lead = (slice(None),) * self.axis
        for i, (a, b) in enumerate(zip(self.starts, self.stops, strict=True)):
            yield (*lead, slice(i, i + 1)), (*lead, slice(a, b))


@op
class SpanSum(Spans):
    """The sum of each piece of an axis, or its mean. Keeps nothing."""

    axis: int
    starts: Sizes
    stops: Sizes
    mean: bool = False
    native = "span"

    @property
    def pooling(self) -> str:
        """Which of the compiler's kernels it is."""
        return "mean" if self.mean else "sum"

    def shape(self, x: Spec) -> Spec:
        return x.with_shape(self.result(x))

    def result(self, x: Any) -> Sizes:
        if max(self.stops, default=0) > x.shape[self.axis]:
            raise ShapeError(
                f"{self.name}: a piece ends at {max(self.stops)}; axis {self.axis} of x "
                f"{x.shape} is shorter"
            )
        return (*x.shape[: self.axis], len(self.starts), *x.shape[self.axis + 1 :])

    def forward(self, x):
        out = np.empty(self.result(x), x.dtype)
        for position, piece in self.pieces():
            np.add.reduce(x[piece], axis=self.axis, keepdims=True, out=out[position])
        return np.divide(out, self.lengths(x), out=out) if self.mean else out

    def transpose(self, g, x: Spec):
        length = x.shape[self.axis]
        return apply(SpanSpread(self.axis, self.starts, self.stops, length, self.mean), g)

    def batch(self, size, args, mapped):
        return apply(self.replace(axis=self.axis + 1), *args)

    def expand(self, x):
        found = [
            reduce.sum(
                pad.piece(x, self.axis, a, b - a), axis=self.axis, keepdims=True, dtype=x.dtype
            )
            for a, b in zip(self.starts, self.stops, strict=True)
        ]
        total = join.concat(found, axis=self.axis)
        return total / lift(self.lengths(x)) if self.mean else total

    @staticmethod
    def samples(rng):
        yield SpanSum(1, (0, 1, 3), (2, 4, 5), mean=True), rng.normal(size=(2, 5, 3))
        yield SpanSum(1, (0, 1, 3), (2, 4, 5)), rng.normal(size=(2, 5, 3))
        yield SpanSum(0, (0, 0), (1, 1)), rng.normal(size=1)
        yield SpanSum(0, (1,), (3,)), rng.normal(size=(4, 0))

    @staticmethod
    def refuses(rng):
        yield SpanSum(0, (0, 2), (2, 5)), np.ones(4), "a piece ends at 5"


@op
class SpanSpread(Spans):
    """An axis of `length`, whose elements are the sums of the pieces that they lie in.

    With `mean` each piece gives them its share alone.
    """

    axis: int
    starts: Sizes
    stops: Sizes
    length: int
    mean: bool = False

    def shape(self, y: Spec) -> Spec:
        return y.with_shape(self.result(y))

    def result(self, y: Any) -> Sizes:
        if y.shape[self.axis] != len(self.starts):
            raise ShapeError(
                f"{self.name}: axis {self.axis} of y {y.shape} must have length "
                f"{len(self.starts)}"
            )
        return (*y.shape[: self.axis], self.length, *y.shape[self.axis + 1 :])

    def forward(self, y):
        out = np.zeros(self.result(y), y.dtype)
        y = y / self.lengths(y) if self.mean else y
        for position, piece in self.pieces():
            out[piece] += y[position]
        return out

    def transpose(self, g):
        return apply(SpanSum(self.axis, self.starts, self.stops, self.mean), g)

    def batch(self, size, args, mapped):
        return apply(self.replace(axis=self.axis + 1), *args)

    def expand(self, y):
        terms: list[list[int]] = [[] for _ in range(self.length)]
        for i, (a, b) in enumerate(zip(self.starts, self.stops, strict=True)):
            for place in terms[a:b]:
                place.append(i)
        if y.size and terms and max(map(len, terms)) <= gathered.MOST:
            share = (1 / self.lengths(y)).reshape(-1).tolist()
            by = [[share[i] for i in row] for row in terms] if self.mean else None
            return gathered.gathered(y, self.axis, terms, by)
        y = y / lift(self.lengths(y)) if self.mean else y
        total = create.zeros(self.result(y), dtype=y.dtype)
        for i, (a, b) in enumerate(zip(self.starts, self.stops, strict=True)):
            parts = [(0, n, 1) for n in total.shape]
            parts[self.axis] = (a, b - a, 1)
            one = pad.piece(y, self.axis, i, 1)
            wide = shape.broadcast_to(one, slices.part_shape(tuple(parts)))
            total = total + apply(slices.Unslice(tuple(parts), total.shape), wide)
        return total

    @staticmethod
    def samples(rng):
        yield SpanSpread(1, (0, 1, 3), (2, 4, 5), 5), rng.normal(size=(2, 3, 3))
        yield SpanSpread(1, (0, 1, 3), (2, 4, 5), 5, mean=True), rng.normal(size=(2, 3, 3))
        yield SpanSpread(0, (0, 0), (1, 1), 2), rng.normal(size=2)

    @staticmethod
    def refuses(rng):
        yield SpanSpread(0, (0, 2), (2, 4), 4), np.ones(3), "must have length 2"
