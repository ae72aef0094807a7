"""det, slogdet, logdet: also where the matrix is singular."""

from itertools import combinations

import numpy as np
import pytest

import retrograd as rg
from retrograd import linalg
from retrograd.core.errors import ShapeError
from retrograd.ops.decompose.determinant import without_two
from retrograd.testing.check import check_grads
from retrograd.testing.compare import assert_close

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
SHAPES = [(3, 3), (2, 4, 3, 3), (1, 1), (0, 0), (0, 2, 2), (8, 8)]


def drawn(rng, shape, dtype=float):
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def minors(x):
    """The cofactors, each as a determinant of what is left."""
    n = len(x)
    out = np.empty_like(x)
    for i in range(n):
        for j in range(n):
            left = np.delete(np.delete(x, i, 0), j, 1)
            out[i, j] = (-1) ** (i + j) * np.linalg.det(left)
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_det(shape, dtype, rng):
    x = drawn(rng, shape, dtype)
    found = linalg.det(x)
    assert found.dtype == dtype
    assert_close(found, np.linalg.det(x))


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("rank", [0, 1, 2, 3, 4])
def test_N23_det_of_a_singular_matrix_has_its_gradient(rank, dtype, rng):
    """numr refused it. It is the matrix of cofactors, 0 from two missing ranks on."""
    x = drawn(rng, (4, rank), dtype) @ drawn(rng, (rank, 4), dtype)
    slope = rg.grad(lambda x: rg.real(linalg.det(x)))(x)
    assert_close(slope, np.conj(minors(x)))
    assert (np.abs(slope.array).max() < 1e-10) == (rank < 3)


def test_N23_det_is_batched_and_singular_ones_do_not_disturb_others(rng):
    x = rng.normal(size=(3, 3, 3))
    x[1] = 1.0
    slope = rg.grad(lambda x: rg.sum(linalg.det(x)))(x)
    assert_close(slope, np.stack([minors(m) for m in x]))


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_the_hessian_of_det_at_singular_matrices(rank, rng):
    """Second derivatives are determinants of what is left without two rows and two columns."""
    n = 3
    x = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, n))
    found = rg.hessian(linalg.det)(x).array
    wanted = np.zeros((n, n, n, n))
    for i, k in combinations(range(n), 2):
        for j, m in combinations(range(n), 2):
            left = np.delete(np.delete(x, [i, k], 0), [j, m], 1)
            value = (-1) ** (i + j + k + m) * np.linalg.det(left)
            wanted[i, j, k, m] = wanted[k, m, i, j] = value
            wanted[i, m, k, j] = wanted[k, j, i, m] = -value
    assert_close(found, wanted)
    forward = rg.jacfwd(rg.jacfwd(linalg.det))(x)
    assert_close(forward, wanted)


def test_a_nearly_singular_matrix_keeps_its_digits(rng):
    """det * inv would lose them: the cofactors themselves are well conditioned."""
    u, v = (np.linalg.qr(rng.normal(size=(4, 4)))[0] for _ in range(2))
    for small in (1e-3, 1e-7, 1e-11, 1e-15, 1e-300, 0.0):
        x = (u * [3.0, 2.0, 1.0, small]) @ v
        slope = rg.grad(linalg.det)(x).array
        wanted = minors(x)
        assert np.abs(slope - wanted).max() <= 1e-10 * np.abs(wanted).max()


def test_third_derivatives_of_det(rng):
    x = rng.normal(size=(3, 3)) + np.eye(3)
    check_grads(rg.grad(linalg.det), x)


def test_without_two():
    s = np.array([2.0, 3.0, 0.0, 5.0])
    found = without_two(s)
    for i in range(4):
        for j in range(4):
            rest = [s[k] for k in range(4) if k not in (i, j)]
            assert found[i, j] == np.prod(rest)


def test_det_keeps_its_input():
    x = rg.tensor(np.eye(4), requires_grad=True)
    assert rg.debug.graph(linalg.det(x)).nbytes == 4 * 4 * 8


# -- slogdet -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_slogdet(shape, dtype, rng):
    x = drawn(rng, shape, dtype)
    sign, size = linalg.slogdet(x)
    wanted = np.linalg.slogdet(x)
    assert (sign.dtype, size.dtype) == (dtype, x.real.dtype)
    assert_close([sign, size], list(wanted))


def test_slogdet_does_not_overflow():
    x = 1e200 * np.eye(50)
    assert np.isinf(linalg.det(x).array)
    assert_close(linalg.slogdet(x).logabsdet, 50 * np.log(1e200))
    assert_close(rg.grad(lambda x: linalg.slogdet(x).logabsdet)(x) * 1e200, np.eye(50))


def test_slogdet_of_a_singular_matrix():
    """0 and -inf, and a gradient of nan: there is none. Other matrices keep theirs."""
    x = np.stack([np.ones((2, 2)), 2 * np.eye(2)])
    sign, size = linalg.slogdet(x)
    assert sign.array.tolist() == [0.0, 1.0]
    assert size.array[0] == -np.inf
    slope = rg.grad(lambda x: rg.sum(linalg.slogdet(x).logabsdet))(x).array
    assert np.isnan(slope[0]).all()
    assert_close(slope[1], np.eye(2) / 2)


def test_the_sign_of_a_real_determinant_has_gradient_zero(rng):
    x = rng.normal(size=(3, 3))
    assert not np.any(rg.grad(lambda x: linalg.slogdet(x).sign)(x).array)


def test_the_phase_of_a_complex_determinant_has_its_gradient(rng):
    re, im = rng.normal(size=(2, 3, 3))

    def f(re, im):
        sign, size = linalg.slogdet(rg.make_complex(re, im))
        return rg.real(sign), rg.imag(sign), size

    check_grads(f, re, im)


def test_logdet(rng):
    root = rng.normal(size=(3, 3))
    x = root @ root.T + np.eye(3)
    assert_close(linalg.logdet(x), np.log(np.linalg.det(x)))
    assert_close(rg.grad(linalg.logdet)(x), np.linalg.inv(x).T)
    assert np.isnan(linalg.logdet(np.diag([1.0, -1.0])).array)
    assert linalg.logdet(np.zeros((2, 2))).array == -np.inf
    assert_close(linalg.logdet(np.diag([1j, 2.0])), np.log(2j))


def test_refusals():
    for f in (linalg.det, linalg.slogdet, linalg.logdet):
        with pytest.raises(ShapeError, match="two last axes of equal length"):
            f(np.ones((2, 3)))
