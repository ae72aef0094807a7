"""Writing at places that are known at run time: one loop after another, in index order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.core import dtype as dt
from retrograd.jit.loops.arrays import Array, stretched
from retrograd.jit.loops.expr import For, NotLoweredError, Store, cast, load, number
from retrograd.jit.loops.index import Axis, Dynamic, Ix, flat

if TYPE_CHECKING:
    from retrograd.jit.loops.expr import Expr, Stmt

__all__ = ["FEW", "few", "scattered", "within"]

FEW = 4  # elements along the axis that are compared with every place rather than put there


def within(i: Expr, n: int) -> Ix:
    """A number that is known to lie in 0 ... n - 1, as an index."""
    return i.data if i.op == "place" else Ix(0, {Dynamic(cast(i, dt.int64), n): 1})


def scattered(
    k: Any, frame: Any, start: Any, x: Array, indices: Array, out: Any, axis: int, combine: Any
) -> list[Stmt]:
    """The loops of Kernel.scatter: out = start, then what x is combined with, in order."""
    count, length = x.shape[axis], out.shape[axis]
    before, after = frame.index[:axis], frame.index[axis + 1 :]

    def stored(at: Ix, value: Any) -> Store:
        value = cast(number(k.table, value, out.dtype), out.dtype)
        return Store(out.buffer, flat((*before, at, *after), out.shape), value)

    whole = Axis(length)
    first = start.at((*before, Ix.of(whole), *after)) if isinstance(start, Array) else start
    begin = For((whole,), [stored(Ix.of(whole), first)], reverse=False)
    if not count:
        return [begin]
    if not length:
        raise NotLoweredError("an index into nothing")
    at = within(k.checked(stretched(indices, frame.index), length), length)
    was = load(k.table, out.buffer, flat((*before, at, *after), out.shape))
    new = combine(was, cast(x.at(frame.index), out.dtype))
    return [begin, For(frame.inner_axes, [stored(at, new)], reverse=False)]


def few(k: Any, x: Array, indices: Array, out: Any, axis: int) -> Any:
    """A sum at few places as an expression of each element, which runs in vectors."""
    length, places = out.shape[axis], k.iota(out.shape[axis], dt.int64)

    def at(index: tuple[Ix, ...]) -> Expr:
        here, total = places.at((index[axis],)), number(k.table, 0, out.dtype)
        for j in range(x.shape[axis]):
            own = (*index[:axis], Ix(j), *index[axis + 1 :])
            there = cast(k.checked(stretched(indices, own), length), dt.int64)
            total = total + k.where(there == here, cast(x.at(own), out.dtype), 0)
        return total

    return at
