"""Addresses: loads and stores of a kernel's buffers, by what its indices are in lanes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.faults import Faults
from retrograd.jit.llvm.gemm_tile import prefetch
from retrograd.jit.llvm.past import Past
from retrograd.jit.llvm.text import I1, I8, I64, LINE, PTR, Int, Type, Val
from retrograd.jit.llvm.values import Num, in_memory, narrowed, widened
from retrograd.jit.loops.analyse import stride
from retrograd.jit.loops.index import Axis, Dynamic, Quotient
from retrograd.jit.loops.lanes import lane_offsets

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    import numpy as np

    from retrograd.jit.llvm.ahead import Soon
    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.loops.expr import Buffer, Expr
    from retrograd.jit.loops.index import Ix

__all__ = ["FAR", "Places"]

FAR, ROWS = 1024, 16  # bytes from row to row that no CPU looks ahead by; rows to call for


class Places(ABC):
    """The part of a kernel's writer that knows where things are."""

    vector: Axis | None
    lanes: int

    def __init__(self, f: Fn, order: list[Buffer]) -> None:
        self.f = f
        self.order = {b: i for i, b in enumerate(order)}
        self.at: dict[Axis, Int] = {}  # the loop indices; of the vector axis, the first lane's
        self.bounds: dict[Axis, tuple[Val, Val]] = {}
        self.mask: Val | None = None
        self.soon: Soon | None = None  # how buffers that are run through are called for
        self.down: Axis | None = None  # the loop that goes down large columns
        self.below = ROWS  # rows further that it calls for
        self.past = Past(f)
        self.first = 0  # number of the first node, in the status word
        self.faults = Faults()
        bufs = f.arg("bufs")
        self.base = {b: f.load(PTR, f.at(bufs, i, I64)) for b, i in self.order.items()}
        self.word = f.load(PTR, f.at(bufs, len(order), I64))

    @abstractmethod
    def value(self, e: Expr) -> Num:
        """An expression's number."""

    # -- indices ----------------------------------------------------------------------------

    def spread(self, ix: Ix) -> tuple[Int, int, Val | None]:
        """An index as (first lane's, step from lane to lane, what else varies by lane)."""
        f = self.f
        base: Int = ix.const
        step, rest = 0, None
        # A check ends a block of code: behind it, what a load and a store share is found once.
        for atom, c in sorted(ix.terms.items(), key=lambda term: isinstance(term[0], Axis)):
            if isinstance(atom, Axis):
                base = f.plus(base, f.times(self.at.get(atom, 0), c))
                step += c if atom is self.vector and self.lanes else 0
                continue
            x = self._atom(atom)
            if x.type.lanes:
                x = f.mul(x, f.const(x.type, c)) if c != 1 else x
                rest = x if rest is None else f.add(rest, x)
            else:
                base = f.plus(base, f.times(x, c))
        return base, step, rest

    def _atom(self, atom: Any) -> Val:
        if isinstance(atom, Dynamic):
            return self.value(atom.expr)[0]
        x = self.number_of(atom.of)
        f, by = self.f, self.f.const(x.type, atom.by)
        op = f.div if isinstance(atom, Quotient) else f.rem
        return op(x, by, signed=False)

    def _apart(self, ix: Ix) -> list[int] | None:
        """How far lanes are from the first one, if that is known."""
        return lane_offsets(ix, self.vector, self.lanes) if self.vector and self.lanes else None

    def _first(self, ix: Ix) -> Int | None:
        """The index of the first lane; None if only that of all is to be had."""
        f = self.f
        found: Int = ix.const
        for atom, c in sorted(ix.terms.items(), key=lambda term: isinstance(term[0], Axis)):
            if isinstance(atom, Axis):
                x: Int | None = self.at.get(atom, 0)
            elif isinstance(atom, Dynamic):
                x = self._atom(atom)
                x = None if x.type.lanes else x
            else:
                x = self._first(atom.of)
                if x is not None:
                    op = f.div if isinstance(atom, Quotient) else f.rem
                    x = op(f.integer(x), f.integer(atom.by), signed=False)
            if x is None:
                return None
            found = f.plus(found, f.times(x, c))
        return found

    def number_of(self, ix: Ix) -> Val:
        """An index as integers: a scalar where lanes agree."""
        f = self.f
        apart = self._apart(ix)
        if apart is not None and (first := self._first(ix)) is not None:
            x = f.integer(first)
            if not any(apart):
                return x
            return f.add(f.splat(x, self.lanes), f.vector(I64.by(self.lanes), apart))
        base, step, rest = self.spread(ix)
        if not step and rest is None:
            return f.integer(base)
        return self._lanes_of(base, step, rest)

    def _lanes_of(self, base: Int, step: int, rest: Val | None) -> Val:
        f, t = self.f, I64.by(self.lanes)
        out = f.splat(f.integer(base), self.lanes)
        if step:
            lanes = f.vector(t, [step * i for i in range(self.lanes)])
            out = f.add(out, lanes)
        return out if rest is None else f.add(out, rest)

    # -- loads and stores --------------------------------------------------------------------

    def load(self, buffer: Buffer, ix: Ix) -> Num:
        """Elements of a buffer, ready to compute with."""
        t = in_memory(buffer.dtype)
        if buffer.constant is not None:
            return self._parts(self.f.module.table(_plain(buffer.constant)), buffer, ix, t)
        return self._parts(self.base[buffer], buffer, ix, t)

    def _parts(self, base: Val, buffer: Buffer, ix: Ix, t: Type) -> Num:
        found = (
            self._pairs(base, ix * 2, t)
            if buffer.dtype.kind == "c"
            else [self._load(base, ix, t)]
        )
        return tuple(widened(self.f, x, buffer.dtype) for x in found)

    def _pairs(self, base: Val, ix: Ix, t: Type) -> list[Val]:
        """Real and imaginary parts, which alternate in memory: two vectors hold all of them."""
        f, (first, step, rest) = self.f, self.spread(ix)
        if rest is not None or step != 2:
            return [self._load(base, ix + p, t) for p in range(2)]
        spots = [
            self._there(f.at(base, f.plus(first, k * self.lanes), t), base) for k in range(2)
        ]
        a, b = (self._row(at, t, on) for at, on in zip(spots, self._twice(), strict=True))
        return [f.shuffle(a, b, range(p, 2 * self.lanes, 2)) for p in range(2)]

    def _twice(self) -> list[Val | None]:
        """The masks of two vectors of parts: each lane's bit for both of its parts."""
        on, n = self._on(), self.lanes
        if on is None:
            return [None, None]
        halves = (range(n), range(n, 2 * n))
        return [self.f.shuffle(on, None, [i // 2 for i in half]) for half in halves]

    def _row(self, spot: Val, t: Type, on: Val | None) -> Val:
        """A vector of neighbours."""
        f, wide = self.f, t.by(self.lanes)
        self._call_soon(spot, wide)
        return f.load(wide, spot) if on is None else f.masked_load(wide, spot, on)

    def _load(self, base: Val, ix: Ix, t: Type) -> Val:
        f = self.f
        apart = self._apart(ix)
        if apart is not None and (found := self._near(base, ix, apart, t)):
            return found
        first, step, rest = self.spread(ix)
        if rest is None and step == 0:
            return self._uniform(base, first, t)
        return f.gather(t.by(self.lanes), base, self._lanes_of(first, step, rest), self._on())

    def _near(self, base: Val, ix: Ix, apart: list[int], t: Type) -> Val | None:
        """Elements of lanes that lie close together: read in one piece, then put in order.

        None if they do not.
        """
        low, span = min(apart), max(apart) - min(apart) + 1
        if span > 2 * self.lanes:
            return None
        first = self._first(ix + low)
        if first is None:
            return None
        if span == 1:
            return self._uniform(base, first, t)
        spot = self._there(self.f.at(base, first, t), base)
        if apart == list(range(self.lanes)):
            self._call_below(ix, spot, t.bits // 8)
            return self._row(spot, t, self._on())
        return self._woven(spot, [n - low for n in apart], t)

    def _there(self, spot: Val, base: Val) -> Val:
        """A place to read at, whichever lanes are on: where none is, it may be no memory.

        AMD's CPUs take hundreds of cycles for a masked load there, though it reads nothing.
        """
        on = self._some()
        return spot if on is None else self.f.select(on, spot, base)

    def _call_soon(self, spot: Val, t: Type) -> None:
        """Call for what comes some bytes behind what is read."""
        if self.soon:
            for line in range(0, t.bits // 8 * t.lanes, LINE):
                at = self.f.at(spot, self.soon.nbytes + line, I8)
                prefetch(self.f, at, near=self.soon.near)

    def _call_below(self, ix: Ix, spot: Val, size: int) -> None:
        """Call for what a loop down a column will read, some rows further."""
        step = (stride(ix, self.down) or 0) * size if self.down else 0
        for line in range(0, self.lanes * size if step >= FAR else 0, LINE):
            prefetch(self.f, self.f.at(spot, step * self.below + line, I8), near=False)

    def _woven(self, spot: Val, picks: list[int], t: Type) -> Val:
        """Elements of the run that begins at spot, by number; the others are not touched."""
        f, on = self.f, self._on()
        run = t.by(1 << max(picks).bit_length())
        self._call_soon(spot, run)
        if on is None and set(picks) == set(range(run.lanes)):
            return f.shuffle(f.load(run, spot), None, picks)
        return f.shuffle(f.masked_load(run, spot, self._read(on, picks, run)), None, picks)

    def _read(self, on: Val | None, picks: list[int], run: Type) -> Val:
        """Which elements of a run are read: those that a lane which is on picks."""
        f = self.f
        if on is None:
            return f.vector(I1.by(run.lanes), [n in picks for n in range(run.lanes)])
        off = f.zero(on.type)
        readers: list[list[int]] = [[] for _ in range(run.lanes)]
        for lane, place in enumerate(picks):
            readers[place].append(lane)
        found: Val | None = None
        for turn in range(max(map(len, readers))):
            lanes = [r[turn] if turn < len(r) else self.lanes for r in readers]
            some = f.shuffle(on, off, lanes)
            found = some if found is None else f.bitwise("or", found, some)
        assert found
        return found

    def _on(self) -> Val | None:
        """The mask of the lanes that are on, as a vector."""
        return None if self.mask is None else self.f.splat(self.mask, self.lanes)

    def _some(self) -> Val | None:
        """Whether any lane is on, as one bit; None if one always is."""
        if self.mask is None or self._tail():
            return None
        return any_lane(self.f, self.mask) if self.mask.type.lanes else self.mask

    def _uniform(self, base: Val, first: Int, t: Type) -> Val:
        """One element for all lanes; under a guard it may not be there."""
        f = self.f
        spot = f.at(base, first, t)
        on = self._some()
        if on is None:
            return f.load(t, spot)
        single = f.make(I1.by(1), f"insertelement <1 x i1> poison, {on}, i64 0")
        return f.extract(f.masked_load(t.by(1), spot, single), 0)

    def _tail(self) -> bool:
        """Whether the mask is only that of the last vector, where lane 0 is always on."""
        assert self.mask is not None
        return self.mask.ref.startswith("<")

    def store(self, buffer: Buffer, ix: Ix, x: Num) -> None:
        """Write elements of a buffer."""
        f, t, base = self.f, in_memory(buffer.dtype), self.base[buffer]
        parts = [narrowed(f, part, buffer.dtype) for part in x]
        if len(parts) == 1:
            self._store(base, ix, parts[0], t)
            return
        first, step, rest = self.spread(ix * 2)
        if rest is not None or step != 2:
            for p, part in enumerate(parts):
                self._store(base, ix * 2 + p, part, t)
            return
        n = self.lanes
        re, im = (f.splat(part, n) for part in parts)
        mixed = [k // 2 + k % 2 * n for k in range(2 * n)]
        for k, on in enumerate(self._twice()):
            row = f.shuffle(re, im, mixed[k * n : k * n + n])
            spot = f.at(base, f.plus(first, k * n), t)
            if on is None:
                self.past.store(base, row, spot, lined=self._lined(ix * 2 + k * n, t.bits // 8))
            else:
                f.masked_store(row, spot, on)

    def _store(self, base: Val, ix: Ix, x: Val, t: Type) -> None:
        f = self.f
        first, step, rest = self.spread(ix)
        if rest is None and step == 0:
            f.store(f.extract(x, 0) if x.type.lanes else x, f.at(base, first, t))
            return
        x = f.splat(x, self.lanes)
        if rest is None and step == 1:
            spot = f.at(base, first, t)
            if self.mask is None:
                self.past.store(base, x, spot, lined=self._lined(ix, t.bits // 8))
            else:
                f.masked_store(x, spot, self.mask)
            return
        f.scatter(x, base, self._lanes_of(first, step, rest), self._on())

    def pass_by(self, buffers: Iterable[Buffer], read: Collection[Buffer]) -> None:
        """Store to buffers past the caches, unless they lie where something is read.

        Lanes must fill registers.
        """
        wide = self.f.machine.vector_bytes
        for b in buffers:
            if b not in read and self.lanes * b.dtype.itemsize % wide == 0:
                self.past.add(self.base[b], [self.base[o] for o in self.order if o in read])

    def _lined(self, ix: Ix, size: int) -> bool:
        """Whether the first lane is a whole number of registers behind the start of a buffer.

        In every loop the first lane's place on its axis is a whole number of vectors.
        """
        steps = (c for atom, c in ix.terms.items() if atom is not self.vector)
        return not any(n * size % min(LINE, self.lanes * size) for n in (ix.const, *steps))

    def checked(self, i: Val, n: int, node: int) -> Val:
        """An index that counts from the end if negative; out of range is noted, and reads 0."""
        f, t, given = self.f, i.type, i
        size = f.const(t, n)
        i = f.select(f.compare("slt", i, f.zero(t)), f.add(i, size), i)
        bad = f.compare("uge", i, size)
        self._noted(given, bad, n, node, "i")
        return f.select(bad, f.zero(t), i)

    def required(self, x: Val, good: Val, said: str, node: int, kind: str) -> None:
        """Note where a number is not good."""
        f = self.f
        lanes = max(x.type.lanes, good.type.lanes)
        bad = f.bitwise("xor", f.splat(good, lanes), f.const(I1.by(lanes), 1))
        self._noted(f.splat(x, lanes), bad, said, node, kind)

    def over(self, which: int, carry: list[Val]) -> Val:
        """Whether one of the numbers that a loop carries is true in all lanes that are on."""
        f, done = self.f, carry[which]
        if not done.type.lanes:
            return done
        waiting = f.bitwise("xor", done, f.const(done.type, 1))
        on = self._on()
        waiting = waiting if on is None else f.bitwise("and", waiting, on)
        return f.bitwise("xor", any_lane(f, waiting), f.const(I1, 1))

    def _noted(self, x: Val, bad: Val, said: Any, node: int, kind: str) -> None:
        f, lanes = self.f, x.type.lanes
        on = self._on() if lanes else self._some()
        bad = bad if on is None else f.bitwise("and", bad, on)
        with f.when(any_lane(f, bad) if lanes else bad):
            self.faults.note(f, self.word, node + self.first, said, x, bad, kind)


def any_lane(f: Fn, mask: Val) -> Val:
    """Whether any lane is on."""
    bits = Type("i", mask.type.lanes)
    word = f.make(bits, f"bitcast {mask} to {bits.text}")
    return f.compare("ne", word, f.const(bits, 0))


def _plain(values: np.ndarray) -> np.ndarray:
    """Elements as a table has them: complex numbers in pairs, bools as bytes."""
    if values.dtype.kind == "c":
        return values.view(values.real.dtype)
    if values.dtype.kind == "b" or values.dtype.name == "bfloat16":
        return values.view(f"u{values.dtype.itemsize}")
    return values
