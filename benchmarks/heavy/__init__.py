"""Heavy ops, forward and backward, eager against PyTorch eager, two threads each.

Each row: results and gradients by all inputs of an op or a function, float32. They are first
checked to agree; then both take turns, and the best of each counts.
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


def measure(only: str = "") -> list[dict[str, Any]]:
    """One row for each case whose name holds `only`: milliseconds, ratio, and the reason."""
    import torch

    torch.set_num_threads(2)
    rows = []
    for family in FAMILIES:
        for case in family.cases():
            if only not in case.name:
                continue
            why, best = family.REASONS[case.kind], run(case)
            ratio = best["ours"] / best["torch"]
            rows.append(
                {
                    "op": case.name,
                    "ms": round(best["ours"] * 1e3, 2),
                    "PyTorch ms": round(best["torch"] * 1e3, 2),
                    "ratio": round(ratio, 2),
                    "why above 1.2": why if ratio > SLOW else "",
                }
            )
            print(rows[-1], flush=True)
    return rows
