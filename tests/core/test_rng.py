"""Random numbers: the generator against integers, the laws against statistics.

Seeds are fixed, so a statistic is the same on every run and on every machine: its bound is a
chance of about one in ten thousand that a right generator would have failed when it was set.
"""

import ast
import hashlib
import inspect
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrograd.core import rng, rng_gamma, rng_laws, rng_tries

MASK = 2**32 - 1
FLOATS = [np.float32, np.float64]
floats = pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
words = st.integers(0, MASK)
SAMPLERS = {
    "bits": rng.bits,
    "uniform32": lambda k, n: rng.uniform(k, n, np.float32),
    "uniform64": lambda k, n: rng.uniform(k, n, np.float64),
    "normal32": lambda k, n: rng.normal(k, n, np.float32),
    "normal64": lambda k, n: rng.normal(k, n, np.float64),
    "exponential32": lambda k, n: rng.exponential(k, n, np.float32),
    "exponential64": lambda k, n: rng.exponential(k, n, np.float64),
    "gumbel32": lambda k, n: rng.gumbel(k, n, np.float32),
    "gumbel64": lambda k, n: rng.gumbel(k, n, np.float64),
    "bernoulli": lambda k, n: rng.bernoulli(k, 0.3, n),
    "randint": lambda k, n: rng.randint(k, n, -5, 2**62),
    "truncated32": lambda k, n: rng.truncated_normal(k, -0.2, 1.5, n, np.float32),
    "truncated64": lambda k, n: rng.truncated_normal(k, 2, np.inf, n, np.float64),
    "gamma32": lambda k, n: rng.gamma(k, 0.4, n, np.float32),
    "gamma64": lambda k, n: rng.gamma(k, 1.7, n, np.float64),
    "poisson_few": lambda k, n: rng.poisson(k, 2.5, n),
    "poisson_many": lambda k, n: rng.poisson(k, 40.0, n),
}
samplers = pytest.mark.parametrize("draw", SAMPLERS.values(), ids=SAMPLERS)


def threefry(key, counter):
    """Threefry-2x32-20 of Python integers, written from the paper."""
    k = [*key, key[0] ^ key[1] ^ 0x1BD11BDA]
    x, y = ((c + w) & MASK for c, w in zip(counter, key, strict=True))
    for i, turn in enumerate([13, 15, 26, 6, 17, 29, 16, 24] * 2 + [13, 15, 26, 6]):
        x = (x + y) & MASK
        y = ((y << turn) & MASK | y >> (32 - turn)) ^ x
        if i % 4 == 3:
            s = i // 4 + 1
            x = (x + k[s % 3]) & MASK
            y = (y + k[(s + 1) % 3] + s) & MASK
    return x, y


def block(key, index, domain=0):
    """The block that the docstring of rng puts at an index of a domain."""
    return threefry([int(w) for w in key], (index & MASK, (index >> 32) | domain << 28))


def kolmogorov(sample, cdf=lambda x: x):
    """The scaled distance of a sample from its law; above 2.23 once in ten thousand."""
    x = np.sort(np.asarray(sample, np.float64).reshape(-1))
    at, n = cdf(x), x.size
    below = np.arange(n) / n
    return max(np.max(at - below), np.max(below + 1 / n - at)) * math.sqrt(n)


def chi_square(counts, expected):
    """The statistic's distance from its mean, in its standard deviations."""
    free = len(counts) - 1
    return (np.sum((counts - expected) ** 2 / expected) - free) / math.sqrt(2 * free)


def ulps(found, right):
    """The largest error in units of the last place."""
    unit = np.spacing(np.abs(right).astype(found.dtype)).astype(np.longdouble)
    return float(np.max(np.abs(found.astype(np.longdouble) - right) / unit))


def extended(f, x):
    """f in long double, and what a long double no longer than a double adds to the error."""
    slack = 0 if np.finfo(np.longdouble).nmant > 52 or x.dtype == np.float32 else 1
    wide = np.float64 if x.dtype == np.float32 else np.longdouble
    return f(x.astype(wide)).astype(np.longdouble), slack


# -- the generator -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "counter", "found"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((MASK, MASK), (MASK, MASK), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_the_published_vectors_of_random123(key, counter, found):
    assert threefry(key, counter) == found
    at = rng.threefry2x32(np.array(key, np.uint32), *np.array(counter, np.uint32))
    assert tuple(map(int, at)) == found


@given(key=st.tuples(words, words), counter=st.tuples(words, words))
def test_threefry_is_that_of_integers(key, counter):
    at = rng.threefry2x32(np.array(key, np.uint32), *np.array(counter, np.uint32))
    assert tuple(map(int, at)) == threefry(key, counter)


def test_threefry_broadcasts_its_counters():
    key = rng.key(5)
    x0, x1 = rng.threefry2x32(key, np.arange(3, dtype="u4")[:, None], np.arange(4, dtype="u4"))
    assert x0.shape == x1.shape == (3, 4)
    assert x0.dtype == x1.dtype == np.uint32
    pairs = [(int(a), int(b)) for a, b in zip(x0.ravel(), x1.ravel(), strict=True)]
    assert pairs == [threefry((0, 5), c) for c in itertools.product(range(3), range(4))]


def changed(one, other):
    """The mean share of the bits in which two results of threefry differ."""
    return np.mean([np.bitwise_count(a ^ b) / 32 for a, b in zip(one, other, strict=True)])


def test_every_bit_of_key_and_counter_changes_half_of_the_bits():
    n = 4000
    key, low, high = rng.key(2**40 + 7), np.arange(n, dtype=np.uint32), np.zeros(n, np.uint32)
    plain = rng.threefry2x32(key, low, high)
    bound = 4.5 * 0.5 / math.sqrt(64 * n)
    for bit in range(32):
        flip = np.uint32(1 << bit)
        for i in range(2):
            other = key ^ (np.arange(2) == i) * flip
            assert abs(changed(plain, rng.threefry2x32(other, low, high)) - 0.5) < bound
        assert abs(changed(plain, rng.threefry2x32(key, low ^ flip, high)) - 0.5) < bound
        assert abs(changed(plain, rng.threefry2x32(key, low, high ^ flip)) - 0.5) < bound


def test_bits_are_the_words_of_consecutive_blocks():
    key = rng.key(11)
    expected = [block(key, i >> 1)[i & 1] for i in range(37)]
    assert rng.bits(key, 37).tolist() == expected


@pytest.mark.parametrize("first", [2**33 - 5, 2**33 + 2, 2**40 + 1])
def test_counters_pass_thirty_two_bits(first):
    key = rng.key(12)
    assert rng._words(key, first, 12).tolist() == [
        block(key, i >> 1)[i & 1] for i in range(first, first + 12)
    ]


def test_bytes_are_uniform():
    drawn = rng.bits(rng.key(21), 2**18).view(np.uint8)
    assert abs(chi_square(np.bincount(drawn, minlength=256), drawn.size / 256)) < 4


def test_every_bit_is_a_fair_coin_and_independent_of_the_next_word():
    drawn = rng.bits(rng.key(22), 2**17)
    bits = (drawn[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    bound = 4.5 * 0.5 / math.sqrt(drawn.size)
    assert np.max(np.abs(bits.mean(0) - 0.5)) < bound
    assert np.max(np.abs((bits[1:] ^ bits[:-1]).mean(0) - 0.5)) < bound


# -- functions of key and index ------------------------------------------------------------


@samplers
def test_the_same_key_gives_the_same_draw(draw):
    assert np.array_equal(draw(rng.key(1), 500), draw(rng.key(1), 500))
    assert not np.array_equal(draw(rng.key(1), 500), draw(rng.key(2), 500))


@samplers
def test_a_short_draw_is_the_beginning_of_a_long_one(draw):
    whole = draw(rng.key(3), 1001)
    for n in (0, 1, 2, 17, 500):
        assert np.array_equal(draw(rng.key(3), n), whole[:n])


@samplers
def test_a_shape_is_a_view_of_the_flat_draw(draw):
    flat = draw(rng.key(4), 60)
    assert np.array_equal(draw(rng.key(4), (3, 4, 5)), flat.reshape(3, 4, 5))
    assert draw(rng.key(4), (0, 3)).shape == (0, 3)
    assert draw(rng.key(4), ()).shape == ()
    assert draw(rng.key(4), ()) == flat[0]
    assert draw(rng.key(4), (2, 0)).dtype == draw(rng.key(4), ()).dtype == flat.dtype


@samplers
@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_chunks_leave_no_trace(draw, chunk, monkeypatch):
    """One element at a time is how a compiled loop computes: SIMD must make no difference."""
    whole = draw(rng.key(6), 150)
    monkeypatch.setattr(rng, "_CHUNK", chunk)
    assert np.array_equal(draw(rng.key(6), 150), whole)


def test_the_hash_of_a_draw_is_that_of_its_pieces():
    key, n = rng.key(7), 3 * rng._CHUNK + 5
    pieces = hashlib.sha256()
    for first in range(0, n, 1000):
        pieces.update(rng._words(key, first, min(1000, n - first)).tobytes())
    assert hashlib.sha256(rng.bits(key, n).tobytes()).digest() == pieces.digest()


def test_parameters_broadcast_and_stay_with_their_elements():
    key, a = rng.key(8), np.array([[0.5], [3.0]])
    both = rng.gamma(key, a, (2, 50), np.float64)
    for row, one in enumerate(a[:, 0]):
        assert np.array_equal(both[row], rng.gamma(key, one, (2, 50), np.float64)[row])
    lam = np.array([[2.0], [70.0]])
    both = rng.poisson(key, lam, (2, 50))
    for row, one in enumerate(lam[:, 0]):
        assert np.array_equal(both[row], rng.poisson(key, one, (2, 50))[row])


# -- keys ----------------------------------------------------------------------------------


def test_a_key_holds_its_seed():
    assert rng.key(0).tolist() == [0, 0]
    assert rng.key(2**64 - 1).tolist() == [MASK, MASK]
    assert rng.key(np.int64(2**33 + 3)).tolist() == [2, 3]
    assert rng.key(1).dtype == np.uint32


def test_keys_and_draws_of_one_key_never_coincide():
    key, n = rng.key(31), 4096
    attempts = np.stack([rng._subkey(key, rng.TRY, k) for k in range(rng_tries.ATTEMPTS)])
    folded = np.stack([rng.fold_in(key, i) for i in range(n)])
    all_of_them = [rng.bits(key, (n, 2)), rng.split(key, n), folded, attempts]
    pairs = {tuple(p) for part in all_of_them for p in part.tolist()}
    assert len(pairs) == 3 * n + len(attempts)


def test_domains_are_where_the_docstring_puts_them():
    key = rng.key(32)
    assert rng.split(key, 5).tolist() == [list(block(key, i, 1)) for i in range(5)]
    assert tuple(rng.fold_in(key, 2**59 + 1).tolist()) == block(key, 2**59 + 1, 2)
    assert rng.split(key, 0).shape == (0, 2)
    assert rng.split(key, 3).dtype == rng.fold_in(key, 3).dtype == np.uint32


def test_neighbouring_keys_are_independent():
    n = 20000
    seeds = np.stack([rng.normal(rng.key(s), n, np.float64) for s in range(12)])
    split = np.stack([rng.normal(k, n, np.float64) for k in rng.split(rng.key(0), 12)])
    folded = [rng.normal(rng.fold_in(rng.key(0), i), n, np.float64) for i in range(12)]
    table = np.corrcoef(np.concatenate([seeds, split, folded]))
    np.fill_diagonal(table, 0)
    assert np.max(np.abs(table)) < 4.8 / math.sqrt(n)


def test_neighbouring_elements_are_independent():
    x = rng.normal(rng.key(33), 200000, np.float32).astype(np.float64)
    for lag in (1, 2, 3, 64, 16384):
        assert abs(np.mean(x[lag:] * x[:-lag])) < 4 / math.sqrt(x.size - lag)


# -- portable functions --------------------------------------------------------------------


def spread(dtype, low, high, n=200000):
    """Floats between 2**low and 2**high, and many near 1."""
    key = rng.key(41)
    u, v = rng.uniform(key, (2, n), np.float64)
    return np.concatenate([np.exp2(low + (high - low) * u), 0.5 + 1.5 * v]).astype(dtype)


@floats
def test_log_is_within_one_ulp(dtype):
    about = np.finfo(dtype)
    x = spread(dtype, about.minexp, about.maxexp)
    denormal = np.arange(1, 5000, dtype=dtype) * about.smallest_subnormal
    x = np.concatenate([x, denormal, [about.smallest_normal, about.max]]).astype(dtype)
    right, slack = extended(np.log, x)
    assert rng_gamma.log(x).dtype == dtype
    assert ulps(rng_gamma.log(x), right) < 1 + slack


@floats
def test_exp_is_within_one_and_a_tenth_ulp(dtype):
    about = np.finfo(dtype)
    least = math.log(float(about.smallest_normal)) - about.nmant * math.log(2)
    u = rng.uniform(rng.key(42), (2, 200000), np.float64)
    x = np.concatenate([least + (math.log(float(about.max)) - least) * u[0], u[1] * 2 - 1])
    right, slack = extended(np.exp, x.astype(dtype))
    assert rng_gamma.exp(x.astype(dtype)).dtype == dtype
    assert ulps(rng_gamma.exp(x.astype(dtype)), right) < 1.1 + slack


@floats
def test_log_and_exp_at_the_ends(dtype):
    x = np.array([0, -0.0, 1, np.inf, -1, -np.inf, np.nan], dtype)
    nan = np.nan
    np.testing.assert_array_equal(
        rng_gamma.log(x), [-np.inf, -np.inf, 0, np.inf, nan, nan, nan]
    )
    x = np.array([0, -0.0, np.inf, -np.inf, 1e4, -1e4, np.nan], dtype)
    np.testing.assert_array_equal(rng_gamma.exp(x), [1, 1, np.inf, 0, np.inf, 0, nan])
    assert rng_gamma.log(dtype(1)).shape == rng_gamma.exp(dtype(1)).shape == ()
    assert rng_gamma.log(np.ones((2, 0), dtype)).shape == (2, 0)


def test_log1p_rest_near_and_far_from_zero():
    y = np.concatenate([np.linspace(-0.999, 8, 2001), 10.0 ** -np.arange(1, 9)])
    y = y[np.abs(y) > 1e-9]
    wide = y.astype(np.longdouble)
    series = wide**3 * (1 / np.longdouble(3) - wide / 4 + wide**2 / 5)
    right = np.where(np.abs(y) < 1e-4, series, np.log1p(wide) - wide + wide * wide / 2)
    np.testing.assert_allclose(rng_gamma.log1p_rest(y), right.astype(np.float64), rtol=2e-11)


@pytest.mark.parametrize("lam", [10.0, 47.3, 1e4, 1e9])
def test_log_poisson_is_the_logarithm_of_the_mass(lam):
    k = np.floor(lam + math.sqrt(lam) * np.linspace(-3.1, 6, 40))
    right = [n * math.log(lam) - lam - math.lgamma(n + 1) for n in k]
    assert rng_gamma.log_poisson(k, np.full_like(k, lam)) == pytest.approx(
        right, abs=1e-14 * lam * math.log(lam) + 1e-13
    )


def words_of(dtype):
    """Words all over their range, in the tails and about the middle, with their integers."""
    size = 32 if dtype == np.float32 else 64
    exponents = np.arange(size * 8) / 8
    tails = [int(2.0**e) for e in exponents if e < size]
    middle = [2 ** (size - 1) + int(2.0**e) for e in exponents if e < size - 1]
    spots = [i * 2**size // 4001 for i in range(4001)]
    integers = tails + middle + spots
    integers += [2**size - 1 - i for i in integers]
    if size == 32:
        return (np.array(integers, np.uint32),), integers, size
    pairs = [divmod(i, 2**32) for i in integers]
    high, low = (np.array(w, np.uint32) for w in zip(*pairs, strict=True))
    return (high, low), integers, size


@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 3e-7), (np.float64, 2e-15)])
def test_the_normal_quantile_is_right_to_a_relative_error(dtype, error):
    special = pytest.importorskip("scipy.special")
    w, integers, size = words_of(dtype)
    tail = np.array([(min(i, 2**size - 1 - i) + 0.5) / 2**size for i in integers])
    half = np.array([abs(2 * i + 1 - 2**size) / 2 ** (size + 1) for i in integers])
    right = np.where(tail < 0.2, -special.ndtri(tail), math.sqrt(2) * special.erfinv(2 * half))
    found = rng._quantile(w)
    assert found.dtype == dtype
    assert (found > 0).tolist() == [i >= 2 ** (size - 1) for i in integers]
    np.testing.assert_allclose(np.abs(found), right, rtol=error)


@floats
def test_the_normal_quantile_is_odd_and_rises(dtype):
    w, integers, _ = words_of(dtype)
    x = rng._quantile(w)
    assert np.array_equal(rng._quantile(tuple(~v for v in w)), -x)
    risen = np.diff(x[np.argsort(np.array(integers, object))].astype(np.float64))
    assert np.min(risen) > -8 * np.finfo(dtype).eps


@floats
def test_minus_log_is_right_at_both_ends(dtype):
    w, integers, size = words_of(dtype)
    right = [
        -math.log((i + 0.5) / 2**size)
        if i < 2 ** (size - 1)
        else -math.log1p(-(2**size - 1 - i + 0.5) / 2**size)
        for i in integers
    ]
    np.testing.assert_allclose(rng._minus_log(w), right, rtol=2 * np.finfo(dtype).eps)


BANNED = {"log", "exp", "expm1", "log1p", "sin", "cos", "tan", "power", "float_power", "exp2"}
BANNED |= {"log2", "cbrt", "matmul", "dot", "sum", "mean", "einsum", "random", "hypot", "prod"}


def numpy_names(node):
    """What a piece of code takes from NumPy: {"sqrt"} for np.sqrt(x)."""
    return {
        inner.attr
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute) and ast.unparse(inner.value) == "np"
    }


def test_no_draw_uses_libm_or_an_order_of_summation():
    for module in (rng, rng_gamma, rng_laws, rng_tries):
        for node in ast.parse(inspect.getsource(module)).body:
            if "slope" not in getattr(node, "name", ""):
                assert not numpy_names(node) & BANNED, ast.unparse(node)[:80]
    assert numpy_names(ast.parse("y = np.log(x)")) & BANNED  # the check can fail


# -- the laws ------------------------------------------------------------------------------


@floats
def test_uniform(dtype):
    x = rng.uniform(rng.key(51), 100000, dtype)
    assert x.dtype == dtype
    assert kolmogorov(x) < 2.23
    assert x.min() >= 0
    assert x.max() < 1
    scaled = x.astype(np.float64) * 2.0 ** (24 if dtype == np.float32 else 53)
    assert np.array_equal(scaled, np.floor(scaled))


@floats
def test_uniform_at_its_ends(dtype):
    w = (np.array([0, MASK], np.uint32),) * (1 if dtype == np.float32 else 2)
    assert rng._fraction(w).tolist() == [0, float(np.nextafter(dtype(1), dtype(0)))]


@floats
def test_normal(dtype):
    special = pytest.importorskip("scipy.special")
    x = rng.normal(rng.key(52), 200000, dtype)
    assert x.dtype == dtype
    assert kolmogorov(x, special.ndtr) < 2.23
    # the upper thousandth by itself: u given u > 0.999 is uniform again
    far = special.ndtr(-np.abs(x.astype(np.float64))) * 1000
    assert kolmogorov(far[far < 1]) < 2.23


@floats
def test_exponential(dtype):
    x = rng.exponential(rng.key(53), 100000, dtype)
    assert x.dtype == dtype
    assert x.min() > 0
    assert kolmogorov(x, lambda x: -np.expm1(-x)) < 2.23


@floats
def test_gumbel(dtype):
    x = rng.gumbel(rng.key(54), 100000, dtype)
    assert x.dtype == dtype
    assert kolmogorov(x, lambda x: np.exp(-np.exp(-x))) < 2.23


def test_gumbel_and_argmax_are_categorical():
    p = np.array([0.1, 0.2, 0.3, 0.4])
    n = 50000
    drawn = np.argmax(np.log(p) + rng.gumbel(rng.key(55), (n, 4), np.float32), axis=1)
    assert abs(chi_square(np.bincount(drawn, minlength=4), n * p)) < 4


def test_bernoulli():
    n = 100000
    for p in (1e-3, 0.25, 0.5, 0.999):
        drawn = rng.bernoulli(rng.key(56), p, n)
        assert drawn.dtype == np.bool_
        assert abs(drawn.mean() - p) < 4 * math.sqrt(p * (1 - p) / n)
    assert not rng.bernoulli(rng.key(56), 0, n).any()
    assert rng.bernoulli(rng.key(56), 1, n).all()
    table = rng.bernoulli(rng.key(56), np.array([[0.0], [1.0]]), (2, 9))
    assert table.tolist() == [[False] * 9, [True] * 9]


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 1), (-3, 7), (0, 2**32), (5, 2**63), (-(2**63), 2**63 - 1), (-7, 3 * 2**61)],
)
def test_randint_is_the_scaled_integer(low, high):
    key = rng.key(57)
    drawn = rng.randint(key, 40, low, high)
    assert drawn.dtype == np.int64
    for i, found in enumerate(drawn.tolist()):
        a, b, c, d = *block(key, 2 * i), *block(key, 2 * i + 1)
        x = (a << 96) | (b << 64) | (c << 32) | d
        assert found == low + (x * (high - low) >> 128)


def test_randint_is_uniform():
    drawn = rng.randint(rng.key(58), 70000, -3, 4)
    assert abs(chi_square(np.bincount(drawn + 3, minlength=7), 10000)) < 4
    wide = rng.randint(rng.key(59), 100000, 0, 3 * 2**61)
    assert kolmogorov(wide / (3 * 2.0**61)) < 2.23


@given(st.floats(2.0**-60, 1), st.lists(st.integers(0, 2**64 - 1), max_size=9))
def test_a_chance_is_compared_in_integers_as_in_floats(chance, draws):
    high, low = divmod(int(chance * 2.0**53), 2**26)
    pairs = [divmod(i, 2**32) for i in [*draws, 0, 2**64 - 1]]
    pairs += [
        (h & MASK, w & MASK)
        for h in range((high << 5) - 1, (high << 5) + 33, 11)
        for w in range((low << 6) - 64, (low << 6) + 129, 32)
    ]
    words = tuple(np.array(w, np.uint32) for w in zip(*pairs, strict=True))
    found = rng_laws.below(words, chance)
    assert found.tolist() == (rng._fraction(words) < chance).tolist()


@pytest.mark.parametrize("chance", [2.0**-53, 0.3, 0.5, 1 - 2.0**-53, 1.0])
def test_chosen_is_bernoulli_of_one_chance(chance):
    key = rng.key(67)
    wanted = rng.bernoulli(key, chance, (5, 4001))
    assert np.array_equal(rng.chosen(key, chance, (5, 4001)), wanted)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_the_high_product_is_that_of_integers(x, y):
    found = rng._high_product(np.array([x], np.uint64), np.array([y], np.uint64))
    assert int(found[0]) == x * y >> 64


def test_permutation():
    for n in (0, 1, 2, 1000):
        order = rng.permutation(rng.key(60), n)
        assert order.dtype == np.int64
        assert sorted(order.tolist()) == list(range(n))
    key = rng.key(61)
    assert rng.permutation(key, 50).tolist() == sorted(range(50), key=lambda i: block(key, i))


def test_permutation_is_uniform():
    seen = [tuple(rng.permutation(k, 4).tolist()) for k in rng.split(rng.key(62), 4800)]
    counts = [seen.count(p) for p in itertools.permutations(range(4))]
    assert sum(counts) == 4800
    assert abs(chi_square(np.array(counts), 200)) < 4


INTERVALS = [(-1, 1), (-np.inf, np.inf), (8, 9), (-9, -8), (0, 0.1), (40, 41), (0.5, np.inf)]
INTERVALS += [(-0.3, 4), (2, 2.01), (-np.inf, -3), (-1e8, 1e8), (-0.01, 2.6), (1, 1.3)]


@floats
@pytest.mark.parametrize(("lower", "upper"), INTERVALS)
def test_truncated_normal(lower, upper, dtype):
    stats = pytest.importorskip("scipy.stats")
    x = rng.truncated_normal(rng.key(63), lower, upper, 40000, dtype)
    assert x.dtype == dtype
    assert x.min() >= dtype(lower)
    assert x.max() <= dtype(upper)
    ends = float(dtype(lower)), float(dtype(upper))
    assert kolmogorov(x, lambda x: stats.truncnorm.cdf(x, *ends)) < 2.23


def test_truncated_normal_far_beyond_every_probability():
    """Beyond 300 it is all but exponential of rate 300: the density's next factor is known."""
    x = rng.truncated_normal(rng.key(64), 300, np.inf, 40000, np.float64) - 300
    assert kolmogorov(x, lambda d: -np.expm1(-300 * d - d * d / 2)) < 2.23
    huge = rng.truncated_normal(rng.key(64), 1e200, np.inf, 9, np.float64)
    assert huge.tolist() == [1e200] * 9


@floats
def test_a_try_for_a_truncated_normal_is_accepted_often(dtype):
    """What the bound on the number of attempts relies on."""
    trial, _ = rng._pairs(rng.key(65), np.arange(4000), dtype)
    lows = [-2.4, -1.25, -0.5, -1e-6, 0, 1e-6, 0.3, 1, 3, 20, 1e4]
    widths = [1e-4, 0.05, 0.5, 0.99, 1.01, 2, 2.49, 2.51, 4, 30, 1e9]
    for low, width in itertools.product(lows, widths):
        if low + width >= -low:
            ends = np.full((2, 4000), [[low], [low + width]], dtype)
            with np.errstate(all="ignore"):
                x, chance = rng._truncated(trial, *ends)
            assert np.mean(np.exp(chance)) > 0.45, (low, width)
            kept = chance > -np.inf
            assert np.max(chance) < 1e-3
            assert np.all((x >= ends[0]) & (x <= ends[1] * dtype(1.0001)) | ~kept)


@floats
@pytest.mark.parametrize("a", [0.05, 0.3, 0.99, 1, 1.5, 30, 1e4, 1e6])
def test_gamma(a, dtype):
    special = pytest.importorskip("scipy.special")
    x = rng.gamma(rng.key(66), a, 60000, dtype)
    assert x.dtype == dtype
    assert x.min() >= 0
    assert kolmogorov(x[x > 0], lambda x: special.gammainc(float(dtype(a)), x)) < 2.23


@floats
def test_gamma_of_a_tiny_shape_lives_in_log_space(dtype):
    """Near 0 the distribution function is x**a / gamma(a + 1)."""
    a = 1e-3
    logs = rng.gamma(rng.key(67), a, 60000, dtype, log_space=True).astype(np.float64)
    assert logs.min() < math.log(np.finfo(dtype).tiny)
    assert kolmogorov(np.exp(a * logs - math.lgamma(1 + a)), lambda u: np.minimum(u, 1)) < 2.23
    plain = rng.gamma(rng.key(67), a, 60000, dtype)
    assert np.array_equal(plain, rng_gamma.exp(logs.astype(dtype)))


@floats
def test_gamma_in_log_space_is_the_logarithm(dtype):
    a = np.array([0.3, 2.0, 50.0])
    x = rng.gamma(rng.key(68), a, (500, 3), dtype)
    logs = rng.gamma(rng.key(68), a, (500, 3), dtype, log_space=True)
    back = np.exp(logs.astype(np.float64))
    np.testing.assert_allclose(back, x, rtol=60 * np.finfo(dtype).eps)


def randomised(k, lam, special):
    """Uniform if the counts k are Poisson: a random place in each one's step."""
    below = np.where(k > 0, special.gammaincc(np.maximum(k, 1), lam), 0)
    step = special.gammaincc(k + 1, lam) - below
    return below + step * rng.uniform(rng.key(70), k.size, np.float64)


@pytest.mark.parametrize("lam", [0.01, 0.7, 4, 9.999, 10, 13, 100, 1e4, 1e9])
def test_poisson(lam):
    special = pytest.importorskip("scipy.special")
    k = rng.poisson(rng.key(69), lam, 60000)
    assert k.dtype == np.int64
    assert kolmogorov(randomised(k, lam, special)) < 2.23
    assert abs(k.mean() - lam) < 4 * math.sqrt(lam / k.size)


def test_poisson_counts_one_by_one():
    for lam in (3.5, 11.0):
        k = rng.poisson(rng.key(71), lam, 100000)
        n = range(60)
        mass = np.array([math.exp(i * math.log(lam) - lam - math.lgamma(i + 1)) for i in n])
        usual = np.flatnonzero(mass * k.size > 20)
        counts = np.bincount(k, minlength=60)[usual]
        rest = k.size - counts.sum()
        expected = np.append(mass[usual], 1 - mass[usual].sum()) * k.size
        assert abs(chi_square(np.append(counts, rest), expected)) < 4


def test_poisson_of_zero_is_zero():
    assert not rng.poisson(rng.key(72), 0.0, 100).any()
    assert not rng.poisson(rng.key(72), np.array([0.0, 1e-300]), (50, 2)).any()


# -- the slope of a gamma draw -------------------------------------------------------------


def test_two_ways_to_the_slope_agree_where_both_hold():
    a, x = np.meshgrid(np.geomspace(1e-3, 1e4, 40), np.linspace(0.5, 1.5, 30))
    series, integral = rng_gamma._slope_series(a, x), rng_gamma._slope_integral(a, x)
    np.testing.assert_allclose(series, integral, rtol=1e-11)


def test_the_slope_of_an_exponential_draw_is_known():
    """At a = 1 and small x, the slope is x (1 - euler - log x) + O(x**2 log x)."""
    x = 10.0 ** -np.arange(9, 30)
    right = x * (1 - np.euler_gamma - np.log(x))
    np.testing.assert_allclose(rng_gamma.gamma_slope(1.0, x), right, rtol=1e-8)


@pytest.mark.parametrize("a", [1e-3, 0.03, 0.5, 1, 2.5, 40, 1e3, 1e4])
def test_the_slope_of_a_gamma_draw(a):
    """Against differences in 50 digits of the distribution function, in its smaller tail."""
    mp = pytest.importorskip("mpmath").mp
    special = pytest.importorskip("scipy.special")
    for p in (1e-9, 1e-3, 0.2, 0.7, 0.99, 1 - 1e-9):
        x = float(special.gammaincinv(a, p))
        if x < 1e-300:
            continue
        with mp.workdps(50):
            b, at, h = mp.mpf(a), mp.mpf(x), mp.mpf(a) * mp.mpf(10) ** -12
            ends = (0, at) if p < 0.5 else (at, mp.inf)
            up, down = (mp.gammainc(b + s * h, *ends, regularized=True) for s in (1, -1))
            density = mp.exp((b - 1) * mp.log(at) - at - mp.loggamma(b))
            right = float((down - up if p < 0.5 else up - down) / (2 * h) / density)
        assert rng_gamma.gamma_slope(a, x) == pytest.approx(right, rel=1e-10)


def test_the_slope_is_that_of_the_quantile():
    special = pytest.importorskip("scipy.special")
    p = rng.uniform(rng.key(81), 200, np.float64)
    for a in (0.4, 3.0, 90.0):
        h = 1e-4 * a
        x = special.gammaincinv(a, p)
        right = (special.gammaincinv(a + h, p) - special.gammaincinv(a - h, p)) / (2 * h)
        np.testing.assert_allclose(rng_gamma.gamma_slope(a, x), right, rtol=1e-6)


def test_the_slope_keeps_shapes_and_float32():
    x = np.array([[0.0], [2.0]], np.float32)
    slope = rng_gamma.gamma_slope(np.array([0.5, 1.0, 2.0]), x)
    assert slope.shape == (2, 3)
    assert slope.dtype == np.float32
    assert not slope[0].any()
    assert (slope[1] > 0).all()
    assert rng_gamma.gamma_slope(2.0, 3.0).shape == ()
    assert rng_gamma.gamma_slope(2.0, np.ones((0, 3))).shape == (0, 3)


# -- refusals ------------------------------------------------------------------------------

KEY = rng.key(0)
REFUSALS = {
    "key: seed must be an integer in [0, 18446744073709551616); got -1": lambda: rng.key(-1),
    "key: seed must be an integer in [0, 1844674407370955161": lambda: rng.key(2**64),
    "got 0.5": lambda: rng.key(0.5),
    "got True": lambda: rng.key(True),
    "split: n must be an integer": lambda: rng.split(KEY, -2),
    "fold_in: data must be an integer in [0, 115": lambda: rng.fold_in(KEY, 2**60),
    "permutation: n must be an integer": lambda: rng.permutation(KEY, 2.0),
    "randint: high must be an integer in [4, ": lambda: rng.randint(KEY, 3, 3, 3),
    "randint: low must be an integer": lambda: rng.randint(KEY, 3, -(2**63) - 1, 3),
    "a key is uint32 of shape (2,), as key(0) is; got int64": lambda: rng.bits(np.arange(2), 3),
    "got uint32 of shape (3, 2)": lambda: rng.split(rng.split(KEY, 3), 2),
    "bernoulli: p must be in [0, 1]; got 1.5": lambda: rng.bernoulli(KEY, [0.5, 1.5], 2),
    "bernoulli: p must be in [0, 1]; got nan": lambda: rng.bernoulli(KEY, np.nan, 2),
    "gamma: a must be finite and > 0; got 0.0": lambda: rng.gamma(KEY, 0, 2, np.float32),
    "poisson: lam must be in [0, 1e9]; got -1.0": lambda: rng.poisson(KEY, -1, 2),
    "upper must be above lower; got 1.0": lambda: rng.truncated_normal(KEY, 1, 1, 2, "f8"),
    "normal: dtype int32 is not float32 or float64": lambda: rng.normal(KEY, 2, np.int32),
    "gamma: dtype float16 is not float32": lambda: rng.gamma(KEY, 1, 2, np.float16),
    "log: dtype int64 is not float32 or float64": lambda: rng_gamma.log(np.arange(3)),
}


@pytest.mark.parametrize(("said", "act"), REFUSALS.items(), ids=REFUSALS)
def test_refusals_say_who_what_and_what_is_right(said, act):
    with pytest.raises((ValueError, TypeError)) as caught:
        act()
    assert str(caught.value).startswith("random")
    assert said in str(caught.value)
