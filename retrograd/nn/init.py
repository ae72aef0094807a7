"""Initial weights, by formula. Each draws by a key; a layer's docstring says which it uses."""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

from retrograd.core.errors import ArgumentError
from retrograd.core.tensor import Tensor
from retrograd.ops import create, random, random_keys

__all__ = ["fan_uniform", "keys", "xavier_uniform"]


def keys(who: str, key: Any, n: int) -> Any:
    """n keys for n tensors of a layer; refuses a layer without a key."""
    if key is None:
        raise ArgumentError(
            f"{who}: its weights are random, so it needs a key", hint="key=rg.random.key(0)"
        )
    return random_keys.split(random_keys.key_of(who, key), n)


def fan_uniform(key: Any, shape: tuple[int, ...], fan: int, dtype: Any = None) -> Tensor:
    """Uniform in ±1 / sqrt(fan): PyTorch's Kaiming uniform with a = sqrt(5).

    `fan` is the number of inputs that one output sees.
    """
    return _within(key, shape, 1 / sqrt(max(fan, 1)), dtype)


def xavier_uniform(key: Any, shape: tuple[int, ...], dtype: Any = None) -> Tensor:
    """Uniform in ±sqrt(6 / (in + out)) for weights [.., in, out], after Glorot and Bengio."""
    places = prod(shape[:-2])
    return _within(key, shape, sqrt(6 / max(places * (shape[-2] + shape[-1]), 1)), dtype)


def _within(key: Any, shape: tuple[int, ...], bound: float, dtype: Any) -> Tensor:
    if not prod(shape):
        return create.zeros(shape, dtype=dtype)
    return random.uniform(key, shape, low=-bound, high=bound, dtype=dtype)
