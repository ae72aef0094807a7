"""The kernel of Mamba-1's selective scan, in NumPy: chunks that fit a cache, buffers reused.

Letters: b batch, s time, l time in a chunk, i channels, r size of the state. Inside, time
comes first and channels last, (l, b, r, i): steps are slices, and all rows are long. States
are kept at the starts of chunks only; those between are computed again, chunk by chunk.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

CACHE = 1 << 19  # bytes of one buffer: a chunk has as many steps as fit


class Operands(NamedTuple):
    """u, delta, z (b,s,i); B, C (b,s,r); A (b,i,r), D, bias (b,i), initial (b,i,r)."""

    u: np.ndarray
    delta: np.ndarray
    A: np.ndarray
    B: np.ndarray
    C: np.ndarray
    D: np.ndarray
    z: np.ndarray | None  # None: not gated
    bias: np.ndarray
    initial: np.ndarray


def softplus(x: np.ndarray) -> np.ndarray:
    """log(1 + exp(x)), without overflow."""
    out = np.exp(-np.abs(x))
    np.log1p(out, out=out)
    out += np.maximum(x, 0)
    return out


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * x))


class Scan:
    """One run over a sequence: rates, buffers, and the steps of a chunk."""

    def __init__(self, x: Operands, *, soft: bool, buffers: int) -> None:
        self.x, self.soft = x, soft
        self.b, self.s, self.i = x.u.shape
        self.r = x.A.shape[-1]
        self.A = np.ascontiguousarray(x.A.swapaxes(1, 2))  # (b,r,i)
        step = self.b * self.r * self.i
        room = CACHE // max(1, step * x.u.itemsize)
        self.length = max(1, min(self.s, max(room, 8), 256))
        shape = (self.length, self.b, self.r, self.i)
        self.buffers = [np.empty(shape, x.u.dtype) for _ in range(buffers)]
        self.held = np.empty(shape[1:], x.u.dtype)
        self.bounds = [(a, min(a + self.length, self.s)) for a in range(0, self.s, self.length)]

    def at(self, x: np.ndarray, a: int, z: int) -> np.ndarray:
        """Times a to z of (b,s,k), as (l,b,k)."""
        return x[:, a:z].swapaxes(0, 1)

    def steps(self, a: int, z: int) -> tuple[np.ndarray, np.ndarray]:
        """The size of each step, and the number that softplus was taken of."""
        raw = self.at(self.x.delta, a, z) + self.x.bias
        return (softplus(raw) if self.soft else raw), raw

    def states(self, a: int, z: int, h: np.ndarray, dt: np.ndarray) -> tuple:
        """The decays and the states of a chunk that begins with h; in the first buffers."""
        E, S = (buffer[: z - a] for buffer in self.buffers[:2])
        np.multiply(dt[:, :, None], self.A, out=E)
        np.exp(E, out=E)
        write = dt * self.at(self.x.u, a, z)
        np.multiply(write[:, :, None], self.at(self.x.B, a, z)[..., None], out=S)
        for t in range(z - a):
            np.multiply(E[t], h, out=self.held)
            h = S[t]
            h += self.held
        return E, S

    def read(self, a: int, z: int, S: np.ndarray) -> np.ndarray:
        """y of a chunk before the gate, (l,b,i)."""
        y = _row(self.at(self.x.C, a, z), S)
        y += self.x.D * self.at(self.x.u, a, z)
        return y


def _row(weights: np.ndarray, states: np.ndarray) -> np.ndarray:
    """(l,b,r) and (l,b,r,i), summed over r."""
    return np.matmul(weights[:, :, None], states)[:, :, 0]


def _column(states: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(l,b,r,i) and (l,b,i), summed over i."""
    return np.matmul(states, weights[..., None])[..., 0]


def forward(x: Operands, *, soft: bool) -> tuple[np.ndarray, np.ndarray]:
    """y (b,s,i) and the last state (b,i,r)."""
    scan = Scan(x, soft=soft, buffers=2)
    out = np.empty(x.u.shape, x.u.dtype)
    h = x.initial.swapaxes(1, 2)
    for a, z in scan.bounds:
        _, S = scan.states(a, z, h, scan.steps(a, z)[0])
        y = scan.read(a, z, S)
        if x.z is not None:
            gate = scan.at(x.z, a, z)
            y *= gate * sigmoid(gate)
        scan.at(out, a, z)[...] = y
        h = S[-1].copy()
    return out, np.array(h.swapaxes(1, 2))


def backward(g: np.ndarray, gf: np.ndarray, x: Operands, *, soft: bool) -> Operands:
    """The cotangents of the operands, those that are shared for each of the batch."""
    scan = Scan(x, soft=soft, buffers=3)
    h = x.initial.swapaxes(1, 2)
    starts = []
    for a, z in scan.bounds:
        starts.append(h)
        if z < scan.s:
            h = scan.states(a, z, h, scan.steps(a, z)[0])[1][-1].copy()
    found = (x.u, x.delta, scan.A, x.B, x.C, x.D, x.z, x.bias, x.initial)
    out = Operands(*(None if t is None else np.zeros(t.shape, t.dtype) for t in found))  # type: ignore[arg-type]
    G = gf.swapaxes(1, 2)
    for (a, z), start in zip(scan.bounds[::-1], starts[::-1], strict=True):
        G = _pulled(scan, (a, z), g, G, start, out)
    return out._replace(A=out.A.swapaxes(1, 2), initial=G.swapaxes(1, 2))


def _pulled(scan: Scan, bounds: tuple[int, int], g, carry, start, out: Operands) -> np.ndarray:
    """One chunk back: from the cotangent of the state that leaves to that which enters."""
    x, (a, z), at = scan.x, bounds, scan.at
    dt, raw = scan.steps(a, z)
    E, S = scan.states(a, z, start, dt)
    u, gy = at(x.u, a, z), _ungated(scan, a, z, S, at(g, a, z), out)
    G = scan.buffers[2][: z - a]
    np.multiply(gy[:, :, None], at(x.C, a, z)[..., None], out=G)
    G[-1] += carry
    for t in range(z - a - 1, 0, -1):
        np.multiply(E[t], G[t], out=scan.held)
        G[t - 1] += scan.held
    at(out.C, a, z)[...] = _column(S, gy)
    at(out.B, a, z)[...] = _column(G, dt * u)
    read = _row(at(x.B, a, z), G)
    np.add(dt * read, x.D * gy, out=at(out.u, a, z))
    out.D[...] += np.add.reduce(gy * u, axis=0)
    # E becomes what the decays' exponents get: G E h_before
    E *= G
    before = E[0].copy()
    E[1:] *= S[:-1]
    E[0] *= start
    np.multiply(E, dt[:, :, None], out=S)
    out.A[...] += np.add.reduce(S, axis=0)
    E *= scan.A
    gdt = np.add.reduce(E, axis=2)
    gdt += u * read
    if scan.soft:
        gdt *= sigmoid(raw)
    at(out.delta, a, z)[...] = gdt
    out.bias[...] += np.add.reduce(gdt, axis=0)
    return before


def _ungated(scan: Scan, a: int, z: int, S, g, out: Operands) -> np.ndarray:
    """The cotangent of y before the gate; that of the gate goes to its place."""
    if scan.x.z is None:
        return g
    gate = scan.at(scan.x.z, a, z)
    sig = sigmoid(gate)
    slope = scan.read(a, z, S) * g
    slope *= sig * (1 + gate * (1 - sig))
    scan.at(out.z, a, z)[...] = slope  # type: ignore[arg-type]
    return g * gate * sig
