"""fuse: which ops become one kernel.

Every value is either kept in memory or part of the kernels that read it. What must be in
memory (outputs, operands of products and calls, results of loops, what many read and is dear
to compute) is a root. Roots in program order join a kernel that is already there, if all they
need comes before it and their loops agree; that they agree is found by building the kernel.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from retrograd.jit.group import Builder, Built, Group, is_cut, row_shapes, straight
from retrograd.jit.in_place import free, replaced
from retrograd.jit.loops.analyse import expressions
from retrograd.jit.loops.arrays import Array, stored
from retrograd.jit.loops.expr import Buffer
from retrograd.jit.loops.index import Ix, flat
from retrograd.jit.loops.record import Frame, MismatchError
from retrograd.jit.lowering import (
    CALL,
    INLINE,
    LOOPS,
    PRODUCT,
    Lowering,
    is_movement,
    kind_of,
    price_of,
)
from retrograd.jit.prompt import prompt
from retrograd.jit.readers import Readers
from retrograd.jit.sinks import sink
from retrograd.jit.steps import Call, Finished, Loops, Product, Step, View, contiguous
from retrograd.jit.unite import unite
from retrograd.ops.shape import Reshape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.ir.graph import Graph, Node

__all__ = ["Fusion"]

DEAR = 12  # operations: more are not computed twice
NOT_FREE, FAR = 5, 64  # operations: more are not computed for each of so many readers
DEEP = 100  # operations in a chain, so that neither we nor LLVM recurse too far
WIDE = 24  # roots in a kernel
ROWS = 32  # fewer rows do not occupy the threads: such reductions stay alone
LONG = 1 << 14
NEAR = 64  # steps back that a root looks for a kernel to join


class Fusion:
    """One run of fusion: the kernels and calls of a graph, in an order in which they can run.

    `donated`: inputs whose memory outputs may take. A product cannot write where it reads.
    """

    def __init__(self, graph: Graph, donated: Sequence[int] = ()) -> None:
        self.graph, self.donated = graph, frozenset(donated)
        self.results = frozenset(graph.outputs)
        self.maker: list[tuple[int, int]] = [(-1, i) for i in range(len(graph.inputs))]
        for at, node in enumerate(graph.nodes):
            self.maker += [(at, o) for o in range(len(node.specs))]
        sizes = [len(graph.inputs), *(len(n.specs) for n in graph.nodes)]
        self.first = list(accumulate(sizes))
        self.kinds = [kind_of(graph, n) for n in graph.nodes]
        self.users: dict[int, list[int]] = {}
        for at, node in enumerate(graph.nodes):
            for i in node.inputs:
                self.users.setdefault(i, []).append(at)
        self.views: dict[tuple[int, int], View] = {}
        self.given: dict[int, tuple[int, ...]] = {}  # of calls: what their inputs are read from
        self.roots: set[int] = set()
        self.roots = self._roots()
        self.place: dict[int, int] = {}  # of a root: the step that makes it
        self.steps: list[Any] = []

    # -- what must be in memory -------------------------------------------------------------

    def _roots(self) -> set[int]:
        graph = self.graph
        roots = set(self.results)
        for at, node in enumerate(graph.nodes):
            kind, outs = self.kinds[at], self.outs(at)
            if kind != INLINE:
                roots |= set(outs)
            if kind == CALL:
                self.given[at] = tuple(map(self._whole, node.inputs))
                roots |= set(self.given[at])
            elif kind == PRODUCT:
                for i, v in enumerate(node.inputs):
                    view = self.views[at, i] = self._view(v)
                    roots.add(view.value)
        for at in range(len(graph.nodes)):
            if self.kinds[at] == PRODUCT or self._finishes(at):
                roots |= {v for v in [sink(self, at)] if v is not None}
        self._dear(roots)
        return roots

    def _finishes(self, at: int) -> bool:
        """Whether a call has kernels that take an epilogue."""
        return self.kinds[at] == CALL and self.graph.nodes[at].op.finishes

    def outs(self, at: int) -> range:
        """The values of a node."""
        start = self.first[at]
        return range(start, start + len(self.graph.nodes[at].specs))

    def _view(self, value: int) -> View:
        """A value as strides over one that is in memory, through movements alone."""
        base = value
        while (at := self.maker[base][0]) >= 0:
            node = self.graph.nodes[at]
            if self.kinds[at] != INLINE or not is_movement(node.op) or len(node.inputs) != 1:
                break
            base = node.inputs[0]
        spec = self.graph.specs[value]
        plain = View(value, 0, contiguous(spec.shape))
        if base == value or not spec.size:
            return plain
        low = Lowering({})
        source = self.graph.specs[base]
        known = {base: stored(low.table, Buffer(source.shape, source.dtype, base))}
        frame = Frame(spec.shape)
        e = self.array(value, low, known).at(frame.index)
        if e.op != "load" or not e.data[1].affine:
            return plain
        ix = e.data[1]
        return View(base, ix.const, tuple(ix.terms.get(a, 0) for a in frame.axes))

    def _whole(self, value: int) -> int:
        """The value before reshapes: it has the same bytes in memory."""
        while (at := self.maker[value][0]) >= 0:
            node = self.graph.nodes[at]
            if not isinstance(node.op, Reshape):
                break
            value = node.inputs[0]
        return value

    def _dear(self, roots: set[int]) -> None:
        """Add the values that are dear to compute and read by many, or deep."""
        cost: dict[int, tuple[int, int]] = {}
        for at, node in enumerate(self.graph.nodes):
            ins = [(0, 0) if i in roots else cost.get(i, (0, 0)) for i in node.inputs]
            own = (
                0
                if self.kinds[at] != INLINE or is_movement(node.op)
                else price_of(self.graph, node)
            )
            total = own + sum(c for c, _ in ins)
            depth = 1 + max((d for _, d in ins), default=0)
            for v in self.outs(at):
                users = len(self.users.get(v, ()))
                size = self.graph.specs[v].size
                spread = max((self._times(u, size) for u in self.users.get(v, ())), default=1)
                if v not in roots and self.kinds[at] == INLINE and total:
                    many = users > 1 or spread > 2
                    least = DEAR if spread < FAR else NOT_FREE
                    if (many and total >= least and node.inputs) or depth >= DEEP:
                        roots.add(v)
                if v not in roots and spread >= FAR and self._turned(v):
                    roots.add(v)
                cost[v] = (0, 0) if v in roots else (total, depth)

    def _turned(self, value: int) -> bool:
        """Whether a value is something in memory whose last axis does not lie in order there.

        What many read, such as points against which others are compared, is turned once.
        """
        strides = self._view(value).strides if self.graph.specs[value].shape[-1:] > (1,) else ()
        return 1 in strides[:-1] and strides[-1] > 1

    def _times(self, user: int, size: int) -> float:
        """How often a user reads each element of a value."""
        node = self.graph.nodes[user]
        return node.op.reads * max((s.size for s in node.specs), default=0) / max(size, 1)

    # -- steps ---------------------------------------------------------------------------

    def run(self) -> list[Step]:
        """All steps in order."""
        for at, node in enumerate(self.graph.nodes):
            kind, outs = self.kinds[at], [v for v in self.outs(at) if v in self.roots]
            if self._finishes(at):
                self._append(Finished(at, self.given[at], outs[0]), outs)
            elif kind == CALL:
                self._append(Call(at, self.given[at]), list(self.outs(at)))
            elif kind == PRODUCT and node.specs[0].dtype.name in ("float32", "float64"):
                a, b = self.views[at, 0], self.views[at, 1]
                self._append(Product(at, a, b, outs[0]), outs)
            elif kind in (LOOPS, PRODUCT):
                self._join(at, list(self.outs(at)))
            elif outs:
                for v in outs:
                    self._join(at, [v])
        unite(self, NEAR, WIDE)
        self.readers = Readers(self.steps, self._reads, self.graph.outputs)
        return prompt(self.graph, [self._finished(at, s) for at, s in enumerate(self.steps)])

    def _append(self, step: Any, values: Sequence[int]) -> None:
        for v in values:
            self.place[v] = len(self.steps)
        self.steps.append(step)

    def _frame(self, at: int, values: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The loops that a root asks for: its shape, or what its op walks over."""
        if self.kinds[at] == INLINE:
            return self.graph.specs[values[0]].shape, ()
        low = Lowering({})
        node = self.graph.nodes[at]
        arrays = [
            stored(low.table, Buffer(self.graph.specs[i].shape, self.graph.specs[i].dtype, i))
            for i in node.inputs
        ]
        self.lower(low, node, arrays)
        assert low.k.frame is not None
        return low.k.frame.shape, low.k.frame.inner

    def lower(self, low: Lowering, node: Node, arrays: Sequence[Array]) -> list[Any]:
        """A node's outputs, in a kernel's table."""
        return low.lowered(node.op, arrays, node.specs)

    def _join(self, at: int, values: list[int]) -> None:
        """Put roots into the latest kernel that can take them, or a new one."""
        frame = self._frame(at, values)
        needed = self._needed(at)
        needs = {self.place[v] for v in needed if v in self.place}
        large = [v for v in needed if self.graph.specs[v].size > 1]
        earliest = max(needs, default=0)
        for p in range(len(self.steps) - 1, max(earliest, len(self.steps) - NEAR) - 1, -1):
            group = self.steps[p]
            heavy = isinstance(group, Product | Finished) and p in needs
            if heavy and self._after(group, frame, values):
                self.place.update(dict.fromkeys(values, p))
                return
            if not isinstance(group, Group) or len(group.roots) >= WIDE:
                continue
            joint = self._agreed(group.frame, frame)
            assert group.built is not None
            # joining saves memory traffic if one reads the other, or both read the same
            related = p in needs or not group.built.reads.isdisjoint(large)
            if joint is not None and related and self.takes(group, joint, values):
                self.place.update(dict.fromkeys(values, p))
                return
        group = Group(frame)
        group.roots = list(values)
        group.built = self._build(frame, group.roots)
        self._append(group, values)

    def _after(self, product: Product | Finished, frame: Any, values: list[int]) -> bool:
        """Make roots of a product's results while these are stored, if they fit."""
        shape = self.graph.specs[product.out].shape
        if frame != (shape, ()) or len(product.roots) >= WIDE:
            return False
        inside = replaced(self, values)
        if inside and inside - free(self, product):
            return False
        try:
            built = self._build(frame, [*product.roots, *values])
        except MismatchError:
            return False
        if built.checks:
            return False
        own = flat(map(Ix.of, built.kernel.axes), shape)
        for e in expressions(built.kernel.body):
            if e.op == "load" and e.data[0].name == product.out and e.data[1] != own:
                return False
        product.roots += values
        product.built = built
        if isinstance(product, Product):
            product.apart |= bool(inside)
        return True

    def _needed(self, at: int) -> set[int]:
        """The values in memory that a node's kernel reads, through what is inline."""
        found: set[int] = set()
        stack = list(self.graph.nodes[at].inputs)
        seen: set[int] = set()
        while stack:
            v = stack.pop()
            if v in seen:
                continue
            seen.add(v)
            maker = self.maker[v][0]
            if v in self.roots or maker < 0:
                found.add(v)
            else:
                stack += self.graph.nodes[maker].inputs
        return found

    def _agreed(self, a: Any, b: Any) -> Any:
        """The loops of two that share them; None if they do not."""
        (shape, inner), (other, others) = a, b
        if a == b:
            return None if inner and self.few(a) else a
        if shape == other and (not inner or not others):
            joint = (shape, inner or others)
            return None if self.few(joint) else joint
        for whole, plain in ((a, b), (b, a)):
            if is_cut(whole, plain) and not self.few(whole):
                return whole
        rows = row_shapes(shape, inner)
        if inner and not others and other in rows and not self.few(a):
            return a
        rows = row_shapes(other, others)
        if others and not inner and shape in rows and not self.few(b):
            return b
        return None

    def few(self, frame: Any) -> bool:
        """Whether so few rows are reduced that the kernel would keep one thread busy."""
        shape, inner = frame
        rows, total = 1, 1
        for a, n in enumerate(shape):
            total *= n
            rows *= 1 if a in inner else n
        return bool(inner) and rows < ROWS and total > LONG

    def takes(self, group: Group, frame: Any, values: list[int]) -> bool:
        """Whether a kernel could take more roots; it has them then."""
        try:
            built = self._build(frame, [*group.roots, *values])
        except MismatchError:
            return False
        group.frame, group.built = frame, built
        group.roots += values
        return True

    # -- building a kernel ---------------------------------------------------------------

    def _build(self, frame: Any, roots: Sequence[int]) -> Built:
        return Builder(self, Frame(*frame), roots).build()

    def array(self, value: int, low: Lowering, known: dict[int, Array]) -> Array:
        """A value as an array of a kernel: what is not in memory is lowered into it."""
        stack = [value]
        while stack:
            v = stack[-1]
            if v in known:
                stack.pop()
                continue
            at = self.maker[v][0]
            if at < 0 or (v in self.roots and self.kinds[at] != INLINE):
                known[v] = stored(low.table, self.buffer(v))
                continue
            node = self.graph.nodes[at]
            missing = [i for i in node.inputs if i not in known]
            if missing:
                stack += missing
                continue
            low.k.where_from = at
            found = low.lowered(node.op, [known[i] for i in node.inputs], node.specs)
            for other, array in zip(self.outs(at), found, strict=True):
                known.setdefault(other, array)
        return known[value]

    def buffer(self, value: int) -> Buffer:
        """The memory of a value."""
        spec = self.graph.specs[value]
        return Buffer(spec.shape, spec.dtype, value)

    def _finished(self, at: int, step: Any) -> Step:
        """A step as it will be written: only what others read is stored."""
        if isinstance(step, Call):
            return step
        if isinstance(step, Product | Finished):
            wanted = self.readers.outside(at, {*step.roots, step.out})
            found = self._finished_product(step, wanted)
            self.readers.again(at)
            return found
        wanted = self.readers.outside(at, step.roots)
        built = step.built
        if not wanted.issuperset(step.roots):
            built = Builder(self, Frame(*step.frame), step.roots, wanted).build()
        built = straight(self, step, built, wanted)
        nodes = [self.maker[v][0] for v in step.roots]
        return Loops(built.kernel, nodes, sorted(built.reads), built.stores)

    def _finished_product(self, step: Product | Finished, wanted: set[int]) -> Step:
        step.target = step.out
        if isinstance(step, Finished) and not step.roots:
            return Call(step.node, step.inputs)
        if step.roots:
            specs = self.graph.specs
            mine = {v for v in step.roots if v in wanted}
            if len(mine) < len(step.roots):
                frame = Frame(specs[step.out].shape)
                step.built = Builder(self, frame, step.roots, mine).build()
            alike = [v for v in step.roots if v in mine and specs[v] == specs[step.out]]
            if step.out not in wanted and alike:
                step.target = alike[0]
        return step

    def _reads(self, step: Any) -> set[int]:
        if isinstance(step, Call):
            return set(step.inputs)
        return step.reads if isinstance(step, Product | Finished) else step.built.reads
