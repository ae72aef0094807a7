"""What the samplers of rng.py that reject compute with, and the slope of a gamma draw.

The first part keeps to the rule of rng.py: integer operations, + - * / sqrt and comparisons
only, each rounded by itself, so that a draw is the same to the bit everywhere. The last
part, gamma_slope, is a derivative and not a draw: it is free to use libm.
"""

from functools import cache

import numpy as np

from retrograd.core.rng_laws import ARRAYS, layout, log_rest, log_sum, parts, polynomial
from retrograd.core.special import digamma

_CHUNK = 1 << 14  # elements worked on at once: a dozen such arrays stay in the caches


# ---- portable functions: no libm, no fma ----


def log1p_rest(y: np.ndarray) -> np.ndarray:
    """The rest log(1 + y) - y + y**2 / 2 for any y > -1, right to its own last bits near 0."""
    near = (y > -0.29) & (y < 0.41)
    beside = log_sum(*parts(ARRAYS, np.where(near, 1, np.maximum(1 + y, 2.0**-99))))
    return np.where(near, log_rest(np.where(near, y, 0)), beside - y + y * y * 0.5)


def log(x) -> np.ndarray:
    """The natural logarithm of a float32 or float64 array within 1 ulp; nan below 0."""
    x = np.asarray(x)
    at, flat = layout("random.log", x.dtype), x.reshape(-1)
    small = flat < 2.0 ** (1 - at.bias)
    shift = at.bits + 1  # lifts a denormal among the normals
    f, e = parts(ARRAYS, flat * np.where(small, x.dtype.type(2.0**shift), x.dtype.type(1)))
    y = log_sum(f, np.where(small, e - shift, e))
    y = np.where(flat < np.inf, y, flat)  # inf and nan are their own logarithms
    y = np.where(flat == 0, -np.inf, y)
    return np.where(flat < 0, np.nan, y).reshape(x.shape)


def exp(x) -> np.ndarray:
    """The exponential of a float32 or float64 array within 1.1 ulp, denormals included."""
    x = np.asarray(x)
    at, flat = layout("random.exp", x.dtype), x.reshape(-1)
    known = np.clip(np.where(np.isnan(flat), 0, flat), at.limits[0], at.limits[1])
    magic = 1.5 * 2.0**at.bits  # what is added to it is rounded to an integer
    n = (known * 1.4426950408889634 + magic) - magic
    r = (known - n * at.ln2[0]) - n * at.ln2[1]
    y = r * r * polynomial(r, at.exp) + r + 1
    whole = n.astype(at.whole)
    half = whole >> at.whole(1)
    with np.errstate(over="ignore", under="ignore"):
        for k in (half, whole - half):  # in two steps: 2**whole itself may be out of range
            y = y * ((k + at.whole(at.bias)) << at.whole(at.bits)).view(x.dtype)
    return np.where(np.isnan(flat), flat, y).reshape(x.shape)


# the logarithms of 0! to 15!: all of them are integers that float64 holds
_LOG_FACTORIALS = log(np.cumprod([1.0, *range(1, 16)]))


def log_poisson(k: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """The log of the Poisson probability of k >= 0, to about 1e-15 * (1 + its size)."""
    n = np.maximum(k, 16)
    # Stirling: log(n!) = n log(n) - n + log(2 pi n) / 2 + correction; n log(n / lam) - n + lam
    # is n (f - log(1 + f)) of the relative distance f, in which no large terms are subtracted
    z = 1 / (n * n)
    correction = (1 / 12 - z * (1 / 360 - z * (1 / 1260 - z / 1680))) / n
    f = (lam - n) / n
    large = n * (log1p_rest(f) - f * f * 0.5) - log(n * 6.283185307179586) * 0.5 - correction
    few = np.minimum(k, 15)
    small = few * log(lam) - lam - _LOG_FACTORIALS[few.astype(np.int64)]
    return np.where(k < 16, small, large)


# ---- the slope of a gamma draw: libm is allowed ----


@cache
def _nodes() -> list[tuple[float, float]]:
    """The nodes and weights of Gauss and Legendre on [0, 1]."""
    at, weight = np.polynomial.legendre.leggauss(32)
    return [(float(p), float(w)) for p, w in zip((at + 1) / 2, weight / 2, strict=True)]


def _slope_series(a, x):
    """The slope for x <= 1: sum of x**(n+1) / (a ... (a+n)) * (digamma(a+n+1) - log x)."""
    term, psi, total = x / a, digamma(a + 1) - np.log(x), 0.0
    for n in range(1, 22):  # 1 / 21! is below the last bit
        total = total + term * psi
        psi = psi + 1 / (a + n)
        term = term * (x / (a + n))
    return total


def _slope_integral(a, x):
    """The slope for x > 1: the integral over the tail of the side on which nothing cancels."""
    # With t = x e**(side v): x * integral of |log t - digamma(a)| e**(side a v - (t - x)) dv.
    # On the lower side t runs down from x to 0, on the upper side up to infinity; the first
    # factor keeps its sign on the side that x lies on, seen from e**digamma(a).
    gap = np.log(x) - digamma(a)
    side = np.where(gap < 0, -1.0, 1.0)
    end = np.sqrt(80 / x)
    for _ in range(6):  # Newton for exponent = -40; convex, so never short of the root
        grown = np.expm1(side * end)
        end = end - (x * grown - side * a * end - 40) / (side * (x * grown + x - a))
    total = np.zeros_like(x)
    for at, weight in _nodes():
        v = side * end * at
        total += weight * np.abs(gap + v) * np.exp(a * v - x * np.expm1(v))
    return x * end * total


def gamma_slope(a, sample) -> np.ndarray:
    """The derivative of a gamma draw with respect to a: -(dF/da) / density at the sample."""
    sample = np.asarray(sample)
    a, x = np.broadcast_arrays(np.asarray(a, np.float64), sample.astype(np.float64))
    out = np.empty(x.shape)
    flat_a, flat_x, flat = a.reshape(-1), x.reshape(-1), out.reshape(-1)
    for first in range(0, flat.size, _CHUNK):
        part = slice(first, first + _CHUNK)
        b, y = flat_a[part], np.maximum(flat_x[part], 5e-324)  # at 0 the slope is 0
        flat[part] = np.where(
            y > 1,
            _slope_integral(b, np.maximum(y, 1)),
            _slope_series(b, np.minimum(y, 1)),
        )
    return out.astype(sample.dtype) if sample.dtype == np.float32 else out
