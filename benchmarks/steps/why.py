"""Why a row misses what was aimed at, as its profile shows; printed only while it misses."""

from __future__ import annotations

WHY: dict[str, str] = {
    "h": "The numbers are 15.3 MB, and a step needs no more. The first one moves them to a "
    "cache line; what that freed, 31 MB, stays with the C library, and is gone after "
    "malloc_trim (measured apart: 81 MB of the process in place of 133). To fix: give it "
    "back there.",
}
