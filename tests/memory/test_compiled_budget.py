"""Compiled programs within budgets: the same bits, never more bytes, or a refusal before."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit import measure
from retrograd.jit.execute import Executable
from retrograd.jit.llvm.budget import plans
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import chosen
from retrograd.jit.llvm.program import build
from retrograd.jit.passes import optimized
from retrograd.testing.exactly import bits
from retrograd.testing.strategies import programs
from tests.conftest import FULL

LAYERS, WIDTH, BATCH = 12, 32, 160
FEWER = settings(max_examples=max(8, settings.default.max_examples // 4))


def loss(ws, x):
    for w in ws:
        x = rg.nn.gelu(x @ w)
    return rg.mean(x * x)


def step(ws, x):
    value, grads = rg.value_and_grad(loss)(ws, x)
    return [w - 0.1 * g for w, g in zip(ws, grads, strict=True)], value


@pytest.fixture
def model(rng):
    ws = [rg.asarray(rng.normal(size=(WIDTH, WIDTH)).astype("f") / 6) for _ in range(LAYERS)]
    return ws, rg.asarray(rng.normal(size=(BATCH, WIDTH)).astype("f"))


def copies(ws):
    return [rg.asarray(w, copy=True) for w in ws]


def program_of(f):
    (found,) = f.programs.values()
    return found.program


def raw(result):
    weights, value = result
    return [bits(t.array) for t in (*weights, value)]


def budgets(f, *args, count=20 if FULL else 5):
    plan = rg.plan(f, *args)
    return np.linspace(plan.minimum, plan.peak + 1, count).astype(int)


@pytest.mark.parametrize("spill", [False, True])
@pytest.mark.parametrize("donate", [(), ("ws",)])
def test_bits_and_bytes_at_every_budget(model, donate, spill):
    ws, x = model
    wanted = raw(rg.jit(step)(ws, x))
    again = []
    for nbytes in budgets(rg.jit(step, donate=donate, spill=spill), ws, x):
        f = rg.jit(step, donate=donate, budget=int(nbytes), spill=spill)
        assert raw(f(copies(ws), x)) == wanted
        program = program_of(f)
        assert program.taken(rg.get_threads()) <= nbytes
        again.append(program.course.choice.cost)
    assert again == sorted(again, reverse=True)  # more bytes never cost more time
    assert again[0] > again[-1]


def test_the_smallest_budget_runs_and_one_byte_less_is_refused(model):
    ws, x = model
    with pytest.raises(rg.BudgetError) as caught:
        rg.jit(step, budget=1)(ws, x)
    error = caught.value
    assert error.bound <= error.minimum
    assert "gelu" in str(error)
    assert "x = rg.nn.gelu(x @ w)" in str(error)
    rg.jit(step, budget=error.minimum)(ws, x)
    with pytest.raises(rg.BudgetError):
        rg.jit(step, budget=error.minimum - 1)(ws, x)


@FEWER
@given(program=programs(max_steps=10), seed=st.integers(0, 100))
def test_random_programs(program, seed):
    """Value and gradients of random programs, at all budgets that were found and between."""
    arrays = [x.array for x in program.samples(np.random.default_rng(seed))]

    def both(*xs):
        value, grads = rg.value_and_grad(lambda xs: program(*xs))(list(xs))
        return [value, *grads]

    graph, _ = trace(both, [spec_of(a) for a in arrays])
    graph = optimized(graph, kernels_of)
    wanted = [bits(a) for a in Executable(build(graph, chosen()), 2)(arrays)]
    found = plans(graph, chosen(), (), 2)
    for choice in found.choices:
        budget = choice.size + found.fixed
        course = found.within("test", budget)
        assert course.choice.size + found.fixed <= budget
        program = build(graph, chosen(), course=course)
        assert program.arena == course.choice.size
        assert [bits(a) for a in Executable(program, 2)(arrays)] == wanted
    with pytest.raises(rg.BudgetError):
        found.within("test", found.minimum - 1)


def test_state_changes_once(model):
    """Dropout, running statistics and counters: all state after steps, whatever the budget."""
    ws, x = model
    key = rg.random.key(7)

    def training(ws, mean, count, key, x):
        def inner(ws):
            h, m = x, mean
            for i, w in enumerate(ws):
                h = h @ w
                m = 0.9 * m + 0.1 * rg.mean(h, axis=0)
                h = rg.nn.dropout(rg.random.fold_in(key, i), rg.nn.gelu(h), p=0.3)
            return rg.mean(h * h), m

        (value, m), grads = rg.value_and_grad(inner, has_aux=True)(ws)
        new = [w - 0.1 * g for w, g in zip(ws, grads, strict=True)]
        return new, m, count + 1, value

    mean, count = rg.zeros(WIDTH), rg.asarray(0)
    f = rg.jit(training)
    wanted = rg.tree.leaves(f(ws, mean, count, key, x))
    for nbytes in budgets(f, ws, mean, count, key, x, count=6):
        found = rg.tree.leaves(rg.jit(training, budget=int(nbytes))(ws, mean, count, key, x))
        assert [bits(a.array) for a in found] == [bits(b.array) for b in wanted]


def test_effects_run_once(model, capsys):
    ws, x = model

    def talks(ws, x):
        def inner(ws):
            h = x
            for w in ws:
                h = rg.nn.gelu(h @ w)
                rg.debug.print("{}", rg.sum(h))
            return rg.mean(h * h)

        return rg.value_and_grad(inner)(ws)

    rg.jit(talks)(ws, x)
    wanted = capsys.readouterr().out
    small = rg.plan(talks, ws, x).minimum
    capsys.readouterr()
    rg.jit(talks, budget=small)(ws, x)
    assert capsys.readouterr().out == wanted


def test_copies_count_too(model):
    ws, x = model
    smallest = rg.plan(step, ws, x).minimum
    turned = rg.asarray(np.asfortranarray(x.array))
    f = rg.jit(step, budget=smallest)
    f(ws, x)
    with pytest.raises(rg.BudgetError, match="must be copied"):
        f(ws, rg.Tensor(turned.array.T.copy().T))


@pytest.mark.parametrize(
    "bad", [-1, float("nan"), "12 parsecs", "", "MiB", None.__class__, 1.5]
)
def test_nonsense_is_refused(bad):
    with pytest.raises(rg.ArgumentError):
        rg.jit(step, budget=bad)
    with pytest.raises(rg.ArgumentError), rg.budget(bad):
        pass


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("256 MiB", 2**28), ("1.5 GB", 15 * 10**8), ("1_000", 1000), ("2kib", 2048), (7, 7)],
)
def test_budgets_as_people_write_them(text, nbytes):
    assert rg.jit(step, budget=text).budget == nbytes


def test_a_full_disk_is_found_before_anything_runs(model, tmp_path, monkeypatch):
    ws, x = model
    plan = rg.plan(rg.jit(step, donate="ws", spill=True), ws, x)
    f = rg.jit(step, donate="ws", budget=plan.minimum, spill=tmp_path)

    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "posix_fallocate", full)
    mine = copies(ws)
    with pytest.raises(rg.BudgetError, match="No space left"):
        f(mine, x)
    assert [bits(w.array) for w in mine] == [bits(w.array) for w in ws]
    monkeypatch.undo()
    before = rg.memory.stats().filed
    assert raw(f(mine, x)) == raw(rg.jit(step)(ws, x))
    assert rg.memory.stats().filed > before
    assert list(tmp_path.iterdir()) == []  # the file is unlinked


# -- plans --------------------------------------------------------------------------------


def test_a_plan_says_what_happens(model, tmp_path):
    ws, x = model
    whole = rg.plan(step, ws, x)
    assert whole.again == 0
    assert whole.minimum <= whole.peak
    half = rg.plan(step, ws, x, budget=(whole.peak + whole.minimum) // 2)
    assert half.peak <= half.budget
    assert half.again > 0
    assert {b.fate for b in half.bands} >= {"kept", "recomputed"}
    assert sum(b.nbytes for b in half.at_peak()) <= half.arena
    assert "test_compiled_budget.py" in str(half)
    page = half.save(tmp_path / "plan.html").read_text()
    assert "Time against budget" in page
    assert "gelu" in page
    assert [p.nbytes for p in half.curve] == sorted(p.nbytes for p in half.curve)


def test_a_plan_of_specs_is_the_plan_of_values(model):
    ws, x = model
    specs = [w.spec for w in ws], x.spec
    assert rg.plan(step, *specs).curve[0].nbytes == rg.plan(step, ws, x).curve[0].nbytes


def test_a_plan_can_be_drawn(model):
    pytest.importorskip("matplotlib").use("Agg")
    ws, x = model
    figure = rg.plan(step, ws, x, budget=rg.plan(step, ws, x).minimum).plot()
    assert len(figure.axes) == 2


def test_a_first_run_is_never_measured_alone(monkeypatch):
    runs = []

    class Counted(measure.Executable):
        def __call__(self, *args):
            runs.append(args)
            return super().__call__(*args)

    monkeypatch.setattr(measure, "Executable", Counted)
    monkeypatch.setattr(measure, "_ENOUGH", 0.0)
    rg.plan(rg.jit(lambda x: rg.sum(x * x)), rg.ones(1000))
    assert len(runs) == 2
