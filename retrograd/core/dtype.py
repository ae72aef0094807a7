"""dtypes and the one promotion table: NumPy's dtypes, and the standard's rules for them.

Within a kind (integers, floats, complex) the standard's table holds, which is NumPy's.
Between kinds, where the standard is silent, the wider kind's dtype wins and integers never
widen a float: int64 with float32 is float32. Python numbers are weak: they take the dtype
of the tensor they meet, or the default of their kind when the tensor's kind is lower.
"""

from __future__ import annotations

import builtins
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.errors import ArgumentError, DtypeError

if TYPE_CHECKING:
    from collections.abc import Iterator

bool = np.dtype("bool")  # the standard's name
int8, int16, int32, int64 = (np.dtype(f"int{n}") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{n}") for n in (8, 16, 32, 64))
float16, float32, float64 = (np.dtype(f"float{n}") for n in (16, 32, 64))
complex64, complex128 = np.dtype("complex64"), np.dtype("complex128")
try:
    import ml_dtypes

    bfloat16: np.dtype | None = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    bfloat16 = None

HALF = tuple(d for d in (float16, bfloat16) if d is not None)
FLOATS = (*HALF, float32, float64)
COMPLEX = (complex64, complex128)
INTEGERS = (int8, int16, int32, int64, uint8, uint16, uint32, uint64)
ALL = (bool, *INTEGERS, *FLOATS, *COMPLEX)
_NATIVE = {d: d for d in ALL}  # the one object of each: the hot path compares by `is`

_KINDS: dict[str, tuple[np.dtype, ...]] = {
    "bool": (bool,),
    "signed integer": INTEGERS[:4],
    "unsigned integer": INTEGERS[4:],
    "integral": INTEGERS,
    "real floating": FLOATS,
    "complex floating": COMPLEX,
    "numeric": (*INTEGERS, *FLOATS, *COMPLEX),
}
_strict: ContextVar[Any] = ContextVar("strict_promotion", default=False)


def as_dtype(who: str, dtype: Any) -> np.dtype:
    """`dtype` as one of ours; Python's bool, int, float, complex mean the defaults."""
    if isinstance(dtype, type) and dtype in _PYTHON:
        return _PYTHON[dtype]
    if isinstance(dtype, str) and dtype == "bfloat16":
        if bfloat16 is None:
            raise DtypeError(
                f"{who}: bfloat16 needs the package ml_dtypes, which is not installed",
                hint="pip install 'retrograd[half]'",
            )
        return bfloat16
    try:
        if dtype is None:  # NumPy reads it as float64
            raise TypeError("None names no dtype")
        found = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise DtypeError(f"{who}: {dtype!r} does not name a dtype") from error
    ours = _NATIVE.get(found.newbyteorder("="))
    if ours is None:
        raise DtypeError(f"{who}: dtype {found} is not one of {', '.join(map(str, ALL))}")
    return ours


def rank(dtype: np.dtype) -> int:
    """The kind as a number: bool 0, integers 1, floats 2, complex 3."""
    if dtype.kind in "iu":
        return 1
    return {"b": 0, "f": 2, "c": 3}.get(dtype.kind, 2)  # bfloat16's kind is its own


def is_inexact(dtype: np.dtype) -> builtins.bool:
    """Whether gradients exist for it: floats and complex."""
    return rank(dtype) >= 2  # the ranks are listed one function up


def real_of(dtype: np.dtype) -> np.dtype:
    """The dtype of the real part."""
    return {complex64: float32, complex128: float64}.get(dtype, dtype)


def complex_of(dtype: np.dtype) -> np.dtype:
    """The complex dtype that holds `dtype` as its real part."""
    return complex128 if dtype in (float64, complex128) else complex64


def promote(who: str, *dtypes: np.dtype) -> np.dtype:
    """The dtype that all of them meet in; refuses where the strict switch is on."""
    out = dtypes[0]
    for dtype in dtypes[1:]:
        out = out if dtype is out else _pair(who, out, dtype)
    return out


def _pair(who: str, a: np.dtype, b: np.dtype) -> np.dtype:
    if a == b:
        return a
    low, high = sorted((a, b), key=rank)
    if rank(low) == rank(high):
        found = np.dtype(float32) if {a, b} == set(HALF) else np.promote_types(a, b)
    elif rank(high) == 3 and rank(low) == 2:
        found = np.promote_types(high, complex_of(low))
    else:
        found = high
    if found.kind == "f" and rank(low) == 1 == rank(high):
        raise DtypeError(
            f"{who}: {a} and {b} have no common integer dtype; convert one of them first",
            hint="x.astype(rg.int64)",
        )
    if _strict.get() and rank(low) >= 2 and (rank(low) == rank(high) or found != high):
        raise DtypeError(
            f"{who}: {a} would be promoted to {found} to meet {b}, and "
            f"rg.debug.strict_promotion() is on; convert one of them by astype"
        )
    return found


def of_number(value: complex, peer: np.dtype | None) -> np.dtype:
    """The dtype a weak Python number takes beside a tensor of dtype `peer`."""
    own = _PYTHON[type(value)]
    if peer is None or rank(own) > rank(peer):
        if peer is not None and rank(own) == 3 and rank(peer) == 2:
            return complex_of(peer)
        return own
    return peer


_PYTHON: dict[type, np.dtype] = {
    builtins.bool: bool,
    int: int64,
    float: float32,
    complex: complex64,
}


@contextmanager
def strict_promotion() -> Iterator[None]:
    """Make silent promotion between float widths an error while the block runs."""
    token = _strict.set(True)
    try:
        yield
    finally:
        _strict.reset(token)


def isdtype(dtype: np.dtype, kind: Any) -> builtins.bool:
    """Whether `dtype` is of `kind`: a dtype, one of the standard's words, or a tuple."""
    dtype = _dtype_of("isdtype", dtype)
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ArgumentError(f"isdtype: kind {kind!r} is not one of {', '.join(_KINDS)}")
        return dtype in _KINDS[kind]
    return isinstance(kind, (np.dtype, type)) and dtype == kind


def result_type(*arrays_and_dtypes: Any) -> np.dtype:
    """The dtype that arrays, dtypes and (weak) Python numbers meet in."""
    if not arrays_and_dtypes:
        raise ArgumentError("result_type: needs at least one array, dtype or number")
    numbers = [a for a in arrays_and_dtypes if type(a) in _PYTHON]
    dtypes = [_dtype_of("result_type", a) for a in arrays_and_dtypes if type(a) not in _PYTHON]
    common = promote("result_type", *dtypes) if dtypes else None
    for number in numbers:
        common = of_number(number, common)
    assert common is not None
    return common


def can_cast(from_: Any, to: Any, /) -> builtins.bool:
    """Whether promotion takes the dtype (or the array's) `from_` to `to`."""
    start, end = _dtype_of("can_cast", from_), _dtype_of("can_cast", to)
    token = _strict.set(False)  # a question, not a promotion
    try:
        return promote("can_cast", start, end) == end
    except DtypeError:
        return False
    finally:
        _strict.reset(token)


def _dtype_of(who: str, value: Any) -> np.dtype:
    return as_dtype(who, value if isinstance(value, type) else getattr(value, "dtype", value))


def finfo(dtype: Any, /) -> Any:
    """Limits of a floating dtype (of the real part, for complex ones)."""
    dtype = _dtype_of("finfo", dtype)
    if not is_inexact(dtype):
        raise DtypeError(f"finfo: {dtype} is not a floating dtype", hint="rg.iinfo(dtype)")
    if bfloat16 is not None and dtype == bfloat16:
        return ml_dtypes.finfo(dtype)
    return np.finfo(dtype)


def iinfo(dtype: Any, /) -> np.iinfo:
    """Limits of an integer dtype."""
    dtype = _dtype_of("iinfo", dtype)
    if dtype not in INTEGERS:
        raise DtypeError(f"iinfo: {dtype} is not an integer dtype", hint="rg.finfo(dtype)")
    return np.iinfo(dtype)
