"""x[index]: an index expression read once, as slices and coordinates.

NumPy's rules: integers drop their axis; None makes one; arrays are broadcast together, and
their axes stand where they were if they stood side by side, else in front. A boolean array
is the coordinates of its True elements.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, BoundsError, DtypeError, ShapeError, TraceError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import function
from retrograd.core.tensor import Box, Tensor
from retrograd.ops import index as index_
from retrograd.ops import join, slices

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """An index expression: first the part, then integer arrays in `axes` of the part."""

    parts: slices.Parts
    arrays: list[Any]
    axes: Shape = ()
    place: int = 0


@dataclass(frozen=True, slots=True)
class Chosen:
    """Integers along one axis. From a mask: the length that the axis must have.

    A mask without axes makes an axis, of which the only element is taken once or never.
    """

    array: Any
    length: int | None = None
    new: bool = False


_GAP: Any = object()  # an ellipsis that stands for no axis; what is beside it stands apart


@function
def getitem(x: Any, index: Any, /) -> Tensor:
    """x[index]: integers, slices, ..., None, integer and boolean arrays, lists and tensors."""
    x = lift(x)
    plan = read("getitem", x.shape, index)
    out = slices.part(x, plan.parts)
    if not plan.arrays:
        return out
    where = index_.coordinates("getitem", plan.arrays)
    return apply(index_.Index(plan.axes, plan.place), out, where)


def read(who: str, of: Shape, index: Any) -> Plan:
    """What an index expression means for a tensor of shape `of`."""
    given = index if isinstance(index, tuple) else (index,)
    items: list[Any] = []
    for item in given:
        items += _items(who, item)
    taken = sum(isinstance(i, (int, slice)) or _along(i) for i in items)
    dots = [k for k, i in enumerate(items) if i is Ellipsis]
    if len(dots) > 1:
        raise ArgumentError(f"{who}: an index may have one ellipsis; got {len(dots)}")
    if taken > len(of):
        raise BoundsError(f"{who}: {taken} indices for a tensor of shape {of}")
    fill = [slice(None)] * (len(of) - taken)
    if dots:
        items[dots[0] : dots[0] + 1] = fill or [_GAP]
    else:
        items += fill
    return _plan(who, of, items)


def _along(item: Any) -> bool:
    return isinstance(item, Chosen) and not item.new


def _plan(who: str, of: Shape, items: list[Any]) -> Plan:
    parts: list[slices.Part] = []
    arrays: list[Any] = []
    axes: list[int] = []
    fancy: list[int] = []  # where integers and arrays stand
    before = axis = kept = 0
    for k, item in enumerate(items):
        if item is _GAP:
            continue
        if isinstance(item, (int, Chosen)):
            before = before if fancy else kept
            fancy.append(k)
        if isinstance(item, Chosen):
            arrays.append(item.array)
            axes.append(kept)
        length = of[axis] if isinstance(item, (int, slice)) or _along(item) else 0
        parts.append(_part(who, item, axis, length))
        axis += parts[-1] is not None
        kept += not isinstance(item, int)
    together = bool(fancy) and fancy[-1] - fancy[0] + 1 == len(fancy)
    return Plan(tuple(parts), arrays, tuple(axes), before if together else 0)


def _part(who: str, item: Any, axis: int, length: int) -> slices.Part:
    if isinstance(item, int):
        return _position(who, item, axis, length)
    if isinstance(item, slice):
        return _range(who, item, length)
    if item is None or item.new:
        return None
    if item.length not in (None, length):
        raise ShapeError(
            f"{who}: a mask has length {item.length} where axis {axis} has length {length}; "
            f"they must be equal"
        )
    return (0, length, 1)


def _position(who: str, i: int, axis: int, length: int) -> int:
    if not -length <= i < length:
        raise BoundsError(f"{who}: index {i} is outside axis {axis} of length {length}")
    return i % length


def _range(who: str, item: slice, length: int) -> tuple[int, int, int]:
    try:
        found = range(*item.indices(length))
    except ValueError as error:
        raise ArgumentError(f"{who}: the step of a slice is zero; it must not be") from error
    except TraceError:  # an integer of a program, which has no value yet
        raise
    except TypeError as error:
        raise DtypeError(
            f"{who}: the bounds of a slice must be integers; got {item}"
        ) from error
    return (found.start, len(found), found.step) if found else (0, 0, 1)


def _items(who: str, item: Any) -> list[Any]:
    """One entry of an index as integers, slices, None, ... and arrays of integers."""
    if item is None or item is Ellipsis or isinstance(item, slice) or type(item) is int:
        return [item]
    if isinstance(item, np.integer):
        return [int(item)]
    if isinstance(item, (bool, np.bool_, list, tuple, range)):
        item = _array(who, item)
    if not isinstance(item, (Tensor, np.ndarray)):
        return [_integer(who, item)]
    if item.dtype == dt.bool:
        return _true(who, item)
    if item.dtype.kind not in "iu":
        raise DtypeError(f"{who}: an array as index must be integers or bool; got {item.dtype}")
    if not item.ndim and isinstance(item, np.ndarray):
        return [int(item)]
    return [Chosen(item)]


def _integer(who: str, item: Any) -> int:
    try:
        return operator.index(item)
    except TypeError as error:
        raise DtypeError(
            f"{who}: an index is made of integers, slices, None, ... and arrays of integers "
            f"or bool; got {type(item).__name__}"
        ) from error


def _array(who: str, item: Any) -> Any:
    """A list as an array; a list of boxes as a tensor."""
    if isinstance(item, (list, tuple)) and any(isinstance(i, Box) for i in item):
        return join.stack(list(item))
    try:
        found = np.asarray(item)
    except ValueError as error:
        raise ArgumentError(f"{who}: the lists of an index are ragged: {error}") from error
    return found if found.size else found.astype(np.int64)


def _true(who: str, mask: Any) -> list[Any]:
    """The coordinates of the True elements, one array for each axis of the mask."""
    found = concrete(who, mask)
    if not found.ndim:
        return [Chosen(np.zeros(int(found), np.int64), new=True)]
    return [Chosen(c, n) for c, n in zip(np.nonzero(found), found.shape, strict=True)]


def concrete(who: str, mask: Any) -> np.ndarray:
    """The values of a mask, on which the shape of the result depends."""
    try:
        return mask.array if isinstance(mask, Tensor) else np.asarray(mask)
    except TraceError as error:
        raise TraceError(
            f"{who}: the shape of the result depends on the values of a mask, which are not "
            f"known inside vmap and jit",
            hint="rg.where(mask, x, 0), or rg.masked_select(x, mask, size=n)",
        ) from error
