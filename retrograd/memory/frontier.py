"""Plans of a problem, from the one that recomputes nothing to the smallest that is found.

The plans are found once, without looking at any budget; a budget then takes the cheapest plan
that fits. So more budget never recomputes more, by construction.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING

from retrograd.memory.evict import scheduled
from retrograd.memory.exact import FEW, smallest
from retrograd.memory.layout import layout
from retrograd.memory.orders import early
from retrograd.memory.problem import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from retrograd.memory.problem import Problem

__all__ = ["Choice", "cheapest", "frontier"]

_WALKED = 40_000  # units, in all walks of the search: what bounds its time


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


def frontier(problem: Problem) -> list[Choice]:
    """Plans that no other beats in both bytes and time; the smallest first."""
    found = [_laid(Schedule(problem, tuple(order))) for order in _orders(problem)]
    found += _search(problem, min(c.size for c in found))
    if len(problem.all_units) <= FEW:
        found.append(_laid(smallest(problem)))
    return _best(found)


def cheapest(choices: Sequence[Choice], room: int) -> Choice | None:
    """The plan that takes least time in `room` bytes; the smaller one of equals."""
    fits = [c for c in choices if c.size <= room]
    return min(fits, key=lambda c: (c.cost, c.size)) if fits else None


def _orders(problem: Problem) -> list[Sequence[int]]:
    """Orders to begin with."""
    given, other = list(range(len(problem.units))), early(problem)
    return [given] if other == given else [other, given]


def _search(problem: Problem, top: int) -> Iterator[Choice]:
    """Plans at bytes between the bound and `top`."""
    low = problem.bound
    if top <= low or not low:
        return
    orders = _orders(problem)
    walks = max(5, min(36, _WALKED // max(1, len(problem.units))))
    rooms = max(3, walks * 2 // 3)
    least, ratio = top, max((low / top) ** (1 / rooms), 0.6)
    for k in range(1, rooms + 1):
        room = max(low, int(top * ratio**k))
        hits = list(_at(problem, room, orders))
        yield from hits
        least = min([least, *(c.size for c in hits)])
        if not hits:
            low = max(low, room)
            break
    for _ in range(walks - rooms):  # halve the gap between what fits and what does not
        room = isqrt(low * least)
        hits = list(_at(problem, room, orders)) if low < room < least else []
        yield from hits
        sizes = [c.size for c in hits]
        if sizes and min(sizes) < least:
            least = min(sizes)
        else:
            low = max(low, room)


def _at(problem: Problem, room: int, orders: Sequence[Sequence[int]]) -> Iterator[Choice]:
    """Plans in which no more than `room` bytes live at once."""
    small = len(problem.units) <= 1000
    for order in orders if small else orders[:1]:
        for far in (1.0, 0.5, 0.0) if small else (1.0,):
            schedule = scheduled(problem, room, order, far)
            if schedule is not None:
                yield _laid(schedule)


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
