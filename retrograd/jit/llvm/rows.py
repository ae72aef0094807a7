"""Loops along rows: the lanes are neighbours in a row, and what is reduced collects in vectors.

A row of softmax takes three loops: its largest, the sum of its powers, its results; one of a
layer norm its mean, its variance, its results. Each waits for the one before, and a processor
sees too little of the next row to be busy meanwhile. So rows are staggered where it pays: one
loop does the third part of a row together with the second of the row after it, and with the
first of the one after that. Each row is computed as it would be alone, in the same order.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.bands import Bands
from retrograd.jit.llvm.gemm_tile import prefetch
from retrograd.jit.llvm.numbers import compute
from retrograd.jit.llvm.stages import Stage, handed
from retrograd.jit.llvm.text import I1, I8, LINE
from retrograd.jit.llvm.values import Num, grouped, in_memory
from retrograd.jit.loops.analyse import Reduction, reductions
from retrograd.jit.loops.expr import Store, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from retrograd.jit.llvm.ahead import Ahead
    from retrograd.jit.llvm.kept import Kept
    from retrograd.jit.llvm.text import Int, Val
    from retrograd.jit.loops.expr import For
    from retrograd.jit.loops.index import Axis

__all__ = ["Rows"]


class Rows(Bands):
    """The part of a kernel's writer that runs loops along rows."""

    kept: Kept
    memos: list[dict[Any, Num]]
    calls: For | None
    ahead: list[Ahead]

    @abstractmethod
    def _masked(self, axis: Axis, start: int, body: Callable[[], None]) -> None: ...

    # -- a row after the other ---------------------------------------------------------------

    def _horizontal(self, loop: For) -> None:
        """Lanes along the last inner axis; reductions collect in vectors."""
        found, self.kept.loop = reductions(loop), loop
        if found is None or not self.lanes:
            lanes, self.lanes = self.lanes, 0
            self.plain(loop)
            self.lanes = lanes
            return
        *outer, axis = loop.axes
        self._hoist(loop.body, set(loop.axes))
        stage = Stage(0, (), loop, found, (), vars=self.vars)
        stage.sums = [self._identity(r) for r in found]
        self._around(outer, axis, stage)
        self._fold(stage)

    def _around(self, outer: list[Axis], axis: Axis, stage: Stage) -> None:
        """The loop along a row, and those around it."""
        if not outer:
            self._as_one(axis, [stage])
            return
        f, sizes = self.f, [len(x) for x in stage.sums]
        with f.loop(0, outer[0].extent, 1, [v for x in stage.sums for v in x]) as turn:
            stage.sums = grouped(turn.carry, sizes)
            self._inside(outer[0], turn.i, lambda: self._around(outer[1:], axis, stage))
            turn.next = [v for x in stage.sums for v in x]
        stage.sums = grouped(turn.results, sizes)

    def _as_one(self, axis: Axis, stages: Sequence[Stage]) -> None:
        """The loops of some stages as one, each along a row of its own."""
        f, sizes = self.f, [len(x) for s in stages for x in s.sums]
        full = axis.extent // self.lanes * self.lanes

        def parts() -> list[Val]:
            return [v for s in stages for x in s.sums for v in x]

        def share(values: list[Val]) -> None:
            given = iter(grouped(values, sizes))
            for s in stages:
                s.sums = [next(given) for _ in s.sums]

        if full:
            with f.loop(0, full, self.lanes, parts()) as turn:
                share(turn.carry)
                self._inside(axis, turn.i, lambda: self._turn(stages))
                turn.next = parts()
            share(turn.results)
        if full < axis.extent:
            self._masked(axis, full, lambda: self._turn(stages))

    def _turn(self, stages: Sequence[Stage]) -> None:
        """One vector of each stage's loop; sums are brought up to date."""
        stores = []  # when all is computed: memory may be shared
        for s in stages:
            with self._row_of(s, {}):
                if s.loop is self.calls and self.mask is None:
                    self._call_ahead()
                terms = [self.value(r.expr) for r in s.found]
                s.sums = [self._sum(*x) for x in zip(s.found, terms, s.sums, strict=True)]
                own = [t for t in s.loop.body if isinstance(t, Store)]
                stores += [(s, t, self.value(t.expr)) for t in own]
        for s, t, x in stores:
            with self._row_of(s, {}):
                self.store(t.buffer, t.index, x)

    def _sum(self, r: Reduction, x: Num, before: Num) -> Num:
        if self.mask is not None:
            neutral = self._identity(r)
            x = compute(self.f, "where", [(self.mask,), x, neutral], [r.dtype], r.dtype)
        # what is new first: of that a maximum asks whether it is NaN, and it waits for none
        return compute(self.f, r.op, [x, before], [r.dtype] * 2, r.dtype)

    def _identity(self, r: Reduction) -> Num:
        start = self.value(number(self.kernel.table, r.identity, r.dtype))
        return tuple(self.f.splat(v, self.lanes) for v in start)

    def _fold(self, stage: Stage) -> None:
        """Variables from the vectors that they collected in."""
        for r, x in zip(stage.found, stage.sums, strict=True):
            values = [self._current(r.var, r.entry), self._folded(r, x)]
            self.vars[r.var, r.last] = compute(self.f, r.op, values, [r.dtype] * 2, r.dtype)

    def _folded(self, r: Reduction, x: Num) -> Num:
        """All lanes of a collected vector, by halves."""
        width = self.lanes
        while width > 1:
            width //= 2
            low = tuple(self.f.shuffle(v, None, range(width)) for v in x)
            high = tuple(self.f.shuffle(v, None, range(width, 2 * width)) for v in x)
            x = compute(self.f, r.op, [low, high], [r.dtype] * 2, r.dtype)
        return tuple(self.f.extract(v, 0) for v in x)

    def _call_ahead(self) -> None:
        """Call for what the next row has where this one is."""
        f = self.f
        for buffer, ix, step in self.ahead:
            first, _, _ = self.spread(ix)
            spot = f.at(self.base[buffer], f.plus(first, step), in_memory(buffer.dtype))
            for line in range(0, self.lanes * buffer.dtype.itemsize, LINE):
                prefetch(f, f.at(spot, line, I8))

    # -- staggered rows ----------------------------------------------------------------------

    def _staggered(self, axis: Axis, low: Int, high: Int, stages: Sequence[Stage]) -> None:
        """All rows from low on: in each turn every stage is at another one.

        The first and the last turns have no row for some stages, and go stage by stage. Late
        stages come first: what an earlier one keeps takes the place of what they read.
        """
        f, late = self.f, list(reversed(stages))
        self.slots = handed(f, stages)
        with f.loop(low, f.plus(high, len(stages) - 1)) as turn:
            for slot in self.slots:
                slot.grow_older(f)
            some = {}
            for s in late:
                s.axis, s.row = axis, f.sub(turn.i, f.integer(s.number))
                s.place = self.kept.place(f.sub(s.row, f.integer(low)))
                begun = f.compare("sge", s.row, f.integer(low))
                some[s.number] = f.bitwise(
                    "and", begun, f.compare("slt", s.row, f.integer(high))
                )
            busy = f.bitwise("and", some[0], some[late[0].number])
            with f.when(busy):
                self._stages(late)
            with f.when(f.bitwise("xor", busy, f.const(I1, 1))):
                for s in late:
                    with f.when(some[s.number]):
                        self._stages([s])

    def _stages(self, stages: Sequence[Stage]) -> None:
        """Some stages, each of its row, their loops as one."""
        assert self.vector is not None
        for s in stages:
            s.vars = {slot.key: slot.read(self.f, s) for slot in self.slots if slot.known(s)}
            s.memo = {}
            with self._row_of(s):
                self._block(s.before)
                self._hoist(s.loop.body, {self.vector})
                s.sums = [self._identity(r) for r in s.found]
        self._as_one(self.vector, stages)
        for s in stages:
            with self._row_of(s):
                self._fold(s)
                self._block(s.after)
            for slot in self.slots:
                if slot.stage == s.number:
                    slot.write(self.f, s.vars[slot.key])

    @contextmanager
    def _row_of(self, stage: Stage, *memos: dict[Any, Num]) -> Iterator[None]:
        """Write for the row of a stage, with what is known of it."""
        self.kept.loop = stage.loop
        if stage.axis is None:
            yield
            return
        before, self.vars, self.at[stage.axis] = self.vars, stage.vars, stage.row
        self.kept.start = stage.place
        self.memos += [stage.memo, *memos]
        yield
        del self.memos[-1 - len(memos) :]
        self.vars, self.kept.start = before, 0
