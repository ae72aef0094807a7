"""The world outside: NumPy's protocols, DLPack, copying, pickling, printing.

NumPy functions on tensors give tensors, by the function of ours that means the same, or an
error that says what to write. Nothing is ever silently detached from the tape.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, DtypeError, RetrogradError
from retrograd.core.interpret import lift
from retrograd.core.op import FUNCTIONS, function
from retrograd.core.spec import check_device
from retrograd.core.tensor import Box, Tensor

# NumPy's name -> the standard's, where they differ
_NAMES = {
    "absolute": "abs",
    "amax": "max",
    "amin": "min",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "around": "round",
    "concatenate": "concat",
    "conjugate": "conj",
    "degrees": "rad2deg",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "mod": "remainder",
    "power": "pow",
    "radians": "deg2rad",
    "ravel": "flatten",
    "right_shift": "bitwise_right_shift",
    "rint": "round",
    "true_divide": "divide",
}
_REDUCTIONS = {
    "add.reduce": "sum",
    "multiply.reduce": "prod",
    "maximum.reduce": "max",
    "minimum.reduce": "min",
    "logical_and.reduce": "all",
    "logical_or.reduce": "any",
}


# of np.linalg, what means the same here; np.linalg.norm is read by itself
_LINALG = (
    "diagonal",
    "matmul",
    "matrix_transpose",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
)

# NumPy's parameters that follow the data, where the first of them is not the axis
_AFTER = {
    "diagonal": ("offset", "axis1", "axis2"),
    "diff": ("n", "axis"),
    "norm": ("ord", "axis"),
    "tensordot": ("axes",),
    "trace": ("offset", "axis1", "axis2"),
    "tril": ("k",),
    "triu": ("k",),
}


@function
def from_ufunc(ufunc: Any, method: str, args: Any, options: Any) -> Any:
    """A NumPy ufunc called on tensors."""
    name = ufunc.__name__
    ours = _NAMES.get(name, name)
    if options.pop("out", None) is not None:
        raise ArgumentError(
            f"numpy.{name}: out= cannot hold what tensors make: that is a new tensor, which "
            f"may have a gradient",
            hint=f"y = rg.{ours}(...)      in place of out=y, or of y += x for an array y",
        )
    what = name if method == "__call__" else f"{name}.{method}"
    reduction = _REDUCTIONS.get(what)
    if reduction is not None:
        named = dict(zip(("axis", "dtype"), args[1:3], strict=False))
        return _called(what, FUNCTIONS[reduction], args[:1], {"axis": 0, **named, **options})
    found = FUNCTIONS.get(ours)
    if method != "__call__" or found is None or options:
        raise _no_counterpart(what, options)
    return found(*args)


@function
def from_numpy(f: Any, args: Any, options: Any) -> Any:
    """A NumPy function called on tensors."""
    name = getattr(f, "__name__", str(f))
    if f in (np.shape, np.ndim, np.size) and len(args) == 1 and not options:
        return getattr(args[0], name)
    if f is np.transpose:
        axes = options.get("axes", args[1] if len(args) > 1 else None)
        return lift(args[0]).transpose(*(() if axes is None else axes))
    found = _counterpart(f, name)
    if found is None or (f is np.linalg.norm and _of_a_matrix(args, options)):
        raise _no_counterpart(_full(f, name), options)
    if f is np.split and len(args) > 1 and not isinstance(args[1], int):
        raise _no_counterpart("split at places", {})  # ours takes lengths
    args, options = _by_keyword(name, found, args, options)
    if f in (np.diagonal, np.trace):  # ours are of the last two axes
        options = {"axis1": 0, "axis2": 1, **options}
    return _called(_full(f, name), found, args, options)


def _full(f: Any, name: str) -> str:
    """As it is written after `np.`: "sum", "linalg.norm"."""
    return f"{getattr(f, '__module__', None) or 'numpy'}.{name}".removeprefix("numpy.")


def _counterpart(f: Any, name: str) -> Any:
    """Our function that means the same; not all that share a name do."""
    if getattr(np, name, None) is f:  # np.put_along_axis writes into its argument
        return None if f is np.put_along_axis else FUNCTIONS.get(_NAMES.get(name, name))
    if getattr(np.linalg, name, None) is f and name in (*_LINALG, "norm"):
        return FUNCTIONS[name]
    return None


def _of_a_matrix(args: Any, options: dict[str, Any]) -> bool:
    """Whether np.linalg.norm is asked for a norm of matrices other than the default one."""
    ord_ = options.get("ord", args[1] if len(args) > 1 else None)
    axis = options.get("axis", args[2] if len(args) > 2 else None)
    return ord_ is not None and not (isinstance(axis, int) or args[0].ndim == 1)


def _by_keyword(
    name: str, found: Any, args: Any, options: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """NumPy lets people write np.sum(x, 0); the standard's functions want axis=0."""
    after = _AFTER.get(name, ("axis",))
    given = found.__code__.co_argcount  # what comes after the data
    more = args[given:]
    if more and len(more) <= len(after) and set(after) <= set(found.__kwdefaults__ or {}):
        return args[:given], {**dict(zip(after, more, strict=False)), **options}
    return args, options


def _called(name: str, found: Any, args: Any, options: dict[str, Any]) -> Any:
    """Call our function; what it does not take has no counterpart."""
    missing = np._NoValue  # type: ignore[attr-defined]
    options = {
        k: v
        for k, v in options.items()
        if v is not missing and (v is not None or k == "axis")  # None may mean: all in a row
    }
    try:
        return found(*args, **options)
    except TypeError as error:
        if isinstance(error, RetrogradError):
            raise
        known = found.__kwdefaults__ or {}
        raise _no_counterpart(name, [k for k in options if k not in known]) from error


def _no_counterpart(name: str, options: Any) -> DtypeError:
    what = f"with {', '.join(options)} " if options else ""
    return DtypeError(
        f"numpy.{name} {what}has no counterpart for tensors",
        hint=f"np.{name}(np.asarray(x)) on the values, without a gradient",
    )


@function
def namespace(api_version: str | None = None) -> Any:
    """The module that holds the array API's functions: retrograd itself."""
    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise ArgumentError(f"__array_namespace__: there is no version {api_version!r} here")
    return sys.modules["retrograd"]


@function
def to_dlpack(x: Any, **options: Any) -> Any:
    """A capsule for other libraries; it shares memory, unless that is not x's to give."""
    array = x.array
    # repeated memory would be written twice, and not everybody can walk backwards
    odd = any(n > 1 and step <= 0 for n, step in zip(array.shape, array.strides, strict=True))
    if not array.flags.writeable or odd:
        if options.get("copy") is False:
            raise BufferError("__dlpack__: read-only, repeated or backwards; copy is False")
        array = array.copy()
    try:
        return array.__dlpack__(**options)
    except BufferError as error:
        raise DtypeError(f"__dlpack__: {x.dtype} cannot be exchanged: {error}") from error


@function
def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor from any object with `__dlpack__`; copied unless `copy=False`."""
    check_device("from_dlpack", device)
    if isinstance(x, Tensor):
        return FUNCTIONS["asarray"](x, copy=copy)
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise DtypeError(f"from_dlpack: {type(x).__name__} has no __dlpack__")
    try:
        array = np.from_dlpack(x)
    except (BufferError, RuntimeError) as error:
        raise DtypeError(
            f"from_dlpack: {type(x).__name__} cannot be read: {error}", hint="rg.asarray(x)"
        ) from error
    dt.as_dtype("from_dlpack", array.dtype)
    return Tensor(array if copy is False else array.copy())


@function
def deepcopy(x: Tensor) -> Tensor:
    """A copy of the values; a leaf becomes a new leaf, others keep their place on the tape."""
    if isinstance(x, Box):
        return x.handle()
    if x.leaf is not None:
        return Tensor(np.array(x.array)).requires_grad_()
    return Tensor(np.array(x.array), x._node)


@function
def rebuild(array: np.ndarray, requires_grad: bool) -> Tensor:  # noqa: FBT001 - pickle's call
    """A tensor from what pickling stored."""
    found = Tensor(array)
    return found.requires_grad_() if requires_grad else found


@function
def show(x: Any) -> str:
    """A tensor as people read it."""
    if isinstance(x, Box):
        return f"<{type(x).__name__.lower()} {x.spec}>"
    values = np.array2string(
        np.asarray(x.array, np.float32) if x.dtype in dt.HALF else x.array,
        separator=", ",
        prefix="tensor(",
        precision=4,
        threshold=200,
        edgeitems=3,
    )
    notes = "" if x.dtype in (dt.float32, dt.int64, dt.bool) else f", dtype={x.dtype}"
    notes += f", shape={x.shape}" if not x.size else ""
    notes += ", requires_grad=True" if x.requires_grad else ""
    return f"tensor({values}{notes})"
