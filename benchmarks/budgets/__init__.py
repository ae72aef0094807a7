"""Memory against time: training steps within budgets, and how peers save memory.

Peaks are of the process: the most it held during steps, beyond what it held at rest with
weights and data. For each point of a peer, ours is the plan that a budget of the peer's peak
takes; `faster` says how many times. torch.compile is run with several of its memory budgets,
which are shares of what the activations take.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "results" / "budgets"
ORDER = ("mlp", "transformer", "cnn", "mamba3")


def raced() -> list[dict[str, Any]]:
    """What was found of each model, in this run or before."""
    paths = [RESULTS / f"{key}.json" for key in ORDER]
    return [json.loads(p.read_text(encoding="utf-8")) for p in paths if p.exists()]


def measure(
    *,
    models: Any = ORDER,
    small: bool = False,
    full: bool = False,
    compiled: bool = True,
    steps: int | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """All tables; points are written as they are found."""
    from benchmarks.budgets import eager, loops, tables
    from benchmarks.budgets.race import race
    from benchmarks.machine import processor

    RESULTS.mkdir(parents=True, exist_ok=True)
    for key in models:
        found = race(key, small=small, full=full, compiled=compiled)
        found["processor"] = processor()
        text = json.dumps(found, indent=1) + "\n"
        (RESULTS / f"{key}.json").write_text(text, encoding="utf-8")
        for row in tables.against(found):
            print("  ", *row.values(), flush=True)
        print("  ", *tables.promises([found])[0].values(), f"({found['seconds']} s)")
    every = raced()
    made = {_title(f): tables.against(f) for f in every}
    made |= {"what plans say": tables.promises(every)}
    made |= {"the smallest budgets": tables.smallest(every)}
    if missed := tables.misses(every):
        made["what misses"] = missed
    made["a long recurrence"] = loops.measure(steps or (loops.STEPS if not small else 2_000))
    made["eager code"] = eager.measure()
    return made


def _title(found: dict[str, Any]) -> str:
    """The model, and what it was measured on."""
    return f"{found['name']} ({found['processor']})"
