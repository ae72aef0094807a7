"""Resizing of images: nearest, linear, cubic, area; as PyTorch places samples.

All axes are one linear op. Axis by axis, an output element is a weighted sum of a few input
elements, at places and with weights that depend on lengths alone. Areas are the means of
adaptive pools. Nothing is kept for the derivative.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Linear, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import index, linalg, options, shape
from retrograd.ops.nn import adaptive_pool, gathered, geometry

__all__ = ["resize", "upsample"]

MODES = ("nearest", "nearest-exact", "linear", "cubic", "area")
NAMES = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}
CUBIC = -0.75  # PyTorch's and OpenCV's cubic convolution


@lru_cache(maxsize=256)
def places(
    mode: str, length: int, size: int, step: float, *, aligned: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Which elements of an axis go into each of `size` outputs; weights: (taps, size) both.

    Along each tap the places never go back. `step` is the distance of two outputs in inputs.
    """
    i = np.arange(size)
    if mode.startswith("nearest"):
        at = np.floor((i + 0.5 * (mode == "nearest-exact")) * step).astype(np.int64)
        return np.minimum(at, length - 1)[None], np.ones((1, size))
    if aligned:
        at = i * ((length - 1) / (size - 1) if size > 1 else 0.0)
    else:
        at = (i + 0.5) * step - 0.5
    if mode == "linear":
        at = np.maximum(at, 0)
    low = np.floor(at).astype(np.int64)
    part = at - low
    if mode == "linear":
        near, weights = low + np.arange(2)[:, None], np.stack([1 - part, part])
    else:
        near, weights = low + np.arange(-1, 3)[:, None], cubic(part)
    return np.clip(near, 0, length - 1), weights


def cubic(t: Any) -> Any:
    """The weights of cubic convolution at t in [0, 1) behind the second of four elements."""
    a = CUBIC

    def inner(s: Any) -> Any:
        return ((a + 2) * s - (a + 3)) * s * s + 1

    def outer(s: Any) -> Any:
        return ((a * s - 5 * a) * s + 8 * a) * s - 4 * a

    return np.stack([outer(t + 1), inner(t), inner(1 - t), outer(2 - t)])


DENSE = 512  # up to this length the transpose is a product with a matrix of all weights
TAPS = 8  # up to so many terms, each of its elements is found by itself in a compiled program


class Along(NamedTuple):
    """An axis of `length` elements that becomes one of `size`, `step` elements apart."""

    axis: int
    length: int
    size: int
    step: float


class Resampling(Linear):
    """Axes against the weighted sums of their elements: all axes are one op, and one kernel."""

    axes: tuple[tuple[int, int, int, float], ...]  # plain, as a graph's text gives them back
    mode: str
    aligned: bool
    uniform: ClassVar[bool] = True
    takes: ClassVar[str] = "inexact"

    @property
    def along(self) -> tuple[Along, ...]:
        """The axes, by the names of their parts."""
        return tuple(Along(*a) for a in self.axes)

    def plan(self, x: Any, along: Along) -> tuple[np.ndarray, np.ndarray]:
        """Places, and weights that broadcast along an axis of x."""
        axis, *lengths = along
        near, weights = places(self.mode, *lengths, aligned=self.aligned)
        behind = (1,) * (x.ndim - axis - 1)
        real = dt.real_of(x.dtype)
        return near, weights.astype(real).reshape(*weights.shape, *behind)

    def matrix(
        self, dtype: np.dtype, along: Along, near: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:
        """All weights of an axis, (length, size): what goes where."""
        matrix, row = np.zeros((along.length, along.size), dtype), np.arange(along.size)
        for at, w in zip(near, weights, strict=True):
            np.add.at(matrix, (at, row), 1 if self.nearest else np.ravel(w))
        return matrix

    @property
    def nearest(self) -> bool:
        """Whether all weights are 1."""
        return self.mode.startswith("nearest")

    def other(self, cls: Any) -> Any:
        """Another op of the same fields."""
        return cls(*(getattr(self, name) for name in self.fields))

    def sized(self, x: Spec, wanted: str, made: str) -> Spec:
        """The spec with the axes changed from their lengths `wanted` to those `made`."""
        found = list(x.shape)
        for along in self.along:
            axis, want = along.axis, getattr(along, wanted)
            if x.ndim <= axis or x.shape[axis] != want:
                raise ShapeError(f"{self.name}: axis {axis} of x {x.shape} must be {want}")
            found[axis] = getattr(along, made)
        return x.with_shape(tuple(found))

    def batch(self, size, args, mapped):
        axes = tuple((axis + 1, *rest) for axis, *rest in self.axes)
        return apply(self.replace(axes=axes), *args)

    @classmethod
    def cases(cls):
        for mode in MODES[:-1]:
            for length, size in ((3, 5), (7, 3), (1, 4), (4, 1), (2, 2)):
                for aligned in (False, True) if mode in ("linear", "cubic") else (False,):
                    yield cls(((1, length, size, length / size),), mode, aligned)
            yield cls(((0, 2, 4, 0.5), (1, 3, 2, 1.5)), mode, False)


def _multiplied(matrix: np.ndarray, x: Any, axis: int) -> Any:
    """A matrix times x along an axis, in ops."""
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    flat = shape.reshape(x, (prod(before), matrix.shape[1], prod(after)))
    found = linalg.matmul(lift(matrix), flat)
    return shape.reshape(found, (*before, matrix.shape[0], *after))


@op
class Resample(Resampling):
    """Weighted sums of neighbours along axes."""

    def shape(self, x: Spec) -> Spec:
        return self.sized(x, "length", "size")

    def forward(self, x):
        self.shape(Spec(x.shape, x.dtype))
        for along in self.along:
            near, weights = self.plan(x, along)
            out = x.take(near[0], axis=along.axis)
            if not self.nearest:
                out *= weights[0]
            for at, w in zip(near[1:], weights[1:], strict=True):
                more = x.take(at, axis=along.axis)
                more *= w
                out += more
            x = out
        return x

    def expand(self, x):
        for along in self.along:
            axis, out = along.axis, None
            for at, w in zip(*self.plan(x, along), strict=True):
                part = apply(index.Index((axis,), axis), x, lift(at[None]))
                part = part if self.nearest else part * lift(w)
                out = part if out is None else out + part
            x = out
        return x

    def transpose(self, g):
        return apply(self.other(ResampleBack), g)

    @staticmethod
    def samples(rng):
        for op_ in Resample.cases():
            lengths = {a.axis: a.length for a in op_.along}
            yield op_, rng.normal(size=(lengths.get(0, 2), lengths[1], 3))
        yield Resample(((1, 2, 2, 1.0),), "cubic", True), rng.normal(size=(0, 2)) + 1j

    @staticmethod
    def refuses(rng):
        one = Resample(((0, 3, 2, 1.5),), "linear", False)
        yield one, rng.normal(size=4), "must be 3"


@op
class ResampleBack(Resampling):
    """The transpose of Resample: each element gets what it gave, in runs of equal places."""

    def shape(self, x: Spec) -> Spec:
        return self.sized(x, "size", "length")

    def forward(self, x):
        self.shape(Spec(x.shape, x.dtype))
        for along in reversed(self.along):
            x = self._added(x, along)
        return x

    def _added(self, x, along):
        """What one axis gave."""
        before, after = x.shape[: along.axis], x.shape[along.axis + 1 :]
        out = np.zeros((*before, along.length, *after), x.dtype)
        near, weights = self.plan(x, along)
        if along.length <= DENSE and x.size:  # far faster than adding run by run
            matrix = self.matrix(x.dtype, along, near, weights)
            flat = x.reshape(prod(before), along.size, -1)
            return np.matmul(matrix, flat).reshape(out.shape)
        lead = (slice(None),) * along.axis
        for at, w in zip(near, weights, strict=True):
            starts = np.flatnonzero(np.diff(at, prepend=-1))
            if len(starts):
                part = x if self.nearest else x * w
                out[(*lead, at[starts])] += np.add.reduceat(part, starts, axis=along.axis)
        return out

    def expand(self, x):
        for along in reversed(self.along):
            x = self._expanded(x, along)
        return x

    def _expanded(self, x, along):
        axis, (near, weights) = along.axis, self.plan(x, along)
        to = (*x.shape[:axis], along.length, *x.shape[axis + 1 :])
        terms = gathered.sources(near, along.length) if x.size else None
        if terms is not None and max(map(len, terms)) <= TAPS:
            return self._gathered(x, along, terms, weights)
        if along.length <= DENSE:
            return _multiplied(self.matrix(x.dtype, along, near, weights), x, axis)
        out = None
        for at, w in zip(near, weights, strict=True):
            part = x if self.nearest else x * lift(w)
            part = apply(index.IndexAdd((axis,), axis, to), part, lift(at[None]))
            out = part if out is None else out + part
        return out

    def _gathered(self, x, along, terms, weights):
        """Each element from the few places that it gave to."""
        places_ = [[source % along.size for source in row] for row in terms]
        if self.nearest:
            return gathered.gathered(x, along.axis, places_)
        each = weights.reshape(-1)
        by = [[float(each[source]) for source in row] for row in terms]
        return gathered.gathered(x, along.axis, places_, by)

    def transpose(self, g):
        return apply(self.other(Resample), g)

    @staticmethod
    def samples(rng):
        for op_ in ResampleBack.cases():
            sizes = {a.axis: a.size for a in op_.along}
            yield op_, rng.normal(size=(sizes.get(0, 2), sizes[1], 3))

    @staticmethod
    def refuses(rng):
        one = ResampleBack(((0, 3, 2, 1.5),), "linear", False)
        yield one, rng.normal(size=4), "must be 2"


def resize(
    x: Any,
    size: Any = None,
    /,
    *,
    scale: Any = None,
    mode: str = "bilinear",
    align_corners: bool = False,
    layout: str | None = None,
) -> Tensor:
    """x [N, *spatial, C] with other spatial sizes: `size`, or `scale` times the old ones.

    Modes: nearest, nearest-exact, linear (bilinear, trilinear), cubic (bicubic), area, for
    any number of spatial axes, placed as in PyTorch. With `align_corners` the first and last
    elements stay where they are. The derivative keeps nothing.
    """
    mode = NAMES.get(mode, mode)
    if mode not in MODES:
        raise ArgumentError(
            f"resize: mode {mode!r} is not one of {', '.join((*MODES, *NAMES))}"
        )
    if align_corners and mode not in ("linear", "cubic"):
        raise ArgumentError(f"resize: align_corners is for linear and cubic; mode is {mode!r}")
    x = geometry.channels_last("resize", lift(x), layout)
    sizes = _sizes(x.shape[1:-1], size, scale)
    if mode == "area":
        to = tuple(m for _, m, _ in sizes)
        x = x if to == x.shape[1:-1] else adaptive_pool.means(x, to)
        return geometry.as_given("resize", x, layout)
    axes = [Along(axis, *row) for axis, row in enumerate(sizes, 1)]
    axes = [a for a in axes if a.length != a.size or a.step != 1]
    if axes:
        x = apply(Resample(tuple(map(tuple, axes)), mode, bool(align_corners)), x)
    return geometry.as_given("resize", x, layout)


def upsample(
    x: Any, scale: Any, /, *, mode: str = "nearest", layout: str | None = None
) -> Tensor:
    """`resize` by a factor."""
    return resize(x, scale=scale, mode=mode, layout=layout)


def _sizes(old: tuple[int, ...], size: Any, scale: Any) -> list[tuple[int, int, float]]:
    """For each axis: its length, the wanted one, and the distance of outputs in inputs."""
    if (size is None) == (scale is None):
        raise ArgumentError("resize: give one of size and scale")
    if scale is None:
        new = geometry.per_axis("resize", "size", size, len(old))
        steps = [n / m for n, m in zip(old, new, strict=True)]
    else:
        given = scale if isinstance(scale, (tuple, list)) else [scale] * len(old)
        factors = [options.number("resize", "scale", s) for s in given]
        if len(factors) != len(old) or not all(0 < s < np.inf for s in factors):
            raise ArgumentError(
                f"resize: scale {scale} must be one positive number, or {len(old)}"
            )
        new = tuple(int(n * s) for n, s in zip(old, factors, strict=True))
        steps = [1 / s for s in factors]
    if not all(old) or not all(new):
        raise ShapeError(
            f"resize: cannot resize spatial axes {old} to {new}; none may be empty"
        )
    return list(zip(old, new, steps, strict=True))
