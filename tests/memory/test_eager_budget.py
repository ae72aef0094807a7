"""Eager code within budgets: values go and come back, with the same bits."""

import gc
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import retrograd as rg
from retrograd.testing.exactly import bits
from retrograd.testing.strategies import programs

LAYERS, WIDTH, BATCH = 10, 48, 40
FEWER = settings(max_examples=max(8, settings.default.max_examples // 4))


def chain(ws, x):
    for w in ws:
        x = rg.nn.gelu(x @ w)
    return x


def loss(ws, x):
    return rg.mean(chain(ws, x) ** 2)


@pytest.fixture
def model(rng):
    ws = [rg.asarray(rng.normal(size=(WIDTH, WIDTH)).astype("f") / 6) for _ in range(LAYERS)]
    return ws, rg.asarray(rng.normal(size=(BATCH, WIDTH)).astype("f"))


def raw(tensors):
    return [bits(t.array) for t in tensors]


def tape(ws, x):
    leaves = [rg.tensor(w.array, requires_grad=True) for w in ws]
    loss(leaves, x).backward()
    return [w.grad for w in leaves]


def second(ws, x):
    return rg.grad(lambda ws: sum(rg.sum(g * g) for g in rg.grad(loss)(ws, x)))(ws)


WAYS = {"grad": rg.grad(loss), "tape": tape, "second order": second}


@pytest.mark.parametrize("way", WAYS)
def test_bits_and_bytes_at_every_budget(model, way):
    run = WAYS[way]
    wanted = raw(run(*model))
    with rg.memory.track() as whole:
        kept = run(*model)
    del kept
    dropped = []
    for nbytes in np.linspace(whole.peak, whole.peak // 3, 8).astype(int):
        with rg.budget(int(nbytes)) as ledger:
            try:
                found = run(*model)
            except rg.BudgetError:
                continue
            assert raw(found) == wanted
            assert ledger.peak <= nbytes
            dropped.append(ledger.dropped)
    assert dropped[0] == 0
    assert dropped[-1] > 0


@FEWER
@given(program=programs(max_steps=10), part=st.floats(0.2, 1.0))
def test_random_programs(program, part):
    """High water is never above the budget; what fits has the bits of the free run."""
    xs = list(program.samples(np.random.default_rng(3)))

    def both():
        value, grads = rg.value_and_grad(lambda xs: program(*xs))(xs)
        return [value, *grads]

    wanted = raw(both())
    with rg.memory.track() as whole:
        both()
    nbytes = int(whole.peak * part)
    with rg.budget(nbytes) as ledger:
        with suppress(rg.BudgetError):
            assert raw(both()) == wanted
        assert ledger.peak <= nbytes
    assert raw(both()) == wanted  # and everything is still valid


def test_all_is_freed_in_the_end(model):
    ws, x = model
    with rg.budget("10 MiB") as ledger:
        grads = rg.grad(loss)(ws, x)
        held = sum(g.nbytes for g in grads)
        gc.collect()
        assert ledger.current == held
        del grads
        gc.collect()
        assert ledger.current == 0


def test_tensors_outlive_the_block(model):
    ws, x = model
    with rg.budget("150 KiB"):
        y = chain(ws, x)
        z = y * 2
    assert y.shape == (BATCH, WIDTH)
    assert bits(z.array) == bits((chain(ws, x) * 2).array)


def test_arguments_do_not_count(model):
    _, x = model
    with rg.budget(x.nbytes) as ledger:
        turned = x.T
        assert ledger.current == 0
        assert bits(turned.array) == bits(x.array.T)


def test_refused_at_the_op_and_all_still_valid(model):
    _, x = model
    with rg.budget(2 * x.nbytes + 64):
        y = x * 2
        with pytest.raises(rg.BudgetError, match="matmul"):
            rg.matmul(x.T, rg.ones((BATCH, 100_000)))
        assert bits(y.array) == bits((x * 2).array)


def test_effects_happen_once(model, capsys):
    ws, x = model

    def talks(ws):
        h = x
        for w in ws:
            h = rg.nn.gelu(h @ w)
            rg.debug.print("{}", rg.sum(h))
        return rg.mean(h * h)

    rg.grad(talks)(ws)
    wanted = capsys.readouterr().out
    with rg.budget("140 KiB") as ledger:
        rg.grad(talks)(ws)
    assert ledger.replayed
    assert capsys.readouterr().out == wanted


def test_hooks_and_custom_functions_run_once(model):
    _, x = model
    calls = []

    @rg.custom_vjp
    def doubled(x):
        calls.append("forward")
        return 2 * x

    doubled.defvjp(lambda x: (2 * x, ()), lambda _, g: (2 * g,))

    def run():
        calls.clear()
        t = rg.tensor(x.array, requires_grad=True)
        h = doubled(rg.tanh(t))
        h.register_hook(lambda g: calls.append("hook"))
        rg.sum(rg.exp(h) * h).backward()
        return list(calls), bits(t.grad.array)

    wanted = run()
    with rg.budget(6 * x.nbytes) as ledger:
        assert run() == wanted
    assert ledger.dropped


def test_the_timeline_names_ops_and_lines(model):
    ws, x = model
    with rg.memory.track() as ledger:
        loss(ws, x)
    names = [e.what for e in ledger.events]
    assert names.count("gelu") == LAYERS
    assert any("x = rg.nn.gelu(x @ w)" in e.where for e in ledger.events)
    assert max(e.current for e in ledger.events) <= ledger.peak


def test_stats_outside_are_those_of_compiled_programs(model):
    ws, x = model
    f = rg.jit(rg.grad(loss))
    before = rg.memory.stats().current
    f(ws, x)
    assert rg.memory.stats().current > before


# -- policies ----------------------------------------------------------------------------------


def named(ws, x):
    for w in ws:
        x = rg.name(rg.nn.gelu(x @ w), "hidden")
    return x


POLICIES = [
    {},
    {"policy": "everything"},
    {"policy": "nothing"},
    {"policy": "dots"},
    {"policy": "cheap"},
    {"names": ["hidden"]},
    {"offload": ["hidden"]},
    {"budget": "40 KiB"},
    {"budget": "40 KiB", "spill": True},
]


@pytest.mark.parametrize("options", POLICIES, ids=str)
def test_policies_keep_the_bits(model, options):
    ws, x = model
    wanted = raw(rg.grad(lambda ws: rg.mean(named(ws, x) ** 2))(ws))
    kept = rg.checkpoint(named, **options)
    assert raw(rg.grad(lambda ws: rg.mean(kept(ws, x) ** 2))(ws)) == wanted
    leaves = [rg.tensor(w.array, requires_grad=True) for w in ws]
    rg.mean(kept(leaves, x) ** 2).backward()
    assert raw(w.grad for w in leaves) == wanted
    compiled = rg.jit(rg.grad(lambda ws: rg.mean(kept(ws, x) ** 2)))
    plain = rg.jit(rg.grad(lambda ws: rg.mean(named(ws, x) ** 2)))
    assert raw(compiled(ws)) == raw(plain(ws))


def test_policies_keep_what_they_say(model):
    ws, x = model

    def held(**options):
        with rg.memory.track() as ledger:
            leaves = [rg.tensor(w.array, requires_grad=True) for w in ws]
            y = rg.checkpoint(named, **options)(leaves, x)
            gc.collect()
            return (ledger.current - y.nbytes) // x.nbytes

    assert held(policy="nothing") == 0
    assert held(policy="dots") == LAYERS
    assert held(names=["hidden"]) == LAYERS - 1  # the last one is the result
    assert held(offload=["hidden"]) == 0
    assert held(policy="everything") > 2 * LAYERS


def test_policies_are_checked():
    with pytest.raises(rg.ArgumentError, match="none of everything"):
        rg.checkpoint(chain, policy="some")


def test_compiled_calls_are_charged(model):
    ws, x = model
    f = rg.jit(rg.grad(loss))
    f(ws, x)
    (found,) = f.programs.values()
    taken = found.program.taken(rg.get_threads())
    with rg.budget(taken) as ledger:
        grads = f(ws, x)
        assert ledger.current == sum(g.nbytes for g in grads)
        assert ledger.peak == taken
    with rg.budget(taken - 1), pytest.raises(rg.BudgetError):
        f(ws, x)


def test_new_arrays_count():
    with rg.budget(4000) as ledger:
        x = rg.zeros((10, 10))
        assert ledger.current == x.nbytes
        with pytest.raises(rg.BudgetError):
            rg.ones((100, 100))


def test_functions_that_run_as_one_kernel_keep_to_it(rng):
    """Compositions on large arrays: room is made before them, and they run again."""
    x = rg.asarray(rng.normal(size=(128, 256)).astype("f"))
    w, b = rg.ones(256), rg.zeros(256)

    def deep(x):
        for _ in range(6):
            x = rg.nn.layer_norm(rg.sin(x), w, b)
        return rg.sum(x * x)

    with rg.memory.track() as whole:
        wanted = rg.grad(deep)(x)
    with rg.budget(whole.peak // 2) as ledger:
        found = rg.grad(deep)(x)
        assert raw([found]) == raw([wanted])
    assert ledger.peak <= whole.peak // 2
    assert ledger.replayed


def test_cotangents_of_numbers_that_are_added_are_counted():
    def f(x):
        return rg.sum(x) + rg.tanh(x) * x

    x = rg.tensor(0.5)
    wanted = rg.grad(f)(x)
    with rg.budget("1 MiB"):
        found = rg.grad(f)(x)
    assert found.tolist() == wanted.tolist()


def test_there_is_room_for_cotangents_before_they_are_summed():
    def f(x, y):
        return rg.sum(x * rg.tanh(y))

    x, y = rg.tensor(0.5), rg.asarray(np.linspace(-1, 1, 64))
    with rg.memory.track() as whole:
        rg.grad(f, (0, 1))(x, y)
    for nbytes in range(0, whole.peak, 64):
        with rg.budget(nbytes) as ledger:
            with suppress(rg.BudgetError):
                rg.grad(f, (0, 1))(x, y)
            assert ledger.peak <= nbytes
