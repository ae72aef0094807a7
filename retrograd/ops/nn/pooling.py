"""The ops of pooling: the largest of each window, or the sum, along the axes before the last.

Both go axis by axis: the largest of a window is the largest of its rows' largest, and the
first of the largest, row by row, is in the first row that has it. Elements outside the
axes are not there: no window sees them, and no gradient goes to them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ShapeError
from retrograd.core.interpret import apply
from retrograd.core.op import Linear, Op, front, op
from retrograd.core.spec import Spec, spec_of
from retrograd.ops.nn import geometry
from retrograd.ops.nn.geometry import Frame, Sizes

INDEX = "its result is an index, constant almost everywhere"
HOST = "windows are slices of arrays; the compiler will have loops for them"


class Tap:
    """One place of the windows along one axis: which windows have it, and where it is."""

    def __init__(self, windows: slice, places: slice, *, whole: bool, apart: bool) -> None:
        self.windows, self.places = windows, places
        self.whole = whole  # all windows have it
        self.apart = apart  # no place is in two windows


@lru_cache(1024)
def taps(size: int, kernel: int, stride: int, dilation: int, before: int, count: int) -> Any:
    """The places of `count` windows along an axis, as far as they lie inside it."""
    found, apart = [], stride > dilation * (kernel - 1)
    for t in range(kernel):
        at = t * dilation - before
        first, stop = max(0, -(at // stride)), min(count, (size - 1 - at) // stride + 1)
        if first < stop:
            places = slice(first * stride + at, (stop - 1) * stride + at + 1, stride)
            whole = (first, stop) == (0, count)
            found.append(Tap(slice(first, stop), places, whole=whole, apart=apart))
    return tuple(found)


# -- along one axis, in NumPy ------------------------------------------------------------------


def _largest(x: np.ndarray, lead: Any, steps: Any, count: int) -> np.ndarray:
    """The largest of each window along the axis after `lead`; NaN if one is."""
    if len(steps) == 1:
        return x[(*lead, steps[0].places)]
    whole = [t for t in steps if t.whole]
    parts = [t for t in steps if not t.whole]
    if len(whole) > 1:
        a, b, *rest = whole
        out = np.maximum(x[(*lead, a.places)], x[(*lead, b.places)])
        parts += rest
    elif whole:
        out = np.array(x[(*lead, whole[0].places)], order="C")
    else:
        to = (*x.shape[: len(lead)], count, *x.shape[len(lead) + 1 :])
        out = np.full(to, lowest(x.dtype), x.dtype)
    for t in parts:
        mine = out[(*lead, t.windows)]
        np.maximum(mine, x[(*lead, t.places)], out=mine)
    return out


def lowest(dtype: np.dtype) -> Any:
    """The number that is not larger than any."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return False if dtype.kind == "b" else -np.inf


def _winners(x: np.ndarray, out: np.ndarray, lead: Any, steps: Any) -> Any:
    """For each tap, in which of its windows it is the first that equals the result.

    Every window has one, if only because the last place takes what none before it took.
    """
    done = np.zeros(out.shape, bool)
    strange = x.dtype.kind == "f" and bool(np.isnan(out).any())
    for t in steps:
        taken = done[(*lead, t.windows)]
        if t is steps[-1]:
            yield t, ~taken
            return
        mine = x[(*lead, t.places)]
        hit = mine == out[(*lead, t.windows)]
        if strange:
            hit |= mine != mine
        np.greater(hit, taken, out=hit)  # and not taken
        yield t, hit
        np.logical_or(taken, hit, out=taken)


def _calm(g: np.ndarray) -> bool:
    """Whether products of g with 0 are 0."""
    return g.dtype.kind not in "fc" or bool(np.isfinite(g).all())


def _give(to: np.ndarray, g: np.ndarray, hit: np.ndarray, *, calm: bool, apart: bool) -> None:
    """Add g where hit; where `apart`, on zeros."""
    if not calm:  # a product with 0 would be NaN; else it is many times faster
        to += np.where(hit, g, g.dtype.type(0))
    elif apart:
        np.multiply(g, hit, out=to)
    else:
        to += np.multiply(g, hit)


def _pulled(
    g: np.ndarray, x: np.ndarray, out: np.ndarray, lead: Any, steps: Any
) -> np.ndarray:
    """Zeros like x, with each g added to the winner of its window."""
    found, calm = np.zeros(x.shape, g.dtype), _calm(g)
    for t, hit in _winners(x, out, lead, steps):
        to, given = found[(*lead, t.places)], g[(*lead, t.windows)]
        _give(to, given, hit, calm=calm, apart=t.apart)
    return found


def _picked(
    v: np.ndarray, x: np.ndarray, out: np.ndarray, lead: Any, steps: Any
) -> np.ndarray:
    """The elements of v that stand where the winners of x do."""
    found, calm = np.zeros(out.shape, v.dtype), _calm(v)
    for t, hit in _winners(x, out, lead, steps):
        to, given = found[(*lead, t.windows)], v[(*lead, t.places)]
        _give(to, given, hit, calm=calm, apart=False)
    return found


def _summed(x: np.ndarray, lead: Any, steps: Any, count: int) -> np.ndarray:
    """The sum of each window along the axis after `lead`."""
    if len(steps) == 1:
        return x[(*lead, steps[0].places)]
    whole = [t for t in steps if t.whole]
    parts = [t for t in steps if not t.whole]
    if len(whole) > 1:
        a, b, *rest = whole
        out = x[(*lead, a.places)] + x[(*lead, b.places)]
        parts += rest
    else:
        out = np.zeros((*x.shape[: len(lead)], count, *x.shape[len(lead) + 1 :]), x.dtype)
        parts += whole
    for t in parts:
        out[(*lead, t.windows)] += x[(*lead, t.places)]
    return out


def _spread(y: np.ndarray, lead: Any, steps: Any, size: int) -> np.ndarray:
    """The transpose of _summed: every place gets the sum of its windows."""
    out = np.zeros((*y.shape[: len(lead)], size, *y.shape[len(lead) + 1 :]), y.dtype)
    for t in steps:
        if t.apart:
            out[(*lead, t.places)] = y[(*lead, t.windows)]
        else:
            out[(*lead, t.places)] += y[(*lead, t.windows)]
    return out


# -- the ops -----------------------------------------------------------------------------------


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

    @property
    def own(self) -> tuple[Any, ...]:
        return tuple(self.frame)

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
        found = [((slice(None),) * (start + a), taps(*row), row[-1]) for a, row in enumerate(rows)]
        return found[::-1]

    def stages(self, x: np.ndarray) -> list[np.ndarray]:
        """x, and the largest after each axis: the last of them is the result."""
        found = [x]
        for lead, steps, count in self.along(x):
            found.append(_largest(found[-1], lead, steps, count))
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
        return apply(MaxPoolPick(*self.own), dx, x)

    def vjp(self, g, x):
        return apply(MaxPoolPull(*self.own), g, x)

    def expand(self, x):
        score, _ = _scores(self, x)
        return shape.reshape(extrema.max(score, axis=-2), self.pooled(x))

    @staticmethod
    def samples(rng):
        for own, x, _ in _cases(rng):
            yield MaxPool(*own), x
        yield MaxPool((2,), (1,), (1,), (1,), (4,)), rng.integers(-9, 9, (2, 3, 2))

    @staticmethod
    def refuses(rng):
        yield MaxPool((2,), (1,), (1,), (0,), (2,)), np.ones((3, 1)) + 1j, "it takes real dtypes"
        yield MaxPool((2,), (1,), (2,), (1,), (1,)), np.ones((1, 1)), "holds no element"
        yield MaxPool((2,), (1,), (1,), (0,), (2,)), np.ones(3), "must have more than 1 axes"


@op
class MaxPoolPick(Pool, Linear):
    """The elements of v where x has the first largest of each window."""

    fixed = ("x",)

    def shape(self, v: Spec, x: Spec) -> Spec:
        return v.with_shape(self.pooled(same(self.name, v=v, x=x)))

    def forward(self, v, x):
        values = self.stages(x)
        for (lead, steps, _), a, b in zip(self.along(x), values[:-1], values[1:], strict=True):
            v = _picked(v, a, b, lead, steps)
        return v

    def transpose(self, g, x):
        return apply(MaxPoolPull(*self.own), g, x)

    def expand(self, v, x):
        seen = _windows(self, v)
        found = reduce.sum(select.where(_firsts(self, x), seen, 0.0), axis=-2)
        return shape.reshape(found, self.pooled(x))

    @staticmethod
    def samples(rng):
        for own, x, _ in _cases(rng):
            yield MaxPoolPick(*own), rng.normal(size=x.shape), x

    @staticmethod
    def refuses(rng):
        two = MaxPoolPick((2,), (1,), (1,), (0,), (2,))
        yield two, np.ones((3, 1)), np.ones((3, 2)), "operands must have one shape"


@op
class MaxPoolPull(Pool, Linear):
    """Zeros like x, with y of each window added to the first of its largest."""

    fixed = ("x",)

    def shape(self, y: Spec, x: Spec) -> Spec:
        if y.shape != self.pooled(x):
            raise ShapeError(f"{self.name}: y {y.shape} must have the shape {self.pooled(x)}")
        return y.with_shape(x.shape)

    def forward(self, y, x):
        values = self.stages(x)
        rows = list(zip(self.along(x), values[:-1], values[1:], strict=True))
        for (lead, steps, _), a, b in reversed(rows):
            y = _pulled(y, a, b, lead, steps)
        return y

    def transpose(self, g, x):
        return apply(MaxPoolPick(*self.own), g, x)

    def expand(self, y, x):
        apart = shape.reshape(y, (-1, *self.counts, 1, x.shape[-1]))
        given = select.where(_firsts(self, x), apart, 0.0)
        return _unwindowed(self, given, x.shape)

    @staticmethod
    def samples(rng):
        for own, x, y in _cases(rng):
            yield MaxPoolPull(*own), y, x

    @staticmethod
    def refuses(rng):
        two = MaxPoolPull((2,), (1,), (1,), (0,), (2,))
        yield two, np.ones((3, 1)), np.ones((3, 1)), "must have the shape (2, 1)"
