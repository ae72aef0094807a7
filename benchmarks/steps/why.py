"""Why a row misses what was aimed at, as its profile shows; printed only while it misses."""

from __future__ import annotations

WHY: dict[str, str] = {
    "q": "All of it is memory: 28 bytes for a number, 700 MB in a step, and the arithmetic "
    "alone would take a third of the time. In one process, in turns, a step takes 7.6 ms "
    "and PyTorch's 7.8; in processes of their own 8.7 and 8.2, while the machine is fast. "
    "What differs is not known. To try: one launch for all weights in place of 24.",
}
