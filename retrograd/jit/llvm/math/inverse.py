"""asin, acos, atan and atan2."""

from __future__ import annotations

import math

from retrograd.jit.llvm.math import coefficients as table
from retrograd.jit.llvm.math import constants
from retrograd.jit.llvm.math.num import Low, Num, polynomial, where
from retrograd.jit.llvm.math.pairs import exact_product, exact_sum, high_half, ordered_sum
from retrograd.jit.llvm.math.registry import function

__all__ = ["acos", "asin", "atan", "atan2"]

_HALF_PI, _HALF_PI_LOW = constants.HALF_PI_PAIR
_TAN_EIGHTH = math.sqrt(2.0) - 1.0


def _halved(a: Num) -> tuple[Num, Num, Low]:
    """z = (1 - a) / 2 and its root s with the rest: asin(a) = pi/2 - 2 asin(s)."""
    z = (1.0 - a) * 0.5
    s = z.sqrt()
    if a.roomy:
        return z, s, 0
    first = high_half(s)
    rest = (z - first * first) / (s + first)  # s exactly is first + rest
    return z, s, where(s > 0.0, rest - (s - first), 0.0)


def _asin_tail(z: Num) -> Num:
    """asin(x) / x - 1 of z = x**2."""
    return z * polynomial(z, z.pick(table.ASIN))


@function(f64=1, outline=True, wide=True)
def asin(x: Num) -> Num:
    """The arc sine."""
    a = abs(x)
    z, s, s_low = _halved(a)
    small = a < 0.5
    root = where(small, a, s)
    y = _asin_tail(where(small, x * x, z))
    whole, lost = ordered_sum(x.like(_HALF_PI), s * -2.0)
    rest = (s * -2.0).fma(y, s_low * -2.0 + (lost + x.like(_HALF_PI_LOW)))
    return where(small, root.fma(y, root), whole + rest).signed(x)


@function(f64=1, outline=True, wide=True)
def acos(x: Num) -> Num:
    """The arc cosine."""
    a = abs(x)
    z, s, s_low = _halved(a)
    small = a < 0.5
    y = _asin_tail(where(small, x * x, z))
    middle, lost = ordered_sum(x.like(_HALF_PI), -x)
    middle = middle + ((-x).fma(y, x.like(_HALF_PI_LOW)) + lost)
    # 2 asin(s) near 1; pi less that near -1
    twice, rest = s * 2.0, (s * 2.0).fma(y, s_low * 2.0)
    whole, lost = ordered_sum(x.like(2 * _HALF_PI), -twice)
    left = whole + ((lost - rest) + 2 * _HALF_PI_LOW)
    return where(small, middle, where(x < 0.0, left, twice + rest))


def _angle(n: Num, d: Num) -> Num:
    """The arc tangent of n / d, 0 <= n <= d, 0 < d, both far from the ends of the range."""
    steep = n > d * _TAN_EIGHTH  # then pi/4 + atan((n - d) / (n + d))
    top, top_low = exact_sum(n, where(steep, -d, 0.0))
    bottom, bottom_low = exact_sum(d, where(steep, n, 0.0))
    q = top / bottom
    p, p_low = exact_product(q, bottom)
    low: Low = 0
    if not n.roomy:
        low = ((((top - p) - p_low) - q * bottom_low) + top_low) / bottom
        low = where(abs(q) < 2.0**-900, 0.0, low)  # products of denormals are not exact
    z = q * q
    rest = (q * z).fma(polynomial(z, q.pick(table.ATAN)), low)
    base, base_low = (where(steep, n.like(c * 0.5), 0.0) for c in constants.HALF_PI_PAIR)
    whole, lost = ordered_sum(base, q)
    return whole + (rest + (base_low + lost))


@function(f64=1.25, outline=True, wide=True)
def atan(x: Num) -> Num:
    """The arc tangent."""
    a = abs(x)
    one = x.like(1.0)
    large = a > 1.0
    # beyond 2**60 the angle no longer moves
    big = where(a > 2.0**60, 2.0**60, a)
    y = _angle(where(large, 1.0, a), where(large, big, one))
    return where(large, _complement(y), y).signed(x)


def _complement(y: Num) -> Num:
    """pi/2 - y."""
    whole, lost = ordered_sum(y.like(_HALF_PI), -y)
    return whole + (y.like(_HALF_PI_LOW) + lost)


@function(f64=1.25, outline=True, wide=True)
def atan2(y: Num, x: Num) -> Num:
    """The angle of the point (x, y), between -pi and pi."""
    a, b = abs(y), abs(x)
    swap = a > b
    n, d = where(swap, b, a), where(swap, a, b)
    n = where(n.equals(math.inf), 1.0, n)  # both infinite: a diagonal
    d = where(d.equals(math.inf), where(n.equals(1.0) & a.equals(b), 1.0, d), d)
    n, d = _tame(n, d)
    angle = _angle(n, d)
    angle = where(swap, _complement(angle), angle)
    left = x.bits().compare("slt", 0)
    turned = where(left, _supplement(angle), angle)
    found = where(x.isnan() | y.isnan(), x + y, turned)
    return found.signed(y)


def _supplement(y: Num) -> Num:
    """pi - y."""
    whole, lost = ordered_sum(y.like(2 * _HALF_PI), -y)
    return whole + (y.like(2 * _HALF_PI_LOW) + lost)


def _tame(n: Num, d: Num) -> tuple[Num, Num]:
    """The same ratio, with a denominator that is neither 0, huge, tiny nor infinite."""
    zero = d.equals(0.0)
    if d.roomy:
        return where(d.equals(math.inf), 0.0, n), where(zero | d.equals(math.inf), 1.0, d)
    factor = where(d > 2.0**400, d.like(2.0**-4), 2.0**600)
    infinite = d.equals(math.inf)
    return where(infinite, 0.0, n * factor), where(zero | infinite, 1.0, d * factor)
