"""cdist, pdist and knn: values by subtraction, gradients at zero, and what is kept."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.ops.distances import condensed, neighbours, pairwise, tiles
from retrograd.testing import assert_close, check, check_grads

cdist, pdist, knn = pairwise.cdist, condensed.pdist, neighbours.knn
METRICS = [
    "euclidean", "sqeuclidean", "cosine", "correlation", "manhattan", "minkowski", "chebyshev",
]  # fmt: skip


def plain(x, y, metric, p=2.0):
    """The distances in double precision, from their definitions."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    if metric == "correlation":
        x, y = (t - t.mean(-1, keepdims=True) for t in (x, y))
    if metric in ("cosine", "correlation"):
        x, y = (t / np.linalg.norm(t, axis=-1, keepdims=True) for t in (x, y))
        return 1 - x @ y.swapaxes(-1, -2)
    apart = np.abs(x[..., :, None, :] - y[..., None, :, :])
    order = {"manhattan": 1.0, "chebyshev": np.inf, "minkowski": p}.get(metric, 2.0)
    found = np.linalg.norm(apart, order, axis=-1)
    return found**2 if metric == "sqeuclidean" else found


@pytest.mark.parametrize("cls", ["Pairwise", "PairwiseAgain", "PairwisePull", "Crossed"])
def test_pairwise_ops(cls, rng):
    for op, *arrays in getattr(pairwise, cls).samples(rng):
        check.check_op(op, *arrays)
    for op, *arrays, sentence in getattr(pairwise, cls).refuses(rng):
        check.check_refuses(op, arrays, sentence)


@pytest.mark.parametrize(
    "cls",
    [
        condensed.Condense,
        condensed.Uncondense,
        condensed.PairsWithin,
        condensed.PairsWithinAgain,
        neighbours.Nearest,
    ],
)
def test_condensed_and_neighbour_ops(cls, rng):
    for op, *arrays in cls.samples(rng):
        check.check_op(op, *arrays)
    for op, *arrays, sentence in cls.refuses(rng):
        check.check_refuses(op, arrays, sentence)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("d", [1, 3, 9])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values(metric, d, dtype, rng):
    if d == 1 and metric == "correlation":
        pytest.skip("one number has no correlation")
    x, y = (rng.normal(size=(n, d)).astype(dtype) for n in (6, 5))
    found = cdist(x, y, metric=metric, p=3.0)
    assert found.dtype == dtype
    wanted = plain(x, y, metric, 3.0)
    np.testing.assert_allclose(found.numpy(), wanted, atol=40 * np.finfo(dtype).eps, rtol=2e-5)
    square = pdist(x, metric=metric, p=3.0)
    upper = plain(x, x, metric, 3.0)[np.triu_indices(6, 1)]
    np.testing.assert_allclose(square.numpy(), upper, atol=40 * np.finfo(dtype).eps, rtol=2e-5)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("save", ["distances", "recompute"])
def test_derivatives_of_both_orders(metric, save, rng):
    x, y = rng.normal(size=(4, 3)), rng.normal(size=(3, 3))
    check_grads(lambda a, b: cdist(a, b, metric=metric, p=3.5, save=save), x, y)
    check_grads(lambda a: pdist(a, metric=metric, p=3.5, save=save), x)


@pytest.mark.parametrize("metric", METRICS)
def test_the_gradient_at_zero_distance_is_zero(metric):
    x = np.array([[1.0, 2.0, 4.0], [1.0, 2.0, 4.0], [1.0, 2.0, 4.0]])
    for f in (cdist, pdist):
        value, grad = rg.value_and_grad(lambda a, f=f: rg.sum(f(a, metric=metric, p=3)))(x)
        np.testing.assert_allclose(float(value), 0, atol=1e-12)
        np.testing.assert_allclose(grad.numpy(), 0, atol=1e-12)
        second = rg.grad(
            lambda a, f=f: rg.sum(rg.grad(lambda b: rg.sum(f(b, metric=metric)))(a))
        )
        assert np.isfinite(second(x).numpy()).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [2, 8])
def test_near_points_far_from_the_origin_are_exact(dtype, d, rng):
    """|x|² + |y|² - 2 x·y alone would have lost all digits."""
    x = (rng.normal(size=(40, d)) + 1000).astype(dtype)
    y = (x + rng.normal(size=x.shape) * 1e-2).astype(dtype)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(cdist(x, y).numpy(), plain(x, y, "euclidean"), rtol=20 * eps)
    assert not np.diagonal(cdist(x, x).numpy()).any()
    found = rg.grad(lambda a: rg.sum(cdist(a, y)))(rg.asarray(x)).numpy()
    apart = x[:, None].astype(float) - y.astype(float)
    wanted = (apart / np.linalg.norm(apart, axis=-1, keepdims=True)).sum(1)
    np.testing.assert_allclose(found, wanted, atol=200 * eps)


def test_all_ways_through_the_tiles_agree(rng, monkeypatch):
    """Strips of rows, few and many near pairs, points that are not finite."""
    x = np.concatenate([rng.normal(size=(30, 6)), rng.normal(size=(30, 6)) * 1e-3 + 2])
    x[50:] = x[:10]
    whole, monkey = cdist(x).numpy(), rg.grad(lambda a: rg.sum(rg.sin(cdist(a))))(x).numpy()
    monkeypatch.setattr(tiles, "ELEMENTS", 100)
    np.testing.assert_allclose(cdist(x).numpy(), whole, rtol=1e-13)
    again = rg.grad(lambda a: rg.sum(rg.sin(cdist(a))))(x).numpy()
    np.testing.assert_allclose(again, monkey, rtol=1e-10, atol=1e-12)
    x[3, 2] = np.inf
    found = cdist(x).numpy()
    assert np.isinf(found[3, :3]).all()
    assert np.isfinite(found[4, 5:]).all()


def test_bytes_kept():
    """save="distances" keeps the matrix beside the points; "recompute" the points alone."""
    x = rg.asarray(np.random.default_rng(0).normal(size=(50, 3))).requires_grad_()
    y = rg.asarray(np.random.default_rng(1).normal(size=(40, 3))).requires_grad_()
    points, matrix = 90 * 3 * 8, 50 * 40 * 8
    for metric in ("euclidean", "minkowski", "chebyshev"):
        kept = {
            save: rg.debug.graph(rg.sum(cdist(x, y, metric=metric, p=3, save=save))).nbytes
            for save in ("distances", "recompute")
        }
        assert kept == {"distances": points + matrix, "recompute": points}
    for metric in ("sqeuclidean", "manhattan"):
        assert rg.debug.graph(rg.sum(cdist(x, y, metric=metric))).nbytes == points
    assert rg.debug.graph(rg.sum(pdist(x, save="recompute"))).nbytes == 50 * 3 * 8
    assert rg.debug.graph(rg.sum(pdist(x))).nbytes == (50 * 3 + 50 * 49 // 2) * 8


def test_rows_without_direction():
    x = np.array([[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]])
    assert_close(cdist(x, metric="cosine"), np.array([[0.0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    grad = rg.grad(lambda a: rg.sum(cdist(a, metric="cosine")))(x).numpy()
    assert np.isfinite(grad).all()
    assert not grad[[0, 2]].any()


def test_leading_axes_and_vmap(rng):
    x, y = rng.normal(size=(2, 4, 5)), rng.normal(size=(3, 5))
    wanted = np.stack([cdist(a, y).numpy() for a in x])
    assert_close(cdist(x, y), wanted)
    assert_close(rg.vmap(cdist, in_axes=(0, None))(x, y), wanted)
    assert_close(pdist(x), np.stack([pdist(a).numpy() for a in x]))
    assert cdist(np.zeros((0, 4, 5)), np.zeros((0, 3, 5))).shape == (0, 4, 3)
    assert cdist(np.zeros((0, 5)), y).shape == (0, 3)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("lead", [(), (2,)])
def test_knn_is_the_sorted_matrix(metric, lead, rng):
    x, y = rng.normal(size=(*lead, 7, 3)), rng.normal(size=(*lead, 9, 3))
    matrix = cdist(x, y, metric=metric, p=3).numpy()
    order = np.argsort(matrix, axis=-1, kind="stable")[..., :4]
    found, indices = knn(x, y, k=4, metric=metric, p=3)
    np.testing.assert_array_equal(indices.numpy(), order)
    assert_close(found, np.take_along_axis(matrix, order, -1))

    def by_sorting(a):
        return rg.sum(rg.sin(rg.sort(cdist(a, y, metric=metric, p=3))[..., :4]))

    def direct(a):
        return rg.sum(rg.sin(knn(a, y, k=4, metric=metric, p=3)[0]))

    assert_close(rg.grad(direct)(x), rg.grad(by_sorting)(x))
    twice = [
        rg.grad(lambda a, f=f: rg.sum(rg.grad(f)(a) ** 2))(x) for f in (direct, by_sorting)
    ]
    np.testing.assert_allclose(twice[0].numpy(), twice[1].numpy(), rtol=1e-8, atol=1e-8)


def test_knn_within_a_set_and_ties(monkeypatch):
    monkeypatch.setattr(tiles, "ELEMENTS", 8)
    grid = np.array([[float(i), 0.0] for i in range(6)])
    found, indices = knn(grid, k=2)
    assert indices.tolist() == [[1, 2], [0, 2], [1, 3], [2, 4], [3, 5], [4, 3]]
    assert found.tolist() == [[1, 2], [1, 1], [1, 1], [1, 1], [1, 1], [1, 2]]
    twins = np.zeros((3, 2))
    assert knn(twins, k=2)[1].tolist() == [[1, 2], [0, 2], [0, 1]]


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda x: cdist(x, metric="taxi"), ArgumentError, "metric 'taxi' is not one of"),
        (lambda x: cdist(x, metric="minkowski", p=0.5), ArgumentError, "p must be at least 1"),
        (lambda x: cdist(x, save="all"), ArgumentError, "save must be 'distances'"),
        (lambda x: cdist(x, x[:, :1]), ShapeError, "y (3, 1) has 1; they must be equal"),
        (lambda x: cdist(x[0]), ShapeError, "[..., points, coordinates]"),
        (lambda x: pdist(x[0]), ShapeError, "[..., points, coordinates]"),
        (lambda x: pdist(x, save="all"), ArgumentError, "save must be 'distances'"),
        (lambda x: knn(x, k=3), ArgumentError, "there are 2 to choose from"),
        (lambda x: knn(x, x, k=-1), ArgumentError, "k must not be negative"),
    ],
)
def test_refusals(call, error, sentence):
    with pytest.raises(error) as caught:
        call(np.ones((3, 2)))
    assert sentence in str(caught.value)


def test_the_gradient_of_no_pairs_is_zero_and_not_less(rng):
    """Compiled too: -0.0 would become -inf under 1 / x."""
    x, y = rng.normal(size=(0, 3)), -np.ones((2, 3))
    slope = rg.grad(lambda y: rg.sum(cdist(x, y)))
    for found in (slope(y), rg.jit(slope)(y)):
        assert not np.signbit(found.numpy()).any()
