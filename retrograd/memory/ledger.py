"""Every array that is counted: bytes now, bytes at most, and what can be let go of."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.where import here, retold
from retrograd.memory.spill import filed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from retrograd.memory.spill import Shelf

__all__ = ["PROCESS", "Event", "Ledger", "Stats", "hold", "root"]


@dataclass(frozen=True)
class Stats:
    """Bytes that the engine holds, and held at most; and what was done to keep it so."""

    current: int = 0
    peak: int = 0
    budget: int | None = None
    dropped: int = 0  # values let go of
    replayed: int = 0  # ops that ran another time
    spilled: int = 0  # values put into a file
    filed: int = 0  # bytes that the file holds: they are in no other number here


@dataclass(frozen=True)
class Event:
    """A moment of the timeline: bytes after an op, and the user's line it came from."""

    what: str
    where: str
    current: int
    change: int


@dataclass
class Ledger:
    """Arrays by the memory they own; a view counts nothing, and keeps its owner.

    What is freed leaves by itself: each array tells when it dies.
    """

    budget: int | None = None
    current: int = 0
    peak: int = 0
    dropped: int = 0
    replayed: int = 0
    spilled: int = 0
    shelf: Shelf | None = None  # where values go that are put aside
    sizes: dict[int, int] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    tracks: bool = False
    _alive: dict[int, Any] = field(default_factory=dict)

    def count(self, array: np.ndarray, given: Sequence[np.ndarray] = ()) -> None:
        """Count the memory of an array that was just made, unless it is that of one `given`."""
        owner = root(array)
        key = id(owner)
        if not owner.nbytes or key in self.sizes or any(root(a) is owner for a in given):
            return
        self.sizes[key] = owner.nbytes
        self._alive[key] = weakref.ref(owner, lambda _: self._freed(key))
        self.current += owner.nbytes
        self.peak = max(self.peak, self.current)

    def count_all(self, arrays: Iterable[Any], given: Sequence[np.ndarray] = ()) -> None:
        """Count each."""
        for a in arrays:
            self.count(a, given)

    def _freed(self, key: int) -> None:
        self._alive.pop(key, None)
        self.current -= self.sizes.pop(key, 0)

    def note(self, what: str, before: int) -> None:
        """A moment of the timeline, if it is kept."""
        if self.tracks:
            line = retold.get() or here(2)
            change = self.current - before
            self.events.append(Event(what, str(line or ""), self.current, change))

    @property
    def filed(self) -> int:
        """Bytes in the file; of the process, in those of compiled programs."""
        if self is PROCESS:
            return filed()
        return self.shelf.held if self.shelf is not None else 0

    def stats(self) -> Stats:
        """The numbers as they are."""
        counts = (self.dropped, self.replayed, self.spilled)
        return Stats(self.current, self.peak, self.budget, *counts, self.filed)


def root(array: np.ndarray) -> np.ndarray:
    """The array that a view is of, and all views of the same memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


PROCESS = Ledger()  # the arenas of compiled programs


def hold(owner: Any, nbytes: int) -> None:
    """Count bytes of the process while `owner` lives."""
    PROCESS.current += nbytes
    PROCESS.peak = max(PROCESS.peak, PROCESS.current)
    weakref.finalize(owner, _let_go, nbytes).atexit = False


def _let_go(nbytes: int) -> None:
    PROCESS.current -= nbytes
