"""(h) 20 elementwise ops on 4M numbers, and (i) 300 tiny ones on 8."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.steps.row import Draw, Drawn, Row

MANY, TINY, TURNS = 4_000_000, 8, 100


def _chain(f: Any) -> Any:
    """One program for all: only the names of functions differ."""

    def loss(p: Any, d: Any) -> Any:
        x = p["x"]
        y = f.sin(x) * x + 0.5  # 3
        y = f.tanh(y) * f.exp(-y * y)  # 8
        y = f.sqrt(y * y + 1.0) - 0.5 * x  # 13
        y = f.sigmoid(y) * f.log1p(f.abs(y))  # 17
        y = f.cos(y) * y  # 19
        return f.mean(y)  # 20

    return loss


def _tiny(f: Any) -> Any:
    def loss(p: Any, d: Any) -> Any:
        x = y = p["x"]
        for _ in range(TURNS):
            y = f.tanh(y * x + x)
        return f.sum(y)

    return loss


def _of_jax(jax: Any) -> Any:
    names = ("sin", "tanh", "exp", "sqrt", "log1p", "abs", "cos", "mean", "sum")
    functions = {n: getattr(jax.numpy, n) for n in names}
    return SimpleNamespace(**functions, sigmoid=jax.nn.sigmoid)


def _of_rg(rg: Any) -> Any:
    names = ("sin", "tanh", "exp", "sqrt", "log1p", "abs", "cos", "mean", "sum")
    return SimpleNamespace(**{n: getattr(rg, n) for n in names}, sigmoid=rg.nn.sigmoid)


def _row(key: str, name: str, draw: Any, program: Any) -> Row:
    return Row(
        key,
        name,
        draw,
        lambda rg: program(_of_rg(rg)),
        program,
        lambda jax: program(_of_jax(jax)),
    )


ROWS = [
    _row(
        "h",
        "20 elementwise ops, 4M numbers",
        lambda: Drawn({"x": Draw().normal(MANY)}, {}),
        _chain,
    ),
    _row(
        "i",
        "300 tiny ops, 8 numbers",
        lambda: Drawn({"x": np.linspace(-0.9, 0.9, TINY, dtype=np.float32)}, {}),
        _tiny,
    ),
]
