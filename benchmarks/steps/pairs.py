"""(f) A loss of all pairwise distances, 1 / (1 + d^2), whose gradient moves the points.

At 20,000 points the matrix of pairs has 1.6 GB: PyTorch and JAX go over blocks of rows, and
keep nothing of a block but its gradient.
"""

from __future__ import annotations

from typing import Any

from benchmarks.steps.row import Draw, Drawn, Row

SIZE, BLOCK = 16, 1000


def _draw(n: int) -> Drawn:
    return Drawn({"x": Draw().normal(n, SIZE)}, {})


def ours(rg: Any) -> Any:
    """retrograd."""

    def loss(p: Any, d: Any) -> Any:
        x = p["x"]
        return rg.distances.pair_reduce(lambda s: 1 / (1 + s), x) / x.shape[0]

    return loss


def _pytorch(*, blocks: bool) -> Any:
    def make(torch: Any) -> Any:
        from torch.utils.checkpoint import checkpoint

        def part(rows: Any, x: Any) -> Any:
            squares = rows.square().sum(1)[:, None] + x.square().sum(1)
            s = torch.addmm(squares, rows, x.T, alpha=-2).clamp(min=0)
            return (1 / (1 + s)).sum()

        def whole(p: Any, d: Any) -> Any:
            return part(p["x"], p["x"]) / len(p["x"])

        def parted(p: Any, d: Any) -> Any:
            x = p["x"]
            parts = (checkpoint(part, r, x, use_reentrant=False) for r in x.split(BLOCK))
            return sum(parts) / len(x)

        return parted if blocks else whole

    return make


def _jax(*, blocks: bool) -> Any:
    def make(jax: Any) -> Any:
        jnp = jax.numpy

        def part(rows: Any, x: Any) -> Any:
            s = jnp.sum(rows**2, 1)[:, None] + jnp.sum(x**2, 1) - 2 * rows @ x.T
            return jnp.sum(1 / (1 + jnp.maximum(s, 0)))

        def whole(p: Any, d: Any) -> Any:
            return part(p["x"], p["x"]) / len(p["x"])

        def parted(p: Any, d: Any) -> Any:
            x = p["x"]
            each = jax.checkpoint(lambda total, rows: (total + part(rows, x), None))
            total, _ = jax.lax.scan(each, 0.0, x.reshape(-1, BLOCK, SIZE))
            return total / len(x)

        return parted if blocks else whole

    return make


def _row(key: str, n: int, *, blocks: bool) -> Row:
    name = f"pairwise distance loss, n {n:,}"
    return Row(key, name, lambda: _draw(n), ours, _pytorch(blocks=blocks), _jax(blocks=blocks))


ROWS = [_row("f1", 4000, blocks=False), _row("f2", 20_000, blocks=True)]
