"""Sums of rows that go to the same place: one after the other as they come, in any chunks."""

from __future__ import annotations

import numpy as np
import pytest

import retrograd as rg
from retrograd.jit.llvm import row_sums
from retrograd.ops.index import IndexAdd

# rows that are given, rows of the result, columns: few, blocks that are not whole, many blocks
SIZES = [(50, 7, 1), (1000, 3, 5), (300, 40, 17), (257, 9, 300), (64, 100, 1031), (1, 1, 129)]


def targets(rng: np.random.Generator, how: str, count: int, rows: int) -> np.ndarray:
    if how == "one":
        return np.full(count, rows - 1)
    if how == "most to one":
        return np.where(rng.random(count) < 0.9, rows // 2, rng.integers(0, rows, count))
    return rng.integers(-rows, rows, count)


def added(rows: int, x: np.ndarray, where: np.ndarray) -> np.ndarray:
    out = np.zeros((rows, *x.shape[1:]), x.dtype)
    np.add.at(out, where, x)  # one after the other
    return out


def native(to: tuple[int, ...], threads: int = 2):
    return rg.jit(lambda x, i: rg.apply(IndexAdd((0,), 0, to), x, i), threads=threads)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("how", ["any", "one", "most to one"])
@pytest.mark.parametrize("size", SIZES)
def test_rows_are_added_in_their_order(size, how, dtype, rng, monkeypatch):
    monkeypatch.setattr(row_sums, "WORTH", 64)  # chunks of small things
    count, rows, columns = size
    x, where = rng.normal(size=(count, columns)).astype(dtype), targets(rng, how, count, rows)
    got = native((rows, columns))(x, where[None])
    assert np.array_equal(got.numpy(), added(rows, x, where))


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_indices_of_any_integers(kind, rng):
    x, where = rng.normal(size=(200, 20)), rng.integers(0, 100, 200).astype(kind)
    assert np.array_equal(native((100, 20))(x, where[None]).numpy(), added(100, x, where))


def test_several_axes_and_a_batch(rng):
    x, where = rng.normal(size=(3, 60, 9)), rng.integers(-4, 4, (3, 2, 60))
    op = IndexAdd((1, 2), 1, (3, 4, 5, 9), 1)
    got = rg.jit(lambda x, i: rg.apply(op, x, i))(x, where)
    want = [added(20, a, i[0] % 4 * 5 + i[1] % 5) for a, i in zip(x, where, strict=True)]
    assert np.array_equal(got.numpy(), np.reshape(want, got.shape))


def test_threads_change_no_bits(rng, monkeypatch):
    monkeypatch.setattr(row_sums, "WORTH", 64)
    x = rng.normal(size=(5000, 70)).astype(np.float32)
    where = targets(rng, "most to one", 5000, 30)[None]
    one, many = (native((30, 70), threads)(x, where).numpy() for threads in (1, 4))
    assert np.array_equal(one, many)


@pytest.mark.parametrize("wrong", [7, -8, 2**62])
def test_an_index_outside_is_refused_and_the_next_call_works(wrong, rng):
    f, x, where = native((7, 20)), rng.normal(size=(50, 20)), rng.integers(0, 7, (1, 50))
    bad = where.copy()
    bad[0, 31] = wrong
    with pytest.raises(rg.BoundsError, match=f"index {wrong} is outside an axis of length 7"):
        f(x, bad)
    assert np.array_equal(f(x, where).numpy(), added(7, x, where[0]))


def test_what_the_kernel_takes():
    x, i = rg.Spec((50, 20), rg.float32), rg.Spec((1, 50), rg.int64)
    assert row_sums.RowSumKernels.takes(IndexAdd((0,), 0, (7, 20)), [x, i])
    turned = IndexAdd((1,), 1, (20, 7))  # rows of the result are not dense
    assert not row_sums.RowSumKernels.takes(turned, [rg.Spec((20, 50), rg.float32), i])
    whole = rg.Spec((50, 20), rg.int32)
    assert not row_sums.RowSumKernels.takes(IndexAdd((0,), 0, (7, 20)), [whole, i])
