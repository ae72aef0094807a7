"""log(sum(exp(x))), over axes and running along one, without overflow at any x.

Of no elements, and of elements that are all -inf, it is -inf; with a +inf among them it is
+inf. The gradient is each element's weight exp(x - out), the softmax. Where out is -inf all
weights are 0; where it is +inf the elements that are +inf share the weight equally.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from retrograd.core.interpret import apply, lift
from retrograd.core.op import Op, front, function, op
from retrograd.core.spec import Spec, axes_tuple
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, compare, cumulative, elementary, recur, reduce, select, shape

__all__ = ["cumulative_logsumexp", "logsumexp"]


@op
class Weights(Op):
    """exp(x - total): what each x weighs in its total, a logsumexp over axes that are kept."""

    axis: tuple[int, ...]
    uniform = True
    takes = "floating"

    def shape(self, x: Spec, total: Spec) -> Spec:
        return x

    def forward(self, x, total):
        out = np.exp(x - total)
        if not np.isinf(total).any():
            return out
        ties = (x == total) & (total > 0)
        many = np.maximum(np.add.reduce(ties, axis=self.axis, keepdims=True), 1)
        return np.where(np.isinf(total), (ties / many).astype(x.dtype), out)

    def jvp(self, dx, dtotal, out):
        return out * (dx - dtotal)

    def vjp(self, g, out):
        weighed = g * out
        return weighed, -reduce.sum(weighed, axis=self.axis, keepdims=True)

    def batch(self, size, args, mapped):
        return apply(Weights(reduce.later(self.axis)), *front(size, args, mapped))

    def expand(self, x, total):
        where = select.where
        wild = compare.isinf(total)
        out = elementary.exp(where(wild, -math.inf, x - total))
        ties = cast.astype((x == total) & (total > 0), x.dtype)
        many = reduce.sum(ties, axis=self.axis, keepdims=True)
        return where(wild, ties / where(many > 0, many, 1.0), out)

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(2, 3))
        yield Weights((1,)), x, np.log(np.exp(x).sum(1, keepdims=True))
        yield Weights((0, 1)), x, rng.normal(size=(1, 1))
        yield Weights(()), x, rng.normal(size=(2, 3))
        yield Weights((1,)), np.zeros((0, 3)), np.zeros((0, 1))


@op
class LogSumExp(Op):
    """log(sum(exp(x))) over axes."""

    name = "logsumexp"
    axis: tuple[int, ...]
    keepdims: bool = False
    uniform = True
    takes = "floating"

    def shape(self, x: Spec) -> Spec:
        return x.with_shape(reduce.reduced(x.shape, self.axis, keepdims=self.keepdims))

    def forward(self, x):
        top = np.maximum.reduce(x, axis=self.axis, keepdims=True, initial=-math.inf)
        top = np.where(np.isfinite(top), top, x.dtype.type(0))
        total = np.add.reduce(np.exp(x - top), axis=self.axis, keepdims=True)
        to = reduce.reduced(x.shape, self.axis, keepdims=self.keepdims)
        return np.reshape(np.log(total) + top, to)

    def jvp(self, dx, x, out):
        return reduce.sum(dx * self._weights(x, out), axis=self.axis, keepdims=self.keepdims)

    def vjp(self, g, x, out):
        return reduce.kept(g, x.shape, self.axis) * self._weights(x, out)

    def batch(self, size, args, mapped):
        return apply(LogSumExp(reduce.later(self.axis), self.keepdims), *args)

    def lower(self, k, x, out):
        for row in k.rows(x, out, axis=self.axis):
            top, total = k.var(-math.inf), k.var(0.0)
            for i in row.steps():
                top.value = k.maximum(top.value, x[i])
            top.value = k.where(k.isfinite(top.value), top.value, 0.0)
            for i in row.steps():
                total.value = total.value + k.exp(x[i] - top.value)
            out[row] = k.log(total.value) + top.value

    def _weights(self, x, out):
        return apply(Weights(self.axis), x, reduce.kept(out, x.shape, self.axis))

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(2, 3, 4))
        yield LogSumExp((0, 1, 2)), x
        yield LogSumExp((1,), keepdims=True), x + 700
        yield LogSumExp((0, 2)), x - 700
        yield LogSumExp(()), x[0]
        yield LogSumExp(()), np.asarray(rng.normal())
        yield LogSumExp((1,)), rng.normal(size=(0, 3))

    @staticmethod
    def refuses(rng):
        yield LogSumExp((0,)), rng.normal(size=2) + 1j, "it takes floating dtypes"


@function
def logsumexp(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) over `axis` (all axes by default), without overflow."""
    x = lift(x)
    return apply(LogSumExp(axes_tuple("logsumexp", axis, x.ndim), bool(keepdims)), x)


@op
class Fading(Op):
    """exp(x[t-1] - x[t]) along axis 0, with -inf before the first; 1 where both are equal."""

    uniform = True
    takes = "floating"

    def shape(self, x: Spec) -> Spec:
        return x

    def forward(self, x):
        before = np.full_like(x, -math.inf)
        before[1:] = x[:-1]
        return np.where(before == x, x.dtype.type(1), np.exp(before - x))

    def jvp(self, dx, out):
        return out * (recur.shift(dx, 1) - dx)

    def vjp(self, g, out):
        faded = g * out
        return recur.shift(faded, -1) - faded

    def batch(self, size, args, mapped):
        (x,) = args
        return shape.moveaxis(apply(self, shape.moveaxis(x, 0, 1)), 1, 0)

    def lower(self, k, x, out):
        for lane in k.lanes(out, axis=0):
            before = k.var(-math.inf)
            for t in lane.steps():
                out[t] = k.where(before.value == x[t], 1.0, k.exp(before.value - x[t]))
                before.value = x[t]

    @staticmethod
    def samples(rng):
        yield Fading(), rng.normal(size=(4, 2))
        yield Fading(), rng.normal(size=(1,))
        yield Fading(), rng.normal(size=(0, 2))


@op
class CumulativeLogSumExp(Op):
    """log(sum(exp(x))) of the elements up to each, along an axis."""

    axis: int
    uniform = True
    takes = "floating"

    def shape(self, x: Spec) -> Spec:
        return x

    def forward(self, x):
        return np.logaddexp.accumulate(x, axis=self.axis)

    def jvp(self, dx, x, out):  # d out[t] = exp(out[t-1] - out[t]) d out[t-1] + weight * dx[t]
        gain = shape.moveaxis(apply(Weights(()), x, out) * dx, self.axis, 0)
        keep = apply(Fading(), shape.moveaxis(out, self.axis, 0))
        return shape.moveaxis(recur.recurrence(keep, gain), 0, self.axis)

    def vjp(self, g, x, out):
        keep = apply(Fading(), shape.moveaxis(out, self.axis, 0))
        g = shape.moveaxis(g, self.axis, 0)
        blame = recur.recurrence(recur.shift(keep, -1), g, reverse=True)
        return shape.moveaxis(blame, 0, self.axis) * apply(Weights(()), x, out)

    def batch(self, size, args, mapped):
        return apply(CumulativeLogSumExp(self.axis + 1), *args)

    def lower(self, k, x, out):
        for lane in k.lanes(out, axis=self.axis):
            total = k.var(-math.inf)
            for t in lane.steps():
                high, low = k.maximum(total.value, x[t]), k.minimum(total.value, x[t])
                more = k.log1p(k.exp(low - high))
                total.value = high + k.where(low == high, math.log(2), more)
                out[t] = total.value

    @staticmethod
    def samples(rng):
        yield CumulativeLogSumExp(1), rng.normal(size=(2, 5)) + 700
        yield CumulativeLogSumExp(0), rng.normal(size=(3, 2)) - 700
        yield CumulativeLogSumExp(0), rng.normal(size=(0, 2))


@function
def cumulative_logsumexp(x: Any, /, *, axis: Any = None, reverse: bool = False) -> Tensor:
    """log(sum(exp(x))) of the elements up to each (from each on with `reverse`).

    In the gradient, each element that is +inf weighs 1.
    """
    x = lift(x)
    lane = cumulative.lane("cumulative_logsumexp", axis, x.ndim)
    return cumulative.turned(CumulativeLogSumExp(lane), x, reverse=reverse)
