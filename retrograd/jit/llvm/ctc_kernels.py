"""CTC's recursions as kernels: a row of the batch is a unit, its states lie side by side.

Forwards, each state gets the log of the sum over itself, the one before, and where it is open
the one before that; in place, from the last vector of states to the first. The gradient walks
so once more and keeps the walk, then comes back from the last frame; shares of all ways go to
the classes in the order of the states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.conv_chunks import ARGUMENTS, chunk_bounds, chunk_count, pointers
from retrograd.jit.llvm.gemm_tile import some_lanes
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.launches import REAL, Kernels
from retrograd.jit.llvm.math import FUNCTIONS
from retrograd.jit.llvm.text import I8, I32, I64, Int, Module, Type, Val

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrograd.core.spec import Spec

__all__ = ["CtcBackKernels", "CtcKernels"]

NEVER = -1e30  # the log of no chance
WORK = 100  # operations on a state of a frame, about
ROOM = 1 << 24  # bytes of a thread, for the walk of a row


class CtcKernels(Kernels):
    """LogChance."""

    first = 0  # which operand is log_p

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Real floats and plain integers; something of each."""
        log_p, states, skip, *counts = specs[cls.first :]
        kinds = [s.dtype.name for s in (states, *counts)] == ["int64"] * 3
        walk = log_p.shape[0] * (states.shape[1] + 16) * log_p.dtype.itemsize
        some = all(s.size for s in specs) and skip.dtype.name == "bool"
        return log_p.dtype.name in REAL and kinds and some and walk <= ROOM

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        """One kernel."""
        log_p, states = specs[self.first : self.first + 2]
        lanes = self.writer.machine.lanes(t.bits // 8)
        frames, rows, classes = log_p.shape
        n = _Sizes(frames, rows, classes, states.shape[1], t, lanes)
        walk = _Walk(self.writer.module, name, n)
        info = walk.write_back() if self.first else walk.write()
        self.launches = [(info, tuple(range(len(specs) + 1)))]


class CtcBackKernels(CtcKernels):
    """LogChancePull."""

    first = 1


@dataclass(frozen=True)
class _Sizes:
    """Lengths of one call."""

    frames: int
    rows: int
    classes: int
    width: int  # states
    type: Type
    lanes: int

    @property
    def wide(self) -> int:
        """States in whole vectors."""
        return -(-self.width // self.lanes) * self.lanes

    @property
    def flops(self) -> int:
        return WORK * self.frames * self.rows * self.width

    @property
    def bytes(self) -> int:
        return self.frames * self.rows * self.classes * self.type.bits // 8


class _Walk:
    """A kernel being written."""

    def __init__(self, module: Module, name: str, n: _Sizes) -> None:
        self.f, self.n = Fn(module, name, ARGUMENTS), n
        self.t = n.type.by(n.lanes)
        self.used = 0
        self.at = self._room(n.wide + 2 * n.lanes, n.lanes)  # and what never is, on both sides
        self.open = self._room(n.wide + n.lanes)
        self.where = self._room(n.wide)  # as integers of 32 bits

    def _room(self, count: int, before: int = 0) -> Val:
        """Numbers in scratch, in whole vectors; where they begin, after some."""
        n, f = self.n, self.f
        found = f.at(f.arg("scratch"), self.used + before, n.type)
        self.used += -(-count // n.lanes) * n.lanes
        return found

    def _done(self, chunks: int, flops: int, moved: int) -> KernelInfo:
        self.f.done()
        size = self.n.type.bits // 8
        return KernelInfo(self.f.name, chunks, self.used * size, flops, moved)

    # -- the kernels ------------------------------------------------------------------------

    def write(self) -> KernelInfo:
        """Buffers: log_p, states, skip, frames, lengths, out."""
        f, n = self.f, self.n
        log_p, *given, out = pointers(f, 6)
        chunks = chunk_count(n.rows, n.flops)
        low, high = chunk_bounds(f, f.arg("chunk"), chunks, n.rows)
        with f.loop(low, high) as row:
            count, last = self._begin(row.i, *given)
            self._there(log_p, row.i, count, lambda *_: None)
            f.store(self._total(count, last), f.at(out, row.i, n.type))
        return self._done(chunks, n.flops, n.bytes)

    def write_back(self) -> KernelInfo:
        """Buffers: g, log_p, states, skip, frames, lengths, out."""
        f, n, t = self.f, self.n, self.t
        g, log_p, *given, out = pointers(f, 7)
        chunks = chunk_count(n.rows, 3 * n.flops)
        walk, beta, share = (self._room(k * n.wide) for k in (n.frames, 1, 1))
        low, high = chunk_bounds(f, f.arg("chunk"), chunks, n.rows)

        def keep(frame: Int, s: Int, x: Val) -> None:
            f.store(x, f.at(walk, f.plus(f.times(frame, n.wide), s), t))

        with f.loop(low, high) as row:
            count, last = self._begin(row.i, *given)
            self._there(log_p, row.i, count, keep)
            total = f.splat(self._total(count, last), n.lanes)
            by = f.splat(f.load(n.type, f.at(g, row.i, n.type)), n.lanes)
            self._ends(beta, last)
            self._fill(self.at, n.wide, n.wide + n.lanes)
            with f.loop(0, count, down=True) as loop:
                line = f.at(walk, f.times(loop.i, n.wide), t)
                self._shares((line, beta, share), (total, by), self._line(log_p, loop.i, row.i))
                self._give(share, self._line(out, loop.i, row.i))
                self._back(beta)
            with f.loop(count, n.frames) as loop:
                self._clear(self._line(out, loop.i, row.i))
        return self._done(chunks, 3 * n.flops, 3 * n.bytes)

    # -- rows ----------------------------------------------------------------------------------

    def _vectors(self, body: Callable[[Val], None], *, down: bool = False) -> None:
        """All vectors of states, by the first of each."""
        f, n = self.f, self.n
        with f.loop(0, n.wide // n.lanes, down=down) as loop:
            body(f.mul(loop.i, f.integer(n.lanes)))

    def _never(self, t: Type, times: int = 1) -> Val:
        return self.f.const(t, NEVER * times)

    def _fill(self, at: Val, low: int, high: int) -> None:
        """No chance, in whole vectors."""
        f, n = self.f, self.n
        with f.loop(low, high, n.lanes) as loop:
            f.store(self._never(self.t), f.at(at, loop.i, self.t))

    def _line(self, array: Val, frame: Int, row: Int) -> Val:
        """The classes of a frame of a row."""
        f, n = self.f, self.n
        place = f.plus(f.times(frame, n.rows), row)
        return f.at(array, f.times(place, n.classes), n.type)

    def _begin(
        self, row: Val, states: Val, skip: Val, frames: Val, lengths: Val
    ) -> tuple[Val, Val]:
        """States and doors of a row to scratch; how many frames it has, and its last state."""
        f, n = self.f, self.n
        self._fill(self.at, -n.lanes, n.wide + n.lanes)
        self._fill(self.open, 0, n.wide + n.lanes)
        self._vectors(lambda s: f.store(f.zero(I32.by(n.lanes)), f.at(self.where, s, I32)))
        first = f.times(row, n.width)
        with f.loop(0, n.width) as loop:
            at = f.plus(first, loop.i)
            state = f.load(I64, f.at(states, at, I64))
            state = self._within(state, n.classes)
            f.store(f.convert("trunc", state, I32), f.at(self.where, loop.i, I32))
            shut = f.compare("eq", f.load(I8, f.at(skip, at, I8)), f.const(I8, 0))
            door = f.select(shut, self._never(n.type), f.zero(n.type))
            f.store(door, f.at(self.open, loop.i, n.type))
        count = self._within(f.load(I64, f.at(frames, row, I64)), n.frames + 1)
        length = f.load(I64, f.at(lengths, row, I64))
        return count, self._within(f.mul(length, f.const(I64, 2)), n.width)

    def _within(self, i: Val, n: int) -> Val:
        """An index as it is, if it is one; 0 otherwise: `ctc` has refused such."""
        f = self.f
        return f.select(f.compare("ult", i, f.const(I64, n)), i, f.const(I64, 0))

    def _total(self, count: Val, last: Val) -> Val:
        """The log of the chance to be at the end, at the last label or the blank after it."""
        f, n = self.f, self.n
        ends = [f.load(n.type, f.at(f.at(self.at, last, n.type), -k, n.type)) for k in (0, 1)]
        a, b = (f.splat(x, n.lanes) for x in ends)
        found = f.extract(self._sum(a, b, self._never(self.t)), 0)
        empty = f.compare("eq", last, f.const(I64, 0))
        nothing = f.select(empty, f.zero(n.type), self._never(n.type))
        return f.select(f.compare("eq", count, f.const(I64, 0)), nothing, found)

    # -- frames --------------------------------------------------------------------------------

    def _larger(self, a: Val, b: Val) -> Val:
        f = self.f
        return f.select(f.compare("ogt", a, b), a, b)

    def _sum(self, *terms: Val) -> Val:
        """The log of the sum of exponentials; NaN if one is."""
        f = self.f
        a, b, c = terms
        most = self._larger(self._larger(a, b), c)
        a, b, c = (FUNCTIONS["exp"](f, f.sub(x, most)) for x in terms)
        return f.add(FUNCTIONS["log"](f, f.add(f.add(a, b), c)), most)

    def _sent(self, x: Val, line: Val, s: Val) -> Val:
        """With what states emit; never so little that differences are lost."""
        f, t = self.f, self.t
        where = f.load(I32.by(self.n.lanes), f.at(self.where, s, I32))
        x = f.add(x, f.gather(t, line, where))
        least = self._never(t, 2)
        return f.select(f.compare("olt", x, least), least, x)

    def _there(self, log_p: Val, row: Val, count: Val, keep: Callable[..., None]) -> None:
        """Walk along all frames of a row."""
        f, n, t = self.f, self.n, self.t
        start = [0.0 if s < 2 else NEVER for s in range(n.lanes)]
        first = self._line(log_p, 0, row)
        x = self._sent(f.vector(t, start), first, f.integer(0))
        f.store(x, self.at)
        self._vectors(lambda s: keep(0, s, f.load(t, f.at(self.at, s, t))))
        with f.loop(1, count) as loop:
            line = self._line(log_p, loop.i, row)

            def step(s: Val) -> None:
                here = f.at(self.at, s, t)
                a, b, c = (f.load(t, f.at(here, -k, t)) for k in range(3))
                c = f.add(c, f.load(t, f.at(self.open, s, t)))
                x = self._sent(self._sum(a, b, c), line, s)
                f.store(x, here)
                keep(loop.i, s, x)

            self._vectors(step, down=True)

    def _ends(self, beta: Val, last: Val) -> None:
        """The states in which the walk may end are certain."""
        f, n, t = self.f, self.n, self.t
        self._fill(beta, 0, n.wide)
        f.store(f.zero(n.type), f.at(beta, last, n.type))
        with f.when(f.compare("ne", last, f.const(I64, 0))):
            f.store(f.zero(n.type), f.at(f.at(beta, last, n.type), -1, t))

    def _shares(self, rooms: tuple[Val, ...], by: tuple[Val, Val], line: Val) -> None:
        """Which share of all ways passes each state; then the walk, with what they emit."""
        f, n, t = self.f, self.n, self.t
        there, beta, share = rooms
        edge = n.wide - n.lanes

        def step(s: Val) -> None:
            x, back = (f.load(t, f.at(r, s, t)) for r in (there, beta))
            part = FUNCTIONS["exp"](f, f.sub(f.add(x, back), by[0]))
            f.store(f.mul(part, by[1]), f.at(share, s, t))
            f.store(self._sent(back, line, s), f.at(self.at, s, t))

        self._vectors(step)
        if n.width < n.wide:  # what is no state must not reach those before it
            last = f.at(self.at, edge, t)
            mask = some_lanes(f, n.lanes, n.width - edge)
            f.store(f.select(mask, f.load(t, last), self._never(t)), last)

    def _back(self, beta: Val) -> None:
        """One frame back."""
        f, t = self.f, self.t

        def step(s: Val) -> None:
            here = f.at(self.at, s, t)
            a, b, c = (f.load(t, f.at(here, k, t)) for k in range(3))
            c = f.add(c, f.load(t, f.at(f.at(self.open, s, t), 2, t)))
            f.store(self._sum(a, b, c), f.at(beta, s, t))

        self._vectors(step)

    def _clear(self, line: Val) -> None:
        f, n = self.f, self.n
        with f.loop(0, n.classes) as loop:
            f.store(f.zero(n.type), f.at(line, loop.i, n.type))

    def _give(self, share: Val, line: Val) -> None:
        """Shares to the classes, in the order of the states."""
        f, n = self.f, self.n
        self._clear(line)
        with f.loop(0, n.width) as loop:
            where = f.load(I32, f.at(self.where, loop.i, I32))
            at = f.at(line, f.convert("sext", where, I64), n.type)
            more = f.load(n.type, f.at(share, loop.i, n.type))
            f.store(f.add(f.load(n.type, at), more), at)
