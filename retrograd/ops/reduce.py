"""Reductions that are sums: sum, mean, var, and what un-broadcasting needs."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Linear, function, op
from retrograd.core.spec import Spec, axes_tuple
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, shape


def reduced(shape_: tuple[int, ...], axis: tuple[int, ...], *, keepdims: bool) -> tuple[int, ...]:
    """The shape after reducing over `axis`."""
    if keepdims:
        return tuple(1 if i in axis else n for i, n in enumerate(shape_))
    return tuple(n for i, n in enumerate(shape_) if i not in axis)


@op
class Sum(Linear):
    """The sum over axes."""

    axis: tuple[int, ...]
    keepdims: bool = False

    def shape(self, x: Spec) -> Spec:
        return x.with_shape(reduced(x.shape, self.axis, keepdims=self.keepdims))

    def forward(self, x):
        return np.add.reduce(x, axis=self.axis, keepdims=self.keepdims, dtype=x.dtype)

    def transpose(self, g, x: Spec):
        if not self.keepdims:
            g = shape.reshape(g, reduced(x.shape, self.axis, keepdims=True))
        return shape.broadcast_to(g, x.shape)

    def batch(self, size, args, mapped):
        return apply(Sum(tuple(a + 1 for a in self.axis), self.keepdims), *args)

    def lower(self, k, x, out):
        for row in k.rows(x, out, axis=self.axis):
            total = k.var(0)
            for i in row.steps():
                total.value = total.value + x[i]
            out[row] = total.value

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(2, 3, 4))
        yield Sum((0, 1, 2)), x
        yield Sum((1,), keepdims=True), x
        yield Sum((0, 2)), x
        yield Sum(()), x
        yield Sum((0,)), rng.normal(size=(0, 3))


@function
def sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:  # noqa: A001
    """The sum over `axis` (all axes by default). Integers and booleans sum in 64 bits."""
    x = lift(x)
    wanted = dt.as_dtype("sum", dtype) if dtype is not None else _sum_dtype(x.dtype)
    x = cast.astype(x, wanted)
    return apply(Sum(axes_tuple("sum", axis, x.ndim), bool(keepdims)), x)


def _sum_dtype(dtype: np.dtype) -> np.dtype:
    return {"b": dt.int64, "i": dt.int64, "u": dt.uint64}.get(dtype.kind, dtype)


@op
class SumTo(Linear):
    """Sum over the axes that broadcasting from `to` would add or stretch."""

    to: tuple[int, ...]

    def shape(self, x: Spec) -> Spec:
        return x.with_shape(self.to)

    def forward(self, x):
        lead = x.ndim - len(self.to)
        stretched = tuple(
            i for i in range(x.ndim) if i < lead or (self.to[i - lead] == 1 != x.shape[i])
        )
        return np.add.reduce(x, axis=stretched, dtype=x.dtype).reshape(self.to)

    def transpose(self, g, x: Spec):
        return shape.broadcast_to(g, x.shape)

    def batch(self, size, args, mapped):
        (x,) = args
        pad = (1,) * (x.ndim - 1 - len(self.to))
        return shape.reshape(apply(SumTo((size, *pad, *self.to)), x), (size, *self.to))

    def expand(self, x):
        lead = x.ndim - len(self.to)
        axes = tuple(i for i in range(x.ndim) if i < lead or self.to[i - lead] == 1 != x.shape[i])
        return shape.reshape(sum(x, axis=axes), self.to)

    @staticmethod
    def samples(rng):
        yield SumTo((1, 3)), rng.normal(size=(2, 4, 3))
        yield SumTo(()), rng.normal(size=(2, 3))
        yield SumTo((1, 3)), rng.normal(size=(0, 3))


@function
def sum_to(x: Any, to: tuple[int, ...]) -> Tensor:
    """x summed to the shape `to`, which broadcasts to x's: what undoes broadcasting."""
    return x if x.shape == to else apply(SumTo(tuple(to)), x)
