"""Time as an axis: linear recurrences."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.interpret import apply
from retrograd.core.op import Linear, Op, front, function, op
from retrograd.core.spec import Spec, same
from retrograd.core.tensor import Tensor
from retrograd.ops import shape

__all__ = ["recurrence"]


@op
class Shift(Linear):
    """x moved by `by` places along axis 0; zeros move in."""

    by: int = 1

    def shape(self, x: Spec) -> Spec:
        return x

    def forward(self, x):
        out = np.zeros_like(x)
        if self.by > 0:
            out[self.by :] = x[: -self.by]
        elif self.by < 0:
            out[: self.by] = x[-self.by :]
        else:
            out[...] = x
        return out

    def transpose(self, g):
        return apply(Shift(-self.by), g)

    def batch(self, size, args, mapped):
        (x,) = args
        return shape.moveaxis(apply(self, shape.moveaxis(x, 0, 1)), 1, 0)

    def lower(self, k, x, out):
        for lane in k.lanes(out, axis=0):
            for t in lane.steps():
                out[t] = k.inside(x, t - self.by, 0)

    @staticmethod
    def samples(rng):
        yield Shift(2), rng.normal(size=(5, 2))
        yield Shift(-1), rng.normal(size=(5, 2))
        yield Shift(7), rng.normal(size=(5,))


def shift(x: Any, by: int) -> Tensor:
    """x moved by `by` places along axis 0."""
    return apply(Shift(by), x)


@op
class Recurrence(Op):
    """h[t] = a[t] * h[t-1] + b[t] along axis 0, starting from zero."""

    reverse_time: bool = False
    uniform = True
    takes = "inexact"

    def shape(self, a: Spec, b: Spec) -> Spec:
        return same("recurrence", a=a, b=b)

    def forward(self, a, b):
        out, h = np.empty_like(b), np.zeros(b.shape[1:], b.dtype)
        for t in range(len(b))[:: self.step]:
            out[t] = h = a[t] * h + b[t]
        return out

    def jvp(self, da, db, a, out):
        return apply(self, a, da * shift(out, self.step) + db)

    def vjp(self, g, a, out):  # it names a and out, so b is never kept
        blame = apply(Recurrence(not self.reverse_time), shift(a, -self.step), g)
        return blame * shift(out, self.step), blame

    def batch(self, size, args, mapped):
        a, b = (shape.moveaxis(x, 0, 1) for x in front(size, args, mapped))
        return shape.moveaxis(apply(self, a, b), 1, 0)

    def lower(self, k, a, b, out):
        for lane in k.lanes(out, axis=0):  # every index but time
            h = k.var(0.0)
            for t in lane.steps(reverse=self.reverse_time):
                h.value = a[t] * h.value + b[t]
                out[t] = h.value

    @staticmethod
    def samples(rng):
        for backwards in (False, True):
            yield Recurrence(backwards), rng.uniform(-1, 1, (6, 3)), rng.normal(size=(6, 3))

    @staticmethod
    def refuses(rng):
        yield (
            Recurrence(),
            rng.normal(size=3),
            rng.normal(size=4),
            "operands must have one shape",
        )

    @property
    def step(self) -> int:
        return -1 if self.reverse_time else 1


@function
def recurrence(a: Any, b: Any, *, reverse: bool = False) -> Tensor:
    """Carry h through time (axis 0) as h = a * h + b; return every h."""
    return apply(Recurrence(bool(reverse)), a, b)
