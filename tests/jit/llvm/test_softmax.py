"""Compiled softmax: as near as a difference from the largest allows, and right at its edges."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.execute import Executable
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.program import build
from retrograd.jit.passes import optimized

MACHINES = here()
DTYPES = [np.float32, np.float64]


def run(x, machine, axis=-1):
    graph = trace(lambda x: [rg.nn.softmax(x, axis=axis)], [spec_of(x)])[0]
    program = build(optimized(graph, kernels_of), named(machine), ())
    return Executable(program)([x])[0]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spread", [0.1, 3.0, 30.0])
def test_errors_are_those_of_the_difference(spread, dtype, machine, rng):
    """Shares of the largest weight: the error of their sum is that of any sum."""
    x = (rng.normal(size=(64, 300)) * spread + 50).astype(dtype)
    below = x.max(-1, keepdims=True) - x.astype(np.longdouble)
    wanted = np.exp(-below)
    allowed = (6 + below) * np.finfo(dtype).eps * wanted
    columns = run(np.ascontiguousarray(x.T), machine, axis=0).T
    for got in (run(x, machine), columns):
        assert np.allclose(got.sum(-1, dtype=float), 1, rtol=300 * np.finfo(dtype).eps)
        share = got.astype(np.longdouble) / got.max(-1, keepdims=True)
        least = np.finfo(dtype).tiny / got.max(-1, keepdims=True)  # denormal weights have less
        assert (np.abs(share - wanted) <= np.maximum(allowed, least)).all()


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_masked_is_0_and_what_stands_alone_1(dtype, machine):
    x = np.zeros((5, 40), dtype)
    for row, hidden in enumerate([-np.inf, np.finfo(dtype).min, -1e30, -2e3, -1e5]):
        x[row, 1:] = hidden
    got = run(x + dtype(5), machine)
    assert (got[:, 0] == 1).all()
    assert (got[:, 1:] == 0).all()


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_without_an_answer_are_nan(dtype, machine, rng):
    x = rng.normal(size=(5, 40)).astype(dtype)
    x[0, 7], x[1, 39], x[2], x[3] = np.nan, np.inf, -np.inf, np.nan
    got = run(x, machine)
    assert np.isnan(got[:4]).all()
    assert np.isfinite(got[4]).all()
