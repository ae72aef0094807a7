"""What the draws of rng.py compute with, and the slope of a gamma draw.

The first part keeps to the rule of rng.py: integer operations, + - * / sqrt and comparisons
only, each rounded by itself, so that a draw is the same to the bit everywhere. The last
part, gamma_slope, is a derivative and not a draw: it is free to use libm.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from retrograd.core.errors import DtypeError
from retrograd.core.special import digamma

_Row = tuple[float, ...]
_CHUNK = 1 << 14  # elements worked on at once: a dozen such arrays stay in the caches


class Format(NamedTuple):
    """The bits of a float type, and the coefficients that are fitted for it."""

    word: Any
    whole: Any
    bits: int  # of the stored mantissa
    bias: int
    root_half: int  # the bits of sqrt(1/2)
    ln2: _Row  # in two parts; an exponent times the first is exact
    limits: _Row  # of exp: 0 below, infinity above
    log: _Row  # (2 atanh(s) / s - 2) / s**2 in s**2
    exp: _Row  # (exp(r) - 1 - r) / r**2 in r
    centre: tuple[_Row, _Row]  # (x / q - sqrt(2 pi)) / q**2 in 3/16 - q**2, q <= 0.425
    tail: tuple[_Row, _Row]  # 1.4375 r - x in r - 1.5, r = sqrt(-log(t)), t > 2**-66


# Near-minimax fits in relative error: weighted least squares at Chebyshev points in 60 digits.
# What they add to the relative error of log, exp, centre and tail: 3e-9, 8e-9, 2e-8, 4e-8 in
# float32, 5e-18, 1e-17, 3e-17, 9e-17 in float64.
# fmt: off
FORMATS = {
    np.dtype("f4"): Format(
        np.uint32, np.int32, 23, 127, 0x3F3504F3,
        (0.693145751953125, 1.4286068e-06), (-104, 89),
        (0.66666687, 0.39988765, 0.2958045),
        (0.5, 0.16666576, 0.041666847, 0.008363135, 0.0013900949),
        ((5.089408, 74.78929, 207.74031, 24.411356),
         (1, 21.221075, 118.065384, 150.94734)),
        ((0.9048763, 0.45034793, 0.034313146, 0.002683872),
         (1, 0.8255122, 0.15217713, -0.0013435623)),
    ),
    np.dtype("f8"): Format(
        np.uint64, np.int64, 52, 1023, 0x3FE6A09E667F3BCD,
        (0.6931471805598903, 5.4979230187083712e-14), (-746, 710),
        (0.66666666666666698, 0.39999999999898922, 0.28571428626155709, 0.22222211111072501,
         0.18182890555024473, 0.15331681435197645, 0.14616876716205755),
        (0.5000000000000001, 0.16666666666666647, 0.04166666666662455, 0.0083333333333558207,
         0.0013888888917117372, 0.00019841269784186009, 2.4801521398659182e-05,
         2.7557356336862695e-06, 2.7620044520356787e-07, 2.5067883316690806e-08),
        ((5.0894155459975735, 210.04929863153163, 3224.2379318034674, 22866.198565465829,
          75821.430183652395, 105119.48760904625, 43892.14224201744, 646.01962192041418),
         (1, 47.798196445338748, 884.17897133116316, 8012.1818033353109, 37207.573247362837,
          84751.07994609267, 82284.447148140228, 23733.935219431094)),
        ((0.90487707094290468, 1.6475244577860839, 1.1773218339600238, 0.42751599552536354,
          0.086023534231398536, 0.010083101969260685, 0.00075498071677973906,
          3.5433488712808486e-05, 6.451840198661491e-07),
         (1, 2.148551960047891, 1.849013349761579, 0.81762692731521962, 0.19720960417205738,
          0.025115369248220114, 0.0014709544913473013, 2.7746942068446542e-05)),
    ),
}
# fmt: on


def layout(who: str, dtype: Any) -> Format:
    """The format of dtype, refused unless float32 or float64."""
    found = FORMATS.get(np.dtype(dtype))
    if found is None:
        raise DtypeError(f"{who}: dtype {np.dtype(dtype)} is not float32 or float64")
    return found


# ---- portable functions: no libm, no fma ----


def polynomial(x: np.ndarray, row: _Row) -> np.ndarray:
    """The polynomial of x whose coefficients are row, the constant first."""
    y = x * row[-1]
    for c in row[-2:0:-1]:
        y += c
        y *= x
    y += row[0]
    return y


def ratio(x: np.ndarray, rows: tuple[_Row, _Row]) -> np.ndarray:
    """The quotient of two polynomials of x."""
    return polynomial(x, rows[0]) / polynomial(x, rows[1])


def parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The (f, e) of a positive normal x = (1 + f) * 2**e, sqrt(1/2) <= 1 + f < sqrt(2)."""
    at = FORMATS[x.dtype]
    # exponents now step at sqrt(1/2) instead of 1
    up = x.view(at.word) + at.word((at.bias << at.bits) - at.root_half)
    whole = (up >> at.word(at.bits)).view(at.whole) - at.whole(at.bias)
    near = (up & at.word((1 << at.bits) - 1)) + at.word(at.root_half)
    return near.view(x.dtype) - 1, whole.astype(x.dtype)


def log_rest(f: np.ndarray) -> np.ndarray:
    """The rest log(1 + f) - f + f**2 / 2 for f as parts has it: nothing cancels."""
    s = f / (f + 2)
    z = s * s
    return s * (f * f * 0.5 + z * polynomial(z, FORMATS[f.dtype].log))


def log_sum(f: np.ndarray, e: np.ndarray) -> np.ndarray:
    """The logarithm of (1 + f) * 2**e."""
    high, low = FORMATS[f.dtype].ln2
    return e * high - ((f * f * 0.5 - (log_rest(f) + e * low)) - f)


def log1p_rest(y: np.ndarray) -> np.ndarray:
    """The rest log(1 + y) - y + y**2 / 2 for any y > -1, right to its own last bits near 0."""
    near = (y > -0.29) & (y < 0.41)
    beside = log_sum(*parts(np.where(near, 1, np.maximum(1 + y, 2.0**-99))))
    return np.where(near, log_rest(np.where(near, y, 0)), beside - y + y * y * 0.5)


def log(x) -> np.ndarray:
    """The natural logarithm of a float32 or float64 array within 1 ulp; nan below 0."""
    x = np.asarray(x)
    at, flat = layout("random.log", x.dtype), x.reshape(-1)
    small = flat < 2.0 ** (1 - at.bias)
    shift = at.bits + 1  # lifts a denormal among the normals
    f, e = parts(flat * np.where(small, x.dtype.type(2.0**shift), x.dtype.type(1)))
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


def minus_log(u: np.ndarray, beside: np.ndarray) -> np.ndarray:
    """The value -log(u) of a normal u in (0, 1), precise near 1 by beside = 1 - u."""
    f, e = parts(u)
    near = np.flatnonzero(beside < 0.29)
    f[near], e[near] = -beside[near], 0
    return 0 - log_sum(f, e)


def quantile(q: np.ndarray, tail: np.ndarray) -> np.ndarray:
    """The normal quantile at 1/2 + q = 1 - tail, 0 < q < 1/2."""
    at = FORMATS[q.dtype]
    x = q * (q * q * ratio(0.1875 - q * q, at.centre) + 2.5066282746310005)
    far = np.flatnonzero(q > 0.425)
    r = np.sqrt(0 - log_sum(*parts(tail[far])))
    x[far] = 1.4375 * r - ratio(r - 1.5, at.tail)
    return x


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
