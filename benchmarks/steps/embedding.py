"""(j) Rows of a table 50,000 x 256 by 100,000 indices, many of them equal, classified; SGD."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.steps.row import Draw, Drawn, Row

ENTRIES, SIZE, MANY, CLASSES = 50_000, 256, 100_000, 16


def _draw() -> Drawn:
    draw = Draw()
    params = {"table": draw.normal(ENTRIES, SIZE)}
    draw.linear(params, "head", SIZE, CLASSES)
    # words of a text: the r-th is met about 1 / r times as often as the first
    indices = (ENTRIES ** draw.rng.random(MANY)).astype(np.int64) - 1
    return Drawn(params, {"i": indices, "y": draw.integers(CLASSES, MANY)})


def ours(rg: Any) -> Any:
    """retrograd."""

    def loss(p: Any, d: Any) -> Any:
        h = rg.embedding(d["i"], p["table"])
        return rg.nn.cross_entropy(h @ p["head.w"] + p["head.b"], d["y"])

    return loss


def pytorch(torch: Any) -> Any:
    """PyTorch."""
    f = torch.nn.functional

    def loss(p: Any, d: Any) -> Any:
        h = f.embedding(d["i"], p["table"])
        return f.cross_entropy(f.linear(h, p["head.w"], p["head.b"]), d["y"])

    return loss


def jaxs(jax: Any) -> Any:
    """JAX."""
    jnp = jax.numpy

    def loss(p: Any, d: Any) -> Any:
        log_p = jax.nn.log_softmax(p["table"][d["i"]] @ p["head.w"] + p["head.b"])
        return -jnp.mean(jnp.take_along_axis(log_p, d["y"][:, None], 1))

    return loss


ROWS = [
    Row(
        "j",
        "embedding 50,000 x 256, 100,000 indices",
        _draw,
        ours,
        pytorch,
        jaxs,
        layouts={"head.w": "t"},
    )
]
