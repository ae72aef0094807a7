"""Mamba-3 fed with one token for ever: what its output converges to, in closed form.

The state keeps turning, and what is read of it stands still. With the turn P of one step,
H_inf = (gamma + beta P) (1 - alpha P)^-1 b for each pair or block of the state.
"""

from __future__ import annotations

from typing import Any

from retrograd.core.errors import ArgumentError
from retrograd.core.interpret import apply, lift
from retrograd.core.tensor import Tensor
from retrograd.ops import join, linalg, pad, reduce, shape, trigonometric
from retrograd.ops.ssm import mamba3_coefficients, quaternion, rotation, ssd_plain

__all__ = ["mamba3_limit"]


def mamba3_limit(
    v: Any,
    dt: Any,
    A: Any,
    lam: Any,
    B: Any,
    C: Any,
    /,
    *,
    D: Any = None,
    angles: Any = None,
    rotors: Any = None,
    pairing: str = "interleaved",
) -> Tensor:
    """y after infinitely many equal tokens, of v (..., m, h, p), B and C (..., m, g, r).

    B and C are not turned: the turn of one step is given, as `angles` (..., h, a) of pairs
    or as `rotors` (..., h, J, 4), unit quaternions. A must be negative. The axis of ranks may
    be left out.
    """
    v, dt, A, lam, B, C = (lift(t) for t in (v, dt, A, lam, B, C))
    if angles is not None and rotors is not None:
        raise ArgumentError("mamba3_limit: give angles or rotors, not both")
    one = v.ndim == dt.ndim + 1
    if one:
        v, B, C = (shape.expand_dims(t, axis=-3) for t in (v, B, C))
    B, C = (ssd_plain.by_head(t, v.shape[-2]) for t in (B, C))
    _, *coefficients = mamba3_coefficients.trapezoid(dt, A, lam)
    alpha, beta, gamma = (shape.expand_dims(t, axis=(-3, -1)) for t in coefficients)
    if rotors is not None:
        settled = _blocks(B, shape.expand_dims(lift(rotors), axis=-4), alpha, beta, gamma)
    else:
        settled = _pairs(B, angles, alpha, beta, gamma, pairing)
    scores = linalg.matmul(
        shape.moveaxis(C, -3, -2), linalg.matrix_transpose(shape.moveaxis(settled, -3, -2))
    )
    y = shape.moveaxis(linalg.matmul(scores, shape.moveaxis(v, -3, -2)), -2, -3)
    y = y if D is None else y + shape.expand_dims(lift(D), axis=-1) * v
    return shape.squeeze(y, axis=-3) if one else y


def _pairs(B, angles, alpha, beta, gamma, pairing: str) -> Tensor:
    """(gamma + beta z) / (1 - alpha z) with z = exp(-i angle), by pairs; z = 1 elsewhere."""
    plain = (gamma + beta) / (1.0 - alpha)
    if angles is None:
        return plain * B
    turn = rotation.RotatePairs(pairing == "halves")
    w = shape.expand_dims(lift(angles), axis=-3)  # beside the ranks
    c, s = trigonometric.cos(w), trigonometric.sin(w)
    down = 1.0 - 2.0 * alpha * c + alpha * alpha  # |1 - alpha z|^2, positive: alpha < 1
    real = (gamma + (beta - alpha * gamma) * c - alpha * beta) / down
    imaginary = -(beta + alpha * gamma) * s / down
    a, r = w.shape[-1], B.shape[-1]
    real = turn.spread(real - plain, r) + plain
    quarter = apply(rotation.QuarterTurn(a, turn.halves), B)
    return real * B + turn.spread(imaginary, r) * quarter


def _blocks(B, q, alpha, beta, gamma) -> Tensor:
    """(gamma + beta q) (1 - alpha q)^-1 b, by blocks of four; q = 1 beyond them."""
    J, r = q.shape[-2], B.shape[-1]
    one = lift(quaternion.IDENTITY.astype(q.dtype))
    alpha_, beta_, gamma_ = (shape.expand_dims(t, axis=-1) for t in (alpha, beta, gamma))
    down = one - alpha_ * q
    inverse = quaternion.quaternion_conjugate(down)
    inverse = inverse / reduce.sum(down * down, axis=-1, keepdims=True)
    factor = quaternion.quaternion_multiply(gamma_ * one + beta_ * q, inverse)
    first = pad.piece(B, B.ndim - 1, 0, 4 * J)
    blocks = shape.reshape(first, (*B.shape[:-1], J, 4))
    turned = quaternion.quaternion_multiply(factor, blocks)
    turned = shape.reshape(turned, (*B.shape[:-1], 4 * J))
    if r == 4 * J:
        return turned
    rest = pad.piece(B, B.ndim - 1, 4 * J, r - 4 * J)
    return join.concat([turned, (gamma + beta) / (1.0 - alpha) * rest], axis=-1)
