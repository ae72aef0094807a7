"""Norms of vectors, of any order. Where a norm has no slope, at 0, its gradient is 0."""

from __future__ import annotations

from math import inf, isinf
from numbers import Real
from typing import Any

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError
from retrograd.core.interpret import lift
from retrograd.core.op import function
from retrograd.core.spec import axes_tuple
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, extrema, magnitude, power, reduce, select

__all__ = ["norm", "vector_norm"]


@function
def norm(x: Any, /, *, ord: float = 2, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The norm of x as a vector over `axis` (all axes by default).

    `ord` is 2 for the length, 1 for the sum of magnitudes, inf and -inf for the largest and
    smallest of them, 0 for how many are not zero, any other p for sum(abs(x)**p)**(1/p).
    The gradient of the zero vector is 0, and so is that of each zero element.
    """
    x = lift(x)
    if not isinstance(ord, Real) or ord != ord:
        raise ArgumentError(f"norm: ord must be a number; got {ord!r}")
    x = x if dt.is_inexact(x.dtype) else cast.astype(x, dt.float32)
    over: dict[str, Any] = {"axis": axes_tuple("norm", axis, x.ndim), "keepdims": keepdims}
    if ord == 0:
        return reduce.sum(x != 0, dtype=dt.real_of(x.dtype), **over)
    if ord == 2 and x.dtype.kind != "c":
        return reduce.root(reduce.sum(power.square(x), **over))
    size = magnitude.abs(x)
    if ord == 1:
        return reduce.sum(size, **over)
    if isinf(ord):
        return (extrema.max if ord > 0 else extrema.min)(size, **over)
    if ord == 2:
        return reduce.root(reduce.sum(power.square(size), **over))
    return _p_norm(size, float(ord), over)


@function
def vector_norm(
    x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2
) -> Tensor:
    """The standard's name for `norm`."""
    return norm(x, ord=ord, axis=axis, keepdims=keepdims)


def _p_norm(size: Any, p: float, over: dict[str, Any]) -> Any:
    """Zeros and infinities are set aside before each power: no slope is inf times 0."""
    where = select.where
    zero = size == 0
    powers = where(zero, 0.0 if p > 0 else inf, power.pow(where(zero, 1.0, size), p))
    total = reduce.sum(powers, **over)
    low, high = total == 0, total == inf
    out = power.pow(where(low | high, 1.0, total), 1 / p)
    at_low, at_high = (0.0, inf) if p > 0 else (inf, 0.0)
    return where(low, at_low, where(high, at_high, out))
