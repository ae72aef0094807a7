"""Ops that programs once called Python for: their edges, to the bit or to the error."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.control import pairs
from retrograd.core.op import REGISTRY
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.testing.compare import assert_close


def program(f, arrays):
    """f compiled for arrays like these, as a function of arrays."""

    def listed(*xs):
        out = f(*xs)
        return list(out) if isinstance(out, tuple | list) else [out]

    graph, captured = trace(listed, [spec_of(a) for a in arrays])
    built = compiled(graph)
    run = Executable(built)
    return built, lambda *xs: run([*xs, *(t.array for t in captured)])


def hosts(built):
    """The names of the ops that a program calls Python for."""
    return [s.graph.nodes[s.nodes[0]].op.name for s in built.steps if s.what[:4] == "host"]


def both(f, *arrays):
    """What f gives compiled, without Python, and what NumPy gives."""
    built, run = program(f, arrays)
    assert hosts(built) == []
    wanted = f(*map(rg.asarray, arrays))
    wanted = wanted if isinstance(wanted, tuple | list) else [wanted]
    return run(*arrays), [w.array for w in wanted]


def same_bits(f, *arrays):
    for got, want in zip(*both(f, *arrays), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        fine = ~np.isnan(want)
        np.testing.assert_array_equal(got[fine], want[fine])
        np.testing.assert_array_equal(np.signbit(got[fine]), np.signbit(want[fine]))


def close(f, *arrays):
    for got, want in zip(*both(f, *arrays), strict=True):
        assert got.dtype == want.dtype
        assert_close(got, want)


# -- division ----------------------------------------------------------------------------------

DIVIDING = [rg.floor_divide, rg.remainder, rg.fmod]


def floats(dtype):
    """All sizes: any bit pattern, whole numbers, and the special ones against each other."""
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 256, (2, 2000 * dtype.itemsize), np.uint8)
    x, y = (np.ascontiguousarray(b).view(dtype) for b in bits)
    info = np.finfo(dtype)
    least = info.smallest_subnormal
    odd = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.5, -3.0, info.max, info.tiny, least]
    odd = np.array([*odd, -least, -info.max, 1e4, 0.1], dtype)
    pairs = np.stack([a.reshape(-1) for a in np.meshgrid(odd, odd)])
    near = rng.normal(size=(2, 1000)).astype(dtype) * np.array([[1000.0], [1.0]], dtype)
    whole = rng.integers(-9, 9, (2, 500)).astype(dtype)
    return np.concatenate([np.stack([x, y]), pairs, near, whole], 1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("f", DIVIDING, ids=lambda f: f.__name__)
def test_float_division_is_numpys_to_the_bit(f, dtype):
    same_bits(f, *floats(np.dtype(dtype)))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("f", DIVIDING, ids=lambda f: f.__name__)
def test_integer_division_has_no_undefined_operands(f, dtype):
    info = np.iinfo(dtype)
    odd = np.array([info.min, info.max, 0, 1, 2, 3, 7, info.max - 1, info.min + 1], dtype)
    odd = np.concatenate([odd, -odd])
    same_bits(f, *(a.reshape(-1) for a in np.meshgrid(odd, odd)))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64])
def test_shifts_by_any_number_of_places(dtype):
    x = np.array([[0], [1], [77], [np.iinfo(dtype).max], [np.iinfo(dtype).min]], dtype)
    by = np.array([0, 1, 5, 7, 8, 31, 32, 63, 64, 100], dtype)
    same_bits(rg.bitwise_left_shift, x, by)
    same_bits(rg.bitwise_right_shift, x, by)


# -- indices -----------------------------------------------------------------------------------

INDEXING = [
    lambda x, i: x[i],
    lambda x, i: x[:, i],
    lambda x, i: x[i, i],
    lambda x, i: x.at[i].add(1.0),
    lambda x, i: x.at[i].set(2.0),
    lambda x, i: x.at[i].multiply(2.0),
    lambda x, i: x.at[i].max(0.5),
    lambda x, i: x.at[i].min(0.5),
    lambda x, i: rg.take(x, i, axis=1),
    lambda x, i: rg.take_along_axis(x, i[:, None], axis=0),
    lambda x, i: rg.scatter(x, i[:, None], 3.0, axis=0),
    lambda x, i: rg.scatter_add(x, i[:, None], 3.0, axis=0),
]


@pytest.mark.parametrize("number", range(len(INDEXING)))
@pytest.mark.parametrize("dtype", [np.int64, np.int8])
def test_indices_count_from_the_end_and_may_repeat(number, dtype):
    x = np.random.default_rng(0).normal(size=(5, 5))
    close(INDEXING[number], x, np.array([0, -1, 4, 2, 2, -5], dtype))


@pytest.mark.parametrize("number", range(len(INDEXING)))
@pytest.mark.parametrize("bad", [5, -6, 2**40])
def test_an_index_outside_is_a_bounds_error_with_the_users_line(number, bad):
    x, fine = np.ones((5, 5)), np.array([0, 1, 2, 2])
    _, run = program(INDEXING[number], (x, fine))
    run(x, fine)
    with pytest.raises(rg.BoundsError, match=r"test_lowered\.py"):
        run(x, np.array([0, 1, bad, 2]))
    run(x, fine)


def test_the_line_is_that_of_the_indexing_not_of_its_reader():
    def f(x, i):
        found = x[i]
        return found * 2.0 + rg.sin(found)

    x = np.ones((5, 3))
    _, run = program(f, (x, np.zeros(4, np.int64)))
    line = f.__code__.co_firstlineno + 1
    with pytest.raises(rg.BoundsError, match=rf"test_lowered.py:{line}"):
        run(x, np.array([0, 1, 2, 5]))


def test_an_index_that_is_not_looked_up_is_not_wrong():
    def f(x, y, i):
        return rg.concat([x[i - 3], y], axis=0)  # beside x[...] there is no i

    x, y = np.ones((2, 9)), np.zeros((6, 9))
    close(f, x, y, np.array([3, 4, 3]))
    _, run = program(f, (x, y, np.array([3, 4, 3])))
    with pytest.raises(rg.BoundsError):
        run(x, y, np.array([3, 0, 3]))


def test_embedding_refuses_negative_rows():
    weight = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    ids = np.array([[0, 5], [1, 1]])
    close(lambda w, i: rg.embedding(i, w), weight, ids)
    _, run = program(lambda w, i: rg.embedding(i, w), (weight, ids))
    with pytest.raises(rg.BoundsError):
        run(weight, np.array([[0, 5], [-1, 1]]))
    with pytest.raises(rg.BoundsError):
        run(weight, np.array([[0, 6], [0, 1]]))


def test_embedding_and_its_gradient_run_without_python():
    rng = np.random.default_rng(1)
    weight, ids = rng.normal(size=(7, 40)), rng.integers(0, 7, (3, 20))

    def loss(w, i):
        return rg.sum(rg.embedding(i, w) ** 2)

    close(rg.grad(loss), weight, ids)


def test_cross_entropy_and_its_gradient_run_without_python():
    rng = np.random.default_rng(2)
    x, labels = rng.normal(size=(9, 5)), rng.integers(0, 5, 9)
    close(rg.grad(rg.nn.cross_entropy), x, labels)


def test_the_last_write_wins_and_alone_has_a_gradient():
    rng = np.random.default_rng(3)
    x, values = rng.normal(size=(4, 33)), rng.normal(size=(6, 33))
    targets, weights = np.array([1, 3, 1, 0, 3, 1]), rng.normal(size=(4, 33))

    def f(x, v, t):
        def written(x, v):
            return rg.sum(x.at[t].set(v) * weights)

        return [x.at[t].set(v), *rg.grad(written, argnums=(0, 1))(x, v)]

    close(f, x, values, targets)


# -- searching, resizing, pools ----------------------------------------------------------------


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 8, 9, 100])
def test_searchsorted_at_every_length(side, length):
    rng = np.random.default_rng(length)
    edges = np.sort(rng.integers(-9, 9, length)).astype(np.float64)
    if length > 3:
        edges[-2:] = np.nan
    x = np.append(rng.integers(-12, 12, 50) * 0.5, [np.nan, np.inf, -np.inf])
    same_bits(lambda e, x: rg.searchsorted(e, x, side=side), edges, x)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "area"])
@pytest.mark.parametrize("size", [(9, 4), (2, 21)])
def test_resize_and_its_gradient(mode, size):
    x = np.random.default_rng(4).normal(size=(2, 20, 6, 3))

    def f(x):
        def total(x):
            return rg.sum(rg.nn.resize(x, size, mode=mode) ** 2)

        return [rg.nn.resize(x, size, mode=mode), rg.grad(total)(x)]

    close(f, x)


def test_complex_numbers_from_parts_keep_each_part():
    odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5])
    re, im = (a.reshape(-1) for a in np.meshgrid(odd, odd))
    found, wanted = both(rg.make_complex, re, im)
    np.testing.assert_array_equal(found[0].view(np.float64), wanted[0].view(np.float64))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_nextafter_steps_to_the_next_number(dtype):
    info = np.finfo(dtype)
    odd = [0.0, 1.0, 1.5, info.tiny, info.smallest_subnormal, info.max, np.inf, np.nan]
    odd = np.array([*odd, 3 * info.smallest_subnormal, 2 * info.tiny], dtype)
    odd = np.concatenate([odd, -odd])
    same_bits(rg.nextafter, *(a.reshape(-1) for a in np.meshgrid(odd, odd)))


# -- special functions -------------------------------------------------------------------------

SPECIAL = {
    "erfinv": np.append(np.linspace(-1, 1, 201), [1.5, -2.0, np.nan, 1e-300, 1 - 1e-16]),
    "ndtri": np.append(np.linspace(0, 1, 201), [1.5, -1.0, np.nan, 1e-300, 1e-20]),
    "log_ndtr": np.append(np.linspace(-40, 10, 301), [-np.inf, np.inf, np.nan, -1.0, -1e8]),
    "lgamma": np.append(np.linspace(-6, 12, 301), [np.inf, -np.inf, np.nan, 1e-300, 1e17]),
    "digamma": np.append(np.linspace(-6, 12, 301), [np.inf, np.nan, -0.0, 1e-300, 1e17]),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions_in_all_their_branches(name, dtype):
    close(getattr(rg.special, name), SPECIAL[name].astype(dtype))


def test_the_slopes_of_the_normal_law():
    x = np.linspace(-12, 8, 200)
    close(rg.grad(lambda x: rg.sum(rg.special.log_ndtr(x))), x)
    close(rg.grad(lambda x: rg.sum(rg.nn.gelu(x))), x)


# -- layers that walk through time -------------------------------------------------------------


def test_attention_and_its_gradient_run_without_python():
    q, k, v = np.random.default_rng(6).normal(size=(3, 2, 7, 4, 8))

    def loss(q, k, v):
        return rg.sum(rg.nn.attention(q, k, v, causal=True) ** 2)

    close(rg.grad(loss, argnums=(0, 1, 2)), q, k, v)


@pytest.mark.parametrize("backwards", [False, True])
def test_a_recurrent_layer_is_one_loop_however_long(backwards):
    rng = np.random.default_rng(7)
    sizes = [(12, 3, 2), (2, 16), (4, 16), (16,), (3, 4), (3, 4)]
    xs = [rng.normal(size=s) for s in sizes]
    lengths = np.array([12, 0, 5])
    layer = rg.core.op.REGISTRY["Lstm"](backwards)

    def loss(*xs):
        return rg.sum(rg.apply(layer, *xs)[0] ** 2)

    def f(*xs):
        return rg.grad(loss, argnums=tuple(range(6)))(*xs)

    close(f, *xs, lengths)
    built, run = program(f, (*xs, lengths))
    assert sum(s.what.startswith("lstm") for s in built.steps) == 2
    with pytest.raises(rg.ArgumentError, match="lengths must be from 0 to 12"):
        run(*xs, np.array([12, 13, 5]))


# -- special functions, pairs, boxes ----------------------------------------------------------


def test_python_is_called_for_libraries_sorting_and_effects_alone():
    reasons = {kind.host for kind in REGISTRY.values() if kind.host and not kind.bodied}
    words = ("LAPACK", "FFT", "sort", "SciPy", "it prints", "it raises", "it looks for NaN")
    assert [r for r in reasons if not any(w in r for w in words)] == []


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 20, 500])
def test_polygamma_everywhere(n, dtype, rng):
    x = [rng.uniform(0.01, 20, 99), 10.0 ** rng.uniform(-8, 8, 99), rng.uniform(-12, 0, 99)]
    edges = [0.0, -1.0, -2.5, np.inf, np.nan, 1e-310]
    x = np.concatenate([*x, edges]).astype(dtype)
    (found,), (wanted,) = both(lambda x: rg.special.polygamma(n, x), x)
    finite = np.isfinite(wanted)
    assert np.array_equal(found[~finite], wanted[~finite], equal_nan=True)
    np.testing.assert_allclose(found[finite], wanted[finite], rtol=1024 * np.finfo(dtype).eps)


def test_zeta_of_many_powers(rng):
    s, q = rng.uniform(1.01, 30, (9, 1)), 10.0 ** rng.uniform(-3, 3, 50)
    assert_close(*both(rg.special.zeta, s, q))
    (found,), _ = both(rg.special.zeta, np.array([0.5, 2.0, 2.0]), np.array([1.0, -1.0, 0.0]))
    assert np.array_equal(found, [np.nan, np.nan, np.inf], equal_nan=True)


def test_gradients_of_gamma_draws_are_native(rng):
    key, a = rg.random.key(3).array, 10.0 ** rng.uniform(-1, 2, 60)

    def f(key, a):
        return rg.grad(lambda a: rg.sum(rg.random.gamma(key, a) ** 2))(a)

    assert_close(*both(f, key, a))


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
def test_sums_over_pairs_in_tiles(metric, others, rng, monkeypatch):
    monkeypatch.setattr(pairs, "ROWS", 16)
    monkeypatch.setattr(pairs, "COLUMNS", 24)
    x, w = rng.normal(size=(53, 3)), rng.normal(size=(53, 2))

    def f(x, w, scale):
        def total(x, w, scale):
            body = lambda d: rg.exp(-scale * d)
            options = {"metric": metric, "others": others, "weights": w}
            return rg.sum(rg.distances.pair_reduce(body, x, **options) ** 2)

        value, slopes = rg.value_and_grad(total, (0, 1, 2))(x, w, scale)
        return [value, *slopes]

    assert_close(*both(f, x, w, np.asarray(0.7)))


@pytest.mark.parametrize("size", [0, 3, 40, 70])
def test_boxes_that_survive(size, rng):
    corner = rng.uniform(size=(2, 60, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(0.05, 0.3, (2, 60, 2))], -1)
    scores = np.round(rng.uniform(size=(2, 60)), 1)  # with many that are equal
    scores[0, :3] = np.nan, np.inf, -np.inf
    f = lambda boxes, scores: rg.nn.nms(boxes, scores, threshold=0.3, size=size)
    built, run = program(f, (boxes, scores))
    assert set(hosts(built)) <= {"argsort"}
    (found,) = run(boxes, scores)
    assert np.array_equal(found, f(boxes, scores))
