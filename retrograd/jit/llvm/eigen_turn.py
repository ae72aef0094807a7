"""Rotations that make a tridiagonal matrix diagonal, and vectors turned by them.

The implicit QL method with Wilkinson's shifts, in float64: it writes down what it turns, as
many sweeps as there is room for. Strips of vectors, which threads have for themselves, follow
while the next sweeps are found: so there is room for two such parts, by turns. A sweep from row
`top` up has `many` rotations; each turns a row and the one after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.text import F64, I1, I64, PTR, Module, Val

if TYPE_CHECKING:
    from retrograd.jit.llvm.eigen_reduce import Symmetric

__all__ = [
    "DONE",
    "FAILED",
    "PATIENCE",
    "STATE",
    "SWEEPS",
    "begun",
    "room",
    "write_apply",
    "write_sweeps",
]

PATIENCE = 30  # sweeps for each eigenvalue, of which two are usual
STATE = LEFT, FIRST, DONE, SWEEPS, _ = range(
    5
)  # numbers that sweeps go on from; SWEEPS are two
WORKING, FINISHED, FAILED = range(3)  # of DONE


def room(s: Symmetric) -> tuple[int, int]:
    """Rotations, and sweeps, of a part: both parts' rotations take a's place."""
    return s.n * s.row // 4, 4 * s.n


def begun(f: Fn, s: Symmetric, state: Val) -> None:
    """The state before the first sweep."""
    for number in STATE:
        value = (PATIENCE + 1) * s.n if number == LEFT else 0
        f.store(f.const(I64, value), f.at(state, number, I64))


def write_sweeps(module: Module, s: Symmetric, *, vectors: bool) -> str:
    """(d, e, turns, marks, state, sweeps): until all is diagonal, or there is no more room."""
    name = f"eigen_sweeps_{s.key}_{vectors:d}"
    args = [(n, PTR) for n in ("d", "e", "turns", "marks", "state", "sweeps")]
    f = Fn(module, name, args, attributes="nounwind noinline")
    return module.once(name, lambda: _Sweeps(f, s, vectors=vectors).write())


class _Sweeps:
    def __init__(self, f: Fn, s: Symmetric, *, vectors: bool) -> None:
        self.f, self.s, self.vectors = f, s, vectors
        self.used = f.alloca(I64, 1)  # rotations that are written down

    def write(self) -> None:
        """Look where the matrix falls apart, and turn the first part that is not one row."""
        f, s = self.f, self.s
        rotations, sweeps = room(s)
        f.store(f.const(I64, 0), self.used)
        f.store(f.const(I64, 0), f.arg("sweeps"))
        over = f.compare("ne", self._get(DONE), f.const(I64, WORKING))
        with f.loop(0, (PATIENCE + 1) * s.n, carry=[over], unless=lambda c: c[0]) as loop:
            first = self._get(FIRST)
            top = self._top(first)
            single = f.compare("eq", top, first)
            with f.when(single):
                self._set(FIRST, f.add(first, f.const(I64, 1)))
            with f.when(f.compare("ne", top, first)):
                self._sweep(first, top)
            left = f.sub(self._get(LEFT), f.const(I64, 1))
            self._set(LEFT, left)
            through = f.compare("sge", self._get(FIRST), f.const(I64, s.n))
            tired = f.compare("sle", left, f.const(I64, 0))
            outcome = f.select(tired, f.const(I64, FAILED), f.const(I64, WORKING))
            outcome = f.select(through, f.const(I64, FINISHED), outcome)
            self._set(DONE, outcome)
            full = f.compare("sgt", f.load(I64, self.used), f.const(I64, rotations - s.n))
            many = f.compare("sge", f.load(I64, f.arg("sweeps")), f.const(I64, sweeps))
            stop = f.compare("ne", outcome, f.const(I64, WORKING))
            if self.vectors:
                stop = f.bitwise("or", stop, f.bitwise("or", full, many))
            loop.next = [stop]
        f.done()

    def _get(self, number: int) -> Val:
        return self.f.load(I64, self.f.at(self.f.arg("state"), number, I64))

    def _set(self, number: int, x: Val) -> None:
        self.f.store(x, self.f.at(self.f.arg("state"), number, I64))

    def _number(self, name: str, i: Val) -> Val:
        return self.f.load(F64, self.f.at(self.f.arg(name), i, F64))

    def _keep(self, x: Val, name: str, i: Val) -> None:
        self.f.store(x, self.f.at(self.f.arg(name), i, F64))

    def _top(self, first: Val) -> Val:
        """The last row of the part that begins with `first`: what is beside it is nothing."""
        f, s = self.f, self.s
        eps = f.const(F64, 2.0 ** -(24 if s.type.bits == 32 else 53))
        start = [f.integer(first), f.const(I1, 0)]
        with f.loop(first, s.n - 1, carry=start, unless=lambda c: c[1]) as loop:
            following = f.add(loop.i, f.const(I64, 1))
            sizes = [f.intrinsic("fabs", self._number("d", i)) for i in (loop.i, following)]
            beside = f.intrinsic("fabs", self._number("e", loop.i))
            nothing = f.compare("ole", beside, f.mul(eps, f.add(*sizes)))
            loop.next = [f.select(nothing, loop.i, following), nothing]
        return loop.results[0]

    def _sweep(self, first: Val, top: Val) -> None:
        """One sweep from `top` up to `first`; the shift is near the eigenvalue there."""
        f, one = self.f, self.f.const(F64, 1)
        second = f.add(first, f.const(I64, 1))
        begin, beside = self._number("d", first), self._number("e", first)
        apart = f.sub(self._number("d", second), begin)
        g = f.div(apart, f.mul(beside, f.const(F64, 2)))
        r = f.intrinsic("sqrt", f.fma(g, g, one))
        shift = f.div(beside, f.add(g, f.intrinsic("copysign", r, g)))
        g = f.add(f.sub(self._number("d", top), begin), shift)
        many = f.sub(top, first)
        self._mark(top, many)
        carry = [one, one, g, f.zero(F64)]
        with f.loop(first, top, carry=carry, down=True) as loop:
            loop.next = self._rotation(loop.i, top, *loop.carry)
        _, _, g, p = loop.results
        self._keep(f.sub(self._number("d", first), p), "d", first)
        self._keep(g, "e", first)
        self._keep(f.zero(F64), "e", top)
        f.store(f.add(f.load(I64, self.used), many), self.used)

    def _rotation(self, i: Val, top: Val, c: Val, s: Val, g: Val, p: Val) -> list[Val]:
        """One rotation of rows i and i + 1; where there is nothing to turn, none."""
        f = self.f
        two, after = f.const(F64, 2), f.add(i, f.const(I64, 1))
        beside = self._number("e", i)
        off, b = f.mul(s, beside), f.mul(c, beside)
        r = f.intrinsic("sqrt", f.fma(off, off, f.mul(g, g)))
        self._keep(r, "e", after)
        none = f.compare("oeq", r, f.zero(F64))
        s = f.select(none, f.zero(F64), f.div(off, r))
        c = f.select(none, f.const(F64, 1), f.div(g, r))
        g = f.sub(self._number("d", after), p)
        r = f.fma(f.sub(self._number("d", i), g), s, f.mul(f.mul(two, c), b))
        p = f.mul(s, r)
        self._keep(f.add(g, p), "d", after)
        if self.vectors:
            number = f.sub(f.add(f.load(I64, self.used), f.sub(top, i)), f.const(I64, 1))
            t = self.s.type
            for k, x in enumerate((c, s)):
                x = f.convert("fptrunc", x, t)
                f.store(x, f.at(f.arg("turns"), f.plus(f.times(number, 2), k), t))
        return [c, s, f.sub(f.mul(c, r), b), p]

    def _mark(self, top: Val, many: Val) -> None:
        """Write down where a sweep is."""
        f, sweeps = self.f, self.f.load(I64, self.f.arg("sweeps"))
        if self.vectors:
            for k, x in enumerate((top, many)):
                f.store(x, f.at(f.arg("marks"), f.plus(f.times(sweeps, 2), k), I64))
            f.store(f.add(sweeps, f.const(I64, 1)), f.arg("sweeps"))


def write_apply(module: Module, s: Symmetric) -> str:
    """(z, turns, marks, sweeps): the rotations that were written down, on a strip of vectors.

    Two sweeps at a time, where the second is within the first: it follows two rows behind, and
    finds what the first one made of a row in registers.
    """
    name = f"eigen_apply_{s.key}"
    args = [(n, PTR) for n in ("z", "turns", "marks", "sweeps")]
    f = Fn(module, name, args, attributes="nounwind noinline")
    return module.once(name, lambda: _Turns(f, s).write())


class _Turns:
    """Rows of a strip go by, from the last one up."""

    def __init__(self, f: Fn, s: Symmetric) -> None:
        self.f, self.s = f, s
        self.steps = [j * s.lanes for j in range(s.abreast)]

    def write(self) -> None:
        """All sweeps, in their order."""
        f = self.f
        sweeps = f.load(I64, f.arg("sweeps"))
        start = [f.const(I64, 0), f.arg("turns")]
        with f.loop(
            0, sweeps, carry=start, unless=lambda c: f.compare("sge", c[0], sweeps)
        ) as loop:
            number, turns = loop.carry
            top, many, low, few = self._marks(number)
            more = f.compare("slt", f.add(number, f.const(I64, 1)), sweeps)
            first, second = f.sub(top, many), f.sub(low, few)
            inside = f.bitwise(
                "and", f.compare("sle", low, top), f.compare("sge", second, first)
            )
            both = f.bitwise("and", more, inside)
            with f.when(both):
                self._pair((top, first), (low, second), turns)
            with f.when(f.bitwise("xor", both, f.const(I1, 1))):
                held = self._row(top)
                self._finish(top, first, turns, held)
            pair = f.convert("zext", both, I64)
            done = f.add(many, f.mul(pair, few))
            loop.next = [
                f.add(f.add(number, f.const(I64, 1)), pair),
                f.at(turns, f.times(done, 2), self.s.type),
            ]
        f.done()

    def _marks(self, number: Val) -> list[Val]:
        """Of a sweep and of the next one: the row that it begins with, and its rotations."""
        f = self.f
        mark = f.at(f.arg("marks"), f.times(number, 2), I64)
        return [f.load(I64, f.at(mark, k, I64)) for k in range(4)]

    def _at(self, i: Val) -> Val:
        return self.f.at(self.f.arg("z"), self.f.times(i, self.s.across), self.s.type)

    def _row(self, i: Val) -> list[Val]:
        """A row of the strip."""
        spot = self._at(i)
        return [self.f.load(self.s.wide, self.f.at(spot, j, self.s.type)) for j in self.steps]

    def _keep(self, row: list[Val], spot: Val) -> None:
        for x, j in zip(row, self.steps, strict=True):
            self.f.store(x, self.f.at(spot, j, self.s.type))

    def _turned(
        self, turn: Val, row: list[Val], below: list[Val]
    ) -> tuple[list[Val], list[Val]]:
        """What a rotation makes of a row and of the one below it: that, and this."""
        f, t = self.f, self.s.type
        c, sine = (f.splat(f.load(t, f.at(turn, k, t)), self.s.lanes) for k in range(2))
        less = f.neg(sine)
        after = [f.fma(sine, x, f.mul(c, y)) for x, y in zip(row, below, strict=True)]
        return after, [f.fma(less, y, f.mul(c, x)) for x, y in zip(row, below, strict=True)]

    def _alone(self, top: Val, end: Val, turns: Val, held: list[Val]) -> tuple[Val, list[Val]]:
        """Rotations of one sweep, from a row up to another; where they end, and that row."""
        f, t = self.f, self.s.type
        with f.loop(end, top, carry=[turns, *held], down=True) as loop:
            turn, *below = loop.carry
            after, now = self._turned(turn, self._row(loop.i), below)
            self._keep(after, self._at(f.add(loop.i, f.const(I64, 1))))
            loop.next = [f.at(turn, 2, t), *now]
        turn, *row = loop.results
        return turn, row

    def _finish(self, top: Val, end: Val, turns: Val, held: list[Val]) -> None:
        """The rest of a sweep."""
        _, row = self._alone(top, end, turns, held)
        self._keep(row, self._at(end))

    def _pair(self, outer: tuple[Val, Val], inner: tuple[Val, Val], turns: Val) -> None:
        """A sweep, and one within it."""
        f, t, one = self.f, self.s.type, self.f.const(I64, 1)
        (top, first), (low, second) = outer, inner
        many = f.sub(top, first)
        other = f.at(turns, f.times(many, 2), t)
        turn, held = self._alone(top, low, turns, self._row(top))
        before = f.sub(low, one)
        behind, held = self._turned(turn, self._row(before), held)
        carry = [f.at(turn, 2, t), other, *held, *behind]
        with f.loop(second, before, carry=carry, down=True) as loop:
            turn, other = loop.carry[:2]
            held, behind = loop.carry[2 : 2 + self.s.abreast], loop.carry[2 + self.s.abreast :]
            between, held = self._turned(turn, self._row(loop.i), held)
            after, behind = self._turned(other, between, behind)
            self._keep(after, self._at(f.add(loop.i, f.const(I64, 2))))
            loop.next = [f.at(turn, 2, t), f.at(other, 2, t), *held, *behind]
        turn, other = loop.results[:2]
        held, behind = loop.results[2 : 2 + self.s.abreast], loop.results[2 + self.s.abreast :]
        self._finish(second, first, turn, held)
        after, now = self._turned(other, self._row(second), behind)
        self._keep(after, self._at(f.add(second, one)))
        self._keep(now, self._at(second))
