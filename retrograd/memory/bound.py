"""Bytes that no schedule gets by without: proven, though not always reached.

Two reasons, whatever the order and however often units run again. When a unit runs, all that it
reads is alive at once; one of those values came last, and when it was made, the others lived
beside what its own maker touches. That can be said again of what lived then, and so on
backwards. And what a unit that runs once has made lives until its last reader has run.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from retrograd.memory.problem import rounded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from retrograd.memory.problem import Problem

__all__ = ["proven"]

_STATES = 6_000  # sets of values that are looked at in all, which bounds the time
_CLOSER = 12  # units that are looked at a second time, with more patience

_Alive = frozenset[int]


def proven(problem: Problem) -> int:
    """No schedule of the problem needs fewer bytes than this."""
    search = _Backwards(problem)
    units = range(len(problem.units))
    patience = max(4, _STATES // max(1, 2 * len(units)))
    found = [(search.least(u, patience), u) for u in units]
    closer = sorted(found, reverse=True)[:_CLOSER]
    found += [(search.least(u, _STATES // (2 * _CLOSER)), u) for _, u in closer]
    return max([problem.bound, _pinned(problem), *(n for n, _ in found)])


class _Backwards:
    """The ways in which values can have come to live at once."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.nbytes = problem, problem.nbytes
        units = problem.units + problem.spares
        # what is in a file takes only its own bytes to come back: nothing more is said of it
        self.free = {v for v, n in enumerate(self.nbytes) if not n} | problem.spills.keys()
        self.reads = [self._of(u.reads) for u in units]
        self.touched = [frozenset((*u.reads, *u.writes)) for u in units]
        self.writes = [frozenset(u.writes) for u in units]
        self.space = [rounded(u.workspace) if u.workspace else 0 for u in units]

    def _of(self, values: Iterable[int]) -> _Alive:
        return frozenset(v for v in values if v not in self.free)

    def least(self, u: int, patience: int) -> int:
        """Bytes without which a unit cannot come to run: the best way, as far as it was seen.

        A way is as bad as its worst moment. The least of all ways that were begun is a bound
        for each of them, also when patience ends.
        """
        heap: list[tuple[int, int, int, _Alive]] = []
        start = self.reads[u]
        heap.append((self.problem.need(u), 0, 0, start))
        seen: set[_Alive] = set()
        count, most = 0, 0
        while heap:
            most, size, _, alive = heapq.heappop(heap)
            if not alive or len(seen) >= patience:
                break
            if alive in seen:
                continue
            seen.add(alive)
            for now, before in self.ways(alive):
                if before not in seen:
                    count += 1
                    size = sum(self.nbytes[v] for v in before)
                    heapq.heappush(heap, (max(most, now), size, count, before))
        return most

    def ways(self, alive: _Alive) -> Iterator[tuple[int, _Alive]]:
        """What may have run last: the bytes of that moment, and what lived before it."""
        size = sum(self.nbytes[v] for v in alive)
        for v in alive:
            for m in self.problem.makers[v]:
                more = sum(self.nbytes[w] for w in self.touched[m] if w not in alive)
                before = alive - self.writes[m] | self.reads[m]
                yield size + more + self.space[m], before


def _pinned(problem: Problem) -> int:
    """The most bytes at the first run of a unit, with what can neither return nor be done."""
    once = [
        (v, makers[0])
        for v, makers in problem.makers.items()
        if problem.nbytes[v]
        and v not in problem.spills
        and len(makers) == 1
        and not problem.units[makers[0]].replays
    ]
    if not once:
        return 0
    before = _ancestors(problem)
    readers: dict[int, int] = {}  # of a value: all units that some reader of it waits for
    for w, unit in enumerate(problem.units):
        for v in unit.reads:
            readers[v] = readers.get(v, 0) | before[w]
    most = 0
    for u, unit in enumerate(problem.units):
        beside = {v for v, m in once if before[u] >> m & 1 and readers.get(v, 0) >> u & 1}
        beside -= {*unit.reads, *unit.writes}
        most = max(most, problem.need(u) + sum(problem.nbytes[v] for v in beside))
    return most


def _ancestors(problem: Problem) -> list[int]:
    """Units that have run before each runs for the first time: a bit for each."""
    found: list[int] = []
    for unit in problem.units:
        direct = {problem.makers[v][0] for v in unit.reads if v in problem.makers}
        bits = 0
        for w in {*direct, *unit.after}:
            bits |= found[w] | 1 << w
        found.append(bits)
    return found
