"""(q) AdamW alone: 24 weights of 1024 x 1024, 25 million numbers; gradients are given."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.steps.row import Draw, Drawn, Row

MANY, SIDE, LR = 24, 1024, 1e-3


def _draw() -> Drawn:
    draw = Draw()
    params, data = {}, {}
    for i in range(MANY):
        params[f"p{i}"] = draw.normal(SIDE, SIDE)
        params[f"m{i}"] = np.zeros((SIDE, SIDE), np.float32)
        params[f"s{i}"] = np.zeros((SIDE, SIDE), np.float32)
        data[f"g{i}"] = draw.normal(SIDE, SIDE)
    params["count"] = np.zeros((), np.int64)
    return Drawn(params, data)


def _column(d: Any, letter: str) -> list[Any]:
    return [d[f"{letter}{i}"] for i in range(MANY)]


def ours(rg: Any) -> Any:
    """retrograd."""
    optimizer = rg.optim.AdamW(LR)

    def step(s: Any, d: Any) -> Any:
        kept = {"step": s["count"], "mean": _column(s, "m"), "square": _column(s, "s")}
        params, kept = optimizer.step(_column(s, "p"), _column(d, "g"), kept)
        new = {"count": kept["step"]}
        for i in range(MANY):
            new |= {f"p{i}": params[i], f"m{i}": kept["mean"][i], f"s{i}": kept["square"][i]}
        return new, kept["step"]

    return step


def pytorch(torch: Any) -> Any:
    """PyTorch: its fused AdamW; compiled, the formula: a loop for each weight."""
    kept: dict[int, Any] = {}

    def fused(s: Any, d: Any) -> Any:
        if id(s) not in kept:  # of the fused optimizer; it counts in float32
            kept.clear()
            kept[id(s)] = [torch.zeros(()) for _ in range(MANY)]
        columns = (_column(s, "p"), _column(d, "g"), _column(s, "m"), _column(s, "s"))
        counts = kept[id(s)]
        torch._foreach_add_(counts, 1)
        options = {"lr": LR, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8}
        options |= {"amsgrad": False, "maximize": False}
        torch._fused_adamw_(*columns, [], counts, **options)
        return s["count"].add_(1)

    def plain(s: Any, d: Any) -> Any:
        count = s["count"].add_(1).to(s["p0"].dtype)
        rate, root = LR / (1 - 0.9**count), torch.sqrt(1 - 0.999**count)
        for p, g, m, q in zip(*(_column(*c) for c in _order(s, d)), strict=True):
            m.lerp_(g, 0.1)
            q.mul_(0.999).addcmul_(g, g, value=0.001)
            p.mul_(1 - LR * 0.01).sub_(rate * m / (q.sqrt() / root + 1e-8))
        return s["count"]

    def step(s: Any, d: Any) -> Any:
        wide = s["p0"].dtype is torch.float64
        return plain(s, d) if wide or torch.compiler.is_compiling() else fused(s, d)

    return step


def _order(s: Any, d: Any) -> Any:
    return (s, "p"), (d, "g"), (s, "m"), (s, "s")


def jaxs(jax: Any) -> Any:
    """JAX."""
    from benchmarks.steps.jaxes import adamw

    def step(s: Any, d: Any) -> Any:
        kept = {"count": s["count"], "mean": _column(s, "m"), "square": _column(s, "s")}
        params, kept = adamw(_column(s, "p"), _column(d, "g"), kept, LR)
        new = {"count": kept["count"]}
        for i in range(MANY):
            new |= {f"p{i}": params[i], f"m{i}": kept["mean"][i], f"s{i}": kept["square"][i]}
        return new, kept["count"]

    return step


ROWS = [Row("q", "AdamW, 25M parameters", _draw, ours, pytorch, jaxs, whole=True)]
