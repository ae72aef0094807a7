"""What the words of a key become: the generator and the laws, each written once.

The functions here take a Kernel `k` (core.kernel) and numbers of it: arrays of NumPy with the
kernel ARRAYS, by which eager draws are made, or expressions of a compiler. They keep to integer
operations, + - * / sqrt and comparisons, each rounded by itself: no libm and no fma, whose last
bits differ. So a draw is the same to the bit, eager and compiled, on every machine.

`words` are uint32: (word,) makes a float32, (high, low) a float64. What is written in place is
an array of NumPy's own; expressions are not changed, `x += y` is a new one.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from retrograd.core.errors import DtypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    _Words = Sequence[Any]

_Row = tuple[float, ...]
_F32, _F64, _U64, _I64 = (np.dtype(t) for t in ("f4", "f8", "u8", "i8"))
_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)


class Arrays:
    """What the laws need of the Kernel protocol, by NumPy, for flat arrays."""

    where = staticmethod(np.where)
    sqrt = staticmethod(np.sqrt)
    floor = staticmethod(np.floor)
    abs = staticmethod(np.abs)

    def cast(self, x: Any, dtype: Any) -> Any:
        """x in another dtype."""
        return x.astype(dtype)

    def bits(self, x: Any) -> Any:
        """The bit patterns of floats, as unsigned integers."""
        return x.view(f"u{x.dtype.itemsize}")

    def from_bits(self, x: Any) -> Any:
        """The floats of bit patterns."""
        return x.view(f"f{x.dtype.itemsize}")

    def rarely(self, mask: Any, f: Callable[..., Any], otherwise: Any, *args: Any) -> Any:
        """f(*args) where mask, else `otherwise`, in place: f is run where it is needed."""
        at = np.flatnonzero(mask)
        otherwise[at] = f(*(a[at] for a in args))
        return otherwise

    def literal(self, value: Any) -> Any:
        """A table."""
        return value

    def pick(self, x: Any, at: Any) -> Any:
        """The numbers of a table at integers."""
        return x[at]

    def var(self, init: Any, like: Any = None) -> Slot:
        """Numbers that loops may change."""
        return Slot(init)

    def turns(self, most: int, done: Slot | None = None) -> Iterator[Any]:
        """The numbers from 0 up, until all are done."""
        for turn in range(most):
            if done is not None and np.all(done.value):
                return
            yield np.int64(turn)


class Slot:
    """Numbers that loops may change."""

    def __init__(self, value: Any) -> None:
        self.value = value


ARRAYS = Arrays()


class Format(NamedTuple):
    """The bits of a float type, and the coefficients that are fitted for it."""

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
        np.int32, 23, 127, 0x3F3504F3,
        (0.693145751953125, 1.4286068e-06), (-104, 89),
        (0.66666687, 0.39988765, 0.2958045),
        (0.5, 0.16666576, 0.041666847, 0.008363135, 0.0013900949),
        ((5.089408, 74.78929, 207.74031, 24.411356),
         (1, 21.221075, 118.065384, 150.94734)),
        ((0.9048763, 0.45034793, 0.034313146, 0.002683872),
         (1, 0.8255122, 0.15217713, -0.0013435623)),
    ),
    np.dtype("f8"): Format(
        np.int64, 52, 1023, 0x3FE6A09E667F3BCD,
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


def words_of(dtype: Any) -> int:
    """How many words make a float."""
    return 1 if dtype == _F32 else 2


def layout(who: str, dtype: Any) -> Format:
    """The format of dtype, refused unless float32 or float64."""
    found = FORMATS.get(np.dtype(dtype))
    if found is None:
        raise DtypeError(f"{who}: dtype {np.dtype(dtype)} is not float32 or float64")
    return found


# ---- the generator ----


def threefry(key: tuple[Any, Any], count: tuple[Any, Any]) -> tuple[Any, Any]:
    """The two words of Threefry-2x32-20 under a key of two words at a counter of two words."""
    schedule = *key, key[0] ^ key[1] ^ 0x1BD11BDA
    x0, x1 = count[0] + key[0], count[1] + key[1]
    for group in range(5):
        for turn in _ROTATIONS[group & 1]:
            x0 += x1
            over = x1 >> (32 - turn)
            x1 <<= turn
            x1 |= over
            x1 ^= x0
        x0 += schedule[(group + 1) % 3]
        x1 += schedule[(group + 2) % 3] + (group + 1)
    return x0, x1


# ---- portable functions ----


def polynomial(x: Any, row: _Row) -> Any:
    """The polynomial of x whose coefficients are row, the constant first."""
    y = x * row[-1]
    for c in row[-2:0:-1]:
        y += c
        y *= x
    y += row[0]
    return y


def ratio(x: Any, rows: tuple[_Row, _Row]) -> Any:
    """The quotient of two polynomials of x."""
    return polynomial(x, rows[0]) / polynomial(x, rows[1])


def parts(k: Any, x: Any) -> tuple[Any, Any]:
    """The (f, e) of a positive normal x = (1 + f) * 2**e, sqrt(1/2) <= 1 + f < sqrt(2)."""
    at = FORMATS[x.dtype]
    # exponents now step at sqrt(1/2) instead of 1
    up = k.bits(x) + ((at.bias << at.bits) - at.root_half)
    near = (up & ((1 << at.bits) - 1)) + at.root_half
    # an integer beside the bits of 2**bits is a float that much larger: no conversion
    whole = k.from_bits((up >> at.bits) | ((at.bias + at.bits) << at.bits))
    return k.from_bits(near) - 1, whole - (2.0**at.bits + at.bias)


def log_rest(f: Any) -> Any:
    """The rest log(1 + f) - f + f**2 / 2 for f as parts has it: nothing cancels."""
    s = f / (f + 2)
    z = s * s
    return s * (f * f * 0.5 + z * polynomial(z, FORMATS[f.dtype].log))


def log_sum(f: Any, e: Any) -> Any:
    """The logarithm of (1 + f) * 2**e."""
    high, low = FORMATS[f.dtype].ln2
    return e * high - ((f * f * 0.5 - (log_rest(f) + e * low)) - f)


def _far_quantile(k: Any, tail: Any) -> Any:
    """The normal quantile at 1 - tail, for a small tail."""
    r = k.sqrt(0 - log_sum(*parts(k, tail)))
    return 1.4375 * r - ratio(r - 1.5, FORMATS[tail.dtype].tail)


# ---- laws of words ----


def unit(k: Any, words: _Words) -> Any:
    """The u = (word + 1/2) / 2**bits of the words, rounded once."""
    if len(words) == 1:
        high, low, dtype, base = words[0] >> 16, words[0] & 0xFFFF, _F32, 2.0**16
    else:
        (high, low), dtype, base = words, _F64, 2.0**32
    return (k.cast(high, dtype) * base + (k.cast(low, dtype) + 0.5)) * base**-2


def fraction(k: Any, words: _Words) -> Any:
    """The leading 24 or 53 bits of the words as a float in [0, 1)."""
    if len(words) == 1:
        return k.cast(words[0] >> 8, _F32) * 2.0**-24
    high, low = (k.cast(w, _F64) for w in (words[0] >> 5, words[1] >> 6))
    return (high * 2.0**26 + low) * 2.0**-53


def below(words: _Words, chance: float) -> Any:
    """Whether the fraction of two words is below `chance` in (0, 1]: integers alone."""
    last, (high, low) = ceil(chance * 2.0**53) - 1, (words[0] >> 5, words[1] >> 6)
    top, rest = last >> 26, last & 0x3FFFFFF
    return (high < top) | ((high == top) & (low <= rest))


def minus_log(k: Any, words: _Words) -> Any:
    """The -log(u) of the words, as precise where u is near 1 as where it is near 0."""
    beside = unit(k, [~w for w in words])  # 1 - u, without a rounding of u
    f, e = parts(k, unit(k, words))
    f = k.rarely(beside < 0.29, lambda beside: -beside, f, beside)
    return 0 - log_sum(f, e * k.cast(beside >= 0.29, e.dtype))


def gumbel(k: Any, words: _Words) -> Any:
    """The -log(-log(u)) of the words."""
    return 0 - log_sum(*parts(k, minus_log(k, words)))


def quantile(k: Any, words: _Words) -> Any:
    """The normal quantile of u, odd about u = 1/2."""
    upper = words[0] >> 31
    sides = 0 - upper
    tail = [w ^ sides for w in words]
    q = unit(k, [tail[0] ^ 0x7FFFFFFF, *(~w for w in tail[1:])])  # the distance from 1/2
    x = q * (q * q * ratio(0.1875 - q * q, FORMATS[q.dtype].centre) + 2.5066282746310005)
    x = k.rarely(q > 0.425, lambda tail: _far_quantile(k, tail), x, unit(k, tail))
    return x * (k.cast(upper, x.dtype) * 2 - 1)  # a select at random is slower in NumPy


# ---- integers of words ----


def high_product(x: Any, y: Any) -> Any:
    """The high 64 bits of the 128-bit product of a uint64 and an integer below 2**64."""
    low, y0, y1 = 0xFFFFFFFF, y & 0xFFFFFFFF, y >> 32
    x0, x1 = x & low, x >> 32
    middle = x1 * y0 + ((x0 * y0) >> 32)
    return x1 * y1 + (middle >> 32) + (((middle & low) + x0 * y1) >> 32)


def integer(k: Any, words: _Words, low: int, high: int) -> Any:
    """The int64 low + floor(x * (high - low) / 2**128) of 128-bit x, made of four words."""
    span = high - low
    wide = [k.cast(w, _U64) for w in words]
    major, minor = (wide[0] << 32) | wide[1], (wide[2] << 32) | wide[3]
    carry = major * span + high_product(minor, span) < major * span
    return k.cast(high_product(major, span) + k.cast(carry, _U64) + low % 2**64, _I64)
