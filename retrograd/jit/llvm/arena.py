"""Memory that programs run in: one block for each call in flight, kept for the next call."""

from __future__ import annotations

import mmap
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.memory.ledger import hold

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["ALIGNMENT", "LARGE_PAGE", "Arena", "Arenas"]

ALIGNMENT = 64  # a cache line, and the widest vector
LARGE_PAGE = 2 << 20


class Arena:
    """Zeroed memory at a fixed address: `base`, `nbytes`; freed with its last view.

    The base is a multiple of 64 bytes; of 2 MiB, on large pages where the system offers them,
    if there is at least one such page of it.
    """

    __slots__ = ("__weakref__", "_bytes", "base", "nbytes")

    def __init__(self, nbytes: int) -> None:
        large = nbytes >= LARGE_PAGE
        block = _map(max(nbytes, 1) + (LARGE_PAGE if large else 0))
        whole = np.frombuffer(block, np.uint8)
        start = -whole.ctypes.data % LARGE_PAGE if large else 0
        if large and hasattr(mmap, "MADV_HUGEPAGE"):
            _advise(block, start, nbytes // LARGE_PAGE * LARGE_PAGE)
        self._bytes = whole[start : start + nbytes]
        self.base: int = whole.ctypes.data + start
        self.nbytes = nbytes
        hold(self, nbytes)

    def view(
        self,
        offset: int,
        shape: Sequence[int],
        dtype: Any,
        strides: Sequence[int] | None = None,
    ) -> np.ndarray:
        """An array in this memory, `offset` bytes from its base; it keeps the memory alive."""
        steps = None if strides is None else tuple(strides)
        return np.ndarray(tuple(shape), dtype, self._bytes, offset, steps)


def _map(nbytes: int) -> mmap.mmap:
    try:
        if hasattr(mmap, "MAP_PRIVATE"):
            # Private: a forked child gets its own copy. Python's default is shared.
            return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return mmap.mmap(-1, nbytes)
    except OSError as error:
        raise MemoryError(f"arena: the system has no {nbytes:,} bytes; {error}") from error


def _advise(block: mmap.mmap, start: int, length: int) -> None:
    try:
        block.madvise(mmap.MADV_HUGEPAGE, start, length)
    except OSError:  # a kernel without large pages
        return


class Arenas:
    """Arenas of one size, for calls in flight: each takes one and gives it back.

    At most `idle` wait for the next call; in the steady state nothing is allocated. Threads
    may take and give at the same time: deque's append and pop are atomic, so there is no lock
    that a fork could leave closed.
    """

    __slots__ = ("_waiting", "idle", "nbytes")

    def __init__(self, nbytes: int, *, idle: int = 4) -> None:
        self.nbytes, self.idle = nbytes, idle
        self._waiting: deque[Arena] = deque(maxlen=idle)  # the oldest is dropped, and freed

    def take(self) -> Arena:
        """An arena that nobody else has; the one given back last, for it is in the cache."""
        try:
            return self._waiting.pop()
        except IndexError:
            return Arena(self.nbytes)

    def give(self, arena: Arena) -> None:
        """Back, for the next call; its content is anything then."""
        self._waiting.append(arena)

    @contextmanager
    def borrow(self) -> Iterator[Arena]:
        """Take one, and give it back at the end."""
        arena = self.take()
        try:
            yield arena
        finally:
            self.give(arena)

    def clear(self) -> None:
        """Free what waits."""
        self._waiting.clear()

    def __len__(self) -> int:
        return len(self._waiting)
