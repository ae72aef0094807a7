"""A symmetric matrix made tridiagonal by reflections, and their product.

Reflection k clears row k beyond its neighbour: H = I - tau v v^T, and the rest becomes
A - v w^T - w v^T. That update waits for the next reflection, whose product with the rest needs
all of it anyway: each element is read and written once a turn, of the upper half alone.
Squares on the diagonal, a vector wide, are kept whole, and padding is zero, so that all is done
in whole vectors.

The vectors of the tridiagonal matrix come later, and are turned back by the transposed product
of the reflections. It is made in strips of columns, which threads have for themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.qr import power_near
from retrograd.jit.llvm.text import F64, I64, PTR, Int, Module, Type, Val
from retrograd.jit.llvm.triangle_pack import clear

if TYPE_CHECKING:
    from retrograd.jit.llvm.machine import Machine

__all__ = ["Symmetric", "write_begin", "write_product", "write_reduce"]

ROWS = 4  # that are updated together: they share what they load of v and w
# A sum of squares that is nothing beside a matrix of size 1; squares that are not precise are
# nothing beside it.
NOTHING = {32: 2.0**-100, 64: 2.0**-900}


@dataclass(frozen=True)
class Symmetric:
    """A symmetric matrix of n rows, padded to whole vectors."""

    type: Type
    n: int
    lanes: int
    abreast: int  # vectors across a strip: two rows of them are in registers

    @classmethod
    def of(cls, machine: Machine, n: int, t: Type) -> Symmetric:
        """In vectors of the machine."""
        return cls(t, n, machine.lanes(t.bits // 8), machine.registers // 8)

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.type.bits // 8

    @property
    def wide(self) -> Type:
        """A vector."""
        return self.type.by(self.lanes)

    @property
    def row(self) -> int:
        """Elements from row to row."""
        return ceil(self.n / self.lanes) * self.lanes

    @property
    def across(self) -> int:
        """Columns of a strip."""
        return self.abreast * self.lanes

    @property
    def strips(self) -> int:
        """Strips of columns."""
        return ceil(self.n / self.across)

    @property
    def key(self) -> str:
        """In the names of functions."""
        return f"{self.type.suffix}_{self.n}_{self.lanes}"


def _written(module: Module, what: str, s: Symmetric, names: str) -> tuple[str, Fn]:
    name = f"eigen_{what}_{s.key}"
    args = [(n, PTR) for n in names.split()]
    return name, Fn(module, name, args, attributes="nounwind noinline")


# -- what there is to begin with ---------------------------------------------------------------


def write_begin(module: Module, s: Symmetric) -> str:
    """(x, a, up): the symmetric part of x in a, times a power of two that makes it about 1.

    The power goes to `up`. It is nan where x is not finite: a is the identity then.
    """
    name, f = _written(module, "begin", s, "x a up")
    return module.once(name, lambda: _write_begin(f, s))


def _write_begin(f: Fn, s: Symmetric) -> None:
    t, n, x = s.type, s.n, f.arg("x")
    whole = Type("i", t.bits)
    sign = f.const(whole, 2 ** (t.bits - 1) - 1)
    with f.loop(0, n * n, carry=[f.const(whole, 0)]) as loop:
        bits = f.bitwise("and", f.bits(f.load(t, f.at(x, loop.i, t))), sign)
        loop.next = [f.intrinsic("umax", loop.carry[0], bits)]
    most = loop.results[0]
    finite = f.compare("olt", f.from_bits(most), f.const(t, float("inf")))
    up = power_near(f, most)
    f.store(f.select(finite, up, f.const(t, float("nan"))), f.arg("up"))
    half = f.mul(up, f.const(t, 0.5))
    clear(f, f.arg("a"), n * s.row * s.size)
    with f.loop(0, n) as down, f.loop(0, n) as along:
        places = (down.i, along.i), (along.i, down.i)
        spots = [f.at(x, f.plus(f.times(i, n), j), t) for i, j in places]
        one, other = (f.mul(f.load(t, p), half) for p in spots)
        same = f.compare("eq", down.i, along.i)
        identity = f.select(same, f.const(t, 1), f.zero(t))
        to = f.at(f.arg("a"), f.plus(f.times(down.i, s.row), along.i), t)
        f.store(f.select(finite, f.add(one, other), identity), to)
    f.done()


# -- reflections -------------------------------------------------------------------------------


def write_reduce(module: Module, s: Symmetric) -> str:
    """(a, v, w, p, tau, d, e): the diagonal d and what is beside it, e, in float64.

    v has a row for each reflection, from its second on; a is used up, w and p are room for a
    row each.
    """
    name, f = _written(module, "reduce", s, "a v w p tau d e")
    return module.once(name, lambda: _Reduction(f, s).write())


class _Reduction:
    """Writes the turns."""

    def __init__(self, f: Fn, s: Symmetric) -> None:
        self.f, self.s = f, s

    def write(self) -> None:
        """All of them; the last two have nothing to clear."""
        f, s = self.f, self.s
        clear(f, f.arg("w"), s.row * s.size)
        clear(f, f.arg("v"), (s.n + 1) * s.row * s.size)
        with f.loop(0, s.n) as turn:
            before = f.at(f.arg("v"), f.times(turn.i, s.row), s.type)
            now = f.at(before, s.row, s.type)
            tau = self._reflection(turn.i, before, now)
            f.store(tau, f.at(f.arg("tau"), turn.i, s.type))
            self._rest(turn.i, before, now)
            self._update(turn.i, now, tau)
        f.done()

    def _vectors(self, first: Val) -> tuple[Val, int, int]:
        """Of a row, from that which holds an element on."""
        whole = self.f.bitwise("and", first, self.f.const(I64, -self.s.lanes))
        return whole, self.s.row, self.s.lanes

    def _scalar(self, name: Val, i: Int) -> Val:
        return self.f.load(self.s.type, self.f.at(name, i, self.s.type))

    def _keep(self, x: Val, name: str, i: Val) -> None:
        f = self.f
        f.store(f.convert("fpext", x, F64), f.at(f.arg(name), i, F64))

    def _reflection(self, k: Val, before: Val, now: Val) -> Val:
        """The vector that clears row k, in its row of v; its factor."""
        f, s = self.f, self.s
        t, wide = s.type, s.wide
        row = f.at(f.arg("a"), f.times(k, s.row), t)
        lanes = Type("i", 64, s.lanes)
        ours = [f.neg(self._scalar(p, k)) for p in (before, f.arg("w"))]
        ours = [f.splat(x, s.lanes) for x in ours]
        neighbour = f.splat(f.add(k, f.const(I64, 1)), s.lanes)
        with f.loop(*self._vectors(k), carry=[f.zero(wide)]) as loop:
            at = [f.at(p, loop.i, t) for p in (row, before, f.arg("w"), now)]
            x, v, w = (f.load(wide, p) for p in at[:3])
            x = f.fma(ours[1], v, f.fma(ours[0], w, x))
            f.store(x, at[0])
            place = f.add(f.splat(loop.i, s.lanes), f.iota(lanes))
            x = f.select(f.compare("sgt", place, neighbour), x, f.zero(wide))
            f.store(x, at[3])
            loop.next = [f.fma(x, x, loop.carry[0])]
        total = f.fold("add", loop.results[0])
        self._keep(self._scalar(row, k), "d", k)
        beside = f.lesser(f.plus(k, 1), s.n - 1)
        alpha = self._scalar(row, beside)
        norm = f.intrinsic("sqrt", f.fma(alpha, alpha, total))
        beta = f.neg(f.intrinsic("copysign", norm, alpha))
        none = f.compare("olt", total, f.const(t, NOTHING[t.bits]))
        self._keep(f.select(none, alpha, beta), "e", k)
        by = f.splat(f.select(none, f.const(t, 1), f.sub(alpha, beta)), s.lanes)
        with f.loop(*self._vectors(k)) as loop:
            spot = f.at(now, loop.i, t)
            f.store(f.div(f.load(wide, spot), by), spot)
        with f.when(f.compare("slt", k, f.const(I64, s.n - 1))):
            f.store(f.const(t, 1), f.at(now, f.plus(k, 1), t))
        return f.select(none, f.zero(t), f.div(f.sub(beta, alpha), beta))

    def _rest(self, k: Val, before: Val, now: Val) -> None:
        """What the last reflection left to do to the rows below, and their product with v."""
        f, s = self.f, self.s
        clear(f, f.arg("p"), s.row * s.size)
        abreast = min(ROWS, s.lanes)
        first, end = f.integer(f.plus(k, 1)), f.const(I64, s.n)
        mask = f.const(I64, -abreast)
        whole = f.add(first, f.const(I64, abreast - 1))
        begin = f.integer(f.lesser(f.bitwise("and", whole, mask), end))
        stop = f.add(begin, f.bitwise("and", f.sub(end, begin), mask))
        for low, high, rows in ((first, begin, 1), (begin, stop, abreast), (stop, end, 1)):
            with f.loop(low, high, rows) as down:
                self._rows(down.i, rows, before, now)

    def _rows(self, first: Val, rows: int, before: Val, now: Val) -> None:
        """Of some rows of a square, that and what is beside it; which stands for what is below.

        The square on the diagonal is whole, and its elements count once.
        """
        f, s = self.f, self.s
        t, wide, w = s.type, s.wide, f.arg("w")
        top = f.at(f.arg("a"), f.times(first, s.row), t)
        at = [f.plus(first, i) for i in range(rows)]
        pairs = [[f.splat(f.neg(self._scalar(p, i)), s.lanes) for p in (before, w)] for i in at]
        own = [f.splat(self._scalar(now, i), s.lanes) for i in at]

        def column(j: Val, sums: list[Val]) -> tuple[list[Val], list[Val]]:
            v, w_, new = (f.load(wide, f.at(p, j, t)) for p in (before, w, now))
            found, sums = [], list(sums)
            for i, (mine, others) in enumerate(pairs):
                spot = f.at(top, f.plus(j, i * s.row), t)
                x = f.fma(others, v, f.fma(mine, w_, f.load(wide, spot)))
                f.store(x, spot)
                found.append(x)
                sums[i] = f.fma(x, new, sums[i])
            return found, sums

        square, end, step = self._vectors(first)
        _, sums = column(square, [f.zero(wide)] * rows)
        with f.loop(f.plus(square, step), end, step, carry=sums) as loop:
            found, loop.next = column(loop.i, loop.carry)
            spot = f.at(f.arg("p"), loop.i, t)
            total = f.load(wide, spot)
            for x, mine in zip(found, own, strict=True):
                total = f.fma(x, mine, total)
            f.store(total, spot)
        for i, x in zip(at, loop.results, strict=True):
            spot = f.at(f.arg("p"), i, t)
            f.store(f.add(f.load(t, spot), f.fold("add", x)), spot)

    def _update(self, k: Val, now: Val, tau: Val) -> None:
        """w, by which the rest will be updated: tau p, less half of what of it is along v."""
        f, s = self.f, self.s
        t, wide = s.type, s.wide
        with f.loop(*self._vectors(k), carry=[f.zero(wide)]) as loop:
            p, v = (f.load(wide, f.at(x, loop.i, t)) for x in (f.arg("p"), now))
            loop.next = [f.fma(p, v, loop.carry[0])]
        along = f.mul(f.mul(tau, tau), f.fold("add", loop.results[0]))
        by, less = (f.splat(x, s.lanes) for x in (tau, f.mul(along, f.const(t, -0.5))))
        with f.loop(*self._vectors(k)) as loop:
            p, v = (f.load(wide, f.at(x, loop.i, t)) for x in (f.arg("p"), now))
            f.store(f.fma(less, v, f.mul(by, p)), f.at(f.arg("w"), loop.i, t))


# -- their product -----------------------------------------------------------------------------


def write_product(module: Module, s: Symmetric) -> str:
    """(z, v, tau, first): a strip of the transposed product; `first` is its first column.

    All reflections, the first one first, are applied to columns of the identity. What a row
    becomes goes into the product of the next vector at once.
    """
    name = f"eigen_product_{s.key}"
    args = [("z", PTR), ("v", PTR), ("tau", PTR), ("first", I64)]
    f = Fn(module, name, args, attributes="nounwind noinline")
    return module.once(name, lambda: _write_product(f, s))


def _write_product(f: Fn, s: Symmetric) -> None:
    t, wide, z, first = s.type, s.wide, f.arg("z"), f.arg("first")
    clear(f, z, s.n * s.across * s.size)
    end = f.lesser(f.plus(first, s.across), s.n)
    with f.loop(first, f.integer(end)) as loop:
        skip = f.plus(f.times(loop.i, s.across), f.sub(loop.i, first))
        f.store(f.const(t, 1), f.at(z, skip, t))
    steps = [j * s.lanes for j in range(s.abreast)]
    # Of the identity, what the first vector gives is the vector itself; from its second on.
    begin = f.at(f.arg("v"), f.plus(s.row, first), t)
    sums = [f.load(wide, f.at(begin, j, t)) for j in steps]
    with f.loop(0, s.n - 2, carry=sums) as turn:
        tau = f.load(t, f.at(f.arg("tau"), turn.i, t))
        by = [f.mul(x, f.splat(f.neg(tau), s.lanes)) for x in turn.carry]
        now = f.at(f.arg("v"), f.times(f.plus(turn.i, 1), s.row), t)
        with f.loop(f.plus(turn.i, 1), s.n, carry=[f.zero(wide)] * s.abreast) as down:
            here, following = (
                f.splat(f.load(t, f.at(now, f.plus(down.i, skip), t)), s.lanes)
                for skip in (0, s.row)
            )
            row = f.at(z, f.times(down.i, s.across), t)
            for n, j in enumerate(steps):
                x = f.fma(here, by[n], f.load(wide, f.at(row, j, t)))
                f.store(x, f.at(row, j, t))
                down.next[n] = f.fma(following, x, down.carry[n])
        turn.next = list(down.results)
    f.done()
