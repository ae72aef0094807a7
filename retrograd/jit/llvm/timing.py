"""A program with a clock around each step: how long it took, in all its turns."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.jit.llvm.pool_text import CLOCK, clock_number
from retrograd.jit.llvm.text import I64

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrograd.ir.graph import Graph
    from retrograd.jit.llvm.info import KernelInfo

__all__ = ["Entry", "Stopwatch"]


@dataclass
class Entry:
    """A step as it was written: what it reads and writes, and the kernels that it starts."""

    number: int
    depth: int  # 0: of the program; more: in the body of a loop or branch
    graph: Graph
    what: str
    nodes: Sequence[int]
    reads: Sequence[int]
    writes: Sequence[int]
    kernels: list[KernelInfo] = field(default_factory=list)


class Stopwatch:
    """Given to `build`: the program counts nanoseconds and turns of each step in `ticks`.

    `ticks` is the first of the program's constants, so that a call needs nothing more. A loop
    is counted with all that is in it.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.ticks = np.zeros((0, 2), np.int64)
        self._open: list[Entry] = []

    def begin(self, writer: Any) -> None:
        """Before the first step: a clock in the module, and a place for the counts."""
        machine = writer.module.machine
        text = CLOCK.replace("CLOCK_NUMBER", str(clock_number(machine)))
        writer.module.functions["clock"] = text
        self._at = writer.constants_at + len(writer.constants)
        writer.constants.append(self.ticks)

    def finish(self, writer: Any) -> None:
        """After the last: as many counts as there are steps."""
        self.ticks = np.zeros((max(1, len(self.entries)), 2), np.int64)
        writer.constants[0] = self.ticks

    @contextmanager
    def around(self, routine: Any, step: Any) -> Iterator[None]:
        """While a step is written."""
        writer, f = routine.writer, routine.writer.f
        reads, writes = routine.traffic(step)
        entry = Entry(len(self.entries), len(self._open), routine.graph, "", (), reads, writes)
        first = len(writer.steps)
        self.entries.append(entry)
        self._open.append(entry)
        start = f.call("clock", I64)
        yield
        took = f.sub(f.call("clock", I64), start)
        self._open.pop()
        base = writer.pointer(self._at)
        for at, more in ((2 * entry.number, took), (2 * entry.number + 1, f.const(I64, 1))):
            place = f.at(base, at, I64)
            f.store(f.add(f.load(I64, place), more), place)
        if len(writer.steps) > first:
            entry.what, entry.nodes = writer.steps[first].what, writer.steps[first].nodes

    def launched(self, info: KernelInfo) -> None:
        """A kernel was started by the step that is being written."""
        if self._open:
            self._open[-1].kernels.append(info)
