"""exp and its relatives: 2**n times a polynomial of the rest, scaled in one rounding."""

from __future__ import annotations

from typing import NamedTuple

from retrograd.jit.llvm.math import coefficients as table
from retrograd.jit.llvm.math import constants
from retrograd.jit.llvm.math.num import (
    Low,
    Num,
    at_least,
    at_most,
    full_vector,
    held_within,
    looked_up,
    polynomial,
    where,
)
from retrograd.jit.llvm.math.pairs import exact_product, exact_sum, ordered_sum
from retrograd.jit.llvm.math.registry import function

__all__ = [
    "exp",
    "exp2",
    "exp_below",
    "expm1",
    "fast_tanh",
    "power_of_two",
    "scale",
    "sigmoid",
    "silu",
    "tanh",
    "times_exp",
]

# Beyond these results are inf or 0, and n still fits into two exponents.
_LIMITS = {"f32": (-104.5, 89.5), "wide": (-110.0, 95.0), "f64": (-746.0, 710.5)}
_LIMITS_2 = {"f32": (-151.0, 129.0), "wide": (-160.0, 140.0), "f64": (-1077.0, 1025.0)}


class Power(NamedTuple):
    """2**n: n, and the float whose last bits are n plus twice the bias."""

    n: Num
    word: Num


def rounded(x: Num, factor: float = 1.0) -> Power:
    """The integer nearest to x * factor, |n| < 2**21, from the bits of a large float."""
    large = 1.5 * 2.0**x.mantissa + 2 * x.bias
    word = x.fma(factor, large) if factor != 1.0 else x + large
    return Power(word - large, word)


def scale(y: Num, power: Power) -> Num:
    """y * 2**n, rounded once: denormal results and infinity are right for y near 1."""
    if y.roomy:
        return y * power_of_two(power)
    if found := _scalef(y, power.n):
        return found
    word = power.word.bits()
    half = word >> 1
    return y * (half << y.mantissa).floats() * ((word - half) << y.mantissa).floats()


def power_of_two(power: Power, more: int = 0) -> Num:
    """2**(n + more) where that is a normal number."""
    word = power.word.bits() - (power.n.bias - more)
    return (word << power.n.mantissa).floats()


def scales(x: Num) -> bool:
    """Whether there is such an instruction for numbers like x."""
    bits = x.type.bits * x.type.lanes
    return not x.roomy and x.f.machine.masks and bits > 0 and bits % 512 == 0


def _scalef(y: Num, n: Num) -> Num | None:
    """The instruction of AVX-512 that scales."""
    return full_vector(y, "scalef", n, y.like(0.0))


class Reduced(NamedTuple):
    """exp(x) = 2**n exp(r + low)."""

    power: Power
    r: Num
    low: Low


def reduce(x: Num, *, exact: bool) -> Reduced:
    """x less the nearest multiple of log 2; `exact`: with what the rounding of r lost."""
    power = rounded(x, 1.4426950408889634)
    high, low = x.pick(constants.LN2_PARTS)
    a = (-power.n).fma(high, x)  # exact: n * high has no rounding, and the two nearly cancel
    r = (-power.n).fma(low, a)
    if not exact or x.roomy:
        return Reduced(power, r, 0)
    return Reduced(power, r, (-power.n).fma(low, a - r))


def tail(r: Num, low: Low) -> Num:
    """exp(r + low) - 1 - r."""
    return (r * r).fma(polynomial(r, r.pick(table.EXP)), low)


def alone(r: Num) -> Num:
    """exp(r), to less than an ulp, by the fewest operations."""
    if not r.f.machine.fma:  # products are rounded: the large terms come last
        return tail(r, r) + 1.0
    return polynomial(r, (1.0, 1.0, *r.pick(table.EXP_ALONE)))


def tabled(x: Num) -> bool:
    """Whether a table can be looked up in one instruction."""
    return x.f.machine.masks and x.goal == "f32"


def parted(x: Num, digits: int) -> tuple[Power, Num]:
    """x / log 2, rounded to some binary digits; and an integer that ends with these.

    The power is of the whole number below.
    """
    large = 1.5 * 2.0 ** (x.mantissa - digits) + 2 * x.bias
    word = x.fma(1.4426950408889634, large)
    which = word.bits()
    return Power(word - large, (which >> digits).floats()), which


def by_table(x: Num, *, finely: bool = False) -> tuple[Num, Power]:
    """exp(x) by sixteenths of powers of two: to less than 0.8 ulp, `finely` to 0.6."""
    power, which = parted(x, 4)
    first, second = x.pick(constants.LN2_PARTS)
    r = (-power.n).fma(second, (-power.n).fma(first, x))
    slopes = (1.0, *r.pick(table.EXP_NEAR))
    if finely:
        near = looked_up(which, constants.SIXTEENTHS)
        rest = r.fma(polynomial(r, slopes), looked_up(which, constants.SIXTEENTHS_LOST))
    else:
        near, more = looked_up(which, constants.SIXTEENTHS_ALONE), constants.SIXTEENTHS_MORE
        rest = r.fma(polynomial(r, [(1 + more) * c for c in slopes]), more)
    return near.fma(rest, near), power


def mantissa_of(r: Num, low: Low) -> Num:
    """exp(r + low), to little more than half an ulp."""
    high, lost = ordered_sum(r.like(1.0), r)
    return high + (tail(r, low) + lost)


def times_exp(y: Num, x: Num, low: Low = 0) -> Num:
    """y * exp(x + low), y near 1, low small: right where exp alone would be denormal."""
    smallest, largest = x.pick(_LIMITS)
    power, r, rest = reduce(at_least(at_most(x, largest), smallest), exact=True)
    rest = rest + low
    if not isinstance(rest, int):
        r, rest = exact_sum(r, rest)
    return scale(y * mantissa_of(r, rest), power)


def exp_normal(x: Num) -> Num:
    """e**x where the result is a normal number, as the caller knows."""
    if tabled(x):
        y, power = by_table(x)
    else:
        power, r, _ = reduce(x, exact=False)
        y = alone(r)
    return y * power_of_two(power)


@function(f32=1, f64=1)
def exp(x: Num) -> Num:
    """e**x."""
    return _exp(at_most(x, x.pick(_LIMITS)[1]))


def _exp(x: Num, *, finely: bool = False) -> Num:
    """e**x for x that is not far beyond where that is infinite, as the caller knows."""
    # A product that is too small for a number takes the machine many times as long; the
    # instruction that scales leaves such lanes out.
    some = x.compare("uge", x.pick(_LIMITS)[0])
    x = x if scales(x) else where(some, x, 0.0)
    if tabled(x):
        return where(some, scale(*by_table(x, finely=finely)), 0.0)
    power, r, _ = reduce(x, exact=False)
    return where(some, scale(alone(r), power), 0.0)


@function(f32=6, f64=1)
def exp_below(x: Num) -> Num:
    """e**x for x <= 0, by the fewest operations, for what is soon divided by a sum of such.

    Near 0 to less than 2 ulp; far from it the error grows, but by less than an eighth of what
    the last place of x stands for.
    """
    if not tabled(x):
        return _exp(x)
    x = at_least(x, x.pick(_LIMITS)[0])
    power, which = parted(x, 5)
    r = (-power.n).fma(constants.LN2_NEAR, x)
    near = looked_up(which, constants.THIRTY_SECONDS)
    return scale((near * r).fma(polynomial(r, r.pick(table.EXP_NEARER)), near), power)


@function(f32=1, f64=1)
def exp2(x: Num) -> Num:
    """2**x."""
    smallest, largest = x.pick(_LIMITS_2)
    x = at_least(at_most(x, largest), smallest)
    power = rounded(x)
    r, low = times_ln2(x - power.n, 0)
    return scale(mantissa_of(r, low), power)


def times_ln2(x: Num, low: Low) -> tuple[Num, Low]:
    """(x + low) * log 2 as a pair."""
    first, second = map(x.like, x.pick(constants.LN2_PAIR))
    high, lost = exact_product(x, first)
    return high, lost if x.roomy else x.fma(second, lost + first * low)


@function(f32=1.25, f64=1.25)
def expm1(x: Num) -> Num:
    """e**x - 1."""
    smallest, largest = (-20.0, 88.8) if x.goal == "f32" else (-40.0, 709.9)
    power, r, low = reduce(at_least(at_most(x, largest), smallest), exact=True)
    # Halves, because 2**n may be too large when the result is not.
    s = power_of_two(power, -1)
    base, first = ordered_sum(s, s.like(-0.5))
    high, second = ordered_sum(base, s * r)
    y = (high + (s.fma(tail(r, low), second) + first)) * 2.0
    return where(abs(x) < 2.0 ** -(x.mantissa + 3), x, y)  # denormals have no half


def expm1_below(x: Num) -> Num:
    """e**x - 1 for x <= 0, where 2**n is not large; of 0 it is 0."""
    power, r, low = reduce(at_least(x, -20.0 if x.goal == "f32" else -40.0), exact=True)
    s = power_of_two(power)
    high, lost = ordered_sum(s - 1.0, s * r)
    return high + s.fma(tail(r, low), lost)


@function(f32=3, f64=3)
def tanh(x: Num) -> Num:
    """The hyperbolic tangent."""
    t = expm1_below(abs(x) * -2.0)
    return ((-t) / (t + 2.0)).signed(x)


@function(f32=6, f64=6)
def fast_tanh(x: Num) -> Num:
    """The hyperbolic tangent, for programs that may differ in the last places."""
    least = -20.0 if x.goal == "f32" else -40.0
    power, r, _ = reduce(at_least(abs(x) * -2.0, least), exact=False)
    s = power_of_two(power)
    t = s.fma(tail(r, r), s - 1.0)
    return ((-t) / (t + 2.0)).signed(x)


@function(f32=2.5, f64=3)
def sigmoid(x: Num) -> Num:
    """1 / (1 + e**-x), to full relative precision on both sides."""
    z = _exp(-abs(x), finely=True)
    negative = x.bits().compare("slt", 0)  # of -0, too: z is 1 there
    return where(negative, z, 1.0) / (z + 1.0)


@function(f32=3, f64=3)
def silu(x: Num) -> Num:
    """x / (1 + e**-x); where that power is infinite, 0 with the sign of x."""
    if not tabled(x):
        return x / (exp(-x) + 1.0)
    power = scale(*by_table(-held_within(x, x.pick(_LIMITS)[0])))  # NaN is in x still
    return x / (power + 1.0)


@function(f64=1.5, outline=True, wide=True)
def cosh(x: Num) -> Num:
    """The hyperbolic cosine."""
    half = _half_exp(abs(x))
    return half + 0.25 / half


@function(f64=2, outline=True, wide=True)
def sinh(x: Num) -> Num:
    """The hyperbolic sine: a polynomial up to 1, then a difference without cancellation."""
    half = _half_exp(abs(x))
    z = x * x
    small = (x * z).fma(polynomial(z, x.pick(table.SINH)), x)
    return where(abs(x) < 1.0, small, (half - 0.25 / half).signed(x))


def _half_exp(x: Num) -> Num:
    """exp(x) / 2 for x >= 0, which overflows no sooner than cosh."""
    power, r, low = reduce(at_most(x, x.pick(_LIMITS)[1]), exact=True)
    less = Power(power.n - 1.0, power.word - 1.0)
    return scale(mantissa_of(r, low), less)
