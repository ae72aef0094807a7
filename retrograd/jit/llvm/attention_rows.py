"""Rows of attention's operands: to dense blocks in scratch, and back to where they belong."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm_tile import load_some, store_some
from retrograd.jit.llvm.text import I8, I64, PTR, Int, Module, Type, Val

if TYPE_CHECKING:
    from retrograd.jit.llvm.attention_plan import Over

__all__ = ["Added", "Fill", "RowsIn", "RowsOut", "Spread"]

_OUTLINED = "nounwind noinline"


@dataclass(frozen=True)
class Fill:
    """Vectors of one number: (target, vectors)."""

    type: Type
    value: float = 0.0

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        name = f"attention_fill_{self.type.suffix}_{'lowest' if self.value else 'zero'}"
        return module.once(name, lambda: self._write(module, name))

    def _write(self, module: Module, name: str) -> None:
        args = [("target", PTR), ("vectors", I64)]
        f = Fn(module, name, args, attributes=_OUTLINED)
        t = self.type.by(module.machine.lanes(self.type.bits // 8))
        with f.loop(0, f.arg("vectors")) as loop:
            place = f.at(f.arg("target"), f.times(loop.i, t.lanes), t)
            f.store(f.const(t, self.value), place)
        f.done()


@dataclass(frozen=True)
class RowsIn:
    """Rows times a number, zeros beside and below: (source, target, rows, total)."""

    type: Type
    columns: int
    width: int  # of a row in the target: whole vectors
    stride: int  # of rows in the source
    scale: float = 1.0

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        sizes = f"{self.columns}_{self.width}_{self.stride}_{self.scale.hex()}"
        name = f"attention_in_{self.type.suffix}_{sizes}".translate(_PLAIN)
        return module.once(name, lambda: self._write(module, name))

    def _write(self, module: Module, name: str) -> None:
        args = [("source", PTR), ("target", PTR), ("rows", I64), ("total", I64)]
        f = Fn(module, name, args, attributes=_OUTLINED)
        t = self.type.by(module.machine.lanes(self.type.bits // 8))
        with f.loop(0, f.arg("rows")) as loop:
            source = f.at(f.arg("source"), f.times(loop.i, self.stride), t)
            target = f.at(f.arg("target"), f.times(loop.i, self.width), t)
            for at in range(0, self.width, t.lanes):
                x = load_some(f, t, f.at(source, at, t), min(t.lanes, self.columns - at))
                x = x if self.scale == 1.0 else f.mul(x, f.const(t, self.scale))
                f.store(x, f.at(target, at, t))
        with f.loop(f.arg("rows"), f.arg("total")) as loop:
            target = f.at(f.arg("target"), f.times(loop.i, self.width), t)
            for at in range(0, self.width, t.lanes):
                f.store(f.zero(t), f.at(target, at, t))
        f.done()


@dataclass(frozen=True)
class RowsOut:
    """Rows to their place, each times its factor or all times one.

    (source, target, rows, factors, more): factors are not read unless `each`; if `more` is 1,
    and there may be more, the rows are added to what is there.
    """

    type: Type
    columns: int
    width: int  # of a row in the source
    stride: int  # of rows in the target
    scale: float = 1.0
    each: bool = False
    adds: bool = False

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        sizes = f"{self.columns}_{self.width}_{self.stride}_{self.scale.hex()}"
        kind = f"{self.each:d}{self.adds:d}"
        name = f"attention_out_{self.type.suffix}_{sizes}_{kind}".translate(_PLAIN)
        return module.once(name, lambda: self._write(module, name))

    def _write(self, module: Module, name: str) -> None:
        ends = [("source", PTR), ("target", PTR), ("rows", I64), ("factors", PTR)]
        f = Fn(module, name, [*ends, ("more", I64)], attributes=_OUTLINED)
        t = self.type.by(module.machine.lanes(self.type.bits // 8))
        more = f.compare("ne", f.arg("more"), f.const(I64, 0))
        with f.loop(0, f.arg("rows")) as loop:
            source = f.at(f.arg("source"), f.times(loop.i, self.width), t)
            target = f.at(f.arg("target"), f.times(loop.i, self.stride), t)
            factor = f.const(t, self.scale)
            if self.each:
                one = f.load(self.type, f.at(f.arg("factors"), loop.i, t))
                factor = f.splat(one, t.lanes)
            for at in range(0, self.columns, t.lanes):
                x = f.load(t, f.at(source, at, t))
                x = f.mul(x, factor) if self.each or self.scale != 1.0 else x
                place, some = f.at(target, at, t), min(t.lanes, self.columns - at)
                if self.adds:
                    x = f.select(more, f.add(load_some(f, t, place, some), x), x)
                store_some(f, x, place, some)
        f.done()


@dataclass(frozen=True)
class Added:
    """Bias and mask of a block as one: the bias, -inf where the mask hides a key.

    (bias, mask, target, rows, columns): rows of `width` in the target.
    """

    type: Type
    width: int
    bias: Over | None
    mask: Over | None

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        of = "_".join(f"{p.query}_{p.key}" if p else "no" for p in (self.bias, self.mask))
        name = f"attention_added_{self.type.suffix}_{self.width}_{of}"
        return module.once(name, lambda: self._write(module, name))

    def _write(self, module: Module, name: str) -> None:
        args = [("bias", PTR), ("mask", PTR), ("target", PTR), ("rows", I64), ("columns", I64)]
        f = Fn(module, name, args, attributes=_OUTLINED)
        lanes = module.machine.lanes(self.type.bits // 8)
        whole = f.bitwise("and", f.arg("columns"), f.const(I64, -lanes))
        with f.loop(0, f.arg("rows")) as down:
            target = f.at(f.arg("target"), f.times(down.i, self.width), self.type)
            with f.loop(0, whole, lanes) as across:
                x = self._some(f, down.i, across.i, lanes)
                f.store(x, f.at(target, across.i, self.type))
            with f.loop(whole, f.arg("columns")) as across:
                x = self._some(f, down.i, across.i, 0)
                f.store(x, f.at(target, across.i, self.type))
        f.done()

    def _some(self, f: Fn, row: Val, column: Val, lanes: int) -> Val:
        t = self.type.by(lanes)
        x = f.zero(t)
        if self.bias:
            x = _read(f, t, f.arg("bias"), self.bias, row, column)
        if self.mask:
            word = _read(f, I8.by(lanes), f.arg("mask"), self.mask, row, column)
            seen = f.compare("ne", word, f.zero(word.type))
            x = f.select(seen, x, f.const(t, -inf))
        return x


def _read(f: Fn, t: Type, source: Val, over: Over, row: Val, column: Val) -> Val:
    place = f.plus(f.times(row, over.query), f.times(column, over.key))
    at = f.at(source, place, t)
    if over.key == 0:
        return f.splat(f.load(t.scalar, at), t.lanes)
    return f.load(t, at)


@dataclass(frozen=True)
class Spread:
    """Add rows of a block to an operand that may broadcast: (source, target, rows, columns)."""

    type: Type
    width: int  # of a row in the source
    over: Over

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        strides = f"{self.over.query}_{self.over.key}"
        name = f"attention_spread_{self.type.suffix}_{self.width}_{strides}"
        return module.once(name, lambda: self._write(module, name))

    def _write(self, module: Module, name: str) -> None:
        args = [("source", PTR), ("target", PTR), ("rows", I64), ("columns", I64)]
        f = Fn(module, name, args, attributes=_OUTLINED)
        lanes = module.machine.lanes(self.type.bits // 8) if self.over.key else 0
        columns = f.arg("columns")
        whole: Int = f.bitwise("and", columns, f.const(I64, -lanes)) if lanes else 0
        with f.loop(0, f.arg("rows")) as down:
            if lanes:
                with f.loop(0, whole, lanes) as across:
                    self._add(f, down.i, across.i, lanes)
            with f.loop(whole, columns) as across:
                self._add(f, down.i, across.i, 0)
        f.done()

    def _add(self, f: Fn, row: Val, column: Val, lanes: int) -> None:
        t, over = self.type.by(lanes), self.over
        inside = f.plus(f.times(row, self.width), column)
        place = f.plus(f.times(row, over.query), f.times(column, over.key))
        at = f.at(f.arg("target"), place, t)
        x = f.load(t, f.at(f.arg("source"), inside, t))
        f.store(f.add(f.load(t, at), x), at)


_PLAIN = str.maketrans({"-": "m", "+": "p", ".": "_"})
