"""x[index] with integer arrays, and its transpose, which sums what comes twice.

`Index` takes coordinates: one integer tensor (k, ...) for k axes of x. How an expression
such as x[1:, None, [0, 2], ..., mask] becomes slices and coordinates is in `getitem`.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import BoundsError, ShapeError
from retrograd.core.interpret import apply, constant, lift
from retrograd.core.op import Linear, front, op
from retrograd.core.spec import Spec, broadcast_shapes
from retrograd.core.tensor import Box, Tensor
from retrograd.ops import cast, gather, join, rows, shape


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """The order that undoes a reordering of axes."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


class Layout:
    """Where axes go: the first `batch_axes` stay, then the indexed ones, then the rest.

    In that order x is a table: a row for each place that coordinates can name.
    """

    axes: tuple[int, ...]
    place: int
    batch_axes: int

    def gathered(self, ndim: int) -> tuple[int, ...]:
        """The order of x's axes in which it is a table."""
        head = (*range(self.batch_axes), *self.axes)
        return (*head, *(a for a in range(ndim) if a not in head))

    def placed(self, ndim: int, count: int) -> tuple[int, ...]:
        """The order that brings (batch, `count` index axes, rest) to the result's."""
        index = range(self.batch_axes, self.batch_axes + count)
        rest = [a for a in range(ndim) if a not in index]
        return (*rest[: self.place], *index, *rest[self.place :])

    def indexed(self, who: str, x: tuple[int, ...], indices: Spec) -> tuple[int, ...]:
        """The shape of the result; refuses indices that do not fit x."""
        gather.integers(who, indices)
        n = self.batch_axes
        if indices.shape[:n] != x[:n] or indices.shape[n : n + 1] != (len(self.axes),):
            raise ShapeError(
                f"{who}: indices {indices.shape} must begin with {(*x[:n], len(self.axes))}"
            )
        rest = [m for a, m in enumerate(x) if a not in self.axes]
        return (*rest[: self.place], *indices.shape[n + 1 :], *rest[self.place :])

    def sizes(self, x: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The axes of the table's rows, and of its columns."""
        order = self.gathered(len(x))
        head = self.batch_axes + len(self.axes)
        return tuple(x[a] for a in order[:head]), tuple(x[a] for a in order[head:])

    def table(self, x: Any) -> Tensor:
        """x as (rows, columns)."""
        lead, rest = self.sizes(x.shape)
        return shape.reshape(
            shape.permute_dims(x, self.gathered(x.ndim)), (prod(lead), prod(rest))
        )

    def untable(self, table: Any, x: tuple[int, ...]) -> Tensor:
        """A table as x."""
        lead, rest = self.sizes(x)
        return shape.permute_dims(
            shape.reshape(table, lead + rest), inverse(self.gathered(len(x)))
        )

    def strip(self, out: Any, count: int) -> Tensor:
        """A result, with `count` index axes, as (coordinates, columns)."""
        moved = shape.permute_dims(out, inverse(self.placed(out.ndim, count)))
        head = self.batch_axes + count
        return shape.reshape(moved, (prod(moved.shape[:head]), prod(moved.shape[head:])))

    def unstrip(self, strip: Any, out: tuple[int, ...], count: int) -> Tensor:
        """(coordinates, columns) as a result of shape `out`."""
        order = self.placed(len(out), count)
        return shape.permute_dims(
            shape.reshape(strip, tuple(out[a] for a in inverse(order))), order
        )

    def numbers(self, x: tuple[int, ...], indices: Any) -> Tensor:
        """The row of the table that each coordinate names, all in one axis."""
        n = self.batch_axes
        moved = shape.moveaxis(indices, n, 0)
        if n:
            own = np.indices(x[:n]).reshape(n, *x[:n], *(1,) * (moved.ndim - 1 - n))
            moved = join.concat([shape.broadcast_to(lift(own), (n, *moved.shape[1:])), moved])
        return apply(rows.Targets(self.sizes(x)[0]), moved)


@op
class Index(Layout, Linear):
    """x at integer coordinates (k, ...) in k of its axes; they stand at `place` instead.

    The first `batch_axes` axes of x and indices go together.
    """

    axes: tuple[int, ...]
    place: int
    batch_axes: int = 0
    fixed = ("indices",)

    def shape(self, x: Spec, indices: Spec) -> Spec:
        return x.with_shape(self.indexed("index", x.shape, indices))

    def forward(self, x, indices):
        n, count = self.batch_axes, indices.ndim - 1
        if n or len(self.axes) > 1:
            keys = keys_of(self, x.shape, indices)
            out = np.asarray(x.transpose(self.gathered(x.ndim))[keys])
            return out.transpose(self.placed(out.ndim, count - n))
        (axis,) = self.axes  # np.take is the fastest way
        where = gather.in_bounds("index", indices[0], x.shape[axis])
        out = np.asarray(np.take(x, where, axis))
        if axis == self.place:
            return out
        return np.moveaxis(
            out, range(axis, axis + count), range(self.place, self.place + count)
        )

    def transpose(self, g, x: Spec, indices):
        return apply(IndexAdd(self.axes, self.place, x.shape, self.batch_axes), g, indices)

    def batch(self, size, args, mapped):
        x, indices = args
        along = (tuple(a + 1 for a in self.axes), self.place + 1)
        if self.batch_axes or all(mapped):
            return apply(Index(*along, self.batch_axes + 1), *front(size, args, mapped))
        if mapped[0]:
            return apply(Index(*along), x, indices)
        out = apply(self, x, shape.moveaxis(indices, 0, 1))
        return shape.moveaxis(out, self.place, 0)

    def expand(self, x, indices):
        out = self.indexed("index", x.shape, Spec(indices.shape, indices.dtype))
        table, targets = self.table(x), self.numbers(x.shape, indices)
        where = _columns(targets, table.shape[1])
        found = apply(gather.TakeAlongAxis(0), table, where)
        return self.unstrip(found, out, indices.ndim - 1 - self.batch_axes)

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(4, 3, 5))
        yield Index((1,), 1), x, np.array([[[0, 2], [-1, 0]]])
        yield Index((2,), 0), x, np.array([[4, 4, 1]])
        yield Index((0, 2), 0), x, np.array([[1, 1, -4], [0, 0, 3]])
        yield Index((0, 1), 1), x, np.array([[1], [2]])
        yield Index((1, 2), 1, 1), x, rng.integers(-3, 3, (4, 2, 3))
        yield Index((2,), 2, 1), x, rng.integers(0, 5, (4, 1, 2, 2))
        yield Index((0,), 0), rng.normal(size=3), np.array([1])
        yield Index((0,), 0), x[:, :0], np.array([[3, 0]])
        yield Index((0,), 0), rng.normal(size=3) + 1j * rng.normal(size=3), np.array([[2, 2]])

    @staticmethod
    def refuses(rng):
        yield (
            Index((0,), 0),
            rng.normal(size=3),
            np.array([[0, 3]]),
            "index 3 is outside an axis of length 3",
        )
        yield Index((0,), 0), rng.normal(size=3), np.array([[0.0]]), "must be integers"
        yield Index((0, 1), 0), rng.normal(size=(3, 3)), np.array([[0]]), "must begin with (2,)"


def keys_of(layout: Layout, x: tuple[int, ...], indices: np.ndarray) -> tuple[Any, ...]:
    """NumPy's index into a table: the batch's own coordinates, then the given ones."""
    n, count = layout.batch_axes, indices.ndim - 1
    keys = [np.arange(m).reshape(m, *(1,) * (count - 1 - i)) for i, m in enumerate(x[:n])]
    for i, axis in enumerate(layout.axes):
        own: Any = (*(slice(None),) * n, i, ...)
        where = indices[own]
        keys.append(gather.in_bounds("index", where, x[axis]))
    return tuple(keys)


@op
class IndexAdd(Layout, Linear):
    """Zeros in the shape `to` with x added at integer coordinates: what comes twice sums."""

    axes: tuple[int, ...]
    place: int
    to: tuple[int, ...]
    batch_axes: int = 0
    fixed = ("indices",)
    native = "row sums"

    def shape(self, x: Spec, indices: Spec) -> Spec:
        wanted = self.indexed("index_add", self.to, indices)
        if x.shape != wanted:
            raise ShapeError(f"index_add: x {x.shape} must have the shape {wanted}")
        return x.with_shape(self.to)

    def forward(self, x, indices):
        lead, rest = self.sizes(self.to)
        keys = np.broadcast_arrays(*keys_of(self, self.to, indices))
        targets = np.zeros(keys[0].shape, np.int64)
        for key, n in zip(keys, lead, strict=True):
            targets = targets * n + key
        count = indices.ndim - 1 - self.batch_axes
        values = x.transpose(inverse(self.placed(x.ndim, count)))
        values = values.reshape(targets.size, prod(rest))
        out = rows.summed(prod(lead), targets.reshape(-1), values)
        return out.reshape(lead + rest).transpose(inverse(self.gathered(len(self.to))))

    def transpose(self, g, indices):
        return apply(Index(self.axes, self.place, self.batch_axes), g, indices)

    def batch(self, size, args, mapped):
        x, indices = args
        axes, place, to = tuple(a + 1 for a in self.axes), self.place + 1, (size, *self.to)
        if self.batch_axes or mapped[1]:
            op = IndexAdd(axes, place, to, self.batch_axes + 1)
            return apply(op, *front(size, args, mapped))
        return apply(IndexAdd(axes, place, to), x, indices)

    def expand(self, x, indices):
        strip = self.strip(x, indices.ndim - 1 - self.batch_axes)
        targets = self.numbers(self.to, indices)
        adding = gather.AddAlongAxis(0, prod(self.sizes(self.to)[0]))
        where = _columns(targets, strip.shape[1])
        return self.untable(apply(adding, strip, where), self.to)

    @staticmethod
    def samples(rng):
        to = (4, 3, 5)
        yield IndexAdd((1,), 1, to), rng.normal(size=(4, 2, 5)), np.array([[2, 2]])
        yield (
            IndexAdd((0, 2), 0, to),
            rng.normal(size=(3, 3)),
            np.array([[1, 1, -4], [0, 0, 3]]),
        )
        yield (
            IndexAdd((2,), 2, to, 1),
            rng.normal(size=(4, 3, 2)),
            rng.integers(0, 5, (4, 1, 2)),
        )
        yield IndexAdd((0,), 0, (3,)), rng.normal(size=()), np.array([1])
        yield IndexAdd((0,), 0, (3, 40)), rng.normal(size=(50, 40)), rng.integers(0, 3, (1, 50))

    @staticmethod
    def refuses(rng):
        yield (
            IndexAdd((0,), 0, (3,)),
            np.ones(1),
            np.array([[-4]]),
            "index -4 is outside an axis",
        )
        yield IndexAdd((0,), 0, (3,)), np.ones(2), np.array([[0]]), "must have the shape (1,)"


def _columns(targets: Any, width: int) -> Tensor:
    """Row numbers, repeated for each column."""
    count = targets.shape[0]
    return shape.broadcast_to(shape.reshape(targets, (count, 1)), (count, width))


def rows_at(table: Any, targets: Any) -> Tensor:
    """The rows of a table at targets."""
    return apply(Index((0,), 0), table, shape.reshape(targets, (1, *targets.shape)))


def rows_added(length: int, values: Any, targets: Any) -> Tensor:
    """A table of `length` rows with values added at targets."""
    to = (length, values.shape[1])
    return apply(IndexAdd((0,), 0, to), values, shape.reshape(targets, (1, *targets.shape)))


def coordinates(who: str, arrays: list[Any]) -> Tensor:
    """Integer arrays, broadcast together, as one tensor with as many rows."""
    arrays = [a if isinstance(a, (Tensor, np.ndarray)) else lift(a) for a in arrays]
    if len(arrays) == 1:
        a = lift(arrays[0])
        return shape.reshape(a, (1, *a.shape))
    to = broadcast_shapes(who, **{f"index {i}": a.shape for i, a in enumerate(arrays)})
    for a in arrays:
        if a.dtype == dt.uint64 and not isinstance(a, Box):
            _signed(who, a.array if isinstance(a, Tensor) else a)
    if not any(isinstance(a, Tensor) for a in arrays):
        return constant(
            np.stack(np.broadcast_arrays(*arrays), dtype=np.int64, casting="unsafe")
        )
    each = [shape.broadcast_to(cast.astype(lift(a), dt.int64), to) for a in arrays]
    return join.stack(each)


def _signed(who: str, indices: np.ndarray) -> None:
    """Refuse what would become a negative index in int64."""
    if indices.size and indices.max() >= 2**63:
        raise BoundsError(f"{who}: index {indices.max()} is outside every axis")
