"""Kernels of Householder's factorization against NumPy, in float64."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.jit.llvm import qr_kernels
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.native import object_code
from retrograd.jit.llvm.program import Writer
from retrograd.jit.passes import optimized
from retrograd.ops.decompose.factor import Qr
from retrograd.testing.compare import assert_close
from tests.conftest import covering

MACHINES = here()
DTYPES = ["float32", "float64"]
SHAPES = [
    *((n, n) for n in (1, 2, 3, 8, 17, 33, 70, 259)),
    *((n + n // 2 + 1, n) for n in range(1, 71, 3)),
    *((100, 3), (512, 128), (300, 129)),
]


def traced(x):
    graph, _ = trace(lambda a: list(rg.apply(Qr(), a)), [spec_of(x)])
    return graph


def run(x, machine=None, threads=None):
    """What the kernels give; they are the whole program."""
    built = compiled(traced(x), machine=named(machine) if machine else None)
    assert [s.what for s in built.steps] == ["qr"]
    return Executable(built, threads)([x])


def check(x, machine=None):
    q, r = run(x, machine)
    wanted = Qr().forward(x.astype(np.float64))
    for got, want in zip((q, r), wanted, strict=True):
        assert_close(got, want.astype(x.dtype))
    assert not np.tril(r, -1).any()
    assert (np.diagonal(r, 0, -2, -1) > 0).all()


def columns(rng, *shape):
    """Far from dependent."""
    x = rng.normal(size=shape) / np.sqrt(shape[-2])
    return x + 2 * np.eye(*shape[-2:])[rng.permutation(shape[-2])]


@pytest.mark.sampled(20)
@pytest.mark.parametrize(("shape", "machine", "dtype"), covering(SHAPES, MACHINES, DTYPES))
def test_factors_are_numpys(shape, machine, dtype, rng):
    check(columns(rng, *shape).astype(dtype), machine)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (3, 3), (6, 5), (6, 6), (36, 1), (7, 6)])
def test_many_small_matrices_have_a_lane_each(shape, machine, dtype, rng):
    check(columns(rng, 37, *shape).astype(dtype), machine)
    x = columns(rng, 5, *shape).astype(dtype)
    x[1] = 0
    x[2, :, -1] = x[2, :, 0]
    q, r = run(x, machine)
    assert_close(q @ r, x)
    assert_close(q.mT @ q, np.broadcast_to(np.eye(shape[1], dtype=dtype), r.shape))


@pytest.mark.parametrize("shape", [(4, 3), (40, 33), (70, 70)])
@pytest.mark.parametrize("together", [False, True])
def test_stacks_one_matrix_for_each_thread_or_one_after_another(
    shape, together, rng, monkeypatch
):
    if together:
        monkeypatch.setattr(qr_kernels, "SMALL", 0)
        monkeypatch.setattr(qr_kernels, "LONG", 0)
    check(columns(rng, 2, 3, *shape))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_squares_are_not_beyond_the_range_of_numbers(scale, rng):
    x = columns(rng, 50, 40).astype(np.float32)
    q, r = run(x * np.float32(scale))
    wanted = run(x)
    assert_close(q, wanted[0])
    assert_close(r / np.float32(scale), wanted[1])


def test_columns_that_are_zero_or_depend_on_others(rng):
    x = columns(rng, 40, 35)
    x[:, 0] = 0
    x[:, 20] = x[:, 3]
    q, r = run(x)
    assert_close(q @ r, x)
    assert_close(q.T @ q, np.eye(35))
    upper = np.triu(columns(rng, 40, 40))  # nothing to reflect
    q, r = run(upper)
    assert_close(np.abs(q), np.eye(40))
    x[3, 30] = np.nan
    q, r = run(x)
    assert np.isnan(q[:, 30:]).all()


def test_bits_are_the_same_for_every_number_of_threads(rng):
    for x in (columns(rng, 512, 130).astype(np.float32), columns(rng, 5, 30, 20)):
        first, *others = (run(x, threads=threads) for threads in (1, 2, 3))
        for other in others:
            assert all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_it_compiles_for_a_machine_that_is_not_here(dtype):
    for shape in ((20, 7), (300, 130)):
        graph = optimized(traced(np.zeros(shape, dtype)), kernels_of)
        writer = Writer(graph, named("neon"))
        writer.written()
        assert object_code(writer.module)


def test_least_squares_have_no_host_call_and_the_gradients_of_float64(rng):
    a, b = columns(rng, 210, 60), rng.normal(size=(210, 5))

    def loss(a, b):
        return rg.sum(rg.linalg.lstsq(a, b) ** 2)

    both = rg.value_and_grad(loss, (0, 1))
    wanted = both(a, b)
    single = [x.astype(np.float32) for x in (a, b)]
    fast = rg.jit(both)
    assert not fast.explain(*single).hosts
    assert_close(fast(a, b), wanted)
    assert_close(fast(*single), wanted, tolerance=1e-4)
