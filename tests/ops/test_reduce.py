"""Reductions against NumPy, over all axes; and what we state where the world disagrees."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import retrograd as rg
from retrograd.core.dtype import HALF
from retrograd.core.errors import ArgumentError, DtypeError
from retrograd.core.op import FUNCTIONS
from retrograd.ops.logsumexp import Weights
from retrograd.testing.check import check_grads
from retrograd.testing.compare import assert_close

INF, NAN = math.inf, math.nan
STANDARD = [
    "all",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "max",
    "mean",
    "min",
    "prod",
    "std",
    "sum",
    "var",
    "vector_norm",
]
NUMBERS = st.floats(-8, 8, width=32)
ALIKE = st.sampled_from([-1.0, 0.0, -0.0, 1.0, 2.0])  # ties, zeros
ODD = st.sampled_from([-INF, -1.0, 0.0, 1.0, INF, NAN])


def logsumexp(x, axis, keepdims):
    with np.errstate(all="ignore"):
        return np.logaddexp.reduce(x, axis=axis, keepdims=keepdims, initial=-INF)


REDUCTIONS = {
    "sum": np.sum,
    "prod": np.prod,
    "mean": np.mean,
    "var": np.var,
    "std": np.std,
    "any": np.any,
    "all": np.all,
    "count_nonzero": np.count_nonzero,
    "max": np.max,
    "min": np.min,
}
NEED_ELEMENTS = {"mean", "var", "std", "max", "min"}


@st.composite
def arrays_and_axes(draw, elements=NUMBERS, min_side=0, dtype=np.float64):
    """An array of up to three axes, and what may be given as `axis`."""
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=min_side, max_side=4)
    x = draw(hnp.arrays(dtype, shapes, elements=elements))
    axes = [st.none(), st.just(())]
    if x.ndim:
        axes.append(st.integers(-x.ndim, x.ndim - 1))
        axes.append(hnp.valid_tuple_axes(x.ndim))
    return x, draw(st.one_of(axes))


def reduced(x, axis):
    """The axes reduced over, and how many elements that is for each result."""
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return math.prod(x.shape[a] for a in axes)


def gradient(f, x, g=None):
    """The gradient of sum(g * f(x)), by the tape."""
    x = rg.tensor(x, requires_grad=True)
    out = f(x)
    out.backward(rg.asarray(np.ones(out.shape, x.dtype) if g is None else g))
    return x.grad.numpy()


@pytest.mark.parametrize("name", STANDARD)
def test_the_standards_names_exist(name):
    assert name in FUNCTIONS


@pytest.mark.parametrize("name", REDUCTIONS)
@given(case=arrays_and_axes(NUMBERS | ALIKE), keepdims=st.booleans())
def test_equals_numpy(name, case, keepdims):
    x, axis = case
    assume(name not in NEED_ELEMENTS or reduced(x, axis))
    found = FUNCTIONS[name](x, axis=axis, keepdims=keepdims)
    wanted = np.asarray(REDUCTIONS[name](x, axis=axis, keepdims=keepdims))
    assert found.dtype == wanted.dtype
    assert_close(found, wanted)


@pytest.mark.parametrize("name", [n for n in REDUCTIONS if n not in {"var", "std"}])
@given(case=arrays_and_axes(ODD, min_side=1))
def test_special_values_equal_numpy(name, case):
    x, axis = case
    with np.errstate(all="ignore"):
        wanted = np.asarray(REDUCTIONS[name](x, axis=axis))
    assert_close(FUNCTIONS[name](x, axis=axis), wanted)


@given(case=arrays_and_axes(NUMBERS | ODD | st.just(800.0)), keepdims=st.booleans())
def test_logsumexp_equals_a_fold(case, keepdims):
    x, axis = case
    found = rg.logsumexp(x, axis=axis, keepdims=keepdims)
    every = tuple(range(x.ndim)) if axis is None else axis
    wanted = x
    for a in sorted(np.atleast_1d(np.asarray(every, int)) % max(x.ndim, 1), reverse=True):
        wanted = logsumexp(wanted, int(a), keepdims=True)
    shape = np.any(x, axis=axis, keepdims=keepdims).shape
    assert_close(found, wanted.reshape(shape))


@pytest.mark.parametrize("ord", [0, 1, 2, 3, 1.5, 0.5, -1, -2.5, INF, -INF])
@given(case=arrays_and_axes(NUMBERS.filter(lambda v: v == 0 or abs(v) > 1e-3), min_side=1))
def test_norm_equals_numpy(ord, case):
    x, axis = case
    found = rg.norm(x, ord=ord, axis=axis)
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    beside = [a for a in range(x.ndim) if a not in {a % x.ndim for a in axes}]
    lanes = np.transpose(x, (*beside, *(a % x.ndim for a in sorted(axes)))).reshape(
        *(x.shape[a] for a in beside), -1
    )
    with np.errstate(all="ignore"):
        assert_close(found, np.linalg.norm(lanes, ord=ord, axis=-1), tolerance=1e-10)


# -- dtypes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sum", "prod", "cumulative_sum", "cumulative_prod"])
@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [("bool", "int64"), ("int8", "int64"), ("uint8", "uint64"), ("float32", "float32")],
)
def test_integers_add_up_in_64_bits(name, dtype, wanted):
    x = np.array([1, 1, 1], dtype)
    assert FUNCTIONS[name](x).dtype == wanted
    assert FUNCTIONS[name](x, dtype=np.float64).dtype == "float64"


@pytest.mark.parametrize("name", ["mean", "var", "std", "logsumexp", "median", "norm"])
@pytest.mark.parametrize("dtype", ["bool", "int32", "float32"])
def test_averages_of_integers_are_float32(name, dtype):
    assert FUNCTIONS[name](np.array([1, 0, 1], dtype)).dtype == "float32"


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_the_mean_of_many_halves_stays_in_range(dtype):
    x = np.full(1000, 500, dtype)
    assert rg.mean(x).dtype == dtype
    assert float(rg.mean(x)) == 500
    assert float(rg.logsumexp(np.zeros(4, dtype))) == float(np.asarray(math.log(4), dtype))


@pytest.mark.parametrize("name", ["max", "min", "var", "std", "logsumexp", "argmax", "sort"])
def test_complex_numbers_have_no_order(name):
    with pytest.raises(DtypeError, match=r"it takes (real|floating) dtypes"):
        FUNCTIONS[name](np.ones(2, complex))


@given(hnp.arrays(complex, (2, 3), elements=st.complex_numbers(max_magnitude=4)))
def test_complex_sums(x):
    assert_close(rg.sum(x, axis=0), x.sum(0))
    assert_close(rg.mean(x), x.mean())
    assert_close(rg.prod(x, axis=1), x.prod(1), tolerance=1e-10)
    assert_close(rg.norm(x), np.linalg.norm(x.ravel()))


# -- defects of others, kept out by name -------------------------------------------------------


def test_n5_mean_var_std_count_the_elements_of_all_axes(rng):
    x = rng.normal(size=(2, 3))
    assert_close(gradient(rg.mean, x), np.full((2, 3), 1 / 6))
    for axis in (None, (0, 1), (1, 0), (-1, -2)):
        grad = gradient(lambda t, axis=axis: rg.var(t, axis=axis), x)
        assert_close(grad, (x - x.mean()) * 2 / 6)
        grad = gradient(lambda t, axis=axis: rg.std(t, axis=axis, correction=1), x)
        assert_close(grad, (x - x.mean()) / (5 * x.std(ddof=1)))
    # no axes is no reduction: the standard's (), not all of them
    assert_close(rg.mean(x, axis=()), x)
    assert_close(rg.var(x, axis=()), 0 * x)
    assert_close(gradient(lambda t: rg.mean(t, axis=()), x), np.ones((2, 3)))


@pytest.mark.parametrize("name", [*REDUCTIONS, "logsumexp", "norm", "median"])
@pytest.mark.parametrize("axis", [None, ()])
def test_n14_reductions_of_rank_0(name, axis):
    f, x = FUNCTIONS[name], np.asarray(3.0)
    out = f(x, axis=axis)
    wanted = {"any": 1, "all": 1, "count_nonzero": 1, "var": 0, "std": 0}.get(name, 3.0)
    assert out.shape == ()
    assert float(out) == wanted
    if out.dtype == x.dtype:
        slope = 0.0 if name in {"var", "std"} else 1.0
        assert gradient(lambda t: f(t, axis=axis), x) == slope


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("sum", 0),
        ("prod", 1),
        ("mean", NAN),
        ("var", NAN),
        ("std", NAN),
        ("any", False),
        ("all", True),
        ("count_nonzero", 0),
        ("logsumexp", -INF),
        ("norm", 0),
    ],
)
def test_n15_reductions_of_zero_size(name, wanted):
    f = FUNCTIONS[name]
    for shape, axis in [((0,), None), ((0, 3), 0), ((2, 0), (1,)), ((0, 0), None)]:
        out = f(np.zeros(shape), axis=axis)
        assert_close(out, np.full(np.sum(np.zeros(shape), axis=axis).shape, wanted))
    assert f(np.zeros((0, 3)), axis=1).shape == (0,)
    if out.dtype == float:
        assert gradient(lambda t: f(t, axis=0), np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "median"])
def test_n15_nothing_to_choose_from_is_refused(name):
    f = FUNCTIONS[name]
    with pytest.raises(ArgumentError, match=r"(0, 3)"):
        f(np.zeros((0, 3)), axis=0)
    with pytest.raises(ArgumentError):
        f(np.zeros(0))
    assert f(np.zeros((0, 3)), axis=1).shape == (0,)


def test_n17_std_of_constants_has_gradient_zero():
    x = np.full((2, 3), 5.0)
    std = lambda t: rg.sum(rg.std(t, axis=1, correction=1))
    assert_close(std(rg.asarray(x)), np.asarray(0.0))
    assert_close(gradient(std, x), np.zeros((2, 3)))
    assert_close(rg.jvp(std, (x,), (np.ones((2, 3)),))[1], np.asarray(0.0))
    assert_close(rg.hessian(std)(x), np.zeros((2, 3, 2, 3)))


def test_y20_logsumexp_has_no_floor():
    x = np.array([0.0, -100.0, -700.0])
    assert_close(rg.asarray(x) - rg.logsumexp(x), x)  # of log_softmax: -100, not -27.6
    assert_close(rg.logsumexp(x * 10 - 5000), np.asarray(-5000.0))


def test_y26_zero_size_broadcast_backward():
    a, b = (rg.tensor(np.ones(s), requires_grad=True) for s in [(0, 3), (1, 3)])
    rg.sum(a * b + b).backward()
    assert a.grad.shape == (0, 3)
    assert_close(b.grad, np.zeros((1, 3)))


# -- stated answers ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["var", "std"])
def test_a_correction_that_leaves_nothing_is_nan(name):
    """As the standard has it: where n - correction is not positive, the result is NaN."""
    for correction in (1, 2):
        assert np.isnan(FUNCTIONS[name](np.ones((3, 1)), axis=1, correction=correction)).all()
    assert float(FUNCTIONS[name](np.array([1.0, 3.0]), correction=1.5)) > 0


@pytest.mark.parametrize("name", ["max", "min"])
def test_ties_share_the_gradient(name):
    sign = 1 if name == "max" else -1
    x = sign * np.array([[1.0, 3.0, 3.0], [0.0, -0.0, -1.0]])
    f = lambda t: FUNCTIONS[name](t, axis=1)
    wanted = np.array([[0, 0.5, 0.5], [0.5, 0.5, 0]])
    assert_close(gradient(f, x), wanted)
    assert_close(rg.jacfwd(f)(x).numpy().sum(0), wanted)
    assert_close(gradient(FUNCTIONS[name], x * 0), np.full((2, 3), 1 / 6))


@pytest.mark.parametrize("name", ["max", "min"])
def test_nan_propagates_and_takes_the_gradient(name):
    x = np.array([1.0, NAN, 2.0, NAN])
    assert math.isnan(float(FUNCTIONS[name](x)))
    assert_close(gradient(FUNCTIONS[name], x), np.array([0, 0.5, 0, 0.5]))


@pytest.mark.parametrize("name", ["max", "min"])
def test_an_infinite_cotangent_reaches_only_the_chosen(name):
    g = gradient(FUNCTIONS[name], np.array([1.0, 2.0]), np.asarray(INF))
    assert sorted(g.tolist()) == [0, INF]


@given(case=arrays_and_axes(ALIKE | ODD, min_side=1), keepdims=st.booleans())
def test_argmax_and_argmin_give_the_first(case, keepdims):
    x, axis = case
    axis = axis if isinstance(axis, int) else None
    for name in ("argmax", "argmin"):
        found = FUNCTIONS[name](x, axis=axis, keepdims=keepdims)
        wanted = np.asarray(getattr(np, name)(x, axis=axis, keepdims=keepdims))
        assert found.dtype == "int64"
        assert_close(found, wanted)


def test_axes_are_checked():
    for name in [*REDUCTIONS, "logsumexp", "norm", "median", "argmax"]:
        with pytest.raises(ArgumentError, match=f"{name}|quantile: axis 2 is outside"):
            FUNCTIONS[name](np.ones((2, 2)), axis=2)
    with pytest.raises(ArgumentError, match="names an axis twice"):
        rg.sum(np.ones((2, 2)), axis=(0, -2))
    with pytest.raises(ArgumentError, match="ord must be a number; got 'fro'"):
        rg.norm(np.ones(3), ord="fro")


@pytest.mark.parametrize(
    ("x", "weights"),
    [
        ([-INF, -INF], [0, 0]),
        ([-INF, 1.0], [0, 1]),
        ([INF, 1.0], [1, 0]),
        ([INF, -INF, INF], [0.5, 0, 0.5]),
        ([1000.0, 1000.0], [0.5, 0.5]),
        ([-1000.0, 0.0], [0, 1]),
    ],
)
def test_logsumexp_has_softmax_as_gradient_at_infinities_too(x, weights):
    x, weights = np.array(x), np.array(weights, float)
    assert_close(gradient(rg.logsumexp, x), weights)
    assert_close(
        rg.jvp(rg.logsumexp, (x,), (np.arange(len(x)) + 1.0,))[1],
        np.asarray(weights @ (np.arange(len(x)) + 1.0)),
    )
    assert_close(rg.hessian(rg.logsumexp)(x), np.diag(weights) - np.outer(weights, weights))
    total = rg.logsumexp(x, keepdims=True)
    assert_close(Weights((0,)).expand(rg.asarray(x), total), weights)


@pytest.mark.parametrize("ord", [0, 1, 2, 3, 1.5, 0.5, -1, INF, -INF])
def test_norm_of_the_zero_vector_has_gradient_zero(ord):
    f = lambda t: rg.norm(t, ord=ord)
    assert_close(rg.grad(f)(np.zeros(3)), np.zeros(3))
    assert np.isfinite(rg.hessian(f)(np.zeros(3)).numpy()).all()
    if abs(ord) != INF:
        assert_close(rg.grad(f)(np.array([0.0, 2.0]))[0], np.asarray(0.0))
    assert_close(rg.grad(f)(np.zeros(2, complex)), np.zeros(2, complex))


@pytest.mark.parametrize("ord", [1, 2, 3, 4.5, 1.5, -2, INF, -INF])
def test_norm_is_differentiable_twice(ord, rng):
    x = rng.permutation(6).reshape(2, 3) + 1.0
    check_grads(lambda t: rg.norm(t * np.array([1.0, -1.0, 1.0]), ord=ord, axis=1), x)


ZEROS = {
    "none": [2.0, -1.0, 0.5, 3.0],
    "start": [0.0, -1.0, 0.5, 3.0],
    "middle": [2.0, 0.0, 0.5, 3.0],
    "end": [2.0, -1.0, 0.5, 0.0],
    "two": [2.0, 0.0, 0.5, 0.0],
    "three": [0.0, 0.0, 0.5, 0.0],
    "all": [0.0, 0.0, 0.0, 0.0],
}


@pytest.mark.parametrize("x", ZEROS.values(), ids=ZEROS.keys())
def test_prod_is_right_at_zeros_to_third_order(x):
    x = np.array(x)
    check_grads(rg.prod, x, order=3)
    check_grads(lambda t: rg.prod(rg.reshape(t, (2, 2)), axis=0), x, order=2)
    n = len(x)
    others = [np.prod(np.delete(x, i)) for i in range(n)]
    assert_close(gradient(rg.prod, x), np.array(others))
    pairs = [
        [0 if i == j else np.prod(np.delete(x, [i, j])) for i in range(n)] for j in range(n)
    ]
    assert_close(rg.hessian(rg.prod)(x), np.array(pairs, float))


@pytest.mark.parametrize("axis", [None, (0, 2), (2, 0), -1, (), (1, -1)])
def test_prod_over_any_axes(axis, rng):
    x = np.where(rng.uniform(size=(2, 3, 2)) < 0.3, 0, rng.normal(size=(2, 3, 2)))
    check_grads(lambda t: rg.prod(t, axis=axis), x)


def test_the_derivatives_of_the_compositions(rng):
    x = rng.normal(size=(2, 3))
    check_grads(lambda t: rg.mean(t, axis=0), x)
    check_grads(lambda t: rg.std(t, axis=1, correction=1, keepdims=True), x)
    check_grads(lambda t: rg.var(rg.sin(t)), x)


@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "max", "prod", "logsumexp"])
def test_float32_stays_float32(name, rng):
    x = rng.normal(size=(3, 4)).astype(np.float32)
    assert (
        gradient(lambda t: FUNCTIONS[name](t, axis=1), x, np.ones(3, "f4")).dtype == "float32"
    )
    half = x.astype(np.float16)
    found = gradient(lambda t: FUNCTIONS[name](t, axis=1), half, np.ones(3, "f2"))
    wanted = gradient(lambda t: FUNCTIONS[name](t, axis=1), half.astype("f4"), np.ones(3, "f4"))
    assert_close(found, wanted, tolerance=2e-2)


def test_what_is_kept():
    x = rg.tensor(np.arange(6.0).reshape(2, 3) + 1, requires_grad=True)
    for name, names in {"Max": 2, "Prod": 1, "LogSumExp": 2, "Variance": 1, "Sum": 0}.items():
        f = {"Variance": rg.var}.get(name) or FUNCTIONS[name.lower()]
        node = f(x, axis=1)._node
        assert type(node.op).__name__ == name
        assert sum(isinstance(k, np.ndarray) for k in node.kept) == names
