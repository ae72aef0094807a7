"""conv and its relatives: grouped, dilated, depthwise, separable and transposed, in 1-3-D.

x is [N, *spatial, in] and weights are [*kernel, in / groups, out], for every function of
this file. `layout="NCHW"` (NCL, NCDHW...) says that x and the result have their channels
second; weights stay as they are. `stride` and `dilation` are a number or one for each
spatial axis; `padding` is a number, a number or a pair (before, after) for each axis, or
"valid" (none), "same" (ceil(size / stride) results) or "causal" (all before the first
spatial axis, "same" on the others). Padding is zeros.

For the backward pass x and w are kept, each only if the other needs a gradient.
"""

from __future__ import annotations

from typing import Any

from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.tensor import Tensor
from retrograd.ops import arithmetic, options, shape
from retrograd.ops.nn import convolution, geometry
from retrograd.ops.nn.geometry import Frame, Sizes

__all__ = ["conv", "conv_transpose", "depthwise_conv", "separable_conv"]


def conv(
    x: Any,
    w: Any,
    /,
    b: Any = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: str | None = None,
) -> Tensor:
    """x convolved with w, plus b: out[o] = b + sum over t of x[o * stride + t * dilation] w[t].

    (Cross-correlation, as in all neural networks: w is not turned around.) x has one, two,
    three or more spatial axes, which its rank tells; with groups, channels are parted and
    each part of the out channels sees its part of the in channels.
    """
    return _conv("conv", x, w, b, stride, padding, dilation, groups, layout)


def _conv(
    who: str,
    x: Any,
    w: Any,
    b: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
    layout: Any,
) -> Tensor:
    x, w = geometry.channels_last(who, lift(x), layout), lift(w)
    groups = parted(who, x, w, groups)
    frame = geometry.frame(
        who, x.shape[1:-1], w.shape[:-2], stride=stride, padding=padding, dilation=dilation
    )
    op = convolution.Conv(frame.stride, frame.dilation, frame.before, groups, frame.counts)
    return geometry.as_given(who, biased(who, apply(op, x, w), b), layout)


def parted(who: str, x: Any, w: Any, groups: Any) -> int:
    """The number of groups (as many as channels if None); refuses what does not fit."""
    if x.ndim != w.ndim:
        raise ShapeError(
            f"{who}: x {x.shape} is [N, *spatial, in], w {w.shape} is [*kernel, in / groups, "
            f"out]; both must have as many axes",
            hint="x[None]      a batch of one",
        )
    deep, wide = x.shape[-1], w.shape[-1]
    groups = deep if groups is None else options.integer(who, "groups", groups, least=1)
    if w.shape[-2] * groups != deep:
        raise ShapeError(
            f"{who}: x {x.shape} has {deep} channels; w {w.shape} is [*kernel, in / groups, "
            f"out] for {w.shape[-2]} in each of {groups} groups"
        )
    if not groups:
        raise ShapeError(f"{who}: x {x.shape} has no channels")
    if wide % groups:
        raise ShapeError(f"{who}: {wide} out channels cannot be parted into {groups} groups")
    return groups


def biased(who: str, y: Any, b: Any) -> Any:
    if b is None:
        return y
    b = lift(b)
    if b.shape != y.shape[-1:]:
        raise ShapeError(
            f"{who}: b {b.shape} must have one number for each of {y.shape[-1]} out channels"
        )
    return arithmetic.add(y, b)


def depthwise_conv(
    x: Any,
    w: Any,
    /,
    b: Any = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    layout: str | None = None,
) -> Tensor:
    """Each channel convolved by itself: w is [*kernel, 1, in * multiplier].

    Channel c becomes the out channels from c * multiplier on, of which there are
    `multiplier` (1, 2, ...).
    """
    return _conv("depthwise_conv", x, w, b, stride, padding, dilation, None, layout)


def separable_conv(
    x: Any,
    depthwise: Any,
    pointwise: Any,
    /,
    b: Any = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    layout: str | None = None,
) -> Tensor:
    """A depthwise convolution, then one that mixes channels at each place.

    `depthwise` is [*kernel, 1, in * multiplier], `pointwise` [*1s, in * multiplier, out] or
    simply [in * multiplier, out].
    """
    who = "separable_conv"
    y = _conv(who, x, depthwise, None, stride, padding, dilation, None, layout)
    w = lift(pointwise)
    if w.ndim == 2:
        w = shape.reshape(w, (1,) * (y.ndim - 2) + w.shape)
    if any(n != 1 for n in w.shape[:-2]):
        raise ShapeError(f"{who}: pointwise {w.shape} must have a kernel of one place")
    return _conv(who, y, w, b, 1, 0, 1, 1, layout)


def conv_transpose(
    x: Any,
    w: Any,
    /,
    b: Any = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: str | None = None,
) -> Tensor:
    """The transpose of conv: out[i * stride + t * dilation - padding] += x[i] w[t], plus b.

    What a strided conv made small becomes large again: the result has (size - 1) * stride +
    dilation * (kernel - 1) + 1 - both paddings + output_padding places on each axis, and
    size * stride with padding "same" or "causal" (where out[o] sees x[i] for i * stride <= o
    alone). Weights are [*kernel, in / groups, out], as for conv; they are not turned around.
    """
    who = "conv_transpose"
    x, w = geometry.channels_last(who, lift(x), layout), lift(w)
    groups = parted(who, x, w, groups)
    geometry_ = (stride, padding, output_padding, dilation)
    frame, sizes = _spread(who, x.shape[1:-1], w.shape[:-2], *geometry_)
    op = convolution.ConvInput(frame.stride, frame.dilation, frame.before, groups, sizes)
    return geometry.as_given(who, biased(who, apply(op, x, _swapped(w, groups)), b), layout)


def _spread(
    who: str,
    counts: Sizes,
    kernel: Sizes,
    stride: Any,
    padding: Any,
    output_padding: Any,
    dilation: Any,
) -> tuple[Frame, Sizes]:
    """The windows that x's elements are spread over, and the sizes of the result."""
    axes = len(counts)
    if min(*counts, *kernel) < 1:
        raise ShapeError(f"{who}: sizes {counts} and kernel {kernel} must not be 0")
    stride = geometry.per_axis(who, "stride", stride, axes)
    dilation = geometry.per_axis(who, "dilation", dilation, axes)
    more = geometry.per_axis(who, "output_padding", output_padding, axes, least=0)
    named = isinstance(padding, str) and padding != "valid"
    sizes = tuple(n * s for n, s in zip(counts, stride, strict=True))
    pairs = geometry.padded(who, padding, sizes, kernel, stride, dilation)
    before = tuple(p[0] for p in pairs)
    if padding == "causal":
        before = (0, *before[1:])  # each element reaches ahead, where the windows look back
    frame = Frame(kernel, stride, dilation, before, counts)
    if not named:
        sizes = tuple(r - sum(p) for r, p in zip(frame.reach, pairs, strict=True))
    sizes = tuple(n + m for n, m in zip(sizes, more, strict=True))
    if min(sizes) < 1:
        raise ShapeError(f"{who}: padding {padding} leaves a result of sizes {sizes}")
    for m, s, d in zip(more, stride, dilation, strict=True):
        if m >= max(s, d):
            raise ArgumentError(
                f"{who}: output_padding {m} must be less than the stride {s} or dilation {d}"
            )
    return geometry.plain(frame), options.possible(who, sizes)


def _swapped(w: Any, groups: int) -> Any:
    """Weights [*kernel, in / groups, out] as [*kernel, out / groups, in]."""
    *kernel, deep, wide = w.shape
    apart = shape.reshape(w, (*kernel, deep, groups, wide // groups))
    turned = shape.swapaxes(apart, -3, -1)
    return shape.reshape(turned, (*kernel, wide // groups, groups * deep))
