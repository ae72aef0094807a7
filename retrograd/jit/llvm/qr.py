"""Householder's factorization in panels: reflections of a panel are one product of matrices.

A panel of `block` columns is reflected column by column. Together its reflections are
I - v t v^T, where v has a column for each, with ones on the diagonal and zeros above, and t is
an upper triangle. What comes after the panel, and the identity that becomes q, is multiplied by
that, in tiles. v is there twice: as a panel [rows][block], and in transposed blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import ceil
from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.text import I64, PTR, Module, Type, Val
from retrograd.jit.llvm.triangle_pack import Lines, clear, kinds, turned
from retrograd.jit.llvm.triangle_tile import BLOCK, UPDATE, Panels, write_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrograd.jit.llvm.machine import Machine

__all__ = ["Tall", "power_near", "write_apply", "write_columns", "write_reflect"]


@dataclass(frozen=True)
class Tall(Panels):
    """A matrix of m rows and n columns, in panels."""

    m: int = 0

    @classmethod
    def shaped(cls, machine: Machine, m: int, n: int, t: Type) -> Tall:
        """As wide as pays: whole vectors, and no wider than the matrix."""
        lanes = machine.lanes(t.bits // 8)
        return cls(t, n, min(BLOCK, ceil(n / lanes) * lanes), m)

    @property
    def rows(self) -> int:
        """Rows with those of padding."""
        return ceil(self.m / self.block) * self.block

    @property
    def key(self) -> str:
        """In the names of functions."""
        return f"{self.type.suffix}_{self.m}_{self.n}_{self.block}"


def write_columns(module: Module, s: Tall) -> str:
    """(source, panel, j): columns j * block on of a matrix [m][n]."""
    name = f"qr_columns_{s.key}"
    return module.once(name, lambda: _write_columns(module, name, s))


def _write_columns(module: Module, name: str, s: Tall) -> None:
    args = [("source", PTR), ("panel", PTR), ("j", I64)]
    f = Fn(module, name, args, attributes="nounwind noinline")
    t, panel = s.type, f.arg("panel")
    source = f.at(f.arg("source"), f.times(f.arg("j"), s.block), t)
    for columns in kinds(f, f.arg("j"), s.n, s.block):
        lines = Lines(t, columns, s.n, s.block, s.block).write(module)
        f.call(lines, None, source, panel, f.const(I64, s.m))
    if s.rows > s.m:
        skip = s.m * s.block
        clear(f, f.at(panel, skip, t), (s.rows - s.m) * s.block * s.size)
    f.done()


# -- a panel -----------------------------------------------------------------------------------


def write_reflect(module: Module, s: Tall) -> str:
    """(panel, v, vt, t, j): reflect panel j; all from its diagonal on.

    v and vt get the vectors, t two blocks: its own and its transpose. The block of r on the
    diagonal takes its place in the panel.
    """
    name = f"qr_reflect_{s.key}"
    return module.once(name, lambda: _write_reflect(module, name, s))


def _write_reflect(module: Module, name: str, s: Tall) -> None:
    args = [*((n, PTR) for n in ("panel", "v", "vt", "t")), ("j", I64)]
    f = Fn(module, name, args, attributes="nounwind noinline")
    t, square, vt = s.type, s.block**2, f.arg("vt")
    factors = f.alloca(t, s.block)
    first = f.integer(f.times(f.arg("j"), s.block))
    blocks = f.sub(f.const(I64, s.rows // s.block), f.arg("j"))

    def block(of: str, i: Val) -> Val:
        return f.at(f.arg(of), f.times(i, square), t)

    with f.loop(0, blocks) as down:
        turned(f, s, block("panel", down.i), block("vt", down.i))
    clear(f, factors, s.block * s.size)
    columns = f.lesser(f.sub(f.const(I64, s.n), first), s.block)
    vector, less = _write_vector(module, s), _write_less(module, s)
    with f.loop(0, columns) as loop:
        tau = f.call(vector, t, vt, loop.i, blocks)
        assert tau
        f.store(tau, f.at(factors, loop.i, t))
        f.call(less, None, vt, loop.i, blocks, tau)
    turned(f, s, vt, f.arg("panel"))
    with f.loop(0, s.block) as across:  # ones on the diagonal, and zeros above
        line = f.at(vt, f.times(across.i, s.block), t)
        clear(f, line, f.times(across.i, s.size))
        f.store(f.const(t, 1), f.at(line, across.i, t))
    with f.loop(0, blocks) as down:
        turned(f, s, block("vt", down.i), block("v", down.i))
    _triangle(f, s, factors, f.integer(f.times(blocks, s.block)))
    f.done()


def _triangle(f: Fn, s: Tall, factors: Val, rows: Val) -> None:
    """t: column c is -tau[c] t (v^T v)[:, c] above its diagonal, which is tau[c]."""
    t, v, own = s.type, f.arg("v"), f.arg("t")
    wide, spots = _vectors(f, s)
    products = f.alloca(t, s.block**2)
    clear(f, products, s.block**2 * s.size)
    f.call(write_rows(f.module, s, s.block, UPDATE), None, v, v, products, rows)
    turn = f.at(own, s.block**2, t)  # the transpose, whose rows are found one after another
    clear(f, turn, s.block**2 * s.size)
    with f.loop(0, s.block) as down:
        tau = f.load(t, f.at(factors, down.i, t))
        with f.loop(0, down.i, carry=[f.zero(wide)] * len(spots)) as by:
            of = f.plus(f.times(by.i, s.block), down.i)  # negative, as products are taken off
            factor = f.splat(f.load(t, f.at(products, of, t)), wide.lanes)
            line = f.at(turn, f.times(by.i, s.block), t)
            pairs = zip(by.carry, spots, strict=True)
            by.next = [f.fma(factor, f.load(wide, f.at(line, at, t)), x) for x, at in pairs]
        line = f.at(turn, f.times(down.i, s.block), t)
        for x, at in zip(by.results, spots, strict=True):
            f.store(f.mul(x, f.splat(tau, wide.lanes)), f.at(line, at, t))
        f.store(tau, f.at(line, down.i, t))
    turned(f, s, turn, own)


def _vectors(f: Fn, s: Tall) -> tuple[Type, list[int]]:
    """The vectors of a column of a block: their type, and where they are."""
    lanes = f.machine.lanes(s.size)
    return s.type.by(lanes), list(range(0, s.block, lanes))


def _after(f: Fn, t: Type, at: int, row: Val, how: str = "sgt") -> Val:
    """Which lanes of the vector at some rows are after a row."""
    rows = f.vector(I64.by(t.lanes), range(at, at + t.lanes))
    return f.compare(how, rows, f.splat(row, t.lanes))


COLUMN = [("vt", PTR), ("c", I64), ("blocks", I64)]


def _write_vector(module: Module, s: Tall) -> str:
    """(vt, c, blocks): the reflection that makes column c zero below its diagonal; its factor.

    What is below becomes the vector, and the diagonal what is left of the column.
    """
    name = f"qr_vector_{s.type.suffix}_{s.block}"
    return module.once(name, lambda: _write_the_vector(module, name, s))


def _write_the_vector(module: Module, name: str, s: Tall) -> None:
    f = Fn(module, name, COLUMN, s.type, attributes="nounwind noinline")
    t, spots = _vectors(f, s)
    line = f.at(f.arg("vt"), f.times(f.arg("c"), s.block), t)
    size, up = _size(f, s, line)
    many = f.splat(up, t.lanes)

    def squares(a: Val, x: Val) -> Val:
        x = f.mul(x, many)
        return f.fma(x, x, a)

    head = f.at(line, f.arg("c"), t)
    alpha, one = f.load(s.type, head), f.const(s.type, 1)
    high = f.mul(alpha, up)
    total = f.fold("add", reduce(f.add, _below(f, s, line, f.zero(t), squares)))
    norm = f.div(f.intrinsic("sqrt", f.fma(high, high, total)), up)
    beta = f.neg(f.intrinsic("copysign", norm, alpha))
    none = f.compare("eq", size, f.zero(size.type))
    tau = f.select(none, f.zero(s.type), f.div(f.sub(beta, alpha), beta))
    by = f.splat(f.select(none, one, f.sub(alpha, beta)), t.lanes)
    for at in spots:
        x = f.load(t, f.at(line, at, t))
        mask = _after(f, t, at, f.arg("c"))
        f.store(f.select(mask, f.div(x, by), x), f.at(line, at, t))
    with f.loop(1, f.arg("blocks")) as loop:
        for at in spots:
            spot = f.at(line, f.plus(f.times(loop.i, s.block**2), at), t)
            f.store(f.div(f.load(t, spot), by), spot)
    f.store(f.select(none, alpha, beta), head)
    f.done(tau)


def _below(f: Fn, s: Tall, line: Val, start: Val, turn: Callable[[Val, Val], Val]) -> list[Val]:
    """What is below the diagonal of a column, folded by turn(so far, vector)."""
    t, spots = _vectors(f, s)
    own = [f.load(t, f.at(line, at, t)) for at in spots]
    masks = [_after(f, t, at, f.arg("c")) for at in spots]
    own = [f.select(mask, x, f.zero(t)) for mask, x in zip(masks, own, strict=True)]
    with f.loop(1, f.arg("blocks"), carry=[turn(start, x) for x in own]) as loop:
        here = f.at(line, f.times(loop.i, s.block**2), t)
        found = [f.load(t, f.at(here, at, t)) for at in spots]
        loop.next = [turn(a, x) for a, x in zip(loop.carry, found, strict=True)]
    return loop.results


def _size(f: Fn, s: Tall, line: Val) -> tuple[Val, Val]:
    """The largest magnitude below the diagonal, as bits; a power of two for all the column."""
    t, _ = _vectors(f, s)
    whole, most = Type("i", t.bits, t.lanes), 2 ** (t.bits - 1) - 1

    def larger(a: Val, b: Val) -> Val:
        return f.intrinsic("umax", a, b)

    def turn(a: Val, x: Val) -> Val:
        return larger(a, f.bitwise("and", f.bits(x), f.const(whole, most)))

    found = reduce(larger, _below(f, s, line, f.zero(whole), turn))
    size = f.intrinsic("vector.reduce.umax", found, result=whole.scalar)
    alpha = f.bits(f.load(s.type, f.at(line, f.arg("c"), t)))
    return size, power_near(f, larger(size, f.bitwise("and", alpha, f.const(size.type, most))))


def power_near(f: Fn, bits: Val) -> Val:
    """A power of two that makes a number with such bits about 1."""
    digits, most = (23, 254) if bits.type.bits == 32 else (52, 2046)
    t = bits.type
    field = f.bitwise("and", f.bitwise("lshr", bits, f.const(t, digits)), f.const(t, most + 1))
    other = f.sub(f.const(t, most), field)
    least, top = f.const(t, 1), f.const(t, most - 1)
    other = f.select(f.compare("slt", other, least), least, other)
    other = f.select(f.compare("sgt", other, top), top, other)
    return f.from_bits(f.bitwise("shl", other, f.const(t, digits)))


def _write_less(module: Module, s: Tall) -> str:
    """(vt, c, blocks, tau): the columns after c, reflected."""
    name = f"qr_less_{s.type.suffix}_{s.block}"
    return module.once(name, lambda: _write_the_less(module, name, s))


def _write_the_less(module: Module, name: str, s: Tall) -> None:
    f = Fn(module, name, [*COLUMN, ("tau", s.type)], attributes="nounwind noinline")
    t, spots = _vectors(f, s)
    vt, c, square = f.arg("vt"), f.arg("c"), s.block**2
    line = f.at(vt, f.times(c, s.block), t)
    first = []  # of the vector, where r is above it
    for at in spots:
        x = f.load(t, f.at(line, at, t))
        x = f.select(_after(f, t, at, c, "eq"), f.const(t, 1), x)
        first.append(f.select(_after(f, t, at, c, "slt"), f.zero(t), x))
    with f.loop(f.plus(c, 1), s.block) as across:
        other = f.at(vt, f.times(across.i, s.block), t)
        own = [f.load(t, f.at(other, at, t)) for at in spots]
        sums = [f.mul(x, y) for x, y in zip(first, own, strict=True)]
        with f.loop(1, f.arg("blocks"), carry=sums) as loop:
            skip = f.times(loop.i, square)
            places = [[f.at(o, f.plus(skip, at), t) for o in (line, other)] for at in spots]
            pairs = [[f.load(t, p) for p in both] for both in places]
            loop.next = [f.fma(a, b, x) for (a, b), x in zip(pairs, loop.carry, strict=True)]
        total = f.fold("add", reduce(f.add, loop.results))
        by = f.splat(f.neg(f.mul(total, f.arg("tau"))), t.lanes)
        for at, x in zip(spots, first, strict=True):
            spot = f.at(other, at, t)
            f.store(f.fma(by, x, f.load(t, spot)), spot)
        with f.loop(1, f.arg("blocks")) as loop:
            skip = f.times(loop.i, square)
            for at in spots:
                x, spot = (f.at(o, f.plus(skip, at), t) for o in (line, other))
                f.store(f.fma(by, f.load(t, x), f.load(t, spot)), spot)
    f.done()


# -- all of its reflections --------------------------------------------------------------------


def write_apply(module: Module, s: Tall) -> str:
    """(v, vt, t, x, blocks): x -= v t^T (v^T x), for a panel x; for t^T, give its transpose."""
    name = f"qr_apply_{s.type.suffix}_{s.block}"
    return module.once(name, lambda: _write_apply(module, name, s))


def _write_apply(module: Module, name: str, s: Tall) -> None:
    args = [*((n, PTR) for n in ("v", "vt", "t", "x")), ("blocks", I64)]
    f = Fn(module, name, args, attributes="nounwind noinline")
    t, square, x = s.type, s.block**2, f.arg("x")
    update, block = write_rows(module, s, s.block, UPDATE), f.const(I64, s.block)
    inner, outer = f.alloca(t, square), f.alloca(t, square)
    for place in (inner, outer):
        clear(f, place, square * s.size)
    f.call(update, None, f.arg("v"), x, inner, f.integer(f.times(f.arg("blocks"), s.block)))
    f.call(update, None, f.arg("t"), inner, outer, block)
    with f.loop(0, f.arg("blocks")) as down:
        skip = f.times(down.i, square)
        by, c = (f.at(o, skip, t) for o in (f.arg("vt"), x))
        f.call(update, None, by, outer, c, block)
    f.done()
