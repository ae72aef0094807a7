"""Mamba-3's discretisation: the exponential trapezoid with a learned weight.

    H_t = alpha_t H_{t-1} + beta_t x_{t-1} B_{t-1}' + gamma_t x_t B_t'
    alpha = exp(dt A)      beta = (1 - lam) dt alpha      gamma = lam dt

lam = 1/2 is the classical trapezoid, of second order; lam = 1 is the Euler rule of Mamba-2.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

from retrograd.core.errors import ArgumentError
from retrograd.core.interpret import lift
from retrograd.core.tensor import Tensor
from retrograd.ops import elementary, pad, select

__all__ = ["Trapezoid", "mamba3_coefficients", "trapezoid", "trapezoid_scale"]


class Trapezoid(NamedTuple):
    """The coefficients of one discretisation, each (..., time, heads)."""

    da: Any  # dt A, the log decay
    alpha: Any
    beta: Any
    gamma: Any


def trapezoid(dt: Any, A: Any, lam: Any, /) -> Trapezoid:
    """The coefficients of steps dt, rates A (negative) and weights lam, which broadcast."""
    dt, A, lam = lift(dt), lift(A), lift(lam)
    da = dt * A
    alpha = elementary.exp(da)
    gamma = lam * dt
    return Trapezoid(da, alpha, (dt - gamma) * alpha, gamma)


def trapezoid_scale(dt: Any, lam: Any, /) -> Tensor:
    """What a token weighs for all later ones in the single form, (..., time, heads).

    gamma_s + (1 - lam_{s+1}) dt_{s+1}: its own weight and its share in the next step, whose
    decay is that of the way there. The last token of a call has no next: its share is given
    to it by the next call, through `previous`.
    """
    dt, lam = lift(dt), lift(lam)
    gamma = lam * dt
    axis, n = dt.ndim - 2, dt.shape[-2]
    if not n:
        return gamma
    after = pad.piece(dt - gamma, axis, 1, n - 1)
    return gamma + pad.pad(after, {axis: (0, 1)})


def _softplus(x: Any) -> Tensor:
    return elementary.softplus(x)


def _heavy_tail(x: Any) -> Tensor:
    """1 + x above 0, 1 / (1 - x) below: positive, and never flat."""
    return select.where(x >= 0, 1.0 + x, 1.0 / (1.0 - select.clip(x, max=0.0)))


_MAPS = {"softplus": _softplus, "heavy_tail": _heavy_tail}


def mamba3_coefficients(
    raw_dt: Any,
    raw_A: Any,
    raw_lam: Any,
    /,
    *,
    dt_bias: Any = None,
    dt_limit: tuple[float, float] = (0.0, inf),
    A_floor: float = 1e-4,
    A_map: str = "softplus",
) -> tuple[Tensor, Tensor, Tensor]:
    """dt, A and lam of what a projection gives, each (..., time, heads).

    dt = clip(softplus(raw_dt + dt_bias), *dt_limit); A = -max(A_map(raw_A), A_floor), with
    the map "softplus" or "heavy_tail" (later reference checkpoints); lam = sigmoid(raw_lam).
    A clip passes the gradient at its bounds.
    """
    if A_map not in _MAPS:
        raise ArgumentError(
            f"mamba3_coefficients: A_map {A_map!r} is not one of {', '.join(_MAPS)}"
        )
    raw_dt, raw_A, raw_lam = lift(raw_dt), lift(raw_A), lift(raw_lam)
    dt = elementary.softplus(raw_dt if dt_bias is None else raw_dt + dt_bias)
    low, high = dt_limit
    if low > 0 or high < inf:
        dt = select.clip(dt, min=low, max=high)
    A = -select.clip(_MAPS[A_map](raw_A), min=A_floor)
    return dt, A, elementary.sigmoid(raw_lam)
