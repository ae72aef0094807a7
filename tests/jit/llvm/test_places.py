"""Complex numbers in loops: parts that alternate in memory, read and written as vectors."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.program import Writer
from retrograd.jit.passes import optimized
from retrograd.testing.compare import assert_close

MACHINES = here()
DTYPES = ["complex64", "complex128"]


def turned(x):
    return rg.conj(x) * x + 1j


def padded(x):
    return rg.pad(rg.conj(x), ((1, 2),) * x.ndim)


def reversed_and_not(x):
    return rg.flip(x, axis=-1) * rg.conj(x)


def beside(x):
    return rg.matrix_transpose(x) - 2 * x if x.ndim > 1 else x[::2] + 1


FUNCTIONS = [turned, padded, reversed_and_not, beside]


def drawn(rng, shape, dtype):
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("shape", [(1,), (7,), (16,), (41,), (5, 5), (33, 33)])
def test_complex_numbers_at_all_lengths(shape, f, machine, dtype, rng):
    x = drawn(rng, shape, dtype)
    graph, captured = trace(lambda x: [f(x)], [spec_of(x)])
    run = Executable(compiled(graph, machine=named(machine)))
    (found,) = run([x, *(t.array for t in captured)])
    assert_close(found, f(rg.asarray(x)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_neighbours_are_not_gathered(dtype):
    x = np.zeros((64, 64), dtype)
    graph, _ = trace(lambda x: [rg.conj(x)], [spec_of(x)])
    writer = Writer(optimized(graph, kernels_of), named("avx512"))
    writer.written()
    text = writer.module.text()
    assert "gather" not in text
    assert "scatter" not in text
