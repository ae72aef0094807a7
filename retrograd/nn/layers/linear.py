"""Linear maps, tables of rows, and a stack of linear maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from retrograd.core.errors import ArgumentError
from retrograd.core.tensor import Tensor
from retrograd.nn import init
from retrograd.nn.module import Module
from retrograd.ops import gather, linalg, options, random
from retrograd.ops.nn import activations

__all__ = ["MLP", "Embedding", "Linear"]


def ends(w: Any) -> str:
    """The last two axes of weights, in words: "784 -> 256"."""
    shape = getattr(w, "shape", ("?", "?"))
    return f"{shape[-2]} -> {shape[-1]}" if len(shape) > 1 else ""


class Linear(Module):
    """x @ weight + bias, weight [in, out]; all uniform in ±1 / sqrt(in), as in PyTorch.

    >>> layer = rg.nn.Linear(784, 256, key=rg.random.key(0))
    >>> layer
    Linear(784 -> 256, 200,960 numbers)
    >>> layer(rg.ones((32, 784))).shape
    (32, 256)
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(
        self, in_size: int, out_size: int, *, bias: bool = True, key: Any, dtype: Any = None
    ) -> None:
        deep = options.integer("Linear", "in_size", in_size, least=0)
        wide = options.integer("Linear", "out_size", out_size, least=0)
        for_weight, for_bias = init.keys("Linear", key, 2)
        self.weight = init.fan_uniform(for_weight, (deep, wide), deep, dtype)
        self.bias = init.fan_uniform(for_bias, (wide,), deep, dtype) if bias else None

    def __call__(self, x: Any) -> Tensor:
        """x [.., in] to [.., out]."""
        return linalg.linear(x, self.weight, self.bias)

    def about(self) -> str:
        """Its sizes."""
        return ends(self.weight) + ("" if self.bias is not None else ", no bias")


class Embedding(Module):
    """Rows of weight [entries, size] by their numbers; drawn normal, with mean 0 and `std`."""

    weight: Tensor

    def __init__(
        self, entries: int, size: int, *, std: float = 1.0, key: Any, dtype: Any = None
    ) -> None:
        entries = options.integer("Embedding", "entries", entries, least=0)
        size = options.integer("Embedding", "size", size, least=0)
        (key,) = init.keys("Embedding", key, 1)
        self.weight = random.normal(key, (entries, size), std=std, dtype=dtype)

    def __call__(self, indices: Any) -> Tensor:
        """Integers [..] to [.., size]; an integer that is no row's number is an error."""
        return gather.embedding(indices, self.weight)

    def about(self) -> str:
        """Its sizes."""
        return ends(self.weight)


class MLP(Module):
    """Linear layers with an activation between them: sizes (in, hidden, .., out).

    >>> rg.nn.MLP([784, 256, 10], key=rg.random.key(0))
    MLP(203,530 numbers)
      layers[0]: Linear(784 -> 256, 200,960 numbers)
      layers[1]: Linear(256 -> 10, 2,570 numbers)
      activation: relu
    """

    layers: tuple[Linear, ...]
    activation: Callable[[Any], Any]

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        activation: Callable[[Any], Any] = activations.relu,
        bias: bool = True,
        key: Any,
        dtype: Any = None,
    ) -> None:
        sizes = tuple(sizes)
        if len(sizes) < 2:
            raise ArgumentError(f"MLP: sizes are (in, hidden, .., out); got {sizes}")
        keys = init.keys("MLP", key, len(sizes) - 1)
        self.layers = tuple(
            Linear(a, b, bias=bias, key=k, dtype=dtype)
            for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )
        self.activation = activation

    def __call__(self, x: Any) -> Tensor:
        """x [.., in] to [.., out]."""
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)
