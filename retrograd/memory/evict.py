"""Run a problem's units in order within some bytes: values are dropped, and made again.

When a unit needs room, the value is dropped that is cheap to make again for the bytes it frees
and the time they stay free. What it costs to make again counts the neighbours that are gone
too: so what is dropped spreads out, and chains stay short. When a unit misses a value, all that
is needed to make it runs first, in order.
"""

from __future__ import annotations

import heapq
from math import inf
from typing import TYPE_CHECKING

from retrograd.memory.problem import Problem, Schedule, rounded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Meter", "NoRoomError", "scheduled"]

_USES = 16  # to come, that are looked at


class NoRoomError(Exception):
    """The units do not fit in the bytes, by this way of choosing."""


class Meter:
    """Work that may still be done: operands of units, and values that are looked at."""

    def __init__(self, left: float = inf) -> None:
        self.left = left

    def spend(self, work: float) -> None:
        """Do so much; more than is left is not done."""
        self.left -= work
        if self.left < 0:
            raise NoRoomError


def scheduled(
    problem: Problem,
    room: int,
    order: Sequence[int],
    far: float,
    meter: Meter | None = None,
    drops: Mapping[int, int] | None = None,
) -> Schedule | None:
    """A schedule in which at most `room` bytes live at once, if this way finds one.

    `order` is a working order of the units. `far` says how much the time to the next use
    counts when something must be dropped: 0 not at all, 1 as much as bytes. `drops` are values
    to let go of in any case, each after a moment of the order, and to make again later.
    """
    run = _Run(problem, room, order, far)
    run.meter = meter or run.meter
    run.drops = dict(drops or {})
    try:
        run.walk(order)
    except NoRoomError:
        return None
    return Schedule(problem, tuple(run.runs))


class _Run:
    """One walk through the order."""

    def __init__(self, problem: Problem, room: int, order: Sequence[int], far: float) -> None:
        self.problem, self.room, self.far = problem, room, far
        self.nbytes = problem.nbytes
        self.place: dict[int, float] = {u: t for t, u in enumerate(order)}
        for k in range(len(problem.spares)):  # a spare comes with the unit it stands in for
            spare = len(problem.units) + k
            first = problem.makers[problem.all_units[spare].writes[0]][0]
            self.place[spare] = self.place[first]
        for v, u in problem.spills.items():
            self.place[u + 1] = self.place[problem.makers[v][0]] - 0.5  # before what reads it
        self.saved: set[int] = set()  # values that are in the file
        self.uses: dict[int, list[int]] = {}  # times of the reads to come, the next one last
        for t in range(len(order) - 1, -1, -1):
            for v in problem.units[order[t]].reads:
                self.uses.setdefault(v, []).append(t)
        self.later: dict[int, list[int]] = {}  # by time: what a dropped value is made of
        self.here: set[int] = set()
        self.used = 0
        self.ran = [0] * len(problem.all_units)
        self.spoiled: set[int] = set()
        self.gone = _Gone(problem)
        self.heap: list[tuple[float, int, int]] = []  # score, version, value
        self.version = [0] * len(self.nbytes)
        self.locks: dict[int, int] = {}
        self.runs: list[int] = []
        self.meter = Meter()
        self.drops: dict[int, int] = {}

    def walk(self, order: Sequence[int]) -> None:
        """All units of the order."""
        for self.now, u in enumerate(order):
            self.step(u)
            for v in self.later.pop(self.now, ()):
                if v in self.here and not self.locks[v]:
                    self.settle(v)

    def step(self, u: int) -> None:
        """A unit of the order, after what it misses."""
        todo = [*self.missing(self.problem.units[u].reads), u]
        for w in todo:
            for v in self.problem.all_units[w].reads:
                self.locks[v] = self.locks.get(v, 0) + 1
        for w in todo:
            self.execute(w)

    def missing(self, values: Iterable[int]) -> list[int]:
        """The units to run again before `values` can be read, in order."""
        todo: set[int] = set()
        look = [v for v in values if self.absent(v)]
        seen = set(look)
        while look:
            u = self.maker(look.pop())
            todo.add(u)
            for v in self.problem.all_units[u].reads:
                if v not in seen and self.absent(v):
                    seen.add(v)
                    look.append(v)
        return sorted(todo, key=lambda u: (self.place[u], u))

    def absent(self, v: int) -> bool:
        """Whether a value must be made again before it can be read."""
        if v in self.spoiled:
            raise NoRoomError
        return v not in self.here and v not in self.problem.held

    def maker(self, v: int) -> int:
        """The unit to bring a value back with: what seems to cost least with what it misses."""
        if v in self.saved:
            return self.problem.spills[v] + 1
        ways = self.problem.makers[v]
        for u in ways if len(ways) == 1 else sorted(ways, key=self.estimate):
            if self.free_to_run(u):
                return u
        raise NoRoomError

    def estimate(self, u: int) -> float:
        """What a unit costs with what it misses."""
        unit = self.problem.all_units[u]
        cost = unit.cost
        for v in unit.reads:
            if self.absent(v):
                cost += self.moved(v) if v in self.saved else self.gone.price(v)
        return cost

    def free_to_run(self, u: int) -> bool:
        """Whether a unit may run once more."""
        unit = self.problem.all_units[u]
        return unit.replays and self.ran[u] < self.problem.limit

    def execute(self, u: int) -> None:
        """Run a unit: make room, note what now lives, let go of what nobody reads again."""
        unit = self.problem.all_units[u]
        self.meter.spend(len(unit.reads) + len(unit.writes))
        fresh = [v for v in unit.writes if v not in self.here and v not in self.problem.held]
        need = sum(self.nbytes[v] for v in fresh)
        space = rounded(unit.workspace) if unit.workspace else 0
        for v in unit.writes:  # what is written again must not be dropped for it
            self.locks[v] = self.locks.get(v, 0) + 1
        while self.used + need + space > self.room:
            self.drop()
        self.used += need
        self.here.update(fresh)
        for v in fresh:
            self.gone.back(v)
        self.runs.append(u)
        self.ran[u] += 1
        self.spoiled.update(unit.spoils)
        for v in (*unit.reads, *unit.writes):
            self.locks[v] -= 1
            if v in self.here:
                self.settle(v)

    def settle(self, v: int) -> None:
        """After a value was read or written: forget it, or note what dropping it would cost."""
        uses = self.uses.get(v, [])
        while uses and (uses[-1] < self.now or (uses[-1] == self.now and not self.locks[v])):
            uses.pop()
        if self.locks[v]:
            return
        if not uses:
            self.leave(v)
            return
        if v in self.drops and self.drops[v] <= self.now and self.can_return(v):
            self.let_go(v)
            return
        self.version[v] += 1
        heapq.heappush(self.heap, (self.score(v), self.version[v], v))

    def leave(self, v: int) -> None:
        """A value's bytes are free."""
        self.here.remove(v)
        self.used -= self.nbytes[v]
        self.version[v] += 1
        if v not in self.saved:
            self.gone.add(v)

    def spill(self, v: int) -> None:
        """Put a value that is about to be dropped into the file, if that is the cheaper way."""
        if v in self.saved or v not in self.problem.spills:
            return
        if self.moved(v) < self.gone.price(v) or not self.remakes(v):
            self.runs.append(self.problem.spills[v])
            self.saved.add(v)

    def moved(self, v: int) -> float:
        """What a value costs to the file and back, or only back."""
        ways = 1 if v in self.saved else 2
        return ways * self.problem.sizes[v] * self.problem.disk

    def score(self, v: int) -> float:
        """What dropping a value costs for each byte, and moment, that it frees."""
        distance = self.uses[v][-1] - self.now + 1
        price = self.gone.price(v)
        if v in self.problem.spills:
            price = min(price, self.moved(v)) if self.remakes(v) else self.moved(v)
        return price / (self.nbytes[v] * distance**self.far)

    def drop(self) -> None:
        """Drop the value that costs least."""
        aside = []
        while self.heap:
            self.meter.spend(1)
            score, version, v = heapq.heappop(self.heap)
            if version != self.version[v] or v not in self.here:
                continue
            if self.locks[v]:
                aside.append((score, version, v))
                continue
            if not self.can_return(v):
                continue
            now = self.score(v)
            if self.heap and now > self.heap[0][0] * 1.1 and now > score:
                heapq.heappush(self.heap, (now, version, v))
                continue
            self.let_go(v)
            for entry in aside:
                heapq.heappush(self.heap, entry)
            return
        raise NoRoomError

    def let_go(self, v: int) -> None:
        """Drop a value that will be read again."""
        self.spill(v)
        self.leave(v)
        self.promise(v)
        self.drops.pop(v, None)

    def promise(self, v: int) -> None:
        """What a dropped value will be made of is in use until then, if it is there now.

        Otherwise it would leave with its own last reader, and all before it had to run again.
        """
        if v in self.saved:
            return
        t, look, seen = self.uses[v][-1], [v], {v}
        while look:
            self.meter.spend(1)
            for r in self.problem.all_units[self.maker(look.pop())].reads:
                if r in self.problem.held or r in seen:
                    continue
                seen.add(r)
                if r in self.drops:  # it goes, too
                    look.append(r)
                    continue
                uses = self.uses.setdefault(r, [])
                if t in uses[-_USES:]:
                    continue
                at = len(uses)
                while at and uses[at - 1] < t:
                    at -= 1
                uses.insert(at, t)
                self.later.setdefault(t, []).append(r)
                if r not in self.here and at == len(uses) - 1 and r not in self.saved:
                    look.append(r)

    def can_return(self, v: int) -> bool:
        """Whether a value that is dropped now can come back."""
        return v in self.problem.spills or self.remakes(v)

    def remakes(self, v: int) -> bool:
        """Whether a value can be made again."""
        u = self.problem.makers[v][0]
        reads = self.problem.all_units[u].reads
        return self.free_to_run(u) and self.spoiled.isdisjoint(reads)


class _Gone:
    """Values that are not in memory, in groups that hang together, and what each costs.

    A group only grows together; what comes back takes its cost out of it. So prices are
    estimates, which is enough to choose by.
    """

    def __init__(self, problem: Problem) -> None:
        self.cost, self.near = problem.remakes, problem.neighbours
        self.parent = list(range(len(problem.sizes)))
        self.total = [0.0] * len(problem.sizes)
        self.away: set[int] = set()

    def root(self, v: int) -> int:
        while self.parent[v] != v:
            self.parent[v] = self.parent[self.parent[v]]
            v = self.parent[v]
        return v

    def price(self, v: int) -> float:
        """What making a value again may cost, with the neighbours that are gone."""
        cost, seen = self.cost[v], []
        for n in self.near[v]:
            if n in self.away and (r := self.root(n)) not in seen:
                seen.append(r)
                cost += self.total[r]
        return cost

    def add(self, v: int) -> None:
        """A value is gone."""
        self.away.add(v)
        mine = self.root(v)
        self.total[mine] += self.cost[v]
        for n in self.near[v]:
            if n in self.away and (other := self.root(n)) != mine:
                self.parent[other] = mine
                self.total[mine] += self.total[other]

    def back(self, v: int) -> None:
        """A value is here."""
        if v in self.away:
            self.away.remove(v)
            r = self.root(v)
            self.total[r] = max(0.0, self.total[r] - self.cost[v])
