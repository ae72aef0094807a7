"""(n) Two 3 x 3 x 3 convolutions on volumes, then a classifier; SGD."""

from __future__ import annotations

from typing import Any

from benchmarks.steps.row import Draw, Drawn, Row

BATCH, SIDE, CHANNELS, CLASSES = 4, 24, (8, 32, 64), 10


def _draw() -> Drawn:
    draw = Draw()
    params = {
        "1.k": draw.weight(3, 3, 3, *CHANNELS[:2]),
        "1.b": draw.normal(CHANNELS[1], scale=0.1),
        "2.k": draw.weight(3, 3, 3, *CHANNELS[1:]),
        "2.b": draw.normal(CHANNELS[2], scale=0.1),
    }
    draw.linear(params, "head", CHANNELS[2], CLASSES)
    x = draw.normal(BATCH, SIDE, SIDE, SIDE, CHANNELS[0])
    return Drawn(params, {"x": x, "y": draw.integers(CLASSES, BATCH)})


def ours(rg: Any) -> Any:
    """retrograd."""
    nn = rg.nn

    def loss(p: Any, d: Any) -> Any:
        h = nn.relu(nn.conv(d["x"], p["1.k"], p["1.b"], padding=1))
        h = nn.relu(nn.conv(h, p["2.k"], p["2.b"], padding=1, stride=2))
        logits = rg.mean(h, axis=(1, 2, 3)) @ p["head.w"] + p["head.b"]
        return nn.cross_entropy(logits, d["y"])

    return loss


def pytorch(torch: Any) -> Any:
    """PyTorch."""
    f = torch.nn.functional

    def loss(p: Any, d: Any) -> Any:
        h = f.relu(f.conv3d(d["x"], p["1.k"], p["1.b"], padding=1))
        h = f.relu(f.conv3d(h, p["2.k"], p["2.b"], padding=1, stride=2))
        return f.cross_entropy(f.linear(h.mean((2, 3, 4)), p["head.w"], p["head.b"]), d["y"])

    return loss


def jaxs(jax: Any) -> Any:
    """JAX."""
    jnp = jax.numpy

    def conv(x: Any, k: Any, b: Any, stride: int) -> Any:
        y = jax.lax.conv_general_dilated(
            x,
            k,
            (stride,) * 3,
            [(1, 1)] * 3,
            dimension_numbers=("NDHWC", "DHWIO", "NDHWC"),
        )
        return jax.nn.relu(y + b)

    def loss(p: Any, d: Any) -> Any:
        h = conv(d["x"], p["1.k"], p["1.b"], 1)
        h = conv(h, p["2.k"], p["2.b"], 2)
        log_p = jax.nn.log_softmax(jnp.mean(h, (1, 2, 3)) @ p["head.w"] + p["head.b"])
        return -jnp.mean(jnp.take_along_axis(log_p, d["y"][:, None], 1))

    return loss


ROWS = [
    Row(
        "n",
        "conv3d 8-32-64, 24^3, batch 4",
        _draw,
        ours,
        pytorch,
        jaxs,
        layouts={"1.k": "conv", "2.k": "conv", "x": "image", "head.w": "t"},
    )
]
