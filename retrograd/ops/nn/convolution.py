"""The ops of convolution: any number of spatial axes, channels last, full geometry.

Three ops, each linear in both of its inputs, and each the transpose of the others:

    Conv        y[n, o, j] = sum over t, c of x[n, o * stride + t * dilation - before, c]
                             * w[t, c, j], for windows o and places t; x is 0 outside
    ConvInput   x from y and w: what elements get from their windows; a transposed conv
    ConvWeight  w from x and y

so that derivatives of any order are convolutions again. Each keeps its two inputs, or the
one of them that the other's gradient needs. With groups, in and out channels are parted
alike, and each part of out sees its part of in.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from retrograd.core.errors import ShapeError
from retrograd.core.interpret import apply
from retrograd.core.op import Multilinear, op
from retrograd.core.spec import Spec
from retrograd.ops import linalg, shape
from retrograd.ops.nn import columns, patches
from retrograd.ops.nn.geometry import Frame, Sizes

Own = tuple[Sizes, Sizes, Sizes, int]  # stride, dilation, before, groups


class Convolution(Multilinear):
    """What the three have in common: where the windows lie."""

    stride: Sizes
    dilation: Sizes
    before: Sizes
    groups: int

    @property
    def own(self) -> Own:
        return self.stride, self.dilation, self.before, self.groups

    def frame(self, kernel: Sizes, counts: Sizes) -> Frame:
        return Frame(kernel, self.stride, self.dilation, self.before, counts)

    def many(self, size: int) -> Any:
        """This op for `size` pairs of operands, side by side in their channels."""
        return self.replace(groups=self.groups * size)

    def fit(self, *, fits: bool, **named: Any) -> None:
        """Refuse operands whose axes or channels do not go together."""
        ndim = len(self.stride) + 2
        for name, v in named.items():
            if v.ndim != ndim:
                raise ShapeError(
                    f"{self.name}: {name} {v.shape} must have {ndim} axes, {ndim - 2} of them "
                    f"spatial"
                )
        if not fits:
            listed = ", ".join(f"{name} {v.shape}" for name, v in named.items())
            raise ShapeError(
                f"{self.name}: {listed} do not fit each other for groups {self.groups}; the "
                f"channels are x [N, *spatial, in], w [*kernel, in / groups, out], "
                f"y [N, *spatial, out]"
            )


@op
class Conv(Convolution):
    """Sums of products of windows of x with w; there are `counts` of them on each axis."""

    native = "convolution"
    finishes = True

    stride: Sizes
    dilation: Sizes
    before: Sizes
    groups: int
    counts: Sizes

    def shape(self, x: Spec, w: Spec) -> Spec:
        return x.with_shape(self.result(x, w))

    def result(self, x: Any, w: Any) -> Sizes:
        deep, wide = w.shape[-2] * self.groups, w.shape[-1]
        self.fit(fits=x.shape[-1] == deep and wide % self.groups == 0, x=x, w=w)
        return (x.shape[0], *self.counts, wide)

    def forward(self, x, w):
        self.result(x, w)
        return columns.convolve(x, w, self.frame(w.shape[:-2], self.counts), self.groups)

    def transpose_x(self, g, w, x: Spec):
        return apply(ConvInput(*self.own, x.shape[1:-1]), g, w)

    def transpose_w(self, g, x, w: Spec):
        return apply(ConvWeight(*self.own, w.shape[:-2]), x, g)

    def batch(self, size, args, mapped):
        x, w = args
        if not mapped[1]:
            return _images(self, size, x, w)
        if mapped[0]:
            return _outside(
                apply(self.many(size), _inside(x, 0, 1), _inside(w, 0, 1)), 0, 1, size
            )
        out = apply(self, x, _inside(w, 0, self.groups))
        return _outside(out, 0, self.groups, size)

    def expand(self, x, w):
        cols = patches.unfolded(x, self.frame(w.shape[:-2], self.counts))
        out = linalg.matmul(_columns(cols, self), _weights(w, self.groups))
        return shape.reshape(shape.moveaxis(out, 0, 1), self.result(x, w))

    def workspace(self, x: Spec, w: Spec) -> int:
        return _workspace(self.frame(w.shape[:-2], self.counts), x)

    @staticmethod
    def samples(rng):
        for own, (counts, _, _), (x, w, _) in _cases(rng):
            yield Conv(*own, counts), x, w

    @staticmethod
    def refuses(rng):
        one = Conv((1,), (1,), (0,), 1, (2,))
        yield one, np.ones((2, 3, 4)), np.ones((2, 3, 5)), "w [*kernel, in / groups, out]"
        yield one, np.ones((2, 3)), np.ones((2, 3, 5)), "x (2, 3) must have 3 axes"
        halves = Conv((1,), (1,), (0,), 2, (2,))
        yield halves, np.ones((2, 3, 4)), np.ones((2, 2, 5)), "for groups 2"


@op
class ConvInput(Convolution):
    """Values y spread by w over axes of `sizes`: the transpose of Conv by its x."""

    native = "convolution"
    finishes = True

    stride: Sizes
    dilation: Sizes
    before: Sizes
    groups: int
    sizes: Sizes

    def shape(self, y: Spec, w: Spec) -> Spec:
        return y.with_shape(self.result(y, w))

    def result(self, y: Any, w: Any) -> Sizes:
        wide = w.shape[-1]
        self.fit(fits=y.shape[-1] == wide and wide % self.groups == 0, y=y, w=w)
        return (y.shape[0], *self.sizes, w.shape[-2] * self.groups)

    def forward(self, y, w):
        self.result(y, w)
        frame = self.frame(w.shape[:-2], y.shape[1:-1])
        return columns.input_gradient(y, w, frame, self.sizes, self.groups)

    def transpose_y(self, g, w, y: Spec):
        return apply(Conv(*self.own, y.shape[1:-1]), g, w)

    def transpose_w(self, g, y, w: Spec):
        return apply(ConvWeight(*self.own, w.shape[:-2]), g, y)

    def batch(self, size, args, mapped):
        y, w = args
        if not mapped[1]:
            return _images(self, size, y, w)
        if mapped[0]:
            return _outside(
                apply(self.many(size), _inside(y, 0, 1), _inside(w, 0, 1)), 0, 1, size
            )
        return _outside(apply(self, y, _inside(w, 1, 1)), 0, self.groups, size)

    def expand(self, y, w):
        frame, g = self.frame(w.shape[:-2], y.shape[1:-1]), self.groups
        flat = shape.reshape(y, (prod(y.shape[:-1]), g, y.shape[-1] // g))
        weights = linalg.matrix_transpose(_weights(w, g))
        cols = linalg.matmul(shape.moveaxis(flat, 0, 1), weights)
        apart = (g, *y.shape[:-1], *frame.kernel, w.shape[-2])
        cols = shape.moveaxis(shape.reshape(cols, apart), 0, -2)
        cols = shape.reshape(cols, (*cols.shape[:-2], g * w.shape[-2]))
        return patches.folded(cols, frame, self.sizes)

    def workspace(self, y: Spec, w: Spec) -> int:
        frame = self.frame(w.shape[:-2], y.shape[1:-1])
        return _workspace(frame, y.with_shape(self.result(y, w)))

    @staticmethod
    def samples(rng):
        for own, (_, sizes, _), (_, w, y) in _cases(rng):
            yield ConvInput(*own, sizes), y, w

    @staticmethod
    def refuses(rng):
        one = ConvInput((1,), (1,), (0,), 1, (3,))
        yield one, np.ones((2, 2, 4)), np.ones((2, 3, 5)), "y [N, *spatial, out]"
        yield one, np.ones((2, 2, 4)), np.ones((2, 4)), "w (2, 4) must have 3 axes"


@op
class ConvWeight(Convolution):
    """Products of x with y at all distances in `kernel`: the transpose of Conv by its w."""

    stride: Sizes
    dilation: Sizes
    before: Sizes
    groups: int
    kernel: Sizes

    native = "convolution"

    def shape(self, x: Spec, y: Spec) -> Spec:
        return x.with_shape(self.result(x, y))

    def result(self, x: Any, y: Any) -> Sizes:
        deep, wide = x.shape[-1], y.shape[-1]
        fits = deep % self.groups == 0 == wide % self.groups and x.shape[0] == y.shape[0]
        self.fit(fits=fits, x=x, y=y)
        return (*self.kernel, deep // self.groups, wide)

    def forward(self, x, y):
        self.result(x, y)
        frame = self.frame(self.kernel, y.shape[1:-1])
        return columns.weight_gradient(x, y, frame, self.groups)

    def transpose_x(self, g, y, x: Spec):
        return apply(ConvInput(*self.own, x.shape[1:-1]), y, g)

    def transpose_y(self, g, x, y: Spec):
        return apply(Conv(*self.own, y.shape[1:-1]), x, g)

    def batch(self, size, args, mapped):
        x, y = args
        if all(mapped):
            return _outside(
                apply(self.many(size), _inside(x, 0, 1), _inside(y, 0, 1)), 0, 1, size
            )
        if mapped[0]:
            return _outside(apply(self, _inside(x, 0, self.groups), y), 1, 1, size)
        return _outside(apply(self, x, _inside(y, 0, self.groups)), 0, self.groups, size)

    def expand(self, x, y):
        g, frame = self.groups, self.frame(self.kernel, y.shape[1:-1])
        cols = _columns(patches.unfolded(x, frame), self)
        flat = shape.reshape(y, (prod(y.shape[:-1]), g, y.shape[-1] // g))
        w = linalg.matmul(linalg.matrix_transpose(cols), shape.moveaxis(flat, 0, 1))
        deep = x.shape[-1] // g
        w = shape.reshape(w, (g, prod(self.kernel), deep, y.shape[-1] // g))
        return shape.reshape(shape.moveaxis(w, 0, 2), self.result(x, y))

    def workspace(self, x: Spec, y: Spec) -> int:
        return _workspace(self.frame(self.kernel, y.shape[1:-1]), x)

    @staticmethod
    def samples(rng):
        for own, (_, _, kernel), (x, _, y) in _cases(rng):
            yield ConvWeight(*own, kernel), x, y

    @staticmethod
    def refuses(rng):
        one = ConvWeight((1,), (1,), (0,), 1, (2,))
        yield one, np.ones((2, 3, 4)), np.ones((1, 2, 4)), "do not fit each other"
        yield one, np.ones((2, 3, 4, 1)), np.ones((2, 2, 4)), "must have 3 axes"


# -- what the rules share ----------------------------------------------------------------------


def _columns(cols: Any, op_: Convolution) -> Any:
    """Windows [N, *counts, *kernel, C] as [groups, windows, places * C / groups]."""
    axes, g = len(op_.stride), op_.groups
    count, places = prod(cols.shape[: axes + 1]), prod(cols.shape[axes + 1 : -1])
    deep = cols.shape[-1] // g
    cols = shape.moveaxis(shape.reshape(cols, (count, places, g, deep)), 2, 0)
    return shape.reshape(cols, (g, count, places * deep))


def _weights(w: Any, g: int) -> Any:
    """Weights [*kernel, in / groups, out] as [groups, places * in / groups, out / groups]."""
    *kernel, deep, wide = w.shape
    w = shape.reshape(w, (prod(kernel) * deep, g, wide // g))
    return shape.moveaxis(w, 1, 0)


def _images(op_: Convolution, size: int, x: Any, w: Any) -> Any:
    """Mapped images are a larger batch of them."""
    out = apply(op_, shape.reshape(x, (size * x.shape[1], *x.shape[2:])), w)
    return shape.reshape(out, (size, x.shape[1], *out.shape[1:]))


def _inside(x: Any, back: int, groups: int) -> Any:
    """The mapped axis put into an axis, `back` before the last: (groups, mapped, rest)."""
    size, *own = x.shape
    axis = len(own) - 1 - back
    apart = shape.reshape(x, (size, *own[:axis], groups, own[axis] // groups, *own[axis + 1 :]))
    joined = (*own[:axis], size * own[axis], *own[axis + 1 :])
    return shape.reshape(shape.moveaxis(apart, 0, axis + 1), joined)


def _outside(y: Any, back: int, groups: int, size: int) -> Any:
    """The mapped axis taken out of an axis again, to the front."""
    own = y.shape
    axis = len(own) - 1 - back
    rest = own[axis] // (groups * size)
    apart = shape.reshape(y, (*own[:axis], groups, size, rest, *own[axis + 1 :]))
    joined = (size, *own[:axis], groups * rest, *own[axis + 1 :])
    return shape.reshape(shape.moveaxis(apart, axis + 1, 0), joined)


def _workspace(frame: Frame, x: Spec) -> int:
    """Bytes of x with its border, and of one tile of columns."""
    bordered = x.shape[0] * prod(frame.reach) * x.shape[-1] * x.dtype.itemsize
    return bordered + columns.TILE


def _cases(rng: Any) -> Iterator[tuple[Own, tuple[Sizes, ...], tuple[Any, ...]]]:
    """(stride, dilation, before, groups), (counts, sizes, kernel), (x, w, y): small ones."""
    rows: list[tuple[Own, tuple[Sizes, ...], Sizes]] = [  # the last are N, in, out
        (((1,), (1,), (1,), 1), ((5,), (5,), (3,)), (2, 3, 4)),
        (((2,), (3,), (2,), 2), ((4,), (7,), (2,)), (2, 4, 6)),
        (((1, 1), (1, 1), (0, 0), 1), ((3, 2), (3, 2), (1, 1)), (2, 3, 2)),
        (((2, 1), (1, 2), (1, 2), 1), ((3, 4), (5, 4), (3, 3)), (2, 2, 3)),
        (((1, 2), (1, 1), (1, 0), 3), ((4, 2), (4, 5), (3, 2)), (2, 3, 6)),
        (((1, 1), (1, 1), (1, 1), 3), ((4, 5), (4, 5), (3, 2)), (2, 3, 3)),
        (((1, 1, 2), (1,) * 3, (0, 1, 1), 1), ((2, 3, 2), (3, 3, 3), (2, 3, 2)), (1, 2, 3)),
        (((1,), (1,), (0,), 1), ((2,), (3,), (2,)), (0, 2, 3)),
        (((1,), (1,), (5,), 1), ((2,), (3,), (2,)), (1, 2, 3)),  # all in the padding
        (((3,), (1,), (0,), 1), ((2,), (6,), (1,)), (1, 2, 3)),
        (((1,), (1,), (0,), 1), ((2,), (3,), (2,)), (1, 0, 2)),
        (((2,), (1,), (1,), 1), ((2,), (3,), (3,)), (2, 2, 1)),
    ]
    for own, (counts, sizes, kernel), (n, deep, wide) in rows:
        shapes = ((n, *sizes, deep), (*kernel, deep // own[3], wide), (n, *counts, wide))
        yield own, (counts, sizes, kernel), tuple(rng.normal(size=s) for s in shapes)
    turned = tuple(rng.normal(size=s) + 1j * rng.normal(size=s) for s in shapes)
    yield own, (counts, sizes, kernel), turned
