"""Magnitude and sign, of real and of complex numbers."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Elementwise, function, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import arithmetic, select
from retrograd.ops import complex as complex_

__all__ = ["abs", "absolute", "hypot", "sign"]


@op
class Abs(Elementwise):
    """The magnitude of real numbers. At 0 the slope is 0."""

    takes = "real"

    def forward(self, x):
        return np.abs(x)

    def slope(self, x):
        return sign(x)

    def lower(self, k, x):
        return k.abs(x)

    @staticmethod
    def samples(rng):
        yield Abs(), np.concatenate(arithmetic.pair(rng), axis=None)
        yield Abs(), np.asarray(-1.5)
        yield Abs(), np.zeros((2, 0))


@op
class Modulus(Elementwise):
    """The magnitude of complex numbers, which is real. At 0 the slope is 0."""

    takes = "inexact"

    def shape(self, x: Spec) -> Spec:
        return x.with_dtype(dt.real_of(x.dtype))

    def forward(self, x):
        return np.abs(x)

    def jvp(self, dx, x):
        return complex_.real(complex_.conj(sign(x)) * dx)

    def vjp(self, g, x):
        return g * complex_.conj(sign(x))

    def lower(self, k, x):
        return k.abs(x)

    @staticmethod
    def samples(rng):
        yield Modulus(), -arithmetic.turned(rng, 2, 3)
        yield Modulus(), arithmetic.turned(rng)


ABS, MODULUS = Abs(), Modulus()


@function
def abs(x: Any, /) -> Tensor:
    """The magnitude, element by element; real, also of complex x. At 0 the slope is 0."""
    x = lift(x)
    return apply(MODULUS if x.dtype.kind == "c" else ABS, x)


@function
def absolute(x: Any, /) -> Tensor:
    """NumPy's name for `abs`."""
    return abs(x)


@op
class Sign(Elementwise):
    """-1, 0 or 1, as x is below, at or above 0. Its slope is 0 everywhere."""

    def forward(self, x):
        return np.sign(x)

    def slope(self):
        return 0

    def lower(self, k, x):
        return k.where(x > 0, 1, k.where(x < 0, -1, x))  # the last x is 0 or nan

    @staticmethod
    def samples(rng):
        yield Sign(), np.concatenate(arithmetic.pair(rng), axis=None)
        yield Sign(), np.zeros((0, 2))

    @staticmethod
    def refuses(rng):
        yield Sign(), np.array([True]), "got bool; it takes numeric"


@op
class ComplexSign(Elementwise):
    """x / |x|, and 0 at 0. There the slope is 0."""

    takes = "inexact"

    def forward(self, x):
        return np.sign(x)

    def jvp(self, dx, x, out):
        along = complex_.real(complex_.conj(out) * dx)
        return (dx - out * along) * _inverse(abs(x))

    def vjp(self, g, x, out):
        along = complex_.real(g * out)
        return (g - complex_.conj(out) * along) * _inverse(abs(x))

    def lower(self, k, x):
        return x / k.where(x == 0, 1, k.abs(x))

    @staticmethod
    def samples(rng):
        yield ComplexSign(), -arithmetic.turned(rng, 2, 3)


SIGN, COMPLEX_SIGN = Sign(), ComplexSign()


def _inverse(r: Any) -> Any:
    """1 / r, and 0 at 0 without a NaN in its derivative."""
    zero = r == 0
    return select.where(zero, 0.0, 1 / select.where(zero, 1.0, r))


@function
def sign(x: Any, /) -> Tensor:
    """-1, 0 or 1, with slope 0 everywhere; of complex numbers x / |x|, and 0 at 0."""
    x = lift(x)
    return apply(COMPLEX_SIGN if x.dtype.kind == "c" else SIGN, x)


@op
class Hypot(Elementwise):
    """sqrt(x1 * x1 + x2 * x2), without overflow. At (0, 0) the slopes are 0."""

    takes = "floating"

    def forward(self, x1, x2):
        return np.hypot(x1, x2)

    def slope_x1(self, x1, out):
        return x1 / select.where(out == 0, 1.0, out)

    def slope_x2(self, x2, out):
        return x2 / select.where(out == 0, 1.0, out)

    def lower(self, k, x1, x2):
        large = k.maximum(k.abs(x1), k.abs(x2))
        ratio = k.minimum(k.abs(x1), k.abs(x2)) / k.where(large == 0, 1, large)
        found = large * k.sqrt(1 + ratio * ratio)
        return k.where(k.isinf(x1) | k.isinf(x2), inf, found)

    @staticmethod
    def samples(rng):
        yield Hypot(), *arithmetic.pair(rng)
        yield Hypot(), np.asarray(3.0), np.zeros((0, 2))


HYPOT = Hypot()


@function
def hypot(x1: Any, x2: Any, /) -> Tensor:
    """The length of (x1, x2), element by element, without overflow. At 0 its slopes are 0."""
    return apply(HYPOT, x1, x2)
