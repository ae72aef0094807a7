"""Loops and branches over graphs: scan, while_loop and cond stay loops in the generated code.

Bodies are written in place, on pointers that move: xs are read and ys are written in their
rows, and a carry changes places from turn to turn, so that little is copied but what a body
merely passes on. At the end of each turn the program may be interrupted.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from retrograd.control.branch import Cond
from retrograd.control.loops import While
from retrograd.control.scan import Scan
from retrograd.jit.llvm.carry import (
    Carry,
    Ends,
    InPlace,
    Kept,
    Move,
    Rows,
    Still,
    Swapped,
    Turn,
    copy,
)
from retrograd.jit.llvm.text import I8, Val
from retrograd.jit.loops.analyse import expressions
from retrograd.jit.loops.expr import Store
from retrograd.jit.steps import Loops
from retrograd.memory.problem import ALIGN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.ir.graph import Graph, Node
    from retrograd.jit.loops.expr import Kernel

__all__ = ["CONTROL", "write_control"]


class Body:
    """A graph within a construct, with its results wherever they are wanted."""

    def __init__(self, writer: Any, graph: Graph, routine: Any) -> None:
        self.writer, self.graph = writer, graph
        self.routine = routine(writer, graph)
        self.size: int = self.routine.size

    def write(
        self, given: Sequence[Val], wanted: Sequence[Val | None], arena: Val, at: int
    ) -> None:
        """All steps, then copies of what is wanted twice, or was not made here.

        None stands for a result that is wanted nowhere.
        """
        graph = self.graph
        places: dict[int, Val] = dict(enumerate(given))
        pairs = [(v, p) for v, p in zip(graph.outputs, wanted, strict=True) if p is not None]
        for value, place in pairs:
            places.setdefault(value, place)
        self.routine.write(places, arena, at)
        found = self.routine.places
        for value, place in pairs:
            copy(self.writer.f, place, found[value], graph.specs[value].nbytes)

    def updates(self, before: int, after: int) -> bool:
        """Whether the value `after` may be written over the input `before`.

        It may if one elementwise kernel makes it and nothing else reads the input.
        """
        if before in self.graph.outputs:
            return False
        readers = [s for s in self.routine.steps if before in self.routine.traffic(s)[0]]
        if not readers:
            return True
        (step, *more) = readers
        return not more and isinstance(step, Loops) and _over(step.kernel, before, after)


def _over(kernel: Kernel, before: int, after: int) -> bool:
    """Whether each element of a buffer is read for the last time when its new value is."""
    stores = [s for s in kernel.body if isinstance(s, Store)]
    if len(stores) < len(kernel.body):
        return False  # loops within: elements are read again and again
    reading = [i for i, s in enumerate(stores) if _indices(s, before)]
    writing = [i for i, s in enumerate(stores) if s.buffer.name == after]
    if len(writing) != 1 or not reading or reading[-1] > writing[0]:
        return False
    found = {ix for i in reading for ix in _indices(stores[i], before)}
    return found == {stores[writing[0]].index}


def _indices(store: Store, value: int) -> list[Any]:
    """Where a statement reads a buffer."""
    loads = [e.data for e in expressions([store]) if e.op == "load"]
    return [index for buffer, index in loads if buffer.name == value]


class Carries:
    """The carries of a loop, which begin with the input `first` of its body."""

    def __init__(self, body: Body, first: int, places: Sequence[Carry]) -> None:
        self.body, self.first, self.places = body, first, places
        self.need = sum(c.need for c in places)

    def start(self, given: Any, outs: Any, arena: Val, at: int, rows: Any = ()) -> list[Val]:
        """What goes round in the loop, from memory of the arena `at` an offset."""
        f = self.f = self.body.writer.f
        self.ends, self.counts, held = [], [], []
        for c, a, b in zip(self.places, given, outs, strict=True):
            ends = Ends(a, b, f.at(arena, at, I8) if c.need else b)
            own = c.start(f, ends, rows)
            self.ends.append(ends)
            self.counts.append(len(own))
            held += own
            at += c.need
        return held

    def _each(self, held: Sequence[Val]) -> list[tuple[Carry, Ends, list[Val]]]:
        left = iter(held)
        own = [list(islice(left, n)) for n in self.counts]
        return list(zip(self.places, self.ends, own, strict=True))

    def turn(self, turn: Turn, held: Sequence[Val]) -> list[Move]:
        """Where each is, and goes."""
        return [c.turn(turn, ends, own) for c, ends, own in self._each(held)]

    def finish(self, held: Sequence[Val]) -> None:
        """All in their final places."""
        for c, ends, own in self._each(held):
            c.finish(self.f, ends, own)


class ScanLoop:
    """carry, y = body(consts, carry, x), once for each row."""

    def __init__(self, writer: Any, node: Node, graph: Graph, routine: Any) -> None:
        op = node.op
        assert isinstance(op, Scan)
        self.writer, self.op = writer, op
        self.body = Body(writer, op.body, routine)
        places = [self._place(k) for k in range(op.carry)]
        self.carries = Carries(self.body, op.consts, places)
        self.size = self.body.size + self.carries.need
        rows = [*op.body.inputs[op.consts + op.carry :], *op.body.output_specs[op.carry :]]
        self.widths = [s.nbytes for s in rows]

    def _place(self, k: int) -> Carry:
        op = self.op
        before, after, ys = op.consts + k, op.body.outputs[k], op.body.outputs[op.carry :]
        nbytes = op.body.inputs[before].nbytes
        if after == before:
            return Still(nbytes)
        if after in ys and after >= len(op.body.inputs):
            return Rows(nbytes, ys.index(after))
        if before in ys:
            return Kept(nbytes, ys.index(before))
        if op.length > 2 and self.body.updates(before, after):
            return InPlace(nbytes)
        return Swapped(nbytes, op.length)

    def write(self, given: Sequence[Val], outs: Sequence[Val], arena: Val, offset: int) -> None:
        """The loop; it carries a pointer into each of its xs and ys."""
        f, op, n = self.writer.f, self.op, self.op.consts + self.op.carry
        first, last = given[op.consts : n], outs[: op.carry]
        if not op.length:
            for c, a, b in zip(self.carries.places, first, last, strict=True):
                copy(f, b, a, c.nbytes)
            return
        skip, step = (op.length - 1, -1) if op.reverse_time else (0, 1)
        rows = self._moved([*given[n:], *outs[op.carry :]], skip)
        ys, held = len(given) - n, len(rows)
        own = self.carries.start(first, last, arena, offset + self.body.size, rows[ys:])
        with f.loop(0, op.length, 1, [*rows, *own]) as loop:
            now = loop.carry[:held]
            ahead = self._moved(now, step)
            turn = Turn(f, loop.i, op.length, now[ys:], ahead[ys:])
            moves = self.carries.turn(turn, loop.carry[held:])
            inputs = [*given[: op.consts], *(m.old for m in moves), *now[:ys]]
            self.body.write(inputs, [*(m.new for m in moves), *now[ys:]], arena, offset)
            self.writer.turned()
            loop.next = [*ahead, *(v for m in moves for v in m.next)]
        self.carries.finish(loop.results[held:])

    def _moved(self, rows: Sequence[Val], by: int) -> list[Val]:
        f = self.writer.f
        return [f.at(p, by * w, I8) for p, w in zip(rows, self.widths, strict=True)]


class WhileLoop:
    """carry = body(consts, carry) as long as test(consts, carry) holds."""

    def __init__(self, writer: Any, node: Node, graph: Graph, routine: Any) -> None:
        op = node.op
        assert isinstance(op, While)
        self.writer, self.op = writer, op
        self.test, self.body = Body(writer, op.test, routine), Body(writer, op.body, routine)
        places = [self._place(k) for k in range(len(op.body.outputs))]
        self.carries = Carries(self.body, op.consts, places)
        self.inner = max(self.test.size, self.body.size)  # they take turns
        self.size = ALIGN + self.inner + self.carries.need

    def _place(self, k: int) -> Carry:
        before, after = self.op.consts + k, self.op.body.outputs[k]
        nbytes = self.op.body.inputs[before].nbytes
        if after == before:
            return Still(nbytes)
        return InPlace(nbytes) if self.body.updates(before, after) else Swapped(nbytes, None)

    def write(self, given: Sequence[Val], outs: Sequence[Val], arena: Val, offset: int) -> None:
        """The loop, with its test ahead of each turn."""
        f, consts = self.writer.f, given[: self.op.consts]
        at = offset + ALIGN
        answer = f.at(arena, offset, I8)
        own = self.carries.start(given[self.op.consts :], outs, arena, at + self.inner)
        head, body, after = (f._label(w) for w in ("test", "turn", "after"))
        held = [Val(f"%{head}c{k}", v.type) for k, v in enumerate(own)]
        before = f.block
        f.emit(f"br label %{head}")
        f.start(head)
        spot = len(f.lines)
        moves = self.carries.turn(Turn(f), held)
        inputs = [*consts, *(m.old for m in moves)]
        self.test.write(inputs, [answer], arena, at)
        f.emit(f"br {truth(f, answer)}, label %{body}, label %{after}")
        f.start(body)
        self.body.write(inputs, [m.new for m in moves], arena, at)
        self.writer.turned()
        now = [v for m in moves for v in m.next]
        f.lines[spot:spot] = [
            f"  {h.ref} = phi {h.type.text} [ {a.ref}, %{before} ], [ {b.ref}, %{f.block} ]"
            for h, a, b in zip(held, own, now, strict=True)
        ]
        f.emit(f"br label %{head}")
        f.start(after)
        self.carries.finish(held)


class Branches:
    """One of two graphs, as a truth value says."""

    def __init__(self, writer: Any, node: Node, graph: Graph, routine: Any) -> None:
        op = node.op
        assert isinstance(op, Cond)
        self.writer = writer
        self.sides = [Body(writer, side, routine) for side in (op.yes, op.no)]
        self.size = max(side.size for side in self.sides)

    def write(self, given: Sequence[Val], outs: Sequence[Val], arena: Val, offset: int) -> None:
        """Both, each with the results in the same places."""
        f = self.writer.f
        yes, no, after = (f._label(w) for w in ("yes", "no", "after"))
        f.emit(f"br {truth(f, given[0])}, label %{yes}, label %{no}")
        for label, side in zip((yes, no), self.sides, strict=True):
            f.start(label)
            side.write(given[1:], outs, arena, offset)
            f.emit(f"br label %{after}")
        f.start(after)


def truth(f: Any, place: Val) -> Val:
    """The truth value at a place."""
    return f.compare("ne", f.load(I8, place), f.const(I8, 0))


CONTROL: dict[type, Any] = {Scan: ScanLoop, While: WhileLoop, Cond: Branches}


def write_control(inner: Any, given: Any, outs: Any, arena: Any, offset: int) -> None:
    """Write a loop or branch."""
    inner.write(given, outs, arena, offset)
