"""Rotations of pairs by running angles: the complex states of Mamba-3, in real numbers.

A state whose pairs turn by -w_t at each step is the same as one that does not turn, with B
and C turned by the angle summed so far: rotations telescope, and the SSD stays as it is.
"""

from __future__ import annotations

from math import pi
from typing import Any

import numpy as np

from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Linear, Op, op
from retrograd.core.spec import Spec, axis_index
from retrograd.core.tensor import Tensor
from retrograd.ops import (
    cumulative,
    elementary,
    join,
    pad,
    reduce,
    rounding,
    shape,
    trigonometric,
)
from retrograd.ops.ssm import recurrence

__all__ = ["rotate_pairs", "rotation_angles", "running_angles", "wrap_angles"]

_WAYS = ("interleaved", "halves")


@op
class RunningAngles(Op):
    """initial + x summed along an axis, turned back into [-pi, pi]; keeps nothing.

    Summed in double precision: the error of an angle does not grow with its place. The
    derivative is that of the sum.
    """

    axis: int
    uniform = True
    takes = "floating"

    def shape(self, x: Spec, initial: Spec) -> Spec:
        self._check(x, initial)
        return x

    def _check(self, x: Any, initial: Any) -> None:
        state = recurrence.without(x.shape, self.axis)
        if initial.shape not in (state, ()):
            raise ShapeError(
                f"running_angles: initial {initial.shape} must have the shape of the angles "
                f"{x.shape} without axis {self.axis}: {state}"
            )

    def forward(self, x, initial):
        self._check(x, initial)
        total = np.cumsum(x, axis=self.axis, dtype=np.float64)
        total += np.expand_dims(initial, self.axis) if initial.ndim else initial
        total -= 2 * pi * np.round(total * (0.5 / pi))
        return total.astype(x.dtype, copy=False)

    def jvp(self, dx, dinitial):
        if dinitial.ndim:
            dinitial = shape.expand_dims(dinitial, axis=self.axis)
        return cumulative.cumulative_sum(dx, axis=self.axis) + dinitial

    def vjp(self, g, initial: Spec):
        start = reduce.sum(g, axis=self.axis if initial.ndim else None)
        return cumulative.cumulative_sum(g, axis=self.axis, reverse=True), start

    def batch(self, size, args, mapped):
        x, initial = args
        if not mapped[0]:
            x = shape.broadcast_to(x, (size, *x.shape))
        own = initial.shape[1:] if mapped[1] else initial.shape
        if mapped[1] or own:
            state = recurrence.without(x.shape, self.axis + 1)
            new = (1,) * (len(state) - 1 - len(own))
            initial = shape.reshape(initial, (size if mapped[1] else 1, *new, *own))
            initial = shape.broadcast_to(initial, state)
        return apply(RunningAngles(self.axis + 1), x, initial)

    def lower(self, k, x, initial, out):
        wide = np.dtype(np.float64)
        edge = (*x.shape[: self.axis], 1, *x.shape[self.axis + 1 :])
        start = k.view(initial, edge) if initial.shape else initial
        x, start = k.cast(x, wide), k.broadcast(k.cast(start, wide), x.shape)
        for walk in k.lanes(out, axis=self.axis):
            total = k.var(0.0, x)
            for t in walk.steps():
                total.value = total.value + x[t]
                angle = total.value + start[t]
                out[t] = angle - k.round(angle * (0.5 / pi)) * (2 * pi)

    @staticmethod
    def samples(rng):
        x = rng.uniform(0.05, 0.2, (2, 5, 3))
        yield RunningAngles(1), x, rng.uniform(-1, 1, (2, 3))
        yield RunningAngles(0), x, np.asarray(0.5)
        yield RunningAngles(1), x + 1.2, rng.uniform(0.3, 0.4, (2, 3))
        yield RunningAngles(1), x[:, :0], rng.normal(size=(2, 3))

    @staticmethod
    def refuses(rng):
        yield RunningAngles(0), np.ones((3, 2)), np.ones(3), "initial (3,) must have the shape"


@op
class QuarterTurn(Linear):
    """(x0, x1) to (-x1, x0) in each of the first pairs; 0 elsewhere."""

    pairs: int
    halves: bool

    def shape(self, x: Spec) -> Spec:
        return x

    def forward(self, x):
        out = np.zeros(x.shape, x.dtype)
        (x0, x1), (y0, y1) = _split(x, self), _split(out, self)
        np.negative(x1, out=y0)
        y1[...] = x0
        return out

    def transpose(self, g):
        return -apply(self, g)

    def batch(self, size, args, mapped):
        return apply(self, *args)

    def expand(self, x):
        *lead, r = x.shape
        a, axis = self.pairs, len(lead)
        if self.halves:
            x = pad.piece(shape.reshape(x, (*lead, 2, r // 2)), axis + 1, 0, a)
            turned = pad.pad(self._swapped(x, axis), {-1: (0, r // 2 - a)})
            return shape.reshape(turned, (*lead, r))
        x = shape.reshape(pad.piece(x, axis, 0, 2 * a), (*lead, a, 2))
        turned = shape.reshape(self._swapped(x, axis + 1), (*lead, 2 * a))
        return pad.pad(turned, {-1: (0, r - 2 * a)})

    def _swapped(self, x, axis: int):
        first, second = pad.piece(x, axis, 0, 1), pad.piece(x, axis, 1, 1)
        return join.concat([-second, first], axis=axis)

    @staticmethod
    def samples(rng):
        for halves in (False, True):
            yield QuarterTurn(2, halves), rng.normal(size=(3, 6))
            yield QuarterTurn(0, halves), rng.normal(size=(3, 2))
            yield QuarterTurn(1, halves), rng.normal(size=(0, 2))


@op
class RotatePairs(Op):
    """Pairs of the last axis turned by theta; keeps theta and the result."""

    halves: bool
    uniform = True
    takes = "floating"

    def shape(self, x: Spec, theta: Spec) -> Spec:
        _check(x.shape, theta.shape)
        return x

    def forward(self, x, theta):
        _check(x.shape, theta.shape)
        out = np.array(x)
        turn = QuarterTurn(theta.shape[-1], self.halves)
        (x0, x1), (y0, y1) = _split(x, turn), _split(out, turn)
        c, s = np.cos(theta), np.sin(theta)
        np.multiply(x0, c, out=y0)
        y0 -= x1 * s
        np.multiply(x1, c, out=y1)
        y1 += x0 * s
        return out

    def jvp(self, dx, dtheta, theta, out):
        turned = apply(QuarterTurn(theta.shape[-1], self.halves), out)
        return apply(self, dx, theta) + self.spread(dtheta, out.shape[-1]) * turned

    def vjp(self, g, theta, out):
        turned = apply(QuarterTurn(theta.shape[-1], self.halves), out)
        found = self.paired(g * turned, theta.shape[-1])
        return apply(self, g, -theta), reduce.sum_to(found, theta.shape)

    def spread(self, w, r: int):
        """(..., a) to (..., r): each angle at both places of its pair."""
        *lead, a = w.shape
        if self.halves:
            w = pad.pad(w, {-1: (0, r // 2 - a)})
            w = shape.broadcast_to(shape.expand_dims(w, axis=-2), (*lead, 2, r // 2))
            return shape.reshape(w, (*lead, r))
        w = shape.broadcast_to(shape.expand_dims(w, axis=-1), (*lead, a, 2))
        return pad.pad(shape.reshape(w, (*lead, 2 * a)), {-1: (0, r - 2 * a)})

    def paired(self, x, a: int):
        """(..., r) to (..., a): the sum over each pair; the transpose of spread."""
        *lead, r = x.shape
        if self.halves:
            x = reduce.sum(shape.reshape(x, (*lead, 2, r // 2)), axis=-2)
            return pad.piece(x, x.ndim - 1, 0, a)
        x = pad.piece(x, x.ndim - 1, 0, 2 * a)
        return reduce.sum(shape.reshape(x, (*lead, a, 2)), axis=-1)

    def batch(self, size, args, mapped):
        x, theta = args
        if not mapped[0]:
            x = shape.broadcast_to(x, (size, *x.shape))
        if not mapped[1]:
            theta = shape.expand_dims(theta, axis=0)
        return apply(self, x, theta)

    def expand(self, x, theta):
        r = x.shape[-1]
        c = self.spread(trigonometric.cos(theta) - 1.0, r) + 1.0
        s = self.spread(trigonometric.sin(theta), r)
        return c * x + s * apply(QuarterTurn(theta.shape[-1], self.halves), x)

    @staticmethod
    def samples(rng):
        for halves in (False, True):
            x = rng.normal(size=(2, 3, 6))
            yield RotatePairs(halves), x, rng.normal(size=(2, 3, 3))
            yield RotatePairs(halves), x, rng.normal(size=(2, 1, 2))
            yield RotatePairs(halves), x, rng.normal(size=(2, 3, 0))
            yield RotatePairs(halves), x[:0], rng.normal(size=(0, 3, 1))

    @staticmethod
    def refuses(rng):
        x = rng.normal(size=(3, 5))
        yield RotatePairs(False), x, x, "has no pairs"
        yield RotatePairs(False), x[:, :4], x[:, :3], "at most 2 pairs"
        yield RotatePairs(True), x[:, :4], x[:2, :1], "theta (2, 1)"


def _split(x: np.ndarray, turn: QuarterTurn) -> tuple[np.ndarray, np.ndarray]:
    """The first and the second of each pair, as views."""
    a, half = turn.pairs, x.shape[-1] // 2
    if turn.halves:
        return x[..., :a], x[..., half : half + a]
    return x[..., : 2 * a : 2], x[..., 1 : 2 * a : 2]


def _check(x: tuple[int, ...], theta: tuple[int, ...]) -> None:
    if not x or x[-1] % 2:
        raise ShapeError(f"rotate_pairs: x {x} has no pairs along its last axis")
    if len(theta) != len(x) or any(
        n not in (1, m) for n, m in zip(theta[:-1], x[:-1], strict=True)
    ):
        raise ShapeError(
            f"rotate_pairs: theta {theta} must have the axes of x {x}, of equal length or 1 "
            f"before the last"
        )
    if theta[-1] > x[-1] // 2:
        raise ShapeError(
            f"rotate_pairs: x {x} has at most {x[-1] // 2} pairs; theta {theta} has more angles"
        )


def rotate_pairs(x: Any, theta: Any, /, *, pairing: str = "interleaved") -> Tensor:
    """Turn pairs of the last axis of x by theta: (cos x0 - sin x1, sin x0 + cos x1).

    Pairs are (0, 1), (2, 3)... ("interleaved": one rank) or (j, j + r/2) ("halves": several
    ranks); with fewer angles than pairs the rest stays as it is. theta has the axes of x, and
    length 1 where it is shared.
    """
    if pairing not in _WAYS:
        raise ArgumentError(f"rotate_pairs: pairing {pairing!r} is not one of {_WAYS}")
    return apply(RotatePairs(pairing == "halves"), x, theta)


def wrap_angles(theta: Any, /) -> Tensor:
    """theta less whole turns, in [-pi, pi]; its derivative is 1."""
    theta = lift(theta)
    return theta - (2 * pi) * rounding.round(theta * (0.5 / pi))


def running_angles(
    increments: Any, /, *, axis: int = 0, initial: Any = None
) -> tuple[Tensor, Tensor]:
    """The angle at each time, and the last: increments summed along `axis`, in [-pi, pi]."""
    x = lift(increments)
    axis = axis_index("running_angles", axis, x.ndim)
    initial = 0.0 if initial is None else initial
    theta = apply(RunningAngles(axis), x, initial)
    n = x.shape[axis]
    if not n:
        state = recurrence.without(x.shape, axis)
        return theta, wrap_angles(shape.broadcast_to(lift(initial), state))
    last = pad.piece(theta, axis, n - 1, 1)
    return theta, shape.squeeze(last, axis=axis)


def rotation_angles(rot: Any, dt: Any, /, *, rotation_range: float = 2.0) -> Tensor:
    """The turn of each step, dt[h] * rotation_range * pi * tanh(rot[a]): (..., h, a).

    rot (..., a) is shared by the heads of dt (..., h). With a range of 2 a half turn at dt = 1
    lies where tanh still has a slope; 1 is the reference implementation's.
    """
    rot, dt = lift(rot), lift(dt)
    turn = elementary.tanh(rot) * (rotation_range * pi)
    return shape.expand_dims(dt, axis=-1) * shape.expand_dims(turn, axis=-2)
