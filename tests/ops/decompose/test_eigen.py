"""eigh, eigvalsh, eig, eigvals: values, gauge, and what happens where eigenvalues meet."""

import numpy as np
import pytest

import retrograd as rg
from retrograd import linalg
from retrograd.core.errors import ShapeError
from retrograd.testing.check import check_grads
from retrograd.testing.compare import assert_close

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
SHAPES = [(3, 3), (2, 2, 4, 4), (1, 1), (0, 0), (0, 2, 2), (20, 20)]


def drawn(rng, shape, dtype=float):
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def in_gauge(v):
    """Columns of length 1, whose largest component is real and positive."""
    if not v.size:
        return
    assert_close(
        np.linalg.norm(v, axis=-2), np.ones((*v.shape[:-2], v.shape[-1]), v.real.dtype)
    )
    at = np.argmax(np.abs(v), -2, keepdims=True)
    largest = np.take_along_axis(v, at, -2)
    close = np.abs(v) > 0.98 * np.abs(largest)
    good = close & (v.real > 0) & (np.abs(v.imag) <= 1e-5 * np.abs(v))
    assert good.any(-2).all()


# -- eigh ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_eigh(shape, dtype, rng):
    x = drawn(rng, shape, dtype)
    x = (x + adjoint(x)) / 2
    w, v = (t.array for t in linalg.eigh(x))
    assert w.dtype == x.real.dtype
    assert v.dtype == dtype
    assert (np.diff(w, axis=-1) >= 0).all()
    assert_close((v * w[..., None, :]) @ adjoint(v), x)
    assert_close(adjoint(v) @ v, np.broadcast_to(np.eye(shape[-1], dtype=dtype), shape))
    assert_close(linalg.eigvalsh(x), w)
    in_gauge(v)


def test_only_the_hermitian_part_is_read(rng):
    x = rng.normal(size=(3, 3))
    assert_close(linalg.eigh(x), linalg.eigh((x + x.T) / 2))
    slope = rg.grad(lambda x: linalg.eigh(x).eigenvectors[0, 0])(x).array
    assert_close(slope, slope.T)


def test_ties_of_components_are_broken_towards_the_first():
    """[[2, 1], [1, 2]] has vectors (1, -1) and (1, 1): signs are not left to rounding."""
    v = linalg.eigh(np.array([[2.0, 1.0], [1.0, 2.0]])).eigenvectors.array
    assert_close(v * np.sqrt(2), np.array([[1.0, 1.0], [-1.0, 1.0]]))


def test_the_sum_of_eigenvalues_has_the_gradient_of_the_trace(rng):
    x = rng.normal(size=(4, 4))
    assert_close(rg.grad(lambda x: rg.sum(linalg.eigvalsh(x)))(x), np.eye(4))


def test_a_function_of_the_vectors_phase_has_its_gradient(rng):
    """Elsewhere the phase is LAPACK's, and such a gradient is refused or wrong."""
    x = drawn(rng, (3, 3), complex)
    x = x + adjoint(x) + np.diag([0, 4, 8])

    def f(re, im):
        v = linalg.eigh(rg.make_complex(re, im)).eigenvectors
        return rg.real(v[0, 1] * v[1, 2]), rg.imag(v[2, 0])

    check_grads(f, x.real, x.imag)


def test_equal_eigenvalues_give_finite_gradients():
    x = np.diag([1.0, 1.0, 2.0])

    def projector(x):  # onto the space of the two: it does not ask which vectors span it
        v = linalg.eigh(x).eigenvectors[:, :2]
        return v @ v.mT

    t = np.zeros((3, 3))
    t[0, 2] = t[2, 0] = 1.0
    _, found = rg.jvp(projector, (x,), (t,))
    eps = 1e-6
    p = [np.linalg.eigh(x + s * eps * t)[1][:, :2] for s in (1, -1)]
    assert_close(found, (p[0] @ p[0].T - p[1] @ p[1].T) / (2 * eps), tolerance=1e-8)
    g = rg.grad(lambda x: rg.sum(linalg.eigh(x).eigenvectors * np.arange(9.0).reshape(3, 3)))(x)
    assert np.isfinite(g.array).all()


def test_eigenvalues_that_are_equal_but_for_rounding_count_as_equal(rng):
    q = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    x = (q * [1, 1, 1, 2, 2, 3.0]) @ q.T
    g = rng.normal(size=(6, 6))
    slope = rg.grad(lambda x: rg.sum(linalg.eigh(x).eigenvectors * g))(x)
    assert np.abs(slope.array).max() < 100


@pytest.mark.parametrize("x", [np.zeros((2, 2)), np.eye(3)])
def test_eigenvalues_of_multiples_of_the_identity(x):
    assert_close(rg.grad(lambda x: rg.sum(linalg.eigvalsh(x)))(x), np.eye(len(x)))
    slope = rg.grad(lambda x: rg.sum(linalg.eigh(x).eigenvectors))(x)
    assert not np.any(slope.array)


def test_what_eigh_and_eigvalsh_keep(rng):
    x = rg.tensor(np.diag(np.arange(5.0)), requires_grad=True)
    assert rg.debug.graph(linalg.eigh(x).eigenvectors).nbytes == (5 + 25) * 8
    assert rg.debug.graph(linalg.eigvalsh(x)).nbytes == 25 * 8


def test_eigh_refuses():
    with pytest.raises(ShapeError, match="two last axes of equal length"):
        linalg.eigh(np.ones((1, 3)))
    with pytest.raises(ShapeError, match="at least 2 axes"):
        linalg.eigvalsh(np.ones(3))


# -- eig -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_eig(shape, dtype, rng):
    x = drawn(rng, shape, dtype)
    w, v = (t.array for t in linalg.eig(x))
    assert w.dtype == v.dtype == np.result_type(dtype, np.complex64)
    assert_close(x @ v, v * w[..., None, :])
    assert (np.diff(w.real, axis=-1) >= 0).all()
    assert_close(linalg.eigvals(x), w)
    in_gauge(v)


def test_eig_of_a_rotation():
    w, v = (t.array for t in linalg.eig(np.array([[0.0, -1.0], [1.0, 0.0]])))
    assert_close(w, np.array([-1j, 1j]))
    assert_close(v * np.sqrt(2), np.array([[1, 1], [1j, -1j]]))


def test_real_parts_of_complex_pairs_are_in_order(rng):
    """The two of a pair have one real part; the imaginary part decides."""
    x = rng.normal(size=(6, 6))
    w = linalg.eigvals(x).array
    assert np.array_equal(w, np.sort_complex(np.linalg.eigvals(x))) or np.allclose(
        w, np.sort_complex(np.linalg.eigvals(x)), rtol=1e-10
    )


def test_gradients_of_real_matrices_are_real(rng):
    x = rng.normal(size=(4, 4))

    def spread(x):
        w = linalg.eigvals(x)
        return rg.sum(rg.real(w * rg.conj(w)))

    slope = rg.grad(spread)(x)
    assert slope.dtype == rg.float64
    check_grads(spread, x)


def test_the_sum_of_powers_of_eigenvalues_is_the_trace_of_the_power(rng):
    x = rng.normal(size=(4, 4))
    one = rg.grad(lambda x: rg.real(rg.sum(linalg.eigvals(x) * linalg.eigvals(x))))(x)
    assert_close(one, 2 * x.T)


def test_eig_and_eigh_agree_on_symmetric_matrices(rng):
    x = rng.normal(size=(4, 4))
    x = x + x.T
    one, other = linalg.eig(x), linalg.eigh(x)
    assert_close(one.eigenvalues, other.eigenvalues.array.astype(complex))
    assert_close(one.eigenvectors, other.eigenvectors.array.astype(complex))
    g = rng.normal(size=(4, 4))
    mine = rg.grad(lambda x: rg.sum(rg.real(linalg.eig(0.5 * (x + x.mT)).eigenvectors) * g))(x)
    assert_close(mine, rg.grad(lambda x: rg.sum(linalg.eigh(x).eigenvectors * g))(x))


def test_eig_refuses():
    with pytest.raises(ShapeError, match="two last axes of equal length"):
        linalg.eig(np.ones((2, 3)))


@pytest.mark.parametrize("x", [[[0.0, 1.0], [0.0, 0.0]], [[1.0, 1.0], [0.0, 1.0]]])
def test_a_matrix_without_a_basis_of_eigenvectors_has_no_derivative(x):
    assert_close(linalg.eigvals(x), np.diag(x).astype(complex), tolerance=1e-7)
    for which in (0, 1):
        slope = rg.grad(lambda x, i=which: rg.real(rg.sum(linalg.eig(x)[i])))(np.array(x))
        assert np.isnan(slope.array).all()


def test_matrices_that_hold_nan_give_nan_and_disturb_no_other(rng):
    x = rng.normal(size=(3, 3, 3))
    x[1, 0, 0], x[2, 1, 1] = np.nan, np.inf
    for f in (linalg.eigh, linalg.eig, lambda x: (linalg.eigvalsh(x),)):
        for found, alone in zip(f(x), f(x[0]), strict=True):
            assert_close(found.array[0], alone)
            assert np.isnan(found.array[1:]).all()
