"""Staggered rows: the bits that rows have one after the other, in any memory."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.execute import Executable
from retrograd.jit.llvm import loops
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.program import build
from retrograd.jit.passes import optimized

MACHINES = here()


def softmax(x):
    return [rg.nn.softmax(x)]


def log_softmax(x):
    return [rg.nn.log_softmax(x)]


def scaled(x):
    """Four loops, of which the last two read what the second keeps."""
    p = rg.nn.softmax(x)
    return [p / rg.sqrt(rg.sum(p * p, axis=-1, keepdims=True))]


def with_totals(x):
    """Numbers of each row besides, that come after its loops."""
    p = rg.nn.softmax(x * 2)
    return [p, rg.sum(p * x, axis=-1), rg.max(x * 2, axis=-1)]


def with_a_bias(x):
    """Rows of several axes that cannot be joined."""
    y = rg.reshape(x, (2, -1, x.shape[-1])) if x.shape[0] % 2 == 0 else x[None]
    return [rg.nn.softmax(y + y[:, :1])]


def normed(x):
    """Loops without a function."""
    return [rg.nn.layer_norm(x)]


def normed_backward(x):
    """Rows of two arrays, and of one gradient."""
    return rg.vjp(rg.nn.layer_norm, x)[1](rg.flip(x, axis=0))


PROGRAMS = [softmax, log_softmax, scaled, with_totals, with_a_bias, normed, normed_backward]


def built(f, arrays, machine, donated=()):
    graph = optimized(trace(f, [spec_of(a) for a in arrays])[0], kernels_of)
    return build(graph, named(machine), donated)


def one_by_one(f, arrays, machine):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loops, "stages_of", lambda *_: [])
        program = built(f, arrays, machine)
    return Executable(program)(arrays)


def check(f, x, machine):
    wanted = one_by_one(f, [x], machine)
    program = built(f, [x], machine)
    for threads in (1, 2, 3):
        for got, want in zip(Executable(program, threads)([x]), wanted, strict=True):
            assert got.tobytes() == want.tobytes()


@pytest.fixture
def staggered(monkeypatch):
    """The numbers of stages of all kernels that are written."""
    found, real = [], loops.stages_of

    def spy(*args):
        found.append(len(real(*args)))
        return real(*args)

    monkeypatch.setattr(loops, "stages_of", spy)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("f", PROGRAMS)
def test_the_same_bits_as_one_by_one(f, machine, dtype, rng):
    for rows, length in [(8, 256), (9, 300), (23, 1000), (150, 257), (400, 512)]:
        check(f, (rng.normal(size=(rows, length)) * 5).astype(dtype), machine)


def test_the_programs_here_are_staggered(staggered, rng):
    x = rng.normal(size=(40, 512)).astype(np.float32)
    stages = {}
    for f in PROGRAMS:
        staggered.clear()
        built(f, [x], MACHINES[0])
        stages[f.__name__] = max(staggered)
    assert stages.pop("scaled") == 4
    assert stages.pop("normed_backward") >= 2
    assert set(stages.values()) == {3}


def test_a_row_of_what_is_not_a_number_leaves_others_alone(rng):
    x = rng.normal(size=(60, 256)).astype(np.float32)
    wanted = Executable(built(softmax, [x], MACHINES[0]))([x])[0]
    wild = x.copy()
    wild[7, 3], wild[20, 200], wild[21], wild[59, 0] = np.nan, np.inf, -np.inf, np.nan
    got = Executable(built(softmax, [x], MACHINES[0]))([wild])[0]
    bad = [7, 20, 21, 59]
    assert np.isnan(got[bad]).all()
    assert np.delete(got, bad, 0).tobytes() == np.delete(wanted, bad, 0).tobytes()


@pytest.mark.parametrize("f", [softmax, log_softmax, scaled])
def test_results_may_take_the_place_of_operands(f, rng):
    x, y = (rng.normal(size=(100, 512)).astype(np.float32) for _ in "xy")

    def product(x, y):
        return [f(x)[0] * y]

    (wanted,) = one_by_one(product, [x, y], MACHINES[0])
    mine = y.copy()
    (got,) = Executable(built(product, [x, y], MACHINES[0], (1,)))([x, mine], (1,))
    assert np.shares_memory(got, mine)
    assert got.tobytes() == wanted.tobytes()


@given(
    st.sampled_from(PROGRAMS),
    st.integers(1, 70),
    st.integers(200, 700),
    st.sampled_from(MACHINES),
    st.integers(0, 2**32 - 1),
)
def test_rows_of_any_number_and_length(f, rows, length, machine, seed):
    x = np.random.default_rng(seed).normal(size=(rows, length)).astype(np.float32)
    check(f, x, machine)
