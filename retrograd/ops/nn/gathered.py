"""Sums whose terms are known: each element of an axis from the few that go into it.

What a scatter with known places computes, written as gathers: in a kernel each element is
found by itself, and nothing is written twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.interpret import apply, lift
from retrograd.ops import index, select

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MOST", "gathered", "sources"]

MOST = 16  # terms of an element


def sources(targets: np.ndarray, length: int) -> list[list[int]] | None:
    """For each of `length` places, who goes there; None if too many go to one."""
    found: list[list[int]] = [[] for _ in range(length)]
    for source, target in enumerate(targets.reshape(-1).tolist()):
        found[target].append(source)
    return None if max(map(len, found), default=0) > MOST else found


def gathered(
    x: Any,
    axis: int,
    terms: Sequence[Sequence[int]],
    weights: Sequence[Sequence[float]] | None = None,
) -> Any:
    """Element i along the axis: the sum of x at terms[i], each times its weight if given."""
    behind = (1,) * (x.ndim - axis - 1)
    out = None
    for t in range(max(map(len, terms), default=1) or 1):
        there = np.array([len(row) > t for row in terms])
        at = np.array([row[t] if len(row) > t else 0 for row in terms], np.int64)
        part = apply(index.Index((axis,), axis), x, lift(at[None]))
        if weights is not None:
            by = [row[t] if len(row) > t else 0.0 for row in weights]
            part = part * lift(np.array(by, dt.real_of(x.dtype)).reshape(-1, *behind))
        if not there.all():
            part = select.where(lift(there.reshape(-1, *behind)), part, 0.0)
        out = part if out is None else out + part
    return out
