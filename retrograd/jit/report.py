"""What an explanation holds: steps, values, memory, and the graph after each pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retrograd.core.errors import ArgumentError

if TYPE_CHECKING:
    from retrograd.ir.graph import Graph
    from retrograd.jit.llvm.limits import Limits

__all__ = ["Memory", "Report", "StepReport", "ValueReport"]


@dataclass(frozen=True)
class StepReport:
    """One step of a program: a kernel, or a call, with what was measured in all its turns."""

    number: int
    depth: int  # 0: of the program; more: in a loop or branch, whose time includes it
    what: str  # loops, gemm, the name of an op, or host: and the reason
    lines: tuple[tuple[str, tuple[str, ...]], ...]  # the user's lines, and their ops
    chunks: int
    nbytes: int  # read and written, in all turns
    flops: int
    turns: int
    seconds: float
    roof: float  # the least seconds that this machine's limits allow; 0 where nothing is known

    @property
    def ops(self) -> list[str]:
        """The names of the ops in it."""
        return [name for _, names in self.lines for name in names]

    @property
    def bandwidth(self) -> float:
        """Bytes in a second."""
        return self.nbytes / self.seconds if self.seconds else 0.0

    @property
    def speed(self) -> float:
        """Operations in a second."""
        return self.flops / self.seconds if self.seconds else 0.0

    @property
    def nearness(self) -> float:
        """The share of what the machine could do at most; 0 where that is not known."""
        return self.roof / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class ValueReport:
    """A value in the arena: where, from which step to which, and the user's line."""

    name: str
    where: str
    nbytes: int
    offset: int
    first: int
    last: int


@dataclass(frozen=True)
class Memory:
    """Where the bytes of a call are."""

    arguments: int
    outputs: int
    reused: int  # of the outputs, what is written where donated arguments were
    constants: int
    arena: int
    peak: int  # the most that is alive in the arena at once
    scratch: int  # for each thread
    values: tuple[ValueReport, ...]  # the largest first


@dataclass(repr=False)
class Report:
    """A compiled function, laid open."""

    who: str
    graphs: list[tuple[str, Graph]]  # after each pass, with the pass's name; "traced" first
    steps: list[StepReport]
    memory: Memory
    seconds: float  # a call of the whole program
    limits: Limits
    once: bool = False  # measured in one run, and a cold one, for it has effects
    llvm: str = field(default="")  # the module, without clocks

    def after(self, name: str) -> Graph:
        """The program after a pass, the last time that it ran; "traced" is before all."""
        found = [graph for n, graph in self.graphs if n == name]
        if not found:
            known = ", ".join(dict.fromkeys(n for n, _ in self.graphs))
            raise ArgumentError(f"after: there is no pass {name!r}; there are {known}")
        return found[-1]

    @property
    def hosts(self) -> list[StepReport]:
        """The steps that call Python, each with its reason."""
        return [s for s in self.steps if s.what.startswith("host")]
