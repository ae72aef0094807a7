"""Norms: weights start at 1, biases at 0. Channels are the last axis."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, overload

from retrograd.core.errors import ArgumentError
from retrograd.core.tensor import Tensor
from retrograd.nn.module import Module
from retrograd.ops import create, options
from retrograd.ops.nn import norms

__all__ = ["BatchNorm", "GroupNorm", "InstanceNorm", "LayerNorm", "RMSNorm"]


def _affine(shape: Any, dtype: Any, *, weight: bool, bias: bool) -> tuple[Any, Any]:
    """A weight of ones and a bias of zeros, each where it is wanted."""
    return (
        create.ones(shape, dtype=dtype) if weight else None,
        create.zeros(shape, dtype=dtype) if bias else None,
    )


def _shape(who: str, shape: Any) -> tuple[int, ...]:
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if not sizes:
        raise ArgumentError(f"{who}: shape is a size, or one for each axis; got ()")
    return tuple(options.integer(who, "shape", n, least=1) for n in sizes)


def _size(shape: tuple[int, ...]) -> str:
    return str(shape[0] if len(shape) == 1 else shape)


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last axis, or as many axes as `shape` has sizes.

    >>> rg.nn.LayerNorm(256)
    LayerNorm(256, 512 numbers)
    """

    weight: Tensor | None
    bias: Tensor | None
    shape: tuple[int, ...]
    eps: float

    def __init__(
        self,
        shape: Any,
        *,
        eps: float = 1e-5,
        weight: bool = True,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        self.shape, self.eps = _shape("LayerNorm", shape), eps
        self.weight, self.bias = _affine(self.shape, dtype, weight=weight, bias=bias)

    def __call__(self, x: Any) -> Tensor:
        """x [.., *shape], standardised."""
        axes = tuple(range(-len(self.shape), 0))
        return norms.layer_norm(x, self.weight, self.bias, axis=axes, eps=self.eps)

    def about(self) -> str:
        """Its size."""
        return _size(self.shape)


class RMSNorm(Module):
    """x over its root mean square along the last axis, or as many as `shape` has sizes."""

    weight: Tensor | None
    shape: tuple[int, ...]
    eps: float

    def __init__(
        self, shape: Any, *, eps: float = 1e-6, weight: bool = True, dtype: Any = None
    ) -> None:
        self.shape, self.eps = _shape("RMSNorm", shape), eps
        self.weight, _ = _affine(self.shape, dtype, weight=weight, bias=False)

    def __call__(self, x: Any) -> Tensor:
        """x [.., *shape], normalised."""
        axes = tuple(range(-len(self.shape), 0))
        return norms.rms_norm(x, self.weight, axis=axes, eps=self.eps)

    def about(self) -> str:
        """Its size."""
        return _size(self.shape)


class GroupNorm(Module):
    """Mean 0 and variance 1 over space and each group of channels."""

    weight: Tensor | None
    bias: Tensor | None
    groups: int
    channels: int
    eps: float

    def __init__(
        self,
        groups: int,
        channels: int,
        *,
        eps: float = 1e-5,
        weight: bool = True,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        self.groups = options.integer("GroupNorm", "groups", groups, least=1)
        self.channels = options.integer("GroupNorm", "channels", channels, least=1)
        if self.channels % self.groups:
            raise ArgumentError(
                f"GroupNorm: {groups} groups must divide the {channels} channels"
            )
        self.eps = eps
        self.weight, self.bias = _affine(self.channels, dtype, weight=weight, bias=bias)

    def __call__(self, x: Any) -> Tensor:
        """x [N, *spatial, channels], standardised."""
        return norms.group_norm(x, self.groups, self.weight, self.bias, eps=self.eps)

    def about(self) -> str:
        """Its sizes."""
        return f"{self.channels} in {self.groups} groups"


class InstanceNorm(Module):
    """Mean 0 and variance 1 over space, for each sample and channel apart."""

    weight: Tensor | None
    bias: Tensor | None
    channels: int
    eps: float

    def __init__(
        self,
        channels: int,
        *,
        eps: float = 1e-5,
        weight: bool = True,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        self.channels = options.integer("InstanceNorm", "channels", channels, least=1)
        self.eps = eps
        self.weight, self.bias = _affine(self.channels, dtype, weight=weight, bias=bias)

    def __call__(self, x: Any) -> Tensor:
        """x [N, *spatial, channels], standardised."""
        return norms.instance_norm(x, self.weight, self.bias, eps=self.eps)

    def about(self) -> str:
        """Its size."""
        return str(self.channels)


class BatchNorm(Module):
    """Mean 0 and variance 1 for each channel: of the batch in training, else of all so far.

    `norm(x)` uses the running statistics. `y, norm = norm(x, training=True)` uses those of the
    batch and returns the layer with its running ones moved towards them by `momentum`. They are
    data in the tree: gradients of them are 0, and optimizers leave them as they are.

    >>> norm = rg.nn.BatchNorm(8)
    >>> norm
    BatchNorm(8, 16 numbers, 16 fixed)
    >>> y, norm = norm(rg.random.normal(rg.random.key(0), (32, 8)), training=True)
    """

    weight: Tensor | None
    bias: Tensor | None
    mean: Tensor
    var: Tensor
    channels: int
    momentum: float
    eps: float
    fixed: ClassVar[tuple[str, ...]] = ("mean", "var")

    def __init__(
        self,
        channels: int,
        *,
        momentum: float = 0.1,
        eps: float = 1e-5,
        weight: bool = True,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        self.channels = options.integer("BatchNorm", "channels", channels, least=1)
        self.momentum, self.eps = momentum, eps
        self.weight, self.bias = _affine(self.channels, dtype, weight=weight, bias=bias)
        self.mean = create.zeros(self.channels, dtype=dtype)
        self.var = create.ones(self.channels, dtype=dtype)

    @overload
    def __call__(self, x: Any, *, training: Literal[False] = False) -> Tensor: ...

    @overload
    def __call__(self, x: Any, *, training: Literal[True]) -> tuple[Tensor, BatchNorm]: ...

    @overload
    def __call__(self, x: Any, *, training: bool) -> Any: ...

    def __call__(self, x: Any, *, training: bool = False) -> Any:
        """x [.., channels], standardised; in training also the layer after it."""
        y, mean, var = norms.batch_norm(
            x,
            self.mean,
            self.var,
            self.weight,
            self.bias,
            training=training,
            momentum=self.momentum,
            eps=self.eps,
        )
        return (y, self.replace(mean=mean, var=var)) if training else y

    def about(self) -> str:
        """Its size."""
        return str(self.channels)
