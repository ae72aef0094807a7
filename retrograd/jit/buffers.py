"""The memory of arrays as kernels see it: where it is, how it lies, and whose it is."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from retrograd.core.lines import HEADER, LARGE, SMALL, Block, fast, word

__all__ = ["OWN", "PLAIN", "address_text", "exclusive", "plain", "slants"]

PLAIN = 0x101  # NumPy's flags for row-major and aligned
_WRITABLE = 0x400
OWN = 0x404  # and for memory of its own, that may be written


def address_text() -> tuple[str, dict[str, Any]]:
    """The address of an array as a Python expression of it, and the names in that."""
    if not fast:
        return "{}.ctypes.data", {}
    return f"word(id({{}}) + {HEADER}).value", {"word": word, "id": id}


def plain(a: np.ndarray) -> np.ndarray:
    """An array as kernels read it: row-major and aligned, else a copy."""
    return a if a.flags.num & PLAIN == PLAIN else np.ascontiguousarray(a).copy()


def slants(nbytes: int) -> bool:
    """Whether it would be worth something if so much memory began with a cache line."""
    return SMALL <= nbytes <= LARGE


def exclusive(array: np.ndarray) -> bool:
    """Whether memory is the array's alone and may be written. Views of the array hold it."""
    flags = array.flags.num
    if flags & OWN == OWN or not flags & _WRITABLE:
        return bool(flags & _WRITABLE)
    base = array.base
    # three hold the block: the array, this function, and the argument of getrefcount
    return isinstance(base, Block) and sys.getrefcount(base) <= 3
