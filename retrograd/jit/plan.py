"""plan: where every value lives. One arena a program; memory is used again when it is free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["ALIGN", "Span", "pack"]

ALIGN = 64


@dataclass(frozen=True)
class Span:
    """A value's bytes in the arena, from the step that makes it to the last that reads it."""

    name: object
    nbytes: int
    first: int
    last: int


def rounded(nbytes: int) -> int:
    """Up to a whole number of cache lines, and never nothing."""
    return max(ALIGN, -(-nbytes // ALIGN) * ALIGN)


def pack(spans: Iterable[Span]) -> tuple[Mapping[object, int], int]:
    """Offsets such that no two spans alive at once overlap, and the size of the arena.

    The largest first, each as low as it fits: simple, and within a few percent of the peak.
    """
    placed: list[tuple[int, int, Span]] = []  # start, end
    offsets: dict[object, int] = {}
    size = 0
    for span in sorted(spans, key=lambda s: (-s.nbytes, s.first)):
        need, start = rounded(span.nbytes), 0
        for low, high in _busy(placed, span):
            if start + need <= low:
                break
            start = max(start, high)
        placed.append((start, start + need, span))
        offsets[span.name] = start
        size = max(size, start + need)
    return offsets, size


def _busy(placed: Sequence[tuple[int, int, Span]], span: Span) -> list[tuple[int, int]]:
    """The bytes taken by what is alive at the same time, in order."""
    return sorted(
        (low, high) for low, high, s in placed if s.first <= span.last and span.first <= s.last
    )
