"""Products of matrices and tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.errors import ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Multilinear, aligned, function, op
from retrograd.core.spec import Spec, broadcast_shapes
from retrograd.core.tensor import Tensor
from retrograd.ops import shape


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
        return np.matmul(x1, x2)

    def transpose_x1(self, g, x2):
        return apply(self, g, matrix_transpose(x2))

    def transpose_x2(self, g, x1):
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
        keep = out.shape[: -2] + (() if left else (out.shape[-2],))
        out = shape.reshape(out, keep + (() if right else (out.shape[-1],)))
    return out


@function
def matrix_transpose(x: Any, /) -> Tensor:
    """The last two axes swapped."""
    x = lift(x)
    if x.ndim < 2:
        raise ShapeError(f"matrix_transpose: needs at least 2 axes; got shape {x.shape}")
    return shape.permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
