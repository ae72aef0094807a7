"""Kernels of symmetric eigenvalues and eigenvectors against NumPy, in float64."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.jit.llvm import eigen_kernels, eigen_turn
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.native import object_code
from retrograd.jit.llvm.program import Writer
from retrograd.jit.passes import optimized
from retrograd.ops.decompose.eigen import Eigh, Eigvalsh
from retrograd.testing.compare import assert_close
from tests.conftest import covering

MACHINES = here()
DTYPES = ["float32", "float64"]
SIZES = [32, 33, 47, 48, 63, 64, 65, 100, 129, 256, 300]


def traced(x, op):
    def f(a):
        found = rg.apply(op, a)
        return list(found) if isinstance(op, Eigh) else [found]

    graph, _ = trace(f, [spec_of(x)])
    return graph


def run(x, machine=None, threads=None, op=None):
    """What the kernels give; they are the whole program."""
    op = op or Eigh()
    built = compiled(traced(x, op), machine=named(machine) if machine else None)
    assert [s.what for s in built.steps] == [op.name]
    return Executable(built, threads)([x])


def check(x, machine=None):
    """Eigenvalues as NumPy's; vectors that are orthonormal, and belong to them."""
    w, v = run(x, machine)
    x = (x + x.mT) / 2
    wanted = np.linalg.eigvalsh(x.astype(np.float64))
    size = np.abs(wanted).max(-1)[..., None] + (wanted == 0).all()
    assert_close(w / size.astype(w.dtype), (wanted / size).astype(w.dtype))
    eye = np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape)
    assert_close(v.mT @ v, eye)
    scale = size[..., None].astype(x.dtype)
    assert_close(x @ v / scale, v * w[..., None, :] / scale)
    assert (np.abs(v).max(-2) * 0.999 <= v.max(-2) / 0.98).all()
    (alone,) = run(x, machine, op=Eigvalsh())
    assert_close(alone / size.astype(w.dtype), w / size.astype(w.dtype))


def symmetric(rng, *shape):
    x = rng.normal(size=shape)
    return x + x.mT


@pytest.mark.sampled(16)
@pytest.mark.parametrize(("n", "machine", "dtype"), covering(SIZES, MACHINES, DTYPES))
def test_eigenvalues_are_numpys(n, machine, dtype, rng):
    check(symmetric(rng, n, n).astype(dtype), machine)


@pytest.mark.parametrize("dtype", DTYPES)
def test_vectors_that_are_well_apart_are_numpys(dtype, rng):
    q = np.linalg.qr(rng.normal(size=(96, 96)))[0]
    x = ((q * np.arange(1, 97)) @ q.T).astype(dtype)
    w, v = run(x)
    wanted = Eigh().forward(x.astype(np.float64))
    for got, want in zip((w, v), wanted, strict=True):
        assert_close(got, want.astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_matrix_need_not_be_symmetric(dtype, rng):
    x = rng.normal(size=(70, 70)).astype(dtype)
    w, _ = run(x)
    wanted, _ = run((x + x.T) / 2)
    assert_close(w, wanted)


def odd_ones(rng):
    """Matrices that fall apart, have equal eigenvalues, or numbers of many sizes."""
    n = 50
    yield np.zeros((n, n))
    yield np.eye(n)
    yield np.diag(np.arange(n) % 7.0)
    yield np.ones((n, n))
    yield np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1)
    yield np.kron(np.eye(n // 2), [[0, 1], [1, 0]])
    yield -np.eye(n) + 1e-9 * symmetric(rng, n, n)
    steep = 10.0 ** -np.linspace(0, 12, n)
    yield symmetric(rng, n, n) * steep * steep[:, None]
    yield (symmetric(rng, n, n) * steep * steep[:, None])[::-1, ::-1]
    wilkinson = np.abs(np.arange(n) - n // 2)
    yield np.diag(wilkinson) + np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1)
    block = symmetric(rng, n, n)
    block[:20, 20:] = block[20:, :20] = 0
    yield block


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrices_that_fall_apart_or_have_equal_eigenvalues(dtype, rng):
    for x in odd_ones(rng):
        check(np.ascontiguousarray(x, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_stacks_have_a_thread_for_each_matrix(dtype, rng):
    x = symmetric(rng, 2, 3, 40, 40).astype(dtype)
    check(x)
    x[1, 1, 3, 5] = np.nan
    x[0, 2, 7, 7] = np.inf
    w, v = run(x)
    bad = np.zeros((2, 3), bool)
    bad[1, 1] = bad[0, 2] = True
    assert np.isnan(w[bad]).all()
    assert np.isnan(v[bad]).all()
    assert np.isfinite(w[~bad]).all()
    assert np.isfinite(v[~bad]).all()
    w, v = run(x[1, 1])
    assert np.isnan(w).all()
    assert np.isnan(v).all()


@pytest.mark.parametrize("scale", [1e-36, 1e-30, 1e30, 1e37])
def test_no_square_is_beyond_the_range_of_numbers(scale, rng):
    x = symmetric(rng, 40, 40).astype(np.float32)
    w, v = run(x * np.float32(scale))
    wanted = run(x)
    assert_close(w / np.float32(scale), wanted[0])
    assert_close(v, wanted[1])


def test_bits_are_the_same_for_every_number_of_threads(rng):
    for shape, dtype in (((150, 150), "float32"), ((90, 90), "float64"), ((5, 34, 34), "f4")):
        x = symmetric(rng, *shape).astype(dtype)
        first, *others = (run(x, threads=threads) for threads in (1, 2, 3))
        for other in others:
            assert all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("shape", [(64, 64), (2, 64, 64)])
def test_sweeps_without_end_give_nan(shape, rng, monkeypatch):
    monkeypatch.setattr(eigen_turn, "PATIENCE", 0)
    monkeypatch.setenv("RETROGRAD_CACHE", "off")
    w, v = run(symmetric(rng, *shape))
    assert np.isnan(w).all()
    assert np.isnan(v).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_it_compiles_for_a_machine_that_is_not_here(dtype):
    for shape in ((35, 35), (3, 40, 40)):
        graph = optimized(traced(np.zeros(shape, dtype), Eigh()), kernels_of)
        writer = Writer(graph, named("neon"))
        writer.written()
        assert object_code(writer.module)


def test_what_lapack_does_better_is_left_to_it():
    for n in (eigen_kernels.LEAST - 1, eigen_kernels.MOST + 1):
        x = np.zeros((n, n), np.float32)
        assert kernels_of(Eigh(), [spec_of(x)]) is None
    assert kernels_of(Eigh(), [spec_of(np.zeros((40, 40), np.complex64))]) is None


def test_the_square_root_of_a_matrix_has_no_host_call_and_the_gradients_of_float64(rng):
    x = rng.normal(size=(40, 40))
    x, weights = x @ x.T / 40 + np.eye(40), rng.normal(size=(40, 40))

    def loss(x):
        w, v = rg.linalg.eigh(x)
        return rg.sum((v * rg.sqrt(w)) @ v.mT * weights.astype(x.dtype))

    both = rg.value_and_grad(loss)
    wanted = both(x)
    fast, single = rg.jit(both), x.astype(np.float32)
    assert not fast.explain(single).hosts
    assert_close(fast(x), wanted)
    assert_close(fast(single), wanted, tolerance=2e-3)
