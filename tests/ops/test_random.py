"""rg.random: the bits are core.rng's, and every transform leaves them as they are.

The laws themselves are tested in tests/core/test_rng.py. Seeds are fixed, so a statistic is
the same on every run; bounds are four and a half standard errors.
"""

import math

import numpy as np
import pytest

import retrograd as rg
from retrograd import random
from retrograd.core import rng as bits
from retrograd.core import rng_gamma
from retrograd.core.errors import (
    ArgumentError,
    DerivativeError,
    DtypeError,
    RetrogradError,
    ShapeError,
)
from retrograd.core.interpret import apply
from retrograd.core.spec import Spec
from retrograd.ir.evaluate import evaluate
from retrograd.ir.trace import trace
from retrograd.ops.random import Between
from retrograd.ops.random_gamma import GammaSlope, RandomGamma
from retrograd.testing.check import check_grads

F32, F64 = np.dtype("f4"), np.dtype("f8")
KEY = random.key(7)
floats = pytest.mark.parametrize("dtype", [F32, F64], ids=str)


def values(x):
    return np.asarray(x)


def same(a, b):
    """Equal to the bit, in shape and in dtype."""
    a, b = values(a), values(b)
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)


DRAWS = {
    "bits": (lambda k: random.bits(k, (3, 2)), lambda k: bits.bits(k, (3, 2))),
    "split": (lambda k: random.split(k, 3), lambda k: bits.split(k, 3)),
    "fold_in": (lambda k: random.fold_in(k, 5), lambda k: bits.fold_in(k, 5)),
    "uniform": (lambda k: random.uniform(k, (3, 2)), lambda k: bits.uniform(k, (3, 2), F32)),
    "uniform64": (
        lambda k: random.uniform(k, 5, dtype=F64),
        lambda k: bits.uniform(k, 5, F64),
    ),
    "normal": (lambda k: random.normal(k, (3, 2)), lambda k: bits.normal(k, (3, 2), F32)),
    "normal64": (
        lambda k: random.normal(k, 4, dtype=F64),
        lambda k: bits.normal(k, 4, F64),
    ),
    "exponential": (lambda k: random.exponential(k, 4), lambda k: bits.exponential(k, 4, F32)),
    "gumbel": (lambda k: random.gumbel(k, 4), lambda k: bits.gumbel(k, 4, F32)),
    "truncated": (
        lambda k: random.truncated_normal(k, 4, lower=1.0, upper=math.inf),
        lambda k: bits.truncated_normal(k, 1.0, math.inf, 4, F32),
    ),
    "bernoulli": (lambda k: random.bernoulli(k, 0.3, 9), lambda k: bits.bernoulli(k, 0.3, 9)),
    "randint": (
        lambda k: random.randint(k, 9, low=-5, high=7),
        lambda k: bits.randint(k, 9, -5, 7),
    ),
    "permutation": (lambda k: random.permutation(k, 9), lambda k: bits.permutation(k, 9)),
    "poisson": (lambda k: random.poisson(k, 2.5, 9), lambda k: bits.poisson(k, 2.5, 9)),
    "gamma": (
        lambda k: random.gamma(k, np.full(4, 0.7)),
        lambda k: bits.gamma(k, 0.7, 4, F64),
    ),
}
draws = pytest.mark.parametrize(("draw", "right"), DRAWS.values(), ids=DRAWS)
COMPOSED = {
    "beta": lambda k: random.beta(k, 0.4, 2.0, 5),
    "dirichlet": lambda k: random.dirichlet(k, np.array([0.5, 2.0, 1.0]), 4),
    "categorical": lambda k: random.categorical(k, np.array([0.0, 1.0, -1.0]), 8),
    "shuffle": lambda k: random.shuffle(k, np.arange(12).reshape(2, 6), axis=1),
    "choice": lambda k: random.choice(k, 9, 4),
    "choice_once": lambda k: random.choice(k, 9, 4, replace=False),
    "choice_weighted": lambda k: random.choice(k, np.eye(3), (2, 2), p=[1, 2, 1], axis=1),
    "choice_weighted_once": lambda k: random.choice(k, 3, 2, replace=False, p=[1, 2, 1]),
    "between": lambda k: random.uniform(k, 5, low=-1.0, high=4.0),
}
ALL = {**{name: draw for name, (draw, _) in DRAWS.items()}, **COMPOSED}
everything = pytest.mark.parametrize("draw", ALL.values(), ids=ALL)


# -- the same bits everywhere --------------------------------------------------------------


def test_a_key_is_a_tensor():
    assert same(random.key(2**40 + 3), bits.key(2**40 + 3))


@draws
def test_draws_are_those_of_core(draw, right):
    assert same(draw(KEY), right(values(KEY)))


@everything
def test_the_same_key_draws_the_same_and_another_key_another(draw):
    assert same(draw(KEY), draw(random.key(7)))
    assert any(not same(draw(KEY), draw(random.key(s))) for s in range(20, 25))


@everything
def test_mapped_over_keys_is_the_loop(draw):
    keys = random.split(KEY, 4)
    rows = [values(draw(keys[i])) for i in range(4)]
    assert same(rg.vmap(draw)(keys), np.stack(rows))
    nested = rg.vmap(rg.vmap(draw))(rg.reshape(keys, (2, 2, 2)))
    assert same(nested, np.stack(rows).reshape(2, 2, *rows[0].shape))


@everything
def test_traced_once_it_draws_by_any_key(draw):
    graph, hidden = trace(lambda key: [draw(key)], [Spec((2,), np.dtype("u4"))])
    for seed in (7, 8):
        (found,) = evaluate(graph, random.key(seed), *hidden)
        assert same(found, draw(random.key(seed)))


@everything
def test_inside_other_transforms(draw):
    """A key that grad, jvp or a checkpoint closes over, or is given."""
    right = draw(KEY)
    assert same(rg.checkpoint(draw)(KEY), right)
    assert same(rg.jvp(lambda x: (x, draw(KEY)), (1.0,), (1.0,))[0][1], right)


@pytest.mark.parametrize("wrap", [lambda f: f, rg.checkpoint], ids=["plain", "checkpoint"])
def test_dropout_like_masks_agree_between_forward_and_backward(wrap):
    x = rg.tensor(np.arange(1.0, 51), requires_grad=True)

    @wrap
    def f(x, key):
        noisy = rg.exp(x * random.normal(key, (50,), std=0.01, dtype=F64))
        return noisy * random.bernoulli(random.fold_in(key, 1), 0.5, (50,))

    rg.sum(f(x, KEY)).backward()
    z = 0.01 * bits.normal(values(KEY), 50, F64)
    mask = bits.bernoulli(bits.fold_in(values(KEY), 1), 0.5, 50)
    np.testing.assert_allclose(x.grad, mask * z * np.exp(values(x) * z), rtol=1e-14)


def test_checkpoint_changes_no_bit_of_a_gradient():
    def f(a, key):
        return rg.sum(random.gamma(key, a) * random.normal(random.fold_in(key, 3), (6,)))

    a = np.linspace(0.2, 4, 6)
    plain = rg.grad(f)(a, KEY)
    assert same(rg.grad(rg.checkpoint(f))(a, KEY), plain)
    assert same(rg.grad(f)(a, KEY), plain)


def test_keys_may_be_folded_with_traced_numbers():
    steps = np.arange(5)
    rows = rg.vmap(lambda s: random.bits(random.fold_in(KEY, s), 3))(steps)
    wanted = [bits.bits(bits.fold_in(values(KEY), int(s)), 3) for s in steps]
    assert same(rows, np.stack(wanted))


def test_mapped_parameters_share_an_unmapped_key():
    a = np.array([[0.5, 2.0], [3.0, 0.1]])
    rows = rg.vmap(lambda a: random.gamma(KEY, a))(a)
    assert same(rows, np.stack([values(random.gamma(KEY, row)) for row in a]))
    p = np.array([0.1, 0.9])
    rows = rg.vmap(lambda p: random.bernoulli(KEY, p, 20))(p)
    assert same(rows, np.stack([values(random.bernoulli(KEY, q, 20)) for q in p]))


# -- shapes and dtypes ---------------------------------------------------------------------

CONTINUOUS = {
    "uniform": (random.uniform, "high"),
    "normal": (random.normal, "std"),
    "exponential": (random.exponential, "scale"),
    "gumbel": (random.gumbel, "scale"),
    "truncated_normal": (random.truncated_normal, "std"),
}
continuous = pytest.mark.parametrize(("f", "name"), CONTINUOUS.values(), ids=CONTINUOUS)


@continuous
def test_shape_and_dtype_are_those_of_the_parameters_or_as_told(f, name):
    assert f(KEY).spec == Spec((), F32)
    assert f(KEY, 3).spec == Spec((3,), F32)
    assert f(KEY, (2, 0)).spec == Spec((2, 0), F32)
    assert f(KEY, **{name: 2.0}).spec == Spec((), F32)
    assert f(KEY, 2, **{name: np.float64(2.0)}).spec == Spec((2,), F32)
    assert f(KEY, 2, **{name: 2}).spec == Spec((2,), F32)
    assert f(KEY, **{name: np.ones((3, 1))}).spec == Spec((3, 1), F64)
    assert f(KEY, (2, 3), **{name: np.ones(3)}, dtype=F32).spec == Spec((2, 3), F32)
    assert f(KEY, (2, 3), **{name: rg.ones(3)}, dtype=F64).spec == Spec((2, 3), F64)
    assert f(KEY, (2,), **{name: np.arange(1, 3)}).spec == Spec((2,), F32)


def test_discrete_draws_take_dtypes():
    assert random.randint(KEY, 3, high=9, dtype=np.uint8).dtype == np.uint8
    assert random.poisson(KEY, 3.0, dtype=F32).spec == Spec((), F32)
    assert random.poisson(KEY, np.arange(4)).spec == Spec((4,), np.dtype("i8"))
    assert random.bernoulli(KEY, np.float32([0.5])).spec == Spec((1,), np.dtype("?"))
    assert random.categorical(KEY, np.array([1, 2])).spec == Spec((), np.dtype("i8"))
    assert random.gamma(KEY, 2).spec == Spec((), F32)
    assert random.beta(KEY, 2, np.ones(3)).spec == Spec((3,), F64)
    assert random.dirichlet(KEY, [1.0, 2.0], (4, 3)).spec == Spec((4, 3, 2), F32)


# -- gradients -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "low"),
    [
        (lambda a, b: random.uniform(KEY, (3, 2), low=a, high=b + 4), -1),
        (lambda a, b: random.normal(KEY, (3, 2), mean=a, std=b), 0.5),
        (lambda a, b: random.gumbel(KEY, (3, 2), loc=a, scale=b), 0.5),
        (lambda a, b: random.exponential(KEY, (3, 2), scale=a * b), 0.5),
        (lambda a, b: random.truncated_normal(KEY, (3, 2), mean=a, std=b), 0.5),
        (
            lambda a, b: random.truncated_normal(KEY, (3, 2), lower=2.0, mean=a * b, upper=9.0),
            1,
        ),
        (lambda a, b: random.gamma(KEY, 2.0, (3, 2), scale=a * b, dtype=F64), 0.5),
        (lambda a, b: random.permutation(KEY, a * b, axis=0), 0.5),
    ],
    ids=["uniform", "normal", "gumbel", "exponential", "truncated", "tail", "scale", "order"],
)
def test_gradients_in_place_and_scale_are_those_of_differences(f, low):
    a, b = np.array([low, low + 0.5]), np.array([[0.5], [1.0], [1.5]])
    check_grads(f, a, b)


@floats
def test_gradients_have_the_dtype_of_their_parameter(dtype):
    for f in (
        lambda a: random.normal(KEY, (2, 3), mean=a, dtype=F64),
        lambda a: random.uniform(KEY, (2, 3), high=a, dtype=F32),
        lambda a: random.gamma(KEY, a, (2, 3), dtype=F64),
        lambda a: random.beta(KEY, a, 2.0),
        lambda a: random.dirichlet(KEY, a),
    ):
        found = rg.grad(lambda a, f=f: rg.sum(f(a) * 1.0))(np.ones(3, dtype))
        assert found.spec == Spec((3,), dtype)


def test_bounds_of_a_truncated_normal_are_not_differentiated():
    def f(upper):
        return random.truncated_normal(KEY, upper=upper)

    with pytest.raises(DerivativeError, match="rejects what is outside its bounds"):
        rg.grad(f)(1.0)


QUANTILES = [0.01, 0.2, 0.5, 0.9, 0.999]


@pytest.mark.parametrize("a", [0.05, 0.4, 1.0, 3.0, 90.0])
def test_the_first_slope_of_gamma_is_that_of_core(a):
    special = pytest.importorskip("scipy.special")
    x = special.gammaincinv(a, QUANTILES)
    found = x * values(apply(GammaSlope(), a, np.log(x)))
    np.testing.assert_allclose(found, rng_gamma.gamma_slope(a, x), rtol=1e-11)


@pytest.mark.parametrize("a", [0.4, 1.0, 3.0, 90.0])
def test_two_derivatives_of_gamma_are_those_of_the_quantile(a):
    special = pytest.importorskip("scipy.special")
    draw = values(random.gamma(KEY, np.full(40, a)))
    share, h = special.gammainc(a, draw), 2e-3 * a
    grid = [special.gammaincinv(a + k * h, share) for k in (-2, -1, 0, 1, 2)]
    first = (grid[0] - 8 * grid[1] + 8 * grid[3] - grid[4]) / (12 * h)
    second = (16 * (grid[1] + grid[3]) - grid[0] - 30 * grid[2] - grid[4]) / (12 * h * h)

    def f(a):
        return random.gamma(KEY, a, 40)

    a = np.float64(a)
    one = rg.jvp(f, (a,), (np.float64(1),))[1]
    two = rg.jvp(lambda a: rg.jvp(f, (a,), (np.float64(1),))[1], (a,), (np.float64(1),))[1]
    np.testing.assert_allclose(one, first, rtol=1e-7)
    np.testing.assert_allclose(two, second, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(rg.jacrev(f)(a), one, rtol=1e-13)
    np.testing.assert_allclose(rg.jacrev(rg.jacrev(f))(a), two, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("i", "j"), [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize(("a", "y"), [(0.01, -90.0), (0.3, -2.0), (0.3, 1.0), (40.0, 3.7)])
def test_gamma_slopes_in_fifty_digits(a, y, i, j):
    mp = pytest.importorskip("mpmath").mp

    def slope(b, z):
        x, e = mp.exp(z), b * mp.mpf(10) ** -16
        ends = (0, x) if z < mp.digamma(b) else (x, mp.inf)
        up, down = (mp.gammainc(b + s * e, *ends, regularized=True) for s in (1, -1))
        density = mp.exp(b * z - x - mp.loggamma(b))
        return (down - up if ends[0] == 0 else up - down) / (2 * e) / density

    with mp.workdps(50):
        right = mp.diff(slope, (a, y), (i, j), h=mp.mpf(a) * mp.mpf(10) ** -7)
    found = apply(GammaSlope(i, j), np.float64(a), np.float64(y))
    assert float(found) == pytest.approx(float(right), rel=1e-8, abs=1e-20)


@floats
def test_gamma_draws_that_underflow_have_derivative_zero(dtype):
    a = np.full(50, 1e-4, dtype)
    x = random.gamma(KEY, a)
    assert (values(x) == 0).mean() > 0.5
    slopes = rg.grad(lambda a: rg.sum(random.gamma(KEY, a)))(a)
    curves = rg.grad(lambda a: rg.sum(rg.grad(lambda a: rg.sum(random.gamma(KEY, a)))(a)))(a)
    for found in (slopes, curves):
        assert np.all(np.isfinite(found))
        assert not values(found)[values(x) == 0].any()


def test_the_mean_of_gamma_slopes_is_the_slope_of_the_mean():
    """E[x] = a and E[x**2] = a (a + 1): the derivatives of both, by the draws' own."""
    n = 40000
    for a in (0.3, 1.0, 5.0):
        full = np.full(n, a)
        x = values(random.gamma(KEY, full))
        s = values(rg.grad(lambda a: rg.sum(random.gamma(KEY, a)))(full))
        for found, right in ((s, 1.0), (2 * x * s, 2 * a + 1)):
            assert abs(found.mean() - right) < 4.5 * found.std() / math.sqrt(n)


@floats
@pytest.mark.parametrize("small", [1e-3, 0.05, 2.0])
def test_beta_with_small_parameters(small, dtype):
    """E[x] = a / (a + b), and its derivative; nothing is nan where all is 0 or 1."""
    n = 20000
    a, b = np.full(n, small, dtype), np.full(n, 2 * small, dtype)
    x = values(random.beta(KEY, a, b))
    assert x.dtype == dtype
    assert np.all((x >= 0) & (x <= 1))
    assert abs(x.mean() - 1 / 3) < 4.5 * x.std() / math.sqrt(n)
    s = values(rg.grad(lambda a: rg.sum(random.beta(KEY, a, b)))(a))
    assert np.all(np.isfinite(s))
    if small > 0.01:  # below, the slope is in few rare draws
        assert abs(s.mean() - 2 / (9 * small)) < 4.5 * s.std() / math.sqrt(n)


def test_dirichlet_shares():
    alpha, n = np.array([0.3, 1.0, 4.0]), 20000
    x = values(random.dirichlet(KEY, alpha, n))
    np.testing.assert_allclose(x.sum(-1), 1, rtol=1e-14)
    error = 4.5 * x.std(0) / math.sqrt(n)
    assert np.all(np.abs(x.mean(0) - alpha / alpha.sum()) < error)
    s = values(
        rg.vmap(rg.grad(lambda a, k: random.dirichlet(k, a)[0]), in_axes=(None, 0))(
            alpha, random.split(KEY, 300)
        )
    )
    wanted = (alpha.sum() * np.array([1, 0, 0]) - alpha[0]) / alpha.sum() ** 2
    assert np.all(np.abs(s.mean(0) - wanted) < 4.5 * s.std(0) / math.sqrt(300))


# -- laws ----------------------------------------------------------------------------------

MOMENTS = {
    "uniform": (lambda n: random.uniform(KEY, n, low=-1, high=3), 1, 16 / 12),
    "normal": (lambda n: random.normal(KEY, n, mean=2, std=3), 2, 9),
    "exponential": (lambda n: random.exponential(KEY, n, scale=2), 2, 4),
    "gumbel": (
        lambda n: random.gumbel(KEY, n, loc=1, scale=2),
        1 + 2 * 0.5772156649015329,
        4 * math.pi**2 / 6,
    ),
    "gamma": (lambda n: random.gamma(KEY, 0.7, n, scale=2), 1.4, 2.8),
    "poisson": (lambda n: random.poisson(KEY, 4.5, n), 4.5, 4.5),
    "bernoulli": (lambda n: random.bernoulli(KEY, 0.3, n), 0.3, 0.21),
    "randint": (lambda n: random.randint(KEY, n, low=-3, high=4), 0, 4),
    "beta": (lambda n: random.beta(KEY, 2.0, 3.0, n), 0.4, 0.04),
}


@pytest.mark.parametrize(("draw", "mean", "variance"), MOMENTS.values(), ids=MOMENTS)
def test_mean_and_variance(draw, mean, variance):
    x = values(draw(40000)).astype(np.float64)
    off = (x - mean) ** 2
    assert abs(x.mean() - mean) < 4.5 * math.sqrt(variance / x.size)
    assert abs(off.mean() - variance) < 4.5 * off.std() / math.sqrt(x.size)


@pytest.mark.parametrize(("low", "high"), [(1, 2), (-2, -1), (-1, 0), (0, 3), (1e30, 2e30)])
def test_uniform_never_rounds_to_its_end(low, high):
    """The largest u there is, 1 - 2**-24, placed in the interval."""
    u = np.array([0, 0.5, 1 - 2.0**-24], np.float32)
    x = values(apply(Between(2.0**-23), u, np.float32(low), np.float32(high)))
    assert np.all((x >= low) & (x < high))
    x = values(random.uniform(KEY, 2**16, low=low, high=high))
    assert np.all((x >= low) & (x < high))


def test_uniform_between_neighbouring_floats():
    high = np.nextafter(np.float32(1.9999), np.float32(2))
    assert np.all(values(random.uniform(KEY, 50, low=1.9999, high=float(high))) < high)


def test_truncated_normal_stays_inside():
    x = values(random.truncated_normal(KEY, 2000, lower=-1, upper=np.inf, mean=5, std=0.5))
    assert x.min() >= 4.5 - 1e-6
    x = values(random.truncated_normal(KEY, (500, 2), lower=[-9.0, 8.0], upper=[-8.0, 9.0]))
    assert np.all((np.abs(x) >= 8) & (np.abs(x) <= 9))


def test_categorical_frequencies():
    logits, n = [math.log(0.1), math.log(0.6), -math.inf, math.log(0.3)], 20000
    drawn = values(random.categorical(KEY, logits, n))
    share = np.bincount(drawn, minlength=4) / n
    p = np.array([0.1, 0.6, 0.0, 0.3])
    assert np.all(np.abs(share - p) <= 4.5 * np.sqrt(p * (1 - p) / n))


def test_categorical_axes():
    logits = np.where(np.eye(3), 0.0, -np.inf)[:, [1, 2, 0]]  # row i has its 1 at column
    assert values(random.categorical(KEY, logits)).tolist() == [2, 0, 1]
    assert values(random.categorical(KEY, logits, axis=0)).tolist() == [1, 2, 0]
    assert values(random.categorical(KEY, logits, (2, 3))).tolist() == [[2, 0, 1]] * 2


def test_permutations():
    order = values(random.permutation(KEY, 100))
    assert sorted(order) == list(range(100))
    x = np.arange(24).reshape(2, 12)
    for axis in (1, -1):
        mixed = values(random.permutation(KEY, x, axis=axis))
        assert same(mixed, x[:, bits.permutation(values(KEY), 12)])
    assert same(random.shuffle(KEY, x), values(random.permutation(KEY, x)))
    assert values(random.permutation(KEY, 0)).shape == (0,)
    g = rg.grad(lambda x: rg.sum(random.shuffle(KEY, x) * np.arange(9.0)))(np.ones(9))
    assert same(values(g)[bits.permutation(values(KEY), 9)], np.arange(9.0))


def test_choices():
    n = 20000
    drawn = values(random.choice(KEY, np.array([10, 20, 30]), n, p=[1, 0, 3]))
    assert set(drawn) == {10, 30}
    assert abs((drawn == 30).mean() - 0.75) < 4.5 * math.sqrt(0.1875 / n)
    assert sorted(values(random.choice(KEY, 6, (2, 3), replace=False)).reshape(-1)) == [
        *range(6)
    ]
    once = values(random.choice(KEY, 5, 3, replace=False, p=[1, 0, 5, 0, 2]))
    assert sorted(once) == [0, 2, 4]
    assert random.choice(KEY, np.ones((4, 5)), (2, 3), axis=1).shape == (4, 2, 3)
    assert random.choice(KEY, 0, 0).shape == (0,)
    firsts = [
        values(random.choice(k, 3, 2, replace=False, p=[1, 2, 5]))[0]
        for k in random.split(KEY, 2000)
    ]
    assert abs(np.mean(np.equal(firsts, 2)) - 0.625) < 4.5 * math.sqrt(0.234 / 2000)


def test_a_probability_of_one_is_certain_and_of_zero_impossible():
    assert np.all(values(random.bernoulli(KEY, 1.0, 1000)))
    assert not np.any(values(random.bernoulli(KEY, 0, 1000)))


# -- refusals ------------------------------------------------------------------------------

REFUSALS = [
    (lambda: random.normal(0, 3), DtypeError, "random.normal: a key is uint32 of shape (2,)"),
    (lambda: random.normal(np.zeros(2), 3), DtypeError, "got float64 of shape (2,)"),
    (lambda: random.bits(np.zeros(3, np.uint32)), ShapeError, "got uint32 of shape (3,)"),
    (lambda: random.gamma(random.split(KEY, 3), 1.0), ShapeError, "rg.vmap(f)(keys)"),
    (lambda: random.key(-1), ArgumentError, "random.key: seed must be an integer in [0, "),
    (lambda: random.key(0.5), ArgumentError, "got 0.5"),
    (lambda: random.split(KEY, -1), ArgumentError, "random.split"),
    (
        lambda: random.fold_in(KEY, -1),
        ArgumentError,
        "data must be from 0 to 2**60 - 1; got -1",
    ),
    (lambda: random.fold_in(KEY, 2**64), ArgumentError, "data must be from 0 to 2**60 - 1"),
    (
        lambda: random.fold_in(KEY, 0.5),
        ArgumentError,
        "data must be one integer; got float32[]",
    ),
    (lambda: random.fold_in(KEY, [1, 2]), ArgumentError, "data must be one integer; got int64"),
    (lambda: random.normal(KEY, 2.5), ArgumentError, "shape must be integers; got 2.5"),
    (lambda: random.normal(KEY, (2, -1)), ArgumentError, "has a negative size"),
    (lambda: random.normal(KEY, 2, mean=np.zeros(3)), ShapeError, "mean (3,), shape (2,)"),
    (lambda: random.normal(KEY, (), mean=np.zeros(3)), ShapeError, "shape () is too small for"),
    (lambda: random.normal(KEY, std=-1.0), ArgumentError, "std must be 0 or more; got -1.0"),
    (lambda: random.normal(KEY, std=[1, -2]), ArgumentError, "std must be 0 or more; got -2"),
    (
        lambda: random.normal(KEY, dtype=np.int32),
        DtypeError,
        "float32 or float64; got dtype int",
    ),
    (
        lambda: random.gumbel(KEY, dtype="float16"),
        DtypeError,
        "random.gumbel: draws are float32",
    ),
    (lambda: random.normal(KEY, mean=1j * np.ones(2)), DtypeError, "got dtype complex128"),
    (lambda: random.uniform(KEY, low=1.0, high=1), ArgumentError, "high - low must be above 0"),
    (lambda: random.uniform(KEY, low=[0.0, 2.0]), ArgumentError, "above 0; got -1.0"),
    (
        lambda: random.exponential(KEY, scale=-3),
        ArgumentError,
        "scale must be 0 or more; got -3",
    ),
    (lambda: random.gumbel(KEY, scale=-3), ArgumentError, "scale must be 0 or more"),
    (lambda: random.gamma(KEY, 0.0), ArgumentError, "random.gamma: a must be finite and > 0"),
    (lambda: random.gamma(KEY, 1.0, scale=-1.0), ArgumentError, "scale must be 0 or more"),
    (
        lambda: random.beta(KEY, 1.0, -1.0),
        ArgumentError,
        "random.beta: b must be above 0; got -1.0",
    ),
    (lambda: random.dirichlet(KEY, [1.0, 0.0]), ArgumentError, "alpha must be above 0; got 0"),
    (lambda: random.dirichlet(KEY, 1.0), ShapeError, "alpha needs a last axis"),
    (lambda: random.truncated_normal(KEY, lower=1, upper=1), ArgumentError, "above lower"),
    (lambda: random.bernoulli(KEY, 1.5), ArgumentError, "p must be in [0, 1]; got 1.5"),
    (lambda: random.bernoulli(KEY, [0.5, np.nan]), ArgumentError, "p must be in [0, 1]"),
    (lambda: random.poisson(KEY, -1), ArgumentError, "lam must be in [0, 1e9]; got -1.0"),
    (lambda: random.randint(KEY, low=3, high=3), ArgumentError, "low must be below high; got"),
    (lambda: random.randint(KEY, high=2.5), ArgumentError, "high must be a Python integer"),
    (
        lambda: random.randint(KEY, high=300, dtype=np.uint8),
        ArgumentError,
        "do not fit in uint8",
    ),
    (lambda: random.randint(KEY, high=3, dtype=F32), DtypeError, "dtype must be an int"),
    (lambda: random.categorical(KEY, np.zeros((3, 0))), ShapeError, "to choose from"),
    (lambda: random.categorical(KEY, np.zeros((2, 3)), 3), ShapeError, "logits"),
    (lambda: random.permutation(KEY, -1), ArgumentError, "random.permutation"),
    (lambda: random.shuffle(KEY, 3.0), ArgumentError, "it has none"),
    (lambda: random.choice(KEY, 0, 3), ArgumentError, "3 were asked for, and there are 0"),
    (lambda: random.choice(KEY, 2, 3, replace=False), ArgumentError, "there are 2 to choose"),
    (lambda: random.choice(KEY, 3, p=[1, 2]), ShapeError, "p must have shape (3,)"),
    (lambda: random.choice(KEY, 3, p=[1.0, -2.0, 0.0]), ArgumentError, "p must be 0 or more"),
    (lambda: random.choice(KEY, 2, 2, replace=False, p=[1, 0]), ArgumentError, "fewer than 2"),
]


@pytest.mark.parametrize(("call", "error", "sentence"), REFUSALS)
def test_refusals(call, error, sentence):
    with pytest.raises(RetrogradError) as found:
        call()
    assert isinstance(found.value, error)
    assert sentence in str(found.value)


def test_parameters_are_refused_inside_transforms_too():
    with pytest.raises(ArgumentError, match="std must be 0 or more"):
        rg.vmap(lambda s: random.normal(KEY, std=s))(np.array([1.0, -1.0]))
    with pytest.raises(ArgumentError, match="std must be 0 or more"):
        rg.grad(lambda s: random.normal(KEY, std=s))(-1.0)
    graph, _ = trace(lambda s: [random.normal(KEY, std=s)], [Spec((), F32)])
    assert [n.op.name for n in graph.nodes] == ["within", "random_normal", "multiply"]


def test_results_that_are_counts_carry_no_gradient():
    g = rg.grad(lambda lam: rg.sum(lam * rg.astype(random.poisson(KEY, lam), F64)))
    lam = np.array([3.0, 60.0])
    assert same(g(lam), bits.poisson(values(KEY), lam, 2).astype(F64))


def test_the_log_of_small_gammas_is_finite():
    y = apply(RandomGamma(log_space=True), KEY, rg.asarray(np.full(9, 1e-3)))
    assert np.all(np.isfinite(values(y)))
    assert values(y).min() < -745
