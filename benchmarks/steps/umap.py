"""(g) Parametric UMAP: a network places 10,000 rows, 50,000 edges pull, 250,000 push; AdamW."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from benchmarks.steps.row import Draw, Drawn, Row

SIZES, POINTS, EDGES, PUSHES = (784, 256, 256, 2), 10_000, 50_000, 5
A, B, FLOOR = 1.577, 0.895, 1e-3


def _draw() -> Drawn:
    draw, params = Draw(), {}
    for i, (size, out) in enumerate(pairwise(SIZES)):
        draw.linear(params, str(i), size, out)
    many = EDGES * (1 + PUSHES)
    data = {
        "x": draw.uniform(0, 1, POINTS, SIZES[0]),
        "heads": draw.integers(POINTS, many),
        "tails": draw.integers(POINTS, many),
    }
    return Drawn(params, data)


def ours(rg: Any) -> Any:
    """retrograd."""

    def loss(p: Any, d: Any) -> Any:
        z = rg.nn.relu(d["x"] @ p["0.w"] + p["0.b"])
        z = rg.nn.relu(z @ p["1.w"] + p["1.b"]) @ p["2.w"] + p["2.b"]
        apart = rg.take(z, d["heads"], axis=0) - rg.take(z, d["tails"], axis=0)
        u = A * (rg.sum(apart * apart, axis=1) + FLOOR) ** B
        pull = rg.log1p(u[:EDGES])
        push = rg.log1p(1 / u[EDGES:])
        return (rg.sum(pull) + rg.sum(push)) / EDGES

    return loss


def pytorch(torch: Any) -> Any:
    """PyTorch."""
    f = torch.nn.functional

    def loss(p: Any, d: Any) -> Any:
        z = f.relu(f.linear(d["x"], p["0.w"], p["0.b"]))
        z = f.relu(f.linear(z, p["1.w"], p["1.b"]))
        z = f.linear(z, p["2.w"], p["2.b"])
        apart = z.index_select(0, d["heads"]) - z.index_select(0, d["tails"])
        u = A * (apart.square().sum(1) + FLOOR) ** B
        return (torch.log1p(u[:EDGES]).sum() + torch.log1p(1 / u[EDGES:]).sum()) / EDGES

    return loss


def jaxs(jax: Any) -> Any:
    """JAX."""
    jnp, relu = jax.numpy, jax.nn.relu

    def loss(p: Any, d: Any) -> Any:
        z = relu(d["x"] @ p["0.w"] + p["0.b"])
        z = relu(z @ p["1.w"] + p["1.b"]) @ p["2.w"] + p["2.b"]
        apart = z[d["heads"]] - z[d["tails"]]
        u = A * (jnp.sum(apart**2, 1) + FLOOR) ** B
        return (jnp.sum(jnp.log1p(u[:EDGES])) + jnp.sum(jnp.log1p(1 / u[EDGES:]))) / EDGES

    return loss


ROWS = [
    Row(
        "g",
        "parametric UMAP, 784-256-256-2, 50,000 edges",
        _draw,
        ours,
        pytorch,
        jaxs,
        optimizer="adamw",
        kinks=True,
        layouts={f"{i}.w": "t" for i in range(3)},
    )
]
