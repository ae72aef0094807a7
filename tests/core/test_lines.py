"""Large arrays that users make lie on cache lines, in memory of their own."""

from __future__ import annotations

import numpy as np
import pytest

import retrograd as rg
from retrograd.core import lines
from retrograd.jit import buffers

LARGE = (lines.LARGE // 8 + 8, 2)  # a little more than is left to NumPy, in float32

MAKERS = {
    "asarray": lambda: rg.asarray(np.ones(LARGE, np.float32)),
    "asarray, another dtype": lambda: rg.asarray(np.ones(LARGE, np.int32), dtype=rg.float32),
    "tensor": lambda: rg.tensor(np.ones(LARGE, np.float32)),
    "zeros": lambda: rg.zeros(LARGE) + 1,
    "ones": lambda: rg.ones(LARGE),
    "full": lambda: rg.full(LARGE, 1.0),
    "zeros_like": lambda: rg.zeros_like(rg.ones(LARGE)) + 1,
}


@pytest.mark.parametrize("name", MAKERS)
def test_values_and_places(name: str) -> None:
    array = MAKERS[name]().array
    assert array.dtype == np.float32
    assert array.shape == LARGE
    assert array.ctypes.data % lines.LINE == 0
    assert (array == 1).all()


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float64", "complex64"])
def test_dtypes(dtype: str) -> None:
    kind = np.dtype(dtype)
    shape = (lines.LARGE // kind.itemsize + 1,)
    source = np.random.default_rng(0).integers(0, 2, shape).astype(kind)
    for made, wanted in [
        (lines.copied(source, kind), source),
        (lines.zeros(shape, kind), np.zeros(shape, kind)),
        (lines.filled(shape, 1, kind), np.ones(shape, kind)),
    ]:
        assert made.dtype == kind
        assert made.ctypes.data % lines.LINE == 0
        assert np.array_equal(made, wanted)


def test_a_copy_is_a_copy() -> None:
    source = np.zeros(LARGE, np.float32)
    t = rg.asarray(source)
    source[0] = 1
    assert float(rg.max(t)) == 0


def test_the_order_of_axes_is_kept() -> None:
    source = np.asfortranarray(np.random.default_rng(0).random(LARGE))
    made = rg.asarray(source).array
    assert made.flags.f_contiguous
    assert np.array_equal(made, source)


def test_such_memory_may_be_donated() -> None:
    assert buffers.exclusive(lines.zeros(LARGE, np.dtype(np.float32)))
    step = rg.jit(lambda w: w + 1, donate="w")
    w = rg.asarray(np.zeros(LARGE, np.float32))
    where = w.array.ctypes.data
    for _ in range(3):
        w = step(w)
        assert w.array.ctypes.data == where
    assert (w.numpy() == 3).all()


def test_small_ones_are_numpys() -> None:
    assert rg.asarray(np.ones(4, np.float32)).array.flags.owndata
    assert rg.zeros(4).array.flags.owndata


def test_whole_huge_pages_are_not_shared() -> None:
    kind = np.dtype(np.float32)
    for pages in (1, 3):
        shape = (pages, lines.HUGE // kind.itemsize)
        for made in (
            lines.copied(np.ones(shape, kind), kind),
            lines.zeros(shape, kind) + 1,
            lines.filled(shape, 1, kind),
        ):
            assert (made == 1).all()
        assert lines.zeros(shape, kind).ctypes.data % lines.HUGE == 0
        assert lines.copied(np.ones(shape, kind), kind).ctypes.data % lines.HUGE == 0
