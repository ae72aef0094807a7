"""A long recurrence, backwards in few bytes: in a process of its own.

python -m benchmarks.budgets.loops 100000
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tracemalloc
from typing import Any

STATE = 1 << 14  # numbers of a state: 64 KiB
BUDGET = 16 << 20
STEPS, TRACED = 100_000, 2_000
SHORT, TIMES = (50, 250), 15  # lengths of which all carries fit, and how often each runs
PATIENCE = 1_800.0
# The C library keeps what is freed. Otherwise the short runs, and they alone, take their pages
# anew from the system at each step: the sum of steps is too large then, the ratio too good.
KEPT = {"MALLOC_TRIM_THRESHOLD_": str(1 << 28), "MALLOC_TOP_PAD_": str(1 << 25)}


def _last(rg: Any, w: Any, h: Any, steps: int, budget: int | None) -> Any:
    """The sum of the last state."""
    h, _ = rg.scan(lambda h, _: (rg.tanh(h * w) + w, None), h, length=steps, budget=budget)
    return rg.sum(h)


def _best(work: Any, times: int) -> float:
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def one(steps: int) -> dict[str, Any]:
    """Differentiate; forward and backward steps are timed around it, where all carries fit."""
    import retrograd as rg
    from benchmarks.steps.worker import peak, status, trimmed
    from retrograd.memory.revolve import advances

    rg.set_threads(2)
    w, h = rg.full((STATE,), 0.5), rg.full((STATE,), 0.1)

    def back(n: int, budget: int | None) -> Any:
        return rg.grad(lambda w, h: _last(rg, w, h, n, budget), (0, 1))(w, h)

    def short() -> tuple[float, float]:
        # between two lengths: what a call costs once is not a step's
        def slope(work: Any) -> float:
            few, many = (_best(lambda n=n: work(n), TIMES) for n in SHORT)
            return (many - few) / (SHORT[1] - SHORT[0])

        forward = slope(lambda n: _last(rg, w, h, n, None))
        return forward, slope(lambda n: back(n, BUDGET)) - forward

    def fewest(n: int) -> int:
        return advances(n, slots) + 1  # and the last step of all

    forward, backward = short()  # and all kernels are there
    ran, slots = _counted(back, TRACED)  # and schedules
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    back(TRACED, BUDGET)
    traced = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    trimmed()
    base, took = status("VmRSS"), []
    most = peak(lambda: took.append(_best(lambda: back(steps, BUDGET), 1)))
    forward, backward = (min(p) for p in zip((forward, backward), short(), strict=True))
    runs = fewest(steps)
    return {
        "steps": steps,
        "traced": traced,
        "process": most - base,
        "ran": ran,
        "slots": slots,
        "fewest": fewest(TRACED),
        "runs": runs,
        "forward": forward,
        "backward": backward,
        "took": took[0],
        "ideal": runs * forward + steps * backward,
    }


def _counted(back: Any, steps: int) -> tuple[int, int]:
    """How many steps forwards a gradient was seen to take, and how many carries fit."""
    from retrograd.control import revolve

    seen, slots = [], [0]
    told = revolve.Reversal.advance

    def advance(self: Any, start: int, end: int) -> None:
        seen.append(end - start)
        slots[0] = revolve.slots(self.scan)
        told(self, start, end)

    revolve.Reversal.advance = advance  # type: ignore[method-assign]
    try:
        back(steps, BUDGET)
    finally:
        revolve.Reversal.advance = told  # type: ignore[method-assign]
    return steps + sum(seen), slots[0]


def measure(steps: int = STEPS) -> list[dict[str, Any]]:
    """The table."""
    command = [sys.executable, "-m", "benchmarks.budgets.loops", str(steps)]
    done = subprocess.run(
        command,
        env={**os.environ, **KEPT},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-400:])
    f = json.loads(done.stdout)
    row = {
        "steps of 64 KiB": f"{f['steps']:,}",
        "budget, MiB": BUDGET >> 20,
        "carries that fit": f["slots"] + 1,
        f"traced at most, MiB, {TRACED:,} steps": f"{f['traced'] / 2**20:.1f}",
        "process at most, MB": f"{f['process']:.1f}",
        f"forward steps / fewest, {TRACED:,} steps": f"{f['ran']:,} / {f['fewest']:,}",
        "forward steps": f"{f['runs']:,}",
        "µs forward, backward": f"{f['forward'] * 1e6:.1f}, {f['backward'] * 1e6:.1f}",
        "s": f"{f['took']:.1f}",
        "times the sum of its steps": f"{f['took'] / f['ideal']:.2f}",
    }
    print("  ", *row.values(), flush=True)
    return [row]


if __name__ == "__main__":
    print(json.dumps(one(int(sys.argv[1]))))
