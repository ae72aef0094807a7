"""New tensors from values, shapes and ranges."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, DtypeError
from retrograd.core.op import function
from retrograd.core.spec import shape_tuple
from retrograd.core.tensor import Tensor


@function
def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
) -> Tensor:
    """`obj` as a tensor; arrays keep their dtype, Python floats become float32.

    NumPy arrays are copied unless `copy=False`; then see `rg.debug.aliasing`.
    """
    wanted = None if dtype is None else dt.as_dtype("asarray", dtype)
    if isinstance(obj, Tensor):
        return obj if wanted is None else obj.astype(wanted)
    if isinstance(obj, (np.ndarray, np.generic)):
        own = dt.as_dtype("asarray", obj.dtype)
        return Tensor(np.array(obj, dtype=wanted or own, copy=copy is not False or None))
    return Tensor(_from_python(obj, wanted))


def _from_python(obj: Any, wanted: np.dtype | None) -> np.ndarray:
    try:
        array = np.array(obj)
    except ValueError as error:
        raise ArgumentError(f"asarray: the nested sequences are ragged: {error}") from error
    if array.dtype == object:
        raise DtypeError(f"asarray: {type(obj).__name__} does not hold numbers")
    weak = {"f": dt.float32, "c": dt.complex64}.get(array.dtype.kind)
    return array.astype(wanted or weak or dt.as_dtype("asarray", array.dtype))


@function
def tensor(obj: Any, /, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A new tensor with a copy of the values; a leaf of the tape with `requires_grad`."""
    found = asarray(obj, dtype=dtype)
    found = Tensor(np.array(found.array))
    return found.requires_grad_() if requires_grad else found


@function
def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """All zero."""
    wanted = dt.float32 if dtype is None else dt.as_dtype("zeros", dtype)
    return Tensor(np.zeros(shape_tuple("zeros", shape), wanted))


@function
def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """All one."""
    wanted = dt.float32 if dtype is None else dt.as_dtype("ones", dtype)
    return Tensor(np.ones(shape_tuple("ones", shape), wanted))


@function
def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """All zero, in the shape and dtype of x."""
    return zeros(x.shape, dtype=x.dtype if dtype is None else dtype)


@function
def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """All one, in the shape and dtype of x."""
    return ones(x.shape, dtype=x.dtype if dtype is None else dtype)
