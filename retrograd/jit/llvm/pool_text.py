"""The thread pool, as LLVM IR: what programs call, and the whole for one machine.

    rg_parallel(fn, bufs, chunks, scratch, stride)
    rg_parallel_within(fn, bufs, chunks, scratch, stride, threads)

Both run `fn(bufs, chunk, scratch + thread * stride)` for each chunk, the caller as thread 0,
and return when all are done. The second uses no more threads than told, whatever the pool has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.llvm.pool_work import START, STATE, WORK, WORKER

if TYPE_CHECKING:
    from retrograd.jit.llvm.machine import Machine

__all__ = ["CLOCK", "clock_number", "has_threads", "pool_text", "serial_text"]

_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "powerpc64le": 221, "s390x": 238}
_PAUSE = {"x86_64": "@llvm.x86.sse2.pause()", "aarch64": "@llvm.aarch64.hint(i32 1)"}
_DECLARE_PAUSE = {
    "x86_64": "declare void @llvm.x86.sse2.pause()\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)",
    "aarch64": "declare void @llvm.aarch64.hint(i32)\ndeclare void @llvm.aarch64.set.fpcr(i64)",
}
# A thread inherits rounding and flush-to-zero from its maker, which a foreign library may have
# changed: a worker starts from the default.
_PLAIN_FLOATS = {
    "x86_64": """\
  %mode = alloca i32
  store i32 8064, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)""",
    "aarch64": "  call void @llvm.aarch64.set.fpcr(i64 0)",
}


def _architecture(machine: Machine) -> str:
    return machine.triple.partition("-")[0]


def has_threads(machine: Machine) -> bool:
    """Whether the pool below can run there: Linux, where its system calls are known."""
    return "linux" in machine.triple and _architecture(machine) in _FUTEX


def clock_number(machine: Machine) -> int:
    """CLOCK_MONOTONIC, as the system counts."""
    return 6 if "apple" in machine.triple or "darwin" in machine.triple else 1


def pool_text(machine: Machine) -> str:
    """The pool for one machine."""
    kind = _architecture(machine)
    pause = f"call void {_PAUSE[kind]}" if kind in _PAUSE else "fence seq_cst"
    words = {
        "DECLARE_PAUSE": _DECLARE_PAUSE.get(kind, ""),
        "PLAIN_FLOATS": _PLAIN_FLOATS.get(kind, ""),
        "PAUSE": pause,
        "FUTEX": str(_FUTEX[kind]),
    }
    text = CLOCK.replace("CLOCK_NUMBER", str(clock_number(machine)))
    text += STATE + WORK + WORKER + START + _PARALLEL + _SERIAL + _CONTROL
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text


def serial_text() -> str:
    """The same functions where there are no threads."""
    return _SERIAL + _ALONE


CLOCK = """
declare i32 @clock_gettime(i32, ptr)

define internal i64 @clock() nounwind noinline { ; nanoseconds
  %t = alloca [2 x i64], align 16
  %failed = call i32 @clock_gettime(i32 CLOCK_NUMBER, ptr %t)
  %seconds = load i64, ptr %t
  %rest_at = getelementptr i64, ptr %t, i64 1
  %rest = load i64, ptr %rest_at
  %whole = mul i64 %seconds, 1000000000
  %ns = add i64 %whole, %rest
  ret i64 %ns
}
"""

_PARALLEL = """
define void @rg_parallel(ptr %fn, ptr %bufs, i64 %chunks, ptr %scratch, i64 %stride) nounwind {
  call void @rg_parallel_within(ptr %fn, ptr %bufs, i64 %chunks, ptr %scratch, i64 %stride, \
i64 32)
  ret void
}

define void @rg_parallel_within(ptr %fn, ptr %bufs, i64 %chunks, ptr %scratch, i64 %stride, \
i64 %limit) nounwind {
entry:
  %wanted = load atomic i64, ptr @threads monotonic, align 8
  %allowed = call i64 @llvm.umin.i64(i64 %wanted, i64 %limit)
  %n = call i64 @llvm.umin.i64(i64 %allowed, i64 %chunks)
  %several = icmp ugt i64 %n, 1
  %fits = icmp ule i64 %chunks, 32
  %try = and i1 %several, %fits
  br i1 %try, label %ask, label %alone
ask:
  %swap = cmpxchg ptr @busy, i64 0, i64 1 acquire monotonic, align 8
  %won = extractvalue { i64, i1 } %swap, 1
  br i1 %won, label %owner, label %alone
alone: ; also while another thread's job runs: never wait for it
  call void @serial(ptr %fn, ptr %bufs, i64 %chunks, ptr %scratch)
  ret void
owner:
  %have = load i64, ptr @workers
  %enough = add i64 %have, 1
  %lack = icmp ult i64 %enough, %n
  br i1 %lack, label %hire, label %publish
hire:
  call void @start(i64 %n)
  br label %publish
publish:
  %fn_at = getelementptr %job_type, ptr @job, i64 0, i32 1
  store atomic ptr %fn, ptr %fn_at monotonic, align 8
  %bufs_at = getelementptr %job_type, ptr @job, i64 0, i32 2
  store atomic ptr %bufs, ptr %bufs_at monotonic, align 8
  %scratch_at = getelementptr %job_type, ptr @job, i64 0, i32 3
  store atomic ptr %scratch, ptr %scratch_at monotonic, align 8
  %stride_at = getelementptr %job_type, ptr @job, i64 0, i32 4
  store atomic i64 %stride, ptr %stride_at monotonic, align 8
  %c32 = trunc i64 %chunks to i32
  %n32 = trunc i64 %n to i32
  %q32 = udiv i32 %c32, %n32
  %back = mul i32 %q32, %n32
  %r32 = sub i32 %c32, %back
  %q8 = shl i32 %q32, 8
  %r16 = shl i32 %r32, 16
  %qr = or i32 %q8, %r16
  %parts32 = or i32 %qr, %n32
  %parts = zext i32 %parts32 to i64
  %parts_at = getelementptr %job_type, ptr @job, i64 0, i32 5
  store atomic i64 %parts, ptr %parts_at monotonic, align 8
  %before = load atomic i64, ptr @done monotonic, align 8
  %t = load atomic i64, ptr @job monotonic, align 8
  %number = lshr i64 %t, 32
  %next = add i64 %number, 1
  %upper = shl i64 %next, 32
  %absent = shl i64 4294967295, %chunks
  %real = and i64 %absent, 4294967295
  %lower = or i64 %real, 1 ; the caller's first: the tick is not taken from the others again
  %open = or i64 %upper, %lower
  %x = atomicrmw xchg ptr @job, i64 %open seq_cst, align 8
  %asleep = load atomic i64, ptr @sleeping seq_cst, align 8
  %end = shl i64 1, %n
  %needed = sub i64 %end, 1
  %call = and i64 %asleep, %needed
  %any = icmp ne i64 %call, 0
  br i1 %any, label %ring, label %join
ring: ; once: their bits go, so that the next call does not ring for those on their way
  %not_called = xor i64 %call, -1
  %still = atomicrmw and ptr @sleeping, i64 %not_called seq_cst, align 8
  %rung = atomicrmw add ptr @bell, i32 1 seq_cst, align 4
  %call32 = trunc i64 %call to i32
  %woken = call i64 (i64, ...) @syscall(i64 FUTEX, ptr @bell, i32 138, i32 2147483647, \
ptr null, ptr null, i32 %call32)
  br label %join
join:
  call void %fn(ptr %bufs, i64 0, ptr %scratch)
  %count = call i64 @work(i64 0)
  %own = add i64 %count, 1
  %others = sub i64 %chunks, %own
  %goal = add i64 %before, %others
  br label %wait
wait:
  %k = phi i64 [ 0, %join ], [ %k1, %rest ], [ %k1, %yield ]
  %d = load atomic i64, ptr @done acquire, align 8
  %all = icmp eq i64 %d, %goal
  br i1 %all, label %finish, label %patience
patience:
  %k1 = add i64 %k, 1
  %long = icmp ugt i64 %k1, 2000
  br i1 %long, label %yield, label %rest
rest:
  PAUSE
  br label %wait
yield: ; whoever holds the last chunk may need this CPU
  %y = call i32 @sched_yield()
  br label %wait
finish:
  store atomic i64 0, ptr @busy release, align 8
  ret void
}
"""

_SERIAL = """
define internal void @serial(ptr %fn, ptr %bufs, i64 %chunks, ptr %scratch) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %i, %chunks
  br i1 %more, label %body, label %out
body:
  call void %fn(ptr %bufs, i64 %i, ptr %scratch)
  %next = add i64 %i, 1
  br label %loop
out:
  ret void
}
"""

# rg_pool_forget is for the child of a fork, which has none of the threads: nothing else runs.
_CONTROL = """
define void @rg_pool_set(i64 %threads, i64 %spin) nounwind {
  store atomic i64 %threads, ptr @threads monotonic, align 8
  store atomic i64 %spin, ptr @spin monotonic, align 8
  ret void
}

define void @rg_pool_forget() nounwind {
  store atomic i64 0, ptr @workers monotonic, align 8
  store atomic i64 0, ptr @sleeping monotonic, align 8
  store atomic i64 -1, ptr @job monotonic, align 8
  store atomic i64 0, ptr @busy seq_cst, align 8
  ret void
}

define i64 @rg_pool_workers() nounwind {
  %n = load atomic i64, ptr @workers monotonic, align 8
  ret i64 %n
}

define i64 @rg_pool_sleeping() nounwind {
  %mask = load atomic i64, ptr @sleeping seq_cst, align 8
  ret i64 %mask
}
"""

_ALONE = """
define void @rg_parallel(ptr %fn, ptr %bufs, i64 %chunks, ptr %scratch, i64 %stride) nounwind {
  call void @serial(ptr %fn, ptr %bufs, i64 %chunks, ptr %scratch)
  ret void
}

define void @rg_parallel_within(ptr %fn, ptr %bufs, i64 %chunks, ptr %scratch, i64 %stride, \
i64 %limit) nounwind {
  call void @serial(ptr %fn, ptr %bufs, i64 %chunks, ptr %scratch)
  ret void
}

define void @rg_pool_set(i64 %threads, i64 %spin) nounwind {
  ret void
}

define void @rg_pool_forget() nounwind {
  ret void
}

define i64 @rg_pool_workers() nounwind {
  ret i64 0
}

define i64 @rg_pool_sleeping() nounwind {
  ret i64 0
}
"""
