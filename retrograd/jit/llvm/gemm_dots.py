"""Inner products held in registers, where one operand of a matrix product is thin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm_tile import SIGNATURE, load_some, multiply_add

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.llvm.text import Module, Type, Val

__all__ = ["Dots"]


@dataclass(frozen=True)
class Dots:
    """rows x columns of inner products; lanes run along k, in which a and b are dense."""

    type: Type
    rows: int
    columns: int
    depth: int
    a: int  # stride of rows
    b: int  # stride of columns
    c: tuple[int, int]  # strides of rows and of columns

    @property
    def name(self) -> str:
        """One for each set of fields."""
        shape = f"{self.type.suffix}_{self.rows}x{self.columns}x{self.depth}"
        return f"gemm_dots_{shape}_{self.a}_{self.b}_{self.c[0]}_{self.c[1]}"

    def write(self, module: Module) -> str:
        """Put the function into the module, unless it is there; its name."""
        return module.once(self.name, lambda: self._write(module))

    def _write(self, module: Module) -> None:
        f = Fn(module, self.name, SIGNATURE, attributes="nounwind noinline")
        t = self.type.by(module.machine.lanes(self.type.bits // 8))
        count = self.rows * self.columns
        turns = max(1, 8 // count)  # sums in flight: the latency of an addition
        sums = [f.zero(t)] * (count * turns)
        a, b, step = f.arg("a"), f.arg("b"), turns * t.lanes
        whole = self.depth // step * step
        with f.loop(0, whole, step, carry=sums) as loop:
            sums = list(loop.carry)
            for u in range(turns):
                at = f.plus(loop.i, u * t.lanes)
                self._step(f, f.at(a, at, t), f.at(b, at, t), t.lanes, sums, u * count)
            loop.next = sums
        sums = list(loop.results)
        for u, at in enumerate(range(whole, self.depth, t.lanes)):
            valid = min(t.lanes, self.depth - at)
            self._step(f, f.at(a, at, t), f.at(b, at, t), valid, sums, u * count)
        for n in range(count):
            self._store(f, [sums[u * count + n] for u in range(turns)], n)
        f.done()

    def _step(self, f: Fn, a: Val, b: Val, valid: int, sums: list[Val], first: int) -> None:
        t = sums[0].type
        down = [load_some(f, t, f.at(a, i * self.a, t), valid) for i in range(self.rows)]
        for j in range(self.columns):
            y = load_some(f, t, f.at(b, j * self.b, t), valid)
            for i, x in enumerate(down):
                n = first + i * self.columns + j
                sums[n] = multiply_add(f, x, y, sums[n])

    def _store(self, f: Fn, parts: Sequence[Val], n: int) -> None:
        total = parts[0]
        for part in parts[1:]:
            total = f.add(total, part)
        i, j = divmod(n, self.columns)
        one = f.fold("add", total) if total.type.lanes > 1 else f.extract(total, 0)
        f.store(one, f.at(f.arg("c"), i * self.c[0] + j * self.c[1], self.type))
