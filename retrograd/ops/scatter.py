"""Writing at integer places: the last write wins, or the largest; scatter along an axis.

Row by row on tables, see `rows`; `at` brings tensors into that form. Gradients where places
repeat: of a set, only the write that won gets one; of an extreme, all that are equal share
it equally.
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
from retrograd.ops import cast, create, gather, index, pad, rows, select, shape, slices

__all__ = ["put_along_axis", "scatter", "scatter_add"]


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

    def lower(self, k, x, values, targets, out):
        places = k.view(targets, (targets.shape[0], 1))
        k.scatter(x, values, places, out, axis=0, combine=lambda was, new: new)

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

    def expand(self, x, targets):
        count = targets.shape[0]
        order = shape.reshape(create.arange(count, dtype=dt.int64), (count, 1))
        nobody = create.zeros((x.shape[0], 1), dtype=dt.int64)
        last = index.rows_at(apply(SetRows(), nobody, order, targets), targets)
        zero = lift(np.zeros((), x.dtype))
        return select.where(last == order, index.rows_at(x, targets), zero)

    @staticmethod
    def samples(rng):
        yield WonRows(), rng.normal(size=(4, 3)), np.array([1, 3, 1, 0, 3])
        yield WonRows(), rng.normal(size=(4, 3)), np.zeros(0, np.int64)


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
        return select.where(mine, share, 0.0), select.where(
            theirs, index.rows_at(share, targets), 0.0
        )

    def lower(self, k, x, values, targets, out):
        places = k.view(targets, (targets.shape[0], 1))
        larger = k.maximum if self.largest else k.minimum
        k.scatter(x, values, places, out, axis=0, combine=larger)

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


def _source(who: str, x: Any, indices: Any, src: Any) -> Any:
    """src in the dtype of x, repeated to the shape of indices."""
    src = values_like(who, src, x.dtype)
    if src.ndim and src.shape != indices.shape:
        raise ShapeError(
            f"{who}: src {src.shape} must have the shape of indices {indices.shape}, or be "
            f"one number"
        )
    return shape.broadcast_to(src, indices.shape)


def _along(who: str, x: Any, indices: Any, src: Any, axis: int) -> tuple[Any, Any, Any]:
    """x and src as one column each, and the rows that indices name."""
    x, indices = lift(x), lift(indices)
    axis = axis_index(who, axis, x.ndim)
    src = _source(who, x, indices, src)
    targets = apply(rows.TargetsAlong(x.shape, axis), indices)
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
    x, indices = lift(x), lift(indices)
    axis = axis_index("scatter_add", axis, x.ndim)
    src = _source("scatter_add", x, indices, src)
    rows.check_along("scatter_add", indices, x.shape, axis)
    # The places of one line along the axis are no other line's: lines are added to apart.
    total = apply(gather.AddAlongAxis(axis, x.shape[axis]), src, indices)
    missing = [(0, n - m) for n, m in zip(x.shape, total.shape, strict=True)]
    return x + (pad.pad(total, missing) if total.shape != x.shape else total)


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
