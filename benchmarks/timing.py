"""Interleaved timing: everybody takes turns, the best of many rounds counts."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def interleaved(
    runs: dict[str, Callable[[], object]], *, rounds: int = 200, warmup: int = 5
) -> dict[str, float]:
    """The best time in seconds of each run, taken in turns so that noise hits all alike."""
    for run in runs.values():
        for _ in range(warmup):
            run()
    best = dict.fromkeys(runs, float("inf"))
    gc.collect()
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best
