"""A program within a number of bytes: what it needs besides the arena, and its plans."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from retrograd.core.errors import BudgetError
from retrograd.jit.llvm.program import Writer
from retrograd.jit.llvm.ready import hosted
from retrograd.jit.llvm.units import problem_of
from retrograd.jit.spares import spares
from retrograd.jit.steps import Course, Spill
from retrograd.memory.bound import proven
from retrograd.memory.frontier import Choice, cheapest, frontier
from retrograd.memory.problem import rounded
from retrograd.memory.sizes import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.ir.graph import Graph
    from retrograd.jit.llvm.machine import Machine
    from retrograd.jit.llvm.routine import Routine
    from retrograd.jit.steps import Loops
    from retrograd.memory.problem import Problem

__all__ = ["Plans", "plans", "plans_of"]

_LARGEST = 5  # values that an error names


@dataclass(frozen=True)
class Plans:
    """All plans of one program; those that fit a budget are among them."""

    graph: Graph
    problem: Problem
    routine: Any
    more: tuple[Loops, ...]  # kernels that only run again
    outputs: int  # bytes of results that are in no donated memory
    scratch: int  # bytes for the threads, and for calls of Python

    @property
    def fixed(self) -> int:
        """Bytes that every plan needs besides its arena."""
        return self.outputs + self.scratch

    @cached_property
    def choices(self) -> list[Choice]:
        """The smallest first, the fastest last."""
        return frontier(self.problem, self.fixed)

    @property
    def minimum(self) -> int:
        """The smallest budget that was found to do."""
        return self.choices[0].size + self.fixed

    @cached_property
    def bound(self) -> int:
        """No plan does with less."""
        return proven(self.problem) + self.fixed

    def within(self, who: str, budget: int) -> Course:
        """The plan that takes least time of those that fit."""
        found = cheapest(self.choices, budget - self.fixed)
        if found is None:
            raise BudgetError(
                f"{who}: it does not run in {shown(budget)} ({budget:,} bytes); the smallest "
                f"budget found is {self.minimum:,} bytes, and none can be below "
                f"{self.bound:,}\n{self.what_stays()}",
                minimum=self.minimum,
                bound=self.bound,
                hint=f"budget={self.minimum}",
            )
        return self.course(found)

    def course(self, choice: Choice) -> Course:
        """A plan, with the steps it has besides those of the graph."""
        assert choice.schedule.works()
        file, moves = 0, []
        used = set(choice.schedule.spilled)
        for v in self.problem.spills:
            nbytes = self.problem.sizes[v]
            moves += [Spill(v, nbytes, file, False), Spill(v, nbytes, file, True)]
            file += rounded(nbytes) if v in used else 0
        return Course(choice, (*self.more, *moves), file)

    def named(self, v: int) -> tuple[str, str]:
        """What a value is, and the user's line that made it."""
        node = self.graph.nodes[self.routine.node_of(v)]
        return f"{node.op.name} {self.graph.specs[v]}", str(node.where or "")

    def title(self, u: int) -> str:
        """What a unit does."""
        unit = self.problem.all_units[u]
        names = [self.named(v)[0] for v in unit.writes if v >= len(self.graph.inputs)]
        return ", ".join(names) or "nothing that stays"

    def what_stays(self) -> str:
        """The largest that must be there, each with the line that made it."""
        most = max(range(len(self.problem.units)), key=self.problem.need)
        unit = self.problem.units[most]
        values = {*unit.reads, *unit.writes} - self.problem.held
        values |= set(self.routine.stored_outputs()) - set(self.routine.reuse)
        largest = sorted(values, key=lambda v: -self.problem.sizes[v])[:_LARGEST]
        lines = [
            "    {}  {}  at  {}".format(shown(self.problem.sizes[v]), *self.named(v))
            for v in largest
        ]
        return "  what must stay, at the worst moment:\n" + "\n".join(lines)


def plans(
    graph: Graph,
    machine: Machine,
    donated: Sequence[int],
    threads: int,
    *,
    disk: bool = False,
) -> Plans:
    """The plans of a graph for so many threads; written once to know what kernels need."""
    writer = Writer(graph, machine, donated)
    return plans_of(writer, writer.written(), threads, disk=disk)


def plans_of(writer: Writer, routine: Routine, threads: int, *, disk: bool = False) -> Plans:
    """The plans of what was written."""
    graph = writer.graph
    made = [v for v in routine.stored_outputs() if v not in routine.reuse]
    more = tuple(spares(routine.fusion, routine.steps))
    return Plans(
        graph,
        problem_of(routine, routine.costs, more, disk=disk),
        routine,
        more,
        sum(rounded(graph.specs[v].nbytes) for v in made),
        threads * writer.scratch + hosted(writer.hosts),
    )
