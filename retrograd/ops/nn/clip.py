"""Gradients kept within bounds: by the norm of all of them together, or one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core import tree
from retrograd.core.errors import ArgumentError, NonFiniteError, TraceError
from retrograd.core.interpret import lift
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, norm, power, reduce, select

__all__ = ["clip_global_norm", "clip_values", "global_norm"]


def global_norm(grads: Any) -> Tensor:
    """The Euclidean norm of all tensors of a tree together; 0 for a tree without any."""
    squares = [reduce.sum(power.square(norm.norm(lift(g)))) for g in tree.leaves(grads)]
    if not squares:
        return lift(0.0)
    total = squares[0]
    for s in squares[1:]:
        total = total + s
    return power.sqrt(total)


def clip_global_norm(
    grads: Any, most: float | Tensor, /, *, error_if_nonfinite: bool = False
) -> tuple[Any, Tensor]:
    """A tree of gradients scaled so that its norm is at most `most`; and its norm before.

    A norm that is not finite leaves NaN in every gradient, so that it cannot go unseen; with
    `error_if_nonfinite` it raises instead, where the value is known.
    """
    if not isinstance(most, Tensor) and not most > 0:  # a tensor may have no value yet
        raise ArgumentError(f"clip_global_norm: the norm must be positive; got {most}")
    size = global_norm(grads)
    if error_if_nonfinite and not _finite(size):
        raise NonFiniteError(f"clip_global_norm: the norm of the gradients is {size.item()}")
    share = select.minimum(most / select.maximum(size, most), 1.0)
    share = share + (size - size)  # NaN where the norm is not finite
    return tree.map(lambda g: _scaled(lift(g), share), grads), size


def _scaled(g: Any, share: Any) -> Any:
    # what has no gradient has integer zeros in its place
    return g * cast.astype(share, g.dtype) if dt.is_inexact(g.dtype) else g


def _finite(size: Tensor) -> bool:
    try:
        return bool(np.isfinite(size.array))
    except TraceError:  # known only when the program runs
        return True


def clip_values(grads: Any, most: float, /) -> Any:
    """A tree of gradients with every element between -most and most."""
    if not most >= 0:
        raise ArgumentError(f"clip_values: the bound must not be negative; got {most}")
    return tree.map(lambda g: select.clip(g, -most, most), grads)
