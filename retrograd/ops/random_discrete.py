"""Random numbers of discrete laws, and random orders: no result of these has a derivative."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core import rng as bits_of
from retrograd.core import rng_laws as formulas
from retrograd.core import rng_tries as tries
from retrograd.core.errors import ArgumentError, DtypeError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import op
from retrograd.core.spec import Spec, axis_index, broadcast_shapes
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, elementary, extrema, gather, options, required, sort
from retrograd.ops import random as laws
from retrograd.ops import random_keys as keys
from retrograd.ops import shape as shapes


@op
class RandomBernoulli(keys.Keyed):
    """True with probability p."""

    takes = "real"
    uniform = True
    no_derivative = "its result is true or false, constant almost everywhere"

    def shape(self, key: Spec, p: Spec) -> Spec:
        return keys.beside("random.bernoulli", key, p, "p").with_dtype(dt.bool)

    def forward(self, key, p):
        return keys.each(self, lambda key, p: bits_of.bernoulli(key, p, p.shape), key, p)

    def lower(self, k, key, p):
        words = keys.words(k, key, p.shape[len(key.shape) - 1 :], 2)

        def drawn(p, *words):
            p = k.cast(p, dt.float64)
            p = k.required(p, (p >= 0) & (p <= 1), "random.bernoulli: p must be in [0, 1]")
            return formulas.fraction(k, words) < p

        return k.map(drawn, dt.bool, p, *words)

    @staticmethod
    def samples(rng):
        yield RandomBernoulli(), keys.some(rng), rng.uniform(0, 1, (2, 3))
        yield RandomBernoulli(), keys.some(rng, 2), np.array([0.5, 1.0])
        yield RandomBernoulli(), keys.some(rng), np.zeros((0, 2))

    @staticmethod
    def refuses(rng):
        yield RandomBernoulli(), keys.some(rng), np.array([0.5, 1.5]), "p must be in [0, 1]"
        yield RandomBernoulli(), keys.some(rng, 2), np.ones(3), "key (2, 2) and p (3,)"


@op
class RandomPoisson(keys.Keyed):
    """Counts of mean lam."""

    takes = "real"
    uniform = True
    no_derivative = "its result is a count, constant almost everywhere"

    def shape(self, key: Spec, lam: Spec) -> Spec:
        return keys.beside("random.poisson", key, lam, "lam").with_dtype(dt.int64)

    def forward(self, key, lam):
        return keys.each(self, lambda key, lam: bits_of.poisson(key, lam, lam.shape), key, lam)

    def lower(self, k, key, lam, out):
        drawn = keys.Tries(k, key, lam, dt.float64)
        for row in k.rows(lam, out, axis=()):
            mean = k.cast(lam[row], dt.float64)
            good = (mean >= 0) & (mean <= 1e9)
            mean = k.required(mean, good, "random.poisson: lam must be in [0, 1e9]")
            few = tries.poisson_few(k, formulas.unit(k, drawn.words(row)), mean)
            law = partial(_poisson_try, k, mean)
            many = drawn.first(row, k.floor(mean), law, ready=mean < tries.FEW)
            out[row] = k.cast(k.where(mean < tries.FEW, few, many), dt.int64)

    @staticmethod
    def samples(rng):
        yield RandomPoisson(), keys.some(rng), np.array([[0.0, 2.5], [40.0, 1e6]])
        yield RandomPoisson(), keys.some(rng, 2), np.array([3.0, 4.0])
        yield RandomPoisson(), keys.some(rng), np.zeros((0, 2))

    @staticmethod
    def refuses(rng):
        yield RandomPoisson(), keys.some(rng), np.array([-1.0]), "lam must be in [0, 1e9]"


def _poisson_try(k: Any, mean: Any, one: Any, other: Any) -> Any:
    return tries.poisson_try(k, one, other, mean)


@op
class RandomInteger(keys.Keyed):
    """Uniform integers from low up to high - 1."""

    to: tuple[int, ...]
    low: int
    high: int
    no_derivative = "its result is an integer"

    def shape(self, key: Spec) -> Spec:
        return Spec((*keys.lead_of("random.randint", key), *self.to), dt.int64)

    def forward(self, key):
        def draw(key):
            return bits_of.randint(key, self.to, self.low, self.high)

        return keys.each(self, draw, key)

    def lower(self, k, key):
        def drawn(*words):
            return formulas.integer(k, words, self.low, self.high)

        return k.map(drawn, dt.int64, *keys.words(k, key, self.to, 4))

    @staticmethod
    def samples(rng):
        yield RandomInteger((2, 3), -5, 2**62), keys.some(rng)
        yield RandomInteger((), 0, 3), keys.some(rng, 2)

    @staticmethod
    def refuses(rng):
        yield RandomInteger((2,), 3, 3), keys.some(rng), "high must be an integer in [4, "


@op
class RandomPermutation(keys.Keyed):
    """The integers below n in random order."""

    n: int
    host = sort.LIBRARY
    no_derivative = "its result is an index"

    def shape(self, key: Spec) -> Spec:
        return Spec((*keys.lead_of("random.permutation", key), self.n), dt.int64)

    def forward(self, key):
        return keys.each(self, lambda key: bits_of.permutation(key, self.n), key)

    @staticmethod
    def samples(rng):
        yield RandomPermutation(5), keys.some(rng)
        yield RandomPermutation(4), keys.some(rng, 3)
        yield RandomPermutation(0), keys.some(rng)

    @staticmethod
    def refuses(rng):
        yield RandomPermutation(5), np.zeros(2), "a key is uint32 of shape (2,)"


BERNOULLI, POISSON = RandomBernoulli(), RandomPoisson()


def _chances(who: str, name: str, value: Any, shape: Any) -> Tensor:
    """A parameter of a discrete law, repeated to a shape; numbers are taken as float64."""
    to, _ = laws.plan(who, shape, dt.float64, **{name: value})
    value = lift(np.float64(value)) if laws.number(value) else lift(value)
    return shapes.broadcast_to(value, to)


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None) -> Tensor:
    """True with probability p, else False; without a shape, in the shape of p.

    Not differentiable in p: a relaxed choice is sigmoid(logit(p) + l) of a logistic l.
    """
    who = "random.bernoulli"
    chances = _chances(who, "p", p, shape)
    return apply(BERNOULLI, keys.key_of(who, key), chances)


def poisson(key: Any, lam: Any, shape: Any = None, *, dtype: Any = dt.int64) -> Tensor:
    """Counts of the Poisson distribution of mean lam; without a shape, in the shape of lam."""
    who = "random.poisson"
    counts = apply(POISSON, keys.key_of(who, key), _chances(who, "lam", lam, shape))
    return cast.astype(counts, dtype)


def randint(
    key: Any, shape: Any = (), *, low: int = 0, high: int, dtype: Any = dt.int64
) -> Tensor:
    """Uniform integers from low up to high - 1; both are Python integers."""
    who = "random.randint"
    dtype = dt.as_dtype(who, dtype)
    if dtype not in dt.INTEGERS:
        raise DtypeError(f"{who}: dtype must be an integer's; got {dtype}")
    low, high = options.integer(who, "low", low), options.integer(who, "high", high)
    if low >= high:
        raise ArgumentError(f"{who}: low must be below high; got low {low}, high {high}")
    limits = np.iinfo(dtype)
    if low < limits.min or high - 1 > limits.max:
        raise ArgumentError(
            f"{who}: integers from {low} up to {high - 1} do not fit in {dtype}, "
            f"which holds {limits.min} up to {limits.max}"
        )
    drawn = RandomInteger(options.sizes(who, shape), low, high)
    return cast.astype(apply(drawn, keys.key_of(who, key)), dtype)


def categorical(key: Any, logits: Any, shape: Any = None, *, axis: int = -1) -> Tensor:
    """Indices along `axis`, each drawn with probability softmax(logits), as int64.

    `shape` is that of the result; by default that of logits without `axis`, which must
    broadcast to it. Drawn as the argmax of logits + Gumbel numbers; not differentiable in
    logits: a relaxed choice is softmax((logits + gumbel) / temperature).
    """
    who = "random.categorical"
    logits = lift(logits)
    if logits.dtype.kind in "biu":
        logits = cast.astype(logits, dt.float32)
    logits = shapes.moveaxis(logits, axis_index(who, axis, logits.ndim), -1)
    beside, n = logits.shape[:-1], logits.shape[-1]
    if not n:
        raise ShapeError(f"{who}: logits has no element along axis {axis} to choose from")
    to = beside if shape is None else options.sizes(who, shape)
    if broadcast_shapes(who, logits_beside_axis=beside, shape=to) != to:
        raise ShapeError(f"{who}: shape {to} is too small for logits, beside axis {beside}")
    noise = laws.gumbel(keys.key_of(who, key), (*to, n), dtype=logits.dtype)
    return extrema.argmax(logits + noise, axis=-1)


def permutation(key: Any, x: Any, *, axis: int = 0) -> Tensor:
    """The integers below x in random order; or a tensor x with its slices along `axis` so."""
    who = "random.permutation"
    if isinstance(x, (int, np.integer)):
        (n,) = options.sizes(who, x)
        return apply(RandomPermutation(n), keys.key_of(who, key))
    x = lift(x)
    axis = axis_index(who, axis, x.ndim)
    return gather.take(x, permutation(key, x.shape[axis]), axis=axis)


def shuffle(key: Any, x: Any, *, axis: int = 0) -> Tensor:
    """The slices of a tensor along `axis` in random order; x itself stays as it is."""
    return permutation(key, lift(x), axis=axis)


def choice(
    key: Any,
    x: Any,
    shape: Any = (),
    *,
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
) -> Tensor:
    """Random slices of x along `axis`, or random integers below an integer x.

    `p` gives each its weight, which need not sum to 1; without it all are equally likely.
    With `replace=False` none is chosen twice.
    """
    who = "random.choice"
    whole = isinstance(x, (int, np.integer))
    x = x if whole else lift(x)
    axis = 0 if whole else axis_index(who, axis, x.ndim)
    n = options.sizes(who, x)[0] if whole else x.shape[axis]
    to = options.sizes(who, shape)
    if prod(to) > n and not (n and replace):
        raise ArgumentError(
            f"{who}: {prod(to)} were asked for, and there are {n} to choose from"
        )
    logits = None if p is None else _log_weights(who, p, n, 1 if replace else prod(to))
    if replace:
        uniform = logits is None
        indices = randint(key, to, high=max(n, 1)) if uniform else categorical(key, logits, to)
    else:
        indices = shapes.reshape(_distinct(who, key, n, prod(to), logits), to)
    return indices if whole else gather.take(x, indices, axis=axis)


def _log_weights(who: str, p: Any, n: int, least: int) -> Tensor:
    p = lift(p)
    if p.shape != (n,):
        raise ShapeError(f"{who}: p must have shape ({n},), a weight for each; got {p.shape}")
    p = required.within(who, "p", p)
    known = required.known(p)
    if known is not None and known.ndim == 1 and np.count_nonzero(known) < least:
        raise ArgumentError(f"{who}: p has fewer than {least} weights above 0")
    return elementary.log(p)


def _distinct(who: str, key: Any, n: int, count: int, logits: Any) -> Tensor:
    """Different indices below n: the first of a random order, or the largest of a race."""
    key = keys.key_of(who, key)
    if logits is None:
        return apply(RandomPermutation(n), key)[:count]
    return sort.topk(logits + laws.gumbel(key, (n,), dtype=logits.dtype), count)[1]
