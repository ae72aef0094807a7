"""Operands that are views: what is in memory, and how the view is made of it in a program."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from retrograd.core.op import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Layout", "layout"]


class Layout(NamedTuple):
    """The shape of what a program reads; how to get it from the operand, and the way back."""

    shape: tuple[int, ...]
    base: Callable[[np.ndarray], np.ndarray] | None = None
    view: Callable[[Any], Any] | None = None


def layout(a: np.ndarray) -> Layout:
    """How to read an array without a copy, if it is memory in row-major order.

    But for axes that are turned or repeated; as it is or as a copy otherwise. Nothing here
    holds the array.
    """
    if a.flags.c_contiguous:
        return Layout(a.shape, None if a.flags.aligned else np.copy)
    order = sorted(range(a.ndim), key=lambda i: -abs(a.strides[i]))
    whole = tuple(a.shape[i] for i in order)
    repeated = [a.strides[i] == 0 for i in order]
    base = partial(_base, order, (*(0 if r else slice(None) for r in repeated), ...))
    found = base(a)
    if not (found.flags.c_contiguous and found.flags.aligned):
        return Layout(a.shape, np.ascontiguousarray)
    kept = tuple(1 if r else n for r, n in zip(repeated, whole, strict=True))
    back = tuple(int(i) for i in np.argsort(order))
    return Layout(found.shape, base, partial(_view, kept, whole, back))


def _base(order: Any, pick: Any, x: np.ndarray) -> np.ndarray:
    """What is in memory; the dots in `pick` make it an array also where no axis is left."""
    return x.transpose(order)[pick]


def _view(kept: Any, whole: Any, back: Any, box: Any) -> Any:
    """The operand, of what is in memory, in ops."""
    if kept != whole:
        box = FUNCTIONS["broadcast_to"](FUNCTIONS["reshape"](box, kept), whole)
    return FUNCTIONS["permute_dims"](box, back)
