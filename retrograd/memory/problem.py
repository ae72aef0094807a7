"""What a budget is about, without tensors: units that read and write values of some bytes.

A unit is the smallest thing that runs or runs again: a fused kernel, a call. A schedule is a
sequence of units. It says everything: a value lives from the run that writes it to the last
run that reads it before it is written anew, and what is read must live.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ALIGN", "Problem", "Schedule", "Span", "Unit", "rounded"]

ALIGN = 64  # bytes; offsets are multiples of it
_NEIGHBOURS = 16  # of a value that a plan looks at
SMALLEST = 1 << 14  # bytes that are worth a file


def rounded(nbytes: int) -> int:
    """Up to a whole number of cache lines, and never nothing."""
    return max(ALIGN, -(-nbytes // ALIGN) * ALIGN)


@dataclass(frozen=True)
class Unit:
    """Something that runs: which values it reads and writes, and how long it takes."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    cost: float = 1.0
    workspace: int = 0  # bytes it needs while it runs
    replays: bool = True  # whether it may run a second time
    spoils: tuple[int, ...] = ()  # values whose memory it overwrites: no later run reads them
    after: tuple[
        int, ...
    ] = ()  # units that must have run before, though it reads nothing of them


@dataclass(frozen=True)
class Span:
    """A value's bytes, from the run that makes it to the last that reads it."""

    name: object
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Problem:
    """Units in an order that works, the bytes of each value, and what costs nothing to hold.

    `held` values have memory of their own for the whole program: arguments and outputs.
    `spares` are units that only ever run again: cheaper ways to a value that is written
    together with others. `limit` is how often a unit may run in all. `disk` is how many
    seconds a byte takes to a file or back, 0 where nothing is put there.
    """

    units: tuple[Unit, ...]
    sizes: tuple[int, ...]
    held: frozenset[int] = frozenset()
    spares: tuple[Unit, ...] = ()
    limit: int = 8
    disk: float = 0.0

    @cached_property
    def all_units(self) -> tuple[Unit, ...]:
        """The units of the order, the spares, then for each value in `spills` two."""
        moves = []
        for v in self.spills:
            cost = self.sizes[v] * self.disk
            moves += [Unit((v,), (), cost), Unit((), (v,), cost)]
        return self.units + self.spares + tuple(moves)

    @cached_property
    def spills(self) -> dict[int, int]:
        """Values that may go to a file, and the unit that writes each; the next reads it."""
        large = [
            v
            for u in self.units
            for v in u.writes
            if self.disk and v not in self.held and self.sizes[v] >= SMALLEST
        ]
        first = len(self.units) + len(self.spares)
        return {v: first + 2 * k for k, v in enumerate(dict.fromkeys(large))}

    @cached_property
    def nbytes(self) -> tuple[int, ...]:
        """Bytes of each value in the arena: nothing for what is held elsewhere."""
        return tuple(0 if v in self.held else rounded(s) for v, s in enumerate(self.sizes))

    @cached_property
    def makers(self) -> dict[int, tuple[int, ...]]:
        """The units that make a value, the one of the order first."""
        found: dict[int, list[int]] = {}
        for u, unit in enumerate(self.units + self.spares):
            for v in unit.writes:
                found.setdefault(v, []).append(u)
        return {v: tuple(us) for v, us in found.items()}

    @cached_property
    def remakes(self) -> dict[int, float]:
        """What it costs to make each value again of what its cheapest maker reads."""
        units = self.units + self.spares
        return {v: units[makers[-1]].cost for v, makers in self.makers.items()}

    @cached_property
    def neighbours(self) -> dict[int, list[int]]:
        """The values that each is made of, and that are made of it: the first of these."""
        units = self.units + self.spares
        near: dict[int, list[int]] = {v: [] for v in self.makers}
        for v, makers in self.makers.items():
            for r in units[makers[-1]].reads:
                if r not in self.held:
                    near[v].append(r)
                    near[r].append(v)
        return {v: n[:_NEIGHBOURS] for v, n in near.items()}

    def need(self, u: int) -> int:
        """Bytes in the arena while a unit runs, at the least: operands, results, workspace."""
        unit = self.all_units[u]
        values = {*unit.reads, *unit.writes}
        space = rounded(unit.workspace) if unit.workspace else 0
        return sum(self.nbytes[v] for v in values) + space

    @cached_property
    def bound(self) -> int:
        """No schedule needs less: the unit of the order that needs most by itself."""
        return max((self.need(u) for u in range(len(self.units))), default=0)


@dataclass(frozen=True)
class Schedule:
    """A sequence of runs of units, each by its number in the problem."""

    problem: Problem
    runs: tuple[int, ...]
    again: int = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.problem.units) + len(self.problem.spares)
        ran = sum(u < count for u in self.runs)
        object.__setattr__(self, "again", ran - len(self.problem.units))

    @cached_property
    def cost(self) -> float:
        """Time that all runs take together."""
        units = self.problem.all_units
        return sum(units[u].cost for u in self.runs)

    def works(self) -> bool:
        """Whether every unit runs, and everything that is read is there to be read."""
        problem = self.problem
        here: set[int] = set()
        filed: set[int] = set()
        made = set(problem.makers)
        given = {v for v in problem.held if v not in made}
        by_unit = {u: v for v, u in problem.spills.items()}
        spoiled: set[int] = set()
        for u in self.runs:
            unit = problem.all_units[u]
            if not set(unit.reads) <= here | given or spoiled & set(unit.reads):
                return False
            if u in by_unit:
                filed.add(by_unit[u])
            elif u - 1 in by_unit and by_unit[u - 1] not in filed:
                return False
            here.update(unit.writes)
            spoiled.update(unit.spoils)
        return set(range(len(problem.units))) <= set(self.runs)

    @cached_property
    def spilled(self) -> list[int]:
        """The values that go to a file, in order."""
        by_unit = {u: v for v, u in self.problem.spills.items()}
        return [by_unit[u] for u in self.runs if u in by_unit]

    @cached_property
    def spans(self) -> list[Span]:
        """What lives when: named (value, run that wrote it), and ("space", run)."""
        problem = self.problem
        made: dict[int, int] = {}
        last: dict[tuple[int, int], int] = {}
        for t, u in enumerate(self.runs):
            unit = problem.all_units[u]
            for v in unit.reads:
                if v in made:
                    last[v, made[v]] = t
            for v in unit.writes:
                made[v] = t
                last[v, t] = t
        found: list[Span] = [
            Span(key, problem.sizes[key[0]], key[1], end)
            for key, end in last.items()
            if key[0] not in problem.held
        ]
        for t, u in enumerate(self.runs):
            if space := problem.all_units[u].workspace:
                found.append(Span(("space", t), space, t, t))
        return found

    @cached_property
    def profile(self) -> list[int]:
        """Bytes that live at each run."""
        return profile(self.spans, len(self.runs))

    @cached_property
    def live(self) -> int:
        """The most bytes that live at once: no layout of the arena is smaller."""
        return max(self.profile, default=0)


def profile(spans: Sequence[Span], count: int) -> list[int]:
    """Bytes that live at each of `count` moments."""
    change = [0] * (count + 1)
    for s in spans:
        change[s.first] += rounded(s.nbytes)
        change[s.last + 1] -= rounded(s.nbytes)
    out, now = [], 0
    for c in change[:count]:
        now += c
        out.append(now)
    return out
