"""Dropout: keyed, so that the same key drops the same elements, forward, backward, replayed."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core import rng as bits
from retrograd.core import rng_laws as laws
from retrograd.core.errors import ArgumentError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Linear, front, op
from retrograd.core.spec import Spec, axes_tuple
from retrograd.core.tensor import Tensor
from retrograd.ops import options, random_keys, shape

__all__ = ["dropout"]


@op
class Dropout(Linear):
    """x with a share p of it set to 0 and the rest over 1 - p; whole along `whole` axes.

    Keeps the key and nothing else: the mask is drawn again when it is needed.
    """

    p: float
    whole: tuple[int, ...] = ()
    lead: int = 0  # leading axes of the key: one key for each of their elements
    fixed = ("key",)
    draws = True

    def shape(self, key: Spec, x: Spec) -> Spec:
        return x

    def forward(self, key, x):
        if self.p >= 1:
            return np.zeros_like(x)
        rows, to = x.shape[: self.lead], self.drawn(x.shape)
        mask = np.zeros((*rows, *to), bool)
        for i in np.ndindex(*rows):
            mask[i] = bits.chosen(key[i], 1 - self.p, to)
        return np.where(mask, x * x.dtype.type(1 / (1 - self.p)), x.dtype.type(0))

    def drawn(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of what each key draws."""
        return tuple(1 if a in self.whole else n for a, n in enumerate(shape))[self.lead :]

    def lower(self, k, key, x):
        if self.p >= 1:
            return k.broadcast(k.literal(np.zeros((), x.dtype)), x.shape)
        words = random_keys.words(k, key, self.drawn(x.shape), 2)

        def kept(x, *words):
            x = k.cast(x, dt.float32) if x.dtype in dt.HALF else x  # as forward gets it
            return k.where(laws.below(words, 1 - self.p), x * (1 / (1 - self.p)), 0)

        return k.map(kept, x.dtype, x, *words)

    def transpose(self, g, key):
        return apply(self, key, g)

    def batch(self, size, args, mapped):
        key, x = args
        if not mapped[0]:  # one key for all: every row draws the same mask
            key = shape.broadcast_to(key, (size, *key.shape))
        (x,) = front(size, [x], [mapped[1]])
        return apply(Dropout(self.p, tuple(a + 1 for a in self.whole), self.lead + 1), key, x)

    @staticmethod
    def samples(rng):
        key, x = bits.key(3), rng.normal(size=(4, 5, 3))
        yield Dropout(0.4), key, x
        yield Dropout(0.5, (1,)), key, x
        yield Dropout(1.0), key, x
        yield Dropout(0.0), key, x


def dropout(key: Any, x: Any, /, *, p: float = 0.5, whole: Any = ()) -> Tensor:
    """Each element of x set to 0 with chance p, and the others scaled by 1 / (1 - p).

    `whole` names axes along which elements fall together: (1, 2) drops whole channels of
    [N, H, W, C]. With p = 0 it is the identity, with p = 1 zero, also its gradient.
    """
    share = options.number("dropout", "p", p)
    if not 0 <= share <= 1:
        raise ArgumentError(f"dropout: p must be from 0 to 1; got {p}")
    key, x = random_keys.key_of("dropout", key), lift(x)
    axes = axes_tuple("dropout", whole, x.ndim) if whole != () else ()
    return apply(Dropout(share, axes), key, x)
