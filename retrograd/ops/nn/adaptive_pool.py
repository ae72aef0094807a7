"""Adaptive pools: so many results, whatever the size of the input.

On an axis of length n, result i of m is of the elements from floor(i * n / m) up to, but not
including, ceil((i + 1) * n / m), as in PyTorch: windows overlap where m does not divide n,
and every element is in one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, options
from retrograd.ops.nn import geometry, pool, pool_max, pool_sum
from retrograd.ops.nn.geometry import Sizes

__all__ = ["adaptive_avg_pool", "adaptive_max_pool"]


@lru_cache(1024)
def spans(size: int, count: int) -> tuple[Sizes, Sizes]:
    """Where the windows of `count` results on an axis of `size` start and stop."""
    starts = tuple(i * size // count for i in range(count))
    return starts, tuple(-(-(i + 1) * size // count) for i in range(count))


def _asked(who: str, x: Any, size: Any) -> Sizes:
    """The sizes of the result; None on an axis leaves its size."""
    own = x.shape[1:-1]
    given = tuple(size) if isinstance(size, (tuple, list)) else (size,) * len(own)
    if len(given) != len(own):
        raise ArgumentError(
            f"{who}: size {given} has {len(given)} numbers for {len(own)} spatial axes"
        )
    if not all(own):
        raise ShapeError(f"{who}: x {x.shape} has a spatial axis of length 0")
    pairs = zip(given, own, strict=True)
    return tuple(n if m is None else options.integer(who, "size", m, least=1) for m, n in pairs)


def adaptive_avg_pool(x: Any, size: Any, /, *, layout: str | None = None) -> Tensor:
    """The means of windows chosen so that the result has spatial axes of `size`.

    `size` is a number, or one (or None: as it is) for each spatial axis. Keeps nothing of x.
    """
    who = "adaptive_avg_pool"
    x = geometry.channels_last(who, lift(x), layout)
    counts = _asked(who, x, size)
    if all(n % m == 0 for n, m in zip(x.shape[1:-1], counts, strict=True)):
        window = tuple(n // m for n, m in zip(x.shape[1:-1], counts, strict=True))
        return geometry.as_given(who, pool.avg_pool(x, window), layout)
    out = x.dtype if dt.is_inexact(x.dtype) else dt.float32
    x = cast.astype(x, dt.float32 if out in dt.HALF else out)
    return geometry.as_given(who, cast.astype(means(x, counts), out), layout)


def means(x: Any, counts: Sizes) -> Tensor:
    """The means of the windows of `counts` results on the spatial axes of x."""
    pairs = zip(x.shape[1:-1], counts, strict=True)
    starts, stops = zip(*(spans(n, m) for n, m in pairs), strict=True)
    return apply(pool_sum.SpanMean(starts, stops), x)


def adaptive_max_pool(
    x: Any, size: Any, /, *, return_indices: bool = False, layout: str | None = None
) -> Any:
    """The largest of windows chosen so that the result has spatial axes of `size`.

    As max_pool: the gradient goes to the first of the largest, NaN wins, and
    `return_indices` also gives places along the spatial axes in a row.
    """
    who = "adaptive_max_pool"
    x = geometry.channels_last(who, lift(x), layout)
    pairs = zip(x.shape[1:-1], _asked(who, x, size), strict=True)
    starts, stops = zip(*(spans(n, m) for n, m in pairs), strict=True)
    out = geometry.as_given(who, apply(pool_max.MaxSpan(starts, stops), x), layout)
    if not return_indices:
        return out
    where = apply(pool_max.MaxSpanPlaces(starts, stops), x)
    return out, geometry.as_given(who, where, layout)
