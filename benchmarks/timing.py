"""Interleaved timing: everybody takes turns, the best of many rounds counts."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def interleaved(
    runs: dict[str, Callable[[], object]], *, rounds: int = 200, warmup: int = 5, calls: int = 1
) -> dict[str, float]:
    """The best time in seconds of each run, taken in turns so that noise hits all alike.

    Where `calls` are several, a turn is one that is not timed and so many that are. Threads
    spin when their work is done: those of a library that was called just now would take a core
    from the one that is timed.
    """
    for run in runs.values():
        for _ in range(warmup):
            run()
    best = dict.fromkeys(runs, float("inf"))
    gc.collect()
    for _ in range(rounds):
        for name, run in runs.items():
            if calls > 1:
                run()
            for _ in range(calls):
                start = time.perf_counter()
                run()
                best[name] = min(best[name], time.perf_counter() - start)
    return best
