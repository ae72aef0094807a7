"""Whole numbers, signs and comparisons: exact on every machine."""

from __future__ import annotations

import math

from retrograd.jit.llvm.math.num import Num, where
from retrograd.jit.llvm.math.registry import function

__all__ = ["round_"]


def _nearest(x: Num) -> Num:
    """x >= 0 as the nearest whole number, half to even, by way of a float without fraction."""
    large = 2.0**x.mantissa
    return where(x < large, (x + large) - large, x)


@function(0, 0)
def round_(x: Num) -> Num:
    """The nearest whole number, half to even."""
    # Without fma there is no rounding instruction either, and LLVM would call libm.
    return x.call("roundeven") if x.f.machine.fma else _nearest(abs(x)).signed(x)


@function(0, 0)
def trunc(x: Num) -> Num:
    """Towards zero."""
    if x.f.machine.fma:
        return x.call("trunc")
    y = _nearest(abs(x))
    return where(y > abs(x), y - 1.0, y).signed(x)


@function(0, 0)
def floor(x: Num) -> Num:
    """Downwards."""
    if x.f.machine.fma:
        return x.call("floor")
    y = round_(x)
    return where(y > x, y - 1.0, y)


@function(0, 0)
def ceil(x: Num) -> Num:
    """Upwards."""
    if x.f.machine.fma:
        return x.call("ceil")
    y = round_(x)
    return where(y < x, y + 1.0, y).signed(x)


@function(0, 0)
def abs_(x: Num) -> Num:
    """The magnitude; of NaN too."""
    return abs(x)


@function(0.5, 0.5)
def sqrt(x: Num) -> Num:
    """The square root, correctly rounded."""
    return x.sqrt()


@function(0, 0)
def isnan(x: Num) -> Num:
    """Whether it is NaN."""
    return x.isnan()


@function(0, 0)
def isinf(x: Num) -> Num:
    """Whether it is one of the infinities."""
    return abs(x).equals(math.inf)


@function(0, 0)
def isfinite(x: Num) -> Num:
    """Whether it is a number."""
    return abs(x) < math.inf


@function(0, 0)
def signbit(x: Num) -> Num:
    """Whether the sign is set; of -0 and NaN too."""
    return x.bits().compare("slt", 0)


@function(0, 0)
def copysign(x: Num, y: Num) -> Num:
    """The magnitude of x with the sign of y."""
    return x.signed(y)


@function(0, 0)
def maximum(x: Num, y: Num) -> Num:
    """The larger; NaN if either is; of zeros the second."""
    return x.made(x.f.maximum(x.val, y.val))


@function(0, 0)
def larger(x: Num, y: Num) -> Num:
    """x if it is larger than y, else y: NaN never is."""
    return where(x > y, x, y)


@function(0, 0)
def minimum(x: Num, y: Num) -> Num:
    """The smaller; NaN if either is; of zeros the second."""
    return x.made(x.f.minimum(x.val, y.val))
