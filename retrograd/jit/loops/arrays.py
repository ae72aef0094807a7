"""Arrays as functions of an index: elementwise ops and movements, without any memory.

An Array has a shape, a dtype and `at`, which gives the number at an index as an expression.
Movement only rewrites the index, so chains of it cost nothing until something is stored.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from retrograd.jit.loops.expr import apply, load, number, place
from retrograd.jit.loops.index import Ix, flat, unflat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from retrograd.jit.loops.expr import Buffer, Expr

__all__ = [
    "Array",
    "broadcast",
    "concat",
    "flip",
    "guarded",
    "pad",
    "permute",
    "stored",
    "view",
]

Index = tuple[Ix, ...]


class Array:
    """What `lower` sees of an operand; loops index it by their steps."""

    __slots__ = ("at", "dtype", "shape")

    def __init__(
        self, shape: Sequence[int], dtype: np.dtype, at: Callable[[Index], Expr]
    ) -> None:
        self.shape, self.dtype, self.at = tuple(shape), dtype, at

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __getitem__(self, step: Any) -> Expr:
        return step.read(self)

    def moved(self, shape: Sequence[int], source: Callable[[Index], Index]) -> Array:
        """Another shape, whose elements are found in this array at source(index)."""
        return Array(shape, self.dtype, lambda index: self.at(source(index)))


def stored(table: dict, buffer: Buffer) -> Array:
    """The elements of a buffer."""
    return Array(
        buffer.shape,
        buffer.dtype,
        lambda index: load(table, buffer, flat(index, buffer.shape)),
    )


def stretched(x: Array, index: Index) -> Expr:
    """x at an index of a shape that it broadcasts to."""
    tail = index[len(index) - x.ndim :]
    return x.at(tuple(Ix() if n == 1 else i for i, n in zip(tail, x.shape, strict=True)))


def broadcast(x: Array, shape: Sequence[int]) -> Array:
    """Repeated to `shape`."""
    return Array(shape, x.dtype, lambda index: stretched(x, index))


def view(x: Array, shape: Sequence[int]) -> Array:
    """The elements in row-major order, in another shape."""
    return x.moved(shape, lambda index: unflat(flat(index, shape), x.shape))


def permute(x: Array, axes: Sequence[int]) -> Array:
    """The axes in another order."""

    def source(index: Index) -> Index:
        found = [Ix()] * len(axes)
        for i, a in zip(index, axes, strict=True):
            found[a] = i
        return tuple(found)

    return x.moved([x.shape[a] for a in axes], source)


def sliced(x: Array, ranges: Sequence[tuple[int, int, int]]) -> Array:
    """(start, count, step) for each axis."""

    def source(index: Index) -> Index:
        return tuple(i * r[2] + r[0] for i, r in zip(index, ranges, strict=True))

    return x.moved([n for _, n, _ in ranges], source) if ranges else x


def flip(x: Array, axes: Sequence[int]) -> Array:
    """Backwards along the axes."""
    ranges = [(n - 1, n, -1) if a in axes else (0, n, 1) for a, n in enumerate(x.shape)]
    return sliced(x, ranges)


def windows(x: Array, axis: int, size: int, step: int, dilation: int) -> Array:
    """Windows along an axis; their places are a new last axis."""
    count = (x.shape[axis] - dilation * (size - 1) - 1) // step + 1
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :], size)

    def source(index: Index) -> Index:
        at = index[axis] * step + index[-1] * dilation
        return (*index[:axis], at, *index[axis + 1 : -1])

    return x.moved(shape, source)


def pad(table: dict, x: Array, widths: Sequence[tuple[int, int]], value: Any) -> Array:
    """`value` put before and after along each axis."""
    shape = [n + low + high for n, (low, high) in zip(x.shape, widths, strict=True)]

    def at(index: Index) -> Expr:
        source = tuple(i - low for i, (low, _) in zip(index, widths, strict=True))
        outside = number(table, value, x.dtype)
        return guarded(table, source, x.shape, lambda: x.at(source), outside)

    return Array(shape, x.dtype, at)


def guarded(
    table: dict, index: Index, shape: Sequence[int], inner: Callable[[], Expr], outside: Expr
) -> Expr:
    """inner() where the index is inside the shape, else `outside`, and nothing is read."""
    inside = None
    for i, n in zip(index, shape, strict=True):
        low, high = i.range
        if high < 0 or low >= n:
            return outside
        where = place(table, i)
        for needed, test in ((low < 0, where >= 0), (high >= n, where < n)):
            if needed:
                inside = test if inside is None else inside & test
    if inside is None:
        return inner()
    return apply("guard", inside, inner(), outside, dtype=outside.dtype)


def concat(table: dict, xs: Sequence[Array], axis: int) -> Array:
    """One after another."""
    ends = list(accumulate(x.shape[axis] for x in xs))
    shape = (*xs[0].shape[:axis], ends[-1], *xs[0].shape[axis + 1 :])

    def at(index: Index) -> Expr:
        low, high = index[axis].range
        reached = [
            (x, end - x.shape[axis], end)
            for x, end in zip(xs, ends, strict=True)
            if x.shape[axis] and low < end and high >= end - x.shape[axis]
        ]
        found = None
        for x, start, end in reversed(reached):
            along = Ix() if x.shape[axis] == 1 else index[axis] - start  # 0 where it is taken
            here = x.at((*index[:axis], along, *index[axis + 1 :]))
            if found is not None:
                found = _either(place(table, index[axis]) < end, here, found)
            else:
                found = here
        return number(table, 0, xs[0].dtype) if found is None else found

    return Array(shape, xs[0].dtype, at)


def _either(test: Expr, x: Expr, y: Expr) -> Expr:
    """x where test, else y; neither is read where the other is taken."""
    nothing = number(test.table, 0, x.dtype)
    other = apply("guard", ~test, y, nothing, dtype=x.dtype)
    return apply("guard", test, x, other, dtype=x.dtype)
