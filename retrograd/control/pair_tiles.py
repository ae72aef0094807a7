"""Pair sums in compiled programs: loops over tiles of pairs, each made, used and dropped.

The points y are turned once, a tile [d, columns] after another: the pairs of a point of x are
then neighbours in memory. Sets of points that no tiles fill go on with their last point, whose
weight there is 0: no pair comes up that was not there before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.autodiff.reverse import flat_vjp
from retrograd.control.scan import scan
from retrograd.core import dtype as dt
from retrograd.core.interpret import apply, current, lift
from retrograd.ir.evaluate import evaluate
from retrograd.ops import create, linalg, pad, reduce, select, shape
from retrograd.ops.distances import pairwise

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["pulled", "summed"]


class Tiles:
    """Rows of matrices, so many at a time."""

    def __init__(self, length: int, size: int) -> None:
        self.length, self.size, self.count = length, size, -(-length // size)
        self.more = self.count * size - length

    def of(self, x: Any, mode: str = "constant") -> Any:
        """The tiles of a matrix, [count, size, ...]; at the end zeros, or as `mode` says."""
        if self.more:
            x = pad.pad(x, {0: (0, self.more)}, mode)
        return shape.reshape(x, (self.count, self.size, *x.shape[1:]))

    def back(self, x: Any) -> Any:
        """The matrix of tiles."""
        return shape.reshape(x, (self.count * self.size, *x.shape[2:]))[: self.length]

    def numbers(self) -> Any:
        """The numbers of the points of each tile."""
        every = create.arange(self.count * self.size, dtype=dt.int64)
        return shape.reshape(every, (self.count, self.size))


def _walks(op: Any, x: Any, y: Any) -> tuple[Tiles, Tiles]:
    tall, wide = op.body.inputs[0].shape
    return Tiles(x.shape[0], tall), Tiles(y.shape[0], wide)


def _tile(op: Any, keep: Any, x: Any, turned: Any, w: Any, more: Any) -> Any:
    """The sums over the pairs of a tile; `turned` are its points y, as columns."""
    kind = pairwise.PairwiseAgain("euclidean" if op.root else "squared")
    far = apply(kind, x, linalg.matrix_transpose(turned))
    if keep is not None:
        far = select.where(keep, far, 1.0)  # nothing is divided by zero
    (found,) = evaluate(op.body, far, *more)
    found = found if keep is None else select.where(keep, found, 0.0)
    if w.shape[1] > 1:
        return linalg.matmul(found, w)
    return reduce.sum(found * linalg.matrix_transpose(w), axis=1, keepdims=True)


def _others(op: Any, rows: Any, columns: Any) -> Any:
    """Which pairs of a tile are of two points; None if that is not asked."""
    return shape.expand_dims(rows, axis=1) != columns if op.others else None


def summed(op: Any, x: Any, y: Any, w: Any, *more: Any) -> Any:
    """The sums of f(distance of x_i and y_j) w_j over j."""
    down, across = _walks(op, x, y)
    columns = _turned(across, y), across.of(w), across.numbers()

    def row(_: Any, at: Any) -> Any:
        own, i = at

        def tile(total: Any, at: Any) -> Any:
            turned, weights, j = at
            found = _tile(op, _others(op, i, j), own, turned, weights, more)
            return total + found, ()

        first = create.zeros((down.size, w.shape[1]), dtype=x.dtype)
        return (), scan(tile, first, columns)[0]

    return down.back(scan(row, (), (down.of(x, "edge"), down.numbers()))[1])


def _turned(across: Tiles, y: Any) -> Any:
    return linalg.matrix_transpose(across.of(y, "edge"))


def pulled(op: Any, g: Any, x: Any, y: Any, w: Any, *more: Any) -> tuple[Any, ...]:
    """The cotangents of x, y, w and what f captures."""
    down, across = _walks(op, x, y)
    turned, weights = _turned(across, y), across.of(w)

    def row(carry: Any, at: Any) -> Any:
        gy, gw, gc = carry
        own, blame, i = at

        def tile(carry: Any, at: Any) -> Any:
            gx, gc = carry
            y_tile, w_tile, gy, gw, j = at
            f = _pairs(op, _others(op, i, j))
            given = [lift(a) for a in (own, y_tile, w_tile, *more)]
            _, pull = flat_vjp(f, given, current.get())
            a, b, c, *rest = pull([blame])
            gc = tuple(_plus(*pair) for pair in zip(gc, rest, strict=True))
            return (_plus(gx, a), gc), (_plus(gy, b), _plus(gw, c))

        columns = turned, weights, gy, gw, across.numbers()
        (gx, gc), (gy, gw) = scan(tile, (create.zeros(own.shape, dtype=x.dtype), gc), columns)
        return (gy, gw, gc), gx

    zeros = tuple(create.zeros(a.shape, dtype=a.dtype) for a in (turned, weights))
    captured = tuple(create.zeros(a.shape, dtype=a.dtype) for a in more)
    rows = down.of(x, "edge"), down.of(g), down.numbers()
    (gy, gw, gc), gx = scan(row, (*zeros, captured), rows)
    return down.back(gx), across.back(linalg.matrix_transpose(gy)), across.back(gw), *gc


def _pairs(op: Any, keep: Any) -> Callable[..., list[Any]]:
    return lambda x, turned, w, *more: [_tile(op, keep, x, turned, w, more)]


def _plus(total: Any, found: Any) -> Any:
    return total if found is None else total + found
