"""Whole quotients and what remains. Integers divided by 0 give 0, as in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.errors import DtypeError
from retrograd.core.interpret import apply
from retrograd.core.op import Elementwise, function, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import rounding

__all__ = ["floor_divide", "fmod", "mod", "remainder"]


class Quotient(Elementwise):
    """Ops that round a quotient: of integers and floats, not of complex numbers."""

    def shape(self, x1: Spec, x2: Spec) -> Spec:
        if x1.dtype.kind == "c":
            raise DtypeError(f"{self.name}: got {x1.dtype}; it takes integers and floats")
        return Elementwise.shape(self, x1, x2)

    @classmethod
    def samples(cls, rng):
        yield cls(), np.array([[7.5, -7.5, 3.25], [-0.5, 0.5, 9.1]]), np.array([2.0, 2.0, -1.5])
        yield cls(), np.asarray(5.3), np.array([[2.0], [-2.0]])
        yield cls(), np.zeros((0, 2)), np.ones(2)
        yield cls(), np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])

    @classmethod
    def refuses(cls, rng):
        yield cls(), np.ones(2) * 1j, np.ones(2), "got complex128; it takes integers and floats"
        yield cls(), np.ones(2, bool), np.ones(2, bool), "got bool; it takes numeric"


@op
class FloorDivide(Quotient):
    """The quotient rounded down. Its slopes are 0 everywhere."""

    def forward(self, x1, x2):
        return np.floor_divide(x1, x2)

    def lower(self, k, x1, x2):
        rest = k.rem(x1, x2)
        if x1.dtype.kind == "u":
            return k.quotient(x1, x2)
        below = (rest != 0) & ((rest < 0) != (x2 < 0))  # towards zero was not down
        if x1.dtype.kind == "i":
            return k.quotient(x1, x2) - k.cast(below, x1.dtype)
        near = (x1 - rest) / x2 - k.where(below, 1.0, 0.0)  # whole, but for rounding
        down = k.floor(near)
        down = k.where(near - down > 0.5, down + 1, down)
        nothing = k.where(k.signbit(x1 / x2), -0.0, 0.0)
        return k.where(x2 == 0, x1 / x2, k.where(near == 0, nothing, down))

    def slope_x1(self):
        return 0

    def slope_x2(self):
        return 0


@op
class Remainder(Quotient):
    """x1 - x2 * floor(x1 / x2), with the sign of x2.

    The slope by x1 is 1, by x2 it is -floor(x1 / x2): at whole multiples, of the upper side.
    """

    def forward(self, x1, x2):
        return np.remainder(x1, x2)

    def lower(self, k, x1, x2):
        rest = k.rem(x1, x2)
        if x1.dtype.kind == "u":
            return rest
        below = (rest != 0) & ((rest < 0) != (x2 < 0))
        if x1.dtype.kind == "i":
            return k.where(below, rest + x2, rest)
        nothing = k.where(k.signbit(x2), -0.0, 0.0)
        return k.where(rest == 0, nothing, k.where(below, rest + x2, rest))

    def slope_x1(self):
        return 1

    def slope_x2(self, x1, x2):
        return -floor_divide(x1, x2)


@op
class Fmod(Quotient):
    """x1 - x2 * trunc(x1 / x2), with the sign of x1. The slope by x2 is -trunc(x1 / x2)."""

    def forward(self, x1, x2):
        return np.fmod(x1, x2)

    def lower(self, k, x1, x2):
        return k.rem(x1, x2)

    def slope_x1(self):
        return 1

    def slope_x2(self, x1, x2, out):
        return rounding.round((out - x1) / x2)  # the quotient that out was made with


FLOOR_DIVIDE, REMAINDER, FMOD = FloorDivide(), Remainder(), Fmod()


@function
def floor_divide(x1: Any, x2: Any, /) -> Tensor:
    """x1 / x2 rounded down, element by element, with slope 0; integers by 0 give 0."""
    return apply(FLOOR_DIVIDE, x1, x2)


@function
def remainder(x1: Any, x2: Any, /) -> Tensor:
    """What floor_divide leaves, with the sign of x2, as Python's %; integers by 0 give 0.

    The slope by x1 is 1, the slope by x2 is -floor(x1 / x2).
    """
    return apply(REMAINDER, x1, x2)


@function
def mod(x1: Any, x2: Any, /) -> Tensor:
    """NumPy's other name for `remainder`."""
    return remainder(x1, x2)


@function
def fmod(x1: Any, x2: Any, /) -> Tensor:
    """What truncated division leaves, with the sign of x1, as in C; integers by 0 give 0.

    The slope by x1 is 1, the slope by x2 is -trunc(x1 / x2).
    """
    return apply(FMOD, x1, x2)
