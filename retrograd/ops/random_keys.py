"""Keys, and the bits that they stand for.

A key is a uint32 tensor of shape (2,), an operand like others: traced, mapped, replayed. A draw
is a function of its key, so the same key gives the same bits, always. `core.rng` has them.
An op takes a key, or a batch of keys (.., 2) with its other operands batched alike, and draws
for each by itself: mapped over keys, it is the loop over them bit for bit.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core import rng as bits_of
from retrograd.core import rng_laws as formulas
from retrograd.core import rng_tries as tries
from retrograd.core.errors import ArgumentError, DtypeError, ShapeError
from retrograd.core.interpret import apply, fresh, lift
from retrograd.core.op import Op, front, op
from retrograd.core.spec import Spec, spec_of
from retrograd.core.tensor import Tensor
from retrograd.ops import options

# -- what all ops with a key share -----------------------------------------------------------


class Keyed(Op):
    """Ops that draw by a key, their first operand, which is never differentiated."""

    fixed: ClassVar[tuple[str, ...]] = ("key",)
    draws: ClassVar[bool] = True  # its kernel computes, though it is not elementwise
    grows: ClassVar[bool] = True

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


def words(k: Any, key: Any, to: tuple[int, ...], count: int) -> list[Any]:
    """In a kernel: `count` words for each element of a draw, each an array of its own."""
    if count == 1:
        return [k.random_bits(key, to)]
    shape = (*key.shape[:-1], *to)
    drawn, whole = k.random_bits(key, (*to, count)), [(0, n, 1) for n in shape]
    return [k.view(k.slice(drawn, [*whole, (i, 1, 1)]), shape) for i in range(count)]


class Tries:
    """In a kernel: the tries of a sampler that rejects, for each element of `a`."""

    def __init__(self, k: Any, key: Any, a: Any, dtype: Any) -> None:
        self.k, self.key, self.to = k, key, a.shape[len(key.shape) - 1 :]
        self.count = formulas.words_of(dtype)  # of a float

    def words(self, row: Any) -> list[Any]:
        """What the key itself draws for a row."""
        return [w[row] for w in words(self.k, self.key, self.to, self.count)]

    def first(self, row: Any, start: Any, law: Any, *, ready: Any = False) -> Any:
        """What the first try gives that law(words, words) takes; start where `ready`."""
        k, lead = self.k, self.key.shape[:-1]
        one = k.view(k.slice(self.key, [*((0, n, 1) for n in lead), (0, 1, 1)]), lead)

        def attempt(turn: Any) -> tuple[Any, Any]:
            number = k.map(lambda _: turn, dt.int64, one)
            key = k.random_bits(self.key, (2,), bits_of.TRY, number)
            drawn = [w[row] for w in words(k, key, self.to, 2 * self.count)]
            return law(drawn[: self.count], drawn[self.count :])

        return tries.taken(k, start, ready, attempt)


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

    def lower(self, k, key):
        return k.random_bits(key, (self.n, 2), bits_of.SPLIT)

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

    def lower(self, k, key, data):
        def inside(data):
            good = (data >= 0) & (k.cast(data, dt.uint64) < bits_of.COUNTERS)
            said = f"random.fold_in: data must be an integer in [0, {bits_of.COUNTERS})"
            return k.required(data, good, said)

        return k.random_bits(key, (2,), bits_of.FOLD, k.map(inside, data.dtype, data))

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
    return fresh(bits_of.key(seed))


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
    n = options.integer("random.split", "n", n, least=0)
    options.possible("random.split", (n, 2))
    return apply(SplitKey(n), key_of("random.split", key))


def fold_in(key: Any, data: Any) -> Tensor:
    """The key of `key` and an integer from 0 to 2**60 - 1, such as a step or a layer's number.

    Other integers give other keys, independent of each other. `data` may be a tensor.
    """
    if isinstance(data, int) and not 0 <= data < 2**60:
        raise ArgumentError(f"random.fold_in: data must be from 0 to 2**60 - 1; got {data}")
    return apply(FoldKey(), key_of("random.fold_in", key), lift(data))


# -- bits --------------------------------------------------------------------------------------


@op
class RandomBits(Keyed):
    """uint32 words of a key."""

    to: tuple[int, ...]
    no_derivative = "its result is made of bits"

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


def bits(key: Any, shape: Any = ()) -> Tensor:
    """Random uint32 words: all values are equally likely. A short draw begins a longer one."""
    return apply(RandomBits(options.sizes("random.bits", shape)), key_of("random.bits", key))
