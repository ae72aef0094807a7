"""New tensors from values, shapes and ranges. Nothing here is recorded.

While a program is traced, numbers and small lists become literals of it, and arrays made from
shapes and ranges are written as ops: no memory is held for them. NumPy arrays stay outside.
"""

from __future__ import annotations

import operator
from itertools import chain
from math import ceil, isfinite
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core import lines
from retrograd.core.errors import ArgumentError, DtypeError, ShapeError, TraceError
from retrograd.core.interpret import (
    EVAL,
    PURE,
    apply,
    constant,
    current,
    fresh,
    lift,
    tracing,
)
from retrograd.core.op import function
from retrograd.core.spec import check_device
from retrograd.core.tensor import Box, Tensor
from retrograd.ops import cast, compare, join, literal, options
from retrograd.ops import shape as moves

__all__ = [
    "arange",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "tensor",
    "zeros",
    "zeros_like",
]

_PLAIN = (list, tuple, *dt._PYTHON)


@function
def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
) -> Tensor:
    """`obj` as a tensor; arrays keep their dtype, Python floats become float32.

    Arrays of NumPy and others are copied unless `copy=False`; then see
    `rg.debug.aliasing`. Sequences that hold tensors are stacked, and differentiable.
    """
    check_device("asarray", device)
    wanted = None if dtype is None else dt.as_dtype("asarray", dtype)
    if isinstance(obj, Tensor):
        return _from_tensor(obj, wanted, copy)
    if isinstance(obj, (np.ndarray, np.generic)):
        array = _from_array(obj, wanted, copy)
        return Tensor(array) if array.ndim else fresh(array)
    if not isinstance(obj, _PLAIN) and _is_array(obj):
        return Tensor(_from_array(np.asarray(obj), wanted, copy))
    if copy is False:
        raise ArgumentError(f"asarray: {type(obj).__name__} cannot be shared; copy is False")
    kinds, dtypes = ({type(obj)}, set()) if type(obj) in dt._PYTHON else _survey(obj)
    if any(issubclass(kind, Tensor) for kind in kinds):
        return _from_tensors(obj, wanted)
    return fresh(_from_python(obj, kinds, dtypes, wanted))


def _from_tensor(obj: Tensor, wanted: np.dtype | None, copy: Any) -> Tensor:
    if obj.weak is not None:
        return obj.strong(wanted)
    if wanted is not None and wanted != obj.dtype:
        if copy is False:
            raise ArgumentError(f"asarray: {obj.dtype} as {wanted} is a copy; copy is False")
        return cast.astype(obj, wanted)
    if not copy:
        return obj
    if type(obj) is not Tensor:
        return obj.handle()
    return Tensor(np.array(obj.array), obj._node, obj._cell)


def _from_array(obj: Any, wanted: np.dtype | None, copy: Any) -> np.ndarray:
    own = dt.as_dtype("asarray", obj.dtype)
    wanted = wanted or own
    if copy is False:
        if wanted != obj.dtype or not isinstance(obj, np.ndarray):
            raise ArgumentError(f"asarray: {obj.dtype} as {wanted} is a copy; copy is False")
        return np.asarray(obj)
    if own.kind == "c" and wanted.kind not in "cb":
        obj = obj.real
    with np.errstate(all="ignore"):
        return lines.copied(np.asarray(obj), wanted)


def _is_array(obj: Any) -> bool:
    """Whether NumPy reads memory from it: another library's array, a buffer."""
    if hasattr(obj, "__array__") or hasattr(obj, "__array_interface__"):
        return True
    try:
        memoryview(obj)
    except TypeError:
        return False
    return True


def _survey(obj: Any) -> tuple[set[type], set[np.dtype]]:
    """The types that nested sequences hold, and the dtypes of the arrays among them."""
    kinds: set[type] = set()
    dtypes: set[np.dtype] = set()
    level = [obj]
    for _ in range(65):  # NumPy's largest number of axes, and the leaves
        found = set(map(type, level))
        nested = tuple(kind for kind in found if issubclass(kind, (list, tuple)))
        flat = found - set(nested)
        kinds |= flat
        if any(hasattr(kind, "dtype") for kind in flat):
            dtypes |= {v.dtype for v in level if hasattr(v, "dtype")}
        if not nested:
            return kinds, dtypes
        level = list(chain.from_iterable(v for v in level if isinstance(v, nested)))
    raise ArgumentError("asarray: sequences are nested more than 64 deep")


def _from_tensors(obj: Any, wanted: np.dtype | None) -> Tensor:
    """Nested sequences that hold tensors: all leaves stacked at once, then shaped."""
    leaves, outer = [obj], []
    while any(isinstance(v, (list, tuple)) for v in leaves):
        lengths = {len(v) if isinstance(v, (list, tuple)) else -1 for v in leaves}
        if len(lengths) > 1:
            raise ArgumentError("asarray: the nested sequences are ragged")
        outer.append(lengths.pop())
        leaves = list(chain.from_iterable(leaves))
    try:
        found = join.stack(leaves)
    except ShapeError as error:
        raise ArgumentError(
            f"asarray: the nested sequences are ragged: {error.message}"
        ) from error
    found = moves.reshape(found, (*outer, *found.shape[1:]))
    return found if wanted is None else cast.astype(found, wanted)


def _from_python(
    obj: Any, kinds: set[type], dtypes: set[np.dtype], wanted: np.dtype | None
) -> np.ndarray:
    words = [kind.__name__ for kind in kinds if not _is_number(kind)]
    if words:
        raise DtypeError(f"asarray: {words[0]} does not hold numbers")
    if wanted is None:
        numbers = [kind(0) for kind in kinds if kind in dt._PYTHON]
        wanted = dt.result_type(*dtypes, *numbers) if dtypes or numbers else None
    try:
        with np.errstate(all="ignore"):
            array = np.array(obj, dtype=wanted)
    except OverflowError as error:
        raise DtypeError(f"asarray: a number does not fit in {wanted}: {error}") from error
    except ValueError as error:
        ragged = "inhomogeneous" in str(error) or "sequence" in str(error)
        what = "the nested sequences are ragged" if ragged else "not the numbers asked for"
        raise ArgumentError(f"asarray: {what}: {error}") from error
    except TypeError as error:
        raise DtypeError(
            f"asarray: {type(obj).__name__} does not fit in {wanted}: {error}"
        ) from error
    if array.dtype == object:
        raise DtypeError(f"asarray: {type(obj).__name__} does not hold numbers")
    return array if wanted is not None else array.astype(_weak(array.dtype))


def _is_number(kind: type) -> bool:
    known = ("__array__", "__complex__", "__float__", "__index__")
    return kind is range or any(hasattr(kind, name) for name in known)


def _weak(dtype: np.dtype) -> np.dtype:
    """What Python's numbers become: NumPy's choice, but single precision."""
    return {"f": dt.float32, "c": dt.complex64}.get(dtype.kind) or dt.as_dtype("asarray", dtype)


@function
def tensor(obj: Any, /, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A new tensor with a copy of the values.

    With `requires_grad` it is a new leaf of the tape; otherwise what is made of tensors
    stays connected to them.
    """
    found = asarray(obj, dtype=dtype, copy=True)
    if requires_grad:
        if found.requires_grad and current.get() not in (EVAL, PURE):
            raise TraceError(
                "tensor: inside grad, jvp, vmap and jit a tensor cannot become a leaf: it "
                "would be cut from what it depends on"
            )
        found = found if isinstance(found, Box) else Tensor(found.array)
        return found.requires_grad_()
    return found


# -- from shapes and ranges: bare arrays inside rules that run under Raw ----------------------


made = constant  # a new array as what ops take here: a tensor, or under Raw the array


def _filled(to: tuple[int, ...], value: Any, dtype: np.dtype) -> Any:
    """One number everywhere, as ops: what is traced holds no memory for it."""
    return moves.broadcast_to(constant(np.asarray(value, dtype)), to)


def _options(who: str, dtype: Any, device: Any, default: np.dtype = dt.float32) -> np.dtype:
    check_device(who, device)
    return default if dtype is None else dt.as_dtype(who, dtype)


@function
def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """All zero."""
    wanted, to = _options("zeros", dtype, device), options.sizes("zeros", shape)
    return _filled(to, 0, wanted) if tracing() else made(lines.zeros(to, wanted))


@function
def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """All one."""
    wanted, to = _options("ones", dtype, device), options.sizes("ones", shape)
    return _filled(to, 1, wanted) if tracing() else made(lines.filled(to, 1, wanted))


@function
def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """All zero: what elsewhere is whatever lay in memory has a value here."""
    return zeros(shape, dtype=dtype, device=device)


@function
def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """All `fill_value`: a number, or a tensor that is broadcast and stays differentiable."""
    to = options.sizes("full", shape)
    value = asarray(fill_value, dtype=dtype, device=device)
    if isinstance(fill_value, Tensor):
        return moves.broadcast_to(value, to)
    if value.ndim:
        raise ArgumentError(f"full: fill_value must be a number; got shape {value.shape}")
    if tracing():
        return moves.broadcast_to(value, to)
    return made(lines.filled(to, value.array, value.dtype))


@function
def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """All zero, in the shape and dtype of x."""
    x = lift(x)
    return zeros(x.shape, dtype=x.dtype if dtype is None else dtype, device=device)


@function
def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """All one, in the shape and dtype of x."""
    x = lift(x)
    return ones(x.shape, dtype=x.dtype if dtype is None else dtype, device=device)


@function
def empty_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """All zero, in the shape and dtype of x; see `empty`."""
    return zeros_like(x, dtype=dtype, device=device)


@function
def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """All `fill_value`, in the shape and dtype of x."""
    x = lift(x)
    return full(x.shape, fill_value, dtype=x.dtype if dtype is None else dtype, device=device)


@function
def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """A matrix with ones on diagonal k, zeros elsewhere."""
    wanted = _options("eye", dtype, device)
    rows, columns = options.sizes("eye", (n_rows, n_rows if n_cols is None else n_cols))
    k = max(-rows, min(options.integer("eye", "k", k), columns))  # farther out, none is left
    if tracing():
        down, along = arange(k, rows + k), arange(columns)
        return cast.astype(compare.equal(moves.reshape(down, (rows, 1)), along), wanted)
    return made(np.eye(rows, columns, k=k, dtype=wanted))


@function
def arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """start, start + step, ... before `stop`; from 0 to `start` if stop is not given."""
    ends = (0, start) if stop is None else (start, stop)
    first, last, by = (_plain("arange", v) for v in (*ends, step))
    if not by or not all(isinstance(v, int) or isfinite(v) for v in (first, last, by)):
        raise ArgumentError(
            f"arange: start {first}, stop {last}, step {by} must be finite, step not 0"
        )
    whole = all(isinstance(v, int) for v in (first, last, by))
    wanted = _options("arange", dtype, device, dt.int64 if whole else dt.float32)
    if whole:
        return _integers(first, last, by, wanted)
    try:
        (count,) = options.possible("arange", (max(ceil((last - first) / by), 0),))
    except OverflowError as error:
        raise ArgumentError(f"arange: step {by} is too small for {first} to {last}") from error
    if tracing():
        return cast.astype(first + cast.astype(_counted(count), dt.float64) * by, wanted)
    with np.errstate(all="ignore"):
        return made((first + by * np.arange(count)).astype(wanted))


def _counted(count: int) -> Any:
    return apply(literal.Iota(count))


def _integers(first: int, last: int, by: int, wanted: np.dtype) -> Any:
    count = max(-((first - last) // by), 0)
    end = first + by * (count - 1)
    held = np.iinfo(wanted if wanted.kind in "iu" else dt.int64)
    if count and not (held.min <= min(first, end) and max(first, end) <= held.max):
        raise DtypeError(f"arange: {first} to {end} does not fit in {held.dtype}")
    options.possible("arange", (count,))
    wide = dt.uint64 if wanted == dt.uint64 else dt.int64
    one, step = (np.uint64(v % 2**64) for v in (first, by))  # exact, modulo 2**64
    if not tracing():
        words = np.arange(count, dtype=np.uint64) * step + one
        return made(words.view(wide).astype(wanted))
    found = cast.astype(_counted(count), wide)
    found = found if by == 1 else found * constant(np.asarray(step).view(wide))
    return cast.astype(found + constant(np.asarray(one).view(wide)) if first else found, wanted)


def _plain(who: str, value: Any) -> Any:
    """A Python number; of NumPy's and ours only what can be read without losing a gradient."""
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, (np.generic, np.ndarray)) and not value.ndim:
        return value.item()
    try:
        return operator.index(value)
    except TypeError as error:
        raise ArgumentError(
            f"{who}: start, stop and step must be numbers; got {type(value).__name__}"
        ) from error


@function
def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    """`num` numbers at equal distances from `start` to `stop`, with it or before it.

    Tensors without axes may be given as ends; the result is differentiable in them.
    """
    num = options.integer("linspace", "num", num, least=0)
    options.possible("linspace", (num,))
    ends = [v if type(v) in dt._PYTHON else asarray(v) for v in (start, stop)]
    if any(isinstance(v, Tensor) and v.ndim for v in ends):
        raise ArgumentError("linspace: start and stop must be numbers or have no axes")
    common = dt.result_type(*ends, 0.0)
    wanted = _options("linspace", dtype, device, common)
    if not any(isinstance(v, Tensor) for v in (start, stop)):
        wide = np.complex128 if common.kind == "c" else np.float64
        a, b = (np.asarray(v, wide) for v in (start, stop))
        with np.errstate(all="ignore"):
            found = np.linspace(a, b, num, endpoint=bool(endpoint))
            return made(_from_array(found, wanted, None))
    weights = linspace(0.0, 1.0, num, dtype=dt.real_of(common), endpoint=endpoint)
    return cast.astype(ends[0] * (1 - weights) + ends[1] * weights, wanted)
