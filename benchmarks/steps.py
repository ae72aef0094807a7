"""Training steps, compiled, against PyTorch eager and jax.jit: time, first call, warm cache.

Losses are first checked to agree. `first` is trace, compile and run with an empty cache on
disk; `warm` the same in another process that finds the objects there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.timing import interleaved

DIGITS = 2e-3  # of the loss: float32, three orders of summing


def _data(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [(rng.normal(size=s) / max(s[0], 1) ** 0.5).astype(np.float32) for s in shapes]


def _labels(n: int, classes: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, classes, n)


def mlp(sizes: tuple[int, ...], batch: int) -> dict[str, Any]:
    """Linear layers with gelu, cross entropy, SGD."""
    weights = _data(*pairwise(sizes))
    (x,) = _data((batch, sizes[0]))
    return {
        "kind": "mlp",
        "weights": weights,
        "x": x * batch**0.5,
        "y": _labels(batch, sizes[-1]),
    }


CASES = {
    "MLP 3x128, batch 64": lambda: mlp((128, 128, 128, 16), 64),
    "MLP 4x2048, batch 256": lambda: mlp((2048, 2048, 2048, 2048, 16), 256),
    "layer norm + softmax, 8192 x 1024": lambda: {
        "kind": "rows",
        "weights": _data((1024,), (1024,)),
        "x": _data((8192, 1024))[0] * 90,
    },
    "CNN 3-32-64-128, batch 64": lambda: {
        "kind": "cnn",
        "weights": [
            w * s
            for w, s in zip(
                _data((3, 3, 3, 32), (3, 3, 32, 64), (3, 3, 64, 128), (128, 10)),
                (0.3, 0.1, 0.07, 1),
                strict=True,
            )
        ],
        "x": _data((64, 32, 32, 3))[0] * 8,
        "y": _labels(64, 10),
    },
}


def ours(case: dict[str, Any]) -> Any:
    """A compiled step, and its state."""
    import retrograd as rg

    def loss(weights: Any, x: Any, y: Any) -> Any:
        return _loss(case["kind"], _Ours(rg), weights, x, y)

    def step(weights: Any, x: Any, y: Any, lr: float) -> Any:
        value, grads = rg.value_and_grad(loss)(weights, x, y)
        return [w - lr * g for w, g in zip(weights, grads, strict=True)], value

    compiled = rg.jit(step, donate=("weights",))
    state = [[rg.asarray(w.copy()) for w in case["weights"]]]
    x = rg.asarray(case["x"])
    y = rg.asarray(case["y"]) if "y" in case else None

    def run() -> float:
        state[0], value = compiled(state[0], x, y, 1e-3)
        return value

    return run


def torchs(case: dict[str, Any]) -> Any:
    """A step of PyTorch eager with a fused update."""
    import torch

    weights = [torch.tensor(w, requires_grad=True) for w in case["weights"]]
    x = torch.tensor(case["x"])
    y = torch.tensor(case["y"]) if "y" in case else None
    optimizer = torch.optim.SGD(weights, lr=1e-3, fused=True)

    def run() -> Any:
        optimizer.zero_grad(set_to_none=True)
        value = _loss(case["kind"], _Torch(torch), weights, x, y)
        value.backward()
        optimizer.step()
        return value.detach()

    return run


def jaxs(case: dict[str, Any]) -> Any:
    """A step of jax.jit with donated weights."""
    import jax
    import jax.numpy as jnp

    def step(weights: Any, x: Any, y: Any) -> Any:
        value, grads = jax.value_and_grad(lambda w: _loss(case["kind"], _Jax(jax), w, x, y))(
            weights
        )
        return [w - 1e-3 * g for w, g in zip(weights, grads, strict=True)], value

    compiled = jax.jit(step, donate_argnums=0)
    state = [[jnp.asarray(w) for w in case["weights"]]]
    x = jnp.asarray(case["x"])
    y = jnp.asarray(case["y"]) if "y" in case else None

    def run() -> Any:
        state[0], value = compiled(state[0], x, y)
        return value.block_until_ready()

    return run


class _Ours:
    def __init__(self, rg: Any) -> None:
        nn = rg.nn
        self.gelu, self.relu, self.cross_entropy = nn.gelu, nn.relu, nn.cross_entropy
        self.rows = lambda x, w, b: rg.mean(nn.softmax(nn.layer_norm(x, w, b)) ** 2)
        self.conv = lambda x, w, s: nn.conv(x, w, stride=s, padding=1)
        self.pool = lambda x: rg.mean(x, axis=(1, 2))
        self.image = lambda x: x


class _Torch:
    def __init__(self, torch: Any) -> None:
        f = torch.nn.functional
        self.gelu, self.relu, self.cross_entropy = f.gelu, f.relu, f.cross_entropy
        self.rows = lambda x, w, b: (
            f.softmax(f.layer_norm(x, (x.shape[-1],), w, b), -1).square().mean()
        )
        self.conv = lambda x, w, s: f.conv2d(x, w.permute(3, 2, 0, 1), stride=s, padding=1)
        self.pool = lambda x: x.mean((2, 3))
        self.image = lambda x: x.permute(0, 3, 1, 2)


class _Jax:
    def __init__(self, jax: Any) -> None:
        jnp, nn = jax.numpy, jax.nn

        def rows(x: Any, w: Any, b: Any) -> Any:
            mean, var = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
            return jnp.mean(nn.softmax((x - mean) / jnp.sqrt(var + 1e-5) * w + b) ** 2)

        self.gelu, self.relu, self.rows = lambda x: nn.gelu(x, approximate=False), nn.relu, rows
        self.cross_entropy = lambda x, y: (
            -jnp.mean(jnp.take_along_axis(nn.log_softmax(x), y[:, None], 1))
        )
        self.conv = lambda x, w, s: jax.lax.conv_general_dilated(
            x, w, (s, s), [(1, 1)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        self.pool = lambda x: jnp.mean(x, (1, 2))
        self.image = lambda x: x


def _loss(kind: str, f: Any, weights: Any, x: Any, y: Any) -> Any:
    """The same program for all three."""
    if kind == "rows":
        return f.rows(x, *weights)
    if kind == "cnn":
        h = f.image(x)
        for w, stride in zip(weights[:-1], (1, 2, 2), strict=True):
            h = f.relu(f.conv(h, w, stride))
        return f.cross_entropy(f.pool(h) @ weights[-1], y)
    for w in weights[:-1]:
        x = f.gelu(x @ w)
    return f.cross_entropy(x @ weights[-1], y)


def _first(name: str, cache: str) -> float:
    """Seconds of the first call in a fresh process."""
    code = f"import benchmarks.steps as s; s.report({name!r})"
    made = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "RETROGRAD_CACHE": cache},
        capture_output=True,
        check=True,
        text=True,
    )
    return json.loads(made.stdout)


def report(name: str) -> None:
    """Print how long the first call takes here."""
    run = ours(CASES[name]())
    start = time.perf_counter()
    run()
    print(json.dumps(time.perf_counter() - start))


def measure() -> list[dict[str, Any]]:
    """One row for each step."""
    import torch

    torch.set_num_threads(2)
    rows = []
    for name, make in CASES.items():
        case = make()
        runs = {"ours": ours(case), "torch": torchs(case), "jax": jaxs(case)}
        losses = [float(run()) for run in runs.values()]
        if max(losses) - min(losses) > DIGITS * abs(losses[0]):
            raise AssertionError(f"{name}: losses differ: {losses}")
        best = interleaved(runs, rounds=40, warmup=3)
        with tempfile.TemporaryDirectory() as cache:
            first, warm = (_first(name, cache) for _ in range(2))
        rows.append(
            {
                "step": name,
                "ms": round(best["ours"] * 1e3, 3),
                "PyTorch eager": round(best["torch"] * 1e3, 3),
                "jax.jit": round(best["jax"] * 1e3, 3),
                "of the faster": round(best["ours"] / min(best["torch"], best["jax"]), 2),
                "first call, s": round(first, 2),
                "warm, s": round(warm, 2),
            }
        )
        print(rows[-1], flush=True)
    return rows
