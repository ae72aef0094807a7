"""A graph's steps with the places of its values: a program, or the body of a loop."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import nullcontext
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from retrograd.jit.fuse import Fusion
from retrograd.jit.llvm.arena import ALIGNMENT
from retrograd.jit.llvm.carry import copy
from retrograd.jit.llvm.control import CONTROL, write_control
from retrograd.jit.llvm.epilogue import Epilogue, PixelEpilogue
from retrograd.jit.llvm.gemm import Gemm, write_gemm
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.later import called_for
from retrograd.jit.llvm.loops import write_loops
from retrograd.jit.llvm.main import STREAMS, Main
from retrograd.jit.llvm.ready import Ahead, HostCall, Step
from retrograd.jit.llvm.reuse import may_fail
from retrograd.jit.llvm.text import F32, F64, I8
from retrograd.jit.loops.alike import signature
from retrograd.jit.loops.analyse import operands
from retrograd.jit.steps import Call, Course, Finished, Loops, Product, Spill, View, contiguous
from retrograd.memory.layout import layout
from retrograd.memory.problem import Span
from retrograd.ops.literal import Literal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from retrograd.ir.graph import Graph
    from retrograd.jit.llvm.info import KernelInfo
    from retrograd.jit.llvm.main import Touched
    from retrograd.jit.llvm.text import Val

__all__ = ["Routine"]


EARLY = 8  # runs ahead that it is told


class Routine:
    """A graph's steps with the places of its values: a program, or the body of a loop."""

    def __init__(self, writer: Any, graph: Graph) -> None:
        self.writer, self.graph = writer, graph
        whole = graph is writer.graph
        donated = writer.donated if whole else ()
        self.fusion = Fusion(graph, donated)
        self.steps = self.fusion.run()
        # what is donated is a result of the last call, which does; so does what is in the arena
        self.sure = frozenset(donated if whole else range(len(graph.inputs)))
        self.base = len(writer.wheres)
        writer.wheres += [n.where for n in graph.nodes]
        sizes = [len(graph.inputs), *(len(n.specs) for n in graph.nodes)]
        self.starts = list(accumulate(sizes))
        self.reuse: dict[int, int] = {}
        self.runs: Sequence[int] | None = None  # of steps, where a plan says so
        self.inner: dict[int, Any] = {}
        read = {*graph.outputs, *(v for n in graph.nodes for v in n.inputs)}
        for at, s in enumerate(self.steps):
            if not isinstance(s, Call | Finished):
                continue
            node = graph.nodes[s.node]
            if type(node.op) in CONTROL:
                self.inner[at] = CONTROL[type(node.op)](writer, node, graph, Routine)
                continue
            specs = [graph.specs[i] for i in node.inputs]
            if kernels := kernels_of(node.op, specs):
                unread = frozenset(i for i, v in enumerate(self.outs(s.node)) if v not in read)
                after = (
                    PixelEpilogue(s, node.specs[0].shape) if isinstance(s, Finished) else None
                )
                self.inner[at] = kernels(
                    writer, node.op, specs, self.base + s.node, unread, after
                )
        self._plan()

    def stored_outputs(self) -> list[int]:
        """The outputs that the program makes, each once: not arguments passed through."""
        given = len(self.graph.inputs)
        return list(dict.fromkeys(v for v in self.graph.outputs if v >= given))

    def _plan(self) -> None:
        graph = self.graph
        makes: dict[int, int] = {}
        reads: dict[int, int] = {}
        for at, s in enumerate(self.steps):
            ins, outs = self.traffic(s)
            if isinstance(s, Call) and isinstance(graph.nodes[s.node].op, Literal):
                continue
            for v in outs:
                makes.setdefault(v, at)
            for v in ins:
                reads[v] = at
        kept = set(graph.outputs) | set(range(len(graph.inputs)))
        spans = [
            Span(v, graph.specs[v].nbytes, at, max(reads.get(v, at), at))
            for v, at in makes.items()
            if v not in kept
        ]
        spans += [Span(("body", at), c.size, at, at) for at, c in self.inner.items() if c.size]
        self.spans = spans
        self.offsets, self.size = layout(spans)
        self.costs = [0.0] * len(self.steps)

    def follow(self, course: Course) -> None:
        """Run the steps as a plan says, its values where it puts them."""
        self.runs = course.choice.schedule.runs
        self.steps = [*self.steps, *course.more]  # type: ignore[list-item]
        self.costs = [0.0] * len(self.steps)
        self.spans, self.offsets = course.choice.schedule.spans, course.choice.offsets
        self.size = course.choice.size

    def traffic(self, s: Any) -> tuple[Sequence[int], Sequence[int]]:
        """What a step reads, and what it writes."""
        if isinstance(s, Loops | Spill):
            return s.reads, s.writes
        if isinstance(s, Product | Finished):
            return sorted(s.reads), s.writes
        return s.inputs, self.outs(s.node)

    def outs(self, at: int) -> range:
        """The values of a node."""
        return range(self.starts[at], self.starts[at] + len(self.graph.nodes[at].specs))

    def write(self, places: dict[int, Val], arena: Val, at: int) -> None:
        """All steps; inputs and outputs are at `places`, the rest in the arena from `at`."""
        self.places = dict(places)
        f = self.writer.f
        self.arena, self.at = arena, at
        runs = range(len(self.steps)) if self.runs is None else self.runs
        for v, offset in self.offsets.items():
            if isinstance(v, int) and v not in self.places:
                self.places[v] = f.at(arena, at + offset, I8)
        guarded, ahead, self.later = not self.reuse, self._ahead(runs), called_for(self, runs)
        for t, n in enumerate(runs):
            self.turn = t
            # counted from nothing: equal steps cost the same to the last bit
            s, spent, self.writer.spent = self.steps[n], self.writer.spent, 0.0
            if not guarded and set(self.traffic(s)[1]) & set(self.reuse):
                self.writer.check_status()
                guarded = True
            self._settle(t, s)
            if t in ahead:
                self.writer.host(Ahead(ahead[t]), [])
            clock = self.writer.clock
            with clock.around(self, s) if clock else nullcontext():
                self._step(n, s)
            self.costs[n] = self.writer.spent * self._turns(s)
            self.writer.spent += spent

    def _ahead(self, runs: Sequence[int]) -> dict[int, list[Spill]]:
        """Before which runs the system is told what will come back from the file soon."""
        found: dict[int, list[Spill]] = {}
        gone: dict[int, int] = {}
        for t, n in enumerate(runs):
            s = self.steps[n]
            if isinstance(s, Spill) and s.back:
                found.setdefault(max(gone[s.value] + 1, t - EARLY), []).append(s)
            elif isinstance(s, Spill):
                gone[s.value] = t
        return found

    def _settle(self, t: int, s: Any) -> None:
        """Where the plan puts what run `t` writes."""
        if self.runs is None:
            return
        for v in self.traffic(s)[1]:
            if (v, t) in self.offsets:
                at = self.at + self.offsets[v, t]
                self.places[v] = self.writer.f.at(self.arena, at, I8)
        self.space = self.at + self.offsets.get(("space", t), 0)

    def _turns(self, s: Any) -> int:
        """How often the kernels of a step are started, for all that is known."""
        node = self.graph.nodes[s.node] if isinstance(s, Call) else None
        return getattr(node.op, "length", 1) if node is not None else 1

    def _step(self, n: int, s: Any) -> None:
        if isinstance(s, Loops):
            self._loops(s)
        elif isinstance(s, Product):
            self._product(s)
        elif isinstance(s, Finished):
            self._finished(n, s)
        elif isinstance(s, Spill):
            self.writer.steps.append(Step("spill", [self.node_of(s.value)], None, self.graph))
            self.writer.host(s, [self.places[s.value]])
        else:
            self._call(n, s)

    def _loops(self, s: Loops) -> None:
        w = self.writer
        leaving = self._leaving(s)
        key = signature(s.kernel, leaving)
        info = w.alike.get(key) if key else None
        if info is None:
            name = f"loops{len(w.steps)}"
            info, order = write_loops(w.module, name, s.kernel, self.base, w.faults, leaving)
            info = w.alike[key] = info._replace(name=w.share(name))
        else:
            order = operands(s.kernel)
        w.steps.append(Step("loops", s.nodes, info, self.graph))
        given = [*(self.places[b.name] for b in order), w.status()]
        w.launch(info, given, self._touched(s, info))

    def _touched(self, s: Loops, info: KernelInfo) -> Touched | None:
        """The memory of a kernel that may run beside others; None of one that may not."""
        f, graph = self.writer.f, self.graph
        streams = info.chunks > 1 and info.bytes >= STREAMS
        if not (isinstance(f, Main) and streams) or may_fail(graph, s):
            return None
        # what is written where a donated argument was is that argument's memory
        places = [
            [(self.places[self.reuse.get(v, v)], graph.specs[v].nbytes) for v in values]
            for values in self.traffic(s)
        ]
        return f.touched(*places)

    def _leaving(self, s: Loops) -> list[int]:
        """What a kernel makes of the program's results that nothing after it reads."""
        if self.graph is not self.writer.graph:
            return []
        own, users = set(s.nodes), self.fusion.users
        made = (v for v in s.writes if v in self.fusion.results)
        return sorted({v for v in made if own.issuperset(users.get(v, ()))})

    def _product(self, s: Product) -> None:
        w, f = self.writer, self.writer.f
        out = self.graph.specs[s.out]
        if not out.size:
            return
        t = F32 if out.dtype.itemsize == 4 else F64
        gemm = product(self.graph, s, t, self.sure).folded()
        after = Epilogue(s, out.shape, gemm.m) if s.built else None
        later = self.later.get(self.turn) if gemm.products == 1 else None
        called = [later] if later in self.places else []
        size = sum(self.graph.specs[v].nbytes for v in called)
        info = self._product_kernel(s, gemm, after, size)
        nodes = [s.node, *(self.node_of(v) for v in s.roots)]
        w.steps.append(Step("gemm", nodes, info, self.graph))
        a = f.at(self.places[s.a.value], s.a.offset, t)
        b = f.at(self.places[s.b.value], s.b.offset, t)
        more = [self.places[v] for v in after.values] if after else []
        more += [self.places[v] for v in called]
        w.launch(info, [a, b, self.places[s.target], *more])

    def _product_kernel(
        self, s: Product, gemm: Gemm, after: Epilogue | None, later: int
    ) -> KernelInfo:
        """The kernel of a product, written unless there is an equal one."""
        w = self.writer
        finish = signature(after.kernel, (s.out, s.target)) if after else ()
        key = None if finish is None else (gemm, finish, after and after.shape, s.apart, later)
        if key is not None and key in w.alike:
            return w.alike[key]
        name = f"gemm{len(w.steps)}"
        info = write_gemm(w.module, name, gemm, epilogue=after, apart=s.apart, later=later)
        if after is not None:
            w.rename(name, f"{name}_finish", w.share(f"{name}_finish"))
        info = w.alike[key] = info._replace(name=w.share(name))
        return info

    def _finished(self, n: int, s: Finished) -> None:
        w, inner, node = self.writer, self.inner[n], self.graph.nodes[s.node]
        nodes = [s.node, *(self.node_of(v) for v in s.roots)]
        w.steps.append(Step(node.op.name, nodes, inner.info, self.graph))
        given = [self.places[v] for v in s.inputs]
        more = [self.places[v] for v in inner.after.values]
        inner.write(given, [self.places[s.target]], self.arena, self._space(n), more)

    def _space(self, n: int) -> int:
        """Where a step's temporaries are."""
        own = self.at + self.offsets.get(("body", n), 0)
        return own if self.runs is None else self.space

    def node_of(self, v: int) -> int:
        """The node that makes a value."""
        return bisect_right(self.starts, v) - 1

    def _call(self, n: int, s: Call) -> None:
        w, node = self.writer, self.graph.nodes[s.node]
        outs = self.outs(s.node)
        if isinstance(node.op, Literal):
            held = w.constant(node.op.value.array)
            copy(w.f, self.places.setdefault(outs[0], held), held, node.specs[0].nbytes)
            return
        if n in self.inner:
            inner = self.inner[n]
            offset = self._space(n)
            info = getattr(inner, "info", None)
            w.steps.append(Step(node.op.name, [s.node], info, self.graph))
            given = [self.places[v] for v in s.inputs]
            write_control(inner, given, [self.places[v] for v in outs], self.arena, offset)
            return
        specs = [self.graph.specs[i] for i in node.inputs]
        w.steps.append(
            Step(f"host: {node.op.host or node.op.effect}", [s.node], None, self.graph)
        )
        call = HostCall(node, specs, list(node.specs))
        w.host(call, [*(self.places[v] for v in s.inputs), *(self.places[v] for v in outs)])


def product(graph: Graph, s: Product, t: Any, sure: Collection[int]) -> Gemm:
    """The geometry of a matrix product of views; `sure` inputs begin with a cache line."""
    out = graph.specs[s.out]
    *lead, m, n = out.shape
    node = graph.nodes[s.node]
    k = graph.specs[node.inputs[0]].shape[-1]
    strides = []
    for view, value in ((s.a, node.inputs[0]), (s.b, node.inputs[1])):
        shape = graph.specs[value].shape
        missing = len(lead) + 2 - len(shape)
        own = [0 if d == 1 else step for d, step in zip(shape, view.strides, strict=True)]
        strides.append([*[0] * missing, *own])
    a, b = strides
    c = contiguous(out.shape)
    batch = tuple((count, a[i], b[i], c[i]) for i, count in enumerate(lead) if count != 1)
    lines = _on_line(graph, s.a, sure), _on_line(graph, s.b, sure)
    return Gemm(m, n, k, t, (a[-2], a[-1]), (b[-2], b[-1]), (c[-2], c[-1]), batch, lines)


def _on_line(graph: Graph, view: View, sure: Collection[int]) -> bool:
    """Whether a view surely begins with a cache line: not if the caller gave its memory."""
    given = view.value < len(graph.inputs) and view.value not in sure
    start = view.offset * graph.specs[view.value].dtype.itemsize
    return not given and not start % ALIGNMENT
