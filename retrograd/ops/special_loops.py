"""Special functions that are sums of many terms, in the loops of a kernel's row.

The formulas of core.special and of gamma draws' slope, in float64: they are called where a
row is written, and their loops follow one another.
"""

from __future__ import annotations

import math
from math import comb, factorial
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core import rng_gamma, special
from retrograd.ops import special_kernels

__all__ = ["gamma_slope", "polygamma", "zeta"]

_F64 = dt.float64
_SHIFT = 8  # terms that are added one by one, before Euler and Maclaurin's


def _power(x: Any, n: int) -> Any:
    out = x if n else 1.0
    for _ in range(n - 1):
        out = out * x
    return out


def _counted(turn: Any, k: Any) -> Any:
    return k.cast(turn, _F64)


# -- zeta and polygamma ------------------------------------------------------------------------


def _scaled_zeta(k: Any, s: Any, q: Any) -> Any:
    """q**(s - 1) zeta(s, q), for s > 1 and q > 0."""
    total = k.var(1.0, like=q)
    for turn in k.turns(_SHIFT - 1):
        n = _counted(turn, k) + 1.0
        total.value = total.value + k.exp(-s * k.log1p(n / q))
    weight = k.exp(-s * k.log1p(_SHIFT / q))
    w = 1.0 / (q + _SHIFT)
    row = special._EULER_MACLAURIN
    acc: Any = row[-1]
    for i in range(len(row) - 1, 0, -1):
        acc = acc * ((s + (2 * i - 1)) * w) * ((s + 2 * i) * w) + row[i - 1]
    tail = weight * ((1.0 + _SHIFT / q) / (s - 1.0) + (0.5 + acc * (s * w)) / q)
    return total.value / q + k.where(weight > 0, tail, 0.0)


def zeta(k: Any, s: Any, q: Any) -> Any:
    """The sum over k >= 0 of (q + k)**-s; nan for s < 1 or q < 0."""
    q = q + 0.0
    out = k.pow(q, 1.0 - s) * _scaled_zeta(k, s, q)
    known = (q >= 0) if isinstance(s, float) else (q >= 0) & (s >= 1)
    return k.where(known, out, math.nan)


def _times_two_to(k: Any, x: Any, n: Any) -> Any:
    """x * 2**n for an integer n of any size, in steps that are floats."""
    n = k.where(n > 2400, 2400, k.where(n < -2400, -2400, n))
    third = k.quotient(n, 3)
    for part in (third, third, n - third - third):
        x = x * k.from_bits((part + 1023) << 52)
    return x


def polygamma(k: Any, n: int, x: Any) -> Any:
    """The n-th derivative of digamma."""
    if n == 0:
        return special_kernels.digamma(k, x)
    s, odd = n + 1.0, n % 2 == 1
    sign = 1.0 if odd else -1.0
    exponent = factorial(n).bit_length()
    mantissa = factorial(n) / (1 << exponent)

    def right(v: Any) -> Any:
        """sign * n! * zeta(n + 1, v) for v > 0."""
        bits = k.bits(v)
        binary = k.cast((bits >> 52) & 0x7FF, dt.int64) - 1022
        head = k.from_bits((bits & ((1 << 52) - 1)) | (1022 << 52))
        scaled = k.pow(head, -float(n)) * (_scaled_zeta(k, s, v) * (sign * mantissa))
        return _times_two_to(k, scaled, exponent - binary * n)

    r = -x - k.round(-x)
    u = k.abs(r)
    whole = zeta(k, s, u) + sign * zeta(k, s, 1.0 - u)
    side = 1.0 if odd else k.where(r > 0, 1.0, k.where(r < 0, -1.0, 0.0))
    low = mantissa * (side * whole - zeta(k, s, 1.0 - x))
    for done in range(0, exponent, 1000):  # 2**exponent itself may be out of range
        low = low * 2.0 ** min(1000, exponent - done)
    high = right(k.where(x > 0, x, 1.0 - x))
    found = k.where((x > 0) | (whole == 0.0), high, low)
    return k.where(x == math.inf, 0.0, found)  # whose exponent is none


# -- the slope of a gamma draw -----------------------------------------------------------------


def gamma_slope(k: Any, a: Any, y: Any, i: int, j: int) -> Any:
    """The slope in a of y = log(a gamma draw), differentiated i times in a and j in y."""
    return k.where(y <= 0, _series(k, a, y, i, j), _integral(k, a, y, i, j))


def _sum(terms: Any) -> Any:
    first, *rest = terms
    for t in rest:
        first = first + t
    return first


def _series(k: Any, a: Any, y: Any, i: int, j: int) -> Any:
    """For y <= 0: the sum of e**(n y) / (a ... (a + n)) * (digamma(a + n + 1) - y)."""
    x = k.exp(y)
    total, power, scale = (k.var(init, like=y) for init in (0.0, 1.0, 1.0))
    psi = [k.var(0.0, like=y) for _ in range(i + 1)]
    for m, p in enumerate(psi):
        p.value = polygamma(k, m, a + 1.0)
    sums = [k.var(0.0, like=y) for _ in range(i)]  # of (a + l)**-1, (a + l)**-2, ...
    done = k.var(init=False)
    done.value = y > 0
    for turn in k.turns(23, done):  # 1 / 22! is below the last bit
        n = _counted(turn, k)
        at = a + n
        scale.value = scale.value / at
        for m, s in enumerate(sums):
            s.value = s.value + _power(1.0 / at, m + 1)
        heads = [scale.value]  # the a-derivatives of 1 / (a ... (a + n)), by its logarithm's
        for p in range(i):
            logs = [(-1.0) ** (m + 1) * factorial(m) * sums[m].value for m in range(p + 1)]
            heads.append(_sum(comb(p, m) * logs[m] * heads[p - m] for m in range(p + 1)))
        tails = [psi[0].value - y, *(p.value for p in psi[1:])]
        whole = _sum(comb(i, m) * heads[i - m] * tails[m] for m in range(i + 1))
        term = power.value * (_power(n, j) * whole)
        if j:
            term = term - power.value * (j * _power(n, j - 1) * heads[i])
        total.value = total.value + term
        power.value = power.value * x
        for m, p in enumerate(psi):
            step = (-1.0) ** m * factorial(m) * _power(1.0 / (at + 1.0), m + 1)
            p.value = p.value + step
        done.value = done.value
    return total.value


def _integral(k: Any, a: Any, y: Any, i: int, j: int) -> Any:
    """For y > 0: the integral of (log t - digamma(a)) over a tail of the density."""
    x, psi = k.exp(y), [polygamma(k, m, a) for m in range(i + 1)]
    gap = y - psi[0]
    side = k.where(gap < 0, -1.0, 1.0)
    end, total, done = k.var(0.0, like=y), k.var(0.0, like=y), k.var(init=False)
    end.value, done.value = k.sqrt(80.0 / x), y <= 0
    for _ in k.turns(6, done):  # Newton for exponent = -40; convex, so never short of the root
        grown, far = k.expm1(side * end.value), end.value
        end.value = far - (x * grown - side * a * far - 40.0) / (side * (x * grown + x - a))
        done.value = done.value
    spots, weights = (k.literal(np.array(v)) for v in zip(*rng_gamma._nodes(), strict=True))
    for turn in k.turns(32, done):
        v = side * end.value * k.pick(spots, turn)
        w = -x * k.expm1(v)
        touchard: list[Any] = [1.0]
        for n in range(j):
            touchard.append(w * _sum(comb(n, m) * t for m, t in enumerate(touchard)))
        inner = (gap + v) * _power(v, i)
        for m in range(1, i + 1):
            inner = inner - comb(i, m) * psi[m] * _power(v, i - m)
        inner = inner * touchard[j]
        if j:
            inner = inner + j * _power(v, i) * touchard[j - 1]
        total.value = total.value + k.pick(weights, turn) * k.exp(a * v + w) * inner
        done.value = done.value
    return side * end.value * total.value
