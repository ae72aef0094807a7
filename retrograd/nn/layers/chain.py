"""Layers one after another, and dropout between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from inspect import Parameter, signature
from typing import Any

from retrograd.core.errors import ArgumentError
from retrograd.core.interpret import lift
from retrograd.core.tensor import Tensor
from retrograd.nn.module import Module
from retrograd.ops import options, random_keys
from retrograd.ops.nn import dropout

__all__ = ["Dropout", "Sequential"]


class Dropout(Module):
    """Each element set to 0 with chance p by a key, the others scaled; without a key, x itself.

    The key must be named, `key=None` too, so that training without one is no accident.

    >>> layer = rg.nn.Dropout(0.5)
    >>> layer(rg.ones(3), key=None)
    tensor([1., 1., 1.])
    """

    p: float
    whole: tuple[int, ...]

    def __init__(self, p: float = 0.5, *, whole: Any = ()) -> None:
        self.p = options.number("Dropout", "p", p)
        if not 0 <= self.p <= 1:
            raise ArgumentError(f"Dropout: p must be from 0 to 1; got {p}")
        self.whole = tuple(whole) if isinstance(whole, (tuple, list)) else (whole,)

    def __call__(self, x: Any, *, key: Any) -> Tensor:
        """x with a share of it dropped; along `whole` axes elements fall together."""
        if key is None or not self.p:
            return lift(x)
        return dropout.dropout(key, x, p=self.p, whole=self.whole)

    def about(self) -> str:
        """Its chance."""
        return f"{self.p:g}" + (f", whole {self.whole}" if self.whole else "")


class Sequential(Module):
    """Layers one after another; a layer is a module or any function of x.

    Of a layer that takes a `key`, each call makes one of its own. With `training=True` the
    result is (y, model): layers that take `training`, such as BatchNorm, return themselves
    changed, and the model holds them.

    >>> key = rg.random.key(0)
    >>> model = rg.nn.Sequential(rg.nn.Linear(4, 8, key=key), rg.tanh, rg.nn.BatchNorm(8))
    >>> y, model = model(rg.ones((3, 4)), training=True)
    >>> model(rg.ones((3, 4))).shape
    (3, 8)
    """

    layers: tuple[Callable[..., Any], ...]

    def __init__(self, *layers: Callable[..., Any]) -> None:
        for i, layer in enumerate(layers):
            if not callable(layer):
                hint = "rg.nn.Sequential(*layers)" if isinstance(layer, (list, tuple)) else ""
                raise ArgumentError(
                    f"Sequential: layer {i} must be a module with a call, or a function; got a "
                    f"{type(layer).__name__}",
                    hint=hint,
                )
        self.layers = layers

    def __call__(self, x: Any, *, key: Any = None, training: bool = False) -> Any:
        """x through all layers; in training also the model after it."""
        keys = self._keys(key, training=training)
        after = []
        for layer, own in zip(self.layers, keys, strict=True):
            asked = _asked(layer)
            given = {"key": own} if "key" in asked else {}
            if training and "training" in asked:
                x, layer = layer(x, training=True, **given)
            else:
                x = layer(x, **given)
            after.append(layer)
        return (x, self.replace(layers=tuple(after))) if training else x

    def _keys(self, key: Any, *, training: bool) -> Any:
        """A key for each layer, or None for each."""
        if key is not None:
            return random_keys.split(key, len(self.layers)) if self.layers else ()
        needs = [i for i, layer in enumerate(self.layers) if _asked(layer).get("key")]
        if training and needs:
            name = type(self.layers[needs[0]]).__name__
            raise ArgumentError(
                f"Sequential: layer {needs[0]}, a {name}, needs a key in training",
                hint="model(x, key=key, training=True)",
            )
        return [None] * len(self.layers)

    def __len__(self) -> int:
        """How many layers there are."""
        return len(self.layers)

    def __getitem__(self, index: Any) -> Any:
        """A layer; of a slice, the layers in it one after another."""
        found = self.layers[index]
        return Sequential(*found) if isinstance(index, slice) else found

    def __iter__(self) -> Iterator[Any]:
        """The layers."""
        return iter(self.layers)


def _asked(layer: Any) -> dict[str, bool]:
    """Which of `key` and `training` a module's call takes, and whether it has to."""
    return _options(type(layer)) if isinstance(layer, Module) else {}


@cache
def _options(kind: type) -> dict[str, bool]:
    found = signature(kind.__call__).parameters
    named = ((n, p) for n, p in found.items() if n in ("key", "training"))
    return {n: p.default is Parameter.empty for n, p in named}
