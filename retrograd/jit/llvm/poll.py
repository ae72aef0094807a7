"""Python in the midst of a program: its signals in long loops, and calls of its functions.

Generated loops call `rg_poll(ctx) -> i32` at their back edges, on the thread that called the
program and outside of chunks. Almost always that is a counter. About every millisecond it looks
at the clock, and at most every 50 ms it asks Python to run its signal handlers. If one of them
raises (Ctrl-C does), the exception is kept in `ctx` and the answer is 1: leave the loop and
return, and `Poll.raise_caught()` raises it where the program was called. With a null `ctx` the
answer is always 0.

The question is put by PyErr_CheckSignals from the generated code and not by a callback written
in Python: a pending KeyboardInterrupt strikes such a callback before its first line, outside of
any `try` in it. For the same reason `rg_host(ctx, number, bufs) -> i32` calls the `ctx`'s
function of (number, address of bufs) by Python's own interface, and keeps what it raises,
wherever that comes from.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm

from retrograd.jit.llvm.machine import host
from retrograd.jit.llvm.native import LOCK, Library, compiled
from retrograd.jit.llvm.pool_text import CLOCK, clock_number
from retrograd.jit.llvm.text import Module

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrograd.jit.llvm.machine import Machine

__all__ = ["Poll", "declare", "load", "module"]

_loaded: list[Library] = []
_PYTHON = (
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyErr_CheckSignals",
    "PyErr_Fetch",
    "PyErr_NormalizeException",
    "PyObject_CallFunction",
    "Py_DecRef",
)


class Poll:
    """The `ctx` of one call in flight: its address, and what was caught while it ran.

    Only the main thread is ever interrupted, as everywhere in Python: other threads pass 0 to
    rg_poll. `function` is what rg_host calls.
    """

    __slots__ = ("_function", "_words", "address")

    def __init__(self, function: Callable[[int, int], object] | None = None) -> None:
        load()
        self._function = function  # it lives as long as its address is in use
        self._words = (ctypes.c_int64 * 9)()  # as the text below lays them out
        self._words[8] = id(function)
        self.address = ctypes.addressof(self._words)

    @property
    def caught(self) -> bool:
        """Whether a signal handler raised, or the function."""
        return bool(self._words[7])

    def raise_caught(self) -> None:
        """Raise what was raised while the program ran, once."""
        if not self._words[7]:
            return
        _, error, trace = (_taken(self._words[i]) for i in (4, 5, 6))
        self._words[:8] = [0] * 8
        try:
            raise error.with_traceback(trace)
        finally:
            del error, trace  # or the error would hold this frame, and the frame the error


def _taken(address: int) -> Any:
    """The object at an address, whose reference becomes ours."""
    if not address:
        return None
    pointer = ctypes.c_void_p(address)
    value = ctypes.cast(pointer, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(value))
    return value


def declare(into: Module) -> None:
    """Let a module call `i32 @rg_poll(ptr)` and `i32 @rg_host(ptr, i64, ptr)`."""
    load()
    into.declare("rg_poll", "i32", "ptr")
    into.declare("rg_host", "i32", "ptr, i64, ptr")


def load() -> Library:
    """The functions in memory, known to all modules loaded later; once in a process."""
    if not _loaded:
        with LOCK:
            if not _loaded:
                for name in _PYTHON:
                    at = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
                    llvm.add_symbol(name, at)
                library = compiled(module(host()))
                for name in ("rg_poll", "rg_host"):
                    llvm.add_symbol(name, library.address(name))
                _loaded.append(library)
    return _loaded[0]


def module(machine: Machine) -> Module:
    """What `load` loads."""
    made = Module(machine)
    clocked = "windows" not in machine.triple
    text = CLOCK.replace("CLOCK_NUMBER", str(clock_number(machine))) + _POLL
    made.functions["rg_poll"] = text if clocked else _NEVER
    made.functions["rg_host"] = _HOST
    return made


# ctx: 0 calls until the clock, 1 calls between looks at it, 2 the last look, 3 the last visit
# to Python, 4-6 type, value and traceback of what was raised, 7 whether something was, 8 the
# function. The
# calls between two looks (64 at most) double while looks are less than 1 ms apart, and start
# again from 1 when they are 8 ms apart: turns of a loop may take nanoseconds or seconds.
_POLL = """
declare i32 @PyErr_CheckSignals()
declare i64 @llvm.umin.i64(i64, i64)

define i32 @rg_poll(ptr %ctx) nounwind {
entry:
  %off = icmp eq ptr %ctx, null
  br i1 %off, label %no, label %count
count:
  %left = load i64, ptr %ctx
  %less = sub i64 %left, 1
  store i64 %less, ptr %ctx
  %not_yet = icmp sgt i64 %less, 0
  br i1 %not_yet, label %no, label %look
look:
  %stop = call i32 @look(ptr %ctx)
  ret i32 %stop
no:
  ret i32 0
}

define internal i32 @look(ptr %ctx) nounwind noinline {
entry:
  %raised_at = getelementptr i64, ptr %ctx, i64 7
  %raised = load i64, ptr %raised_at
  %over = icmp ne i64 %raised, 0
  br i1 %over, label %stop, label %clock
clock:
  %step_at = getelementptr i64, ptr %ctx, i64 1
  %look_at = getelementptr i64, ptr %ctx, i64 2
  %visit_at = getelementptr i64, ptr %ctx, i64 3
  %now = call i64 @clock()
  %last = load i64, ptr %look_at
  store i64 %now, ptr %look_at
  %apart = sub i64 %now, %last
  %old = load i64, ptr %step_at
  %twice = shl i64 %old, 1
  %grown = call i64 @llvm.umin.i64(i64 %twice, i64 64)
  %quick = icmp ult i64 %apart, 1000000
  %slow = icmp ugt i64 %apart, 8000000
  %kept = select i1 %quick, i64 %grown, i64 %old
  %some = select i1 %slow, i64 1, i64 %kept
  %none = icmp eq i64 %some, 0
  %step = select i1 %none, i64 1, i64 %some
  store i64 %step, ptr %step_at
  store i64 %step, ptr %ctx
  %visit = load i64, ptr %visit_at
  %first = icmp eq i64 %visit, 0
  br i1 %first, label %begin, label %rested
begin:
  store i64 %now, ptr %visit_at
  ret i32 0
rested:
  %since = sub i64 %now, %visit
  %due = icmp uge i64 %since, 50000000
  br i1 %due, label %ask, label %no
ask:
  store i64 %now, ptr %visit_at
  %gil = call i32 @PyGILState_Ensure()
  %answer = call i32 @PyErr_CheckSignals()
  %bad = icmp ne i32 %answer, 0
  br i1 %bad, label %keep, label %fine
fine:
  call void @PyGILState_Release(i32 %gil)
  ret i32 0
keep:
  call void @keep(ptr %ctx)
  call void @PyGILState_Release(i32 %gil)
  br label %stop
stop:
  store i64 0, ptr %ctx
  ret i32 1
no:
  ret i32 0
}
"""

_NEVER = """
define i32 @rg_poll(ptr %ctx) nounwind {
  ret i32 0
}
"""

_HOST = """
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_NormalizeException(ptr, ptr, ptr)
declare ptr @PyObject_CallFunction(ptr, ptr, ...)
declare void @Py_DecRef(ptr)

@two_numbers = internal constant [3 x i8] c"LK\\00"

define i32 @rg_host(ptr %ctx, i64 %number, ptr %bufs) nounwind {
entry:
  %spot = getelementptr i64, ptr %ctx, i64 8
  %function = load ptr, ptr %spot
  %address = ptrtoint ptr %bufs to i64
  %gil = call i32 @PyGILState_Ensure()
  %found = call ptr (ptr, ptr, ...) @PyObject_CallFunction(ptr %function, ptr @two_numbers,
    i64 %number, i64 %address)
  %bad = icmp eq ptr %found, null
  br i1 %bad, label %raised, label %fine
fine:
  call void @Py_DecRef(ptr %found)
  call void @PyGILState_Release(i32 %gil)
  ret i32 0
raised:
  call void @keep(ptr %ctx)
  call void @PyGILState_Release(i32 %gil)
  ret i32 1
}

define internal void @keep(ptr %ctx) nounwind noinline {
  %type = getelementptr i64, ptr %ctx, i64 4
  %value = getelementptr i64, ptr %ctx, i64 5
  %trace = getelementptr i64, ptr %ctx, i64 6
  %raised_at = getelementptr i64, ptr %ctx, i64 7
  call void @PyErr_Fetch(ptr %type, ptr %value, ptr %trace)
  call void @PyErr_NormalizeException(ptr %type, ptr %value, ptr %trace)
  store i64 1, ptr %raised_at
  ret void
}
"""
