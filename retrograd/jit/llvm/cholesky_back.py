"""The gradient of Cholesky's factor L: block after block of columns, from the last.

With g the cotangent of L, and s the symmetric matrix that is twice the gradient,

    s[i, c] = (g[i, c] - sum over j > c of s[i, j] L[j, c]) / L[c, c]

for blocks i > c. In panels of columns of s this is back substitution with the transpose of L,
panel by panel, where a panel's rows from its diagonal on are what others found before it. The
blocks on the diagonal are L^-T m L^-1, where m has the lower triangle of L^T g.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.carry import copy
from retrograd.jit.llvm.cholesky import CHUNK
from retrograd.jit.llvm.text import I64, PTR, Module
from retrograd.jit.llvm.triangle_pack import (
    Lines,
    clear,
    dealt,
    kinds,
    mirror,
    trim,
    turned,
    write_fill,
)
from retrograd.jit.llvm.triangle_tile import BACK, UPDATE, write_rows

if TYPE_CHECKING:
    from retrograd.jit.llvm.triangle_tile import Panels

__all__ = ["write_back_begin", "write_back_result", "write_back_turn", "write_corner"]


def write_back_begin(module: Module, s: Panels) -> str:
    """(g, l, lows, work, chunk, chunks): panels of both matrices."""
    name = f"cholesky_back_begin_{s.type.suffix}_{s.n}"
    return module.once(name, lambda: _write_begin(module, name, s))


def _write_begin(module: Module, name: str, s: Panels) -> None:
    pointers = [(n, PTR) for n in ("g", "l", "lows", "work")]
    f = Fn(module, name, [*pointers, *CHUNK])
    low = write_fill(module, s, across=True, falling=True, ones=True)
    high = write_fill(module, s, across=False)
    with dealt(f, 0, s.count, f.arg("chunk"), f.arg("chunks")) as j:
        panel = f.at(f.arg("lows"), s.falling(f, j), s.type)
        f.call(low, None, f.arg("l"), panel, j)
        trim(f, s, panel, upper=False)
        f.call(high, None, f.arg("g"), f.at(f.arg("work"), s.full(f, j), s.type), j)
    f.done()


def write_back_turn(module: Module, s: Panels) -> str:
    """(lows, work, turn, chunk, chunks): one block of rows of all panels after its own.

    Turn 0 is the last but one. Whoever has the next panel finds the block on its diagonal.
    """
    name = f"cholesky_back_turn_{s.type.suffix}_{s.n}"
    return module.once(name, lambda: _write_turn(module, name, s))


def _write_turn(module: Module, name: str, s: Panels) -> None:
    f = Fn(module, name, [("lows", PTR), ("work", PTR), ("turn", I64), *CHUNK])
    t, work, corner = s.type, f.arg("work"), write_corner(module, s)
    solve = write_rows(module, s, s.block, BACK)
    c = f.sub(f.const(I64, s.count - 2), f.arg("turn"))
    by, after = f.at(f.arg("lows"), s.falling(f, c), t), f.integer(s.below(f, c))
    following, square = f.add(c, f.const(I64, 1)), s.block**2
    with dealt(f, following, s.count, f.arg("chunk"), f.arg("chunks")) as i:
        with f.when(f.compare("eq", i, following)):
            f.call(corner, None, f.arg("lows"), work, i)
        skip = f.plus(s.full(f, i), f.times(c, square))
        block = f.at(work, skip, t)
        f.call(solve, None, by, block, after)
        there = f.plus(s.full(f, c), f.times(i, square))
        turned(f, s, block, f.at(work, there, t))
    f.done()


def write_corner(module: Module, s: Panels) -> str:
    """(lows, work, j): the block of s on the diagonal of panel j."""
    name = f"cholesky_back_corner_{s.type.suffix}_{s.n}"
    return module.once(name, lambda: _write_corner(module, name, s))


def _write_corner(module: Module, name: str, s: Panels) -> None:
    args = [("lows", PTR), ("work", PTR), ("j", I64)]
    f = Fn(module, name, args, attributes="nounwind noinline")
    t, j, square = s.type, f.arg("j"), s.block**2
    solve, update = (write_rows(module, s, s.block, o) for o in (BACK, UPDATE))
    place, none = f.alloca(t, square), f.const(I64, 0)
    by = f.at(f.arg("lows"), s.falling(f, j), t)
    block = f.at(f.arg("work"), f.plus(s.full(f, j), f.times(j, square)), t)
    deep = f.integer(s.below(f, j))
    f.call(update, None, f.at(by, square, t), f.at(block, square, t), block, deep)
    turned(f, s, block, place)
    trim(f, s, place, upper=False)
    clear(f, block, square * s.size)
    f.call(update, None, by, place, block, f.const(I64, s.block))
    mirror(f, s, block, negative=True)
    f.call(solve, None, by, block, none)
    turned(f, s, block, place)
    copy(f, block, place, square * s.size)
    f.call(solve, None, by, block, none)
    mirror(f, s, block)
    f.done()


def write_back_result(module: Module, s: Panels) -> str:
    """(work, out, chunk, chunks): half of s, as a matrix."""
    name = f"cholesky_back_result_{s.type.suffix}_{s.n}"
    return module.once(name, lambda: _write_result(module, name, s))


def _write_result(module: Module, name: str, s: Panels) -> None:
    f = Fn(module, name, [("work", PTR), ("out", PTR), *CHUNK])
    with dealt(f, 0, s.count, f.arg("chunk"), f.arg("chunks")) as j:
        panel = f.at(f.arg("work"), s.full(f, j), s.type)
        target = f.at(f.arg("out"), f.times(j, s.block), s.type)
        for columns in kinds(f, j, s.n, s.block):
            lines = Lines(s.type, columns, s.block, s.n, scale=0.5).write(module)
            f.call(lines, None, panel, target, f.const(I64, s.n))
    f.done()
