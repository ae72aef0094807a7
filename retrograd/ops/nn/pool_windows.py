"""Windows of pools: those that repeat, and those that are told one by one.

Each kind knows its windows axis by axis, for NumPy (`pool_axis`), and all at once, in ops:
the plain way, which pools expand to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any, ClassVar

import numpy as np

from retrograd.core.errors import ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Op, front
from retrograd.ops import gather, index, shape
from retrograd.ops.nn import gathered, geometry, patches, pool_axis
from retrograd.ops.nn.geometry import Frame, Sizes

FEW = 16  # places of a window that are treated one by one, in one kernel


class Pool(Op):
    """Windows over the axes before the last; all axes before those are a batch."""

    axes: ClassVar[Any]  # how many
    own: ClassVar[Any]  # the fields that tell the windows
    lines: ClassVar[Callable[..., Any]]  # sizes -> the windows along each axis
    windows: ClassVar[Callable[..., Any]]  # in ops: [batch, *counts, places, C]
    unwindowed: ClassVar[Callable[..., Any]]  # the transpose of it
    pooling: ClassVar[str] = ""  # which of the compiler's kernels it is
    picking: ClassVar[Callable[..., Any]]  # the op that takes the largest's places
    pulling: ClassVar[Callable[..., Any]]  # the op that adds to them

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
        sizes = to[-1 - self.axes : -1]
        if self.kernel != self.stride and y.size and prod(self.kernel) <= FEW:
            return shape.reshape(patches.added(y, self.frame, sizes), to)
        apart = shape.reshape(y, (*y.shape[:-2], *self.kernel, y.shape[-1]))
        return shape.reshape(patches.folded(apart, self.frame, sizes), to)


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
        total = np.zeros((1,) * (2 * self.axes), np.int64)
        for a, line in enumerate(self.lines(sizes)):
            places = np.stack([t.places for t in line.taps], 1)
            to = [1] * (2 * self.axes)
            to[a], to[self.axes + a] = places.shape
            total = total + (places * prod(sizes[a + 1 :])).reshape(to)
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
        terms = gathered.sources(rows, flat[1]) if y.size else None
        if terms is not None:
            given = shape.reshape(y, (y.shape[0], rows.size, y.shape[-1]))
            return shape.reshape(gathered.gathered(given, 1, terms), to)
        found = apply(index.IndexAdd((1,), 1, flat), y, lift(rows[None]))
        return shape.reshape(found, to)


def batched(op_: Pool, x: Any) -> Any:
    """x with one axis for its batch."""
    own = x.shape[-1 - op_.axes :]
    return shape.reshape(x, (prod(x.shape[: -1 - op_.axes]), *own))


def each(op_: Pool, y: Any) -> Any:
    """A result, with one place for each window: [batch, *counts, 1, C]."""
    flat = batched(op_, y)
    return shape.reshape(flat, (*flat.shape[:-1], 1, flat.shape[-1]))


def frames(rng: Any) -> Iterator[tuple[Frame, np.ndarray, np.ndarray]]:
    """(frame, x, y): samples of windows, numbers that are far from each other, a result."""
    rows: list[tuple[Any, ...]] = [  # kernel, stride, dilation, before, counts; x's shape
        ((2,), (2,), (1,), (0,), (3,), (2, 6, 3)),
        ((3, 2), (2, 1), (1, 2), (1, 0), (3, 3), (2, 5, 5, 2)),
        ((3, 3), (2, 2), (1, 1), (1, 1), (3, 3), (4, 6, 1)),  # a partial window at the end
        ((1, 2, 3), (1, 1, 2), (1, 1, 1), (0, 1, 1), (2, 3, 2), (1, 2, 2, 3, 2)),
        ((2,), (2,), (1,), (0,), (3,), (0, 6, 3)),
        ((2,), (3,), (1,), (0,), (2,), (2, 1, 6, 2)),
        ((4,), (1,), (1,), (3,), (5,), (2, 2)),  # no place that all windows have
    ]
    for *own, to in rows:
        x = rng.permutation(prod(to)).reshape(to) * 0.5
        pooled = (*to[: -1 - len(own[-1])], *own[-1], to[-1])
        yield Frame(*own), x, rng.normal(size=pooled)


def spans(rng: Any) -> Iterator[tuple[tuple[Any, Any], np.ndarray, np.ndarray]]:
    """((starts, stops), x, y): samples of windows of different lengths."""
    rows: list[tuple[Any, ...]] = [
        (((0, 1, 3),), ((2, 4, 5),), (2, 5, 3)),
        (((0, 2), (0, 0, 1)), ((3, 4), (1, 2, 2)), (2, 4, 2, 2)),
        (((0, 3),), ((2, 5),), (5, 1)),
        (((0, 2),), ((2, 3),), (0, 3, 2)),
    ]
    for starts, stops, to in rows:
        x = rng.permutation(prod(to)).reshape(to) * 0.5
        pooled = (*to[: -1 - len(starts)], *map(len, starts), to[-1])
        yield (starts, stops), x, rng.normal(size=pooled)
