"""Connectionist temporal classification: the loss over all alignments of labels to frames.

The value is minus the log of the sum, over all ways to stretch the labels (with blanks in
between) to the length of the input, of their probability. The recursion over time runs in
the logarithm. It and its gradient walk forwards and backwards over the frames: in a kernel
where they are compiled or heavy, else in NumPy (`ctc_walk`). Higher derivatives are those of a
composition of ops, one round of them for each frame, whose keep grows with frames times labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, BoundsError, DtypeError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Composite, op
from retrograd.core.record import DERIVED
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, elementary, gather, pad, reduce, select, shape
from retrograd.ops.nn import ctc_walk
from retrograd.ops.nn.ctc_walk import NEVER
from retrograd.ops.nn.losses import reduced

__all__ = ["ctc"]


def ctc(
    log_probability: Any,
    labels: Any,
    /,
    *,
    frames: Any = None,
    lengths: Any = None,
    blank: int = 0,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log of the chance of `labels` [N, S] under log_probability [T, N, C].

    `frames` and `lengths` say how many of the T frames and S labels of each row count (all
    by default). A row whose labels do not fit its frames costs about 1e30. The mean is over
    each row's loss divided by its number of labels, as PyTorch has it.
    """
    log_p = lift(log_probability)
    rows, frames, lengths = _checked(log_p, labels, frames, lengths, blank)
    each = -_log_chance(log_p, rows, frames, lengths, blank)
    if reduction == "mean":
        each = each / np.maximum(lengths, 1).astype(log_p.dtype)
    return reduced("ctc", each, reduction)


def _checked(log_p: Any, labels: Any, frames: Any, lengths: Any, blank: int) -> Any:
    """Labels and lengths as NumPy arrays: they are data, never traced or differentiated."""
    rows = np.asarray(labels)
    if log_p.ndim != 3 or rows.ndim != 2 or rows.shape[0] != log_p.shape[1]:
        raise ShapeError(
            f"ctc: log_probability must be [T, N, C] and labels [N, S]; got {log_p.shape} and "
            f"{rows.shape}"
        )
    steps, n, classes = log_p.shape
    if rows.dtype.kind not in "iu" or not dt.is_inexact(log_p.dtype):
        raise DtypeError(f"ctc: labels must be integers; got {rows.dtype}")
    frames = np.full(n, steps) if frames is None else np.asarray(frames)
    lengths = np.full(n, rows.shape[1]) if lengths is None else np.asarray(lengths)
    for name, value, most in (("frames", frames, steps), ("lengths", lengths, rows.shape[1])):
        if value.shape != (n,) or (value.size and (value.min() < 0 or value.max() > most)):
            raise ArgumentError(f"ctc: {name} must be {n} counts from 0 to {most}; got {value}")
    if not 0 <= blank < classes:
        raise BoundsError(f"ctc: blank {blank} is not one of the {classes} classes")
    used = rows[np.arange(rows.shape[1]) < lengths[:, None]]
    if used.size and (used.min() < 0 or used.max() >= classes or (used == blank).any()):
        raise BoundsError(f"ctc: labels must be classes from 0 to {classes - 1} and not blank")
    return np.clip(rows, 0, classes - 1), frames, lengths


def _log_chance(log_p: Any, labels: np.ndarray, frames: Any, lengths: Any, blank: int) -> Any:
    n, s = labels.shape
    states = np.full((n, 2 * s + 1), blank)  # blank, label, blank, label, ..., blank
    states[:, 1::2] = labels
    skip = np.zeros(states.shape, dtype=bool)  # reached from two before: not over a repeat
    skip[:, 2:] = (states[:, 2:] != blank) & (states[:, 2:] != states[:, :-2])
    counts = (frames.astype(np.int64), lengths.astype(np.int64))
    if not log_p.shape[0]:
        nothing = np.where(lengths == 0, 0.0, NEVER)
        return reduce.sum(log_p, axis=(0, 2)) + nothing.astype(log_p.dtype)
    return apply(LogChance(), log_p, *map(lift, (states, skip, *counts)))


@op
class LogChance(Composite):
    """The log of the chance of each row's states under log_p [T, N, C]. Keeps log_p."""

    native = "ctc"
    fixed = ("states", "skip", "frames", "lengths")

    def shape(self, log_p: Spec, states: Spec, skip: Spec, frames: Spec, lengths: Spec) -> Spec:
        return log_p.with_shape(log_p.shape[1:2])

    def forward(self, log_p, states, skip, frames, lengths):
        return ctc_walk.chance(log_p, states, skip, frames, lengths)[0]

    def vjp(self, g, log_p, states, skip, frames, lengths):
        return apply(LogChancePull(), g, log_p, states, skip, frames, lengths)

    def expand(self, log_p, states, skip, frames, lengths):
        return _plain(log_p, states, skip, frames, lengths)

    @staticmethod
    def samples(rng):
        for own in _samples(rng):
            yield LogChance(), *own

    @staticmethod
    def refuses(rng):
        ((*given, frames, lengths),) = _samples(rng)
        yield LogChance(), *given, frames, lengths + 1, "rows have 0 to 2 labels"
        yield LogChance(), *given, frames + 1, lengths, "rows have 0 to 5 frames"


@op
class LogChancePull(Composite):
    """The cotangent of log_p by g [N] of LogChance: the share of all ways through a state."""

    native = "ctc back"
    fixed = ("states", "skip", "frames", "lengths")

    def shape(self, g: Spec, log_p: Spec, states, skip, frames, lengths) -> Spec:
        return log_p

    def forward(self, g, log_p, states, skip, frames, lengths):
        return ctc_walk.pulled(g, log_p, states, skip, frames, lengths)

    def expand(self, g, log_p, states, skip, frames, lengths):
        given = (log_p, states, skip, frames, lengths)
        return DERIVED["expand"](1, len(given)).pull(LogChance(), g, given, len(given))[0]

    @staticmethod
    def samples(rng):
        for own in _samples(rng):
            yield LogChancePull(), rng.normal(size=own[0].shape[1]), *own


def _samples(rng: Any) -> Any:
    log_p = rng.normal(size=(5, 2, 3)) - 1
    states = np.array([[0, 1, 0, 2, 0], [0, 2, 0, 2, 0]])
    skip = np.zeros(states.shape, bool)
    skip[0, 3] = True
    yield log_p, states, skip, np.array([5, 4]), np.array([2, 1])


def _plain(log_p: Any, states: Any, skip: Any, frames: Any, lengths: Any) -> Any:
    """The recursion in ops."""
    place = np.arange(states.shape[1])
    first = (place < 2)[None] & np.ones((states.shape[0], 1), bool)
    alpha = select.where(lift(first), _emit(log_p, 0, states), NEVER)
    nothing = select.where((frames == 0) & (lengths == 0), 0.0, NEVER)  # no frames: certain
    done = _at_end(alpha, lengths)
    total = select.where(frames == 1, done, cast.astype(nothing, log_p.dtype))
    for t in range(1, log_p.shape[0]):
        alpha = _step(alpha, skip) + _emit(log_p, t, states)
        total = select.where(frames == t + 1, _at_end(alpha, lengths), total)
    return total


def _emit(log_p: Any, t: int, states: Any) -> Any:
    return gather.take_along_axis(log_p[t], states, axis=1)


def _step(alpha: Any, skip: Any) -> Any:
    """From each state, the one before, and where allowed the one before that."""
    width = alpha.shape[1]
    one = pad.pad(alpha, ((0, 0), (1, 0)), constant_values=NEVER)[:, :width]
    two = pad.pad(alpha, ((0, 0), (2, 0)), constant_values=NEVER)[:, :width]
    near = elementary.logaddexp(alpha, one)
    return elementary.logaddexp(near, select.where(skip, two, NEVER))


def _at_end(alpha: Any, lengths: Any) -> Any:
    """At the last label of each row, or at the blank after it."""
    wide = (lengths.shape[0], 1)
    last = shape.reshape(2 * lengths, wide)
    blank = gather.take_along_axis(alpha, last, axis=1)
    label = gather.take_along_axis(alpha, select.maximum(last - 1, 0), axis=1)
    label = select.where(last > 0, label, NEVER)
    return reduce.sum(elementary.logaddexp(blank, label), axis=1)
