"""Unit quaternions (w, x, y, z): products, running products, and what they turn.

A state of blocks of four that are multiplied by q_t at each step is the same as one that is
not, with B and C multiplied by the conjugate of the product so far. Nothing commutes, and
nothing needs to: the products telescope.
"""

from __future__ import annotations

from math import isqrt, pi
from operator import mul
from typing import Any

import numpy as np

from retrograd.core.errors import ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Multilinear, Op, aligned, op
from retrograd.core.spec import Spec, axis_index, broadcast_shapes
from retrograd.core.tensor import Tensor
from retrograd.ops import (
    cumulative,
    elementary,
    join,
    magnitude,
    pad,
    power,
    reduce,
    rounding,
    select,
    shape,
    trigonometric,
)
from retrograd.ops.ssm import recurrence

__all__ = [
    "quaternion_conjugate",
    "quaternion_multiply",
    "quaternion_normalize",
    "quaternion_rotate",
    "quaternion_rotors",
    "quaternion_scan",
]

IDENTITY = np.array([1.0, 0.0, 0.0, 0.0])
_SIGNS = np.array([1.0, -1.0, -1.0, -1.0])
# of the result: each line the terms (sign, place in a, place in b) of one component
_TERMS = (
    ((1, 0, 0), (-1, 1, 1), (-1, 2, 2), (-1, 3, 3)),
    ((1, 0, 1), (1, 1, 0), (1, 2, 3), (-1, 3, 2)),
    ((1, 0, 2), (-1, 1, 3), (1, 2, 0), (1, 3, 1)),
    ((1, 0, 3), (1, 1, 2), (-1, 2, 1), (1, 3, 0)),
)


def hamilton(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """out = a times b, of arrays with the four components along the first axis."""
    for c, (first, *more) in enumerate(_TERMS):
        y = out[c, ...]  # an array also where there is one number
        np.multiply(a[first[1]], b[first[2]], out=y)
        for sign, i, j in more:
            (np.add if sign > 0 else np.subtract)(y, a[i] * b[j], out=y)


def _four(who: str, **named: Any) -> None:
    for name, x in named.items():
        if not x.ndim or x.shape[-1] != 4:
            raise ShapeError(f"{who}: {name} {x.shape} must have 4 places along its last axis")


@op
class QuaternionMultiply(Multilinear):
    """Hamilton's product over the last axis; the axes before it broadcast."""

    reads = 4

    def shape(self, a: Spec, b: Spec) -> Spec:
        _four("quaternion_multiply", a=a, b=b)
        return a.with_shape(broadcast_shapes("quaternion_multiply", a=a.shape, b=b.shape))

    def forward(self, a, b):
        _four("quaternion_multiply", a=a, b=b)
        lead = np.broadcast_shapes(a.shape, b.shape)
        out = np.empty(lead, a.dtype)
        rank = len(lead)
        planes = [
            np.moveaxis(x.reshape((1,) * (rank - x.ndim) + x.shape), -1, 0) for x in (a, b, out)
        ]
        hamilton(*planes)
        return out

    def transpose_a(self, g, b):
        return apply(self, g, _conjugate(b))

    def transpose_b(self, g, a):
        return apply(self, _conjugate(a), g)

    def batch(self, size, args, mapped):
        return apply(self, *aligned(size, args, mapped))

    def lower(self, k, a, b, out):
        b = k.broadcast(b, out.shape)
        pairs = k.view(b, (*out.shape[:-1], 2, 2))
        lead = len(out.shape) - 1
        for row in k.rows(out, out, axis=()):
            total = None
            for i, left in enumerate(_spread(k, a, out.shape)):  # times b at the place c ^ i
                axes = [lead + n for n in range(2) if i & 2 >> n]
                right = k.view(k.flip(pairs, axes), out.shape) if i else b
                signs = k.literal(_signs(i).astype(out.dtype))
                right = k.map(mul, out.dtype, right, signs) if i else right
                term = left[row] * right[row]
                total = term if total is None else total + term
            out[row] = total

    @staticmethod
    def samples(rng):
        yield QuaternionMultiply(), rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3, 4))
        yield QuaternionMultiply(), rng.normal(size=4), rng.normal(size=(3, 1, 4))
        yield QuaternionMultiply(), rng.normal(size=(3, 1, 4)), rng.normal(size=(2, 4))
        yield QuaternionMultiply(), rng.normal(size=(0, 4)), rng.normal(size=(1, 4))

    @staticmethod
    def refuses(rng):
        yield QuaternionMultiply(), np.ones(4), np.ones(3), "b (3,) must have 4 places"


MULTIPLY = QuaternionMultiply()


def _conjugate(q: Any) -> Any:
    return q * lift(_SIGNS.astype(q.dtype))


def _inverse(q: Any) -> Any:
    return _conjugate(q) / reduce.sum(q * q, axis=-1, keepdims=True)


@op
class QuaternionScan(Op):
    """Q_t = q_t times Q_{t-1} along an axis, from `initial`; keeps the result and initial.

    `initial` has the shape of q without the axis of time, or is one quaternion. The rules
    divide by the squares of the norms, so they are right for any q but 0; for unit q, which
    this is for, they divide by 1.
    """

    axis: int
    uniform = True
    takes = "floating"
    reads = 4

    def shape(self, q: Spec, initial: Spec) -> Spec:
        self._check(q, initial)
        return q

    def _check(self, q: Any, initial: Any) -> None:
        _four("quaternion_scan", q=q, initial=initial)
        state = recurrence.without(q.shape, self.axis)
        if initial.shape not in (state, (4,)):
            raise ShapeError(
                f"quaternion_scan: initial {initial.shape} must have the shape of q {q.shape} "
                f"without axis {self.axis}: {state}, or (4,)"
            )

    def forward(self, q, initial):
        self._check(q, initial)
        start = np.broadcast_to(initial, recurrence.without(q.shape, self.axis))
        planes = np.moveaxis(np.moveaxis(q, self.axis, 0), -1, 0)  # (4, time, ...)
        out = _running(np.ascontiguousarray(planes), np.moveaxis(start, -1, 0))
        return np.moveaxis(np.moveaxis(out, 0, -1), 0, self.axis)

    def jvp(self, dq, dinitial, initial, out):
        before = self._before(initial, out)
        inside = apply(MULTIPLY, _inverse(out), apply(MULTIPLY, dq, before))
        begun = self._wide(apply(MULTIPLY, _inverse(initial), dinitial))
        total = cumulative.cumulative_sum(inside, axis=self.axis) + begun
        return apply(MULTIPLY, out, total)

    def vjp(self, g, initial, out):
        back = apply(MULTIPLY, _conjugate(out), g)
        back = cumulative.cumulative_sum(back, axis=self.axis, reverse=True)
        G = apply(MULTIPLY, _conjugate(_inverse(out)), back)
        dq = apply(MULTIPLY, G, _conjugate(self._before(initial, out)))
        if out.shape[self.axis]:
            total = shape.squeeze(pad.piece(back, self.axis, 0, 1), axis=self.axis)
        else:
            total = reduce.sum(back, axis=self.axis)
        begun = apply(MULTIPLY, _conjugate(_inverse(initial)), total)
        return dq, reduce.sum_to(begun, initial.shape)

    def _wide(self, state):
        return shape.expand_dims(state, axis=self.axis) if state.ndim > 1 else state

    def _before(self, initial, out):
        n = out.shape[self.axis]
        if not n:
            return out
        edge = (*out.shape[: self.axis], 1, *out.shape[self.axis + 1 :])
        first = shape.broadcast_to(self._wide(initial), edge)
        return join.concat([first, pad.piece(out, self.axis, 0, n - 1)], axis=self.axis)

    def batch(self, size, args, mapped):
        q, initial = args
        if not mapped[0]:
            q = shape.broadcast_to(q, (size, *q.shape))
        state = recurrence.without(q.shape, self.axis + 1)
        own = initial.shape[1:] if mapped[1] else initial.shape
        new = (1,) * (len(state) - 1 - len(own))
        initial = shape.reshape(initial, (size if mapped[1] else 1, *new, *own))
        initial = shape.broadcast_to(initial, state)
        return apply(QuaternionScan(self.axis + 1), q, initial)

    def lower(self, k, q, initial, out):
        edge = (*q.shape[: self.axis], 1, *q.shape[self.axis + 1 :])
        start = k.view(initial, edge) if initial.shape != (4,) else initial
        new, first = _spread(k, q, q.shape), _spread(k, start, edge)
        whole = np.dtype(np.int32)
        place = k.map(lambda c, _: c, whole, k.iota(4, whole), q)
        for walk in k.lanes(out, axis=self.axis):
            held = [k.var(0.0, q) for _ in first]  # each lane carries all four, and stores one
            _set(held, [x[walk] for x in first])
            for t in walk.steps():
                _set(held, _product([x[t] for x in new], [h.value for h in held]))
                (w, x, y, z), c = (h.value for h in held), place[t]
                out[t] = k.where(c < 2, k.where(c < 1, w, x), k.where(c < 3, y, z))

    @staticmethod
    def samples(rng):
        q = rng.normal(size=(2, 5, 3, 4))
        q /= np.linalg.norm(q, axis=-1, keepdims=True)
        yield QuaternionScan(1), q, q[:, 0]
        yield QuaternionScan(0), q[0, :, 0], IDENTITY
        yield QuaternionScan(1), 1.2 * q, 0.7 * q[0, 0, 0]
        yield QuaternionScan(0), np.concatenate([q[0], q[1], q[0]])[:, :1], q[0, 0, :1]
        yield QuaternionScan(1), q[:, :0], q[:, 0]

    @staticmethod
    def refuses(rng):
        q = rng.normal(size=(5, 2, 4))
        yield QuaternionScan(0), q, q, "initial (5, 2, 4) must have the shape of q"
        yield QuaternionScan(0), q[..., :3], q[0], "q (5, 2, 3) must have 4 places"


def _signs(i: int) -> np.ndarray:
    """Of the four components: the sign of the term with place i in a."""
    return np.array([terms[i][0] for terms in _TERMS])


def _spread(k: Any, x: Any, to: tuple[int, ...]) -> list[Any]:
    """Of a kernel's array: each component, at all four places of its quaternion."""
    whole = [(0, n, 1) for n in x.shape[:-1]]
    return [k.broadcast(k.slice(x, [*whole, (i, 1, 1)]), to) for i in range(4)]


def _set(variables: list[Any], values: list[Any]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.value = value


def _product(a: list[Any], b: list[Any]) -> list[Any]:
    """The components of a times b."""
    found = []
    for (_, i, j), *more in _TERMS:
        total = a[i] * b[j]
        for sign, m, n in more:
            total = total + a[m] * b[n] if sign > 0 else total - a[m] * b[n]
        found.append(total)
    return found


def _running(q: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Running products of (4, time, ...): short runs side by side, then joined."""
    n = q.shape[1]
    length = max(1, isqrt(n))
    count = -(-n // length)
    full = np.zeros((4, count * length, *q.shape[2:]), q.dtype)
    full[0] = 1
    full[:, :n] = q
    runs = full.reshape(4, count, length, *q.shape[2:])
    held = np.empty_like(runs[:, :, 0])
    for t in range(1, length):
        hamilton(runs[:, :, t], runs[:, :, t - 1], held)
        runs[:, :, t] = held
    enter = np.empty_like(held)
    for c in range(count):
        enter[:, c] = start
        start = np.empty_like(enter[:, c])
        hamilton(runs[:, c, -1], enter[:, c], start)
    out = np.empty_like(runs)
    hamilton(runs, enter[:, :, None], out)
    return out.reshape(4, count * length, *q.shape[2:])[:, :n]


def quaternion_multiply(a: Any, b: Any, /) -> Tensor:
    """Hamilton's product over the last axis (w, x, y, z); the axes before it broadcast."""
    return apply(MULTIPLY, a, b)


def quaternion_conjugate(q: Any, /) -> Tensor:
    """(w, -x, -y, -z): the inverse of a unit quaternion."""
    q = lift(q)
    _four("quaternion_conjugate", q=q)
    return _conjugate(q)


def quaternion_scan(q: Any, /, *, axis: int = 0, initial: Any = None) -> Tensor:
    """Running products along `axis`, the newest factor on the left, from `initial` (one)."""
    q = lift(q)
    axis = axis_index("quaternion_scan", axis, q.ndim)
    start = IDENTITY.astype(q.dtype) if initial is None else initial
    return apply(QuaternionScan(axis), q, start)


def _epsilon(dtype: np.dtype) -> float:
    """A number next to nothing, whose power 3/2 is not yet 0."""
    if dtype == np.float16:
        return 1e-4
    return 1e-150 if dtype == np.float64 else 1e-19


def _safe_norm(v: Any) -> Tensor:
    """The length along the last axis, kept; no overflow, and a finite derivative at 0."""
    eps = _epsilon(v.dtype)
    size = magnitude.abs(rounding.stop_gradient(v))
    top = pad.piece(size, v.ndim - 1, 0, 1)
    for i in range(1, v.shape[-1]):  # few: pairwise is faster than a reduction over them
        top = select.maximum(top, pad.piece(size, v.ndim - 1, i, 1))
    scale = top + eps
    unit = v / scale
    square = reduce.sum(unit * unit, axis=-1, keepdims=True)
    return power.sqrt(select.clip(square, min=eps)) * scale


def quaternion_normalize(q: Any, /) -> Tensor:
    """q over its length; finite at 0, with a finite derivative."""
    q = lift(q)
    _four("quaternion_normalize", q=q)
    square = reduce.sum(q * q, axis=-1, keepdims=True)
    return q / power.sqrt(select.clip(square, min=_epsilon(q.dtype)))


def quaternion_rotors(rot: Any, dt: Any, /, *, rotation_range: float = 2.0) -> Tensor:
    """Unit quaternions (..., h, J, 4) of steps, of vectors (..., h, J, 3) and dt (..., h).

    It turns by dt * rotation_range * pi * tanh(|rot|) about the axis rot.
    """
    rot, dt = lift(rot), lift(dt)
    if rot.ndim != dt.ndim + 2 or rot.shape[-1] != 3:
        raise ShapeError(
            f"quaternion_rotors: rot {rot.shape} must be dt's axes {dt.shape}, blocks, and 3"
        )
    length = _safe_norm(rot)
    dt = shape.expand_dims(dt, axis=(-2, -1))
    vector = dt * (rotation_range * pi) * (elementary.tanh(length) / length) * rot
    angle = _safe_norm(vector)
    half = angle * 0.5
    parts = [trigonometric.cos(half), trigonometric.sin(half) / angle * vector]
    return quaternion_normalize(join.concat(parts, axis=-1))


def quaternion_rotate(x: Any, q: Any, /) -> Tensor:
    """conj(q) times x in blocks of four of the last axis; with fewer q, the rest stays.

    x (..., r) and q (..., J, 4), 4 J <= r; q has length 1 where it is shared.
    """
    x, q = lift(x), lift(q)
    _four("quaternion_rotate", q=q)
    *lead, r = x.shape
    J = q.shape[-2]
    if q.ndim != x.ndim + 1 or r < 4 * J:
        raise ShapeError(
            f"quaternion_rotate: q {q.shape} must have the axes of x {x.shape} with its last "
            f"axis as blocks of 4, at most {r // 4}"
        )
    blocks = shape.reshape(pad.piece(x, x.ndim - 1, 0, 4 * J), (*lead, J, 4))
    turned = shape.reshape(apply(MULTIPLY, _conjugate(q), blocks), (*lead, 4 * J))
    if r == 4 * J:
        return turned
    return join.concat([turned, pad.piece(x, x.ndim - 1, 4 * J, r - 4 * J)], axis=-1)
