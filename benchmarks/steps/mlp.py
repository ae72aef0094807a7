"""(a) Linear layers with gelu, cross entropy, SGD."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from benchmarks.steps.row import Draw, Drawn, Row


def _draw(sizes: tuple[int, ...], batch: int) -> Drawn:
    draw, params = Draw(), {}
    for i, (size, out) in enumerate(pairwise(sizes)):
        draw.linear(params, str(i), size, out)
    data = {"x": draw.normal(batch, sizes[0]), "y": draw.integers(sizes[-1], batch)}
    return Drawn(params, data)


def ours(rg: Any) -> Any:
    """retrograd."""
    nn = rg.nn

    def loss(p: Any, d: Any) -> Any:
        h, last = d["x"], len(p) // 2 - 1
        for i in range(last):
            h = nn.gelu(h @ p[f"{i}.w"] + p[f"{i}.b"])
        return nn.cross_entropy(h @ p[f"{last}.w"] + p[f"{last}.b"], d["y"])

    return loss


def pytorch(torch: Any) -> Any:
    """PyTorch."""
    f = torch.nn.functional

    def loss(p: Any, d: Any) -> Any:
        h, last = d["x"], len(p) // 2 - 1
        for i in range(last):
            h = f.gelu(f.linear(h, p[f"{i}.w"], p[f"{i}.b"]))
        return f.cross_entropy(f.linear(h, p[f"{last}.w"], p[f"{last}.b"]), d["y"])

    return loss


def jaxs(jax: Any) -> Any:
    """JAX."""
    nn, jnp = jax.nn, jax.numpy

    def loss(p: Any, d: Any) -> Any:
        h, last = d["x"], len(p) // 2 - 1
        for i in range(last):
            h = nn.gelu(h @ p[f"{i}.w"] + p[f"{i}.b"], approximate=False)
        logits = h @ p[f"{last}.w"] + p[f"{last}.b"]
        return -jnp.mean(jnp.take_along_axis(nn.log_softmax(logits), d["y"][:, None], 1))

    return loss


def _row(key: str, name: str, sizes: tuple[int, ...], batch: int) -> Row:
    return Row(
        key,
        name,
        lambda: _draw(sizes, batch),
        ours,
        pytorch,
        jaxs,
        layouts={f"{i}.w": "t" for i in range(len(sizes) - 1)},
    )


ROWS = [
    _row("a1", "MLP 3x128, batch 64", (128, 128, 128, 16), 64),
    _row("a2", "MLP 4x2048, batch 256", (2048, 2048, 2048, 2048, 16), 256),
]
