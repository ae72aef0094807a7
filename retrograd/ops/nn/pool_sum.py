"""Pooling by sums: of windows that repeat, and means of spans that need not."""

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
from retrograd.ops.nn.pool_windows import Framed, Spanned


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


@op
class SpanMean(Spanned, Linear):
    """The mean from each start to each stop. Keeps nothing."""

    native = "span"
    pooling = "mean"
    uniform = True
    takes = "inexact"

    def shape(self, x: Spec) -> Spec:
        return x.with_shape(self.pooled(x))

    def forward(self, x):
        self.pooled(x)
        for a, starts, stops in _axes(self, x):
            parts = [
                np.add.reduce(x[_from(a, i, j)], axis=a, keepdims=True)
                for i, j in zip(starts, stops, strict=True)
            ]
            x = np.concatenate(parts, axis=a)
            x /= _lengths(x, a, starts, stops)
        return x

    def transpose(self, g, x: Spec):
        return apply(SpanShare(self.starts, self.stops, self.sizes(x)), g)

    def expand(self, x):
        for a, starts, stops in _axes(self, x):
            parts = [
                reduce.sum(pad.piece(x, a, i, j - i), axis=a, keepdims=True, dtype=x.dtype)
                for i, j in zip(starts, stops, strict=True)
            ]
            x = join.concat(parts, axis=a)
            x = x / lift(_lengths(x, a, starts, stops))
        return x

    @staticmethod
    def samples(rng):
        for own, x, _ in pool_windows.spans(rng):
            yield SpanMean(*own), x
        yield SpanMean(((0, 0),), ((1, 1),)), rng.normal(size=(1, 1)) + 1j

    @staticmethod
    def refuses(rng):
        yield SpanMean(((0, 2),), ((2, 5),)), np.ones((4, 1)), "windows end at (5,)"


@op
class SpanShare(Spanned, Linear):
    """Axes of `lengths`, whose elements get an equal share of each span that they lie in."""

    starts: tuple[Sizes, ...]
    stops: tuple[Sizes, ...]
    lengths: Sizes
    uniform = True
    takes = "inexact"

    def shape(self, y: Spec) -> Spec:
        return y.with_shape(self.result(y))

    def result(self, y: Any) -> Sizes:
        counts = tuple(map(len, self.starts))
        if y.shape[-1 - self.axes : -1] != counts:
            raise ShapeError(
                f"{self.name}: y {y.shape} must have {counts} before its last axis"
            )
        return (*y.shape[: -1 - self.axes], *self.lengths, y.shape[-1])

    def forward(self, y):
        self.result(y)
        for (a, *own), n in zip(_axes(self, y), self.lengths, strict=True):
            y = y / _lengths(y, a, *own)
            out = np.zeros((*y.shape[:a], n, *y.shape[a + 1 :]), y.dtype)
            for i, (start, stop) in enumerate(zip(*own, strict=True)):
                out[_from(a, start, stop)] += y[_from(a, i, i + 1)]
            y = out
        return y

    def transpose(self, g):
        return apply(SpanMean(self.starts, self.stops), g)

    def expand(self, y):
        for own, n in zip(_axes(self, y), self.lengths, strict=True):
            y = _shared(y, *own, n)
        return y

    @staticmethod
    def samples(rng):
        for own, x, y in pool_windows.spans(rng):
            yield SpanShare(*own, x.shape[-1 - len(own[0]) : -1]), y

    @staticmethod
    def refuses(rng):
        yield SpanShare(((0, 2),), ((2, 4),), (4,)), np.ones((3, 1)), "must have (2,) before"


def _axes(op_: Spanned, x: Any) -> list[tuple[int, Sizes, Sizes]]:
    """Each axis that spans are on, and their starts and stops."""
    first = x.ndim - 1 - op_.axes
    return [(first + a, *own) for a, own in enumerate(zip(*op_.own, strict=True))]


def _from(axis: int, start: int, stop: int) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, slice(start, stop))


def _lengths(x: Any, axis: int, starts: Sizes, stops: Sizes) -> np.ndarray:
    """How many elements each span has, along the axis of x."""
    found = np.subtract(stops, starts).astype(dt.real_of(x.dtype))
    return found.reshape(-1, *(1,) * (x.ndim - 1 - axis))


def _shared(y: Any, axis: int, starts: Sizes, stops: Sizes, length: int) -> Any:
    """The shares along one axis, in ops."""
    terms: list[list[int]] = [[] for _ in range(length)]
    for i, (a, b) in enumerate(zip(starts, stops, strict=True)):
        for place in terms[a:b]:
            place.append(i)
    each = _lengths(y, axis, starts, stops)
    if y.size and terms and max(map(len, terms)) <= gathered.MOST:
        share = (1 / each).reshape(-1).tolist()
        return gathered.gathered(y, axis, terms, [[share[i] for i in row] for row in terms])
    y = y / lift(each)
    total = create.zeros((*y.shape[:axis], length, *y.shape[axis + 1 :]), dtype=y.dtype)
    for i, (a, b) in enumerate(zip(starts, stops, strict=True)):
        parts = [(0, n, 1) for n in total.shape]
        parts[axis] = (a, b - a, 1)
        one = pad.piece(y, axis, i, 1)
        wide = shape.broadcast_to(one, slices.part_shape(tuple(parts)))
        total = total + apply(slices.Unslice(tuple(parts), total.shape), wide)
    return total
