"""log and its relatives: the exponent times log 2, and a series of what is left near 1."""

from __future__ import annotations

import math
from typing import NamedTuple

from retrograd.jit.llvm.math import coefficients as table
from retrograd.jit.llvm.math import constants
from retrograd.jit.llvm.math.num import Low, Num, full_vector, polynomial, where
from retrograd.jit.llvm.math.pairs import exact_product, exact_sum, ordered_sum
from retrograd.jit.llvm.math.registry import function
from retrograd.jit.llvm.text import I32, Val

__all__ = ["Parts", "log", "log1p", "log2_pair", "parts"]

_INF = math.inf
_LEAST = {23: 2.0**-126, 52: 2.0**-1022}  # the smallest normal numbers


class Parts(NamedTuple):
    """x = 2**k (1 + f), with f between sqrt(1/2) - 1 and sqrt(2) - 1."""

    k: Num
    f: Num
    field: Num | None  # k in the place of the exponent, where that was how it was found

    def undo(self, y: Num) -> Num:
        """y * 2**-k, for k that is not below -2 of the digits of x."""
        if self.field is None:
            found = full_vector(y, "scalef", -self.k, y.like(0.0))
            assert found is not None
            return found
        # 2**(1 - k), because 2**-k may be too small to be normal
        factor = self.field.like((y.bias + 1) << y.mantissa) - self.field
        return y * 0.5 * factor.floats()


def parts(x: Num) -> Parts:
    """Take x > 0 apart; denormal numbers too."""
    k = full_vector(x, "getexp", x.like(0.0))
    m = full_vector(x, "getmant", Val("0", I32), x.like(0.0))  # from 1 to 2
    if k is None or m is None:
        return _parts_of_bits(x)
    above = m > math.sqrt(2.0)
    return Parts(where(above, k + 1.0, k), where(above, m * 0.5, m) - 1.0, None)


def _parts_of_bits(x: Num) -> Parts:
    digits, bias = x.mantissa, x.bias
    down: Low = 0
    if not x.roomy:
        tiny = x < _LEAST[digits]
        x = where(tiny, x * 2.0 ** (digits + 2), x)
        down = where(tiny, x.like(digits + 2.0), 0.0)
    bits = x.bits()
    root = int(math.sqrt(0.5) * 2.0 ** (digits + 1)) - (1 << digits)
    below = ((bias - 1) << digits) + root  # the pattern of sqrt(1/2)
    field = (bits - (below - (bias << digits))) >> digits
    large = x.like(2.0**digits)
    k = (field | large.bits()).floats() - (2.0**digits + bias)
    shifted = (field << digits) - (bias << digits)
    return Parts(k - down, (bits - shifted).floats() - 1.0, shifted)


def near_one(k: Num, f: Num, low: Low) -> Num:
    """k log 2 + log(1 + f + low), for a low far below f or 1."""
    high_ln2, low_ln2 = f.pick(constants.LN2_PARTS)
    square = f * f * 0.5
    if f.goal == "f32":
        inverse: Low = ((1.0 - f) * f - 1.0).fma(f, 1.0)
        rest = (f * f * f).fma(polynomial(f, table.LOG["f32"]), low * inverse)
    else:  # s = f / (2 + f): log(1 + f) = f - f**2/2 + s (f**2/2 + series in s**2)
        s = f / (f + 2.0)
        z = s * s
        series = z * polynomial(z, (1 / 3, *f.pick(table.ATANH))) * 2.0
        inverse = (s * (s * (s - 1.0) + 1.0)).fma(-2.0, 1.0)
        rest = s.fma(square + series, low * inverse)
    rest = k.fma(low_ln2, rest) - square
    whole, lost = ordered_sum(k * high_ln2, f)
    return whole + (rest + lost)


def _edges(x: Num, shifted: Num, y: Num) -> Num:
    """y where the argument 1 + x, or x, is positive and finite; else -inf, NaN, inf."""
    special = where(shifted.equals(0.0), -_INF, where(shifted < 0.0, math.nan, x))
    inside = (shifted.bits() - 1).compare("ult", shifted.like(_INF).bits() - 1)
    return where(inside, y, special)


@function(f32=1, f64=1)
def log(x: Num) -> Num:
    """The natural logarithm."""
    found = parts(x)
    return _edges(x, x, near_one(found.k, found.f, 0))


@function(f32=1, f64=1)
def log1p(x: Num) -> Num:
    """log(1 + x), to full relative precision near 0."""
    return _edges(x, x + 1.0, log1p_pair(x, 0)).signed(x)


def log1p_pair(x: Num, low: Low, doubled: Num | None = None) -> Num:
    """log(1 + x + low) for finite arguments; of x itself, and log 2 more, where `doubled`."""
    one, lost = exact_sum(x.like(1.0), x)
    rest = low + lost
    if doubled is not None:
        one = where(doubled, x, one)
    found = parts(one)
    k, f = found.k, found.f
    central = (f.like(-0.29) < x) & (x < 0.41)
    if not isinstance(rest, int):
        rest = where(central, low + x.like(0.0), found.undo(rest))
    if doubled is not None:
        k = where(doubled, k + 1.0, k)
        rest = rest if isinstance(rest, int) else where(doubled, 0.0, rest)
    return near_one(where(central, 0.0, k), where(central, x, f), rest)


def log2_pair(x: Num) -> tuple[Num, Low]:
    """log2(x) of a positive finite x, with about twelve bits more than the dtype has."""
    k, f, _ = parts(x)
    d, d_low = exact_sum(x.like(2.0), f)
    inverse = 1.0 / d
    s = f * inverse
    p, p_low = exact_product(s, d)
    s_low = 0 if x.roomy else (((f - p) - p_low) - s * d_low) * inverse
    z, z_low = exact_product(s, s)
    z_low = z_low + s_low * (s * 2.0)
    third = x.like(constants.THIRD_PAIR[0])
    w, w_low = exact_product(z, third)
    w_low = w_low + (0 if x.roomy else z * constants.THIRD_PAIR[1]) + third * z_low
    w, lost = ordered_sum(w, z * z * polynomial(z, x.pick(table.ATANH)))
    c, c_low = exact_product(s, w)
    c_low = c_low + s * (lost + w_low) + w * s_low
    a, a_low = ordered_sum(s, c)
    a_low = a_low + c_low + s_low
    factor = x.like(constants.TWO_OVER_LN2_PAIR[0])
    y, y_low = exact_product(a, factor)
    y_low = y_low + factor * a_low + (0 if x.roomy else a * constants.TWO_OVER_LN2_PAIR[1])
    whole, lost = ordered_sum(k, y)
    return (whole, 0) if x.roomy else ordered_sum(whole, y_low + lost)


@function(f64=1, outline=True, wide=True)
def log2(x: Num) -> Num:
    """The logarithm to base 2."""
    high, low = log2_pair(x)
    return _edges(x, x, high + low)


@function(f64=1, outline=True, wide=True)
def log10(x: Num) -> Num:
    """The logarithm to base 10."""
    high, low = log2_pair(x)
    first, second = map(x.like, constants.LOG10_2_PAIR)
    y, lost = exact_product(high, first)
    return _edges(x, x, y + (lost + first * low + (0 if x.roomy else high * second)))


@function(f64=1.5, outline=True, wide=True)
def asinh(x: Num) -> Num:
    """The inverse hyperbolic sine: log(1 + a + (sqrt(1 + a**2) - 1))."""
    a = abs(x)
    big = a > 2.0**30
    b = where(big, 1.0, a)
    z = b * b
    high, low = ordered_sum(b, z / ((z + 1.0).sqrt() + 1.0))
    y = log1p_pair(where(big, a, high), low, big)
    return where(a < _INF, y, a).signed(x)


@function(f64=2.5, outline=True, wide=True)
def acosh(x: Num) -> Num:
    """The inverse hyperbolic cosine: log(1 + t + sqrt(t (t + 2))), t = x - 1."""
    big = x > 2.0**30
    t = where(big, 1.0, x - 1.0)
    high, low = exact_sum((t * (t + 2.0)).sqrt(), t)
    y = log1p_pair(where(big, x, high), low, big)
    y = where(x < _INF, y, x)
    return where(x >= 1.0, y, math.nan)


@function(f64=1, outline=True, wide=True)
def atanh(x: Num) -> Num:
    """The inverse hyperbolic tangent: its series, or log(1 + 2a / (1 - a)) / 2."""
    a = abs(x)
    z = x * x
    small = (x * z).fma(polynomial(z, (1 / 3, *x.pick(table.ATANH))), x)
    d, d_low = ordered_sum(x.like(1.0), -a)
    q = (a + a) / d
    p, p_low = exact_product(q, d)
    q_low: Low = 0 if x.roomy else (((a + a) - p) - p_low - q * d_low) / d
    y = (log1p_pair(q, q_low) * 0.5).signed(x)
    y = where(a < 1.0, y, where(a.equals(1.0), x.like(_INF).signed(x), math.nan))
    return where(a < 0.17, small, where(x.isnan(), x, y))
