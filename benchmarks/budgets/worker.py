"""One model with one setting of one library, in a process of its own, told by lines.

    python -m benchmarks.budgets.worker eager '{"model": "mlp", "segments": 8}'

Memory is what the process holds at most during steps, beyond what it holds when a step has run
and everything is freed again that is neither weights nor data.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np

from benchmarks.budgets.models import model
from benchmarks.steps.worker import CHECKED, THREADS, digest, peak, status, trimmed

MB, RESTS = 2**20, 3


def _ours(setting: dict[str, Any]) -> Any:
    import retrograd as rg
    from benchmarks.steps import ours

    made = ours.Runner(_model(setting).row(), THREADS)
    budget = setting.get("budget")
    made.step = rg.jit(made.step.function, donate=("state",), budget=budget)
    return made


def _jax(setting: dict[str, Any]) -> Any:
    from benchmarks.steps import jaxes

    return jaxes.Runner(_model(setting).row(policy=setting.get("policy", "")), THREADS)


def _pytorch(setting: dict[str, Any], *, compiled: bool, wide: bool) -> Any:
    from benchmarks.steps import pytorch

    if "share" in setting:
        from torch._functorch import config

        config.activation_memory_budget = setting["share"]
    row = _model(setting).row(segments=setting.get("segments", 0))
    return pytorch.Runner(row, THREADS, compiled=compiled, wide=wide)


def _model(setting: dict[str, Any]) -> Any:
    return model(setting["model"], small=setting.get("small", False))


class Worker:
    """Answers of one process."""

    def __init__(self, peer: str, setting: dict[str, Any]) -> None:
        self.peer, self.setting = peer, setting
        if peer == "ours":
            self.made = _ours(setting)
        elif peer == "jax":
            self.made = _jax(setting)
        else:
            self.made = _pytorch(setting, compiled=peer == "compile", wide=peer == "reference")
        self.lr = self.made.row.lr
        self.base = float("inf")  # MB at rest, the least that was seen

    def first(self, into: str) -> dict[str, Any]:
        """The first call, and what it computed."""
        start = time.perf_counter()
        value = self.made.run(CHECKED)
        took = time.perf_counter() - start
        loss = float(np.asarray(value if not hasattr(value, "detach") else value.detach()))
        digest(self.made.found(CHECKED), into)
        self.made.restart()
        return {"first": took, "loss": loss}

    def rest(self) -> dict[str, Any]:
        """Free what is neither weights nor data; MB that are left, at the least."""
        if self.peer == "ours":
            from retrograd.jit import eager_memory

            eager_memory.clear()
            for program in self.made.step.programs.values():
                for arenas in program.execute.arenas.values():
                    arenas.clear()
        elif self.peer != "jax":
            self.made.optimizer.zero_grad(set_to_none=True)
        for _ in range(RESTS):  # threads of a library may still be letting go
            trimmed()
            self.base = min(self.base, status("VmRSS"))
            time.sleep(0.01)
        return {"base": self.base}

    def memory(self) -> dict[str, Any]:
        """MB during two steps, beyond those of a process at rest; and the time of the best.

        It does not rest afterwards: steps that find their pages gone take longer, the more
        memory they use, and times of large and small settings could not be compared.
        """
        for _ in range(2):
            self.made.run(self.lr)
            self.rest()
        self.made.run(self.lr)
        took = []

        def steps() -> None:
            for _ in range(2):
                start = time.perf_counter()
                self.made.run(self.lr)
                took.append(time.perf_counter() - start)

        most = peak(steps)
        found = {"base": self.base, "peak": most - self.base, "best": min(took)}
        if self.peer == "ours":
            (program,) = self.made.step.programs.values()
            found["taken"] = program.program.taken(THREADS) / MB
        return found

    def steps(self, seconds: float) -> dict[str, Any]:
        """Step after step for so long; the best of them."""
        clock, best, count = time.perf_counter, float("inf"), 0
        begin = clock()
        while count < 1 or clock() - begin < seconds:
            start = clock()
            self.made.run(self.lr)
            best, count = min(best, clock() - start), count + 1
        return {"best": best}

    def plan(self) -> dict[str, Any]:
        """Ours: the plans there are, and what they are predicted to take."""
        import retrograd as rg

        start = time.perf_counter()
        found = rg.plan(self.made.step, *self.made.arguments(self.lr))
        return {
            "took": time.perf_counter() - start,
            "minimum": found.minimum,
            "bound": found.bound,
            "curve": [(p.nbytes, p.seconds, p.again) for p in found.curve],
        }


def main() -> None:
    """Serve."""
    peer, setting = sys.argv[1], json.loads(sys.argv[2])
    os.environ.setdefault("OMP_NUM_THREADS", str(THREADS))
    worker = Worker(peer, setting)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        what, *rest = json.loads(line)
        print(json.dumps(getattr(worker, what)(*rest)), flush=True)


if __name__ == "__main__":
    main()
