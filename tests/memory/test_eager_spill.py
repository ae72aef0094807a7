"""Eager code within budgets, with a file: what is slow to make again goes there and returns."""

import gc
import os

import numpy as np
import pytest

import retrograd as rg
from retrograd.memory import eager
from retrograd.memory.spill import Shelf, solid
from retrograd.testing.exactly import bits
from tests.memory.test_eager_budget import WAYS, chain, loss, model, raw

__all__ = ["model"]  # a fixture


@pytest.fixture
def at_once(monkeypatch):
    """A disk that takes no time: whatever can go to the file does."""
    monkeypatch.setattr(eager, "_DISK", 0.0)


@pytest.mark.parametrize("way", WAYS)
def test_bits_and_bytes_with_a_file(model, way, at_once, tmp_path):
    run = WAYS[way]
    wanted = raw(run(*model))
    with rg.memory.track() as whole:
        run(*model)
    for share in (1.2, 0.85, 0.7):
        budget = int(whole.peak * share)
        with rg.budget(budget, spill=tmp_path) as ledger:
            assert raw(run(*model)) == wanted
        assert ledger.peak <= budget
        assert bool(ledger.spilled) == (share < 1)
        assert ledger.replayed == 0  # all that was needed came from the file
        assert list(tmp_path.iterdir()) == []  # which has no name


def test_the_file_is_counted_apart(model, at_once):
    ws, x = model
    with rg.budget("100 KiB", spill=True) as ledger:
        y = chain(ws, x)
        leaves = [rg.tensor(w.array, requires_grad=True) for w in ws]
        z = loss(leaves, x)
        told = rg.memory.stats()
        assert told.spilled == ledger.spilled > 0
        assert told.filed == ledger.filed > 0
        assert told.current <= told.peak <= 100 * 1024 < told.filed + told.current
        assert bits(y.array) == bits(chain(ws, x).array)
    del y, z
    gc.collect()
    assert ledger.filed == 0


def test_a_slow_disk_is_left_alone(model, monkeypatch):
    monkeypatch.setattr(eager, "_DISK", 1.0)
    with rg.budget("150 KiB", spill=True) as ledger:
        rg.grad(loss)(*model)
    assert ledger.dropped
    assert not ledger.spilled


def test_values_outlive_the_block(model, at_once):
    _, x = model
    with rg.budget("60 KiB", spill=True) as ledger:
        kept = [x * k for k in range(1, 20)]
        assert ledger.spilled
    for k, t in enumerate(kept, 1):
        assert bits(t.array) == bits((x * k).array)


def test_a_full_disk_loses_nothing(model, at_once, monkeypatch, tmp_path):
    ws, x = model

    def full(*_):
        raise OSError(28, os.strerror(28))

    with rg.budget(3 * x.nbytes, spill=tmp_path) as ledger:
        first = [x * 2, x * 3]
        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_fallocate", full)
            with pytest.raises(rg.BudgetError, match="No space left"):
                chain(ws, x)
        assert ledger.spilled == 0
        for t, k in zip(first, (2, 3), strict=True):
            assert bits(t.array) == bits(x.array * np.float32(k))
        assert bits(chain(ws, x).array) == bits(chain(ws, x).array)
        assert ledger.spilled
        assert ledger.peak <= 3 * x.nbytes


def test_a_full_disk_in_the_middle_of_a_file(tmp_path, monkeypatch, rng):
    shelf = Shelf(str(tmp_path))
    a = rng.normal(size=100)
    there = shelf.put([a])

    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(os, "ftruncate", full)
    with pytest.raises(rg.BudgetError, match="no room"):
        shelf.put([rng.normal(size=1000)])
    assert bits(there.get()[0]) == bits(a)


def test_a_shelf_uses_its_bytes_again(tmp_path, rng):
    shelf = Shelf(str(tmp_path))
    arrays = [rng.normal(size=n) for n in (1000, 3, 2000)]
    there = [shelf.put([a]) for a in arrays]
    end = shelf._end
    del there[0]
    there.insert(0, shelf.put([arrays[0], arrays[1]]))
    assert shelf._end == end
    assert [bits(t.get()[0]) for t in there] == [bits(a) for a in arrays]
    del there
    assert shelf.held == 0


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_strides_come_back(axes, tmp_path, rng):
    a = rng.normal(size=(2, 3, 4)).transpose(axes)
    (b,) = Shelf(str(tmp_path)).put([a]).get()
    assert b.strides == a.strides
    assert bits(b) == bits(a)


def test_what_is_not_all_of_its_memory_stays(rng):
    a = rng.normal(size=(4, 6))
    assert solid(a)
    assert solid(a.T)
    for part in (a[::2], a[:, :3], a[::-1], np.broadcast_to(a[0], (3, 6)), a[:0]):
        assert not solid(part)


def test_where_files_go_is_checked(tmp_path):
    with pytest.raises(rg.ArgumentError), rg.budget("1 MiB", spill=tmp_path / "nowhere"):
        pass
