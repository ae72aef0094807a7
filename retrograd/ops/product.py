"""The product over axes, with a derivative that holds at zeros, to any order."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.interpret import apply, lift
from retrograd.core.op import Op, function, op
from retrograd.core.spec import Spec, axes_tuple
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, cumulative, reduce, shape

__all__ = ["prod"]


def others(x: Any, axis: tuple[int, ...]) -> Any:
    """For each element the product of all others along `axis`: no division, so zeros are fine.

    It is the product of those before times the product of those after.
    """
    beside = tuple(i for i in range(x.ndim) if i not in axis)
    order = (*beside, *axis)
    sizes = tuple(x.shape[i] for i in order)
    lanes = (*sizes[: len(beside)], reduce.count(x.shape, axis))
    y = shape.reshape(shape.permute_dims(x, order), lanes)
    last = len(beside)
    before = apply(cumulative.CumulativeProd(last, exclusive=True), y)
    after = apply(cumulative.CumulativeProd(last, backwards=True, exclusive=True), y)
    back = tuple(order.index(i) for i in range(x.ndim))
    return shape.permute_dims(shape.reshape(before * after, sizes), back)


@op
class Prod(Op):
    """The product over axes."""

    axis: tuple[int, ...]
    keepdims: bool = False

    def shape(self, x: Spec) -> Spec:
        return x.with_shape(reduce.reduced(x.shape, self.axis, keepdims=self.keepdims))

    def forward(self, x):
        return np.multiply.reduce(x, axis=self.axis, keepdims=self.keepdims, dtype=x.dtype)  # type: ignore[call-overload]

    def jvp(self, dx, x):
        return reduce.sum(dx * others(x, self.axis), axis=self.axis, keepdims=self.keepdims)

    def vjp(self, g, x):
        return reduce.kept(g, x.shape, self.axis) * others(x, self.axis)

    def batch(self, size, args, mapped):
        return apply(Prod(reduce.later(self.axis), self.keepdims), *args)

    def lower(self, k, x, out):
        for row in k.rows(x, out, axis=self.axis):
            total = k.var(1)
            for i in row.steps():
                total.value = total.value * x[i]
            out[row] = total.value

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(2, 3, 2))
        yield Prod((0, 1, 2)), x
        yield Prod((1,), keepdims=True), x
        yield Prod((0, 2)), np.where(rng.uniform(size=x.shape) < 0.3, 0.0, x)
        yield Prod((0,)), np.array([0.0, 2.0, 0.0])
        yield Prod(()), x[0]
        yield Prod(()), np.asarray(rng.normal())
        yield Prod((0,)), rng.normal(size=(0, 3))
        yield Prod((0,)), x[0] + 1j * x[1]


@function
def prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The product over `axis` (all axes by default); 1 of no elements, 64 bits for integers."""
    x = lift(x)
    x = cast.astype(x, reduce.wide("prod", dtype, x.dtype))
    return apply(Prod(axes_tuple("prod", axis, x.ndim), bool(keepdims)), x)
