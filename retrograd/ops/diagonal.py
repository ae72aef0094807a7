"""Diagonals and triangles of matrices; matrices are the last two axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Linear, function, op
from retrograd.core.spec import Spec, axis_index
from retrograd.core.tensor import Tensor
from retrograd.ops import create, options, reduce, select, shape

__all__ = ["diag", "diagonal", "trace", "tril", "triu"]


def place(rows: int, columns: int, offset: int) -> tuple[int, int, int]:
    """The first row and column of a diagonal, and its length."""
    row, column = max(-offset, 0), max(offset, 0)
    return row, column, max(min(rows - row, columns - column), 0)


@op
class Diagonal(Linear):
    """The elements [.., i, i + offset]."""

    offset: int = 0
    view = True

    def shape(self, x: Spec) -> Spec:
        if x.ndim < 2:
            raise ShapeError(f"diagonal: needs at least 2 axes; got shape {x.shape}")
        *lead, rows, columns = x.shape
        return x.with_shape((*lead, place(rows, columns, self.offset)[2]))

    def forward(self, x):
        return np.diagonal(x, self.offset, -2, -1)

    def transpose(self, g, x: Spec):
        return apply(OnDiagonal(x.shape[-2], x.shape[-1], self.offset), g)

    def batch(self, size, args, mapped):
        return apply(self, *args)

    def lower(self, k, x):  # n * n and n more elements, in rows of n + 1: the first column
        *lead, rows, columns = x.shape
        row, column, n = place(rows, columns, self.offset)
        whole = [(0, m, 1) for m in lead]
        square = k.slice(x, [*whole, (row, n, 1), (column, n, 1)])
        flat = k.pad(k.view(square, (*lead, n * n)), [*[(0, 0) for _ in lead], (0, n)], 0)
        skew = k.view(flat, (*lead, n, n + 1))
        return k.view(k.slice(skew, [*whole, (0, n, 1), (0, 1, 1)]), (*lead, n))

    @staticmethod
    def samples(rng):
        yield Diagonal(), rng.normal(size=(2, 3, 3))
        yield Diagonal(1), rng.normal(size=(2, 4))
        yield Diagonal(-2), rng.normal(size=(4, 3))
        yield Diagonal(5), rng.normal(size=(2, 3))
        yield Diagonal(), rng.normal(size=(0, 3))

    @staticmethod
    def refuses(rng):
        yield Diagonal(), rng.normal(size=3), "at least 2 axes"


@op
class OnDiagonal(Linear):
    """Matrices of zeros with x on a diagonal."""

    rows: int
    columns: int
    offset: int = 0

    def shape(self, x: Spec) -> Spec:
        n = place(self.rows, self.columns, self.offset)[2]
        if x.shape[-1:] != (n,):
            raise ShapeError(
                f"on_diagonal: diagonal {self.offset} of a matrix ({self.rows}, "
                f"{self.columns}) has {n} places; x has shape {x.shape}"
            )
        return x.with_shape((*x.shape[:-1], self.rows, self.columns))

    def forward(self, x):
        row, column, n = place(self.rows, self.columns, self.offset)
        out = np.zeros((*x.shape[:-1], self.rows, self.columns), x.dtype)
        out[..., np.arange(row, row + n), np.arange(column, column + n)] = x
        return out

    def transpose(self, g):
        return apply(Diagonal(self.offset), g)

    def batch(self, size, args, mapped):
        return apply(self, *args)

    def lower(self, k, x):
        *lead, n = x.shape
        row, column, _ = place(self.rows, self.columns, self.offset)
        whole, none = [(0, m, 1) for m in lead], [(0, 0) for _ in lead]
        skew = k.pad(k.view(x, (*lead, n, 1)), [*none, (0, 0), (0, n)], 0)
        flat = k.slice(k.view(skew, (*lead, n * (n + 1))), [*whole, (0, n * n, 1)])
        below, after = self.rows - row - n, self.columns - column - n
        return k.pad(k.view(flat, (*lead, n, n)), [*none, (row, below), (column, after)], 0)

    @staticmethod
    def samples(rng):
        yield OnDiagonal(3, 3), rng.normal(size=(2, 3))
        yield OnDiagonal(2, 4, 1), rng.normal(size=2)
        yield OnDiagonal(4, 3, -2), rng.normal(size=2)
        yield OnDiagonal(0, 3), rng.normal(size=0)

    @staticmethod
    def refuses(rng):
        yield OnDiagonal(3, 3, 1), rng.normal(size=3), "has 2 places"


@function
def diagonal(x: Any, /, *, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """The diagonals of matrices, as the last axis; `offset` counts towards the right."""
    x = lift(x)
    if x.ndim < 2:
        raise ShapeError(f"diagonal: needs at least 2 axes; got shape {x.shape}")
    a, b = (axis_index("diagonal", i, x.ndim) for i in (axis1, axis2))
    if a == b:
        raise ArgumentError(f"diagonal: axis1 {axis1} and axis2 {axis2} are the same axis")
    moved = shape.moveaxis(x, (a, b), (-2, -1))
    return apply(Diagonal(_offset("diagonal", "offset", offset, moved.shape)), moved)


def _offset(who: str, name: str, value: Any, of: tuple[int, ...]) -> int:
    """Which diagonal of a matrix; beyond its corners all are alike, and empty."""
    return max(-of[-2], min(options.integer(who, name, value), of[-1]))


@function
def diag(x: Any, /, *, offset: int = 0) -> Tensor:
    """The diagonal of a matrix; or the matrix of zeros with the vector x on its diagonal."""
    x = lift(x)
    if x.ndim == 2:
        return apply(Diagonal(_offset("diag", "offset", offset, x.shape)), x)
    if x.ndim != 1:
        raise ShapeError(
            f"diag: needs a vector or a matrix; got shape {x.shape}", hint="rg.diagonal(x)"
        )
    offset = options.integer("diag", "offset", offset)
    n = x.shape[0] + abs(offset)
    options.possible("diag", (n, n))
    return apply(OnDiagonal(n, n, offset), x)


@function
def trace(
    x: Any, /, *, offset: int = 0, axis1: int = -2, axis2: int = -1, dtype: Any = None
) -> Tensor:
    """The sums of the diagonals of matrices."""
    found = diagonal(x, offset=offset, axis1=axis1, axis2=axis2)
    return reduce.sum(found, axis=-1, dtype=dtype)


@function
def tril(x: Any, /, *, k: int = 0) -> Tensor:
    """Matrices with zeros above diagonal k."""
    return _triangle("tril", x, k, lambda rows, columns, k: np.tri(rows, columns, k, bool))


@function
def triu(x: Any, /, *, k: int = 0) -> Tensor:
    """Matrices with zeros below diagonal k."""
    return _triangle("triu", x, k, lambda rows, columns, k: ~np.tri(rows, columns, k - 1, bool))


def _triangle(who: str, x: Any, k: Any, mask: Any) -> Tensor:
    x = lift(x)
    if x.ndim < 2:
        raise ShapeError(f"{who}: needs at least 2 axes; got shape {x.shape}")
    zero = create.zeros((), dtype=x.dtype)
    k = _offset(who, "k", k, x.shape)
    return select.where(lift(mask(*x.shape[-2:], k)), x, zero)
