"""Reductions that are sums: sum, mean, var, std, any, all, and what un-broadcasting needs."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Linear, Op, function, op
from retrograd.core.spec import Spec, axes_tuple
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, options, power, select, shape

__all__ = ["all", "any", "count_nonzero", "mean", "std", "sum", "var"]


def reduced(
    shape_: tuple[int, ...], axis: tuple[int, ...], *, keepdims: bool
) -> tuple[int, ...]:
    """The shape after reducing over `axis`."""
    if keepdims:
        return tuple(1 if i in axis else n for i, n in enumerate(shape_))
    return tuple(n for i, n in enumerate(shape_) if i not in axis)


def kept(y: Any, shape_: tuple[int, ...], axis: tuple[int, ...]) -> Any:
    """A result of reducing `shape_` over `axis`, with length 1 at the reduced axes."""
    return shape.reshape(y, reduced(shape_, axis, keepdims=True))


def count(shape_: tuple[int, ...], axis: tuple[int, ...]) -> int:
    """How many elements go into one result."""
    return prod(shape_[a] for a in axis)


def later(axis: tuple[int, ...]) -> tuple[int, ...]:
    """The same axes behind a mapped one."""
    return tuple(a + 1 for a in axis)


def wide(who: str, dtype: Any, own: np.dtype) -> np.dtype:
    """The dtype to add up in: as asked for, else 64 bits for integers, of floats their own."""
    if dtype is not None:
        return dt.as_dtype(who, dtype)
    return {"b": dt.int64, "i": dt.int64, "u": dt.uint64}.get(own.kind, own)


@op
class Sum(Linear):
    """The sum over axes."""

    axis: tuple[int, ...]
    keepdims: bool = False

    def shape(self, x: Spec) -> Spec:
        return x.with_shape(reduced(x.shape, self.axis, keepdims=self.keepdims))

    def forward(self, x):
        return np.add.reduce(x, axis=self.axis, keepdims=self.keepdims, dtype=x.dtype)  # type: ignore[call-overload]

    def transpose(self, g, x: Spec):
        return shape.broadcast_to(kept(g, x.shape, self.axis), x.shape)

    def batch(self, size, args, mapped):
        return apply(Sum(later(self.axis), self.keepdims), *args)

    def lower(self, k, x, out):
        for row in k.rows(x, out, axis=self.axis):
            total = k.var(0)
            for i in row.steps():
                total.value = total.value + x[i]
            out[row] = total.value

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(2, 3, 4))
        yield Sum((0, 1, 2)), x
        yield Sum((1,), keepdims=True), x
        yield Sum((0, 2)), x
        yield Sum(()), x
        yield Sum((0,)), rng.normal(size=(0, 3))
        yield Sum(()), np.asarray(rng.normal())
        yield Sum((1,)), x[0] + 1j * x[1]


@function
def sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The sum over `axis` (all axes by default). Integers and booleans sum in 64 bits."""
    x = lift(x)
    x = cast.astype(x, wide("sum", dtype, x.dtype))
    return apply(Sum(axes_tuple("sum", axis, x.ndim), bool(keepdims)), x)


@op
class SumTo(Linear):
    """Sum over the axes that broadcasting from `to` would add or stretch."""

    to: tuple[int, ...]

    def shape(self, x: Spec) -> Spec:
        return x.with_shape(self.to)

    def forward(self, x):
        axes = self.stretched(x.shape)
        return np.add.reduce(x, axis=axes, dtype=x.dtype).reshape(self.to)

    def transpose(self, g, x: Spec):
        return shape.broadcast_to(g, x.shape)

    def batch(self, size, args, mapped):
        (x,) = args
        pad = (1,) * (x.ndim - 1 - len(self.to))
        return shape.reshape(apply(SumTo((size, *pad, *self.to)), x), (size, *self.to))

    def expand(self, x):
        return shape.reshape(sum(x, axis=self.stretched(x.shape)), self.to)

    @staticmethod
    def samples(rng):
        yield SumTo((1, 3)), rng.normal(size=(2, 4, 3))
        yield SumTo(()), rng.normal(size=(2, 3))
        yield SumTo((1, 3)), rng.normal(size=(0, 3))

    def stretched(self, from_: tuple[int, ...]) -> tuple[int, ...]:
        lead = len(from_) - len(self.to)
        return tuple(
            i for i, n in enumerate(from_) if i < lead or (self.to[i - lead] == 1 != n)
        )


@function
def sum_to(x: Any, to: tuple[int, ...]) -> Tensor:
    """x summed to the shape `to`, which broadcasts to x's: what undoes broadcasting."""
    return x if x.shape == to else apply(SumTo(tuple(to)), x)


@function
def mean(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The mean over `axis` (all axes by default); NaN of no elements, float32 of integers."""
    x = lift(x)
    axes = axes_tuple("mean", axis, x.ndim)
    out = x.dtype if dt.is_inexact(x.dtype) else dt.float32
    # the sum of many halves leaves their range, where their mean does not
    x = cast.astype(x, dt.float32 if out in dt.HALF else out)
    total = apply(Sum(axes, bool(keepdims)), x)
    return cast.astype(total / count(x.shape, axes), out)


@op
class Variance(Op):
    """The mean squared distance from the mean, over n - correction; NaN if that is not > 0."""

    name = "var"
    axis: tuple[int, ...]
    correction: float = 0.0
    keepdims: bool = False
    uniform = True
    takes = "floating"

    def shape(self, x: Spec) -> Spec:
        return x.with_shape(reduced(x.shape, self.axis, keepdims=self.keepdims))

    def forward(self, x):
        n = count(x.shape, self.axis)
        mid = np.add.reduce(x, axis=self.axis, keepdims=True) / n if n else 0
        far = np.square(x - mid)
        total = np.add.reduce(far, axis=self.axis, keepdims=self.keepdims)  # type: ignore[call-overload]
        return (total / self._divisor(n)).astype(x.dtype, copy=False)

    def jvp(self, dx, x):
        pushed = sum(self._centred(x) * dx, axis=self.axis, keepdims=self.keepdims)
        return pushed * self._scale(x.shape)

    def vjp(self, g, x):
        return kept(g, x.shape, self.axis) * self._scale(x.shape) * self._centred(x)

    def batch(self, size, args, mapped):
        return apply(Variance(later(self.axis), self.correction, self.keepdims), *args)

    def lower(self, k, x, out):
        for row in k.rows(x, out, axis=self.axis):
            total, n, far = k.var(0.0, x), k.var(0.0, x), k.var(0.0, x)
            for i in row.steps():
                total.value, n.value = total.value + x[i], n.value + 1.0
            mid = total.value / n.value
            for i in row.steps():
                far.value = far.value + (x[i] - mid) * (x[i] - mid)
            left = n.value - self.correction
            out[row] = far.value / k.where(left > 0, left, np.nan)

    def _centred(self, x):
        return x - mean(x, axis=self.axis, keepdims=True)

    def _scale(self, shape_):
        n = count(shape_, self.axis)
        return 2 / self._divisor(n) if n else 0.0

    def _divisor(self, n):  # as the standard has it: nothing to divide by is NaN, not inf
        return n - self.correction if n > self.correction else np.nan

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(2, 3, 4))
        yield Variance((0, 1, 2)), x
        yield Variance((0, 2), 1.0), x
        yield Variance((1,), 0.5, keepdims=True), x
        yield Variance(()), x[0]
        yield Variance((1,)), rng.normal(size=(0, 3))
        yield Variance(()), np.asarray(rng.normal())

    @staticmethod
    def refuses(rng):
        yield Variance((0,)), rng.normal(size=2) + 1j, "it takes floating dtypes"


@function
def var(
    x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The variance over `axis`: squared distances from the mean over n - `correction`.

    NaN of no elements, and where the correction leaves nothing to divide by.
    """
    x = lift(x)
    axes = axes_tuple("var", axis, x.ndim)
    correction = options.number("var", "correction", correction)
    return apply(Variance(axes, correction, bool(keepdims)), x)


@function
def std(
    x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The standard deviation over `axis`, as `var`; where all are equal its gradient is 0."""
    x = lift(x)
    axes = axes_tuple("std", axis, x.ndim)
    correction = options.number("std", "correction", correction)
    return root(var(x, axis=axes, correction=correction, keepdims=keepdims))


def root(x: Any) -> Any:
    """The square root, with slope 0 at 0: for what is 0 only at a minimum."""
    zero = x == 0
    return select.where(zero, 0.0, power.sqrt(select.where(zero, 1.0, x)))


class Truth(Op):
    """Reductions of truth: anything but zero is true, NaN too."""

    axis: tuple[int, ...]
    keepdims: bool = False
    no_derivative = "its result is true or false, constant almost everywhere"

    def shape(self, x: Spec) -> Spec:
        to = reduced(x.shape, self.axis, keepdims=self.keepdims)
        return x.with_shape(to).with_dtype(dt.bool)

    def batch(self, size, args, mapped):
        return apply(type(self)(later(self.axis), self.keepdims), *args)


@op
class AnyTrue(Truth):
    """Whether an element is not zero."""

    def forward(self, x):
        true = x.astype(dt.bool)
        return np.logical_or.reduce(true, axis=self.axis, keepdims=self.keepdims)  # type: ignore[call-overload]

    def lower(self, k, x, out):
        for row in k.rows(x, out, axis=self.axis):
            found = k.var(False)
            for i in row.steps():
                found.value = found.value | (x[i] != 0)
            out[row] = found.value

    @staticmethod
    def samples(rng):
        x = rng.integers(0, 2, (2, 3, 4)) * 1.0
        yield AnyTrue((1,)), x
        yield AnyTrue((0, 2), keepdims=True), x > 0
        yield AnyTrue(()), x
        yield AnyTrue((0,)), rng.normal(size=(0, 3))


@op
class AllTrue(Truth):
    """Whether no element is zero."""

    def forward(self, x):
        true = x.astype(dt.bool)
        return np.logical_and.reduce(true, axis=self.axis, keepdims=self.keepdims)  # type: ignore[call-overload]

    def lower(self, k, x, out):
        for row in k.rows(x, out, axis=self.axis):
            found = k.var(True)
            for i in row.steps():
                found.value = found.value & (x[i] != 0)
            out[row] = found.value

    @staticmethod
    def samples(rng):
        x = rng.integers(0, 2, (2, 3, 4)) * 1.0
        yield AllTrue((1,)), x
        yield AllTrue((0, 2), keepdims=True), x > 0
        yield AllTrue(()), x
        yield AllTrue((0,)), rng.normal(size=(0, 3))


@function
def any(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether an element along `axis` is true, that is not zero; false of no elements."""
    x = lift(x)
    return apply(AnyTrue(axes_tuple("any", axis, x.ndim), bool(keepdims)), x)


@function
def all(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether all elements along `axis` are true, that is not zero; true of no elements."""
    x = lift(x)
    return apply(AllTrue(axes_tuple("all", axis, x.ndim), bool(keepdims)), x)


@function
def count_nonzero(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """How many elements along `axis` are not zero."""
    x = lift(x)
    axes = axes_tuple("count_nonzero", axis, x.ndim)
    return sum(cast.astype(x, dt.bool), axis=axes, keepdims=keepdims)
