"""Pooling by the largest: the op, and the two linear maps that its derivatives are.

Axis by axis: the largest of a window is the largest of its rows' largest, and the first of
the largest, row by row, is in the first row that has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Linear, Op, front, op
from retrograd.core.spec import Spec, same
from retrograd.ops import extrema, reduce, select, shape
from retrograd.ops.nn import geometry, patches, pool_axis
from retrograd.ops.nn.geometry import Frame, Sizes


class Pool(Op):
    """Windows over the axes before the last; all axes before those are a batch."""

    kernel: Sizes
    stride: Sizes
    dilation: Sizes
    before: Sizes
    counts: Sizes

    @property
    def frame(self) -> Frame:
        return Frame(self.kernel, self.stride, self.dilation, self.before, self.counts)

    def sizes(self, x: Any) -> Sizes:
        """The axes that windows go over; refuses windows without an element."""
        axes = len(self.kernel)
        if x.ndim <= axes:
            raise ShapeError(f"{self.name}: x {x.shape} must have more than {axes} axes")
        found = x.shape[-1 - axes : -1]
        geometry.inhabited(self.name, self.frame, found)
        return found

    def pooled(self, x: Any) -> Sizes:
        """The shape of the result."""
        self.sizes(x)
        return (*x.shape[: -1 - len(self.counts)], *self.counts, x.shape[-1])

    def along(self, x: Any) -> list[tuple[Any, Any, int]]:
        """For each axis, the last first: what stands before it, its taps, and its count."""
        sizes, start = self.sizes(x), x.ndim - 1 - len(self.kernel)
        rows = zip(sizes, *self.frame, strict=True)
        found = [
            ((slice(None),) * (start + a), pool_axis.taps(*row), row[-1])
            for a, row in enumerate(rows)
        ]
        return found[::-1]

    def stages(self, x: np.ndarray) -> list[np.ndarray]:
        """x, and the largest after each axis: the last of them is the result."""
        found = [x]
        for lead, steps, count in self.along(x):
            found.append(pool_axis.largest(found[-1], lead, steps, count))
        return found

    def batch(self, size, args, mapped):
        return apply(self, *front(size, args, mapped))


@op
class MaxPool(Pool):
    """The largest of each window; NaN if one of them is. Keeps x."""

    uniform = True
    takes = "real"

    def shape(self, x: Spec) -> Spec:
        return x.with_shape(self.pooled(x))

    def forward(self, x):
        return self.stages(x)[-1]

    def jvp(self, dx, x):
        return apply(MaxPoolPick(*self.frame), dx, x)

    def vjp(self, g, x):
        return apply(MaxPoolPull(*self.frame), g, x)

    def expand(self, x):
        score, _ = _scores(self, x)
        return shape.reshape(extrema.max(score, axis=-2), self.pooled(x))

    @staticmethod
    def samples(rng):
        for frame, x, _ in cases(rng):
            yield MaxPool(*frame), x
        yield MaxPool((2,), (1,), (1,), (1,), (4,)), rng.integers(-9, 9, (2, 3, 2))

    @staticmethod
    def refuses(rng):
        yield (
            MaxPool((2,), (1,), (1,), (0,), (2,)),
            np.ones((3, 1)) + 1j,
            "it takes real dtypes",
        )
        yield MaxPool((2,), (1,), (2,), (1,), (1,)), np.ones((1, 1)), "holds no element"
        yield MaxPool((2,), (1,), (1,), (0,), (2,)), np.ones(3), "must have more than 1 axes"


@op
class MaxPoolPick(Pool, Linear):
    """The elements of v where x has the first largest of each window."""

    fixed = ("x",)

    def shape(self, v: Spec, x: Spec) -> Spec:
        return v.with_shape(self.pooled(same(self.name, v=v, x=x)))

    def forward(self, v, x):
        same(self.name, v=v, x=x)
        values = self.stages(x)
        for (lead, steps, _), a, b in zip(self.along(x), values[:-1], values[1:], strict=True):
            v = pool_axis.picked(v, a, b, lead, steps)
        return v

    def transpose(self, g, x):
        return apply(MaxPoolPull(*self.frame), g, x)

    def expand(self, v, x):
        seen = windows(self, v)
        found = reduce.sum(select.where(_firsts(self, x), seen, 0.0), axis=-2)
        return shape.reshape(found, self.pooled(x))

    @staticmethod
    def samples(rng):
        for frame, x, _ in cases(rng):
            yield MaxPoolPick(*frame), rng.normal(size=x.shape), x

    @staticmethod
    def refuses(rng):
        two = MaxPoolPick((2,), (1,), (1,), (0,), (2,))
        yield two, np.ones((3, 1)), np.ones((3, 2)), "operands must have one shape"


@op
class MaxPoolPull(Pool, Linear):
    """Zeros like x, with y of each window added to the first of its largest."""

    fixed = ("x",)

    def shape(self, y: Spec, x: Spec) -> Spec:
        self.fits(y, x)
        return y.with_shape(x.shape)

    def fits(self, y: Any, x: Any) -> None:
        if y.shape != self.pooled(x):
            raise ShapeError(f"{self.name}: y {y.shape} must have the shape {self.pooled(x)}")

    def forward(self, y, x):
        self.fits(y, x)
        values = self.stages(x)
        rows = list(zip(self.along(x), values[:-1], values[1:], strict=True))
        for (lead, steps, _), a, b in reversed(rows):
            y = pool_axis.pulled(y, a, b, lead, steps)
        return y

    def transpose(self, g, x):
        return apply(MaxPoolPick(*self.frame), g, x)

    def expand(self, y, x):
        given = select.where(_firsts(self, x), each(self, y), 0.0)
        return unwindowed(self, given, x.shape)

    @staticmethod
    def samples(rng):
        for frame, x, y in cases(rng):
            yield MaxPoolPull(*frame), y, x

    @staticmethod
    def refuses(rng):
        two = MaxPoolPull((2,), (1,), (1,), (0,), (2,))
        yield two, np.ones((3, 1)), np.ones((3, 1)), "must have the shape (2, 1)"


@op
class MaxPoolPlaces(Pool):
    """Where the first largest of each window is: its place in x's spatial axes, in a row."""

    uniform = True
    takes = "real"
    no_derivative = "its result is an index, constant almost everywhere"
    host = "the places are found by NumPy, window by window"

    def shape(self, x: Spec) -> Spec:
        return Spec(self.pooled(x), dt.int64)

    def forward(self, x):
        sizes = self.sizes(x)
        places = np.arange(prod(sizes)).reshape(*sizes, 1)
        return MaxPoolPick(*self.frame).forward(np.broadcast_to(places, x.shape), x)

    @staticmethod
    def samples(rng):
        for frame, x, _ in cases(rng):
            yield MaxPoolPlaces(*frame), x


# -- in ops: what the kernels above are in the plain way ---------------------------------------


def windows(op_: Pool, x: Any) -> Any:
    """Windows [batch, *counts, places, C], zero where there is no element."""
    sizes, channels = op_.sizes(x), x.shape[-1]
    batch = prod(x.shape[: -1 - len(sizes)])
    found = patches.unfolded(shape.reshape(x, (batch, *sizes, channels)), op_.frame)
    return shape.reshape(found, (batch, *op_.counts, prod(op_.kernel), channels))


def each(op_: Pool, y: Any) -> Any:
    """A result, with one place for each window: [batch, *counts, 1, C]."""
    batch = prod(y.shape[: -1 - len(op_.counts)])
    return shape.reshape(y, (batch, *op_.counts, 1, y.shape[-1]))


def unwindowed(op_: Pool, y: Any, to: Sizes) -> Any:
    """The transpose of windows."""
    apart = shape.reshape(y, (*y.shape[:-2], *op_.kernel, y.shape[-1]))
    found = patches.folded(apart, op_.frame, to[-1 - len(op_.counts) : -1])
    return shape.reshape(found, to)


def _scores(op_: Pool, x: Any) -> tuple[Any, Any]:
    """Windows with -inf where there is no element, and where there is one."""
    sizes = op_.sizes(x)
    there = windows(op_, lift(np.ones((1, *sizes, 1), bool)))
    low = lift(np.asarray(pool_axis.lowest(x.dtype), x.dtype))
    return select.where(there, windows(op_, x), low), there


def _firsts(op_: Pool, x: Any) -> Any:
    """Which place of each window is the first of the largest."""
    score, there = _scores(op_, x)
    best = extrema.max(score, axis=-2, keepdims=True)
    hit = ((score == best) | (score != score)) & there
    first = extrema.argmax(hit, axis=-2, keepdims=True)
    return first == lift(np.arange(score.shape[-2]).reshape(-1, 1))


def cases(rng: Any) -> Iterator[tuple[Frame, np.ndarray, np.ndarray]]:
    """(frame, x, y): windows of a pool, numbers that are far from each other, and a result."""
    rows: list[tuple[Any, ...]] = [  # kernel, stride, dilation, before, counts; x's shape
        ((2,), (2,), (1,), (0,), (3,), (2, 6, 3)),
        ((3, 2), (2, 1), (1, 2), (1, 0), (3, 3), (2, 5, 5, 2)),
        ((3, 3), (2, 2), (1, 1), (1, 1), (3, 3), (4, 6, 1)),  # a partial window at the end
        ((1, 2, 3), (1, 1, 2), (1, 1, 1), (0, 1, 1), (2, 3, 2), (1, 2, 2, 3, 2)),
        ((2,), (2,), (1,), (0,), (3,), (0, 6, 3)),
        ((2,), (3,), (1,), (0,), (2,), (2, 1, 6, 2)),
        ((4,), (1,), (1,), (3,), (5,), (2, 2)),  # no place that all windows have
    ]
    for *own, to in rows:
        x = rng.permutation(prod(to)).reshape(to) * 0.5
        pooled = (*to[: -1 - len(own[-1])], *own[-1], to[-1])
        yield Frame(*own), x, rng.normal(size=pooled)
