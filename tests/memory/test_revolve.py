"""Loops that keep few states: the fewest steps there can be, and the same gradients."""

import tracemalloc
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import retrograd as rg
from retrograd.control.revolve import Reversal
from retrograd.memory.revolve import advances, first_stores, reversal
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


@given(st.integers(1, 60), st.integers(0, 9))
def test_the_schedule_is_the_best_there_is(steps, slots):
    states = dict(enumerate(first_stores(steps, slots)))
    assert len(states) <= slots + 1
    here, count, done = steps - 1, steps - 1, []
    for what, a, b in reversal(steps, slots):
        if what == "load":
            assert states[a] == b
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
    assert count == fewest(steps, slots) == advances(steps, slots)


def recurrence(w, h, xs, budget, *, reverse=False):
    def f(h, x):
        h = rg.tanh(h @ w + x)
        return h, rg.sum(h * h)

    h, ys = rg.scan(f, h, xs, budget=budget, reverse=reverse)
    return rg.sum(h * h) + rg.sum(ys * ys)


@pytest.fixture
def case(rng):
    arrays = rng.normal(size=(5, 5)), rng.normal(size=(2, 5)), rng.normal(size=(37, 2, 5))
    return tuple(map(rg.asarray, arrays))


ROOMS = (0, 80, 240, 400, 800, 10_000)
gradient = rg.grad(recurrence, argnums=(0, 1, 2))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("room", ROOMS)
def test_gradients_have_the_bits_of_the_free_loop(case, room, reverse):
    wanted = gradient(*case, None, reverse=reverse)
    found = gradient(*case, room, reverse=reverse)
    assert [bits(a.array) for a in found] == [bits(b.array) for b in wanted]


@pytest.mark.parametrize("room", ROOMS)
def test_compiled(case, room):
    wanted = rg.jit(gradient, static="budget")(*case, None)
    found = rg.jit(gradient, static="budget")(*case, room)
    for a, b in zip(found, wanted, strict=True):
        assert_close(a.array, b.array)


def test_a_second_backward_pass_runs_the_loop_again(case):
    leaves = [rg.tensor(t.array, requires_grad=True) for t in case]
    value = recurrence(*leaves, 240)
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


@pytest.mark.parametrize("slots", [0, 1, 3, 10])
def test_steps_taken_are_the_fewest(case, slots, monkeypatch):
    w, h, _ = case
    length, taken = 64, []
    real = Reversal.advance

    def advance(self, start, end):
        taken.append(end - start)
        real(self, start, end)

    def value(h):
        budget = (slots + 2) * h.nbytes
        last, _ = rg.scan(lambda h, _: (rg.tanh(h @ w), None), h, length=length, budget=budget)
        return rg.sum(last)

    monkeypatch.setattr(Reversal, "advance", advance)
    rg.grad(value)(h)
    assert length - 1 + sum(taken) == advances(length, slots)


def test_few_bytes_for_long_loops():
    size, length = 1024, 2000
    h = rg.asarray(np.full(size, 0.5, np.float32))

    def value(h, budget):
        return rg.sum(
            rg.scan(lambda h, _: (rg.sin(h), None), h, length=length, budget=budget)[0]
        )

    def peak(budget):
        rg.grad(value)(h, budget)
        tracemalloc.start()
        rg.grad(value)(h, budget)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    room = 40 * h.nbytes
    assert peak(room) < room + 100_000 + 10 * h.nbytes
    assert peak(None) > length * h.nbytes


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
