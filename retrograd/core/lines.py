"""Arrays that begin with a cache line, in memory that nobody else knows.

NumPy's memory begins anywhere. A vector across two lines takes two loads: products of small
matrices run a fifth slower on such operands, and AdamW of 25 million numbers a twentieth. Large
arrays of NumPy begin just behind the start of a page. If a result did so too, loads would meet
what look like stores of the numbers before them, and wait: large results begin half a page
later (exp of 16M numbers took four times as long).

What users make begins with a huge page if its size is a whole number of these: NumPy asks the
system for such pages, and AdamW is 3 % faster than on lines alone.
"""

from __future__ import annotations

import ctypes
import sys
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "HEADER",
    "LARGE",
    "LINE",
    "SMALL",
    "Block",
    "addresses",
    "copied",
    "fast",
    "filled",
    "maker",
    "word",
    "zeros",
]

LINE = 64  # bytes of a cache line, and of the widest vector
HUGE = 1 << 21  # bytes of a huge page
PAGE = 1 << 12  # bytes: addresses as far apart look the same to a store that is under way
SMALL, LARGE = 1 << 12, 1 << 20  # bytes: less is read too fast to matter, more from afar

# -- where an array is ------------------------------------------------------------------------

HEADER, word = object.__basicsize__, ctypes.c_int64.from_address


def _slow_addresses(arrays: Sequence[np.ndarray]) -> list[int]:
    return [a.ctypes.data for a in arrays]


def _fast_addresses(arrays: Sequence[np.ndarray]) -> list[int]:
    return [word(id(a) + HEADER).value for a in arrays]


def _fast_works() -> bool:
    # `a.ctypes.data` takes a microsecond. The first word of an array after Python's own is the
    # pointer to its data (NumPy's public PyArrayObject_fields), and CPython's id is an address.
    if sys.implementation.name != "cpython" or hasattr(sys, "getobjects"):
        return False
    wholes = [np.empty(n, np.uint8) for n in (1, 7, 64)]
    arrays = [a for whole in wholes for a in (whole, whole[1:])]
    return _fast_addresses(arrays) == _slow_addresses(arrays)


fast = _fast_works()  # whether an array's address can be read from the array
addresses = _fast_addresses if fast else _slow_addresses

# -- new ones ---------------------------------------------------------------------------------


class Block(ctypes.Array):  # type: ignore[type-arg]
    """The memory of one array, which nobody else knows."""

    _type_, _length_ = ctypes.c_char, 0
    whole: np.ndarray


_blocks: dict[int, Any] = {}


def maker(shape: tuple[int, ...], dtype: np.dtype) -> Callable[..., np.ndarray]:
    """What makes arrays of such a size: NumPy if they are small, else on cache lines."""
    return np.empty if prod(shape) * dtype.itemsize < SMALL else _on_lines


def _on_lines(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array whose content is anything, and which begins with a cache line."""
    nbytes = prod(shape) * dtype.itemsize
    by, phase = (PAGE, PAGE // 2) if nbytes > LARGE else (LINE, 0)
    return _within(np.empty(nbytes + by, np.uint8), shape, dtype, by, phase)


def _within(
    whole: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, by: int, phase: int
) -> np.ndarray:
    """An array in memory that is larger by `by`: at the first address with such a rest."""
    nbytes = whole.size - by
    (start,) = addresses([whole])
    kind = _blocks.get(nbytes) or _kind(nbytes)
    block = kind.from_address(start + (phase - start) % by)
    block.whole = whole
    return np.ndarray(shape, dtype, block)


def _kind(nbytes: int) -> Any:
    return _blocks.setdefault(nbytes, type("Block", (Block,), {"_length_": nbytes}))


# What users make and train on, in place, for the rest of a program: only large ones begin with
# a line, since making a small one would take longer than it takes NumPy; and with any, since
# a page more for each of many weights would show. What is around whole huge pages is asked for
# and not touched, so it takes no memory; an array of another size would take all of its last.


def _made(shape: tuple[int, ...], dtype: np.dtype, of: Callable[..., np.ndarray]) -> np.ndarray:
    nbytes = prod(shape) * dtype.itemsize
    by = LINE if nbytes % HUGE else HUGE
    return _within(of(nbytes + by, np.uint8), shape, dtype, by, 0)


def copied(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A copy of an array in memory of its own."""
    if array.size * dtype.itemsize <= LARGE or not array.flags.c_contiguous:
        return np.array(array, dtype=dtype)
    out = _made(array.shape, dtype, np.empty)
    out[...] = array
    return out


def zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """All zero; the system hands out the pages when they are first written."""
    small = prod(shape) * dtype.itemsize <= LARGE
    return np.zeros(shape, dtype) if small else _made(shape, dtype, np.zeros)


def filled(shape: tuple[int, ...], value: Any, dtype: np.dtype) -> np.ndarray:
    """One number everywhere."""
    if prod(shape) * dtype.itemsize <= LARGE:
        return np.full(shape, value, dtype)
    out = _made(shape, dtype, np.empty)
    out.fill(value)
    return out
