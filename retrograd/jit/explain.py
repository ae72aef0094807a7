"""explain: what a compiled function became, how long each part takes, where the bytes are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.jit.execute import Executable
from retrograd.jit.explain_page import page
from retrograd.jit.explain_text import text
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.limits import Limits, measured
from retrograd.jit.llvm.machine import chosen
from retrograd.jit.llvm.program import build
from retrograd.jit.llvm.timing import Entry, Stopwatch
from retrograd.jit.passes import steps
from retrograd.jit.passes.rewrite import effectful
from retrograd.jit.report import Memory, Report, StepReport, ValueReport
from retrograd.jit.threads import get_threads
from retrograd.jit.write_file import write_file
from retrograd.memory.problem import rounded
from retrograd.ops.literal import Literal

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from retrograd.ir.graph import Graph
    from retrograd.jit.calls import Compiled
    from retrograd.jit.llvm.program import Program

__all__ = ["Explanation", "explain"]

ENOUGH = 0.3  # seconds of measuring
RUNS = 30


class Explanation(Report):
    """A compiled function, laid open: `str` is a page of text, `save` a page of pictures."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a self-contained HTML page with pictures; the file is whole or not there."""
        return write_file("explain.save", path, page(self))

    def __str__(self) -> str:
        return text(self)

    def __repr__(self) -> str:
        """How much there is; str shows it."""
        top = sum(not s.depth for s in self.steps)
        return f"<explanation of {self.who}: {top} steps, {self.seconds:.2e} s>"


def explain(compiled: Compiled, arrays: Sequence[np.ndarray]) -> Explanation:
    """A program, run on arrays and measured."""
    lowered, f = compiled.lowered, compiled.lowered.f
    fast = f.fast_math
    graphs = [("traced", lowered.graph), *steps(lowered.graph, kernels_of, fast=fast)]
    arrays = [*arrays, *(t.array for t in lowered.captured)]
    clock = Stopwatch()
    program = build(graphs[-1][1], chosen(), tuple(compiled.donated), clock)
    once = any(effectful(n.op) for n in lowered.graph.nodes)
    threads = f.threads or get_threads()
    mine = tuple(compiled.donated)
    ticks = _measured(Executable(program, f.threads, fast=fast), clock, arrays, mine, once=once)
    limits = _raised(measured(threads), clock.entries, ticks)
    reports = [_report(e, t, limits) for e, t in zip(clock.entries, ticks, strict=False)]
    top = sum(s.seconds for s in reports if not s.depth)
    seconds = top if once else min(_calls(compiled.execute, arrays, mine))
    found = [s for s in reports if s.what]
    tops = [e.number for e in clock.entries if not e.depth]
    memory = _memory(compiled.program, arrays, tops)
    return Explanation(
        f.who, graphs, found, memory, seconds, limits, once, compiled.program.text
    )


def _calls(
    run: Any, arrays: Sequence[np.ndarray], mine: Sequence[int], most: int = RUNS
) -> Iterator[float]:
    """The seconds of each of some calls; the first, whose memory is new, is never alone.

    Arguments that are donated stay the caller's: results go where copies of them are.
    """
    spent, given = 0.0, [a.copy() if i in mine else a for i, a in enumerate(arrays)]
    for turn in range(most):
        for i in mine:
            given[i][...] = arrays[i]
        start = time.perf_counter()
        run(given, mine)
        took = time.perf_counter() - start
        yield took
        spent += took if turn else 0.0
        if spent > ENOUGH:
            return


def _measured(
    run: Any, clock: Stopwatch, arrays: Any, mine: Sequence[int], *, once: bool
) -> np.ndarray:
    """For each step the nanoseconds of its best run, and its turns."""
    rows = []
    for _ in _calls(run, arrays, mine, 1 if once else RUNS):
        rows.append(clock.ticks.copy())
        clock.ticks[:] = 0
    best = np.min(rows, axis=0)
    best[:, 1] = rows[-1][:, 1]
    return best


def _raised(limits: Limits, entries: Sequence[Entry], ticks: np.ndarray) -> Limits:
    """The limits, raised to what a product here reached: the test met a busy machine."""
    speeds = [
        sum(k.flops for k in entry.kernels) * turns / took * 1e9
        for entry, (took, turns) in zip(entries, ticks.tolist(), strict=False)
        if took and entry.what != "loops"
    ]
    return limits._replace(flops=max(limits.flops, *speeds, 0.0))


def _report(entry: Entry, tick: np.ndarray, limits: Limits) -> StepReport:
    took, turns = int(tick[0]) * 1e-9, int(tick[1])
    infos, specs = entry.kernels, entry.graph.specs
    flops = sum(i.flops for i in infos)
    nbytes = sum(i.bytes for i in infos)
    if entry.what.startswith("host"):
        nbytes = sum(specs[v].nbytes for v in (*entry.reads, *entry.writes))
    sizes = [specs[v].dtype.itemsize for v in entry.writes if specs[v].dtype.kind == "f"]
    roof = limits.roof(flops, nbytes, max(4, *sizes, 4)) if infos else 0.0
    return StepReport(
        entry.number,
        entry.depth,
        entry.what,
        _lines(entry),
        max((i.chunks for i in infos), default=0),
        nbytes * turns,
        flops * turns,
        turns,
        took,
        roof * turns,
    )


def _lines(entry: Entry) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The ops of a step by the user's line, in the order of the program."""
    found: dict[str, list[str]] = {}
    for at in _fused(entry):
        node = entry.graph.nodes[at]
        if not isinstance(node.op, Literal):
            found.setdefault(str(node.where or ""), []).append(node.op.name)
    return tuple((line, tuple(names)) for line, names in found.items())


def _fused(entry: Entry) -> list[int]:
    """The nodes that a step computes: its own, and what they need and is not in memory."""
    graph = entry.graph
    makers = [-1] * len(graph.inputs)
    for at, node in enumerate(graph.nodes):
        makers += [at] * len(node.specs)
    seen, stack, reads = set(entry.nodes), list(entry.nodes), set(entry.reads)
    while stack:
        for v in graph.nodes[stack.pop()].inputs:
            if v not in reads and makers[v] >= 0 and makers[v] not in seen:
                seen.add(makers[v])
                stack.append(makers[v])
    return sorted(seen)


def _memory(program: Program, arrays: Sequence[np.ndarray], tops: Sequence[int]) -> Memory:
    graph = program.graph
    given = len(graph.inputs)
    made = {v: graph.specs[v].nbytes for v in graph.outputs if v >= given}
    values = [_value(graph, span, offset, tops) for span, offset in program.spans]
    ends = {v.first for v in values}
    alive = [sum(rounded(v.nbytes) for v in values if v.first <= t <= v.last) for t in ends]
    return Memory(
        sum(a.nbytes for a in arrays),
        sum(made.values()),
        sum(made[v] for v in program.reuse),
        sum(c.nbytes for c in program.constants),
        program.arena,
        max(alive, default=0),
        program.scratch,
        tuple(sorted(values, key=lambda v: -v.nbytes)),
    )


def _value(graph: Graph, span: Any, offset: int, tops: Sequence[int]) -> ValueReport:
    place = (span.nbytes, offset, tops[span.first], tops[span.last])
    if not isinstance(span.name, int):
        return ValueReport(f"inside step {tops[span.first]}", "", *place)
    first = len(graph.inputs)
    for node in graph.nodes:
        first += len(node.specs)
        if span.name < first:
            return ValueReport(
                f"{node.op.name} {graph.specs[span.name]}", str(node.where or ""), *place
            )
    raise IndexError(span.name)
