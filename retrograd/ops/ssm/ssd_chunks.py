"""The kernel of all SSDs, in NumPy: chunk after chunk, nothing larger than a chunk is alive.

Letters: b batch, s time, l time in a chunk, m ranks, h heads, g groups of q heads that share
B and C, p channels of a head, r size of the state. Per head the state is H (p, r):

    H_t = exp(da_t) H_{t-1} + scale_t sum_j v_t[j] B_t[j]'
    y_t[i] = sum_j sum_{s<=t} K[t,s] (C_t[i].B_s[j]) v_s[j] + exp(cs_t) H_in C_t[i]

where cs sums da from the start of the chunk, K[t,s] = exp(cs_t - cs_s) scale_s for s < t and
K[t,t] = gamma_t. Mamba-2 has gamma = scale = dt, Mamba-3's double form has both 1.

The last chunk may be shorter: nothing is padded. Exponents are masked before exp, and those
that survive are sums of log decays inside one chunk: no product of decays is ever divided by.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np


class Operands(NamedTuple):
    """v (b,s,m,h,p), da (b,s,h), B and C (b,s,m,g,r), gamma and scale (b,s,h) or None."""

    v: np.ndarray
    da: np.ndarray
    B: np.ndarray
    C: np.ndarray
    gamma: np.ndarray | None  # None: as scale
    scale: np.ndarray | None  # None: 1
    initial: np.ndarray  # (b,h,p,r)


@lru_cache(64)
def _mask(length: int, dtype: np.dtype) -> np.ndarray:
    """0 on and below the diagonal, -inf above."""
    mask = np.triu(np.full((length, length), -np.inf, dtype), 1)
    mask.flags.writeable = False
    return mask


def decays(cs: np.ndarray) -> np.ndarray:
    """exp(cs_t - cs_s) for s <= t, else 0; over the last axis."""
    out = cs[..., :, None] - cs[..., None, :]
    out += _mask(cs.shape[-1], cs.dtype)
    return faded(out)


def faded(x: np.ndarray) -> np.ndarray:
    """exp of log decays, in place; 0 where it is next to nothing.

    Denormal numbers in a product of matrices make it ten times slower. In float32 a weight
    below e**-60 is far below rounding beside the weight 1 of the present.
    """
    x[x < (-600 if x.dtype == np.float64 else -60)] = -np.inf
    return np.exp(x, out=x)


class Layout:
    """Where the chunks of (b,s,m,...) arrays are: views with groups or heads in front."""

    def __init__(self, x: Operands, chunk: int) -> None:
        self.b, self.s, self.m, h, self.p = x.v.shape
        self.g, self.r = x.B.shape[3:]
        self.q = h // self.g
        self.bounds = [(a, min(a + chunk, self.s)) for a in range(0, self.s, chunk)]

    def rows(self, x: np.ndarray, a: int, z: int) -> np.ndarray:
        """(b,s,m,g,k) as (b,g,(l m),k)."""
        flat = x.reshape(self.b, self.s * self.m, self.g, x.shape[-1])
        return flat[:, a * self.m : z * self.m].transpose(0, 2, 1, 3)

    def wide(self, x: np.ndarray, a: int, z: int) -> np.ndarray:
        """(b,s,m,h,p) as (b,g,(l m),q,p)."""
        flat = x.reshape(self.b, self.s * self.m, self.g, self.q, self.p)
        return flat[:, a * self.m : z * self.m].transpose(0, 2, 1, 3, 4)

    def times(self, x: np.ndarray, a: int, z: int) -> np.ndarray:
        """(b,s,h) as (b,g,q,l)."""
        flat = x.reshape(self.b, self.s, self.g, self.q)
        return flat[:, a:z].transpose(0, 2, 3, 1)

    def beside(self, x: np.ndarray) -> np.ndarray:
        """(b,g,q,l) as (b,g,(l m),q,1), to stand beside `wide` arrays."""
        x = x.swapaxes(2, 3)
        return (x if self.m == 1 else np.repeat(x, self.m, axis=2))[..., None]

    def state(self, x: np.ndarray) -> np.ndarray:
        """(b,h,p,r) as (b,g,(q p),r)."""
        return x.reshape(self.b, self.g, self.q * self.p, self.r)

    def across(self, x: np.ndarray) -> np.ndarray:
        """(...,(l m),(l m)) as (...,l,m,(l m)); as it is for one rank."""
        if self.m == 1:
            return x
        n = x.shape[-1]
        return x.reshape(*x.shape[:-2], n // self.m, self.m, n)

    def spread(self, x: np.ndarray) -> np.ndarray:
        """(...,l,l) to stand beside `across` arrays."""
        return x if self.m == 1 else np.repeat(x, self.m, axis=-1)[..., :, None, :]

    def joined(self, x: np.ndarray) -> np.ndarray:
        """The reverse of across."""
        n = x.shape[-1]
        return x if self.m == 1 else x.reshape(*x.shape[:-3], n, n)

    def by_times(self, x: np.ndarray) -> np.ndarray:
        """(...,(l m),(l m)) summed over both ranks, as (...,l,l)."""
        if self.m == 1:
            return x
        x = self.across(x).sum(-2)
        out = x[..., :: self.m].copy()
        for i in range(1, self.m):
            out += x[..., i :: self.m]
        return out

    def by_time(self, x: np.ndarray) -> np.ndarray:
        """(b,g,(l m),q) summed over ranks, as (b,g,q,l)."""
        if self.m > 1:
            b, g, n, q = x.shape
            x = x.reshape(b, g, n // self.m, self.m, q).sum(3)
        return x.swapaxes(2, 3)


class Chunk:
    """One chunk: its operands as views, its decays, and its step of the state."""

    def __init__(self, at: Layout, x: Operands, a: int, z: int) -> None:
        self.at, self.a, self.z = at, a, z
        self.v, self.B, self.C = at.wide(x.v, a, z), at.rows(x.B, a, z), at.rows(x.C, a, z)
        self.scale = None if x.scale is None else at.times(x.scale, a, z)
        self.gamma = None if x.gamma is None else at.times(x.gamma, a, z)
        self.cs = np.cumsum(np.ascontiguousarray(at.times(x.da, a, z)), axis=-1)
        self.e = faded(self.cs.copy())
        self.f = faded(self.cs[..., -1:] - self.cs)
        self.w = self.f if self.scale is None else self.f * self.scale

    def whole(self) -> np.ndarray:
        """The decay of the state over the chunk, as (b,g,(q p),1)."""
        return np.repeat(self.e[..., -1], self.at.p, axis=2)[..., None]

    def weighed(self) -> np.ndarray:
        """w v as (b,g,(l m),(q p)): what each time adds to the state that leaves."""
        out = self.v * self.at.beside(self.w)
        return out.reshape(*out.shape[:3], self.at.q * self.at.p)

    def passed(self, state: np.ndarray) -> np.ndarray:
        """The state that leaves, given the one that enters."""
        out = np.matmul(self.weighed().mT, self.B)
        out += self.whole() * state
        return out

    def kernel(self, L: np.ndarray) -> np.ndarray:
        """K of the head of this file, from L, which it may be."""
        if self.scale is None and self.gamma is None:
            return L
        K = L.copy() if self.scale is None else L * self.scale[..., None, :]
        if self.gamma is not None:
            np.einsum("...tt->...t", K)[...] = self.gamma
        return K

    def products(self) -> np.ndarray:
        """C_t[i].B_s[j], for each group."""
        return np.matmul(self.C, self.B.mT)

    def weights(self, K: np.ndarray, CB: np.ndarray) -> np.ndarray:
        """W = CB K, for each head: (b,g,q,(l m),(l m))."""
        at = self.at
        return at.joined(at.across(CB[:, :, None]) * at.spread(K))


def forward(x: Operands, chunk: int) -> tuple[np.ndarray, np.ndarray]:
    """y (b,s,m,h,p) and the last state (b,h,p,r)."""
    at = Layout(x, chunk)
    y = np.empty(x.v.shape, x.v.dtype)
    state = at.state(x.initial)
    for a, z in at.bounds:
        c = Chunk(at, x, a, z)
        out = at.wide(y, a, z)
        W = c.weights(c.kernel(decays(c.cs)), c.products())
        np.matmul(W, c.v.swapaxes(2, 3), out=out.swapaxes(2, 3))
        carried = np.matmul(c.C, state.mT).reshape(out.shape)
        carried *= at.beside(c.e)
        out += carried
        state = c.passed(state)
    return y, state.reshape(x.initial.shape) if at.bounds else x.initial.copy()


class Gradients(NamedTuple):
    """Of the operands; gamma and scale are None where the operand is."""

    v: np.ndarray
    da: np.ndarray
    B: np.ndarray
    C: np.ndarray
    gamma: np.ndarray | None
    scale: np.ndarray | None
    initial: np.ndarray


def backward(gy: np.ndarray, gf: np.ndarray, x: Operands, chunk: int) -> Gradients:
    """The cotangents of the operands; the entering states are recomputed, the rest streams."""
    at = Layout(x, chunk)
    states = [at.state(x.initial)]
    for a, z in at.bounds[:-1]:
        states.append(Chunk(at, x, a, z).passed(states[-1]))
    made = (None if a is None else np.empty(a.shape, a.dtype) for a in x)
    out = Gradients(*made)  # type: ignore[arg-type]
    G = at.state(gf)
    for (a, z), state in zip(at.bounds[::-1], states[::-1], strict=False):
        G = _pulled(Chunk(at, x, a, z), at.wide(gy, a, z), state, G, out)
    return out._replace(initial=G.reshape(gf.shape) if at.bounds else gf.copy())


def _pulled(c: Chunk, g: np.ndarray, H: np.ndarray, G: np.ndarray, out: Gradients) -> Any:
    """One chunk back: from the cotangent G of the state that leaves to that which enters."""
    at, a, z = c.at, c.a, c.z
    dv, dB, dC = at.wide(out.v, a, z), at.rows(out.B, a, z), at.rows(out.C, a, z)
    flat = (*g.shape[:3], at.q * at.p)
    # what the entering state gave: y_t += e_t H C_t
    dread = g * at.beside(c.e)
    read = np.matmul(c.C, H.mT).reshape(g.shape)
    dcs = at.by_time(np.einsum("bgtqp,bgtqp->bgtq", dread, read))
    dread = dread.reshape(flat)
    np.matmul(dread, H, out=dC)
    # what the chunk adds to the leaving state: sum_t w_t v_t B_t'
    dadded = np.matmul(c.B, G.mT).reshape(g.shape)
    dw = at.by_time(np.einsum("bgtqp,bgtqp->bgtq", dadded, c.v))
    np.matmul(c.weighed(), G, out=dB)
    # inside the chunk: y_t += sum_s CB K v_s
    dcs += _inside(c, g, (dv, dB, dC), dw, out)
    dadded *= at.beside(c.w)
    dv += dadded
    u = dw * c.w
    dcs -= u
    heads = (at.b, at.g, at.q, at.p * at.r)
    last = np.einsum("bgqx,bgqx->bgq", G.reshape(heads), H.reshape(heads))
    dcs[..., -1] += u.sum(-1) + c.e[..., -1] * last
    at.times(out.da, a, z)[...] = np.cumsum(dcs[..., ::-1], axis=-1)[..., ::-1]
    before = np.matmul(dread.mT, c.C)
    before += c.whole() * G
    return before


def _inside(c: Chunk, g: np.ndarray, into: Any, dw: np.ndarray, out: Gradients) -> np.ndarray:
    """Inside one chunk: dv is set, dB and dC added to, dgamma and dscale set; returns dcs."""
    at, (dv, dB, dC) = c.at, into
    L = decays(c.cs)
    K, CB = c.kernel(L), c.products()
    np.matmul(c.weights(K, CB).mT, g.swapaxes(2, 3), out=dv.swapaxes(2, 3))
    dW = np.matmul(g.swapaxes(2, 3), c.v.swapaxes(2, 3).mT)
    dK = at.by_times(dW * CB[:, :, None])
    dCB = at.across(dW)
    dCB *= at.spread(K)
    dCB = at.joined(dCB.sum(2))
    dC += np.matmul(dCB, c.B)
    dB += np.matmul(dCB.mT, c.C)
    if out.gamma is not None:
        diagonal = np.einsum("...tt->...t", dK)
        at.times(out.gamma, c.a, c.z)[...] = diagonal
        diagonal[...] = 0
    dK *= L
    columns = dK.sum(-2)
    if c.scale is None:
        return dK.sum(-1) - columns
    at.times(out.scale, c.a, c.z)[...] = columns + dw * c.f  # type: ignore[arg-type]
    return np.matmul(dK, c.scale[..., None])[..., 0] - columns * c.scale
