"""The recursions of CTC in NumPy, forwards and backwards over the frames, in the logarithm."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.errors import ArgumentError

__all__ = ["NEVER", "chance", "pulled"]

NEVER = -1e30  # the log of no chance: far below any real one, and safe to subtract


def _emitted(log_p: np.ndarray, states: np.ndarray) -> np.ndarray:
    """What each state emits at each frame: [T, N, states]."""
    return np.take_along_axis(log_p, states[None], axis=2)


class _Steps:
    """From the states of one frame to those of the next, along or against time."""

    def __init__(self, skip: np.ndarray, dtype: Any, *, back: bool) -> None:
        n, width = skip.shape
        self.room = np.full((n, width + 2), NEVER, dtype)
        self.mine = self.room[:, :-2] if back else self.room[:, 2:]
        self.near = self.room[:, 1:-1]
        self.far = self.room[:, 2:] if back else self.room[:, :-2]
        closed = np.full(skip.shape, NEVER, dtype)
        if back:
            closed[:, :-2][skip[:, 2:]] = 0
        else:
            closed[skip] = 0
        self.closed = closed
        self.parts = np.empty((3, n, width), dtype)

    def step(self, now: np.ndarray) -> np.ndarray:
        """The log of the sum over a state, the one beside it, and the one beyond where open."""
        self.mine[...] = now
        a, b, c = parts = self.parts
        a[...], b[...] = now, self.near
        np.add(self.far, self.closed, out=c)
        most = np.maximum(np.maximum(a, b), c)
        parts -= most
        np.exp(parts, out=parts)
        a += b
        a += c
        np.log(a, out=a)
        return np.add(a, most, out=most)


def _alphas(emit: np.ndarray, skip: np.ndarray) -> np.ndarray:
    """The log of the chance to be in each state after each frame."""
    out = np.empty_like(emit)
    out[0] = NEVER
    out[0, :, :2] = emit[0, :, :2]
    steps, least = _Steps(skip, emit.dtype, back=False), emit.dtype.type(2 * NEVER)
    np.maximum(out[0], least, out=out[0])  # of -inf, differences would be lost
    for t in range(1, len(emit)):
        np.add(steps.step(out[t - 1]), emit[t], out=out[t])
        np.maximum(out[t], least, out=out[t])
    return out


def _ends(lengths: np.ndarray, width: int) -> np.ndarray:
    """The states in which a row may end: its last label, and the blank after it."""
    place, last = np.arange(width), 2 * lengths[:, None]
    return (place == last) | (place == last - 1)


def _refuse(frames: int, states: int, own: np.ndarray, lengths: np.ndarray) -> None:
    """Refuse more frames than there are, and more labels than there are states for."""
    for who, found, most in (("frames", own, frames), ("labels", lengths, (states - 1) // 2)):
        if np.any((found < 0) | (found > most)):
            raise ArgumentError(
                f"log_chance: rows have 0 to {most} {who}; got {found.tolist()}"
            )


def chance(log_p: Any, states: Any, skip: Any, frames: Any, lengths: Any) -> tuple[Any, ...]:
    """The log of the chance of each row; what each state emits, and the walk there."""
    _refuse(len(log_p), states.shape[1], frames, lengths)
    emit = _emitted(log_p, states)
    alpha = _alphas(emit, skip)
    there = alpha[np.maximum(frames, 1) - 1, np.arange(len(frames))]
    there = np.where(_ends(lengths, states.shape[1]), there, there.dtype.type(NEVER))
    most = there.max(axis=1, keepdims=True)
    total = (most + np.log(np.exp(there - most).sum(axis=1, keepdims=True)))[:, 0]
    nothing = np.where(lengths == 0, 0.0, NEVER).astype(total.dtype)  # no frames: certain
    return np.where(frames == 0, nothing, total), emit, alpha


def pulled(g: Any, log_p: Any, states: Any, skip: Any, frames: Any, lengths: Any) -> Any:
    """The cotangent of log_p: g times the share of all ways that pass a class at a frame."""
    total, emit, alpha = chance(log_p, states, skip, frames, lengths)
    steps, ends = _Steps(skip, emit.dtype, back=True), _ends(lengths, states.shape[1])
    start = np.where(ends, 0.0, NEVER).astype(emit.dtype)
    beta, share = start, alpha  # the walk there is not needed any more: shares take its place
    for t in reversed(range(len(emit))):
        if t + 1 < len(emit):
            beta = steps.step(np.maximum(beta + emit[t + 1], emit.dtype.type(2 * NEVER)))
        beta = np.where((frames == t + 1)[:, None], start, beta)
        share[t] += beta
    share -= total[:, None]
    np.exp(share, out=share)
    share *= ((np.arange(len(emit))[:, None] < frames) * g)[..., None]
    one = (states[..., None] == np.arange(log_p.shape[2])).astype(log_p.dtype)
    return np.ascontiguousarray(np.matmul(share.transpose(1, 0, 2), one).transpose(1, 0, 2))
