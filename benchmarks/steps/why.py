"""Why a row misses what was aimed at, as its profile shows; printed only while it misses."""

from __future__ import annotations

WHY: dict[str, str] = {
    "q": "All of it is memory: 28 bytes for a number, 700 MB in a step, and the arithmetic "
    "alone would take a third of the time. With all weights as one job it took 7.4 ms and "
    "PyTorch's 7.7 while the machine was fast, 13.1 each while it was slow.",
}
