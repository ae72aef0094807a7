"""pow, cbrt and hypot."""

from __future__ import annotations

import math

from retrograd.jit.llvm.math import coefficients as table
from retrograd.jit.llvm.math.exponential import mantissa_of, rounded, scale, times_ln2
from retrograd.jit.llvm.math.logarithm import log2_pair
from retrograd.jit.llvm.math.num import Num, at_least, at_most, polynomial, where
from retrograd.jit.llvm.math.pairs import exact_product, exact_sum, high_half, ordered_sum
from retrograd.jit.llvm.math.registry import function
from retrograd.jit.llvm.math.rounding import round_

__all__ = ["cbrt", "hypot", "pow_"]

_INF, _NAN = math.inf, math.nan


@function(f64=1.5, outline=True, wide=True)
def pow_(x: Num, y: Num) -> Num:
    """x to the y-th, by the rules of IEEE 754."""
    a = abs(x)
    size = _positive(a, at_least(at_most(y, 2.0**65), -(2.0**65)))
    up = y > 0.0
    size = where(a.equals(0.0), where(up, size.like(0.0), _INF), size)
    size = where(a.equals(_INF), where(up, size.like(_INF), 0.0), size)
    whole = round_(y).equals(y)
    odd = whole & (round_(y * 0.5) * 2.0).differs(y)
    negative = x.bits().compare("slt", 0)
    found = where(negative & odd, -size, size)
    root = (x < 0.0) & (x > -_INF) & ~whole
    found = where(root, _NAN, found)
    found = where(x.isnan() | y.isnan(), x + y, found)
    return where(y.equals(0.0) | x.equals(1.0), 1.0, found)


def _positive(a: Num, y: Num) -> Num:
    """a to the y-th for positive finite a and |y| up to 2**65."""
    log, low = log2_pair(a)
    p, lost = exact_product(y, log)
    limit = 160.0 if a.roomy else 1100.0
    inside = abs(p) < limit
    rest = lost + y * low
    if not isinstance(rest, int):
        rest = where(inside, rest, 0.0)
    power = rounded(at_least(at_most(p, limit), -limit))
    r = at_least(at_most(p, limit), -limit) - power.n
    if not isinstance(rest, int):
        r, rest = exact_sum(r, rest)
    return scale(mantissa_of(*times_ln2(r, rest)), power)


@function(f64=1, outline=True, wide=True)
def cbrt(x: Num) -> Num:
    """The cube root."""
    a = abs(x)
    tiny = a < 2.0**-1022
    b = a if x.roomy else where(tiny, a * 2.0**54, a)
    field = b.bits() >> 52
    k = (field | x.like(2.0**52).bits()).floats() - (2.0**52 + 1023)
    third = rounded(k, 1 / 3)
    more = k - third.n * 3.0  # -1, 0 or 1
    m = (b.bits() - ((field - 1023) << 52)).floats()
    y = polynomial(m, table.CBRT["wide"] if x.roomy else table.CBRT_GUESS["f64"])
    y = y * _chosen(more, 0.5 ** (1 / 3), 2.0 ** (1 / 3))
    if not x.roomy:
        m = m * _chosen(more, 0.5, 2.0)
        y = high_half(y)  # its square is exact; then one step of Halley's
        t = m / (y * y)
        y = y.fma((t - y) / (y + y + t), y)
    shift = third.word.bits() - 1023
    if not x.roomy:
        shift = where(tiny, shift - 18, shift)
    y = (y * (shift << 52).floats()).signed(x)
    return where((a > 0.0) & (a < _INF), y, x)


def _chosen(sign: Num, below: float, above: float) -> Num:
    """`below`, 1 or `above`, by the sign."""
    return where(sign < 0.0, sign.like(below), where(sign > 0.0, sign.like(above), 1.0))


@function(f64=1, outline=True, wide=True)
def hypot(x: Num, y: Num) -> Num:
    """sqrt(x**2 + y**2) without overflow."""
    a, b = abs(x), abs(y)
    infinite = a.equals(_INF) | b.equals(_INF)
    if x.roomy:
        return where(infinite, _INF, x.fma(x, y * y).sqrt())
    large = where(a < b, b, a)
    small = where(a < b, a, b)
    factor = where(large > 2.0**500, 2.0**-600, where(large < 2.0**-400, a.like(2.0**600), 1.0))
    back = where(large > 2.0**500, 2.0**600, where(large < 2.0**-400, a.like(2.0**-600), 1.0))
    large, small = large * factor, small * factor
    p, p_low = exact_product(large, large)
    q, q_low = exact_product(small, small)
    total, lost = ordered_sum(p, q)
    root = total.sqrt()
    square, square_low = exact_product(root, root)
    rest = ((total - square) - square_low) + (lost + p_low + q_low)
    found = root + where(root > 0.0, rest / (root + root), 0.0)
    return where(infinite, _INF, where(x.isnan() | y.isnan(), x + y, found * back))
