"""Where the lanes of a vector are, seen from its first: known without running anything.

A vector takes `lanes` turns of an axis and begins at a multiple of them, so that `i // 2` and
`i % 64` of its lanes differ from those of the first by the same numbers in each vector.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any

from retrograd.jit.loops.index import Axis, Dynamic, Quotient

if TYPE_CHECKING:
    from retrograd.jit.loops.index import Ix

__all__ = ["lane_offsets"]


def lane_offsets(ix: Ix, vector: Axis, lanes: int) -> list[int] | None:
    """What each lane's index is more than the first one's; None if that may change."""
    found = [0] * lanes
    for atom, times in ix.terms.items():
        each = _offsets(atom, vector, lanes)
        if each is None:
            return None
        found = [a + times * b for a, b in zip(found, each, strict=True)]
    return found


def _offsets(atom: Any, vector: Axis, lanes: int) -> list[int] | None:
    same = [0] * lanes
    if isinstance(atom, Axis):
        return list(range(lanes)) if atom is vector else same
    if isinstance(atom, Dynamic):
        return None if vector in atom.expr.axes else same
    inner = lane_offsets(atom.of, vector, lanes)
    if inner is None or not any(inner):
        return inner
    unit, rest = _known(atom.of, vector, lanes)
    whole = isinstance(atom, Quotient)
    if unit % atom.by == 0:  # so is the first lane's remainder
        first = rest % atom.by
        parts = [divmod(first + n, atom.by) for n in inner]
        return [q if whole else r - first for q, r in parts]
    if atom.by % unit == 0 and rest + min(inner) >= 0 and rest + max(inner) < unit:
        return same if whole else inner  # all lanes lie between two multiples
    return None


def _known(ix: Ix, vector: Axis, lanes: int) -> tuple[int, int]:
    """(unit, rest): in the first lane, an index is rest more than some multiple of unit."""
    unit = 0
    for atom, times in ix.terms.items():
        if not isinstance(atom, Axis):
            unit = gcd(unit, times)
        elif atom.extent > 1:
            unit = gcd(unit, times * (lanes if atom is vector else 1))
    return unit, ix.const % unit if unit else ix.const
