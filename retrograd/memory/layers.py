"""Equal layers are planned once: what one of them keeps is laid over all of them.

A program of many layers has the same units again and again. What a layer keeps for its
backward, and what it makes again instead, is chosen for one of them: each time the value is let
go of that costs least for the bytes it frees. The first layers then go further in that list
than the last ones, as their values wait longest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from retrograd.memory.problem import Problem

__all__ = ["Layers", "alike", "laid_over"]

_LONGEST = 512  # units of a layer
_FEWEST = 3  # layers that are worth planning once
_LITTLE = 0.05  # of the bytes that wait in other layers: as few are left alone
_MANY = 16  # different layers that are looked for
_VALUES = 32  # of a layer, the largest, of which one is let go of next
_STEPS = 64  # such steps

_Class = tuple[int, int]  # a unit's place in its layer, and which of its results


@dataclass(frozen=True)
class Layers:
    """`count` times the same `period` units, from moment `first` of an order on."""

    first: int
    period: int
    count: int

    @property
    def end(self) -> int:
        """The moment after the last."""
        return self.first + self.period * self.count


@dataclass(frozen=True)
class Saving:
    """Values that a layer lets go of, what that frees, and what it costs to make them again."""

    dropped: frozenset[_Class]
    nbytes: int
    cost: float


def alike(problem: Problem, order: Sequence[int]) -> list[Layers]:
    """Stretches of units that repeat, the longest first."""
    numbers: dict[object, int] = {}
    marks = np.array([numbers.setdefault(m, len(numbers)) for m in _marks(problem, order)])
    found: list[Layers] = []
    pieces = [(0, len(marks))]
    while pieces and len(found) < _MANY:
        start, end = pieces.pop(0)
        if best := _repeat(marks, start, end):
            found.append(best)
            pieces += [(start, best.first), (best.end, end)]
    return sorted(found, key=lambda layers: -layers.period * layers.count)


def _marks(problem: Problem, order: Sequence[int]) -> Iterator[object]:
    """What makes units equal: what they take, and the bytes they touch."""
    for unit in (problem.units[u] for u in order):
        reads = tuple(problem.nbytes[v] for v in unit.reads)
        writes = tuple(problem.nbytes[v] for v in unit.writes)
        yield unit.cost, unit.workspace, unit.replays, reads, writes


def _repeat(marks: np.ndarray, start: int, end: int) -> Layers | None:
    """The period that covers most of a piece, the shortest of equals."""
    best, most = None, 0
    for period in range(1, min(_LONGEST, (end - start) // _FEWEST) + 1):
        if end - start <= most:
            break
        same = marks[start : end - period] == marks[start + period : end]
        breaks = np.flatnonzero(np.concatenate(([True], ~same, [True])))
        runs = np.diff(breaks) - 1
        at = int(runs.argmax())
        count = (int(runs[at]) + period) // period
        if count >= _FEWEST and count * period > most:
            best, most = Layers(start + int(breaks[at]), period, count), count * period
    return best


def laid_over(problem: Problem, order: Sequence[int], count: int) -> Iterator[dict[int, int]]:
    """Values to let go of in all layers, each after a moment of the order; ever more.

    `count` steps to all that layers can let go of by themselves; then once all that can be made
    again, where only the last of a group of layers keeps what the next layer begins with.
    """
    readers = _readers(problem, order)
    kinds = [_Kind(problem, order, readers, layers) for layers in alike(problem, order)]
    most = max((kind.held for kind in kinds), default=0)
    kinds = [kind for kind in kinds if kind.held > most * _LITTLE]
    steps = sorted(
        (kind.rate(n), at, n)
        for at, kind in enumerate(kinds)
        for n in range(1, len(kind.savings))
    )
    queue = [(at, n, j) for _, at, n in steps for j in range(kinds[at].layers.count)]
    freed = np.cumsum([kinds[at].freed(n) for at, n, _ in queue])
    goals = [] if not queue else [freed[-1] * k / count for k in range(1, count + 1)]
    for end in dict.fromkeys(int(np.searchsorted(freed, goal)) + 1 for goal in goals):
        levels = {(at, j): n for at, n, j in queue[:end]}
        yield {
            v: t
            for (at, j), n in levels.items()
            for v, t in kinds[at].instances(j, kinds[at].savings[n].dropped)
        }
    if kinds:
        yield {v: t for kind in kinds for v, t in kind.grouped()}


class _Kind:
    """Equal layers, and what one of them, in the middle, may let go of."""

    def __init__(
        self,
        problem: Problem,
        order: Sequence[int],
        readers: Mapping[int, Sequence[int]],
        layers: Layers,
    ) -> None:
        self.problem, self.layers, self.readers = problem, layers, readers
        self.units = [problem.units[u] for u in order]
        self.makers = problem.units + problem.spares
        self.one = layers.count // 2
        self.classes = {v: (c, 0) for v, c in self.values(self.one)}
        self.classes |= {v: (c, -1) for v, c in self.values(self.one - 1)}
        self.value = {c: v for v, (c, shift) in self.classes.items() if not shift}
        self.waiting = {c for c in self.value if self.last_before(c, self.one)[1]}

    @property
    def held(self) -> int:
        """Bytes that all layers hold while others run."""
        return self.ways[0].nbytes * self.layers.count

    def values(self, j: int) -> Iterator[tuple[int, _Class]]:
        """The results of a layer's units that are in the arena."""
        start = self.layers.first + j * self.layers.period
        for r in range(self.layers.period):
            for k, v in enumerate(self.units[start + r].writes):
                if v not in self.problem.held:
                    yield v, (r, k)

    def last_before(self, c: _Class, j: int) -> tuple[int, bool]:
        """When a value is last touched in its layer and the next; whether it is later on."""
        made = self.layers.first + j * self.layers.period + c[0]
        reads = self.readers.get(self.units[made].writes[c[1]], ())
        end = made - c[0] + 2 * self.layers.period
        return max((t for t in reads if t < end), default=made), any(t >= end for t in reads)

    def reads(self, c: _Class) -> Iterator[tuple[_Class, int]]:
        """What a value is made of, as far as it is of this layer (0) or the one before (-1)."""
        for r in self.makers[self.maker(c)].reads:
            if r in self.classes:
                yield self.classes[r]

    def maker(self, c: _Class) -> int:
        """The unit that makes a value again, the cheapest."""
        return self.problem.makers[self.value[c]][-1]

    def weighed(self, dropped: frozenset[_Class]) -> tuple[Saving, set[_Class]]:
        """What is kept then and what is made again; and the classes that are kept."""
        needed, look = set(self.waiting), [c for c in self.waiting if c in dropped]
        while look:
            for c, _ in self.reads(look.pop()):
                if c not in needed:
                    needed.add(c)
                    look += [c] if c in dropped else []
        kept = needed - dropped
        again = {self.maker(c) for c in needed & dropped}
        cost = sum(self.makers[u].cost for u in sorted(again))
        return Saving(dropped, sum(self.nbytes(c) for c in kept), cost), kept

    def nbytes(self, c: _Class) -> int:
        """Of a value in the arena."""
        return self.problem.nbytes[self.value[c]]

    def bridges(self, dropped: frozenset[_Class]) -> set[_Class]:
        """What is let go of though what is let go of in the next layer is made of it."""
        return {c for d in dropped for c, shift in self.reads(d) if shift and c in dropped}

    @cached_property
    def ways(self) -> list[Saving]:
        """From all kept to all dropped, by what costs least for the bytes it frees."""
        now, kept = self.weighed(frozenset())
        found = [now]
        while len(found) < _STEPS:
            options = []
            able = [c for c in kept if self.units[self.layers.first + c[0]].replays]
            for c in sorted(able, key=lambda c: (-self.nbytes(c), c))[:_VALUES]:
                then, _ = self.weighed(now.dropped | {c})
                frees, costs = now.nbytes - then.nbytes, then.cost - now.cost
                chained = bool(self.bridges(then.dropped))
                options.append((chained, frees <= 0, costs / max(frees, 1), c))
            if not options:
                break
            now, kept = self.weighed(now.dropped | {min(options)[-1]})
            found.append(now)
        return found

    @cached_property
    def savings(self) -> list[Saving]:
        """Those of the ways that a layer can go by itself, and that no two others beat."""
        hull: list[Saving] = []
        for way in self.ways:
            if self.bridges(way.dropped):
                break
            while hull and way.nbytes >= hull[-1].nbytes and way.cost <= hull[-1].cost:
                hull.pop()
            if hull and way.nbytes >= hull[-1].nbytes:
                continue
            while len(hull) > 1 and _rate(hull[-1], way) < _rate(hull[-2], hull[-1]):
                hull.pop()
            hull.append(way)
        return hull

    def rate(self, n: int) -> float:
        """What a byte costs that the n-th saving frees."""
        return _rate(self.savings[n - 1], self.savings[n])

    def freed(self, n: int) -> int:
        """Bytes that the n-th saving frees in a layer."""
        return self.savings[n - 1].nbytes - self.savings[n].nbytes

    def instances(self, j: int, dropped: Iterable[_Class]) -> Iterator[tuple[int, int]]:
        """The values of a layer, each with the moment after which it is let go of."""
        start = self.layers.first + j * self.layers.period
        for r, k in dropped:
            yield self.units[start + r].writes[k], self.last_before((r, k), j)[0]

    def grouped(self) -> Iterator[tuple[int, int]]:
        """All that can be made again, but what crosses from one group of layers to the next.

        There are as many groups as layers in a group: so the least is held, of what is kept
        and of what is made again, a group at a time.
        """
        dropped, together = self.ways[-1].dropped, isqrt(self.layers.count)
        bridges = self.bridges(dropped)
        for j in range(self.layers.count):
            yield from self.instances(j, dropped if (j + 1) % together else dropped - bridges)


def _readers(problem: Problem, order: Sequence[int]) -> dict[int, list[int]]:
    """When each value is read."""
    found: dict[int, list[int]] = {}
    for t, u in enumerate(order):
        for v in problem.units[u].reads:
            found.setdefault(v, []).append(t)
    return found


def _rate(less: Saving, more: Saving) -> float:
    return (more.cost - less.cost) / (less.nbytes - more.nbytes)
