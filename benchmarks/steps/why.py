"""Why a row misses what was aimed at, as its profile shows; printed only while it misses."""

from __future__ import annotations

WHY: dict[str, str] = {
    "q": "Weights, gradients and both moments are 384.0 MB. Measured apart, drawing them takes "
    "4.7 MB more of our process, and our program less than 1 MB.",
}
