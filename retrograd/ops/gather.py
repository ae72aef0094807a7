"""Along an axis, by integer indices: gather and its transpose. Out of range is an error."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.errors import BoundsError, DtypeError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Linear, front, function, op
from retrograd.core.spec import Spec, axis_index
from retrograd.core.tensor import Tensor


def in_bounds(who: str, indices: np.ndarray, length: int) -> np.ndarray:
    """Indices counted from the front, or a BoundsError that names the first bad one."""
    if not indices.size:
        return indices
    low, high = indices.min(), indices.max()
    if low < -length or high >= length:
        bad = high if high >= length else low
        raise BoundsError(f"{who}: index {bad} is outside an axis of length {length}")
    return np.where(indices < 0, indices + length, indices) if low < 0 else indices


def along(who: str, x: Spec, indices: Spec, axis: int) -> None:
    """Refuse indices that do not fit x in the axes beside `axis`."""
    if indices.dtype.kind not in "iu":
        raise DtypeError(f"{who}: indices must be integers; got {indices.dtype}")
    beside = [n == m or i == axis for i, (n, m) in enumerate(zip(x.shape, indices.shape))]  # noqa: B905
    if x.ndim != indices.ndim or not all(beside):
        raise ShapeError(
            f"{who}: indices {indices.shape} must have the shape of x {x.shape} beside axis {axis}"
        )


@op
class TakeAlongAxis(Linear):
    """out[.., i, ..] = x[.., indices[.., i, ..], ..] along one axis."""

    axis: int
    fixed = ("indices",)

    def shape(self, x: Spec, indices: Spec) -> Spec:
        along("take_along_axis", x, indices, self.axis)
        return x.with_shape(indices.shape)

    def forward(self, x, indices):
        indices = in_bounds("take_along_axis", indices, x.shape[self.axis])
        return np.take_along_axis(x, indices, self.axis)

    def transpose(self, g, x: Spec, indices):
        return apply(AddAlongAxis(self.axis, x.shape[self.axis]), g, indices)

    def batch(self, size, args, mapped):
        return apply(TakeAlongAxis(self.axis + 1), *front(size, args, mapped))

    def lower(self, k, x, indices, out):
        k.gather(x, indices, out, axis=self.axis)

    @staticmethod
    def samples(rng):
        yield TakeAlongAxis(1), rng.normal(size=(2, 3)), np.array([[0, 0, 2, -1], [1, 1, 1, 0]])
        yield TakeAlongAxis(0), rng.normal(size=(3,)), np.zeros((0,), np.int64)

    @staticmethod
    def refuses(rng):
        yield TakeAlongAxis(0), rng.normal(size=3), np.array([3]), "index 3 is outside"
        yield TakeAlongAxis(1), rng.normal(size=(2, 3)), np.zeros((3, 1), int), "beside axis 1"


@function
def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Tensor:
    """Elements of x chosen along `axis`; indices have x's shape beside it."""
    x, indices = lift(x), lift(indices)
    return apply(TakeAlongAxis(axis_index("take_along_axis", axis, x.ndim)), x, indices)


@op
class AddAlongAxis(Linear):
    """Zeros of length `length` along an axis, with x added at `indices`: duplicates sum."""

    axis: int
    length: int
    fixed = ("indices",)

    def shape(self, x: Spec, indices: Spec) -> Spec:
        along("add_along_axis", x, indices, self.axis)
        return x.with_shape((*x.shape[: self.axis], self.length, *x.shape[self.axis + 1 :]))

    def forward(self, x, indices):
        indices = in_bounds("add_along_axis", indices, self.length)
        out = np.zeros((*x.shape[: self.axis], self.length, *x.shape[self.axis + 1 :]), x.dtype)
        where = list(np.ogrid[tuple(slice(n) for n in x.shape)])
        where[self.axis] = indices
        np.add.at(out, tuple(where), x)
        return out

    def transpose(self, g, indices):
        return apply(TakeAlongAxis(self.axis), g, indices)

    def batch(self, size, args, mapped):
        return apply(AddAlongAxis(self.axis + 1, self.length), *front(size, args, mapped))

    def lower(self, k, x, indices, out):
        k.scatter_add(x, indices, out, axis=self.axis)

    @staticmethod
    def samples(rng):
        yield AddAlongAxis(1, 3), rng.normal(size=(2, 4)), np.array([[0, 0, 2, 1], [1, 1, 1, 0]])
