"""The distances within one set of points, each pair once: pdist."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import apply
from retrograd.core.op import Linear, Op, op
from retrograd.core.spec import Spec, spec_of
from retrograd.core.tensor import Tensor
from retrograd.ops import create, index, shape
from retrograd.ops.distances import metrics, pairwise, tiles

__all__ = ["pdist"]


def count(points: int) -> int:
    """How many pairs there are."""
    return points * (points - 1) // 2


def upper(rows: int, columns: int) -> np.ndarray:
    """Where a matrix is above its diagonal."""
    return np.arange(rows)[:, None] < np.arange(columns)


def _before(row: Any, points: int) -> Any:
    """How many pairs come before those of a row."""
    return (row * (2 * points - 1 - row)) >> 1


@op
class Condense(Linear):
    """The elements above the diagonal of [..., n, n], row by row: [..., n (n - 1) / 2]."""

    def shape(self, x: Spec) -> Spec:
        if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
            raise ShapeError(f"condense: x {x.shape} must be square in its last two axes")
        return x.with_shape((*x.shape[:-2], count(x.shape[-1])))

    def forward(self, x):
        self.shape(spec_of(x))
        return x[..., upper(x.shape[-1], x.shape[-1])]

    def transpose(self, g, x: Spec):
        return apply(Uncondense(x.shape[-1]), g)

    def batch(self, size, args, mapped):
        return apply(self, *args)

    def lower(self, k, x):
        lead, n = x.shape[:-2], x.shape[-1]
        own = [
            k.view(k.iota(m, dt.int64), (m, *(1,) * (len(lead) - a)))
            for a, m in enumerate(lead)
        ]

        def element(pair, *batch):
            row = pair * 0
            for step in reversed([1 << b for b in range(n.bit_length())]):
                last = k.minimum(row + step, n - 1)
                row = k.where(_before(last, n) <= pair, last, row)
            return k.pick(x, *batch, row, pair - _before(row, n) + row + 1)

        return k.map(element, x.dtype, k.iota(count(n), dt.int64), *own)

    @staticmethod
    def samples(rng):
        yield Condense(), rng.normal(size=(4, 4))
        yield Condense(), rng.normal(size=(2, 3, 3))
        yield Condense(), rng.normal(size=(1, 1))

    @staticmethod
    def refuses(rng):
        yield Condense(), rng.normal(size=(2, 3)), "must be square"


@op
class Uncondense(Linear):
    """[..., n (n - 1) / 2] above the diagonal of [..., n, n], zeros elsewhere."""

    points: int

    def shape(self, x: Spec) -> Spec:
        if not x.ndim or x.shape[-1] != count(self.points):
            raise ShapeError(
                f"uncondense: x {x.shape} must have {count(self.points)} elements in its last "
                f"axis, the pairs of {self.points} points"
            )
        return x.with_shape((*x.shape[:-1], self.points, self.points))

    def forward(self, x):
        out = np.zeros(self.shape(spec_of(x)).shape, x.dtype)
        out[..., upper(self.points, self.points)] = x
        return out

    def transpose(self, g):
        return apply(Condense(), g)

    def batch(self, size, args, mapped):
        return apply(self, *args)

    def lower(self, k, x):
        lead, n = x.shape[:-1], self.points
        each = (*lead, n, n)
        if not count(n):
            return k.broadcast(k.literal(np.zeros((), x.dtype)), each)
        own = [
            k.view(k.iota(m, dt.int64), (m, *(1,) * (len(each) - 1 - a)))
            for a, m in enumerate(each)
        ]

        def element(*at):
            *batch, row, column = at
            pair = _before(row, n) + column - row - 1
            return k.where(row < column, k.pick(x, *batch, k.where(row < column, pair, 0)), 0)

        return k.map(element, x.dtype, *own)

    @staticmethod
    def samples(rng):
        yield Uncondense(4), rng.normal(size=6)
        yield Uncondense(3), rng.normal(size=(2, 3))
        yield Uncondense(0), rng.normal(size=(2, 0))

    @staticmethod
    def refuses(rng):
        yield Uncondense(4), rng.normal(size=5), "must have 6 elements"


class Condensed(Op):
    """The distances of x [..., n, d] within itself, above the diagonal, in strips of rows."""

    metric: str
    p: float = 1.0
    native = "pairs within"
    grows = True
    uniform: ClassVar[bool] = True
    takes: ClassVar[str] = "floating"

    def shape(self, x: Spec) -> Spec:
        if x.ndim < 2:
            raise ShapeError(
                f"pdist: x {x.shape} must have the axes [..., points, coordinates]"
            )
        return x.with_shape((*x.shape[:-2], count(x.shape[-2])))

    def forward(self, x):
        out = np.empty(self.shape(spec_of(x)).shape, x.dtype)
        matrix = pairwise.Pairwise(self.metric, self.p)
        start = 0
        for rows in tiles.strips(x.shape[-2], x.shape[-2]):
            found = matrix.forward(x[..., rows, :], x[..., rows.start :, :])
            above = found[..., upper(*found.shape[-2:])]
            out[..., start : start + above.shape[-1]] = above
            start += above.shape[-1]
        return out

    def expand(self, x):
        n, axis = x.shape[-2], x.ndim - 2
        numbers = create.arange(n, dtype=dt.int64)
        sides = (shape.reshape(numbers, to) for to in ((n, 1), (1, n)))
        ends = (apply(Condense(), shape.broadcast_to(s, (n, n))) for s in sides)
        one, other = (
            apply(index.Index((axis,), axis), x, shape.reshape(e, (1, count(n)))) for e in ends
        )
        return pairwise.folded(self.metric, self.p, one - other)

    def jvp(self, dx, x, out):
        full = apply(Uncondense(x.shape[-2]), out)
        return apply(Condense(), pairwise.Pairwise(self.metric, self.p).jvp(dx, dx, x, x, full))

    def pull(self, g, x, out):
        """The cotangent of x; its matrix of cotangents is square while this runs."""
        square = Uncondense(x.shape[-2])
        g = apply(square, g)
        out = g if out is None else apply(square, out)
        gx, gy = apply(pairwise.PairwisePull(self.metric, self.p), g, x, x, out)
        return gx + gy

    def batch(self, size, args, mapped):
        return apply(self, *args)

    @classmethod
    def cases(cls, rng, kinds):
        for metric in kinds:
            p = 3.0 if metric == "minkowski" else 1.0
            yield cls(metric, p), pairwise.apart(rng, 5)
        yield cls("euclidean"), rng.normal(size=(2, 4, 6))
        yield cls("euclidean"), rng.normal(size=(1, 2))


@op
class PairsWithin(Condensed):
    """Condensed distances that keep their points and themselves."""

    def vjp(self, g, x, out):
        return self.pull(g, x, out)

    @staticmethod
    def samples(rng):
        yield from PairsWithin.cases(rng, ["euclidean", "minkowski", "chebyshev"])

    @staticmethod
    def refuses(rng):
        yield PairsWithin("euclidean"), rng.normal(size=3), "[..., points, coordinates]"


@op
class PairsWithinAgain(Condensed):
    """Condensed distances that keep their points alone."""

    def vjp(self, g, x):
        return self.pull(g, x, None if self.metric in pairwise.OWN else apply(self, x))

    @staticmethod
    def samples(rng):
        kinds = ["squared", "euclidean", "manhattan", "minkowski", "chebyshev"]
        yield from PairsWithinAgain.cases(rng, kinds)


def pdist(
    x: Any, /, *, metric: str = "euclidean", p: float = 2.0, save: str = "distances"
) -> Tensor:
    """The distances within x [..., n, d], each pair i < j once, by rows: n (n - 1) / 2.

    Metrics, `save` and conventions as in `cdist`. The derivative holds n x n numbers while
    it runs.
    """
    name, power = metrics.kernel("pdist", metric, p)
    if save not in ("distances", "recompute"):
        raise ArgumentError(f"pdist: save must be 'distances' or 'recompute'; got {save!r}")
    again = save == "recompute" or name in pairwise.OWN
    op_ = (PairsWithinAgain if again else PairsWithin)(name, power)
    return metrics.value(metric, apply(op_, metrics.points("pdist", metric, x)))
