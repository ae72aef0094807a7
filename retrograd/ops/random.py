"""Random numbers by key: bits, uniform, normal, exponential, Gumbel, truncated normal.

A key is a uint32 tensor of shape (2,), an operand like others: traced, mapped, replayed. A draw
is a function of its key, so the same key gives the same bits, always. `core.rng` has them.
An op takes a key, or a batch of keys (.., 2) with its other operands batched alike, and draws
for each by itself: mapped over keys, it is the loop over them bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core import rng as bits_of
from retrograd.core.errors import ArgumentError, DtypeError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Elementwise, Op, front, op
from retrograd.core.spec import Spec, broadcast_shapes, shape_tuple, spec_of
from retrograd.core.tensor import Box, Tensor
from retrograd.ops import cast, join, logic, shape

HOST = "drawn by NumPy until the compiler has its own"


# -- what all ops with a key share -----------------------------------------------------------


class Keyed(Op):
    """Ops that draw by a key, their first operand, which is never differentiated."""

    fixed = ("key",)
    host = HOST

    def batch(self, size, args, mapped):
        return apply(self, *front(size, args, mapped))


def some(rng: Any, *lead: int) -> np.ndarray:
    """A key, or a batch of keys, for samples."""
    return rng.integers(0, 2**32, (*lead, 2), np.uint32)


def lead_of(who: str, key: Spec) -> tuple[int, ...]:
    """The shape of a batch of keys, () for one; refuses what is no key."""
    if key.dtype != dt.uint32 or key.shape[-1:] != (2,):
        raise (DtypeError if key.dtype != dt.uint32 else ShapeError)(
            f"{who}: a key is uint32 of shape (2,); got {key.dtype} of shape {key.shape}",
            hint="key = rg.random.key(0)",
        )
    return key.shape[:-1]


def beside(who: str, key: Spec, a: Spec, name: str = "a") -> Spec:
    """The spec of `a`, refused unless its leading axes are those of a batch of keys."""
    lead = lead_of(who, key)
    if a.shape[: len(lead)] != lead:
        raise ShapeError(
            f"{who}: key {key.shape} and {name} {a.shape} must have leading axes {lead}"
        )
    return a


def each(op: Op, draw: Any, key: np.ndarray, *operands: np.ndarray) -> np.ndarray:
    """draw(key, *operands), for each key of a batch with its part of the operands."""
    spec = op.shape(*map(spec_of, (key, *operands)))
    if key.ndim == 1:
        return draw(key, *operands)
    out = np.empty(spec.shape, spec.dtype)
    for i in np.ndindex(*key.shape[:-1]):
        out[i] = draw(key[i], *(np.asarray(v[i]) for v in operands))
    return out


# -- keys ------------------------------------------------------------------------------------


@op
class SplitKey(Keyed):
    """n keys of one."""

    n: int
    no_derivative = "keys are integers"

    def shape(self, key: Spec) -> Spec:
        return Spec((*lead_of("random.split", key), self.n, 2), dt.uint32)

    def forward(self, key):
        return each(self, lambda key: bits_of.split(key, self.n), key)

    @staticmethod
    def samples(rng):
        yield SplitKey(3), some(rng)
        yield SplitKey(0), some(rng, 2)

    @staticmethod
    def refuses(rng):
        yield SplitKey(3), np.zeros(3, np.uint32), "a key is uint32 of shape (2,)"
        yield SplitKey(3), np.zeros(2, np.int64), "got int64 of shape (2,)"


@op
class FoldKey(Keyed):
    """The key of a key and a number."""

    fixed = ("key", "data")
    no_derivative = "keys are integers"

    def shape(self, key: Spec, data: Spec) -> Spec:
        if data.dtype.kind not in "iu" or data.shape != lead_of("random.fold_in", key):
            raise ArgumentError(f"random.fold_in: data must be one integer; got {data}")
        return key

    def forward(self, key, data):
        return each(self, lambda key, data: bits_of.fold_in(key, int(data)), key, data)

    @staticmethod
    def samples(rng):
        yield FoldKey(), some(rng), np.asarray(5)
        yield FoldKey(), some(rng, 2), np.array([7, 7])

    @staticmethod
    def refuses(rng):
        yield FoldKey(), some(rng), np.asarray(0.5), "data must be one integer; got float64[]"
        yield FoldKey(), some(rng), np.asarray(-1), "data must be an integer in [0, "


def key(seed: int) -> Tensor:
    """The key of a seed from 0 to 2**64 - 1. Different seeds have different keys.

    A key is for one use: drawing twice by the same key gives the same numbers. `split` and
    `fold_in` make new keys of it, after which it should not be drawn by.
    """
    return Tensor(bits_of.key(seed))


def key_of(who: str, key: Any) -> Tensor:
    """`key` as a tensor, refused unless it is one key."""
    key = lift(key)
    if lead_of(who, key.spec):
        raise ShapeError(
            f"{who}: a key is uint32 of shape (2,); got shape {key.shape}",
            hint="rg.vmap(f)(keys) draws by each of several keys",
        )
    return key


def split(key: Any, n: int = 2) -> Tensor:
    """`n` new keys, as uint32[n, 2]: independent of each other and of all drawn by `key`."""
    (n,) = shape_tuple("random.split", n)
    return apply(SplitKey(n), key_of("random.split", key))


def fold_in(key: Any, data: Any) -> Tensor:
    """The key of `key` and an integer from 0 to 2**60 - 1, such as a step or a layer's number.

    Other integers give other keys, independent of each other. `data` may be a tensor.
    """
    if isinstance(data, int) and not 0 <= data < 2**60:
        raise ArgumentError(f"random.fold_in: data must be from 0 to 2**60 - 1; got {data}")
    return apply(FoldKey(), key_of("random.fold_in", key), lift(data))


# -- draws that depend on the key alone ------------------------------------------------------


class Draw(Keyed):
    """Draws without parameters; `to` is the shape of one, `dtype` a float."""

    no_derivative = "it depends on a key alone, and keys are integers"

    def shape(self, key: Spec) -> Spec:
        return Spec((*lead_of(self.name, key), *self.to), self.dtype)

    @classmethod
    def samples(cls, rng):
        yield cls((2, 3), dt.float64), some(rng)
        yield cls((), dt.float32), some(rng, 2)
        yield cls((0, 3), dt.float32), some(rng)

    @classmethod
    def refuses(cls, rng):
        yield cls((3,), dt.float32), np.zeros(2), "a key is uint32 of shape (2,); got float64"
        yield cls((3,), dt.float16), some(rng), "dtype float16 is not float32 or float64"


@op
class RandomBits(Keyed):
    """uint32 words of a key."""

    to: tuple[int, ...]
    no_derivative = "its result is made of bits"
    host = ""

    def shape(self, key: Spec) -> Spec:
        return Spec((*lead_of("random.bits", key), *self.to), dt.uint32)

    def forward(self, key):
        return each(self, lambda key: bits_of.bits(key, self.to), key)

    def lower(self, k, key):
        return k.random_bits(key, self.to)

    @staticmethod
    def samples(rng):
        yield RandomBits((2, 3)), some(rng)
        yield RandomBits(()), some(rng, 2, 3)
        yield RandomBits((0, 2)), some(rng)

    @staticmethod
    def refuses(rng):
        yield RandomBits((3,)), np.zeros((2, 3), np.uint32), "got uint32 of shape (2, 3)"


@op
class RandomUniform(Draw):
    """Uniform numbers in [0, 1)."""

    to: tuple[int, ...]
    dtype: np.dtype
    host = ""

    def forward(self, key):
        return each(self, lambda key: bits_of.uniform(key, self.to, self.dtype), key)

    def expand(self, key):  # the leading 24 or 53 bits of a word or two
        if self.dtype == dt.float32:
            return _shifted(apply(RandomBits(self.to), key), 8, self.dtype) * 2.0**-24
        high, low = join.unstack(apply(RandomBits((*self.to, 2)), key), axis=-1)
        whole = _shifted(high, 5, self.dtype) * 2.0**26 + _shifted(low, 6, self.dtype)
        return whole * 2.0**-53


def _shifted(words: Any, by: int, dtype: np.dtype) -> Any:
    return cast.astype(logic.bitwise_right_shift(words, np.uint32(by)), dtype)


@op
class RandomNormal(Draw):
    """Numbers of the standard normal distribution."""

    to: tuple[int, ...]
    dtype: np.dtype

    def forward(self, key):
        return each(self, lambda key: bits_of.normal(key, self.to, self.dtype), key)


@op
class RandomExponential(Draw):
    """Numbers above 0 of the exponential distribution of mean 1."""

    to: tuple[int, ...]
    dtype: np.dtype

    def forward(self, key):
        return each(self, lambda key: bits_of.exponential(key, self.to, self.dtype), key)


@op
class RandomGumbel(Draw):
    """Numbers of the Gumbel distribution."""

    to: tuple[int, ...]
    dtype: np.dtype

    def forward(self, key):
        return each(self, lambda key: bits_of.gumbel(key, self.to, self.dtype), key)


@op
class RandomTruncatedNormal(Keyed):
    """Standard normal numbers between lower and upper."""

    uniform = True
    takes = "floating"
    no_derivative = "it rejects what is outside its bounds, and they are not differentiated"

    def shape(self, key: Spec, lower: Spec, upper: Spec) -> Spec:
        beside("random.truncated_normal", key, upper, "upper")
        if lower.shape != upper.shape:
            raise ShapeError(
                f"random.truncated_normal: lower {lower.shape} and upper {upper.shape} must "
                f"have one shape"
            )
        return upper

    def forward(self, key, lower, upper):
        def draw(key, lower, upper):
            return bits_of.truncated_normal(key, lower, upper, upper.shape, upper.dtype)

        return each(self, draw, key, lower, upper)

    @staticmethod
    def samples(rng):
        low = rng.uniform(-2, 2, (2, 3))
        yield RandomTruncatedNormal(), some(rng), low, low + 1
        yield RandomTruncatedNormal(), some(rng, 2), low, low + np.inf
        yield RandomTruncatedNormal(), some(rng), np.zeros((0, 2)), np.ones((0, 2))

    @staticmethod
    def refuses(rng):
        cls, key = RandomTruncatedNormal(), some(rng)
        yield cls, key, np.ones(2), np.zeros(2), "upper must be above lower"
        yield cls, key, np.ones(2), np.ones(3), "must have one shape"


@op
class Between(Elementwise):
    """low + (high - low) * u, which for u below 1 is below high, however it is rounded."""

    eps: float  # of the dtype
    takes = "floating"

    def forward(self, u, low, high):
        x = low + (high - low) * u
        return np.where(x < high, x, np.maximum(high - np.abs(high) * self.eps, low))

    def slope_u(self, low, high):
        return high - low

    def slope_low(self, u):
        return 1 - u

    def slope_high(self, u):
        return u

    def lower(self, k, u, low, high):
        x = low + (high - low) * u
        return k.where(x < high, x, k.maximum(high - k.abs(high) * self.eps, low))

    @staticmethod
    def samples(rng):
        u = rng.uniform(0.1, 0.9, (2, 3))
        yield Between(2.0**-52), u, rng.normal(size=3), rng.normal(size=3) + 9
        yield Between(2.0**-52), u[0, 0], rng.normal(size=(0, 1)), np.asarray(9.0)


# -- parameters ------------------------------------------------------------------------------


def number(value: Any) -> bool:
    """Whether a parameter is a plain number, which says nothing of dtypes."""
    return isinstance(value, (bool, int, float, np.generic))


def known(value: Any) -> np.ndarray | None:
    """What is in a parameter, under whatever transforms; None while it is traced."""
    while isinstance(value, Box):
        value = value.value
    return None if value is None else np.asarray(lift(value).array)


def refuse(who: str, name: str, value: Any, rule: str, bad: Any) -> None:
    """Refuse a parameter that is out of its range, if it has a value yet."""
    found = known(value)
    if found is not None and np.any(bad(found)):
        raise ArgumentError(f"{who}: {name} must be {rule}; got {found[bad(found)].flat[0]}")


def plan(who: str, to: Any, dtype: Any, **named: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of a draw: as told, or else those that its parameters meet in."""
    given = {n: lift(v) for n, v in named.items() if not number(v)}
    shapes = {n: v.shape for n, v in given.items()}
    found = broadcast_shapes(who, **shapes)
    wanted = found if to is None else shape_tuple(who, to)
    if to is not None and broadcast_shapes(who, **shapes, shape=wanted) != wanted:
        listed = ", ".join(f"{n} {s}" for n, s in shapes.items())
        raise ShapeError(f"{who}: {listed} does not broadcast to shape {wanted}")
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


def repeat(value: Any, to: tuple[int, ...], dtype: np.dtype) -> Tensor:
    """A parameter for each element of the shape `to`."""
    full = lift(np.asarray(value, dtype)) if number(value) else cast.astype(lift(value), dtype)
    return shape.broadcast_to(full, to)


def placed(draw: Tensor, loc: Any, scale: Any) -> Tensor:
    """loc + scale * draw, in the dtype of the draw."""
    if not (number(scale) and scale == 1):
        draw = draw * _same(scale, draw)
    return draw if number(loc) and loc == 0 else _same(loc, draw) + draw


def _same(value: Any, draw: Tensor) -> Any:
    return value if type(value) in (int, float) else repeat(value, (), draw.dtype)
