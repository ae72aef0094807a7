"""(l) A step towards the largest curvature of a tanh MLP: v becomes H v, with length 1."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from benchmarks.steps.row import Draw, Drawn, Row

SIZES, BATCH = (64, 256, 256, 256, 8), 256


def _draw() -> Drawn:
    draw = Draw()
    shapes = dict(zip("0123", pairwise(SIZES), strict=True))
    data = {n: draw.weight(*s) for n, s in shapes.items()}
    along = {n: draw.normal(*s, scale=0.01) for n, s in shapes.items()}
    data |= {"x": draw.normal(BATCH, SIZES[0]), "y": draw.normal(BATCH, SIZES[-1])}
    return Drawn(along, data)


def _net(tanh: Any, mean: Any, w: Any, d: Any) -> Any:
    h = d["x"]
    for n in "012":
        h = tanh(h @ w[n])
    return mean((h @ w["3"] - d["y"]) ** 2)


def ours(rg: Any) -> Any:
    """retrograd."""

    def step(v: Any, d: Any) -> Any:
        w = {n: d[n] for n in v}
        found = rg.hvp(lambda w: _net(rg.tanh, rg.mean, w, d), (w,), (v,))
        length = rg.sqrt(sum(rg.sum(t * t) for t in found.values()))
        return {n: t / length for n, t in found.items()}, length

    return step


def pytorch(torch: Any) -> Any:
    """PyTorch: reverse over reverse."""

    def step(v: Any, d: Any) -> Any:
        w = [d[n].detach().requires_grad_() for n in v]
        value = _net(torch.tanh, torch.mean, dict(zip(v, w, strict=True)), d)
        slopes = torch.autograd.grad(value, w, create_graph=True)
        found = torch.autograd.grad(slopes, w, list(v.values()))
        length = torch.sqrt(sum((t * t).sum() for t in found))
        for old, new in zip(v.values(), found, strict=True):
            torch.div(new, length, out=old)
        return length

    return step


def jaxs(jax: Any) -> Any:
    """JAX."""
    jnp = jax.numpy

    def step(v: Any, d: Any) -> Any:
        w = {n: d[n] for n in v}
        slope = jax.grad(lambda w: _net(jnp.tanh, jnp.mean, w, d))
        _, found = jax.jvp(slope, (w,), (v,))
        length = jnp.sqrt(sum(jnp.sum(t * t) for t in found.values()))
        return {n: t / length for n, t in found.items()}, length

    return step


ROWS = [Row("l", "hvp of a tanh MLP, 3x256, batch 256", _draw, ours, pytorch, jaxs, whole=True)]
