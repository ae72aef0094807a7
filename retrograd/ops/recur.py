"""Time as an axis: linear recurrences."""

from __future__ import annotations

from math import isqrt
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


NARROW, LONG = 512, 64  # fewer elements than the one, more steps than the other: in blocks


def solve(a: np.ndarray, b: np.ndarray, h: np.ndarray, *, backwards: bool) -> np.ndarray:
    """h[t] = a[t] * h[t-1] + b[t] along axis 0 from h; a may broadcast along the others."""
    out = np.empty(b.shape, b.dtype)
    x, y, z = (v[::-1] if backwards else v for v in (a, b, out))
    start = 0
    if len(b) > LONG and b.size <= NARROW * len(b):
        start = _blocks(x, y, h, z)
        h = z[start - 1] if start else h
    for t in range(start, len(b)):
        now = z[t, ...]  # an array also where there is one number
        np.multiply(x[t], h, out=now)
        now += y[t]
        h = now
    return out


def _blocks(a: Any, b: Any, h: Any, out: Any) -> int:
    """Many short walks side by side, then what each hands to the next; how far it came.

    Two square roots of steps of Python instead of all. It is not done where a product of
    a's leaves the range of numbers, since 0 * inf would come of it.
    """
    length = isqrt(len(b))
    count = len(b) // length
    far = count * length
    factors, local = (v[:far].reshape(count, length, *v.shape[1:]) for v in (a, b))
    through = np.multiply.accumulate(factors, axis=1)
    if not np.isfinite(through).all():
        return 0
    local = local.copy()
    for t in range(1, length):
        local[:, t] += factors[:, t] * local[:, t - 1]
    given = np.empty((count, 1, *b.shape[1:]), b.dtype)
    for c in range(count):
        given[c, 0] = h
        h = through[c, -1] * h + local[c, -1]
    local += through * given
    out[:far] = local.reshape(far, *b.shape[1:])
    return far


@op
class Recurrence(Op):
    """h[t] = a[t] * h[t-1] + b[t] along axis 0, starting from zero."""

    reverse_time: bool = False
    uniform = True
    takes = "inexact"

    def shape(self, a: Spec, b: Spec) -> Spec:
        return same("recurrence", a=a, b=b)

    def forward(self, a, b):
        return solve(a, b, np.zeros(b.shape[1:], b.dtype), backwards=self.reverse_time)

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
            yield Recurrence(backwards), rng.uniform(-1, 1, 67), rng.normal(size=67)

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
