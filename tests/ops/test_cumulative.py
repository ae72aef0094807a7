"""Running sums, products, extrema and logsumexps: NumPy's numbers, and the slopes at zeros."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import retrograd as rg
from retrograd.core.errors import ArgumentError
from retrograd.core.op import FUNCTIONS
from retrograd.testing.check import check_grads
from retrograd.testing.compare import assert_close

INF, NAN = math.inf, math.nan
NUMBERS = st.floats(-4, 4, width=32) | st.sampled_from([0.0, 1.0, -1.0])
RUNNING = {
    "cumulative_sum": np.add.accumulate,
    "cumulative_prod": np.multiply.accumulate,
    "cumulative_max": np.maximum.accumulate,
    "cumulative_min": np.minimum.accumulate,
    "cumulative_logsumexp": np.logaddexp.accumulate,
}
ZEROS = {
    "none": [2.0, -1.0, 0.5, 3.0, -2.0],
    "start": [0.0, -1.0, 0.5, 3.0, -2.0],
    "middle": [2.0, -1.0, 0.0, 3.0, -2.0],
    "end": [2.0, -1.0, 0.5, 3.0, 0.0],
    "several": [2.0, 0.0, 0.5, 0.0, -2.0],
    "neighbours": [2.0, 0.0, 0.0, 3.0, -2.0],
    "all": [0.0, 0.0, 0.0, 0.0, 0.0],
}
at_zeros = pytest.mark.parametrize("x", ZEROS.values(), ids=ZEROS.keys())


def gradient(f, x):
    x = rg.tensor(x, requires_grad=True)
    rg.sum(f(x)).backward()
    return x.grad.numpy()


@st.composite
def arrays_and_axis(draw, elements=NUMBERS):
    shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
    x = draw(hnp.arrays(float, shapes, elements=elements))
    return x, draw(st.integers(-x.ndim, x.ndim - 1))


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod", "diff"])
def test_the_standards_names_exist(name):
    assert name in FUNCTIONS


@pytest.mark.parametrize("name", RUNNING)
@given(case=arrays_and_axis(), reverse=st.booleans())
def test_equals_numpy(name, case, reverse):
    x, axis = case
    found = FUNCTIONS[name](x, axis=axis, reverse=reverse)
    turned = np.flip(x, axis) if reverse else x
    wanted = RUNNING[name](turned, axis=axis)
    assert_close(found, np.flip(wanted, axis) if reverse else wanted)


@pytest.mark.parametrize("name", RUNNING)
@given(case=arrays_and_axis(st.sampled_from([-INF, -1.0, 0.0, 1.0, INF, NAN])))
def test_special_values_equal_numpy(name, case):
    x, axis = case
    with np.errstate(all="ignore"):
        wanted = RUNNING[name](x, axis=axis)
    assert_close(FUNCTIONS[name](x, axis=axis), wanted)


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
@given(case=arrays_and_axis(), reverse=st.booleans())
def test_include_initial(name, case, reverse):
    x, axis = case
    f = FUNCTIONS[name]
    found = f(x, axis=axis, include_initial=True, reverse=reverse).numpy()
    assert found.shape[axis] == x.shape[axis] + 1
    start = found.take(-1 if reverse else 0, axis)
    assert_close(start, np.full(start.shape, name == "cumulative_prod", float))
    rest = np.delete(found, -1 if reverse else 0, axis)
    assert_close(rest, f(x, axis=axis, reverse=reverse))


@pytest.mark.parametrize("name", RUNNING)
def test_the_axis_must_be_said_unless_there_is_one(name, rng):
    f = FUNCTIONS[name]
    assert f(rng.normal(size=3)).shape == (3,)
    with pytest.raises(ArgumentError, match=f"{name}: x has 2 axes; axis must say"):
        f(rng.normal(size=(2, 3)))
    with pytest.raises(ArgumentError, match=f"{name}: x has 0 axes"):
        f(np.asarray(1.0))
    with pytest.raises(ArgumentError, match=f"{name}: axis 2 is outside"):
        f(rng.normal(size=(2, 3)), axis=2)


def test_numpys_names_run_over_all_elements_without_an_axis(rng):
    x = rng.normal(size=(2, 3))
    for name in ("cumsum", "cumprod"):
        for axis in (None, 0, -1):
            assert_close(FUNCTIONS[name](x, axis), getattr(np, name)(x, axis))
    assert rg.cumsum(np.ones(3, np.int8)).dtype == "int64"


@at_zeros
@pytest.mark.parametrize("reverse", [False, True])
def test_n17_cumulative_prod_at_zeros(x, reverse):
    x = np.array(x)
    f = lambda t: rg.cumulative_prod(t, axis=-1, reverse=reverse)
    check_grads(f, x, order=3)
    check_grads(f, np.stack([x, np.roll(x, 1)]), order=2)
    wanted = np.zeros((5, 5))
    for t in range(5):
        for i in range(t, 5) if reverse else range(t + 1):
            factors = np.delete(x, i)[t:] if reverse else np.delete(x, i)[:t]
            wanted[t, i] = np.prod(factors)
    for jacobian in (rg.jacrev, rg.jacfwd):
        assert_close(jacobian(f)(x), wanted)


def test_cumulative_prod_with_a_product_that_underflows():
    x = np.full(400, 1e-3)
    assert_close(gradient(rg.cumulative_prod, x)[0], np.asarray(1 / (1 - 1e-3)))
    assert np.isfinite(gradient(rg.cumulative_prod, x)).all()


@pytest.mark.parametrize("name", ["cumulative_max", "cumulative_min"])
def test_of_ties_the_first_takes_the_gradient(name):
    sign = 1 if name == "cumulative_max" else -1
    x = sign * np.array([1.0, 0.0, 1.0, 2.0, 2.0, -3.0])
    f = FUNCTIONS[name]
    assert_close(gradient(f, x), np.array([3.0, 0, 0, 3, 0, 0]))
    assert_close(gradient(lambda t: f(t, reverse=True), x), np.array([0.0, 0, 0, 0, 5, 1]))
    assert_close(rg.jacfwd(f)(x), rg.jacrev(f)(x))


def test_a_nan_stays_the_largest_and_takes_the_gradient():
    x = np.array([1.0, NAN, 5.0, NAN])
    assert_close(rg.cumulative_max(x), np.array([1, NAN, NAN, NAN]))
    assert_close(gradient(rg.cumulative_max, x), np.array([1.0, 3, 0, 0]))


def softmaxes(x):
    """The rows of the jacobian: the softmax of the elements up to each."""
    rows = np.zeros((len(x), len(x)))
    for t in range(len(x)):
        e = np.exp(x[: t + 1] - x[: t + 1].max())
        rows[t, : t + 1] = e / e.sum()
    return rows


@pytest.mark.parametrize("shift", [0, 1e4, -1e4])
def test_cumulative_logsumexp_is_stable(shift, rng):
    x = rng.normal(size=6) * 5
    for jacobian in (rg.jacrev, rg.jacfwd):
        found = jacobian(rg.cumulative_logsumexp)(x + shift)
        assert_close(found, softmaxes(x), tolerance=1e-10)
    check_grads(rg.cumulative_logsumexp, x)
    check_grads(lambda t: rg.cumulative_logsumexp(t, axis=0, reverse=True), x.reshape(3, 2))


@pytest.mark.parametrize(
    "x", [[-INF, -INF, 1.0, -INF], [1.0, INF, 2.0], [-INF], [-INF, INF], [800.0, -800.0, 900.0]]
)
def test_cumulative_logsumexp_gradients_are_finite_at_infinities(x):
    x = np.array(x)
    found = rg.jacrev(rg.cumulative_logsumexp)(x).numpy()
    total = (rg.cumulative_logsumexp(x).numpy() > -INF).astype(float)
    assert_close(found.sum(1), total)
    assert np.isfinite(
        rg.hessian(lambda t: rg.sum(rg.cumulative_logsumexp(t)))(x).numpy()
    ).all()


@given(case=arrays_and_axis(), n=st.integers(0, 3))
def test_diff_equals_numpy(case, n):
    x, axis = case
    assert_close(rg.diff(x, axis=axis, n=n), np.diff(x, axis=axis, n=n), tolerance=1e-9)


def test_diff_of_longer_and_other_things(rng):
    x, edge = rng.normal(size=(2, 3)), rng.normal(size=(2, 1))
    found = rg.diff(x, prepend=edge, append=edge)
    assert_close(found, np.diff(x, prepend=edge, append=edge))
    assert_close(rg.diff(np.array([True, True, False])), np.array([False, True]))
    check_grads(lambda t: rg.diff(t, axis=0, n=2), rng.normal(size=(4, 2)))
    with pytest.raises(ArgumentError, match="n must not be negative; got -1"):
        rg.diff(x, n=-1)
    assert_close(rg.diff(rg.cumulative_sum(x, axis=1, include_initial=True), axis=1), x)


@pytest.mark.parametrize("name", RUNNING)
def test_maps_over_a_batch(name, rng):
    x = rng.normal(size=(3, 4, 2))
    for axis in (0, 1):
        found = rg.vmap(lambda t, a=axis: FUNCTIONS[name](t, axis=a, reverse=True))(x)
        assert_close(found, FUNCTIONS[name](x, axis=axis + 1, reverse=True))
