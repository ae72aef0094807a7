"""Time as an axis: linear recurrences."""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np

from retrograd.core.interpret import apply
from retrograd.core.op import Linear, Op, front, function, op
from retrograd.core.spec import Spec, same
from retrograd.core.tensor import Tensor

__all__ = ["recurrence"]


@op
class Shift(Linear):
    """x moved by `by` places along an axis; zeros move in."""

    by: int = 1
    axis: int = 0

    def shape(self, x: Spec) -> Spec:
        return x

    def forward(self, x):
        out = np.zeros_like(x)
        to, since = (np.moveaxis(v, self.axis, 0) for v in (out, x))
        if self.by > 0:
            to[self.by :] = since[: -self.by]
        elif self.by < 0:
            to[: self.by] = since[-self.by :]
        else:
            to[...] = since
        return out

    def transpose(self, g):
        return apply(Shift(-self.by, self.axis), g)

    def batch(self, size, args, mapped):
        return apply(Shift(self.by, self.axis + 1), *args)

    def lower(self, k, x, out):
        for lane in k.lanes(out, axis=self.axis):
            for t in lane.steps():
                out[t] = k.inside(x, t - self.by, 0)

    @staticmethod
    def samples(rng):
        yield Shift(2), rng.normal(size=(5, 2))
        yield Shift(-1), rng.normal(size=(5, 2))
        yield Shift(7), rng.normal(size=(5,))
        yield Shift(-2, 1), rng.normal(size=(2, 5))


def shift(x: Any, by: int, axis: int = 0) -> Tensor:
    """x moved by `by` places along an axis."""
    return apply(Shift(by, axis), x)


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
    """h[t] = a[t] * h[t-1] + b[t] along an axis, starting from zero."""

    reverse_time: bool = False
    axis: int = 0
    uniform = True
    takes = "inexact"

    def shape(self, a: Spec, b: Spec) -> Spec:
        return same("recurrence", a=a, b=b)

    def forward(self, a, b):
        a, b = (np.moveaxis(x, self.axis, 0) for x in (a, b))
        out = solve(a, b, np.zeros(b.shape[1:], b.dtype), backwards=self.reverse_time)
        return np.moveaxis(out, 0, self.axis)

    def jvp(self, da, db, a, out):
        return apply(self, a, da * shift(out, self.step, self.axis) + db)

    def vjp(self, g, a, out):  # it names a and out, so b is never kept
        after = shift(a, -self.step, self.axis)
        blame = apply(Recurrence(not self.reverse_time, self.axis), after, g)
        return blame * shift(out, self.step, self.axis), blame

    def batch(self, size, args, mapped):
        return apply(Recurrence(self.reverse_time, self.axis + 1), *front(size, args, mapped))

    def lower(self, k, a, b, out):
        for lane in k.lanes(out, axis=self.axis):  # every index but time
            h = k.var(0.0)
            for t in lane.steps(reverse=self.reverse_time):
                h.value = a[t] * h.value + b[t]
                out[t] = h.value

    @staticmethod
    def samples(rng):
        for backwards in (False, True):
            yield Recurrence(backwards), rng.uniform(-1, 1, (6, 3)), rng.normal(size=(6, 3))
            yield Recurrence(backwards), rng.uniform(-1, 1, 67), rng.normal(size=67)
            yield Recurrence(backwards, 1), rng.uniform(-1, 1, (2, 5)), rng.normal(size=(2, 5))

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
