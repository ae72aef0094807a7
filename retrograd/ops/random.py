"""Random numbers of continuous laws: uniform, normal, exponential, Gumbel, truncated normal.

What a key gives is a constant; parameters move and scale it, so that draws are differentiable
in them (the reparameterisation of a law by its place and scale).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core import rng as bits_of
from retrograd.core import rng_laws as formulas
from retrograd.core import rng_tries as tries
from retrograd.core.errors import ArgumentError, DtypeError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Elementwise, op
from retrograd.core.spec import Spec, broadcast_shapes
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, options, required
from retrograd.ops import random_keys as keys
from retrograd.ops import shape as shapes

# -- draws without parameters -----------------------------------------------------------------


class Draw(keys.Keyed):
    """Draws without parameters; `to` is the shape of one, `dtype` a float."""

    to: tuple[int, ...]
    dtype: np.dtype
    no_derivative = "it depends on a key alone, and keys are integers"

    def shape(self, key: Spec) -> Spec:
        return Spec((*keys.lead_of(self.name, key), *self.to), self.dtype)

    def made(self, k: Any, key: Any, law: Any) -> Any:
        """In a kernel: the law of the words of each element."""
        words = keys.words(k, key, self.to, 1 if self.dtype == dt.float32 else 2)
        return k.map(lambda *words: law(k, words), self.dtype, *words)

    @classmethod
    def samples(cls, rng):
        yield cls((2, 3), dt.float64), keys.some(rng)
        yield cls((), dt.float32), keys.some(rng, 2)
        yield cls((0, 3), dt.float32), keys.some(rng)

    @classmethod
    def refuses(cls, rng):
        yield cls((3,), dt.float32), np.zeros(2), "a key is uint32 of shape (2,); got float64"
        yield cls((3,), dt.float16), keys.some(rng), "dtype float16 is not float32 or float64"


@op
class RandomUniform(Draw):
    """Uniform numbers in [0, 1)."""

    to: tuple[int, ...]
    dtype: np.dtype

    def forward(self, key):
        return keys.each(self, lambda key: bits_of.uniform(key, self.to, self.dtype), key)

    def lower(self, k, key):
        return self.made(k, key, formulas.fraction)


@op
class RandomNormal(Draw):
    """Numbers of the standard normal distribution."""

    to: tuple[int, ...]
    dtype: np.dtype

    def forward(self, key):
        return keys.each(self, lambda key: bits_of.normal(key, self.to, self.dtype), key)

    def lower(self, k, key):
        return self.made(k, key, formulas.quantile)


@op
class RandomExponential(Draw):
    """Numbers above 0 of the exponential distribution of mean 1."""

    to: tuple[int, ...]
    dtype: np.dtype

    def forward(self, key):
        return keys.each(self, lambda key: bits_of.exponential(key, self.to, self.dtype), key)

    def lower(self, k, key):
        return self.made(k, key, formulas.minus_log)


@op
class RandomGumbel(Draw):
    """Numbers of the Gumbel distribution."""

    to: tuple[int, ...]
    dtype: np.dtype

    def forward(self, key):
        return keys.each(self, lambda key: bits_of.gumbel(key, self.to, self.dtype), key)

    def lower(self, k, key):
        return self.made(k, key, formulas.gumbel)


@op
class RandomTruncatedNormal(keys.Keyed):
    """Standard normal numbers between lower and upper."""

    uniform = True
    takes = "floating"
    no_derivative = "it rejects what is outside its bounds, and they are not differentiated"

    def shape(self, key: Spec, lower: Spec, upper: Spec) -> Spec:
        keys.beside("random.truncated_normal", key, upper, "upper")
        if lower.shape != upper.shape:
            raise ShapeError(
                f"random.truncated_normal: lower {lower.shape} and upper {upper.shape} must "
                f"have one shape"
            )
        return upper

    def forward(self, key, lower, upper):
        def draw(key, lower, upper):
            return bits_of.truncated_normal(key, lower, upper, upper.shape, upper.dtype)

        return keys.each(self, draw, key, lower, upper)

    def lower(self, k, key, lower, upper, out):
        said = "random.truncated_normal: upper must be above lower"
        for row in k.rows(upper, out, axis=()):
            low = k.required(lower[row], lower[row] < np.inf, said)
            high = k.required(upper[row], upper[row] > low, said)
            start = tries.between(k, 0, low, high)
            law = partial(_truncated, k, low, high)
            out[row] = keys.Tries(k, key, upper, upper.dtype).first(row, start, law)

    @staticmethod
    def samples(rng):
        low, high = rng.uniform(-2, 1, (2, 3)), rng.uniform(1, 2, (2, 3))
        yield RandomTruncatedNormal(), keys.some(rng), low, high
        yield RandomTruncatedNormal(), keys.some(rng, 2), low, high + np.inf
        yield RandomTruncatedNormal(), keys.some(rng), np.zeros((0, 2)), np.ones((0, 2))

    @staticmethod
    def refuses(rng):
        cls, key = RandomTruncatedNormal(), keys.some(rng)
        yield cls, key, np.ones(2), np.zeros(2), "upper must be above lower"
        yield cls, key, np.ones(2), np.ones(3), "must have one shape"


def _truncated(k: Any, low: Any, high: Any, one: Any, other: Any) -> Any:
    return tries.truncated_try(k, one, other, low, high)


TRUNCATED = RandomTruncatedNormal()


_ROOM = "random.uniform: high - low must be above 0"


@op
class Between(Elementwise):
    """low + (high - low) * u, which for u below 1 is below high, however it is rounded."""

    eps: float  # of the dtype
    takes = "floating"

    def forward(self, u, low, high):
        empty = high - low <= 0
        if np.any(empty):
            raise ArgumentError(f"{_ROOM}; got {np.asarray(high - low)[empty].flat[0]}")
        x = low + (high - low) * u
        return np.where(x < high, x, np.maximum(high - np.abs(high) * self.eps, low))

    def slope_u(self, low, high):
        return high - low

    def slope_low(self, u):
        return 1 - u

    def slope_high(self, u):
        return u

    def lower(self, k, u, low, high):
        span = high - low
        x = low + k.required(span, ~(span <= 0), _ROOM) * u
        return k.where(x < high, x, k.maximum(high - k.abs(high) * self.eps, low))

    @staticmethod
    def samples(rng):
        u = rng.uniform(0.1, 0.9, (2, 3))
        yield Between(2.0**-52), u, rng.normal(size=3), rng.normal(size=3) + 9
        yield Between(2.0**-52), u[0, 0], rng.normal(size=(0, 1)), np.asarray(9.0)

    @staticmethod
    def refuses(rng):
        yield Between(2.0**-52), np.ones(2), np.ones(2), np.zeros(2), "above 0; got -1.0"


# -- parameters ------------------------------------------------------------------------------


def number(value: Any) -> bool:
    """Whether a parameter is a plain number, which says nothing of dtypes."""
    return isinstance(value, (bool, int, float, np.generic))


def plan(who: str, to: Any, dtype: Any, **named: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of a draw: as told, or else those that its parameters meet in."""
    given = {n: lift(v) for n, v in named.items() if not number(v)}
    sizes = {n: v.shape for n, v in given.items()}
    found = broadcast_shapes(who, **sizes)
    wanted = found if to is None else options.sizes(who, to)
    if broadcast_shapes(who, **sizes, shape=wanted) != wanted:
        listed = ", ".join(f"{n} {s}" for n, s in sizes.items())
        raise ShapeError(f"{who}: shape {wanted} is too small for the parameters: {listed}")
    if dtype is None:
        floats = [v.dtype for v in given.values() if dt.is_inexact(v.dtype)]
        dtype = dt.promote(who, *floats) if floats else dt.float32
    dtype = dt.as_dtype(who, dtype)
    if dtype not in (dt.float32, dt.float64):
        raise DtypeError(
            f"{who}: draws are float32 or float64; got dtype {dtype}",
            hint="rg.astype(rg.random.normal(key, shape), rg.float16)",
        )
    return wanted, dtype


def as_tensor(value: Any, dtype: np.dtype) -> Tensor:
    """A parameter in the dtype of the draw."""
    return lift(np.asarray(value, dtype)) if number(value) else cast.astype(value, dtype)


def repeat(value: Any, to: tuple[int, ...], dtype: np.dtype) -> Tensor:
    """A parameter for each element of the shape `to`."""
    return shapes.broadcast_to(as_tensor(value, dtype), to)


def placed(draw: Tensor, loc: Any, scale: Any) -> Tensor:
    """loc + scale * draw, in the dtype of the draw."""
    if not (number(scale) and scale == 1):
        draw = draw * as_tensor(scale, draw.dtype)
    return draw if number(loc) and loc == 0 else draw + as_tensor(loc, draw.dtype)


# -- the public functions --------------------------------------------------------------------


def uniform(
    key: Any, shape: Any = None, *, low: Any = 0.0, high: Any = 1.0, dtype: Any = None
) -> Tensor:
    """Uniform numbers in [low, high), differentiable in both.

    Without a shape, that of the parameters; without a dtype, theirs, float32 for numbers.
    """
    who = "random.uniform"
    to, dtype = plan(who, shape, dtype, low=low, high=high)
    u = apply(RandomUniform(to, dtype), keys.key_of(who, key))
    if number(low) and number(high) and (low, high) == (0, 1):
        return u
    low, high = as_tensor(low, dtype), as_tensor(high, dtype)
    return apply(Between(float(np.finfo(dtype).eps)), u, low, high)


def normal(
    key: Any, shape: Any = None, *, mean: Any = 0.0, std: Any = 1.0, dtype: Any = None
) -> Tensor:
    """Normal numbers mean + std * z, differentiable in both; options as in `uniform`."""
    who = "random.normal"
    to, dtype = plan(who, shape, dtype, mean=mean, std=std)
    std = required.within(who, "std", std)
    return placed(apply(RandomNormal(to, dtype), keys.key_of(who, key)), mean, std)


def exponential(key: Any, shape: Any = None, *, scale: Any = 1.0, dtype: Any = None) -> Tensor:
    """Numbers of the exponential distribution of mean `scale`, differentiable in it."""
    who = "random.exponential"
    to, dtype = plan(who, shape, dtype, scale=scale)
    scale = required.within(who, "scale", scale)
    return placed(apply(RandomExponential(to, dtype), keys.key_of(who, key)), 0, scale)


def gumbel(
    key: Any, shape: Any = None, *, loc: Any = 0.0, scale: Any = 1.0, dtype: Any = None
) -> Tensor:
    """Numbers loc - scale * log(-log(u)) of the Gumbel distribution, differentiable in both."""
    who = "random.gumbel"
    to, dtype = plan(who, shape, dtype, loc=loc, scale=scale)
    scale = required.within(who, "scale", scale)
    return placed(apply(RandomGumbel(to, dtype), keys.key_of(who, key)), loc, scale)


def truncated_normal(
    key: Any,
    shape: Any = None,
    *,
    lower: Any = -2.0,
    upper: Any = 2.0,
    mean: Any = 0.0,
    std: Any = 1.0,
    dtype: Any = None,
) -> Tensor:
    """Numbers mean + std * z of standard normal z in [lower, upper].

    The bounds are those of z, counted in standard deviations, and may be infinite. Draws are
    differentiable in mean and std, and not in the bounds.
    """
    who = "random.truncated_normal"
    to, dtype = plan(who, shape, dtype, lower=lower, upper=upper, mean=mean, std=std)
    std = required.within(who, "std", std)
    bounds = (repeat(bound, to, dtype) for bound in (lower, upper))
    return placed(apply(TRUNCATED, keys.key_of(who, key), *bounds), mean, std)
