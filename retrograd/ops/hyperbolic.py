"""Hyperbolic sine and cosine, and the inverses of the hyperbolic functions: one slope each.

The hyperbolic tangent is in `elementary`. The slopes of the inverses are products of roots
of x - 1, x + 1 and the like, never the root of a square, which would overflow, lose the
digits next to 1, and leave the branch on which NumPy's complex functions are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.interpret import apply
from retrograd.core.op import Elementwise, function, op
from retrograd.core.tensor import Tensor
from retrograd.ops import elementary, magnitude, power

__all__ = ["acosh", "arccosh", "arcsinh", "arctanh", "asinh", "atanh", "cosh", "sinh"]


@op
class Sinh(Elementwise):
    """The hyperbolic sine."""

    takes = "inexact"

    def forward(self, x):
        return np.sinh(x)

    def slope(self, x):
        return cosh(x)

    def lower(self, k, x):
        return k.sinh(x)

    @staticmethod
    def samples(rng):
        return ((Sinh(), x) for x in elementary.operands(rng, -2, 2))


SINH = Sinh()


@function
def sinh(x: Any, /) -> Tensor:
    """The hyperbolic sine, element by element."""
    return apply(SINH, x)


@op
class Cosh(Elementwise):
    """The hyperbolic cosine."""

    takes = "inexact"

    def forward(self, x):
        return np.cosh(x)

    def slope(self, x):
        return sinh(x)

    def lower(self, k, x):
        return k.cosh(x)

    @staticmethod
    def samples(rng):
        return ((Cosh(), x) for x in elementary.operands(rng, -2, 2))


COSH = Cosh()


@function
def cosh(x: Any, /) -> Tensor:
    """The hyperbolic cosine, element by element."""
    return apply(COSH, x)


@op
class Asinh(Elementwise):
    """The number whose hyperbolic sine is x."""

    takes = "inexact"

    def forward(self, x):
        return np.asinh(x)

    def slope(self, x):
        if x.dtype.kind == "c":
            return 1 / (power.sqrt(1 - 1j * x) * power.sqrt(1 + 1j * x))
        return 1 / magnitude.hypot(x, 1.0)

    def lower(self, k, x):
        return k.asinh(x)

    @staticmethod
    def samples(rng):
        return ((Asinh(), x) for x in elementary.operands(rng, -2, 2))


ASINH = Asinh()


@function
def asinh(x: Any, /) -> Tensor:
    """The inverse hyperbolic sine, element by element."""
    return apply(ASINH, x)


@op
class Acosh(Elementwise):
    """The number, not negative, whose hyperbolic cosine is x."""

    takes = "inexact"

    def forward(self, x):
        return np.acosh(x)

    def slope(self, x):
        return 1 / (power.sqrt(x - 1) * power.sqrt(x + 1))

    def lower(self, k, x):
        return k.acosh(x)

    @staticmethod
    def samples(rng):
        return ((Acosh(), x) for x in elementary.operands(rng, 1.5, 3))


ACOSH = Acosh()


@function
def acosh(x: Any, /) -> Tensor:
    """The inverse hyperbolic cosine, element by element; of a real number below 1, nan."""
    return apply(ACOSH, x)


@op
class Atanh(Elementwise):
    """The number whose hyperbolic tangent is x."""

    takes = "inexact"

    def forward(self, x):
        return np.atanh(x)

    def slope(self, x):
        return 1 / (1 - x) / (1 + x)

    def lower(self, k, x):
        return k.atanh(x)

    @staticmethod
    def samples(rng):
        return ((Atanh(), x) for x in elementary.operands(rng, -0.8, 0.8))


ATANH = Atanh()


@function
def atanh(x: Any, /) -> Tensor:
    """The inverse hyperbolic tangent, element by element; nan beyond -1 and 1."""
    return apply(ATANH, x)


# -- NumPy's older names ---------------------------------------------------------------------


@function
def arcsinh(x: Any, /) -> Tensor:
    """The same as `asinh`."""
    return apply(ASINH, x)


@function
def arccosh(x: Any, /) -> Tensor:
    """The same as `acosh`."""
    return apply(ACOSH, x)


@function
def arctanh(x: Any, /) -> Tensor:
    """The same as `atanh`."""
    return apply(ATANH, x)
