"""Parts of a tensor by slices, positions and new axes: views, and what undoes them.

A part is told by one entry for each axis: (start, count, step), or a position, whose axis
goes away; None stands for a new axis. Python's slices are neither hashable nor normalised.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import BoundsError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Linear, front, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import create, select, shape

Part = int | None | tuple[int, int, int]
Parts = tuple[Part, ...]


@lru_cache(4096)
def key(parts: Parts) -> tuple[Any, ...]:
    """Parts as NumPy spells them; the ellipsis keeps results without axes arrays."""
    return (*(_slice(*p) if isinstance(p, tuple) else p for p in parts), Ellipsis)


def _slice(start: int, count: int, step: int) -> slice:
    stop = start + count * step
    return slice(start, None if stop < 0 else stop, step) if count else slice(0, 0)


def part_shape(parts: Parts) -> tuple[int, ...]:
    """The shape of a part."""
    lengths = (1 if p is None else p[1] for p in parts if not isinstance(p, int))
    return tuple(lengths)


def whole(parts: Parts, of: tuple[int, ...]) -> bool:
    """Whether the part is all of a tensor of shape `of`, as it is."""
    return len(parts) == len(of) and all(
        isinstance(p, tuple) and p[0] == 0 and p[1] == n and p[2] == 1
        for p, n in zip(parts, of, strict=True)
    )


def fits(who: str, parts: Parts, of: tuple[int, ...]) -> None:
    """Refuse parts that reach outside a tensor of shape `of`."""
    axes = [p for p in parts if p is not None]
    if len(axes) != len(of):
        raise BoundsError(f"{who}: {len(axes)} indices for a tensor of shape {of}")
    for axis, (p, n) in enumerate(zip(axes, of, strict=True)):
        ends = (p,) if isinstance(p, int) else (p[0], p[0] + (p[1] - 1) * p[2]) if p[1] else ()
        for i in ends:
            if not 0 <= i < n:
                raise BoundsError(f"{who}: index {i} is outside axis {axis} of length {n}")


@op
class Slice(Linear):
    """The part of x that positions, (start, count, step) and new axes name: a view."""

    parts: Parts
    view = True

    def shape(self, x: Spec) -> Spec:
        fits("slice", self.parts, x.shape)
        return x.with_shape(part_shape(self.parts))

    def forward(self, x):
        return x[key(self.parts)]

    def transpose(self, g, x: Spec):
        return apply(Unslice(self.parts, x.shape), g)

    def batch(self, size, args, mapped):
        return apply(Slice(((0, size, 1), *self.parts)), *args)

    def lower(self, k, x):
        ranges = [(p, 1, 1) if isinstance(p, int) else p for p in self.parts if p is not None]
        return k.view(k.slice(x, ranges), part_shape(self.parts))

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(4, 5, 3))
        yield Slice((2, (4, 3, -2), (0, 3, 1))), x
        yield Slice(((1, 2, 2), None, 0, (2, 3, -1))), x
        yield Slice((None, 3, 1, 2)), x
        yield Slice(((0, 4, 1), (1, 0, 1), (0, 1, 1))), x
        yield Slice((None, None)), rng.normal(size=())
        yield Slice(((2, 2, -1),)), rng.normal(size=3) + 1j * rng.normal(size=3)

    @staticmethod
    def refuses(rng):
        yield Slice((3,)), rng.normal(size=3), "index 3 is outside axis 0 of length 3"
        yield Slice((0, 0)), rng.normal(size=3), "2 indices"


def part(x: Any, parts: Parts) -> Tensor:
    """The part of x; another handle on x where it is all of it."""
    if whole(parts, x.shape):
        return x.handle() if isinstance(x, Tensor) else x
    return apply(Slice(parts), x)


@op
class Unslice(Linear):
    """Zeros in the shape `to`, with x as the part that `parts` names."""

    parts: Parts
    to: tuple[int, ...]

    def shape(self, x: Spec) -> Spec:
        _same("unslice", x.shape, self.parts)
        return x.with_shape(self.to)

    def forward(self, x):
        out = np.zeros(self.to, x.dtype)
        out[key(self.parts)] = x
        return out

    def transpose(self, g):
        return apply(Slice(self.parts), g)

    def batch(self, size, args, mapped):
        return apply(Unslice(((0, size, 1), *self.parts), (size, *self.to)), *args)

    def lower(self, k, x):
        ranges = [(p, 1, 1) if isinstance(p, int) else p for p in self.parts if p is not None]
        x = k.view(x, tuple(r[1] for r in ranges))
        back = tuple(axis for axis, (_, _, step) in enumerate(ranges) if step < 0)
        x = k.flip(x, back) if back else x
        for axis, (_, count, step) in enumerate(ranges):
            x = _spaced(k, x, axis, count, abs(step))
        return k.pad(x, [_border(*r, n) for r, n in zip(ranges, self.to, strict=True)], 0)

    @staticmethod
    def samples(rng):
        yield Unslice((2, (4, 3, -2), (0, 3, 1)), (4, 5, 3)), rng.normal(size=(3, 3))
        yield Unslice(((1, 2, 3), None, 0), (6, 2)), rng.normal(size=(2, 1))
        yield Unslice(((1, 0, 1),), (3,)), rng.normal(size=0)
        yield Unslice((1,), (3,)), rng.normal(size=())

    @staticmethod
    def refuses(rng):
        yield Unslice((1,), (3,)), rng.normal(size=2), "it must have shape ()"


def _same(who: str, found: tuple[int, ...], parts: Parts) -> None:
    if found != part_shape(parts):
        raise ShapeError(f"{who}: got shape {found}; it must have shape {part_shape(parts)}")


def _spaced(k: Any, x: Any, axis: int, count: int, step: int) -> Any:
    """x with step - 1 zeros after each element along an axis, but for the last."""
    if step == 1 or count < 2:
        return x
    head, tail = x.shape[:axis], x.shape[axis + 1 :]
    x = k.view(x, (*head, count, 1, *tail))
    x = k.pad(x, [(0, step - 1) if i == axis + 1 else (0, 0) for i in range(len(x.shape))], 0)
    ranges = [(0, n, 1) for n in (*head, (count - 1) * step + 1, *tail)]
    return k.slice(k.view(x, (*head, count * step, *tail)), ranges)


def _border(start: int, count: int, step: int, length: int) -> tuple[int, int]:
    """What lies before and after a slice along its axis."""
    if not count:
        return (0, length)
    last = start + (count - 1) * step
    return min(start, last), length - 1 - max(start, last)


@op
class SliceSet(Linear):
    """x with `values` in place of the part that `parts` names."""

    parts: Parts
    uniform = True

    def shape(self, x: Spec, values: Spec) -> Spec:
        fits("slice_set", self.parts, x.shape)
        _same("slice_set", values.shape, self.parts)
        return x

    def forward(self, x, values):
        out = np.array(x)
        out[key(self.parts)] = values
        return out

    def transpose_x(self, g):
        return apply(self, g, nothing(part_shape(self.parts), g.dtype))

    def transpose_values(self, g):
        return apply(Slice(self.parts), g)

    def batch(self, size, args, mapped):
        return apply(SliceSet(((0, size, 1), *self.parts)), *front(size, args, mapped))

    def expand(self, x, values):
        inside = create.ones(part_shape(self.parts), dtype=dt.bool)
        mask, there = (apply(Unslice(self.parts, x.shape), y) for y in (inside, values))
        return select.where(mask, there, x)

    @staticmethod
    def samples(rng):
        yield SliceSet((2, (4, 3, -2))), rng.normal(size=(4, 5)), rng.normal(size=3)
        yield SliceSet((None, (1, 0, 1))), rng.normal(size=3), rng.normal(size=(1, 0))
        yield SliceSet(()), rng.normal(size=()), rng.normal(size=())

    @staticmethod
    def refuses(rng):
        yield SliceSet((5,)), rng.normal(size=3), np.ones(()), "index 5 is outside"
        yield SliceSet(((0, 2, 1),)), rng.normal(size=3), np.ones(3), "must have shape (2,)"


def nothing(to: tuple[int, ...], dtype: np.dtype) -> Tensor:
    """Zeros that take no memory, also where rules run on bare arrays."""
    return shape.broadcast_to(lift(np.zeros((), dtype)), to)
