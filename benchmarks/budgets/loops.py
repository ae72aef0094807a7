"""A long recurrence, backwards in few bytes: in a process of its own, on one thread.

python -m benchmarks.budgets.loops 100000
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tracemalloc
from contextvars import Context
from typing import Any

STATE = 1 << 14  # numbers of a state: 64 KiB
BUDGET = 16 << 20
STEPS, TRACED = 100_000, 2_000
SHORT = (50, 240)  # lengths of which all carries fit
PAUSES, APART = 200, 500  # of the long gradient, for short ones to run; steps between two
# Of time. The derivative of a step is near one: numbers that vanish become slow on their way,
# and short loops have a larger part of such steps than long ones.
SMALL = 1e-5
PATIENCE = 1_800.0
# The C library keeps what is freed. Otherwise the short runs, and they alone, take their pages
# anew from the system at each step: the sum of steps is too large then, the ratio too good.
KEPT = {"MALLOC_TRIM_THRESHOLD_": str(1 << 28), "MALLOC_TOP_PAD_": str(1 << 25)}


class Loop:
    """The recurrence: its value and its gradient."""

    def __init__(self) -> None:
        import retrograd as rg

        rg.set_threads(1)
        self.rg = rg
        self.w, self.h = rg.full((STATE,), 0.5), rg.full((STATE,), 0.1)

    def last(self, steps: int, budget: int | None = None, *given: Any) -> Any:
        """The sum of the last state."""
        rg = self.rg
        w, h = given or (self.w, self.h)
        f = lambda h, _: (h + SMALL * rg.tanh(h * w), None)  # noqa: E731
        return rg.sum(rg.scan(f, h, length=steps, budget=budget)[0])

    def back(self, steps: int, budget: int | None = BUDGET) -> Any:
        """Its gradient."""
        return self.rg.grad(lambda *given: self.last(steps, budget, *given), (0, 1))(
            self.w, self.h
        )

    def traced(self) -> int:
        """Bytes of arrays and of Python's objects at most, in a gradient."""
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        self.back(TRACED)
        found = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        return found

    def counted(self, steps: int) -> tuple[int, int]:
        """How many steps forwards a gradient is seen to take, and how many carries fit."""
        from retrograd.control import revolve

        seen, slots = steps, 0
        told = revolve.Reversal.advance

        def advance(self: Any, start: int, end: int) -> None:
            nonlocal seen, slots
            seen += end - start
            slots = revolve.slots(self.scan)
            told(self, start, end)

        revolve.Reversal.advance = advance  # type: ignore[method-assign]
        try:
            self.back(steps)
        finally:
            revolve.Reversal.advance = told  # type: ignore[method-assign]
        return seen, slots


class Race:
    """A long gradient that stops now and then, and short loops in its pauses.

    All are times of the processor, and means: whatever else the machine does, it does to the
    long one and to the short ones alike.
    """

    def __init__(self, loop: Loop, steps: int) -> None:
        self.loop, self.steps = loop, steps
        self.every = max(min(steps, APART), steps // PAUSES)
        self.count = self.pauses = 0
        self.spent = self.seconds = 0.0
        self.times = {(kind, n): 0.0 for kind in ("forward", "back") for n in SHORT}

    def run(self) -> None:
        """The gradient, and all of its pauses."""
        from retrograd.control import revolve

        told, racing = revolve.Reversal.pull, [True]

        def pull(this: Any, position: int) -> None:
            self.count += racing[0]
            if racing[0] and self.count % self.every == 0:
                racing[0] = False
                start, wall = time.process_time(), time.perf_counter()
                Context().run(self.pause)  # outside of the gradient that is under way
                self.spent += time.process_time() - start
                self.seconds -= time.perf_counter() - wall
                racing[0] = True
            told(this, position)

        revolve.Reversal.pull = pull  # type: ignore[method-assign]
        start, wall = time.process_time(), time.perf_counter()
        try:
            self.loop.back(self.steps)
        finally:
            revolve.Reversal.pull = told  # type: ignore[method-assign]
        self.spent = time.process_time() - start - self.spent
        self.seconds += time.perf_counter() - wall

    def pause(self) -> None:
        """Each short loop once."""
        self.pauses += 1
        for kind, n in self.times:
            work = self.loop.last if kind == "forward" else self.loop.back
            start = time.process_time()
            work(n)
            self.times[kind, n] += time.process_time() - start

    def step(self, kind: str) -> float:
        """Seconds of a step: between two lengths, as what a call costs is not a step's."""
        few, many = (self.times[kind, n] / self.pauses for n in SHORT)
        return (many - few) / (SHORT[1] - SHORT[0])


def one(steps: int) -> dict[str, Any]:
    """Differentiate, and say what it took."""
    from benchmarks.steps.worker import peak, status, trimmed
    from retrograd.memory.revolve import advances

    loop = Loop()
    for n in SHORT:  # all kernels and schedules are there
        loop.last(n)
        loop.back(n)
    loop.counted(TRACED)  # what only the first such call takes
    traced = loop.traced()
    trimmed()
    base, seen = status("VmRSS"), []
    most = peak(lambda: seen.append(loop.counted(steps)))
    ran, slots = seen[0]
    race = Race(loop, steps)
    race.run()
    fewest = advances(steps, slots) + 1  # and the last of all
    forward = race.step("forward")
    backward = race.step("back") - forward
    return {
        "steps": steps,
        "traced": traced,
        "process": most - base,
        "ran": ran,
        "slots": slots,
        "fewest": fewest,
        "forward": forward,
        "backward": backward,
        "took": race.spent,
        "wall": race.seconds,
        "ideal": fewest * forward + steps * backward,
    }


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
        f"traced at most, MiB, {TRACED:,} steps": f"{f['traced'] / 2**20:.2f}",
        "process at most, MiB": f"{f['process']:.2f}",
        "forward steps / fewest": f"{f['ran']:,} / {f['fewest']:,}",
        "µs forward, backward": f"{f['forward'] * 1e6:.1f}, {f['backward'] * 1e6:.1f}",
        "s": f"{f['took']:.1f}",
        "times the sum of its steps": f"{f['took'] / f['ideal']:.2f}",
    }
    print("  ", *row.values(), flush=True)
    return [row]


if __name__ == "__main__":
    print(json.dumps(one(int(sys.argv[1]))))
