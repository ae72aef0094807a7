"""Images read at points between their elements: grid_sample, affine_grid, bilinear reading.

Everything is written in ops, so that all derivatives exist, also of the gradient: of the
image it is linear, of the points it is the slope between elements. At whole coordinates,
where the slope jumps, it is that to the right.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import lift
from retrograd.core.tensor import Tensor
from retrograd.core.whole import whole
from retrograd.ops import cast, create, gather, linalg, rounding, select, shape
from retrograd.ops.nn import geometry
from retrograd.ops.nn.resize import CUBIC

__all__ = ["affine_grid", "grid_sample"]


def _pixels(g: Any, n: int, *, aligned: bool) -> Any:
    """Coordinates from -1 to 1 as places from 0 to n - 1."""
    return (g + 1.0) * (0.5 * (n - 1)) if aligned else ((g + 1.0) * n - 1.0) * 0.5


def _reflected(at: Any, n: int, *, aligned: bool) -> Any:
    """Places folded back into an axis, about its end elements or about its edges."""
    low, span = (0.0, n - 1.0) if aligned else (-0.5, float(n))
    if not span:
        return at * 0.0
    far = abs(at - low)
    turns = rounding.floor(far / span)
    rest = far - turns * span
    even = turns - 2.0 * rounding.floor(turns * 0.5) == 0.0
    return select.where(even, rest, span - rest) + low


def _within(at: Any, n: int, padding: str, *, aligned: bool) -> Any:
    """Places as the padding has them."""
    if padding == "zeros":
        return at
    if padding == "reflection":
        at = _reflected(at, n, aligned=aligned)
    return select.clip(at, 0.0, float(n - 1))


def _linear(at: Any) -> list[tuple[Any, Any]]:
    """(whole place, weight) of both neighbours."""
    low = rounding.floor(at)
    part = at - low
    return [(low, 1.0 - part), (low + 1.0, part)]


def _cubic(at: Any) -> list[tuple[Any, Any]]:
    """(whole place, weight) of four neighbours: cubic convolution."""
    low, a = rounding.floor(at), CUBIC
    part = at - low

    def inner(s: Any) -> Any:
        return ((a + 2) * s - (a + 3)) * s * s + 1.0

    def outer(s: Any) -> Any:
        return ((a * s - 5 * a) * s + 8 * a) * s - 4 * a

    return [
        (low - 1.0, outer(part + 1.0)),
        (low, inner(part)),
        (low + 1.0, inner(1.0 - part)),
        (low + 2.0, outer(2.0 - part)),
    ]


def read(x: Any, rows: Any, taps: list[list[tuple[Any, Any]]]) -> Any:
    """Sums of weighted elements of x [N, *spatial, C]; outside x there are zeros.

    `rows` are batch indices (any shape), `taps` per axis the (whole place, weight) to read.
    """
    sizes = x.shape[1:-1]
    table = shape.reshape(x, (x.shape[0] * prod(sizes), x.shape[-1]))
    total = None
    for corner in product(*taps):
        flat, weight = rows, None
        for (at, w), n in zip(corner, sizes, strict=True):
            inside = (at >= 0.0) & (at <= n - 1.0)
            index = cast.astype(select.clip(at, 0.0, n - 1.0), dt.int64)
            flat = flat * n + index
            w = select.where(inside, w, 0.0)
            weight = w if weight is None else weight * w
        assert weight is not None
        found = gather.take(table, flat, axis=0) * shape.reshape(weight, (*weight.shape, 1))
        total = found if total is None else total + found
    return total


@whole
def grid_sample(
    x: Any,
    grid: Any,
    /,
    *,
    mode: str = "bilinear",
    padding: str = "zeros",
    align_corners: bool = False,
    layout: str | None = None,
) -> Tensor:
    """x [N, *spatial, C] read at grid [N, *out, axes]: [N, *out, C], any number of axes.

    The last axis of grid is (x, y) or (x, y, z), from -1 to 1, as in PyTorch; with
    `align_corners` these are the centres of the end elements, else the edges. Modes:
    bilinear, nearest (no slope in the grid), bicubic. Padding: zeros, border, reflection.
    """
    x = geometry.channels_last("grid_sample", lift(x), layout)
    grid = lift(grid)
    axes = x.ndim - 2
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ArgumentError(f"grid_sample: mode {mode!r} is not bilinear, nearest or bicubic")
    if padding not in ("zeros", "border", "reflection"):
        raise ArgumentError(
            f"grid_sample: padding {padding!r} is not zeros, border or reflection"
        )
    if grid.ndim != x.ndim or grid.shape[0] != x.shape[0] or grid.shape[-1] != axes:
        raise ShapeError(
            f"grid_sample: grid {grid.shape} must be [{x.shape[0]}, {axes} axes of points, "
            f"{axes}] for x {x.shape}"
        )
    if not all(x.shape[1:-1]):
        raise ShapeError(f"grid_sample: x {x.shape} has an empty spatial axis")
    taps = []
    for k, n in enumerate(x.shape[1:-1]):
        at = _pixels(grid[..., axes - 1 - k], n, aligned=align_corners)
        taps.append(_taps(at, n, mode, padding, aligned=align_corners))
    number = create.arange(x.shape[0])
    rows = shape.reshape(number, (x.shape[0], *(1,) * axes))
    return geometry.as_given("grid_sample", read(x, rows, taps), layout)


def _taps(at: Any, n: int, mode: str, padding: str, *, aligned: bool) -> list[Any]:
    """What to read along an axis of length n for points at `at`."""
    if mode == "bicubic":  # here every neighbour is padded by itself
        return [(_within(i, n, padding, aligned=aligned), w) for i, w in _cubic(at)]
    at = _within(at, n, padding, aligned=aligned)
    if mode == "nearest":
        return [(rounding.round(at), create.ones((), dtype=at.dtype))]
    return _linear(at)


def affine_grid(theta: Any, size: Any, /, *, align_corners: bool = False) -> Tensor:
    """The grid of points theta @ (x, y, 1) for an image of spatial `size`: [N, *size, axes].

    theta is [N, 2, 3], or [N, 3, 4] for a volume.
    """
    theta = lift(theta)
    axes = theta.shape[-2] if theta.ndim == 3 else 0
    if axes not in (2, 3) or theta.shape[-1] != axes + 1:
        raise ShapeError(f"affine_grid: theta {theta.shape} must be [N, 2, 3] or [N, 3, 4]")
    size = geometry.per_axis("affine_grid", "size", size, axes)
    lines = [
        np.linspace(-1, 1, n) if align_corners and n > 1 else (2 * np.arange(n) + 1) / n - 1
        for n in size
    ]
    mesh = np.meshgrid(*lines, indexing="ij")[::-1]
    base = np.stack([*mesh, np.ones(size)], -1).reshape(prod(size), axes + 1)
    out = linalg.matmul(lift(base.astype(theta.dtype)), linalg.matrix_transpose(theta))
    return shape.reshape(out, (theta.shape[0], *size, axes))
