"""Interrupts in long compiled loops: delivered, kept, raised; and the next call works."""

import ctypes
import os
import signal
import threading
import time
import weakref
from contextlib import contextmanager

import pytest

from retrograd.jit.llvm import poll
from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.machine import host, named
from retrograd.jit.llvm.native import library, object_code
from retrograd.jit.llvm.text import I64, PTR, Module

FOREVER = 1 << 60

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="no timers on this system"
)


class Told(Exception):  # noqa: N818 - it is a signal's message, not an error
    """What the tests' signal handler raises."""


def write(module, name, pause):
    """Turns of a loop that polls, until n, a non-zero stop[0], or an interrupt; how many.

    While it runs, stop[1] is 1.
    """
    module.declare("usleep", "i32", "i32")
    f = Fn(module, name, [("ctx", PTR), ("stop", PTR), ("n", I64)], I64, linkage="")
    f.emit("%running = getelementptr i32, ptr %stop, i64 1")
    f.emit("store volatile i32 1, ptr %running")
    f.emit("br label %turn")
    f.lines.append("turn:")
    f.emit("%i = phi i64 [ 0, %entry ], [ %next, %on ]")
    f.emit("%next = add i64 %i, 1")
    if pause:
        f.emit(f"%slept = call i32 @usleep(i32 {pause})")
    f.emit("%answer = call i32 @rg_poll(ptr %ctx)")
    f.emit("%told = load volatile i32, ptr %stop")
    f.emit("%either = or i32 %answer, %told")
    f.emit("%leave = icmp ne i32 %either, 0")
    f.emit("br i1 %leave, label %out, label %on")
    f.lines.append("on:")
    f.emit("%more = icmp slt i64 %next, %n")
    f.emit("br i1 %more, label %turn, label %out")
    f.lines.append("out:")
    f.emit("store volatile i32 0, ptr %running")
    f.done(f.make(I64, "add i64 %next, 0"))


@pytest.fixture(scope="module")
def loops():
    """loop(ctx, stop, n) with quick turns, and with turns of 2 ms."""
    module = Module(host())
    poll.declare(module)
    write(module, "quick", 0)
    write(module, "slow", 2000)
    code = library(object_code(module))
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return {name: kind(code.address(name)) for name in ("quick", "slow")}


@pytest.fixture
def words():
    """The stop word, zero, and whether the loop runs."""
    return (ctypes.c_int32 * 2)()


@contextmanager
def alarms(words, handle):
    """A signal again and again; `handle` is called for those that meet the loop running."""

    def handler(number, frame):
        if words[1]:
            handle()

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.06, 0.06)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def tell():
    raise Told("stop")


@pytest.mark.parametrize("speed", ["quick", "slow"])
def test_an_exception_of_a_handler_ends_the_loop(loops, words, speed):
    asked = poll.Poll()
    for _ in range(2):  # the second call works as the first
        with alarms(words, tell):
            turns = loops[speed](asked.address, words, FOREVER)
        assert 0 < turns < FOREVER
        assert asked.caught
        with pytest.raises(Told, match="stop"):
            asked.raise_caught()
        assert not asked.caught
        asked.raise_caught()  # nothing is left
        assert loops[speed](asked.address, words, 10) == 10


def test_control_c(loops, words):
    asked = poll.Poll()

    def press():
        while not words[1]:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    turns = loops["quick"](asked.address, words, FOREVER)
    presser.join()
    assert turns < FOREVER
    with pytest.raises(KeyboardInterrupt):
        asked.raise_caught()


def test_a_loop_that_goes_on_regardless_is_told_each_time(loops, words):
    asked = poll.Poll()
    with alarms(words, tell):
        loops["quick"](asked.address, words, FOREVER)
    assert loops["quick"](asked.address, words, FOREVER) == 1
    with pytest.raises(Told):
        asked.raise_caught()


def test_handlers_run_while_the_loop_goes_on(loops, words):
    calls = []

    def count():
        calls.append(words[1])
        if len(calls) == 3:
            tell()

    asked = poll.Poll()
    with alarms(words, count):
        loops["quick"](asked.address, words, FOREVER)
    assert calls == [1, 1, 1]
    with pytest.raises(Told):
        asked.raise_caught()


def test_a_handler_may_run_a_loop_itself(loops, words):
    inner = []

    def again():
        signal.setitimer(signal.ITIMER_REAL, 0)
        own, others = poll.Poll(), (ctypes.c_int32 * 2)()
        inner.append(loops["quick"](own.address, others, 1000))
        tell()

    asked = poll.Poll()
    with alarms(words, again):
        loops["quick"](asked.address, words, FOREVER)
    assert inner == [1000]
    with pytest.raises(Told):
        asked.raise_caught()


def test_other_threads_may_poll_and_others_run_meanwhile(loops, words):
    """The interpreter's lock is taken for the question only."""
    asked, turns = poll.Poll(), []
    loop = loops["quick"]
    thread = threading.Thread(
        target=lambda: turns.append(loop(asked.address, words, FOREVER)), daemon=True
    )
    thread.start()
    while not words[1]:
        time.sleep(0.001)
    time.sleep(0.15)  # it asks a few times
    words[0] = 1
    thread.join()
    assert turns[0] > 0
    assert not asked.caught


def test_without_a_context_nothing_is_asked(loops, words):
    assert loops["quick"](None, words, 1000) == 1000


def test_what_was_raised_is_freed(loops, words):
    asked = poll.Poll()
    with alarms(words, tell):
        loops["quick"](asked.address, words, FOREVER)
    try:
        asked.raise_caught()
    except Told as error:
        kept = weakref.ref(error)
    assert kept() is None


def test_it_emits_for_other_machines():
    assert object_code(poll.module(named("neon")))
