"""Mamba-2's state-space duality: a scan with one decay per head, as products of matrices.

Per head, with the state H (p, r), a group's B and C, and one number A:

    H_t = exp(dt_t A) H_{t-1} + dt_t x_t B_t'          y_t = H_t C_t + D x_t

Algorithms: `recompute`, one op that keeps only its inputs and streams over chunks, forward
and backward; `serial`, the same five kernels as ops, all chunks at once; `minimal`, sums over
segments without any loop. The last two keep what their ops keep; where they run eagerly and
are heavy, a program each way runs them, which keeps the inputs.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from retrograd.core.interpret import apply, lift
from retrograd.core.op import Composite, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.core.whole import whole
from retrograd.ops import elementary, linalg, reduce, shape
from retrograd.ops.ssm import layout, ssd_chunks, ssd_plain

__all__ = ["ssd", "ssd_step"]

WHO = "ssd"


class _Sizes:
    """The lengths of one call, checked: lead, s, h, p, g, r."""

    def __init__(self, x: Any, dt: Any, A: Any, B: Any, C: Any, D: Any, initial: Any) -> None:
        layout.check_axes(WHO, "x", x.shape, "time heads channels")
        layout.check_axes(WHO, "B", B.shape, "time groups state")
        *lead, s, h, p = x.shape
        g, r = B.shape[-2:]
        self.lead, self.core = tuple(lead), (s, h, p)
        self.g, self.r, self.b = g, r, prod(lead)
        self.state = (h, p, r)
        layout.check(WHO, "dt", dt.shape, (*lead, s, h))
        layout.check(WHO, "B", B.shape, (*lead, s, g, r))
        layout.check(WHO, "C", C.shape, (*lead, s, g, r))
        layout.check_groups(WHO, h, g)
        for name, t, core in (("A", A, (h,)), ("D", D, (h,)), ("initial", initial, self.state)):
            layout.check_shared(WHO, name, t.shape, self.lead, core)

    @property
    def full(self) -> list[tuple[int, ...]]:
        """The shapes of all operands, with leading axes."""
        (s, h, p), g, r = self.core, self.g, self.r
        core = [(s, h, p), (s, h), (h,), (s, g, r), (s, g, r), (h,), (h, p, r)]
        return [(*self.lead, *c) for c in core]


@op
class Ssd(Composite):
    """y and the last state of Mamba-2's scan; keeps its inputs and nothing else."""

    chunk: int
    native = "ssd"
    uniform = True
    takes = "floating"
    outputs = ("y", "final")

    def shape(self, x: Spec, dt: Spec, A: Spec, B: Spec, C: Spec, D: Spec, initial: Spec):
        n = _Sizes(x, dt, A, B, C, D, initial)
        return x, x.with_shape((*n.lead, *n.state))

    def forward(self, x, dt, A, B, C, D, initial):
        n, operands = _operands(x, dt, A, B, C, D, initial)
        y, final = ssd_chunks.forward(operands, self.chunk)
        y = y.reshape(x.shape)
        if D.ndim or D:
            y += _skip(D) * x
        return y, final.reshape(*n.lead, *n.state)

    def expand(self, x, dt, A, B, C, D, initial):
        return composed(ssd_plain.serial, self.chunk, x, dt, A, B, C, D, initial)

    def vjp(self, g_y, g_final, x, dt, A, B, C, D, initial):
        return apply(SsdGrad(self.chunk), g_y, g_final, x, dt, A, B, C, D, initial)

    def batch(self, size, args, mapped):
        n = _Sizes(*layout.own(args, mapped))
        return apply(self, *layout.mapped_front(size, args, mapped, n.full))

    @staticmethod
    def samples(rng):
        for args in _samples(rng):
            yield Ssd(4), *args

    @staticmethod
    def refuses(rng):
        x, dt, A, B, C, D, initial = next(_samples(rng))
        yield Ssd(4), x, dt[:, 1:], A, B, C, D, initial, "dt (2, 6, 4) must have shape"
        yield Ssd(4), x, dt, A, B[..., :1, :], C, D, initial, "C (2, 7, 2, 3) must have"
        yield Ssd(4), x, dt, A[:2], B, C, D, initial, "A (2,) must have shape (2, 4) or (4,)"
        yield Ssd(4), x[:, :, :3], dt[:, :, :3], A[:3], B, C, D, initial, "in 2 groups"
        yield Ssd(4), x, dt, A, B, C, D, initial[0, 0], "initial (2, 3) must have shape"
        yield Ssd(4), x[0, 0], dt, A, B, C, D, initial, "needs at least the axes"


@op
class SsdGrad(Composite):
    """The cotangents of Ssd's inputs: states are recomputed, then chunks stream backwards."""

    chunk: int
    native = "ssd back"
    uniform = True
    takes = "floating"
    outputs = ("gx", "gdt", "gA", "gB", "gC", "gD", "ginitial")

    def shape(self, g_y: Spec, g_final: Spec, *inputs: Spec):
        _Sizes(*inputs)
        return inputs

    def forward(self, g_y, g_final, x, dt, A, B, C, D, initial):
        n, operands = _operands(x, dt, A, B, C, D, initial)
        (s, h, p), lead = n.core, n.lead
        gf = g_final.reshape(n.b, *n.state)
        got = ssd_chunks.backward(g_y.reshape(n.b, s, 1, h, p), gf, operands, self.chunk)
        gx = got.v.reshape(x.shape)
        if D.ndim or D:
            gx += _skip(D) * g_y
        gdt = got.scale
        gdt += got.da * layout.spread(A, lead, (h,))[:, None]
        gA = np.einsum("bsh,bsh->bh", got.da, dt.reshape(gdt.shape))
        gD = np.einsum("bshp,bshp->bh", *(t.reshape(n.b, s, h, p) for t in (g_y, x)))
        gathered = layout.gathered
        return (
            gx,
            gdt.reshape(dt.shape),
            gathered(gA, lead, A.shape),
            got.B.reshape(B.shape),
            got.C.reshape(C.shape),
            gathered(gD, lead, D.shape),
            gathered(got.initial, lead, initial.shape),
        )

    def expand(self, g_y, g_final, x, dt, A, B, C, D, initial):
        n, full, A_, D_ = _plain(x, dt, A, B, C, D, initial)
        v, timed = full[0].shape, full[1].shape
        flat = shape.reshape(g_y, v)
        parts = ssd_plain.pieces(self.chunk, *full)
        gy = ssd_plain.pieces(self.chunk, flat, *full[1:]).v
        got = ssd_plain.gradient(gy, shape.reshape(g_final, (n.b, *n.state)), parts)
        gx = ssd_plain.whole(got.v, v) + flat * shape.reshape(D_, (n.b, 1, 1, n.core[1], 1))
        gda = ssd_plain.whole_times(got.da, timed)
        gdt = ssd_plain.whole_times(got.gamma + got.scale, timed) + gda * A_
        gB, gC = (ssd_plain.by_group(ssd_plain.whole(t, v), n.g) for t in (got.B, got.C))
        gA = reduce.sum(gda * full[4], axis=1)
        gD = reduce.sum(flat * full[0], axis=(1, 2, 4))
        gathered, fold = layout.gathered_op, shape.reshape
        return (
            fold(gx, x.shape),
            fold(gdt, dt.shape),
            gathered(gA, n.lead, A.shape),
            fold(gB, B.shape),
            fold(gC, C.shape),
            gathered(gD, n.lead, D.shape),
            gathered(got.initial, n.lead, initial.shape),
        )

    def batch(self, size, args, mapped):
        own = layout.own(args, mapped)[2:]
        n = _Sizes(*own)
        full = [n.full[0], (*n.lead, *n.state), *n.full]
        found = apply(self, *layout.mapped_front(size, args, mapped, full))
        return tuple(layout.unmapped(t, x.shape) for t, x in zip(found, own, strict=True))

    @staticmethod
    def samples(rng):
        for args in _samples(rng):
            y, final = Ssd(4).forward(*args)
            yield SsdGrad(4), rng.normal(size=y.shape), rng.normal(size=final.shape), *args


def _skip(D: np.ndarray) -> np.ndarray:
    return D[..., None, :, None] if D.ndim > 1 else D[..., None] if D.ndim else D


def _operands(x, dt, A, B, C, D, initial) -> tuple[_Sizes, ssd_chunks.Operands]:
    """The operands of the kernel, most of them views."""
    n = _Sizes(x, dt, A, B, C, D, initial)
    (s, h, p), b = n.core, n.b
    dt = dt.reshape(b, s, h)
    da = dt * layout.spread(A, n.lead, (h,))[:, None]
    B, C = (t.reshape(b, s, 1, n.g, n.r) for t in (B, C))
    start = layout.spread(initial, n.lead, n.state)
    return n, ssd_chunks.Operands(x.reshape(b, s, 1, h, p), da, B, C, None, dt, start)


def _plain(x, dt, A, B, C, D, initial) -> Any:
    """Sizes, the operands of ssd_plain, and A and D beside them, in ops."""
    n = _Sizes(x, dt, A, B, C, D, initial)
    (s, h, p), b = n.core, n.b
    dt = shape.reshape(dt, (b, s, h))
    A = layout.spread_op(A, n.lead, (h,))
    A = shape.reshape(A, (b, 1, h))
    B, C = (shape.reshape(t, (b, s, 1, n.g, n.r)) for t in (B, C))
    start = layout.spread_op(initial, n.lead, n.state)
    full = (shape.reshape(x, (b, s, 1, h, p)), dt * A, B, C, dt, dt, start)
    return n, full, A, layout.spread_op(D, n.lead, (h,))


def composed(algorithm: Any, chunk: int, x, dt, A, B, C, D, initial) -> tuple[Tensor, Tensor]:
    """The scan as a plain composition of ops."""
    n, full, _, D = _plain(x, dt, A, B, C, D, initial)
    y, final = algorithm(ssd_plain.pieces(chunk, *full))
    skip = full[0] * shape.reshape(D, (n.b, 1, 1, n.core[1], 1))
    y = ssd_plain.whole(y, full[0].shape) + skip
    return shape.reshape(y, x.shape), shape.reshape(final, (*n.lead, *n.state))


def _samples(rng):
    x, dt = rng.normal(size=(2, 7, 4, 2)), rng.uniform(0.1, 0.6, (2, 7, 4))
    A, D = -rng.uniform(0.3, 1.5, 4), rng.normal(size=4)
    B, C = rng.normal(size=(2, 2, 7, 2, 3))
    initial = rng.normal(size=(2, 4, 2, 3))
    yield x, dt, A, B, C, D, initial
    none = np.asarray(0.0)
    yield x[0], dt[0], A, B[0, :, :1], C[0, :, :1], none, none
    yield x[:, :1], dt[:, :1], np.stack([A, A / 2]), B[:, :1], C[:, :1], D, initial[0]
    yield x[:, :0], dt[:, :0], A, B[:, :0], C[:, :0], D, initial


_ALGORITHMS = {"serial": ssd_plain.serial, "minimal": ssd_plain.minimal}


def ssd(
    x: Any,
    dt: Any,
    A: Any,
    B: Any,
    C: Any,
    /,
    *,
    D: Any = None,
    initial: Any = None,
    chunk: int | None = None,
    algorithm: str = "recompute",
) -> tuple[Tensor, Tensor]:
    """Mamba-2's scan: y (..., time, heads, channels) and the last state (..., h, p, r).

    x (..., s, h, p); dt (..., s, h), positive; A (h,), negative; B and C (..., s, g, r), each
    group shared by h/g consecutive heads; D (h,); initial (h, p, r) or (..., h, p, r), zero
    by default. See the module for the algorithms; they agree to rounding.
    """
    x, dt, A, B, C = (lift(t) for t in (x, dt, A, B, C))
    layout.check_axes(WHO, "x", x.shape, "time heads channels")
    s, _, p = x.shape[-3:]
    op_ = Ssd(layout.chunk_length(WHO, chunk, s, p, B.shape[-1] if B.ndim else 1))
    plain = layout.algorithm_of(WHO, algorithm, _ALGORITHMS)
    args = (x, dt, A, B, C, 0.0 if D is None else D, 0.0 if initial is None else initial)
    if plain is None:
        return apply(op_, *args)
    return _whole(*op_.coerce(args), algorithm=plain, chunk=op_.chunk)


@whole
def _whole(x, dt, A, B, C, D, initial, *, algorithm: Any, chunk: int) -> tuple[Tensor, Tensor]:
    return composed(algorithm, chunk, x, dt, A, B, C, D, initial)


def ssd_step(
    state: Any, x: Any, dt: Any, A: Any, B: Any, C: Any, /, *, D: Any = None
) -> tuple[Tensor, Tensor]:
    """One token of `ssd`: y (..., h, p) and the new state, from x, dt, B, C of that time."""
    state, x, dt, A, B, C = (lift(t) for t in (state, x, dt, A, B, C))
    layout.check_axes(WHO, "x", x.shape, "heads channels")
    layout.check_groups(WHO, x.shape[-2], B.shape[-2])
    B, C = (ssd_plain.by_head(t, x.shape[-2]) for t in (B, C))
    decay = elementary.exp(dt * A)
    write = shape.expand_dims(x * shape.expand_dims(dt, axis=-1), axis=-1)
    state = shape.expand_dims(decay, axis=(-2, -1)) * state
    state = state + write * shape.expand_dims(B, axis=-2)
    y = shape.squeeze(linalg.matmul(state, shape.expand_dims(C, axis=-1)), axis=-1)
    return (y if D is None else y + shape.expand_dims(lift(D), axis=-1) * x), state
