"""Blocks of a matrix product that are held in registers.

A tile function has the signature (a, b, c, depth, more): it adds up `depth` steps of k, adds
what c holds if `more` is 1, and stores. After these are the `panel` of one that keeps b, and
where what it is to call for begins: the `next` of a, what is `beside` c. Kernels of the same
strides share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.repeat import repeat
from retrograd.jit.llvm.text import I1, I64, PTR, Int, Module, Type, Val

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "Calls",
    "SIGNATURE",
    "Tile",
    "load_some",
    "multiply_add",
    "prefetch",
    "some_lanes",
]

LINE = 512  # bits of a cache line
MOST_WRITTEN = 256  # multiply-adds that are written out in a turn of a loop
AHEAD = 16  # rows, in other pages than those read now, that are called for
LANE = 128  # bits within which numbers are spread at no distance
SOON = 8  # steps of k from those that are read to those called for from the second cache
SIGNATURE = [("a", PTR), ("b", PTR), ("c", PTR), ("depth", I64), ("more", I64)]


def multiply_add(f: Fn, a: Val, b: Val, c: Val) -> Val:
    """a * b + c; integers wrap around."""
    return f.fma(a, b, c) if a.type.kind == "f" else f.add(f.mul(a, b), c)


def some_lanes(f: Fn, lanes: int, count: int) -> Val:
    """The mask of the first `count` lanes."""
    return f.vector(I1.by(lanes), [n < count for n in range(lanes)])


def load_some(f: Fn, t: Type, pointer: Val, count: int) -> Val:
    """A vector of which only the first `count` lanes are read; 0 is all."""
    if not count or count == t.lanes:
        return f.load(t, pointer)
    return f.masked_load(t, pointer, some_lanes(f, t.lanes, count))


def store_some(f: Fn, x: Val, pointer: Val, count: int) -> None:
    """Write the first `count` lanes; 0 is all."""
    if not count or count == x.type.lanes:
        f.store(x, pointer)
    else:
        f.masked_store(x, pointer, some_lanes(f, x.type.lanes, count))


def prefetch(f: Fn, at: Val, *, near: bool = True, write: bool = False) -> None:
    """Call for a cache line: to the first cache, or to the second only; to be written."""
    f.module.declare("llvm.prefetch.p0", "void", "ptr, i32, i32, i32")
    how = f"i32 {write:d}, i32 {3 if near else 2}, i32 1"
    f.emit(f"call void @llvm.prefetch.p0({at}, {how})")


def _sealed(f: Fn, x: Val) -> Val:
    """The same, of which LLVM does not know where it is from: it would load its parts anew."""
    return f.make(x.type, f'call {x.type.text} asm "", "=v,0"({x})')


class Calls(NamedTuple):
    """Cache lines that a tile calls for, a few for each of its rows; distances in elements."""

    step: int  # from those of a row to those of the next
    lines: int  # side by side
    runs: int = 1  # of such lines, `stride` apart
    stride: int = 0


@dataclass(frozen=True)
class Tile:
    """rows x vectors of results; lanes run along columns."""

    type: Type
    rows: int
    vectors: int
    a: tuple[int, int]  # strides of rows and of k
    b: int  # stride of k; columns are next to each other
    c: int  # stride of rows
    load_tail: int = 0  # lanes of b's last vector that exist; 0: all
    store_tail: int = 0  # lanes of c's last vector that exist; 0: all
    ahead: bool = False  # whether to call for the rows of the next tile
    fetch: bool = False  # whether to call for c, which is far away, before it is needed
    keep: bool = False  # whether to copy what is read of b to a dense `panel`
    calls: tuple[Calls, ...] = ()  # what to call for, from `next0`, `next1`... on
    beside: tuple[int, int] = (0, 0)  # arrays to call for like c, and their stride of rows
    later: int = 0  # lines to call for with each row, of what another kernel reads after this
    depth: int = 0  # steps of k, where all calls have as many, and few
    soon: bool = False  # whether to call for what is read soon, of panels in the second cache
    turns: int = 1  # steps of k in a turn of the loop
    weft: tuple[int, ...] = ()  # strides of rows of another tile that are packed: from, to
    matrix: int = 0  # elements to the next b: called for, as is what a and c go on with
    spread: bool = False  # whether some numbers of a are spread in registers: loads are slow

    @property
    def name(self) -> str:
        """One for each set of fields."""
        shape = f"{self.type.suffix}_{self.rows}x{self.vectors}"
        strides = f"{self.a[0]}_{self.a[1]}_{self.b}_{self.c}"
        tails = f"{self.load_tail}_{self.store_tail}"
        flags = f"{self.ahead:d}{self.fetch:d}{self.keep:d}{self.soon:d}{self.spread:d}"
        counts = *self.beside, self.later, self.depth, self.turns, self.matrix
        rest = "_".join(map(str, (*counts, *chain(*self.calls), *self.weft)))
        return f"gemm_tile_{shape}_{strides}_{tails}_{flags}_{rest}"

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        return module.once(self.name, lambda: self._write(module))

    def _write(self, module: Module) -> None:
        more = ["panel"] * self.keep + [f"next{n}" for n in range(len(self.calls))]
        more += [f"beside{n}" for n in range(self.beside[0])] + ["later"] * bool(self.later)
        args = [*SIGNATURE, *((name, PTR) for name in more)]
        args += [("from", PTR), ("to", PTR), ("share", I64)] * bool(self.weft)
        f = Fn(module, self.name, args, attributes="nounwind noinline")
        lanes = module.machine.lanes(self.type.bits // 8)
        zeros = [f.zero(self.type.by(lanes))] * (self.rows * self.vectors)
        sums = self._summed(f, [f.arg("a"), f.arg("b"), *zeros])
        # A loop of at most one turn is a branch with results.
        with f.loop(0, f.arg("more"), carry=sums) as again:
            pairs = zip(again.carry, self._spots(f), strict=True)
            again.next = [f.add(load_some(f, x.type, at, tail), x) for x, (at, tail) in pairs]
        for x, (at, tail) in zip(again.results, self._spots(f), strict=True):
            store_some(f, x, at, tail)
        f.done()

    def _summed(self, f: Fn, ends: list[Val]) -> list[Val]:
        """All steps of k. What comes from afar is called for on the way, some for each row.

        Called for all at once, it would be waited for: a core has 16 lines under way at most.
        """
        depth, kinds = f.arg("depth"), self._far(f)
        if not kinds:
            return (self._few(f, ends) if self.depth else self._all(f, depth, ends))[2:]
        each = self._whole(f, f.div(depth, f.const(I64, self.rows)))
        places = [start for start, _, _ in kinds]
        with f.loop(0, self.rows, carry=[*places, *ends]) as row:
            here = row.carry[: len(kinds)]
            for at, (_, calls, near) in zip(here, kinds, strict=True):
                self._call(f, at, calls, near=near)
            on = [f.at(p, k[1].step, self.type) for p, k in zip(here, kinds, strict=True)]
            first = f.mul(row.i, each)
            mine = first, f.add(first, each)
            aside = self._weave(f, row.i, first) if self.weft else None
            sums = self._steps(f, *mine, row.carry[len(kinds) :], self.turns, aside)
            row.next = [*on, *sums]
        done = f.times(each, self.rows)
        return self._steps(f, done, depth, row.results[len(kinds) :])[2:]

    def _weave(self, f: Fn, row: Val, first: Val) -> Callable[[Val], None]:
        """What packs a number of a row at each step of k that is not before the first.

        The last one again and again, where steps are more than numbers. They go by registers
        of the integer kind: those for vectors hold sums.
        """
        down, deep, across = self.weft
        source = f.at(f.arg("from"), f.times(row, down), self.type)
        target = f.at(f.arg("to"), row, self.type)
        last, whole = f.sub(f.arg("share"), f.const(I64, 1)), Type("i", self.type.bits)

        def move(k: Val) -> None:
            n = f.integer(f.lesser(f.sub(k, first), last))
            x = f.load(whole, f.at(source, f.times(n, deep), self.type))
            f.store(x, f.at(target, f.times(n, across), self.type))

        return move

    def _far(self, f: Fn) -> list[tuple[Val, Calls, bool]]:
        """Where what is far away begins, which lines of it, and if they are needed here."""
        lanes = self.vectors * f.machine.lanes(self.type.bits // 8)
        lines = -(-lanes * self.type.bits // LINE)
        found = [(f.arg("c"), Calls(self.c, lines), True)] if self.fetch else []
        found += [(f.arg(f"next{n}"), calls, False) for n, calls in enumerate(self.calls)]
        count, stride = self.beside
        beside = [f.arg(f"beside{n}") for n in range(count)]
        found += [(start, Calls(stride, lines), False) for start in beside]
        if self.later:
            dense = Calls(self.later * (LINE // self.type.bits), self.later)
            found.append((f.arg("later"), dense, False))
        return found

    def _call(self, f: Fn, at: Val, calls: Calls, *, near: bool) -> None:
        for run in range(calls.runs):
            for n in range(calls.lines):
                spot = run * calls.stride + n * (LINE // self.type.bits)
                prefetch(f, f.at(at, spot, self.type), near=near)

    def _whole(self, f: Fn, steps: Val) -> Val:
        """As many of some steps as fill turns of the loop."""
        turns = f.const(I64, self.turns)
        return steps if self.turns == 1 else f.mul(f.div(steps, turns), turns)

    def _all(self, f: Fn, depth: Val, ends: list[Val]) -> list[Val]:
        """All steps of k: in turns of several, and those left one by one."""
        if self.turns == 1:
            return self._steps(f, 0, depth, ends)
        whole = self._whole(f, depth)
        return self._steps(f, whole, depth, self._steps(f, 0, whole, ends, self.turns))

    def _steps(
        self,
        f: Fn,
        low: Int,
        high: Int,
        ends: list[Val],
        turns: int = 1,
        aside: Callable[[Val], None] | None = None,
    ) -> list[Val]:
        """Some steps of k; what goes round are places in a and b, and sums."""
        with f.loop(low, high, turns, carry=ends) as loop:
            if self.ahead:
                self._call_ahead(f, loop.i)
            if aside:
                aside(loop.i)
            loop.next = self._written(f, turns, loop.carry, loop.i)
        return list(loop.results)

    def _few(self, f: Fn, ends: list[Val]) -> list[Val]:
        """All of a few steps of k: written out, or several in each turn of a loop."""
        size = self.rows * self.vectors
        turns = max(n for n in range(1, self.depth + 1) if self._fits(n, size))
        if turns == self.depth:
            return self._written(f, turns, ends)
        with repeat(f, self.depth, ends, turns) as loop:
            loop.next = self._written(f, turns, loop.carry, loop.i)
        return list(loop.results)

    def _written(self, f: Fn, turns: int, ends: Sequence[Val], first: Int = 0) -> list[Val]:
        """Steps from places that move on, as loads with an index take two instructions."""
        a, b, *sums = ends
        t = self.type
        group = LANE // t.bits if self.spread and not turns * t.bits % LANE else 1
        for n in range(0, turns, group):
            if group > 1:
                self._spread(f, a, b, group, sums)
            else:
                self._step(f, a, b, f.integer(f.plus(first, n)), sums)
            if self.matrix:
                self._call_after(f, first, n)
            a, b = (f.at(x, group * step, t) for x, step in ((a, self.a[1]), (b, self.b)))
        return [a, b, *sums]

    def _fits(self, turns: int, size: int) -> bool:
        """Whether so many steps may be written out in a turn, of so many multiply-adds each."""
        return not self.depth % turns and (turns == 1 or turns * size <= MOST_WRITTEN)

    def _step(self, f: Fn, a: Val, b: Val, k: Val, sums: list[Val]) -> None:
        t, last = sums[0].type, self.vectors - 1
        across = [
            load_some(f, t, f.at(b, j * t.lanes, t), self.load_tail if j == last else 0)
            for j in range(self.vectors)
        ]
        if self.keep:
            here = f.at(f.arg("panel"), f.times(k, self.vectors * t.lanes), t)
            for j, x in enumerate(across):
                f.store(x, f.at(here, j * t.lanes, t))
            for at in range(0, self.vectors * t.lanes, 512 // t.bits):
                prefetch(f, f.at(b, AHEAD * self.b + at, t))
        if self.soon:
            self._call(f, f.at(a, SOON * self.a[1], t), Calls(0, 1), near=True)
            lines = -(-self.vectors * t.lanes * t.bits // LINE)
            self._call(f, f.at(b, SOON * self.b, t), Calls(0, lines), near=True)
        for i in range(self.rows):
            x = f.splat(f.load(self.type, f.at(a, i * self.a[0], self.type)), t.lanes)
            for j, y in enumerate(across):
                n = i * self.vectors + j
                sums[n] = multiply_add(f, x, y, sums[n])

    def _call_after(self, f: Fn, first: Int, n: int) -> None:
        """A share of what a batch goes on with, in step n of a turn that begins with `first`.

        All matrices may be more than the second cache holds, and each is too short for the
        hardware to see how it goes on. Called for all at once, it would be waited for.
        """
        lanes, line = f.machine.lanes(self.type.bits // 8), LINE // self.type.bits
        rows, columns = self.rows * self.depth, self.rows * self.vectors * lanes
        for name, begin, length in (
            ("a", rows, rows),
            ("b", self.matrix, self.depth * self.b),
            ("c", columns, columns),
        ):
            share = ceil(length / line / self.depth) * line
            start = f.at(f.arg(name), begin, self.type)
            start = f.at(start, f.times(first, share), self.type)
            for at in range(n * share, (n + 1) * share, line):
                prefetch(f, f.at(start, at, self.type), write=name == "c")

    def _spread(self, f: Fn, a: Val, b: Val, group: int, sums: list[Val]) -> None:
        """Some steps of k: half of the numbers of a row come with one load.

        In a tile of one vector each multiply-add takes a load of its own, as many in a cycle
        as there are multiply-adds, and those of b come on top.
        """
        t = sums[0].type
        across = [load_some(f, t, f.at(b, k * self.b, t), self.load_tail) for k in range(group)]
        for i in range(self.rows):
            here = f.at(a, i * self.a[0], t)
            some = f.load(self.type.by(group), here)
            lanes = _sealed(f, f.shuffle(some, None, [n % group for n in range(t.lanes)]))
            for k, y in enumerate(across):
                if 2 * k < group:
                    x = f.shuffle(lanes, None, [n - n % group + k for n in range(t.lanes)])
                else:
                    x = f.splat(f.load(self.type, f.at(here, k, t)), t.lanes)
                sums[i] = multiply_add(f, x, y, sums[i])

    def _call_ahead(self, f: Fn, k: Val) -> None:
        """One line of the next rows each step: eight rows in turn, then the next lines."""
        row = f.bitwise("and", k, f.const(I64, 7))
        line = f.bitwise("lshr", k, f.const(I64, 3))
        skip = f.plus(f.times(row, self.a[0]), self.rows * self.a[0])
        place = f.plus(skip, f.times(line, 512 // self.type.bits))
        prefetch(f, f.at(f.arg("a"), place, self.type))

    def _spots(self, f: Fn) -> list[tuple[Val, int]]:
        """Where each vector of results goes, and how many of its lanes."""
        lanes, last = f.machine.lanes(self.type.bits // 8), self.vectors - 1
        return [
            (
                f.at(f.arg("c"), i * self.c + j * lanes, self.type),
                self.store_tail if j == last else 0,
            )
            for i in range(self.rows)
            for j in range(self.vectors)
        ]
