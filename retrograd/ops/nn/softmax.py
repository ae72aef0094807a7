"""softmax and its kin: rows that sum to one, shifted by their maximum so nothing overflows."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.errors import ArgumentError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Elementwise, Op, op
from retrograd.core.spec import Spec, axis_index
from retrograd.core.tensor import Tensor
from retrograd.ops import arithmetic, elementary, extrema, grid, random, reduce, rounding, shape

__all__ = ["gumbel_softmax", "log_softmax", "softmax", "softmin"]


def _shifted(x, axis):
    """x minus its maximum along an axis; rows of only -inf stay -inf."""
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return x - np.where(np.isfinite(top), top, np.asarray(0, x.dtype))


@op
class ExpBelow(Elementwise):
    """exp(x) of numbers up to 0, which programs compute by fewer operations."""

    takes = "floating"

    def forward(self, x):
        return np.exp(x)

    def slope(self, out):
        return out

    def lower(self, k, x):
        return k.exp_below(x)

    @staticmethod
    def samples(rng):
        return ((ExpBelow(), x) for x in elementary.operands(rng, -4, 0, real=True))


def exp_below(x: Tensor) -> Tensor:
    """exp(x) for x <= 0."""
    return apply(ExpBelow(), x)


@op
class Softmax(Op):
    """exp(x) over its sum along an axis. A row of only -inf gives NaN."""

    axis: int
    uniform = True
    takes = "floating"

    def shape(self, x: Spec) -> Spec:
        return x

    def forward(self, x):
        e = _shifted(x, self.axis)
        np.exp(e, out=e)
        e /= np.add.reduce(e, axis=self.axis, keepdims=True)
        return e

    def jvp(self, dx, out):
        return self._project(dx, out)

    def vjp(self, g, out):  # keeps only the result; the Jacobian is symmetric
        return self._project(g, out)

    def _project(self, t, out):
        weighted = out * t
        return weighted - out * reduce.sum(weighted, axis=self.axis, keepdims=True)

    def batch(self, size, args, mapped):
        return apply(Softmax(self.axis + 1), *args)

    def expand(self, x):
        e = exp_below(x - extrema.top(x, self.axis))
        return e * arithmetic.reciprocal(reduce.sum(e, axis=self.axis, keepdims=True))

    @staticmethod
    def samples(rng):
        yield Softmax(1), rng.normal(size=(3, 4)) * 3
        yield Softmax(0), rng.normal(size=(3, 4)) * 30
        yield Softmax(0), rng.normal(size=5) + 700


def softmax(x: Any, /, *, axis: int = -1) -> Tensor:
    """exp(x) over its sum along `axis`."""
    x = lift(x)
    return apply(Softmax(axis_index("softmax", axis, x.ndim)), x)


@op
class LogSoftmax(Op):
    """x minus its log-sum-exp along an axis."""

    axis: int
    uniform = True
    takes = "floating"

    def shape(self, x: Spec) -> Spec:
        return x

    def forward(self, x):
        y = _shifted(x, self.axis)
        return y - np.log(np.add.reduce(np.exp(y), axis=self.axis, keepdims=True))

    def jvp(self, dx, out):
        mean = reduce.sum(elementary.exp(out) * dx, axis=self.axis, keepdims=True)
        return dx - mean

    def vjp(self, g, out):
        return g - elementary.exp(out) * reduce.sum(g, axis=self.axis, keepdims=True)

    def batch(self, size, args, mapped):
        return apply(LogSoftmax(self.axis + 1), *args)

    def expand(self, x):
        y = x - extrema.top(x, self.axis)
        return y - elementary.log(reduce.sum(exp_below(y), axis=self.axis, keepdims=True))

    @staticmethod
    def samples(rng):
        yield LogSoftmax(1), rng.normal(size=(3, 4)) * 3
        yield LogSoftmax(0), rng.normal(size=(3, 4)) * 30


def log_softmax(x: Any, /, *, axis: int = -1) -> Tensor:
    """The logarithm of softmax, computed without taking one of a small number."""
    x = lift(x)
    return apply(LogSoftmax(axis_index("log_softmax", axis, x.ndim)), x)


def softmin(x: Any, /, *, axis: int = -1) -> Tensor:
    """softmax of -x."""
    return softmax(-lift(x), axis=axis)


def gumbel_softmax(
    key: Any, logits: Any, /, *, temperature: float = 1.0, hard: bool = False, axis: int = -1
) -> Tensor:
    """A random choice that can be differentiated: softmax of logits plus Gumbel noise.

    With `hard` the value is one-hot, and the gradient is that of the soft choice.
    """
    if not temperature > 0:
        raise ArgumentError(f"gumbel_softmax: temperature must be positive; got {temperature}")
    logits = lift(logits)
    axis = axis_index("gumbel_softmax", axis, logits.ndim)
    noise = random.gumbel(key, logits.shape, dtype=logits.dtype)
    soft = softmax((logits + noise) / temperature, axis=axis)
    if not hard:
        return soft
    chosen = grid.one_hot(extrema.argmax(soft, axis=axis), soft.shape[axis], dtype=soft.dtype)
    chosen = shape.moveaxis(chosen, -1, axis)
    return rounding.stop_gradient(chosen - soft) + soft
