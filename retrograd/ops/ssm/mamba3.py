"""Mamba-3's scan: whole sequences in the single or the double form, one token, and for ever.

Per head, with the state H (p, r), ranks j, and the coefficients of mamba3_coefficients:

    H_t = alpha_t H_{t-1} + beta_t sum_j v_{t-1}[j] B_{t-1}[j]' + gamma_t sum_j v_t[j] B_t[j]'
    y_t[i] = H_t C_t[i] + D v_t[i]

What a call hands to the next is H, and v and B of its last token (`previous`). B and C are
given as they are used: normalised, with their biases, and turned (see rotation, quaternion).
"""

from __future__ import annotations

from typing import Any

from retrograd.core.errors import ArgumentError
from retrograd.core.interpret import lift
from retrograd.core.tensor import Tensor
from retrograd.ops import join, linalg, pad, shape
from retrograd.ops.ssm import layout, mamba3_coefficients, mamba3_ssd, ssd_plain

__all__ = ["mamba3_scan", "mamba3_step"]

WHO = "mamba3_scan"
Previous = tuple[Any, Any] | None


def mamba3_scan(
    v: Any,
    dt: Any,
    A: Any,
    lam: Any,
    B: Any,
    C: Any,
    /,
    *,
    D: Any = None,
    initial: Any = None,
    previous: Previous = None,
    form: str = "single",
    chunk: int | None = None,
    algorithm: str = "recompute",
) -> tuple[Tensor, Tensor]:
    """y like v, and the last state (..., h, p, r), of v (..., s, m, h, p).

    dt, A and lam (..., s, h); B and C (..., s, m, g, r), each group shared by h/g heads; D
    (h,); `initial` a state; `previous` the pair v, B of the token before, none by default.
    The axis of ranks may be left out in all of them. Both forms give the same, and the same
    last state, so that calls may take turns; "double" runs two passes and keeps twice as much.
    """
    v, dt, A, lam, B, C = (lift(t) for t in (v, dt, A, lam, B, C))
    if form not in ("single", "double"):
        raise ArgumentError(f"{WHO}: form {form!r} is not one of single, double")
    if v.ndim == dt.ndim + 1:
        return _one_rank(v, dt, A, lam, B, C, D, initial, previous, form, chunk, algorithm)
    layout.check_axes(WHO, "v", v.shape, "time ranks heads channels")
    before = None if previous is None else tuple(lift(t) for t in previous)
    run = _single if form == "single" else _double
    y, final = run((v, dt, A, lam, B, C), initial, before, chunk, algorithm)
    return y if D is None else y + _heads(D) * v, final


def _one_rank(v, dt, A, lam, B, C, D, initial, previous, form, chunk, algorithm) -> Any:
    v, B, C = (shape.expand_dims(t, axis=-3) for t in (v, B, C))
    if previous is not None:
        previous = tuple(shape.expand_dims(lift(t), axis=-3) for t in previous)  # type: ignore[assignment]
    y, final = mamba3_scan(
        v,
        dt,
        A,
        lam,
        B,
        C,
        D=D,
        initial=initial,
        previous=previous,
        form=form,
        chunk=chunk,
        algorithm=algorithm,
    )
    return shape.squeeze(y, axis=-3), final


def _heads(D: Any) -> Tensor:
    return shape.expand_dims(lift(D), axis=-1)


def _times(x: Any) -> Tensor:
    """(..., s, h) beside (..., s, m, h, p)."""
    return shape.expand_dims(x, axis=(-3, -1))


def outer(pair: Any, heads: int) -> Tensor:
    """sum_j v[j] B[j]', (..., h, p, r), of a pair v (..., m, h, p), B (..., m, g, r)."""
    v, B = pair
    v, B = shape.moveaxis(v, -3, -2), shape.moveaxis(ssd_plain.by_head(B, heads), -3, -2)
    return linalg.matmul(linalg.matrix_transpose(v), B)


def _single(operands: Any, initial: Any, previous: Any, chunk: Any, algorithm: str) -> Any:
    v, dt, A, lam, B, C = operands
    gamma = lam * dt
    if previous is not None and v.shape[-4]:
        first = pad.piece(dt - gamma, dt.ndim - 2, 0, 1)
        first = shape.expand_dims(shape.squeeze(first, axis=-2), axis=(-2, -1))
        seed = first * outer(previous, v.shape[-2])
        initial = seed if initial is None else initial + seed
    scale = mamba3_coefficients.trapezoid_scale(dt, lam)
    return mamba3_ssd.single_ssd(
        v, dt * A, B, C, gamma, scale, initial=initial, chunk=chunk, algorithm=algorithm
    )


def _double(operands: Any, initial: Any, previous: Any, chunk: Any, algorithm: str) -> Any:
    v, dt, A, lam, B, C = operands
    c = mamba3_coefficients.trapezoid(dt, A, lam)
    v_before, B_before = previous or (None, None)
    options = {"chunk": chunk, "algorithm": algorithm}
    y, final = mamba3_ssd.double_ssd(
        _times(c.gamma) * v, c.da, B, C, initial=initial, **options
    )
    late = _times(c.beta) * _delayed(v, v_before)
    more, rest = mamba3_ssd.double_ssd(late, c.da, _delayed(B, B_before), C, **options)
    return y + more, final + rest


def _delayed(x: Any, before: Any) -> Tensor:
    """x of the step before, along the axis of time; `before` (zero) comes in."""
    axis, n = x.ndim - 4, x.shape[-4]
    if not n:
        return x
    rest = pad.piece(x, axis, 0, n - 1)
    if before is None:
        return pad.pad(rest, {axis: (1, 0)})
    return join.concat([shape.expand_dims(before, axis=axis), rest], axis=axis)


def mamba3_step(
    state: Any,
    v: Any,
    dt: Any,
    A: Any,
    lam: Any,
    B: Any,
    C: Any,
    /,
    *,
    D: Any = None,
    previous: Previous = None,
) -> tuple[Tensor, Tensor]:
    """One token of `mamba3_scan`: y and the new state, from operands without time.

    The pair (v, B) of this token is `previous` of the next.
    """
    state, v, dt, A, lam, B, C = (lift(t) for t in (state, v, dt, A, lam, B, C))
    one = v.ndim == dt.ndim + 1  # (..., heads, channels)
    if one:
        v, B, C = (shape.expand_dims(t, axis=-3) for t in (v, B, C))
    heads = v.shape[-2]
    _, alpha, beta, gamma = (
        shape.expand_dims(t, axis=(-2, -1)) for t in mamba3_coefficients.trapezoid(dt, A, lam)
    )
    state = alpha * state + gamma * outer((v, B), heads)
    if previous is not None:
        before = (lift(t) for t in previous)
        before = (shape.expand_dims(t, axis=-3) if one else t for t in before)
        state = state + beta * outer(before, heads)
    C = shape.moveaxis(ssd_plain.by_head(C, heads), -3, -2)  # (..., h, m, r)
    y = shape.moveaxis(linalg.matmul(C, linalg.matrix_transpose(state)), -2, -3)
    y = y if D is None else y + _heads(D) * v
    return (shape.squeeze(y, axis=-3) if one else y), state
