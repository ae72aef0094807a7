"""Why a row misses what was aimed at, as its profile shows; printed only while it misses."""

from __future__ import annotations

WHY: dict[str, str] = {
    "c2": "More than half of our first call is LLVM writing code; the tiles of attention, "
    "forward and backward, are the largest of it. Inductor calls a library for attention, and "
    "compiles little else. Smaller tiles, with loops in place of unrolled code, would help.",
    "f2": "The step itself takes most of it: a call from a warm cache is a tenth of a second "
    "longer than a step. Nothing of a first call can be shorter than the work it does.",
    "q": "Weights, gradients and both moments are all of it, 381.5 MB for everybody; what is "
    "beyond differs by less than a process does from the next.",
}
