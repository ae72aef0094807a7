"""Trigonometric functions and their inverses, in radians: one slope each.

The slopes of asin, acos and atan2 are products and quotients of roots and lengths, never of
squares: nothing overflows, and no digits are lost next to -1 and 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from retrograd.core.interpret import apply, lift
from retrograd.core.op import Elementwise, function, op
from retrograd.core.tensor import Tensor
from retrograd.ops import elementary, magnitude, power, select

__all__ = [
    "acos",
    "arccos",
    "arcsin",
    "arctan",
    "arctan2",
    "asin",
    "atan",
    "atan2",
    "cos",
    "deg2rad",
    "rad2deg",
    "sin",
    "sinc",
    "tan",
]


@op
class Sin(Elementwise):
    """The sine."""

    takes = "inexact"

    def forward(self, x):
        return np.sin(x)

    def slope(self, x):
        return cos(x)

    def lower(self, k, x):
        return k.sin(x)

    @staticmethod
    def samples(rng):
        return ((Sin(), x) for x in elementary.operands(rng, -4, 4))


SIN = Sin()


@function
def sin(x: Any, /) -> Tensor:
    """The sine of an angle in radians, element by element."""
    return apply(SIN, x)


@op
class Cos(Elementwise):
    """The cosine."""

    takes = "inexact"

    def forward(self, x):
        return np.cos(x)

    def slope(self, x):
        return -sin(x)

    def lower(self, k, x):
        return k.cos(x)

    @staticmethod
    def samples(rng):
        return ((Cos(), x) for x in elementary.operands(rng, -4, 4))


COS = Cos()


@function
def cos(x: Any, /) -> Tensor:
    """The cosine of an angle in radians, element by element."""
    return apply(COS, x)


@op
class Tan(Elementwise):
    """The tangent."""

    takes = "inexact"

    def forward(self, x):
        return np.tan(x)

    def slope(self, out):
        return 1 + out * out

    def lower(self, k, x):
        return k.tan(x)

    @staticmethod
    def samples(rng):
        return ((Tan(), x) for x in elementary.operands(rng, -1, 1))


TAN = Tan()


@function
def tan(x: Any, /) -> Tensor:
    """The tangent of an angle in radians, element by element."""
    return apply(TAN, x)


@op
class Asin(Elementwise):
    """The angle from -pi/2 to pi/2 whose sine is x."""

    takes = "inexact"

    def forward(self, x):
        return np.asin(x)

    def slope(self, x):
        return 1 / (power.sqrt(1 - x) * power.sqrt(1 + x))

    def lower(self, k, x):
        return k.asin(x)

    @staticmethod
    def samples(rng):
        return ((Asin(), x) for x in elementary.operands(rng, -0.8, 0.8))


ASIN = Asin()


@function
def asin(x: Any, /) -> Tensor:
    """The inverse sine in radians, element by element; nan beyond -1 and 1."""
    return apply(ASIN, x)


@op
class Acos(Elementwise):
    """The angle from 0 to pi whose cosine is x."""

    takes = "inexact"

    def forward(self, x):
        return np.acos(x)

    def slope(self, x):
        return -1 / (power.sqrt(1 - x) * power.sqrt(1 + x))

    def lower(self, k, x):
        return k.acos(x)

    @staticmethod
    def samples(rng):
        return ((Acos(), x) for x in elementary.operands(rng, -0.8, 0.8))


ACOS = Acos()


@function
def acos(x: Any, /) -> Tensor:
    """The inverse cosine in radians, element by element; nan beyond -1 and 1."""
    return apply(ACOS, x)


@op
class Atan(Elementwise):
    """The angle from -pi/2 to pi/2 whose tangent is x."""

    takes = "inexact"

    def forward(self, x):
        return np.atan(x)

    def slope(self, x):
        if x.dtype.kind == "c":
            return 1 / (1 - 1j * x) / (1 + 1j * x)
        return 1 / (1 + x * x)

    def lower(self, k, x):
        return k.atan(x)

    @staticmethod
    def samples(rng):
        return ((Atan(), x) for x in elementary.operands(rng, -2, 2))


ATAN = Atan()


@function
def atan(x: Any, /) -> Tensor:
    """The inverse tangent in radians, element by element."""
    return apply(ATAN, x)


@op
class Atan2(Elementwise):
    """The angle of the point (x2, x1), from -pi to pi; its slopes at the origin are 0."""

    takes = "floating"

    def forward(self, x1, x2):
        return np.atan2(x1, x2)

    def slope_x1(self, x1, x2):
        return _inverted(x2, x1)

    def slope_x2(self, x1, x2):
        return -_inverted(x1, x2)

    def lower(self, k, x1, x2):
        return k.atan2(x1, x2)

    @staticmethod
    def samples(rng):
        right, up = rng.uniform(0.5, 2, (2, 3)), rng.uniform(0.5, 2, 3)
        for x1, x2 in ((up, right), (-up, right), (up, -right), (-up, -right)):
            yield Atan2(), x1, x2
        yield Atan2(), rng.uniform(0.5, 2, (2, 1)), np.asarray(-1.0)
        yield Atan2(), np.zeros((0, 2)), np.ones(2)

    @staticmethod
    def refuses(rng):
        yield Atan2(), rng.normal(size=2), rng.normal(size=3), "shapes do not broadcast"


ATAN2 = Atan2()


def _inverted(a: Any, b: Any) -> Any:
    """a / (a**2 + b**2), by two divisions that neither overflow nor underflow; else 0."""
    length = magnitude.hypot(a, b)
    beyond = (length == 0) | (length == math.inf)
    length = select.where(beyond, 1.0, length)
    return select.where(beyond, 0.0, a) / length / length


@function
def atan2(x1: Any, x2: Any, /) -> Tensor:
    """The angle in radians of the point with height x1 and width x2, element by element."""
    return apply(ATAN2, x1, x2)


@op
class Sinc(Elementwise):
    """sin(pi x) / (pi x), or its derivative of the given order."""

    order: int = 0

    takes = "inexact"

    def forward(self, x):
        return _sinc(np, self.order, x)

    def slope(self, x):
        return apply(Sinc(self.order + 1), x)

    def lower(self, k, x):
        return _sinc(k, self.order, x)

    @staticmethod
    def samples(rng):
        for x in elementary.operands(rng, -2, 2):
            yield Sinc(), x
        for order in (1, 2, 3):
            yield Sinc(order), rng.uniform(-3, 3, 9)
        yield Sinc(), np.zeros(2)


def _sinc(k: Any, order: int, x: Any) -> Any:
    """The n-th derivative, by its Taylor series near zero and by recurrence elsewhere."""
    z = math.pi * x
    near = k.abs(z) < order + 1 if order else z == 0
    far = k.where(near, order + 1, z)
    # z f = sin(z) gives z f(n) + n f(n-1) = sin(n)(z), in which errors shrink while n < z.
    sine, cosine = k.sin(far), k.cos(far) if order else 0
    found = sine / far
    for n in range(1, order + 1):
        found = ((sine, cosine, -sine, -cosine)[n % 4] - n * found) / far
    return math.pi**order * k.where(near, _taylor(k.where(near, z, 0), order), found)


def _taylor(z: Any, order: int) -> Any:
    """Of the n-th derivative of sin(z) / z: z**(2k-n) (-1)**k / ((2k-n)! (2k+1))."""
    first = (order + 1) // 2
    terms = [
        (-1) ** k / (math.factorial(2 * k - order) * (2 * k + 1))
        for k in range(first, first + (2 * order + 10 if order else 1))
    ]
    total = terms[-1]
    for term in terms[-2::-1]:
        total = total * (z * z) + term
    return total * z if order % 2 else total


@function
def sinc(x: Any, /) -> Tensor:
    """sin(pi x) / (pi x), element by element, and 1 at 0."""
    return apply(Sinc(), x)


@function
def deg2rad(x: Any, /) -> Tensor:
    """An angle in degrees as radians."""
    return lift(x) * (math.pi / 180)


@function
def rad2deg(x: Any, /) -> Tensor:
    """An angle in radians as degrees."""
    return lift(x) * (180 / math.pi)


# -- NumPy's older names ---------------------------------------------------------------------


@function
def arcsin(x: Any, /) -> Tensor:
    """The same as `asin`."""
    return apply(ASIN, x)


@function
def arccos(x: Any, /) -> Tensor:
    """The same as `acos`."""
    return apply(ACOS, x)


@function
def arctan(x: Any, /) -> Tensor:
    """The same as `atan`."""
    return apply(ATAN, x)


@function
def arctan2(x1: Any, x2: Any, /) -> Tensor:
    """The same as `atan2`."""
    return apply(ATAN2, x1, x2)
