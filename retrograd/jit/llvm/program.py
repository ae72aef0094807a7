"""A graph as one native function: kernels called in sequence on offsets of one arena.

    i32 program(ptr block)

`block` is the call's table of words: the arena, the threads' scratch and how many threads it is
for, the status word, the contexts of host calls and of interrupts, then arguments, outputs and
constants. The result is 0, or 1 if a host call raised, an index was out of range, or the
program was interrupted.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm import poll, pool
from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.faults import Faults
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.main import MANY, Main
from retrograd.jit.llvm.native import compiled
from retrograd.jit.llvm.ready import (
    ARENA,
    FINE,
    HEAD,
    HOST,
    POLL,
    SCRATCH,
    STATUS,
    THREADS,
    Program,
    Step,
    Written,
)
from retrograd.jit.llvm.reuse import reusable
from retrograd.jit.llvm.routine import Routine
from retrograd.jit.llvm.text import I32, I64, PTR, Module, Val
from retrograd.jit.llvm.units import seconds
from retrograd.memory.problem import rounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from retrograd.ir.graph import Graph
    from retrograd.jit.llvm.machine import Machine
    from retrograd.jit.llvm.main import Touched
    from retrograd.jit.llvm.timing import Stopwatch
    from retrograd.jit.steps import Course

__all__ = ["Program", "Step", "Writer", "build"]


def build(
    graph: Graph,
    machine: Machine,
    donated: Sequence[int] = (),
    clock: Stopwatch | None = None,
    course: Course | None = None,
) -> Program:
    """Fuse, plan, write and load a graph.

    With a clock around each step where one is given, and in the order and the memory that a
    plan for a budget says.
    """
    return Writer(graph, machine, donated, clock, course).program()


class Writer:
    """One program being written; bodies of loops share it."""

    def __init__(
        self,
        graph: Graph,
        machine: Machine,
        donated: Sequence[int] = (),
        clock: Stopwatch | None = None,
        course: Course | None = None,
    ) -> None:
        self.graph, self.machine, self.donated, self.clock = graph, machine, donated, clock
        self.course = course
        self.spent = 0.0  # seconds that the kernels started so far may take
        self.module = Module(machine)
        pool.declare(self.module)
        self.constants: list[np.ndarray] = []
        self.hosts: list[Any] = []
        self.steps: list[Step] = []
        self.wheres: list[Any] = []
        self.faults = Faults()
        self.scratch = 0
        self.named = 0
        self.alike: dict[Any, KernelInfo] = {}  # kernels that were written, by what they are
        self.polls = False

    def program(self) -> Program:
        """Everything, loaded."""
        routine = self.written()
        graph, written = self.graph, self.account(routine)
        return Program(
            compiled(self.module).address("program"),
            routine.size,
            self.scratch,
            self.constants,
            self.hosts,
            len(graph.inputs),
            graph.outputs,
            {v: graph.specs[v] for v in graph.outputs},
            lambda: written,
            self.wheres,
            routine.reuse,
            self.polls,
            self.faults,
            self.course,
        )

    def account(self, routine: Routine) -> Written:
        """How the program was written."""
        spans = [(s, routine.offsets[s.name]) for s in routine.spans]
        return Written(self.graph, self.steps, self.module.text(), spans)

    def written(self) -> Routine:
        """The module, whole: for any machine, also one that is not here."""
        graph = self.graph
        self.f: Fn = Main(self.module) if len(graph.nodes) >= MANY else self._short()
        f = self.f
        self.stop = "stopped"
        places: dict[int, Val] = {i: self.pointer(HEAD + i) for i in range(len(graph.inputs))}
        routine = Routine(self, graph)
        made = routine.stored_outputs()
        for k, v in enumerate(made):
            places[v] = self.pointer(HEAD + len(graph.inputs) + k)
        self.constants_at = HEAD + len(graph.inputs) + len(made)
        routine.reuse = reusable(routine, self.donated)
        if self.course is not None:
            routine.follow(self.course)
        if self.clock:
            self.clock.begin(self)
        routine.write(places, self.pointer(ARENA), 0)
        status = f.load(I64, self.pointer(STATUS))
        bad = f.compare("ne", status, f.const(I64, FINE))
        f.done(f.convert("zext", bad, I32))
        self._stopping()
        if self.clock:
            self.clock.finish(self)
        return routine

    def _short(self) -> Fn:
        return Fn(self.module, "program", [("block", PTR)], I32, linkage="")

    def _stopping(self) -> None:
        """The way out when a host call failed."""
        if isinstance(self.f, Main):
            self.f.tables(self.scratch)
        text = self.module.functions["program"].replace("i64 STRIDE", f"i64 {self.scratch}")
        self.module.functions["program"] = text[:-1] + f"{self.stop}:\n  ret i32 1\n}}"

    def pointer(self, slot: int) -> Val:
        """A pointer of the call's block."""
        if isinstance(self.f, Main):
            return self.f.word(slot)
        return self.f.load(PTR, self.f.at(self.f.arg("block"), slot, I64), 8)

    def constant(self, array: np.ndarray) -> Val:
        """A large literal, whose memory the program keeps: never part of the code."""
        self.constants.append(array)
        return self.pointer(self.constants_at + len(self.constants) - 1)

    # -- kernels -----------------------------------------------------------------------------

    def share(self, name: str) -> str:
        """The name under which an equal kernel was written before, or this one."""
        text = self.module.functions.pop(name)
        body = text.replace(f"@{name}(", "@kernel(")
        key = hashlib.blake2b(body.encode(), digest_size=12).hexdigest()
        final = f"k_{key}"
        self.module.functions.setdefault(final, text.replace(f"@{name}(", f"@{final}("))
        return final

    def rename(self, where: str, old: str, new: str) -> None:
        """Let a function call another by its final name."""
        text = self.module.functions[where]
        self.module.functions[where] = text.replace(f"@{old}(", f"@{new}(")

    def fresh(self) -> int:
        """A number for the name of a kernel."""
        self.named += 1
        return self.named

    def launch(
        self, info: KernelInfo, pointers: Sequence[Val], touched: Touched | None = None
    ) -> None:
        """Run a kernel on its buffers: on this thread if it is small, else on all.

        With others if all that it touches is known.
        """
        f = self.f
        if not info.chunks:
            return
        self.spent += seconds(info)
        if self.clock:
            self.clock.launched(info)
        self.scratch = max(self.scratch, rounded(info.scratch) if info.scratch else 0)
        if isinstance(f, Main) and f.launch(info, pointers, touched):
            return
        bufs = f.alloca(PTR, len(pointers))
        for i, p in enumerate(pointers):
            f.store(p, f.at(bufs, i, I64), 8)
        scratch = self.pointer(SCRATCH)
        if info.chunks == 1:
            f.emit(f"call void @{info.name}({bufs}, i64 0, {scratch})")
            return
        given = f"ptr @{info.name}, {bufs}, i64 {info.chunks}, {scratch}, i64 STRIDE"
        threads = f.load(I64, f.at(f.arg("block"), THREADS, I64))
        f.emit(f"call void @rg_parallel_within({given}, {threads})")

    def host(self, call: Any, pointers: Sequence[Val]) -> None:
        """Let Python run a node; leave if it raises."""
        f = self.f
        number = len(self.hosts)
        self.hosts.append(call)
        poll.declare(self.module)
        bufs = f.alloca(PTR, max(1, len(pointers)))
        for i, p in enumerate(pointers):
            f.store(p, f.at(bufs, i, I64), 8)
        done = f.make(I32, f"call i32 @rg_host({self.pointer(HOST)}, i64 {number}, {bufs})")
        self.check(f.compare("ne", done, f.const(I32, 0)))

    def status(self) -> Val:
        """Where the number of the first node that failed is noted."""
        return self.pointer(STATUS)

    def check_status(self) -> None:
        """Leave before anything donated is written, if an index was out of range."""
        f = self.f
        status = f.load(I64, self.pointer(STATUS))
        self.check(f.compare("ne", status, f.const(I64, FINE)))

    def turned(self) -> None:
        """At the end of a loop's turn: leave if interrupted, or if an index was bad."""
        f = self.f
        self.polls = True
        poll.declare(self.module)
        told = f.make(I32, f"call i32 @rg_poll({self.pointer(POLL)})")
        self.check(f.compare("ne", told, f.const(I32, 0)))
        self.check_status()

    def check(self, failed: Val) -> None:
        """Leave the program if a step failed."""
        f = self.f
        on = f._label("on")
        f.emit(f"br {failed}, label %{self.stop}, label %{on}")
        f.start(on)
