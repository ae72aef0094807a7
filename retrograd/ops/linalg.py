"""Products of matrices and tensors."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Multilinear, aligned, function, op
from retrograd.core.spec import Spec, axis_index, broadcast_shapes
from retrograd.core.tensor import Tensor
from retrograd.ops import arithmetic, options, reduce, shape
from retrograd.ops import complex as complex_

__all__ = [
    "dot",
    "inner",
    "kron",
    "linear",
    "matmul",
    "matrix_transpose",
    "outer",
    "tensordot",
    "vecdot",
]


@op
class Matmul(Multilinear):
    """x1 @ x2 over the last two axes; the axes before them broadcast."""

    def shape(self, x1: Spec, x2: Spec) -> Spec:
        if x1.shape[-1] != x2.shape[-2]:
            raise ShapeError(
                f"matmul: the last axis of x1 {x1.shape} is {x1.shape[-1]}, the second-to-last "
                f"of x2 {x2.shape} is {x2.shape[-2]}; they must be equal",
                hint="x1 @ x2.mT      if x2 is stored as (out, in)",
            )
        lead = broadcast_shapes("matmul", x1=x1.shape[:-2], x2=x2.shape[:-2])
        return x1.with_shape((*lead, x1.shape[-2], x2.shape[-1]))

    def forward(self, x1, x2):
        if x2.ndim == 2 < x1.ndim and x1.flags.c_contiguous:  # one large product, not many
            flat = np.matmul(x1.reshape(prod(x1.shape[:-1]), x1.shape[-1]), x2)
            return flat.reshape(*x1.shape[:-1], x2.shape[-1])
        return np.matmul(x1, x2)

    def transpose_x1(self, g, x2, x1: Spec):
        if x1.ndim == 2 < x2.ndim:  # the sum over leading axes is part of one product
            lead = tuple(range(x2.ndim - 2))
            return tensordot(g, x2, axes=((*lead, -1), (*lead, -1)))
        return apply(self, g, matrix_transpose(x2))

    def transpose_x2(self, g, x1, x2: Spec):
        if x2.ndim == 2 < x1.ndim:
            rows = tuple(range(x1.ndim - 1))
            return tensordot(x1, g, axes=(rows, rows))
        return apply(self, matrix_transpose(x1), g)

    def batch(self, size, args, mapped):
        return apply(self, *aligned(size, args, mapped))

    def lower(self, k, x1, x2, out):
        k.gemm(x1, x2, out)

    @staticmethod
    def samples(rng):
        yield Matmul(), rng.normal(size=(2, 3)), rng.normal(size=(3, 4))
        yield Matmul(), rng.normal(size=(5, 1, 2, 3)), rng.normal(size=(4, 3, 2))
        yield Matmul(), rng.normal(size=(2, 0)), rng.normal(size=(0, 3))
        yield Matmul(), rng.normal(size=(2, 4, 3)), rng.normal(size=(3, 2))
        yield Matmul(), rng.normal(size=(2, 3)), rng.normal(size=(2, 1, 3, 2))
        yield Matmul(), rng.normal(size=(2, 3)) + 1j, rng.normal(size=(3, 1)) - 2j

    @staticmethod
    def refuses(rng):
        yield Matmul(), rng.normal(size=(2, 3)), rng.normal(size=(4, 5)), "they must be equal"


MATMUL = Matmul()


@function
def matmul(x1: Any, x2: Any, /) -> Tensor:
    """The matrix product; a vector on either side loses its axis, leading axes broadcast."""
    a, b = lift(x1), lift(x2)
    if not a.ndim or not b.ndim:
        raise ShapeError(f"matmul: operands need axes; got {a.shape} and {b.shape}")
    left, right = a.ndim == 1, b.ndim == 1
    a = shape.reshape(a, (1, *a.shape)) if left else a
    b = shape.reshape(b, (*b.shape, 1)) if right else b
    out = apply(MATMUL, a, b)
    if left or right:
        keep = out.shape[:-2] + (() if left else (out.shape[-2],))
        out = shape.reshape(out, keep + (() if right else (out.shape[-1],)))
    return out


@function
def matrix_transpose(x: Any, /) -> Tensor:
    """The last two axes swapped."""
    x = lift(x)
    if x.ndim < 2:
        raise ShapeError(f"matrix_transpose: needs at least 2 axes; got shape {x.shape}")
    return shape.permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


@function
def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Tensor:
    """The sum of products over pairs of axes; the other axes of x1 come first.

    `axes` is how many: the last of x1 with the first of x2; or two sequences of axes.
    """
    a, b = lift(x1), lift(x2)
    left, right = _paired(a.shape, b.shape, axes)
    keep_a = [i for i in range(a.ndim) if i not in left]
    keep_b = [i for i in range(b.ndim) if i not in right]
    size = prod(a.shape[i] for i in left)
    out = tuple(a.shape[i] for i in keep_a) + tuple(b.shape[i] for i in keep_b)
    rows = prod(a.shape[i] for i in keep_a)
    columns = prod(b.shape[i] for i in keep_b)
    a = shape.reshape(shape.permute_dims(a, (*keep_a, *left)), (rows, size))
    b = shape.reshape(shape.permute_dims(b, (*right, *keep_b)), (size, columns))
    return shape.reshape(apply(MATMUL, a, b), out)


def _paired(a: tuple[int, ...], b: tuple[int, ...], axes: Any) -> tuple[list[int], list[int]]:
    """The axes to sum over, of each operand, counted from the front."""
    if isinstance(axes, (tuple, list)):
        if len(axes) != 2:
            raise ArgumentError(
                f"tensordot: axes must be a number or two sequences; got {axes}"
            )
        pair = [list(s) if isinstance(s, (tuple, list)) else [s] for s in axes]
    else:
        count = options.integer("tensordot", "axes", axes)
        if not 0 <= count <= min(len(a), len(b)):
            raise ArgumentError(
                f"tensordot: axes {count} must be from 0 to {min(len(a), len(b))}, the axes "
                f"that x1 {a} and x2 {b} both have"
            )
        pair = [list(range(len(a) - count, len(a))), list(range(count))]
    left, right = (
        [axis_index("tensordot", i, len(s)) for i in chosen]
        for s, chosen in zip((a, b), pair, strict=True)
    )
    if [a[i] for i in left] != [b[i] for i in right] or len(set(left)) != len(left):
        raise ShapeError(
            f"tensordot: axes {left} of x1 {a} and {right} of x2 {b} must be pairs of equal "
            f"length, each named once"
        )
    return left, right


@function
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """The dot product along `axis`, of x1's complex conjugate with x2; the rest broadcasts."""
    a, b = lift(x1), lift(x2)
    axis = options.integer("vecdot", "axis", axis)
    ndim = min(a.ndim, b.ndim)
    if not -ndim <= axis < (a.ndim if a.ndim == b.ndim else 0):
        raise ArgumentError(
            f"vecdot: axis {axis} must be from {-ndim} to -1, counted from the last axes of "
            f"x1 {a.shape} and x2 {b.shape}"
        )
    if a.shape[axis] != b.shape[axis]:
        raise ShapeError(
            f"vecdot: axis {axis} of x1 {a.shape} has length {a.shape[axis]}, that of "
            f"x2 {b.shape} {b.shape[axis]}; they must be equal"
        )
    a = complex_.conj(a) if a.dtype.kind == "c" else a
    if a.ndim == b.ndim == 1:
        return matmul(a, b)
    product = arithmetic.multiply(a, b)
    return reduce.sum(product, axis=axis, dtype=product.dtype)


@function
def outer(x1: Any, x2: Any, /) -> Tensor:
    """All products of an element of x1 (rows) and one of x2 (columns), both flattened."""
    a, b = shape.flatten(x1), shape.flatten(x2)
    return arithmetic.multiply(shape.reshape(a, (a.shape[0], 1)), b)


@function
def inner(x1: Any, x2: Any, /) -> Tensor:
    """The sum of products over the last axes; numbers multiply."""
    a, b = lift(x1), lift(x2)
    return tensordot(a, b, axes=(-1, -1)) if a.ndim and b.ndim else arithmetic.multiply(a, b)


@function
def dot(x1: Any, x2: Any, /) -> Tensor:
    """NumPy's dot: over the last axis of x1 and the last but one of x2; numbers multiply."""
    a, b = lift(x1), lift(x2)
    if not a.ndim or not b.ndim:
        return arithmetic.multiply(a, b)
    return tensordot(a, b, axes=(-1, -1 if b.ndim == 1 else -2))


@function
def kron(x1: Any, x2: Any, /) -> Tensor:
    """Kronecker's product: each element of x1 becomes that multiple of x2."""
    a, b = lift(x1), lift(x2)
    ndim = max(a.ndim, b.ndim)
    outside = (1,) * (ndim - a.ndim) + a.shape
    inside = (1,) * (ndim - b.ndim) + b.shape
    a = shape.reshape(a, tuple(n for m in outside for n in (m, 1)))
    b = shape.reshape(b, tuple(n for m in inside for n in (1, m)))
    joined = tuple(m * n for m, n in zip(outside, inside, strict=True))
    return shape.reshape(arithmetic.multiply(a, b), joined)


@function
def linear(x: Any, w: Any, b: Any = None, /) -> Tensor:
    """x @ w + b: w has shape (in, out), b (out,)."""
    x, w = lift(x), lift(w)
    if w.ndim != 2 or not x.ndim or x.shape[-1] != w.shape[0]:
        raise ShapeError(
            f"linear: the last axis of x {x.shape} must be the first of the two of w {w.shape}",
            hint="rg.linear(x, w.mT, b)      if w is stored as (out, in)",
        )
    out = matmul(x, w)
    return out if b is None else arithmetic.add(out, b)
