"""Leading axes: any number of them, one for the kernels; shared operands may lack them.

A core operand is told by its core shape, which follows the leading axes. A shared one (decay
rates, skips, initial states) has these axes, or its core shape alone, or no axes at all.
"""

from __future__ import annotations

from math import isqrt, prod
from operator import index
from typing import Any

import numpy as np

from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.spec import Spec
from retrograd.ops import reduce, shape

Shape = tuple[int, ...]


def check(who: str, name: str, given: Shape, *allowed: Shape) -> None:
    """Refuse an operand that has none of the allowed shapes."""
    if given not in allowed:
        wanted = " or ".join(map(str, dict.fromkeys(allowed)))
        raise ShapeError(f"{who}: {name} {given} must have shape {wanted}")


def check_axes(who: str, name: str, given: Shape, axes: str) -> None:
    """Refuse an operand with fewer axes than `axes` names."""
    if len(given) < len(axes.split()):
        raise ShapeError(f"{who}: {name} {given} needs at least the axes ({axes})")


def check_groups(who: str, heads: int, groups: int) -> None:
    """Refuse groups that heads cannot be divided into."""
    if groups < 1 or heads % groups:
        raise ShapeError(f"{who}: {heads} heads cannot share B and C in {groups} groups")


def check_shared(who: str, name: str, given: Shape, lead: Shape, core: Shape) -> None:
    """Refuse a shared operand with neither shape that it may have."""
    check(who, name, given, (*lead, *core), core, ())


def spread(x: np.ndarray, lead: Shape, core: Shape) -> np.ndarray:
    """A shared operand of the kernel: (b, *core), mostly a view."""
    return np.broadcast_to(x, (*lead, *core)).reshape(prod(lead), *core)


def gathered(x: np.ndarray, lead: Shape, to: Shape) -> np.ndarray:
    """The cotangent (b, *core) of a shared operand, in its own shape."""
    x = x.reshape(*lead, *x.shape[1:])
    return x if x.shape == to else reduce.SumTo(to).forward(x)


def spread_op(x: Any, lead: Shape, core: Shape) -> Any:
    """As spread, in ops."""
    return shape.reshape(shape.broadcast_to(x, (*lead, *core)), (prod(lead), *core))


def gathered_op(x: Any, lead: Shape, to: Shape) -> Any:
    """As gathered, in ops."""
    return reduce.sum_to(shape.reshape(x, (*lead, *x.shape[1:])), to)


def own(args: Any, mapped: Any) -> list[Spec]:
    """The specs that the operands of a batch rule have for each of many."""
    pairs = zip(args, mapped, strict=True)
    return [Spec(a.shape[1:] if m else a.shape, a.dtype) for a, m in pairs]


def mapped_front(size: int, args: Any, mapped: Any, full: Any) -> list[Any]:
    """Operands of a batch rule with the mapped axis before the full shapes `full`."""
    out = []
    for x, m, to in zip(args, mapped, full, strict=True):
        own = x.shape[1:] if m else x.shape
        new = (1,) * (len(to) - len(own))
        x = shape.reshape(x, (size if m else 1, *new, *own))
        out.append(shape.broadcast_to(x, (size, *to)))
    return out


def unmapped(x: Any, to: Shape) -> Any:
    """The cotangent (size, *full) of a shared operand of shape `to`, for each of many."""
    size, new = x.shape[0], (1,) * (x.ndim - 1 - len(to))
    return shape.reshape(reduce.sum_to(x, (size, *new, *to)), (size, *to))


def chunk_length(who: str, chunk: Any, steps: int, p: int, r: int, m: int = 1) -> int:
    """The length of chunks: as given, or such that scores and states take equal room."""
    if chunk is None:
        room = max(16, -(-isqrt(p * r) // 32) * 32 // m)
        return min(512, room, 1 << max(4, (steps - 1).bit_length()))
    try:
        chunk = index(chunk)
    except TypeError as error:
        raise ArgumentError(f"{who}: chunk must be an integer; got {chunk!r}") from error
    if chunk < 1:
        raise ArgumentError(f"{who}: chunk must be positive; got {chunk}")
    return chunk


def algorithm_of(who: str, name: str, known: dict[str, Any]) -> Any:
    """The composition that an algorithm stands for; None for the op itself."""
    if name != "recompute" and name not in known:
        options = ", ".join(("recompute", *known))
        raise ArgumentError(f"{who}: algorithm {name!r} is not one of {options}")
    return known.get(name)
