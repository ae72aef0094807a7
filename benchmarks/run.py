"""Run every subject and write the tables: `make bench`, or `python -m benchmarks.run`."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import heavy, imports, steps, tiny

HERE = Path(__file__).parent
SUBJECTS = (tiny, imports, steps, heavy)


def machine() -> dict[str, str]:
    """What the numbers were measured on."""
    import jax
    import torch

    return {
        "processor": _processor(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "jax": jax.__version__,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as Markdown."""
    heads = list(rows[0])
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(str(r[h]) for h in heads) + " |" for r in rows]
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and write results.md and results.json."""
    about = machine()
    found: dict[str, Any] = {"machine": about}
    text = ["# Results", "", ", ".join(f"{k} {v}" for k, v in about.items()), ""]
    for subject in SUBJECTS:
        name = subject.__name__.rsplit(".", 1)[-1]
        rows = subject.measure()
        found[name] = rows
        title = (subject.__doc__ or name).strip().splitlines()[0]
        text += [f"## {name}", "", title, "", table(rows), ""]
        print(table(rows), flush=True)
    (HERE / "results.md").write_text("\n".join(text), encoding="utf-8")
    (HERE / "results.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
