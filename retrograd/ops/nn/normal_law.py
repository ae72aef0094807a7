"""The normal distribution function, to the accuracy that gelu needs."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import special as numerics

__all__ = ["lowered", "normal_law"]

# log(erfc(z) exp(z * z) / t) as a polynomial in t = 1 / (1 + z / 2), z >= 0: off by 1e-8
_TAIL = (
    -1.26551212,
    0.999999984,
    0.37501875,
    0.0826097194,
    -0.0748490093,
    -0.23324148,
    0.33432268,
    -1.22334095,
    2.39640696,
    -2.20347618,
    0.990705568,
    -0.17864392,
)


def normal_law(x: np.ndarray) -> np.ndarray:
    """The normal law; for float32 in float32, to 1e-6 of itself (2e-5 far out)."""
    if x.dtype != np.float32:
        return numerics.ndtr(x)
    flat, out = x.reshape(-1), np.empty(x.size, np.float32)
    for start in range(0, x.size, BLOCK):
        out[start : start + BLOCK] = _normal_law(flat[start : start + BLOCK])
    return out.reshape(x.shape)


BLOCK = 1 << 15  # elements that stay in the cache while a dozen passes go over them


def _normal_law(x: np.ndarray) -> np.ndarray:
    z = np.abs(x)
    z *= np.float32(0.5**0.5)
    t = np.reciprocal(np.float32(1) + np.float32(0.5) * z)
    power_ = np.full_like(t, _TAIL[-1])
    for c in reversed(_TAIL[:-1]):
        power_ *= t
        power_ += np.float32(c)
    power_ -= z * z
    tail = np.exp(power_, out=power_)
    tail *= t
    tail *= np.float32(0.5)
    return np.where(x > 0, np.float32(1) - tail, tail)


# the law of -x over exp(-x * x / 2) / (1 + _NEAR * x), x >= 0, as a polynomial in that
# fraction: off by 2e-7 of itself; fitted to the largest relative error
_NEAR = 0.4 * 0.5**0.5
_SHARE = tuple(
    0.5 * c
    for c in (
        0.2256758619,
        0.2256695983,
        0.2078426985,
        0.168541977,
        0.1414314404,
        -0.005607554049,
        0.1690854576,
        -0.1829014851,
        0.05026213036,
    )
)


def lowered(k: Any, x: Any) -> Any:
    """The normal law in a kernel; for float32 in float32, to 1e-6 of itself as well."""
    if x.dtype != np.float32:
        return 0.5 * k.erfc(x * -(0.5**0.5))
    t = 1 / k.fma(k.abs(x), _NEAR, 1.0)
    *rest, found = _SHARE
    for c in reversed(rest):
        found = k.fma(t, found, c)
    tail = k.exp(x * x * -0.5) * (found * t)  # the slope has the same exp: it is made once
    return k.where(x > 0, 1 - tail, tail)
