"""Along an axis, by integer indices: gather and its transpose. Out of range is an error."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, BoundsError, DtypeError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Linear, Op, front, function, op
from retrograd.core.spec import Spec, axis_index, broadcast_shapes
from retrograd.core.tensor import Tensor
from retrograd.ops import index, rounding, rows, select, shape, slices

__all__ = ["embedding", "gather", "take", "take_along_axis"]


def in_bounds(
    who: str, indices: np.ndarray, length: int, *, axis: int | None = None
) -> np.ndarray:
    """Indices counted from the front, or a BoundsError that names the first bad one."""
    integers(who, indices)
    if not indices.size:
        return indices.astype(np.int64, copy=False)
    low, high = indices.min(), indices.max()
    if low < -length or high >= length:
        bad = indices[(indices < -length) | (indices >= length)].flat[0]
        where = "an axis" if axis is None else f"axis {axis}"
        raise BoundsError(f"{who}: index {bad} is outside {where} of length {length}")
    indices = indices.astype(np.int64, copy=False)  # int8 and length 300 do not add
    return indices if low >= 0 else np.where(indices < 0, indices + length, indices)


def integers(who: str, indices: Any) -> None:
    """Refuse indices that are not integers."""
    if indices.dtype.kind not in "iu":
        raise DtypeError(f"{who}: indices must be integers; got {indices.dtype}")


def along(who: str, x: Spec, indices: Spec, axis: int) -> None:
    """Refuse indices that do not fit x in the axes beside `axis`."""
    integers(who, indices)
    beside = [n == m or i == axis for i, (n, m) in enumerate(zip(x.shape, indices.shape))]  # noqa: B905
    if x.ndim != indices.ndim or not all(beside):
        raise ShapeError(
            f"{who}: indices {indices.shape} must have the shape of x {x.shape} beside axis "
            f"{axis}"
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
        indices = in_bounds("take_along_axis", indices, x.shape[self.axis], axis=self.axis)
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
        yield TakeAlongAxis(0), rng.normal(size=3), np.array([0.0]), "must be integers"
        yield TakeAlongAxis(1), rng.normal(size=(2, 3)), np.zeros((3, 1), int), "beside axis 1"


@function
def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Tensor:
    """Elements of x chosen along `axis`; beside it, x and indices broadcast."""
    x, indices = lift(x), lift(indices)
    axis = axis_index("take_along_axis", axis, x.ndim)
    if x.ndim == indices.ndim and x.shape != indices.shape:
        there, wanted = _beside(x.shape, axis), _beside(indices.shape, axis)
        to = broadcast_shapes("take_along_axis", x=there, indices=wanted)
        x = shape.broadcast_to(x, (*to[:axis], x.shape[axis], *to[axis + 1 :]))
        indices = shape.broadcast_to(
            indices, (*to[:axis], indices.shape[axis], *to[axis + 1 :])
        )
    return apply(TakeAlongAxis(axis), x, indices)


def _beside(shape_: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape_[:axis], 1, *shape_[axis + 1 :])


@op
class AddAlongAxis(Linear):
    """Zeros of length `length` along an axis, with x added at `indices`: duplicates sum."""

    axis: int
    length: int
    fixed = ("indices",)

    def shape(self, x: Spec, indices: Spec) -> Spec:
        along("scatter_add", x, indices, self.axis)
        if x.shape != indices.shape:
            raise ShapeError(
                f"scatter_add: x {x.shape} and indices {indices.shape} must have one shape"
            )
        return x.with_shape((*x.shape[: self.axis], self.length, *x.shape[self.axis + 1 :]))

    def forward(self, x, indices):
        to = (*x.shape[: self.axis], self.length, *x.shape[self.axis + 1 :])
        where = rows.flat_along("scatter_add", indices, to, self.axis)
        values = np.broadcast_to(x, indices.shape).reshape(-1, 1)
        return rows.summed(np.prod(to, dtype=int), where.reshape(-1), values).reshape(to)

    def transpose(self, g, indices):
        return apply(TakeAlongAxis(self.axis), g, indices)

    def batch(self, size, args, mapped):
        return apply(AddAlongAxis(self.axis + 1, self.length), *front(size, args, mapped))

    def lower(self, k, x, indices, out):
        k.scatter_add(x, indices, out, axis=self.axis)

    @staticmethod
    def samples(rng):
        yield (
            AddAlongAxis(1, 3),
            rng.normal(size=(2, 4)),
            np.array([[0, 0, 2, 1], [1, 1, 1, 0]]),
        )
        yield AddAlongAxis(0, 2), rng.normal(size=(0, 3)), np.zeros((0, 3), np.int64)

    @staticmethod
    def refuses(rng):
        yield AddAlongAxis(0, 3), rng.normal(size=2), np.array([0, 3]), "index 3 is outside"


@function
def gather(x: Any, indices: Any, /, *, axis: int) -> Tensor:
    """out[i, j, ..] = x[i, indices[i, j, ..], ..] for axis 1: coordinates, as torch.gather.

    Indices may be smaller than x in the axes beside `axis`; they do not broadcast.
    """
    x, indices = lift(x), lift(indices)
    axis = axis_index("gather", axis, x.ndim)
    small = [n <= m or i == axis for i, (n, m) in enumerate(zip(indices.shape, x.shape))]  # noqa: B905
    if x.ndim != indices.ndim or not all(small):
        raise ShapeError(
            f"gather: indices {indices.shape} must have the axes of x {x.shape}, none longer "
            f"but axis {axis}"
        )
    sizes = (*indices.shape[:axis], x.shape[axis], *indices.shape[axis + 1 :])
    part = slices.part(x, tuple((0, n, 1) for n in sizes))
    return apply(TakeAlongAxis(axis), part, indices)


@function
def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Tensor:
    """The parts of x at `indices` along `axis`, which may be left out for one axis only.

    Indices may have any number of axes, which stand in the result where `axis` stood.
    """
    x = lift(x)
    if axis is None and x.ndim != 1:
        raise ArgumentError(f"take: x {x.shape} needs an axis to take from", hint="axis=0")
    axis = axis_index("take", 0 if axis is None else axis, x.ndim)
    return apply(index.Index((axis,), axis), x, index.coordinates("take", [indices]))


@op
class RowNumbers(Op):
    """Integers as they are, if each is from 0 to length - 1: negative ones are refused."""

    length: int
    no_derivative = "its result is an index, constant almost everywhere"

    def shape(self, indices: Spec) -> Spec:
        integers("embedding", indices)
        return indices

    def forward(self, indices):
        integers("embedding", indices)
        bad = indices[(indices < 0) | (indices >= self.length)]
        if bad.size:
            raise BoundsError(
                f"embedding: index {bad[0]} is outside the {self.length} rows of weight; "
                f"it must be from 0 to {self.length - 1}"
            )
        return indices

    def batch(self, size, args, mapped):
        return apply(self, *args)

    def lower(self, k, indices):
        def row(i):
            i = k.cast(i, dt.int64)
            return k.checked(k.where(i < 0, self.length, i), self.length)

        return k.map(row, indices.dtype, indices)

    @staticmethod
    def samples(rng):
        yield RowNumbers(5), np.array([[0, 4], [1, 1]])
        yield RowNumbers(5), np.array(3)

    @staticmethod
    def refuses(rng):
        yield RowNumbers(5), np.array([5]), "index 5 is outside the 5 rows"
        yield RowNumbers(5), np.array([0, -1]), "index -1 is outside the 5 rows"
        yield RowNumbers(5), np.array([0.0]), "must be integers"


@function
def embedding(indices: Any, weight: Any, /, *, padding_idx: int | None = None) -> Tensor:
    """The rows of `weight` at `indices`; in the gradient, equal indices are summed.

    Indices run from 0; a negative one is an error. The row `padding_idx` gets no gradient.
    """
    weight = lift(weight)
    if weight.ndim != 2:
        raise ShapeError(f"embedding: weight must be (rows, width); got {weight.shape}")
    ids = apply(RowNumbers(weight.shape[0]), lift(indices))
    out = take(weight, ids, axis=0)
    if padding_idx is None:
        return out
    row = axis_index("embedding", padding_idx, weight.shape[0], name="padding_idx")
    mask = shape.reshape(ids == row, (*ids.shape, 1))
    return select.where(mask, rounding.stop_gradient(out), out)
