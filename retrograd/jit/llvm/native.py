"""From LLVM IR text to functions in memory."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import llvmlite
import llvmlite.binding as llvm
from llvmlite.binding import ffi

from retrograd.jit.heap import give_back
from retrograd.jit.llvm import cache
from retrograd.jit.llvm.machine import host, running
from retrograd.jit.llvm.split import joined, objects, parts
from retrograd.jit.threads import get_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrograd.jit.llvm.machine import Machine
    from retrograd.jit.llvm.text import Module

__all__ = [
    "LOCK",
    "Library",
    "assembly",
    "compiled",
    "library",
    "makers",
    "object_code",
    "object_name",
    "stored_library",
]

# Held while LLVM works and while the process forks: a child never finds LLVM half-way through
# something that a thread it does not have was doing.
LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release
    )

_ALIVE: list[Any] = []  # engines own the code: they stay as long as the process
_MUCH = 1 << 15  # bytes of code that LLVM took much memory for
_FILE = os.path.basename(str(getattr(ffi.lib, "_name", "")))  # of LLVM
_MAPS = "/proc/self/maps"
_DONTNEED = 4  # Linux's name for a file's pages that may be read again when needed


class Library:
    """Functions that are loaded; addresses by name."""

    def __init__(self, *engines: Any) -> None:
        self._engines = engines
        _ALIVE.extend(engines)

    def address(self, name: str) -> int:
        """Where a function that is not internal starts."""
        for engine in self._engines:
            if found := engine.get_function_address(name):
                return found
        raise KeyError(name)


@lru_cache
def _target(machine: Machine, level: int) -> Any:
    host()
    if machine.triple != host().triple:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(machine.triple)
    return target.create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=level, reloc="pic", jit=True
    )


_other_target = lru_cache(_target.__wrapped__)  # of the thread that helps


def _parse(module: Module, context: Any = None) -> Any:
    target = _target(module.machine, 1)
    head = f'target triple = "{module.machine.triple}"\n'
    head += f'target datalayout = "{target.target_data}"\n'
    parsed = llvm.parse_assembly(head + module.text(), context)
    parsed.verify()
    return parsed


def object_code(module: Module) -> bytes:
    """The module as an object file; of a large one both halves are made at the same time."""
    with LOCK:
        emit = _unlocked() if get_threads() > 1 else None
        found = parts(module) if emit else None
        if emit is None or found is None:
            code = _target(module.machine, 1).emit_object(_parse(module))
        else:
            first, second = _at_once(emit, found[:2])
            code = joined(first, second, found.names)
    if len(code) > _MUCH:
        give_back()
    return code


def _at_once(emit: Callable[[Any, Any], bytes], modules: Sequence[Module]) -> list[bytes]:
    """The objects of two modules, one of them made on another thread."""
    # LLVM is safe for threads that have a context and a target each
    contexts = [llvm.create_context() for _ in modules]
    parsed: list[Any] = []
    try:
        parsed += map(_parse, modules, contexts)
        return _both(emit, parsed, modules[0].machine)
    finally:  # in this order, which the collector of garbage does not know
        for made in (*parsed, *contexts):
            made.close()


def _both(emit: Callable[[Any, Any], bytes], parsed: list[Any], machine: Machine) -> list[Any]:
    targets = _target(machine, 1), _other_target(machine, 1)
    found: list[Any] = [None, None]

    def other() -> None:
        try:
            found[1] = emit(targets[1], parsed[1])
        except (RuntimeError, MemoryError) as error:
            found[1] = error

    helper = threading.Thread(target=other)
    helper.start()
    try:
        found[0] = emit(targets[0], parsed[0])
    finally:
        helper.join()
    if isinstance(found[1], Exception):
        raise found[1]
    return found


def _put_away() -> None:
    """Unmap the pages of LLVM's own code, 30 to 50 MB; the next use finds them in the cache."""
    for start, size in _pages():
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _DONTNEED)


@lru_cache
def _pages() -> list[tuple[int, int]]:
    """Where the system maps code of LLVM: only what nobody can have written to."""
    found = []
    try:
        with open(_MAPS, encoding="utf-8") as file:
            for line in file:
                span, access, *_, path = line.split(maxsplit=5)
                if access == "r-xp" and os.path.basename(path.strip()) == _FILE:
                    first, end = (int(n, 16) for n in span.split("-"))
                    found.append((first, end - first))
    except OSError:  # another system than Linux, or one that does not show it
        return []
    return found


@lru_cache
def _unlocked() -> Callable[[Any, Any], bytes] | None:
    """What emits an object, without llvmlite's lock around it; None if that is not known."""
    try:
        inner = ctypes.CDLL(ffi.lib._name).LLVMPY_TargetMachineEmitToMemory
        inner.restype = ffi.LLVMMemoryBufferRef
    except (AttributeError, OSError, TypeError):  # of another version
        return None

    def emit(target: Any, parsed: Any) -> bytes:
        with ffi.OutputString() as said:
            buffer = inner(target, parsed, 1, said)
            if not buffer:
                raise RuntimeError(str(said))
        try:
            size = ffi.lib.LLVMPY_GetBufferSize(buffer)
            return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), size)
        finally:
            ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)

    return emit


def assembly(module: Module) -> str:
    """The module as assembly, to read."""
    with LOCK:
        return _target(module.machine, 1).emit_assembly(_parse(module))


def library(code: bytes) -> Library:
    """An object file, loaded."""
    with LOCK:
        first, second, names = objects(code)
        other = [_loaded(second)] if second else []
        for name in names:  # what the first points to must be known before
            llvm.add_symbol(name, other[0].get_function_address(name))
        found = Library(_loaded(first), *other)
        _put_away()
        return found


def _loaded(code: bytes) -> Any:
    # an engine each: one has a single base for what its objects say relative to their tables
    empty = llvm.parse_assembly(f'target triple = "{host().triple}"\n')
    engine = llvm.create_mcjit_compiler(empty, _target(host(), 1))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def compiled(module: Module) -> Library:
    """The module, loaded; compiled unless the cache on disk has it."""
    running(module.machine)
    return library(cache.load(_key(module), lambda: object_code(module)))


def stored_library(name: str) -> Library | None:
    """An object of the cache, loaded; None if it is not there whole."""
    code = cache.find(name)
    return None if code is None else library(code)


def object_name(machine: Machine, text: str) -> str:
    """The name in the cache of the object of a module with this text."""
    return cache.name_of(_named(machine, text))


def makers() -> str:
    """The versions of all that makes objects."""
    version = ".".join(map(str, llvm.llvm_version_info))
    ours = sys.modules["retrograd"].__version__  # rooms do not import the face
    return f"retrograd {ours}, llvmlite {llvmlite.__version__}, LLVM {version}, level 1, parts"


def _key(module: Module) -> str:
    """All that an object file depends on."""
    return _named(module.machine, module.text())


def _named(machine: Machine, text: str) -> str:
    target = f"{machine.triple} {machine.cpu} {machine.features}"
    return f"{makers()}\n{target}\n{text}"
