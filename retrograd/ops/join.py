"""Several tensors as one, and one as several: each is the other's transpose."""

from __future__ import annotations

from itertools import accumulate
from operator import index
from typing import Any

import numpy as np

from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Linear, front, function, op
from retrograd.core.spec import Spec, axis_index
from retrograd.core.tensor import Tensor
from retrograd.ops import shape

__all__ = [
    "array_split",
    "concat",
    "concatenate",
    "hstack",
    "split",
    "stack",
    "unstack",
    "vstack",
]


MOST_PIECES = 2**24  # each is a tensor of its own


def beside(shape_: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """A shape without one of its axes."""
    return (*shape_[:axis], *shape_[axis + 1 :])


def listed(xs: tuple[Spec, ...]) -> str:
    """Shapes for an error: `x0 (2, 3), x1 (4,)`."""
    return ", ".join(f"x{i} {x.shape}" for i, x in enumerate(xs))


@op
class Concat(Linear):
    """One after another along an axis."""

    axis: int
    uniform = True

    def shape(self, *xs: Spec) -> Spec:
        first = xs[0]
        for x in xs:
            if x.ndim != first.ndim or self.axis >= x.ndim:
                raise ShapeError(
                    f"concat: operands must have the same number of axes, more than "
                    f"{self.axis}; got {listed(xs)}"
                )
            if beside(x.shape, self.axis) != beside(first.shape, self.axis):
                raise ShapeError(
                    f"concat: operands must have one shape beside axis {self.axis}; "
                    f"got {listed(xs)}"
                )
        total = sum(x.shape[self.axis] for x in xs)
        return first.with_shape(
            (*first.shape[: self.axis], total, *first.shape[self.axis + 1 :])
        )

    def forward(self, *xs):
        return np.concatenate(xs, self.axis)

    def transpose(self, g, *xs: Spec):
        return apply(Split(tuple(x.shape[self.axis] for x in xs), self.axis), g)

    def batch(self, size, args, mapped):
        return apply(Concat(self.axis + 1), *front(size, args, mapped))

    def lower(self, k, *xs):
        return k.concat(xs, self.axis)

    @staticmethod
    def samples(rng):
        yield Concat(0), rng.normal(size=(2, 3)), rng.normal(size=(1, 3))
        yield (
            Concat(1),
            rng.normal(size=(2, 0)),
            rng.normal(size=(2, 3)),
            rng.normal(size=(2, 1)),
        )
        yield Concat(0), rng.normal(size=4)
        yield Concat(0), rng.normal(size=2) + 2j, rng.normal(size=1) + 1j

    @staticmethod
    def refuses(rng):
        yield Concat(0), rng.normal(size=(2, 3)), rng.normal(size=(2, 4)), "beside axis 0"
        yield Concat(0), rng.normal(size=(2, 3)), rng.normal(size=3), "same number of axes"
        yield Concat(0), rng.normal(size=()), rng.normal(size=()), "same number of axes"


@function
def concat(arrays: Any, /, *, axis: int | None = 0) -> Tensor:
    """The arrays one after another along `axis`; flattened first if axis is None."""
    xs = _several("concat", arrays)
    if axis is None:
        return apply(Concat(0), *(shape.flatten(x) for x in xs))
    ndim = 0 if _weak(xs[0]) else xs[0].ndim
    return apply(Concat(axis_index("concat", axis, ndim) if ndim else 0), *xs)


@function
def concatenate(arrays: Any, /, axis: int | None = 0) -> Tensor:
    """NumPy's name for concat."""
    return concat(arrays, axis=axis)


def _several(who: str, arrays: Any) -> list[Any]:
    """Operands of a join, Python numbers as they are: they take the others' dtype."""
    if isinstance(arrays, Tensor):
        arrays = unstack(arrays)
    if not isinstance(arrays, (tuple, list)) or not arrays:
        raise ArgumentError(
            f"{who}: needs a sequence of at least one array; got "
            f"{'none' if isinstance(arrays, (tuple, list)) else type(arrays).__name__}"
        )
    return [x if _weak(x) else lift(x) for x in arrays]


def _weak(x: Any) -> bool:
    return type(x) in (bool, int, float, complex)


@op
class Split(Linear):
    """Pieces of the given lengths along an axis: as many results as there are lengths."""

    sizes: tuple[int, ...]
    axis: int
    outputs = ("*pieces",)
    view = True

    def shape(self, x: Spec) -> tuple[Spec, ...]:
        if sum(self.sizes) != x.shape[self.axis]:
            raise ShapeError(
                f"split: sizes {self.sizes} add up to {sum(self.sizes)}; axis {self.axis} of "
                f"x {x.shape} has length {x.shape[self.axis]}"
            )
        head, tail = x.shape[: self.axis], x.shape[self.axis + 1 :]
        return tuple(x.with_shape((*head, n, *tail)) for n in self.sizes)

    def forward(self, x):
        lead = (slice(None),) * self.axis
        ends = accumulate(self.sizes)
        return tuple(
            x[(*lead, slice(end - n, end))] for n, end in zip(self.sizes, ends, strict=True)
        )

    def transpose(self, g):  # one cotangent for each piece
        return apply(Concat(self.axis), *g)

    def batch(self, size, args, mapped):
        return apply(Split(self.sizes, self.axis + 1), *args)

    def lower(self, k, x):
        whole = [(0, n, 1) for n in x.shape]
        return tuple(
            k.slice(x, [*whole[: self.axis], (end - n, n, 1), *whole[self.axis + 1 :]])
            for n, end in zip(self.sizes, accumulate(self.sizes), strict=True)
        )

    @staticmethod
    def samples(rng):
        yield Split((1, 2, 0), 1), rng.normal(size=(2, 3))
        yield Split((4,), 0), rng.normal(size=4)
        yield Split((0, 0), 0), rng.normal(size=(0, 2))


@function
def split(x: Any, sections: Any, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """x in pieces along `axis`: so many of equal length, or of the lengths that are given."""
    x, axis, length = _axis("split", x, axis)
    if isinstance(sections, (tuple, list)):
        sizes = shape.lengths("split", sections)
        if any(n < 0 for n in sizes) or sum(sizes) != length:
            raise ShapeError(
                f"split: the lengths {sizes} must be at least 0 and add up to {length}, the "
                f"length of axis {axis}; they add up to {sum(sizes)}"
            )
    else:
        count = _count("split", sections)
        if length % count:
            raise ShapeError(
                f"split: an axis of length {length} has no {count} equal pieces",
                hint="rg.array_split for pieces of nearly equal length",
            )
        sizes = (length // count,) * count
    return apply(Split(sizes, axis), x) if sizes else ()


@function
def array_split(x: Any, sections: int, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """x in so many pieces along `axis`; the first are longer by one if they must be."""
    x, axis, length = _axis("array_split", x, axis)
    count = _count("array_split", sections)
    each, more = divmod(length, count)
    return apply(Split((each + 1,) * more + (each,) * (count - more), axis), x)


def _axis(who: str, x: Any, axis: int) -> tuple[Any, int, int]:
    x = lift(x)
    axis = axis_index(who, axis, x.ndim)
    return x, axis, x.shape[axis]


def _count(who: str, sections: Any) -> int:
    try:
        count = index(sections)
    except TypeError as error:
        raise ArgumentError(
            f"{who}: sections must be a number or lengths; got {sections!r}"
        ) from error
    if not 1 <= count <= MOST_PIECES:
        raise ArgumentError(f"{who}: sections must be from 1 to {MOST_PIECES}; got {count}")
    return count


@op
class Stack(Linear):
    """Tensors of one shape along a new axis."""

    axis: int
    uniform = True

    def shape(self, *xs: Spec) -> Spec:
        first = xs[0]
        if any(x.shape != first.shape for x in xs):
            raise ShapeError(f"stack: operands must have one shape; got {listed(xs)}")
        return first.with_shape((*first.shape[: self.axis], len(xs), *first.shape[self.axis :]))

    def forward(self, *xs):
        return np.stack(xs, self.axis)

    def transpose(self, g):
        return apply(Unstack(self.axis), g)

    def batch(self, size, args, mapped):
        return apply(Stack(self.axis + 1), *front(size, args, mapped))

    def lower(self, k, *xs):
        shape_ = xs[0].shape
        apart = (*shape_[: self.axis], 1, *shape_[self.axis :])
        return k.concat([k.view(x, apart) for x in xs], self.axis)

    @staticmethod
    def samples(rng):
        yield Stack(1), rng.normal(size=(2, 3)), rng.normal(size=(2, 3))
        yield Stack(0), rng.normal(size=()), rng.normal(size=()), rng.normal(size=())
        yield Stack(2), rng.normal(size=(2, 0))

    @staticmethod
    def refuses(rng):
        yield Stack(0), rng.normal(size=(2, 3)), rng.normal(size=(2,)), "must have one shape"


@function
def stack(arrays: Any, /, *, axis: int = 0) -> Tensor:
    """Arrays of one shape along a new axis, at place `axis` of the result."""
    xs = _several("stack", arrays)
    ndim = 0 if _weak(xs[0]) else xs[0].ndim
    return apply(Stack(axis_index("stack", axis, ndim + 1)), *xs)


@op
class Unstack(Linear):
    """The tensors along an axis, without it: as many results as it is long."""

    axis: int
    outputs = ("*pieces",)
    view = True

    def shape(self, x: Spec) -> tuple[Spec, ...]:
        return (x.with_shape(beside(x.shape, self.axis)),) * x.shape[self.axis]

    def forward(self, x):
        moved = np.moveaxis(x, self.axis, 0)
        return tuple(moved[i, ...] for i in range(len(moved)))

    def transpose(self, g):  # one cotangent for each piece
        return apply(Stack(self.axis), *g)

    def batch(self, size, args, mapped):
        return apply(Unstack(self.axis + 1), *args)

    def lower(self, k, x):
        whole = [(0, n, 1) for n in x.shape]
        pieces = (
            k.slice(x, [*whole[: self.axis], (i, 1, 1), *whole[self.axis + 1 :]])
            for i in range(x.shape[self.axis])
        )
        return tuple(k.view(p, beside(x.shape, self.axis)) for p in pieces)

    @staticmethod
    def samples(rng):
        yield Unstack(1), rng.normal(size=(2, 3))
        yield Unstack(0), rng.normal(size=(1,))
        yield Unstack(1), rng.normal(size=(0, 2))


@function
def unstack(x: Any, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The tensors along `axis`, as a tuple."""
    x, axis, length = _axis("unstack", x, axis)
    return apply(Unstack(axis), x) if length else ()


@function
def hstack(arrays: Any, /) -> Tensor:
    """Arrays side by side: along the second axis, or the only one."""
    xs = [shape.atleast_1d(x) for x in _several("hstack", arrays)]
    return concat(xs, axis=0 if xs[0].ndim == 1 else 1)


@function
def vstack(arrays: Any, /) -> Tensor:
    """Arrays below each other: along the first of at least two axes."""
    return concat([shape.atleast_2d(x) for x in _several("vstack", arrays)], axis=0)
