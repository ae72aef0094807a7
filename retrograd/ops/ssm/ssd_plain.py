"""All SSDs as plain compositions of ops: `minimal`, `serial`, and the gradient of both.

The same mathematics as ssd_chunks, for all chunks at once and differentiable to any order:
what the fast ops expand to, what they are tested against, and what second order runs on.
Here each head has its own B and C, and rows are times with their ranks: (b,n,h,(l m),k).
"""

from __future__ import annotations

from math import inf, prod
from typing import Any, NamedTuple

from retrograd.core import dtype as dt
from retrograd.core.interpret import lift
from retrograd.core.tensor import Tensor
from retrograd.ops import (
    create,
    cumulative,
    elementary,
    grid,
    join,
    linalg,
    pad,
    reduce,
    select,
    shape,
)
from retrograd.ops.ssm import recurrence

__all__ = ["segsum"]


class Pieces(NamedTuple):
    """The operands in n chunks: v, B, C (b,n,h,(l m),k), the others (b,n,h,l) or a state."""

    v: Any
    da: Any
    B: Any
    C: Any
    gamma: Any
    scale: Any
    initial: Any  # (b,h,p,r)

    @property
    def m(self) -> int:
        """How many ranks."""
        return self.v.shape[-2] // self.da.shape[-1]


# -- shapes --------------------------------------------------------------------------------


def pieces(chunk: int, v: Any, da: Any, B: Any, C: Any, *rest: Any) -> Pieces:
    """Operands in the shapes of ssd_chunks.Operands, none of them None, cut into chunks."""
    gamma, scale, initial = rest
    heads = v.shape[3]
    ranked = (_rows(_cut(x, chunk)) for x in (v, by_head(B, heads), by_head(C, heads)))
    timed = (shape.moveaxis(_cut(x, chunk), -1, 2) for x in (da, gamma, scale))
    v, B, C = ranked
    da, gamma, scale = timed
    return Pieces(v, da, B, C, gamma, scale, initial)


def by_head(x: Any, heads: int) -> Tensor:
    """(b,s,m,g,r) repeated to (b,s,m,h,r): consecutive heads share a group."""
    *lead, g, r = x.shape
    x = shape.reshape(x, (*lead, g, 1, r))
    wide = shape.broadcast_to(x, (*lead, g, heads // g, r))
    return shape.reshape(wide, (*lead, heads, r))


def by_group(x: Any, groups: int) -> Tensor:
    """(b,s,m,h,r) summed to (b,s,m,g,r): the transpose of by_head."""
    *lead, h, r = x.shape
    return reduce.sum(shape.reshape(x, (*lead, groups, h // groups, r)), axis=-2)


def _cut(x: Any, chunk: int) -> Tensor:
    """(b,s,...) as (b,n,l,...), with zeros after the end: they decay nothing, add nothing."""
    b, s, *rest = x.shape
    n = max(1, -(-s // chunk))
    x = pad.pad(x, {1: (0, n * chunk - s)})
    return shape.reshape(x, (b, n, chunk, *rest))


def _rows(x: Any) -> Tensor:
    """(b,n,l,m,h,k) as (b,n,h,(l m),k)."""
    b, n, chunk, m, h, k = x.shape
    return shape.moveaxis(shape.reshape(x, (b, n, chunk * m, h, k)), 3, 2)


def whole(x: Any, like: Any) -> Tensor:
    """(b,n,h,(l m),k) as (b,s,m,h,k), without what was added after the end."""
    (b, s, m, h), k = like[:4], x.shape[-1]
    x = shape.moveaxis(x, 2, 3)
    x = shape.reshape(x, (b, prod(x.shape[1:3]) // m, m, h, k))
    return pad.piece(x, 1, 0, s)


def whole_times(x: Any, like: Any) -> Tensor:
    """(b,n,h,l) as (b,s,h), without what was added after the end."""
    b, s, h = like
    x = shape.moveaxis(x, 2, 3)
    return pad.piece(shape.reshape(x, (b, prod(x.shape[1:3]), h)), 1, 0, s)


def _ranked(x: Any, m: int) -> Tensor:
    """(...,l) repeated to (...,(l m))."""
    if m == 1:
        return x
    wide = shape.broadcast_to(shape.expand_dims(x, axis=-1), (*x.shape, m))
    return shape.reshape(wide, (*x.shape[:-1], x.shape[-1] * m))


def _unranked(x: Any, m: int) -> Tensor:
    """(...,(l m)) summed to (...,l)."""
    if m == 1:
        return x
    return reduce.sum(shape.reshape(x, (*x.shape[:-1], x.shape[-1] // m, m)), axis=-1)


def _column(x: Any) -> Tensor:
    return shape.expand_dims(x, axis=-1)


def _row(x: Any) -> Tensor:
    return shape.expand_dims(x, axis=-2)


def _edge(x: Any, axis: int, *, end: bool) -> Tensor:
    """The first or the last place along an axis, which stays."""
    return pad.piece(x, axis, x.shape[axis] - 1 if end else 0, 1)


# -- the five kernels of `serial` ----------------------------------------------------------


def sums(x: Pieces) -> Tensor:
    """K1: the log decays summed from the start of each chunk."""
    return cumulative.cumulative_sum(x.da, axis=-1)


def products(x: Pieces) -> Tensor:
    """K2: C_t[i].B_s[j]."""
    return linalg.matmul(x.C, linalg.matrix_transpose(x.B))


def _weighed(x: Pieces, w: Any) -> Tensor:
    return x.v * _column(_ranked(w, x.m))


def added(x: Pieces, cs: Any) -> Tensor:
    """K3: what each chunk adds to the state that leaves it, (b,n,h,p,r)."""
    w = elementary.exp(_edge(cs, -1, end=True) - cs) * x.scale
    return linalg.matmul(linalg.matrix_transpose(_weighed(x, w)), x.B)


def passed(x: Pieces, cs: Any, S: Any) -> tuple[Tensor, Tensor]:
    """K4: the states that enter the chunks, and the last one."""
    decay = _column(elementary.exp(_edge(cs, -1, end=True)))
    left = recurrence.linear_recurrence(decay, S, axis=1, initial=x.initial)
    n = left.shape[1]
    first = shape.expand_dims(x.initial, axis=1)
    enter = join.concat([first, pad.piece(left, 1, 0, n - 1)], axis=1)
    return enter, shape.squeeze(_edge(left, 1, end=True), axis=1)


def decays(cs: Any) -> Tensor:
    """exp(cs_t - cs_s) for s < t, else 0: masked before exp."""
    n = cs.shape[-1]
    below = grid.triangle(n, -1)
    return elementary.exp(select.where(below, _column(cs) - _row(cs), -inf))


def kernel(x: Pieces, L: Any) -> Tensor:
    """K[t,s] = L[t,s] scale_s below the diagonal, gamma_t on it."""
    n = x.da.shape[-1]
    on = create.eye(n, dtype=dt.bool)
    return select.where(on, _column(x.gamma), L * _row(x.scale))


def across(K: Any, m: int) -> Tensor:
    """K for pairs of ranks: at equal times all of them meet."""
    K = _ranked(K, m)
    return linalg.matrix_transpose(_ranked(linalg.matrix_transpose(K), m))


def read(x: Pieces, cs: Any, K: Any, CB: Any, enter: Any) -> Tensor:
    """K5: y, from inside the chunk and from the state that enters it."""
    inside = linalg.matmul(CB * across(K, x.m), x.v)
    carried = linalg.matmul(x.C, linalg.matrix_transpose(enter))
    return inside + carried * _column(_ranked(elementary.exp(cs), x.m))


def serial(x: Pieces) -> tuple[Tensor, Tensor]:
    """y (in pieces) and the last state, by five kernels and a loop over the chunks."""
    cs = sums(x)
    CB = products(x)
    enter, final = passed(x, cs, added(x, cs))
    return read(x, cs, kernel(x, decays(cs)), CB, enter), final


# -- minimal -------------------------------------------------------------------------------


def segsum(x: Any) -> Tensor:
    """x[s+1] + ... + x[t] at place (t, s) of two last axes; -inf where t < s.

    The sums are made each on its own, not as differences of running sums.
    """
    x = lift(x)
    n = x.shape[-1]
    wide = shape.broadcast_to(_column(x), (*x.shape, n))
    wide = select.where(grid.triangle(n, -1), wide, 0.0)
    total = cumulative.cumulative_sum(wide, axis=-2)
    return select.where(grid.triangle(n), total, -inf)


def minimal(x: Pieces) -> tuple[Tensor, Tensor]:
    """y (in pieces) and the last state, by sums over segments: no loop at all."""
    cs = sums(x)
    K = kernel(x, elementary.exp(segsum(x.da)))
    states = join.concat([shape.expand_dims(x.initial, axis=1), added(x, cs)], axis=1)
    b, n, h, p, r = states.shape
    lam = shape.moveaxis(shape.squeeze(_edge(cs, -1, end=True), axis=-1), 1, 2)
    T = elementary.exp(segsum(pad.pad(lam, {2: (1, 0)})))  # (b,h,n+1,n+1)
    flat = shape.reshape(shape.moveaxis(states, 2, 1), (b, h, n, p * r))
    H = shape.moveaxis(shape.reshape(linalg.matmul(T, flat), (b, h, n, p, r)), 1, 2)
    enter = pad.piece(H, 1, 0, n - 1)
    final = shape.squeeze(_edge(H, 1, end=True), axis=1)
    return read(x, cs, K, products(x), enter), final


# -- the gradient --------------------------------------------------------------------------


def gradient(gy: Any, gf: Any, x: Pieces) -> Pieces:
    """The cotangents of the pieces, given those of y (in pieces) and of the last state."""
    T, matmul, m = linalg.matrix_transpose, linalg.matmul, x.m
    cs = sums(x)
    last = _edge(cs, -1, end=True)
    e, f = elementary.exp(cs), elementary.exp(last - cs)
    w, decay = f * x.scale, _column(elementary.exp(last))
    H, _ = passed(x, cs, added(x, cs))
    # what the entering state gave
    dread = gy * _column(_ranked(e, m))
    dcs = _unranked(reduce.sum(dread * matmul(x.C, T(H)), axis=-1), m)
    # the cotangents of the states: those that enter, then those that leave
    back = recurrence.linear_recurrence(
        decay, matmul(T(dread), x.C), axis=1, reverse=True, initial=gf
    )
    rest = pad.piece(back, 1, 1, back.shape[1] - 1)
    G = join.concat([rest, shape.expand_dims(gf, axis=1)], axis=1)
    dadded = matmul(x.B, T(G))
    dw = _unranked(reduce.sum(dadded * x.v, axis=-1), m)
    # inside the chunk
    L, CB = decays(cs), products(x)
    K = across(kernel(x, L), m)
    dW = matmul(gy, T(x.v))
    dCB = dW * K
    dC = matmul(dread, H) + matmul(dCB, x.B)
    dB = matmul(_weighed(x, w), G) + matmul(T(dCB), x.C)
    dv = dadded * _column(_ranked(w, m)) + matmul(T(CB * K), gy)
    dK = _unranked(T(_unranked(T(dW * CB), m)), m)
    dgamma = reduce.sum(select.where(create.eye(cs.shape[-1], dtype=dt.bool), dK, 0.0), axis=-1)
    dL = dK * L
    columns = reduce.sum(dL, axis=-2)
    u = dw * w
    dcs = dcs + reduce.sum(dL * _row(x.scale), axis=-1) - columns * x.scale - u
    ends = reduce.sum(u, axis=-1) + reduce.sum(decay * G * H, axis=(-2, -1))
    dcs = dcs + pad.pad(_column(ends), {-1: (cs.shape[-1] - 1, 0)})
    dda = cumulative.cumulative_sum(dcs, axis=-1, reverse=True)
    first = shape.squeeze(_edge(back, 1, end=False), axis=1)
    return Pieces(dv, dda, dB, dC, dgamma, columns + dw * f, first)
