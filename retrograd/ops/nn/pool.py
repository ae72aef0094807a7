"""Pools over the spatial axes of x [N, *spatial, C]: the largest, mean or norm of windows.

`window` is a number or one for each spatial axis, `stride` the same (the window's own unless
given), `padding` what `conv` takes: numbers, pairs, "same", "valid", "causal". Padding is
not there for the largest and for norms; a mean counts it or not, as `count_include_pad`
says. `ceil_mode` adds a last, partial window. `layout="NCHW"` has the channels second.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf, prod
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.tensor import Tensor
from retrograd.core.whole import whole
from retrograd.ops import (
    cast,
    create,
    extrema,
    gather,
    magnitude,
    options,
    power,
    reduce,
    scatter,
    select,
    shape,
)
from retrograd.ops.nn import geometry, pool_max, pool_sum
from retrograd.ops.nn.geometry import Frame, Sizes

__all__ = [
    "avg_pool",
    "global_avg_pool",
    "global_max_pool",
    "lp_pool",
    "max_pool",
    "max_unpool",
]


def max_pool(
    x: Any,
    window: Any,
    /,
    *,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    layout: str | None = None,
) -> Any:
    """The largest of each window, NaN if one of them is.

    The gradient goes to the first of the largest (in row-major order), or to the first NaN:
    always to an element inside the window, also if all are -inf. With `return_indices` also
    the places of these, counted along the spatial axes in a row. Keeps x, finds them again.
    """
    who = "max_pool"
    x = geometry.channels_last(who, lift(x), layout)
    frame = _frame(who, x, window, stride, padding, ceil_mode, dilation)
    out = geometry.as_given(who, apply(pool_max.MaxPool(*frame), x), layout)
    if not return_indices:
        return out
    where = apply(pool_max.MaxPoolPlaces(*frame), x)
    return out, geometry.as_given(who, where, layout)


def _frame(
    who: str,
    x: Any,
    window: Any,
    stride: Any,
    padding: Any,
    ceil_mode: Any,
    dilation: Any = 1,
) -> Frame:
    sizes = x.shape[1:-1]
    frame = geometry.frame(
        who,
        sizes,
        window,
        stride=window if stride is None else stride,
        padding=padding,
        dilation=dilation,
        ceil_mode=bool(ceil_mode),
    )
    geometry.inhabited(who, frame, sizes)
    return frame


@whole
def avg_pool(
    x: Any,
    window: Any,
    /,
    *,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str | None = None,
) -> Tensor:
    """The mean of each window; padding counts as zeros, unless count_include_pad is False.

    What a partial window of ceil_mode has outside x and its padding never counts. Keeps
    nothing of x.
    """
    who = "avg_pool"
    x = geometry.channels_last(who, lift(x), layout)
    sizes, axes = x.shape[1:-1], x.ndim - 2
    kernel = geometry.per_axis(who, "the kernel", window, axes)
    steps = geometry.per_axis(who, "stride", window if stride is None else stride, axes)
    pads = geometry.padded(who, padding, sizes, kernel, steps, (1,) * axes)
    frame = _frame(who, x, kernel, steps, pads, ceil_mode)
    counts = _counted(frame, sizes, pads if count_include_pad else ((0, 0),) * axes)
    return geometry.as_given(who, _mean(x, frame, counts), layout)


def _mean(x: Any, frame: Frame, counts: Any) -> Any:
    """Sums of windows over their counts; halves are summed and divided in float32."""
    out = x.dtype if dt.is_inexact(x.dtype) else dt.float32
    wide = dt.float32 if out in dt.HALF else out
    x = x if x.dtype == wide else cast.astype(x, wide)
    total = apply(pool_sum.WindowSum(*frame), x)
    if isinstance(counts, np.ndarray):
        counts = lift(counts.astype(dt.real_of(x.dtype)))
    mean = total / counts
    return mean if mean.dtype == out else cast.astype(mean, out)


@lru_cache(1024)
def _counted(frame: Frame, sizes: Sizes, pads: geometry.Pairs) -> Any:
    """How many places of each window count: one number, or [*counts, 1]."""
    total = np.ones((), np.int64)
    for n, k, s, _, b, c, pad in zip(sizes, *frame, pads, strict=True):
        start = np.arange(c) * s - b
        inside = np.minimum(start + k, n + pad[1]) - np.maximum(start, -pad[0])
        total = total[..., None] * inside
    return float(total.flat[0]) if (total == total.flat[0]).all() else total[..., None]


@whole
def lp_pool(
    x: Any,
    p: float,
    window: Any,
    /,
    *,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    layout: str | None = None,
) -> Tensor:
    """The p-norm of each window: sum(abs(x)**p)**(1/p); the largest magnitude for p = inf.

    The gradient of zeros is 0: of a window whose norm is 0, and of each zero element.
    """
    who = "lp_pool"
    p = options.number(who, "p", p)
    if not p > 0:
        raise ArgumentError(f"{who}: p must be more than 0; got {p}")
    x = geometry.channels_last(who, lift(x), layout)
    frame = _frame(who, x, window, stride, padding, ceil_mode)
    size = magnitude.abs(x if dt.is_inexact(x.dtype) else cast.astype(x, dt.float32))
    if p == inf:
        out = apply(pool_max.MaxPool(*frame), size)
    else:
        out = _norm(size, p, pool_sum.WindowSum(*frame))
    return geometry.as_given(who, out, layout)


def _norm(size: Any, p: float, sums: pool_sum.WindowSum) -> Any:
    """Zeros and infinities are set aside before each power: no slope is inf times 0."""
    where = select.where
    if p == 1:
        return apply(sums, size)
    if p == 2:
        return reduce.root(apply(sums, power.square(size)))
    zero = size == 0
    total = apply(sums, where(zero, 0.0, power.pow(where(zero, 1.0, size), p)))
    low, high = total == 0, total == inf
    out = power.pow(where(low | high, 1.0, total), 1 / p)
    return where(low, 0.0, where(high, inf, out))


def global_avg_pool(x: Any, /, *, keepdims: bool = False, layout: str | None = None) -> Tensor:
    """The mean over all spatial axes: [N, C], or with axes of length 1 in their place."""
    who = "global_avg_pool"
    x = geometry.channels_last(who, lift(x), layout)
    out = reduce.mean(x, axis=tuple(range(1, x.ndim - 1)), keepdims=keepdims)
    return geometry.as_given(who, out, layout) if keepdims else out


def global_max_pool(x: Any, /, *, keepdims: bool = False, layout: str | None = None) -> Tensor:
    """The largest over all spatial axes; the gradient goes to the first. Keeps its place."""
    who = "global_max_pool"
    x = geometry.channels_last(who, lift(x), layout)
    batch, *sizes, channels = x.shape
    rows = shape.reshape(x, (batch, prod(sizes), channels))
    found = gather.take_along_axis(rows, extrema.argmax(rows, axis=1, keepdims=True), axis=1)
    if not keepdims:
        return shape.reshape(found, (batch, channels))
    out = shape.reshape(found, (batch, *(1 for _ in sizes), channels))
    return geometry.as_given(who, out, layout)


def max_unpool(y: Any, indices: Any, size: Any, /, *, layout: str | None = None) -> Tensor:
    """Zeros [N, *size, C] with y at the places that max_pool(..., return_indices=True) gave.

    Where windows overlap, and a place comes twice, the last one stands.
    """
    who = "max_unpool"
    y = geometry.channels_last(who, lift(y), layout)
    indices = geometry.channels_last(who, lift(indices), layout)
    size = geometry.per_axis(who, "size", size, y.ndim - 2, least=0)
    if indices.shape != y.shape:
        raise ShapeError(f"{who}: indices {indices.shape} must have the shape of y {y.shape}")
    batch, channels = y.shape[0], y.shape[-1]
    flat = (batch, prod(y.shape[1:-1]), channels)
    zeros = create.zeros((batch, prod(size), channels), dtype=y.dtype)
    values, where = shape.reshape(y, flat), shape.reshape(indices, flat)
    out = scatter.scatter(zeros, where, values, axis=1)
    return geometry.as_given(who, shape.reshape(out, (batch, *size, channels)), layout)
