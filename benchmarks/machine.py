"""What the numbers were measured on."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import numpy as np

from retrograd.jit.llvm.machine import NARROW, SLOWED, chosen

HERE = Path(__file__).parent
WIDE = ["znver5"]  # cores that do two multiply-adds of whole lines in a cycle


def machine() -> dict[str, str]:
    """The CPU, the versions of all that was measured, and what is measured."""
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
        "code": code(),
    }


def code() -> str:
    """The commit that is measured; "dirty" where files differ from it."""
    asked = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        said = subprocess.run(asked, cwd=HERE, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.stdout.strip()


def kind(processor: str, core: str, vectors: str) -> str:
    """Of a CPU: who made it, what is said of its core, its vectors: "AMD wide avx512"."""
    maker = processor.replace("(", " ").partition(" ")[0]
    kinds = {"narrow ": NARROW, "slowed ": SLOWED, "wide ": WIDE}
    how = next((how for how, cores in kinds.items() if core in cores), "")
    return f"{maker} {how}{vectors}"


def processor() -> str:
    """The name of this machine's CPU."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
