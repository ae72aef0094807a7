"""Memory for the results of eager kernels: used again as soon as nobody holds them.

The system takes a microsecond and more for each page that a process touches first: several
times what a kernel needs to fill it. So large results live in blocks that are kept for the
next result of about that size, up to a limit. All of it is given back when a program is
compiled, for then the eager part of the work is likely to be over; and by `clear`.
"""

from __future__ import annotations

import _tracemalloc
import ctypes
import os
import threading
import time
from math import prod
from typing import Any

import numpy as np

from retrograd.jit.llvm.arena import Arena

__all__ = ["LARGE", "LIMIT", "clear", "new", "waiting"]

LARGE = 1 << 17  # bytes: smaller ones are NumPy's; the C library keeps such pages itself
LIMIT = 1 << 28  # bytes that may wait
IDLE = 1.0  # seconds; what waits for longer makes way

_free: dict[int, list[tuple[float, Arena]]] = {}
_state = {"bytes": 0}
_types: dict[int, type] = {}
_tracing, _DOMAIN = _tracemalloc.is_tracing, 389047  # NumPy's domain of traced memory
_track, _untrack = ctypes.pythonapi.PyTraceMalloc_Track, ctypes.pythonapi.PyTraceMalloc_Untrack
_track.argtypes = [ctypes.c_uint, ctypes.c_size_t, ctypes.c_size_t]
_untrack.argtypes = [ctypes.c_uint, ctypes.c_size_t]
_lock = threading.RLock()  # again by the same thread: a finaliser may run inside


def new(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array whose content is anything."""
    nbytes = prod(shape) * dtype.itemsize
    if nbytes < LARGE:
        return np.empty(shape, dtype)
    size = _rounded(nbytes)
    with _lock:
        waits = _free.get(size)
        arena = waits.pop()[1] if waits else None
        if arena is not None:
            _state["bytes"] -= size
        else:
            _drop()
    arena = arena or Arena(size)
    block = (_types.get(size) or _kind(size)).from_address(arena.base)  # type: ignore[attr-defined]
    block.arena = arena
    if _tracing():  # as NumPy's own memory is seen
        _track(_DOMAIN, arena.base, nbytes)
    return np.ndarray(shape, dtype, block)


def _rounded(nbytes: int) -> int:
    """Up to a quarter more: sizes that are near share their blocks."""
    step = 1 << max(16, nbytes.bit_length() - 3)
    return -(-nbytes // step) * step


def _kind(size: int) -> type:
    """The type of blocks of a size: memory that comes back when it is dropped."""
    members = {"_type_": ctypes.c_char, "_length_": size, "__del__": _give}
    return _types.setdefault(size, type("Block", (ctypes.Array,), members))


def _give(block: Any) -> None:
    """Keep a block's memory for the next result, while there is room."""
    arena = block.arena
    if _tracing():
        _untrack(_DOMAIN, arena.base)
    with _lock:
        if _state["bytes"] + arena.nbytes > LIMIT:
            _drop()
        if _state["bytes"] + arena.nbytes <= LIMIT:
            _free.setdefault(arena.nbytes, []).append((time.monotonic(), arena))
            _state["bytes"] += arena.nbytes


def _drop() -> None:
    """Give back what nobody asked for in a while."""
    early = time.monotonic() - IDLE
    with _lock:
        for size, waits in _free.items():
            stay = [(since, arena) for since, arena in waits if since > early]
            _state["bytes"] -= size * (len(waits) - len(stay))
            waits[:] = stay


def waiting() -> int:
    """Bytes that wait for the next result."""
    return _state["bytes"]


def clear() -> None:
    """Give back all that waits."""
    with _lock:
        _free.clear()
        _state["bytes"] = 0


def _forked() -> None:
    """In a child: nobody holds the lock, though a thread of the parent's may have."""
    global _lock  # noqa: PLW0603
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
