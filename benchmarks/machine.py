"""What the numbers were measured on."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np

from retrograd.jit.llvm.machine import NARROW, SLOWED, chosen


def machine() -> dict[str, str]:
    """The CPU and the versions of all that was measured."""
    import jax
    import torch

    return {
        "processor": processor(),
        "core": chosen().cpu,
        "vectors": chosen().name,
        "threads": "2",
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "jax": jax.__version__,
    }


def kind(processor: str, core: str, vectors: str) -> str:
    """Of a CPU: who made it, if its core is narrow or slowed, its vectors: "AMD avx512"."""
    maker = processor.replace("(", " ").partition(" ")[0]
    how = "narrow " if core in NARROW else "slowed " if core in SLOWED else ""
    return f"{maker} {how}{vectors}"


def processor() -> str:
    """The name of this machine's CPU."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
