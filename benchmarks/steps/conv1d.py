"""(m) A causal depthwise convolution over 4096 steps of 512 channels, and silu; all trained."""

from __future__ import annotations

from typing import Any

from benchmarks.steps.row import Draw, Drawn, Row

TIME, CHANNELS, TAPS = 4096, 512, 4


def _draw() -> Drawn:
    draw = Draw()
    params = {
        "x": draw.normal(1, TIME, CHANNELS),
        "w": draw.uniform(-0.5, 0.5, TAPS, CHANNELS),
        "b": draw.uniform(-0.5, 0.5, CHANNELS),
    }
    return Drawn(params, {"y": draw.normal(1, TIME, CHANNELS, scale=1e-3)})


def ours(rg: Any) -> Any:
    """retrograd."""

    def loss(p: Any, d: Any) -> Any:
        h, _ = rg.ssm.causal_conv1d(p["x"], p["w"], p["b"])
        return rg.sum(rg.nn.silu(h) * d["y"])

    return loss


def pytorch(torch: Any) -> Any:
    """PyTorch: its conv1d with the channels first, ahead of three other ways to write it."""
    f = torch.nn.functional

    def loss(p: Any, d: Any) -> Any:
        padded = f.pad(p["x"], (TAPS - 1, 0))
        h = f.conv1d(padded, p["w"].T[:, None], p["b"], groups=CHANNELS)
        return (f.silu(h) * d["y"]).sum()

    return loss


def taps(torch: Any, x: Any, w: Any, b: Any) -> Any:
    """The convolution of x (b, s, c) with taps (k, c), as a sum of shifted products."""
    s, padded = x.shape[1], torch.nn.functional.pad(x, (0, 0, len(w) - 1, 0))
    y = torch.addcmul(b, padded[:, :s], w[0])
    for k in range(1, len(w)):
        y = torch.addcmul(y, padded[:, k : k + s], w[k])
    return y


def jaxs(jax: Any) -> Any:
    """JAX: shifted products, which XLA fuses."""
    jnp = jax.numpy

    def loss(p: Any, d: Any) -> Any:
        return jnp.sum(jax.nn.silu(jax_taps(jax, p["x"], p["w"], p["b"])) * d["y"])

    return loss


def jax_taps(jax: Any, x: Any, w: Any, b: Any) -> Any:
    """As `taps`."""
    s, padded = x.shape[1], jax.numpy.pad(x, ((0, 0), (len(w) - 1, 0), (0, 0)))
    return b + sum(padded[:, k : k + s] * w[k] for k in range(len(w)))


ROWS = [
    Row(
        "m",
        "causal conv1d + silu, 512 channels, 4096",
        _draw,
        ours,
        pytorch,
        jaxs,
        layouts={"x": "image", "y": "image"},
    )
]
