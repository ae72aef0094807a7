"""Kernels of Cholesky factors and triangular systems against NumPy, in float64."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.jit.llvm import cholesky_kernels, triangle_kernels
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.native import object_code
from retrograd.jit.llvm.program import Writer
from retrograd.jit.passes import optimized
from retrograd.ops.decompose.factor import Cholesky, CholeskyGrad
from retrograd.ops.decompose.solve import SolveTriangular
from retrograd.testing.compare import assert_close

MACHINES = here()
DTYPES = ["float32", "float64"]
SIZES = [1, 2, 3, 7, 16, 17, 31, 32, 33, 64, 65, 97, 130]
LARGE = [193, 224, 259]  # more panels than one thread takes alone
SYSTEMS = [
    SolveTriangular(upper, turned, unit)
    for upper in (False, True)
    for turned in (False, True)
    for unit in (False, True)
]


def traced(op, arrays):
    graph, _ = trace(lambda *xs: [rg.apply(op, *xs)], [spec_of(a) for a in arrays])
    return graph


def run(op, arrays, machine=None, threads=None):
    """What the op's kernels give; they are the whole program."""
    built = compiled(traced(op, arrays), machine=named(machine) if machine else None)
    assert [s.what for s in built.steps] == [op.name]
    return Executable(built, threads)(arrays)[0]


def definite(rng, *shape):
    root = rng.normal(size=shape)
    return root @ root.mT / shape[-1] + np.eye(shape[-1])


def triangles(rng, *shape):
    """Of both kinds, well conditioned."""
    n = shape[-1]
    return 0.5 * rng.normal(size=shape) / np.sqrt(n) + 2 * np.eye(n)


def wide(a):
    return a.astype(np.float64)


def check_factor(x, machine, *, upper=False):
    wanted = np.linalg.cholesky(wide(x))
    got = run(Cholesky(upper), [x], machine)
    assert_close(got, (wanted.mT if upper else wanted).astype(x.dtype))
    outside = np.tril(got, -1) if upper else np.triu(got, 1)
    assert not outside.any()


def check_gradient(rng, factor, machine):
    """By the formula: inv(l).T @ p @ inv(l), p the symmetric part of half of l.T @ g."""
    g = rng.normal(size=factor.shape).astype(factor.dtype)
    low, n = wide(factor), factor.shape[-1]
    inner = np.tril(low.mT @ wide(np.tril(g))) * (1 - 0.5 * np.eye(n))
    half = np.linalg.solve(low.mT, (inner + inner.mT) / 2)
    wanted = np.linalg.solve(low.mT, half.mT)
    got = run(CholeskyGrad(), [g, factor], machine)
    assert_close(got, wanted.astype(g.dtype))
    assert np.array_equal(got, got.mT)


def check_system(op, x1, x2, machine=None):
    a = wide(np.triu(x1) if op.upper else np.tril(x1))
    if op.unit_diagonal:
        a[..., range(a.shape[-1]), range(a.shape[-1])] = 1
    wanted = np.linalg.solve(a.mT if op.turned else a, wide(x2))
    assert_close(run(op, [x1, x2], machine), wanted.astype(x1.dtype))


@pytest.mark.sampled(40)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("n", [*SIZES, *LARGE])
def test_a_factor_and_its_gradient_are_numpys(n, machine, dtype, rng):
    x = definite(rng, n, n).astype(dtype)
    check_factor(x, machine, upper=n % 3 == 1)
    check_gradient(rng, np.linalg.cholesky(wide(x)).astype(dtype), machine)


@pytest.mark.parametrize("n", [3, 33, 70])
@pytest.mark.parametrize("together", [False, True])
def test_stacks_one_matrix_for_each_thread_or_one_after_another(n, together, rng, monkeypatch):
    if together:
        monkeypatch.setattr(cholesky_kernels, "SMALL", 0)
        monkeypatch.setattr(cholesky_kernels, "LONG", 0)
    x = definite(rng, 2, 3, n, n)
    check_factor(x, None)
    check_factor(x, None, upper=True)
    check_gradient(rng, np.linalg.cholesky(x), None)


def test_only_the_symmetric_part_is_read_and_only_the_lower_triangle_of_a_factor(rng):
    x = definite(rng, 40, 40)
    skew = rng.normal(size=(40, 40))
    assert_close(run(Cholesky(), [x + skew - skew.T]), run(Cholesky(), [x]))
    factor, g = np.linalg.cholesky(x), rng.normal(size=(40, 40))
    noise = np.triu(np.full((40, 40), np.nan), 1)
    assert_close(
        run(CholeskyGrad(), [g + noise, factor + noise]), run(CholeskyGrad(), [g, factor])
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("op", SYSTEMS, ids=str)
def test_triangular_systems(op, machine, dtype, rng):
    for n, m in [(1, 1), (3, 5), (17, 1), (31, 33), (33, 4), (64, 16), (97, 50), (130, 7)]:
        x1, x2 = triangles(rng, n, n), rng.normal(size=(n, m))
        check_system(op, x1.astype(dtype), x2.astype(dtype), machine)


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_columns_share_what_is_read_of_a_triangle(dtype, rng):
    x1, x2 = triangles(rng, 70, 70).astype(dtype), rng.normal(size=(70, 777)).astype(dtype)
    for op in SYSTEMS:
        check_system(op, x1, x2)
        check_system(op, x1, np.stack([x2[:, :300], x2[:, 400:700]]))


STACKS = [
    ((2, 5, 5), (5, 6)),
    ((5, 5), (3, 5, 1)),
    ((5, 5), (3, 5, 9)),
    ((40, 40), (3, 2, 40, 7)),
    ((1, 40, 40), (3, 40, 37)),
    ((2, 3, 3), (4, 1, 3, 2)),
    ((2, 1, 20, 20), (3, 20, 6)),
    ((2, 35, 35), (2, 1, 35, 1)),
]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("shapes", STACKS, ids=str)
def test_stacks_of_systems_broadcast(shapes, together, rng, monkeypatch):
    if together:
        monkeypatch.setattr(triangle_kernels, "SMALL", 0)
    x1, x2 = triangles(rng, *shapes[0]), rng.normal(size=shapes[1])
    for op in SYSTEMS[::3]:
        check_system(op, x1, x2)


@pytest.mark.parametrize("op", SYSTEMS[::2], ids=str)
def test_the_other_triangle_is_not_read(op, rng):
    x1, other = triangles(rng, 37, 37), np.full((37, 37), np.nan)
    x1 += np.tril(other, -1) if op.upper else np.triu(other, 1)
    for m in (1, 9):
        check_system(op, x1, rng.normal(size=(37, m)))


def test_bits_are_the_same_for_every_number_of_threads(rng):
    n = 300
    x, g = definite(rng, n, n).astype(np.float32), rng.normal(size=(n, n)).astype(np.float32)
    factor = np.linalg.cholesky(x)
    cases = [(Cholesky(), x), (CholeskyGrad(), g, factor)]
    cases += [(op, factor, g) for op in SYSTEMS[:4:2]]
    cases.append((Cholesky(), definite(rng, 5, 30, 30)))
    for op, *arrays in cases:
        first, *others = (run(op, arrays, threads=threads) for threads in (1, 2, 3))
        for other in others:
            assert np.array_equal(first, other)


@pytest.mark.parametrize("dtype", DTYPES)
def test_it_compiles_for_a_machine_that_is_not_here(dtype):
    for n in (20, 70, 300):
        square = np.zeros((n, n), dtype)
        cases = [(Cholesky(), square), (CholeskyGrad(), square, square)]
        cases += [(op, square, square[:, :m]) for op in SYSTEMS[::3] for m in (1, 9)]
        for op, *arrays in cases:
            graph = optimized(traced(op, arrays), kernels_of)
            writer = Writer(graph, named("neon"))
            writer.written()
            assert object_code(writer.module)


# -- what is refused -------------------------------------------------------------------------


def said(f, *xs):
    with pytest.raises(rg.ArgumentError) as found:
        f(*xs)
    return str(found.value).split("\n")[0]


@pytest.mark.parametrize("n", [2, 40, 230])
def test_what_is_not_positive_definite_is_refused_in_the_same_words(n, rng):
    bad = definite(rng, 2, 3, n, n)
    bad[1, 0, n - 1, n - 1] = -1.0
    bad[1, 2] *= -1
    for x in (bad, bad[1, 2], bad[1]):
        wanted = said(rg.linalg.cholesky, x)
        assert "is not positive definite" in wanted
        assert said(rg.jit(rg.linalg.cholesky), x) == wanted


@pytest.mark.parametrize("n", [2, 40, 230])
@pytest.mark.parametrize("upper", [False, True])
def test_nan_where_it_is_not_checked_and_where_nan_was_given(n, upper, rng):
    x = definite(rng, 4, n, n)
    x[1, n - 1, 0] = np.nan
    x[2, 0, n - 1] = np.inf
    assert_close(run(Cholesky(upper), [x]), Cholesky(upper).forward(x))
    x[3, n // 2, n // 2] = -2.0
    assert_close(run(Cholesky(upper, False), [x]), Cholesky(upper, False).forward(x))


def test_a_zero_on_a_diagonal_is_refused_in_the_same_words(rng):
    x1, x2 = triangles(rng, 2, 3, 33, 33), rng.normal(size=(33, 8))
    x1[1, 1, 20, 20] = 0
    for few in (1, 8):
        for case in (x1, x1[1], x1[1, 1]):
            wanted = said(rg.linalg.solve_triangular, case, x2[:, :few])
            assert "has 0 on its diagonal" in wanted
            assert said(rg.jit(rg.linalg.solve_triangular), case, x2[:, :few]) == wanted
    op = SolveTriangular(unit_diagonal=True)
    check_system(op, x1, x2)


def test_a_gaussian_process_has_no_host_call_and_the_gradients_of_float64(rng):
    points, y = rng.normal(size=(210, 3)), rng.normal(size=(210, 1))

    def loss(scale, noise, points, y):
        far = rg.distances.cdist(points * scale, points * scale, metric="sqeuclidean")
        factor = rg.linalg.cholesky(rg.exp(-far) + noise * rg.eye(210, dtype=points.dtype))
        a = rg.linalg.solve_triangular(factor, y, lower=True)
        return 0.5 * rg.sum(a * a) + rg.sum(rg.log(rg.linalg.diagonal(factor)))

    both = rg.value_and_grad(loss, (0, 1))
    given = [np.float64(0.7), np.float64(0.3), points, y]
    wanted = both(*given)
    single = [np.asarray(a, np.float32) for a in given]
    compiled_both = rg.jit(both)
    assert not compiled_both.explain(*single).hosts
    assert_close(compiled_both(*given), wanted)
    assert_close(compiled_both(*single), wanted, tolerance=1e-5)
