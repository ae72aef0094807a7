"""Elimination with row exchanges: a panel of columns is factored, and taken off those after it.

A matrix is in panels of `block` columns, each [rows][block], padded with zeros, and with ones
on the diagonal. A panel is factored in transposed blocks: [block of rows][column][row], from
its diagonal on. So lanes run down a column where a pivot is looked for, and tiles find the
lower factor as they read it. The block on the diagonal has both factors: below its diagonal
the lower, whose ones are left out, and the upper elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm_pack import Pack
from retrograd.jit.llvm.text import I64, PTR, Int, Module, Type, Val
from retrograd.jit.llvm.triangle_pack import Lines, clear, kinds, turned
from retrograd.jit.llvm.triangle_tile import FORWARD, UPDATE, write_rows

if TYPE_CHECKING:
    from retrograd.jit.llvm.triangle_tile import Panels

__all__ = ["first_largest", "write_advance", "write_panel", "write_square"]

NOWHERE = -1  # as a row, unsigned: after all others
LEAST = {32: 2.0**-126, 64: 2.0**-1022}  # smaller numbers may have no finite inverse
RAISED = 2.0**64


def write_square(module: Module, s: Panels, *, turn: bool) -> str:
    """(source, panel, j): columns j * block on of a matrix [n][n], or of its transpose."""
    name = f"lu_square_{s.type.suffix}_{s.n}_{s.block}_{turn:d}"
    return module.once(name, lambda: _write_square(module, name, s, turn=turn))


def _write_square(module: Module, name: str, s: Panels, *, turn: bool) -> None:
    args = [("source", PTR), ("panel", PTR), ("j", I64)]
    f = Fn(module, name, args, attributes="nounwind noinline")
    t, panel, lanes = s.type, f.arg("panel"), module.machine.lanes(s.size)
    first = f.times(f.arg("j"), s.block * (s.n if turn else 1))
    source = f.at(f.arg("source"), first, t)
    for columns in kinds(f, f.arg("j"), s.n, s.block):
        if columns < s.block:
            clear(f, panel, s.rows * s.block * s.size)
            for r in range(s.tail, s.block):
                corner = (s.rows - s.block) * s.block + r * (s.block + 1)
                f.store(f.const(t, 1), f.at(panel, corner, t))
        elif s.tail:
            clear(f, f.at(panel, s.n * s.block, t), (s.rows - s.n) * s.block * s.size)
        across = Lines(t, columns, s.n, s.block, s.block)
        down = Pack(t, s.block, columns, (s.n, 1), s.n % lanes)
        f.call((down if turn else across).write(module), None, source, panel, f.const(I64, s.n))
    f.done()


# -- a panel -----------------------------------------------------------------------------------


def write_panel(module: Module, s: Panels) -> str:
    """(panel, low, pivots, j): factor panel j, from its diagonal on, into `low`.

    pivots[r] is the row that came to row r. The result is 1 if a pivot was 0, else 0.
    """
    name = f"lu_panel_{s.type.suffix}_{s.n}_{s.block}"
    return module.once(name, lambda: _write_panel(module, name, s))


def _write_panel(module: Module, name: str, s: Panels) -> None:
    args = [("panel", PTR), ("low", PTR), ("pivots", PTR), ("j", I64)]
    f = Fn(module, name, args, I64, attributes="nounwind noinline")
    t, low, square = s.type, f.arg("low"), s.block**2
    first = f.integer(f.times(f.arg("j"), s.block))
    blocks = f.sub(f.const(I64, s.count), f.arg("j"))
    with f.loop(0, blocks) as down:
        skip = f.plus(f.times(first, s.block), f.times(down.i, square))
        source = f.at(f.arg("panel"), skip, t)
        turned(f, s, source, f.at(low, f.times(down.i, square), t))
    columns = f.lesser(f.sub(f.const(I64, s.n), first), s.block)
    search, exchange, step = (w(module, s) for w in (_write_search, _write_swap, _write_step))
    with f.loop(0, columns, carry=[f.const(I64, 0)]) as loop:
        row = f.call(search, I64, low, loop.i, blocks)
        assert row
        f.store(f.add(first, row), f.at(f.arg("pivots"), f.add(first, loop.i), I64), 8)
        with f.when(f.compare("ne", row, loop.i)):
            f.call(exchange, None, low, loop.i, row)
        f.call(step, None, low, loop.i, blocks)
        pivot = f.load(t, f.at(low, f.times(loop.i, s.block + 1), t))
        none = f.convert("zext", f.compare("oeq", pivot, f.zero(t)), I64)
        loop.next = [f.bitwise("or", loop.carry[0], none)]
    f.done(loop.results[0])


def _vectors(f: Fn, s: Panels) -> tuple[Type, list[int]]:
    """The vectors of a column of a block: their type, and where they are."""
    lanes = f.machine.lanes(s.size)
    return s.type.by(lanes), list(range(0, s.block, lanes))


def _after(f: Fn, t: Type, at: int, row: Val, how: str) -> Val:
    """Which lanes of the vector at some rows are after a row, or not before it."""
    rows = f.vector(I64.by(t.lanes), range(at, at + t.lanes))
    return f.compare(how, rows, f.splat(row, t.lanes))


def _write_search(module: Module, s: Panels) -> str:
    """(low, c, blocks): the row of the largest in column c from the diagonal on, the first."""
    name = f"lu_search_{s.type.suffix}_{s.block}"
    return module.once(name, lambda: _write_the_search(module, name, s))


def _write_the_search(module: Module, name: str, s: Panels) -> None:
    args = [("low", PTR), ("c", I64), ("blocks", I64)]
    f = Fn(module, name, args, I64, attributes="nounwind noinline")
    t, spots = _vectors(f, s)
    whole = Type("i", t.bits, t.lanes)
    bits = f.const(whole, 2 ** (t.bits - 1) - 1)
    line = f.at(f.arg("low"), f.times(f.arg("c"), s.block), t)

    def sizes(source: Val) -> list[Val]:  # as integers: nan is more than all others
        found = [f.load(t, f.at(source, at, t)) for at in spots]
        return [f.bitwise("and", f.bits(x), bits) for x in found]

    def rows(first: Val) -> list[Val]:
        wide = f.splat(f.convert("trunc", first, whole.scalar), t.lanes)
        steps = [f.vector(whole, range(at, at + t.lanes)) for at in spots]
        return [f.add(wide, step) for step in steps]

    start = f.const(I64, 0)
    free = [_after(f, t, at, f.arg("c"), "sge") for at in spots]
    kept = [f.select(m, x, f.zero(whole)) for m, x in zip(free, sizes(line), strict=True)]
    none = f.const(whole, NOWHERE)
    places = [f.select(m, r, none) for m, r in zip(free, rows(start), strict=True)]
    with f.loop(1, f.arg("blocks"), carry=[*kept, *places]) as loop:
        best, where = loop.carry[: len(spots)], loop.carry[len(spots) :]
        now = sizes(f.at(line, f.times(loop.i, s.block**2), t))
        here = rows(f.integer(f.times(loop.i, s.block)))
        more = [f.compare("ugt", x, b) for x, b in zip(now, best, strict=True)]
        best = [f.select(m, x, b) for m, x, b in zip(more, now, best, strict=True)]
        where = [f.select(m, r, w) for m, r, w in zip(more, here, where, strict=True)]
        loop.next = [*best, *where]
    f.done(first_largest(f, loop.results[: len(spots)], loop.results[len(spots) :]))


def first_largest(f: Fn, best: list[Val], where: list[Val]) -> Val:
    """Of vectors of sizes and rows, the least row of those with the largest size."""
    kind, scalar = best[0].type, best[0].type.scalar
    top = best[0]
    for x in best[1:]:
        top = f.select(f.compare("ugt", x, top), x, top)
    most = f.splat(f.intrinsic("vector.reduce.umax", top, result=scalar), kind.lanes)
    none, least = f.const(kind, NOWHERE), f.const(kind, NOWHERE)
    for x, row in zip(best, where, strict=True):
        mine = f.select(f.compare("eq", x, most), row, none)
        least = f.select(f.compare("ult", mine, least), mine, least)
    return f.convert("zext", f.intrinsic("vector.reduce.umin", least, result=scalar), I64)


def _write_swap(module: Module, s: Panels) -> str:
    """(low, c, row): exchange two rows of a panel; the first is in the first block."""
    name = f"lu_swap_{s.type.suffix}_{s.block}"
    return module.once(name, lambda: _write_the_swap(module, name, s))


def _write_the_swap(module: Module, name: str, s: Panels) -> None:
    args = [("low", PTR), ("c", I64), ("row", I64)]
    f = Fn(module, name, args, attributes="nounwind noinline")
    t, size = s.type, f.const(I64, s.block)
    block, within = f.div(f.arg("row"), size), f.rem(f.arg("row"), size)
    other = f.plus(f.times(block, s.block**2), within)
    ends = [f.at(f.arg("low"), f.arg("c"), t), f.at(f.arg("low"), other, t)]
    many = next(v for v in (4, 2, 1) if not s.block % v)
    with f.loop(0, s.block, many) as loop:
        for n in range(many):
            spots = [f.at(e, f.times(f.plus(loop.i, n), s.block), t) for e in ends]
            a, b = (f.load(t, at) for at in spots)
            f.store(b, spots[0])
            f.store(a, spots[1])
    f.done()


def _write_step(module: Module, s: Panels) -> str:
    """(low, c, blocks): divide column c by its pivot, and take it off the columns after it."""
    name = f"lu_step_{s.type.suffix}_{s.block}"
    return module.once(name, lambda: _write_the_step(module, name, s))


def _write_the_step(module: Module, name: str, s: Panels) -> None:
    args = [("low", PTR), ("c", I64), ("blocks", I64)]
    f = Fn(module, name, args, attributes="nounwind noinline")
    t, spots = _vectors(f, s)
    c, low, square = f.arg("c"), f.arg("low"), s.block**2
    pivot = f.load(s.type, f.at(low, f.times(c, s.block + 1), t))
    tiny = f.compare("olt", f.intrinsic("fabs", pivot), f.const(s.type, LEAST[t.bits]))
    one = f.const(s.type, 1)
    up = f.select(tiny, f.const(s.type, RAISED), one)
    pivot = f.mul(pivot, up)
    inverse = f.div(one, f.select(f.compare("oeq", pivot, f.zero(s.type)), one, pivot))
    up, inverse = f.splat(up, t.lanes), f.splat(inverse, t.lanes)

    def columns(block: Val, by: list[Val]) -> None:
        with f.loop(f.plus(c, 1), s.block) as loop:
            line = f.at(block, f.times(loop.i, s.block), t)
            head = f.at(low, f.plus(f.times(loop.i, s.block), c), t)
            u = f.splat(f.load(s.type, head), t.lanes)
            for x, at in zip(by, spots, strict=True):
                here = f.at(line, at, t)
                f.store(_less(f, f.load(t, here), x, u), here)

    def scaled(block: Val) -> tuple[list[Val], list[Val]]:
        line = [f.at(block, f.plus(f.times(c, s.block), at), t) for at in spots]
        return line, [f.load(t, at) for at in line]

    line, was = scaled(low)
    below = [_after(f, t, at, c, "sgt") for at in spots]
    by = [f.mul(f.mul(x, up), inverse) for x in was]
    for x, y, mask, at in zip(was, by, below, line, strict=True):
        f.store(f.select(mask, y, x), at)
    columns(low, [f.select(m, y, f.zero(t)) for m, y in zip(below, by, strict=True)])
    with f.loop(1, f.arg("blocks")) as down:
        block = f.at(low, f.times(down.i, square), t)
        line, was = scaled(block)
        by = [f.mul(f.mul(x, up), inverse) for x in was]
        for y, at in zip(by, line, strict=True):
            f.store(y, at)
        columns(block, by)
    f.done()


def _less(f: Fn, x: Val, a: Val, b: Val) -> Val:
    """x - a * b."""
    return f.fma(f.neg(a), b, x) if f.machine.fma else f.sub(x, f.mul(a, b))


# -- what comes after it ---------------------------------------------------------------------


def write_advance(module: Module, s: Panels, width: int) -> str:
    """(low, pivots, panel, k): what the factored panel k makes of another, `width` wide."""
    name = f"lu_advance_{s.type.suffix}_{s.n}_{s.block}_{width}"
    return module.once(name, lambda: _write_advance(module, name, s, width))


def _write_advance(module: Module, name: str, s: Panels, width: int) -> None:
    args = [("low", PTR), ("pivots", PTR), ("panel", PTR), ("k", I64)]
    f = Fn(module, name, args, attributes="nounwind noinline")
    t, k, low = s.type, f.arg("k"), f.arg("low")
    first = f.integer(f.times(k, s.block))
    columns = f.integer(f.lesser(f.sub(f.const(I64, s.n), first), s.block))
    with f.loop(first, f.add(first, columns)) as loop:
        other = f.load(I64, f.at(f.arg("pivots"), loop.i, I64), 8)
        with f.when(f.compare("ne", other, loop.i)):
            _exchange(f, s, width, (loop.i, other))
    x = f.at(f.arg("panel"), f.times(first, width), t)
    blocks = f.sub(f.const(I64, s.count), k)
    with f.when(_something(f, s, x, width)):
        solve, update = (
            write_rows(module, s, width, o, unit=bool(o)) for o in (FORWARD, UPDATE)
        )
        f.call(solve, None, low, x, f.const(I64, 0))
        with f.loop(1, blocks) as down:
            by = f.at(low, f.times(down.i, s.block**2), t)
            c = f.at(x, f.times(down.i, s.block * width), t)
            f.call(update, None, by, x, c, f.const(I64, s.block))
    f.done()


def _exchange(f: Fn, s: Panels, width: int, rows: tuple[Int, Int]) -> None:
    t = s.type.by(f.machine.lanes(s.size))
    ends = [f.at(f.arg("panel"), f.times(r, width), t) for r in rows]
    for at in range(0, width, t.lanes):
        spots = [f.at(e, at, t) for e in ends]
        a, b = (f.load(t, spot) for spot in spots)
        f.store(b, spots[0])
        f.store(a, spots[1])


def _something(f: Fn, s: Panels, x: Val, width: int) -> Val:
    """Whether rows of a block are not all 0: those of an identity often are."""
    t = s.type.by(f.machine.lanes(s.size))
    whole = Type("i", t.bits, t.lanes)
    with f.loop(0, s.block * width, t.lanes, carry=[f.zero(whole)]) as loop:
        now = f.bits(f.load(t, f.at(x, loop.i, t)))
        loop.next = [f.bitwise("or", loop.carry[0], now)]
    found = f.intrinsic("vector.reduce.or", loop.results[0], result=whole.scalar)
    return f.compare("ne", found, f.zero(found.type))
