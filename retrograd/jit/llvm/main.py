"""The function of a long program: starts of kernels that follow each other are a table.

What each start needs is known when the program is written: the kernel, how many chunks, and
for each operand a word of the call's block and the bytes from there. As rows of a table they
cost no code, so that a program of many layers compiles about as fast as one of few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.ready import SCRATCH, THREADS
from retrograd.jit.llvm.text import I32, I64, PTR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.llvm.info import KernelInfo
    from retrograd.jit.llvm.text import Int, Module, Type, Val

__all__ = ["MANY", "Main"]

MANY = 128  # nodes of a graph that is worth a table


class Main(Fn):
    """A function that remembers where pointers come from, and puts off starts of kernels.

    They run before anything else that is written does.
    """

    def __init__(self, module: Module) -> None:
        super().__init__(module, "program", [("block", PTR)], I32, linkage="")
        self.spots: dict[str, tuple[int, int]] = {}  # of pointers: word, bytes from there
        self.rows: list[tuple[str, int, list[tuple[int, int]]]] = []
        self.ran = 0  # rows that were started by what is written

    def word(self, slot: int) -> Val:
        """A pointer of the call's block, which no kernel changes."""
        spot = super().at(self.arg("block"), slot, I64)
        found = super().make(PTR, f"load ptr, {spot}, align 8")
        self.spots[found.ref] = (slot, 0)
        return found

    def at(self, pointer: Val, index: Int, t: Type) -> Val:
        """As always; a place at a known distance is remembered."""
        found = super().at(pointer, index, t)
        if isinstance(index, int) and pointer.ref in self.spots:
            slot, offset = self.spots[pointer.ref]
            self.spots[found.ref] = (slot, offset + index * max(t.bits // 8, 1))
        return found

    def launch(self, info: KernelInfo, pointers: Sequence[Val]) -> bool:
        """Start a kernel by a row of the table; False if that cannot be."""
        spots = [self.spots.get(p.ref) for p in pointers]
        if any(s is None for s in spots):
            return False
        self.rows.append((info.name, info.chunks, [s for s in spots if s is not None]))
        return True

    def emit(self, line: str) -> None:
        """A line, after all that was put off."""
        self.flush()
        super().emit(line)

    def make(self, t: Type, line: str) -> Val:
        """A line with a result; addresses need not wait."""
        if not line.startswith("getelementptr"):
            self.flush()
        return super().make(t, line)

    def start(self, label: str) -> None:
        """A new block, after all that was put off."""
        self.flush()
        super().start(label)

    def flush(self) -> None:
        """Run what was put off."""
        first, self.ran = self.ran, len(self.rows)
        if first < self.ran:
            super().emit(f"call void @launches(ptr %block, i64 {first}, i64 {self.ran})")

    def tables(self, stride: int) -> None:
        """After the last line: the table, and what reads it."""
        if not self.rows:
            return
        kind, most = "{ptr, i64, i64, i64}", 1
        rows: list[str] = []
        words: list[int] = []
        for name, chunks, spots in self.rows:
            begin = len(words) // 2
            words += [n for spot in spots for n in spot]
            rows.append(f"{kind} {{ptr @{name}, i64 {chunks}, i64 {begin}, i64 {len(spots)}}}")
            most = max(most, len(spots))
        known = self.module.globals
        known[f"[{len(rows)} x {kind}] [{', '.join(rows)}], align 64"] = "launch_rows"
        given = ", ".join(f"i64 {n}" for n in words)
        known[f"[{len(words)} x i64] [{given}], align 64"] = "launch_operands"
        text = _LAUNCHES.replace("KIND", kind).replace("MOST", str(most))
        text = text.replace("STRIDE", str(stride)).replace("SCRATCH", str(SCRATCH))
        self.module.functions["launches"] = text.replace("THREADS", str(THREADS)).strip()


_LAUNCHES = """
define internal void @launches(ptr %block, i64 %first, i64 %last) nounwind noinline {
entry:
  %bufs = alloca [MOST x ptr], align 64
  %scratch_at = getelementptr i64, ptr %block, i64 SCRATCH
  %scratch = load ptr, ptr %scratch_at, align 8
  %threads_at = getelementptr i64, ptr %block, i64 THREADS
  %threads = load i64, ptr %threads_at, align 8
  br label %row
row:
  %i = phi i64 [ %first, %entry ], [ %next, %on ]
  %kernel_at = getelementptr KIND, ptr @launch_rows, i64 %i
  %chunks_at = getelementptr i64, ptr %kernel_at, i64 1
  %begin_at = getelementptr i64, ptr %kernel_at, i64 2
  %count_at = getelementptr i64, ptr %kernel_at, i64 3
  %kernel = load ptr, ptr %kernel_at, align 8
  %chunks = load i64, ptr %chunks_at, align 8
  %begin = load i64, ptr %begin_at, align 8
  %count = load i64, ptr %count_at, align 8
  %operands = getelementptr [2 x i64], ptr @launch_operands, i64 %begin
  br label %fill
fill:
  %k = phi i64 [ 0, %row ], [ %more, %put ]
  %going = icmp ult i64 %k, %count
  br i1 %going, label %put, label %go
put:
  %slot_at = getelementptr [2 x i64], ptr %operands, i64 %k
  %offset_at = getelementptr i64, ptr %slot_at, i64 1
  %slot = load i64, ptr %slot_at, align 8
  %offset = load i64, ptr %offset_at, align 8
  %base_at = getelementptr i64, ptr %block, i64 %slot
  %base = load ptr, ptr %base_at, align 8
  %place = getelementptr i8, ptr %base, i64 %offset
  %buf = getelementptr ptr, ptr %bufs, i64 %k
  store ptr %place, ptr %buf, align 8
  %more = add i64 %k, 1
  br label %fill
go:
  %alone = icmp eq i64 %chunks, 1
  br i1 %alone, label %one, label %many
one:
  call void %kernel(ptr %bufs, i64 0, ptr %scratch)
  br label %on
many:
  call void @rg_parallel_within(ptr %kernel, ptr %bufs, i64 %chunks, ptr %scratch, i64 STRIDE,
    i64 %threads)
  br label %on
on:
  %next = add i64 %i, 1
  %left = icmp ult i64 %next, %last
  br i1 %left, label %row, label %end
end:
  ret void
}
"""
