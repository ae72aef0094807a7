"""Normalisation: layer, rms, group, instance, batch; weight and spectral norm.

All of them stand on one op, Standardize, which keeps its result and one number for each
group, never its input: the result says where each element lies, and that is what the
derivative is made of.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Op, op
from retrograd.core.spec import Spec, axes_tuple, axis_index
from retrograd.core.tensor import Tensor
from retrograd.core.whole import whole
from retrograd.ops import linalg, norm, power, reduce, rounding, shape

__all__ = [
    "add_layer_norm",
    "add_rms_norm",
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "rms_norm",
    "spectral_norm",
    "weight_norm",
]


@op
class Standardize(Op):
    """(x - mean) / sqrt(variance + eps) over axes, and that 1 / sqrt; or x over its rms."""

    axis: tuple[int, ...]
    eps: float
    centred: bool = True
    outputs = ("out", "scale")
    uniform = True
    takes = "floating"

    def shape(self, x: Spec) -> tuple[Spec, Spec]:
        return x, x.with_shape(reduce.reduced(x.shape, self.axis, keepdims=True))

    def forward(self, x):
        n = x.dtype.type(prod(x.shape[a] for a in self.axis))
        if self.centred:
            x = x - np.add.reduce(x, axis=self.axis, keepdims=True) / n
        mean_square = np.add.reduce(np.square(x), axis=self.axis, keepdims=True) / n
        scale = 1 / np.sqrt(mean_square + x.dtype.type(self.eps))
        return np.multiply(x, scale, out=x if self.centred else None), scale

    def _centre(self, t):
        return t - self._mean(t) if self.centred else t

    def _mean(self, t):
        if _grouped(t, self.axis):
            return _group_mean(t)
        return reduce.mean(t, axis=self.axis, keepdims=True)

    def jvp(self, dx, out, scale):
        c = self._centre(dx)
        along = self._mean(out * c)
        return scale * (c - out * along), -(scale * scale * along)

    def vjp(self, g_out: Tensor | None, g_scale: Tensor | None, out, scale):
        found = 0
        if g_out is not None:  # the mean of out is 0, if it is centred
            found = scale * (self._centre(g_out) - out * self._mean(g_out * out))
        if g_scale is not None:
            n = max(1, prod(out.shape[a] for a in self.axis))
            found = found - g_scale * (scale * scale) * out * (1 / n)
        return found

    def batch(self, size, args, mapped):
        return apply(self.replace(axis=tuple(a + 1 for a in self.axis)), *args)

    def expand(self, x):
        parts = _parts(x, self.axis) if self.centred else None
        if parts:
            mean, mean_square = _moments(x, parts)
            x = x - mean
        elif self.centred and _grouped(x, self.axis):
            mean, mean_square = _group_moments(x)
            x = x - mean
        else:
            x = self._centre(x)
            mean_square = self._mean(x * x)
        scale = power.rsqrt(mean_square + self.eps)
        return x * scale, scale

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(2, 3, 4)) * 2 + 1
        for centred in (True, False):
            yield Standardize((2,), 1e-5, centred), x
            yield Standardize((0, 1), 1e-3, centred), x
            yield Standardize((1, 3), 1e-3, centred), rng.normal(size=(2, 3, 2, 2)) + 1


NEAR = 1024  # lines of channels that stay in a cache while they are read twice


def _parts(x: Any, axis: tuple[int, ...]) -> tuple[int, ...] | None:
    """x [N, H, ..., C] as parts (N, some of H, rest of H, ...), if it is so standardised."""
    if axis != tuple(range(x.ndim - 1)) or x.ndim < 3 or x.dtype in dt.HALF:
        return None
    batch, rows, *rest = x.shape
    if batch < 8 or not x.size or prod(x.shape[:-1]) <= NEAR:
        return None
    lines = prod(rest[:-1])
    cuts = [n for n in range(1, rows + 1) if rows % n == 0 and rows // n * lines <= NEAR]
    cut = cuts[0] if cuts else rows
    return batch, cut, rows // cut, *rest


def _means(x: Any, parts: tuple[int, ...]) -> tuple[Any, Any]:
    """The mean of each channel in each part, and in all."""
    lines = tuple(range(2, len(parts) - 1))
    means = reduce.mean(shape.reshape(x, parts), axis=lines)
    return means, reduce.mean(means, axis=(0, 1))


def _moments(x: Any, parts: tuple[int, ...]) -> tuple[Any, Any]:
    """Mean and mean squared distance from it, of each channel: reading x from afar once.

    Of each part by itself; then the distances of the parts' means from the mean of all.
    """
    means, mean = _means(x, parts)
    ones = (1,) * (len(parts) - 3)
    away = shape.reshape(x, parts) - shape.reshape(means, (*parts[:2], *ones, parts[-1]))
    inside = reduce.sum(away * away, axis=tuple(range(2, len(parts) - 1)))
    total = reduce.sum(inside, axis=(0, 1)) / prod(parts[:-1])
    total = total + reduce.mean(power.square(means - mean), axis=(0, 1))
    to = (*(1 for _ in range(x.ndim - 1)), x.shape[-1])
    return shape.reshape(mean, to), shape.reshape(total, to)


def _grouped(x: Any, axis: tuple[int, ...]) -> bool:
    """Whether x [N, ..., groups, channels] is standardised over all but N and groups."""
    wanted = (*range(1, x.ndim - 2), x.ndim - 1)
    return axis == wanted and x.ndim > 3 and x.size > 0 and x.dtype not in dt.HALF


ENOUGH = 32  # parts, which sums over all of a batch have as well: both are then one kernel


def _group_mean(t: Any) -> Any:
    """The mean of each group: by channels, in whole lines, then over what is left of them."""
    batch, rows, *rest, groups, each = t.shape
    cuts = (n for n in range(1, rows + 1) if rows % n == 0 and batch * n >= ENOUGH)
    cut = next(cuts, rows)
    parts = shape.reshape(t, (batch, cut, rows // cut, *rest, groups * each))
    columns = reduce.sum(parts, axis=tuple(range(2, parts.ndim - 1)))
    columns = shape.reshape(columns, (batch, cut, groups, each))
    mean = reduce.sum(columns, axis=(1, 3)) / (rows * prod(rest) * each)
    return shape.reshape(mean, (batch, 1, *(1 for _ in rest), groups, 1))


def _group_moments(x: Any) -> tuple[Any, Any]:
    """Mean and mean squared distance from it, of each group: by channels, in whole lines.

    Of parts of each channel by themselves, as `_moments` does.
    """
    batch, *lines, groups, each = x.shape
    count = prod(lines)
    cut = next(n for n in range(1, count + 1) if count % n == 0 and count // n <= NEAR)
    parts = shape.reshape(x, (batch, cut, count // cut, groups * each))
    means = reduce.mean(parts, axis=2, keepdims=True)
    away = parts - means
    inside = reduce.sum(away * away, axis=2, keepdims=True)
    means, inside = (shape.reshape(t, (batch, cut, groups, each)) for t in (means, inside))
    mean = reduce.mean(means, axis=(1, 3), keepdims=True)
    total = reduce.sum(inside, axis=(1, 3), keepdims=True) / (count * each)
    total = total + reduce.mean(power.square(means - mean), axis=(1, 3), keepdims=True)
    to = (batch, *(1 for _ in lines), groups, 1)
    return shape.reshape(mean, to), shape.reshape(total, to)


def _mean(x: Any, axes: tuple[int, ...]) -> Any:
    """The mean of each channel, in the way that `Standardize` finds it."""
    parts = _parts(x, axes)
    return _means(x, parts)[1] if parts else reduce.mean(x, axis=axes)


def _affine(who: str, y: Any, w: Any, b: Any, axes: tuple[int, ...]) -> Tensor:
    """y * w + b, with w and b of the shape of y along `axes`."""
    wanted = tuple(y.shape[a] for a in axes)
    beside = tuple(n if a in axes else 1 for a, n in enumerate(y.shape))
    for name, p in (("w", w), ("b", b)):
        if p is not None and lift(p).shape != wanted:
            raise ShapeError(
                f"{who}: {name} must have the shape of what is normalised, {wanted}; "
                f"got {lift(p).shape}"
            )
    if w is not None:
        y = y * shape.reshape(w, beside)
    return y if b is None else y + shape.reshape(b, beside)


def _standard(who: str, x: Any, axes: tuple[int, ...], eps: float, *, centred: bool) -> Any:
    if not eps >= 0:
        raise ArgumentError(f"{who}: eps must not be negative; got {eps}")
    return apply(Standardize(axes, float(eps), centred), x)


@whole
def layer_norm(
    x: Any, /, w: Any = None, b: Any = None, *, axis: Any = -1, eps: float = 1e-5
) -> Tensor:
    """x with mean 0 and variance 1 over `axis`, then times w plus b."""
    x = lift(x)
    axes = axes_tuple("layer_norm", axis, x.ndim)
    y, _ = _standard("layer_norm", x, axes, eps, centred=True)
    return _affine("layer_norm", y, w, b, axes)


@whole
def rms_norm(
    x: Any, /, w: Any = None, b: Any = None, *, axis: Any = -1, eps: float = 1e-6
) -> Tensor:
    """x over its root mean square along `axis`, then times w plus b."""
    x = lift(x)
    axes = axes_tuple("rms_norm", axis, x.ndim)
    y, _ = _standard("rms_norm", x, axes, eps, centred=False)
    return _affine("rms_norm", y, w, b, axes)


def add_layer_norm(
    x: Any, residual: Any, /, w: Any = None, b: Any = None, *, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """layer_norm(x + residual), and that sum, which the next block's residual is."""
    total = lift(x) + lift(residual)
    return layer_norm(total, w, b, eps=eps), total


def add_rms_norm(
    x: Any, residual: Any, /, w: Any = None, b: Any = None, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """rms_norm(x + residual), and that sum."""
    total = lift(x) + lift(residual)
    return rms_norm(total, w, b, eps=eps), total


@whole
def group_norm(
    x: Any, groups: int, /, w: Any = None, b: Any = None, *, eps: float = 1e-5
) -> Tensor:
    """x [N, *spatial, C] standardised over space and each of `groups` groups of channels."""
    x = lift(x)
    if x.ndim < 2 or groups < 1 or x.shape[-1] % groups:
        raise ShapeError(
            f"group_norm: x [N, ..., C] must have channels that {groups} groups divide; "
            f"got {x.shape}"
        )
    split = shape.reshape(x, (*x.shape[:-1], groups, x.shape[-1] // groups))
    axes = (*range(1, x.ndim - 1), x.ndim)
    y, _ = _standard("group_norm", split, axes, eps, centred=True)
    return _affine("group_norm", shape.reshape(y, x.shape), w, b, (x.ndim - 1,))


@whole
def instance_norm(x: Any, /, w: Any = None, b: Any = None, *, eps: float = 1e-5) -> Tensor:
    """x [N, *spatial, C] standardised over space, for each sample and channel apart."""
    x = lift(x)
    if x.ndim < 3:
        raise ShapeError(f"instance_norm: x must be [N, *spatial, C]; got shape {x.shape}")
    y, _ = _standard("instance_norm", x, tuple(range(1, x.ndim - 1)), eps, centred=True)
    return _affine("instance_norm", y, w, b, (x.ndim - 1,))


@whole
def batch_norm(
    x: Any,
    mean: Any,
    var: Any,
    /,
    w: Any = None,
    b: Any = None,
    *,
    training: bool,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor, Tensor]:
    """x [..., C] standardised for each channel, and the running mean and variance after it.

    In training by the statistics of the batch, and the running ones move towards them by
    `momentum` (the variance unbiased, as PyTorch has it); else by the running ones, which
    stay. Statistics are results, never state: nothing happens twice under a checkpoint.
    """
    x, mean, var = lift(x), lift(mean), lift(var)
    channels = x.shape[-1:]
    if x.ndim < 2 or mean.shape != channels or var.shape != channels:
        raise ShapeError(
            f"batch_norm: mean {mean.shape} and var {var.shape} must be one number for each "
            f"channel of x {x.shape}, its last axis"
        )
    last = (x.ndim - 1,)
    if not training:
        y = (x - mean) * power.rsqrt(var + eps)
        return _affine("batch_norm", y, w, b, last), mean, var
    y, new_mean, new_var = _batch_statistics(x, eps)
    moved = mean + momentum * (new_mean - mean), var + momentum * (new_var - var)
    return _affine("batch_norm", y, w, b, last), *moved


def _batch_statistics(x: Any, eps: float) -> tuple[Any, Any, Any]:
    """x standardised by its own mean and variance; these, as constants, the latter unbiased."""
    axes, n = tuple(range(x.ndim - 1)), prod(x.shape[:-1])
    if n < 2:
        raise ShapeError(
            f"batch_norm: training needs more than one value for each channel; x is {x.shape}"
        )
    y, scale = _standard("batch_norm", x, axes, eps, centred=True)
    biased = shape.reshape(1 / (scale * scale), x.shape[-1:]) - eps
    mean = rounding.stop_gradient(_mean(x, axes))
    return y, mean, rounding.stop_gradient(biased) * (n / (n - 1))


def weight_norm(v: Any, g: Any, /, *, axis: int = -1) -> Tensor:
    """g * v / |v|: a weight as a length for each slice along `axis`, and a direction."""
    v, g = lift(v), lift(g)
    axis = axis_index("weight_norm", axis, v.ndim)
    others = tuple(a for a in range(v.ndim) if a != axis)
    length = norm.norm(v, axis=others, keepdims=True)
    beside = tuple(n if a == axis else 1 for a, n in enumerate(v.shape))
    return v * (shape.reshape(g, beside) / length)


def spectral_norm(
    w: Any, u: Any, /, *, steps: int = 1, eps: float = 1e-12
) -> tuple[Tensor, Tensor]:
    """w over its largest singular value, found by power steps from u; and u after them.

    w is [..., out], read as a matrix with `out` columns; u is [out]. As in the paper, the
    singular vectors are constants to the derivative.
    """
    w, u = lift(w), lift(u)
    matrix = shape.reshape(w, (-1, w.shape[-1]))
    if u.shape != w.shape[-1:]:
        raise ShapeError(f"spectral_norm: u {u.shape} must be one number for each column of w")
    fixed, right = rounding.stop_gradient(matrix), rounding.stop_gradient(u)
    left = linalg.matmul(fixed, right)
    for _ in range(steps):
        left = linalg.matmul(fixed, right)
        left = left / (norm.norm(left) + eps)
        right = linalg.matmul(shape.permute_dims(fixed, (1, 0)), left)
        right = right / (norm.norm(right) + eps)
    left = rounding.stop_gradient(left / (norm.norm(left) + eps))
    sigma = linalg.matmul(left, linalg.matmul(matrix, rounding.stop_gradient(right)))
    return w / sigma, right
