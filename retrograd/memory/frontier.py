"""Plans of a problem, from the one that recomputes nothing to the smallest that is found.

The plans are found once, without looking at any budget; a budget then takes the cheapest plan
that fits. So more budget never recomputes more, by construction.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, log2
from typing import TYPE_CHECKING, Any

from retrograd.memory.evict import scheduled
from retrograd.memory.exact import FEW, smallest
from retrograd.memory.layout import layout
from retrograd.memory.orders import early
from retrograd.memory.problem import Schedule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrograd.memory.problem import Problem

__all__ = ["Choice", "cheapest", "frontier"]

_WALKED = 25_000  # units, in all walks of the search: what bounds its time
_SEVERAL = 1_000  # units, up to which each room is tried in several ways, and once more
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
    found = [_laid(Schedule(problem, tuple(order))) for order in _orders(problem)]
    _search(problem, min(c.size for c in found), fixed, found)
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


def _search(problem: Problem, top: int, fixed: int, found: list[Choice]) -> None:
    """Add plans at bytes between the bound and `top`."""
    low, least = problem.bound, top
    if top <= low or not low:
        return
    ways = _ways(problem)
    walks = max(5, min(30, _WALKED // max(1, len(problem.units))))
    rooms = max(3, walks * 3 // 4)
    halves = max(1, round(rooms / log2(top / low)))  # rooms from the whole to its half
    for k in range(1, rooms + 1):
        room = max(low, int((top + fixed) * 0.5 ** (k / halves)) - fixed)
        if not _at(problem, room, ways, found):
            low = max(low, room)
            break
        least = min(c.size for c in found)
    for _ in range(walks - rooms):  # halve the gap between what fits and what does not
        room = isqrt(low * least)
        if not low < room < least or least - low < least * _NEAR:
            return
        if _at(problem, room, ways, found) and min(c.size for c in found) < least:
            least = min(c.size for c in found)
        else:
            low = room


def _ways(problem: Problem) -> list[tuple[Sequence[int], float]]:
    """Orders to walk in, and how much distance counts."""
    orders = _orders(problem)
    if len(problem.units) > _SEVERAL:
        return [(orders[0], 1.0)]
    return [(order, far) for order in orders for far in (1.0, 0.5, 0.0)]


def _at(problem: Problem, room: int, ways: Sequence[Any], found: list[Choice]) -> bool:
    """Add plans in which no more than `room` bytes live at once; whether there are any."""
    fits = False
    for order, far in ways:
        schedule = scheduled(problem, room, order, far)
        if schedule is None:
            continue
        fits = True
        # a layout takes as long as the walk: only for what nothing beats so far
        if _beaten(schedule, found):
            continue
        found.append(_laid(schedule))
        above = found[-1].size - room if len(ways) > 1 else 0
        if above > 0 and (less := scheduled(problem, room - above, order, far)) is not None:
            found.append(_laid(less))
    return fits


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
