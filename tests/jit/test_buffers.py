"""The memory of results: on cache lines, used again when it was donated, never when seen."""

from __future__ import annotations

import numpy as np
import pytest

import retrograd as rg
from retrograd.core import lines
from retrograd.jit import buffers

SIZES = [(0,), (1,), (1023,), (1024,), (33, 35), (700, 900)]


def empty(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    of = shape, np.dtype(dtype)
    return lines.maker(*of)(*of)


def address(t: rg.Tensor) -> int:
    return t.array.ctypes.data


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_new_arrays(shape: tuple[int, ...], dtype: str) -> None:
    a = empty(shape, dtype)
    assert a.shape == shape
    assert a.dtype == dtype
    assert a.nbytes < lines.SMALL or a.ctypes.data % lines.LINE == 0
    a[...] = 1
    assert a.sum() == a.size
    assert lines.addresses([a]) == [a.ctypes.data]


def test_memory_is_exclusive_until_somebody_sees_it() -> None:
    a = empty((64, 64), "float32")
    assert buffers.exclusive(a)
    block = a.base
    assert not buffers.exclusive(a)
    del block
    assert buffers.exclusive(a)
    assert not buffers.exclusive(a[1:])
    a.flags.writeable = False
    assert not buffers.exclusive(a)
    assert not buffers.exclusive(np.frombuffer(bytearray(64), np.uint8))


def slanted(shape: tuple[int, ...]) -> np.ndarray:
    """An array of its own that does not begin with a line, if NumPy makes such here."""
    made = [np.zeros(shape, np.float32) for _ in range(64)]
    found = [a for a in made if a.ctypes.data % lines.LINE]
    if not found:
        pytest.skip("all memory begins with a cache line here")
    return found[0]


def test_results_move_to_a_line_once_and_stay() -> None:
    step = rg.jit(lambda w: w + 1, donate="w")
    w = rg.asarray(slanted((64, 32)))
    seen = []
    for _ in range(4):
        w = step(w)
        seen.append(address(w))
    assert seen[0] % lines.LINE == 0
    assert len(set(seen)) == 1
    assert (w.numpy() == 4).all()


def test_within_a_budget_nothing_moves() -> None:
    step = rg.jit(lambda w: w + 1, donate="w", budget="1 MiB")
    w = rg.asarray(slanted((64, 32)))
    where = address(w)
    for _ in range(3):
        w = step(w)
        assert address(w) == where


def test_views_of_results_are_not_written() -> None:
    step = rg.jit(lambda w: w + 1, donate="w")
    w = step(rg.zeros((64, 64)))
    view = w.array[3:, 5]
    again = step(w)
    assert (view == 1).all()
    assert (again.numpy() == 2).all()
