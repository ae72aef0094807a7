"""An order of the units that lets go of memory early."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retrograd.memory.problem import Problem

__all__ = ["early"]


def early(problem: Problem, *, updates: bool) -> list[int]:
    """The given order, but a unit that frees more than it makes runs as soon as it can.

    Of several the first; with `updates` those before it that make nothing. Such is the update
    of a weight: no gradient has to wait then until all are there, but what reads the old
    weight cannot run again.
    """
    waits, after = _dependencies(problem)
    readers: dict[int, set[int]] = {}
    for u, unit in enumerate(problem.units):
        for v in unit.reads:
            readers.setdefault(v, set()).add(u)
    done = [False] * len(problem.units)
    out: list[int] = []

    makes = [sum(problem.nbytes[v] for v in unit.writes) for unit in problem.units]

    def frees(u: int) -> bool:
        reads = set(problem.units[u].reads)
        return makes[u] <= sum(problem.nbytes[v] for v in reads if readers[v] == {u})

    for first in range(len(problem.units)):
        ready = [first]
        while ready:
            u = ready.pop()
            if done[u] or waits[u] or (u != first and not frees(u)):
                continue
            done[u] = True
            out.append(u)
            unit = problem.units[u]
            for w in after[u]:
                waits[w] -= 1
            for v in set(unit.reads):
                readers[v].discard(u)
            candidates = {*after[u], *(w for v in unit.reads for w in readers[v])}
            ready += sorted((w for w in candidates if not waits[w]), reverse=True)
            if updates:
                ready.sort(key=lambda w: not makes[w])  # the last one is next
    return out


def _dependencies(problem: Problem) -> tuple[list[int], list[list[int]]]:
    """How many units each waits for, and which wait for each."""
    count = len(problem.units)
    before: list[set[int]] = [set() for _ in range(count)]
    made: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    for u, unit in enumerate(problem.units):
        for v in unit.reads:
            if v in made:
                before[u].add(made[v])
            readers.setdefault(v, []).append(u)
        before[u].update(unit.after)
        for v in unit.spoils:
            before[u].update(w for w in readers.get(v, ()) if w != u)
        for v in unit.writes:
            made[v] = u
    after: list[list[int]] = [[] for _ in range(count)]
    for u, found in enumerate(before):
        for w in found:
            after[w].append(u)
    return [len(b) for b in before], after
