"""(e) A Mamba-3 block, scanned by two passes: 256 wide, 8 heads of 64, state 64; AdamW."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.steps.mamba2 import jax_ssd
from benchmarks.steps.row import Arrays, Draw, Drawn, Row

SIZE, INNER, HEADS, HEAD, STATE, CHUNK, ANGLES = 256, 512, 8, 64, 64, 64, 32
FLOOR, EPS = 1e-4, 1e-5
PARTS = (INNER, INNER, STATE, STATE, HEADS, HEADS, HEADS, ANGLES)  # z x B C dt A lam rot


def layer(draw: Draw) -> Arrays:
    """The weights of a block."""
    dt = np.exp(draw.uniform(np.log(1e-3), np.log(0.1), HEADS))
    return {
        "in": draw.weight(SIZE, sum(PARTS)),
        "dt": (dt + np.log(-np.expm1(-dt))).astype(np.float32),
        "d": np.ones(HEADS, np.float32),
        "B.norm": draw.uniform(0.8, 1.2, STATE),
        "C.norm": draw.uniform(0.8, 1.2, STATE),
        "B.bias": draw.uniform(0.8, 1.2, HEADS, STATE),
        "C.bias": draw.uniform(0.8, 1.2, HEADS, STATE),
        "out": draw.weight(INNER, SIZE),
    }


def _draw(batch: int, length: int) -> Drawn:
    draw = Draw()
    params = layer(draw)
    shape = (batch, length, SIZE)
    return Drawn(params, {"x": draw.normal(*shape), "y": draw.normal(*shape)})


def _whole(block: Any, mse: Any) -> Any:
    """The loss of a block's output."""
    return lambda p, d: mse(block(p, d["x"]), d["y"])


def ours(rg: Any) -> Any:
    """retrograd."""
    return _whole(our_block(rg), rg.nn.mse)


def our_block(rg: Any) -> Any:
    """The block alone."""
    nn, ssm = rg.nn, rg.ssm

    def block(p: Any, given: Any) -> Any:
        z, x, B, C, dt, A, lam, rot = rg.split(given @ p["in"], PARTS, axis=-1)
        x = x.reshape(*x.shape[:2], HEADS, HEAD)
        dt = nn.softplus(dt + p["dt"])
        A = -rg.maximum(nn.softplus(A), FLOOR)
        angles, _ = ssm.running_angles(ssm.rotation_angles(rot, dt), axis=1)
        B, C = (
            ssm.rotate_pairs(
                nn.rms_norm(t, p[f"{n}.norm"], eps=EPS)[:, :, None] + p[f"{n}.bias"], angles
            )
            for n, t in (("B", B), ("C", C))
        )
        y, _ = ssm.mamba3_scan(x, dt, A, nn.sigmoid(lam), B, C, D=p["d"], form="double")
        return (y.reshape(z.shape) * nn.silu(z)) @ p["out"]

    return block


def pytorch(torch: Any) -> Any:
    """PyTorch."""
    return _whole(pytorch_block(torch), torch.nn.functional.mse_loss)


def pytorch_block(torch: Any) -> Any:
    """The block alone."""
    from benchmarks.heavy.ssm_peers import double

    f = torch.nn.functional

    def turned(x: Any, cos: Any, sin: Any) -> Any:
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack([cos * a - sin * b, sin * a + cos * b], -1).flatten(-2)

    def block(p: Any, given: Any) -> Any:
        z, x, B, C, dt, A, lam, rot = f.linear(given, p["in"]).split(PARTS, -1)
        x, dt = x.unflatten(-1, (HEADS, HEAD)), f.softplus(dt + p["dt"])
        A = -f.softplus(A).clamp(min=FLOOR)
        angles = (dt[..., None] * (2 * torch.pi * torch.tanh(rot))[:, :, None]).cumsum(1)
        cos, sin = angles.cos(), angles.sin()
        B, C = (
            turned(
                f.rms_norm(t, (STATE,), p[f"{n}.norm"], EPS)[:, :, None] + p[f"{n}.bias"],
                cos,
                sin,
            )
            for n, t in (("B", B), ("C", C))
        )
        v, B, C = (t[:, :, None] for t in (x, B, C))  # one rank
        y = double(v, dt, A, lam.sigmoid(), B, C, CHUNK)[:, :, 0] + p["d"][:, None] * x
        return f.linear(y.flatten(2) * f.silu(z), p["out"])

    return block


def jaxs(jax: Any) -> Any:
    """JAX."""
    return _whole(jax_block(jax), lambda x, y: jax.numpy.mean((x - y) ** 2))


def jax_block(jax: Any) -> Any:
    """The block alone."""
    jnp, nn = jax.numpy, jax.nn
    ssd = jax_ssd(jax)

    def turned(x: Any, cos: Any, sin: Any) -> Any:
        a, b = x[..., ::2], x[..., 1::2]
        return jnp.stack([cos * a - sin * b, sin * a + cos * b], -1).reshape(x.shape)

    def norm(x: Any, w: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + EPS) * w

    def delayed(x: Any) -> Any:
        return jnp.pad(x[:, :-1], ((0, 0), (1, 0), (0, 0), (0, 0)))

    def block(p: Any, given: Any) -> Any:
        cuts = tuple(int(n) for n in np.cumsum(PARTS)[:-1])
        z, x, B, C, dt, A, lam, rot = jnp.split(given @ p["in"], cuts, -1)
        x, dt = x.reshape(*x.shape[:2], HEADS, HEAD), nn.softplus(dt + p["dt"])
        da, lam = dt * -jnp.maximum(nn.softplus(A), FLOOR), nn.sigmoid(lam)
        angles = jnp.cumsum(dt[..., None] * (2 * jnp.pi * jnp.tanh(rot))[:, :, None], 1)
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        B, C = (
            turned(norm(t, p[f"{n}.norm"])[:, :, None] + p[f"{n}.bias"], cos, sin)
            for n, t in (("B", B), ("C", C))
        )
        gamma, beta = lam * dt, (1 - lam) * dt * jnp.exp(da)
        y = ssd(x * gamma[..., None], da, B, C)
        y = y + ssd(delayed(x) * beta[..., None], da, delayed(B), C) + p["d"][:, None] * x
        return (y.reshape(z.shape) * nn.silu(z)) @ p["out"]

    return block


def _row(key: str, batch: int, length: int) -> Row:
    return Row(
        key,
        f"Mamba-3 block, sequence {length}, batch {batch}",
        lambda: _draw(batch, length),
        ours,
        pytorch,
        jaxs,
        optimizer="adamw",
        lr=1e-4,
        layouts={"in": "t", "out": "t"},
    )


ROWS = [_row("e5", 4, 256), _row("e6", 1, 4096)]
