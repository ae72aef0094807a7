"""Spec: what is known of a tensor before it exists; and the rules for shapes and axes."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.errors import ArgumentError, ShapeError, TraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Spec:
    """Shape, dtype and device: all that shape rules and planners may look at."""

    shape: Shape
    dtype: np.dtype
    device: str = "cpu"

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return self.size * self.dtype.itemsize

    def with_shape(self, shape: Sequence[int]) -> Spec:
        """The same dtype and device, another shape."""
        return Spec(tuple(shape), self.dtype, self.device)

    def with_dtype(self, dtype: np.dtype) -> Spec:
        """The same shape and device, another dtype."""
        return Spec(self.shape, dtype, self.device)

    def __str__(self) -> str:
        """As errors and graphs show it: `float32[2, 3]`."""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def spec_of(array: np.ndarray) -> Spec:
    """The spec of a NumPy array."""
    return Spec(array.shape, array.dtype)


def broadcast_shapes(who: str, **named: Shape) -> Shape:
    """The common shape of the named operands, or a ShapeError that names them."""
    out: Shape = ()
    for shape in named.values():
        joined = _join(out, shape)
        if joined is None:
            listed = ", ".join(f"{name} {shape}" for name, shape in named.items())
            raise ShapeError(
                f"{who}: shapes do not broadcast: {listed}; axes, counted from the last, "
                f"must be equal or 1"
            )
        out = joined
    return out


def _join(a: Shape, b: Shape) -> Shape | None:
    if len(a) < len(b):
        a, b = b, a
    lead = len(a) - len(b)
    out = list(a)
    for i, n in enumerate(b):
        m = a[lead + i]
        if m == 1:
            out[lead + i] = n
        elif n not in (m, 1):
            return None
    return tuple(out)


def same(who: str, **named: Spec) -> Spec:
    """The one spec that all named operands share, or a ShapeError that names them."""
    specs = list(named.values())
    if any(s.shape != specs[0].shape for s in specs):
        listed = ", ".join(f"{name} {s.shape}" for name, s in named.items())
        raise ShapeError(f"{who}: operands must have one shape; got {listed}")
    return specs[0]


def axis_index(who: str, axis: Any, ndim: int, *, name: str = "axis") -> int:
    """`axis` counted from the front, checked against the number of axes."""
    try:
        i = operator.index(axis)
    except TypeError as error:
        raise ArgumentError(f"{who}: {name} must be an integer; got {axis!r}") from error
    if not -ndim <= i < ndim:
        raise ArgumentError(
            f"{who}: {name} {i} is outside a tensor of {ndim} axes; "
            + (f"it must be from {-ndim} to {ndim - 1}" if ndim else "it has none")
        )
    return i % ndim


def axes_tuple(who: str, axis: Any, ndim: int) -> tuple[int, ...]:
    """One axis, several or None (all), as a sorted tuple counted from the front."""
    if axis is None:
        return tuple(range(ndim))
    if not isinstance(axis, (tuple, list)):
        return (axis_index(who, axis, ndim),)
    found = [axis_index(who, a, ndim) for a in axis]
    if len(set(found)) != len(found):
        raise ArgumentError(f"{who}: axis {tuple(axis)} names an axis twice")
    return tuple(sorted(found))


def check_device(who: str, device: Any) -> None:
    """Refuse any device but the one there is."""
    if device is not None and not (isinstance(device, str) and device == "cpu"):
        raise ArgumentError(f"{who}: the one device is 'cpu'; got {device!r}")


def shape_tuple(who: str, shape: Any) -> Shape:
    """A shape given as an int or a sequence of ints, none negative."""
    try:
        sizes = (
            tuple(operator.index(n) for n in shape)
            if isinstance(shape, (tuple, list))
            else (operator.index(shape),)
        )
    except TraceError:  # an integer of a program, which has no value yet
        raise
    except TypeError as error:
        raise ArgumentError(f"{who}: shape must be integers; got {shape!r}") from error
    if any(n < 0 for n in sizes):
        raise ArgumentError(f"{who}: shape {sizes} has a negative size")
    return sizes
