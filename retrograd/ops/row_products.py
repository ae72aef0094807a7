"""Products of rows that go to the same place: each factor's slope is the product of the rest.

There is no division, so zeros, however many, have their true gradient, to any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Op, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, gather, index, recur, rows, select, shape


@op
class ProdRows(rows.Rows, Op):
    """Ones in `length` rows, multiplied by `values` at `targets`."""

    length: int
    fixed = ("targets",)

    def shape(self, values: Spec, targets: Spec) -> Spec:
        rows.check("prod_rows", targets, values)
        return values.with_shape((self.length, values.shape[1]))

    def forward(self, values, targets):
        targets = gather.in_bounds("prod_rows", targets, self.length)
        out = np.ones((self.length, values.shape[1]), values.dtype)
        rows.accumulate(np.multiply, out, targets, values)
        return out

    def jvp(self, dvalues, values, targets):
        others = apply(OtherRows(self.length), values, targets)
        return index.rows_added(self.length, dvalues * others, targets)

    def vjp(self, g, values, targets):
        return index.rows_at(g, targets) * apply(OtherRows(self.length), values, targets)

    def many(self, size):
        return ProdRows(size * self.length)

    def span(self, length):
        return self.length

    def lower(self, k, values, targets, out):
        places = k.view(targets, (targets.shape[0], 1))
        k.scatter(1, values, places, out, axis=0, combine=lambda was, new: was * new)

    @staticmethod
    def samples(rng):
        values = rng.uniform(0.5, 2, (6, 2))
        values[1, 0] = values[3, 1] = values[4, 1] = 0
        yield ProdRows(3), values, np.array([0, 2, 2, 0, 0, 0])
        yield ProdRows(3), values[:1], np.array([1])
        yield ProdRows(2), rng.normal(size=(0, 3)), np.zeros(0, np.int64)

    @staticmethod
    def refuses(rng):
        yield ProdRows(2), np.ones((1, 1)), np.array([2]), "index 2 is outside"


@op
class Runs(Op):
    """The stable order of integers, its inverse, and where a run of equals starts and ends."""

    outputs = ("order", "back", "start", "end")
    no_derivative = rows.INDEX
    host = "sorting is a library call"

    def shape(self, targets: Spec) -> tuple[Spec, ...]:
        gather.integers("runs", targets)
        where, flag = Spec(targets.shape, dt.int64), Spec(targets.shape, dt.bool)
        return where, where, flag, flag

    def forward(self, targets):
        order = np.argsort(targets, axis=-1, kind="stable")
        back = np.argsort(order, axis=-1, kind="stable")
        found = np.take_along_axis(targets, order, -1)
        start, end = np.ones(found.shape, bool), np.ones(found.shape, bool)
        start[..., 1:] = end[..., :-1] = found[..., 1:] != found[..., :-1]
        return order, back, start, end

    def batch(self, size, args, mapped):
        return apply(self, *args)

    @staticmethod
    def samples(rng):
        yield Runs(), np.array([3, 1, 3, 3, 0])
        yield Runs(), np.zeros(0, np.int64)


@op
class OtherRows(rows.Rows, Op):
    """For each row, the product of all other rows with the same target: without division.

    In the order of the targets, it is what a run has multiplied up to there from its start,
    times what it has from its end. Targets are less than `length`.
    """

    length: int
    fixed = ("targets",)

    def shape(self, values: Spec, targets: Spec) -> Spec:
        rows.check("other_rows", targets, values)
        return values

    def forward(self, values, targets):
        order = np.argsort(targets, kind="stable")
        values, targets = values[order], targets[order]
        out = np.empty_like(values)
        after = _before(values[::-1], targets[::-1])[::-1]
        out[order] = _before(values, targets) * after
        return out

    def jvp(self, dvalues, values, targets):
        order, back, start, end = apply(Runs(), targets)
        values, dvalues = index.rows_at(values, order), index.rows_at(dvalues, order)
        before, after = _run(values, start, 1), _run(values, end, -1)
        pushed = _pushed(before, dvalues, start, 1) * after[1]
        pushed = pushed + before[1] * _pushed(after, dvalues, end, -1)
        return index.rows_at(pushed, back)

    def vjp(self, g, values, targets):
        order, back, start, end = apply(Runs(), targets)
        values, g = index.rows_at(values, order), index.rows_at(g, order)
        before, after = _run(values, start, 1), _run(values, end, -1)
        found = _pulled(before, g * after[1], start, 1) + _pulled(after, g * before[1], end, -1)
        return index.rows_at(found, back)

    def expand(self, values, targets):
        order, back, start, end = apply(Runs(), targets)
        values = index.rows_at(values, order)
        (_, before), (_, after) = _run(values, start, 1), _run(values, end, -1)
        return index.rows_at(before * after, back)

    def many(self, size):
        return OtherRows(size * self.length)

    def span(self, length):
        return self.length

    @staticmethod
    def samples(rng):
        values = rng.uniform(0.5, 2, (6, 2))
        values[1, 0] = values[3, 1] = values[4, 1] = 0
        yield OtherRows(3), values, np.array([0, 2, 2, 0, 0, 0])
        yield OtherRows(8), rng.normal(size=(1, 3)), np.array([7])
        yield OtherRows(1), rng.normal(size=(0, 3)), np.zeros(0, np.int64)


def _before(values: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The product of the rows before each in its run, in steps that double."""
    out = np.ones_like(values)
    step = 1
    same = targets[1:] == targets[:-1]
    out[1:][same] = values[:-1][same]
    while same.any():
        out[step:][same] = out[step:][same] * out[:-step][same]
        step *= 2
        same = targets[step:] == targets[:-step]
    return out


def _moved(values: Any, first: Any, by: int) -> Tensor:
    """Values moved by one place; zero comes in where `first` says that a run begins."""
    first = shape.reshape(first, (*first.shape, 1))
    return select.where(first, lift(np.zeros((), values.dtype)), recur.shift(values, by))


def _run(values: Any, first: Any, by: int) -> tuple[Tensor, Tensor]:
    """The factors of a run, and what they have multiplied to: h = a * h, from 1."""
    a = _moved(values, first, by)
    one = cast.astype(shape.reshape(first, (*first.shape, 1)), a.dtype)
    return a, recur.recurrence(a, shape.broadcast_to(one, a.shape), reverse=by < 0)


def _pushed(run: Any, dvalues: Any, first: Any, by: int) -> Tensor:
    """The tangent of a run's products."""
    a, h = run
    term = _moved(dvalues, first, by) * recur.shift(h, by)
    return recur.recurrence(a, term, reverse=by < 0)


def _pulled(run: Any, g: Any, first: Any, by: int) -> Tensor:
    """The transpose of _pushed."""
    a, h = run
    blame = recur.recurrence(recur.shift(a, -by), g, reverse=by > 0) * recur.shift(h, by)
    first = shape.reshape(first, (*first.shape, 1))
    return recur.shift(select.where(first, lift(np.zeros((), a.dtype)), blame), -by)
