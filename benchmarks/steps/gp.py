"""(o) The marginal likelihood of a Gaussian process with 1000 points, by Cholesky."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.steps.row import Draw, Drawn, Row

POINTS, SIZE = 1000, 8


def _draw() -> Drawn:
    draw = Draw()
    params = {
        "scale": draw.normal(SIZE, scale=0.1),  # logarithms, all of them
        "height": np.full((), 0.1, np.float32),
        "noise": np.full((), -1.0, np.float32),
    }
    x = draw.normal(POINTS, SIZE)
    return Drawn(params, {"x": x, "y": np.sin(x.sum(1)) + draw.normal(POINTS, scale=0.3)})


def ours(rg: Any) -> Any:
    """retrograd."""
    eye = rg.eye(POINTS)

    def loss(p: Any, d: Any) -> Any:
        x = d["x"] * rg.exp(p["scale"])
        far = rg.distances.cdist(x, x, metric="sqeuclidean")
        K = rg.exp(p["height"] - 0.5 * far) + (rg.exp(p["noise"]) + 1e-4) * eye
        L = rg.linalg.cholesky(K)
        a = rg.linalg.solve_triangular(L, d["y"][:, None], lower=True)
        return (0.5 * rg.sum(a * a) + rg.sum(rg.log(rg.linalg.diagonal(L)))) / POINTS

    return loss


def pytorch(torch: Any) -> Any:
    """PyTorch."""

    def loss(p: Any, d: Any) -> Any:
        x = d["x"] * p["scale"].exp()
        s = x.square().sum(1)
        far = torch.addmm(s[:, None] + s, x, x.T, alpha=-2).clamp(min=0)
        eye = torch.eye(POINTS, dtype=x.dtype)
        K = torch.exp(p["height"] - 0.5 * far) + (p["noise"].exp() + 1e-4) * eye
        L = torch.linalg.cholesky(K)
        a = torch.linalg.solve_triangular(L, d["y"][:, None], upper=False)
        return (0.5 * (a * a).sum() + L.diagonal().log().sum()) / POINTS

    return loss


def jaxs(jax: Any) -> Any:
    """JAX."""
    jnp = jax.numpy

    def loss(p: Any, d: Any) -> Any:
        x = d["x"] * jnp.exp(p["scale"])
        s = jnp.sum(x**2, 1)
        far = jnp.maximum(s[:, None] + s - 2 * x @ x.T, 0)
        K = jnp.exp(p["height"] - 0.5 * far) + (jnp.exp(p["noise"]) + 1e-4) * jnp.eye(POINTS)
        L = jnp.linalg.cholesky(K)
        a = jax.scipy.linalg.solve_triangular(L, d["y"], lower=True)
        return (0.5 * jnp.sum(a * a) + jnp.sum(jnp.log(jnp.diagonal(L)))) / POINTS

    return loss


ROWS = [Row("o", "GP marginal likelihood, n 1000", _draw, ours, pytorch, jaxs)]
