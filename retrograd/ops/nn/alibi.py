"""ALiBi (Press et al., 2021): attention that fades with distance, each head at its own rate."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import lift
from retrograd.core.tensor import Tensor
from retrograd.ops import create, shape

__all__ = ["alibi_bias", "alibi_slopes"]


def alibi_slopes(heads: int, /, *, dtype: Any = None) -> Tensor:
    """The slopes of so many heads: 2 ** (-8 i / heads) for i = 1 .. heads, a power of two.

    For other numbers, those of the next lower power of two, then every second one of the next
    higher, as the authors have it.
    """
    if not isinstance(heads, int) or heads < 1:
        raise ArgumentError(f"alibi_slopes: heads must be an integer from 1 on; got {heads!r}")
    low = 1 << (heads.bit_length() - 1)
    found = [_series(low), _series(2 * low)[::2][: heads - low]]
    wanted = dt.float32 if dtype is None else dt.as_dtype("alibi_slopes", dtype)
    return create.made(np.concatenate(found).astype(wanted))


def _series(heads: int) -> np.ndarray:
    return 2.0 ** (-8.0 * np.arange(1, heads + 1) / heads)


def alibi_bias(slopes: Any, queries: int, keys: int | None = None, /) -> Tensor:
    """-slope * distance as [H, queries, keys], queries and keys aligned at their ends.

    `attention(.., slopes=slopes)` is the same without holding this array.
    """
    slopes = lift(slopes)
    if slopes.ndim != 1:
        raise ShapeError(f"alibi_bias: slopes have one axis, heads; got shape {slopes.shape}")
    keys = queries if keys is None else keys
    places = np.arange(queries)[:, None] + (keys - queries)
    away = np.abs(places - np.arange(keys)).astype(slopes.dtype)
    return -(shape.reshape(slopes, (slopes.shape[0], 1, 1)) * lift(away))
