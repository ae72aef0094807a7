"""Special functions: against libm, scipy, each other, and the identities they satisfy."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retrograd.core import special

UNARY = {
    "erf": special.erf,
    "erfc": special.erfc,
    "erfinv": special.erfinv,
    "erfcinv": special.erfcinv,
    "ndtr": special.ndtr,
    "log_ndtr": special.log_ndtr,
    "ndtri": special.ndtri,
    "expit": special.expit,
    "gammaln": special.gammaln,
    "digamma": special.digamma,
    "trigamma": lambda x: special.polygamma(1, x),
    "tetragamma": lambda x: special.polygamma(2, x),
    "zeta": lambda x: special.zeta(2.5, x),
}
unary = pytest.mark.parametrize("f", UNARY.values(), ids=UNARY)
EPS = np.finfo(np.float64).eps
TINY = np.finfo(np.float64).smallest_subnormal
NORMAL = np.finfo(np.float64).smallest_normal


@pytest.fixture(autouse=True)
def _quiet():
    """The functions are specified under errstate ignore, which is how the ops call them."""
    with np.errstate(all="ignore"):
        yield


def ulps(got, wanted):
    """The largest distance in units of the last place of what is wanted; nan equals nan."""
    got, wanted = np.broadcast_arrays(np.asarray(got), np.asarray(wanted))
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    distance = np.abs(got - wanted) / np.spacing(np.abs(wanted))
    return float(np.max(np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))))


def reals(low, high):
    return st.floats(low, high, allow_nan=False)


def line(low, high, n=4001):
    """Points from low to high, off the dyadic grid."""
    return np.linspace(low, high, n)


def decades(low, high, n=4001):
    return np.geomspace(low, high, n)


def off_poles(low, high, n=4001):
    """Points of a negative interval at least 1e-3 from every integer."""
    x = line(low, high, n)
    return x[np.abs(x - np.rint(x)) > 1e-3]


# -- shapes and types ----------------------------------------------------------------------


@unary
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (2, 3)])
def test_dtype_and_shape_are_kept(f, dtype, shape):
    x = np.full(shape, 0.25, dtype)
    out = f(x)
    assert type(out) is np.ndarray
    assert out.dtype == dtype
    assert out.shape == shape
    assert np.all(out == f(0.25).astype(dtype))


@unary
def test_float32_is_float64_rounded(f, rng):
    x = rng.uniform(-3, 3, 500).astype(np.float32)
    wanted = f(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(f(x), wanted)


@unary
def test_integers_become_float64(f):
    assert f(np.array([1, 0, 1])).dtype == np.float64
    assert f(True).dtype == np.float64
    np.testing.assert_array_equal(f([1, 0]), f(np.array([1.0, 0.0])))


@unary
def test_complex_arguments_are_refused(f):
    with pytest.raises(TypeError, match="complex"):
        f(np.array([1j]))


@unary
def test_the_argument_is_left_alone(f, rng):
    x = rng.uniform(-3, 3, 100)
    before = x.copy()
    f(x)
    np.testing.assert_array_equal(x, before)


@unary
def test_nan_gives_nan_and_spoils_no_neighbour(f):
    x = np.array([0.25, np.nan, 0.75])
    np.testing.assert_array_equal(f(x), [f(0.25), np.nan, f(0.75)])


@unary
def test_an_element_does_not_depend_on_its_block(f, rng, monkeypatch):
    """Blocks and strides are how it is computed, not what: to the last bits of SIMD loops."""
    x = rng.uniform(-4, 12, (300, 7))
    whole = f(x)
    assert ulps(f(x.T).T, whole) <= 2
    monkeypatch.setattr(special, "_BLOCK", 13)
    assert ulps(f(x), whole) <= 2


def test_weak_scalars_do_not_widen():
    q = np.ones(3, np.float32)
    assert special.zeta(2, q).dtype == np.float32
    assert special.zeta(2.0, q).dtype == np.float32
    assert special.zeta(np.full(3, 2.0), q).dtype == np.float64


def test_zeta_broadcasts():
    s, q = np.array([[2.0], [3.0]]), np.array([1.0, 2.0, 5.0])
    out = special.zeta(s, q)
    assert out.shape == (2, 3)
    np.testing.assert_array_equal(out[1], special.zeta(3.0, q))
    assert special.zeta(np.ones((0, 1)), q).shape == (0, 3)


@pytest.mark.parametrize("n", [-1, 1.5])
def test_polygamma_refuses_orders_that_are_none(n):
    with pytest.raises(ValueError, match="order"):
        special.polygamma(n, 1.0)


# -- special values ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "x", "wanted"),
    [
        (special.erf, [np.inf, -np.inf, 0.0], [1, -1, 0]),
        (special.erfc, [np.inf, -np.inf, 0.0, -0.0, TINY], [0, 2, 1, 1, 1]),
        (special.erfinv, [1, -1, 0, 1 + EPS, -np.inf], [np.inf, -np.inf, 0, np.nan, np.nan]),
        (special.erfcinv, [0, 2, 1, -TINY, 3], [np.inf, -np.inf, 0, np.nan, np.nan]),
        (special.ndtr, [np.inf, -np.inf, 0.0, -0.0], [1, 0, 0.5, 0.5]),
        (special.log_ndtr, [np.inf, -np.inf, -1e200, 0], [0, -np.inf, -np.inf, math.log(0.5)]),
        (special.ndtri, [0, 1, 0.5, -TINY, 2], [-np.inf, np.inf, 0, np.nan, np.nan]),
        (special.expit, [np.inf, -np.inf, 0.0, -0.0], [1, 0, 0.5, 0.5]),
        (special.gammaln, [np.inf, -np.inf, 0.0, -0.0, -1, -1e300, 1e308], [np.inf] * 7),
        (special.gammaln, [1, 2], [0, 0]),
        (special.digamma, [np.inf, -np.inf, 0.0, -0.0, -3], [np.inf] + [np.nan] * 4),
        (special.digamma, [TINY, -TINY], [-np.inf, np.inf]),
    ],
)
def test_values_at_the_borders(f, x, wanted):
    np.testing.assert_array_equal(f(np.array(x, np.float64)), wanted)


@pytest.mark.parametrize("f", [special.erf, special.erfinv])
def test_zeros_keep_their_sign(f):
    assert np.signbit(f(-0.0))
    assert not np.signbit(f(0.0))


def test_zeros_in_the_middle_are_positive():
    assert not np.signbit(special.erfcinv(1.0))
    assert not np.signbit(special.ndtri(0.5))


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_polygamma_at_poles(n):
    """Both sides of a pole agree for odd n; for even n there is no value."""
    x = np.array([0.0, -0.0, -1.0, -7.0])
    np.testing.assert_array_equal(
        special.polygamma(n, x), np.full(4, np.inf if n % 2 else np.nan)
    )
    assert special.polygamma(n, np.inf) == 0
    assert np.isnan(special.polygamma(n, -np.inf))
    assert special.polygamma(n, TINY) == (-1) ** (n + 1) * np.inf


def test_zeta_at_the_borders():
    s = np.array([1.0, 0.5, 2.0, 2.0, 2.0, 2.0, np.inf, np.inf, 1e300, np.nan])
    q = np.array([1.0, 1.0, 0.0, -0.0, -1.5, np.inf, 0.5, 1.0, 2.0, 1.0])
    wanted = [np.inf, np.nan, np.inf, np.inf, np.nan, 0, np.inf, 1, 0, np.nan]
    np.testing.assert_array_equal(special.zeta(s, q), wanted)


def test_denormal_arguments():
    x = TINY * np.array([1.0, 3.0, 1e3, 1e9])
    slope = 2 / math.sqrt(math.pi)
    assert ulps(special.erf(x), x * slope) <= 1
    assert ulps(special.erfinv(x), x / slope) <= 1
    assert ulps(special.gammaln(x), -np.log(x)) <= 2
    assert ulps(special.gammaln(-x), -np.log(x)) <= 2


# -- error functions -----------------------------------------------------------------------


def test_erf_and_erfc_are_those_of_libm():
    x = np.concatenate([line(-7, 7), decades(1e-300, 1)])
    assert ulps(special.erf(x), [math.erf(v) for v in x]) <= 3
    x = np.concatenate([x, line(7, 26)])
    assert ulps(special.erfc(x), [math.erfc(v) for v in x]) <= 9


def test_erfc_reaches_the_denormals():
    x = line(26.3, 28)
    got, wanted = special.erfc(x), np.array([math.erfc(v) for v in x])
    np.testing.assert_allclose(got, wanted, rtol=8 * EPS, atol=2 * TINY)
    assert np.any((got > 0) & (got < NORMAL))
    assert got[-1] == 0


@given(reals(-30, 30))
def test_erf_is_odd(x):
    assert special.erf(-x) == -special.erf(x)


@given(reals(-30, 30))
def test_erf_and_erfc_add_to_one(x):
    assert abs(special.erf(x) + special.erfc(x) - 1) <= 4 * EPS


@given(reals(-30, 30))
def test_erfc_reflects(x):
    assert abs(special.erfc(x) + special.erfc(-x) - 2) <= 4 * EPS


@given(reals(-2, 2))
@example(0.75)
@example(-TINY)
def test_erfinv_inverts_erf(x):
    """The error of x is that of erf, over its slope."""
    y = special.erf(x)
    slope = 2 / math.sqrt(math.pi) * math.exp(-x * x)
    assert abs(special.erfinv(y) - x) <= 4 * np.spacing(abs(x)) + 2 * np.spacing(abs(y)) / slope


@given(reals(TINY, 2 - EPS))
def test_erfc_inverts_erfcinv(p):
    """A relative error of x is 2 x**2 times as large in the tail of erfc."""
    x = special.erfcinv(p)
    assert abs(special.erfc(x) - p) <= (10 + 8 * x * x) * np.spacing(p)


def test_erfcinv_and_erfinv_agree():
    y = line(-0.999, 0.999)
    np.testing.assert_allclose(special.erfcinv(1 - y), special.erfinv(y), rtol=1e-13, atol=EPS)
    p = decades(1e-15, 0.5)
    y = 1 - p
    assert ulps(special.erfinv(y), special.erfcinv(1 - y)) <= 5


@pytest.mark.parametrize("border", [0.25, 1.75, math.exp(-16)])
def test_erfcinv_is_smooth_where_its_pieces_meet(border):
    """Across a border by one step, the value moves by its slope and a rounding error."""
    above, below = np.nextafter(border, 3), np.nextafter(border, -3)
    x = special.erfcinv(border)
    slope = math.sqrt(math.pi) / 2 * np.exp(x * x)
    moved = special.erfcinv(below) - special.erfcinv(above)
    assert abs(moved - slope * (above - below)) <= 8 * np.spacing(abs(x))


# -- normal law ----------------------------------------------------------------------------


def test_ndtr_is_erfc():
    x = line(-8, 8)
    wanted = [0.5 * math.erfc(-v / math.sqrt(2)) for v in x]
    np.testing.assert_allclose(special.ndtr(x), wanted, rtol=(8 + 64) * EPS)


def test_ndtr_in_its_tail_is_its_continued_fraction():
    """Mills's ratio is 1 / (x + 1 / (x + 2 / (x + ...))); x squared is exact for these x."""
    x = np.arange(5 * 64, 37 * 64) / 64
    ratio = x
    for k in range(400, 0, -1):
        ratio = x + k / ratio
    wanted = np.exp(-x * x / 2) / math.sqrt(2 * math.pi) / ratio
    assert ulps(special.ndtr(-x), wanted) <= 10
    log = -x * x / 2 - math.log(2 * math.pi) / 2 - np.log(ratio)
    assert ulps(special.log_ndtr(-x), log) <= 3


@given(reals(-38, 38))
def test_ndtr_reflects(x):
    assert abs(special.ndtr(x) + special.ndtr(-x) - 1) <= 4 * EPS


@given(reals(-37, 8))
def test_log_ndtr_is_the_logarithm(x):
    p = special.ndtr(x)
    assert abs(special.log_ndtr(x) - np.log(p)) <= 8 * EPS + 4 * EPS * abs(np.log(p))


def test_log_ndtr_keeps_the_digits_of_its_high_tail():
    x = line(8, 38)
    upper = special.ndtr(-x)
    np.testing.assert_allclose(special.log_ndtr(x), -upper, rtol=4 * EPS + upper[0])


def test_log_ndtr_far_out_is_its_leading_terms():
    x = decades(1e9, 1e150)
    assert ulps(special.log_ndtr(-x), -x * x / 2) <= 2


def test_ndtri_is_the_inverse_of_the_standard_library():
    p = np.concatenate([line(0.001, 0.999), decades(1e-300, 0.1)])
    wanted = [NormalDist().inv_cdf(v) for v in p]
    np.testing.assert_allclose(special.ndtri(p), wanted, rtol=1e-14, atol=1e-15)


@given(reals(TINY, 1 - EPS))
def test_ndtr_inverts_ndtri(p):
    x = special.ndtri(p)
    assert abs(special.ndtr(x) - p) <= (10 + 4 * x * x) * np.spacing(p)


@given(reals(-740, 740))
def test_expit_is_a_logistic(x):
    wanted = 1 / (1 + math.exp(-x)) if x > -700 else math.exp(x)
    assert ulps(special.expit(x), wanted) <= 4
    assert abs(special.expit(x) + special.expit(-x) - 1) <= 2 * EPS


def test_expit_keeps_its_low_tail():
    x = line(-745, -40)
    np.testing.assert_allclose(special.expit(x), np.exp(x), rtol=4 * EPS, atol=TINY)


# -- gamma family --------------------------------------------------------------------------


@cache
def bernoulli(n):
    """B_n, from the sum that defines it."""
    if n == 0:
        return Fraction(1)
    return -sum(math.comb(n + 1, k) * bernoulli(k) for k in range(n)) / (n + 1)


def asymptotic(z, power):
    """The sum of B_2k / (2k (2k - 1)**power z**(2k - power)), of decimals, for z >= 60."""
    terms = []
    for n in range(2, 42, 2):
        b = bernoulli(n) / (n * (n - 1) ** power)
        terms.append(Decimal(b.numerator) / Decimal(b.denominator) / z ** (n - power))
    return sum(terms)


def exact_digamma(x):
    """Digamma of a positive float to 40 digits: up to beyond 60, then its asymptotic series."""
    x = Decimal(x)
    z = x + 60
    return z.ln() - 1 / (2 * z) - asymptotic(z, 0) - sum(1 / (x + k) for k in range(60))


def exact_gammaln(x):
    """Log gamma of a positive float but for a constant, to 40 digits, in the same way."""
    x = Decimal(x)
    z = x + 60
    product = math.prod((x + k for k in range(60)), start=Decimal(1))
    half = Decimal(1) / 2
    return (z - half) * z.ln() - z + asymptotic(z, 1) - product.ln()


def exact_ulps(got, wanted):
    """The distance of a float from a decimal, in units in the last place."""
    return abs(Decimal(float(got)) - wanted) / Decimal(math.ulp(float(wanted)))


def around(centre):
    """Floats on both sides of a place, from one ulp away to far away."""
    near = [centre + s * 2.0**-k for k in range(1, 53, 3) for s in (-1, 1)]
    return [centre, np.nextafter(centre, 9), np.nextafter(centre, 0), *near]


def root_of_digamma():
    low, high = 1.0, 2.0
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if special.digamma(middle) < 0 else (low, middle)
    return low


def test_digamma_is_exact_to_ulps_at_its_root_too():
    x = [*around(root_of_digamma()), *decades(1e-5, 1e5, 60), *line(0.1, 12, 100)]
    with localcontext(prec=60):
        worst = max(exact_ulps(special.digamma(v), exact_digamma(float(v))) for v in x)
    assert worst <= 5


def test_gammaln_is_exact_to_ulps_at_its_zeros_too():
    x = [*around(1.0), *around(2.0), *decades(1e-5, 1e5, 60), *line(0.1, 12, 100)]
    x = [float(v) for v in x if v not in {1.0, 2.0}]
    with localcontext(prec=60):
        constant = exact_gammaln(1.0)
        worst = max(exact_ulps(special.gammaln(v), exact_gammaln(v) - constant) for v in x)
    assert worst <= 5


def test_gammaln_is_the_logarithm_of_factorials():
    n = np.arange(1, 171)
    wanted = [math.log(math.factorial(k - 1)) for k in n]
    assert ulps(special.gammaln(n), wanted) <= 4


@given(reals(1e-300, 1e300))
@example(8.0)
@example(3.0)
@example(1.0)
def test_gammaln_recurrence(x):
    lower, upper = special.gammaln(x), special.gammaln(x + 1)
    # x + 1 is rounded: an error of half an ulp, times the slope, which is log x at most
    scale = 1 + abs(lower) + abs(upper) + abs(math.log(x))
    assert abs(upper - lower - math.log(x)) <= 8 * EPS * scale


def test_gammaln_is_that_of_libm():
    x = np.concatenate([line(0.01, 200), decades(1e-300, 1e300)])
    wanted = np.array([math.lgamma(v) for v in x])
    np.testing.assert_allclose(special.gammaln(x), wanted, rtol=16 * EPS, atol=8 * EPS)
    x = off_poles(-60, 0)
    wanted = np.array([math.lgamma(v) for v in x])
    scale = 1 + np.abs(wanted) + special.gammaln(-x)
    assert np.max(np.abs(special.gammaln(x) - wanted) / scale) <= 8 * EPS


def test_gammaln_reflects():
    x = off_poles(-40, 0)
    r = x - np.rint(x)
    wanted = np.log(np.pi / np.abs(np.sin(np.pi * r)))
    got = special.gammaln(x) + special.gammaln(1 - x)
    assert np.max(np.abs(got - wanted) / (1 + special.gammaln(1 - x))) <= 8 * EPS


def test_digamma_at_known_places():
    """Gauss: at 1, 1/2, 1/3 and 1/4 the values are elementary."""
    gamma, pi = np.euler_gamma, math.pi
    wanted = [
        -gamma,
        -gamma - 2 * math.log(2),
        -gamma - pi / (2 * math.sqrt(3)) - 1.5 * math.log(3),
        -gamma - pi / 2 - 3 * math.log(2),
    ]
    assert ulps(special.digamma([1, 1 / 2, 1 / 3, 1 / 4]), wanted) <= 4


def test_digamma_at_integers_is_a_harmonic_number():
    n = np.arange(1, 200)
    wanted = [math.fsum([-np.euler_gamma, *(1 / k for k in range(1, m))]) for m in n]
    assert ulps(special.digamma(n), wanted) <= 4


@given(reals(1e-3, 1e8))
@example(1.0)
@example(9.0)
def test_digamma_recurrence(x):
    got = special.digamma(x + 1) - special.digamma(x)
    scale = 1 + 2 / x + abs(math.log(x))
    assert abs(got - 1 / x) <= 6 * EPS * scale


def test_digamma_reflects():
    x = off_poles(-40, 0)
    wanted = np.pi / np.tan(np.pi * (x - np.rint(x)))
    got = special.digamma(1 - x) - special.digamma(x)
    assert np.max(np.abs(got - wanted) / (4 + np.abs(wanted))) <= 8 * EPS


@pytest.mark.parametrize("f", [special.gammaln, special.digamma])
def test_derivatives_by_central_differences(f):
    """Digamma is the slope of gammaln, trigamma that of digamma, on both sides of zero."""
    slope = {special.gammaln: special.digamma, special.digamma: UNARY["trigamma"]}[f]
    x = np.concatenate([line(0.5, 30, 999), off_poles(-8.4, -0.6, 999)])
    x = x[np.abs(x - np.rint(x)) > 0.2]
    h = 2.0**-13
    got = (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h)
    np.testing.assert_allclose(got, slope(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_polygamma_by_central_differences(n):
    x = np.concatenate([line(1.0, 30, 999), off_poles(-5.4, -0.6, 999)])
    x = x[(x > 0) | (np.abs(x - np.rint(x)) > 0.3)]
    f = lambda v: special.polygamma(n - 1, v)
    h = 2.0**-12
    got = (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h)
    wanted = special.polygamma(n, x)
    scale = np.abs(wanted) + np.abs(f(x))
    assert np.max(np.abs(got - wanted) / scale) <= 1e-8


def test_polygamma_zero_is_digamma():
    x = line(-3.3, 9)
    np.testing.assert_array_equal(special.polygamma(0, x), special.digamma(x))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 20, 100])
def test_polygamma_recurrence(n):
    """To the accuracy of the largest term; x + 1 is exact for these x."""
    x = np.arange(-40, 160) / 4 + 1 / 8
    step = (-1) ** n * math.factorial(n) * x ** -(n + 1.0)
    lower, upper = special.polygamma(n, x), special.polygamma(n, x + 1)
    nearest = np.where(x > 0, x, np.abs(x - np.rint(x)))
    scale = np.abs(lower) + math.factorial(n) * nearest ** -(n + 1.0)
    assert np.max(np.abs(upper - lower - step) / scale) <= 8 * EPS


def test_trigamma_reflects():
    x = off_poles(-40, 0)
    wanted = (np.pi / np.sin(np.pi * (x - np.rint(x)))) ** 2
    got = special.polygamma(1, x) + special.polygamma(1, 1 - x)
    assert ulps(got, wanted) <= 16


def test_tetragamma_reflects():
    x = off_poles(-40, 0)
    r = np.pi * (x - np.rint(x))
    wanted = 2 * np.pi**3 * np.cos(r) / np.sin(r) ** 3
    got = special.polygamma(2, 1 - x) - special.polygamma(2, x)
    assert np.max(np.abs(got - wanted) / (1 + np.abs(wanted))) <= 32 * EPS


@pytest.mark.parametrize("n", [150, 170, 300])
def test_polygamma_of_high_order_keeps_within_range(n):
    """n! and the powers of x leave the range of floats long before their product does."""
    x = np.array([n / 2.0, n * 4.0])
    got = special.polygamma(n, x)
    log = [
        math.lgamma(n + 1)
        - (n + 1) * math.log(v)
        + math.log(math.fsum((1 + k / v) ** -(n + 1.0) for k in range(200)))
        for v in x
    ]
    assert np.max(np.abs(np.log(np.abs(got)) - log)) <= 1e-11
    assert np.all(np.sign(got) == (-1) ** (n + 1))


@pytest.mark.parametrize("n", [2, 60, 170])
def test_polygamma_of_even_order_at_half_integers(n):
    """The cotangent's derivative vanishes there, and both sides are equal."""
    x = np.arange(100) + 0.5
    np.testing.assert_array_equal(special.polygamma(n, -x), special.polygamma(n, 1 + x))


# -- zeta ----------------------------------------------------------------------------------


def test_zeta_at_even_integers_is_a_power_of_pi():
    pi = math.pi
    wanted = [pi**2 / 6, pi**4 / 90, pi**6 / 945, pi**8 / 9450, pi**10 / 93555]
    assert ulps(special.zeta(np.arange(2, 11, 2), 1.0), wanted) <= 6


@given(reals(1.01, 30), reals(1e-3, 1e3))
def test_zeta_recurrence(s, q):
    """The sums from q and from q + 1 differ by a term; q + 1 is rounded, and raised to -s."""
    whole, rest, term = special.zeta(s, q), special.zeta(s, q + 1), q**-s
    assert abs(rest + term - whole) <= (8 + 2 * s) * EPS * whole


@pytest.mark.parametrize("m", [2, 3, 5, 8])
@pytest.mark.parametrize("s", [1.25, 2.0, 3.5, 12.0])
def test_zeta_multiplication(m, s):
    """A sum over all integers is that over its residue classes."""
    got = math.fsum(special.zeta(s, np.arange(1, m + 1) / m))
    assert ulps(got, m**s * special.zeta(s, 1.0)) <= 12 + 2 * s


def test_zeta_is_its_sum_where_that_converges_fast():
    s = np.array([40.0, 80.5, 300.0, 900.0])[:, None]
    q = np.array([0.7, 1.0, 3.0, 10.0])
    terms = [(q + k) ** -s for k in range(200)]
    wanted = np.sum(terms[::-1], axis=0)
    finite = (wanted > NORMAL) & np.isfinite(wanted)
    np.testing.assert_allclose(special.zeta(s, q)[finite], wanted[finite], rtol=1e-13)


@given(reals(1.05, 6), reals(1e4, 1e50))
def test_zeta_far_out_is_its_integral(s, q):
    """An integral and half a term; the next term is s (s - 1) / (12 q**2) of that."""
    wanted = (1 / (s - 1) + 0.5 / q) * q ** (1 - s)
    np.testing.assert_allclose(special.zeta(s, q), wanted, rtol=s * s / (12 * q * q) + 8 * EPS)


# -- scipy ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "x", "rtol"),
    [
        ("erf", np.concatenate([line(-7, 7), decades(1e-300, 1)]), 8 * EPS),
        ("erfc", line(-7, 7), 64 * EPS),
        ("erfc", line(7, 26), 1024 * EPS),  # scipy rounds the square
        ("erfinv", line(-1, 1), 32 * EPS),
        ("erfcinv", np.concatenate([line(0, 2), decades(1e-300, 1)]), 32 * EPS),
        ("ndtr", line(-7, 9), 128 * EPS),
        ("ndtr", line(-37, -7), 2048 * EPS),  # scipy rounds x sqrt(1/2), then squares it
        ("log_ndtr", np.concatenate([line(-30, 7), -decades(1, 1e100)]), 64 * EPS),
        ("log_ndtr", line(7, 37), 2048 * EPS),  # as for ndtr
        ("ndtri", np.concatenate([line(0, 1), decades(1e-300, 1)]), 32 * EPS),
        ("expit", line(-700, 700), 16 * EPS),
        ("gammaln", np.concatenate([line(0, 200), decades(1e-300, 1e300)]), 32 * EPS),
        ("gammaln", off_poles(-30, 0), 64 * EPS),
        ("digamma", np.concatenate([line(0.01, 200), decades(1e-300, 1e300)]), 32 * EPS),
        ("digamma", off_poles(-30, 0), 256 * EPS),
    ],
)
def test_as_scipy(name, x, rtol):
    """Near a zero of the function only absolutely: there scipy's own errors are such."""
    scipy = pytest.importorskip("scipy.special")
    has_zeros = name in {"gammaln", "digamma", "ndtri", "erfinv", "erfcinv"}
    wanted = getattr(scipy, name)(x)
    atol = 32 * EPS if has_zeros else 0.0
    np.testing.assert_allclose(UNARY[name](x), wanted, rtol=rtol, atol=atol)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 10, 30])
def test_polygamma_and_zeta_as_scipy(n):
    scipy = pytest.importorskip("scipy.special")
    x = np.concatenate([line(0.01, 100), decades(1e-6, 1e6)])
    rtol = (32 + 8 * n) * EPS
    np.testing.assert_allclose(special.polygamma(n, x), scipy.polygamma(n, x), rtol=rtol)
    s = n + 0.5
    np.testing.assert_allclose(special.zeta(s, x), scipy.zeta(s, x), rtol=rtol)
