"""Comparisons and tests: their results are bool, and have no derivative."""

from __future__ import annotations

from math import copysign, inf
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.interpret import apply, lift
from retrograd.core.op import FUNCTIONS, Elementwise, function, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import arithmetic, cast, magnitude

__all__ = [
    "allclose",
    "array_equal",
    "equal",
    "greater",
    "greater_equal",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "not_equal",
    "signbit",
]


class Predicate(Elementwise):
    """Ops whose result is bool."""

    takes = "any"
    no_derivative = "its result is true or false, constant almost everywhere"

    def shape(self, *specs: Spec) -> Spec:
        return Elementwise.shape(self, *specs).with_dtype(dt.bool)


class Comparison(Predicate):
    """Tests of two operands, which meet in one dtype."""

    @classmethod
    def samples(cls, rng):
        x = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
        yield cls(), x, np.array([2.0, 2.0, 2.0])
        yield cls(), np.asarray(1.0), np.zeros((0, 2))
        yield cls(), x.astype(np.int64), np.asarray(2)
        yield cls(), x > 1.5, np.asarray(True)


class Order(Comparison):
    """Comparisons that need an order: complex numbers have none."""

    takes = "real"

    @classmethod
    def refuses(cls, rng):
        yield cls(), np.ones(2) * 1j, np.ones(2), "got complex128; it takes real dtypes"
        yield cls(), np.ones(2), np.ones(3), "shapes do not broadcast"


@op
class Equal(Comparison):
    """x1 == x2."""

    def forward(self, x1, x2):
        return np.equal(x1, x2)

    def lower(self, k, x1, x2):
        return x1 == x2


@op
class NotEqual(Comparison):
    """x1 != x2."""

    def forward(self, x1, x2):
        return np.not_equal(x1, x2)

    def lower(self, k, x1, x2):
        return x1 != x2


@op
class Less(Order):
    """x1 < x2."""

    def forward(self, x1, x2):
        return np.less(x1, x2)

    def lower(self, k, x1, x2):
        return x1 < x2


@op
class LessEqual(Order):
    """x1 <= x2."""

    def forward(self, x1, x2):
        return np.less_equal(x1, x2)

    def lower(self, k, x1, x2):
        return x1 <= x2


@op
class Greater(Order):
    """x1 > x2."""

    def forward(self, x1, x2):
        return np.greater(x1, x2)

    def lower(self, k, x1, x2):
        return x1 > x2


@op
class GreaterEqual(Order):
    """x1 >= x2."""

    def forward(self, x1, x2):
        return np.greater_equal(x1, x2)

    def lower(self, k, x1, x2):
        return x1 >= x2


EQUAL, NOT_EQUAL = Equal(), NotEqual()
LESS, LESS_EQUAL, GREATER, GREATER_EQUAL = Less(), LessEqual(), Greater(), GreaterEqual()


def _compared(op: Comparison, x1: Any, x2: Any) -> Tensor:
    """Apply a comparison; a Python integer beyond a tensor's range compares as infinity."""
    if type(x2) is int:
        x2 = _within(x2, x1)
    elif type(x1) is int:
        x1 = _within(x1, x2)
    return apply(op, x1, x2)


def _within(number: int, peer: Any) -> float:
    dtype = getattr(peer, "dtype", dt.float32)
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
        return copysign(inf, number)
    return number


@function
def equal(x1: Any, x2: Any, /) -> Tensor:
    """x1 == x2, element by element."""
    return _compared(EQUAL, x1, x2)


@function
def not_equal(x1: Any, x2: Any, /) -> Tensor:
    """x1 != x2, element by element."""
    return _compared(NOT_EQUAL, x1, x2)


@function
def less(x1: Any, x2: Any, /) -> Tensor:
    """x1 < x2, element by element."""
    return _compared(LESS, x1, x2)


@function
def less_equal(x1: Any, x2: Any, /) -> Tensor:
    """x1 <= x2, element by element."""
    return _compared(LESS_EQUAL, x1, x2)


@function
def greater(x1: Any, x2: Any, /) -> Tensor:
    """x1 > x2, element by element."""
    return _compared(GREATER, x1, x2)


@function
def greater_equal(x1: Any, x2: Any, /) -> Tensor:
    """x1 >= x2, element by element."""
    return _compared(GREATER_EQUAL, x1, x2)


class NumberTest(Predicate):
    """Tests of one operand, for the special values."""

    @classmethod
    def samples(cls, rng):
        yield cls(), np.array([[1.0, -np.inf, np.nan], [-0.0, np.inf, 5e-324]])
        yield cls(), np.asarray(-1.0)
        yield cls(), np.zeros((2, 0))


@op
class Isnan(NumberTest):
    """Whether x is nan; of complex numbers, whether a part is."""

    def forward(self, x):
        return np.isnan(x)

    def lower(self, k, x):
        return k.isnan(x)


@op
class Isinf(NumberTest):
    """Whether x is inf or -inf; of complex numbers, whether a part is."""

    def forward(self, x):
        return np.isinf(x)

    def lower(self, k, x):
        return k.isinf(x)


@op
class Isfinite(NumberTest):
    """Whether x is neither infinite nor nan."""

    def forward(self, x):
        return np.isfinite(x)

    def lower(self, k, x):
        return k.isfinite(x)


@op
class Signbit(NumberTest):
    """Whether the sign of x is set, also of -0.0 and nan."""

    takes = "floating"

    def forward(self, x):
        return np.signbit(x)

    def lower(self, k, x):
        return k.signbit(x)


ISNAN, ISINF, ISFINITE, SIGNBIT = Isnan(), Isinf(), Isfinite(), Signbit()


@function
def isnan(x: Any, /) -> Tensor:
    """Whether each element is nan."""
    return apply(ISNAN, x)


@function
def isinf(x: Any, /) -> Tensor:
    """Whether each element is inf or -inf."""
    return apply(ISINF, x)


@function
def isfinite(x: Any, /) -> Tensor:
    """Whether each element is neither infinite nor nan."""
    return apply(ISFINITE, x)


@function
def signbit(x: Any, /) -> Tensor:
    """Whether the sign of each element is set, also of -0.0 and nan."""
    return apply(SIGNBIT, x)


@function
def isclose(
    x1: Any, x2: Any, /, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether |x1 - x2| <= atol + rtol * |x2|, element by element; equal infinities are."""
    x1, x2 = _inexact(x1), _inexact(x2)
    bound = arithmetic.add(atol, arithmetic.multiply(rtol, magnitude.abs(x2)))
    near = less_equal(magnitude.abs(x1 - x2), bound)
    found = (near & isfinite(x2)) | equal(x1, x2)
    return found | (isnan(x1) & isnan(x2)) if equal_nan else found


def _inexact(x: Any) -> Any:
    """x, with integers as floats: their differences might wrap."""
    x = lift(x)
    return x if dt.is_inexact(x.dtype) else cast.astype(x, dt.float64)


@function
def allclose(
    x1: Any, x2: Any, /, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether all elements are close, see `isclose`; a bool tensor without axes."""
    return FUNCTIONS["all"](isclose(x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan))


@function
def array_equal(x1: Any, x2: Any, /, *, equal_nan: bool = False) -> Tensor:
    """Whether shapes and all elements are equal; a bool tensor without axes."""
    x1, x2 = lift(x1), lift(x2)
    if x1.shape != x2.shape:
        return lift(np.asarray(False))
    same = equal(x1, x2)
    return FUNCTIONS["all"](same | (isnan(x1) & isnan(x2)) if equal_nan else same)
