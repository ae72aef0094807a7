"""What a metric's name means: the kernel that computes it, and how points go in.

The cosine distance is half the squared distance of rows of length 1, and the correlation
distance is that of rows less their mean: near points do not cancel. A row of zeros (for
correlation: of equal numbers) has no direction; it is at distance 1 from rows that have one,
at 0 from rows that have none, and gets no gradient.
"""

from __future__ import annotations

from math import inf
from typing import Any

from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.spec import broadcast_shapes
from retrograd.ops import cast, join, options, power, reduce, select, shape

KERNELS = {
    "euclidean": "euclidean",
    "sqeuclidean": "squared",
    "cosine": "squared",
    "correlation": "squared",
    "manhattan": "manhattan",
    "minkowski": "minkowski",
    "chebyshev": "chebyshev",
}
ALIKE = {1.0: "manhattan", 2.0: "euclidean", inf: "chebyshev"}  # minkowski's, by p


def kernel(who: str, metric: Any, p: Any) -> tuple[str, float]:
    """The kernel that computes a metric, and its power (1 where it has none)."""
    if metric not in KERNELS:
        raise ArgumentError(
            f"{who}: metric {metric!r} is not one of {', '.join(sorted(KERNELS))}"
        )
    if metric != "minkowski":
        return KERNELS[metric], 1.0
    p = options.number(who, "p", p)
    if not p >= 1:
        raise ArgumentError(f"{who}: p must be at least 1, or it is no metric; got {p:g}")
    return (ALIKE[p], 1.0) if p in ALIKE else ("minkowski", p)


def points(who: str, metric: str, x: Any, *, name: str = "x") -> Any:
    """x [..., n, d] in floating point, as the metric's kernel takes it."""
    x = lift(x)
    if x.ndim < 2:
        raise ShapeError(
            f"{who}: {name} {x.shape} must have the axes [..., points, coordinates]"
        )
    x = x * 1.0 if x.dtype.kind in "biu" else x
    if metric == "correlation":
        x = x - reduce.mean(x, axis=-1, keepdims=True)
    return directions(x) if metric in ("cosine", "correlation") else x


def directions(x: Any) -> Any:
    """Rows of length 1; one more coordinate is 1 for rows of zeros, which have none."""
    square = reduce.sum(x * x, axis=-1, keepdims=True)
    none = square == 0
    unit = select.where(none, 0.0, x * power.rsqrt(select.where(none, 1.0, square)))
    return join.concat([unit, cast.astype(none, x.dtype)], axis=-1)


def value(metric: str, found: Any) -> Any:
    """The distance from what the kernel gives."""
    return found * 0.5 if metric in ("cosine", "correlation") else found


def together(who: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Two sets of points with one number of coordinates and the same leading axes."""
    if x.shape[-1] != y.shape[-1]:
        raise ShapeError(
            f"{who}: x {x.shape} has {x.shape[-1]} coordinates, y {y.shape} has "
            f"{y.shape[-1]}; they must be equal"
        )
    if x.shape[:-2] == y.shape[:-2]:
        return x, y
    lead = broadcast_shapes(who, x=x.shape[:-2], y=y.shape[:-2])
    return tuple(shape.broadcast_to(t, (*lead, *t.shape[-2:])) for t in (x, y))


def compared(who: str, op: Any, metric: str, x: Any, y: Any) -> Any:
    """An op of two sets of points, on those of a metric; y None means x."""
    a = points(who, metric, x)
    b = a if y is None else points(who, metric, y, name="y")
    return value(metric, apply(op, *together(who, a, b)))
