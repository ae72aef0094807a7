"""Keyed, counter-based, splittable random numbers, the same to the bit on every machine.

Element i of a draw is a function of (key, i) alone, made of integer operations, + - * / sqrt
and comparisons: no libm and no fma, whose last bits differ between machines and compilers.

The generator is Threefry-2x32-20 (Salmon et al., SC 2011): under one key a bijection of 64-bit
counters to 64-bit blocks. A counter's top four bits name its domain (draw, split, fold, try),
so no two uses of a key share a counter: the blocks it draws, the keys split off or folded in
and the keys of its rejection attempts are 64-bit values that never coincide. Distinct seeds
are distinct keys. A key is for one draw: two draws from one key share their words.

A 32-bit element i is word i & 1 of block i >> 1; a 64-bit one is block i. A rejection sampler
takes attempt k of element i from block i (float64: 2i and 2i + 1) of the key at k in the try
domain. Real draws start at u = (word + 1/2) / 2**bits; its complement and its distance from
1/2 are taken in the integers, so that no tail is coarse.
"""

import math
from functools import partial

import numpy as np

from retrograd.core import rng_laws as laws
from retrograd.core import rng_tries as tries
from retrograd.core.errors import ArgumentError
from retrograd.core.rng_laws import ARRAYS, layout

DRAW, SPLIT, FOLD, TRY = 0, 1, 2, 3  # counter domains
COUNTERS = 2**60  # in a domain
_CHUNK = 1 << 14  # elements worked on at once: a dozen such arrays stay in the caches


def _integer(who, value, low, high):
    """An int in [low, high), or a refusal that begins with who."""
    right = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (right and low <= value < high):
        said = f"must be an integer in [{low}, {high}); got {value!r}"
        raise ArgumentError(f"random.{who} {said}")
    return int(value)


def _parameter(who, value, shape, dtype, *, good):
    """The value for each element of shape, flat, refused where good(value) is false."""
    flat = np.broadcast_to(np.asarray(value, dtype), _extent(shape)).reshape(-1)
    if not np.all(good(flat)):
        raise ArgumentError(f"random.{who}; got {flat[~good(flat)][0]}")
    return flat


def _extent(shape):
    """The shape as a tuple: an integer is the length of a vector."""
    return (int(shape),) if isinstance(shape, int | np.integer) else tuple(shape)


# ---- the generator, in 32-bit integers ----


def threefry2x32(key, count0, count1) -> tuple[np.ndarray, np.ndarray]:
    """The two words of Threefry-2x32-20 under key at each counter (count0, count1)."""
    key = np.asarray(key)
    if key.dtype != np.uint32 or key.shape != (2,):
        got = f"{key.dtype} of shape {key.shape}"
        raise ArgumentError(f"random: a key is uint32 of shape (2,), as key(0) is; got {got}")
    counts = np.broadcast_arrays(np.asarray(count0, "u4"), np.asarray(count1, "u4"))
    # flat, and the key in arrays: NumPy warns when a scalar wraps around
    low, high = (c.reshape(-1) for c in counts)
    x0, x1 = laws.threefry((key[:1], key[1:]), (low, high))
    return x0.reshape(counts[0].shape), x1.reshape(counts[0].shape)


def blocks(key, domain, index) -> tuple[np.ndarray, np.ndarray]:
    """The two words of each block of key's domain at the int64 index."""
    high = (index >> 32).astype(np.uint32) | np.uint32(domain << 28)
    return threefry2x32(key, index.astype(np.uint32), high)


def _words(key, first, count):
    """Words first to first + count of the draw of key."""
    pairs = blocks(key, DRAW, np.arange(first >> 1, (first + count + 1) >> 1))
    return np.stack(pairs, axis=-1).reshape(-1)[first & 1 :][:count]


def _variates(key, first, count, dtype):
    """The words of elements first to first + count: (word,) for float32, else a block."""
    if np.dtype(dtype) == np.float32:
        return (_words(key, first, count),)
    return blocks(key, DRAW, np.arange(first, first + count))


def _pairs(key, index, dtype):
    """The words of two variates for each element of index."""
    if np.dtype(dtype) == np.float32:
        x0, x1 = blocks(key, DRAW, index)
        return (x0,), (x1,)
    return blocks(key, DRAW, 2 * index), blocks(key, DRAW, 2 * index + 1)


def _fill(shape, dtype, draw):
    """An array of shape whose flat elements are draw(first, count), in chunks."""
    shape = _extent(shape)
    out = np.empty(math.prod(shape), dtype)
    for first in range(0, out.size, _CHUNK):
        part = out[first : first + _CHUNK]
        part[...] = draw(first, part.size)
    return out.reshape(shape)


def _subkey(key, domain, index):
    """The key that key's domain holds at index."""
    return np.concatenate(blocks(key, domain, np.array([index])))


def _reject(key, out, left, attempt):
    """Replace out[left] by the first values that attempt(key of the try, elements) accepts."""
    for k in range(tries.ATTEMPTS):
        if not left.size:
            break
        trial, rest = _subkey(key, TRY, k), []
        for first in range(0, left.size, _CHUNK):
            part = left[first : first + _CHUNK]
            with np.errstate(all="ignore"):  # what happens in branches that are not taken
                value, good = attempt(trial, part)
            out[part[good]] = value[good]
            rest.append(part[~good])
        left = np.concatenate(rest)
    return out


# ---- keys and integers ----


def key(seed) -> np.ndarray:
    """The key of a seed in [0, 2**64)."""
    seed = _integer("key: seed", seed, 0, 2**64)
    return np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)


def split(key, n) -> np.ndarray:
    """The keys uint32[n, 2], distinct from each other and from every other use of key."""
    index = np.arange(_integer("split: n", n, 0, COUNTERS))
    return np.stack(blocks(key, SPLIT, index), axis=-1)


def fold_in(key, data) -> np.ndarray:
    """The key of (key, data), for an integer data in [0, 2**60)."""
    return _subkey(key, FOLD, _integer("fold_in: data", data, 0, COUNTERS))


def bits(key, shape) -> np.ndarray:
    """Uniform uint32 words; a shorter draw is the beginning of a longer one."""
    return _fill(shape, np.uint32, lambda first, count: _words(key, first, count))


def randint(key, shape, low, high) -> np.ndarray:
    """Uniform int64 in [low, high); no value's chance is off by a relative 2**-64 or more."""
    low = _integer("randint: low", low, -(2**63), 2**63)
    high = _integer("randint: high", high, low + 1, min(low + 2**64, 2**63 + 1))

    def draw(first, count):
        """Elements first to first + count, of 128 bits each."""
        one, other = _pairs(key, np.arange(first, first + count), np.float64)
        return laws.integer(ARRAYS, (*one, *other), low, high)

    return _fill(shape, np.int64, draw)


def permutation(key, n) -> np.ndarray:
    """A uniform order of range(n): the indices sorted by their blocks, int64."""
    index = np.arange(_integer("permutation: n", n, 0, COUNTERS))
    high, low = blocks(key, DRAW, index)
    # the blocks of one key are all different, so every way of sorting gives this order
    return np.argsort((high.astype(np.uint64) << np.uint64(32)) | low)


# ---- floats: (word,) makes a float32, (high, low) a float64 ----


_unit, _fraction, _minus_log, _quantile = (
    partial(law, ARRAYS) for law in (laws.unit, laws.fraction, laws.minus_log, laws.quantile)
)
_high_product = laws.high_product


def _floats(who, key, shape, dtype, of):
    """An array of shape whose elements are of(their words)."""
    layout(f"random.{who}", dtype)
    return _fill(shape, dtype, lambda first, n: of(_variates(key, first, n, dtype)))


def uniform(key, shape, dtype) -> np.ndarray:
    """Uniform floats in [0, 1): multiples of 2**-24 in float32, of 2**-53 in float64."""
    return _floats("uniform", key, shape, dtype, _fraction)


def normal(key, shape, dtype) -> np.ndarray:
    """Standard normal floats, by the quantile; |x| < 6.34 in float32, 9.16 in float64."""
    return _floats("normal", key, shape, dtype, _quantile)


def exponential(key, shape, dtype) -> np.ndarray:
    """Floats > 0 of the exponential distribution: -log(u) of a u in the open (0, 1)."""
    return _floats("exponential", key, shape, dtype, _minus_log)


def gumbel(key, shape, dtype) -> np.ndarray:
    """Floats -log(-log(u)) of the Gumbel distribution."""
    return _floats("gumbel", key, shape, dtype, partial(laws.gumbel, ARRAYS))


def chosen(key, chance, shape) -> np.ndarray:
    """The bernoulli of one chance in (0, 1], without floats."""

    def draw(first, count):
        """Elements first to first + count."""
        return laws.below(blocks(key, DRAW, np.arange(first, first + count)), chance)

    return _fill(shape, np.bool_, draw)


def bernoulli(key, p, shape) -> np.ndarray:
    """True with probability p, to 2**-53: a uniform float64 is below p."""
    who = "bernoulli: p must be in [0, 1]"
    p = _parameter(who, p, shape, np.float64, good=lambda p: (p >= 0) & (p <= 1))

    def draw(first, count):
        """Elements first to first + count."""
        return _fraction(_variates(key, first, count, np.float64)) < p[first : first + count]

    return _fill(shape, np.bool_, draw)


# ---- rejection samplers ----


_truncated = partial(tries.truncated, ARRAYS)


def truncated_normal(key, lower, upper, shape, dtype) -> np.ndarray:
    """Standard normal floats in [lower, upper], at any distance from 0, by rejection."""
    # Not by the quantile: the chance of [8, 9] is 6e-16, and that of [40, 41] no float at all.
    layout("random.truncated_normal", dtype)
    said = "truncated_normal: upper must be above lower"
    lower = _parameter(said, lower, shape, dtype, good=lambda x: x < np.inf)
    upper = _parameter(said, upper, shape, dtype, good=lambda x: x > lower)

    def attempt(trial, i):
        """A try for each element of i."""
        one, other = _pairs(trial, i, dtype)
        return tries.truncated_try(ARRAYS, one, other, lower[i], upper[i])

    out = tries.between(ARRAYS, np.zeros_like(lower), lower, upper)
    return _reject(key, out, np.arange(out.size), attempt).reshape(_extent(shape))


def gamma(key, a, shape, dtype, *, log_space=False) -> np.ndarray:
    """Floats of the gamma distribution with shape a > 0 and scale 1, or their logarithms."""
    layout("random.gamma", dtype)
    who = "gamma: a must be finite and > 0"
    a = _parameter(who, a, shape, dtype, good=lambda a: (a > 0) & (a < np.inf))
    d = tries.gamma_centre(ARRAYS, a)

    def attempt(trial, i):
        """A try for each element of i."""
        one, other = _pairs(trial, i, dtype)
        return tries.gamma_try(ARRAYS, one, other, d[i])

    out = _reject(key, d.copy(), np.arange(d.size), attempt)

    def finish(first, count):
        """The power of u, where a is below 1."""
        size, value = a[first : first + count], out[first : first + count]
        words = _variates(key, first, count, dtype)
        return tries.gamma_scaled(ARRAYS, size, value, words, log_space=log_space)

    if not log_space and np.all(a >= 1):
        return out.reshape(_extent(shape))
    with np.errstate(all="ignore"):  # what happens in branches that are not taken
        return _fill(shape, dtype, finish)


def poisson(key, lam, shape) -> np.ndarray:
    """Poisson int64 counts of mean lam in [0, 1e9], computed in float64."""
    who = "poisson: lam must be in [0, 1e9]"
    lam = _parameter(who, lam, shape, np.float64, good=lambda x: (x >= 0) & (x <= 1e9))

    def attempt(trial, i):
        """A try for each element of i."""
        one, other = _pairs(trial, i, np.float64)
        return tries.poisson_try(ARRAYS, one, other, lam[i])

    out, few = np.floor(lam), np.flatnonzero(lam < tries.FEW)
    for first in range(0, few.size, _CHUNK):
        part = few[first : first + _CHUNK]
        u = _unit(blocks(key, DRAW, part))
        out[part] = tries.poisson_few(ARRAYS, u, lam[part])
    out = _reject(key, out, np.flatnonzero(lam >= tries.FEW), attempt)
    return out.astype(np.int64).reshape(_extent(shape))
