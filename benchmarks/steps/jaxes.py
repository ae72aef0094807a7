"""JAX: the step is one jitted function; weights and what the optimizer keeps are donated."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.steps.row import Arrays, Row

B1, B2, EPS, DECAY = 0.9, 0.999, 1e-8, 0.01


class Runner:
    """A row, ready to run."""

    def __init__(self, row: Row, threads: int = 2) -> None:
        self.row = row
        self.data = {n: jnp.array(a) for n, a in row.draw().data.items()}
        self.step = jax.jit(_step(row), donate_argnums=0)
        self.restart()

    def restart(self) -> None:
        """Back to the weights of the start."""
        drawn = self.row.draw()
        params = {n: jnp.array(a) for n, a in drawn.params.items()}
        if self.row.whole:
            self.state: Any = params
            return
        buffers = {n: jnp.array(a) for n, a in drawn.buffers.items()}
        self.state = (params, _kept(self.row, params), buffers)

    def run(self, lr: float) -> Any:
        """One step, to its end."""
        if self.row.whole:
            self.state, value = self.step(self.state, self.data)
        else:
            self.state, value = self.step(self.state, self.data, lr)
        return jax.block_until_ready((self.state, value))[1]

    def found(self, lr: float) -> Arrays:
        """What the first step says: gradients, or the state."""
        state = jax.tree.map(np.asarray, self.state)
        if self.row.whole:
            return state
        if self.row.optimizer == "adamw":
            return {n: m / (1 - B1) for n, m in state[1]["mean"].items()}
        start = self.row.draw().params
        return {n: (start[n] - w) / lr for n, w in state[0].items()}


def _kept(row: Row, params: Any) -> Any:
    if row.optimizer != "adamw":
        return {}
    mean, square = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
    return {"count": jnp.zeros((), jnp.int32), "mean": mean, "square": square}


def _update(params: Any, grads: Any, kept: Any, lr: Any) -> Any:
    if not kept:
        return jax.tree.map(lambda p, g: p - lr * g, params, grads), kept
    return adamw(params, grads, kept, lr)


def adamw(params: Any, grads: Any, kept: Any, lr: Any) -> Any:
    """AdamW on trees."""
    count = kept["count"] + 1
    mean = jax.tree.map(lambda m, g: B1 * m + (1 - B1) * g, kept["mean"], grads)
    square = jax.tree.map(lambda s, g: B2 * s + (1 - B2) * g * g, kept["square"], grads)
    first, second = 1 - B1**count, 1 - B2**count

    def moved(p: Any, m: Any, s: Any) -> Any:
        return p * (1 - lr * DECAY) - lr * (m / first) / (jnp.sqrt(s / second) + EPS)

    new = jax.tree.map(moved, params, mean, square)
    return new, {"count": count, "mean": mean, "square": square}


def _step(row: Row) -> Any:
    loss = row.jax(jax)
    if row.whole:
        return loss

    def plain(params: Any, data: Any, buffers: Any) -> Any:
        return loss(params, data, buffers) if buffers else (loss(params, data), buffers)

    def step(state: Any, data: Any, lr: Any) -> Any:
        params, kept, buffers = state
        both = jax.value_and_grad(plain, has_aux=True)
        (value, buffers), grads = both(params, data, buffers)
        params, kept = _update(params, grads, kept, lr)
        return (params, kept, buffers), value

    return step
