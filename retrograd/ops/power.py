"""Powers and roots."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Elementwise, function, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import arithmetic, compare, elementary, select

__all__ = ["cbrt", "pow", "power", "rsqrt", "sqrt", "square"]

WHOLE = 1 << 24  # whole exponents below it are exact in float32


@op
class Square(Elementwise):
    """x * x."""

    def forward(self, x):
        return np.multiply(x, x)

    def slope(self, x):
        return 2 * x

    def lower(self, k, x):
        return x * x

    @staticmethod
    def samples(rng):
        yield Square(), rng.normal(size=(2, 3))
        yield Square(), np.asarray(0.0)
        yield Square(), arithmetic.turned(rng, 2)


SQUARE = Square()


@function
def square(x: Any, /) -> Tensor:
    """x * x, element by element."""
    return apply(SQUARE, x)


@op
class Sqrt(Elementwise):
    """The square root. At 0 the slope is inf."""

    takes = "inexact"

    def forward(self, x):
        return np.sqrt(x)

    def slope(self, out):
        return 0.5 / out

    def lower(self, k, x):
        return k.sqrt(x)

    @staticmethod
    def samples(rng):
        yield Sqrt(), rng.uniform(0.5, 2, (2, 3))
        yield Sqrt(), arithmetic.turned(rng, 2)
        yield Sqrt(), np.zeros((0,))


SQRT = Sqrt()


@function
def sqrt(x: Any, /) -> Tensor:
    """The square root, element by element; nan below 0. At 0 the slope is inf."""
    return apply(SQRT, x)


@op
class Rsqrt(Elementwise):
    """1 / sqrt(x). At 0 it is inf, and the slope -inf."""

    takes = "inexact"

    def forward(self, x):
        return np.reciprocal(np.sqrt(x))

    def slope(self, out):
        return -0.5 * (out * out * out)

    def lower(self, k, x):
        return 1 / k.sqrt(x)

    @staticmethod
    def samples(rng):
        yield Rsqrt(), rng.uniform(0.5, 2, (2, 3))
        yield Rsqrt(), arithmetic.turned(rng, 2)


RSQRT = Rsqrt()


@function
def rsqrt(x: Any, /) -> Tensor:
    """1 / sqrt(x), element by element. At 0 it is inf, and the slope -inf."""
    return apply(RSQRT, x)


@op
class Cbrt(Elementwise):
    """The real cube root, also of negative numbers. At 0 the slope is inf."""

    takes = "floating"

    def forward(self, x):
        return np.cbrt(x)

    def slope(self, out):
        return 1 / (3 * out * out)

    def lower(self, k, x):
        return k.where(x < 0, -k.pow(-x, 1 / 3), k.pow(x, 1 / 3))

    @staticmethod
    def samples(rng):
        yield Cbrt(), rng.uniform(0.5, 2, (2, 3))
        yield Cbrt(), -rng.uniform(0.5, 2, 3)


CBRT = Cbrt()


@function
def cbrt(x: Any, /) -> Tensor:
    """The real cube root, element by element. At 0 the slope is inf."""
    return apply(CBRT, x)


@op
class IntegerPower(Elementwise):
    """x to the n-th for a whole n known beforehand: true at every x, negative or 0."""

    n: int

    def shape(self, x: Spec) -> Spec:
        if self.n < 0 and dt.rank(x.dtype) == 1:
            raise ArgumentError(
                f"pow: {x.dtype} has no negative powers; got the exponent {self.n}",
                hint=f"x.astype(rg.float32) ** {self.n}",
            )
        return x

    def forward(self, x):
        if self.n == 3:
            return x * x * x
        if self.n == 4:
            return np.square(x * x)
        if x.dtype.kind in "iu":  # in 64 bits, so that n always fits; overflow wraps alike
            wide = np.uint64 if x.dtype.kind == "u" else np.int64
            return np.power(x, wide(self.n)).astype(x.dtype)
        return np.power(x, self.n)

    def slope(self, x):
        if self.n in (0, 1):
            return self.n
        return self.n * pow(x, self.n - 1)

    def lower(self, k, x):
        return x * x * x if self.n == 3 else k.pow(x, self.n)

    @staticmethod
    def samples(rng):
        for n in (0, 1, 3, 4, 5, -2):
            yield IntegerPower(n), arithmetic.pair(rng)[1]
        yield IntegerPower(3), np.asarray(0.0)
        yield IntegerPower(5), np.zeros((2, 0))
        yield IntegerPower(3), arithmetic.turned(rng, 2)
        yield IntegerPower(-3), arithmetic.turned(rng, 2)

    @staticmethod
    def refuses(rng):
        yield IntegerPower(-2), np.array([2]), "int64 has no negative powers"


@op
class Pow(Elementwise):
    """x1 to the x2-th.

    The slope by x1 is 0 where x2 is 0, also at x1 = 0. The slope by x2 is 0 at x1 = 0 for
    x2 >= 0, and for x1 < 0 with a whole x2, where no other real power is near; for x1 < 0
    with another x2 it is nan, as the power is.
    """

    def forward(self, x1, x2):
        if x2.dtype.kind == "i" and (x2 < 0).any():
            raise ArgumentError(
                f"pow: {x1.dtype} has no negative powers; got the exponent {x2.min()}",
                hint="x1.astype(rg.float32) ** x2",
            )
        return np.power(x1, x2)

    def slope_x1(self, x1, x2):
        flat = x2 == 0  # there 0 * x1 ** -1 would be nan at x1 = 0
        return select.where(flat, 0.0, x2 * pow(x1, select.where(flat, 1.0, x2 - 1)))

    def slope_x2(self, x1, out):
        zero = x1 == 0
        if x1.dtype.kind == "c":
            return out * elementary.log(select.where(zero, 1.0, x1))
        usual = x1 > 0
        logs = elementary.log(select.where(usual, x1, 1.0))
        pole = select.where(compare.isinf(out), -out, 0.0)
        return select.where(zero, pole, out * logs)

    def lower(self, k, x1, x2):
        return k.pow(x1, x2)

    @staticmethod
    def samples(rng):
        yield Pow(), rng.uniform(0.5, 2, (2, 3)), rng.uniform(-2, 2, (3,))
        yield Pow(), rng.uniform(0.5, 2, ()), rng.uniform(-2, 2, (2, 1))
        yield Pow(), np.ones((0, 2)), np.ones(2)
        yield Pow(), arithmetic.turned(rng, 3), arithmetic.turned(rng, 2, 1)

    @staticmethod
    def refuses(rng):
        yield Pow(), np.array([2]), np.array([1, -3]), "got the exponent -3"
        yield Pow(), np.ones(2), np.ones(3), "shapes do not broadcast"


POW = Pow()


@function
def pow(x1: Any, x2: Any, /) -> Tensor:
    """x1 to the x2-th, element by element. Integers take exponents from 0 up.

    A Python number x2 that is whole is exact: the slope of `x ** 2` at 0 is 0, of `x ** 1`
    there 1, of `x ** 0` everywhere 0; of `x ** 0.5` at 0 it is inf. The slope by x2 is 0 at
    x1 = 0 for x2 >= 0, 0 for x1 < 0 where x2 is whole, and nan there where it is not.
    """
    if type(x2) in (int, float) and type(x1) not in dt._PYTHON:
        x1 = lift(x1)
        n = _whole(x2, x1.dtype)
        if n is not None:
            return _integer_power(x1, n)
    return apply(POW, x1, x2)


@function
def power(x1: Any, x2: Any, /) -> Tensor:
    """NumPy's name for `pow`."""
    return pow(x1, x2)


def _whole(number: float, dtype: np.dtype) -> int | None:
    """`number` as an integer, if the power stays in `dtype` and needs no rounding."""
    weak = type(number) is int and dt.rank(dtype) == 1
    if not -WHOLE < number < WHOLE or not (weak or dt.is_inexact(dtype)):
        return None
    return int(number) if number == int(number) else None


def _integer_power(x: Any, n: int) -> Tensor:
    if n == 1:
        return arithmetic.positive(x)
    if n == 2:
        return square(x)
    if n == -1 and dt.is_inexact(x.dtype):
        return arithmetic.reciprocal(x)
    return apply(_to_the(n), x)


_to_the = cache(IntegerPower)  # one op for each exponent
