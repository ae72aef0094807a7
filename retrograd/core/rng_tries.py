"""The laws of samplers that reject: what a try makes of its words, and whether it is taken.

As in rng_laws, a function here takes a Kernel `k` and numbers of it, arrays of NumPy or a
compiler's expressions, and keeps to integer operations, + - * / sqrt, floor and comparisons.
Extrema are written as choices, whose zeros have one sign everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.rng_laws import (
    ARRAYS,
    FORMATS,
    log_rest,
    log_sum,
    minus_log,
    parts,
    polynomial,
    quantile,
    unit,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    _Words = Sequence[Any]

ATTEMPTS = 128  # every sampler accepts with chance > 0.45: this bound is met once in 1e33
FEW = 10  # the mean from which Poisson counts are drawn by rejection
_F64, _I64 = np.dtype("f8"), np.dtype("i8")


def taken(k: Any, start: Any, ready: Any, attempt: Callable[[Any], tuple[Any, Any]]) -> Any:
    """In a kernel: the first value that attempt(turn) gives and takes; start where `ready`."""
    value, done = k.var(0, like=start), k.var(init=False)
    value.value, done.value = start, ready
    for turn in k.turns(ATTEMPTS, done):
        x, good = attempt(turn)
        value.value = k.where(good & ~done.value, x, value.value)
        done.value = done.value | good
    return value.value


# ---- portable functions: no libm, no fma ----


def log(k: Any, x: Any) -> Any:
    """The natural logarithm, within 1 ulp; nan below 0."""
    at = FORMATS[x.dtype]
    small = x < 2.0 ** (1 - at.bias)
    shift = at.bits + 1  # lifts a denormal among the normals
    f, e = parts(k, k.where(small, x * 2.0**shift, x))
    y = log_sum(f, k.where(small, e - shift, e))
    y = k.where(x < np.inf, y, x)  # inf and nan are their own logarithms
    y = k.where(x == 0, -np.inf, y)
    return k.where(x < 0, np.nan, y)


def exp(k: Any, x: Any) -> Any:
    """The exponential, within 1.1 ulp, denormals included."""
    at = FORMATS[x.dtype]
    low, high = at.limits
    known = k.where(x > low, x, low)  # of nan too
    known = k.where(known < high, known, high)
    magic = 1.5 * 2.0**at.bits  # what is added to it is rounded to an integer
    n = (known * 1.4426950408889634 + magic) - magic
    r = (known - n * at.ln2[0]) - n * at.ln2[1]
    y = r * r * polynomial(r, at.exp) + r + 1
    whole = k.cast(n, np.dtype(at.whole))
    half = whole >> 1
    for part in (half, whole - half):  # in two steps: 2**whole itself may be out of range
        y = y * k.from_bits((part + at.bias) << at.bits)
    return k.where(x == x, y, x)  # a nan is not itself


def log1p_rest(k: Any, y: Any) -> Any:
    """The rest log(1 + y) - y + y**2 / 2 for any y > -1, right to its own last bits near 0."""
    near, far = (y > -0.29) & (y < 0.41), 1 + y
    far = k.where(far > 2.0**-99, far, 2.0**-99)
    beside = log_sum(*parts(k, k.where(near, 1, far)))
    return k.where(near, log_rest(k.where(near, y, 0)), beside - y + y * y * 0.5)


# the logarithms of 0! to 15!: all of them are integers that float64 holds
_LOG_FACTORIALS = log(ARRAYS, np.cumprod([1.0, *range(1, 16)]))


def log_poisson(k: Any, count: Any, lam: Any) -> Any:
    """The log of the Poisson probability of a count, to about 1e-15 * (1 + its size)."""
    n = k.where(count > 16, count, 16)
    # Stirling: log(n!) = n log(n) - n + log(2 pi n) / 2 + correction; n log(n / lam) - n + lam
    # is n (f - log(1 + f)) of the relative distance f, in which no large terms are subtracted
    z = 1 / (n * n)
    correction = (1 / 12 - z * (1 / 360 - z * (1 / 1260 - z / 1680))) / n
    f = (lam - n) / n
    rest = log1p_rest(k, f) - f * f * 0.5
    large = n * rest - log(k, n * 6.283185307179586) * 0.5 - correction
    few = k.where(count < 15, count, 15)
    known = k.pick(k.literal(_LOG_FACTORIALS), k.cast(few, _I64))
    return k.where(count < 16, few * log(k, lam) - lam - known, large)


# ---- the truncated normal ----


def truncated(k: Any, words: _Words, low: Any, end: Any) -> tuple[Any, Any]:
    """A try for a normal x in [low, end], |low| <= end: x and the log of its chance."""
    u, rate, width = unit(k, words), (low + k.sqrt(low * low + 4)) * 0.5, end - low
    mean, side = 1 / rate, low >= 0
    # A tail is met by an exponential of the rate that rejects least (Robert 1995), cut off at
    # width; a narrow interval by a uniform; a wide one around 0 by the normal itself.
    far = log(k, u + (1 - u) * exp(k, -rate * width)) * -mean
    far = k.where(far > 0, far, 0)
    far_chance = (far - mean) * (far - mean) * -0.5
    flat = u * width
    flat_chance = k.where(side, -flat * (low + flat * 0.5), (low + flat) * (low + flat) * -0.5)
    free = quantile(k, words)
    free_chance = k.where((free >= low) & (free <= end), u * 0, -np.inf)
    wide = width > k.where(side, mean, 2.5)
    x = k.where(wide, k.where(side, low + far, free), low + flat)
    return x, k.where(wide, k.where(side, far_chance, free_chance), flat_chance)


def truncated_try(
    k: Any, one: _Words, other: _Words, lower: Any, upper: Any
) -> tuple[Any, Any]:
    """A try for a normal x in [lower, upper], and whether it is taken."""
    # mirrored, so that the end nearer to 0 is the lower one
    flip = k.abs(lower) > k.abs(upper)
    near, end = k.where(flip, -upper, lower), k.where(flip, -lower, upper)
    x, chance = truncated(k, one, near, end)
    x = between(k, k.where(flip, -x, x), lower, upper)
    return x, minus_log(k, other) + chance >= 0


def between(k: Any, x: Any, lower: Any, upper: Any) -> Any:
    """The number in [lower, upper] that is nearest to x."""
    x = k.where(x > lower, x, lower)
    return k.where(x < upper, x, upper)


# ---- gamma ----


def gamma_centre(k: Any, a: Any) -> Any:
    """The d of Marsaglia and Tsang; below 1, of the draw for a + 1."""
    return k.where(a < 1, a + 1, a) - 1 / 3


def gamma_try(k: Any, one: _Words, other: _Words, d: Any) -> tuple[Any, Any]:
    """Marsaglia and Tsang (2000), the log of the chance without large terms."""
    y = quantile(k, one) / k.sqrt(9 * d)
    chance = d * (3 * log1p_rest(k, y) - y * y * y)
    x = d * (1 + y) * (1 + y) * (1 + y)
    return x, (y > -1) & (minus_log(k, other) + chance > 0)


def gamma_scaled(k: Any, a: Any, x: Any, words: _Words, *, log_space: bool) -> Any:
    """For a below 1, x times u**(1 / a): in logarithms, as it may be too small for a float."""
    power = minus_log(k, words) / k.where(a < 1, a, 1)
    logs = log(k, x) - k.where(a < 1, power, 0)
    return logs if log_space else k.where(a < 1, exp(k, logs), x)


# ---- Poisson ----


def poisson_try(k: Any, one: _Words, other: _Words, lam: Any) -> tuple[Any, Any]:
    """Transformed rejection with squeeze: Hörmann (1993), PTRS, for lam >= 10."""
    b = 0.931 + 2.53 * k.sqrt(lam)
    a = -0.059 + 0.02483 * b
    u, v = unit(k, one) - 0.5, unit(k, other)
    edge = 0.5 - k.abs(u)
    edge = k.where(edge > 2.0**-64, edge, 2.0**-64)
    count = k.floor((2 * a / edge + b) * u + lam + 0.43)
    chance = log_poisson(k, k.where(count > 0, count, 0), lam)
    slow = log(k, v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (edge * edge) + b)) <= chance
    quick = (edge >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
    return count, (count >= 0) & (quick | slow)


def poisson_few(k: Any, u: Any, lam: Any) -> Any:
    """The least count whose distribution function reaches u, for small lam."""
    mass, total, count = (k.var(0, like=u) for _ in range(3))
    done = k.var(init=False)
    mass.value = exp(k, -lam)
    total.value, count.value = mass.value, u * 0
    done.value = ~((u > total.value) & (lam < FEW))
    for turn in k.turns(99, done):
        count.value = count.value + k.cast(~done.value, _F64)
        mass.value = mass.value * lam / k.cast(turn + 1, _F64)
        total.value = total.value + mass.value
        # rounding may hold the total below u for ever
        done.value = done.value | ~((u > total.value) & (mass.value > 2.0**-64))
    return count.value
