"""Special functions as ops: special values, the identities they satisfy, gradients far out.

The NumPy code beneath is tested in tests/core/test_special.py; here is what the ops add.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import retrograd as rg
from retrograd.autodiff.forward import jvp
from retrograd.core.errors import ArgumentError, DtypeError
from retrograd.core.interpret import RAW, using
from retrograd.core.op import REGISTRY
from retrograd.ops import elementary, logarithmic, special
from retrograd.testing import assert_close

inf, nan = math.inf, math.nan
FLOATS = pytest.mark.parametrize("dtype", [np.float32, np.float64])
HERE = ("logarithmic", "special")
OURS = [cls for cls in REGISTRY.values() if cls.__module__.rpartition(".")[2] in HERE]
UNARY = {
    "digamma": special.digamma,
    "entr": logarithmic.entr,
    "erf": special.erf,
    "erfc": special.erfc,
    "erfinv": special.erfinv,
    "expit": logarithmic.expit,
    "gammaln": special.gammaln,
    "lgamma": special.lgamma,
    "log_ndtr": special.log_ndtr,
    "logit": logarithmic.logit,
    "ndtr": special.ndtr,
    "ndtri": special.ndtri,
    "trigamma": lambda x: special.polygamma(1, x),
}
PAIRS = {"xlogy": logarithmic.xlogy, "xlog1py": logarithmic.xlog1py}
LIMITS = {
    "digamma": [(0.0, nan), (-1.0, nan), (inf, inf), (nan, nan)],
    "entr": [(0.0, 0.0), (1.0, 0.0), (-1.0, -inf), (inf, -inf), (nan, nan)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (inf, 1.0), (-inf, -1.0), (nan, nan)],
    "erfc": [(0.0, 1.0), (inf, 0.0), (-inf, 2.0), (nan, nan)],
    "erfinv": [(0.0, 0.0), (-0.0, -0.0), (1.0, inf), (-1.0, -inf), (1.5, nan), (nan, nan)],
    "lgamma": [(1.0, 0.0), (2.0, 0.0), (0.0, inf), (-1.0, inf), (inf, inf), (nan, nan)],
    "log_ndtr": [(inf, 0.0), (-inf, -inf), (nan, nan)],
    "logit": [(0.5, 0.0), (0.0, -inf), (1.0, inf), (-0.5, nan), (1.5, nan), (nan, nan)],
    "ndtr": [(0.0, 0.5), (inf, 1.0), (-inf, 0.0), (nan, nan)],
    "ndtri": [(0.5, 0.0), (0.0, -inf), (1.0, inf), (-0.5, nan), (1.5, nan), (nan, nan)],
}


def values(x):
    return np.asarray(x.array)


def slopes(f, *arrays):
    """The gradients of sum(f(...)) by the tape."""
    leaves = [rg.tensor(a, requires_grad=True) for a in arrays]
    out = f(*leaves)
    out.backward(rg.ones_like(out))
    assert all(leaf.grad.dtype == a.dtype for leaf, a in zip(leaves, arrays, strict=True))
    return [values(leaf.grad) for leaf in leaves]


# -- values ------------------------------------------------------------------------------------


@FLOATS
@pytest.mark.parametrize("name", LIMITS)
def test_special_values(name, dtype):
    x, wanted = (np.array(column, dtype) for column in zip(*LIMITS[name], strict=True))
    got = values(UNARY[name](x))
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, wanted)
    ends = x == 0  # an odd function keeps the sign of zero
    np.testing.assert_array_equal(np.signbit(got[ends]), np.signbit(wanted[ends]))


@pytest.mark.parametrize("name", UNARY)
def test_dtypes(name):
    f = UNARY[name]
    assert f(np.array([1, 1])).dtype == np.float32
    assert f(np.array([0.5], np.float16)).dtype == np.float16
    assert f(np.float64(0.5)).dtype == np.float64
    assert f(np.zeros((0, 3), np.float32)).shape == (0, 3)
    with pytest.raises(DtypeError, match="got complex128; it takes"):
        f(np.array([1j]))


@given(st.floats(-0.999, 0.999), st.floats(1e-300, 1 - 1e-9))
def test_inverses_undo(y, p):
    assert_close(special.erf(special.erfinv(y)), np.float32(y))
    y, p = np.array([y]), np.array([p])
    assert_close(special.erf(special.erfinv(y)), y)
    for f, inverse in ((special.ndtr, special.ndtri), (logarithmic.expit, logarithmic.logit)):
        back = values(f(inverse(p)))
        np.testing.assert_allclose(back, p, rtol=2e-12)  # slopes up to 700 amplify an ulp


@given(st.floats(-30, 30))
def test_complements(x):
    x = np.array([x])
    assert_close(values(special.erf(x)) + values(special.erfc(x)), np.ones(1))
    assert_close(values(special.ndtr(x)) + values(special.ndtr(-x)), np.ones(1))
    np.testing.assert_allclose(
        values(rg.exp(special.log_ndtr(x))), values(special.ndtr(x)), rtol=1e-12
    )


@given(st.floats(0.05, 80), st.integers(0, 4))
def test_recurrences_of_the_gamma_family(x, n):
    """f(x + 1) - f(x) is log(x) for lgamma, and (-1)**n n! / x**(n+1) for polygamma."""
    x = np.array([x])
    step = values(special.lgamma(x + 1)) - values(special.lgamma(x))
    np.testing.assert_allclose(step, np.log(x), atol=1e-12 * 300)
    above, here = (values(special.polygamma(n, y)) for y in (x + 1, x))
    wanted = (-1) ** n * math.factorial(n) / x ** (n + 1)
    np.testing.assert_allclose(above - here, wanted, atol=1e-12 * np.abs(here).max())


def test_polygamma_orders():
    x = np.linspace(0.5, 5, 7)
    np.testing.assert_array_equal(values(special.polygamma(0, x)), values(special.digamma(x)))
    assert special.polygamma(np.int64(2), x).shape == x.shape
    with pytest.raises(ArgumentError, match="polygamma: n must be 0 or more; got -1"):
        special.polygamma(-1, x)
    with pytest.raises(ArgumentError, match=r"polygamma: n must be an integer; got 0\.5"):
        special.polygamma(0.5, x)


@FLOATS
def test_logit_keeps_its_digits_near_one_half(dtype):
    gap = np.array([1e-6, 1e-4, 1e-2, 0.2, 0.26, 0.4], dtype)
    p = dtype(0.5) + gap
    exact = p.astype(np.longdouble) - 0.5  # what the rounded p is
    wanted = np.log1p(4 * exact / (1 - 2 * exact))
    got = values(logarithmic.logit(p))
    np.testing.assert_allclose(got, wanted.astype(dtype), rtol=4 * np.finfo(dtype).eps)


# -- x log y -----------------------------------------------------------------------------------


@FLOATS
@pytest.mark.parametrize("name", PAIRS)
def test_zero_times_any_logarithm_is_zero(name, dtype):
    y = np.array([0.0, -1.0, -2.0, 1.0, inf, -inf], dtype)
    for x in (dtype(0.0), dtype(-0.0)):
        got = values(PAIRS[name](x, y))
        assert got.dtype == dtype
        assert not got.any()
        assert np.isnan(values(PAIRS[name](x, dtype(nan))))


@pytest.mark.parametrize("name", PAIRS)
def test_N17_gradients_of_zero_times_a_logarithm(name):
    """0 / 0 and 0 * log(0) leave no nan; where y is in the domain the slopes are the usual."""
    pole = 0.0 if name == "xlogy" else -1.0
    x, y = np.zeros(4), np.array([pole, pole - 1, pole + 0.5, pole + 2])
    by_x, by_y = slopes(PAIRS[name], x, y)
    np.testing.assert_array_equal(by_x, [0, 0, np.log(0.5), np.log(2.0)])
    np.testing.assert_array_equal(by_y, np.zeros(4))
    (together,) = slopes(lambda p: PAIRS[name](p, p + pole), np.array([0.0, 0.5]))
    np.testing.assert_allclose(together, [0, 1 + np.log(0.5)])


@pytest.mark.parametrize("name", PAIRS)
def test_second_order_at_zero_is_not_cut(name):
    """d2/dxdy is 1 / y also at x = 0: the guard against 0 / 0 must not hide it."""
    pole = 0.0 if name == "xlogy" else -1.0
    x, y = np.zeros(3), pole + np.array([0.5, 1.0, 4.0])
    by_y = rg.grad(lambda x, y: rg.sum(PAIRS[name](x, y)), argnums=1)
    _, mixed = jvp(lambda x: by_y(x, y), (x,), (np.ones(3),))
    assert_close(mixed, 1 / (y - pole))


def test_entropy_of_a_distribution_with_zeros():
    p = np.array([0.0, 0.25, 0.75])
    (found,) = slopes(logarithmic.entr, p)
    np.testing.assert_allclose(found[1:], -1 - np.log(p[1:]))
    assert np.isfinite(found).all()


# -- gradients far out -------------------------------------------------------------------------


@FLOATS
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", ["erf", "erfc", "expit", "ndtr"])
def test_flat_tails_have_slope_zero(name, sign, dtype):
    x = sign * np.array([1e3, 1e4, 1e30, inf], dtype)
    (found,) = slopes(UNARY[name], x)
    tiny = np.finfo(dtype).smallest_normal
    assert np.all(np.abs(found) <= tiny)


@FLOATS
@pytest.mark.parametrize("name", ["erfinv", "logit", "ndtri"])
def test_inverse_slopes_at_the_ends_are_infinite(name, dtype):
    ends = np.array([-1.0, 1.0] if name == "erfinv" else [0.0, 1.0], dtype)
    (found,) = slopes(UNARY[name], ends)
    np.testing.assert_array_equal(found, [inf, inf])


@FLOATS
def test_log_ndtr_far_down(dtype):
    """For x < 0 the slope is between |x| and |x| + 1/|x|: no digits lost, no nan."""
    x = -np.array([3.0, 10.0, 50.0, 1e3, 1e6, 1e12, 1e30], dtype)
    (found,) = slopes(special.log_ndtr, x)
    low, high = -x.astype(np.longdouble), -x - 1 / x.astype(np.longdouble)
    eps = 4 * np.finfo(dtype).eps
    assert np.all(found >= low * (1 - eps))
    assert np.all(found <= high * (1 + eps))
    (up,) = slopes(special.log_ndtr, np.array([10.0, 200.0, inf], dtype))
    np.testing.assert_allclose(up[0], np.exp(-50.0) / np.sqrt(2 * np.pi), rtol=eps)
    np.testing.assert_array_equal(up[1:], 0)


@FLOATS
def test_log_ndtr_slope_in_the_middle(dtype):
    x = np.linspace(-8, 8, 201).astype(dtype)
    (found,) = slopes(special.log_ndtr, x)
    wide = x.astype(np.float64)
    wanted = np.exp(-0.5 * wide**2) / np.sqrt(2 * np.pi) / values(special.ndtr(wide))
    np.testing.assert_allclose(found, wanted, rtol=1e-13 if dtype == np.float64 else 2e-7)


@FLOATS
def test_gamma_slopes_for_large_x(dtype):
    """digamma(x) is log(x) - 1/(2x) - ..., trigamma 1/x + 1/(2 x**2) + ..."""
    x = np.array([1e9, 1e15, 1e30], dtype)
    eps = 4 * np.finfo(dtype).eps
    wide = x.astype(np.float64)
    (first,) = slopes(special.lgamma, x)
    np.testing.assert_allclose(first, np.log(wide) - 0.5 / wide, rtol=eps)
    (second,) = slopes(special.digamma, x)
    np.testing.assert_allclose(second, 1 / wide + 0.5 / wide**2, rtol=eps)


def test_third_derivative_of_lgamma():
    """Polygamma of each order is the slope of the one before."""
    x = np.linspace(0.7, 6, 11)
    f = special.lgamma
    for n in range(3):
        f = lambda y, f=f: jvp(f, (y,), (np.ones_like(x),))[1]
        np.testing.assert_array_equal(values(f(x)), values(special.polygamma(n, x)))


def test_expit_is_sigmoid():
    x = np.linspace(-800, 800, 33)
    np.testing.assert_array_equal(values(logarithmic.expit(x)), values(elementary.sigmoid(x)))


@pytest.mark.parametrize("cls", OURS, ids=lambda c: c.__name__)
def test_rules_on_bare_arrays_keep_the_dtype(cls, rng):
    """The first-order backward pass runs slopes on arrays: float32 must stay float32."""
    for op, *arrays in cls.samples(rng):
        arrays = [np.asarray(a, np.float32) for a in arrays]
        recipe = op.reverse((1 << len(arrays)) - 1)
        with np.errstate(all="ignore"), using(RAW):
            out = np.asarray(op.forward(*arrays))
            assert out.dtype == np.float32
            kept = recipe.keep((*arrays, out))
            for c in recipe.pull(op, np.ones_like(out), kept, len(arrays)):
                assert c.dtype == np.float32
