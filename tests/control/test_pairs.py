"""pair_reduce: the same as with the matrix of pairs, which it never holds."""

import tracemalloc

import numpy as np
import pytest

import retrograd as rg
from retrograd.control import pair_ops, pairs
from retrograd.control.pairs import pair_reduce
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.ops.distances.pairwise import cdist
from retrograd.testing import assert_close, check, check_grads


@pytest.fixture
def small_tiles(monkeypatch):
    monkeypatch.setattr(pairs, "ROWS", 3)
    monkeypatch.setattr(pairs, "COLUMNS", 4)


@pytest.mark.parametrize("cls", [pair_ops.PairSum, pair_ops.PairSumPull])
def test_ops(cls, rng):
    for op, *arrays in cls.samples(rng):
        check.check_op(op, *arrays)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine", "correlation"])
@pytest.mark.parametrize("d", [3, 7])
@pytest.mark.parametrize("shape", [(8,), (8, 2)])
def test_with_and_without_the_matrix(metric, d, shape, rng, small_tiles):
    x, y, w, s = rng.normal(size=(7, d)), rng.normal(size=(8, d)), rng.normal(size=shape), 0.7

    def fused(x, y, w, s):
        f = lambda far: rg.exp(-far * s)
        return pair_reduce(f, x, y, weights=w, metric=metric, per_point=True)

    def plain(x, y, w, s):
        return rg.exp(-cdist(x, y, metric=metric) * s) @ w

    args = [x, y, w, np.asarray(s)]
    assert_close(fused(*args), plain(*args))
    mine, theirs = (
        rg.grad(lambda *a, f=f: rg.sum(rg.sin(f(*a))), argnums=(0, 1, 2, 3))(*args)
        for f in (fused, plain)
    )
    assert_close(mine, theirs)
    check_grads(fused, *args)
    total = pair_reduce(rg.exp, x, y, weights=w, metric=metric)
    assert_close(total, rg.sum(rg.exp(cdist(x, y, metric=metric)) @ w, axis=0))


def test_others_leave_out_each_point_itself(rng, small_tiles):
    """1 / d is not asked about d = 0: values and gradients stay finite."""
    x = np.stack([np.arange(10.0), rng.normal(size=10)], 1)
    i, j = np.nonzero(~np.eye(10, dtype=bool))

    def plain(a):
        return rg.sum(1.0 / rg.sum((a[i] - a[j]) ** 2, axis=-1))

    def fused(a):
        return pair_reduce(lambda far: 1.0 / far, a, others=True)

    assert_close(fused(x), plain(x))
    assert_close(rg.grad(fused)(x), rg.grad(plain)(x))
    check_grads(fused, x)


def test_vmap_and_empty_sets(rng, small_tiles):
    x = rng.normal(size=(3, 5, 2))
    f = lambda a: pair_reduce(lambda far: rg.exp(-far), a)
    assert_close(rg.vmap(f)(x), np.stack([f(a).numpy() for a in x]))
    assert_close(rg.vmap(rg.grad(f))(x), np.stack([rg.grad(f)(a).numpy() for a in x]))
    assert float(pair_reduce(rg.exp, np.zeros((0, 2)))) == 0


def spent(n):
    """Bytes at the peak of forward and backward, and on the tape between, of n points."""
    x = rg.asarray(np.random.default_rng(0).normal(size=(n, 2)).astype(np.float32))
    x.requires_grad_()
    tracemalloc.start()
    try:
        loss = pair_reduce(lambda far: 1.0 / (1.0 + far), x, others=True)
        kept = rg.debug.graph(loss).nbytes
        loss.backward()
        return tracemalloc.get_traced_memory()[1], kept
    finally:
        tracemalloc.stop()


def test_memory_is_linear_in_the_points():
    peak, kept = spent(4000)
    assert peak < 16 * 2**20  # the matrix alone would be 61 MiB
    assert kept < 4000 * 3 * 4 + 64  # the points, the weights, and two numbers


@pytest.mark.slow
def test_fifty_thousand_points_in_less_than_a_gibibyte():
    peak, _ = spent(50_000)
    assert peak < 2**30


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (
            lambda x: pair_reduce(rg.exp, x, metric="manhattan"),
            ArgumentError,
            "'manhattan' must",
        ),
        (lambda x: pair_reduce(rg.exp, x, x[:, :1]), ShapeError, "must be (n, d) and (m, d)"),
        (lambda x: pair_reduce(rg.exp, x, x, others=True), ArgumentError, "leave y out"),
        (
            lambda x: pair_reduce(rg.exp, x, weights=x[0]),
            ShapeError,
            "one row for each of the 3",
        ),
        (lambda x: pair_reduce(rg.sum, x), ShapeError, "must keep the shape and dtype"),
    ],
)
def test_refusals(call, error, sentence):
    with pytest.raises(error) as caught:
        call(np.ones((3, 2)))
    assert sentence in str(caught.value)
