"""Coordinates and classes: what is spread out over new axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, BoundsError, DtypeError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Op, function, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, create, gather, options, select, shape

__all__ = ["meshgrid", "one_hot"]


@function
def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Tensor]:
    """The coordinates of a grid whose axes are the arrays: one tensor for each.

    With indexing "ij" the axes come in the order of the arrays; with "xy" the first two
    are exchanged, as in pictures.
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid: indexing must be 'xy' or 'ij'; got {indexing!r}")
    xs = [shape.atleast_1d(x) for x in arrays]
    if any(x.ndim != 1 for x in xs):
        raise ShapeError(f"meshgrid: arrays must have one axis; got {[x.shape for x in xs]}")
    order = list(range(len(xs)))
    if indexing == "xy":
        order[:2] = order[:2][::-1]
    grid = tuple(xs[i].shape[0] for i in order)
    apart = [
        shape.reshape(x, tuple(x.shape[0] if i == j else 1 for j in order))
        for i, x in enumerate(xs)
    ]
    return [shape.broadcast_to(x, grid) for x in apart]


def triangle(n: int, k: int = 0) -> Tensor:
    """A square of bool: True on diagonal k and below it."""
    return shape.reshape(create.arange(k, n + k), (n, 1)) >= create.arange(n)


@op
class OneHot(Op):
    """1 at the place that each index names along a new last axis, 0 elsewhere."""

    classes: int
    dtype: np.dtype
    no_derivative = "its input is an index"

    def shape(self, indices: Spec) -> Spec:
        if indices.dtype.kind not in "iu":
            raise DtypeError(f"one_hot: indices must be integers; got {indices.dtype}")
        return Spec((*indices.shape, self.classes), self.dtype)

    def forward(self, indices):
        if indices.dtype.kind not in "iu":
            raise DtypeError(f"one_hot: indices must be integers; got {indices.dtype}")
        bad = indices[(indices < 0) | (indices >= self.classes)]
        if bad.size:
            raise BoundsError(f"one_hot: index {bad[0]} is not from 0 to {self.classes - 1}")
        out = np.zeros((indices.size, self.classes), self.dtype)
        out[np.arange(indices.size), indices.reshape(-1)] = 1
        return out.reshape((*indices.shape, self.classes))

    def batch(self, size, args, mapped):
        return apply(self, *args)

    def expand(self, indices):  # a negative index must not count from the end
        indices = cast.astype(indices, dt.int64)
        known = select.where(indices < 0, self.classes, indices)
        where = shape.reshape(known, (*indices.shape, 1))
        ones = create.ones(where.shape, dtype=self.dtype)
        return apply(gather.AddAlongAxis(indices.ndim, self.classes), ones, where)

    @staticmethod
    def samples(rng):
        yield OneHot(4, dt.float64), np.array([[0, 3], [2, 2], [1, 0]])
        yield OneHot(2, dt.bool), np.array(1)
        yield OneHot(3, dt.float64), np.zeros((0, 2), np.int64)

    @staticmethod
    def refuses(rng):
        yield OneHot(3, dt.float64), np.array([0, 3]), "index 3 is not from 0 to 2"
        yield OneHot(3, dt.float64), np.array([-1]), "index -1 is not from 0 to 2"
        yield OneHot(3, dt.float64), rng.normal(size=2), "must be integers"


@function
def one_hot(indices: Any, num_classes: int, /, *, dtype: Any = None) -> Tensor:
    """1 at the place that each index names along a new last axis, 0 elsewhere."""
    wanted = dt.float32 if dtype is None else dt.as_dtype("one_hot", dtype)
    classes = options.integer("one_hot", "num_classes", num_classes, least=0)
    indices = lift(indices)
    options.possible("one_hot", (*indices.shape, classes))
    return apply(OneHot(classes, wanted), indices)
