"""Exponentials and logarithms, and the curves made of them: one slope each.

Slopes keep out where they can. `expm1` keeps x, because out + 1 is 0 far below zero. Those of
`sigmoid` and `tanh`, from out, are right to an ulp of 1 where out is next to 1. The other
hyperbolic functions are in `hyperbolic`, `log_sigmoid` and `logit` in `logarithmic`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.interpret import apply
from retrograd.core.op import Elementwise, function, op
from retrograd.core.tensor import Tensor
from retrograd.ops import select

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "sigmoid",
    "softplus",
    "tanh",
]

LN2, LN10 = math.log(2), math.log(10)


def operands(rng: Any, low: float, high: float, *, real: bool = False) -> Iterator[Any]:
    """Operands from low to high for samples: a matrix, a number, none; and complex ones.

    Their imaginary parts are positive, away from the branch cuts on the real axis.
    """
    yield rng.uniform(low, high, (2, 3))
    yield np.asarray(rng.uniform(low, high))
    yield np.zeros((0, 2))
    if not real:
        yield rng.uniform(low, high, 3) + 1j * rng.uniform(0.3, 0.8, 3)


@op
class Exp(Elementwise):
    """e to the x."""

    takes = "inexact"

    def forward(self, x):
        return np.exp(x)

    def slope(self, out):
        return out

    def lower(self, k, x):
        return k.exp(x)

    @staticmethod
    def samples(rng):
        return ((Exp(), x) for x in operands(rng, -2, 2))


EXP = Exp()


@function
def exp(x: Any, /) -> Tensor:
    """e to the x, element by element."""
    return apply(EXP, x)


@op
class Exp2(Elementwise):
    """2 to the x."""

    takes = "inexact"

    def forward(self, x):
        return np.exp2(x)

    def slope(self, out):
        return LN2 * out

    def lower(self, k, x):
        return k.exp2(x)

    @staticmethod
    def samples(rng):
        return ((Exp2(), x) for x in operands(rng, -2, 2))


EXP2 = Exp2()


@function
def exp2(x: Any, /) -> Tensor:
    """2 to the x, element by element."""
    return apply(EXP2, x)


@op
class Expm1(Elementwise):
    """exp(x) - 1, exact near zero."""

    takes = "inexact"

    def forward(self, x):
        return np.expm1(x)

    def slope(self, x):
        return exp(x)

    def lower(self, k, x):
        return k.expm1(x)

    @staticmethod
    def samples(rng):
        return ((Expm1(), x) for x in operands(rng, -2, 2))


EXPM1 = Expm1()


@function
def expm1(x: Any, /) -> Tensor:
    """exp(x) - 1, element by element, exact near zero."""
    return apply(EXPM1, x)


@op
class Log(Elementwise):
    """The natural logarithm."""

    takes = "inexact"

    def forward(self, x):
        return np.log(x)

    def slope(self, x):
        return 1 / x

    def lower(self, k, x):
        return k.log(x)

    @staticmethod
    def samples(rng):
        return ((Log(), x) for x in operands(rng, 0.5, 3))


LOG = Log()


@function
def log(x: Any, /) -> Tensor:
    """The natural logarithm, element by element; of a negative real number, nan."""
    return apply(LOG, x)


@op
class Log2(Elementwise):
    """The logarithm to base 2."""

    takes = "inexact"

    def forward(self, x):
        return np.log2(x)

    def slope(self, x):
        return (1 / LN2) / x

    def lower(self, k, x):
        return k.log2(x)

    @staticmethod
    def samples(rng):
        return ((Log2(), x) for x in operands(rng, 0.5, 3))


LOG2 = Log2()


@function
def log2(x: Any, /) -> Tensor:
    """The logarithm to base 2, element by element."""
    return apply(LOG2, x)


@op
class Log10(Elementwise):
    """The logarithm to base 10."""

    takes = "inexact"

    def forward(self, x):
        return np.log10(x)

    def slope(self, x):
        return (1 / LN10) / x

    def lower(self, k, x):
        return k.log10(x)

    @staticmethod
    def samples(rng):
        return ((Log10(), x) for x in operands(rng, 0.5, 3))


LOG10 = Log10()


@function
def log10(x: Any, /) -> Tensor:
    """The logarithm to base 10, element by element."""
    return apply(LOG10, x)


@op
class Log1p(Elementwise):
    """log(1 + x), exact near zero."""

    takes = "inexact"

    def forward(self, x):
        return np.log1p(x)

    def slope(self, x):
        return 1 / (1 + x)

    def lower(self, k, x):
        return k.log1p(x)

    @staticmethod
    def samples(rng):
        return ((Log1p(), x) for x in operands(rng, -0.5, 2))


LOG1P = Log1p()


@function
def log1p(x: Any, /) -> Tensor:
    """log(1 + x), element by element, exact near zero."""
    return apply(LOG1P, x)


@op
class Logaddexp(Elementwise):
    """log(exp(x1) + exp(x2)), without overflow; two equal infinities share the slope."""

    takes = "floating"

    def forward(self, x1, x2):
        # NumPy's own formula, but by whole arrays: np.logaddexp takes ten times as long.
        apart = np.maximum(x1, x2) + np.log1p(np.exp(-np.abs(x1 - x2)))
        return np.where(x1 == x2, x1 + LN2, apart)

    def slope_x1(self, x1, x2):
        return sigmoid(_lead(x1, x2))

    def slope_x2(self, x1, x2):
        return sigmoid(_lead(x2, x1))

    def lower(self, k, x1, x2):
        apart = k.maximum(x1, x2) + k.log1p(k.exp(-k.abs(x1 - x2)))
        return k.where(x1 == x2, x1 + LN2, apart)

    @staticmethod
    def samples(rng):
        yield Logaddexp(), rng.normal(size=(2, 3)), rng.normal(size=3)
        yield Logaddexp(), rng.normal(size=()), rng.normal(size=(2, 1))
        yield Logaddexp(), np.full(2, 0.5), np.full(2, 0.5)
        yield Logaddexp(), np.zeros((0, 2)), rng.normal(size=(1, 2))

    @staticmethod
    def refuses(rng):
        yield Logaddexp(), rng.normal(size=2), rng.normal(size=3), "shapes do not broadcast"


LOGADDEXP = Logaddexp()


def _lead(a: Any, b: Any) -> Any:
    """a - b, and 0 for two infinities of one sign."""
    gap = a - b
    # Only where it is nan: at finite ties the second derivative flows through the gap.
    return select.where((a == b) & (gap != gap), 0.0, gap)


@function
def logaddexp(x1: Any, x2: Any, /) -> Tensor:
    """log(exp(x1) + exp(x2)), element by element, without overflow."""
    return apply(LOGADDEXP, x1, x2)


@op
class Sigmoid(Elementwise):
    """1 / (1 + exp(-x)), from 0 to 1."""

    takes = "floating"

    def forward(self, x):
        # exp(-x) is infinite only where the result is below the smallest normal number: 0.
        return 1 / (1 + np.exp(-x))

    def slope(self, out):
        return out * (1 - out)

    def lower(self, k, x):
        return 1 / (1 + k.exp(-x))

    @staticmethod
    def samples(rng):
        return ((Sigmoid(), x) for x in operands(rng, -3, 3, real=True))


SIGMOID = Sigmoid()


@function
def sigmoid(x: Any, /) -> Tensor:
    """1 / (1 + exp(-x)), element by element."""
    return apply(SIGMOID, x)


@op
class Softplus(Elementwise):
    """log(1 + exp(x)), without overflow."""

    takes = "floating"

    def forward(self, x):
        return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))

    def slope(self, x):
        return sigmoid(x)

    def lower(self, k, x):
        return k.maximum(x, 0) + k.log1p(k.exp(-k.abs(x)))

    @staticmethod
    def samples(rng):
        return ((Softplus(), x) for x in operands(rng, -3, 3, real=True))


SOFTPLUS = Softplus()


@function
def softplus(x: Any, /) -> Tensor:
    """log(1 + exp(x)), element by element, without overflow."""
    return apply(SOFTPLUS, x)


@op
class Tanh(Elementwise):
    """The hyperbolic tangent."""

    takes = "inexact"

    def forward(self, x):
        return np.tanh(x)

    def slope(self, out):
        return 1 - out * out

    def lower(self, k, x):
        return k.tanh(x)

    @staticmethod
    def samples(rng):
        return ((Tanh(), x) for x in operands(rng, -2, 2))


TANH = Tanh()


@function
def tanh(x: Any, /) -> Tensor:
    """The hyperbolic tangent, element by element."""
    return apply(TANH, x)
