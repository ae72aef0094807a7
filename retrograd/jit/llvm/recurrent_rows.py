"""Small kernels around a recurrence: lengths that are checked, rows that are read or found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.carry import copy
from retrograd.jit.llvm.gemm_plan import MOST_CHUNKS
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.recurrent_cut import KERNEL, Sizes, bounds
from retrograd.jit.llvm.recurrent_spot import length
from retrograd.jit.llvm.text import I64, PTR, Module, Val

if TYPE_CHECKING:
    from retrograd.jit.llvm.faults import Faults

__all__ = ["write_check", "write_firsts", "write_read", "write_totals", "zero"]

LARGE = 1 << 15  # bytes worth a thread


def write_check(
    module: Module, name: str, s: Sizes, faults: Faults, node: tuple[int, str]
) -> KernelInfo:
    """(lengths, status): note the node if a length is not from 0 to the number of steps."""
    f, (lengths, status) = _begun(module, name, 2)
    said = f"{node[1]}: lengths must be from 0 to {s.steps}, the number of steps"
    kind = "i" if s.signed else "u"
    with f.loop(0, s.batch) as loop:
        n = length(f, s, f.at(lengths, loop.i, s.length))
        bad = f.compare("ugt", n, f.const(I64, s.steps))
        with f.when(bad):
            faults.note(f, status, node[0], said, n, bad, kind)
    f.done()
    return KernelInfo(name, 1)


def write_read(module: Module, name: str, s: Sizes) -> KernelInfo:
    """(x, lengths, out): x with 0 beyond the lengths."""
    f, (x, lengths, out) = _begun(module, name, 3)
    row, rows = s.inputs * s.size, s.steps * s.batch
    chunks = max(1, min(MOST_CHUNKS, s.steps, rows * row // LARGE))
    with f.loop(*bounds(f, f.arg("chunk"), chunks, s.steps)) as time, f.loop(0, s.batch) as n:
        skip = f.times(f.plus(f.times(time.i, s.batch), n.i), s.inputs)
        source, target = f.at(x, skip, s.type), f.at(out, skip, s.type)
        on = f.compare("slt", time.i, length(f, s, f.at(lengths, n.i, s.length)))
        _copy_if(f, on, target, source, row)
    f.done()
    return KernelInfo(name, chunks, 0, 0, 2 * rows * row)


def write_firsts(module: Module, name: str, s: Sizes) -> KernelInfo:
    """(d, lengths, out): the blame at each sequence's last step; 0 if it has none."""
    f, (d, lengths, out) = _begun(module, name, 3)
    zero, last = f.const(I64, 0), f.const(I64, s.steps - 1)
    with f.loop(0, s.batch) as n:
        end = f.sub(length(f, s, f.at(lengths, n.i, s.length)), f.const(I64, 1))
        inside = f.integer(f.lesser(f.select(f.compare("slt", end, zero), zero, end), last))
        skip = f.times(f.plus(f.times(inside, s.batch), n.i), s.stride)
        target = f.at(out, f.times(n.i, s.stride), s.type)
        row = s.kept * s.width * s.size
        _copy_if(f, f.compare("sge", end, zero), target, f.at(d, skip, s.type), row)
    f.done()
    return KernelInfo(name, 1)


def write_totals(module: Module, name: str, s: Sizes, parts: int) -> KernelInfo:
    """(sums): add all parts to the first."""
    f, (sums,) = _begun(module, name, 1)
    wide = s.kept * s.width
    with f.loop(1, parts) as part, f.loop(0, wide) as column:
        at = f.at(sums, column.i, s.type)
        skip = f.plus(f.times(part.i, wide), column.i)
        more = f.load(s.type, f.at(sums, skip, s.type))
        f.store(f.add(f.load(s.type, at), more), at)
    f.done()
    return KernelInfo(name, 1 if parts > 1 else 0)


def _begun(module: Module, name: str, count: int) -> tuple[Fn, list[Val]]:
    f = Fn(module, name, KERNEL)
    return f, [f.load(PTR, f.at(f.arg("bufs"), i, I64), 8) for i in range(count)]


def _copy_if(f: Fn, on: Val, target: Val, source: Val, nbytes: int) -> None:
    """The bytes of a row, or zeros."""
    with f.when(on):
        copy(f, target, source, nbytes)
    off = f.bitwise("xor", on, f.const(on.type, 1))
    with f.when(off):
        zero(f, target, nbytes)


def zero(f: Fn, at: Val, nbytes: int) -> None:
    """Zeros in memory."""
    name = "llvm.memset.p0.i64"
    f.module.declare(name, "void", "ptr, i8, i64, i1")
    f.emit(f"call void @{name}({at}, i8 0, i64 {nbytes}, i1 false)")
