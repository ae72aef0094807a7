"""Cholesky's factor: u with u^T u = x, one block of rows after another.

Panels of columns of u go from the first row to the diagonal. A turn solves for one block of
rows in all panels after it; the panel that comes next then has its own block factored by the
same chunk, while the others are still at it. So there is one launch for each block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.text import I64, PTR, Int, Module, Val
from retrograd.jit.llvm.triangle_pack import (
    Lines,
    clear,
    dealt,
    kinds,
    span,
    trim,
    turned,
    write_average,
    write_fill,
)
from retrograd.jit.llvm.triangle_tile import FORWARD, UPDATE, write_root, write_rows

if TYPE_CHECKING:
    from retrograd.jit.llvm.triangle_tile import Panels

__all__ = ["wrong", "write_begin", "write_result", "write_turn"]

CHUNK = [("chunk", I64), ("chunks", I64)]


def write_begin(module: Module, s: Panels) -> str:
    """(x, work, flags, chunk, chunks): panels of x's symmetric part, the first block factored.

    flags[j] is 1 if panel j is not finite, flags[count] if x is not positive definite.
    """
    name = f"cholesky_begin_{s.type.suffix}_{s.n}"
    return module.once(name, lambda: _write_begin(module, name, s))


def _write_begin(module: Module, name: str, s: Panels) -> None:
    f = Fn(module, name, [("x", PTR), ("work", PTR), ("flags", PTR), *CHUNK])
    fill = write_fill(module, s, across=False)
    with dealt(f, 0, s.count, f.arg("chunk"), f.arg("chunks")) as j:
        panel = f.at(f.arg("work"), s.rising(f, j), s.type)
        f.call(fill, None, f.arg("x"), panel, j)
        _, rows = span(f, s, j, falling=False)
        source = f.at(f.arg("x"), f.times(j, s.block), s.type)
        for columns in kinds(f, j, s.n, s.block):
            odd = f.call(write_average(module, s, columns), I64, source, panel, rows)
            assert odd
            f.store(odd, f.at(f.arg("flags"), j, I64), 8)
        with f.when(f.compare("eq", j, f.const(I64, 0))):
            end = f.at(f.arg("flags"), s.count, I64)
            f.store(_root(f, s, panel, j), end, 8)
    f.done()


def _root(f: Fn, s: Panels, block: Val, j: Val) -> Val:
    """Factor a panel's block on the diagonal."""
    here = f.sub(f.const(I64, s.n), f.integer(f.times(j, s.block)))
    rows = f.integer(f.lesser(here, s.block))
    found = f.call(write_root(f.module, s), I64, block, rows)
    assert found
    return found


def write_turn(module: Module, s: Panels) -> str:
    """(work, flags, turn, chunk, chunks): row block `turn` of all later panels."""
    name = f"cholesky_turn_{s.type.suffix}_{s.n}"
    return module.once(name, lambda: _write_turn(module, name, s))


def _write_turn(module: Module, name: str, s: Panels) -> None:
    f = Fn(module, name, [("work", PTR), ("flags", PTR), ("turn", I64), *CHUNK])
    solve, update = (write_rows(module, s, s.block, o) for o in (FORWARD, UPDATE))
    turn, work, t = f.arg("turn"), f.arg("work"), s.type
    done = f.integer(f.times(turn, s.block))
    by, following = f.at(work, s.rising(f, turn), t), f.add(turn, f.const(I64, 1))
    with dealt(f, following, s.count, f.arg("chunk"), f.arg("chunks")) as j:
        panel = f.at(work, s.rising(f, j), t)
        f.call(solve, None, by, panel, done)
        with f.when(f.compare("eq", j, following)):
            rows = f.integer(f.times(j, s.block))
            block = f.at(panel, f.times(rows, s.block), t)
            f.call(update, None, panel, panel, block, rows)
            end = f.at(f.arg("flags"), s.count, I64)
            bad = _root(f, s, block, j)
            f.store(f.bitwise("or", f.load(I64, end, 8), bad), end, 8)
    f.done()


def wrong(f: Fn, s: Panels, flags: Val) -> tuple[Val, Val]:
    """Whether x was not finite, and whether it was not positive definite."""
    with f.loop(0, s.count, carry=[f.const(I64, 0)]) as loop:
        one = f.load(I64, f.at(flags, loop.i, I64), 8)
        loop.next = [f.bitwise("or", loop.carry[0], one)]
    zero = f.const(I64, 0)
    failed = f.load(I64, f.at(flags, s.count, I64), 8)
    return f.compare("ne", loop.results[0], zero), f.compare("ne", failed, zero)


def write_result(module: Module, s: Panels, *, upper: bool) -> str:
    """(work, out, bad, chunk, chunks): the factor as a matrix; nan if `bad` is not 0."""
    name = f"cholesky_result_{s.type.suffix}_{s.n}_{upper:d}"
    return module.once(name, lambda: _write_result(module, name, s, upper=upper))


def _write_result(module: Module, name: str, s: Panels, *, upper: bool) -> None:
    f = Fn(module, name, [("work", PTR), ("out", PTR), ("bad", I64), *CHUNK])
    place = f.alloca(s.type, s.block**2)
    zero = f.const(I64, 0)
    with dealt(f, 0, s.count, f.arg("chunk"), f.arg("chunks")) as j:
        here = f.sub(f.const(I64, s.n), f.integer(f.times(j, s.block)))
        rows = f.integer(f.lesser(here, s.block))
        with f.when(f.compare("ne", f.arg("bad"), zero)):
            _nan(f, s, j, rows)
        with f.when(f.compare("eq", f.arg("bad"), zero)):
            _zeros(f, s, j, rows, upper=upper)
            with f.loop(0, f.plus(j, 1)) as up:
                _block(f, s, place, (up.i, j), rows, upper=upper)
    f.done()


def _row(f: Fn, s: Panels, j: Val, r: Val, column: Int = 0) -> Val:
    """A row of the result, in block j."""
    row = f.plus(f.times(j, s.block), r)
    return f.at(f.arg("out"), f.plus(f.times(row, s.n), column), s.type)


def _nan(f: Fn, s: Panels, j: Val, rows: Val) -> None:
    with f.loop(0, rows) as down, f.loop(0, s.n) as across:
        f.store(f.const(s.type, float("nan")), _row(f, s, j, down.i, across.i))


def _zeros(f: Fn, s: Panels, j: Val, rows: Val, *, upper: bool) -> None:
    """The other triangle of a block of rows, but for the block on the diagonal."""
    begin = f.integer(f.times(j, s.block))
    with f.loop(0, rows) as down:
        if upper:
            clear(f, _row(f, s, j, down.i), f.times(begin, s.size))
        else:
            after = f.integer(f.lesser(f.plus(begin, s.block), s.n))
            left = f.sub(f.const(I64, s.n), after)
            clear(f, _row(f, s, j, down.i, after), f.times(left, s.size))


def _block(
    f: Fn, s: Panels, place: Val, at: tuple[Val, Val], rows: Val, *, upper: bool
) -> None:
    """A block of a panel, at its place in the result or in its transpose."""
    i, j = at
    skip = f.plus(s.rising(f, j), f.times(i, s.block**2))
    block = f.at(f.arg("work"), skip, s.type)
    if upper:
        copy = Lines(s.type, s.block, s.block, s.block).write(f.module)
        f.call(copy, None, block, place, f.const(I64, s.block))
    else:
        turned(f, s, block, place)
    with f.when(f.compare("eq", i, j)):
        trim(f, s, place, upper=upper)
    across = j if upper else i
    spot = _row(f, s, i if upper else j, f.const(I64, 0), f.times(across, s.block))
    down = f.const(I64, s.block) if upper else rows
    if upper:  # a block of the last rows is that on the diagonal
        down = f.select(f.compare("eq", i, j), rows, down)
    for columns in kinds(f, across, s.n, s.block):
        lines = Lines(s.type, columns, s.block, s.n).write(f.module)
        f.call(lines, None, place, spot, down)
