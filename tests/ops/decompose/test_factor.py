"""cholesky and qr, and the completion of bases."""

import numpy as np
import pytest

import retrograd as rg
from retrograd import linalg
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.ops.decompose.factor import completed
from retrograd.testing.check import check_grads
from retrograd.testing.compare import assert_close

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def drawn(rng, shape, dtype=float):
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


# -- cholesky ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 3, 3), (1, 1), (0, 0), (0, 2, 2)])
def test_cholesky(shape, upper, dtype, rng):
    root = drawn(rng, shape, dtype)
    x = root @ adjoint(root) + np.eye(shape[-1], dtype=dtype)
    c = linalg.cholesky(x, upper=upper).array
    assert c.dtype == dtype
    assert_close(adjoint(c) @ c if upper else c @ adjoint(c), x)
    assert not np.any(np.tril(c, -1) if upper else np.triu(c, 1))


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_the_gradient_of_cholesky_is_hermitian(upper, dtype, rng):
    root = drawn(rng, (3, 3), dtype)
    x, g = root @ adjoint(root) + np.eye(3), drawn(rng, (3, 3), dtype)
    _, pull = rg.vjp(lambda x: linalg.cholesky(x, upper=upper), x)
    (found,) = pull(rg.asarray(g))
    assert_close(found, adjoint(found.array))


def test_what_is_not_positive_definite_is_named(rng):
    good = np.eye(2)
    stack = np.stack([good, good, np.diag([1.0, -1.0]), good]).reshape(2, 2, 2, 2)
    with pytest.raises(
        ArgumentError, match=r"cholesky: x\[1, 0\] of x .* not positive definite"
    ):
        linalg.cholesky(stack)
    with pytest.raises(ArgumentError, match=r"x \(2, 2\) is not positive definite"):
        linalg.cholesky(np.diag([1.0, 0.0]))
    assert np.isnan(linalg.cholesky(np.full((2, 2), np.nan)).array).all()
    with pytest.raises(ShapeError, match="two last axes of equal length"):
        linalg.cholesky(np.ones((1, 3)))


def test_cholesky_without_the_check_gives_nan_there_alone():
    stack = np.stack([np.eye(2), -np.eye(2)])
    out = linalg.cholesky(stack, check=False).array
    assert np.isnan(out[1]).all()
    assert out[0].tolist() == np.eye(2).tolist()
    slope = rg.grad(lambda x: rg.sum(linalg.cholesky(x, check=False)))(stack).array
    assert np.isfinite(slope[0]).all()
    assert np.isnan(slope[1]).any()


def test_cholesky_keeps_its_result(rng):
    x = rg.tensor(np.eye(4) * 2, requires_grad=True)
    assert rg.debug.graph(linalg.cholesky(x)).nbytes == 4 * 4 * 8


# -- qr ------------------------------------------------------------------------------------

SHAPES = [
    (3, 3),
    (5, 3),
    (3, 5),
    (2, 4, 3),
    (2, 2, 3, 4),
    (1, 1),
    (4, 1),
    (1, 4),
    (3, 0),
    (0, 2, 3),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("shape", SHAPES)
def test_qr(shape, mode, dtype, rng):
    x = drawn(rng, shape, dtype)
    q, r = (t.array for t in linalg.qr(x, mode=mode))
    m, n = shape[-2:]
    k = m if mode == "complete" else min(m, n)
    assert (q.shape, r.shape) == ((*shape[:-1], k), (*shape[:-2], k, n))
    assert q.dtype == r.dtype == dtype
    assert_close(q @ r, x)
    assert_close(adjoint(q) @ q, np.broadcast_to(np.eye(k, dtype=dtype), (*shape[:-2], k, k)))
    assert_close(np.tril(r, -1), np.zeros_like(r))
    diagonal = np.diagonal(r, 0, -2, -1)
    assert (diagonal.real > 0).all()
    assert_close(diagonal.imag, np.zeros_like(diagonal.imag))


@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5), (2, 4, 3), (4, 1), (1, 3)])
def test_qr_has_derivatives_in_every_mode(shape, mode, rng):
    x = np.eye(*shape[-2:]) * 2 + 0.4 * rng.normal(size=shape)
    check_grads(lambda x: tuple(linalg.qr(x, mode=mode)), x)


def test_qr_of_one_result_alone(rng):
    x = rng.normal(size=(4, 3))
    check_grads(lambda x: linalg.qr(x).Q, x)
    check_grads(lambda x: linalg.qr(x).R, x)


def test_results_have_names_and_are_trees(rng):
    x = rng.normal(size=(3, 2))
    out = rg.vmap(linalg.qr)(np.stack([x, x]))
    assert out._fields == ("Q", "R")
    assert_close(out.Q.array[0], linalg.qr(x)[0])
    _, pull = rg.vjp(linalg.qr, x)
    assert pull(type(out)(np.ones((3, 2)), np.ones((2, 2))))[0].shape == (3, 2)


def test_qr_refuses():
    with pytest.raises(ArgumentError, match="mode must be 'reduced' or 'complete'; got 'r'"):
        linalg.qr(np.ones((2, 2)), mode="r")
    with pytest.raises(ShapeError, match="at least 2 axes"):
        linalg.qr(np.ones(2))


def test_columns_that_depend_have_no_derivative():
    x = np.array([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    assert linalg.qr(x).R.array[1, 1] == 0
    with pytest.raises(ArgumentError, match="has 0 on its diagonal"):
        rg.grad(lambda x: rg.sum(linalg.qr(x).Q))(x)


# -- bases ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize(("m", "n"), [(4, 2), (5, 4), (3, 0), (3, 3), (60, 30)])
def test_completed_is_orthonormal(m, n, dtype, rng):
    q = np.linalg.qr(drawn(rng, (2, m, n), dtype))[0]
    whole = completed(rg.asarray(q)).array
    assert_close(adjoint(whole) @ whole, np.broadcast_to(np.eye(m, dtype=dtype), (2, m, m)))
    assert_close(whole[..., :n], q)


def test_a_basis_of_unit_vectors_is_completed_by_the_others():
    q = np.eye(4)[:, [2, 0]]
    assert_close(np.abs(completed(rg.asarray(q)).array[:, 2:]), np.eye(4)[:, [1, 3]])
