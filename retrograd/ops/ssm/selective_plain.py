"""Mamba-1's selective scan and its gradient as compositions of ops, all states at once.

What the fast op expands to, what it is tested against, and what second order runs on.
Operands as in selective_chunks, none of them None: u, delta, z (b,s,i), B, C (b,s,r),
A (b,i,r), D, bias (b,i), initial (b,i,r).
"""

from __future__ import annotations

from typing import Any

from retrograd.ops import create, elementary, join, linalg, pad, reduce, shape
from retrograd.ops.ssm import recurrence


def _last(x: Any) -> Any:
    return shape.expand_dims(x, axis=-1)


def _time(x: Any) -> Any:
    return shape.expand_dims(x, axis=1)


def _scan(u: Any, delta: Any, A: Any, B: Any, bias: Any, initial: Any, *, soft: bool) -> Any:
    """Step sizes (b,s,i), what softplus was taken of, decays and states (b,s,i,r)."""
    raw = delta + _time(bias)
    dt = elementary.softplus(raw) if soft else raw
    a = elementary.exp(_last(dt) * _time(A))
    write = _last(dt * u) * shape.expand_dims(B, axis=2)
    h = recurrence.linear_recurrence(a, write, axis=1, initial=initial)
    return dt, raw, a, h


def _read(h: Any, C: Any, D: Any, u: Any) -> Any:
    return shape.squeeze(linalg.matmul(h, _last(C)), axis=-1) + _time(D) * u


def forward(operands: Any, *, soft: bool, gated: bool) -> tuple[Any, Any]:
    """y and the last state."""
    u, delta, A, B, C, D, z, bias, initial = operands
    h = _scan(u, delta, A, B, bias, initial, soft=soft)[3]
    y = _read(h, C, D, u)
    if gated:
        y = y * (z * elementary.sigmoid(z))
    n = h.shape[1]
    return y, shape.squeeze(pad.piece(h, 1, n - 1, 1), axis=1) if n else initial


def gradient(g: Any, gf: Any, operands: Any, *, soft: bool, gated: bool) -> tuple[Any, ...]:
    """The cotangents of the operands."""
    u, delta, A, B, C, D, z, bias, initial = operands
    dt, raw, a, h = _scan(u, delta, A, B, bias, initial, soft=soft)
    gz = create.zeros(z.shape, dtype=z.dtype)
    if gated:
        sig = elementary.sigmoid(z)
        gz = g * _read(h, C, D, u) * sig * (1.0 + z * (1.0 - sig))
        g = g * z * sig
    G, before, first = _states_back(g, gf, a, h, C, initial)
    w = G * a * before
    read = reduce.sum(G * shape.expand_dims(B, axis=2), axis=-1)
    gdt = reduce.sum(w * _time(A), axis=-1) + u * read
    gdelta = gdt * elementary.sigmoid(raw) if soft else gdt
    return (
        dt * read + _time(D) * g,
        gdelta,
        reduce.sum(w * _last(dt), axis=1),
        reduce.sum(G * _last(dt * u), axis=2),
        reduce.sum(h * _last(g), axis=2),
        reduce.sum(g * u, axis=1),
        gz,
        reduce.sum(gdelta, axis=1),
        first,
    )


def _states_back(g: Any, gf: Any, a: Any, h: Any, C: Any, initial: Any) -> tuple[Any, ...]:
    """The cotangent of each state, the state before each, the cotangent of the first."""
    n = h.shape[1]
    if not n:
        return h, h, gf
    edge = (h.shape[0], 1, *h.shape[2:])
    after = join.concat([pad.piece(a, 1, 1, n - 1), create.ones(edge, dtype=a.dtype)], axis=1)
    given = _last(g) * shape.expand_dims(C, axis=2)
    G = recurrence.linear_recurrence(after, given, axis=1, reverse=True, initial=gf)
    before = join.concat([_time(initial), pad.piece(h, 1, 0, n - 1)], axis=1)
    first = shape.squeeze(pad.piece(a, 1, 0, 1) * pad.piece(G, 1, 0, 1), axis=1)
    return G, before, first
