"""Options as callers give them: whole numbers, numbers, shapes. What is neither is refused."""

from __future__ import annotations

from math import prod
from operator import index
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.spec import shape_tuple

MOST_AXES = 64  # NumPy's
MOST_ELEMENTS = 2**63 // dt.complex128.itemsize  # the widest, in bytes that have addresses


def integer(who: str, name: str, value: Any, *, least: int | None = None) -> int:
    """One whole number, not below `least`."""
    try:
        found = index(value)
    except TypeError as error:
        raise ArgumentError(f"{who}: {name} must be an integer; got {_shown(value)}") from error
    if least is not None and found < least:
        rule = f"must be at least {least}" if least else "must not be negative"
        raise ArgumentError(f"{who}: {name} {rule}; got {found}")
    return found


def number(who: str, name: str, value: Any) -> float:
    """One real number, of Python's, NumPy's or ours, as a Python float."""
    try:
        if isinstance(value, (str, bytes)) or getattr(value, "ndim", 0) != 0:
            raise TypeError(f"a {type(value).__name__} is not a number")
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"{who}: {name} must be a number; got {_shown(value)}") from error


def sizes(who: str, shape: Any) -> tuple[int, ...]:
    """A shape that an array can have."""
    return possible(who, shape_tuple(who, shape))


def possible(who: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape itself, refused where no array can have it."""
    size = prod(shape) or prod(n for n in shape if n)
    if len(shape) > MOST_AXES:
        raise ShapeError(
            f"{who}: a shape of {len(shape)} axes; there can be at most {MOST_AXES}"
        )
    if size >= MOST_ELEMENTS:
        raise ShapeError(f"{who}: shape {shape} has more elements than memory has addresses")
    return shape


def _shown(value: Any) -> str:
    """A value in an error: short, and no matter what it is."""
    if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "shape"):
        return f"{type(value).__name__} of shape {getattr(value, 'shape', ())}"
    return repr(value) if len(repr(value)) < 80 else type(value).__name__
