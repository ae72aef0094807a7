"""Why a row misses what was aimed at, as its profile shows; printed only while it misses."""

from __future__ import annotations

WHY: dict[str, str] = {
    "f2": "A first call does the work of a step, which takes 0.14 s while the machine is fast "
    "and about twice that while it is slow; the rest is 0.05 s, as in f1.",
    "q": "All of it is memory: 28 bytes for a number, 700 MB in a step, and the arithmetic "
    "alone would take a third of the time. While the machine was fast 7.1 to 7.4 ms where "
    "PyTorch took 7.4 to 7.7, while it was slow 11.8 to 12.2 and 10.9 to 12.0.",
}
