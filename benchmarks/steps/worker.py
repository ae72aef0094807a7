"""One row with one library, in a process of its own, told by lines what to do.

    python -m benchmarks.steps.worker ours a1

It builds the row, times the first call, and answers each line from the parent with a line of
JSON. Nothing runs between questions, so that others can be timed meanwhile.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import sys
import time
from typing import Any

import numpy as np

THREADS, LARGE, SAMPLE = 2, 200_000, 50_000
SLOW = 1.0  # seconds of a step that needs no warming up
CHECKED = 2.0**20  # the learning rate of the step that is checked: gradients survive rounding


def runner(peer: str, key: str) -> Any:
    """The row as this library runs it, and seconds of the import."""
    start = time.perf_counter()
    if peer == "ours":
        from benchmarks.steps import ours as library
    elif peer == "jax":
        from benchmarks.steps import jaxes as library
    else:
        from benchmarks.steps import pytorch as library
    imported = time.perf_counter() - start
    from benchmarks.steps.rows import ROWS

    more = {"compiled": peer == "compile", "wide": peer == "reference"}
    options = more if library.__name__.endswith("pytorch") else {}
    return library.Runner(ROWS[key], THREADS, **options), imported


def digest(found: dict[str, np.ndarray], into: str) -> None:
    """Write what was found; of large arrays a sample, the same for all, and sums."""
    kept = {}
    for name, a in found.items():
        a = np.asarray(a)
        if a.size > LARGE:
            kept[f"{name}:size"] = np.abs(a).sum(dtype=np.float64)
            kept[f"{name}:sum"] = a.sum(dtype=np.float64)
            a = a.ravel()[np.random.default_rng(a.size).integers(0, a.size, SAMPLE)]
        kept[name] = a
    np.savez(into, **kept)


def status(name: str) -> float:
    """A line of /proc/self/status, in MB."""
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def peak(work: Any) -> float:
    """The most memory that the process held during some work, in MB."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # the high-water mark starts again from here
    except OSError:
        pass
    work()
    return status("VmHWM")


def trimmed() -> None:
    """Hand what was freed back to the system."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return


class Worker:
    """Answers of one process."""

    def __init__(self, peer: str, key: str) -> None:
        self.made, self.imported = runner(peer, key)
        self.slow = False

    def first(self, into: str) -> dict[str, Any]:
        """The first call, and what it computed."""
        start = time.perf_counter()
        value = self.made.run(CHECKED)
        took = time.perf_counter() - start
        loss = float(np.asarray(value if not hasattr(value, "detach") else value.detach()))
        if into:
            digest(self.made.found(CHECKED), into)
        self.made.restart()
        trimmed()
        return {"first": took, "import": self.imported, "loss": loss}

    def memory(self, seconds: float) -> dict[str, Any]:
        """Peak memory of the steps of so long, at least two, after one other."""
        lr, clock = self.made.row.lr, time.perf_counter
        start = clock()
        self.made.run(lr)
        self.slow = clock() - start > SLOW

        def steps() -> None:
            count, begin = 0, clock()
            while count < 2 or clock() - begin < seconds:
                self.made.run(lr)
                count += 1

        return {"peak": peak(steps)}

    def steps(self, seconds: float) -> dict[str, Any]:
        """Step after step for so long, at least two; the best of them."""
        lr, run, clock = self.made.row.lr, self.made.run, time.perf_counter
        if not self.slow:
            run(lr)  # wakes threads and fills caches
        gc.disable()
        best, count, begin = float("inf"), 0, clock()
        while count < 1 or clock() - begin < seconds:
            start = clock()
            run(lr)
            best, count = min(best, clock() - start), count + 1
        gc.enable()
        return {"best": best, "count": count, "took": clock() - begin}


def main() -> None:
    """Serve."""
    peer, key = sys.argv[1:3]
    os.environ.setdefault("OMP_NUM_THREADS", str(THREADS))
    worker = Worker(peer, key)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        what, *rest = json.loads(line)
        print(json.dumps(getattr(worker, what)(*rest)), flush=True)


if __name__ == "__main__":
    main()
