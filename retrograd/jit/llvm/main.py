"""The function of a long program: starts of kernels that follow each other are a table.

What each start needs is known when the program is written: the kernel, how many chunks, and
for each operand a word of the call's block and the bytes from there. As rows of a table they
cost no code, so that a program of many layers compiles about as fast as one of few.

Kernels that follow each other, stream through more memory than the caches hold and touch
nothing in common that one of them writes (the updates of many weights) are one job of the
pool: each thread walks through whole arrays, and waits for the others once. The next such job
walks back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.ready import SCRATCH, THREADS
from retrograd.jit.llvm.text import I32, I64, PTR
from retrograd.jit.threads import MAX_THREADS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.llvm.info import KernelInfo
    from retrograd.jit.llvm.text import Int, Module, Type, Val

    Place = tuple[Val, int]  # a pointer, and its bytes

__all__ = ["MANY", "STREAMS", "Main", "Touched"]

MANY = 128  # nodes of a graph that is worth a table
STREAMS = 1 << 23  # bytes of a kernel that finds nothing in the caches
TOGETHER = 64  # kernels of one job at most


class Touched(NamedTuple):
    """Memory that a kernel reads and writes: word of the call's block, first byte, the end."""

    reads: list[tuple[int, int, int]]
    writes: list[tuple[int, int, int]]

    def beside(self, other: Touched) -> bool:
        """Whether two kernels may run at once."""
        pairs = [(w, x) for w in self.writes for x in (*other.reads, *other.writes)]
        pairs += [(w, x) for w in other.writes for x in self.reads]
        return not any(w[0] == x[0] and w[1] < x[2] and x[1] < w[2] for w, x in pairs)


class _Row(NamedTuple):
    """A start of a kernel."""

    name: str
    chunks: int
    spots: list[tuple[int, int]]
    touched: Touched | None


class Main(Fn):
    """A function that remembers where pointers come from, and puts off starts of kernels.

    They run before anything else that is written does.
    """

    def __init__(self, module: Module) -> None:
        super().__init__(module, "program", [("block", PTR)], I32, linkage="")
        self.spots: dict[str, tuple[int, int]] = {}  # of pointers: word, bytes from there
        self.rows: list[_Row] = []
        self.ran = 0  # rows that were started by what is written
        self.jobs: list[int] = []  # rows that begin one

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

    def touched(self, reads: Sequence[Place], writes: Sequence[Place]) -> Touched | None:
        """The memory of pointers with so many bytes each, if it is known."""
        spots = self.spots
        if any(p.ref not in spots for p, _ in (*reads, *writes)):
            return None
        found = []
        for places in (reads, writes):
            at = [(*spots[p.ref], nbytes) for p, nbytes in places]
            found.append([(slot, start, start + nbytes) for slot, start, nbytes in at])
        return Touched(*found)

    def launch(
        self, info: KernelInfo, pointers: Sequence[Val], touched: Touched | None
    ) -> bool:
        """Start a kernel by a row of the table; False if that cannot be."""
        spots = [self.spots.get(p.ref) for p in pointers]
        if any(s is None for s in spots):
            return False
        if not self._joins(touched):
            self.jobs.append(len(self.rows))
        known = [s for s in spots if s is not None]
        self.rows.append(_Row(info.name, info.chunks, known, touched))
        return True

    def _joins(self, touched: Touched | None) -> bool:
        """Whether a kernel can run beside all of the job that was put off last."""
        if touched is None or self.ran == len(self.rows):
            return False
        job = self.rows[self.jobs[-1] :]
        return len(job) < TOGETHER and all(
            r.touched is not None and touched.beside(r.touched) for r in job
        )

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
        kind, most = "{ptr, i64, i64, i64, i64, i64}", 1
        rows: list[str] = []
        words: list[int] = []
        ends = dict(zip(self.jobs, [*self.jobs[1:], len(self.rows)], strict=True))
        for at, row in enumerate(self.rows):
            job = self.rows[at : ends.get(at, at + 1)]
            units, pointers = sum(r.chunks for r in job), sum(len(r.spots) for r in job)
            given = (row.chunks, len(words) // 2, len(row.spots), len(job), units)
            rows.append(f"{kind} {{ptr @{row.name}, {', '.join(f'i64 {n}' for n in given)}}}")
            words += [n for spot in row.spots for n in spot]
            most = max(most, pointers)
        known = self.module.globals
        known[f"[{len(rows)} x {kind}] [{', '.join(rows)}], align 64"] = "launch_rows"
        operands = ", ".join(f"i64 {n}" for n in words)
        known[f"[{len(words)} x i64] [{operands}], align 64"] = "launch_operands"
        text = _LAUNCHES.replace("KIND", kind).replace("MOST", str(most))
        text = text.replace("STRIDE", str(stride)).replace("SCRATCH", str(SCRATCH))
        text = text.replace("THREADS", str(THREADS)).replace("CHUNKS", str(MAX_THREADS))
        self.module.declare("llvm.umin.i64", "i64", "i64, i64")
        self.module.words.append("turn")
        self.module.functions["launches"] = text.strip()
        self.module.functions["together"] = _TOGETHER.replace("KIND", kind).strip()


_LAUNCHES = """
define internal void @launches(ptr %block, i64 %first, i64 %last) nounwind noinline {
entry:
  %bufs = alloca [MOST x ptr], align 64
  %work = alloca [5 x i64], align 64
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
  %rows_at = getelementptr i64, ptr %kernel_at, i64 4
  %kernel = load ptr, ptr %kernel_at, align 8
  %chunks = load i64, ptr %chunks_at, align 8
  %begin = load i64, ptr %begin_at, align 8
  %rows = load i64, ptr %rows_at, align 8
  %next = add i64 %i, %rows
  %final = sub i64 %next, 1
  %final_at = getelementptr KIND, ptr @launch_rows, i64 %final
  %final_begin_at = getelementptr i64, ptr %final_at, i64 2
  %final_count_at = getelementptr i64, ptr %final_at, i64 3
  %final_begin = load i64, ptr %final_begin_at, align 8
  %final_count = load i64, ptr %final_count_at, align 8
  %end_operands = add i64 %final_begin, %final_count
  %count = sub i64 %end_operands, %begin
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
  %several = icmp ugt i64 %rows, 1
  br i1 %several, label %join, label %single
join:
  %units_at = getelementptr i64, ptr %kernel_at, i64 5
  %units = load i64, ptr %units_at, align 8
  %parts = call i64 @llvm.umin.i64(i64 %units, i64 CHUNKS)
  store ptr %kernel_at, ptr %work, align 8
  %work_bufs = getelementptr i64, ptr %work, i64 1
  store ptr %bufs, ptr %work_bufs, align 8
  %work_parts = getelementptr i64, ptr %work, i64 2
  store i64 %parts, ptr %work_parts, align 8
  %team = call i64 @llvm.umin.i64(i64 %threads, i64 %parts)
  %work_team = getelementptr i64, ptr %work, i64 3
  store i64 %team, ptr %work_team, align 8
  %turn = atomicrmw xor ptr @turn, i64 1 monotonic, align 8
  %work_turn = getelementptr i64, ptr %work, i64 4
  store i64 %turn, ptr %work_turn, align 8
  call void @rg_parallel_within(ptr @together, ptr %work, i64 %parts, ptr %scratch, i64 STRIDE,
    i64 %threads)
  br label %on
single:
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
  %left = icmp ult i64 %next, %last
  br i1 %left, label %row, label %end
end:
  ret void
}
"""

# A part of a job of several kernels: so many of their chunks, in order. Every second job goes
# backwards, each thread through the parts that are its own: it begins where the one before it
# ended, with what the last cache still holds (AdamW of 25 million numbers: 4 % less time).
_TOGETHER = """
define internal void @together(ptr %work, i64 %given, ptr %scratch) nounwind noinline {
entry:
  %rows = load ptr, ptr %work, align 8
  %bufs_at = getelementptr i64, ptr %work, i64 1
  %bufs = load ptr, ptr %bufs_at, align 8
  %parts_at = getelementptr i64, ptr %work, i64 2
  %parts = load i64, ptr %parts_at, align 8
  %team_at = getelementptr i64, ptr %work, i64 3
  %team = load i64, ptr %team_at, align 8
  %turn_at = getelementptr i64, ptr %work, i64 4
  %turn = load i64, ptr %turn_at, align 8
  %units_at = getelementptr i64, ptr %rows, i64 5
  %units = load i64, ptr %units_at, align 8
  %back = icmp ne i64 %turn, 0
  %own = udiv i64 %parts, %team ; parts of a thread, of the first `more` of them one more
  %more = urem i64 %parts, %team
  %large = add i64 %own, 1
  %begin = mul i64 %more, %large
  %in = icmp ult i64 %given, %begin
  %size = select i1 %in, i64 %large, i64 %own
  %origin = select i1 %in, i64 0, i64 %begin
  %inside = sub i64 %given, %origin
  %number = urem i64 %inside, %size
  %top = sub i64 %size, 1
  %twice = shl i64 %number, 1
  %far = sub i64 %top, %twice
  %mirror = add i64 %given, %far
  %part = select i1 %back, i64 %mirror, i64 %given
  %after = add i64 %part, 1
  %low = mul i64 %units, %part
  %high = mul i64 %units, %after
  %first = udiv i64 %low, %parts
  %last = udiv i64 %high, %parts
  %ends = add i64 %first, %last
  %end = sub i64 %ends, 1
  br label %look
look:
  %i = phi i64 [ %first, %entry ], [ %next, %run ]
  %going = icmp ult i64 %i, %last
  br i1 %going, label %take, label %out
take:
  %behind = sub i64 %end, %i
  %unit = select i1 %back, i64 %behind, i64 %i
  br label %row
row:
  %row_at = phi ptr [ %rows, %take ], [ %row_next, %skip ]
  %mine = phi ptr [ %bufs, %take ], [ %bufs_next, %skip ]
  %chunk = phi i64 [ %unit, %take ], [ %rest, %skip ]
  %chunks_at = getelementptr i64, ptr %row_at, i64 1
  %chunks = load i64, ptr %chunks_at, align 8
  %here = icmp ult i64 %chunk, %chunks
  br i1 %here, label %run, label %skip
skip:
  %rest = sub i64 %chunk, %chunks
  %count_at = getelementptr i64, ptr %row_at, i64 3
  %count = load i64, ptr %count_at, align 8
  %row_next = getelementptr KIND, ptr %row_at, i64 1
  %bufs_next = getelementptr ptr, ptr %mine, i64 %count
  br label %row
run:
  %kernel = load ptr, ptr %row_at, align 8
  call void %kernel(ptr %mine, i64 %chunk, ptr %scratch)
  %next = add i64 %i, 1
  br label %look
out:
  ret void
}
"""
