"""Quantiles and the median: sorting, and a gather that may take two neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, DtypeError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Op, function, op
from retrograd.core.spec import Spec, axes_tuple, spec_of
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
    out = _between(_lanes(x, axes), shape.reshape(q, (q.size,)), method)
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


def _between(x: Any, q: Any, method: str) -> Any:
    """The values at the places q * (n - 1) of the last axis, were it sorted."""
    last = x.shape[-1] - 1
    place = q * float(last)
    low, high = rounding.floor(place), rounding.ceil(place)
    if method == "nearest":
        low = high = rounding.round(place)
    low, high = (high if method == "higher" else low), (low if method == "lower" else high)
    a, b, end = _taken(x, low, high)
    if method in ("lower", "higher", "nearest"):
        out = a
    else:
        share = place - low if method == "linear" else 0.5 * (high - low)
        out = _mixed(a, b, cast.astype(share, x.dtype))
    return select.where(compare.isnan(end), end, out)


def _taken(x: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
    """The elements that would be at two rows of places, and at the end, where a NaN would be.

    Where the places are known, only what belongs there is looked for.
    """
    last = x.shape[-1] - 1
    if isinstance(low, Box) or isinstance(high, Box):
        ordered = sort.sort(x, axis=-1, stable=False)
        wanted = [cast.astype(at, dt.int64) for at in (low, high)]
        places = [shape.broadcast_to(at, (*x.shape[:-1], at.shape[0])) for at in wanted]
        a, b = (gather.take_along_axis(ordered, at, axis=-1) for at in places)
        return a, b, pad.piece(ordered, x.ndim - 1, last, 1)
    wanted = [at.array.astype(np.int64).tolist() for at in (low, high)]
    ranks = sorted({*wanted[0], *wanted[1], last})
    found, _ = apply(Ranked(tuple(ranks)), x)
    a, b, end = (
        gather.take(found, np.array([ranks.index(r) for r in at], np.int64), axis=-1)
        for at in (*wanted, [last])
    )
    return a, b, end


@op
class Ranked(Op):
    """The elements that would be at `ranks`, were the last axis sorted; and where they are."""

    ranks: tuple[int, ...]
    outputs = ("values", "indices")
    native = "ranks"
    quicker = True
    host = sort.LIBRARY

    def shape(self, x: Spec) -> tuple[Spec, Spec]:
        if max(self.ranks, default=-1) >= (x.shape[-1] if x.ndim else 0):
            raise ShapeError(
                f"ranked: x {x.shape} has no {max(self.ranks)} along its last axis"
            )
        out = x.with_shape((*x.shape[:-1], len(self.ranks)))
        return out, out.with_dtype(dt.int64)

    def forward(self, x):
        self.shape(spec_of(x))
        if x.dtype in sort.NARROW and self.ranks:
            pairs = sort.paired(x, descending=False)
            before = 0
            for rank in sorted(set(self.ranks)):  # one after the other: NumPy's fast way
                pairs[..., before:].partition(rank - before, axis=-1)
                before = rank + 1
            indices = pairs[..., list(self.ranks)] & sort.LOW
        else:
            indices = sort.order(x, x.ndim - 1, descending=False)[..., list(self.ranks)]
        return sort.taken(x, indices, x.ndim - 1), indices

    def jvp(self, dx, indices):
        return gather.take_along_axis(dx, indices, axis=-1), None

    def vjp(self, g_values, x: Spec, indices):
        return apply(gather.AddAlongAxis(x.ndim - 1, x.shape[-1]), g_values, indices)

    def batch(self, size, args, mapped):
        return apply(self, *args)

    @staticmethod
    def samples(rng):
        x = rng.permutation(24).reshape(4, 6) * 0.5
        yield Ranked((0, 3)), x
        yield Ranked((5, 2, 2)), x
        yield Ranked((1,)), rng.normal(size=(0, 2))

    @staticmethod
    def refuses(rng):
        yield Ranked((3,)), rng.normal(size=(2, 3)), "has no 3 along its last axis"


def _mixed(a: Any, b: Any, share: Any) -> Any:
    """a + share * (b - a); by weights where that is not finite, so that infinities stay."""
    gap = b - a
    weighed = a * (1.0 - share) + select.where(share > 0, b, 0.0) * share
    return select.where(compare.isfinite(gap), a + gap * share, weighed)
