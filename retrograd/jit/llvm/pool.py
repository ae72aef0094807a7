"""Threads: a pool that lives in generated code, and how many it has.

    m = Module(host())
    pool.declare(m)             # m may now call rg_parallel and rg_parallel_within

    void rg_parallel(ptr fn, ptr bufs, i64 chunks, ptr scratch, i64 stride)
    void rg_parallel_within(ptr fn, ptr bufs, i64 chunks, ptr scratch, i64 stride, i64 threads)

run `fn(bufs, chunk, scratch + thread * stride)` for the chunks 0, 1, ... (32 at most) and
return when all are done. `scratch` has `stride` bytes for each of get_threads() threads; a
program that may run while somebody calls set_threads says how many its scratch has room for
(the second form). One job runs at a time: while it does, other callers, and chunks that call
again, run theirs alone, in their scratch of thread 0. Nobody waits for a chunk that nobody is
working on.

After a fork the child starts threads of its own when it first needs them.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import llvmlite.binding as llvm

from retrograd.jit.llvm.machine import host
from retrograd.jit.llvm.native import LOCK, Library, compiled
from retrograd.jit.llvm.pool_text import has_threads, pool_text, serial_text
from retrograd.jit.llvm.text import Module
from retrograd.jit.threads import MAX_THREADS, follow, get_threads, set_threads

if TYPE_CHECKING:
    from retrograd.jit.llvm.machine import Machine

__all__ = [
    "MAX_THREADS",
    "declare",
    "get_threads",
    "load",
    "module",
    "set_threads",
    "sleeping",
    "workers",
]


class Controls(NamedTuple):
    """What Python calls of the pool; found once, for a forked child must not ask LLVM."""

    library: Library
    set: Callable[[int, int], None]
    forget: Callable[[], None]
    workers: Callable[[], int]
    sleeping: Callable[[], int]


_PARALLEL = "ptr, ptr, i64, ptr, i64"
_loaded: list[Controls] = []


def declare(into: Module) -> None:
    """Let a module call rg_parallel and rg_parallel_within."""
    load()
    into.declare("rg_parallel", "void", _PARALLEL)
    into.declare("rg_parallel_within", "void", f"{_PARALLEL}, i64")


def load() -> Library:
    """The pool in memory, known to all modules loaded later; once in a process."""
    if not _loaded:
        with LOCK:
            if not _loaded:
                library = compiled(module(host()))
                for name in ("rg_parallel", "rg_parallel_within"):
                    llvm.add_symbol(name, library.address(name))
                controls = _controls(library)
                follow(controls.set)
                _loaded.append(controls)
    return _loaded[0].library


def _controls(library: Library) -> Controls:
    word = ctypes.c_int64

    def found(name: str, result: type | None, *args: type) -> Callable:
        return ctypes.CFUNCTYPE(result, *args)(library.address(name))

    return Controls(
        library,
        found("rg_pool_set", None, word, word),
        found("rg_pool_forget", None),
        found("rg_pool_workers", word),
        found("rg_pool_sleeping", ctypes.c_uint64),
    )


def module(machine: Machine) -> Module:
    """The pool as IR; without threads where the system's are not known."""
    made = Module(machine)
    made.functions["rg_parallel"] = (
        pool_text(machine) if has_threads(machine) else serial_text()
    )
    return made


def workers() -> int:
    """How many threads the pool has started."""
    return _loaded[0].workers() if _loaded else 0


def sleeping() -> int:
    """How many of them sleep in the kernel."""
    return _loaded[0].sleeping().bit_count() if _loaded else 0


def _forget() -> None:
    if _loaded:
        _loaded[0].forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
