"""A graph as one native function: kernels called in sequence on offsets of one arena.

    i32 program(ptr block)

`block` is the call's table of words: the arena, the threads' scratch and how many threads it is
for, the status word, the contexts of host calls and of interrupts, then arguments, outputs and
constants. The result is 0, or 1 if a host call raised, an index was out of range, or the
program was interrupted.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm import poll, pool
from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.native import compiled
from retrograd.jit.llvm.reuse import reusable
from retrograd.jit.llvm.routine import HostCall, Routine, Step
from retrograd.jit.llvm.text import I32, I64, PTR, Module, Val
from retrograd.jit.plan import Span, rounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from retrograd.ir.graph import Graph
    from retrograd.jit.llvm.machine import Machine
    from retrograd.jit.llvm.timing import Stopwatch

__all__ = ["FINE", "HEAD", "HostCall", "Program", "Step", "Writer", "build"]

ARENA, SCRATCH, THREADS, STATUS, HOST, POLL, HEAD = range(7)
FINE = (1 << 63) - 1  # the status word of a call in which nothing went wrong


@dataclass
class Program:
    """A compiled graph: what a call must bring, and the function's address."""

    graph: Graph
    address: int
    arena: int
    scratch: int
    constants: list[np.ndarray]
    hosts: list[HostCall]
    steps: list[Step] = field(default_factory=list)
    text: str = ""
    wheres: list[Any] = field(default_factory=list)
    reuse: dict[int, int] = field(default_factory=dict)  # output value: donated input
    polls: bool = False  # whether it has loops, which can be interrupted
    spans: list[tuple[Span, int]] = field(default_factory=list)  # values, and their offsets


def build(
    graph: Graph,
    machine: Machine,
    donated: Sequence[int] = (),
    clock: Stopwatch | None = None,
) -> Program:
    """Fuse, plan, write and load a graph; with a clock around each step, where one is given."""
    return Writer(graph, machine, donated, clock).program()


class Writer:
    """One program being written; bodies of loops share it."""

    def __init__(
        self,
        graph: Graph,
        machine: Machine,
        donated: Sequence[int] = (),
        clock: Stopwatch | None = None,
    ) -> None:
        self.graph, self.machine, self.donated, self.clock = graph, machine, donated, clock
        self.module = Module(machine)
        pool.declare(self.module)
        self.constants: list[np.ndarray] = []
        self.hosts: list[HostCall] = []
        self.steps: list[Step] = []
        self.wheres: list[Any] = []
        self.scratch = 0
        self.named = 0
        self.polls = False

    def program(self) -> Program:
        """Everything, loaded."""
        routine = self.written()
        library = compiled(self.module)
        return Program(
            self.graph,
            library.address("program"),
            routine.size,
            self.scratch,
            self.constants,
            self.hosts,
            self.steps,
            self.module.text(),
            self.wheres,
            routine.reuse,
            self.polls,
            [(s, routine.offsets[s.name]) for s in routine.spans],
        )

    def written(self) -> Routine:
        """The module, whole: for any machine, also one that is not here."""
        graph = self.graph
        f = self.f = Fn(
            self.module, "program", [("block", PTR)], I32, linkage="", attributes="nounwind"
        )
        self.stop = "stopped"
        places: dict[int, Val] = {i: self.pointer(HEAD + i) for i in range(len(graph.inputs))}
        routine = Routine(self, graph)
        made = routine.stored_outputs()
        for k, v in enumerate(made):
            places[v] = self.pointer(HEAD + len(graph.inputs) + k)
        self.constants_at = HEAD + len(graph.inputs) + len(made)
        routine.reuse = reusable(routine, self.donated)
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

    def _stopping(self) -> None:
        """The way out when a host call failed."""
        text = self.module.functions["program"].replace("i64 STRIDE", f"i64 {self.scratch}")
        self.module.functions["program"] = text[:-1] + f"{self.stop}:\n  ret i32 1\n}}"

    def pointer(self, slot: int) -> Val:
        """A pointer of the call's block."""
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

    def launch(self, info: KernelInfo, pointers: Sequence[Val]) -> None:
        """Run a kernel on its buffers: on this thread if it is small, else on all."""
        f = self.f
        if not info.chunks:
            return
        if self.clock:
            self.clock.launched(info)
        bufs = f.alloca(PTR, len(pointers))
        for i, p in enumerate(pointers):
            f.store(p, f.at(bufs, i, I64), 8)
        scratch = self.pointer(SCRATCH)
        self.scratch = max(self.scratch, rounded(info.scratch) if info.scratch else 0)
        if info.chunks == 1:
            f.emit(f"call void @{info.name}({bufs}, i64 0, {scratch})")
            return
        given = f"ptr @{info.name}, {bufs}, i64 {info.chunks}, {scratch}, i64 STRIDE"
        threads = f.load(I64, f.at(f.arg("block"), THREADS, I64))
        f.emit(f"call void @rg_parallel_within({given}, {threads})")

    def host(self, call: HostCall, pointers: Sequence[Val]) -> None:
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
