"""Matrices into panels and back: copies, transposes, padding; work dealt out to chunks."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm_pack import Pack
from retrograd.jit.llvm.gemm_tile import load_some, store_some
from retrograd.jit.llvm.text import I64, PTR, Int, Module, Type, Val

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retrograd.jit.llvm.triangle_tile import Panels

__all__ = [
    "Lines",
    "clear",
    "dealt",
    "kinds",
    "mirror",
    "span",
    "trim",
    "turned",
    "write_average",
    "write_fill",
]


def clear(f: Fn, at: Val, nbytes: Int) -> None:
    """Zeros in memory."""
    name = "llvm.memset.p0.i64"
    f.module.declare(name, "void", "ptr, i8, i64, i1")
    f.emit(f"call void @{name}({at}, i8 0, {f.integer(nbytes)}, i1 false)")


@contextmanager
def dealt(f: Fn, first: Int, end: int, chunk: Val, chunks: Val) -> Iterator[Val]:
    """A chunk's own of the numbers from `first`, dealt out one by one."""
    mine = f.add(f.integer(first), chunk)
    left = f.sub(f.add(f.integer(end), chunks), f.add(mine, f.const(I64, 1)))
    with f.loop(0, f.div(left, chunks)) as loop:
        yield f.add(mine, f.mul(loop.i, chunks))


def kinds(f: Fn, j: Val, length: int, width: int) -> Iterator[int]:
    """How many columns panel j has of `length`: code for each kind of panel that there is."""
    if not length % width:
        yield width
        return
    end = f.const(I64, length // width)
    for predicate, columns in (("ne", width), ("eq", length % width)):
        with f.when(f.compare(predicate, j, end)):
            yield columns


@dataclass(frozen=True)
class Lines:
    """(source, target, rows): copy `count` numbers of each row, times `scale`.

    Targets of `width` numbers are filled up with zeros.
    """

    type: Type
    count: int
    source: int  # strides of rows
    target: int
    width: int = 0  # whole vectors; 0: nothing is filled up
    scale: float = 1.0

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        shape = f"{self.type.suffix}_{self.count}_{self.source}_{self.target}_{self.width}"
        name = f"triangle_lines_{shape}_{str(self.scale).replace('.', '_')}"
        return module.once(name, lambda: self._write(module, name))

    def _write(self, module: Module, name: str) -> None:
        args = [("source", PTR), ("target", PTR), ("rows", I64)]
        f = Fn(module, name, args, attributes="nounwind noinline")
        t = self.type.by(module.machine.lanes(self.type.bits // 8))
        with f.loop(0, f.arg("rows"), carry=[f.arg("source"), f.arg("target")]) as loop:
            source, target = loop.carry
            for at in range(0, self.width or self.count, t.lanes):
                valid = min(t.lanes, self.count - at)
                there = f.at(target, at, t)
                if valid <= 0:
                    f.store(f.zero(t), there)
                    continue
                x = load_some(f, t, f.at(source, at, t), valid)
                x = f.mul(x, f.const(t, self.scale)) if self.scale != 1 else x
                store_some(f, x, there, 0 if self.width else valid)
            loop.next = [f.at(source, self.source, t), f.at(target, self.target, t)]
        f.done()


def turned(f: Fn, s: Panels, source: Val, target: Val) -> None:
    """A block, transposed to elsewhere."""
    pack = Pack(s.type, s.block, s.block, (s.block, 1), 0).write(f.module)
    f.call(pack, None, source, target, f.const(I64, s.block))


def write_fill(
    module: Module, s: Panels, *, across: bool, falling: bool = False, ones: bool = False
) -> str:
    """(source, panel, j): columns j * block on of a matrix [n][n]; the name of a function.

    From the first row to the diagonal, or from there to the last if `falling`. `across` reads
    columns where they are, else rows become columns. Padding is 0, or 1 on the diagonal.
    """
    kind = f"{across:d}{falling:d}{ones:d}"
    name = f"triangle_fill_{s.type.suffix}_{s.n}_{s.block}_{kind}"
    return module.once(name, lambda: _write_fill(module, name, s, (across, falling, ones)))


def _write_fill(module: Module, name: str, s: Panels, kind: tuple[bool, bool, bool]) -> None:
    across, falling, ones = kind
    args = [("source", PTR), ("panel", PTR), ("j", I64)]
    f = Fn(module, name, args, attributes="nounwind noinline")
    t, j, panel = s.type, f.arg("j"), f.arg("panel")
    first, rows = span(f, s, j, falling=falling)
    column = f.times(j, s.block)
    down, beside = (first, column) if across else (column, first)
    source = f.at(f.arg("source"), f.plus(f.times(down, s.n), beside), t)
    lanes = module.machine.lanes(s.size)
    for columns in kinds(f, j, s.n, s.block):
        _pad(f, s, panel, last=columns < s.block, falling=falling, ones=ones)
        copy = Lines(t, columns, s.n, s.block, s.block)
        turn = Pack(t, s.block, columns, (s.n, 1), s.n % lanes)
        f.call((copy if across else turn).write(module), None, source, panel, rows)
    f.done()


def span(f: Fn, s: Panels, j: Val, *, falling: bool) -> tuple[Int, Val]:
    """The first row of panel j, and how many there are without padding."""
    if falling:
        first = f.times(j, s.block)
        return first, f.sub(f.const(I64, s.n), f.integer(first))
    end = f.times(f.plus(j, 1), s.block)
    return 0, f.integer(f.lesser(end, s.n) if s.tail else end)


def _pad(f: Fn, s: Panels, panel: Val, *, last: bool, falling: bool, ones: bool) -> None:
    """What a panel has beyond the matrix; what exists is written after."""
    block = s.block**2
    if not s.tail or not (last or falling):
        return
    if last and not falling:
        clear(f, panel, block * s.count * s.size)
    else:  # the last rows
        skip = 0 if last else f.times(s.below(f, f.arg("j")), s.block)
        clear(f, f.at(panel, skip, s.type), block * s.size)
    if last and ones:
        corner = 0 if falling else block * (s.count - 1)
        for r in range(s.tail, s.block):
            f.store(f.const(s.type, 1), f.at(panel, corner + r * (s.block + 1), s.type))


def write_average(module: Module, s: Panels, columns: int) -> str:
    """(source, panel, rows): panel = (panel + source) / 2; 1 if any of that is not finite."""
    name = f"triangle_average_{s.type.suffix}_{s.n}_{s.block}_{columns}"
    return module.once(name, lambda: _write_average(module, name, s, columns))


def _write_average(module: Module, name: str, s: Panels, columns: int) -> None:
    args = [("source", PTR), ("panel", PTR), ("rows", I64)]
    f = Fn(module, name, args, I64, attributes="nounwind noinline")
    t = s.type.by(module.machine.lanes(s.size))
    start = [f.arg("source"), f.arg("panel"), f.zero(t)]
    with f.loop(0, f.arg("rows"), carry=start) as loop:
        source, panel, odd = loop.carry
        for at in range(0, columns, t.lanes):
            here = f.at(panel, at, t)
            x = load_some(f, t, f.at(source, at, t), min(t.lanes, columns - at))
            mean = f.mul(f.add(f.load(t, here), x), f.const(t, 0.5))
            f.store(mean, here)
            odd = f.add(odd, f.sub(mean, mean))  # 0, or nan for ever
        loop.next = [f.at(source, s.n, t), f.at(panel, s.block, t), odd]
    found = loop.results[2]
    wide = f.convert("zext", f.compare("uno", found, found), I64)
    f.done(f.fold("or", wide))


def trim(f: Fn, s: Panels, at: Val, *, upper: bool) -> None:
    """Zeros above a block's diagonal, or below it if `upper` is what stays."""
    with f.loop(0, s.block) as down:
        row = f.at(at, f.times(down.i, s.block), s.type)
        bounds = (0, down.i) if upper else (f.plus(down.i, 1), s.block)
        with f.loop(*bounds) as across:
            f.store(f.zero(s.type), f.at(row, across.i, s.type))


def mirror(f: Fn, s: Panels, at: Val, *, negative: bool = False) -> None:
    """A symmetric block of its lower triangle, or of the negative of that."""
    with f.loop(0, s.block) as down, f.loop(0, f.plus(down.i, 1)) as across:
        here = f.at(at, f.plus(f.times(down.i, s.block), across.i), s.type)
        there = f.at(at, f.plus(f.times(across.i, s.block), down.i), s.type)
        x = f.load(s.type, here)
        x = f.neg(x) if negative else x
        f.store(x, here)
        f.store(x, there)
