"""The world outside: NumPy's protocols, DLPack, copying, pickling, printing.

NumPy functions on tensors give tensors, by the function of ours that means the same, or an
error that says what to write. Nothing is ever silently detached from the tape.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, DtypeError
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
    "cumprod": "cumulative_prod",
    "cumsum": "cumulative_sum",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "mod": "remainder",
    "power": "pow",
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


@function
def from_ufunc(ufunc: Any, method: str, args: Any, options: Any) -> Any:
    """A NumPy ufunc called on tensors."""
    if options.pop("out", None) is not None:
        raise ArgumentError(
            f"numpy.{ufunc.__name__}: out= cannot be a tensor; tensors do not change",
            hint=f"y = rg.{_NAMES.get(ufunc.__name__, ufunc.__name__)}(...)",
        )
    reduction = _REDUCTIONS.get(f"{ufunc.__name__}.{method}")
    if reduction is not None:
        options = {"axis": 0, **{k: v for k, v in options.items() if v is not np._NoValue}}  # type: ignore[attr-defined]
        return FUNCTIONS[reduction](*args, **options)
    found = FUNCTIONS.get(_NAMES.get(ufunc.__name__, ufunc.__name__))
    if method != "__call__" or found is None or options:
        what = ufunc.__name__ + ("" if method == "__call__" else f".{method}")
        raise _no_counterpart(what, options)
    return found(*args)


@function
def from_numpy(f: Any, args: Any, options: Any) -> Any:
    """A NumPy function called on tensors."""
    name = getattr(f, "__name__", str(f))
    if name == "transpose":
        axes = options.get("axes", args[1] if len(args) > 1 else None)
        return lift(args[0]).transpose(*(axes or ()))
    found = FUNCTIONS.get(_NAMES.get(name, name))
    if found is None:
        raise _no_counterpart(name, {})
    options = {k: v for k, v in options.items() if v is not None}
    args, options = _by_keyword(name, args, options)
    try:
        return found(*args, **options)
    except TypeError as error:
        if isinstance(error, DtypeError):
            raise
        raise _no_counterpart(name, options) from error


def _by_keyword(name: str, args: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """NumPy lets people write np.sum(x, 0); the standard's functions want axis=0."""
    found = FUNCTIONS[_NAMES.get(name, name)]
    if name in ("diagonal", "trace"):  # ours are of the last two axes
        options = {"axis1": 0, "axis2": 1, **options}
    if name == "split" and len(args) > 1 and not isinstance(args[1], int):
        raise _no_counterpart("split at places", {})  # ours takes lengths
    given = found.__code__.co_argcount  # the axis is what comes after the data
    if len(args) == given + 1 and "axis" in (found.__kwdefaults__ or {}):
        return args[:given], {"axis": args[given], **options}
    return args, options


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
    """A capsule for other libraries; it shares memory, unless that is read-only or half."""
    array = x.array
    if not array.flags.writeable or 0 in array.strides:
        array = array.copy()  # others may write to it: never to a broadcast view
    return array.__dlpack__(**options)


@function
def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor from any object with `__dlpack__`; copied unless `copy=False`."""
    check_device("from_dlpack", device)
    if isinstance(x, Tensor):
        return x
    array = np.from_dlpack(x)
    dt.as_dtype("from_dlpack", array.dtype)
    return Tensor(array if copy is False else array.copy())


@function
def deepcopy(x: Tensor) -> Tensor:
    """A copy of the values; a leaf becomes a new leaf."""
    found = Tensor(np.array(x.array))
    return found.requires_grad_() if x.requires_grad and x.is_leaf else found


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
