"""Where each value lives in the arena: offsets such that nothing alive at once overlaps."""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from retrograd.memory.problem import profile, rounded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrograd.memory.problem import Span

__all__ = ["exactly", "layout"]

_SOME = 200  # spans, up to which the last bytes are worth the time
_FEW = 1500  # spans, up to which the slow ways are tried too
_TINY = 14  # spans, up to which all ways are tried
_TRIES = 2_000  # placings of those, which is all of them for six spans


def layout(spans: Sequence[Span]) -> tuple[Mapping[object, int], int]:
    """Offsets, and the size of the arena: the smallest that several ways find."""
    count = max((s.last for s in spans), default=-1) + 1
    bound = max(profile(spans, count), default=0)
    best: tuple[Mapping[object, int], int] = _in_time(spans)
    ways = (_largest_first, _longest_first) if len(spans) <= _FEW else ()
    enough = bound if len(spans) <= _SOME else bound + bound // 200
    for way in ways:
        if best[1] <= enough:
            return best
        best = min(best, way(spans), key=lambda found: found[1])
    if best[1] > bound and len(spans) <= _TINY:
        best = exactly(spans, best)
    return best


def _in_time(spans: Sequence[Span]) -> tuple[dict[object, int], int]:
    """As an allocator would, moment by moment: each in the smallest hole that takes it."""
    events = sorted(spans, key=lambda s: (s.first, -s.nbytes))
    ends: list[tuple[int, int, int]] = []  # (last, offset, bytes) of what lives
    holes = _Holes()
    offsets: dict[object, int] = {}
    for s in events:
        while ends and ends[0][0] < s.first:
            _, offset, free = heappop(ends)
            holes.add(offset, free)
        need = rounded(s.nbytes)
        offsets[s.name] = at = holes.take(need)
        heappush(ends, (s.last, at, need))
    return offsets, holes.size


class _Holes:
    """What is free below `size`: never two that touch."""

    def __init__(self) -> None:
        self.size = 0
        self.starts: list[int] = []  # in order
        self.rooms: dict[int, int] = {}  # by start
        self.by_room: list[tuple[int, int]] = []  # (bytes, start), in order

    def take(self, need: int) -> int:
        """So many bytes of the smallest hole that has them, or of a larger arena."""
        found = bisect_left(self.by_room, (need, 0))
        if found < len(self.by_room):
            room, at = self.by_room[found]
            self._remove(at)
            if room > need:
                self._insert(at + need, room - need)
            return at
        at = self.size
        if self.starts and self.starts[-1] + self.rooms[self.starts[-1]] == at:
            at = self.starts[-1]  # grow the hole at the end
            self._remove(at)
        self.size = at + need
        return at

    def add(self, at: int, room: int) -> None:
        """One more, joined with those it touches."""
        after = bisect_left(self.starts, at)
        if after and (before := self.starts[after - 1]) + self.rooms[before] == at:
            at, room = before, room + self._remove(before)
        room += self._remove(at + room) if at + room in self.rooms else 0
        self._insert(at, room)

    def _insert(self, at: int, room: int) -> None:
        insort(self.starts, at)
        insort(self.by_room, (room, at))
        self.rooms[at] = room

    def _remove(self, at: int) -> int:
        """The bytes of a hole that is one no longer."""
        room = self.rooms.pop(at)
        del self.starts[bisect_left(self.starts, at)]
        del self.by_room[bisect_left(self.by_room, (room, at))]
        return room


def _largest_first(spans: Sequence[Span]) -> tuple[dict[object, int], int]:
    return _lowest(sorted(spans, key=lambda s: (-s.nbytes, s.first)))


def _longest_first(spans: Sequence[Span]) -> tuple[dict[object, int], int]:
    return _lowest(sorted(spans, key=lambda s: (s.first - s.last, -s.nbytes)))


def _lowest(spans: Sequence[Span]) -> tuple[dict[object, int], int]:
    """Each in turn as low as it fits."""
    first, last, low, high = np.zeros((4, len(spans)), np.int64)
    for n, span in enumerate(spans):
        need = rounded(span.nbytes)
        beside = np.flatnonzero((first[:n] <= span.last) & (last[:n] >= span.first))
        beside = beside[np.argsort(low[beside])]
        # what is below each of them, all below it taken: the first gap that is wide enough
        floor = np.zeros(len(beside) + 1, np.int64)
        np.maximum.accumulate(high[beside], out=floor[1:])
        gaps = floor[:-1] + need <= low[beside]
        at = floor[np.argmax(gaps) if gaps.any() else -1]
        first[n], last[n], low[n], high[n] = span.first, span.last, at, at + need
    offsets = dict(zip((s.name for s in spans), low.tolist(), strict=True))
    return offsets, int(max(high, default=0))


def exactly(
    spans: Sequence[Span], known: tuple[Mapping[object, int], int]
) -> tuple[Mapping[object, int], int]:
    """The smallest arena there is, by trying every order of placing; `known` is any other.

    Placing the spans of an optimal layout by their offsets, each as low as it fits, finds a
    layout that is no larger: so trying all orders is enough. It ends after so many placings,
    with the smallest so far.
    """
    best, tries = known, 0
    count = max((s.last for s in spans), default=-1) + 1
    bound = max(profile(spans, count), default=0)

    def place(rest: tuple[Span, ...], placed: list[tuple[int, int, Span]], size: int) -> None:
        nonlocal best, tries
        tries += 1
        if not rest:
            best = {s.name: start for start, _, s in placed}, size
            return
        starts = [_low(placed, span) for span in rest]
        seen = set()
        for k, span in enumerate(rest):
            # what is left only moves up: one that is too high already ends this way
            ends = (at + rounded(s.nbytes) for at, s in zip(starts, rest, strict=True))
            if max(size, *ends) >= best[1] or best[1] == bound or tries > _TRIES:
                return
            # in order of offsets: a span placed below what was placed last comes up elsewhere
            if placed and starts[k] < placed[-1][0]:
                continue
            shape = (span.nbytes, span.first, span.last)
            if shape in seen:
                continue
            seen.add(shape)
            end = starts[k] + rounded(span.nbytes)
            more = [*placed, (starts[k], end, span)]
            place((*rest[:k], *rest[k + 1 :]), more, max(size, end))

    place(tuple(spans), [], 0)
    return best


def _low(placed: Sequence[tuple[int, int, Span]], span: Span) -> int:
    """Above all that is placed and alive with it."""
    return max(
        (end for _, end, s in placed if s.first <= span.last and span.first <= s.last),
        default=0,
    )
