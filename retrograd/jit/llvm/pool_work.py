"""The workers of the thread pool, as LLVM IR: its state, how they claim chunks and sleep.

Everything goes through one 64-bit word, the `tick` of `job`: the number of the job in its
upper half, a bit for each chunk that is claimed (or does not exist) in its lower half. A chunk
is claimed by compare-and-swap on the whole word. That a claim succeeds proves that the job read
before it is the one running: its fields are only written when all chunks of the job before are
done.

Each thread takes the chunks of its own block first, from below, so that the same memory meets
the same cache at every call; then it takes what others have left, from above. The caller waits
only for chunks that somebody is working on.

A worker without work spins, then sleeps in the kernel. It puts its bit into `sleeping` before
it looks at `tick` for the last time, and the caller sets `tick` before it looks at `sleeping`:
one of the two sees the other. Were a wake-up lost all the same, the caller would do the chunks.
"""

from __future__ import annotations

__all__ = ["START", "STATE", "WORK", "WORKER"]

# Each on a cache line of its own; two lines, as CPUs fetch them in pairs. But what a job is
# lies beside its tick: a worker that sees one has the other. And `done` only grows: to start a
# job a caller takes one line from the workers, not three.
STATE = """
DECLARE_PAUSE
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sigdelset(ptr, i32)
declare i64 @llvm.cttz.i64(i64, i1)
declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.umin.i64(i64, i64)

%job_type = type { i64, ptr, ptr, ptr, i64, i64, [80 x i8] } ; tick, fn, bufs, scratch, \
stride, parts
@job = internal global %job_type { i64 -1, ptr null, ptr null, ptr null, i64 0, i64 0, \
[80 x i8] zeroinitializer }, align 128
@done = internal global [16 x i64] zeroinitializer, align 128
@sleeping = internal global [16 x i64] zeroinitializer, align 128 ; a bit for each worker
@bell = internal global [32 x i32] zeroinitializer, align 128 ; what they sleep on
@busy = internal global [16 x i64] zeroinitializer, align 128 ; a job is running
@workers = internal global i64 0, align 128 ; started so far; written by the owner of `busy`
@threads = internal global i64 1, align 8 ; wanted, the caller among them
@spin = internal global i64 0, align 8 ; nanoseconds before an idle worker sleeps
"""

# Claim and run chunks until there are none; how many it were. The caller is thread 0; others
# say of each chunk that it is done before they look for more, which may take a while.
# parts = threads | chunks // threads << 8 | chunks % threads << 16.
WORK = """
define internal i64 @work(i64 %id) nounwind noinline {
entry:
  br label %again
again:
  %count = phi i64 [ 0, %entry ], [ %count, %choose ], [ %more, %run ], [ %more, %tell ]
  %t = load atomic i64, ptr @job acquire, align 8
  %not = xor i64 %t, -1
  %free = and i64 %not, 4294967295
  %none = icmp eq i64 %free, 0
  br i1 %none, label %out, label %look
look:
  %parts_at = getelementptr %job_type, ptr @job, i64 0, i32 5
  %parts = load atomic i64, ptr %parts_at monotonic, align 8
  %n = and i64 %parts, 255
  %in = icmp ult i64 %id, %n
  br i1 %in, label %choose, label %out
choose:
  %q0 = lshr i64 %parts, 8
  %q = and i64 %q0, 255
  %r = lshr i64 %parts, 16
  %base = mul i64 %id, %q
  %before = call i64 @llvm.umin.i64(i64 %id, i64 %r)
  %low = add i64 %base, %before
  %extra = icmp ult i64 %id, %r
  %one = zext i1 %extra to i64
  %size = add i64 %q, %one
  %end = shl i64 1, %size
  %ones = sub i64 %end, 1
  %block = shl i64 %ones, %low
  %own = and i64 %block, %free
  %has = icmp ne i64 %own, 0
  %first = call i64 @llvm.cttz.i64(i64 %own, i1 false)
  %zeros = call i64 @llvm.ctlz.i64(i64 %free, i1 true)
  %last = sub i64 63, %zeros
  %pick = select i1 %has, i64 %first, i64 %last
  %fn_at = getelementptr %job_type, ptr @job, i64 0, i32 1
  %fn = load atomic ptr, ptr %fn_at monotonic, align 8
  %bufs_at = getelementptr %job_type, ptr @job, i64 0, i32 2
  %bufs = load atomic ptr, ptr %bufs_at monotonic, align 8
  %scratch_at = getelementptr %job_type, ptr @job, i64 0, i32 3
  %scratch = load atomic ptr, ptr %scratch_at monotonic, align 8
  %stride_at = getelementptr %job_type, ptr @job, i64 0, i32 4
  %stride = load atomic i64, ptr %stride_at monotonic, align 8
  %bit = shl i64 1, %pick
  %new = or i64 %t, %bit
  %swap = cmpxchg ptr @job, i64 %t, i64 %new acq_rel monotonic, align 8
  %won = extractvalue { i64, i1 } %swap, 1
  br i1 %won, label %run, label %again
run:
  %offset = mul i64 %id, %stride
  %mine = getelementptr i8, ptr %scratch, i64 %offset
  call void %fn(ptr %bufs, i64 %pick, ptr %mine)
  %more = add i64 %count, 1
  %caller = icmp eq i64 %id, 0
  br i1 %caller, label %again, label %tell
tell:
  %d = atomicrmw add ptr @done, i64 1 release, align 8
  br label %again
out:
  ret i64 %count
}
"""

# 137 = FUTEX_WAIT_BITSET, 138 = FUTEX_WAKE_BITSET, both private to the process.
WORKER = """
define internal ptr @worker(ptr %arg) nounwind {
entry:
PLAIN_FLOATS
  %id = ptrtoint ptr %arg to i64
  %bit = shl i64 1, %id
  %bit32 = trunc i64 %bit to i32
  %rest = xor i64 %bit, -1
  br label %loop
loop:
  %pauses = phi i64 [ 0, %entry ], [ 0, %loop ], [ %on, %idle ], [ %on, %watch ], [ 0, %awake ]
  %until = phi i64 [ 0, %entry ], [ 0, %loop ], [ %until, %idle ], [ %end, %watch ], \
[ 0, %awake ]
  %seen = phi i64 [ 0, %entry ], [ %seen, %loop ], [ %seen, %idle ], [ %job, %watch ], \
[ %seen, %awake ]
  %count = call i64 @work(i64 %id)
  %nothing = icmp eq i64 %count, 0
  br i1 %nothing, label %idle, label %loop
idle:
  PAUSE
  %on = add i64 %pauses, 1
  %some = and i64 %on, 63
  %go_on = icmp ne i64 %some, 0
  br i1 %go_on, label %loop, label %watch
watch:
  %last = load atomic i64, ptr @job monotonic, align 8
  %job = lshr i64 %last, 32
  %now = call i64 @clock()
  %spin = load atomic i64, ptr @spin monotonic, align 8
  %later = add i64 %now, %spin
  %unset = icmp eq i64 %until, 0
  %news = icmp ne i64 %job, %seen ; jobs come, though others are quicker
  %fresh = or i1 %unset, %news
  %end = select i1 %fresh, i64 %later, i64 %until
  %tired = icmp sge i64 %now, %end
  br i1 %tired, label %lie_down, label %loop
lie_down:
  %heard = load atomic i32, ptr @bell seq_cst, align 4
  %s = atomicrmw or ptr @sleeping, i64 %bit seq_cst, align 8
  %t = load atomic i64, ptr @job seq_cst, align 8
  %claimed = trunc i64 %t to i32
  %none = icmp eq i32 %claimed, -1
  %parts_at = getelementptr %job_type, ptr @job, i64 0, i32 5
  %parts = load atomic i64, ptr %parts_at monotonic, align 8
  %n = and i64 %parts, 255
  %not_mine = icmp uge i64 %id, %n
  %still = or i1 %none, %not_mine
  br i1 %still, label %sleep, label %awake
sleep:
  %w = call i64 (i64, ...) @syscall(i64 FUTEX, ptr @bell, i32 137, i32 %heard, ptr null, \
ptr null, i32 %bit32)
  br label %awake
awake:
  %u = atomicrmw and ptr @sleeping, i64 %rest seq_cst, align 8
  br label %loop
}
"""

# Workers up to the n-th thread, with signals left to Python's threads (but for those that a
# thread sends itself by a fault: 4 ill, 7 bus, 8 fpe, 11 segv). Where the system gives no more
# threads, the pool stays at what it has.
START = """
define internal void @start(i64 %n) nounwind noinline {
entry:
  %all = alloca [128 x i8], align 16
  %old = alloca [128 x i8], align 16
  %handle = alloca i64, align 8
  %f = call i32 @sigfillset(ptr %all)
  %d4 = call i32 @sigdelset(ptr %all, i32 4)
  %d7 = call i32 @sigdelset(ptr %all, i32 7)
  %d8 = call i32 @sigdelset(ptr %all, i32 8)
  %d11 = call i32 @sigdelset(ptr %all, i32 11)
  %b = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %old)
  %have = load i64, ptr @workers
  br label %loop
loop:
  %i = phi i64 [ %have, %entry ], [ %id, %made ]
  %id = add i64 %i, 1
  %more = icmp ult i64 %id, %n
  br i1 %more, label %make, label %out
make:
  %arg = inttoptr i64 %id to ptr
  %failed = call i32 @pthread_create(ptr %handle, ptr null, ptr @worker, ptr %arg)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %made, label %short
made:
  %h = load i64, ptr %handle
  %x = call i32 @pthread_detach(i64 %h)
  store atomic i64 %id, ptr @workers monotonic, align 8
  br label %loop
short:
  store atomic i64 %id, ptr @threads monotonic, align 8
  br label %out
out:
  %r = call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  ret void
}
"""
