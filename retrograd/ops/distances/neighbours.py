"""The k nearest neighbours, exactly: all distances, a strip of rows at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError
from retrograd.core.interpret import apply
from retrograd.core.op import Op, front, op
from retrograd.core.spec import Spec, spec_of
from retrograd.core.tensor import Tensor
from retrograd.ops import extrema, gather, magnitude, options, power, reduce, select, shape
from retrograd.ops.distances import metrics, pairwise, tiles

__all__ = ["knn"]


@op
class Nearest(Op):
    """Which k of y [..., m, d] are nearest to each of x [..., n, d], the nearest first.

    Of equally near ones the first. With `others`, x is y and no point is its own neighbour.
    """

    k: int
    metric: str
    p: float = 1.0
    others: bool = False
    uniform = True
    takes = "floating"
    no_derivative = "its result is an index, constant almost everywhere"
    native = "nearest points"
    quicker = True
    host = "a partial sort of tiles"

    def shape(self, x: Spec, y: Spec) -> Spec:
        found = pairwise.paired("nearest", x, y)
        there = y.shape[-2] - self.others
        if self.k > there:
            raise ArgumentError(
                f"nearest: k is {self.k}; there are {max(there, 0)} to choose from"
            )
        return Spec((*found[:-1], self.k), dt.int64)

    def forward(self, x, y):
        self.shape(spec_of(x), spec_of(y))
        return pairwise.each(self._matrix, x, y)

    def _matrix(self, x, y):
        out = np.empty((len(x), self.k), np.int64)
        matrix = pairwise.Pairwise(
            "squared" if self.metric == "euclidean" else self.metric, self.p
        )
        for rows in tiles.strips(len(x), len(y)):
            found = matrix.forward(x[rows], y)
            if self.others:
                found[np.arange(len(found)), np.arange(rows.start, rows.stop)] = np.inf
            out[rows] = _smallest(found, self.k)
        return out

    def batch(self, size, args, mapped):
        return apply(self, *front(size, args, mapped))

    @staticmethod
    def samples(rng):
        x, y = rng.normal(size=(4, 2)), rng.normal(size=(6, 2))
        for metric in ("euclidean", "manhattan", "chebyshev"):
            yield Nearest(3, metric), x, y
        yield Nearest(5, "minkowski", 3.0, others=True), y, y
        yield Nearest(2, "squared"), rng.normal(size=(2, 0, 3)), rng.normal(size=(2, 3, 3))

    @staticmethod
    def refuses(rng):
        x = rng.normal(size=(3, 2))
        yield Nearest(4, "squared"), x, x, "k is 4; there are 3 to choose from"
        yield Nearest(3, "squared", others=True), x, x, "there are 2 to choose from"


MANY = 4  # times k: rows with more candidates are sorted whole


def _smallest(found: np.ndarray, k: int) -> np.ndarray:
    """Columns of the k smallest in each row, by size and then by column."""
    count, width = found.shape
    if not 0 < k < width:
        return np.argsort(found, axis=1, kind="stable")[:, :k]
    at = np.flatnonzero(found <= _bound(found, k))
    rows, columns = np.divmod(at, width)
    many = np.bincount(rows, minlength=count)
    odd = (many < k) | (many > MANY * k)  # NaN in the first, as many equal ones in the other
    first = np.cumsum(many) - many
    values = np.full((count, many[~odd].max(initial=k)), np.inf, found.dtype)
    which = np.zeros(values.shape, np.int64)
    some = ~odd[rows]
    to = rows[some], (np.arange(len(at)) - first[rows])[some]
    values[to], which[to] = found.reshape(-1)[at[some]], columns[some]
    order = np.argsort(values, axis=1, kind="stable")[:, :k]
    chosen = np.take_along_axis(which, order, 1)
    for i in np.flatnonzero(odd):
        chosen[i] = np.argsort(found[i], kind="stable")[:k]
    return chosen


def _bound(found: np.ndarray, k: int) -> np.ndarray:
    """A number for each row that k of its elements at least are not larger than.

    In long rows the k-th smallest of the least of parts, which are looked at faster.
    """
    parts = 8 * k
    length = found.shape[1] // parts
    if length >= 4:
        found = found[:, : parts * length].reshape(-1, length, parts).min(axis=1)
    return np.partition(found, k - 1, axis=1)[:, k - 1 : k]


def knn(
    x: Any, y: Any = None, /, *, k: int, metric: str = "euclidean", p: float = 2.0
) -> tuple[Tensor, Tensor]:
    """Distances [..., n, k] and indices of the k points of y nearest to each of x, exactly.

    Without y, of the other points of x. Nearest first; of equally near ones the lower index.
    The distances are differentiable (metrics and conventions as in `cdist`); they keep the
    differences [..., n, k, d], and no n x m matrix is ever held.
    """
    name, power_ = metrics.kernel("knn", metric, p)
    k = options.integer("knn", "k", k, least=0)
    a = metrics.points("knn", metric, x)
    b = a if y is None else metrics.points("knn", metric, y, name="y")
    a, b = metrics.together("knn", a, b)
    indices = apply(Nearest(k, name, power_, others=y is None), a, b)
    apart = shape.reshape(a, (*a.shape[:-1], 1, a.shape[-1])) - _rows_at(b, indices)
    return metrics.value(metric, lengths(name, power_, apart)), indices


def _rows_at(y: Any, indices: Any) -> Any:
    """y [..., m, d] at indices [..., n, k]: [..., n, k, d]."""
    if y.ndim == 2:
        return gather.take(y, indices, axis=0)
    flat = shape.reshape(
        indices, (*indices.shape[:-2], indices.shape[-2] * indices.shape[-1], 1)
    )
    found = gather.take_along_axis(y, flat, axis=-2)
    return shape.reshape(found, (*indices.shape, y.shape[-1]))


def lengths(metric: str, p: float, apart: Any) -> Any:
    """The lengths of differences along their last axis, by a metric's kernel; slope 0 at 0."""
    if metric in ("squared", "euclidean"):
        square = reduce.sum(apart * apart, axis=-1)
        return square if metric == "squared" else reduce.root(square)
    far = magnitude.abs(apart)
    if metric == "chebyshev":
        return extrema.max(far, axis=-1)
    if metric == "manhattan":
        return reduce.sum(far, axis=-1)
    total = reduce.sum(power.pow(far, p), axis=-1)
    zero = total == 0
    return select.where(zero, 0.0, power.pow(select.where(zero, 1.0, total), 1 / p))
