"""A program that is ready to be called: what a call must bring, and the function's address.

It is apart from what writes programs: one that comes from the cache needs none of that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.faults import Faults
from retrograd.memory.problem import rounded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from retrograd.core.spec import Spec
    from retrograd.ir.graph import Graph, Node
    from retrograd.jit.llvm.info import KernelInfo
    from retrograd.jit.steps import Course, Spill
    from retrograd.memory.problem import Span

__all__ = [
    "ARENA",
    "FINE",
    "HEAD",
    "HOST",
    "POLL",
    "SCRATCH",
    "STATUS",
    "THREADS",
    "Ahead",
    "HostCall",
    "Program",
    "Step",
    "Written",
]

ARENA, SCRATCH, THREADS, STATUS, HOST, POLL, HEAD = range(7)
FINE = (1 << 63) - 1  # the status word of a call in which nothing went wrong


@dataclass
class Step:
    """What runs when: for `explain`."""

    what: str
    nodes: list[int]
    info: KernelInfo | None
    graph: Graph | None = None


@dataclass
class HostCall:
    """A node that Python runs: its op, and where its operands are."""

    node: Node
    specs: list[Spec]
    outs: list[Spec]

    @property
    def nbytes(self) -> int:
        """Bytes that Python takes for it: the results before they are copied, and workspace."""
        made = sum(s.nbytes for s in self.outs)
        return made + self.node.op.workspace(*self.specs)


def hosted(calls: Sequence[Any]) -> int:
    """The most bytes that one of a program's calls of Python takes beside the arena."""
    return max((c.nbytes for c in calls if isinstance(c, HostCall)), default=0)


@dataclass
class Ahead:
    """A word to the system about what will be read."""

    spills: list[Spill]


@dataclass
class Written:
    """How a program was written, to be looked at."""

    graph: Graph  # after all passes
    steps: list[Step]
    text: str
    spans: list[tuple[Span, int]]  # values, and their offsets


@dataclass
class Program:
    """A compiled graph: what a call must bring, and the function's address."""

    address: int
    arena: int
    scratch: int
    constants: list[np.ndarray]
    hosts: list[Any]  # HostCalls, and what goes to the file of a call
    given: int  # how many inputs there are
    outputs: tuple[int, ...]  # values
    specs: dict[int, Spec]  # of the outputs
    how: Callable[[], Written] = field(repr=False)
    wheres: Sequence[Any] | dict[int, Any] = ()  # of nodes, as faults count them
    reuse: dict[int, int] = field(default_factory=dict)  # output value: donated input
    polls: bool = False  # whether it has loops, which can be interrupted
    faults: Faults = field(default_factory=Faults)
    course: Course | None = None  # the plan, where there is a budget

    @cached_property
    def written(self) -> Written:
        """How it was written; worked out again if it came from the cache."""
        return self.how()

    @property
    def graph(self) -> Graph:
        """The graph after all passes."""
        return self.written.graph

    @property
    def steps(self) -> list[Step]:
        """What runs when."""
        return self.written.steps

    @property
    def text(self) -> str:
        """The module."""
        return self.written.text

    @property
    def spans(self) -> list[tuple[Span, int]]:
        """Values, and their offsets in the arena."""
        return self.written.spans

    def taken(self, threads: int) -> int:
        """Bytes of a call: arena, scratch, Python's part, results not in donated memory."""
        made = {v for v in self.outputs if v >= self.given} - set(self.reuse)
        results = sum(rounded(self.specs[v].nbytes) for v in made)
        return self.arena + threads * self.scratch + results + hosted(self.hosts)
