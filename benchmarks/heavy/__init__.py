"""Heavy ops, forward and backward, eager against PyTorch eager, two threads each.

Each row: results and gradients by all inputs of an op or a function, float32. They are first
checked to agree; then both take turns of some calls each, in several sweeps over all rows,
since a shared machine is fast for some seconds and slow for others; the best of each counts.
In turns of one call each, threads that spin after the call of one library take a core from the
other: both were up to twice as slow, now one more and now the other.
"""

from __future__ import annotations

from typing import Any

from benchmarks.heavy import (
    algebra,
    arrays,
    convolutions,
    distances,
    images,
    layers,
    sequences,
    ssm,
)
from benchmarks.heavy.case import run

FAMILIES = (arrays, layers, convolutions, images, sequences, ssm, algebra, distances)
SLOW = 1.2  # above this ratio the reason stands beside it
SWEEPS = 3


def measure(only: str = "", sweeps: int = SWEEPS) -> list[dict[str, Any]]:
    """One row for each case whose name holds `only`: milliseconds, ratio, and the reason."""
    import torch

    torch.set_num_threads(2)
    best: dict[str, dict[str, float]] = {}
    why: dict[str, str] = {}
    for _ in range(sweeps):
        for family in FAMILIES:
            for case in (c for c in family.cases() if only in c.name):
                found, before = run(case), best.get(case.name, {})
                best[case.name] = {n: min(t, before.get(n, t)) for n, t in found.items()}
                why[case.name] = family.REASONS[case.kind]
                print(case.name, best[case.name], flush=True)
    return [_row(name, why[name], **took) for name, took in best.items()]


def _row(name: str, why: str, ours: float, torch: float) -> dict[str, Any]:
    ratio = ours / torch
    return {
        "op": name,
        "ms": round(ours * 1e3, 2),
        "PyTorch ms": round(torch * 1e3, 2),
        "ratio": round(ratio, 2),
        "why above 1.2": why if ratio > SLOW else "",
    }
