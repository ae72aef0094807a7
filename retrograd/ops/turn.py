"""Along an axis: backwards, around, and again. Nothing is computed, only moved."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.errors import ArgumentError, DtypeError, ShapeError
from retrograd.core.interpret import PURE, apply, constant, lift, unchanged, using
from retrograd.core.op import Linear, function, op
from retrograd.core.spec import Spec, axes_tuple, axis_index
from retrograd.core.tensor import Tensor
from retrograd.ops import gather, options, shape

__all__ = ["flip", "repeat", "roll", "rot90", "tile"]


@op
class Flip(Linear):
    """Backwards along axes."""

    axes: tuple[int, ...]
    view = True

    def shape(self, x: Spec) -> Spec:
        return x

    def forward(self, x):
        return np.flip(x, self.axes)

    def transpose(self, g):
        return apply(self, g)

    def batch(self, size, args, mapped):
        return apply(Flip(tuple(a + 1 for a in self.axes)), *args)

    def lower(self, k, x):
        return k.flip(x, self.axes)

    @staticmethod
    def samples(rng):
        yield Flip((1,)), rng.normal(size=(2, 3))
        yield Flip((0, 2)), rng.normal(size=(2, 3, 4))
        yield Flip(()), rng.normal(size=())
        yield Flip((0,)), rng.normal(size=(0, 3))


@function
def flip(x: Any, /, *, axis: Any = None) -> Tensor:
    """x backwards along `axis`, one or several; along all by default."""
    x = lift(x)
    axes = axes_tuple("flip", axis, x.ndim)
    return apply(Flip(axes), x) if axes else unchanged(x)


@function
def rot90(x: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    """x turned k times by 90 degrees, from the first of two axes towards the second."""
    x = lift(x)
    if not isinstance(axes, (tuple, list)) or len(axes) != 2:
        raise ArgumentError(f"rot90: axes must be a pair of integers; got {axes!r}")
    first, second = (axis_index("rot90", a, x.ndim) for a in axes)
    if first == second:
        raise ArgumentError(f"rot90: axes {tuple(axes)} must be two different ones")
    k = options.integer("rot90", "k", k) % 4
    if k == 2:
        return flip(x, axis=(first, second))
    if k == 1:
        return shape.swapaxes(flip(x, axis=second), first, second)
    if k == 3:
        return flip(shape.swapaxes(x, first, second), axis=second)
    return unchanged(x)


@op
class Roll(Linear):
    """Each element moved by `by` places along an axis; what leaves comes in again."""

    by: tuple[int, ...]
    axes: tuple[int, ...]

    def shape(self, x: Spec) -> Spec:
        return x

    def forward(self, x):
        return np.roll(x, self.by, self.axes) if self.axes else x

    def transpose(self, g):
        return apply(Roll(tuple(-n for n in self.by), self.axes), g)

    def batch(self, size, args, mapped):
        return apply(Roll(self.by, tuple(a + 1 for a in self.axes)), *args)

    def lower(self, k, x):
        for by, axis in zip(self.by, self.axes, strict=True):
            length = x.shape[axis]
            if length and by % length:
                whole = [(0, n, 1) for n in x.shape]
                tail, head = list(whole), list(whole)
                tail[axis] = (length - by % length, by % length, 1)
                head[axis] = (0, length - by % length, 1)
                x = k.concat([k.slice(x, tail), k.slice(x, head)], axis)
        return x

    @staticmethod
    def samples(rng):
        yield Roll((2,), (1,)), rng.normal(size=(2, 5))
        yield Roll((-1, 7), (0, 2)), rng.normal(size=(2, 3, 4))
        yield Roll((3,), (0,)), rng.normal(size=(0, 2))
        yield Roll((), ()), rng.normal(size=())


@function
def roll(x: Any, /, shift: Any, *, axis: Any = None) -> Tensor:
    """x moved by `shift` places along `axis`, around the end; flat if axis is None."""
    x = lift(x)
    if axis is None:
        if isinstance(shift, (tuple, list)):
            raise ArgumentError(f"roll: shift {shift} names several axes, axis none")
        return shape.reshape(roll(shape.flatten(x), shift, axis=0), x.shape)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    by = shift if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
    if len(by) != len(axes):
        raise ArgumentError(f"roll: shift {by} and axis {axes} must have equal lengths")
    total: dict[int, int] = {}
    for n, a in zip(by, axes, strict=True):  # an axis may be named twice: shifts add up
        place = axis_index("roll", a, x.ndim)
        total[place] = total.get(place, 0) + options.integer("roll", "shift", n)
    return apply(Roll(tuple(total.values()), tuple(total)), x)


@function
def tile(x: Any, repetitions: Any, /) -> Tensor:
    """x put side by side, `repetitions` times along each axis, counted from the last."""
    x = lift(x)
    times = shape.lengths("tile", repetitions)
    if any(n < 0 for n in times):
        raise ArgumentError(f"tile: repetitions {times} must not be negative")
    ndim = max(x.ndim, len(times))
    old = (1,) * (ndim - x.ndim) + x.shape
    times = (1,) * (ndim - len(times)) + times
    options.possible("tile", tuple(t * n for t, n in zip(times, old, strict=True)))
    pairs = tuple(n for pair in zip(times, old, strict=True) for n in pair)
    apart = tuple(n for length in old for n in (1, length))
    wide = shape.broadcast_to(shape.reshape(x, apart), pairs)
    return shape.reshape(wide, tuple(t * n for t, n in zip(times, old, strict=True)))


@function
def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element `repeats` times in a row along `axis`; flat if axis is None.

    `repeats` is a number, or integers with one for each place along the axis. The latter
    decide the shape of the result, so inside jit and vmap they must be known values.
    """
    x = lift(x)
    if axis is None:
        x, axis = shape.flatten(x), 0
    axis = axis_index("repeat", axis, x.ndim)
    before, length, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    counts = _counts(repeats, length)
    if isinstance(counts, np.ndarray):
        options.possible("repeat", (sum(counts.tolist()),))
        where = constant(np.repeat(np.arange(length), counts))
        return gather.take(x, where, axis=axis)
    apart = shape.reshape(x, (*before, length, 1, *after))
    wide = shape.broadcast_to(apart, (*before, length, counts, *after))
    return shape.reshape(wide, (*before, length * counts, *after))


def _counts(repeats: Any, length: int) -> Any:
    """One number, or an array with one for each of `length` places."""
    with using(PURE):  # the shape depends on them: they are no part of a traced program
        counts = lift(repeats).array
    if counts.size and counts.dtype.kind not in "iu":
        raise DtypeError(f"repeat: repeats must be integers; got {counts.dtype}")
    if counts.size and counts.min() < 0:
        raise ArgumentError(f"repeat: repeats must not be negative; got {counts.min()}")
    if not counts.ndim or counts.shape == (1,):
        return int(counts.reshape(())[()])
    if counts.shape != (length,):
        raise ShapeError(
            f"repeat: repeats {counts.shape} must be one number, or one for each of the "
            f"{length} places along the axis"
        )
    return counts.astype(np.int64)
