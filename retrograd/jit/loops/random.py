"""core.rng's generator in the loop language: integer operations alone, so the same bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from retrograd.core.rng_laws import threefry
from retrograd.jit.loops.arrays import Array
from retrograd.jit.loops.expr import apply, cast, number, place
from retrograd.jit.loops.index import Ix, flat

if TYPE_CHECKING:
    from retrograd.jit.loops.expr import Expr

__all__ = ["words"]

_U32 = np.dtype(np.uint32)
_U64 = np.dtype(np.uint64)


def words(
    table: dict, key: Array, shape: tuple[int, ...], domain: int, first: Array | None
) -> Array:
    """uint32 words: element i of the draw of each key of a batch."""
    lead = len(key.shape) - 1

    def at(index: tuple[Ix, ...]) -> Expr:
        batch, rest = index[:lead], index[lead:]
        pair = key.at((*batch, Ix())), key.at((*batch, Ix(1)))
        # divided as indices, so that words of one block are found to be of one block
        block, which = flat(rest, shape) // 2, flat(rest, shape) % 2
        start = None if first is None else first.at(batch)
        found = threefry(pair, _counter(table, block, domain, start))
        if not which.terms:
            return found[which.const]
        odd = place(table, which) == 1
        return apply("where", odd, found[1], found[0], dtype=_U32)

    return Array((*key.shape[:-1], *shape), _U32, at)


def _counter(table: dict, block: Ix, domain: int, start: Expr | None) -> tuple[Expr, Expr]:
    """The two words that count a block: the high one names the domain too."""
    mark = number(table, domain << 28, _U32)
    if start is None and block.range[1] < 2**32:
        return cast(place(table, block), _U32), mark
    whole = cast(place(table, block), _U64)
    if start is not None:
        whole = whole + cast(start, _U64)
    return cast(whole, _U32), cast((whole >> 32) & 0xFFFFFFF, _U32) | mark
