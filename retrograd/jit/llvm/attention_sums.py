"""Sums of the parts that pieces of work left, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrograd.jit.llvm.attention_block import KERNEL
from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.text import I64, PTR, Int, Type, Val

if TYPE_CHECKING:
    from retrograd.jit.llvm.text import Module

__all__ = ["Sums", "write_sums"]


@dataclass(frozen=True)
class Sums:
    """out[lead, i] = the sum over n and m of parts[lead, n, i, m]; zeros if there are none."""

    lead: int
    count: int  # n
    size: int  # i
    type: Type
    inner: int = 1  # m

    @property
    def given(self) -> int:
        """How many parts there are."""
        return self.lead * self.count * self.size * self.inner


def write_sums(module: Module, name: str, sums: Sums) -> KernelInfo:
    """A kernel whose buffers are the parts and the result."""
    f = Fn(module, name, KERNEL)
    parts, out = (f.load(PTR, f.at(f.arg("bufs"), n, I64), 8) for n in (0, 1))
    lanes = module.machine.lanes(sums.type.bits // 8) if sums.inner == 1 else 0
    size = f.const(I64, sums.size)
    pieces = max(1, min(32, sums.size >> 14))
    step = -(-sums.size // pieces // 64) * 64 or 1
    low = f.integer(f.lesser(f.mul(f.arg("chunk"), f.const(I64, step)), size))
    high = f.integer(f.lesser(f.plus(low, step), size))
    whole: Val = low
    with f.loop(0, sums.lead) as lead:
        if lanes:
            whole = f.add(low, f.bitwise("and", f.sub(high, low), f.const(I64, -lanes)))
            with f.loop(low, whole, lanes) as loop:
                _sum(f, sums, (parts, out), (lead.i, loop.i), lanes)
        with f.loop(whole, high) as loop:
            _sum(f, sums, (parts, out), (lead.i, loop.i), 0)
    f.done()
    moved = (sums.given + sums.lead * sums.size) * sums.type.bits // 8
    return KernelInfo(name, pieces, 0, sums.given, moved)


def _sum(f: Fn, sums: Sums, ends: tuple[Val, Val], at: tuple[Val, Val], lanes: int) -> None:
    t, (lead, i) = sums.type.by(lanes), at
    with f.loop(0, sums.count, carry=[f.zero(t)]) as loop:
        row = f.plus(f.times(lead, sums.count), loop.i)
        place: Int = f.times(f.plus(f.times(row, sums.size), i), sums.inner)
        total = loop.carry[0]
        for m in range(sums.inner):
            total = f.add(total, f.load(t, f.at(ends[0], f.plus(place, m), t)))
        loop.next = [total]
    f.store(loop.results[0], f.at(ends[1], f.plus(f.times(lead, sums.size), i), t))
