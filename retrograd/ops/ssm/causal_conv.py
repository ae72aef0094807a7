"""Causal depthwise convolution with a state: what a short memory of each channel gives.

    y_t = bias + sum_q weight[q] x_{t - k + 1 + q}

The last tap meets the present. Before the first time stands the state, the last k - 1 inputs
of the call before; zeros by default.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.errors import ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Composite, Multilinear, Op, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import create, join, pad, reduce, shape
from retrograd.ops.ssm import layout

__all__ = ["causal_conv1d", "causal_conv1d_step"]

WHO = "causal_conv1d"
CACHE = 1 << 18  # bytes


class _Taps(Multilinear):
    """One of the three sides of sum_{t,q} y[t] x[t+q] w[q], time before the last axis.

    x is longer than y by k - 1, and w (..., k, c) has the leading axes of x, or none.
    """

    def batch(self, size, args, mapped):
        lead = max(a.ndim - m for a, m in zip(args, mapped, strict=True))
        out = []
        for a, m in zip(args, mapped, strict=True):
            own = a.shape[1:] if m else a.shape
            out.append(shape.reshape(a, (size if m else 1, *(1,) * (lead - len(own)), *own)))
        whole = np.broadcast_shapes(*(a.shape[:-2] for a in out))
        return apply(self, *(shape.broadcast_to(a, (*whole, *a.shape[-2:])) for a in out))


@op
class CausalTaps(_Taps):
    """y[t] = sum_q x[t+q] w[q]."""

    def shape(self, x: Spec, w: Spec) -> Spec:
        return x.with_shape((*x.shape[:-2], x.shape[-2] - w.shape[-2] + 1, x.shape[-1]))

    def forward(self, x, w):
        n = x.shape[-2] - w.shape[-2] + 1
        out = np.zeros((*x.shape[:-2], n, x.shape[-1]), x.dtype)
        return _accumulated(out, x, w)

    def transpose_x(self, g, w, x: Spec):
        return apply(TAPS_INPUT, g, w)

    def transpose_w(self, g, x, w: Spec):
        k = w.shape[-2]
        found = apply(CausalTapsWeights(k), g, x)
        return reduce.sum_to(found, w.shape)

    def expand(self, x, w):
        n, k = x.shape[-2] - w.shape[-2] + 1, w.shape[-2]
        terms = (pad.piece(x, x.ndim - 2, q, n) * _tap(w, q) for q in range(k))
        return _total(terms)

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(2, 7, 3))
        yield CausalTaps(), x, rng.normal(size=(4, 3))
        yield CausalTaps(), x[0], rng.normal(size=(1, 3))
        yield CausalTaps(), x, rng.normal(size=(2, 3, 3))
        yield CausalTaps(), x[:, :3], rng.normal(size=(4, 3))


@op
class CausalTapsInput(_Taps):
    """x[t+q] += y[t] w[q]: the transpose of CausalTaps in x."""

    def shape(self, y: Spec, w: Spec) -> Spec:
        return y.with_shape((*y.shape[:-2], y.shape[-2] + w.shape[-2] - 1, y.shape[-1]))

    def forward(self, y, w):
        k, n = w.shape[-2], y.shape[-2]
        out = np.zeros((*y.shape[:-2], n + k - 1, y.shape[-1]), y.dtype)
        for a, z in _blocks(y):
            part = y[..., a:z, :]
            for q in range(k):
                out[..., a + q : z + q, :] += part * w[..., q : q + 1, :]
        return out

    def transpose_y(self, g, w):
        return apply(TAPS, g, w)

    def transpose_w(self, g, y, w: Spec):
        return reduce.sum_to(apply(CausalTapsWeights(w.shape[-2]), y, g), w.shape)

    def expand(self, y, w):
        k = w.shape[-2]
        terms = (pad.pad(y * _tap(w, q), {-2: (q, k - 1 - q)}) for q in range(k))
        return _total(terms)

    @staticmethod
    def samples(rng):
        g = rng.normal(size=(2, 5, 3))
        yield CausalTapsInput(), g, rng.normal(size=(4, 3))
        yield CausalTapsInput(), g, rng.normal(size=(2, 2, 3))
        yield CausalTapsInput(), g[:, :0], rng.normal(size=(1, 3))


@op
class CausalTapsWeights(_Taps):
    """w[q] = sum_t y[t] x[t+q]: the transpose of CausalTaps in w, for each leading place."""

    taps: int

    def shape(self, y: Spec, x: Spec) -> Spec:
        return y.with_shape((*y.shape[:-2], self.taps, y.shape[-1]))

    def forward(self, y, x):
        n = y.shape[-2]
        out = np.empty((*y.shape[:-2], self.taps, y.shape[-1]), y.dtype)
        for q in range(self.taps):
            np.einsum("...tc,...tc->...c", y, x[..., q : q + n, :], out=out[..., q, :])
        return out

    def transpose_y(self, g, x):
        return apply(TAPS, x, g)

    def transpose_x(self, g, y):
        return apply(TAPS_INPUT, y, g)

    def expand(self, y, x):
        n, axis = y.shape[-2], x.ndim - 2
        sums = [
            reduce.sum(y * pad.piece(x, axis, q, n), axis=-2, keepdims=True)
            for q in range(self.taps)
        ]
        return join.concat(sums, axis=-2)

    @staticmethod
    def samples(rng):
        yield CausalTapsWeights(3), rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 7, 3))
        yield CausalTapsWeights(1), rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
        yield CausalTapsWeights(2), rng.normal(size=(2, 0, 3)), rng.normal(size=(2, 1, 3))


TAPS, TAPS_INPUT = CausalTaps(), CausalTapsInput()


def _accumulated(out: np.ndarray, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """out[t] += sum_q x[t+q] w[q], in place."""
    for a, z in _blocks(out):
        part = out[..., a:z, :]
        for q in range(w.shape[-2]):
            part += x[..., a + q : z + q, :] * w[..., q : q + 1, :]
    return out


def _blocks(x: np.ndarray) -> list[tuple[int, int]]:
    """Bounds of stretches of time that fit a cache."""
    n = x.shape[-2]
    step = max(1, CACHE * n // max(1, x.nbytes))
    return [(a, min(a + step, n)) for a in range(0, n, step)]


def _tap(w: Any, q: int) -> Any:
    return pad.piece(w, w.ndim - 2, q, 1)


def _total(terms: Any) -> Any:
    total = None
    for term in terms:
        total = term if total is None else total + term
    return total


@op
class CausalConv(Op):
    """y of x, the state before it, and the taps; keeps x, state and weight."""

    native = "causal convolution"
    uniform = True
    takes = "floating"

    def shape(self, x: Spec, state: Spec, weight: Spec, bias: Spec) -> Spec:
        _check(x.shape, state.shape, weight.shape, bias.shape)
        return x

    def forward(self, x, state, weight, bias):
        _check(x.shape, state.shape, weight.shape, bias.shape)
        out = np.empty(x.shape, x.dtype)
        out[...] = bias[..., None, :] if bias.ndim > 1 else bias
        return _accumulated(out, np.concatenate([state, x], axis=-2), weight)

    def jvp(self, dx, dstate, dweight, dbias, x, state, weight):
        along = apply(self, dx, dstate, weight, dbias)
        return along + apply(TAPS, join.concat([state, x], axis=-2), dweight)

    def vjp(self, g, x, state, weight, bias: Spec):
        return apply(CausalConvGrad(bias.shape), g, x, state, weight)

    def batch(self, size, args, mapped):
        x, state, weight, _ = layout.own(args, mapped)
        lead, c = x.shape[:-2], x.shape[-1]
        full = [x.shape, state.shape, (*lead, weight.shape[-2], c), (*lead, c)]
        return apply(self, *layout.mapped_front(size, args, mapped, full))

    def expand(self, x, state, weight, bias):
        bias = shape.expand_dims(bias, axis=-2) if bias.ndim > 1 else bias
        return apply(TAPS, join.concat([state, x], axis=-2), weight) + bias

    @staticmethod
    def samples(rng):
        x, state, w = (rng.normal(size=s) for s in ((2, 5, 3), (2, 3, 3), (4, 3)))
        yield CausalConv(), x, state, w, rng.normal(size=3)
        yield CausalConv(), x[0], state[0, :0], w[:1], np.asarray(0.0)
        yield CausalConv(), x[:, :2], state, rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 3))
        yield CausalConv(), x[:, :0], state, w, rng.normal(size=3)

    @staticmethod
    def refuses(rng):
        x, w, b = np.ones((2, 5, 3)), np.ones((4, 3)), np.ones(3)
        yield CausalConv(), x, x[:, :2], w, b, "state (2, 2, 3) must have shape (2, 3, 3)"
        yield CausalConv(), x, x[:, :3], w[:, :2], b, "weight (4, 2) must have shape"
        yield CausalConv(), x, x[:, :3], w, b[:2], "bias (2,) must have shape"


@op
class CausalConvGrad(Composite):
    """The cotangents of CausalConv's inputs; `bias` is that input's shape."""

    bias: tuple[int, ...]
    native = "causal convolution back"
    uniform = True
    takes = "floating"
    outputs = ("gx", "gstate", "gweight", "gbias")

    def shape(self, g: Spec, x: Spec, state: Spec, weight: Spec):
        _check(x.shape, state.shape, weight.shape, self.bias)
        return x, state, weight, x.with_shape(self.bias)

    def forward(self, g, x, state, weight):
        k = weight.shape[-2]
        both = TAPS_INPUT.forward(g, weight)
        taps = CausalTapsWeights(k).forward(g, np.concatenate([state, x], axis=-2))
        summed = (reduce.SumTo(to).forward for to in (weight.shape, self.bias))
        gweight, gbias = next(summed)(taps), next(summed)(np.add.reduce(g, axis=-2))
        return both[..., k - 1 :, :], both[..., : k - 1, :], gweight, gbias

    def expand(self, g, x, state, weight):
        k, n = weight.shape[-2], g.shape[-2]
        both = apply(TAPS_INPUT, g, weight)
        taps = apply(CausalTapsWeights(k), g, join.concat([state, x], axis=-2))
        gx = pad.piece(both, both.ndim - 2, k - 1, n)
        gstate = pad.piece(both, both.ndim - 2, 0, k - 1)
        gbias = reduce.sum_to(reduce.sum(g, axis=-2), self.bias)
        return gx, gstate, reduce.sum_to(taps, weight.shape), gbias

    def batch(self, size, args, mapped):
        own = layout.own(args, mapped)
        _, x, state, weight = own
        lead, c = x.shape[:-2], x.shape[-1]
        full = [x.shape, x.shape, state.shape, (*lead, weight.shape[-2], c)]
        inner = CausalConvGrad((size, *lead, c))
        found = apply(inner, *layout.mapped_front(size, args, mapped, full))
        shapes = (x.shape, state.shape, weight.shape, self.bias)
        return tuple(layout.unmapped(t, to) for t, to in zip(found, shapes, strict=True))

    @staticmethod
    def samples(rng):
        for _, *args, bias in CausalConv.samples(rng):
            yield CausalConvGrad(bias.shape), rng.normal(size=args[0].shape), *args


def _check(x: Any, state: Any, weight: Any, bias: Any) -> None:
    layout.check_axes(WHO, "x", x, "time channels")
    if len(weight) < 2 or not weight[-2]:
        raise ShapeError(f"{WHO}: weight {weight} must be (taps, channels), with taps")
    *lead, _, c = x
    k = weight[-2]
    layout.check(WHO, "weight", weight, (k, c), (*lead, k, c))
    layout.check(WHO, "state", state, (*lead, k - 1, c))
    layout.check_shared(WHO, "bias", bias, tuple(lead), (c,))


def _weight(weight: Any) -> Tensor:
    """(k, c), also of (k, 1, c) as other convolutions have it."""
    weight = lift(weight)
    if weight.ndim == 3 and weight.shape[1] == 1:
        return shape.reshape(weight, (weight.shape[0], weight.shape[2]))
    return weight


def causal_conv1d(
    x: Any, weight: Any, bias: Any = None, /, *, state: Any = None
) -> tuple[Tensor, Tensor]:
    """y like x (..., time, channels), and the state for the next call: the last k - 1 inputs.

    weight (k, c), its last tap for the present; bias (c,); state (..., k-1, c), zeros by
    default.
    """
    x, weight = lift(x), _weight(weight)
    layout.check_axes(WHO, "x", x.shape, "time channels")
    layout.check_axes(WHO, "weight", weight.shape, "taps channels")
    *lead, n, c = x.shape
    k = weight.shape[-2]
    if state is None:
        state = create.zeros((*lead, max(k - 1, 0), c), dtype=x.dtype)
    state = lift(state)
    y = apply(CausalConv(), x, state, weight, 0.0 if bias is None else bias)
    kept = min(n, k - 1)
    last = pad.piece(x, x.ndim - 2, n - kept, kept)
    if kept < k - 1:
        last = join.concat([pad.piece(state, x.ndim - 2, kept, k - 1 - kept), last], axis=-2)
    return y, last


def causal_conv1d_step(
    state: Any, x: Any, weight: Any, bias: Any = None, /
) -> tuple[Tensor, Tensor]:
    """One token of `causal_conv1d`: y like x (..., channels), and the new state."""
    y, state = causal_conv1d(shape.expand_dims(x, axis=-2), weight, bias, state=state)
    return shape.squeeze(y, axis=-2), state
