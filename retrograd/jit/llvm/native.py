"""From LLVM IR text to functions in memory."""

from __future__ import annotations

import os
import sys
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import llvmlite
import llvmlite.binding as llvm

from retrograd.jit.llvm import cache
from retrograd.jit.llvm.machine import host

if TYPE_CHECKING:
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


class Library:
    """Functions that are loaded; addresses by name."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        _ALIVE.append(engine)

    def address(self, name: str) -> int:
        """Where a function that is not internal starts."""
        found = self._engine.get_function_address(name)
        if not found:
            raise KeyError(name)
        return found


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


def _parse(module: Module) -> Any:
    target = _target(module.machine, 1)
    head = f'target triple = "{module.machine.triple}"\n'
    head += f'target datalayout = "{target.target_data}"\n'
    parsed = llvm.parse_assembly(head + module.text())
    parsed.verify()
    return parsed


def object_code(module: Module) -> bytes:
    """The module as an object file."""
    with LOCK:
        return _target(module.machine, 1).emit_object(_parse(module))


def assembly(module: Module) -> str:
    """The module as assembly, to read."""
    with LOCK:
        return _target(module.machine, 1).emit_assembly(_parse(module))


def library(code: bytes) -> Library:
    """An object file, loaded."""
    with LOCK:
        empty = llvm.parse_assembly(f'target triple = "{host().triple}"\n')
        engine = llvm.create_mcjit_compiler(empty, _target(host(), 1))
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        return Library(engine)


def compiled(module: Module) -> Library:
    """The module, loaded; compiled unless the cache on disk has it."""
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
    return f"retrograd {ours}, llvmlite {llvmlite.__version__}, LLVM {version}, level 1, pic"


def _key(module: Module) -> str:
    """All that an object file depends on."""
    return _named(module.machine, module.text())


def _named(machine: Machine, text: str) -> str:
    target = f"{machine.triple} {machine.cpu} {machine.features}"
    return f"{makers()}\n{target}\n{text}"
