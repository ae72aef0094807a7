"""Where a condition holds: nonzero, masked_select, masked_fill.

How many places there are depends on values. Without `size` these functions need them, and
work on concrete tensors only; with `size` the result has that many places, and compiles
and maps.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, DtypeError
from retrograd.core.interpret import apply, constant, lift
from retrograd.core.op import Op, function, op
from retrograd.core.spec import Spec, broadcast_shapes
from retrograd.core.tensor import Tensor
from retrograd.ops import gather, getitem, join, options, rows, scatter, select, shape

__all__ = ["argwhere", "masked_fill", "masked_select", "nonzero"]


@op
class Nonzero(Op):
    """The coordinates (ndim, size) of the first `size` elements that are not zero.

    In row-major order; `fill` stands where there are fewer.
    """

    size: int
    fill: int = 0
    batch_axes: int = 0
    no_derivative = rows.INDEX
    host = "the places are found by sorting"

    def shape(self, x: Spec) -> Spec:
        lead = x.shape[: self.batch_axes]
        return Spec((*lead, x.ndim - self.batch_axes, self.size), dt.int64)

    def forward(self, x):
        lead, own = x.shape[: self.batch_axes], x.shape[self.batch_axes :]
        found = (x != 0).reshape(prod(lead), prod(own))
        order = np.argsort(~found, axis=1, kind="stable")[:, : self.size]
        out = np.full((prod(lead), len(own), self.size), self.fill, np.int64)
        inside = np.arange(order.shape[1]) < found.sum(axis=1, keepdims=True)
        places = np.unravel_index(order, own) if order.size else ()
        for axis, place in enumerate(places):
            out[:, axis, : order.shape[1]] = np.where(inside, place, self.fill)
        return out.reshape(*lead, len(own), self.size)

    def batch(self, size, args, mapped):
        return apply(Nonzero(self.size, self.fill, self.batch_axes + 1), *args)

    @staticmethod
    def samples(rng):
        x = rng.integers(0, 2, (3, 4))
        yield Nonzero(5), x
        yield Nonzero(20, -1), x
        yield Nonzero(0), x
        yield Nonzero(3), np.zeros((0, 2))


def _places(who: str, x: Any, size: int | None, fill_value: int) -> Any:
    """Coordinates of what is not zero, as one tensor (ndim, count)."""
    x = lift(x)
    if not x.ndim:
        raise ArgumentError(f"{who}: x has no axes; it needs at least one")
    if size is None:
        return constant(np.stack(np.nonzero(getitem.concrete(who, x))))
    size = _size(who, size)
    fill = options.integer(who, "fill_value", fill_value)
    if not -(2**63) <= fill < 2**63:
        raise ArgumentError(f"{who}: fill_value {fill} does not fit in int64")
    return apply(Nonzero(size, fill), x)


def _size(who: str, size: Any) -> int:
    """How many places a result has."""
    return options.possible(who, (options.integer(who, "size", size, least=0),))[0]


@function
def nonzero(x: Any, /, *, size: int | None = None, fill_value: int = 0) -> tuple[Tensor, ...]:
    """The coordinates of the elements that are not zero, one tensor for each axis.

    With `size`, of the first `size` of them; `fill_value` stands where there are fewer.
    """
    return join.unstack(_places("nonzero", x, size, fill_value))


@function
def argwhere(x: Any, /, *, size: int | None = None, fill_value: int = 0) -> Tensor:
    """The coordinates of the elements that are not zero, one row for each."""
    return shape.permute_dims(_places("argwhere", x, size, fill_value), (1, 0))


def _mask(who: str, mask: Any) -> Any:
    mask = lift(mask)
    if mask.dtype != dt.bool:
        raise DtypeError(f"{who}: mask must be bool; got {mask.dtype}", hint="mask != 0")
    return mask


@function
def masked_select(
    x: Any, mask: Any, /, *, size: int | None = None, fill_value: Any = 0
) -> Tensor:
    """The elements of x where mask holds, in one axis; x and mask broadcast.

    With `size`, the first `size` of them; `fill_value` stands where there are fewer.
    """
    x, mask = lift(x), _mask("masked_select", mask)
    to = broadcast_shapes("masked_select", x=x.shape, mask=mask.shape)
    x, mask = (shape.reshape(shape.broadcast_to(y, to), (prod(to),)) for y in (x, mask))
    if size is None:
        return getitem.getitem(x, mask)
    size = _size("masked_select", size)
    places = shape.reshape(apply(Nonzero(size, -1), mask), (size,))
    if not prod(to):
        x = constant(np.zeros(1, x.dtype))
    fill = scatter.values_like("masked_select", fill_value, x.dtype)
    found = gather.take(x, places, axis=0)  # -1 is some element, replaced by the next line
    return select.where(places >= 0, found, fill)


@function
def masked_fill(x: Any, mask: Any, value: Any, /) -> Tensor:
    """x with `value` where mask holds; the mask broadcasts to x."""
    x = lift(x)
    mask = shape.broadcast_to(_mask("masked_fill", mask), x.shape)
    return select.where(mask, scatter.values_like("masked_fill", value, x.dtype), x)
