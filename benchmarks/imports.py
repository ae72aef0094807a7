"""`import retrograd`, in fresh processes that take turns with the peers' imports."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

ROUNDS = 9
CODE = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def seconds(module: str) -> float:
    """One import in a fresh process, as that process measures it."""
    command = [sys.executable, "-c", CODE.format(module)]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # compiled files count, as for peers
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    return float(done.stdout)


def measure() -> list[dict[str, Any]]:
    """The best of several turns; NumPy is part of every import."""
    modules = ["numpy", "retrograd", "torch", "jax"]
    best = {m: seconds(m) for m in modules}
    for _ in range(ROUNDS):
        for m in modules:
            best[m] = min(best[m], seconds(m))
    return [{"what": f"import {m}", "s": round(t, 3)} for m, t in best.items()]
