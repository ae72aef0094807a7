"""Pools against their definition, a loop over windows; ties and NaN; refusals; bytes."""

import itertools

import numpy as np
import pytest

import retrograd as rg
from retrograd.core import dtype as dt
from retrograd.ops.nn import adaptive_pool, geometry, pool, pool_max, pool_sum
from retrograd.testing import assert_close, check_grads
from retrograd.testing.check import check_op, check_refuses

OPS = (
    pool_max.MaxPool,
    pool_max.MaxPoolPick,
    pool_max.MaxPoolPull,
    pool_max.MaxPoolPlaces,
    pool_max.MaxSpan,
    pool_max.MaxSpanPick,
    pool_max.MaxSpanPull,
    pool_max.MaxSpanPlaces,
    pool_sum.WindowSum,
    pool_sum.WindowSpread,
    pool_sum.SpanMean,
    pool_sum.SpanShare,
)
CASES = [
    pytest.param(op, arrays, id=repr(op))
    for cls in OPS
    for op, *arrays in cls.samples(np.random.default_rng(7))
]


@pytest.mark.parametrize(("op", "arrays"), CASES)
def test_table(op, arrays):
    check_op(op, *arrays)


@pytest.mark.parametrize("cls", OPS)
def test_refusals(cls):
    for op, *arrays, sentence in cls.refuses(np.random.default_rng(7)):
        check_refuses(op, arrays, sentence)


# -- the definition ---------------------------------------------------------------------------


def windows(sizes, kernel, stride, before, counts, dilation=None):
    """For each window, the list of its places that are inside, in row-major order."""
    dilation = dilation or (1,) * len(sizes)
    for o in itertools.product(*map(range, counts)):
        places = []
        for t in itertools.product(*map(range, kernel)):
            at = tuple(
                a * s + i * d - b
                for a, s, i, d, b in zip(o, stride, t, dilation, before, strict=True)
            )
            if all(0 <= i < n for i, n in zip(at, sizes, strict=True)):
                places.append(at)
        yield o, places


def naive(f, x, frame):
    """f(window's elements [places, N, C]) for each window."""
    out = None
    for o, places in windows(
        x.shape[1:-1], frame.kernel, frame.stride, frame.before, frame.counts, frame.dilation
    ):
        found = f(np.stack([x[(slice(None), *p)] for p in places]))
        out = np.empty((len(x), *frame.counts, x.shape[-1])) if out is None else out
        out[(slice(None), *o)] = found
    return out


def geometries(count, seed, dilated=True):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        axes = int(rng.integers(1, 4))
        some = lambda low, high, axes=axes: tuple(int(v) for v in rng.integers(low, high, axes))
        kernel, stride = some(1, 4), some(1, 4)
        dilation = some(1, 3) if dilated else (1,) * axes
        pads = tuple((int(rng.integers(0, k)), int(rng.integers(0, k))) for k in kernel)
        sizes = tuple(
            d * (k - 1) + 1 + int(rng.integers(0, 4))
            for k, d in zip(kernel, dilation, strict=True)
        )
        ceil = bool(rng.integers(2))
        to = (2, *sizes, int(rng.integers(1, 3)))  # far from ties and from zero
        x = (rng.permutation(int(np.prod(to))).reshape(to) - 7) / 4 + 0.1
        options = {"stride": stride, "padding": pads, "ceil_mode": ceil}
        frame = geometry.frame("f", sizes, kernel, dilation=dilation, **options)
        try:
            geometry.inhabited("f", frame, sizes)
        except rg.ShapeError:
            continue
        yield x, kernel, options | ({"dilation": dilation} if dilated else {}), frame


@pytest.mark.parametrize("seed", range(4))
def test_max_pool_is_its_definition(seed):
    for x, kernel, options, frame in geometries(15, seed):
        assert_close(pool.max_pool(x, kernel, **options), naive(lambda w: w.max(0), x, frame))
        check_grads(lambda x, k=kernel, o=options: pool.max_pool(x, k, **o), x)


@pytest.mark.parametrize("seed", range(4))
def test_avg_pool_is_its_definition(seed):
    for x, kernel, options, frame in geometries(15, seed, dilated=False):
        f = lambda x, k=kernel, o=options: pool.avg_pool(x, k, count_include_pad=False, **o)
        assert_close(f(x), naive(lambda w: w.mean(0), x, frame))
        check_grads(f, x)
        padded = np.pad(x, ((0, 0), *options["padding"], (0, 0)))
        inside = frame._replace(before=(0,) * len(kernel))
        wanted = naive(lambda w: w.mean(0), padded, inside)
        assert_close(pool.avg_pool(x, kernel, **options), wanted)


@pytest.mark.parametrize("p", [1, 2, 3, 2.5, np.inf])
def test_lp_pool_is_its_definition(p):
    for x, kernel, options, frame in geometries(8, 3, dilated=False):
        f = lambda x, k=kernel, o=options: pool.lp_pool(x, p, k, **o)
        size = lambda w: np.linalg.norm(w.reshape(len(w), -1), p, axis=0).reshape(w.shape[1:])
        assert_close(f(x), naive(size, x, frame), tolerance=1e-10)
        check_grads(f, x / 8)


def test_lp_pool_of_zeros_has_gradient_zero():
    for p in (1, 1.5, 2, 3, np.inf):
        x = np.zeros((1, 4, 1))
        x[0, 3] = 2.0
        leaf = rg.tensor(x, requires_grad=True)
        out = pool.lp_pool(leaf, p, 2)
        assert_close(out, np.array([[[0.0], [2.0]]]))
        rg.sum(out).backward()
        grads = np.asarray(leaf.grad)[0, :, 0]
        assert_close(grads[3], 1.0)
        assert not grads[1:3].any()
        assert np.isfinite(grads).all()


def test_windows_beyond_numbers(rng):
    """inf stays in its own windows, whatever is summed or averaged beside it."""
    x = rng.normal(size=(1, 9, 1))
    x[0, 4] = np.inf
    for f in (
        lambda x: pool.avg_pool(x, 3, stride=1),
        lambda x: adaptive_pool.adaptive_avg_pool(x, 4),
        lambda x: pool.lp_pool(x, 3, 2),
    ):
        out = np.asarray(f(x))
        assert np.isinf(out).any()
        assert not np.isnan(out).any()
        assert np.isfinite(out).any()


# -- ties, infinities, NaN --------------------------------------------------------------------


def gradient(f, x, g=None):
    leaf = rg.tensor(x, requires_grad=True)
    out = f(leaf)
    out.backward(np.ones(out.shape, out.dtype) if g is None else g)
    return np.asarray(leaf.grad)


def test_first_index_on_ties(rng):
    """Row-major, in every window: against a loop that takes the first."""
    for x, kernel, options, frame in geometries(20, 8):
        x = rng.integers(0, 2, x.shape) * 1.0
        _, where = pool.max_pool(x, kernel, return_indices=True, **options)
        g = rng.normal(size=where.shape)
        wanted, places = np.zeros_like(x), np.zeros(where.shape, int)
        for o, inside in windows(
            x.shape[1:-1], *frame[:2], frame.before, frame.counts, frame.dilation
        ):
            for n, c in np.ndindex(len(x), x.shape[-1]):
                best = max(inside, key=lambda p: x[(n, *p, c)])  # the first of the largest
                wanted[(n, *best, c)] += g[(n, *o, c)]
                places[(n, *o, c)] = np.ravel_multi_index(best, x.shape[1:-1])
        assert (np.asarray(where) == places).all()
        assert_close(
            gradient(lambda x, k=kernel, o=options: pool.max_pool(x, k, **o), x, g), wanted
        )


@pytest.mark.parametrize("fill", [-np.inf, np.nan])
@pytest.mark.parametrize("padding", [0, 1])
def test_Y16_windows_of_only_infinities_or_nan_stay_inside(fill, padding):
    """The gradient goes into the window, never to the first element of all."""
    x = np.zeros((2, 6, 6, 3))
    x[1, 2:, 2:, 1] = fill
    f = lambda x: pool.max_pool(x, 3, stride=3, padding=padding)
    out, where = pool.max_pool(x, 3, stride=3, padding=padding, return_indices=True)
    assert np.array_equal(np.asarray(out)[1, -1, -1, 1], fill, equal_nan=True)
    g = np.zeros(out.shape)
    g[1, -1, -1, 1] = 1
    grads = gradient(f, x, g)
    assert grads[1, 2:, 2:, 1].sum() == 1
    assert np.count_nonzero(grads) == 1
    assert np.flatnonzero(grads[1, :, :, 1]).item() == np.asarray(where)[1, -1, -1, 1]
    everything = np.full((1, 4, 4, 1), fill)
    assert gradient(f, everything).sum() == np.asarray(f(everything)).size
    assert np.isfinite(gradient(f, everything)).all()


def test_nan_wins_and_the_first_of_them_gets_the_gradient():
    x = np.array([1.0, np.nan, 5.0, np.nan]).reshape(1, 4, 1)
    out, where = pool.max_pool(x, 4, return_indices=True)
    assert np.isnan(np.asarray(out)).all()
    assert np.asarray(where).item() == 1
    assert gradient(lambda x: pool.max_pool(x, 4), x).ravel().tolist() == [0, 1, 0, 0]


def test_infinite_cotangents_stay_with_their_winner():
    x = np.arange(6.0).reshape(1, 6, 1)
    g = np.array([np.inf, 1.0]).reshape(1, 2, 1)
    found = gradient(lambda x: pool.max_pool(x, 3), x, g).ravel().tolist()
    assert found == [0, 0, np.inf, 0, 0, 1]


# -- adaptive ---------------------------------------------------------------------------------


def test_Y17_adaptive_windows_end_at_the_ceiling(rng):
    for n, m in itertools.product(range(1, 12), range(1, 8)):
        x = rng.normal(size=(2, n, 3))
        parts = [x[:, i * n // m : -(-(i + 1) * n // m)] for i in range(m)]
        wanted = np.stack([p.mean(1) for p in parts], 1)
        assert_close(adaptive_pool.adaptive_avg_pool(x, m), wanted)
        wanted = np.stack([p.max(1) for p in parts], 1)
        assert_close(adaptive_pool.adaptive_max_pool(x, m), wanted)


def test_adaptive_grads_and_places(rng):
    for sizes, to in (((5, 7), (3, 2)), ((6, 4), (3, None)), ((2, 3), (5, 4)), ((3, 4, 5), 2)):
        x = rng.permutation(np.prod(sizes) * 4).reshape(2, *sizes, 2) * 0.5
        check_grads(lambda x, to=to: adaptive_pool.adaptive_avg_pool(x, to), x)
        check_grads(lambda x, to=to: adaptive_pool.adaptive_max_pool(x, to), x)
        out, where = adaptive_pool.adaptive_max_pool(x, to, return_indices=True)
        flat = x.reshape(2, -1, 2)
        there = np.take_along_axis(flat, np.asarray(where).reshape(2, -1, 2), 1)
        assert_close(there.reshape(out.shape), out)


def test_adaptive_ties_go_to_the_first():
    x = np.zeros((1, 5, 1))
    found = gradient(lambda x: adaptive_pool.adaptive_max_pool(x, 3), x)
    assert found.ravel().tolist() == [1, 1, 0, 1, 0]  # windows 0-1, 1-3, 3-4


# -- global, unpool ---------------------------------------------------------------------------


def test_global_pools(rng):
    for axes in (1, 2, 3):
        x = rng.permutation(2 * 3**axes * 2).reshape(2, *(3,) * axes, 2) * 0.5
        over = tuple(range(1, axes + 1))
        assert_close(pool.global_avg_pool(x), x.mean(over))
        assert_close(pool.global_max_pool(x), x.max(over))
        assert_close(pool.global_max_pool(x, keepdims=True), x.max(over, keepdims=True))
        first = np.moveaxis(x, -1, 1)
        word = ("NCL", "NCHW", "NCDHW")[axes - 1]
        found = pool.global_avg_pool(first, keepdims=True, layout=word)
        assert_close(found, first.mean(tuple(range(2, axes + 2)), keepdims=True))
        check_grads(pool.global_avg_pool, x)
        check_grads(pool.global_max_pool, x)


def test_global_max_pool_takes_the_first():
    x = np.zeros((1, 2, 3, 2))
    assert np.flatnonzero(gradient(pool.global_max_pool, x)).tolist() == [0, 1]
    x[...] = -np.inf
    assert np.flatnonzero(gradient(pool.global_max_pool, x)).tolist() == [0, 1]


def test_max_unpool_puts_back(rng):
    x = rng.permutation(2 * 6 * 4 * 3).reshape(2, 6, 4, 3) * 1.0
    out, where = pool.max_pool(x, 2, return_indices=True)
    back = np.asarray(pool.max_unpool(out, where, (6, 4)))
    assert np.array_equal(back, np.where(back != 0, x, 0))
    assert_close(np.sort(back[back != 0]), np.sort(np.asarray(out)[np.asarray(out) != 0]))
    check_grads(lambda y: pool.max_unpool(y, where, (6, 4)), np.asarray(out))
    overlapping, places = pool.max_pool(x, 3, stride=1, return_indices=True)
    again = np.asarray(pool.max_unpool(overlapping, places, (6, 4)))
    assert np.array_equal(again, np.where(again != 0, x, 0))


# -- dtypes, layouts, bytes -------------------------------------------------------------------


def test_dtypes(rng):
    x = rng.integers(-9, 9, (2, 6, 4))
    assert pool.max_pool(x, 2).dtype == x.dtype
    assert_close(pool.max_pool(x, 2), x.reshape(2, 3, 2, 4).max(2))
    assert pool.avg_pool(x, 2).dtype == dt.float32
    assert_close(pool.avg_pool(x, 2), x.reshape(2, 3, 2, 4).mean(2).astype("f"))
    single = rng.normal(size=(2, 6, 4)).astype("f")
    for f in (pool.max_pool, pool.avg_pool, adaptive_pool.adaptive_avg_pool):
        assert f(single, 4).dtype == dt.float32
    for half in dt.HALF:  # the sum of a window leaves float16's range, the mean does not
        out = pool.avg_pool(rg.full((1, 8, 1), 6e4, dtype=half), 8)
        assert out.dtype == half
        assert np.isfinite(np.asarray(out).astype("f")).all()


def test_layouts(rng):
    x = rng.normal(size=(2, 5, 6, 3))
    first = np.moveaxis(x, -1, 1)
    for f in (
        lambda x, **o: pool.max_pool(x, (2, 3), padding=1, **o),
        lambda x, **o: pool.avg_pool(x, 2, padding="same", **o),
        lambda x, **o: pool.lp_pool(x, 2, 2, **o),
        lambda x, **o: adaptive_pool.adaptive_avg_pool(x, (2, 4), **o),
        lambda x, **o: adaptive_pool.adaptive_max_pool(x, (2, 4), **o),
    ):
        assert_close(np.moveaxis(np.asarray(f(first, layout="NCHW")), 1, -1), f(x))


def test_vmap(rng):
    x = rng.permutation(2 * 3 * 5 * 2).reshape(2, 3, 5, 2) * 0.5
    for f in (
        lambda x: pool.max_pool(x, 2, padding=1),
        lambda x: pool.avg_pool(x, 2),
        lambda x: adaptive_pool.adaptive_avg_pool(x, 3),
        rg.grad(lambda x: rg.sum(pool.max_pool(x, 2) ** 2)),
    ):
        assert_close(rg.vmap(f)(x), np.stack([np.asarray(f(rg.asarray(row))) for row in x]))


def test_what_is_kept(rng):
    """The largest keep x, which most neighbours keep anyway; means keep nothing of x."""
    x = rng.normal(size=(2, 8, 8, 4))
    leaf = rg.tensor(x, requires_grad=True)
    kept = lambda y: rg.debug.graph(rg.sum(y)).nbytes
    assert kept(pool.max_pool(leaf, 2)) == x.nbytes
    assert kept(pool.avg_pool(leaf, 2)) <= 8
    assert kept(pool.avg_pool(leaf, 3, padding=1, count_include_pad=False)) <= 8 * 9
    assert kept(adaptive_pool.adaptive_avg_pool(leaf, 3)) <= 8 * 6
    assert kept(pool.global_max_pool(leaf)) == 2 * 4 * 8


# -- what is refused --------------------------------------------------------------------------

X = np.ones((2, 5, 5, 4))


@pytest.mark.parametrize(
    ("f", "error", "sentence"),
    [
        (lambda: pool.max_pool(X, 6), rg.ShapeError, "spatial axis 0 has 5"),
        (lambda: pool.max_pool(X, 2, stride=0), rg.ArgumentError, "stride must be at least 1"),
        (lambda: pool.max_pool(X, 0), rg.ArgumentError, "kernel must be at least 1"),
        (lambda: pool.max_pool(X, 2, padding=2), rg.ShapeError, "holds no element"),
        (lambda: pool.max_pool(X, (2, 2, 2)), rg.ArgumentError, "3 numbers for 2"),
        (lambda: pool.max_pool(X[0, 0], 2), rg.ShapeError, "at least one spatial axis"),
        (lambda: pool.max_pool(X + 1j, 2), rg.DtypeError, "real dtypes"),
        (lambda: pool.max_pool(X, 2, layout="CNHW"), rg.ArgumentError, "does not name"),
        (lambda: pool.avg_pool(X, 7), rg.ShapeError, "spans 7 places"),
        (lambda: pool.avg_pool(X, 2, padding="full"), rg.ArgumentError, "is not one of"),
        (lambda: pool.lp_pool(X, 0, 2), rg.ArgumentError, "p must be more than 0"),
        (lambda: adaptive_pool.adaptive_avg_pool(X, 0), rg.ArgumentError, "at least 1"),
        (lambda: adaptive_pool.adaptive_avg_pool(X, (1, 2, 3)), rg.ArgumentError, "3 numbers"),
        (lambda: adaptive_pool.adaptive_max_pool(X[:, :0], 2), rg.ShapeError, "length 0"),
        (lambda: pool.max_unpool(X, np.zeros((2, 5, 5, 3), int), 9), rg.ShapeError, "of y"),
        (lambda: pool.max_unpool(X, np.full(X.shape, 81), 9), rg.BoundsError, "index 81"),
    ],
)
def test_Y22_refusals_are_errors_that_say_what_is_right(f, error, sentence):
    with pytest.raises(error) as raised:
        f()
    assert sentence in str(raised.value)


def test_Y23_large_strides_are_whole_numbers(rng):
    x = rng.normal(size=(1, 65539, 1))
    assert_close(pool.max_pool(x, 1, stride=65537), x[:, [0, 65537]])
    assert np.flatnonzero(
        gradient(lambda x: pool.avg_pool(x, 1, stride=65537), x)
    ).tolist() == [
        0,
        65537,
    ]


def test_empty_batches():
    x = np.ones((0, 4, 4, 2))
    assert pool.max_pool(x, 2).shape == (0, 2, 2, 2)
    assert pool.avg_pool(x, 2).shape == (0, 2, 2, 2)
    assert adaptive_pool.adaptive_avg_pool(x, 3).shape == (0, 3, 3, 2)
    assert adaptive_pool.adaptive_max_pool(x, 3).shape == (0, 3, 3, 2)
    assert pool.global_max_pool(x).shape == (0, 2)
    assert gradient(lambda x: pool.max_pool(x, 2), x).shape == x.shape
