"""Large matrices, which take other ways: LAPACK in their own width, QR, products by kernels."""

import numpy as np
import pytest

import retrograd as rg
from retrograd import linalg
from retrograd.core.interpret import apply
from retrograd.ops.decompose import single
from retrograd.ops.decompose.eigen import Eig, Eigh
from retrograd.ops.decompose.exponential import ExpAlong, MatrixExp
from retrograd.ops.decompose.factor import Qr
from retrograd.ops.decompose.functions import Pinv
from retrograd.ops.decompose.svd import Svd
from retrograd.testing.compare import assert_close

DTYPES = ["float32", "float64", "complex64", "complex128"]
SINGLE = ["float32", "complex64"]


def drawn(rng, shape, dtype="float64"):
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if dtype[0] == "c" else x).astype(dtype)


def wide(x):
    return x.astype("complex128" if x.dtype.kind == "c" else "float64")


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def refuse(*_given, **_options):
    raise AssertionError("this way is not to be taken")


# -- pinv ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(256, 64), (64, 256), (3, 128, 48), (2, 2, 40, 160)])
def test_pinv_by_qr(shape, dtype, rng, monkeypatch):
    x = drawn(rng, shape, dtype)
    wanted = np.linalg.pinv(wide(x)).astype(dtype)
    monkeypatch.setattr(np.linalg, "pinv", refuse)
    assert_close(linalg.pinv(x), wanted)


@pytest.mark.parametrize("turned", [False, True])
def test_pinv_where_columns_are_not_independent(turned, rng):
    x = drawn(rng, (5, 128, 48))
    x[1, :, 7] = 0
    x[2, :, 8] = x[2, :, 9]
    x[3] *= np.logspace(0, -13, 48)
    x[4] = 0
    x = adjoint(x) if turned else x
    assert_close(linalg.pinv(x, rtol=1e-9), np.linalg.pinv(x, 1e-9))
    ranks = np.linalg.matrix_rank(x, rtol=1e-9)
    assert linalg.matrix_rank(linalg.pinv(x, rtol=1e-9)).array.tolist() == ranks.tolist()


def test_pinv_leaves_out_values_up_to_its_rtol(rng):
    u, v = (np.linalg.qr(rng.normal(size=(n, n)))[0] for n in (256, 64))
    x = (u[:, :64] * np.linspace(1.0, 0.1, 64)) @ v
    stack, rtols = np.stack([x, x, x]), np.array([1e-3, 0.5, 0.95])
    assert_close(linalg.pinv(stack, rtol=rtols), np.linalg.pinv(stack, rtols))


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_pinv_of_very_small_and_very_large_numbers(size, rng):
    x = drawn(rng, (256, 64), "float32")
    found = linalg.pinv(x * np.float32(size)).array.astype("float64") * size
    assert_close(found, np.linalg.pinv(wide(x)), tolerance=1e-5)


def test_pinv_of_what_holds_nan(rng):
    x = drawn(rng, (2, 128, 64), "float32")
    x[1, 3, 3] = np.nan
    found = linalg.pinv(x).array
    assert np.isnan(found[1]).all()
    assert_close(found[0], np.linalg.pinv(x[0]))


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_derivatives_of_pinv_at_any_rank(shape, dtype, rng):
    """Along a curve that keeps the rank; forward and backward are each other's transpose."""
    (m, n), k = shape, 3
    a, b, da, db = (drawn(rng, s, dtype) for s in ((m, k), (k, n), (m, k), (k, n)))
    x, t, g = a @ b, da @ b + a @ db, drawn(rng, (n, m), dtype)
    pinv = lambda x: linalg.pinv(x, rtol=1e-8)
    _, pushed = rg.jvp(pinv, (x,), (t,))
    eps = 1e-6
    ends = [np.linalg.pinv((a + s * da) @ (b + s * db), 1e-8) for s in (eps, -eps)]
    assert_close(pushed, (ends[0] - ends[1]) / (2 * eps), tolerance=1e-7)
    op, out = Pinv(), np.linalg.pinv(x, 1e-8)
    for any_t in (t, drawn(rng, shape, dtype)):
        moved = np.asarray(op.jvp(*map(rg.asarray, (any_t, x, out))))
        back = np.asarray(op.vjp(*map(rg.asarray, (g, x, out))))
        assert_close(np.sum(g * moved).real, np.sum(back * any_t).real, tolerance=1e-10)


# -- matrix_exp ----------------------------------------------------------------------------


def blocks(x, t):
    """The derivative along t as the block of an exponential twice as large."""
    return apply(MatrixExp(), np.block([[x, t], [np.zeros_like(x), x]])).array[
        ..., : x.shape[-1], x.shape[-1] :
    ]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("size", [0.0, 1e-3, 0.3, 1.0, 20.0])
@pytest.mark.parametrize("change", [1e-6, 1.0, 1e9])
def test_the_exponential_along_a_change(size, change, dtype, rng):
    x, t = size * drawn(rng, (5, 5), dtype) / 5, drawn(rng, (5, 5), dtype)
    found = ExpAlong().forward(x, change * t)
    assert_close(found / change, blocks(x, t))


def test_many_exponentials_along_changes(rng):
    sizes = np.array([0.0, 1e-4, 0.1, 1.0, 5.0, 30.0])[:, None, None]
    x, t = drawn(rng, (6, 3, 3)) * sizes / 3, drawn(rng, (6, 3, 3)) * sizes[::-1]
    x[4, 1, 1], t[2, 0, 0] = np.nan, np.inf
    found = ExpAlong().forward(x, t)
    assert np.isnan(found[[2, 4]]).all()
    for i in (0, 1, 3, 5):
        assert_close(found[i], blocks(x[i], t[i]), tolerance=1e-10)
    assert not ExpAlong().forward(x[0], np.zeros((3, 3))).any()


@pytest.mark.parametrize("dtype", SINGLE)
def test_the_exponential_of_large_matrices(dtype, rng):
    x = (np.eye(160) + drawn(rng, (160, 160), dtype) / 80).astype(dtype)
    t = drawn(rng, (160, 160), dtype)
    out, moved = rg.jvp(linalg.matrix_exp, (x,), (t,))
    exact = rg.jvp(linalg.matrix_exp, (wide(x),), (wide(t),))
    assert_close(out, exact[0].array.astype(dtype))
    assert_close(moved, exact[1].array.astype(dtype))


# -- LAPACK in float32 ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", SINGLE)
@pytest.mark.parametrize("shape", [(64, 64), (96, 40), (40, 96), (2, 48, 33)])
def test_svd_in_its_own_width(shape, dtype, rng):
    x = drawn(rng, shape, dtype)
    u, s, vh = (t.array for t in linalg.svd(x, full_matrices=False))
    assert (u.dtype, s.dtype, vh.dtype) == (x.dtype, x.real.dtype, x.dtype)
    k = min(shape[-2:])
    one = np.broadcast_to(np.eye(k, dtype=dtype), (*shape[:-2], k, k))
    assert_close((u * s[..., None, :]) @ vh, x)
    assert_close(adjoint(u) @ u, one)
    assert_close(vh @ adjoint(vh), one)
    exact = np.linalg.svd(wide(x), compute_uv=False).astype(s.dtype)
    assert_close(s, exact)
    assert_close(linalg.svdvals(x), exact)


@pytest.mark.parametrize("dtype", SINGLE)
@pytest.mark.parametrize("shape", [(64, 64), (2, 33, 33)])
def test_eigh_in_its_own_width(shape, dtype, rng):
    x = drawn(rng, shape, dtype)
    x = (x + adjoint(x)) / 2
    w, v = (t.array for t in linalg.eigh(x))
    assert (w.dtype, v.dtype) == (x.real.dtype, x.dtype)
    assert_close((v * w[..., None, :]) @ adjoint(v), x)
    exact = np.linalg.eigvalsh(wide(x)).astype(w.dtype)
    assert_close(w, exact)
    assert_close(linalg.eigvalsh(x), exact)


def test_a_numpy_without_these_names_does_it_all_the_same(rng, monkeypatch):
    x = drawn(rng, (40, 40), "float32")
    monkeypatch.setattr(np.linalg, "_umath_linalg", None)
    for own, public in ((single.svd, np.linalg.svd), (single.eigh, np.linalg.eigh)):
        monkeypatch.setattr(np.linalg, public.__name__, lambda x, **_options: "public")
        assert own(x) == "public"
    assert single.svdvals(x) == "public"


@pytest.mark.parametrize("values", [linalg.svdvals, linalg.eigvalsh])
def test_vectors_of_a_large_matrix_on_the_tape_are_found_once(values, rng, monkeypatch):
    x = drawn(rng, (128, 128), "complex64")  # LAPACK's: real ones may have kernels
    x = rg.tensor((x + adjoint(x)) / 2, requires_grad=True)
    found = []
    for name in ("svd", "svdvals", "eigh", "eigvalsh"):
        whole = getattr(single, name)
        monkeypatch.setattr(
            single, name, lambda x, f=whole, name=name: (found.append(name), f(x))[1]
        )
    out = values(x)
    rg.sum(out).backward()
    assert found == [{"svdvals": "svd", "eigvalsh": "eigh"}[values.__name__]]
    found.clear()
    with rg.no_grad():
        assert_close(values(x), out.detach())
    assert found == [values.__name__]
    grad = rg.grad(lambda x: rg.sum(values(x)))(x.detach())
    assert_close(x.grad, grad)


@pytest.mark.parametrize("op", [Svd, Eigh, Eig, Qr])
def test_what_no_gradient_flows_into_costs_nothing(op):
    """A rule that takes missing cotangents as None gets no zeros for them."""
    assert op().optional(op.rule["vjp"]) == set(range(len(op.outputs)))
