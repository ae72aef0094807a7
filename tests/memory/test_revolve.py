"""Loops that keep few states: the fewest steps there can be, and the same gradients."""

import os
import tracemalloc
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import retrograd as rg
from retrograd.control.revolve import Reversal
from retrograd.control.revolve import slots as fitting
from retrograd.control.scan_steps import Steps
from retrograd.memory.revolve import (
    advances,
    cut,
    first_stores,
    reversal,
    segmented,
    segments,
)
from retrograd.testing import assert_close
from retrograd.testing.exactly import bits


@cache
def fewest(steps, slots):
    """The least number of advances, by trying every middle."""
    if steps <= 1:
        return 0
    if not slots:
        return steps * (steps - 1) // 2
    return min(m + fewest(steps - m, slots - 1) + fewest(m, slots) for m in range(1, steps))


def walked(actions, steps, slots, states, starts=()):
    """The steps that actions run forwards, after the first run; all are checked."""
    here, count, done = steps - 1, 0, []
    for what, a, b in actions:
        if what == "load":
            assert states[a] == b
            here = b
        elif what == "fetch":
            assert starts[a] == b
            here = b
        elif what == "advance":
            assert here == a
            here, count = b, count + b - a
        elif what == "store":
            assert here == b
            assert a <= slots
            states[a] = b
        else:
            assert here == a
            done.append(a)
    assert done == list(range(steps))[::-1]
    return count


@given(st.integers(1, 60), st.integers(0, 9))
def test_the_schedule_is_the_best_there_is(steps, slots):
    states = dict(enumerate(first_stores(steps, slots)))
    assert len(states) <= slots + 1
    count = steps - 1 + walked(reversal(steps, slots), steps, slots, states)
    assert count == fewest(steps, slots) == advances(steps, slots)


@cache
def fewest_in_segments(steps, slots, count):
    """The same with segments that start from a file, by trying every length of the first."""
    if count == 1:
        return fewest(steps, slots)
    return min(
        m + fewest(m, slots) + fewest_in_segments(steps - m, slots, count - 1)
        for m in range(1, steps - count + 2)
    )


@given(st.integers(1, 40), st.integers(0, 5), st.integers(1, 7))
def test_two_levels_are_the_best_there_is(steps, slots, count):
    count = min(count, steps)
    starts = cut(steps, slots, count)
    assert len(starts) == count
    states = dict(enumerate(starts[-1] + m for m in first_stores(steps - starts[-1], slots)))
    actions = segmented(steps, slots, starts)
    taken = steps - 1 + walked(actions, steps, slots, states, starts)
    assert taken == fewest_in_segments(steps, slots, count)


@given(st.integers(1, 500), st.integers(0, 9))
def test_a_file_lets_no_step_run_more_than_once_again(steps, slots):
    starts = cut(steps, slots, segments(steps, slots))
    runs = np.ones(steps, int)
    for what, a, b in segmented(steps, slots, starts):
        if what == "advance":
            runs[a:b] += 1
    assert runs.max() <= 2


def recurrence(w, h, xs, budget, *, reverse=False, spill=False):
    def f(h, x):
        h = rg.tanh(h @ w + x)
        return h, rg.sum(h * h)

    h, ys = rg.scan(f, h, xs, budget=budget, reverse=reverse, spill=spill)
    return rg.sum(h * h) + rg.sum(ys * ys)


@pytest.fixture
def case(rng):
    arrays = rng.normal(size=(5, 5)), rng.normal(size=(2, 5)), rng.normal(size=(37, 2, 5))
    return tuple(map(rg.asarray, arrays))


ROOMS = (0, 80, 240, 400, 800, 10_000)
gradient = rg.grad(recurrence, argnums=(0, 1, 2))


@pytest.mark.parametrize("spill", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("room", ROOMS)
def test_gradients_have_the_bits_of_the_free_loop(case, room, reverse, spill):
    wanted = gradient(*case, None, reverse=reverse)
    found = gradient(*case, room, reverse=reverse, spill=spill)
    assert [bits(a.array) for a in found] == [bits(b.array) for b in wanted]


@pytest.mark.parametrize("room", ROOMS)
def test_compiled(case, room):
    wanted = rg.jit(gradient, static="budget")(*case, None)
    found = rg.jit(gradient, static="budget")(*case, room)
    for a, b in zip(found, wanted, strict=True):
        assert_close(a.array, b.array)


def test_compiled_steps_are_programs(case, monkeypatch):
    """None runs op by op, and rows that are numbers are arrays to programs."""
    wanted = gradient(*case, None)

    def steps(*_):
        raise AssertionError

    monkeypatch.setattr(Steps, "__init__", steps)
    found = rg.jit(gradient, static="budget")(*case, 800)
    for a, b in zip(found, wanted, strict=True):
        assert_close(a.array, b.array)


def test_compiled_loops_share_all_room_but_that_of_a_step(case, monkeypatch):
    w, h, _ = case
    seen = []
    real = Reversal.advance

    def advance(self, start, end):
        seen.append(fitting(self.scan))
        real(self, start, end)

    def value(h):
        f = lambda h, _: (rg.tanh(h @ w), None)
        return rg.sum(rg.scan(f, h, length=64, budget=24 * h.nbytes)[0])

    monkeypatch.setattr(Reversal, "advance", advance)
    rg.grad(value)(h)
    eager = seen.pop()
    rg.jit(rg.grad(value))(h)
    assert 2 < eager // 2 - 1 <= seen.pop() <= eager // 2


@pytest.mark.parametrize("spill", [False, True])
def test_a_second_backward_pass_runs_the_loop_again(case, spill):
    leaves = [rg.tensor(t.array, requires_grad=True) for t in case]
    value = recurrence(*leaves, 240, spill=spill)
    value.backward(retain_graph=True)
    value.backward()
    for leaf, g in zip(leaves, gradient(*case, None), strict=True):
        assert_close(leaf.grad.array, 2 * g.array)


def test_second_order_and_vmap(case):
    w, h, xs = case

    def slope(h, room):
        return rg.sum(rg.grad(recurrence, argnums=1)(w, h, xs, room) ** 2)

    assert_close(rg.grad(slope)(h, 240).array, rg.grad(slope)(h, None).array)
    many = rg.stack([h, h + 1])
    one, two = (
        rg.vmap(lambda h, room=room: rg.grad(recurrence, argnums=1)(w, h, xs, room))(many)
        for room in (240, None)
    )
    assert_close(one.array, two.array)


@pytest.mark.parametrize("spill", [False, True])
@pytest.mark.parametrize("room", [0, 16, 20, 30])
def test_steps_taken_are_the_fewest(case, room, spill, monkeypatch):
    w, h, _ = case
    length, taken, seen = 64, [], set()
    real = Reversal.advance

    def advance(self, start, end):
        taken.append(end - start)
        seen.add(fitting(self.scan))
        real(self, start, end)

    def value(h):
        budget = room * h.nbytes
        f = lambda h, _: (rg.tanh(h @ w), None)
        return rg.sum(rg.scan(f, h, length=length, budget=budget, spill=spill)[0])

    monkeypatch.setattr(Reversal, "advance", advance)
    rg.grad(value)(h)
    (slots,) = seen
    assert slots < length / 2
    assert (slots > 0) == (room > 0)
    count = segments(length, slots) if spill else 1
    assert length - 1 + sum(taken) == fewest_in_segments(length, slots, count)


def test_a_full_disk_is_found_before_the_loop_runs(case, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        with pytest.raises(rg.BudgetError, match="No space left"):
            gradient(*case, 240, spill=tmp_path)
    found, wanted = gradient(*case, 240, spill=tmp_path), gradient(*case, None)
    assert [bits(a.array) for a in found] == [bits(b.array) for b in wanted]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("budget", ["1 KiB", "4 KiB"])
def test_a_file_in_a_block_and_in_a_checkpoint(case, budget):
    wanted = [bits(t.array) for t in gradient(*case, None)]
    with rg.budget("1 MiB", spill=True):
        found = gradient(*case, budget, spill=True)
        assert [bits(t.array) for t in found] == wanted
    kept = rg.grad(rg.checkpoint(recurrence), argnums=(0, 1, 2))(*case, budget, spill=True)
    assert [bits(t.array) for t in kept] == wanted


def test_few_bytes_for_long_loops():
    size, length = 1024, 2000
    h = rg.asarray(np.full(size, 0.5, np.float32))

    def value(h, budget, spill):
        f = lambda h, _: (rg.sin(h), None)
        return rg.sum(rg.scan(f, h, length=length, budget=budget, spill=spill)[0])

    def peak(budget, spill=False):
        rg.grad(value)(h, budget, spill)
        tracemalloc.start()
        rg.grad(value)(h, budget, spill)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    room, objects = 40 * h.nbytes, 100_000
    assert peak(room) < room + objects
    assert peak(room, True) < room + objects
    assert peak(None) > length * h.nbytes


@pytest.mark.parametrize("last", [rg.sum, lambda h: rg.sum(h * h)])
def test_states_cotangents_and_objects_are_within_the_budget(last):
    budget, length = 1 << 24, 700
    w, h = rg.full((1 << 14,), 0.5), rg.full((1 << 14,), 0.1)

    def value(w, h):
        f = lambda h, _: (h + 0.01 * rg.tanh(h * w), None)
        return last(rg.scan(f, h, length=length, budget=budget)[0])

    gradient = rg.grad(value, argnums=(0, 1))
    gradient(w, h)
    tracemalloc.start()
    gradient(w, h)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert budget - 8 * h.nbytes < most <= budget


def test_a_budget_of_jit_reaches_into_loops():
    """Too little for all carries: the loop keeps few, and the gradient is the same."""
    length = 300
    h = rg.asarray(np.linspace(0, 1, 4096, dtype=np.float32))

    def value(h):
        return rg.sum(rg.scan(lambda h, _: (rg.sin(h), None), h, length=length)[0])

    free = rg.jit(rg.grad(value))
    wanted = free(h)
    (program,) = free.programs.values()
    budget = program.program.taken(rg.get_threads()) // 4
    tight = rg.jit(rg.grad(value), budget=budget)
    assert_close(tight(h).array, wanted.array)
    (program,) = tight.programs.values()
    assert program.program.taken(rg.get_threads()) <= budget
