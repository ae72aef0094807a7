"""Large modules as parts that LLVM can compile at the same time, and their objects as one file.

Functions that call each other stay together, so that their code is what it is in one module. A
table of the first part alone points to functions of the second.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, NamedTuple

from retrograd.jit.llvm.text import Module

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Parts", "joined", "objects", "parts"]

BRANCH = 80  # lines that take LLVM as long as a branch does, for branches make loops
LARGE = 4000  # lines of text: less is compiled before a thread would be worth it
_NAME = re.compile(r"@([\w.]+)")
_PRIVATE = "define internal "
_END = struct.Struct("<QQ8s")  # of a file: bytes of the first object, of the second, and this
_MAGIC = b"2objects"


class Parts(NamedTuple):
    """A module in two, and the functions of the second that the first points to."""

    first: Module
    second: Module
    names: list[str]


def parts(module: Module) -> Parts | None:
    """Two of about equal length that together are the module; None if it had better be one."""
    if sum(text.count("\n") for text in module.functions.values()) < LARGE:
        return None
    cost = {name: _cost(text) for name, text in module.functions.items()}
    uses = {name: set(_NAME.findall(text)) for name, text in module.functions.items()}
    tables = {name: set(_NAME.findall(body)) for body, name in module.globals.items()}
    known = {*uses, *tables, *module.declared, *module.words}
    if any(used - known for used in uses.values()):
        return None  # functions that have no place of their own in the module
    groups = sorted(_groups(uses), key=lambda g: -sum(cost[n] for n in g))
    pointing = {n for n, used in uses.items() if any(tables.get(t) for t in used)}
    sides: tuple[set[str], set[str]] = (set(), set())
    filled = [0, 0]
    for group in sorted(groups, key=pointing.isdisjoint):  # those that point are in the first
        at = filled.index(min(filled)) if pointing.isdisjoint(group) else 0
        sides[at].update(group)
        filled[at] += sum(cost[n] for n in group)
    if not all(sides):
        return None
    names = sorted(sides[1] & set[str]().union(*tables.values()))
    return Parts(_part(module, sides[0], names), _part(module, sides[1], names), names)


def _cost(text: str) -> int:
    """How long LLVM takes for a function, in lines of straight code."""
    return text.count("\n") + BRANCH * text.count("br i1")


def _groups(uses: dict[str, set[str]]) -> list[list[str]]:
    """Functions that use each other, in the order of the first of them."""
    group = {name: [name] for name in uses}
    for name, used in uses.items():
        for other in sorted(used & uses.keys()):
            mine, theirs = group[name], group[other]
            if mine is not theirs:
                mine += theirs
                group.update((n, mine) for n in theirs)
    return list({id(g): g for g in group.values()}.values())


def _part(module: Module, wanted: set[str], names: Sequence[str]) -> Module:
    """Some functions of a module, and what they use; `names` are seen from outside."""
    part = Module(module.machine)
    kept = {n: t for n, t in module.functions.items() if n in wanted}
    used = {name for text in kept.values() for name in _NAME.findall(text)}
    part.globals = {body: name for body, name in module.globals.items() if name in used}
    part.declared = {n: d for n, d in module.declared.items() if n in used}
    part.words = [n for n in module.words if n in used]
    for name in names:
        if name not in kept:
            part.declare(name, "void", "")  # only where it is matters
        else:
            kept[name] = kept[name].replace(_PRIVATE, "define ", 1)
    part.functions = kept
    return part


def joined(first: bytes, second: bytes, names: Sequence[str]) -> bytes:
    """The objects of two parts as one file."""
    end = _END.pack(len(first), len(second), _MAGIC)
    return b"".join([first, second, " ".join(names).encode(), end])


def objects(code: bytes) -> tuple[bytes, bytes, list[str]]:
    """The objects in a file, and names in the second; of one object, that and nothing."""
    if not code.endswith(_MAGIC):
        return code, b"", []
    first, second, _ = _END.unpack(code[-_END.size :])
    names = code[first + second : -_END.size].decode().split()
    return code[:first], code[first : first + second], names
