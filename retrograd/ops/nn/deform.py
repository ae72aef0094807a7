"""Deformable convolution: each place of each window is read where an offset puts it.

Version 1 has offsets, version 2 also a mask that weighs each place. Between elements, x is
interpolated linearly along each axis, and it is 0 outside. At a whole position the slope is
the one towards the next element.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from retrograd.core.errors import ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Composite, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import create, reduce, shape
from retrograd.ops.nn import conv, convolution, geometry
from retrograd.ops.nn.deform_sample import DeformSample
from retrograd.ops.nn.geometry import Frame, Sizes

__all__ = ["deform_conv"]


@op
class DeformConv(Composite):
    """Windows of x, read at their places plus offset and weighed by mask, times w.

    Keeps its inputs: the columns, as many times x as a window has places, are made again.
    """

    stride: Sizes
    dilation: Sizes
    before: Sizes
    groups: int
    uniform = True
    takes = "floating"

    def shape(self, x: Spec, offset: Spec, mask: Spec, w: Spec) -> Spec:
        *kernel, deep, wide = w.shape
        places, axes, head = prod(kernel), x.ndim - 2, offset.shape[:-1]
        many = mask.shape[-1] // places
        fits = x.ndim == w.ndim == offset.ndim and head == mask.shape[:-1]
        fits &= x.shape[0] == head[0] and offset.shape[-1] == many * places * axes
        fits &= mask.shape[-1] == many * places and many > 0 == x.shape[-1] % max(many, 1)
        if not fits or deep * self.groups != x.shape[-1] or wide % self.groups:
            raise ShapeError(
                f"deform_conv: x {x.shape}, offset {offset.shape}, mask {mask.shape} and w "
                f"{w.shape} do not fit each other for groups {self.groups}: offset is "
                f"[N, *windows, offset groups * places * {axes}], mask one for each place"
            )
        return x.with_shape((*head, wide))

    def expand(self, x, offset, mask, w):
        out = self.shape(*(Spec(v.shape, v.dtype) for v in (x, offset, mask, w))).shape
        cols = apply(DeformSample(), x, self.positions(offset, w))
        y = apply(self.product(), self.joined(cols * self.weighed(mask, w), w), _row(w))
        return shape.reshape(y, out)

    def vjp(self, g, x, offset, mask, w):
        at, weights, product_ = self.positions(offset, w), self.weighed(mask, w), self.product()
        sampled = apply(DeformSample(), x, at)
        cols, row = self.joined(sampled * weights, w), _row(w)
        g = shape.reshape(g, (cols.shape[0], 1, g.shape[-1]))
        g_w = product_.transpose_w(g, cols, Spec(row.shape, row.dtype))
        g_cols = product_.transpose_x(g, row, Spec(cols.shape, cols.dtype))
        g_cols = shape.reshape(g_cols, sampled.shape)
        g_x, g_at = DeformSample().vjp(g_cols * weights, x, at)
        g_mask = reduce.sum(g_cols * sampled, axis=-1)
        apart = (*mask.shape[:-1], prod(w.shape[:-2]))
        g_mask = shape.reshape(g_mask, (*apart, g_mask.shape[-1]))
        g_at = shape.reshape(g_at, (*apart, *g_at.shape[2:]))
        return (
            g_x,
            shape.reshape(shape.swapaxes(g_at, -3, -2), offset.shape),
            shape.reshape(shape.swapaxes(g_mask, -2, -1), mask.shape),
            shape.reshape(g_w, w.shape),
        )

    def positions(self, offset, w):
        """Where each place of each window is read: [N, windows * places, groups, axes]."""
        kernel, n, counts = w.shape[:-2], offset.shape[0], offset.shape[1:-1]
        places, axes = prod(kernel), len(kernel)
        many = offset.shape[-1] // (places * axes)
        apart = shape.reshape(offset, (n, prod(counts), many, places, axes))
        own = np.zeros((prod(counts), places, 1, axes))
        frame = zip(self.stride, self.dilation, self.before, counts, kernel, strict=True)
        for a, (s, d, b, c, k) in enumerate(frame):
            at = np.arange(c)[:, None] * s + np.arange(k) * d - b
            to = [1] * (2 * axes)
            to[a], to[axes + a] = c, k
            own[..., 0, a] = np.broadcast_to(at.reshape(to), (*counts, *kernel)).reshape(
                prod(counts), places
            )
        found = shape.swapaxes(apart, 2, 3) + lift(own.astype(offset.dtype))
        return shape.reshape(found, (n, prod(counts) * places, many, axes))

    def weighed(self, mask, w):
        """The mask as [N, windows * places, groups, 1]."""
        places, n, counts = prod(w.shape[:-2]), mask.shape[0], mask.shape[1:-1]
        many = mask.shape[-1] // places
        apart = shape.reshape(mask, (n, prod(counts), many, places))
        return shape.reshape(shape.swapaxes(apart, 2, 3), (n, prod(counts) * places, many, 1))

    def joined(self, cols, w):
        """Columns as sequences of one window: [N * windows, places, C]."""
        places, channels = prod(w.shape[:-2]), cols.shape[2] * cols.shape[3]
        return shape.reshape(cols, (prod(cols.shape[:2]) // places, places, channels))

    def product(self):
        """The convolution that columns are then multiplied in."""
        return convolution.Conv((1,), (1,), (0,), self.groups, (1,))

    @staticmethod
    def samples(rng):
        def between(*sizes):
            return rng.integers(-2, 2, sizes) + rng.uniform(0.2, 0.8, sizes)

        def draw(*sizes):
            return rng.normal(size=sizes)

        first = DeformConv((1, 1), (1, 1), (1, 1), 1)
        yield first, draw(2, 3, 4, 2), between(2, 3, 4, 8), draw(2, 3, 4, 4), draw(2, 2, 2, 3)
        other = DeformConv((2, 1), (1, 2), (0, 1), 2)
        yield other, draw(1, 5, 3, 4), between(1, 2, 3, 24), draw(1, 2, 3, 12), draw(3, 2, 2, 2)
        line = DeformConv((1,), (1,), (0,), 1)
        yield line, draw(2, 4, 1), between(2, 3, 2), draw(2, 3, 2), draw(2, 1, 2)

    @staticmethod
    def refuses(rng):
        one = DeformConv((1, 1), (1, 1), (0, 0), 1)
        x, w = np.ones((1, 3, 3, 2)), np.ones((2, 2, 2, 3))
        yield one, x, np.ones((1, 2, 2, 7)), np.ones((1, 2, 2, 4)), w, "do not fit each other"
        yield one, x, np.ones((1, 2, 2, 8)), np.ones((1, 2, 1, 4)), w, "do not fit each other"


def _row(w: Any) -> Any:
    """Weights [*kernel, in / groups, out] with their places in a row."""
    return shape.reshape(w, (prod(w.shape[:-2]), *w.shape[-2:]))


def deform_conv(
    x: Any,
    offset: Any,
    w: Any,
    /,
    b: Any = None,
    *,
    mask: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: str | None = None,
) -> Tensor:
    """conv, with each place of each window moved by `offset` and weighed by `mask`.

    x is [N, *spatial, in], w [*kernel, in / groups, out], offset [N, *windows, offset groups
    * places * axes], in that order, so that for images a place has its (dy, dx) together;
    mask is [N, *windows, offset groups * places], or None (version 1). How many offset
    groups there are follows from offset; they part the in channels. With `layout="NCHW"`
    offset and mask too have their last axis second, and are then torchvision's.

    Keeps x, offset, mask and w.
    """
    who = "deform_conv"
    x, offset = (geometry.channels_last(who, lift(v), layout) for v in (x, offset))
    mask, w = mask if mask is None else geometry.channels_last(who, lift(mask), layout), lift(w)
    groups = conv.parted(who, x, w, groups)
    frame = geometry.frame(
        who, x.shape[1:-1], w.shape[:-2], stride=stride, padding=padding, dilation=dilation
    )
    places = _groups(who, x, offset, frame) * prod(frame.kernel)
    if mask is None:
        mask = create.ones((*offset.shape[:-1], places), dtype=offset.dtype)
    op_ = DeformConv(frame.stride, frame.dilation, frame.before, groups)
    out = apply(op_, x, offset, mask, w)
    return geometry.as_given(who, conv.biased(who, out, b), layout)


def _groups(who: str, x: Any, offset: Any, frame: Frame) -> int:
    """How many groups of channels have offsets of their own."""
    each = prod(frame.kernel) * len(frame.kernel)
    wanted = (x.shape[0], *frame.counts)
    if offset.shape[:-1] != wanted or not offset.shape[-1] or offset.shape[-1] % each:
        raise ShapeError(
            f"{who}: offset {offset.shape} must be {list(wanted)} and a multiple of {each}: "
            f"{prod(frame.kernel)} places with {len(frame.kernel)} numbers each"
        )
    many = offset.shape[-1] // each
    if x.shape[-1] % many:
        raise ShapeError(f"{who}: {x.shape[-1]} channels cannot have {many} groups of offsets")
    return many
