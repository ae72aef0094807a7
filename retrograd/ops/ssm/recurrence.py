"""Linear recurrences along any axis, from any state."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.errors import ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Op, op
from retrograd.core.spec import Spec, axis_index
from retrograd.core.tensor import Tensor
from retrograd.ops import create, join, pad, recur, reduce, shape

__all__ = ["linear_recurrence"]


@op
class LinearRecurrence(Op):
    """h[t] = a[t] * h[t-1] + b[t] along an axis, from `initial`; keeps a, initial, result.

    a has the axes of b, of which all but the one of time may have length 1. `initial` has
    the axes of b without that of time, or none.
    """

    axis: int
    reverse_time: bool = False
    uniform = True
    takes = "inexact"

    def shape(self, a: Spec, b: Spec, initial: Spec) -> Spec:
        check(a.shape, b.shape, initial.shape, self.axis)
        return b

    def forward(self, a, b, initial):
        check(a.shape, b.shape, initial.shape, self.axis)
        h = np.broadcast_to(initial, without(b.shape, self.axis))
        a, b = np.moveaxis(a, self.axis, 0), np.moveaxis(b, self.axis, 0)
        out = recur.solve(a, b, h, backwards=self.reverse_time)
        return np.moveaxis(out, 0, self.axis)

    def jvp(self, da, db, dinitial, a, initial, out):
        return apply(self, a, da * self._before(initial, out) + db, dinitial)

    def vjp(self, g, a, initial, out):  # b is never kept
        zero = create.zeros((), dtype=g.dtype)
        nothing = create.zeros(self._edge(a.shape), dtype=a.dtype)
        after = self._moved(nothing, a, back=True)
        blame = apply(LinearRecurrence(self.axis, not self.reverse_time), after, g, zero)
        da = reduce.sum_to(blame * self._before(initial, out), a.shape)
        if g.shape[self.axis]:
            end = g.shape[self.axis] - 1 if self.reverse_time else 0
            first = (pad.piece(x, self.axis, end, 1) for x in (a, blame))
            began = next(first) * next(first)
            began = shape.reshape(began, without(g.shape, self.axis))
        else:
            began = create.zeros(without(g.shape, self.axis), dtype=g.dtype)
        return da, blame, reduce.sum_to(began, initial.shape)

    def _edge(self, of: tuple[int, ...]) -> tuple[int, ...]:
        return (*of[: self.axis], 1, *of[self.axis + 1 :])

    def _before(self, initial, out):
        """The state that each step began with."""
        edge = self._edge(out.shape)
        if initial.ndim:
            initial = shape.expand_dims(initial, axis=self.axis)
        return self._moved(shape.broadcast_to(initial, edge), out, back=False)

    def _moved(self, edge, x, *, back):
        """x moved by one step, with `edge` let in where it left a place."""
        n = x.shape[self.axis]
        if not n:
            return x
        ahead = back == self.reverse_time  # towards later places
        rest = pad.piece(x, self.axis, 0 if ahead else 1, n - 1)
        return join.concat([edge, rest] if ahead else [rest, edge], axis=self.axis)

    def batch(self, size, args, mapped):
        a, b, initial = args
        wide = b.ndim - mapped[1]
        if not mapped[1]:
            b = shape.broadcast_to(b, (size, *b.shape))
        if not mapped[0]:
            a = shape.expand_dims(a, axis=0)
        if mapped[2]:
            plain = (1,) * (wide - initial.ndim) + initial.shape[1:]
            initial = shape.reshape(initial, (size, *plain))
        elif initial.ndim:
            initial = shape.expand_dims(initial, axis=0)
        return apply(LinearRecurrence(self.axis + 1, self.reverse_time), a, b, initial)

    def expand(self, a, b, initial):
        a, b = shape.broadcast_to(a, b.shape), shape.moveaxis(b, self.axis, 0)
        start = shape.broadcast_to(initial, b.shape[1:])
        a, start = shape.moveaxis(a, self.axis, 0), shape.expand_dims(start, axis=0)
        none = create.zeros(start.shape, dtype=a.dtype)
        ends = ([start, b], [none, a])
        b, a = (join.concat(e[::-1] if self.reverse_time else e, axis=0) for e in ends)
        out = recur.recurrence(a, b, reverse=self.reverse_time)
        out = pad.piece(out, 0, 0 if self.reverse_time else 1, out.shape[0] - 1)
        return shape.moveaxis(out, 0, self.axis)

    @staticmethod
    def samples(rng):
        a, b = rng.uniform(-1, 1, (2, 6, 3)), rng.normal(size=(2, 6, 3))
        for back in (False, True):
            yield LinearRecurrence(1, back), a, b, rng.normal(size=(2, 3))
            yield LinearRecurrence(0, back), a[:, :1], b, np.asarray(rng.normal())
            yield LinearRecurrence(2, back), a[:1, :1], b, rng.normal(size=(2, 1))
        yield LinearRecurrence(0), a[0, :, 0], b[0, :, 0], np.asarray(0.0)
        yield LinearRecurrence(1), a[:, :0], b[:, :0], rng.normal(size=(2, 3))
        yield LinearRecurrence(0), a[0] * 1j, b[0] + 1j, rng.normal(size=3) + 0j

    @staticmethod
    def refuses(rng):
        x = rng.normal(size=(4, 3))
        yield LinearRecurrence(0), x[:1], x, x[0], "along the axis of time"
        yield LinearRecurrence(0), x[:, :2], x, x[0], "a (4, 2)"
        yield LinearRecurrence(0), x, x, x, "initial (4, 3)"


def without(of: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """A shape without one axis."""
    return (*of[:axis], *of[axis + 1 :])


def check(a: Any, b: Any, initial: Any, axis: int) -> None:
    """Refuse operands that do not fit."""
    who = "linear_recurrence"
    fits = len(a) == len(b) and all(n in (1, m) for n, m in zip(a, b, strict=True))
    if not fits or a[axis] != b[axis]:
        raise ShapeError(
            f"{who}: a {a} must have the axes of b {b}: as long along the axis of time, "
            f"{axis}, and of equal length or 1 along the others"
        )
    state = without(b, axis)
    pairs = zip(initial, state, strict=False)
    if initial and (len(initial) != len(state) or any(n not in (1, m) for n, m in pairs)):
        raise ShapeError(
            f"{who}: initial {initial} must have the shape of b {b} without axis {axis}, "
            f"{state}"
        )


def linear_recurrence(
    a: Any, b: Any, *, axis: int = 0, reverse: bool = False, initial: Any = None
) -> Tensor:
    """Carry h along `axis` as h = a * h + b, from `initial` (zero); return every h.

    All axes of `a` but that of time may have length 1.
    """
    a, b = lift(a), lift(b)
    axis = axis_index("linear_recurrence", axis, b.ndim)
    start = create.zeros((), dtype=b.dtype) if initial is None else initial
    return apply(LinearRecurrence(axis, bool(reverse)), a, b, start)
