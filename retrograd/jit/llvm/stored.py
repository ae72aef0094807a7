"""Programs on disk: found by the graph that was traced, so that nothing is planned again.

    key = key_of(graph, donated, machine, fast=False)
    program = find(key, how)      # None: not there, or not whole
    keep(key, program)            # after it was built

A file has all that a call needs but the object code, which it names: plain numbers as JSON,
then the bytes of large literals that passes made. What the traced graph has (the user's lines
and literals, ops that Python runs) is said by the place there. Where any of it is in doubt,
there is no key, or nothing is found: the program is built then, as always.
"""

from __future__ import annotations

import json
import struct
import sys
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from retrograd.core import sources
from retrograd.core.exact import Exact
from retrograd.core.spec import Spec
from retrograd.ir.fingerprint import Fingerprint, fingerprint, line
from retrograd.ir.graph import Node
from retrograd.jit.llvm import cache, poll, pool
from retrograd.jit.llvm.faults import Fault, Faults
from retrograd.jit.llvm.native import makers, object_name, stored_library
from retrograd.jit.llvm.ready import HostCall, Program
from retrograd.ops.literal import Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrograd.ir.graph import Graph
    from retrograd.jit.llvm.machine import Machine
    from retrograd.jit.llvm.ready import Written

__all__ = ["Key", "find", "keep", "key_of"]

_LENGTH = struct.Struct("<Q")
_LARGE = 64 << 20  # bytes of literals that are not worth a file


class Key(NamedTuple):
    """Where a program is in the cache, and the graph that it is of."""

    name: str
    traced: Fingerprint
    machine: Machine


class _UnknownError(Exception):
    """Something that no place in the traced graph stands for."""


def key_of(graph: Graph, donated: Sequence[int], machine: Machine, *, fast: bool) -> Key | None:
    """The key of a traced graph; None if it cannot be kept."""
    if not sources.stamp() or cache.directory(create=True) is None:
        return None
    traced = fingerprint(graph)
    if traced is None:
        return None
    words = [
        "program",
        makers(),
        sys.implementation.cache_tag or sys.version,
        np.__version__,
        sources.stamp(),
        repr(machine),
        repr((tuple(donated), fast)),
        traced.text,
    ]
    return Key(cache.name_of("\n".join(words)), traced, machine)


# -- writing -----------------------------------------------------------------------------------


def keep(key: Key, program: Program) -> None:
    """Write a program that was built, if the sources are still those that built it."""
    if not sources.unchanged() or sum(c.nbytes for c in program.constants) > _LARGE:
        return
    try:
        row = _row(key, program)
    except (_UnknownError, TypeError):  # TypeError: an op without a hash
        return
    text = json.dumps(row).encode()
    pairs = zip(row["constants"], program.constants, strict=True)
    data = [np.ascontiguousarray(c).tobytes() for at, c in pairs if type(at) is not int]
    cache.keep(key.name, b"".join([_LENGTH.pack(len(text)), text, *data]))


def _row(key: Key, program: Program) -> dict[str, Any]:
    lines = key.traced.lines()

    def place(where: Any) -> int:
        found = -1 if where is None else lines.get(line(where))
        if found is None:
            raise _UnknownError
        return found

    faults = program.faults.rows
    return {
        "object": object_name(key.machine, program.text),
        "arena": program.arena,
        "scratch": program.scratch,
        "constants": _literals(key, program),
        "hosts": _hosts(key, program, place),
        "given": program.given,
        "outputs": list(program.outputs),
        "specs": [[v, _spec(s)] for v, s in program.specs.items()],
        "reuse": list(program.reuse.items()),
        "polls": program.polls,
        "faults": [_fault(f) for f in faults],
        "wheres": [[f.node, place(program.wheres[f.node])] for f in faults],
    }


def _literals(key: Key, program: Program) -> list[Any]:
    """Of each large literal the node of the traced graph that has it, else its spec."""
    if not program.constants:
        return []
    known: dict[Exact, int] = {}
    for at, node in enumerate(key.traced.nodes):
        if isinstance(node.op, Literal):
            known.setdefault(node.op.value, at)
    found = [(c, known.get(Exact(c))) for c in program.constants]
    return [_spec(Spec(c.shape, c.dtype)) if at is None else at for c, at in found]


def _hosts(key: Key, program: Program, place: Callable[[Any], int]) -> list[Any]:
    """Calls of Python: the op by a node of the traced graph that has it."""
    if not program.hosts:
        return []
    ops: dict[Any, int] = {}
    for at, node in enumerate(key.traced.nodes):
        ops.setdefault(node.op, at)
    rows = []
    for call in program.hosts:
        if not isinstance(call, HostCall) or call.node.op not in ops:
            raise _UnknownError
        specs, outs = ([_spec(s) for s in some] for some in (call.specs, call.outs))
        rows.append([ops[call.node.op], place(call.node.where), specs, outs])
    return rows


def _spec(spec: Spec) -> list[Any]:
    if spec.dtype.kind not in "biufc" or spec.device != "cpu":
        raise _UnknownError
    return [list(spec.shape), spec.dtype.str]


def _fault(fault: Fault) -> list[Any]:
    found = list(astuple(fault))
    if not all(type(x) in (int, str, bool) for x in found):
        raise _UnknownError
    return found


# -- reading -----------------------------------------------------------------------------------


def find(key: Key, how: Callable[[], Written]) -> Program | None:
    """A program that was kept; `how` says how it was written, if somebody asks."""
    found = cache.find(key.name)
    if found is None:
        return None
    try:
        (length,) = _LENGTH.unpack_from(found)
        row = json.loads(found[_LENGTH.size : _LENGTH.size + length])
        rest = memoryview(found)[_LENGTH.size + length :]
        return _program(key, row, rest, how)
    except (ValueError, LookupError, TypeError, struct.error):
        return None  # not what this version writes


def _program(
    key: Key, row: dict[str, Any], rest: memoryview, how: Callable[[], Written]
) -> Program | None:
    pool.load()  # the object's code calls what is in these
    if row["polls"] or row["hosts"]:
        poll.load()
    library = stored_library(row["object"])
    if library is None:
        return None
    return Program(
        library.address("program"),
        row["arena"],
        row["scratch"],
        _constants(key, row["constants"], rest),
        [_host(key, *h) for h in row["hosts"]],
        row["given"],
        tuple(row["outputs"]),
        {v: _read(s) for v, s in row["specs"]},
        how,
        {node: _where(key, at) for node, at in row["wheres"]},
        dict(row["reuse"]),
        row["polls"],
        Faults([Fault(*f) for f in row["faults"]]),
    )


def _read(spec: list[Any]) -> Spec:
    shape, dtype = spec
    return Spec(tuple(shape), np.dtype(dtype))


def _where(key: Key, at: int) -> Any:
    return None if at < 0 else key.traced.nodes[at].where


def _host(key: Key, op: int, at: int, specs: list[Any], outs: list[Any]) -> HostCall:
    made = [_read(s) for s in outs]
    node = Node(key.traced.nodes[op].op, (), tuple(made), _where(key, at))
    return HostCall(node, [_read(s) for s in specs], made)


def _constants(key: Key, rows: list[Any], rest: memoryview) -> list[np.ndarray]:
    """Literals; those of the file in memory of their own, which is aligned."""
    found, at = [], 0
    for row in rows:
        if type(row) is int:
            op: Any = key.traced.nodes[row].op
            found.append(op.value.array)
            continue
        spec = _read(row)
        flat = np.frombuffer(rest[at : at + spec.nbytes], spec.dtype)
        found.append(flat.reshape(spec.shape).copy())
        at += spec.nbytes
    if at != len(rest):
        raise ValueError("literals of another length")
    return found
