"""Cofactors of matrices that may be singular: elimination with exchanges of rows and columns.

With a = p l d u q, where l and u have ones on their diagonals, d is diagonal, and p and q
exchange rows and columns, the cofactors of a are those of the factors, multiplied. Pivots are
the largest that there are: so l and u are far from singular, and what is small is in d, whose
cofactors are products of all of it but one. Nothing is divided by what may be 0.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.lu import first_largest
from retrograd.jit.llvm.text import F64, I64, PTR, Int, Module, Type, Val
from retrograd.jit.llvm.triangle_pack import Lines, clear

if TYPE_CHECKING:
    from retrograd.jit.llvm.machine import Machine

__all__ = ["room_for_cofactors", "write_cofactors"]

NAMES = ("x", "out", "a", "b", "rows", "columns", "left")


def room_for_cofactors(machine: Machine, n: int) -> dict[str, int]:
    """Bytes that the function needs, by the names of its arguments."""
    square = 8 * n * _line(machine.lanes(8), n)
    return {"a": square, "b": square, "rows": 8 * n, "columns": 8 * n, "left": 8 * n}


def write_cofactors(module: Module, n: int) -> str:
    """(x, out, a, b, rows, columns, left): of x [n][n] in float64; the name of a function."""
    name = f"lu_cofactors_{n}"
    return module.once(name, lambda: _write(module, name, n))


def _write(module: Module, name: str, n: int) -> None:
    f = Fn(module, name, [(k, PTR) for k in NAMES], attributes="nounwind noinline")
    a, b, line = f.arg("a"), f.arg("b"), _line(module.machine.lanes(8), n)
    lines = Lines(F64, n, n, line, line).write(module)
    f.call(lines, None, f.arg("x"), a, f.const(I64, n))
    for numbers in ("rows", "columns"):
        with f.loop(0, n) as loop:
            f.store(loop.i, f.at(f.arg(numbers), loop.i, I64), 8)
    with f.loop(0, n * n, carry=[f.zero(F64)]) as loop:  # 0, or nan for all
        x = f.load(F64, f.at(f.arg("x"), loop.i, F64))
        loop.next = [f.add(loop.carry[0], f.sub(x, x))]
    sign = f.add(_eliminate(f, n, line), loop.results[0])
    _but_one(f, n, line)
    less = _write_less(module)
    clear(f, b, 8 * n * line)

    def row(of: Val, i: Int, j: Int = 0) -> Val:
        return f.at(of, f.plus(f.times(i, line), j), F64)

    with f.loop(0, n) as down:  # the inverse of l
        f.store(f.const(F64, 1), row(b, down.i, down.i))
        with f.loop(0, down.i) as by:
            factor = f.load(F64, row(a, down.i, by.i))
            f.call(less, None, row(b, down.i), row(b, by.i), factor, f.integer(f.plus(by.i, 1)))
    with f.loop(0, n) as down, f.loop(0, f.plus(down.i, 1)) as across:
        here = row(b, down.i, across.i)
        by_left = f.load(F64, f.at(f.arg("left"), down.i, F64))
        f.store(f.mul(f.load(F64, here), by_left), here)
    with f.loop(0, n, down=True) as up, f.loop(f.plus(up.i, 1), n) as by:
        factor = f.load(F64, row(a, up.i, by.i))
        f.call(less, None, row(b, up.i), row(b, by.i), factor, f.const(I64, n))
    _put(f, n, line, sign)
    f.done()


def _put(f: Fn, n: int, line: int, sign: Val) -> None:
    """The transpose, with rows and columns where they were."""
    with f.loop(0, n) as across:
        column = f.load(I64, f.at(f.arg("columns"), across.i, I64), 8)
        with f.loop(0, n) as down:
            row = f.load(I64, f.at(f.arg("rows"), down.i, I64), 8)
            x = f.load(F64, f.at(f.arg("b"), f.plus(f.times(across.i, line), down.i), F64))
            spot = f.at(f.arg("out"), f.plus(f.times(row, n), column), F64)
            f.store(f.mul(x, sign), spot)


def _eliminate(f: Fn, n: int, line: int) -> Val:
    """l, d and u, all in `a`; the sign of the exchanges."""
    a, less = f.arg("a"), _write_less(f.module)
    find, one = _write_find(f.module, n), f.const(F64, 1)
    with f.loop(0, n, carry=[one]) as loop:
        k = loop.i
        spot = f.call(find, I64, a, k)
        assert spot
        row, column = (op(spot, f.const(I64, line)) for op in (f.div, f.rem))
        signs = [
            _exchanged(f, (k, row), n, (line, 1), "rows"),
            _exchanged(f, (k, column), n, (1, line), "columns"),
        ]
        loop.next = [f.mul(loop.carry[0], f.mul(*signs))]
        top = f.at(a, f.times(k, line + 1), F64)
        pivot = f.load(F64, top)
        by = f.select(f.compare("oeq", pivot, f.zero(F64)), one, pivot)
        count = f.sub(f.const(I64, n - 1), k)
        with f.loop(f.plus(k, 1), n) as down:
            head = f.at(a, f.plus(f.times(down.i, line), k), F64)
            factor = f.div(f.load(F64, head), by)
            f.store(factor, head)
            f.call(less, None, f.at(head, 1, F64), f.at(top, 1, F64), factor, count)
        with f.loop(1, f.plus(count, 1)) as across:
            at = f.at(top, across.i, F64)
            f.store(f.div(f.load(F64, at), by), at)
    return loop.results[0]


def _exchanged(f: Fn, pair: tuple[Val, Val], n: int, steps: tuple[int, int], name: str) -> Val:
    """Exchange two rows or columns of `a`, and their numbers; -1 if they are two, else 1."""
    _swap(f, I64, [f.at(f.arg(name), i, I64) for i in pair])
    ends = [f.at(f.arg("a"), f.times(i, steps[0]), F64) for i in pair]
    with f.when(f.compare("ne", *pair)), f.loop(0, n) as loop:
        _swap(f, F64, [f.at(e, f.times(loop.i, steps[1]), F64) for e in ends])
    same = f.compare("eq", *pair)
    return f.select(same, f.const(F64, 1), f.const(F64, -1))


def _swap(f: Fn, t: Type, spots: list[Val]) -> None:
    x, y = (f.load(t, at) for at in spots)
    f.store(y, spots[0])
    f.store(x, spots[1])


def _but_one(f: Fn, n: int, line: int) -> None:
    """left[i] is the product of all pivots but that one."""
    left, one = f.arg("left"), f.const(F64, 1)

    def pivot(i: Val) -> Val:
        return f.load(F64, f.at(f.arg("a"), f.times(i, line + 1), F64))

    with f.loop(0, n, carry=[one]) as loop:
        f.store(loop.carry[0], f.at(left, loop.i, F64))
        loop.next = [f.mul(loop.carry[0], pivot(loop.i))]
    with f.loop(0, n, carry=[one], down=True) as loop:
        at = f.at(left, loop.i, F64)
        f.store(f.mul(f.load(F64, at), loop.carry[0]), at)
        loop.next = [f.mul(loop.carry[0], pivot(loop.i))]


def _write_less(module: Module) -> str:
    """(y, x, by, count): y -= by * x."""
    return module.once("lu_less", lambda: _write_the_less(module))


def _write_the_less(module: Module) -> None:
    args = [("y", PTR), ("x", PTR), ("by", F64), ("count", I64)]
    f = Fn(module, "lu_less", args, attributes="nounwind noinline")
    by, lanes = f.neg(f.arg("by")), module.machine.lanes(8)
    whole = f.bitwise("and", f.arg("count"), f.const(I64, -lanes))
    for low, high, lane in ((0, whole, lanes), (whole, f.arg("count"), 0)):
        t = F64.by(lane)
        with f.loop(low, high, max(lane, 1)) as loop:
            y, x = (f.at(f.arg(n), loop.i, F64) for n in "yx")
            f.store(f.fma(f.splat(by, lane), f.load(t, x), f.load(t, y)), y)
    f.done()


def _write_find(module: Module, n: int) -> str:
    """(a, k): where the largest is, of rows and columns from k on."""
    name = f"lu_find_{n}"
    return module.once(name, lambda: _write_the_find(module, name, n))


def _write_the_find(module: Module, name: str, n: int) -> None:
    f = Fn(module, name, [("a", PTR), ("k", I64)], I64, attributes="nounwind noinline")
    k, lanes = f.arg("k"), module.machine.lanes(8)
    whole, bits = I64.by(lanes), f.const(I64.by(lanes), 2**63 - 1)
    first = f.bitwise("and", k, f.const(I64, -lanes))
    start = [f.zero(whole), f.splat(f.integer(f.times(k, _line(lanes, n) + 1)), lanes)]
    steps = f.iota(whole)
    with f.loop(k, n, carry=start) as down:
        begin = f.times(down.i, _line(lanes, n))
        with f.loop(first, n, lanes, carry=down.carry) as across:
            best, where = across.carry
            spot = f.integer(f.plus(begin, across.i))
            x = f.bits(f.load(F64.by(lanes), f.at(f.arg("a"), spot, F64)))
            x = f.bitwise("and", x, bits)
            column = f.add(f.splat(across.i, lanes), steps)
            more = f.compare("ugt", x, best)
            more = f.bitwise("and", more, f.compare("sge", column, f.splat(k, lanes)))
            here = f.add(f.splat(spot, lanes), steps)
            across.next = [f.select(more, x, best), f.select(more, here, where)]
        down.next = list(across.results)
    f.done(first_largest(f, [down.results[0]], [down.results[1]]))


def _line(lanes: int, n: int) -> int:
    """Numbers from one row to the next: whole vectors, filled up with zeros."""
    return ceil(n / lanes) * lanes
