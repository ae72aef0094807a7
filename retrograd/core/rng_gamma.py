"""Portable functions of arrays, and the slope of a gamma draw.

The first part keeps to the rule of rng.py: integer operations, + - * / sqrt and comparisons
only, each rounded by itself, so that a draw is the same to the bit everywhere. The last
part, gamma_slope, is a derivative and not a draw: it is free to use libm.
"""

from functools import cache

import numpy as np

from retrograd.core import rng_tries as tries
from retrograd.core.rng_laws import ARRAYS, layout
from retrograd.core.special import digamma

_CHUNK = 1 << 14  # elements worked on at once: a dozen such arrays stay in the caches


# ---- portable functions: no libm, no fma ----


def log1p_rest(y: np.ndarray) -> np.ndarray:
    """The rest log(1 + y) - y + y**2 / 2 for any y > -1, right to its own last bits near 0."""
    return tries.log1p_rest(ARRAYS, y)


def log(x) -> np.ndarray:
    """The natural logarithm of a float32 or float64 array within 1 ulp; nan below 0."""
    x = np.asarray(x)
    layout("random.log", x.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        return tries.log(ARRAYS, x.reshape(-1)).reshape(x.shape)


def exp(x) -> np.ndarray:
    """The exponential of a float32 or float64 array within 1.1 ulp, denormals included."""
    x = np.asarray(x)
    layout("random.exp", x.dtype)
    with np.errstate(over="ignore", under="ignore"):
        return tries.exp(ARRAYS, x.reshape(-1)).reshape(x.shape)


def log_poisson(k: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """The log of the Poisson probability of k >= 0, to about 1e-15 * (1 + its size)."""
    return tries.log_poisson(ARRAYS, k, lam)


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
