"""How many threads compiled programs use.

RETROGRAD_THREADS    how many threads; otherwise the CPUs that this process may use
RETROGRAD_SPIN       milliseconds that an idle thread spins before it sleeps; 3 unless told
"""

from __future__ import annotations

import operator
import os
from typing import TYPE_CHECKING

from retrograd.core.errors import ArgumentError
from retrograd.jit.cpus import cpus

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MAX_THREADS", "follow", "get_threads", "set_threads", "spin"]

MAX_THREADS = 32  # one bit of the claim word for each chunk, and no more threads than chunks
_SPIN, _SPIN_CROWDED = 3.0, 0.05  # milliseconds; with more threads than CPUs, spinning hurts
_wanted: list[int] = []  # once known
_followers: list[Callable[[int, int], None]] = []  # pools in memory: threads, nanoseconds


def get_threads() -> int:
    """How many threads compiled programs use, the calling one among them."""
    if not _wanted:
        _wanted.append(_from_environment())
    return _wanted[0]


def set_threads(n: int) -> None:
    """Let compiled programs use n threads, from the next one on.

    Results are the same to the bit for every number of threads.
    """
    _wanted[:] = [_checked("set_threads", "n", n)]
    for tell in _followers:
        _tell(tell)


def follow(tell: Callable[[int, int], None]) -> None:
    """Call `tell(threads, nanoseconds to spin)` now, and at each change."""
    _tell(tell)
    _followers.append(tell)


def _tell(tell: Callable[[int, int], None]) -> None:
    threads = get_threads()
    tell(threads, int(spin(threads) * 1e6))


def _checked(who: str, what: str, n: object) -> int:
    try:
        count = operator.index(n)  # type: ignore[arg-type]
    except TypeError:
        count = 0
    if isinstance(n, bool) or not 1 <= count <= MAX_THREADS:
        raise ArgumentError(f"{who}: {what} must be a count from 1 to {MAX_THREADS}; got {n!r}")
    return count


def _from_environment() -> int:
    told = os.environ.get("RETROGRAD_THREADS", "").strip()
    if not told:
        return min(cpus(), MAX_THREADS)
    number = int(told) if told.isdecimal() else told
    return _checked("RETROGRAD_THREADS", "it", number)


def spin(threads: int) -> float:
    """Milliseconds that an idle thread of so many spins before it sleeps."""
    told = os.environ.get("RETROGRAD_SPIN", "").strip()
    if not told:
        return _SPIN if threads <= cpus() else _SPIN_CROWDED
    try:
        spin = float(told)
    except ValueError:
        spin = -1.0
    if not 0 <= spin <= 1e6:
        raise ArgumentError(f"RETROGRAD_SPIN: it must be milliseconds, 0 or more; got {told!r}")
    return spin
