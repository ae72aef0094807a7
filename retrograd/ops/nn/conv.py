"""Convolution over any number of spatial axes, channels last, with full geometry.

Three ops, each linear in both of its inputs, and each the transpose of the others:

    Conv        y[n, o, j] = sum over t, c of x[n, o s + t d - before, c] w[t, c, j]
    ConvInput   x from y and w: what an input gets from its windows, or a transposed conv
    ConvWeight  w from x and y

so that derivatives of any order are convolutions again. They keep their two inputs.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from retrograd.core.errors import ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Multilinear, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import arithmetic, linalg, shape
from retrograd.ops.nn import columns, geometry, patches
from retrograd.ops.nn.geometry import Frame, Sizes

__all__ = ["conv", "depthwise_conv", "separable_conv"]


class Convolution(Multilinear):
    """What the three have in common: where the windows lie."""

    stride: Sizes
    dilation: Sizes
    before: Sizes
    groups: int

    def frame(self, kernel: Sizes, counts: Sizes) -> Frame:
        return Frame(kernel, self.stride, self.dilation, self.before, counts)

    def images(self, **named: Any) -> None:
        """Refuse operands without a batch axis, the spatial axes and channels."""
        ndim = len(self.stride) + 2
        for name, v in named.items():
            if v.ndim != ndim:
                raise ShapeError(
                    f"{self.name}: {name} {v.shape} must have {ndim} axes, {ndim - 2} of them "
                    f"spatial"
                )

    def refuse(self, **named: Any) -> ShapeError:
        listed = ", ".join(f"{name} {v.shape}" for name, v in named.items())
        return ShapeError(
            f"{self.name}: {listed} do not fit each other for groups {self.groups}: x has "
            f"in channels, w is [*kernel, in / groups, out]"
        )

    @property
    def own(self) -> tuple[Any, ...]:
        return self.stride, self.dilation, self.before, self.groups


@op
class Conv(Convolution):
    """Sums of products of windows of x with w; there are `counts` of them on each axis."""

    counts: Sizes

    def shape(self, x: Spec, w: Spec) -> Spec:
        return x.with_shape(self.result(x, w))

    def result(self, x: Any, w: Any) -> Sizes:
        self.images(x=x, w=w)
        if x.shape[-1] != w.shape[-2] * self.groups or w.shape[-1] % self.groups:
            raise self.refuse(x=x, w=w)
        return (x.shape[0], *self.counts, w.shape[-1])

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
            out = apply(self, shape.flatten(x, end=1), w)
            return shape.reshape(out, (size, x.shape[1], *out.shape[1:]))
        if mapped[0]:
            out = apply(self.many(size), _inside(x, -1, 1), _inside(w, -1, 1))
            return _outside(out, -1, 1, size)
        return _outside(apply(self, x, _inside(w, -1, self.groups)), -1, self.groups, size)

    def many(self, size: int) -> Any:
        """This op for `size` operands side by side."""
        return self.replace(groups=self.groups * size)

    def expand(self, x, w):
        cols = patches.unfolded(x, self.frame(w.shape[:-2], self.counts))
        out = linalg.matmul(_tall(cols, self), _weights(w, self.groups))
        return shape.reshape(shape.moveaxis(out, 0, 1), self.result(x, w))

    def workspace(self, x: Spec, w: Spec) -> int:
        return _workspace(self.frame(w.shape[:-2], self.counts), x)

    @staticmethod
    def samples(rng):
        def draw(*sizes):
            return rng.normal(size=sizes)

        yield Conv((1,), (1,), (1,), 1, (5,)), draw(2, 5, 3), draw(3, 3, 4)
        yield Conv((2,), (3,), (2,), 2, (4,)), draw(2, 7, 4), draw(2, 2, 6)
        yield Conv((1, 1), (1, 1), (0, 0), 1, (3, 2)), draw(2, 3, 2, 3), draw(1, 1, 3, 2)
        yield Conv((2, 1), (1, 2), (1, 2), 1, (3, 4)), draw(2, 5, 4, 2), draw(3, 3, 2, 3)
        yield Conv((1, 2), (1, 1), (1, 0), 3, (4, 2)), draw(2, 4, 5, 3), draw(3, 2, 1, 6)
        yield Conv((1, 1), (1, 1), (1, 1), 3, (4, 5)), draw(2, 4, 5, 3), draw(3, 2, 1, 3)
        yield Conv((1, 1, 2), (1,) * 3, (0, 1, 1), 1, (2, 3, 2)), draw(1, 3, 3, 3, 2), draw(2, 3, 2, 2, 3)  # noqa: E501
        yield Conv((1,), (1,), (0,), 1, (2,)), draw(0, 3, 2), draw(2, 2, 3)
        yield Conv((1,), (1,), (5,), 1, (2,)), draw(1, 3, 2), draw(2, 2, 3)
        yield Conv((1,), (1,), (1,), 1, (3,)), draw(2, 3, 2) + 1j, draw(3, 2, 1) - 1j
        yield Conv((1,), (1,), (0,), 1, (2,)), draw(1, 3, 0), draw(2, 0, 2)

    @staticmethod
    def refuses(rng):
        one = Conv((1,), (1,), (0,), 1, (2,))
        yield one, np.ones((2, 3, 4)), np.ones((2, 3, 5)), "w is [*kernel, in / groups, out]"
        yield one, np.ones((2, 3)), np.ones((2, 3, 5)), "x (2, 3) must have 3 axes"


@op
class ConvInput(Convolution):
    """Windows of values g spread by w over `sizes` places: convolution, transposed by x."""

    sizes: Sizes

    def shape(self, g: Spec, w: Spec) -> Spec:
        return g.with_shape(self.result(g, w))

    def result(self, g: Any, w: Any) -> Sizes:
        self.images(g=g, w=w)
        if g.shape[-1] != w.shape[-1] or w.shape[-1] % self.groups:
            raise self.refuse(g=g, w=w)
        return (g.shape[0], *self.sizes, w.shape[-2] * self.groups)

    def forward(self, g, w):
        self.result(g, w)
        frame = self.frame(w.shape[:-2], g.shape[1:-1])
        return columns.input_gradient(g, w, frame, self.sizes, self.groups)

    def transpose_g(self, g_out, w, g: Spec):
        return apply(Conv(*self.own, g.shape[1:-1]), g_out, w)

    def transpose_w(self, g_out, g, w: Spec):
        return apply(ConvWeight(*self.own, w.shape[:-2]), g_out, g)
