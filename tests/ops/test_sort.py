"""Order and what is found by it: against NumPy, with ties, NaN, and gradients by gathering."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import retrograd as rg
from retrograd.core.errors import ArgumentError, BoundsError, DtypeError, ShapeError, TraceError
from retrograd.core.op import FUNCTIONS
from retrograd.testing.check import check_grads
from retrograd.testing.compare import assert_close

INF, NAN = math.inf, math.nan
STANDARD = [
    "argsort",
    "searchsorted",
    "sort",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]
METHODS = ["linear", "lower", "higher", "midpoint", "nearest"]
TIED = st.integers(-3, 3).map(float) | st.sampled_from([-0.0, INF, -INF])
WITH_NAN = TIED | st.just(NAN)


@st.composite
def arrays_and_axis(draw, elements, min_side=0):
    shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=min_side, max_side=5)
    x = draw(hnp.arrays(float, shapes, elements=elements))
    return x, draw(st.integers(-x.ndim, x.ndim - 1))


def gradient(f, x):
    x = rg.tensor(x, requires_grad=True)
    rg.sum(f(x)).backward()
    return x.grad.numpy()


@pytest.mark.parametrize("name", STANDARD)
def test_the_standards_names_exist(name):
    assert name in FUNCTIONS


# -- sort and argsort ------------------------------------------------------------------------


@given(case=arrays_and_axis(WITH_NAN), stable=st.booleans())
def test_sort_equals_numpy(case, stable):
    x, axis = case
    assert_close(rg.sort(x, axis=axis, stable=stable), np.sort(x, axis=axis))
    found = rg.sort(x, axis=axis, descending=True, stable=stable)
    assert_close(found, np.flip(np.sort(x, axis=axis), axis))


@given(case=arrays_and_axis(WITH_NAN), descending=st.booleans())
def test_argsort_is_stable_both_ways(case, descending):
    x, axis = case
    found = rg.argsort(x, axis=axis, descending=descending)
    assert found.dtype == "int64"
    key = np.where(np.isnan(x), 0, -x if descending else x)
    later = np.isnan(x) != descending  # NaN is larger than inf
    wanted = np.lexsort((key, later), axis=axis)  # stable, by the last key first
    assert_close(found, wanted)
    assert_close(
        rg.take_along_axis(x, found, axis=axis), rg.sort(x, axis=axis, descending=descending)
    )


def test_sorting_needs_an_axis():
    for name in ("sort", "argsort"):
        with pytest.raises(ArgumentError, match=f"{name}: axis -1 is outside a tensor of 0"):
            FUNCTIONS[name](np.asarray(1.0))
        assert FUNCTIONS[name](np.zeros((0, 3)), axis=0).shape == (0, 3)
        assert FUNCTIONS[name](np.array([True, False])).shape == (2,)


def test_gradients_of_sort_go_where_the_elements_came_from(rng):
    x = rng.permutation(12).reshape(3, 4) * 0.5
    for descending in (False, True):
        f = lambda t, d=descending: rg.sort(t, axis=0, descending=d) * np.arange(3.0)[:, None]
        rank = np.argsort(np.argsort(x, axis=0), axis=0)
        assert_close(gradient(f, x), np.where(descending, 2 - rank, rank).astype(float))
        check_grads(f, x)


def test_ties_keep_their_order_in_gradients():
    x = np.zeros(3)
    weights = np.array([1.0, 2.0, 3.0])
    for descending in (False, True):
        f = lambda t, d=descending: rg.sort(t, descending=d) * weights
        assert_close(gradient(f, x), weights)


# -- searchsorted ----------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["left", "right"])
@given(
    x1=hnp.arrays(float, st.integers(0, 6), elements=WITH_NAN),
    x2=hnp.arrays(
        float, hnp.array_shapes(min_dims=0, max_dims=2, max_side=4), elements=WITH_NAN
    ),
)
def test_searchsorted_equals_numpy(side, x1, x2):
    order = np.argsort(x1)
    wanted = np.asarray(np.searchsorted(x1[order], x2, side))
    found = rg.searchsorted(x1[order], x2, side=side)
    assert found.dtype == "int64"
    assert_close(found, wanted)
    assert_close(rg.searchsorted(x1, x2, side=side, sorter=order), wanted)


def test_searchsorted_refuses_and_maps(rng):
    with pytest.raises(ShapeError, match="x1 must have one axis; got shape"):
        rg.searchsorted(np.ones((2, 3)), np.ones(2))
    with pytest.raises(ArgumentError, match="side must be 'left' or 'right'; got 'middle'"):
        rg.searchsorted(np.ones(3), np.ones(2), side="middle")
    x1, x2 = np.sort(rng.normal(size=(3, 5)), axis=1), rng.normal(size=(3, 2, 4))
    wanted = np.stack([np.searchsorted(a, b) for a, b in zip(x1, x2, strict=True)])
    assert_close(rg.vmap(rg.searchsorted)(x1, x2), wanted)
    shared = rg.vmap(rg.searchsorted, in_axes=(None, 0))(x1[0], x2)
    assert_close(shared, np.searchsorted(x1[0], x2))


# -- unique ----------------------------------------------------------------------------------


@given(
    hnp.arrays(
        float,
        hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=5),
        elements=WITH_NAN,
    )
)
def test_unique_is_the_standards(x):
    values, indices, inverse, counts = rg.unique_all(x)
    wanted = np.unique(x, return_index=True, return_counts=True, equal_nan=False)
    assert_close([values, indices, counts], list(wanted))
    assert inverse.shape == x.shape
    assert_close(values.numpy()[inverse.numpy()], x)
    assert_close(rg.unique_values(x), values)
    assert_close(list(rg.unique_counts(x)), [values, counts])
    assert_close(list(rg.unique_inverse(x)), [values, inverse])
    assert_close(rg.unique(x), values)
    assert all(t.dtype == "int64" for t in (indices, inverse, counts))


def test_the_fields_have_the_standards_names():
    found = rg.unique_all(np.array([2, 1, 2]))
    assert found._fields == ("values", "indices", "inverse_indices", "counts")
    assert rg.unique_counts(np.array([1]))._fields == ("values", "counts")
    assert rg.unique_inverse(np.array([1]))._fields == ("values", "inverse_indices")
    assert found.values.dtype == "int64"


def test_unique_with_a_size():
    x = np.array([3.0, 1.0, 3.0, 2.0])
    parts = {"return_index": True, "return_inverse": True, "return_counts": True}
    values, indices, inverse, counts = rg.unique(x, size=5, fill_value=-1.0, **parts)
    assert_close(values, np.array([1.0, 2, 3, -1, -1]))
    assert_close(indices, np.array([1, 3, 0, 1, 1]))
    assert_close(inverse, np.array([2, 0, 2, 1]))
    assert_close(counts, np.array([1, 1, 2, 0, 0]))
    assert_close(rg.unique(x, size=4), np.array([1.0, 2, 3, 1]))
    assert_close(rg.unique(x, size=2), np.array([1.0, 2]))
    assert rg.unique(x, size=0).shape == (0,)
    assert_close(rg.unique(np.zeros(0), size=2, fill_value=7), np.array([7.0, 7.0]))
    with pytest.raises(ArgumentError, match="fill_value must say one"):
        rg.unique(np.zeros(0), size=2)
    with pytest.raises(ArgumentError, match="size must not be negative"):
        rg.unique(x, size=-1)


def test_unique_maps_only_with_a_size(rng):
    x = rng.integers(0, 3, (4, 5))
    found = rg.vmap(lambda row: rg.unique(row, size=3, fill_value=9))(x)
    wanted = [np.concatenate([u := np.unique(r), np.full(3 - len(u), 9)]) for r in x]
    assert_close(found, np.stack(wanted))
    with pytest.raises(TraceError, match="unique_values: how many values there are"):
        rg.vmap(rg.unique_values)(x)


def test_the_gradient_of_unique_goes_to_the_first():
    x = np.array([3.0, 1.0, 3.0, 2.0])
    assert_close(gradient(rg.unique_values, x), np.array([1.0, 1, 0, 1]))
    assert_close(
        gradient(lambda t: rg.unique(t, size=5, fill_value=0.0), x), np.array([1.0, 1, 0, 1])
    )


# -- quantile and median -----------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@given(
    case=arrays_and_axis(st.floats(-8, 8) | TIED.filter(math.isfinite), 1),
    q=st.lists(st.floats(0, 1), max_size=3) | st.floats(0, 1),
    keepdims=st.booleans(),
)
def test_quantile_equals_numpy(method, case, q, keepdims):
    x, axis = case
    found = rg.quantile(x, q, axis=axis, method=method, keepdims=keepdims)
    wanted = np.quantile(x, np.asarray(q, float), axis=axis, method=method, keepdims=keepdims)
    assert_close(found, np.asarray(wanted))


@given(case=arrays_and_axis(st.floats(-8, 8, width=32) | st.just(NAN), 1))
def test_median_equals_numpy(case):
    x, axis = case
    assert_close(rg.median(x, axis=axis, keepdims=True), np.median(x, axis=axis, keepdims=True))
    assert_close(rg.median(x), np.asarray(np.median(x)))


def test_quantiles_over_several_axes(rng):
    x, q = rng.normal(size=(2, 3, 4)), np.array([[0.1, 0.5], [0.9, 1.0]])
    for axis in (None, (0, 2), (-1, 0), (), (1,)):
        wanted = (
            np.quantile(x, q, axis=axis) if axis != () else np.broadcast_to(x, (2, 2, 2, 3, 4))
        )
        assert_close(rg.quantile(x, q, axis=axis), wanted)
    found = rg.quantile(x, rg.asarray(0.25, dtype=np.float64), axis=(0, 1), keepdims=True)
    assert_close(found, np.quantile(x, 0.25, axis=(0, 1), keepdims=True))


def test_quantiles_of_infinities():
    assert float(rg.quantile(np.array([INF, INF]), 0.3)) == INF
    assert float(rg.median(np.array([-INF, 0.0]))) == -INF
    assert float(rg.median(np.array([0.0, INF]))) == INF
    assert float(rg.median(np.array([-INF, 1.0, INF]))) == 1
    assert math.isnan(float(rg.median(np.array([-INF, INF]))))
    assert_close(gradient(rg.median, np.array([-INF, 1.0, INF])), np.array([0.0, 1, 0]))


def test_quantile_of_equal_elements_is_that_element():
    x = np.full(7, 0.1)
    assert set(rg.quantile(x, np.linspace(0, 1, 50)).numpy().tolist()) == {0.1}


def test_quantile_refuses():
    x = np.ones((2, 3))
    with pytest.raises(ArgumentError, match="q must be from 0 to 1"):
        rg.quantile(x, 1.5)
    with pytest.raises(ArgumentError, match="q must be from 0 to 1"):
        rg.quantile(x, [0.5, NAN])
    with pytest.raises(ArgumentError, match=r"method must be one of linear, .*; got 'cubic'"):
        rg.quantile(x, 0.5, method="cubic")
    with pytest.raises(ArgumentError, match="no elements along axis"):
        rg.quantile(np.ones((0, 3)), 0.5, axis=0)
    with pytest.raises(DtypeError, match="complex numbers have no order"):
        rg.median(np.ones(3, complex))


@pytest.mark.parametrize("method", METHODS)
def test_quantiles_are_differentiable(method, rng):
    x = rng.permutation(12).reshape(3, 4) * 0.5
    q = np.array([0.15, 0.6])
    check_grads(lambda t: rg.quantile(t, q, axis=1, method=method), x)
    check_grads(lambda t: rg.quantile(t, 0.35, axis=(0, 1), method=method), x)
    rows = gradient(lambda t: rg.quantile(t, q[0], axis=1, method=method), x).sum(1)
    assert_close(rows, np.ones(3))


def test_quantile_of_q_and_of_a_batch(rng):
    x = rng.permutation(8) * 0.5
    check_grads(lambda q: rg.quantile(x, q), np.array([0.2, 0.7]), order=1)
    rows = rng.normal(size=(3, 5))
    assert_close(rg.vmap(rg.median)(rows), np.median(rows, axis=1))
    found = rg.vmap(lambda q: rg.quantile(rows, q, axis=1))(np.array([0.2, 0.7]))
    assert_close(found, np.quantile(rows, [0.2, 0.7], axis=1))


# -- topk, bincount, histogram ---------------------------------------------------------------


@given(case=arrays_and_axis(WITH_NAN, 1), largest=st.booleans(), data=st.data())
def test_topk_is_the_head_of_the_sorted(case, largest, data):
    x, axis = case
    k = data.draw(st.integers(0, x.shape[axis]))
    values, indices = rg.topk(x, k, axis=axis, largest=largest)
    head = lambda t: np.take(t.numpy(), range(k), axis)
    assert_close(values, head(rg.sort(x, axis=axis, descending=largest)))
    assert_close(indices, head(rg.argsort(x, axis=axis, descending=largest)))


@given(hnp.arrays(np.int64, st.integers(0, 8), elements=st.integers(0, 5)), st.integers(0, 8))
def test_bincount_equals_numpy(x, minlength):
    assert_close(rg.bincount(x, minlength=minlength), np.bincount(x, minlength=minlength))
    w = np.linspace(-1, 1, len(x))
    assert_close(rg.bincount(x, w), np.bincount(x, w))


def test_bincount_refuses_and_has_gradients():
    x = np.array([1, 0, 1], np.uint8)
    weigh = lambda w: rg.bincount(x, w, length=300) * np.arange(300.0)
    assert_close(gradient(weigh, np.ones(3)), np.array([1.0, 0, 1]))
    with pytest.raises(BoundsError):
        rg.bincount(np.array([-1, 2]))
    with pytest.raises(BoundsError):
        rg.bincount(np.array([3]), length=3)
    with pytest.raises(DtypeError, match="x must be integers; got float64"):
        rg.bincount(np.ones(3))
    with pytest.raises(ShapeError, match="x must have one axis"):
        rg.bincount(np.ones((2, 2), int))


@given(
    hnp.arrays(float, st.integers(1, 10), elements=st.integers(-4, 4).map(float)),
    st.integers(1, 6),
)
def test_histogram_equals_numpy(x, bins):
    for options in ({}, {"range": (-2.0, 3.0)}, {"weights": x * 0.5}):
        counts, edges = rg.histogram(x, bins, **options)
        wanted, wanted_edges = np.histogram(x, bins, **options)
        assert_close(edges, wanted_edges)
        assert_close(counts, np.histogram(x, edges.numpy(), weights=options.get("weights"))[0])
        assert counts.shape == wanted.shape
    counts, _ = rg.histogram(np.append(x, NAN), np.array([-1.0, 0.0, 2.5]))
    assert_close(counts, np.histogram(x, np.array([-1.0, 0.0, 2.5]))[0])


def test_histogram_refuses():
    with pytest.raises(ArgumentError, match="bins must be at least 1; got 0"):
        rg.histogram(np.ones(3), 0)
    with pytest.raises(ArgumentError, match="range must go from low to high"):
        rg.histogram(np.ones(3), 2, range=(1, 0))
    with pytest.raises(ShapeError, match="edges must be two or more"):
        rg.histogram(np.ones(3), np.array([1.0]))
