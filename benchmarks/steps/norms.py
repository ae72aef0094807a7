"""(k) Layer norm and softmax of 8192 rows of 1024 numbers; all operands are trained."""

from __future__ import annotations

from typing import Any

from benchmarks.steps.row import Draw, Drawn, Row

ROWS_, SIZE = 8192, 1024


def _draw() -> Drawn:
    draw = Draw()
    params = {
        "x": draw.normal(ROWS_, SIZE),
        "w": draw.uniform(0.8, 1.2, SIZE),
        "b": draw.normal(SIZE, scale=0.1),
    }
    return Drawn(params, {"y": draw.normal(ROWS_, SIZE)})


def ours(rg: Any) -> Any:
    """retrograd."""

    def loss(p: Any, d: Any) -> Any:
        return rg.sum(rg.nn.softmax(rg.nn.layer_norm(p["x"], p["w"], p["b"])) * d["y"])

    return loss


def pytorch(torch: Any) -> Any:
    """PyTorch."""
    f = torch.nn.functional

    def loss(p: Any, d: Any) -> Any:
        return (f.softmax(f.layer_norm(p["x"], (SIZE,), p["w"], p["b"]), -1) * d["y"]).sum()

    return loss


def jaxs(jax: Any) -> Any:
    """JAX."""
    jnp = jax.numpy

    def loss(p: Any, d: Any) -> Any:
        x = p["x"]
        mean, var = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
        h = (x - mean) * jax.lax.rsqrt(var + 1e-5) * p["w"] + p["b"]
        return jnp.sum(jax.nn.softmax(h) * d["y"])

    return loss


ROWS = [Row("k", "layer norm + softmax, 8192 x 1024", _draw, ours, pytorch, jaxs)]
