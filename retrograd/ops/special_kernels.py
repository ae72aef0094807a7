"""Special functions in the kernel language: the formulas of core.special, branch by branch.

All is computed in float64, whatever x is, and every branch at every x: those that are not
taken may be anything there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from retrograd.core import dtype as dt
from retrograd.core import special

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["digamma", "erfinv", "inverse_mills", "lgamma", "log_ndtr", "ndtri"]

ROOT_HALF = math.sqrt(0.5)
LOW = 8  # where the series of the gamma family take over


def _wide(formula: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A formula in float64 as one in the dtype of x."""

    def computed(k: Any, x: Any) -> Any:
        return k.cast(formula(k, k.cast(x, dt.float64)), x.dtype)

    computed.__name__, computed.__doc__ = formula.__name__, formula.__doc__
    return computed


def _horner(coefficients: Any, x: Any) -> Any:
    out = x * coefficients[0] + coefficients[1]
    for c in coefficients[2:]:
        out = out * x + c
    return out


def _ratio(table: Any, x: Any) -> Any:
    return _horner(table[0], x) / _horner(table[1], x)


def _signed(k: Any, size: Any, side: Any) -> Any:
    return k.where(side < 0, -size, size)


# -- the error function and the normal law -----------------------------------------------------


def _inverse(k: Any, y: Any, p: Any) -> Any:
    """The inverse of erf at y, where p is 1 - abs(y), exactly."""
    t = k.sqrt(-k.log(p))
    middle, far = _ratio(special._INV_MIDDLE, t - 1.0), _ratio(special._INV_FAR, t - 4.0)
    tail = k.where(p == 0, math.inf, t + k.where(t < 4, middle, far))
    centre = y * _ratio(special._INV_CENTRE, 0.5625 - y * y)
    return k.where(k.abs(y) <= 0.75, centre, _signed(k, tail, y))


@_wide
def erfinv(k: Any, x: Any) -> Any:
    """The number whose erf is x."""
    return _inverse(k, x, 1.0 - k.abs(x))


@_wide
def ndtri(k: Any, p: Any) -> Any:
    """The number whose ndtr is p."""
    p = 2.0 * p
    return 0.0 - math.sqrt(2.0) * _inverse(k, 1.0 - p, k.minimum(p, 2.0 - p))


def _scaled_erfc(a: Any) -> Any:
    """exp(a**2) erfc(a) for a >= 1/2."""
    b = a + 2.0
    t = 1.0 / b
    return _horner(special._ERFCX[0], t) / (_horner(special._ERFCX[1], t) * b)


@_wide
def log_ndtr(k: Any, x: Any) -> Any:
    """The logarithm of ndtr, in both tails."""
    low = k.log(0.5 * _scaled_erfc(x * -ROOT_HALF)) - 0.5 * x * x
    tail = 0.5 * k.erfc(k.abs(x) * ROOT_HALF)
    return k.where(x < -1, low, k.where(x < 0, k.log(tail), k.log1p(-tail)))


@_wide
def inverse_mills(k: Any, x: Any) -> Any:
    """The normal density over ndtr."""
    tail = math.sqrt(2 / math.pi) / _scaled_erfc(k.maximum(-ROOT_HALF * x, 0.5))
    middle = k.exp(-0.5 * (x * x)) / (math.sqrt(2 * math.pi) * 0.5 * k.erfc(-ROOT_HALF * x))
    return k.where(x < -1, tail, middle)


# -- the gamma family --------------------------------------------------------------------------


@_wide
def lgamma(k: Any, x: Any) -> Any:
    """log(abs(gamma(x)))."""
    a = k.abs(x)
    w = 1.0 / a
    high = (a - 0.5) * (k.log(a) - 1.0)
    high = high + (special._STIRLING_CONSTANT + w * _horner(special._STIRLING, w * w))
    out = k.where(a >= LOW, high, _lgamma_low(k, a))
    r = k.abs(a - k.round(a))
    sine = k.where(r < 1e-9, r, k.sin(math.pi * r) / math.pi)  # |gamma(-a)| has it below
    mirrored = k.where(a >= 2.0**52, math.inf, -k.log(sine) - k.log(a) - out)
    return k.where(x < 0, mirrored, out)


def _lgamma_low(k: Any, a: Any) -> Any:
    """For 0 <= a < LOW: brought down to [2, 3) by whole steps."""
    steps = k.maximum(k.floor(a) - 2.0, 0.0)
    base = a - steps
    product = k.where(steps > 0, base, 1.0)
    for j in range(1, LOW - 3 + 1):
        product = product * k.where(j < steps, base + j, 1.0)
    z = k.where(a < 1, a, base - 1.0)
    fit = z * (z - 1.0) * _ratio(special._LGAMMA, z)
    return fit + k.where(a < 1, -k.log(a), k.log(product))


@_wide
def digamma(k: Any, x: Any) -> Any:
    """The slope of lgamma."""
    a = k.abs(x)
    negative = x < 0
    z = k.where(negative | (a < 1), a, a - 1.0)
    w = 1.0 / z
    high = k.log(z) + (0.5 * w - w * w * _horner(special._DIGAMMA_SERIES, w * w))
    out = k.where(z >= LOW, high, _digamma_low(k, z))
    out = out - k.where((a < 1) & ~negative, 1.0 / a, 0.0)
    r = a - k.round(a)
    mirrored = k.where(r == 0, math.nan, out + math.pi / k.tan(math.pi * r))
    return k.where(x == 0, math.nan, k.where(negative, mirrored, out))


def _digamma_low(k: Any, z: Any) -> Any:
    """digamma(1 + z) for 0 <= z < LOW."""
    steps = k.floor(z)
    f = z - steps
    first, second = special._DIGAMMA_ROOT
    out = ((f - first) - second) * _ratio(special._DIGAMMA, f)
    for j in range(1, LOW):
        out = out + k.where(steps >= j, 1.0 / (f + j), 0.0)
    return out
