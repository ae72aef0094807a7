"""(e) A Mamba-2 block: 256 wide, 8 heads of 64, state 64; AdamW. Peers: SSD in chunks of 64."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.steps.conv1d import jax_taps, taps
from benchmarks.steps.row import Draw, Drawn, Row

SIZE, INNER, HEADS, HEAD, STATE, TAPS, CHUNK = 256, 512, 8, 64, 64, 4, 64
WIDE = INNER + 2 * STATE
PARTS = (INNER, WIDE, HEADS)


def _draw(batch: int, length: int) -> Drawn:
    draw = Draw()
    dt = np.exp(draw.uniform(np.log(1e-3), np.log(0.1), HEADS))
    params = {
        "in": draw.weight(SIZE, sum(PARTS)),
        "conv.w": draw.uniform(-0.5, 0.5, TAPS, WIDE),
        "conv.b": draw.uniform(-0.5, 0.5, WIDE),
        "dt": (dt + np.log(-np.expm1(-dt))).astype(np.float32),
        "a_log": np.log(draw.uniform(1, 16, HEADS)),
        "d": np.ones(HEADS, np.float32),
        "norm": draw.uniform(0.8, 1.2, INNER),
        "out": draw.weight(INNER, SIZE),
    }
    shape = (batch, length, SIZE)
    return Drawn(params, {"x": draw.normal(*shape), "y": draw.normal(*shape)})


def ours(rg: Any) -> Any:
    """retrograd."""
    nn = rg.nn

    def loss(p: Any, d: Any) -> Any:
        z, xbc, dt = rg.split(d["x"] @ p["in"], PARTS, axis=-1)
        xbc = nn.silu(rg.ssm.causal_conv1d(xbc, p["conv.w"], p["conv.b"])[0])
        x, B, C = rg.split(xbc, (INNER, STATE, STATE), axis=-1)
        lead = x.shape[:2]
        x, B, C = (
            x.reshape(*lead, HEADS, HEAD),
            B.reshape(*lead, 1, STATE),
            C.reshape(*lead, 1, STATE),
        )
        y, _ = rg.ssm.ssd(x, nn.softplus(dt + p["dt"]), -rg.exp(p["a_log"]), B, C, D=p["d"])
        y = nn.rms_norm(y.reshape(*lead, INNER) * nn.silu(z), p["norm"], eps=1e-5)
        return nn.mse(y @ p["out"], d["y"])

    return loss


def pytorch(torch: Any) -> Any:
    """PyTorch."""
    from benchmarks.heavy.ssm_peers import mamba2

    f = torch.nn.functional

    def loss(p: Any, d: Any) -> Any:
        z, xbc, dt = f.linear(d["x"], p["in"]).split(PARTS, -1)
        xbc = f.silu(taps(torch, xbc, p["conv.w"], p["conv.b"]))
        x, B, C = xbc.split((INNER, STATE, STATE), -1)
        x, dt = x.unflatten(-1, (HEADS, HEAD)), f.softplus(dt + p["dt"])
        y = mamba2(x, dt, -p["a_log"].exp(), B[:, :, None], C[:, :, None], p["d"], CHUNK)
        y = f.rms_norm(y.flatten(2) * f.silu(z), (INNER,), p["norm"], 1e-5)
        return f.mse_loss(f.linear(y, p["out"]), d["y"])

    return loss


def jaxs(jax: Any) -> Any:
    """JAX."""
    jnp, nn = jax.numpy, jax.nn
    ssd = jax_ssd(jax)

    def loss(p: Any, d: Any) -> Any:
        z, xbc, dt = jnp.split(d["x"] @ p["in"], (INNER, INNER + WIDE), -1)
        xbc = nn.silu(jax_taps(jax, xbc, p["conv.w"], p["conv.b"]))
        x, B, C = jnp.split(xbc, (INNER, INNER + STATE), -1)
        x, dt = x.reshape(*x.shape[:2], HEADS, HEAD), nn.softplus(dt + p["dt"])
        y = ssd(x * dt[..., None], dt * -jnp.exp(p["a_log"]), B, C) + p["d"][:, None] * x
        y = y.reshape(z.shape) * nn.silu(z)
        y = y * jax.lax.rsqrt(jnp.mean(y**2, -1, keepdims=True) + 1e-5) * p["norm"]
        return jnp.mean((y @ p["out"] - d["y"]) ** 2)

    return loss


def jax_ssd(jax: Any, chunk: int = CHUNK) -> Any:
    """SSD in chunks; v (b,s,h,p), da (b,s,h), B and C (b,s,r), or (b,s,h,r) by head."""
    jnp = jax.numpy
    below = np.tril(np.ones((chunk, chunk), bool))

    def ssd(v: Any, da: Any, B: Any, C: Any) -> Any:
        heads = "h" if B.ndim == 4 else ""
        v, da, B, C = (t.reshape(t.shape[0], -1, chunk, *t.shape[2:]) for t in (v, da, B, C))
        cs = jnp.cumsum(da, 2).transpose(0, 1, 3, 2)  # (b,n,h,l)
        decay = jnp.exp(jnp.where(below, cs[..., :, None] - cs[..., None, :], -jnp.inf))
        scores = jnp.einsum(f"bnt{heads}r,bns{heads}r->bn{heads}ts", C, B)
        weights = decay * (scores if heads else scores[:, :, None])
        y = jnp.einsum("bnhts,bnshp->bnthp", weights, v)
        late = jnp.exp(cs[..., -1:] - cs)
        added = jnp.einsum(f"bnhs,bnshp,bns{heads}r->bnhpr", late, v, B)

        def carry(state: Any, given: Any) -> Any:
            more, last = given
            return jnp.exp(last)[..., None, None] * state + more, state

        steps = (added.swapaxes(0, 1), cs[..., -1].swapaxes(0, 1))
        _, enter = jax.lax.scan(carry, jnp.zeros_like(added[:, 0]), steps)
        far = jnp.einsum(f"bnt{heads}r,nbhpr->bnthp", C, enter)
        y = y + far * jnp.exp(cs).transpose(0, 1, 3, 2)[..., None]
        return y.reshape(y.shape[0], -1, *y.shape[3:])

    return ssd


def _row(key: str, batch: int, length: int) -> Row:
    return Row(
        key,
        f"Mamba-2 block, sequence {length}, batch {batch}",
        lambda: _draw(batch, length),
        ours,
        pytorch,
        jaxs,
        optimizer="adamw",
        lr=1e-4,
        layouts={"in": "t", "out": "t"},
    )


ROWS = [_row("e3", 4, 256), _row("e4", 1, 4096)]
