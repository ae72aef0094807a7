"""matrix_exp, matrix_power, pinv, matrix_rank, matrix_norm, cond, cross, multi_dot."""

from fractions import Fraction
from math import factorial, inf

import numpy as np
import pytest

import retrograd as rg
from retrograd import linalg
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.ops.decompose.exponential import DEGREES, pade
from retrograd.testing.check import check_grads
from retrograd.testing.compare import assert_close

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def drawn(rng, shape, dtype=float):
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def loose(dtype):
    """For results that rounding has gone through several times."""
    return (
        1e-4 if np.dtype(dtype).itemsize // (1 + (np.dtype(dtype).kind == "c")) == 4 else 1e-11
    )


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


# -- matrix_exp ----------------------------------------------------------------------------


def taylor(x):
    """exp by its series, of a halved matrix, in the widest numbers there are."""
    wide = np.clongdouble if x.dtype.kind == "c" else np.longdouble
    halvings = max(0, int(np.ceil(np.log2(max(np.abs(x).sum(), 1e-30)))) + 4)
    a = x.astype(wide) / wide(2) ** halvings
    term = total = np.eye(len(x), dtype=wide)
    for k in range(1, 40):
        term = term @ a / k
        total = total + term
    for _ in range(halvings):
        total = total @ total
    return total.astype(x.dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("size", [0.0, 1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0, 20.0])
def test_matrix_exp_is_its_series(size, dtype, rng):
    x = size * drawn(rng, (4, 4), dtype) / 4
    assert_close(linalg.matrix_exp(x), taylor(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrix_exp_of_many_sizes_at_once(dtype, rng):
    sizes = np.array([0.0, 1e-4, 0.1, 1.0, 5.0, 30.0])
    x = (drawn(rng, (6, 3, 3)) * sizes[:, None, None] / 3).astype(dtype)
    x = x - adjoint(x)  # its exponential is unitary
    found = linalg.matrix_exp(x.reshape(2, 3, 3, 3)).array.reshape(6, 3, 3)
    assert found.dtype == dtype
    assert_close(found @ adjoint(found), np.broadcast_to(np.eye(3, dtype=dtype), x.shape))
    for one, m in zip(found, x, strict=True):
        assert_close(one, linalg.matrix_exp(m), tolerance=loose(dtype))


def test_matrix_exp_of_diagonals_and_nilpotents():
    d = np.array([-700.0, -1.0, 0.0, 1.0, 700.0])
    found = linalg.matrix_exp(np.diag(d)).array
    np.testing.assert_allclose(np.diag(found), np.exp(d), rtol=1e-11)
    shift = np.eye(4, k=1)
    wanted = sum(np.linalg.matrix_power(shift, k) / factorial(k) for k in range(4))
    assert_close(linalg.matrix_exp(shift), wanted)


def test_matrix_exp_has_the_derivative_of_the_integral(rng):
    """d exp(x)[t] is the integral of exp(s x) t exp((1 - s) x), from 0 to 1."""
    x, t = rng.normal(size=(2, 3, 3))
    nodes, weights = np.polynomial.legendre.leggauss(24)
    wanted = sum(
        w / 2 * taylor((1 + s) / 2 * x) @ t @ taylor((1 - s) / 2 * x)
        for s, w in zip(nodes, weights, strict=True)
    )
    _, found = rg.jvp(linalg.matrix_exp, (x,), (t,))
    assert_close(found, wanted)


def test_the_trace_of_the_exponential(rng):
    x = rng.normal(size=(4, 4))
    slope = rg.grad(lambda x: rg.trace(linalg.matrix_exp(x)))(x)
    assert_close(slope, taylor(x).T)
    check_grads(linalg.matrix_exp, x / 2, order=3)


def test_matrix_exp_of_what_is_not_finite():
    x = np.stack([np.zeros((2, 2)), np.full((2, 2), np.nan), np.diag([inf, 0.0])])
    out = linalg.matrix_exp(x).array
    assert out[0].tolist() == np.eye(2).tolist()
    assert np.isnan(out[1:]).all()


def test_pade_is_exp_to_its_order():
    """numerator(x) = exp(x) * denominator(x) up to x ** (2 * degree)."""
    for degree in {d for table in DEGREES.values() for d in table}:
        b = [Fraction(c).limit_denominator(10**18) for c in pade(degree)]
        down = [c * (-1) ** j for j, c in enumerate(b)]
        for power in range(2 * degree + 1):
            left = b[power] if power <= degree else Fraction(0)
            right = sum(
                down[j] * Fraction(1, factorial(power - j))
                for j in range(min(power, degree) + 1)
            )
            assert abs(left - right) < 1e-15


# -- matrix_power --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [-5, -2, -1, 0, 1, 2, 3, 7, 10])
def test_matrix_power(n, dtype, rng):
    x = (drawn(rng, (2, 3, 3)) / 3 + np.eye(3)).astype(dtype)
    found = linalg.matrix_power(x, n)
    assert found.dtype == dtype
    assert_close(found, np.linalg.matrix_power(x, n), tolerance=loose(dtype))


@pytest.mark.parametrize("n", [-3, -1, 0, 1, 2, 5])
def test_matrix_power_has_derivatives(n, rng):
    check_grads(lambda x: linalg.matrix_power(x, n), np.eye(3) + 0.3 * rng.normal(size=(3, 3)))


def test_matrix_power_of_integers_is_exact():
    x = np.array([[1, 1], [1, 0]])
    assert linalg.matrix_power(x, 30).array[0, 1] == 832040  # Fibonacci's
    with pytest.raises(ArgumentError, match=r"n must be an integer; got 0\.5"):
        linalg.matrix_power(x, 0.5)
    with pytest.raises(ShapeError, match="two last axes of equal length"):
        linalg.matrix_power(np.ones((2, 3)), 2)


# -- pinv, rank ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(3, 3), (5, 3), (3, 5), (2, 4, 3), (1, 4), (3, 0), (0, 2, 3)]
)
def test_penroses_four_conditions(shape, dtype, rng):
    x = drawn(rng, shape, dtype)
    p = linalg.pinv(x).array
    assert p.dtype == dtype
    assert_close(x @ p @ x, x)
    assert_close(p @ x @ p, p)
    assert_close(adjoint(x @ p), x @ p)
    assert_close(adjoint(p @ x), p @ x)


def test_rtol_of_pinv_and_rank():
    x = np.diag([1.0, 1e-3, 1e-6])
    for rtol, rank in ((None, 3), (1e-4, 2), (1e-2, 1), (np.array(1e-4), 2)):
        assert linalg.matrix_rank(x, rtol=rtol).array == rank
        kept = np.where(np.arange(3) < rank, [1.0, 1e3, 1e6], 0)
        assert_close(linalg.pinv(x, rtol=rtol), np.diag(kept))
    stack = np.stack([x, x])
    rtols = np.array([1e-4, 1e-2])
    assert linalg.matrix_rank(stack, rtol=rtols).array.tolist() == [2, 1]
    assert linalg.matrix_rank(linalg.pinv(stack, rtol=rtols)).array.tolist() == [2, 1]


def test_pinv_of_less_than_full_rank_along_a_curve_that_keeps_the_rank(rng):
    a, b, da, db = (rng.normal(size=s) for s in ((4, 2), (2, 3), (4, 2), (2, 3)))
    x, t = a @ b, da @ b + a @ db
    _, found = rg.jvp(linalg.pinv, (x,), (t,))
    eps = 1e-5
    ends = [
        np.linalg.pinv((a + s * eps * da) @ (b + s * eps * db), rcond=1e-8) for s in (1, -1)
    ]
    assert_close(found, (ends[0] - ends[1]) / (2 * eps), tolerance=1e-7)


def test_pinv_is_the_inverse_where_there_is_one(rng):
    x, g = rng.normal(size=(3, 3)) + 3 * np.eye(3), rng.normal(size=(3, 3))
    one = rg.grad(lambda x: rg.sum(linalg.pinv(x) * g))(x)
    assert_close(one, rg.grad(lambda x: rg.sum(linalg.inv(x) * g))(x))


@pytest.mark.parametrize("shape", [(4, 3), (3, 0), (0, 3, 2), (2, 1, 3, 3)])
def test_matrix_rank_is_numpys(shape, rng):
    x = rng.integers(-1, 2, shape) * 1.0
    found = linalg.matrix_rank(x)
    assert found.dtype == rg.int64
    wanted = np.zeros(shape[:-2], int) if 0 in shape[-2:] else np.linalg.matrix_rank(x)
    assert found.array.tolist() == np.asarray(wanted).tolist()


# -- norms and condition -------------------------------------------------------------------

ORDERS = ["fro", "nuc", 1, -1, 2, -2, inf, -inf]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ord", ORDERS)
@pytest.mark.parametrize("keepdims", [False, True])
def test_matrix_norm(ord, keepdims, dtype, rng):
    x = drawn(rng, (2, 4, 3), dtype)
    found = linalg.matrix_norm(x, ord=ord, keepdims=keepdims)
    assert found.dtype == x.real.dtype
    assert_close(found, np.linalg.norm(x, ord, axis=(-2, -1), keepdims=keepdims))


@pytest.mark.parametrize("ord", ORDERS)
def test_matrix_norms_have_derivatives(ord, rng):
    check_grads(lambda x: linalg.matrix_norm(x, ord=ord), rng.normal(size=(2, 4, 3)))


@pytest.mark.parametrize("ord", ["fro", "nuc", 2, 1, inf])
def test_the_norm_of_the_zero_matrix_has_gradient_zero(ord):
    slope = rg.grad(lambda x: linalg.matrix_norm(x, ord=ord))(np.zeros((3, 2)))
    assert not np.any(slope.array)


@pytest.mark.parametrize("ord", [0, 1, 2, 3, 0.5, inf, -inf, -1])
@pytest.mark.parametrize("axis", [None, 0, (0, 2), -1])
def test_vector_norm(ord, axis, rng):
    x = rng.normal(size=(2, 3, 4))
    moved = np.moveaxis(x, axis, range(len(axis))) if isinstance(axis, tuple) else x
    flat = moved.reshape(-1, *moved.shape[2:]) if isinstance(axis, tuple) else x
    if axis is None:
        flat = x.reshape(-1)
    over = 0 if axis is None or isinstance(axis, tuple) else axis
    assert_close(linalg.vector_norm(x, axis=axis, ord=ord), np.linalg.norm(flat, ord, over))


def test_norms_refuse():
    with pytest.raises(ArgumentError, match=r"ord must be one of 1, -1, 2, .*; got 3"):
        linalg.matrix_norm(np.eye(2), ord=3)
    with pytest.raises(ShapeError, match="at least 2 axes"):
        linalg.matrix_norm(np.ones(2))


@pytest.mark.parametrize("p", [2, -2, 1, -1, inf, -inf, "fro", "nuc"])
def test_cond(p, rng):
    x = rng.normal(size=(2, 3, 3))
    assert_close(linalg.cond(x, p=p), np.linalg.cond(x, p))
    apart = np.array([[3.0, 0.5, 0.2], [0.1, 2.0, -0.3], [-0.2, 0.4, 1.0]])
    check_grads(lambda x: linalg.cond(x, p=p), apart)


def test_cond_of_a_singular_matrix_is_infinite():
    for p in (1, 2, inf, "fro"):
        assert linalg.cond(np.diag([1.0, 0.0]), p=p).array == inf


# -- cross and multi_dot -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "axis"),
    [((3,), (3,), -1), ((2, 3), (3,), -1), ((3, 4), (3, 4), 0), ((3, 1), (2, 3, 4), -2)],
)
def test_cross(a, b, axis, rng):
    x, y = rng.normal(size=a), rng.normal(size=b)
    wanted = np.cross(x, y, axis=axis)
    assert_close(linalg.cross(x, y, axis=axis), wanted)
    check_grads(lambda x, y: linalg.cross(x, y, axis=axis), x, y)


def test_cross_of_integers_and_of_unit_vectors():
    e = np.eye(3, dtype=int)
    assert linalg.cross(e[0], e[1]).array.tolist() == e[2].tolist()
    assert linalg.cross(e[0], e[1]).dtype == rg.int64


def test_cross_refuses():
    with pytest.raises(ShapeError, match=r"x1 \(2,\) must have length 3"):
        linalg.cross(np.ones(2), np.ones(3))
    with pytest.raises(ArgumentError, match="axis 0 must be from -1 to -1"):
        linalg.cross(np.ones((3, 3)), np.ones(3), axis=0)


def test_multi_dot(rng):
    shapes = [(2, 5), (5, 3), (3, 7), (7, 2)]
    xs = [rng.normal(size=s) for s in shapes]
    assert_close(linalg.multi_dot(xs), np.linalg.multi_dot(xs))
    ends = [rng.normal(size=5), *xs[1:3], rng.normal(size=7)]
    assert_close(linalg.multi_dot(ends), np.linalg.multi_dot(ends))
    assert_close(linalg.multi_dot(xs[:2]), xs[0] @ xs[1])
    check_grads(lambda *xs: linalg.multi_dot(xs), *xs)
    with pytest.raises(ShapeError, match="multi_dot: needs two or more matrices"):
        linalg.multi_dot([xs[0], xs[2]])
    with pytest.raises(ShapeError, match="vectors at the ends only"):
        linalg.multi_dot([xs[0], np.ones(5), xs[1]])


# -- the facade ----------------------------------------------------------------------------

STANDARD = """cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power
matrix_rank matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot
vector_norm"""


def test_the_extension_is_whole():
    assert set(STANDARD.split()) <= set(linalg.__all__)
    assert all(callable(getattr(linalg, name)) for name in linalg.__all__)


def test_results_have_the_standards_names():
    x = np.eye(2)
    assert linalg.svd(x)._fields == ("U", "S", "Vh")
    assert linalg.eigh(x)._fields == ("eigenvalues", "eigenvectors")
    assert linalg.slogdet(x)._fields == ("sign", "logabsdet")
    assert linalg.qr(x)._fields == ("Q", "R")
