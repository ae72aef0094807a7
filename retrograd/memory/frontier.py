"""Plans of a problem, from the one that recomputes nothing to the smallest that is found.

Equal layers are planned once, and that plan is laid over all of them, more and more of it; then
walks through the whole program look for what no layer sees.

The plans are found once, without looking at any budget; a budget then takes the cheapest plan
that fits. So more budget never recomputes more, by construction.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, log2
from typing import TYPE_CHECKING

from retrograd.memory.evict import Meter, scheduled
from retrograd.memory.exact import FEW, smallest
from retrograd.memory.layers import laid_over
from retrograd.memory.layout import layout
from retrograd.memory.orders import early
from retrograd.memory.problem import Schedule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrograd.memory.problem import Problem

__all__ = ["WORK", "Choice", "cheapest", "frontier"]

WORK = 180_000  # operands, in all walks and layouts of a search: what bounds its time
_LEVELS = 8  # plans of one layer that are laid over all of them, at most
_LAID = 0.4  # of the work, that these may take
_ROOMS = 22  # bytes that are looked at, at most
_BELOW = 0.6  # of what is left then, for the smallest plan; the rest is to improve the others
_ENDLESS = 1 << 62  # bytes
_SEVERAL = 1_000  # units, up to which a plan that is laid out too large is tried once more
_TIMES = 5  # what a room costs, times a walk that drops nothing
_NEAR = 0.01  # of the smallest: a gap that is not worth a walk


@dataclass(frozen=True)
class Choice:
    """A schedule, where its values lie, and how large the arena is."""

    schedule: Schedule
    offsets: Mapping[object, int]
    size: int

    @property
    def cost(self) -> float:
        """Time of all runs."""
        return self.schedule.cost


def frontier(problem: Problem, fixed: int = 0) -> list[Choice]:
    """Plans that no other beats in both bytes and time; the smallest first.

    The search looks at the half, the quarter, ... of all bytes, `fixed` ones included, and
    between these: what people ask for.
    """
    orders = _orders(problem)
    found = [_laid(Schedule(problem, tuple(order))) for order in orders]
    _Search(problem, orders, found).run(fixed)
    if len(problem.all_units) <= FEW:
        found.append(_laid(smallest(problem)))
    return _best(found)


def cheapest(choices: Sequence[Choice], room: int) -> Choice | None:
    """The plan that takes least time in `room` bytes; the smaller one of equals."""
    fits = [c for c in choices if c.size <= room]
    return min(fits, key=lambda c: (c.cost, c.size)) if fits else None


def _orders(problem: Problem) -> list[Sequence[int]]:
    """Orders to begin with, those first that hold less."""
    found = [early(problem, updates=True), early(problem, updates=False)]
    found.append(list(range(len(problem.units))))
    return [order for at, order in enumerate(found) if order not in found[:at]]


class _Search:
    """Plans in less and less room, then in more ways, until the work allowed is done."""

    def __init__(
        self, problem: Problem, orders: Sequence[Sequence[int]], found: list[Choice]
    ) -> None:
        self.problem, self.found = problem, found
        self.meter = Meter(WORK)
        self.once = 1 + sum(len(u.reads) + len(u.writes) for u in problem.units)
        # orders to walk in, and how much distance counts; what fitted last comes first
        self.kinds = [(order, far) for far in (1.0, 0.5, 0.0) for order in orders]
        self.ways = list(range(len(self.kinds)))
        self.tried: set[tuple[int, int]] = set()  # ways and rooms

    @property
    def least(self) -> int:
        """Bytes of the smallest plan so far."""
        return min(c.size for c in self.found)

    def run(self, fixed: int) -> None:
        """Add plans at bytes between the bound and what is found."""
        low, top = self.problem.bound, self.least
        if top <= low or not low:
            return
        self.layers()
        count = max(3, min(_ROOMS, WORK // (_TIMES * self.once)))
        halves = max(1, round(count / log2(top / low)))  # rooms from the whole to its half
        rooms = []
        for k in range(1, count + 1):
            room = max(low, int((top + fixed) * 0.5 ** (k / halves)) - fixed)
            if not self.fits(room):
                low = max(low, room)
                break
            rooms.append((k % halves > 0, k, room))
        until, order = self.meter.left * (1 - _BELOW), self.kinds[self.ways[0]][0]
        self.below(low, until, [w for w in self.ways if self.kinds[w][0] is order])
        self.below(low, until, self.ways)
        for _, _, room in sorted(rooms):  # halves and quarters first
            for way in self.ways:
                self.walk(room, way)

    def layers(self) -> None:
        """Add plans in which equal layers do the same, found for one of them."""
        levels = min(_LEVELS, int(_LAID * WORK / (2 * self.once)))
        order, far = self.kinds[0]
        for drops in laid_over(self.problem, order, levels) if levels else ():
            self.add(scheduled(self.problem, _ENDLESS, order, far, self.meter, drops))

    def below(self, low: int, until: float, ways: Sequence[int]) -> None:
        """Halve the gap between the smallest that fits and what does not."""
        while self.meter.left > until:
            least = self.least
            room = isqrt(low * least)
            if not low < room < least or least - low < least * _NEAR:
                return
            # what lives at once may fit, and the arena, with its gaps, not be smaller
            if not any(self.walk(room, way) and self.least < least for way in ways):
                low = room

    def fits(self, room: int) -> bool:
        """Whether some way finds a plan in so many bytes; the first that does is added."""
        for way in self.ways:
            if self.walk(room, way):
                self.ways.remove(way)
                self.ways.insert(0, way)
                return True
        return False

    def walk(self, room: int, way: int, *, again: bool = True) -> bool:
        """Add a plan in which no more than `room` bytes live at once, if this way finds one."""
        if self.meter.left <= 0 or (way, room) in self.tried:
            return False
        self.tried.add((way, room))
        schedule = scheduled(self.problem, room, *self.kinds[way], self.meter)
        if self.add(schedule):
            above = self.found[-1].size - room
            if again and above > 0 and len(self.problem.units) <= _SEVERAL:
                self.walk(room - above, way, again=False)
        return schedule is not None

    def add(self, schedule: Schedule | None) -> bool:
        """Lay a plan out, if nothing beats it so far: that takes as long as a walk."""
        if schedule is None or _beaten(schedule, self.found):
            return False
        self.meter.left -= self.once
        self.found.append(_laid(schedule))
        return True


def _beaten(schedule: Schedule, found: Sequence[Choice]) -> bool:
    return any(c.size <= schedule.live and c.cost <= schedule.cost for c in found)


def _laid(schedule: Schedule) -> Choice:
    offsets, size = layout(schedule.spans)
    return Choice(schedule, offsets, size)


def _best(found: Sequence[Choice]) -> list[Choice]:
    """Without those that another beats."""
    out: list[Choice] = []
    for c in sorted(found, key=lambda c: (c.size, c.cost)):
        if not out or c.cost < out[-1].cost:
            out.append(c)
    return out
