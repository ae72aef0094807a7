"""Quantiles and the median: sorting, and a gather that may take two neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, DtypeError
from retrograd.core.interpret import lift
from retrograd.core.op import function
from retrograd.core.spec import axes_tuple
from retrograd.core.tensor import Box, Tensor
from retrograd.ops import (
    cast,
    compare,
    create,
    gather,
    pad,
    reduce,
    rounding,
    select,
    shape,
    sort,
)

__all__ = ["median", "quantile"]

METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


@function
def quantile(
    x: Any,
    q: Any,
    /,
    *,
    axis: Any = None,
    method: str = "linear",
    keepdims: bool = False,
) -> Tensor:
    """The value below which the share q of the elements along `axis` lies.

    q is a number or a tensor of numbers from 0 to 1, whose axes come first in the result.
    Between two neighbours `method` decides: linear, lower, higher, midpoint or nearest (of
    two equally near, the one at the even place). NaN if an element is.
    """
    x = _numbers("quantile", x)
    axes = axes_tuple("quantile", axis, x.ndim)
    if method not in METHODS:
        raise ArgumentError(
            f"quantile: method must be one of {', '.join(METHODS)}; got {method!r}"
        )
    q = _shares(q)
    ordered = sort.sort(_lanes(x, axes), axis=-1, stable=False)
    out = _between(ordered, shape.reshape(q, (q.size,)), method)
    to = reduce.reduced(x.shape, axes, keepdims=bool(keepdims))
    return shape.reshape(shape.moveaxis(out, -1, 0), (*q.shape, *to))


@function
def median(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The middle of the elements along `axis`, or the mean of the two in the middle."""
    return quantile(x, 0.5, axis=axis, keepdims=keepdims)


def _numbers(who: str, x: Any) -> Any:
    x = lift(x)
    if x.dtype.kind == "c":
        raise DtypeError(f"{who}: complex numbers have no order; got {x.dtype}")
    return x if dt.is_inexact(x.dtype) else cast.astype(x, dt.float32)


def _shares(q: Any) -> Any:
    """q in float64, so that q * (n - 1) has its digits; checked where its values are known."""
    if getattr(q, "dtype", dt.float64).kind == "c":
        raise DtypeError(f"quantile: q must be real; got {q.dtype}")
    q = create.asarray(q, dtype=dt.float64)
    if not isinstance(q, Box) and not np.all((q.array >= 0) & (q.array <= 1)):
        raise ArgumentError("quantile: q must be from 0 to 1")
    return q


def _lanes(x: Any, axes: tuple[int, ...]) -> Any:
    """x with the reduced axes as one, the last."""
    n = reduce.count(x.shape, axes)
    if not n:
        raise ArgumentError(f"quantile: x {x.shape} has no elements along axis {axes}")
    beside = tuple(i for i in range(x.ndim) if i not in axes)
    moved = shape.permute_dims(x, (*beside, *axes))
    return shape.reshape(moved, (*(x.shape[i] for i in beside), n))


def _between(ordered: Any, q: Any, method: str) -> Any:
    """The values at the places q * (n - 1) of the last axis."""
    last = ordered.shape[-1] - 1
    place = q * float(last)
    low, high = rounding.floor(place), rounding.ceil(place)
    if method == "nearest":
        low = high = rounding.round(place)
    low, high = (high if method == "higher" else low), (low if method == "lower" else high)
    a, b = (_taken(ordered, at) for at in (low, high))
    if method in ("lower", "higher", "nearest"):
        out = a
    else:
        share = place - low if method == "linear" else 0.5 * (high - low)
        out = _mixed(a, b, cast.astype(share, ordered.dtype))
    end = pad.piece(ordered, ordered.ndim - 1, last, 1)  # a NaN would be there
    return select.where(compare.isnan(end), end, out)


def _taken(ordered: Any, at: Any) -> Any:
    places = shape.broadcast_to(cast.astype(at, dt.int64), (*ordered.shape[:-1], at.shape[0]))
    return gather.take_along_axis(ordered, places, axis=-1)


def _mixed(a: Any, b: Any, share: Any) -> Any:
    """a + share * (b - a); by weights where that is not finite, so that infinities stay."""
    gap = b - a
    weighed = a * (1.0 - share) + select.where(share > 0, b, 0.0) * share
    return select.where(compare.isfinite(gap), a + gap * share, weighed)
