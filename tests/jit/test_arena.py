"""Arenas: aligned, zeroed, private, freed with their last view, kept between calls."""

import mmap
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from retrograd.jit.llvm.arena import ALIGNMENT, LARGE_PAGE, Arena, Arenas

MAPS = Path("/proc/self/maps")
needs_maps = pytest.mark.skipif(not MAPS.exists(), reason="no /proc on this system")


def mapped(address):
    """Whether an address belongs to this process."""
    for line in MAPS.read_text(encoding="ascii").splitlines():
        low, high = (int(word, 16) for word in line.split()[0].split("-"))
        if low <= address < high:
            return True
    return False


@pytest.mark.parametrize("nbytes", [0, 1, 100, LARGE_PAGE - 1, LARGE_PAGE, LARGE_PAGE * 3 + 5])
def test_aligned_and_zeroed(nbytes):
    arena = Arena(nbytes)
    assert arena.nbytes == nbytes
    assert arena.base % (LARGE_PAGE if nbytes >= LARGE_PAGE else ALIGNMENT) == 0
    whole = arena.view(0, (nbytes,), np.uint8)
    assert not whole.any()
    whole[:] = 7  # all of it can be written
    assert whole.sum() == 7 * nbytes


def test_views_share_the_memory():
    arena = Arena(4096)
    a = arena.view(64, (3, 4), np.float32)
    b = arena.view(64, (4, 3), np.float32, strides=(4, 16))
    a[:] = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(b, a.T)
    assert a.ctypes.data == arena.base + 64
    assert a.flags.writeable


@pytest.mark.parametrize("case", [(4090, (2,), np.float32, None), (0, (4097,), np.uint8, None)])
def test_a_view_does_not_reach_outside(case):
    with pytest.raises((TypeError, ValueError)):
        Arena(4096).view(*case)


@needs_maps
def test_freed_with_its_last_view():
    arena = Arena(LARGE_PAGE * 8)
    base = arena.base + LARGE_PAGE * 4  # in the middle: neighbours may be merged with the ends
    view = arena.view(0, (8,), np.float64)
    del arena
    assert mapped(base)
    view[:] = 1
    del view
    assert not mapped(base)


@needs_maps
@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="no large pages on this system")
def test_large_pages_are_asked_for():
    offered = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not offered.exists():
        pytest.skip("a kernel without large pages")
    arena = Arena(LARGE_PAGE * 4)
    smaps, inside = Path("/proc/self/smaps").read_text(encoding="ascii").splitlines(), False
    for line in smaps:
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            low, high = (int(word, 16) for word in first.split("-"))
            inside = low <= arena.base < high
        elif inside and first == "VmFlags:":
            assert "hg" in line.split()
            return
    pytest.fail("the arena is not in smaps")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking with threads
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX, where it is loaded
def test_a_forked_child_has_a_copy():
    view = Arena(4096).view(0, (4,), np.int64)
    child = os.fork()
    if child == 0:
        view[:] = 5
        os._exit(0)
    os.waitpid(child, 0)
    assert not view.any()


def test_more_than_there_is():
    with pytest.raises(MemoryError, match=r"arena: the system has no .* bytes"):
        Arena(1 << 60)


# -- pools ---------------------------------------------------------------------------------


def test_one_for_each_call_in_flight_and_none_made_in_the_steady_state():
    arenas = Arenas(1000)
    first, second = arenas.take(), arenas.take()
    assert first.base != second.base
    arenas.give(first)
    arenas.give(second)
    for _ in range(5):
        with arenas.borrow() as arena:
            assert arena is second
    assert {id(arenas.take()), id(arenas.take())} == {id(first), id(second)}


@pytest.mark.parametrize("idle", [0, 1, 3])
def test_few_wait(idle):
    arenas = Arenas(1000, idle=idle)
    taken = [arenas.take() for _ in range(6)]
    for arena in taken:
        arenas.give(arena)
    assert len(arenas) == idle
    arenas.clear()
    assert len(arenas) == 0


def test_given_back_after_an_error():
    arenas = Arenas(1000)
    with pytest.raises(KeyError), arenas.borrow():
        raise KeyError
    assert len(arenas) == 1


def test_threads_never_share_one():
    arenas, faults = Arenas(64, idle=2), []

    def user(mark):
        for _ in range(300):
            with arenas.borrow() as arena:
                view = arena.view(0, (8,), np.int64)
                view[:] = mark
                if (view != mark).any():
                    faults.append(mark)

    threads = [threading.Thread(target=user, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults
    assert len(arenas) <= 2
