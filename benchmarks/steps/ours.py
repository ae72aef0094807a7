"""retrograd: the step is one jitted function; weights and what optimizers keep are donated."""

from __future__ import annotations

from typing import Any

import retrograd as rg
from benchmarks.steps.row import Arrays, Row


class Runner:
    """A row, ready to run."""

    def __init__(self, row: Row, threads: int = 2) -> None:
        rg.set_threads(threads)
        self.row = row
        drawn = row.draw()
        self.data = _tensors(drawn.data)
        self.state = _start(row, drawn.params, drawn.buffers)
        self.step = rg.jit(_step(row), donate=("state",))

    def arguments(self, lr: float) -> tuple[Any, ...]:
        """What a step is called with."""
        return (self.state, self.data) if self.row.whole else (self.state, self.data, lr)

    def run(self, lr: float) -> Any:
        """One step."""
        self.state, value = self.step(*self.arguments(lr))
        return value

    def restart(self) -> None:
        """Back to the weights of the start."""
        drawn = self.row.draw()
        self.state = _start(self.row, drawn.params, drawn.buffers)

    def found(self, lr: float) -> Arrays:
        """What the first step says: gradients, or the state where the row has its own step."""
        state = rg.tree.map(lambda t: t.numpy(), self.state)
        if self.row.whole:
            return state
        if self.row.optimizer == "adamw":
            return {n: m / 0.1 for n, m in state["kept"]["mean"].items()}
        start = self.row.draw().params
        return {n: (start[n] - w) / lr for n, w in state["params"].items()}


def _tensors(arrays: Arrays) -> Any:
    return {n: rg.asarray(a) for n, a in arrays.items()}


def _optimizer(row: Row, lr: Any) -> Any:
    return rg.optim.AdamW(lr) if row.optimizer == "adamw" else rg.optim.SGD(lr)


def _start(row: Row, params: Arrays, buffers: Arrays) -> Any:
    made = _tensors(params)
    if row.whole:
        return made
    kept = _optimizer(row, row.lr).init(made)
    return {"params": made, "kept": kept, "buffers": _tensors(buffers)}


def _step(row: Row) -> Any:
    loss = row.ours(rg)
    if row.whole:

        def own(state: Any, data: Any) -> Any:
            return loss(state, data)

        return own

    def plain(params: Any, data: Any, buffers: Any) -> Any:
        return loss(params, data, buffers) if buffers else (loss(params, data), buffers)

    def step(state: Any, data: Any, lr: Any) -> Any:
        both = rg.value_and_grad(plain, has_aux=True)
        (value, buffers), grads = both(state["params"], data, state["buffers"])
        params, kept = _optimizer(row, lr).step(state["params"], grads, state["kept"])
        return {"params": params, "kept": kept, "buffers": buffers}, value

    return step
