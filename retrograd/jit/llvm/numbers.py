"""What the operations of the loop language are in LLVM: on floats, integers, bools, complex."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from retrograd.core import dtype as dt
from retrograd.jit.llvm import math as formulas
from retrograd.jit.llvm.division import quotient, rest, rest_of_floats
from retrograd.jit.llvm.text import I1, Type, Val
from retrograd.jit.llvm.values import Num, in_register, narrowed, widened
from retrograd.jit.loops.expr import NotLoweredError

if TYPE_CHECKING:
    from retrograd.jit.llvm.build import Fn

__all__ = ["compute", "even", "kind_of"]

_FLOAT = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_SIGNED = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "eq": "eq", "ne": "ne"}
_UNSIGNED = {"lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge", "eq": "eq", "ne": "ne"}
_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def even(f: Fn, *nums: Num) -> list[Num]:
    """Numbers of one lane count: uniform ones are repeated where others have many."""
    lanes = max(v.type.lanes for n in nums for v in n)
    return [tuple(f.splat(v, lanes) for v in n) for n in nums]


def compute(f: Fn, op: str, args: list[Num], dtypes: list[np.dtype], to: np.dtype) -> Num:
    """An operation on numbers of `dtypes`, whose result has dtype `to`."""
    if op == "cast":
        return _cast(f, args[0], dtypes[0], to)
    args = even(f, *args)
    if op in ("bits", "from_bits"):
        return (getattr(f, op)(args[0][0]),)
    if op == "where":
        mask, x, y = args
        return tuple(f.select(mask[0], a, b) for a, b in zip(x, y, strict=True))
    if op == "complex":
        return args[0][0], args[1][0]
    if dtypes[0].kind == "c":
        return _complex(f, op, args)
    return (_real(f, op, [a[0] for a in args], dtypes[0]),)


def kind_of(dtype: np.dtype) -> str:
    """NumPy's letter, by which bfloat16 is a float like others."""
    return "f" if dtype in dt.HALF else dtype.kind


def _real(f: Fn, op: str, args: list[Val], dtype: np.dtype) -> Val:
    if op in _FLOAT:
        table = {"f": _FLOAT, "i": _SIGNED}.get(kind_of(dtype), _UNSIGNED)
        return f.compare(table[op], *args)
    if op in ("and", "or", "xor"):
        return f.bitwise(op, *args)
    kind = {"f": _of_floats, "b": _of_bools}.get(kind_of(dtype), _of_integers)
    return kind(f, op, args, dtype)


def _of_floats(f: Fn, op: str, args: list[Val], dtype: np.dtype) -> Val:
    if op in ("add", "sub", "mul", "div", "neg", "fma"):
        return getattr(f, op)(*args)
    if op == "rem":
        return rest_of_floats(f, *args)
    if op in formulas.FUNCTIONS:
        return formulas.FUNCTIONS[op](f, *args)
    raise NotLoweredError(f"{op} of {dtype}")


def _of_bools(f: Fn, op: str, args: list[Val], dtype: np.dtype) -> Val:
    if op == "not":
        return f.bitwise("xor", args[0], f.const(args[0].type, 1))
    if op in ("add", "maximum"):
        return f.bitwise("or", *args)
    if op in ("mul", "minimum"):
        return f.bitwise("and", *args)
    if op in ("isnan", "isinf", "signbit"):
        return f.zero(args[0].type)
    if op == "isfinite":
        return f.const(args[0].type, 1)
    raise NotLoweredError(f"{op} of {dtype}")


def _of_integers(f: Fn, op: str, args: list[Val], dtype: np.dtype) -> Val:
    signed, t = dtype.kind == "i", args[0].type
    if op in ("add", "sub", "mul", "neg"):
        return getattr(f, op)(*args)
    if op == "not":
        return f.bitwise("xor", args[0], f.const(t, -1))
    if op in ("shl", "shr"):
        return f.bitwise("shl" if op == "shl" else "ashr" if signed else "lshr", *args)
    if op in ("quotient", "rem"):
        return (quotient if op == "quotient" else rest)(f, *args, signed=signed)
    if op in ("maximum", "minimum"):
        word = ("s" if signed else "u") + ("gt" if op == "maximum" else "lt")
        return f.select(f.compare(word, *args), *args)
    if op == "abs":
        if not signed:
            return args[0]
        return f.select(f.compare("slt", args[0], f.zero(t)), f.neg(args[0]), args[0])
    if op in ("isnan", "isinf", "signbit"):
        return f.zero(I1.by(t.lanes))
    if op == "isfinite":
        return f.const(I1.by(t.lanes), 1)
    raise NotLoweredError(f"{op} of {dtype}")


def _complex(f: Fn, op: str, args: list[Num]) -> Num:
    a = args[0]
    if op in ("add", "sub"):
        return tuple(getattr(f, op)(x, y) for x, y in zip(*args, strict=True))
    if op == "neg":
        return f.neg(a[0]), f.neg(a[1])
    if op == "conj":
        return a[0], f.neg(a[1])
    if op in ("real", "imag"):
        return (a[op == "imag"],)
    if op == "abs":
        return (formulas.FUNCTIONS["hypot"](f, *a),)
    if op == "mul":
        return _product(f, *args)
    if op == "div":
        return _quotient(f, *args)
    if op in ("eq", "ne"):
        word, join = ("oeq", "and") if op == "eq" else ("une", "or")
        parts = [f.compare(word, x, y) for x, y in zip(*args, strict=True)]
        return (f.bitwise(join, *parts),)
    if op in ("isnan", "isinf", "isfinite"):
        parts = [formulas.FUNCTIONS[op](f, x) for x in a]
        return (f.bitwise("and" if op == "isfinite" else "or", *parts),)
    raise NotLoweredError(f"{op} of complex numbers")


def _product(f: Fn, a: Num, b: Num) -> Num:
    real = f.sub(f.mul(a[0], b[0]), f.mul(a[1], b[1]))
    return real, f.add(f.mul(a[0], b[1]), f.mul(a[1], b[0]))


def _quotient(f: Fn, a: Num, b: Num) -> Num:
    """Smith's way, as NumPy's: divide by the larger part first."""
    size = [f.intrinsic("fabs", x) for x in b]
    first = f.compare("oge", size[0], size[1])
    large, small = f.select(first, b[0], b[1]), f.select(first, b[1], b[0])
    ratio = f.div(small, large)
    scale = f.div(f.const(large.type, 1), f.add(large, f.mul(small, ratio)))
    p = f.select(first, a[0], a[1]), f.select(first, a[1], a[0])
    real = f.mul(f.add(p[0], f.mul(p[1], ratio)), scale)
    imag = f.mul(f.sub(p[1], f.mul(p[0], ratio)), scale)
    zero = f.bitwise("and", *(f.compare("oeq", s, f.zero(s.type)) for s in size))
    real = f.select(zero, f.div(a[0], size[0]), real)
    imag = f.select(zero, f.div(a[1], size[0]), f.select(first, imag, f.neg(imag)))
    return real, imag


def _cast(f: Fn, x: Num, was: np.dtype, to: np.dtype) -> Num:
    if to.kind == "c":
        part = dt.real_of(to)
        if was.kind == "c":
            return tuple(_convert(f, v, dt.real_of(was), part) for v in x)
        real = _convert(f, x[0], was, part)
        return real, f.zero(real.type)
    if was.kind == "c" and to.kind == "b":
        parts = [f.compare("une", v, f.zero(v.type)) for v in x]
        return (f.bitwise("or", *parts),)
    return (_convert(f, x[0], dt.real_of(was) if was.kind == "c" else was, to),)


def _convert(f: Fn, x: Val, was: np.dtype, to: np.dtype) -> Val:
    t: Type = in_register(to)
    if to.kind == "b":
        return x if was.kind == "b" else f.compare(_unlike(was), x, f.zero(x.type))
    if kind_of(to) == "f":
        if kind_of(was) == "f":
            return _resized(f, x, was, to, t)
        return f.convert("sitofp" if was.kind == "i" else "uitofp", x, t)
    if kind_of(was) == "f":
        return _truncated(f, x, to, t)
    if was.kind == "b" or was.itemsize < to.itemsize:
        return f.convert("sext" if was.kind == "i" else "zext", x, t)
    return f.convert("trunc", x, t) if was.itemsize > to.itemsize else x


def _unlike(was: np.dtype) -> str:
    return "une" if kind_of(was) == "f" else "ne"


def _resized(f: Fn, x: Val, was: np.dtype, to: np.dtype, t: Type) -> Val:
    if x.type.bits != t.bits:
        x = f.convert("fpext" if x.type.bits < t.bits else "fptrunc", x, t)
    if to in dt.HALF and was not in dt.HALF:
        return widened(f, narrowed(f, x, to), to)  # a cast rounds, whatever follows it
    return x


def _truncated(f: Fn, x: Val, to: np.dtype, t: Type) -> Val:
    """Towards zero; what does not fit comes out as the processor's, never as poison."""
    wide = Type("i", max(t.bits, 32) if to.kind == "i" else 64)
    name = "fptosi.sat" if to.kind == "i" or to.itemsize < 8 else "fptoui.sat"
    wide = wide.by(x.type.lanes)
    full = f"llvm.{name}.{wide.suffix}.{x.type.suffix}"
    f.module.declare(full, wide.text, x.type.text)
    found = f.make(wide, f"call {wide.text} @{full}({x})")
    return f.convert("trunc", found, t) if t.bits < wide.bits else found
