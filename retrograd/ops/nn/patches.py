"""Windows of images laid out as rows, and rows added back into images.

`unfolded` and `folded` are the plain way to convolve, in ops: what a convolution expands to.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from retrograd.core.errors import ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.tensor import Tensor
from retrograd.ops import create, pad, shape, slices, windows
from retrograd.ops.nn import geometry
from retrograd.ops.nn.geometry import Frame, Sizes

__all__ = ["col2im", "im2col"]


def moved(x: Any, before: Sizes, sizes: Sizes) -> Any:
    """y[n, i, c] = x[n, i - before, c] for i < sizes, and zero outside x."""
    axes = list(zip(before, x.shape[1:-1], sizes, strict=True))
    ends = [(max(-b, 0), min(n, m - b)) for b, n, m in axes]
    if any(stop <= start for start, stop in ends):
        return create.zeros((x.shape[0], *sizes, x.shape[-1]), dtype=x.dtype)
    own = [(start, stop - start, 1) for start, stop in ends]
    x = slices.part(x, ((0, x.shape[0], 1), *own, (0, x.shape[-1], 1)))
    around = [(max(b, 0), max(m - b - n, 0)) for b, n, m in axes]
    if not any(a or b for a, b in around):
        return x
    return apply(pad.Pad(((0, 0), *around, (0, 0))), x)


def unfolded(x: Any, frame: Frame) -> Any:
    """Windows [N, *counts, *kernel, C] of x [N, *sizes, C], zeros outside it."""
    axes = len(frame.kernel)
    x = moved(x, frame.before, frame.reach)
    for a in range(axes):
        step = windows.Unfold(a + 1, frame.kernel[a], frame.stride[a], frame.dilation[a])
        x = apply(step, x)
    return shape.moveaxis(x, axes + 1, -1)


def folded(y: Any, frame: Frame, sizes: Sizes) -> Any:
    """The transpose of `unfolded`: [N, *sizes, C], each element the sum of its places."""
    axes = len(frame.kernel)
    y = shape.moveaxis(y, -1, axes + 1)
    for a in reversed(range(axes)):
        y = apply(windows.Fold(a + 1, frame.reach[a], frame.stride[a], frame.dilation[a]), y)
    return moved(y, tuple(-b for b in frame.before), sizes)


def added(y: Any, frame: Frame, sizes: Sizes) -> Any:
    """As `folded`, of windows [N, *counts, places, C]: place by place, in one kernel."""
    out = None
    for number, tap in enumerate(np.ndindex(*frame.kernel)):
        part = pad.piece(y, y.ndim - 2, number, 1)
        part = shape.reshape(part, (*y.shape[:-2], y.shape[-1]))
        for a, step in enumerate(frame.stride):
            part = _between(part, a + 1, step)
        first = zip(frame.dilation, tap, frame.before, strict=True)
        part = moved(part, tuple(d * t - b for d, t, b in first), sizes)
        out = part if out is None else out + part
    return out


def _between(x: Any, axis: int, step: int) -> Any:
    """Zeros between the elements of an axis, which are a step apart then."""
    count = x.shape[axis]
    if step == 1 or count < 2:
        return x
    head, tail = x.shape[:axis], x.shape[axis + 1 :]
    x = shape.reshape(x, (*head, count, 1, *tail))
    widths = tuple((0, step - 1) if a == axis + 1 else (0, 0) for a in range(x.ndim))
    x = shape.reshape(apply(pad.Pad(widths), x), (*head, count * step, *tail))
    return pad.piece(x, axis, 0, step * (count - 1) + 1)


def im2col(
    x: Any,
    kernel: Any,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    layout: str | None = None,
) -> Tensor:
    """The windows of x [N, *spatial, C] as rows: [N, *windows, places * C].

    A row has the order of weights [*kernel, C, out], so that a convolution without groups
    is `im2col(x, kernel) @ w.reshape(-1, out)`. Nothing is kept.
    """
    x = geometry.channels_last("im2col", lift(x), layout)
    frame = geometry.frame(
        "im2col", x.shape[1:-1], kernel, stride=stride, padding=padding, dilation=dilation
    )
    width = prod(frame.kernel) * x.shape[-1]
    return shape.reshape(unfolded(x, frame), (x.shape[0], *frame.counts, width))


def col2im(
    y: Any,
    size: Any,
    kernel: Any,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    layout: str | None = None,
) -> Tensor:
    """Rows [N, *windows, places * C] added up where their windows lie: [N, *size, C].

    The transpose of `im2col` with the same options of an x whose spatial axes are `size`.
    """
    y = lift(y)
    size = geometry.per_axis("col2im", "size", size, y.ndim - 2, least=0)
    frame = geometry.frame(
        "col2im", size, kernel, stride=stride, padding=padding, dilation=dilation
    )
    places = prod(frame.kernel)
    if y.ndim < 3 or y.shape[1:-1] != frame.counts or y.shape[-1] % places:
        raise ShapeError(
            f"col2im: y {y.shape} must be [N, *windows, places * C]; a kernel {frame.kernel} "
            f"over size {size} has {frame.counts} windows of {places} places"
        )
    apart = (y.shape[0], *frame.counts, *frame.kernel, y.shape[-1] // places)
    return geometry.as_given("col2im", folded(shape.reshape(y, apart), frame, size), layout)
