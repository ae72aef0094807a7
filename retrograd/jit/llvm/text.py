"""What LLVM IR text is made of: types, values, modules."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrograd.jit.llvm.machine import Machine

__all__ = [
    "F16",
    "F32",
    "F64",
    "I1",
    "I8",
    "I16",
    "I32",
    "I64",
    "LINE",
    "PTR",
    "Int",
    "Module",
    "Type",
    "Val",
    "spell",
]


class Type(NamedTuple):
    """A scalar, or a vector of `lanes` scalars."""

    kind: str  # f: float, i: integer, p: pointer
    bits: int
    lanes: int = 0  # 0: a scalar

    def by(self, lanes: int) -> Type:
        """A vector of these; 0 lanes is a scalar."""
        return Type(self.kind, self.bits, lanes)

    @property
    def scalar(self) -> Type:
        """The type of one lane."""
        return Type(self.kind, self.bits)

    @property
    def text(self) -> str:
        """As LLVM writes it."""
        one = _NAMES[self.kind, self.bits] if self.kind != "i" else f"i{self.bits}"
        return f"<{self.lanes} x {one}>" if self.lanes else one

    @property
    def suffix(self) -> str:
        """As the names of intrinsics have it: v16f32, i64."""
        one = f"{self.kind}{self.bits}" if self.kind != "p" else "p0"
        return f"v{self.lanes}{one}" if self.lanes else one


_NAMES = {("f", 16): "half", ("f", 32): "float", ("f", 64): "double", ("p", 64): "ptr"}
F16, F32, F64, PTR = Type("f", 16), Type("f", 32), Type("f", 64), Type("p", 64)
I1, I8, I16, I32, I64 = (Type("i", n) for n in (1, 8, 16, 32, 64))


class Val(NamedTuple):
    """A value of the function being written."""

    ref: str  # how it is spelt: %12, 0, splat (float ...)
    type: Type

    def __str__(self) -> str:
        return f"{self.type.text} {self.ref}"


Int = Val | int
LINE = 64  # bytes of a cache line


class Module:
    """Functions, constants, words and declarations that become one object file."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.functions: dict[str, str] = {}
        self.declared: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.words: list[str] = []  # each of one function, 0 at first; what it stores stays

    def declare(self, name: str, result: str, args: str) -> None:
        """An external function or an intrinsic."""
        self.declared.setdefault(name, f"declare {result} @{name}({args})")

    def table(self, values: np.ndarray) -> Val:
        """A constant array; equal ones are one."""
        t = Type("f" if values.dtype.kind == "f" else "i", values.dtype.itemsize * 8)
        body = ", ".join(f"{t.text} {spell(t, v)}" for v in values.ravel().tolist())
        key = f"[{values.size} x {t.text}] [{body}], align 64"
        name = self.globals.setdefault(key, f"t{len(self.globals)}")
        return Val(f"@{name}", PTR)

    def once(self, name: str, write: Callable[[], object]) -> str:
        """A function written by `write` unless the module has it; its name."""
        if name not in self.functions:
            write()
        return name

    def text(self) -> str:
        """The module as LLVM IR."""
        tables = [f"@{n} = internal unnamed_addr constant {b}" for b, n in self.globals.items()]
        tables += [f"@{n} = internal global i64 0, align 8" for n in self.words]
        return "\n".join([*tables, *self.declared.values(), *self.functions.values()]) + "\n"


def spell(t: Type, value: Any) -> str:
    """A constant of a scalar type, exactly."""
    if t.kind == "i":
        value = int(value)
        if t.bits == 1:
            return "true" if value else "false"
        half = 1 << (t.bits - 1)
        return str((value + half) % (2 * half) - half)
    if t.bits == 16:
        return f"0xH{int(np.float16(value).view(np.uint16)):04X}"
    if t.bits == 32:
        value = float(np.float32(value))
    return f"0x{struct.unpack('<Q', struct.pack('<d', float(value)))[0]:016X}"
