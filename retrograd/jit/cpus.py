"""How many CPUs this process may use."""

from __future__ import annotations

import os

__all__ = ["cpus", "quota"]

_GROUPS = "/sys/fs/cgroup"


def cpus() -> int:
    """CPUs that this process may run on, within what its control group is granted."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    granted = quota()
    # Half a CPU is none: a thread too many spends the grant on spinning.
    return count if granted is None else max(1, min(count, int(granted)))


def quota(root: str = _GROUPS, membership: str | None = None) -> float | None:
    """CPUs' worth of time that control groups grant this process; None is no limit."""
    if membership is None:
        membership = _read(os.path.join(os.sep, "proc", "self", "cgroup"))
    found = []
    for line in membership.splitlines():
        _, kinds, path = line.split(":", 2) if line.count(":") >= 2 else ("", "?", "")
        if kinds == "":  # version 2: one tree
            found += [_share(_read(os.path.join(d, "cpu.max"))) for d in _up(root, path)]
        elif "cpu" in kinds.split(","):
            for place in _up(os.path.join(root, "cpu"), path):
                names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                found.append(_share(" ".join(_read(os.path.join(place, n)) for n in names)))
    return min((f for f in found if f is not None), default=None)


def _up(root: str, path: str) -> list[str]:
    """The group's directory and those above it: each may limit it."""
    parts = [p for p in path.split("/") if p and p != ".."]
    return [os.path.join(root, *parts[:n]) for n in range(len(parts), -1, -1)]


def _share(text: str) -> float | None:
    """CPUs from "quota period" in microseconds; "max" and -1 are no limit."""
    words = text.split()
    try:
        granted, period = (float(w) for w in words)
    except ValueError:
        return None
    return granted / period if granted > 0 and period > 0 else None


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
