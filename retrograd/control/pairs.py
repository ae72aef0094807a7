"""pair_reduce: a function of the distance of all pairs, summed without the matrix of pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.control.pair_ops import PairSum
from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.spec import Spec
from retrograd.ir.trace import trace
from retrograd.ops import create, reduce, shape
from retrograd.ops.distances import metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrograd.core.tensor import Tensor

__all__ = ["pair_reduce"]

ROWS, COLUMNS = 256, 1024  # of a tile


def pair_reduce(
    f: Callable[[Any], Any],
    x: Any,
    y: Any = None,
    /,
    *,
    weights: Any = None,
    metric: str = "sqeuclidean",
    others: bool = False,
    per_point: bool = False,
) -> Tensor:
    """The sum of f(d) w_j over all pairs of a point x_i and a point y_j; d is their distance.

    f works element by element on a tile of (squared) distances; tensors that it uses from
    outside are differentiated too. `weights` are (m,) or (m, c), ones by default. `others`
    leaves out the pairs of a point with itself (without y). `per_point` gives the sums of
    each x_i, (n,) or (n, c): the product of the kernel matrix and the weights.

    The matrix of pairs is never held, forward or backward; kept are x, y, weights and what
    f captures. Second derivatives and forward mode take the plain way, with n x m numbers.
    Metrics: sqeuclidean, euclidean, cosine, correlation. At distance 0 d has slope 0.
    """
    a, b = _points(metric, x, y)
    if others and y is not None:
        raise ArgumentError("pair_reduce: others=True is for pairs within x; leave y out")
    w = _weights(weights, b)
    out = _summed(f, a, b, w, metric=metric, others=bool(others))
    if per_point:
        return shape.reshape(out, (a.shape[0],)) if np.ndim(weights) < 2 else out
    return reduce.sum(out) if np.ndim(weights) < 2 else reduce.sum(out, axis=0)


def _points(metric: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Both sets of points as the metric's kernel takes them."""
    name, _ = metrics.kernel("pair_reduce", metric, 2.0)
    if name not in ("squared", "euclidean"):
        raise ArgumentError(
            f"pair_reduce: metric {metric!r} must be sqeuclidean, euclidean, cosine or "
            f"correlation"
        )
    a = metrics.points("pair_reduce", metric, x)
    b = a if y is None else metrics.points("pair_reduce", metric, y, name="y")
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or a.dtype != b.dtype:
        raise ShapeError(
            f"pair_reduce: x {a.spec} and y {b.spec} must be (n, d) and (m, d) of one dtype",
            hint="rg.vmap(lambda x, y: pair_reduce(f, x, y))(xs, ys)    for several sets",
        )
    return a, b


def _weights(weights: Any, y: Any) -> Any:
    """Weights of the points y, as a matrix (m, c)."""
    if weights is None:
        return create.ones((y.shape[0], 1), dtype=y.dtype)
    w = lift(weights)
    if w.ndim not in (1, 2) or w.shape[0] != y.shape[0]:
        raise ShapeError(
            f"pair_reduce: weights {w.shape} must be (m,) or (m, c), one row for each of the "
            f"{y.shape[0]} points of y"
        )
    w = shape.reshape(w, (w.shape[0], 1)) if w.ndim == 1 else w
    return w if w.dtype == y.dtype else w * create.ones((), dtype=y.dtype)


def _summed(f: Any, x: Any, y: Any, w: Any, *, metric: str, others: bool) -> Any:
    size = (min(ROWS, x.shape[0]), min(COLUMNS, y.shape[0]))
    tile = Spec(size, x.dtype)

    def body(far: Any) -> list[Any]:
        return [f(metrics.value(metric, far))]

    if not (x.shape[0] and y.shape[0]):
        return create.zeros((x.shape[0], w.shape[1]), dtype=x.dtype)
    graph, captured = trace(body, [tile])
    (found,) = graph.output_specs
    if found != tile:
        raise ShapeError(
            f"pair_reduce: f must keep the shape and dtype of its tile {tile}; it returns "
            f"{found}"
        )
    if any(not dt.is_inexact(c.dtype) for c in captured):
        raise ArgumentError("pair_reduce: f may use floating-point tensors from outside only")
    within = x is y
    points = (x,) if within else (x, y)
    kind = PairSum(graph, metric == "euclidean", others, within)
    return apply(kind, *points, w, *captured)
