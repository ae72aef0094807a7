"""Exponentials, logarithms, hyperbolic and trigonometric functions at their special values.

Derivatives at ordinary points are the table's business. Here: the special cases of the array
API standard, rounding against long doubles, and gradients where formulas overflow or cancel.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import retrograd as rg
from retrograd.autodiff.forward import jvp
from retrograd.core.errors import DtypeError
from retrograd.core.interpret import RAW, using
from retrograd.core.op import FUNCTIONS, REGISTRY
from retrograd.testing import check

inf, nan, pi = math.inf, math.nan, math.pi
FLOATS = pytest.mark.parametrize("dtype", [np.float32, np.float64])
LONG = np.longdouble
HERE = ("elementary", "hyperbolic", "trigonometric")
OURS = [cls for cls in REGISTRY.values() if cls.__module__.rpartition(".")[2] in HERE]

# The standard's special cases: f(x) = y for each pair (x, y), signs of zeros included.
ODD = [(0.0, 0.0), (-0.0, -0.0), (nan, nan)]
LOGARITHM = [(-1.0, nan), (-inf, nan), (0.0, -inf), (-0.0, -inf), (1.0, 0.0), (inf, inf)]
STANDARD = {
    "acos": [(1.1, nan), (-1.1, nan), (1.0, 0.0), (nan, nan)],
    "acosh": [(0.5, nan), (-inf, nan), (1.0, 0.0), (inf, inf), (nan, nan)],
    "asin": [*ODD, (1.1, nan), (-1.1, nan)],
    "asinh": [*ODD, (inf, inf), (-inf, -inf)],
    "atan": [*ODD, (inf, pi / 2), (-inf, -pi / 2)],
    "atanh": [*ODD, (1.1, nan), (-1.1, nan), (1.0, inf), (-1.0, -inf)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (inf, nan), (-inf, nan), (nan, nan)],
    "cosh": [(0.0, 1.0), (-0.0, 1.0), (inf, inf), (-inf, inf), (nan, nan)],
    "exp": [(0.0, 1.0), (-0.0, 1.0), (inf, inf), (-inf, 0.0), (nan, nan)],
    "expm1": [*ODD, (inf, inf), (-inf, -1.0)],
    "log": [*LOGARITHM, (nan, nan)],
    "log10": [*LOGARITHM, (nan, nan)],
    "log1p": [*ODD, (-1.5, nan), (-1.0, -inf), (inf, inf)],
    "log2": [*LOGARITHM, (nan, nan)],
    "sin": [*ODD, (inf, nan), (-inf, nan)],
    "sinh": [*ODD, (inf, inf), (-inf, -inf)],
    "tan": [*ODD, (inf, nan), (-inf, nan)],
    "tanh": [*ODD, (inf, 1.0), (-inf, -1.0)],
    # not in the standard: the limits
    "exp2": [(0.0, 1.0), (-0.0, 1.0), (inf, inf), (-inf, 0.0), (nan, nan)],
    "log_sigmoid": [(inf, 0.0), (-inf, -inf), (nan, nan)],
    "sigmoid": [(0.0, 0.5), (inf, 1.0), (-inf, 0.0), (nan, nan)],
    "sinc": [(0.0, 1.0), (-0.0, 1.0), (nan, nan)],
    "softplus": [(inf, inf), (-inf, 0.0), (nan, nan)],
}
STANDARD_PAIRS = {
    "atan2": [
        *[((x, nan), nan) for x in (0.0, 1.0, inf)],
        *[((nan, x), nan) for x in (0.0, 1.0, inf)],
        *[((x, 0.0), pi / 2) for x in (1e-30, 1.0, inf)],
        *[((x, -0.0), pi / 2) for x in (1e-30, 1.0, inf)],
        *[((0.0, x), 0.0) for x in (0.0, 1.0, inf)],
        *[((-0.0, x), -0.0) for x in (0.0, 1.0, inf)],
        *[((0.0, x), pi) for x in (-0.0, -1.0, -inf)],
        *[((-0.0, x), -pi) for x in (-0.0, -1.0, -inf)],
        *[((-1.0, x), -pi / 2) for x in (0.0, -0.0)],
        ((1.0, inf), 0.0),
        ((1.0, -inf), pi),
        ((-1.0, inf), -0.0),
        ((-1.0, -inf), -pi),
        *[((inf, x), pi / 2) for x in (-1.0, 0.0, 1.0)],
        *[((-inf, x), -pi / 2) for x in (-1.0, 0.0, 1.0)],
        ((inf, inf), pi / 4),
        ((inf, -inf), 3 * pi / 4),
        ((-inf, inf), -pi / 4),
        ((-inf, -inf), -3 * pi / 4),
    ],
    "logaddexp": [
        *[((nan, x), nan) for x in (nan, 0.0, inf, -inf)],
        *[((x, nan), nan) for x in (0.0, inf, -inf)],
        *[((inf, x), inf) for x in (inf, 0.0, -inf)],
        *[((x, inf), inf) for x in (0.0, -inf)],
        ((-inf, 0.0), 0.0),
        ((0.0, -inf), 0.0),
        ((-inf, -inf), -inf),
    ],
}
# The derivatives, in numbers of higher precision, by formulas that do not cancel.
SLOPES = {
    "acos": lambda x: -1 / np.sqrt((1 - x) * (1 + x)),
    "acosh": lambda x: 1 / (np.sqrt(x - 1) * np.sqrt(x + 1)),
    "asin": lambda x: 1 / np.sqrt((1 - x) * (1 + x)),
    "asinh": lambda x: 1 / np.hypot(x, 1),
    "atan": lambda x: 1 / (1 + x * x),
    "atanh": lambda x: 1 / ((1 - x) * (1 + x)),
    "cosh": np.sinh,
    "exp": np.exp,
    "exp2": lambda x: np.exp2(x) * np.log(LONG(2)),
    "expm1": np.exp,
    "log": lambda x: 1 / x,
    "log10": lambda x: 1 / (x * np.log(LONG(10))),
    "log1p": lambda x: 1 / (1 + x),
    "log2": lambda x: 1 / (x * np.log(LONG(2))),
    "log_sigmoid": lambda x: 1 / (1 + np.exp(x)),
    "sigmoid": lambda x: np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))) ** 2,
    "sinh": np.cosh,
    "softplus": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": lambda x: 1 / np.cosh(x) ** 2,
}
MAGNITUDES = (0.0, 1e-300, 1e-44, 1e-30, 1e-10, 1e-3, 0.5, 1 - 1e-5, 1.0, 1 + 1e-5, 2.0, 10.0)
LARGE = (19.0, 40.0, 88.0, 90.0, 104.0, 700.0, 720.0, 1e4, 1e10, 2e19, 1e30, 1e160, 1e308)
EXTREMES = [s * x for x in (*MAGNITUDES, *LARGE) for s in (1, -1)]


def values(x):
    return np.asarray(x.array)


def wide(f):
    """f with NumPy's warnings off, as the engine runs it."""

    def quiet(*args):
        with np.errstate(all="ignore"):
            return f(*args)

    return quiet


def representable(numbers, dtype):
    with np.errstate(over="ignore", under="ignore"):
        found = np.array(numbers).astype(dtype)
    return found[np.isfinite(found)]


def assert_within(got, wanted, *, ulps, floor=0.0):
    """Within so many units of the last place of `wanted` (long double), or of `floor`.

    Below the smallest normal number the unit is that of the smallest normal number: vector
    code may flush to zero there.
    """
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        rounded = wanted.astype(got.dtype)
        unit = np.maximum(np.abs(wanted), max(floor, info.smallest_normal)) * info.eps
        flushed = np.abs(rounded) < info.smallest_normal
        near = np.abs(got.astype(LONG) - wanted) <= ulps * unit
        zero = flushed & (np.abs(got) <= info.smallest_normal)
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    bad = ~(same | near | zero)
    assert not bad.any(), f"got {got[bad]}, wanted {rounded[bad]}"


def assert_same(got, wanted):
    """Equal (multiples of pi to an ulp), nan where nan, zeros of the same sign."""
    np.testing.assert_allclose(got, wanted, rtol=2 * np.finfo(got.dtype).eps)
    known = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(wanted[known]))


def slope_of(f, *arrays):
    """The gradients of sum(f(...)) by the tape; forward mode must agree to the bit."""
    leaves = [rg.tensor(a, requires_grad=True) for a in arrays]
    out = f(*leaves)
    out.backward(rg.ones_like(out))
    for i, leaf in enumerate(leaves):
        ts = [np.ones_like(a) if i == j else np.zeros_like(a) for j, a in enumerate(arrays)]
        _, pushed = jvp(f, arrays, ts)
        assert leaf.grad.dtype == arrays[i].dtype == pushed.dtype
        if len(arrays) == 1:
            np.testing.assert_array_equal(values(leaf.grad), np.conj(values(pushed)))
    return [np.conj(values(leaf.grad)) for leaf in leaves]  # the face conjugates


# -- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*STANDARD, *STANDARD_PAIRS, "hypot", "sqrt"])
def test_the_name_exists(name):
    assert callable(FUNCTIONS[name])


@FLOATS
@pytest.mark.parametrize("name", STANDARD)
def test_special_cases_of_the_standard(name, dtype):
    x, wanted = (np.array(column, dtype) for column in zip(*STANDARD[name], strict=True))
    got = values(FUNCTIONS[name](x))
    assert got.dtype == dtype
    assert_same(got, wanted)


@FLOATS
@pytest.mark.parametrize("name", STANDARD_PAIRS)
def test_special_cases_of_the_standard_for_pairs(name, dtype):
    x1, x2 = np.array([pair for pair, _ in STANDARD_PAIRS[name]], dtype).T
    wanted = np.array([y for _, y in STANDARD_PAIRS[name]], dtype)
    got = values(FUNCTIONS[name](x1, x2))
    assert got.dtype == dtype
    assert_same(got, wanted)


def _twin(name):
    own = {
        "log_sigmoid": lambda x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))),
        "sigmoid": lambda x: np.exp(np.minimum(x, 0)) / (1 + np.exp(-np.abs(x))),
        "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    }
    return wide(own.get(name) or getattr(np, name))


ROUNDED = sorted(set(STANDARD) - {"sinc"})  # sin(pi x): its error grows with x


@FLOATS
@given(data=st.data())
def test_rounding_at_any_length_and_any_value(dtype, data):
    """Against long doubles: ±0, ±inf, nan and denormals among all others, in any lane."""
    width = np.dtype(dtype).itemsize * 8
    numbers = st.floats(width=width) | st.floats(-20, 20, width=width)
    x = np.array(data.draw(st.lists(numbers, min_size=1, max_size=17)), dtype)
    name = data.draw(st.sampled_from(ROUNDED))
    got = values(FUNCTIONS[name](x))
    assert got.dtype == dtype
    assert got.shape == x.shape
    assert_within(got, _twin(name)(x.astype(LONG)), ulps=5)


@FLOATS
@given(data=st.data())
def test_pairs_round_at_any_value(dtype, data):
    width = np.dtype(dtype).itemsize * 8
    numbers = st.floats(width=width) | st.sampled_from([0.0, 1.0, -1.0, inf, -inf])
    pairs = data.draw(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=9))
    x1, x2 = np.array(pairs, dtype).T
    name = data.draw(st.sampled_from(sorted(STANDARD_PAIRS)))
    wanted = wide(getattr(np, name))(x1.astype(LONG), x2.astype(LONG))
    # log(1 + tiny) next to a maximum of 0 is measured against 1, not against itself
    floor = 1.0 if name == "logaddexp" else 0.0
    assert_within(values(FUNCTIONS[name](x1, x2)), wanted, ulps=5, floor=floor)


def _ieee(f, value):
    """The standard library's function with IEEE's results where it raises."""
    if math.isnan(value):
        return nan
    try:
        return f(value)
    except OverflowError:
        return inf
    except ValueError:
        return -inf if value == 0 else nan


@FLOATS
@pytest.mark.parametrize("name", ["exp", "log"])
def test_Y19_exp_log_ieee_everywhere(name, dtype):
    """The same value in every lane of every vector length, and IEEE's value."""
    special = [100.0, -100.0, 0.0, -0.0, -1.0, -2.5, inf, -inf, nan, 1.0, 88.8, -88.8, 710.0]
    for length, value in itertools.product(range(1, 18), special):
        x = np.full(length, value, dtype)
        wanted = np.full(length, _ieee(getattr(math, name), float(x[0])), LONG)
        assert_within(values(FUNCTIONS[name](x)), wanted, ulps=4)
        mixed = np.resize(np.array(special, dtype), length)
        wanted = np.array([_ieee(getattr(math, name), float(v)) for v in mixed], LONG)
        assert_within(values(FUNCTIONS[name](mixed)), wanted, ulps=4)


@pytest.mark.parametrize("name", [*STANDARD, *STANDARD_PAIRS])
def test_integers_and_booleans_become_float32(name):
    for x in (np.array([1, 1]), np.array([True, True]), 1):
        args = (x, x) if name in STANDARD_PAIRS else (x,)
        assert FUNCTIONS[name](*args).dtype == np.float32


@pytest.mark.parametrize("name", ["atan2", "log_sigmoid", "logaddexp", "sigmoid", "softplus"])
def test_complex_numbers_are_refused_where_there_is_no_order(name):
    z = np.array([1 + 1j])
    with pytest.raises(DtypeError, match="floating"):
        FUNCTIONS[name](*(z,) * (2 if name in STANDARD_PAIRS else 1))


@pytest.mark.parametrize(
    ("older", "name"),
    [(f"arc{n}", f"a{n}") for n in ("cos", "cosh", "sin", "sinh", "tan", "tanh")],
)
def test_older_names(older, name):
    x = np.array([1.0, 0.5]) + 0.5j
    np.testing.assert_array_equal(values(FUNCTIONS[older](x)), values(FUNCTIONS[name](x)))


def test_angles_in_degrees():
    x = np.linspace(-400, 400, 9)
    np.testing.assert_allclose(values(rg.deg2rad(x)), np.deg2rad(x))
    np.testing.assert_allclose(values(rg.rad2deg(x)), np.rad2deg(x))
    np.testing.assert_array_equal(values(rg.arctan2(x, 2.0)), values(rg.atan2(x, 2.0)))


# -- derivatives -------------------------------------------------------------------------------


@FLOATS
@pytest.mark.parametrize("name", SLOPES)
def test_gradients_at_extreme_values(name, dtype):
    """Finite wherever the derivative is, and right in all digits.

    sigmoid and tanh keep their result, not x: next to 1 theirs are right to an ulp of 1.
    """
    x = representable(EXTREMES, dtype)
    x = x[~np.isnan(_twin(name)(x.astype(LONG)))]
    (got,) = slope_of(FUNCTIONS[name], x)
    floor = 1.0 if name in {"sigmoid", "tanh"} else 0.0
    wanted = wide(SLOPES[name])(x.astype(LONG))
    # where sinh or exp are infinite in this dtype, so is the slope
    assert_within(got, wanted, ulps=8, floor=floor)


@pytest.mark.parametrize("name", SLOPES)
@pytest.mark.parametrize("value", [inf, -inf])
def test_gradients_at_infinity_are_limits(name, value):
    """No inf / inf and no 0 * inf inside the rules."""
    far = wide(SLOPES[name])(LONG(math.copysign(1e300, value)))
    if np.isnan(_twin(name)(value)):
        return  # outside the domain
    (got,) = slope_of(FUNCTIONS[name], np.array([value]))
    limit = 0.0 if abs(far) < 1e-290 else float(far)
    np.testing.assert_allclose(got, limit, rtol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-30, 1.0, 1e18, 1e30, 1e160, 1e300])
def test_atan2_neither_overflows_nor_underflows(scale, dtype):
    x1, x2 = np.array([3.0, -3.0, 4.0, 0.0]), np.array([4.0, 4.0, -3.0, 2.0])
    with np.errstate(over="ignore", under="ignore"):
        x1, x2 = (x1 * scale).astype(dtype), (x2 * scale).astype(dtype)
    if not (np.isfinite(x2).all() and np.all(np.abs(x2) >= np.finfo(dtype).smallest_normal)):
        return
    found = slope_of(rg.atan2, x1, x2)
    a, b = x1.astype(LONG), x2.astype(LONG)
    assert_within(found[0], b / (a * a + b * b), ulps=8)
    assert_within(found[1], -a / (a * a + b * b), ulps=8)


def test_N17_gradients_at_edges_are_numbers():
    """Where formulas give 0/0 or inf - inf, the stated answer: shares, limits, zero."""
    for ends in ((-inf, -inf), (inf, inf), (0.0, 0.0)):
        x1, x2 = np.array(ends[:1]), np.array(ends[1:])
        assert [g.item() for g in slope_of(rg.logaddexp, x1, x2)] == [0.5, 0.5]
    for low, high in ((-inf, 0.0), (0.0, inf), (-inf, inf), (-1e300, 1e300)):
        found = slope_of(rg.logaddexp, np.array([low]), np.array([high]))
        assert [g.item() for g in found] == [0.0, 1.0]
    zero = np.array([0.0, -0.0])
    for x2 in (zero, -zero):
        assert not np.any(slope_of(rg.atan2, zero, x2))
    ends = np.array([inf, -inf])
    for x1, x2 in ((np.ones(2), ends), (ends, np.ones(2)), (ends, ends[::-1])):
        assert not np.any(slope_of(rg.atan2, x1, x2))


@pytest.mark.parametrize("end", [2.0, -inf, inf])
def test_logaddexp_twice_at_a_tie(end):
    """The Hessian at x1 = x2 is [[1, -1], [-1, 1]] / 4; between infinities it is 0."""
    x = np.array([end])
    first = rg.grad(lambda x1, x2: rg.sum(rg.logaddexp(x1, x2)), argnums=(0, 1))
    _, found = jvp(lambda x1: first(x1, x), (x,), (np.ones(1),))
    wanted = [0.25, -0.25] if math.isfinite(end) else [0.0, 0.0]
    assert [g.item() for g in found] == wanted


SECOND_ORDER = {"tanh": 0.7, "exp": 0.7, "log": 1.3, "sqrt": 1.3, "sigmoid": 0.7}


@pytest.mark.parametrize("name", SECOND_ORDER)
def test_N7_second_order_of_(name, rng):
    """The Hessian of sum(f(x*x)**2) times a vector, against differences of its gradient."""
    x = SECOND_ORDER[name] * rng.uniform(0.5, 1.5, 5)
    v = rng.normal(size=5)

    def loss(x):
        y = FUNCTIONS[name](x * x)
        return rg.sum(y * y)

    first = rg.grad(loss)
    eps = 1e-3
    ahead = {k: values(first(x + k * eps * v)) for k in (-2, -1, 1, 2)}
    wanted = (ahead[-2] - 8 * ahead[-1] + 8 * ahead[1] - ahead[2]) / (12 * eps)
    got = rg.hvp(loss, (x,), (v,))
    got = values(got[0] if isinstance(got, tuple) else got)
    np.testing.assert_allclose(got, wanted, rtol=1e-7, atol=1e-8)
    leaf = rg.tensor(x, requires_grad=True)  # and the tape's way: backward through backward
    loss(leaf).backward(create_graph=True)
    inner = rg.sum(leaf.grad * v)
    leaf.grad = None
    inner.backward()
    np.testing.assert_allclose(values(leaf.grad), wanted, rtol=1e-7, atol=1e-8)


COMPLEX = [cls for cls in OURS if cls.takes == "inexact"]


@pytest.mark.parametrize("cls", COMPLEX, ids=lambda c: c.__name__)
def test_complex_slopes_in_all_quadrants(cls, rng):
    """Each on the branch that NumPy's function is on."""
    z = np.array([a + b * 1j for a in (-2.0, -0.5, 0.5, 2.0) for b in (-1.5, -0.3, 0.3, 1.5)])
    check.check_jvp(cls(), [z], rng)
    check.check_vjp(cls(), [z], rng)


@pytest.mark.parametrize("name", ["acosh", "asin", "asinh", "atan", "atanh", "log", "log1p"])
def test_complex_slopes_far_out(name):
    """All behave as c / z or c / z**2 there, without overflow."""
    z = np.array([3 + 4j, -3 + 4j, 3 - 4j, -3 - 4j]) * 1e170
    (got,) = slope_of(FUNCTIONS[name], z)
    assert np.isfinite(got).all()
    size = np.abs(got) * 5e170
    np.testing.assert_allclose(size, 0.0 if name in {"atan", "atanh"} else 1.0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sinc_keeps_its_digits_near_zero(dtype):
    """(cos(pi x) - sinc(x)) / x loses all of them; wanted is the series."""
    x = representable([0.0, 1e-30, 1e-12, 1e-8, 1e-5, 1e-3, 1e-2, 0.1], dtype)
    z = LONG(pi) * x.astype(LONG)
    size = [(-1) ** k / LONG(math.factorial(2 * k + 1)) for k in range(12)]  # of z**2k
    first = sum(2 * k * size[k] * z ** (2 * k - 1) for k in range(1, 12))
    second = sum(2 * k * (2 * k - 1) * size[k] * z ** (2 * k - 2) for k in range(1, 12))
    (got,) = slope_of(rg.sinc, x)
    assert_within(got, LONG(pi) * first, ulps=8)
    derivative = lambda y: jvp(rg.sinc, (y,), (np.ones_like(x),))[1]
    _, got = jvp(derivative, (x,), (np.ones_like(x),))
    assert_within(values(got), LONG(pi) ** 2 * second, ulps=8)


@pytest.mark.parametrize("cls", OURS, ids=lambda c: c.__name__)
def test_rules_on_bare_arrays_keep_the_dtype(cls, rng):
    """The first-order backward pass runs slopes on arrays: float32 must stay float32."""
    narrow = {"f": np.float32, "c": np.complex64}
    for op, *arrays in cls.samples(rng):
        arrays = [np.asarray(a).astype(narrow[np.asarray(a).dtype.kind]) for a in arrays]
        recipe = op.reverse((1 << len(arrays)) - 1)
        with np.errstate(all="ignore"), using(RAW):
            out = np.asarray(op.forward(*arrays))
            assert out.dtype == arrays[0].dtype
            kept = recipe.keep((*arrays, out))
            for c in recipe.pull(op, np.ones_like(out), kept, len(arrays)):
                assert c.dtype == arrays[0].dtype
