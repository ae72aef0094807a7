"""rg.plan: what a budget does to a program, before it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from retrograd.core import tree
from retrograd.core.spec import Spec
from retrograd.jit.api import Jitted, jit
from retrograd.jit.planned_page import figure, page
from retrograd.jit.write_file import write_file
from retrograd.memory.sizes import bytes_of, shown

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from retrograd.jit.llvm.budget import Plans
    from retrograd.memory.frontier import Choice

__all__ = ["Band", "Plan", "Point", "plan"]


@dataclass(frozen=True)
class Band:
    """A stay of one value in the arena, from run to run."""

    what: str
    where: str
    nbytes: int
    offset: int
    first: int
    last: int
    fate: str  # kept, recomputed, spilled, or space for a kernel's own use


@dataclass(frozen=True)
class Point:
    """A plan on the curve: the bytes it takes, the seconds it may, the runs that are extra."""

    nbytes: int
    seconds: float
    again: int


@dataclass(frozen=True)
class Plan:
    """A program's memory: `peak` bytes, `seconds` a call, and what else was possible.

    `str` is a page of text, `save` a page of pictures, `plot` the picture alone.
    """

    who: str
    budget: int | None
    peak: int  # bytes, all in all: arena, results in new memory, scratch
    arena: int
    outputs: int
    scratch: int
    minimum: int  # the smallest budget that was found to do
    bound: int  # no budget below this can do
    seconds: float  # predicted; measured on this machine if arguments had values
    runs: tuple[str, ...]  # what runs, in order
    again: int  # how many of them run another time
    curve: tuple[Point, ...] = field(repr=False)
    bands: tuple[Band, ...] = field(repr=False)

    @property
    def room(self) -> int | None:
        """What the budget leaves for the arena."""
        return None if self.budget is None else self.budget - self.outputs - self.scratch

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a self-contained HTML page with pictures; the file is whole or not there."""
        return write_file("plan.save", path, page(self))

    def plot(self) -> Any:
        """Bytes over the program as a matplotlib figure (extra `plot`)."""
        return figure(self)

    def at_peak(self) -> list[Band]:
        """What the arena holds when it holds most, the largest first."""
        level = [0] * len(self.runs)
        for b in self.bands:
            for t in range(b.first, b.last + 1):
                level[t] += b.nbytes
        worst = max(range(len(level)), key=level.__getitem__, default=0)
        here = [b for b in self.bands if b.first <= worst <= b.last]
        return sorted(here, key=lambda b: -b.nbytes)

    def __str__(self) -> str:
        within = "" if self.budget is None else f", within {shown(self.budget)}"
        parts = f"results {shown(self.outputs)}, scratch {shown(self.scratch)}"
        runs = f"{len(self.runs)} runs, {self.again} of them again"
        time = f"{self.seconds * 1e3:.3g} ms a call"
        lines = [
            f"{self.who}: {shown(self.peak)} ({self.peak:,} bytes), {time}{within}",
            f"  arena {shown(self.arena)}, {parts}; {runs}",
            f"  smallest budget found {self.minimum:,} bytes; none below {self.bound:,}",
            "  the peak:",
        ]
        lines += [
            f"    {shown(b.nbytes):>10}  {b.what}  {b.fate}  at  {b.where}"
            for b in self.at_peak()[:8]
        ]
        lines.append("  budget and time:")
        lines += [
            f"    {shown(p.nbytes):>10}  {p.seconds * 1e3:8.3g} ms  {p.again} runs again"
            for p in self.curve
        ]
        return "\n".join(lines)


def plan(f: Callable[..., Any], *args: Any, budget: Any = None, **kwargs: Any) -> Plan:
    """How `f` would run on these arguments within `budget` bytes; nothing is donated.

    Arguments may be specs: then times are estimates. With values, the steps of the program
    are measured, and times are predictions for this machine.

    >>> step = rg.jit(lambda x: rg.sum(rg.exp(x) * rg.sin(x)))
    >>> rg.plan(step, rg.Spec((1000, 1000), rg.float32), budget="64 MiB").peak < 2**26
    True
    """
    from retrograd.jit.measure import planned  # noqa: PLC0415  it loads llvmlite

    nbytes = None if budget is None else bytes_of("plan", budget)
    function = f if isinstance(f, Jitted) else jit(f)
    if nbytes is None:
        nbytes = function.budget
    lowered = function.lower(*args, **kwargs)
    abstract = any(isinstance(x, Spec) for x in tree.leaves([args, kwargs]))
    arrays = None if abstract else function.read(function.arguments(args, kwargs)).arrays
    plans, times = planned(lowered, arrays)
    choice = plans.choices[-1] if nbytes is None else plans.within(function.who, nbytes).choice
    return described(function.who, nbytes, plans, choice, times)


def described(
    who: str, budget: int | None, plans: Plans, choice: Choice, times: Sequence[float]
) -> Plan:
    """A choice among plans, as people see it; `times` are seconds of each unit."""
    call = times[-1]  # what a call takes besides its units
    curve = [
        Point(
            c.size + plans.fixed,
            call + sum(times[u] for u in c.schedule.runs),
            c.schedule.again,
        )
        for c in plans.choices
    ]
    runs = choice.schedule.runs
    return Plan(
        who,
        budget,
        choice.size + plans.fixed,
        choice.size,
        plans.outputs,
        plans.scratch,
        plans.minimum,
        plans.bound,
        call + sum(times[u] for u in runs),
        tuple(plans.title(u) for u in runs),
        choice.schedule.again,
        tuple(curve),
        tuple(_bands(plans, choice)),
    )


def _bands(plans: Plans, choice: Choice) -> list[Band]:
    stays: dict[int, int] = {}
    for s in choice.schedule.spans:
        if s.name[0] != "space":  # type: ignore[index]
            v = s.name[0]  # type: ignore[index]
            stays[v] = stays.get(v, 0) + 1
    found = []
    for s in choice.schedule.spans:
        v, _ = s.name  # type: ignore[misc]
        what, where = ("inside a step", "") if v == "space" else plans.named(v)
        fate = "space" if v == "space" else "kept" if stays[v] == 1 else "recomputed"
        offset = choice.offsets[s.name]
        found.append(Band(what, where, s.nbytes, offset, s.first, s.last, fate))
    return found
