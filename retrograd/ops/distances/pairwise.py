"""The distance of each point to each: cdist, its ops, and their derivatives."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

import numpy as np

from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import apply
from retrograd.core.op import Composite, Op, front, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import create, extrema, linalg, magnitude, power, reduce, select, shape
from retrograd.ops.distances import metrics, tiles

__all__ = ["cdist"]

OWN = ("squared", "manhattan")  # kernels whose derivative does not look at the distance


def paired(who: str, x: Any, y: Any) -> tuple[int, ...]:
    """The shape of a matrix of x [..., n, d] against y [..., m, d]."""
    if min(x.ndim, y.ndim) < 2 or x.shape[:-2] != y.shape[:-2] or x.shape[-1] != y.shape[-1]:
        raise ShapeError(
            f"{who}: x {x.shape} and y {y.shape} must be [..., n, d] and [..., m, d], alike "
            f"but for n and m"
        )
    return (*x.shape[:-1], y.shape[-2])


def each(f: Any, *arrays: Any) -> Any:
    """f of matrices, for each place of the leading axes, which all arrays share."""
    lead = arrays[0].shape[:-2]
    if not lead:
        return f(*arrays)
    flat = [t.reshape(prod(lead), *t.shape[-2:]) for t in arrays]
    if not prod(lead):
        found = f(*(np.zeros(t.shape[-2:], t.dtype) for t in arrays))
        parts = found if isinstance(found, tuple) else (found,)
        joined = tuple(np.zeros((*lead, *t.shape), t.dtype) for t in parts)
        return joined if isinstance(found, tuple) else joined[0]
    found = [f(*row) for row in zip(*flat, strict=True)]
    if isinstance(found[0], tuple):
        columns = zip(*found, strict=True)
        return tuple(np.stack(c).reshape(*lead, *c[0].shape) for c in columns)
    return np.stack(found).reshape(*lead, *found[0].shape)


class Distances(Op):
    """x [..., n, d] against y [..., m, d]: all distances [..., n, m]. At 0 the slope is 0."""

    metric: str  # squared, euclidean, manhattan, minkowski, chebyshev
    p: float = 1.0
    grows = True
    uniform: ClassVar[bool] = True
    takes: ClassVar[str] = "floating"

    def shape(self, x: Spec, y: Spec) -> Spec:
        return x.with_shape(paired(self.name, x, y))

    def forward(self, x, y):
        paired(self.name, x, y)
        return each(self._matrix, x, y)

    def _matrix(self, x, y):
        if self.metric in ("squared", "euclidean"):
            return tiles.squared(x, y, root=self.metric == "euclidean")
        return tiles.coordinatewise(x, y, self.metric, self.p)

    def expand(self, x, y):
        turned = linalg.matrix_transpose(y)  # neighbours are points: coordinates may be few
        between = shape.expand_dims(x, axis=-1) - shape.expand_dims(turned, axis=-3)
        return folded(self.metric, self.p, between, axis=-2)

    def jvp(self, dx, dy, x, y, out):
        if self.metric == "squared":
            return apply(CROSSED, x, y, dx, dy) * 2.0
        if self.metric == "euclidean":
            return apply(CROSSED, x, y, dx, dy) * inverse(out)
        moved = _columns(dx) - _rows(dy)
        return reduce.sum(slopes(self.metric, self.p, x, y, out) * moved, axis=-1)

    def batch(self, size, args, mapped):
        return apply(self, *front(size, args, mapped))


def unlike(rng: Any, op_: Any) -> Any:
    """Points that cannot be compared."""
    x = rng.normal(size=(2, 3))
    yield op_, x, rng.normal(size=(2, 4)), "alike but for n and m"
    yield op_, x, x[0], "alike but for n and m"


@op
class Pairwise(Distances):
    """Distances that keep their points and themselves."""

    def vjp(self, g, x, y, out):
        return apply(PairwisePull(self.metric, self.p), g, x, y, out)

    @staticmethod
    def refuses(rng):
        return unlike(rng, Pairwise("euclidean"))

    @staticmethod
    def samples(rng):
        yield from _samples(Pairwise, rng, ["euclidean", "chebyshev", "minkowski"])


@op
class PairwiseAgain(Distances):
    """Distances that keep their points alone, and are computed again for the derivative."""

    def vjp(self, g, x, y):
        out = g if self.metric in OWN else apply(self, x, y)  # g stands for what none looks at
        return apply(PairwisePull(self.metric, self.p), g, x, y, out)

    @staticmethod
    def refuses(rng):
        return unlike(rng, PairwiseAgain("euclidean"))

    @staticmethod
    def samples(rng):
        kinds = ["squared", "euclidean", "manhattan", "minkowski", "chebyshev"]
        yield from _samples(PairwiseAgain, rng, kinds)


def apart(rng: Any, count: int) -> np.ndarray:
    """Points in the plane away from all kinks: coordinates differ, and differ by different."""
    return np.stack([rng.permutation(count), rng.permutation(count) * 1.37], 1)


def _samples(cls, rng, kinds):
    for metric in kinds:
        p = 3.0 if metric == "minkowski" else 1.0
        for power_ in (p, 2.5) if metric == "minkowski" else (p,):
            x, y = np.split(apart(rng, 7), [3])
            yield cls(metric, power_), x, y
        yield cls(metric, p), np.stack([x[:2], x[1:]]), np.stack([y, y[::-1]])
        yield cls(metric, p), rng.normal(size=(0, 3)), rng.normal(size=(2, 3))
    if "euclidean" in kinds:
        yield cls("euclidean"), rng.normal(size=(4, 6)), rng.normal(size=(3, 6))


@op
class PairwisePull(Composite):
    """The cotangents of x and y of Distances: in tiles; derived by its plain form.

    Of manhattan, minkowski and chebyshev the plain form holds [..., n, m, d] numbers, of the
    others [..., n, m].
    """

    metric: str
    p: float = 1.0
    uniform = True
    takes = "floating"
    outputs = ("gx", "gy")
    fused = True

    def shape(self, g: Spec, x: Spec, y: Spec, out: Spec) -> tuple[Spec, Spec]:
        paired(self.name, x, y)
        return x, y

    def forward(self, g, x, y, out):
        return each(self._matrix, g, x, y, out)

    def _matrix(self, g, x, y, out):
        if self.metric in ("squared", "euclidean"):
            return tiles.pulled(g, x, y, None if self.metric == "squared" else out)
        return tiles.coordinates_pulled(g, x, y, out, self.metric, self.p)

    def expand(self, g, x, y, out):
        if self.metric in ("squared", "euclidean"):
            w = g * 2.0 if self.metric == "squared" else g * inverse(out)
            return differences(w, x, y), differences(linalg.matrix_transpose(w), y, x)
        blame = slopes(self.metric, self.p, x, y, out) * shape.reshape(g, (*g.shape, 1))
        return reduce.sum(blame, axis=-2), -reduce.sum(blame, axis=-3)

    def batch(self, size, args, mapped):
        return apply(self, *front(size, args, mapped))

    @staticmethod
    def samples(rng):
        for distance, x, y in PairwiseAgain.samples(rng):
            out = distance.forward(x, y)
            if distance.metric != "chebyshev":  # there out must be what x and y give
                pull = PairwisePull(distance.metric, distance.p)
                yield pull, rng.normal(size=out.shape), x, y, out + 0.1


@op
class Crossed(Op):
    """(x_i - y_j) · (a_i - b_j) of all pairs: by subtraction, so that near pairs are exact."""

    uniform = True
    takes = "floating"

    def shape(self, x: Spec, y: Spec, a: Spec, b: Spec) -> Spec:
        paired("crossed", a, b)
        return x.with_shape(paired("crossed", x, y))

    def forward(self, x, y, a, b):
        return each(tiles.crossed, x, y, a, b)

    def expand(self, x, y, a, b):
        return reduce.sum((_columns(x) - _rows(y)) * (_columns(a) - _rows(b)), axis=-1)

    def jvp(self, dx, dy, da, db, x, y, a, b):
        return apply(self, dx, dy, a, b) + apply(self, x, y, da, db)

    def vjp(self, g, x, y, a, b):
        turned = linalg.matrix_transpose(g)
        return (
            differences(g, a, b),
            differences(turned, b, a),
            differences(g, x, y),
            differences(turned, y, x),
        )

    def batch(self, size, args, mapped):
        return apply(self, *front(size, args, mapped))

    @staticmethod
    def samples(rng):
        yield CROSSED, *(rng.normal(size=(n, 2)) for n in (3, 4, 3, 4))
        yield CROSSED, *(rng.normal(size=(2, n, 3)) for n in (2, 1, 2, 1))
        yield CROSSED, *(rng.normal(size=(n, 2)) for n in (0, 4, 0, 4))


CROSSED = Crossed()


def differences(w: Any, x: Any, y: Any) -> Any:
    """The sum of w_ij (x_i - y_j) over j, in ops; of nothing it is 0, not -0."""
    if not w.shape[-1]:
        return create.zeros_like(x)
    return x * reduce.sum(w, axis=-1, keepdims=True) - linalg.matmul(w, y)


def inverse(out: Any) -> Any:
    """1 / out, and 0 at 0 without a NaN in its derivative."""
    zero = out == 0
    return select.where(zero, 0.0, 1.0 / select.where(zero, 1.0, out))


def _columns(x: Any) -> Any:
    return shape.reshape(x, (*x.shape[:-1], 1, x.shape[-1]))


def _rows(y: Any) -> Any:
    return shape.reshape(y, (*y.shape[:-2], 1, *y.shape[-2:]))


def folded(metric: str, p: float, between: Any, *, axis: int = -1) -> Any:
    """The lengths of differences, whose coordinates are along an axis, in ops."""
    if metric in ("squared", "euclidean"):
        squares = reduce.sum(between * between, axis=axis)
        return squares if metric == "squared" else power.sqrt(squares)
    far = magnitude.abs(between)
    if metric == "manhattan":
        return reduce.sum(far, axis=axis)
    if metric == "minkowski":
        return power.pow(reduce.sum(power.pow(far, p), axis=axis), 1 / p)
    if not far.shape[axis]:
        return reduce.sum(far, axis=axis)
    return extrema.max(far, axis=axis)


def slopes(metric: str, p: float, x: Any, y: Any, out: Any) -> Any:
    """How each distance changes with each coordinate of x_i, in ops: [..., n, m, d]."""
    between = _columns(x) - _rows(y)
    if metric == "manhattan":
        return magnitude.sign(between)
    out = shape.reshape(out, (*out.shape, 1))
    far = magnitude.abs(between)
    if metric == "minkowski":
        zero = far == 0
        ratio = select.where(zero, 1.0, far) * inverse(out)
        risen = select.where(zero, 0.0, power.pow(select.where(ratio == 0, 1.0, ratio), p - 1))
        return magnitude.sign(between) * select.where(out == 0, 0.0, risen)
    tied = far == out
    many = reduce.sum(tied, axis=-1, keepdims=True, dtype=x.dtype)
    return select.where(tied, magnitude.sign(between), 0.0) / select.maximum(many, 1.0)


def cdist(
    x: Any,
    y: Any = None,
    /,
    *,
    metric: str = "euclidean",
    p: float = 2.0,
    save: str = "distances",
) -> Tensor:
    """The distance of each point of x [..., n, d] to each of y [..., m, d]: [..., n, m].

    Metrics: euclidean, sqeuclidean, cosine, correlation, manhattan, minkowski (with `p`),
    chebyshev. Without y, of x to itself. Where a distance is 0 its gradient is 0; equal
    coordinates share chebyshev's. Keeps the points, and with save="distances" the result, if
    the derivative needs it (euclidean, minkowski, chebyshev); with save="recompute" it is
    computed again for the derivative.
    """
    name, power_ = metrics.kernel("cdist", metric, p)
    if save not in ("distances", "recompute"):
        raise ArgumentError(f"cdist: save must be 'distances' or 'recompute'; got {save!r}")
    again = save == "recompute" or name in OWN
    op_ = (PairwiseAgain if again else Pairwise)(name, power_)
    return metrics.compared("cdist", op_, metric, x, y)
