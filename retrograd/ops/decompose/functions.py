"""Functions of matrices that their singular values tell: pinv, norms, rank, condition."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Op, front, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, create, extrema, magnitude, norm, reduce, shape
from retrograd.ops.decompose import solve, svd
from retrograd.ops.decompose.matrices import (
    LAPACK,
    adjoint,
    conj,
    converged,
    matrices,
    square,
    times,
)

__all__ = ["cond", "matrix_norm", "matrix_rank", "pinv"]

ORDERS = (1, -1, 2, -2, inf, -inf, "fro", "nuc")


@op
class Pinv(Op):
    """Moore and Penrose's inverse: singular values below rtol times the largest count as 0.

    Its derivative is for changes that leave the rank as it is. Keeps x and the result.
    """

    fixed = ("rtol",)
    uniform = True
    takes = "inexact"
    host = LAPACK

    def shape(self, x: Spec, rtol: Spec) -> Spec:
        matrices("pinv", x)
        lead = x.shape[:-2]
        tail = lead[len(lead) - rtol.ndim :]
        if rtol.ndim > len(lead) or any(n not in (1, m) for n, m in zip(rtol.shape, tail, strict=True)):
            raise ShapeError(
                f"pinv: rtol {rtol.shape} must broadcast to the leading axes of x {x.shape}"
            )
        return x.with_shape((*lead, x.shape[-1], x.shape[-2]))

    def forward(self, x, rtol):
        return converged("pinv", lambda x: np.linalg.pinv(x, rtol).astype(x.dtype), x)

    def jvp(self, dx, x, out):
        turned, p = adjoint(dx), adjoint(out)
        left = times(out, p, turned)  # the change of the row space
        right = times(turned, p, out)
        straight = times(out, dx, out)
        return left - times(left, x, out) + right - times(out, x, right) - straight

    def vjp(self, g, x, out):
        # of <conj(g), dout>, conjugated: every factor is a plain transpose or a conjugate
        p, x_, g = _plain(out), _plain(x), _plain(g)
        o, y = conj(out), conj(x)
        left = times(adjoint(g), o, p)  # for the change of the column space
        right = times(p, o, adjoint(g))
        straight = times(p, g_plain(g), p)
        return left - times(y, o, left) + right - times(right, o, y) - straight

    def batch(self, size, args, mapped):
        x, rtol = front(size, args, mapped)
        lead = x.ndim - 2 - rtol.ndim
        return apply(self, x, shape.reshape(rtol, (size, *(1,) * lead, *rtol.shape[1:])))
