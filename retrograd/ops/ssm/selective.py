"""Mamba-1's selective scan: a decay for each channel and each place of its state.

    dt_t = softplus(delta_t + bias)
    h_t = exp(dt_t A) h_{t-1} + dt_t u_t B_t'          y_t = (h_t C_t + D u_t) silu(z_t)

States live in chunks that fit a cache, and are computed again on the way back.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from retrograd.core.interpret import apply, lift
from retrograd.core.op import Composite, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import create, elementary, linalg, shape
from retrograd.ops.ssm import layout, selective_chunks, selective_plain

__all__ = ["selective_scan", "selective_step"]

WHO = "selective_scan"
_NAMES = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias", "initial")


_SHARED = (False, False, True, False, False, True, False, True, True)
_Z = _NAMES.index("z")


class _Sizes:
    """The lengths of one call, checked."""

    def __init__(self, *inputs: Any, gated: bool) -> None:
        u, _, A, *_ = inputs
        layout.check_axes(WHO, "u", u.shape, "time channels")
        layout.check_axes(WHO, "A", A.shape, "channels state")
        *lead, s, i = u.shape
        r = A.shape[-1]
        self.lead, self.b, self.gated, self.state = tuple(lead), prod(lead), gated, (i, r)
        self.core = [(s, i), (s, i), (i, r), (s, r), (s, r), (i,), (s, i), (i,), (i, r)]
        for name, shared, t, core in zip(_NAMES, _SHARED, inputs, self.core, strict=True):
            if name == "z" and not gated:
                layout.check(WHO, name, t.shape, ())
            elif shared:
                layout.check_shared(WHO, name, t.shape, self.lead, core)
            else:
                layout.check(WHO, name, t.shape, (*lead, *core))

    @property
    def full(self) -> list[tuple[int, ...]]:
        """The shapes of all operands, with leading axes."""
        return [(*self.lead, *c) for c in self.core]

    def operands(self, inputs: Any, fold: Any, spread: Any) -> list[Any]:
        """(b, ...) of each operand; z as it is where there is no gate."""
        out = [
            spread(t, self.lead, core) if shared else t
            for t, core, shared in zip(inputs, self.core, _SHARED, strict=True)
        ]
        for n, core in enumerate(self.core):
            if not _SHARED[n] and (self.gated or n != _Z):
                out[n] = fold(out[n], (self.b, *core))
        return out

    def results(self, found: Any, inputs: Any, fold: Any, gathered: Any) -> tuple[Any, ...]:
        """Cotangents in the shapes of the inputs."""
        return tuple(
            gathered(t, self.lead, x.shape) if shared else fold(t, x.shape)
            for t, x, shared in zip(found, inputs, _SHARED, strict=True)
        )

    def kernel(self, inputs: Any) -> selective_chunks.Operands:
        """The operands of the kernel."""
        given = selective_chunks.Operands(*self.operands(inputs, np.reshape, layout.spread))
        return given if self.gated else given._replace(z=None)

    def fronted(self, size: int, args: Any, mapped: Any, full: Any) -> list[Any]:
        """Operands of a batch rule; where there is no gate, z stays one number."""
        out = layout.mapped_front(size, args, mapped, full)
        if not self.gated:
            out[_Z - len(_NAMES)] = create.zeros((), dtype=out[0].dtype)
        return out


@op
class SelectiveScan(Composite):
    """y and the last state; keeps its inputs only: states are computed again in chunks."""

    soft: bool = False
    gated: bool = False
    native = "selective scan"
    uniform = True
    takes = "floating"
    outputs = ("y", "final")

    def shape(self, *inputs: Spec):
        n = _Sizes(*inputs, gated=self.gated)
        return inputs[0], inputs[0].with_shape((*n.lead, *n.state))

    def forward(self, *inputs):
        n = _Sizes(*inputs, gated=self.gated)
        y, final = selective_chunks.forward(n.kernel(inputs), soft=self.soft)
        return y.reshape(inputs[0].shape), final.reshape(*n.lead, *n.state)

    def expand(self, u, delta, A, B, C, D, z, bias, initial):
        inputs = (u, delta, A, B, C, D, z, bias, initial)
        n = _Sizes(*inputs, gated=self.gated)
        given = n.operands(inputs, shape.reshape, layout.spread_op)
        y, final = selective_plain.forward(given, soft=self.soft, gated=self.gated)
        return shape.reshape(y, u.shape), shape.reshape(final, (*n.lead, *n.state))

    def vjp(self, g_y, g_final, u, delta, A, B, C, D, z, bias, initial):
        inputs = (u, delta, A, B, C, D, z, bias, initial)
        return apply(SelectiveScanGrad(self.soft, self.gated), g_y, g_final, *inputs)

    def batch(self, size, args, mapped):
        n = _Sizes(*layout.own(args, mapped), gated=self.gated)
        return apply(self, *n.fronted(size, args, mapped, n.full))

    @staticmethod
    def samples(rng):
        for options, args in _samples(rng):
            yield SelectiveScan(*options), *args

    @staticmethod
    def refuses(rng):
        _, args = next(_samples(rng))
        u, delta, A, B, C, *rest = args
        yield SelectiveScan(), u, delta[:, 1:], A, B, C, *rest, "delta (2, 4, 3) must have"
        yield SelectiveScan(), u, delta, A[1:], B, C, *rest, "A (2, 2) must have shape"
        yield SelectiveScan(), u, delta, A, B, C[..., 1:], *rest, "C (2, 5, 1) must have"


@op
class SelectiveScanGrad(Composite):
    """The cotangents of SelectiveScan's inputs."""

    soft: bool = False
    gated: bool = False
    native = "selective scan back"
    uniform = True
    takes = "floating"
    outputs = ("gu", "gdelta", "gA", "gB", "gC", "gD", "gz", "gbias", "ginitial")

    def shape(self, g_y: Spec, g_final: Spec, *inputs: Spec):
        _Sizes(*inputs, gated=self.gated)
        return inputs

    def forward(self, g_y, g_final, *inputs):
        n = _Sizes(*inputs, gated=self.gated)
        given = n.kernel(inputs)
        g, gf = g_y.reshape(given.u.shape), g_final.reshape(n.b, *n.state)
        got = selective_chunks.backward(g, gf, given, soft=self.soft)
        if got.z is None:
            got = got._replace(z=np.zeros((), g.dtype))
        return n.results(got, inputs, np.reshape, layout.gathered)

    def expand(self, g_y, g_final, u, delta, A, B, C, D, z, bias, initial):
        inputs = (u, delta, A, B, C, D, z, bias, initial)
        n = _Sizes(*inputs, gated=self.gated)
        given = n.operands(inputs, shape.reshape, layout.spread_op)
        g = shape.reshape(g_y, given[0].shape)
        gf = shape.reshape(g_final, (n.b, *n.state))
        got = selective_plain.gradient(g, gf, given, soft=self.soft, gated=self.gated)
        return n.results(got, inputs, shape.reshape, layout.gathered_op)

    def batch(self, size, args, mapped):
        own = layout.own(args, mapped)[2:]
        n = _Sizes(*own, gated=self.gated)
        full = [n.full[0], (*n.lead, *n.state), *n.full]
        found = list(apply(self, *n.fronted(size, args, mapped, full)))
        if not self.gated:
            found[_Z] = create.zeros((size,), dtype=found[_Z].dtype)
        return tuple(layout.unmapped(t, x.shape) for t, x in zip(found, own, strict=True))

    @staticmethod
    def samples(rng):
        for options, args in _samples(rng):
            out = SelectiveScan(*options).forward(*args)
            gs = [rng.normal(size=t.shape) for t in out]
            yield SelectiveScanGrad(*options), *gs, *args


def _samples(rng):
    u, z = rng.normal(size=(2, 2, 5, 3))
    delta = rng.uniform(0.1, 0.9, (2, 5, 3))
    A = -rng.uniform(0.3, 1.5, (3, 2))
    B, C = rng.normal(size=(2, 2, 5, 2))
    D, bias = rng.normal(size=(2, 3))
    initial, none = rng.normal(size=(2, 3, 2)), np.asarray(0.0)
    yield (False, False), (u, delta, A, B, C, none, none, none, none)
    yield (True, True), (u, delta, A, B, C, D, z, bias, initial)
    yield (True, False), (u[0], delta[0], A, B[0], C[0], D, none, bias, initial[0])
    u, delta, B, C, z = (t[:, :1] for t in (u, delta, B, C, z))
    two = np.stack([A, 2 * A])
    yield (False, True), (u, delta, two, B, C, D, z, none, initial[0])
    u, delta, B, C, z = (t[:, :0] for t in (u, delta, B, C, z))
    yield (True, True), (u, delta, A, B, C, D, z, bias, initial)


def selective_scan(
    u: Any,
    delta: Any,
    A: Any,
    B: Any,
    C: Any,
    /,
    D: Any = None,
    z: Any = None,
    delta_bias: Any = None,
    *,
    delta_softplus: bool = False,
    initial: Any = None,
) -> tuple[Tensor, Tensor]:
    """Mamba-1's scan: y (..., time, channels) and the last state (..., channels, state).

    u and delta (..., s, i); A (i, r), negative; B and C (..., s, r); D and delta_bias (i,);
    z (..., s, i), a gate: y * silu(z); initial (i, r) or (..., i, r), zero by default. Step
    sizes are delta + delta_bias, through softplus if asked.
    """
    u, delta, A, B, C = (lift(t) for t in (u, delta, A, B, C))
    rest = (0.0 if t is None else t for t in (D, z, delta_bias, initial))
    return apply(SelectiveScan(bool(delta_softplus), z is not None), u, delta, A, B, C, *rest)


def selective_step(
    state: Any,
    u: Any,
    delta: Any,
    A: Any,
    B: Any,
    C: Any,
    /,
    D: Any = None,
    z: Any = None,
    delta_bias: Any = None,
    *,
    delta_softplus: bool = False,
) -> tuple[Tensor, Tensor]:
    """One token of `selective_scan`: y (..., i) and the new state."""
    state, u, delta, A, B, C = (lift(t) for t in (state, u, delta, A, B, C))
    dt = delta if delta_bias is None else delta + delta_bias
    dt = shape.expand_dims(elementary.softplus(dt) if delta_softplus else dt, axis=-1)
    write = dt * shape.expand_dims(u, axis=-1) * shape.expand_dims(B, axis=-2)
    state = elementary.exp(dt * A) * state + write
    y = shape.squeeze(linalg.matmul(state, shape.expand_dims(C, axis=-1)), axis=-1)
    y = y if D is None else y + D * u
    if z is not None:
        z = lift(z)
        y = y * (z * elementary.sigmoid(z))
    return y, state
