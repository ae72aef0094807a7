"""Why a row misses what was aimed at, as its profile shows; printed only while it misses."""

from __future__ import annotations

WHY: dict[str, str] = {}
