"""The memory of arrays as kernels see it: where it is, how it lies, and whose it is."""

from __future__ import annotations

import ctypes
import sys
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "OWN",
    "PLAIN",
    "address_text",
    "addresses",
    "exclusive",
    "maker",
    "plain",
    "slanted",
]

PLAIN = 0x101  # NumPy's flags for row-major and aligned
_WRITABLE = 0x400
OWN = 0x404  # and for memory of its own, that may be written
LINE = 64  # bytes of a cache line, and of the widest vector
PAGE = 1 << 12  # bytes: addresses as far apart look the same to a store that is under way
SMALL, LARGE = 1 << 12, 1 << 20  # bytes: less is read too fast to matter, more from afar

# -- where ------------------------------------------------------------------------------------

_HEADER, _word = object.__basicsize__, ctypes.c_int64.from_address


def _slow_addresses(arrays: Sequence[np.ndarray]) -> list[int]:
    return [a.ctypes.data for a in arrays]


def _fast_addresses(arrays: Sequence[np.ndarray]) -> list[int]:
    return [_word(id(a) + _HEADER).value for a in arrays]


def _fast_works() -> bool:
    # `a.ctypes.data` takes a microsecond. The first word of an array after Python's own is the
    # pointer to its data (NumPy's public PyArrayObject_fields), and CPython's id is an address.
    if sys.implementation.name != "cpython" or hasattr(sys, "getobjects"):
        return False
    wholes = [np.empty(n, np.uint8) for n in (1, 7, 64)]
    arrays = [a for whole in wholes for a in (whole, whole[1:])]
    return _fast_addresses(arrays) == _slow_addresses(arrays)


addresses = _fast_addresses if _fast_works() else _slow_addresses


def address_text() -> tuple[str, dict[str, Any]]:
    """The address of an array as a Python expression of it, and the names in that."""
    if addresses is _slow_addresses:
        return "{}.ctypes.data", {}
    return f"word(id({{}}) + {_HEADER}).value", {"word": _word, "id": id}


def plain(a: np.ndarray) -> np.ndarray:
    """An array as kernels read it: row-major and aligned, else a copy."""
    return a if a.flags.num & PLAIN == PLAIN else np.ascontiguousarray(a).copy()


# -- how: on cache lines ----------------------------------------------------------------------
# NumPy's memory begins anywhere. A vector across two lines takes two loads: products of small
# matrices run a fifth slower on such operands. Large arrays of NumPy begin just behind the
# start of a page. If a result did so too, loads would meet what look like stores of the numbers
# before them, and wait: results begin half a page later (exp of 16M numbers took four times
# as long).


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
    whole = np.empty(nbytes + by, np.uint8)
    (start,) = addresses([whole])
    kind = _blocks.get(nbytes) or _kind(nbytes)
    block = kind.from_address(start + (phase - start) % by)
    block.whole = whole
    return np.ndarray(shape, dtype, block)


def _kind(nbytes: int) -> Any:
    return _blocks.setdefault(nbytes, type("Block", (Block,), {"_length_": nbytes}))


def slanted(address: int, nbytes: int) -> bool:
    """Whether it would be worth something if this memory began with a cache line."""
    return bool(address % LINE) and SMALL <= nbytes <= LARGE


# -- whose ------------------------------------------------------------------------------------


def exclusive(array: np.ndarray) -> bool:
    """Whether memory is the array's alone and may be written. Views of the array hold it."""
    flags = array.flags.num
    if flags & OWN == OWN or not flags & _WRITABLE:
        return bool(flags & _WRITABLE)
    base = array.base
    # three hold the block: the array, this function, and the argument of getrefcount
    return isinstance(base, Block) and sys.getrefcount(base) <= 3
