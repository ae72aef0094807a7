"""Convolutions: images are [N, H, W, C], sequences [N, L, C], volumes [N, D, H, W, C].

Weights are [*kernel, in / groups, out]. A kernel size is one number for each spatial axis, so
that (3,) is for sequences, (3, 3) for images and (3, 3, 3) for volumes; a single number n is
(n, n). All weights and biases are uniform in ±1 / sqrt(fan), as in PyTorch: fan is the
number of inputs that an output sees, and for ConvTranspose the number of outputs of an input.
"""

from __future__ import annotations

from math import prod
from typing import Any

from retrograd.core.errors import ArgumentError
from retrograd.core.tensor import Tensor
from retrograd.nn import init
from retrograd.nn.module import Module
from retrograd.ops import options
from retrograd.ops.nn import conv

__all__ = ["Conv", "ConvTranspose", "DepthwiseConv"]


def _kernel(who: str, size: Any) -> tuple[int, ...]:
    sizes = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    if not sizes:
        raise ArgumentError(f"{who}: kernel_size has one number for each axis; got ()")
    return tuple(options.integer(who, "kernel_size", n, least=1) for n in sizes)


def _channels(who: str, in_channels: Any, out_channels: Any, groups: Any) -> tuple[int, ...]:
    deep = options.integer(who, "in_channels", in_channels, least=1)
    wide = options.integer(who, "out_channels", out_channels, least=1)
    groups = options.integer(who, "groups", groups, least=1)
    if deep % groups or wide % groups:
        raise ArgumentError(
            f"{who}: {groups} groups must divide the {deep} in channels and the {wide} out "
            f"channels"
        )
    return deep, wide, groups


def _weights(
    who: str, key: Any, shape: tuple[int, ...], fan: int, bias: Any, dtype: Any
) -> Any:
    for_weight, for_bias = init.keys(who, key, 2)
    weight = init.fan_uniform(for_weight, shape, fan, dtype)
    return weight, init.fan_uniform(for_bias, shape[-1:], fan, dtype) if bias else None


def _settled(value: Any) -> Any:
    """Numbers and pairs as a field holds them."""
    return tuple(map(_settled, value)) if isinstance(value, (tuple, list)) else value


def _about(layer: Any, *names: str) -> str:
    """Channels, kernel, and those options that are not the usual ones."""
    usual = {"stride": 1, "dilation": 1, "groups": 1, "padding": 0, "output_padding": 0}
    shape: tuple[Any, ...] = getattr(layer.weight, "shape", ("?", "?"))
    deep = "?" if shape[-2] == "?" else shape[-2] * layer.groups
    words = [f"{deep} -> {shape[-1]}", f"kernel {shape[-2 - layer.ndim : -2]}"]
    values = ((n, getattr(layer, n)) for n in names)
    return ", ".join(words + [f"{n} {v}" for n, v in values if v != usual[n]])


class Conv(Module):
    """x convolved with weight, plus bias; options as for `rg.nn.conv`.

    >>> layer = rg.nn.Conv(3, 16, (3, 3), padding="same", key=rg.random.key(0))
    >>> layer
    Conv(3 -> 16, kernel (3, 3), padding same, 448 numbers)
    >>> layer(rg.ones((8, 32, 32, 3))).shape
    (8, 32, 32, 16)
    """

    weight: Tensor
    bias: Tensor | None
    ndim: int
    stride: Any
    padding: Any
    dilation: Any
    groups: int
    layout: str | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        *,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        layout: str | None = None,
        key: Any,
        dtype: Any = None,
    ) -> None:
        kernel = _kernel("Conv", kernel_size)
        deep, wide, self.groups = _channels("Conv", in_channels, out_channels, groups)
        shape = (*kernel, deep // self.groups, wide)
        fan = prod(shape[:-1])
        self.weight, self.bias = _weights("Conv", key, shape, fan, bias, dtype)
        self.ndim, self.layout = len(kernel), layout
        self.stride, self.padding, self.dilation = map(_settled, (stride, padding, dilation))

    def __call__(self, x: Any) -> Tensor:
        """x [N, *spatial, in] to [N, *spatial, out]."""
        return conv.conv(
            x,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            layout=self.layout,
        )

    def about(self) -> str:
        """Channels, kernel and options."""
        return _about(self, "stride", "padding", "dilation", "groups")


class ConvTranspose(Module):
    """The transpose of a strided Conv: what that made small, this makes large again."""

    weight: Tensor
    bias: Tensor | None
    ndim: int
    stride: Any
    padding: Any
    output_padding: Any
    dilation: Any
    groups: int
    layout: str | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        *,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        layout: str | None = None,
        key: Any,
        dtype: Any = None,
    ) -> None:
        who = "ConvTranspose"
        kernel = _kernel(who, kernel_size)
        deep, wide, self.groups = _channels(who, in_channels, out_channels, groups)
        shape = (*kernel, deep // self.groups, wide)
        fan = prod(kernel) * wide // self.groups
        self.weight, self.bias = _weights(who, key, shape, fan, bias, dtype)
        self.ndim, self.layout = len(kernel), layout
        self.stride, self.padding, self.dilation = map(_settled, (stride, padding, dilation))
        self.output_padding = _settled(output_padding)

    def __call__(self, x: Any) -> Tensor:
        """x [N, *spatial, in] to [N, *spatial, out]."""
        return conv.conv_transpose(
            x,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=self.padding,
            output_padding=self.output_padding,
            dilation=self.dilation,
            groups=self.groups,
            layout=self.layout,
        )

    def about(self) -> str:
        """Channels, kernel and options."""
        return _about(self, "stride", "padding", "output_padding", "dilation", "groups")


class DepthwiseConv(Module):
    """Each channel convolved by itself, with `multiplier` kernels."""

    weight: Tensor
    bias: Tensor | None
    ndim: int
    stride: Any
    padding: Any
    dilation: Any
    groups: int
    layout: str | None

    def __init__(
        self,
        channels: int,
        kernel_size: Any,
        *,
        multiplier: int = 1,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        bias: bool = True,
        layout: str | None = None,
        key: Any,
        dtype: Any = None,
    ) -> None:
        who = "DepthwiseConv"
        kernel = _kernel(who, kernel_size)
        self.groups = channels = options.integer(who, "channels", channels, least=1)
        many = options.integer(who, "multiplier", multiplier, least=1)
        shape = (*kernel, 1, channels * many)
        self.weight, self.bias = _weights(who, key, shape, prod(kernel), bias, dtype)
        self.ndim, self.layout = len(kernel), layout
        self.stride, self.padding, self.dilation = map(_settled, (stride, padding, dilation))

    def __call__(self, x: Any) -> Tensor:
        """x [N, *spatial, channels] to [N, *spatial, channels * multiplier]."""
        return conv.depthwise_conv(
            x,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            layout=self.layout,
        )

    def about(self) -> str:
        """Channels, kernel and options."""
        return _about(self, "stride", "padding", "dilation")
