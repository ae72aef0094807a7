"""Small problems, solved by looking at everything: the least bytes that any schedule needs."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from retrograd.memory.layout import layout
from retrograd.memory.problem import Schedule, rounded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retrograd.memory.problem import Problem

__all__ = ["FEW", "smallest"]

FEW = 6  # units, spares among them: more are not tried
_PATHS = 3000  # schedules that are laid out, where the first one leaves gaps

_State = tuple[int, int]  # which values live, and which units have run: a bit for each


def smallest(problem: Problem) -> Schedule:
    """The schedule whose arena is smallest; units run as often as it takes."""
    search = _Search(problem)
    live, runs = search.fewest_bytes()
    best = Schedule(problem, runs)
    size = layout(best.spans)[1]
    for other in search.others(live, size) if size > live else ():
        found = Schedule(problem, other)
        need = layout(found.spans)[1]
        if need < size:
            best, size = found, need
        if size == live:
            break
    return best


class _Search:
    """Ways through the states: a unit runs, or a value is forgotten."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.units = problem.units + problem.spares
        self.all = (1 << len(problem.units)) - 1
        self.reads = [self._bits(u.reads) for u in self.units]
        self.writes = [self._bits(u.writes) for u in self.units]
        self.space = [rounded(u.workspace) if u.workspace else 0 for u in self.units]
        self.after = [sum(1 << w for w in u.after) for u in self.units]

    def _bits(self, values: tuple[int, ...]) -> int:
        return sum(1 << v for v in values if v not in self.problem.held)

    def bytes_of(self, here: int) -> int:
        """Of the values that live."""
        nbytes, total, v = self.problem.nbytes, 0, 0
        while here:
            if here & 1:
                total += nbytes[v]
            here, v = here >> 1, v + 1
        return total

    def may(self, u: int, here: int, ran: int) -> bool:
        """Whether a unit may run now."""
        unit = self.units[u]
        if self.reads[u] & ~here or self.after[u] & ~ran or not self._held_made(u, ran):
            return False
        if ran >> u & 1 and not unit.replays:
            return False
        spare = u >= len(self.problem.units)
        if spare and not ran >> self.problem.makers[unit.writes[0]][0] & 1:
            return False
        return not any(
            ran >> w & 1 and set(other.spoils) & set(unit.reads)
            for w, other in enumerate(self.units)
        )

    def _held_made(self, u: int, ran: int) -> bool:
        held = [v for v in self.units[u].reads if v in self.problem.held]
        makers = [self.problem.makers[v][0] for v in held if v in self.problem.makers]
        return all(ran >> w & 1 for w in makers)

    def fewest_bytes(self) -> tuple[int, tuple[int, ...]]:
        """The least bytes alive at once, and the shortest schedule that gets by with them."""
        heap: list[tuple[int, float, tuple[int, ...], _State]] = [(0, 0.0, (), (0, 0))]
        seen: set[_State] = set()
        while heap:
            live, cost, runs, (here, ran) = heapq.heappop(heap)
            if ran & self.all == self.all:
                return live, runs
            if (here, ran) in seen:
                continue
            seen.add((here, ran))
            for u, unit in enumerate(self.units):
                if self.may(u, here, ran):
                    now = here | self.writes[u]
                    need = max(live, self.bytes_of(now) + self.space[u])
                    state = (now, ran | 1 << u)
                    heapq.heappush(heap, (need, cost + unit.cost, (*runs, u), state))
            for v in range(here.bit_length()):
                if here >> v & 1:
                    heapq.heappush(heap, (live, cost, runs, (here & ~(1 << v), ran)))
        raise AssertionError("the order of the units is a way")

    def others(self, least: int, most: int) -> Iterator[tuple[int, ...]]:
        """Schedules with fewer than `most` bytes alive; so many that it ends."""
        stack: list[tuple[tuple[int, ...], int, frozenset[_State]]] = [((), 0, frozenset())]
        tried = 0
        while stack and tried < _PATHS:
            runs, ran, seen = stack.pop()
            if ran & self.all == self.all:
                tried += 1
                yield runs
                continue
            made = 0
            for u in runs:
                made |= self.writes[u]
            for u in range(len(self.units)):
                if not self.may(u, made, ran) or runs.count(u) >= self.problem.limit:
                    continue
                state = (u, ran | 1 << u)
                if state in seen:  # a second run must have brought something new
                    continue
                schedule = Schedule(self.problem, (*runs, u))
                if least <= schedule.live < most or schedule.live < least:
                    stack.append(((*runs, u), ran | 1 << u, seen | {state}))
