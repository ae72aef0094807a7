"""Writing at integer places: the last write wins, products, extremes; scatter.

Row by row on tables, see `rows`; `at` brings tensors into that form. Gradients where places
repeat: of a set, only the write that won gets one; of a product, each factor gets the
product of the others, zeros or not; of an extreme, all that are equal share it equally.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import DtypeError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Linear, Op, function, op
from retrograd.core.spec import Spec, axis_index
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, gather, index, recur, rows, select, shape, slices


def winners(targets: np.ndarray, length: int) -> np.ndarray:
    """Which of the writes to `length` rows stand in the end: the last to each row."""
    last = np.zeros(length, np.int64)
    last[targets] = np.arange(len(targets))  # one axis: NumPy writes in order
    return last[targets] == np.arange(len(targets))


@op
class SetRows(rows.Rows, Linear):
    """A table with rows replaced by `values` at `targets`: the last write wins."""

    uniform = True
    fixed = ("targets",)

    def shape(self, x: Spec, values: Spec, targets: Spec) -> Spec:
        rows.check("set_rows", targets, x, values)
        return x

    def forward(self, x, values, targets):
        targets = gather.in_bounds("set_rows", targets, len(x))
        out, won = np.array(x), winners(targets, len(x))
        out[targets[won]] = values[won]
        return out

    def transpose_x(self, g, values: Spec, targets):
        return apply(self, g, slices.nothing(values.shape, g.dtype), targets)

    def transpose_values(self, g, targets):
        return apply(WonRows(), g, targets)

    host = "which write is the last is found by NumPy"

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(4, 3))
        yield SetRows(), x, rng.normal(size=(5, 3)), np.array([1, 3, 1, 0, 3])
        yield SetRows(), x, rng.normal(size=(0, 3)), np.zeros(0, np.int64)
        yield SetRows(), x[:, :0], rng.normal(size=(2, 0)), np.array([1, 1])

    @staticmethod
    def refuses(rng):
        yield SetRows(), np.ones((2, 1)), np.ones((1, 1)), np.array([2]), "index 2 is outside"
        yield SetRows(), np.ones((2, 1)), np.ones((1, 2)), np.array([1]), "one width"


@op
class WonRows(rows.Rows, Linear):
    """The rows of a table at `targets`; zero where a later target is the same."""

    fixed = ("targets",)

    def shape(self, x: Spec, targets: Spec) -> Spec:
        rows.check("won_rows", targets, x)
        return x.with_shape((*targets.shape, x.shape[1]))

    def forward(self, x, targets):
        targets = gather.in_bounds("won_rows", targets, len(x))
        out = x[targets]
        out[~winners(targets, len(x))] = 0
        return out

    def transpose(self, g, x: Spec, targets):
        return apply(SetRows(), slices.nothing(x.shape, g.dtype), g, targets)

    host = "which target is the last is found by NumPy"

    @staticmethod
    def samples(rng):
        yield WonRows(), rng.normal(size=(4, 3)), np.array([1, 3, 1, 0, 3])
        yield WonRows(), rng.normal(size=(4, 3)), np.zeros(0, np.int64)


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

    host = "products of rows that repeat are NumPy's"

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


@op
class ExtremeRows(rows.Rows, Op):
    """A table with rows replaced by the larger (smaller) of them and `values` at `targets`."""

    largest: bool = True
    uniform = True
    takes = "real"
    fixed = ("targets",)

    def shape(self, x: Spec, values: Spec, targets: Spec) -> Spec:
        rows.check("extreme_rows", targets, x, values)
        return x

    def forward(self, x, values, targets):
        targets = gather.in_bounds("extreme_rows", targets, len(x))
        out = np.array(x, order="C")
        rows.accumulate(np.maximum if self.largest else np.minimum, out, targets, values)
        return out

    def jvp(self, dx, dvalues, x, values, targets, out):
        mine, theirs, count = _ties(x, values, targets, out)
        moved = index.rows_added(x.shape[0], select.where(theirs, dvalues, 0.0), targets)
        return (select.where(mine, dx, 0.0) + moved) / count

    def vjp(self, g, x, values, targets, out):
        mine, theirs, count = _ties(x, values, targets, out)
        share = g / count
        return select.where(mine, share, 0.0), select.where(theirs, index.rows_at(share, targets), 0.0)

    host = "extremes of rows that repeat are NumPy's"

    @staticmethod
    def samples(rng):
        x = rng.permutation(12).reshape(4, 3) * 1.0
        values = rng.permutation(15).reshape(5, 3) + 0.5
        targets = np.array([1, 3, 1, 0, 3])
        yield ExtremeRows(), x, values, targets
        yield ExtremeRows(largest=False), x, values, targets
        yield ExtremeRows(), x, values[:0], targets[:0]


def _ties(x: Any, values: Any, targets: Any, out: Any) -> tuple[Any, Any, Any]:
    """Which elements are equal to the extreme (all, if it is nan), and how many for each."""
    there = index.rows_at(out, targets)
    mine, theirs = (x == out) | (out != out), (values == there) | (there != there)
    one = cast.astype(theirs, out.dtype)
    count = cast.astype(mine, out.dtype) + index.rows_added(x.shape[0], one, targets)
    return mine, theirs, count


# -- along an axis, coordinates as torch.scatter has them -------------------------------------


def values_like(who: str, values: Any, dtype: np.dtype) -> Any:
    """Values to be written into a tensor of `dtype`: no kind of number is lost."""
    weak = type(values) in (bool, int, float, complex)
    values = values if weak else lift(values)
    kind = dt.of_number(values, None) if weak else values.dtype
    if dt.rank(kind) > dt.rank(dtype):
        raise DtypeError(
            f"{who}: values are {kind} and do not fit into {dtype}; convert one of them",
            hint=f"x.astype(rg.{kind})",
        )
    return lift(np.asarray(values, dtype)) if weak else cast.astype(values, dtype)


def _along(who: str, x: Any, indices: Any, src: Any, axis: int) -> tuple[Any, Any, Any]:
    """x and src as one column each, and the rows that indices name."""
    x, indices = lift(x), lift(indices)
    src = values_like(who, src, x.dtype)
    axis = axis_index(who, axis, x.ndim)
    if src.ndim and src.shape != indices.shape:
        raise ShapeError(
            f"{who}: src {src.shape} must have the shape of indices {indices.shape}, or be "
            f"one number"
        )
    targets = apply(rows.TargetsAlong(x.shape, axis), indices)
    src = shape.broadcast_to(src, indices.shape)
    column = shape.reshape(x, (prod(x.shape), 1))
    return column, shape.reshape(src, (prod(src.shape), 1)), targets


@function
def scatter(x: Any, indices: Any, src: Any, /, *, axis: int) -> Tensor:
    """x with out[i, indices[i, j, ..], ..] = src[i, j, ..] for axis 1; the last write wins.

    Coordinates as torch.scatter: indices and src have one shape, which may be smaller than
    x's beside `axis`. What was overwritten gets no gradient.
    """
    x = lift(x)
    out = apply(SetRows(), *_along("scatter", x, indices, src, axis))
    return shape.reshape(out, x.shape)


@function
def scatter_add(x: Any, indices: Any, src: Any, /, *, axis: int) -> Tensor:
    """x with src added at indices along `axis`, coordinates as in scatter; duplicates sum."""
    x = lift(x)
    column, values, targets = _along("scatter_add", x, indices, src, axis)
    out = column + index.rows_added(column.shape[0], values, targets)
    return shape.reshape(out, x.shape)


@function
def put_along_axis(x: Any, indices: Any, values: Any, /, *, axis: int) -> Tensor:
    """x with values written where take_along_axis reads; NumPy's, but x is not changed."""
    x, indices = lift(x), lift(indices)
    axis = axis_index("put_along_axis", axis, x.ndim)
    if indices.ndim == x.ndim:
        to = (*x.shape[:axis], indices.shape[axis], *x.shape[axis + 1 :])
        indices = shape.broadcast_to(indices, to)
        values = shape.broadcast_to(values_like("put_along_axis", values, x.dtype), to)
    return scatter(x, indices, values, axis=axis)
