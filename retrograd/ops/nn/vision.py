"""Images: pixel shuffles, and how similar two images are."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import lift
from retrograd.core.tensor import Tensor
from retrograd.core.whole import whole
from retrograd.ops import join, options, reduce, shape
from retrograd.ops.nn import conv, geometry

__all__ = ["pixel_shuffle", "pixel_unshuffle", "ssim"]


def pixel_shuffle(x: Any, factor: int, /, *, layout: str | None = None) -> Tensor:
    """[N, H, W, C r²] to [N, H r, W r, C]: channel c r² + i r + j goes to pixel (i, j).

    The order of channels is PyTorch's. Only moved, nothing is kept.
    """
    x = _image("pixel_shuffle", x, layout)
    r = options.integer("pixel_shuffle", "factor", factor, least=1)
    n, h, w, c = x.shape
    if c % (r * r):
        raise ShapeError(
            f"pixel_shuffle: {c} channels of x {x.shape} do not divide by factor² = {r * r}"
        )
    out = shape.reshape(x, (n, h, w, c // (r * r), r, r))
    out = shape.permute_dims(out, (0, 1, 4, 2, 5, 3))
    out = shape.reshape(out, (n, h * r, w * r, c // (r * r)))
    return geometry.as_given("pixel_shuffle", out, layout)


def pixel_unshuffle(x: Any, factor: int, /, *, layout: str | None = None) -> Tensor:
    """[N, H r, W r, C] to [N, H, W, C r²]: the inverse of `pixel_shuffle`."""
    x = _image("pixel_unshuffle", x, layout)
    r = options.integer("pixel_unshuffle", "factor", factor, least=1)
    n, h, w, c = x.shape
    if h % r or w % r:
        raise ShapeError(
            f"pixel_unshuffle: height {h} and width {w} of x {x.shape} must divide by {r}"
        )
    out = shape.reshape(x, (n, h // r, r, w // r, r, c))
    out = shape.permute_dims(out, (0, 1, 3, 5, 2, 4))
    out = shape.reshape(out, (n, h // r, w // r, c * r * r))
    return geometry.as_given("pixel_unshuffle", out, layout)


def _image(who: str, x: Any, layout: str | None) -> Any:
    x = lift(x)
    if x.ndim != 4:
        raise ShapeError(f"{who}: x {x.shape} must be [N, H, W, C]")
    return geometry.channels_last(who, x, layout)


@whole
def ssim(
    x: Any,
    y: Any,
    /,
    *,
    range: float = 1.0,
    window: int = 11,
    sigma: float = 1.5,
    constants: tuple[float, float] = (0.01, 0.03),
    reduction: str = "mean",
    layout: str | None = None,
) -> Tensor:
    """The structural similarity of images [N, H, W, C], 1 where they are equal.

    Means, variances and covariance under a Gaussian window that lies inside the image;
    `range` is the distance of the smallest and largest value. reduction: "mean" of all,
    "image" for each image, "none" for the map [N, H - window + 1, W - window + 1, C].
    """
    x, y = _image("ssim", x, layout), _image("ssim", y, layout)
    window = options.integer("ssim", "window", window, least=1)
    if x.shape != y.shape or min(x.shape[1:3]) < window:
        raise ShapeError(
            f"ssim: x {x.shape} and y {y.shape} must have one shape and sides of at least the "
            f"window's {window}"
        )
    if reduction not in ("mean", "image", "none"):
        raise ArgumentError(f"ssim: reduction {reduction!r} is not mean, image or none")
    places = np.arange(window) - (window - 1) / 2
    weights = np.exp(-(places**2) / (2 * options.number("ssim", "sigma", sigma) ** 2))
    weights = lift((weights / weights.sum()).astype(x.dtype if x.dtype.kind == "f" else None))
    c1, c2 = ((k * range) ** 2 for k in constants)
    maps = join.concat([x, y, x * x, y * y, x * y], axis=-1)
    mx, my, xx, yy, xy = join.split(_blurred(maps, weights), 5, axis=-1)
    vx, vy, both = xx - mx * mx, yy - my * my, xy - mx * my
    found = (2.0 * mx * my + c1) * (2.0 * both + c2)
    found = found / ((mx * mx + my * my + c1) * (vx + vy + c2))
    if reduction == "none":
        return geometry.as_given("ssim", found, layout)
    return reduce.mean(found, axis=(1, 2, 3) if reduction == "image" else None)


def _blurred(x: Any, weights: Any) -> Any:
    """Weighted sums of windows along the height, then along the width, of each channel."""
    n, channels = weights.shape[0], x.shape[-1]
    for kernel in ((n, 1), (1, n)):
        w = shape.broadcast_to(shape.reshape(weights, (*kernel, 1, 1)), (*kernel, 1, channels))
        x = conv.conv(x, w, groups=channels)
    return x
