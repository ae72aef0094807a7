"""Columns that are reduced many at a time: of any number of them, against NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.parts import holding
from retrograd.jit.llvm.program import Writer
from retrograd.jit.passes import optimized

MACHINES = here()

# Of whole numbers, so that sums are the same in any order.
FUNCTIONS = {
    "sum": (lambda x: rg.sum(x, axis=0), lambda x: x.sum(0)),
    "squares": (lambda x: rg.sum(x * x, axis=0), lambda x: (x * x).sum(0)),
    "largest": (lambda x: rg.max(x, axis=0), lambda x: x.max(0)),
    "both": (
        lambda x: rg.sum(x, axis=0) - 2.0 * rg.sum(x * x, axis=0),
        lambda x: x.sum(0) - 2 * (x * x).sum(0),
    ),
    "of each": (
        lambda x: rg.sum(rg.reshape(x, (3, -1, x.shape[1])), axis=1),
        lambda x: x.reshape(3, -1, x.shape[1]).sum(1),
    ),
}


def graph_of(f, x):
    return trace(lambda x: [f(x)], [spec_of(x)])


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("width", [3, 17, 50, 100, 130, 300, 784, 1000, 1040])
def test_columns_of_any_number(width, name, machine, rng):
    x = rng.integers(-9, 10, size=(300, width)).astype(np.float32)
    f, twin = FUNCTIONS[name]
    graph, captured = graph_of(f, x)
    program = Executable(compiled(graph, machine=named(machine)))
    (found,) = program([x, *(t.array for t in captured)])
    np.testing.assert_array_equal(found, twin(x.astype(np.float64)))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("width", [17, 100, 300])
def test_rows_added_where_indices_say(width, machine, rng):
    x = rng.integers(-9, 10, size=(500, width)).astype(np.float32)
    to = rng.integers(0, 40, size=500)

    def grad(x):
        def loss(w):
            return rg.sum(rg.embedding(rg.asarray(to), w) * x)

        return rg.grad(loss)(rg.zeros((40, width), dtype="float32"))

    graph, captured = graph_of(grad, x)
    program = Executable(compiled(graph, machine=named(machine)))
    (found,) = program([x, *(t.array for t in captured)])
    twin = np.zeros((40, width))
    np.add.at(twin, to, x)
    np.testing.assert_array_equal(found, twin)


@given(st.integers(1, 64))
def test_what_is_left_over_is_held_by_less_than_twice_as_much(vectors):
    assert vectors <= holding(vectors) < 2 * vectors


@pytest.mark.parametrize("width", [1040, 1000, 784])
def test_wide_rows_are_read_in_few_parts(width):
    """One line of each row at a time is a third of the speed."""
    x = np.zeros((8192, width), np.float32)
    writer = Writer(optimized(graph_of(FUNCTIONS["sum"][0], x)[0], kernels_of), named("avx512"))
    writer.written()
    text = writer.module.text()
    wide = {
        int(line.split("<")[1].split()[0]) for line in text.splitlines() if "fadd <" in line
    }
    assert max(wide) == 32 * 16
