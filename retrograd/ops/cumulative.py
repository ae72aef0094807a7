"""Running along an axis: sums, products, extrema; and differences, which undo the sums.

The derivative of a running product is a linear recurrence, which divides by nothing: it is
right at zeros, of any number and at any place, and so are the derivatives of it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Linear, Op, front, function, op
from retrograd.core.spec import Spec, axis_index, same
from retrograd.core.tensor import Tensor
from retrograd.ops import (
    arithmetic,
    cast,
    compare,
    create,
    gather,
    join,
    options,
    pad,
    recur,
    reduce,
    shape,
    turn,
)

__all__ = [
    "cumprod",
    "cumsum",
    "cumulative_max",
    "cumulative_min",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
]


def lane(who: str, axis: Any, ndim: int) -> int:
    """The axis to run along; it need not be said where there is only one."""
    if axis is None and ndim != 1:
        raise ArgumentError(f"{who}: x has {ndim} axes; axis must say along which one")
    return axis_index(who, 0 if axis is None else axis, ndim)


def turned(op_: Any, x: Any, *, reverse: bool) -> Any:
    """An op that runs forwards, made to run from the end if `reverse`."""
    if not reverse:
        return apply(op_, x)
    return turn.flip(apply(op_, turn.flip(x, axis=op_.axis)), axis=op_.axis)


def _run(ufunc: Any, x: np.ndarray, axis: int, *, backwards: bool) -> np.ndarray:
    if not backwards:
        return ufunc.accumulate(x, axis=axis, dtype=x.dtype)
    return np.flip(ufunc.accumulate(np.flip(x, axis), axis=axis, dtype=x.dtype), axis)


@op
class CumulativeSum(Linear):
    """The sum of the elements up to each, or from each on."""

    axis: int
    backwards: bool = False

    def shape(self, x: Spec) -> Spec:
        return x

    def forward(self, x):
        return _run(np.add, x, self.axis, backwards=self.backwards)

    def transpose(self, g):
        return apply(CumulativeSum(self.axis, not self.backwards), g)

    def batch(self, size, args, mapped):
        return apply(CumulativeSum(self.axis + 1, self.backwards), *args)

    def lower(self, k, x, out):
        for walk in k.lanes(out, axis=self.axis):
            total = k.var(0)
            for t in walk.steps(reverse=self.backwards):
                total.value = total.value + x[t]
                out[t] = total.value

    @staticmethod
    def samples(rng):
        yield CumulativeSum(1), rng.normal(size=(2, 4))
        yield CumulativeSum(0, backwards=True), rng.normal(size=(3, 2))
        yield CumulativeSum(0), rng.normal(size=(0, 2))
        yield CumulativeSum(0), rng.normal(size=3) + 1j * rng.normal(size=3)


@op
class CumulativeProd(Op):
    """The product of the elements up to each, or from each on; `exclusive` leaves it out."""

    axis: int
    backwards: bool = False
    exclusive: bool = False

    def shape(self, x: Spec) -> Spec:
        return x

    def forward(self, x):
        out = _run(np.multiply, x, self.axis, backwards=self.backwards)
        if not self.exclusive:
            return out
        moved = np.ones_like(x)
        whole, cut = np.moveaxis(out, self.axis, 0), np.moveaxis(moved, self.axis, 0)
        if self.backwards:
            cut[:-1] = whole[1:]
        else:
            cut[1:] = whole[:-1]
        return moved

    def jvp(self, dx, x):  # d out[t] = x[t] * d out[t-1] + dx[t] * (product of those before t)
        out = apply(recur.Recurrence(self.backwards, self.axis), x, dx * self._before(x))
        return recur.shift(out, self._step, self.axis) if self.exclusive else out

    def vjp(self, g, x):
        g = recur.shift(g, -self._step, self.axis) if self.exclusive else g
        a = recur.shift(x, -self._step, self.axis)
        blame = apply(recur.Recurrence(not self.backwards, self.axis), a, g)
        return blame * self._before(x)

    def batch(self, size, args, mapped):
        return apply(CumulativeProd(self.axis + 1, self.backwards, self.exclusive), *args)

    def lower(self, k, x, out):
        for walk in k.lanes(out, axis=self.axis):
            total = k.var(1, x)
            for t in walk.steps(reverse=self.backwards):
                before, total.value = total.value, total.value * x[t]
                out[t] = before if self.exclusive else total.value

    def _before(self, x):
        return apply(CumulativeProd(self.axis, self.backwards, exclusive=True), x)

    @property
    def _step(self) -> int:
        return -1 if self.backwards else 1

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(2, 4))
        zeros = np.where(rng.uniform(size=(3, 5)) < 0.4, 0.0, rng.normal(size=(3, 5)))
        for backwards in (False, True):
            for exclusive in (False, True):
                yield CumulativeProd(1, backwards, exclusive), x
                yield CumulativeProd(1, backwards, exclusive), zeros
        yield CumulativeProd(0), rng.normal(size=(0, 2))
        yield CumulativeProd(0), x[0] + 1j * x[1]


class CumulativeExtremum(Op):
    """The largest or smallest up to each; the gradient goes to the first that was it."""

    axis: int
    uniform = True
    takes = "real"
    chosen: ClassVar[Any]

    def shape(self, x: Spec) -> Spec:
        return x

    def forward(self, x):
        return self.chosen.accumulate(x, axis=self.axis)

    def jvp(self, dx, out):
        return RunningBlame(self.axis).transpose(dx, out)

    def vjp(self, g, out):
        return apply(RunningBlame(self.axis), g, out)

    def batch(self, size, args, mapped):
        return apply(type(self)(self.axis + 1), *args)

    def lower(self, k, x, out):
        choose = getattr(k, self.chosen.__name__)
        for walk in k.lanes(out, axis=self.axis):
            best, fresh = k.var(0), k.var(True)
            for t in walk.steps():
                best.value = k.where(fresh.value, x[t], choose(best.value, x[t]))
                fresh.value = False
                out[t] = best.value

    @classmethod
    def samples(cls, rng):
        x = rng.permutation(12).reshape(3, 4) * 0.5
        yield from ((cls(axis), x) for axis in (1, 0))
        yield cls(0), rng.normal(size=(0, 2))
        yield cls(0), rng.integers(-5, 5, (4, 3))


@op
class CumulativeMax(CumulativeExtremum):
    """The largest up to each."""

    chosen = np.maximum


@op
class CumulativeMin(CumulativeExtremum):
    """The smallest up to each."""

    chosen = np.minimum


@op
class RunPlace(Op):
    """Where the run of equal numbers began that each is of; of NaN, too."""

    axis: int
    no_derivative = "its result is an index, constant almost everywhere"

    def shape(self, x: Spec) -> Spec:
        return x.with_dtype(dt.int64)

    def forward(self, x):
        y = np.moveaxis(x, self.axis, -1)
        was, now = y[..., :-1], y[..., 1:]
        new = np.zeros(y.shape, dt.int64)
        other = (now != was) & ((now == now) | (was == was))
        new[..., 1:] = other * np.arange(1, y.shape[-1])
        return np.moveaxis(np.maximum.accumulate(new, axis=-1), -1, self.axis)

    def batch(self, size, args, mapped):
        return apply(RunPlace(self.axis + 1), *args)

    def lower(self, k, x, out):
        nan = k.map(lambda v: v != v, dt.bool, x)
        for walk in k.lanes(out, axis=self.axis):
            here, found = k.var(0), k.var(0)
            for t in walk.steps():
                found.value = k.where(_lasts(k, x, nan, t, 0), found.value, here.value)
                here.value = here.value + 1
                out[t] = found.value

    @staticmethod
    def samples(rng):
        x = rng.integers(-1, 1, (3, 5)) * 0.5
        yield from ((RunPlace(axis), x) for axis in (1, 0))
        yield RunPlace(0), np.array([np.nan, np.nan, 3.0, 3.0, np.nan])
        yield RunPlace(1), rng.integers(0, 2, (3, 5))
        yield RunPlace(0), rng.normal(size=(0, 2))


def _lasts(k: Any, x: Any, nan: Any, t: Any, first: float) -> Any:
    """Whether a number is the one before it (`first` there is); where they are `nan`, it is."""
    return (x[t] == k.inside(x, t - 1, first)) | (nan[t] & k.inside(nan, t - 1, False))


@op
class RunningBlame(Linear):
    """x summed while `best` stays the same number, put at the first place of that; else 0."""

    axis: int
    fixed = ("best",)

    def shape(self, x: Spec, best: Spec) -> Spec:
        return same("running_blame", x=x, best=best)

    def forward(self, x, best):
        places = RunPlace(self.axis).forward(best)
        return gather.AddAlongAxis(self.axis, x.shape[self.axis]).forward(x, places)

    def transpose(self, g, best):
        return apply(gather.TakeAlongAxis(self.axis), g, apply(RunPlace(self.axis), best))

    def batch(self, size, args, mapped):
        return apply(RunningBlame(self.axis + 1), *front(size, args, mapped))

    def lower(self, k, x, best, out):  # from the end: a sum is whole where it is written
        nan = k.map(lambda b: b != b, dt.bool, best)
        for walk in k.lanes(out, axis=self.axis):
            total = k.var(0, x)
            for t in walk.steps(reverse=True):
                lasts = _lasts(k, best, nan, t, np.nan)
                total.value = total.value + x[t]
                out[t] = k.where(lasts, 0, total.value)
                total.value = k.where(lasts, total.value, 0)

    @staticmethod
    def samples(rng):
        x, steps = rng.normal(size=(3, 5)), rng.integers(-3, 3, (3, 5)) * 0.5
        yield RunningBlame(1), x, np.maximum.accumulate(steps, axis=1)
        yield RunningBlame(0), x, np.minimum.accumulate(steps, axis=0)
        yield RunningBlame(1), x, steps
        yield RunningBlame(0), x[0], np.array([-np.inf, 1.0, 1.0, np.nan, np.nan])
        yield RunningBlame(0), rng.normal(size=(0, 2)), np.zeros((0, 2))

    @staticmethod
    def refuses(rng):
        yield RunningBlame(0), rng.normal(size=3), np.zeros(2), "must have one shape"


def _with_initial(out: Any, axis: int, value: int, *, reverse: bool) -> Any:
    edge = (*out.shape[:axis], 1, *out.shape[axis + 1 :])
    start = (create.ones if value else create.zeros)(edge, dtype=out.dtype)
    return join.concat([out, start] if reverse else [start, out], axis=axis)


@function
def cumulative_sum(
    x: Any,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    include_initial: bool = False,
    reverse: bool = False,
) -> Tensor:
    """The sum of the elements up to each along `axis` (from each on with `reverse`).

    `include_initial` puts the sum of none, 0, before the first (after the last).
    """
    x = lift(x)
    axis = lane("cumulative_sum", axis, x.ndim)
    x = cast.astype(x, reduce.wide("cumulative_sum", dtype, x.dtype))
    out = apply(CumulativeSum(axis, bool(reverse)), x)
    return _with_initial(out, axis, 0, reverse=reverse) if include_initial else out


@function
def cumulative_prod(
    x: Any,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    include_initial: bool = False,
    reverse: bool = False,
) -> Tensor:
    """The product of the elements up to each along `axis` (from each on with `reverse`).

    `include_initial` puts the product of none, 1, before the first (after the last).
    """
    x = lift(x)
    axis = lane("cumulative_prod", axis, x.ndim)
    x = cast.astype(x, reduce.wide("cumulative_prod", dtype, x.dtype))
    out = apply(CumulativeProd(axis, bool(reverse)), x)
    return _with_initial(out, axis, 1, reverse=reverse) if include_initial else out


@function
def cumulative_max(x: Any, /, *, axis: int | None = None, reverse: bool = False) -> Tensor:
    """The largest up to each along `axis`; of equal ones the first met takes the gradient."""
    x = lift(x)
    return turned(CumulativeMax(lane("cumulative_max", axis, x.ndim)), x, reverse=reverse)


@function
def cumulative_min(x: Any, /, *, axis: int | None = None, reverse: bool = False) -> Tensor:
    """The smallest up to each along `axis`; of equal ones the first met takes the gradient."""
    x = lift(x)
    return turned(CumulativeMin(lane("cumulative_min", axis, x.ndim)), x, reverse=reverse)


def _flat(x: Any, axis: Any) -> tuple[Any, int]:
    x = lift(x)
    return (shape.reshape(x, (x.size,)), 0) if axis is None else (x, axis)


@function
def cumsum(x: Any, /, axis: int | None = None, *, dtype: Any = None) -> Tensor:
    """NumPy's name for `cumulative_sum`; without an axis, over all elements in a row."""
    x, axis = _flat(x, axis)
    return cumulative_sum(x, axis=axis, dtype=dtype)


@function
def cumprod(x: Any, /, axis: int | None = None, *, dtype: Any = None) -> Tensor:
    """NumPy's name for `cumulative_prod`; without an axis, over all elements in a row."""
    x, axis = _flat(x, axis)
    return cumulative_prod(x, axis=axis, dtype=dtype)


@function
def diff(
    x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None
) -> Tensor:
    """The n-th difference of neighbours along `axis`, of x between `prepend` and `append`."""
    x = lift(x)
    axis = axis_index("diff", axis, x.ndim)
    n = options.integer("diff", "n", n, least=0)
    around = [p if p is None else lift(p) for p in (prepend, append)]
    if any(p is not None for p in around):
        x = join.concat([p for p in (around[0], x, around[1]) if p is not None], axis=axis)
    minus = compare.not_equal if x.dtype == dt.bool else arithmetic.subtract
    for _ in range(min(n, x.shape[axis])):
        less = x.shape[axis] - 1
        x = minus(pad.piece(x, axis, 1, less), pad.piece(x, axis, 0, less))
    return x
