"""svd and svdvals: values, gauge, equal and zero singular values, completed bases."""

import numpy as np
import pytest

import retrograd as rg
from retrograd import linalg
from retrograd.core.errors import ShapeError
from retrograd.testing.check import check_grads
from retrograd.testing.compare import assert_close

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
SHAPES = [(3, 3), (5, 3), (3, 5), (2, 4, 3), (2, 2, 3, 4), (1, 1), (4, 1), (3, 0), (0, 2, 3)]


def drawn(rng, shape, dtype=float):
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def apart(rng, m, n, values):
    """A matrix with these singular values."""
    u, v = (np.linalg.qr(rng.normal(size=(k, k)))[0] for k in (m, n))
    return (u[:, : len(values)] * values) @ v[: len(values)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_svd(shape, full, dtype, rng):
    x = drawn(rng, shape, dtype)
    u, s, vh = (t.array for t in linalg.svd(x, full_matrices=full))
    m, n = shape[-2:]
    k = min(m, n)
    rows, columns = (m, n) if full else (k, k)
    assert (u.shape[-2:], s.shape[-1], vh.shape[-2:]) == ((m, rows), k, (columns, n))
    assert (u.dtype, s.dtype, vh.dtype) == (dtype, x.real.dtype, dtype)
    assert_close((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x)
    assert_close(
        adjoint(u) @ u, np.broadcast_to(np.eye(rows, dtype=dtype), (*shape[:-2], rows, rows))
    )
    assert_close(
        vh @ adjoint(vh),
        np.broadcast_to(np.eye(columns, dtype=dtype), (*shape[:-2], columns, columns)),
    )
    assert_close(s, np.linalg.svd(x, compute_uv=False))
    assert_close(linalg.svdvals(x), s)


def test_the_largest_component_of_u_is_positive(rng):
    u = linalg.svd(drawn(rng, (3, 5, 4), complex), full_matrices=False).U.array
    at = np.argmax(np.abs(u), -2, keepdims=True)
    largest = np.take_along_axis(u, at, -2)
    assert (largest.real > 0).all()
    assert_close(largest.imag, np.zeros_like(largest.imag))


@pytest.mark.parametrize(("m", "n"), [(5, 3), (3, 5), (4, 4), (4, 1)])
def test_completed_bases_have_derivatives(m, n, rng):
    x = apart(rng, m, n, [7.0, 5.0, 3.0, 1.0][: min(m, n)])
    check_grads(lambda x: tuple(linalg.svd(x)), x)


def test_a_function_of_the_vectors_phase_has_its_gradient(rng):
    re, im = apart(rng, 4, 3, [5.0, 3.0, 1.0]), 0.2 * rng.normal(size=(4, 3))

    def f(re, im):
        u, _, vh = linalg.svd(rg.make_complex(re, im), full_matrices=False)
        return rg.real(u[0, 0] * u[1, 1]), rg.imag(vh[0, 2]), rg.imag(u[2, 1])

    check_grads(f, re, im)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_each_result_alone(which, rng):
    for m, n in ((4, 3), (3, 4)):
        x = apart(rng, m, n, [5.0, 3.0, 1.0])
        check_grads(lambda x: linalg.svd(x, full_matrices=False)[which], x)


# -- where values meet ---------------------------------------------------------------------


def test_the_polar_factor_of_a_rotation_has_its_gradient(rng):
    """All singular values are 1; u @ vh is smooth there, and its gradient is the true one."""
    x = np.linalg.qr(rng.normal(size=(3, 3)))[0]

    def polar(x):
        u, _, vh = linalg.svd(x)
        return u @ vh

    t = rng.normal(size=(3, 3))
    _, found = rg.jvp(polar, (x,), (t,))
    eps = 1e-5
    both = []
    for s in (1, -1):
        u, _, vh = np.linalg.svd(x + s * eps * t)
        both.append(u @ vh)
    assert_close(found, (both[0] - both[1]) / (2 * eps), tolerance=1e-8)
    inner = x.T @ t  # in closed form: x times the skew part
    assert_close(found, x @ (inner - inner.T) / 2)


def test_equal_values_give_finite_gradients(rng):
    g = rng.normal(size=(4, 3))
    x = apart(rng, 4, 3, [2.0, 2.0, 1.0])
    slope = rg.grad(lambda x: rg.sum(linalg.svd(x, full_matrices=False).U * g))(x)
    assert np.abs(slope.array).max() < 100


def test_a_zero_value_has_slope_zero(rng):
    x = apart(rng, 4, 3, [3.0, 2.0, 0.0])
    slope = rg.grad(lambda x: linalg.svdvals(x)[2])(x)
    assert not np.any(slope.array)
    assert not np.any(rg.grad(lambda x: linalg.svd(x).S[2])(x).array)
    _, pushed = rg.jvp(linalg.svdvals, (x,), (np.ones((4, 3)),))
    assert pushed.array[2] == 0


def test_the_gradient_of_the_nuclear_norm_is_the_smallest_there_is(rng):
    x = apart(rng, 4, 3, [3.0, 2.0, 0.0])
    u, _, vh = np.linalg.svd(x)
    slope = rg.grad(lambda x: linalg.matrix_norm(x, ord="nuc"))(x)
    assert_close(slope, u[:, :2] @ vh[:2])


def test_the_zero_matrix():
    x = np.zeros((3, 2))
    for f in (linalg.svdvals, lambda x: linalg.svd(x).U, lambda x: linalg.svd(x).Vh):
        assert not np.any(rg.grad(lambda x, f=f: rg.sum(f(x)))(x).array)


# -- the rest ------------------------------------------------------------------------------


def test_singular_values_are_roots_of_eigenvalues(rng):
    x = rng.normal(size=(4, 3))
    one = rg.grad(lambda x: rg.sum(rg.square(linalg.svdvals(x)) * np.array([3.0, 2, 1])))(x)
    other = rg.grad(lambda x: rg.sum(linalg.eigvalsh(x.mT @ x) * np.array([1.0, 2, 3])))(x)
    assert_close(one, other)


def test_what_svd_and_svdvals_keep():
    x = rg.tensor(np.eye(5, 3) * [3.0, 2.0, 1.0], requires_grad=True)
    assert rg.debug.graph(linalg.svd(x, full_matrices=False).U).nbytes == (15 + 3 + 9) * 8
    assert rg.debug.graph(linalg.svdvals(x)).nbytes == 15 * 8


def test_svd_refuses():
    with pytest.raises(ShapeError, match="svd: x needs at least 2 axes"):
        linalg.svd(np.ones(3))


def test_matrices_that_hold_nan_give_nan_and_disturb_no_other(rng):
    x = rng.normal(size=(3, 4, 2))
    x[1, 0, 0], x[2, 1, 1] = np.nan, np.inf
    for f in (linalg.svd, lambda x: (linalg.svdvals(x),), lambda x: (linalg.pinv(x),)):
        for found, alone in zip(f(x), f(x[0]), strict=True):
            assert_close(found.array[0], alone)
            assert np.isnan(found.array[1:]).any((-1,)).all()
