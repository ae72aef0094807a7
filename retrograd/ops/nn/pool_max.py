"""Pooling by the largest: the op, and the two linear maps that its derivatives are.

Axis by axis, the last first: the largest of a window is the largest of its rows' largest,
and the first of the largest, row by row, is in the first row that has it. Windows either
repeat (`MaxPool` and its kin) or are told one by one (`MaxSpan` and its kin).
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

import numpy as np

from retrograd.core.errors import ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Op, front
from retrograd.ops import gather, index, shape
from retrograd.ops.nn import geometry, patches, pool_axis
from retrograd.ops.nn.geometry import Frame, Sizes


class Pool(Op):
    """Windows over the axes before the last; all axes before those are a batch."""

    axes: ClassVar[Any]  # how many
    lines: ClassVar[Any]  # sizes -> windows along each axis

    def sizes(self, x: Any) -> Sizes:
        """The axes that windows go over."""
        if x.ndim <= self.axes:
            raise ShapeError(f"{self.name}: x {x.shape} must have more than {self.axes} axes")
        return x.shape[-1 - self.axes : -1]

    def along(self, x: Any) -> list[pool_axis.Line]:
        """The windows along each axis of x."""
        start = x.ndim - 1 - self.axes
        lines = self.lines(self.sizes(x))
        return [n._replace(lead=(slice(None),) * (start + a)) for a, n in enumerate(lines)]

    def pooled(self, x: Any) -> Sizes:
        """The shape of the result."""
        counts = (len(line.starts) for line in self.lines(self.sizes(x)))
        return (*x.shape[: -1 - self.axes], *counts, x.shape[-1])

    def batch(self, size, args, mapped):
        return apply(self, *front(size, args, mapped))


class Framed(Pool):
    """Windows of one kernel, a stride apart."""

    kernel: Sizes
    stride: Sizes
    dilation: Sizes
    before: Sizes
    counts: Sizes

    @property
    def axes(self) -> int:
        return len(self.kernel)

    @property
    def frame(self) -> Frame:
        return Frame(self.kernel, self.stride, self.dilation, self.before, self.counts)

    @property
    def own(self) -> tuple[Any, ...]:
        return tuple(self.frame)

    def lines(self, sizes: Sizes) -> list[pool_axis.Line]:
        geometry.inhabited(self.name, self.frame, sizes)
        return [pool_axis.regular(*row) for row in zip(sizes, *self.frame, strict=True)]

    def windows(self, x: Any) -> Any:
        """[batch, *counts, places, C], zero where there is no element."""
        flat = batched(self, x)
        found = patches.unfolded(flat, self.frame)
        return shape.reshape(
            found, (flat.shape[0], *self.counts, prod(self.kernel), x.shape[-1])
        )

    def unwindowed(self, y: Any, to: Sizes) -> Any:
        """The transpose of windows."""
        apart = shape.reshape(y, (*y.shape[:-2], *self.kernel, y.shape[-1]))
        return shape.reshape(patches.folded(apart, self.frame, to[-1 - self.axes : -1]), to)


class Spanned(Pool):
    """Windows from each of `starts` to each of `stops`, on each axis."""

    starts: tuple[Sizes, ...]
    stops: tuple[Sizes, ...]

    @property
    def axes(self) -> int:
        return len(self.starts)

    @property
    def own(self) -> tuple[Any, ...]:
        return self.starts, self.stops

    def lines(self, sizes: Sizes) -> list[pool_axis.Line]:
        ends = tuple(max(s) for s in self.stops)
        if any(e > n for e, n in zip(ends, sizes, strict=True)):
            raise ShapeError(f"{self.name}: windows end at {ends}; the axes have {sizes}")
        return [pool_axis.spanned(a, b) for a, b in zip(self.starts, self.stops, strict=True)]

    def rows(self, sizes: Sizes) -> Any:
        """The place, along all axes in a row, of each place of each window."""
        found = []
        for line in self.lines(sizes):
            found.append(np.stack([t.places for t in line.taps], 1))
        units = [prod(sizes[a + 1 :]) for a in range(self.axes)]
        total = np.zeros((), np.int64)
        for a, places in enumerate(found):
            to = [1] * (2 * self.axes)
            to[a], to[self.axes + a] = places.shape
            total = total + (places * units[a]).reshape(to)
        return total.reshape(*total.shape[: self.axes], -1)

    def windows(self, x: Any) -> Any:
        """[batch, *counts, places, C]; what short windows lack repeats their last."""
        flat = batched(self, x)
        flat = shape.reshape(flat, (flat.shape[0], prod(self.sizes(x)), x.shape[-1]))
        return gather.take(flat, lift(self.rows(self.sizes(x))), axis=1)

    def unwindowed(self, y: Any, to: Sizes) -> Any:
        """The transpose of windows."""
        sizes = to[-1 - self.axes : -1]
        flat = (prod(to[: -1 - self.axes]), prod(sizes), to[-1])
        rows = self.rows(sizes)
        found = apply(index.IndexAdd((1,), 1, flat), y, lift(rows[None]))
        return shape.reshape(found, to)


def batched(op_: Pool, x: Any) -> Any:
    """x with one axis for its batch."""
    own = x.shape[-1 - op_.axes :]
    return shape.reshape(x, (prod(x.shape[: -1 - op_.axes]), *own))


# -- where the largest are ---------------------------------------------------------------------


def largest(op_: Pool, x: np.ndarray) -> np.ndarray:
    """The largest of each window."""
    for line in reversed(op_.along(x)):
        x = pool_axis.largest(x, line)
    return x


def winners(op_: Pool, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes of the first largest of each window, and places in a row, from its start."""
    lines = op_.along(x)
    kind = np.min_scalar_type(prod(len(n.taps) for n in lines)).type
    code, radix = None, 1
    for line in reversed(lines):
        out = pool_axis.largest(x, line)
        code = pool_axis.chosen(x, out, line, code, radix, kind)
        x, radix = out, radix * len(line.taps)
    assert code is not None
    return code, _steps(op_, lines, op_.sizes(code))


