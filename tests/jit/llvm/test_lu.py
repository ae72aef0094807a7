"""Kernels of elimination against NumPy, in float64: systems, inverses, determinants."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.jit.llvm import lu_kernels
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.native import object_code
from retrograd.jit.llvm.program import Writer
from retrograd.jit.passes import optimized
from retrograd.ops.decompose.determinant import Cofactors, Det, Slogdet
from retrograd.ops.decompose.solve import Inv, Solve
from retrograd.testing.compare import assert_close
from tests.conftest import covering

MACHINES = here()
DTYPES = ["float32", "float64"]
SIZES = [*range(1, 71), 97, 130]
LARGE = [193, 224, 259]  # more panels than one thread takes alone


def traced(op, arrays):
    def whole(*xs):
        found = rg.apply(op, *xs)
        return list(found) if isinstance(found, tuple) else [found]

    graph, _ = trace(whole, [spec_of(a) for a in arrays])
    return graph


def run(op, arrays, machine=None, threads=None):
    """What the op's kernels give; they are the whole program."""
    built = compiled(traced(op, arrays), machine=named(machine) if machine else None)
    assert [s.what for s in built.steps] == [op.name]
    return Executable(built, threads)(arrays)


def regular(rng, *shape):
    """Well conditioned, with pivots that are far from the diagonal."""
    n = shape[-1]
    x = 0.4 * rng.normal(size=shape) / np.sqrt(n) + np.eye(n)
    return x[..., rng.permutation(n), :]


def wide(a):
    return a.astype(np.float64)


def check_system(x1, x2, machine=None, *, turned=False):
    a = wide(x1).mT if turned else wide(x1)
    wanted = np.linalg.solve(a, wide(x2)).astype(x1.dtype)
    assert_close(run(Solve(turned), [x1, x2], machine)[0], wanted)


def check_all(x, machine=None):
    """Inverse, determinant, and its logarithm."""
    assert_close(run(Inv(), [x], machine)[0], np.linalg.inv(wide(x)).astype(x.dtype))
    sign, size = np.linalg.slogdet(wide(x))
    got = run(Slogdet(), [x], machine)
    assert np.array_equal(got[0], sign)
    assert_close(got[1], size.astype(x.dtype))
    assert_close(run(Det(), [x], machine)[0], np.linalg.det(wide(x)).astype(x.dtype))


@pytest.mark.sampled(20)
@pytest.mark.parametrize(
    ("n", "machine", "dtype"), covering([*SIZES, *LARGE], MACHINES, DTYPES)
)
def test_systems_inverses_and_determinants_are_numpys(n, machine, dtype, rng):
    x = regular(rng, n, n).astype(dtype)
    check_all(x, machine)
    for m in (1, 5, 33):
        x2 = rng.normal(size=(n, m)).astype(dtype)
        check_system(x, x2, machine, turned=bool(m % 2))


@pytest.mark.parametrize("n", [3, 33, 70])
@pytest.mark.parametrize("together", [False, True])
def test_stacks_one_matrix_for_each_thread_or_one_after_another(n, together, rng, monkeypatch):
    if together:
        monkeypatch.setattr(lu_kernels, "SMALL", 0)
        monkeypatch.setattr(lu_kernels, "LONG", 0)
    x = regular(rng, 2, 3, n, n)
    check_all(x)
    check_system(x, rng.normal(size=(2, 3, n, 4)))
    wanted = np.linalg.det(x)[..., None, None] * np.linalg.inv(x).mT
    assert_close(run(Cofactors(), [x])[0], wanted)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("n", range(1, 8))
def test_many_small_matrices_have_a_lane_each(n, machine, rng):
    for dtype, count in (("float32", 37), ("float64", 16)):
        x = regular(rng, count, n, n).astype(dtype)
        check_all(x, machine)
        for turned in (False, True):
            x2 = rng.normal(size=(count, n, 3)).astype(dtype)
            check_system(x, x2, machine, turned=turned)
            check_system(x, x2[0], machine, turned=turned)
            check_system(x[0], x2, machine, turned=turned)
        bad = x.copy()
        bad[[1, count - 1]] = 0
        got = run(Inv(check=False), [bad], machine)[0]
        assert np.isnan(got).all((-2, -1)).nonzero()[0].tolist() == [1, count - 1]
        with pytest.raises(rg.ArgumentError, match=r"x\[1\] of x"):
            run(Inv(), [bad], machine)
    singular = rng.normal(size=(20, n, max(n - 1, 1)))
    singular = np.concatenate([singular, singular[..., : n - max(n - 1, 1)]], -1)
    for x in (regular(rng, 20, n, n), singular):
        wanted = Cofactors()._by_values(x)
        assert_close(run(Cofactors(), [x], machine)[0], wanted)


STACKS = [
    ((2, 5, 5), (5, 6)),
    ((5, 5), (3, 5, 1)),
    ((40, 40), (3, 2, 40, 7)),
    ((1, 40, 40), (3, 40, 37)),
    ((2, 3, 3), (4, 1, 3, 2)),
    ((2, 1, 20, 20), (3, 20, 6)),
    ((2, 35, 35), (2, 1, 35, 1)),
    ((4, 1, 3, 3), (2, 3, 2)),
]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("shapes", STACKS, ids=str)
def test_stacks_of_systems_broadcast(shapes, together, rng, monkeypatch):
    if together:
        monkeypatch.setattr(lu_kernels, "SMALL", 0)
    x1, x2 = regular(rng, *shapes[0]), rng.normal(size=shapes[1])
    for turned in (False, True):
        check_system(x1, x2, turned=turned)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("n", [1, 2, 5, 8, 33, 70])
def test_cofactors_of_singular_matrices_are_those_by_singular_values(n, machine, rng):
    thin = rng.normal(size=(n, n - 1)) @ rng.normal(size=(n - 1, n))
    dear, zero = rng.normal(size=(2, n, n))
    dear[:, 0] *= 1e-7  # nearly singular
    zero[:, n // 2] = 0
    for x in (thin, dear, zero, rng.normal(size=(n, n))):
        wanted = Cofactors()._by_values(x[None])[0]
        scale = np.abs(wanted).max()
        assert_close(run(Cofactors(), [x], machine)[0] / scale, wanted / scale)


def test_of_equal_magnitudes_the_first_is_the_pivot(rng):
    x = rng.choice([-1.0, 1.0], size=(6, 6)) * np.diag([1.0] * 6) + np.tri(6, k=-1)
    signs = [np.linalg.slogdet(x)[0], np.linalg.slogdet(x[::-1])[0]]
    assert [run(Slogdet(), [a.copy()])[0] for a in (x, x[::-1])] == signs


@pytest.mark.parametrize("dtype", DTYPES)
def test_determinants_beyond_the_range_of_numbers(dtype, rng):
    x = regular(rng, 60, 60).astype(dtype)
    for scale in (1e30, 1e-30):
        y = (x * scale).astype(dtype)
        with np.errstate(over="ignore"):
            wanted = np.linalg.det(wide(y)).astype(dtype)
        assert np.array_equal(run(Det(), [y])[0], wanted)
        assert_close(run(Slogdet(), [y])[1], np.linalg.slogdet(wide(y))[1].astype(dtype))
    small = np.diag(np.array([1e-310, 2.0, 3e-312]))
    assert_close(run(Slogdet(), [small])[1], np.log(np.diag(small)).sum())


def test_bits_are_the_same_for_every_number_of_threads(rng):
    n = 300
    x, g = regular(rng, n, n).astype(np.float32), rng.normal(size=(n, 90)).astype(np.float32)
    cases = [(Solve(), x, g), (Solve(True), x, g), (Inv(), x), (Det(), x), (Slogdet(), x)]
    cases += [(Cofactors(), wide(x)), (Inv(), regular(rng, 5, 30, 30))]
    for op, *arrays in cases:
        first, *others = (run(op, arrays, threads=threads) for threads in (1, 2, 3))
        for other in others:
            assert all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_it_compiles_for_a_machine_that_is_not_here(dtype):
    for n in (5, 20, 300):
        x = np.zeros((n, n), dtype)
        cases = [(Inv(), x), (Det(), x), (Slogdet(), x), (Solve(), x, x[:, :9])]
        cases += [(Cofactors(), x)] if dtype == "float64" else []
        for op, *arrays in cases:
            writer = Writer(optimized(traced(op, arrays), kernels_of), named("neon"))
            writer.written()
            assert object_code(writer.module)


# -- what is singular ------------------------------------------------------------------------


def said(f, *xs):
    with pytest.raises(rg.ArgumentError) as found:
        f(*xs)
    return str(found.value).split("\n")[0]


@pytest.mark.parametrize("n", [2, 40, 230])
def test_what_is_singular_is_refused_in_the_same_words(n, rng):
    bad = regular(rng, 2, 3, n, n)
    bad[1, 0, :, n - 1] = 0
    bad[1, 2] = 0
    x2 = rng.normal(size=(n, 2))
    for x in (bad, bad[1, 2]):
        for f, *given in ((rg.linalg.inv, x), (rg.linalg.solve, x, x2)):
            wanted = said(f, *given)
            assert "is singular" in wanted
            assert said(rg.jit(f), *given) == wanted
    x2 = rng.normal(size=(4, 1, 1, n, 1))  # the matrix is named, not the system
    assert said(rg.jit(rg.linalg.solve), bad, x2) == said(rg.linalg.solve, bad, x2)
    assert_close(run(Inv(check=False), [bad])[0], Inv(check=False).forward(bad))
    assert np.array_equal(run(Det(), [bad])[0] == 0, np.linalg.det(bad) == 0)
    assert not np.signbit(run(Det(), [np.zeros((n, n))])[0])
    sign, size = run(Slogdet(), [bad])
    wanted = np.linalg.slogdet(bad)
    assert np.array_equal(sign, wanted[0])
    assert_close(size, wanted[1])


@pytest.mark.parametrize("n", [3, 40, 230])
def test_nan_is_given_where_nan_was(n, rng):
    x = regular(rng, 2, n, n)
    x[1, n // 2, n - 1] = np.nan
    infinite = np.where(np.isnan(x), np.inf, x)
    got = np.isnan(run(Cofactors(), [infinite])[0])
    assert got[1].all()
    assert not got[0].any()
    for op in (Inv(), Det(), Cofactors()):
        got = run(op, [x])[0]
        assert np.isfinite(got[0]).all()
        assert np.isnan(got[1]).all() or op == Inv()
        assert np.isnan(got[1]).any()
    assert np.isnan(run(Slogdet(), [x])[1]).tolist() == [False, True]


def test_gradients_have_no_host_call_and_are_those_of_float64(rng):
    n = 210
    x, y = regular(rng, n, n), rng.normal(size=(n, 3))

    def loss(x, y):
        both = rg.sum(rg.linalg.solve(x, y) ** 2) + rg.sum(rg.linalg.inv(x) ** 2)
        return both + rg.linalg.slogdet(x)[1] + rg.linalg.det(x)

    both = rg.value_and_grad(loss, (0, 1))
    wanted = both(x, y)
    single = [a.astype(np.float32) for a in (x, y)]
    fast = rg.jit(both)
    assert not fast.explain(*single).hosts
    assert_close(fast(x, y), wanted)
    assert_close(fast(*single), wanted, tolerance=1e-4)
