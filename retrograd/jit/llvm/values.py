"""NumPy's dtypes in registers and in memory: bools, half precision and complex numbers too.

A number of a kernel is a `Num`: one value, or two for a complex number, whose lanes may
still be one (uniform) where others have many. Half precision is float32 in registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.core import dtype as dt
from retrograd.jit.llvm.text import F16, F32, F64, I1, I8, I16, I32, I64, Type, Val
from retrograd.jit.loops.expr import NotLoweredError

if TYPE_CHECKING:
    import numpy as np

    from retrograd.jit.llvm.build import Fn

__all__ = [
    "Num",
    "constant",
    "grouped",
    "in_memory",
    "in_register",
    "narrowed",
    "widened",
]

Num = tuple[Val, ...]


def in_memory(dtype: np.dtype) -> Type:
    """The type of an element (of a part, for complex numbers) in memory."""
    kind, size = dtype.kind, dtype.itemsize
    if dtype in dt.HALF and dtype.name == "bfloat16":
        return I16
    if kind == "c":
        return F32 if size == 8 else F64
    if kind == "f":
        return {2: F16, 4: F32, 8: F64}[size]
    return {1: I8, 2: I16, 4: I32, 8: I64}[size]


def in_register(dtype: np.dtype) -> Type:
    """The type of a number (of a part, for complex numbers) while it is computed with."""
    if dtype.kind == "b":
        return I1
    return F32 if dtype in dt.HALF else in_memory(dtype)


def widened(f: Fn, x: Val, dtype: np.dtype) -> Val:
    """A number as it was loaded, ready to compute with."""
    if dtype.kind == "b":
        return f.compare("ne", x, f.zero(x.type))
    if dtype in dt.HALF:
        if dtype.name != "bfloat16":
            _needs_half(f)
            return f.convert("fpext", x, F32)
        wide = f.convert("zext", x, I32)
        return f.from_bits(f.bitwise("shl", wide, f.const(wide.type, 16)))
    return x


def narrowed(f: Fn, x: Val, dtype: np.dtype) -> Val:
    """A number as it is stored."""
    if dtype.kind == "b":
        return f.convert("zext", x, I8)
    if dtype in dt.HALF:
        if dtype.name != "bfloat16":
            _needs_half(f)
            return f.convert("fptrunc", x, F16)
        return _rounded(f, x)
    return x


def _needs_half(f: Fn) -> None:
    if "f16c" not in f.machine.features.replace("-f16c", "") and f.machine.name != "neon":
        raise NotLoweredError("float16 without instructions for it")


def _rounded(f: Fn, x: Val) -> Val:
    """float32 to bfloat16, to nearest, ties to even; NaN stays NaN."""
    bits = f.bits(x)
    t = bits.type
    odd = f.bitwise("and", f.bitwise("lshr", bits, f.const(t, 16)), f.const(t, 1))
    up = f.add(bits, f.add(odd, f.const(t, 0x7FFF)))
    quiet = f.bitwise("or", bits, f.const(t, 0x400000))
    kept = f.select(f.compare("uno", x, x), quiet, up)
    return f.convert("trunc", f.bitwise("lshr", kept, f.const(t, 16)), I16)


def grouped(values: list[Val], sizes: list[int]) -> list[Num]:
    """Numbers of several parts, from all their parts in order."""
    out, at = [], 0
    for n in sizes:
        out.append(tuple(values[at : at + n]))
        at += n
    return out


def constant(f: Fn, value: Any, dtype: np.dtype) -> Num:
    """A constant of a dtype."""
    t = in_register(dtype)
    if dtype.kind == "c":
        return f.const(t, value.real), f.const(t, value.imag)
    return (f.const(t, value),)
