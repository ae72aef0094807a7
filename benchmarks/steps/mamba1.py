"""(e) A Mamba-1 block: 256 wide, 512 inside, state 16; AdamW.

No library but ours has the scan. PyTorch walks over time in place, by a function with its own
gradient; torch.compile compiles what is around it, for traced it takes minutes to compile and
is slower. JAX scans stretches of 16 steps whose inside is computed again backward.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.steps.conv1d import jax_taps, taps
from benchmarks.steps.row import Draw, Drawn, Row

SIZE, INNER, STATE, RANK, TAPS, STRETCH = 256, 512, 16, 16, 4, 16


def _draw(batch: int, length: int) -> Drawn:
    draw = Draw()
    dt = np.exp(draw.uniform(np.log(1e-3), np.log(0.1), INNER))
    params = {
        "in": draw.weight(SIZE, 2 * INNER),
        "conv.w": draw.uniform(-0.5, 0.5, TAPS, INNER),
        "conv.b": draw.uniform(-0.5, 0.5, INNER),
        "wx": draw.weight(INNER, RANK + 2 * STATE),
        "dt.w": draw.uniform(-0.25, 0.25, RANK, INNER),
        "dt.b": (dt + np.log(-np.expm1(-dt))).astype(np.float32),
        "a_log": np.tile(np.log(np.arange(1, STATE + 1, dtype=np.float32)), (INNER, 1)),
        "d": np.ones(INNER, np.float32),
        "out": draw.weight(INNER, SIZE),
    }
    shape = (batch, length, SIZE)
    return Drawn(params, {"x": draw.normal(*shape), "y": draw.normal(*shape)})


def ours(rg: Any) -> Any:
    """retrograd."""

    def loss(p: Any, d: Any) -> Any:
        x, z = rg.split(d["x"] @ p["in"], 2, axis=-1)
        x = rg.nn.silu(rg.ssm.causal_conv1d(x, p["conv.w"], p["conv.b"])[0])
        dt, B, C = rg.split(x @ p["wx"], (RANK, STATE, STATE), axis=-1)
        A = -rg.exp(p["a_log"])
        y, _ = rg.ssm.selective_scan(
            x, dt @ p["dt.w"], A, B, C, p["d"], z, p["dt.b"], delta_softplus=True
        )
        return rg.nn.mse(y @ p["out"], d["y"])

    return loss


def pytorch(torch: Any) -> Any:
    """PyTorch."""
    from benchmarks.heavy.ssm_peers import Recurrence

    f = torch.nn.functional
    walk = torch.compiler.disable(Recurrence.apply)

    def loss(p: Any, d: Any) -> Any:
        x, z = f.linear(d["x"], p["in"]).chunk(2, -1)
        x = f.silu(taps(torch, x, p["conv.w"], p["conv.b"]))
        dt, B, C = f.linear(x, p["wx"]).split((RANK, STATE, STATE), -1)
        dt = f.softplus(f.linear(dt, p["dt.w"], p["dt.b"]))
        A = -torch.exp(p["a_log"])
        dt_, x_, B_, C_ = (t.transpose(0, 1) for t in (dt, x, B, C))  # time first
        decay = torch.exp(dt_[..., None] * A)
        write = (dt_ * x_)[..., None] * B_[:, :, None]
        states = walk(decay, write)
        y = (states @ C_[..., None])[..., 0].transpose(0, 1)
        y = (y + p["d"] * x) * f.silu(z)
        return f.mse_loss(f.linear(y, p["out"]), d["y"])

    return loss


def jaxs(jax: Any) -> Any:
    """JAX."""
    jnp, lax = jax.numpy, jax.lax

    def scan(A: Any, dt: Any, x: Any, B: Any, C: Any) -> Any:
        def step(h: Any, given: Any) -> Any:
            dt, x, B, C = given
            h = jnp.exp(dt[..., None] * A) * h + (dt * x)[..., None] * B[:, None]
            return h, jnp.einsum("bir,br->bi", h, C)

        @jax.checkpoint
        def stretch(h: Any, given: Any) -> Any:
            return lax.scan(step, h, given)

        parts = [
            t.swapaxes(0, 1).reshape(-1, STRETCH, t.shape[0], t.shape[2]) for t in (dt, x, B, C)
        ]
        _, y = lax.scan(stretch, jnp.zeros((dt.shape[0], INNER, STATE)), tuple(parts))
        return y.reshape(-1, *y.shape[2:]).swapaxes(0, 1)

    def loss(p: Any, d: Any) -> Any:
        x, z = jnp.split(d["x"] @ p["in"], 2, -1)
        x = jax.nn.silu(jax_taps(jax, x, p["conv.w"], p["conv.b"]))
        dt, B, C = jnp.split(x @ p["wx"], (RANK, RANK + STATE), -1)
        dt = jax.nn.softplus(dt @ p["dt.w"] + p["dt.b"])
        y = scan(-jnp.exp(p["a_log"]), dt, x, B, C)
        y = (y + p["d"] * x) * jax.nn.silu(z)
        return jnp.mean((y @ p["out"] - d["y"]) ** 2)

    return loss


def _row(key: str, batch: int, length: int) -> Row:
    return Row(
        key,
        f"Mamba-1 block, sequence {length}, batch {batch}",
        lambda: _draw(batch, length),
        ours,
        pytorch,
        jaxs,
        optimizer="adamw",
        lr=1e-4,
        layouts={"in": "t", "wx": "t", "dt.w": "t", "out": "t"},
    )


ROWS = [_row("e1", 4, 256), _row("e2", 1, 4096)]
