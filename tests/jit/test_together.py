"""Kernels that touch nothing in common run as one job of the pool."""

import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import retrograd as rg
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import chosen
from retrograd.jit.llvm.main import MANY, Touched
from retrograd.jit.llvm.program import Writer
from retrograd.jit.passes import optimized

# `retrograd.jit` is the function: these are found by name
routine, main, program = (
    importlib.import_module(f"retrograd.jit.llvm.{name}")
    for name in ("routine", "main", "program")
)
SHAPE = (64, 1024)  # of arrays whose kernels have several chunks


@pytest.fixture
def streams(monkeypatch):
    """As if every kernel were larger than the caches, and every program long."""
    monkeypatch.setattr(routine, "STREAMS", 1)
    monkeypatch.setattr(program, "MANY", 1)


def draw(count, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(SHAPE).astype(np.float32) for _ in range(count)]


def jobs(step, *args, donated=()):
    """How many kernels each job of a step's program has."""
    graph = optimized(rg.jit(step).lower(*args).graph, kernels_of)
    writer = Writer(graph, chosen(), donated)
    writer.written()
    starts = writer.f.jobs
    ends = [*starts[1:], len(writer.f.rows)]
    return [end - start for start, end in zip(starts, ends, strict=True)]


def adamw(weights, means, squares, grads):
    optimizer = rg.optim.AdamW(1e-2)
    kept = {"step": rg.asarray(3), "mean": means, "square": squares}
    new, kept = optimizer.step(weights, grads, kept)
    return new, kept["mean"], kept["square"]


def state(count):
    made = draw(4 * count)
    weights, means, squares, grads = (made[k * count : (k + 1) * count] for k in range(4))
    return weights, means, [np.abs(s) for s in squares], grads


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [3, 70])
def test_updates_of_many_weights_have_the_bits_of_each_alone(
    count, threads, streams, monkeypatch
):
    found = []
    for most in (1, main.TOGETHER):
        monkeypatch.setattr(main, "TOGETHER", most)
        given = [[rg.asarray(a) for a in column] for column in state(count)]
        f = rg.jit(adamw, donate=("weights", "means", "squares"), threads=threads)
        for _ in range(3):  # there, back, and there again
            given[:3] = f(*given)
        found.append([a.numpy().tobytes() for column in given[:3] for a in column])
    assert found[0] == found[1]


def test_updates_of_many_weights_are_few_jobs(streams):
    given = state(70)
    several = [n for n in jobs(adamw, *given, donated=range(210)) if n > 1]
    assert sum(several) == 70
    assert max(several) == main.TOGETHER


def test_what_fits_in_the_caches_stays_alone(monkeypatch):
    monkeypatch.setattr(program, "MANY", 1)
    assert set(jobs(adamw, *state(8), donated=range(24))) == {1}


def test_a_kernel_that_reads_what_another_writes_stays_behind_it(streams):
    def chain(x):
        out = []
        for _ in range(3):
            x = rg.cumulative_sum(rg.sin(x), axis=1)[:, ::-1]
            out.append(x)
        return out

    assert set(jobs(chain, draw(1)[0])) == {1}


def test_memory_that_was_let_go_of_is_not_written_too_early(streams):
    """The second row lies where the first one's operand was: they are not one job."""

    def rows(x, y):
        a = rg.cumulative_sum(x, axis=1)
        b = rg.sum(rg.cumulative_sum(a[:, ::-1], axis=1), axis=1)
        c = rg.cumulative_sum(y, axis=1)
        return b, rg.sum(rg.cumulative_sum(c[:, ::-1], axis=1), axis=1)

    x, y = draw(2)
    f = rg.jit(rows, threads=3)
    for _ in range(20):
        found = f(x, y)
        for one, by in zip(found, (x, y), strict=True):
            run = np.cumsum(np.cumsum(by.astype(np.float64), 1)[:, ::-1], 1).sum(1)
            np.testing.assert_allclose(one.numpy(), run, rtol=1e-3)


ops = st.tuples(
    st.sampled_from(["add", "mul", "turn", "rows", "donate"]),
    st.integers(0, 9),
    st.integers(0, 9),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(ops, min_size=3, max_size=16))
def test_random_programs_have_the_bits_of_one_thread(wanted):
    def step(given):
        values, out = list(given), []
        for op, i, j in wanted:
            a, b = values[i % len(values)], values[j % len(values)]
            if op == "add":
                values.append(a + b)
            elif op == "mul":
                values.append(rg.tanh(a) * b)
            elif op == "turn":
                values.append(rg.cumulative_sum(a[:, ::-1], axis=1) * 0.01)
            elif op == "rows":
                values.append(a - rg.mean(b, axis=1, keepdims=True))
            else:
                out.append(a * 2 + b)
        return [*out, *values[3:][-3:]]

    found = []
    for threads, most in ((1, 1), (3, main.TOGETHER)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(routine, "STREAMS", 1)
            patch.setattr(program, "MANY", 1)
            patch.setattr(main, "TOGETHER", most)
            f = rg.jit(step, donate="given", threads=threads)
            made = f([rg.asarray(a) for a in draw(3)])
        found.append([a.numpy().tobytes() for a in made])
    assert found[0] == found[1]


ranges = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(1, 8)).map(
        lambda r: (r[0], r[1], r[1] + r[2])
    ),
    max_size=3,
)


def cells(found):
    return {(slot, byte) for slot, start, end in found for byte in range(start, end)}


@given(ranges, ranges, ranges, ranges)
def test_beside_is_what_the_bytes_say(reads, writes, other_reads, other_writes):
    one, two = Touched(reads, writes), Touched(other_reads, other_writes)
    clash = cells(writes) & (cells(other_reads) | cells(other_writes))
    clash |= cells(other_writes) & cells(reads)
    assert one.beside(two) == two.beside(one) == (not clash)


def test_long_programs_have_a_table():
    graph = optimized(rg.jit(adamw).lower(*state(24)).graph, kernels_of)
    assert len(graph.nodes) >= MANY
