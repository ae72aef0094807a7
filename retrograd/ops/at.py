"""x.at[index]: a new tensor that differs from x at an index, as `x[index] = v` would make it.

Values broadcast to the shape of x[index] and are converted to x's dtype. Where an index
names a place twice, `set` keeps the last value, and only that one gets a gradient; `add`,
`multiply` and `divide` apply all of them; `min` and `max` share the gradient equally among
all that are equal, x's own element among them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import DtypeError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import function
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import getitem, row_products, scatter, select, shape, slices
from retrograd.ops import index as index_


@function
def at(x: Any, /) -> At:
    """Functional updates of x: `rg.at(x)[index].set(v)`, the same as `x.at[index].set(v)`."""
    return At(lift(x))


class At:
    """What `x.at` is: index it."""

    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x

    def __getitem__(self, index: Any) -> Place:
        """The place to read or update."""
        return Place(self.x, index)


class Place:
    """Part of a tensor, to be read or updated; each method returns a new tensor."""

    __slots__ = ("index", "x")

    def __init__(self, x: Any, index: Any) -> None:
        self.x, self.index = x, index

    def get(self) -> Tensor:
        """x[index]."""
        return getitem.getitem(self.x, self.index)

    def set(self, values: Any) -> Tensor:
        """x with values at the index; the last one, where a place is named twice."""
        return self._updated("set", values, lambda old, new: new, _set)

    def add(self, values: Any) -> Tensor:
        """x with values added at the index, all of them where a place is named twice."""
        return self._updated("add", values, lambda old, new: old + new, _add)

    def subtract(self, values: Any) -> Tensor:
        """x with values subtracted at the index."""
        return self.add(-scatter.values_like("at[].subtract", values, self.x.dtype))

    def multiply(self, values: Any) -> Tensor:
        """x with values multiplied in at the index."""
        return self._updated("multiply", values, lambda old, new: old * new, _multiply)

    def divide(self, values: Any) -> Tensor:
        """x divided at the index by values; by their product, where a place is named twice."""
        if self.x.dtype.kind in "biu":
            raise DtypeError(
                f"at[].divide: x is {self.x.dtype}, which quotients do not fit into",
                hint="x.astype(rg.float32).at[index].divide(v)",
            )
        return self._updated("divide", values, lambda old, new: old / new, _divide)

    def min(self, values: Any) -> Tensor:
        """x with the smaller of x and values at the index."""
        return self._updated("min", values, select.minimum, _extreme(largest=False))

    def max(self, values: Any) -> Tensor:
        """x with the larger of x and values at the index."""
        return self._updated("max", values, select.maximum, _extreme(largest=True))

    def _updated(self, who: str, values: Any, each: Callable[..., Any], rows: Any) -> Tensor:
        """By `each` where no place comes twice, else by `rows`, then put back into x."""
        x, who = self.x, f"at[].{who}"
        values = scatter.values_like(who, values, x.dtype)
        mask = self._mask(who)
        if mask is not None and values.ndim <= x.ndim - mask.ndim:
            return _where(who, x, mask, values, each)
        plan = getitem.read(who, x.shape, self.index)
        part = slices.part(x, plan.parts)
        if plan.arrays:
            layout = index_.Index(plan.axes, plan.place)
            where = index_.coordinates(who, plan.arrays)
            to = layout.indexed(who, part.shape, Spec(where.shape, where.dtype))
            new = rows(layout, part, fitted(who, values, to), where)
        else:
            new = each(part, fitted(who, values, part.shape))
        if slices.whole(plan.parts, x.shape):
            return new
        return apply(slices.SliceSet(plan.parts), x, new)

    def _mask(self, who: str) -> Any:
        """The index, if it is one boolean array and nothing else."""
        index = self.index
        index = index[0] if isinstance(index, tuple) and len(index) == 1 else index
        if not isinstance(index, (Tensor, np.ndarray)) or index.dtype != dt.bool:
            return None
        if index.shape != self.x.shape[: index.ndim]:
            raise ShapeError(
                f"{who}: a mask {index.shape} must have the first axes of x {self.x.shape}"
            )
        return lift(index)


def fitted(who: str, values: Any, to: tuple[int, ...]) -> Tensor:
    """Values in the shape of x[index]; leading axes of length 1 do not count."""
    surplus = max(values.ndim - len(to), 0)
    if values.shape[:surplus] == (1,) * surplus:
        values = shape.reshape(values, values.shape[surplus:])
    lead = len(to) - values.ndim
    if lead < 0 or any(n not in (1, m) for n, m in zip(values.shape, to[lead:], strict=True)):
        raise ShapeError(f"{who}: values {values.shape} do not broadcast to x[index], {to}")
    return shape.broadcast_to(values, to)


def _where(who: str, x: Any, mask: Any, values: Any, each: Callable[..., Any]) -> Tensor:
    """By a mask that need not be known; where it is not, numbers are 1, lest nan arise."""
    rest = x.shape[mask.ndim :]
    mask = shape.reshape(mask, (*mask.shape, *(1,) * len(rest)))
    values = fitted(who, values, rest)
    one = lift(np.ones((), x.dtype))
    old, new = select.where(mask, x, one), select.where(mask, values, one)
    return select.where(mask, each(old, new), x)


def _table(layout: Any, x: Any, values: Any, where: Any) -> tuple[Any, Any, Any]:
    return (
        layout.table(x),
        layout.strip(values, where.ndim - 1),
        layout.numbers(x.shape, where),
    )


def _set(layout: Any, x: Any, values: Any, where: Any) -> Tensor:
    out = apply(scatter.SetRows(), *_table(layout, x, values, where))
    return layout.untable(out, x.shape)


def _add(layout: Any, x: Any, values: Any, where: Any) -> Tensor:
    return x + apply(index_.IndexAdd(layout.axes, layout.place, x.shape), values, where)


def _product(layout: Any, x: Any, values: Any, where: Any) -> Tensor:
    strip, targets = layout.strip(values, where.ndim - 1), layout.numbers(x.shape, where)
    out = apply(row_products.ProdRows(prod(layout.sizes(x.shape)[0])), strip, targets)
    return layout.untable(out, x.shape)


def _multiply(layout: Any, x: Any, values: Any, where: Any) -> Tensor:
    return x * _product(layout, x, values, where)


def _divide(layout: Any, x: Any, values: Any, where: Any) -> Tensor:
    return x / _product(layout, x, values, where)


def _extreme(*, largest: bool) -> Callable[..., Tensor]:
    def update(layout: Any, x: Any, values: Any, where: Any) -> Tensor:
        out = apply(scatter.ExtremeRows(largest), *_table(layout, x, values, where))
        return layout.untable(out, x.shape)

    return update
