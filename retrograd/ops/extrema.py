"""The largest and the smallest, and where they are. NaN is larger and smaller than any number.

Equal ones share the gradient equally; argmax and argmin give the first.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Op, function, op
from retrograd.core.spec import Spec, axes_tuple, axis_index, spec_of
from retrograd.core.tensor import Tensor
from retrograd.ops import reduce, select, shape

__all__ = ["argmax", "argmin", "max", "min"]


def not_empty(who: str, x: Spec, axis: tuple[int, ...], out: Spec) -> Spec:
    """`out`, unless it has elements that no element of x would give."""
    if out.size and not reduce.count(x.shape, axis):
        raise ArgumentError(
            f"{who}: there is none among no elements: x {x.shape} has length 0 along axis "
            f"{axis[0] if len(axis) == 1 else axis}"
        )
    return out


class Extremum(Op):
    """Reductions that choose: they keep x and the result, and find the chosen ones again."""

    axis: tuple[int, ...]
    keepdims: bool = False
    uniform = True
    takes = "real"
    chosen: ClassVar[Any]  # the ufunc of two operands

    def shape(self, x: Spec) -> Spec:
        out = x.with_shape(reduce.reduced(x.shape, self.axis, keepdims=self.keepdims))
        return not_empty(self.name, x, self.axis, out)

    def forward(self, x):
        return self.chosen.reduce(x, axis=self.axis, keepdims=self.keepdims)

    def jvp(self, dx, x, out):
        mask, many = self._ties(x, out, dx.dtype)
        found = select.where(mask, dx, 0.0)
        return reduce.sum(found, axis=self.axis, keepdims=self.keepdims) / shape.reshape(
            many, out.shape
        )

    def vjp(self, g, x, out):
        mask, many = self._ties(x, out, g.dtype)
        return select.where(mask, reduce.kept(g, x.shape, self.axis) / many, 0.0)

    def batch(self, size, args, mapped):
        return apply(type(self)(reduce.later(self.axis), self.keepdims), *args)

    @staticmethod
    @abstractmethod
    def better(k: Any, best: Any, x: Any) -> Any:
        """The one of two numbers of a kernel that is chosen."""

    def lower(self, k, x, out):
        start = self._least(x.dtype)
        for row in k.rows(x, out, axis=self.axis):
            best = k.var(start, x)
            for i in row.steps():
                best.value = self.better(k, best.value, x[i])
            out[row] = best.value

    def _least(self, dtype):
        """What every number wins against."""
        largest = self.chosen is not np.minimum
        if dtype.kind == "f" or dtype in dt.HALF:
            return -np.inf if largest else np.inf
        if dtype.kind == "b":
            return not largest
        info = np.iinfo(dtype)
        return int(info.min if largest else info.max)

    def _ties(self, x, out, dtype):
        mask = (x == reduce.kept(out, x.shape, self.axis)) | (x != x)  # out is NaN if an x is
        return mask, reduce.sum(mask, axis=self.axis, dtype=dtype, keepdims=True)

    @classmethod
    def cases(cls, rng):
        x = rng.permutation(24).reshape(2, 3, 4) * 0.5
        yield cls((0, 1, 2)), x
        yield cls((1,), keepdims=True), x
        yield cls((0, 2)), x
        yield cls(()), x
        yield cls(()), np.asarray(rng.normal())
        yield cls((1,)), rng.normal(size=(0, 3))
        yield cls((0,)), rng.integers(-5, 5, (4, 3))
        yield cls((0,)), x[0] > 5

    @classmethod
    def faults(cls, rng):
        yield cls((0,)), rng.normal(size=(0, 3)), "x (0, 3) has length 0 along axis 0"
        yield cls((0,)), rng.normal(size=3) + 1j, "it takes real dtypes"


@op
class Max(Extremum):
    """The largest over axes."""

    chosen = np.maximum

    @staticmethod
    def better(k, best, x):
        return k.maximum(best, x)

    @staticmethod
    def samples(rng):
        return Max.cases(rng)

    @staticmethod
    def refuses(rng):
        return Max.faults(rng)


@op
class Min(Extremum):
    """The smallest over axes."""

    chosen = np.minimum

    @staticmethod
    def better(k, best, x):
        return k.minimum(best, x)

    @staticmethod
    def samples(rng):
        return Min.cases(rng)

    @staticmethod
    def refuses(rng):
        return Min.faults(rng)


@op
class Top(Extremum):
    """The largest over axes, NaN left out: for what is NaN anyway where there is one."""

    takes = "floating"
    chosen = np.fmax

    @staticmethod
    def better(k, best, x):
        return k.larger(x, best)

    @staticmethod
    def samples(rng):
        return ((case, x) for case, x in Top.cases(rng) if x.dtype.kind == "f")

    @staticmethod
    def refuses(rng):
        yield Top((0,)), rng.normal(size=(0, 3)), "x (0, 3) has length 0 along axis 0"
        yield Top((0,)), rng.normal(size=3) + 1j, "it takes floating dtypes"


@function
def max(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The largest over `axis` (all axes by default); equal ones share the gradient."""
    x = lift(x)
    return apply(Max(axes_tuple("max", axis, x.ndim), bool(keepdims)), x)


@function
def min(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The smallest over `axis` (all axes by default); equal ones share the gradient."""
    x = lift(x)
    return apply(Min(axes_tuple("min", axis, x.ndim), bool(keepdims)), x)


def top(x: Tensor, axis: int) -> Tensor:
    """The largest along an axis, which is kept; NaN is left out."""
    return apply(Top((axis,), True), x)


class ArgExtremum(Op):
    """Where the first largest or smallest is along one axis."""

    axis: int
    keepdims: bool = False
    uniform = True
    takes = "real"
    no_derivative = "its result is an index, constant almost everywhere"
    best: ClassVar[Any]  # of an array along an axis
    better: ClassVar[Any]  # of two numbers

    def shape(self, x: Spec) -> Spec:
        out = x.with_shape(reduce.reduced(x.shape, (self.axis,), keepdims=self.keepdims))
        return not_empty(self.name, x, (self.axis,), out).with_dtype(dt.int64)

    def forward(self, x):
        if not x.size:
            return np.empty(self.shape(spec_of(x)).shape, dt.int64)
        return self.best(x, axis=self.axis, keepdims=self.keepdims)

    def batch(self, size, args, mapped):
        return apply(type(self)(self.axis + 1, self.keepdims), *args)

    def lower(self, k, x, out):
        for row in k.rows(x, out, axis=(self.axis,)):
            best, fresh, here, found = k.var(0, x), k.var(True), k.var(0), k.var(0)
            for i in row.steps():
                first_nan = (x[i] != x[i]) & (best.value == best.value)
                take = fresh.value | self.better(x[i], best.value) | first_nan
                best.value = k.where(take, x[i], best.value)
                found.value = k.where(take, here.value, found.value)
                fresh.value, here.value = False, here.value + 1
            out[row] = found.value

    @classmethod
    def cases(cls, rng):
        x = rng.integers(-3, 3, (3, 4)) * 0.5
        yield cls(1), x
        yield cls(0, keepdims=True), x
        yield cls(1), rng.normal(size=(0, 3))
        yield cls(0), rng.integers(0, 9, 5)
        yield cls(0), np.array([1.0, np.nan, 2.0, np.nan])


@op
class Argmax(ArgExtremum):
    """Where the first largest is."""

    best = staticmethod(np.argmax)
    better = staticmethod(lambda a, b: a > b)

    @staticmethod
    def samples(rng):
        return Argmax.cases(rng)

    @staticmethod
    def refuses(rng):
        yield Argmax(0), rng.normal(size=(0, 3)), "x (0, 3) has length 0 along axis 0"


@op
class Argmin(ArgExtremum):
    """Where the first smallest is."""

    best = staticmethod(np.argmin)
    better = staticmethod(lambda a, b: a < b)

    @staticmethod
    def samples(rng):
        return Argmin.cases(rng)

    @staticmethod
    def refuses(rng):
        yield Argmin(0), rng.normal(size=(0, 3)), "x (0, 3) has length 0 along axis 0"


def _found(cls: Any, who: str, x: Any, axis: Any, *, keepdims: bool) -> Any:
    x = lift(x)
    if axis is not None:
        return apply(cls(axis_index(who, axis, x.ndim), keepdims), x)
    out = apply(cls(0), shape.reshape(x, (x.size,)))
    return shape.reshape(out, (1,) * x.ndim) if keepdims else out


@function
def argmax(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first largest along `axis`; of all elements in a row without one."""
    return _found(Argmax, "argmax", x, axis, keepdims=bool(keepdims))


@function
def argmin(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first smallest along `axis`; of all elements in a row without one."""
    return _found(Argmin, "argmin", x, axis, keepdims=bool(keepdims))
