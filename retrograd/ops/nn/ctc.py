"""Connectionist temporal classification: the loss over all alignments of labels to frames.

The value is minus the log of the sum, over all ways to stretch the labels (with blanks in
between) to the length of the input, of their probability. The recursion over time runs in
the logarithm, and is a composition of ops, one round of them for each frame: every order of
derivative follows, and what is kept grows with frames times labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, BoundsError, DtypeError, ShapeError
from retrograd.core.interpret import lift
from retrograd.core.tensor import Tensor
from retrograd.ops import elementary, gather, pad, reduce, select
from retrograd.ops.nn.losses import reduced

__all__ = ["ctc"]
NEVER = -1e30  # the log of no chance: far below any real one, and safe to subtract


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
    place = np.arange(2 * s + 1)
    alpha = select.where(
        (place < 2)[None] & np.ones((n, 1), bool), _emit(log_p, 0, states), NEVER
    )
    done = _at_end(alpha, lengths)
    nothing = np.where((frames == 0) & (lengths == 0), 0.0, NEVER)  # no frames: certain
    total = select.where(frames == 1, done, nothing.astype(log_p.dtype))
    for t in range(1, log_p.shape[0]):
        alpha = _step(alpha, skip) + _emit(log_p, t, states)
        total = select.where(frames == t + 1, _at_end(alpha, lengths), total)
    return total


def _emit(log_p: Any, t: int, states: np.ndarray) -> Any:
    return gather.take_along_axis(log_p[t], states, axis=1)


def _step(alpha: Any, skip: np.ndarray) -> Any:
    """From each state, the one before, and where allowed the one before that."""
    width = alpha.shape[1]
    one = pad.pad(alpha, ((0, 0), (1, 0)), constant_values=NEVER)[:, :width]
    two = pad.pad(alpha, ((0, 0), (2, 0)), constant_values=NEVER)[:, :width]
    near = elementary.logaddexp(alpha, one)
    return elementary.logaddexp(near, select.where(skip, two, NEVER))


def _at_end(alpha: Any, lengths: np.ndarray) -> Any:
    """At the last label of each row, or at the blank after it."""
    blank = gather.take_along_axis(alpha, (2 * lengths)[:, None], axis=1)
    label = gather.take_along_axis(alpha, np.maximum(2 * lengths - 1, 0)[:, None], axis=1)
    label = select.where((lengths > 0)[:, None], label, NEVER)
    return reduce.sum(elementary.logaddexp(blank, label), axis=1)
