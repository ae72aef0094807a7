"""A group of ops as one kernel: built to see whether they fit, and then for good."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from retrograd.jit.loops.analyse import expressions
from retrograd.jit.loops.arrays import Array, stored
from retrograd.jit.loops.cut import finer, pieces
from retrograd.jit.loops.expr import CHECKS, Buffer, For, Kernel, Store
from retrograd.jit.loops.index import flat, unflat
from retrograd.jit.loops.merge import merged
from retrograd.jit.loops.record import Frame, MismatchError, Out
from retrograd.jit.lowering import INLINE, Lowering

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Builder", "Built", "Group", "Loops", "is_cut", "row_shapes", "straight"]

Loops = tuple[tuple[int, ...], tuple[int, ...]]  # a shape, and which of its axes are inner


@dataclass
class Built:
    """A kernel as a group makes it."""

    kernel: Kernel
    reads: set[int]
    stores: list[int]
    checks: bool = False  # whether it may refuse what it meets


class Group:
    """Roots that share their loops."""

    def __init__(self, frame: Loops) -> None:
        self.frame = frame
        self.roots: list[int] = []  # values
        self.built: Built | None = None


class Builder:
    """Makes the kernel of some roots."""

    def __init__(
        self, fusion: Any, frame: Frame, roots: Sequence[int], wanted: set[int] | None = None
    ) -> None:
        self.fusion, self.frame, self.roots = fusion, frame, list(roots)
        self.low = Lowering({}, frame)
        self.wanted = set(roots) if wanted is None else wanted
        self.known: dict[int, Array] = {}
        self.buffers: dict[int, Buffer] = {}
        self.done: set[int] = set()

    def build(self) -> Built:
        """The kernel, what it reads and what it stores."""
        graph = self.fusion.graph
        for v in self.roots:
            if v in self.done:
                continue
            at = self.fusion.maker[v][0]
            self._outside(graph.nodes[at].inputs)
            if self.fusion.kinds[at] == INLINE:
                self._plain(v)
            else:
                self._loops(at)
        body = merged(self.low.k.body)
        kernel = Kernel(self.frame.outer_axes, body, self.low.table)
        found = list(expressions(kernel.body))
        loads = [e.data[0] for e in found if e.op == "load"]
        reads = {b.name for b in loads if b.constant is None and b.name not in self.done}
        stores = [v for v in self.roots if v in self.wanted]
        return Built(kernel, reads, stores, any(e.op in CHECKS for e in found))

    def _outside(self, inputs: Sequence[int]) -> None:
        """Values in memory that were made before this kernel."""
        fusion = self.fusion
        stack, seen = list(inputs), set()
        while stack:
            v = stack.pop()
            if v in self.known or v in seen:
                continue
            seen.add(v)
            at = fusion.maker[v][0]
            if at < 0 or v in fusion.roots:
                if v in self.roots:
                    raise MismatchError
                self.known[v] = stored(self.low.table, self._buffer(v))
            else:
                stack += fusion.graph.nodes[at].inputs

    def _buffer(self, v: int) -> Buffer:
        if v not in self.buffers:
            self.buffers[v] = self.fusion.buffer(v)
        return self.buffers[v]

    def _plain(self, v: int) -> None:
        """An elementwise root: at every turn of the inner loops, or once a row."""
        spec, frame = self.fusion.graph.specs[v], self.frame
        array = self.fusion.array(v, self.low, self.known)
        alike = spec.shape == frame.shape
        full = alike or self._cut(spec.shape)
        index = frame.index if full else frame.row(spec.shape)
        if full and not alike:
            index = unflat(flat(index, frame.shape), spec.shape)
        if not full and spec.shape not in row_shapes(frame.shape, frame.inner):
            raise MismatchError
        e = array.at(index)
        self._settle(v, index, e)
        if v in self.wanted:
            store = Store(self._buffer(v), flat(index, spec.shape), e)
            if full and self.frame.inner:
                self.low.k.body.append(For(self.frame.inner_axes, [store], reverse=False))
            else:
                self.low.k.body.append(store)

    def _cut(self, shape: tuple[int, ...]) -> bool:
        """Whether the loops are those of an array of a shape, with some of its axes cut."""
        whole = self.frame.shape, self.frame.inner
        return is_cut(whole, (shape, ())) or (not whole[1] and finer(whole[0], shape))

    def _settle(self, v: int, index: Any, e: Any) -> None:
        """Inside this kernel a root is its number, at the kernel's own index alone."""
        spec = self.fusion.graph.specs[v]

        def at(asked: Any) -> Any:
            if asked != index:
                raise MismatchError
            return e

        self.known[v] = Array(spec.shape, spec.dtype, at)
        self.done.add(v)

    def _loops(self, at: int) -> None:
        """A root that is written in loops of its own."""
        fusion, node = self.fusion, self.fusion.graph.nodes[at]
        arrays = [fusion.array(i, self.low, self.known) for i in node.inputs]
        self.low.k.where_from = at
        found = fusion.lower(self.low, node, arrays)
        for v, out, spec in zip(fusion.outs(at), found, node.specs, strict=True):
            assert isinstance(out, Out)
            if out.value is None:  # written turn by turn: others cannot read it here
                out.buffer.name = v
                self.buffers[v] = out.buffer
                self.done.add(v)
                self.wanted.add(v)
                self.known[v] = Array(spec.shape, spec.dtype, _refused)
                continue
            index = self.frame.row(spec.shape)
            self._settle(v, index, out.value)
            if v in self.wanted:
                store = Store(self._buffer(v), flat(index, spec.shape), out.value)
                self.low.k.body.append(store)


def straight(fusion: Any, group: Group, built: Built, wanted: set[int]) -> Built:
    """The kernel of a group with its loops cut where indices cut them, if that can be."""
    found = built
    while not group.frame[1] and (shape := pieces(found.kernel)):
        try:
            found = Builder(fusion, Frame(shape), group.roots, wanted).build()
        except MismatchError:
            return built
    return found


def _refused(_: Any) -> Any:
    raise MismatchError


def is_cut(whole: Loops, plain: Loops) -> bool:
    """Whether loops are those of an array of one axis, cut into rows that are reduced."""
    (shape, inner), (line, none) = whole, plain
    return not none and len(line) == 1 and inner == (1,) and prod(shape) == line[0]


def row_shapes(shape: tuple[int, ...], inner: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The shapes of a value for each row: without the inner axes, or with ones there."""
    return (
        tuple(n for a, n in enumerate(shape) if a not in inner),
        tuple(1 if a in inner else n for a, n in enumerate(shape)),
    )
