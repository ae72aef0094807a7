"""Updates of the rows of a table, by row numbers: what every scatter comes down to.

A table is (n, width). Rows are written, multiplied or compared at `targets`, integers that
may repeat. The order is fixed by the arguments alone, so the same call gives the same bits.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import DtypeError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Op, front, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import gather, shape

NARROW = 32  # columns up to which adding element by element is the fastest
FEW = 32  # repetitions up to which a row is added to in rounds


def accumulate(ufunc: Any, out: np.ndarray, targets: np.ndarray, values: np.ndarray) -> None:
    """out[t] = ufunc(out[t], values[i]), t = targets[i], for all i; out is row-major."""
    width = out.shape[1]
    if width <= NARROW or len(targets) <= FEW:
        flat = (
            targets if width == 1 else (targets[:, None] * width + np.arange(width)).reshape(-1)
        )
        ufunc.at(out.reshape(-1), flat, values.reshape(-1))
        return
    order = np.argsort(targets, kind="stable")
    rows = targets[order]
    start = np.flatnonzero(np.concatenate(([True], rows[1:] != rows[:-1])))
    count = np.diff(np.append(start, len(rows)))
    for a, n in zip(start[count > FEW].tolist(), count[count > FEW].tolist(), strict=True):
        out[rows[a]] = ufunc(out[rows[a]], ufunc.reduce(values[order[a : a + n]], axis=0))
    start, count = start[count <= FEW], count[count <= FEW]
    for nth in range(FEW):  # the nth of each row's values: no row comes twice in a round
        start, count = start[count > nth], count[count > nth]
        if not len(start):
            break
        out[rows[start]] = ufunc(out[rows[start]], values[order[start + nth]])


def summed(length: int, targets: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Zeros (length, width) with values added at targets; half precision sums in float32."""
    wide = dt.float32 if values.dtype in dt.HALF else values.dtype
    out = np.zeros((length, values.shape[1]), wide)
    accumulate(np.add, out, targets, values)
    return out.astype(values.dtype, copy=False)


def flat(who: str, indices: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """Coordinates (k, ...) in a table of axes `sizes` as row numbers; each is checked."""
    out = np.zeros(indices.shape[1:], np.int64)
    for i, n in enumerate(sizes):
        out = out * n + gather.in_bounds(who, indices[i], n)
    return out


def flat_along(
    who: str, indices: np.ndarray, to: tuple[int, ...], axis: int, batch: int = 0
) -> np.ndarray:
    """The place in a tensor of shape `to` that each element of `indices` names.

    An element's own coordinates hold in the axes beside `axis`; the first `batch` axes of
    indices are not coordinates.
    """
    out = gather.in_bounds(who, indices, to[axis], axis=axis) * prod(to[axis + 1 :])
    for a, n in enumerate(indices.shape[batch:]):
        if a != axis:
            steps = np.arange(n) * prod(to[a + 1 :])
            out = out + steps.reshape(n, *(1,) * (len(to) - 1 - a))
    return out


INDEX = "its result is an index, constant almost everywhere"


@op
class Targets(Op):
    """Coordinates (k, ...) in axes of lengths `sizes`, as row numbers in one long axis."""

    sizes: tuple[int, ...]
    no_derivative = INDEX

    def shape(self, indices: Spec) -> Spec:
        gather.integers("targets", indices)
        if indices.shape[:1] != (len(self.sizes),):
            raise ShapeError(
                f"targets: indices {indices.shape} must have length {len(self.sizes)} in front"
            )
        return Spec((prod(indices.shape[1:]),), dt.int64)

    def forward(self, indices):
        return flat("index", indices, self.sizes).reshape(-1)

    def batch(self, size, args, mapped):
        (indices,) = args
        out = apply(self, shape.moveaxis(indices, 0, 1))
        return shape.reshape(out, (size, prod(indices.shape[2:])))

    def lower(self, k, indices):
        count, places = len(self.sizes), prod(indices.shape[1:])
        each = k.view(indices, (count, places))
        own = [
            k.view(k.slice(each, ((i, 1, 1), (0, places, 1))), (places,)) for i in range(count)
        ]

        def row(zero, *coordinates):
            for i, n in zip(coordinates, self.sizes, strict=True):
                zero = zero * n + k.checked(i, n)
            return zero

        start = k.broadcast(k.literal(np.zeros((), dt.int64)), (places,))
        return k.map(row, dt.int64, start, *own)

    @staticmethod
    def samples(rng):
        yield Targets((3, 4)), np.array([[0, 2, -1], [1, -3, 2]])
        yield Targets((3,)), np.array([[[0, 2], [1, 1]]])
        yield Targets((3,)), np.array([1])

    @staticmethod
    def refuses(rng):
        yield Targets((3, 4)), np.array([[0], [4]]), "index 4 is outside an axis of length 4"
        yield Targets((3,)), np.array([[0.5]]), "must be integers"


@op
class TargetsAlong(Op):
    """Indices along one axis of a tensor of shape `to`, as places in its flat order."""

    to: tuple[int, ...]
    axis: int
    batch_axes: int = 0
    no_derivative = INDEX

    def shape(self, indices: Spec) -> Spec:
        lead, own = indices.shape[: self.batch_axes], indices.shape[self.batch_axes :]
        check_along("scatter", indices.with_shape(own), self.to, self.axis)
        return Spec((*lead, prod(own)), dt.int64)

    def forward(self, indices):
        out = self.shape(Spec(indices.shape, indices.dtype))
        where = flat_along("scatter", indices, self.to, self.axis, self.batch_axes)
        return where.reshape(out.shape)

    def batch(self, size, args, mapped):
        return apply(TargetsAlong(self.to, self.axis, self.batch_axes + 1), *args)

    def lower(self, k, indices):
        lead, own = indices.shape[: self.batch_axes], indices.shape[self.batch_axes :]
        beside = [a for a in range(len(own)) if a != self.axis]
        steps = [prod(self.to[a + 1 :]) for a in beside]
        places = [k.view(k.iota(own[a], dt.int64), _along(len(own), a, own[a])) for a in beside]

        def place(i, *others):
            out = k.checked(i, self.to[self.axis]) * prod(self.to[self.axis + 1 :])
            for other, step in zip(others, steps, strict=True):
                out = out + other * step
            return out

        return k.view(k.map(place, dt.int64, indices, *places), (*lead, prod(own)))

    @staticmethod
    def samples(rng):
        yield TargetsAlong((3, 4), 1), np.array([[0, -1, 2, 3, 3], [1, 1, 0, 2, -4]])
        yield TargetsAlong((3, 4), 0), np.array([[2, 0, 1]])
        yield TargetsAlong((3, 2, 2), 1), np.zeros((2, 0, 2), np.int64)

    @staticmethod
    def refuses(rng):
        yield TargetsAlong((3, 4), 1), np.array([[4]]), "index 4 is outside axis 1 of length 4"
        yield TargetsAlong((3, 4), 1), np.zeros((4, 1), int), "none longer but axis 1"
        yield TargetsAlong((3, 4), 1), np.zeros((3, 4)), "must be integers"


def check_along(who: str, indices: Any, to: tuple[int, ...], axis: int) -> None:
    """Refuse indices along an axis of a tensor of shape `to` that reach beyond its others."""
    gather.integers(who, indices)
    own = indices.shape
    small = all(n <= m or i == axis for i, (n, m) in enumerate(zip(own, to)))  # noqa: B905
    if len(own) != len(to) or not small:
        raise ShapeError(
            f"{who}: indices {own} must have the axes of x {to}, none longer but axis {axis}"
        )


def _along(ndim: int, axis: int, length: int) -> tuple[int, ...]:
    """The shape of one axis among others of length 1."""
    return tuple(length if a == axis else 1 for a in range(ndim))


def check(who: str, targets: Spec, *tables: Spec) -> None:
    """Refuse tables of different widths, and targets that are not one for each row."""
    gather.integers(who, targets)
    widths = {t.shape[1:] for t in tables}
    if len(widths) > 1 or any(t.ndim != 2 for t in tables):
        raise ShapeError(f"{who}: tables must be (n, width), one width for all")
    if targets.ndim != 1:
        raise DtypeError(f"{who}: targets must have one axis; got shape {targets.shape}")


class Rows(Op):
    """For ops on (tables..., targets): many at once are one wide or one long table."""

    def many(self, size: int) -> Any:
        """This op for `size` tables below each other."""
        return self

    def span(self, length: int) -> int:
        """How many rows targets may point to, if the first table has `length`."""
        return length

    def batch(self, size, args, mapped):
        one = self.shape(
            *(Spec(a.shape[m:], a.dtype) for a, m in zip(args, mapped, strict=True))
        )
        *tables, targets = args
        tables = front(size, tables, mapped[:-1])
        if not mapped[-1]:  # side by side: the targets are the same
            out = apply(self, *(_wide(t) for t in tables), targets)
            out = shape.reshape(out, (one.shape[0], size, one.shape[1]))
            return shape.moveaxis(out, 1, 0)
        step = self.span(tables[0].shape[1])
        targets = targets + lift((np.arange(size) * step).reshape(size, 1))
        targets = shape.reshape(targets, (size * targets.shape[1],))
        long = (shape.reshape(t, (size * t.shape[1], t.shape[2])) for t in tables)
        return shape.reshape(apply(self.many(size), *long, targets), (size, *one.shape))


def _wide(table: Any) -> Tensor:
    size, n, width = table.shape
    return shape.reshape(shape.moveaxis(table, 0, 1), (n, size * width))
