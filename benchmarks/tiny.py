"""300 tiny ops on 8 numbers, forward and backward: the cost of the engine itself.

100 times y = tanh(y * x + x), then the gradient of sum(y) with respect to x.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import retrograd as rg
from benchmarks.timing import interleaved

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 100
START = np.linspace(-0.9, 0.9, 8, dtype=np.float32)


def ours_tape() -> Callable[[], Any]:
    """The tape face."""
    x, seed = rg.tensor(START, requires_grad=True), rg.ones(8)
    tanh = rg.tanh

    def run() -> Any:
        y = x
        for _ in range(STEPS):
            y = tanh(y * x + x)
        y.backward(seed, accumulate=False)
        return x.grad

    return run


def ours_functional() -> Callable[[], Any]:
    """The functional face."""
    x, tanh = rg.asarray(START), rg.tanh

    def loss(x: Any) -> Any:
        y = x
        for _ in range(STEPS):
            y = tanh(y * x + x)
        return rg.sum(y)

    gradient = rg.grad(loss)
    return lambda: gradient(x)


def torch_eager() -> Callable[[], Any]:
    """PyTorch eager, one thread: 8 numbers have no work to share."""
    import torch

    torch.set_num_threads(1)
    x, seed = torch.tensor(START, requires_grad=True), torch.ones(8)
    tanh = torch.tanh

    def run() -> Any:
        y = x
        for _ in range(STEPS):
            y = tanh(y * x + x)
        x.grad = None
        y.backward(seed)
        return x.grad

    return run


def measure() -> list[dict[str, Any]]:
    """One row for each contender, relative to PyTorch eager."""
    runs = {
        "retrograd, tape": ours_tape(),
        "PyTorch eager": torch_eager(),
        "retrograd, functional": ours_functional(),
    }
    found = [np.asarray(run()) for run in runs.values()]
    for other in found[1:]:
        np.testing.assert_allclose(found[0], other, rtol=1e-5)
    best = interleaved(runs, rounds=600)
    peer = best["PyTorch eager"]
    return [
        {"what": name, "µs": round(t * 1e6, 1), "of PyTorch": round(t / peer, 3)}
        for name, t in best.items()
    ]


if __name__ == "__main__":
    for row in measure():
        print(row)
