"""Which values there are, and how often: unique, bincount, histogram.

How many values there are is known only when they are: without `size=` these functions run
eagerly alone. NaN equals nothing, so that each NaN is a value of its own.
"""

from __future__ import annotations

import builtins
from typing import Any, NamedTuple

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, DtypeError, ShapeError, TraceError
from retrograd.core.interpret import apply, constant, lift
from retrograd.core.op import Op, function, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Box, Tensor
from retrograd.ops import cast, create, extrema, gather, options, pad, select, shape, sort

__all__ = [
    "bincount",
    "histogram",
    "unique",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]


class UniqueAll(NamedTuple):
    """What `unique_all` returns."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """What `unique_counts` returns."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """What `unique_inverse` returns."""

    values: Any
    inverse_indices: Any


@op
class Unique(Op):
    """The `size` smallest values along the last axis: where each is first, and how often.

    Each element's rank among the values is given too. Places without a value hold -1 and 0.
    """

    size: int
    outputs = ("indices", "ranks", "counts")
    host = sort.LIBRARY
    no_derivative = "its results are indices, constant almost everywhere"

    def shape(self, x: Spec) -> tuple[Spec, Spec, Spec]:
        found = Spec((*x.shape[:-1], self.size), dt.int64)
        return found, x.with_dtype(dt.int64), found

    def forward(self, x):
        lanes = x.reshape(int(np.prod(x.shape[:-1])), x.shape[-1])
        order = np.argsort(lanes, axis=1, kind="stable")
        ordered = np.take_along_axis(lanes, order, 1)
        new = np.ones(lanes.shape, dt.bool)
        new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
        rank = np.cumsum(new, axis=1) - 1
        ranks = np.empty_like(rank)
        np.put_along_axis(ranks, order, rank, 1)
        indices = np.full((len(lanes), self.size), -1)
        counts = np.zeros((len(lanes), self.size), dt.int64)
        row, column = np.nonzero(rank < self.size)
        np.add.at(counts, (row, rank[row, column]), 1)
        row, column = np.nonzero(new & (rank < self.size))
        indices[row, rank[row, column]] = order[row, column]
        to = (*x.shape[:-1], self.size)
        return indices.reshape(to), ranks.reshape(x.shape), counts.reshape(to)

    def batch(self, size, args, mapped):
        return apply(self, *args)

    @staticmethod
    def samples(rng):
        yield Unique(3), rng.integers(0, 4, (2, 7)) * 0.5
        yield Unique(8), rng.integers(0, 4, 5)
        yield Unique(2), np.array([np.nan, 1.0, np.nan])
        yield Unique(0), rng.normal(size=0)


def _found(who: str, x: Any) -> UniqueAll:
    x = lift(x)
    flat = shape.reshape(x, (x.size,))
    indices, ranks, counts = apply(Unique(x.size), flat)
    try:
        n = int(np.count_nonzero(counts.array))
    except TraceError as error:
        raise TraceError(
            f"{who}: how many values there are is known only when they are, and here there "
            f"is only a spec: {x.spec}",
            hint="rg.unique(x, size=..., fill_value=...)",
        ) from error
    indices, counts = (pad.piece(t, 0, 0, n) for t in (indices, counts))
    values = gather.take_along_axis(flat, indices, axis=0)
    return UniqueAll(values, indices, shape.reshape(ranks, x.shape), counts)


@function
def unique_all(x: Any, /) -> UniqueAll:
    """The values of x in order, where each is first, which of them each x is, how often."""
    return _found("unique_all", x)


@function
def unique_counts(x: Any, /) -> UniqueCounts:
    """The values of x in order, and how often each occurs."""
    found = _found("unique_counts", x)
    return UniqueCounts(found.values, found.counts)


@function
def unique_inverse(x: Any, /) -> UniqueInverse:
    """The values of x in order, and for each element of x which of them it is."""
    found = _found("unique_inverse", x)
    return UniqueInverse(found.values, found.inverse_indices)


@function
def unique_values(x: Any, /) -> Tensor:
    """The values of x in order; the gradient of each goes to its first occurrence."""
    return _found("unique_values", x).values


@function
def unique(
    x: Any,
    /,
    *,
    size: int | None = None,
    fill_value: Any = None,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:
    """The values of x in order; with `size`, as many, which also compiles and maps.

    If there are more the largest are left out; if there are fewer, `fill_value` follows (the
    smallest value by default) with a count of 0. Indices, inverse and counts on request.
    """
    x = lift(x)
    found = _found("unique", x) if size is None else _sized(x, size, fill_value)
    wanted = (return_index, return_inverse, return_counts)
    more = tuple(part for part, asked in zip(found[1:], wanted, strict=True) if asked)
    return (found.values, *more) if more else found.values


def _sized(x: Any, size: int, fill_value: Any) -> UniqueAll:
    (size,) = options.possible("unique", (options.integer("unique", "size", size, least=0),))
    flat = shape.reshape(x, (x.size,))
    indices, ranks, counts = apply(Unique(size), flat)
    ranks = shape.reshape(ranks, x.shape)
    if not x.size:
        if fill_value is None:
            raise ArgumentError(f"unique: x {x.shape} has no values; fill_value must say one")
        values = shape.broadcast_to(cast.astype(lift(fill_value), x.dtype), (size,))
        return UniqueAll(values, indices, ranks, counts)
    none = indices < 0
    indices = select.where(none, pad.piece(indices, 0, 0, 1), indices) if size else indices
    values = gather.take_along_axis(flat, indices, axis=0)
    if fill_value is not None:
        values = select.where(none, cast.astype(lift(fill_value), x.dtype), values)
    return UniqueAll(values, indices, ranks, counts)


@function
def bincount(
    x: Any, weights: Any = None, /, *, minlength: int = 0, length: int | None = None
) -> Tensor:
    """How often each of 0, 1, 2, ... occurs in x, or the sum of its `weights`.

    There are as many counts as x needs, at least `minlength`; with `length` exactly so many,
    which also compiles and maps.
    """
    x = lift(x)
    if x.dtype.kind not in "iu":
        raise DtypeError(f"bincount: x must be integers; got {x.dtype}")
    if x.ndim != 1:
        raise ShapeError(f"bincount: x must have one axis; got shape {x.shape}")
    x = cast.astype(x, dt.int64)
    if length is None:
        least = options.integer("bincount", "minlength", minlength, least=0)
        length = builtins.max(int(extrema.max(x)) + 1 if x.size else 0, least)
    length = options.integer("bincount", "length", length, least=0)
    options.possible("bincount", (length,))
    w = create.ones(x.shape, dtype=dt.int64) if weights is None else lift(weights)
    # a negative number is outside, not counted from the end
    places = select.where(x < 0, length, x)
    return apply(gather.AddAlongAxis(0, length), w, places)


@function
def histogram(
    x: Any, /, bins: Any = 10, *, range: Any = None, weights: Any = None
) -> tuple[Tensor, Tensor]:
    """How many x lie in each of `bins` equal parts of `range`, and their edges.

    `bins` may be the edges themselves. The last part includes its upper edge; what lies
    outside, and NaN, is left out. `range` is from the smallest to the largest x unless told.
    """
    x = lift(x)
    x, of = shape.reshape(x, (x.size,)), x.shape
    edges = _edges(x, bins, range)
    n = edges.shape[0] - 1
    found = sort.searchsorted(edges, x, side="right") - 1
    last = x == pad.piece(edges, 0, n, 1)
    inside = (found >= 0) & (found < n) | last
    slot = select.where(last, n - 1, select.where(inside, found, n))
    counted = bincount(slot, _weights(weights, of), length=n + 1)
    return pad.piece(counted, 0, 0, n), edges


def _weights(weights: Any, of: tuple[int, ...]) -> Any:
    if weights is None:
        return None
    weights = lift(weights)
    if weights.shape != of:
        raise ShapeError(f"histogram: weights {weights.shape} must have the shape of x {of}")
    return shape.reshape(weights, (weights.size,))


def _edges(x: Any, bins: Any, range_: Any) -> Tensor:
    if not isinstance(bins, (int, np.integer)):
        edges = lift(bins)
        if edges.ndim != 1 or edges.shape[0] < 2:
            raise ShapeError(f"histogram: edges must be two or more; got shape {edges.shape}")
        if not isinstance(edges, Box) and np.any(edges.array[1:] < edges.array[:-1]):
            raise ArgumentError("histogram: edges must not fall from one to the next")
        return edges
    if bins < 1:
        raise ArgumentError(f"histogram: bins must be at least 1; got {bins}")
    options.possible("histogram", (bins + 1,))
    if range_ is not None:
        if not isinstance(range_, (tuple, list)) or len(range_) != 2:
            raise ArgumentError(f"histogram: range must be a pair of numbers; got {range_!r}")
        low, high = (options.number("histogram", "range", r) for r in range_)
    else:
        low, high = (float(extrema.min(x)), float(extrema.max(x))) if x.size else (0.0, 1.0)
    if not -np.inf < low <= high < np.inf:
        raise ArgumentError(f"histogram: range must go from low to high; got {(low, high)}")
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, bins + 1)
    return constant(edges.astype(x.dtype if dt.is_inexact(x.dtype) else dt.float32))
