"""State-space models as a PyTorch expert writes them for eager mode on a processor.

Letters: b batch, s time, n chunks, l time in a chunk, m ranks, h heads, g groups of heads that
share B and C (1 or h), p channels of a head, r size of the state.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as f


class Recurrence(torch.autograd.Function):
    """h[t] = a[t] * h[t-1] + b[t] along axis 0, from 0, in place: one call for each step."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        """All states."""
        out = b.clone()
        rows, factors = out.unbind(0), a.unbind(0)
        for t in range(1, len(rows)):
            rows[t].addcmul_(factors[t], rows[t - 1])
        ctx.save_for_backward(a, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The same walk, from the end."""
        a, out = ctx.saved_tensors
        blame = grads[0].clone()
        rows, factors = blame.unbind(0), a.unbind(0)
        for t in range(len(rows) - 2, -1, -1):
            rows[t].addcmul_(factors[t + 1], rows[t + 1])
        slope = torch.zeros_like(a)
        torch.mul(blame[1:], out[:-1], out=slope[1:])
        return slope, blame


def two_levels(a: Any, b: Any, length: int = 32) -> Any:
    """The same recurrence, by short walks side by side and one across what they hand on."""
    a, b = (t.unflatten(0, (-1, length)).unbind(1) for t in (a, b))
    local, through = [b[0]], [a[0]]
    for x, y in zip(a[1:], b[1:], strict=True):
        local.append(torch.addcmul(y, x, local[-1]))
        through.append(through[-1] * x)
    h, given = torch.zeros_like(b[0][0]), []
    for x, y in zip(through[-1].unbind(0), local[-1].unbind(0), strict=True):
        given.append(h)
        h = torch.addcmul(y, x, h)
    parts = (torch.stack(local, 1), torch.stack(through, 1), torch.stack(given)[:, None])
    return torch.addcmul(*parts).flatten(0, 1)


def selective_scan(
    u: Any, delta: Any, A: Any, B: Any, C: Any, D: Any, z: Any, bias: Any
) -> Any:
    """Mamba-1, time first: decays and writes at once, then a walk over time."""
    x, gate, B, C = (t.transpose(0, 1) for t in (u, z, B, C))
    dt = f.softplus(delta + bias).transpose(0, 1)
    decay = torch.exp(dt[:, :, None] * A.T)
    states = Recurrence.apply(decay, (dt * x)[:, :, None] * B[..., None])
    y = (C[:, :, None] @ states)[:, :, 0]
    return ((y + D * x) * f.silu(gate)).transpose(0, 1)


def segsum(cs: Any) -> Any:
    """exp(cs_t - cs_s) for s <= t, else 0; over the last axis."""
    n = cs.shape[-1]
    above = torch.ones(n, n, dtype=torch.bool).triu(1)
    return (cs[..., :, None] - cs[..., None, :]).masked_fill(above, -torch.inf).exp()


def ssd(v: Any, da: Any, B: Any, C: Any, chunk: int) -> Any:
    """y of H_t = exp(da_t) H_{t-1} + sum_j v_t[j] B_t[j]', in chunks, without a loop.

    v (b,s,m,h,p), da (b,s,h), B and C (b,s,m,g,r), as in the listing of the Mamba-2 paper.
    """
    m, p = v.shape[2], v.shape[4]
    v, B, C = (t.unflatten(1, (-1, chunk)).flatten(2, 3).transpose(2, 3) for t in (v, B, C))
    cs = da.unflatten(1, (-1, chunk)).transpose(2, 3).cumsum(-1)  # (b,n,h,l)
    weights = (C @ B.mT).unflatten(-1, (chunk, m)).unflatten(-3, (chunk, m))
    weights = (weights * segsum(cs)[..., :, None, :, None]).flatten(-4, -3).flatten(-2, -1)
    late = (cs[..., -1:] - cs).exp().repeat_interleave(m, -1)
    added = (v * late[..., None]).mT @ B  # (b,n,h,p,r)
    ends = f.pad(cs[..., -1].transpose(1, 2), (1, 0)).cumsum(-1)  # (b,h,n+1)
    between = segsum(ends)[..., :-1, 1:]
    enter = (between @ added.transpose(1, 2).flatten(-2)).unflatten(-1, (p, -1)).transpose(1, 2)
    early = cs.exp().repeat_interleave(m, -1)
    y = weights @ v + (C @ enter.mT) * early[..., None]
    return y.transpose(2, 3).unflatten(2, (chunk, m)).flatten(1, 2)


def mamba2(x: Any, dt: Any, A: Any, B: Any, C: Any, D: Any, chunk: int = 64) -> Any:
    """Mamba-2's scan, of x (b,s,h,p), B and C (b,s,g,r)."""
    v, B, C = ((t[:, :, None]) for t in (x * dt[..., None], B, C))
    return ssd(v, dt * A, B, C, chunk)[:, :, 0] + D[:, None] * x


def double(v: Any, dt: Any, A: Any, lam: Any, B: Any, C: Any, chunk: int) -> Any:
    """Mamba-3's scan by two passes, of v (b,s,m,h,p)."""
    da = dt * A
    gamma, beta = lam * dt, (1 - lam) * dt * da.exp()
    before, B_before = (f.pad(t[:, :-1], (0, 0, 0, 0, 0, 0, 1, 0)) for t in (v, B))
    now = ssd(v * gamma[:, :, None, :, None], da, B, C, chunk)
    return now + ssd(before * beta[:, :, None, :, None], da, B_before, C, chunk)


def single(v: Any, dt: Any, A: Any, lam: Any, B: Any, C: Any, chunk: int) -> Any:
    """Mamba-3's scan by one pass; what a token weighs at its own time is put right after."""
    gamma = lam * dt
    more = f.pad((dt - gamma)[:, 1:], (0, 0, 0, 1))
    y = ssd(v * (gamma + more)[:, :, None, :, None], dt * A, B, C, chunk)
    B, C, own = (t.transpose(2, 3) for t in (B, C, v))  # (b,s,h,m,...)
    return y - (((C @ B.mT) * more[..., None, None]) @ own).transpose(2, 3)


def causal_conv1d(x: Any, w: Any, bias: Any, state: Any) -> Any:
    """A depthwise convolution over time, (b,s,c) and taps (k,c)."""
    both = torch.cat([state, x], 1)
    s = x.shape[1]
    y = torch.addcmul(bias, both[:, :s], w[0])
    for k in range(1, len(w)):
        y = torch.addcmul(y, both[:, k : k + s], w[k])
    return y


def turned(x: Any, rot: Any, dt: Any) -> Any:
    """Pairs (0, 1), (2, 3).. of x (b,s,h,r), turned by running angles."""
    angles = (dt[..., None] * (2 * torch.pi * torch.tanh(rot))[:, :, None]).cumsum(1)
    cos, sin, (a, b) = angles.cos(), angles.sin(), x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([cos * a - sin * b, sin * a + cos * b], -1).flatten(-2)


def matrix(q: Any) -> Any:
    """What multiplies another quaternion by q from the left."""
    w, x, y, z = q.unbind(-1)
    rows = [w, -x, -y, -z, x, w, -z, y, y, z, w, -x, z, -y, x, w]
    return torch.stack(rows, -1).unflatten(-1, (4, 4))


def quaternion_scan(q: Any, length: int = 16) -> Any:
    """Running products along axis 0, newest on the left: short walks, and one across them."""
    many = q.unflatten(0, (-1, length))[..., None]
    local = [many[:, 0]]
    for m in matrix(many[..., 0]).unbind(1)[1:]:
        local.append(m @ local[-1])
    given = [torch.tensor([1.0, 0, 0, 0]).expand(q.shape[1:])[..., None]]
    for m in matrix(local[-1][..., 0]).unbind(0)[:-1]:
        given.append(m @ given[-1])
    return (matrix(torch.stack(local, 1)[..., 0]) @ torch.stack(given)[:, None])[
        ..., 0
    ].flatten(0, 1)
