"""The thread pool in generated code: every chunk once, whatever else happens."""

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from retrograd.core.errors import ArgumentError
from retrograd.jit import cpus
from retrograd.jit import threads as counted
from retrograd.jit.llvm import pool
from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.machine import host, named
from retrograd.jit.llvm.native import library, object_code
from retrograd.jit.llvm.pool_text import has_threads, serial_text
from retrograd.jit.llvm.text import F64, I64, PTR, Module

ROOT = Path(__file__).resolve().parents[2]
KERNEL = [("bufs", PTR), ("chunk", I64), ("scratch", PTR)]
ROW = 37  # numbers in a chunk of `wave`
STRIDE = 512

needs_threads = pytest.mark.skipif(not has_threads(host()), reason="no threads on this system")


def kernel(module, name):
    return Fn(module, name, KERNEL, linkage="")


def write_hit(module):
    """bufs[0][chunk] += 1, atomically; bufs[1][chunk] = where the scratch is."""
    f = kernel(module, "hit")
    counts = f.load(PTR, f.arg("bufs"))
    at = f.at(counts, f.arg("chunk"), I64)
    f.emit(f"%old = atomicrmw add {at}, i64 1 monotonic")
    slots = f.load(PTR, f.at(f.arg("bufs"), 1, PTR))
    f.store(f.make(I64, "ptrtoint ptr %scratch to i64"), f.at(slots, f.arg("chunk"), I64))
    f.done()


def write_wave(module):
    """bufs[1] = running sums of bufs[0] in rows, by way of the scratch."""
    f = kernel(module, "wave")
    source, target = f.load(PTR, f.arg("bufs")), f.load(PTR, f.at(f.arg("bufs"), 1, PTR))
    start = f.times(f.arg("chunk"), ROW)
    with f.loop(0, ROW, carry=[f.const(F64, 0.0)]) as loop:
        sum_ = f.add(loop.carry[0], f.load(F64, f.at(source, f.plus(start, loop.i), F64)))
        f.store(sum_, f.at(f.arg("scratch"), loop.i, F64))
        loop.next = [sum_]
    with f.loop(0, ROW) as loop:
        held = f.load(F64, f.at(f.arg("scratch"), loop.i, F64))
        f.store(held, f.at(target, f.plus(start, loop.i), F64))
    f.done()


def write_meet(module):
    """As `hit`; then chunk 0 waits until chunk 1 was here, but not for ever."""
    module.declare("sched_yield", "i32", "")
    f = kernel(module, "meet")
    f.call("hit", None, *(f.arg(name) for name, _ in KERNEL))
    other = f.at(f.load(PTR, f.arg("bufs")), 1, I64)
    with f.when(f.compare("eq", f.arg("chunk"), f.integer(0))), f.loop(0, 10**8):
        f.emit("call i32 @sched_yield()")
        came = f.make(I64, f"load atomic i64, {other} monotonic, align 8")
        f.emit(f"%there = icmp ne {came}, 0")
        f.emit("br i1 %there, label %met, label %alone")
        f.start("alone")
    f.emit("br label %met")
    f.start("met")
    f.done()


def write_callers(module):
    arguments = "ptr %fn, ptr %bufs, i64 %chunks, ptr %scratch, i64 %stride"
    named_ = [("fn", PTR), ("bufs", PTR), ("chunks", I64), ("scratch", PTR), ("stride", I64)]
    f = Fn(module, "many", [*named_, ("limit", I64), ("n", I64)], linkage="")
    with f.loop(0, f.arg("n")):
        f.emit(f"call void @rg_parallel_within({arguments}, i64 %limit)")
    f.done()
    f = kernel(module, "nested")  # in each chunk, `hit` for 4 chunks
    f.emit("call void @rg_parallel(ptr @hit, ptr %bufs, i64 4, ptr %scratch, i64 64)")
    f.done()


class Kernels:
    """The functions above, loaded; `run` calls the pool in a loop of generated code."""

    def __init__(self):
        module = Module(host())
        pool.declare(module)
        write_hit(module)
        write_wave(module)
        write_meet(module)
        write_callers(module)
        code = library(object_code(module))
        self.address = {name: code.address(name) for name in ("hit", "meet", "nested", "wave")}
        word, pointer = ctypes.c_int64, ctypes.c_void_p
        kind = ctypes.CFUNCTYPE(None, pointer, pointer, word, pointer, word, word, word)
        self.many = kind(code.address("many"))

    def run(self, name, arrays, chunks, *, n=1, limit=32, slots=32):
        """The scratch that was used, a row for each thread."""
        pointers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        scratch = np.zeros((slots, STRIDE), np.uint8)
        fn = self.address[name]
        self.many(fn, pointers, chunks, scratch.ctypes.data, STRIDE, limit, n)
        return scratch

    def count(self, chunks, **options):
        """How often each chunk ran, and which slot of the scratch its last run had."""
        counts, places = np.zeros(chunks, np.int64), np.zeros(chunks, np.int64)
        scratch = self.run("hit", [counts, places], chunks, **options)
        return counts, (places - scratch.ctypes.data) // STRIDE

    def wave(self, x, *, n=1):
        out = np.full_like(x, np.nan)
        self.run("wave", [x, out], len(x), n=n)
        return out


@pytest.fixture(scope="module")
def kernels():
    return Kernels()


@pytest.fixture(autouse=True)
def threads_as_before():
    before = pool.get_threads()
    yield
    pool.set_threads(before)


def until(true):
    """Wait for it; far longer than it takes."""
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.002)


# -- what it computes ----------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("chunks", [0, 1, 2, 5, 31, 32])
def test_every_chunk_runs_once_a_call(kernels, threads, chunks):
    pool.set_threads(threads)
    counts, slots = kernels.count(chunks, n=50)
    assert (counts == 50).all()
    assert ((slots >= 0) & (slots < min(threads, max(chunks, 1)))).all()


def test_more_chunks_than_there_are_bits(kernels):
    pool.set_threads(2)
    counts, _ = kernels.count(40, n=3)
    assert (counts == 3).all()


def test_a_call_may_bound_its_threads(kernels):
    pool.set_threads(8)
    kernels.count(8, n=20)  # all workers exist
    for limit in (1, 2, 3):
        counts, slots = kernels.count(32, n=50, limit=limit)
        assert (counts == 50).all()
        assert (slots < limit).all()


def test_the_same_bits_for_every_number_of_threads(kernels, rng):
    x = rng.normal(size=(32, ROW))
    found = []
    for threads in (1, 2, 3, 8):
        pool.set_threads(threads)
        found.append(kernels.wave(x, n=5))
    for one in found:
        np.testing.assert_array_equal(one, found[0])
        np.testing.assert_array_equal(one, np.cumsum(x, axis=1))


def test_a_chunk_may_call_the_pool(kernels):
    pool.set_threads(3)
    counts, places = np.zeros(8, np.int64), np.zeros(8, np.int64)
    kernels.run("nested", [counts, places], 6, n=20)
    assert counts.tolist() == [6 * 20] * 4 + [0] * 4


@needs_threads
def test_several_threads_do_the_work(kernels):
    """Chunk 0 waits for chunk 1, which is the worker's, and which nobody else is free to do."""
    pool.set_threads(2)
    for _ in range(5):
        counts, places = np.zeros(2, np.int64), np.zeros(2, np.int64)
        scratch = kernels.run("meet", [counts, places], 2)
        assert counts.tolist() == [1, 1]
        assert places[1] == scratch.ctypes.data + STRIDE


# -- users' threads ------------------------------------------------------------------------


def together(*functions):
    """Run them at the same time, and raise what one of them raised."""
    raised = []

    def guarded(function):
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - raised again below
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(f,)) for f in functions]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if raised:
        raise raised[0]


@pytest.mark.parametrize("threads", [2, 8])
def test_four_user_threads_at_once(kernels, threads):
    pool.set_threads(threads)

    def user():
        for chunks in (2, 7, 32):
            for _ in range(60):
                counts, _ = kernels.count(chunks, n=50)
                assert (counts == 50).all()

    together(*[user] * 4)


def test_the_number_changes_while_others_compute(kernels):
    going = threading.Event()
    going.set()

    def user():
        try:
            for _ in range(150):
                counts, slots = kernels.count(9, n=20, limit=2, slots=2)
                assert (counts == 20).all()
                assert (slots < 2).all()
        finally:
            going.clear()

    def changer():
        while going.is_set():
            for threads in (1, 2, 5, 3):
                pool.set_threads(threads)

    together(user, changer)


# -- sleep, fork, exit ---------------------------------------------------------------------


@needs_threads
def test_idle_workers_sleep_and_wake(kernels, rng):
    x = rng.normal(size=(16, ROW))
    for threads in (3, 2, 4):
        pool.set_threads(threads)
        kernels.wave(x)
        until(lambda: pool.sleeping() == pool.workers() > 0)
        np.testing.assert_array_equal(kernels.wave(x), np.cumsum(x, axis=1))
    assert pool.workers() >= 3


def blocks(task, number):
    """Whether a thread leaves a signal to others."""
    status = Path(f"/proc/self/task/{task}/status").read_text(encoding="ascii")
    (blocked,) = (line.split()[1] for line in status.splitlines() if "SigBlk" in line)
    return bool(int(blocked, 16) >> (number - 1) & 1)


@needs_threads
def test_signals_are_left_to_pythons_threads(kernels):
    before = set(os.listdir("/proc/self/task"))
    pool.set_threads(pool.workers() + 2)
    kernels.count(32)
    new = set(os.listdir("/proc/self/task")) - before
    assert new
    for task in new:
        # while it starts, a thread blocks all of them
        until(lambda task=task: not blocks(task, signal.SIGSEGV))
        assert blocks(task, signal.SIGINT)


def in_child(function):
    """Whether `function` is true in a forked child; a child that hangs is killed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forking with threads (of JAX too): our subject
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        try:
            os._exit(0 if function() else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@needs_fork
def test_a_forked_child_has_threads_of_its_own(kernels, rng):
    x = rng.normal(size=(32, ROW))
    pool.set_threads(3)
    wanted = kernels.wave(x, n=10)

    def same():
        none = pool.workers() == 0
        out = kernels.wave(x, n=10)
        return none and np.array_equal(out, wanted) and pool.workers() in (0, 2)

    assert in_child(same)
    assert in_child(lambda: in_child(same))
    np.testing.assert_array_equal(kernels.wave(x, n=10), wanted)


@needs_fork
def test_fork_while_another_thread_computes(kernels, rng):
    x = rng.normal(size=(32, ROW))
    pool.set_threads(3)
    wanted = kernels.wave(x)
    going = threading.Event()
    going.set()

    def user():
        while going.is_set():
            assert (kernels.count(32, n=200)[0] == 200).all()

    def forks():
        try:
            for _ in range(10):
                assert in_child(lambda: np.array_equal(kernels.wave(x, n=5), wanted))
        finally:
            going.clear()

    together(user, forks)


@needs_fork
def test_fork_while_another_thread_compiles():
    going = threading.Event()
    going.set()

    def compiles():
        while going.is_set():
            object_code(pool.module(host()))

    def forks():
        try:
            for _ in range(3):
                assert in_child(lambda: len(object_code(pool.module(host()))) > 0)
        finally:
            going.clear()

    together(compiles, forks)


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from test_pool import Kernels, pool
kernels = Kernels()
"""


def script(text, **environment):
    """Run Python code that has `kernels`; its output."""
    code = SCRIPT.format(tests=str(Path(__file__).parent)) + textwrap.dedent(text)
    told = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=told,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("spin", ["100000", "0"])  # at the end, workers spin, or sleep
def test_the_interpreter_exits(spin):
    said = script(
        """
        counts, _ = kernels.count(32, n=100)
        print(counts.sum(), pool.get_threads())
        """,
        RETROGRAD_THREADS="3",
        RETROGRAD_SPIN=spin,
    )
    assert said == f"{32 * 100} 3"


@needs_threads
def test_where_the_system_gives_no_more_threads():
    said = script(
        """
        import resource
        pages = int(open("/proc/self/statm").read().split()[0])
        room = pages * resource.getpagesize() + 2**20  # less than a stack
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        counts, _ = kernels.count(32, n=100)
        print(counts.sum(), pool.workers())
        """,
        RETROGRAD_THREADS="8",
    )
    total, workers = said.split()
    assert int(total) == 32 * 100
    assert int(workers) < 7


# -- how many ------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, -1, 33, 2.0, "2", None, True])
def test_a_number_of_threads_that_cannot_be(n):
    before = pool.get_threads()
    with pytest.raises(
        ArgumentError, match=r"set_threads: n must be a count from 1 to 32; got"
    ):
        pool.set_threads(n)
    assert pool.get_threads() == before


def test_numpy_integers_count():
    pool.set_threads(np.int64(3))
    assert pool.get_threads() == 3


@pytest.mark.parametrize(
    ("name", "value"), [("THREADS", "0"), ("THREADS", "two"), ("SPIN", "-1"), ("SPIN", "x")]
)
def test_the_environment_is_checked(monkeypatch, name, value):
    monkeypatch.setenv(f"RETROGRAD_{name}", value)
    monkeypatch.setattr(counted, "_wanted", [])
    with pytest.raises(ArgumentError, match=rf"RETROGRAD_{name}: it must be .*; got"):
        counted.spin(pool.get_threads())


def test_as_many_threads_as_cpus(monkeypatch):
    monkeypatch.delenv("RETROGRAD_THREADS", raising=False)
    monkeypatch.setattr(counted, "_wanted", [])
    assert pool.get_threads() == min(cpus.cpus(), pool.MAX_THREADS)


@pytest.mark.parametrize(
    ("membership", "files", "wanted"),
    [
        ("0::/a/b\n", {"a/cpu.max": "200000 100000\n", "a/b/cpu.max": "max 100000\n"}, 2.0),
        ("0::/a/b\n", {"a/cpu.max": "max 100000\n", "a/b/cpu.max": "50000 100000\n"}, 0.5),
        ("0::/\n", {}, None),
        ("0::/\n", {"cpu.max": "nonsense"}, None),
        ("", {}, None),
        (
            "3:cpuset:/\n1:cpu,cpuacct:/a\n0::/\n",
            {"cpu/a/cpu.cfs_quota_us": "150000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            1.5,
        ),
        (
            "1:cpu:/\n",
            {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
            None,
        ),
    ],
)
def test_what_control_groups_grant(tmp_path, membership, files, wanted):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    assert cpus.quota(str(tmp_path), membership) == wanted


# -- other systems -------------------------------------------------------------------------


def test_it_emits_for_other_machines():
    arm = named("neon")
    assert has_threads(arm)
    assert object_code(pool.module(arm))
    apple = replace(arm, triple="arm64-apple-macos")
    assert not has_threads(apple)
    assert object_code(pool.module(apple))


def test_without_threads_it_runs_alone(kernels):
    module = Module(host())
    module.functions["rg_parallel"] = serial_text()
    code = library(object_code(module))
    word, pointer = ctypes.c_int64, ctypes.c_void_p
    kind = ctypes.CFUNCTYPE(None, pointer, pointer, word, pointer, word)
    parallel = kind(code.address("rg_parallel"))
    counts, places, scratch = (np.zeros(9, np.int64) for _ in range(3))
    bufs = (pointer * 2)(counts.ctypes.data, places.ctypes.data)
    parallel(kernels.address["hit"], bufs, 9, scratch.ctypes.data, 8)
    assert counts.tolist() == [1] * 9
    assert (places == scratch.ctypes.data).all()
