"""Pooling by the largest: the op, and the two linear maps that its derivatives are.

Axis by axis, the last first: the largest of a window is the largest of its rows' largest,
and the first of the largest, row by row, is in the first row that has it. `MaxPool` and its
kin have windows that repeat, `MaxSpan` and its kin windows that are told one by one.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ShapeError
from retrograd.core.interpret import apply, constant, lift
from retrograd.core.op import Linear, op
from retrograd.core.spec import Spec, same
from retrograd.ops import create, extrema, pad, reduce, select, shape
from retrograd.ops.nn import pool_axis, pool_windows
from retrograd.ops.nn.pool_windows import Framed, Pool, Spanned

INDEX = "its result is an index, constant almost everywhere"


def winners(op_: Pool, x: np.ndarray, *, spatial: bool = False) -> np.ndarray:
    """Where the first largest of each window is, in x or in its spatial axes, in a row."""
    lines, sizes, channels = op_.along(x), op_.sizes(x), x.shape[-1]
    kind = np.min_scalar_type(prod(len(n.taps) for n in lines)).type
    code, radix, batch = None, 1, prod(x.shape[: -1 - op_.axes])
    for line in reversed(lines):
        out = pool_axis.largest(x, line)
        code = pool_axis.chosen(x, out, line, code, radix, kind)
        x, radix = out, radix * len(line.taps)
    each = 1 if spatial else channels
    inside, start = (
        np.zeros(1, np.int64),
        np.arange(batch) * (0 if spatial else prod(sizes) * each),
    )
    for a, line in enumerate(lines):
        step = prod(sizes[a + 1 :]) * each
        at = np.array([t.at for t in line.taps]) * step
        inside = (inside[:, None] + at).reshape(-1)
        start = start[..., None] + line.starts * step
    start = start[..., None] if spatial else start[..., None] + np.arange(channels)
    found = np.take(inside, x if code is None else code).reshape(*start.shape[:-1], channels)
    found += start
    return found.reshape(out.shape)


class Largest(Pool):
    """The largest of each window; NaN if one of them is. Keeps x."""

    uniform = True
    takes = "real"

    def shape(self, x: Spec) -> Spec:
        return x.with_shape(self.pooled(x))

    def forward(self, x):
        for line in reversed(self.along(x)):
            x = pool_axis.largest(x, line)
        return x

    def jvp(self, dx, x):
        return apply(self.picking(), dx, x)

    def vjp(self, g, x):
        return apply(self.pulling(), g, x)

    def expand(self, x):
        score, _ = _scores(self, x)
        return shape.reshape(extrema.max(score, axis=-2), self.pooled(x))


class Pick(Pool, Linear):
    """The elements of v where x has the first largest of each window."""

    fixed = ("x",)

    def shape(self, v: Spec, x: Spec) -> Spec:
        return v.with_shape(self.pooled(same(self.name, v=v, x=x)))

    def forward(self, v, x):
        same(self.name, v=v, x=x)
        return np.take(v, winners(self, x))

    def transpose(self, g, x):
        return apply(self.pulling(), g, x)

    def expand(self, v, x):
        found = select.where(_firsts(self, x), self.windows(v), 0.0)
        return shape.reshape(reduce.sum(found, axis=-2), self.pooled(x))


class Pull(Pool, Linear):
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
        out = np.zeros(x.size, y.dtype)
        np.add.at(out, winners(self, x).reshape(-1), y.reshape(-1))
        return out.reshape(x.shape)

    def transpose(self, g, x):
        return apply(self.picking(), g, x)

    def expand(self, y, x):
        given = select.where(_firsts(self, x), pool_windows.each(self, y), 0.0)
        return self.unwindowed(given, x.shape)


class Places(Pool):
    """Where the first largest of each window is: its place in x's spatial axes, in a row."""

    uniform = True
    takes = "real"
    no_derivative = INDEX

    def shape(self, x: Spec) -> Spec:
        return Spec(self.pooled(x), dt.int64)

    def forward(self, x):
        return winners(self, x, spatial=True)

    def expand(self, x):
        sizes = self.sizes(x)
        numbers = create.arange(prod(sizes), dtype=dt.int64)
        there = self.windows(shape.reshape(numbers, (1, *sizes, 1)))
        found = select.where(_firsts(self, x), there, 0)
        return shape.reshape(reduce.sum(found, axis=-2), self.pooled(x))


def _scores(op_: Pool, x: Any) -> tuple[Any, Any]:
    """Windows with -inf where there is no element, and where there is one."""
    there = op_.windows(create.ones((1, *op_.sizes(x), 1), dtype=dt.bool))
    low = lift(np.asarray(pool_axis.lowest(x.dtype), x.dtype))
    return select.where(there, op_.windows(x), low), there


def _first_of_few(score: Any, there: Any) -> Any:
    """As `_firsts`: place by place, a later one only where it is larger, or the first NaN."""
    axis = score.ndim - 2
    best, seen = (pad.piece(t, axis, 0, 1) for t in (score, there))
    found = select.where(seen, 0, 0)
    for i in range(1, score.shape[axis]):
        mine, here = (pad.piece(t, axis, i, 1) for t in (score, there))
        more = (mine > best) | ((mine != mine) & (best == best))
        more = here & (more | ~seen)
        best, found = select.where(more, mine, best), select.where(more, i, found)
        seen = seen | here
    return found == constant(np.arange(score.shape[axis]).reshape(-1, 1))


def _firsts(op_: Pool, x: Any) -> Any:
    """Which place of each window is the first of the largest."""
    score, there = _scores(op_, x)
    if score.shape[-2] <= pool_windows.FEW:
        return _first_of_few(score, there)
    best = extrema.max(score, axis=-2, keepdims=True)
    hit = ((score == best) | (score != score)) & there
    first = extrema.argmax(hit, axis=-2, keepdims=True)
    return first == constant(np.arange(score.shape[-2]).reshape(-1, 1))


# -- windows that repeat -----------------------------------------------------------------------


class Repeated(Framed):
    """The kin of MaxPool."""

    def picking(self) -> Any:
        return MaxPoolPick(*self.own)

    def pulling(self) -> Any:
        return MaxPoolPull(*self.own)


@op
class MaxPool(Repeated, Largest):
    """The largest of each window; NaN if one of them is. Keeps x."""

    native = "pool"
    pooling = "largest"
    finishes = True

    @staticmethod
    def samples(rng):
        for frame, x, _ in pool_windows.frames(rng):
            yield MaxPool(*frame), x
        yield MaxPool((2,), (1,), (1,), (1,), (4,)), rng.integers(-9, 9, (2, 3, 2))

    @staticmethod
    def refuses(rng):
        two = MaxPool((2,), (1,), (1,), (0,), (2,))
        yield two, np.ones((3, 1)) + 1j, "it takes real dtypes"
        yield two, np.ones(3), "must have more than 1 axes"
        yield MaxPool((2,), (1,), (2,), (1,), (1,)), np.ones((1, 1)), "holds no element"


@op
class MaxPoolPick(Repeated, Pick):
    """The elements of v where x has the first largest of each window."""

    @staticmethod
    def samples(rng):
        for frame, x, _ in pool_windows.frames(rng):
            yield MaxPoolPick(*frame), rng.normal(size=x.shape), x

    @staticmethod
    def refuses(rng):
        two = MaxPoolPick((2,), (1,), (1,), (0,), (2,))
        yield two, np.ones((3, 1)), np.ones((3, 2)), "operands must have one shape"


@op
class MaxPoolPull(Repeated, Pull):
    """Zeros like x, with y of each window added to the first of its largest."""

    native = "pool"
    pooling = "pull"

    @staticmethod
    def samples(rng):
        for frame, x, y in pool_windows.frames(rng):
            yield MaxPoolPull(*frame), y, x

    @staticmethod
    def refuses(rng):
        two = MaxPoolPull((2,), (1,), (1,), (0,), (2,))
        yield two, np.ones((3, 1)), np.ones((3, 1)), "must have the shape (2, 1)"


@op
class MaxPoolPlaces(Framed, Places):
    """Where the first largest of each window is: its place in x's spatial axes, in a row."""

    @staticmethod
    def samples(rng):
        for frame, x, _ in pool_windows.frames(rng):
            yield MaxPoolPlaces(*frame), x


# -- windows told one by one -------------------------------------------------------------------


class Single(Spanned):
    """The kin of MaxSpan."""

    def picking(self) -> Any:
        return MaxSpanPick(*self.own)

    def pulling(self) -> Any:
        return MaxSpanPull(*self.own)


@op
class MaxSpan(Single, Largest):
    """The largest from each start to each stop; NaN if one of them is. Keeps x."""

    native = "span"
    pooling = "largest"

    @staticmethod
    def samples(rng):
        for own, x, _ in pool_windows.spans(rng):
            yield MaxSpan(*own), x

    @staticmethod
    def refuses(rng):
        yield MaxSpan(((0, 1),), ((1, 4),)), np.ones((3, 1)), "windows end at (4,)"


@op
class MaxSpanPick(Single, Pick):
    """The elements of v where x has the first largest from each start to each stop."""

    @staticmethod
    def samples(rng):
        for own, x, _ in pool_windows.spans(rng):
            yield MaxSpanPick(*own), rng.normal(size=x.shape), x


@op
class MaxSpanPull(Single, Pull):
    """Zeros like x, with y of each window added to the first of its largest."""

    native = "span"
    pooling = "pull"

    @staticmethod
    def samples(rng):
        for own, x, y in pool_windows.spans(rng):
            yield MaxSpanPull(*own), y, x


@op
class MaxSpanPlaces(Spanned, Places):
    """Where the first largest from each start to each stop is, in x's spatial axes."""

    @staticmethod
    def samples(rng):
        for own, x, _ in pool_windows.spans(rng):
            yield MaxSpanPlaces(*own), x
