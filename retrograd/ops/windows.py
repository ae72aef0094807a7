"""Windows that slide along an axis, and their transpose: the sum of what overlaps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Linear, function, op
from retrograd.core.spec import Spec, axis_index
from retrograd.core.tensor import Tensor
from retrograd.ops import create, gather, options, pad, shape

__all__ = ["fold", "sliding_window_view", "unfold"]


@op
class Unfold(Linear):
    """Windows along an axis, each on a new last axis; a view, no bytes are copied."""

    axis: int
    size: int
    step: int = 1
    dilation: int = 1

    def shape(self, x: Spec) -> Spec:
        length = x.shape[self.axis]
        if self.span > length:
            raise ShapeError(
                f"unfold: a window of {self.size} with dilation {self.dilation} spans "
                f"{self.span}; axis {self.axis} of x {x.shape} has length {length}"
            )
        count = (length - self.span) // self.step + 1
        return x.with_shape(
            (*x.shape[: self.axis], count, *x.shape[self.axis + 1 :], self.size)
        )

    def forward(self, x):
        shape_ = self.shape(Spec(x.shape, x.dtype)).shape
        s = x.strides
        strides = (*s[: self.axis], s[self.axis] * self.step, *s[self.axis + 1 :])
        return as_strided(x, shape_, (*strides, s[self.axis] * self.dilation), writeable=False)

    def transpose(self, g, x: Spec):
        return apply(Fold(self.axis, x.shape[self.axis], self.step, self.dilation), g)

    def batch(self, size, args, mapped):
        return apply(Unfold(self.axis + 1, self.size, self.step, self.dilation), *args)

    def lower(self, k, x):
        return k.windows(x, self.axis, self.size, self.step, self.dilation)

    @property
    def span(self) -> int:
        return self.dilation * (self.size - 1) + 1

    @staticmethod
    def samples(rng):
        yield Unfold(0, 3), rng.normal(size=5)
        yield Unfold(1, 2, step=3, dilation=2), rng.normal(size=(2, 9, 2))
        yield Unfold(0, 1, step=2), rng.normal(size=(4, 0))

    @staticmethod
    def refuses(rng):
        yield Unfold(0, 3, dilation=2), rng.normal(size=4), "spans 5"


TAPS = 32  # places of windows that are added one after the other


def _padded(x: Any, axis: int, before: int, after: int) -> Any:
    """Zeros before and after x along an axis."""
    if not before and not after:
        return x
    widths = [(before, after) if a == axis else (0, 0) for a in range(x.ndim)]
    return apply(pad.Pad(tuple(widths)), x)


@op
class Fold(Linear):
    """Windows put back where Unfold took them from, and added where they overlap."""

    axis: int
    length: int
    step: int = 1
    dilation: int = 1

    def shape(self, x: Spec) -> Spec:
        if x.ndim < 2 or self.axis >= x.ndim - 1:
            raise ShapeError(
                f"fold: x {x.shape} needs the windows along axis {self.axis} and their "
                f"places along a last one"
            )
        last = self.step * (x.shape[self.axis] - 1) + self.dilation * (x.shape[-1] - 1)
        if x.shape[self.axis] and x.shape[-1] and last >= self.length:
            raise ShapeError(
                f"fold: the last of {x.shape[self.axis]} windows of {x.shape[-1]} ends at "
                f"{last + 1}; length {self.length} is too short"
            )
        return x.with_shape((*x.shape[: self.axis], self.length, *x.shape[self.axis + 1 : -1]))

    def forward(self, x):
        out = np.zeros(self.shape(Spec(x.shape, x.dtype)).shape, x.dtype)
        lead, count = (slice(None),) * self.axis, x.shape[self.axis]
        for i in range(x.shape[-1] if count else 0):
            first = i * self.dilation
            tap = slice(first, first + self.step * (count - 1) + 1, self.step)
            out[(*lead, tap)] += x[..., i]
        return out

    def transpose(self, g, x: Spec):
        if not x.size:
            return create.zeros(x.shape, dtype=x.dtype)
        windows = apply(Unfold(self.axis, x.shape[-1], self.step, self.dilation), g)
        return pad.piece(windows, self.axis, 0, x.shape[self.axis])  # g may have room for more

    def batch(self, size, args, mapped):
        return apply(Fold(self.axis + 1, self.length, self.step, self.dilation), *args)

    def expand(self, x):
        count, size = x.shape[self.axis], x.shape[-1]
        if x.size and size <= TAPS:
            return self._shifted(x)
        beside = shape.moveaxis(x, -1, self.axis + 1)
        head, tail = x.shape[: self.axis], x.shape[self.axis + 1 : -1]
        flat = shape.reshape(beside, (*head, count * size, *tail))
        taps = self.step * np.arange(count)[:, None] + self.dilation * np.arange(size)
        where = shape.reshape(lift(taps.reshape(-1)), (count * size,) + (1,) * len(tail))
        return apply(
            gather.AddAlongAxis(self.axis, self.length),
            flat,
            shape.broadcast_to(where, flat.shape),
        )

    def _shifted(self, x):
        """The places of windows one after the other, each moved to where it belongs, added."""
        head, tail = x.shape[: self.axis], x.shape[self.axis + 1 : -1]
        count, size, out = x.shape[self.axis], x.shape[-1], None
        if self.step == size and self.dilation == 1 and size > 1:  # side by side
            beside = shape.moveaxis(x, -1, self.axis + 1)
            beside = shape.reshape(beside, (*head, count * size, *tail))
            return _padded(beside, self.axis, 0, self.length - count * size)
        for i in range(size):
            part = shape.reshape(pad.piece(x, x.ndim - 1, i, 1), x.shape[:-1])
            long = self.step * (count - 1) + 1
            if self.step > 1:  # zeros between
                part = shape.reshape(part, (*head, count, 1, *tail))
                part = _padded(part, self.axis + 1, 0, self.step - 1)
                part = shape.reshape(part, (*head, count * self.step, *tail))
                part = pad.piece(part, self.axis, 0, long)
            first = i * self.dilation
            part = _padded(part, self.axis, first, self.length - first - long)
            out = part if out is None else out + part
        return out

    @staticmethod
    def samples(rng):
        yield Fold(0, 5), rng.normal(size=(3, 3))
        yield Fold(1, 9, step=3, dilation=2), rng.normal(size=(2, 3, 2, 2))
        yield Fold(0, 8), rng.normal(size=(3, 3))
        yield Fold(0, 4, step=2), rng.normal(size=(2, 0, 1))
        yield Fold(0, 2, dilation=3), rng.normal(size=(0, 2))

    @staticmethod
    def refuses(rng):
        yield Fold(0, 4), rng.normal(size=(3, 3)), "length 4 is too short"


@function
def unfold(x: Any, size: int, /, *, axis: int = -1, step: int = 1, dilation: int = 1) -> Tensor:
    """Windows of `size` places of x along `axis`, which then counts them; they come last.

    Windows begin `step` places apart, their own places are `dilation` apart. The result is
    a view of x: no bytes are copied.
    """
    x = lift(x)
    size, step, dilation = _positive("unfold", size=size, step=step, dilation=dilation)
    axis = axis_index("unfold", axis, x.ndim)
    step = min(step, max(x.shape[axis], 1))  # longer steps find the first window too
    return apply(Unfold(axis, size, step, dilation), x)


@function
def fold(x: Any, length: int, /, *, axis: int = -1, step: int = 1, dilation: int = 1) -> Tensor:
    """Windows added up where they overlap, on zeros of `length` along `axis` of the result.

    The transpose of `unfold` with the same options.
    """
    x = lift(x)
    step, dilation = _positive("fold", step=step, dilation=dilation)
    length = options.integer("fold", "length", length, least=0)
    if x.ndim < 2:
        raise ShapeError(f"fold: x {x.shape} needs an axis of windows and one of their places")
    axis = axis_index("fold", axis, x.ndim - 1)
    options.possible("fold", (*x.shape[:axis], length, *x.shape[axis + 1 : -1]))
    return apply(Fold(axis, length, step, dilation), x)


@function
def sliding_window_view(x: Any, window_shape: Any, axis: Any = None) -> Tensor:
    """Windows along several axes (all by default), their places on as many last axes."""
    x = lift(x)
    sizes = shape.lengths("sliding_window_view", window_shape)
    axes = range(x.ndim) if axis is None else shape.lengths("sliding_window_view", axis)
    if len(sizes) != len(axes):
        raise ArgumentError(
            f"sliding_window_view: {len(sizes)} lengths for {len(axes)} axes; "
            f"window_shape {sizes} needs one for each"
        )
    places = [axis_index("sliding_window_view", a, x.ndim) for a in axes]
    for size, place in zip(sizes, places, strict=True):
        x = unfold(x, size, axis=place)
    return x


def _positive(who: str, **named: Any) -> list[int]:
    return [options.integer(who, name, value, least=1) for name, value in named.items()]
