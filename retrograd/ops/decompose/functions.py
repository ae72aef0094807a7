"""Functions of matrices that their singular values tell: pinv, norms, rank, condition."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.executor import LIGHT
from retrograd.core.interpret import RAW, apply, constant, lift, using
from retrograd.core.op import Op, front, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import (
    cast,
    compare,
    create,
    extrema,
    linalg,
    magnitude,
    norm,
    reduce,
    select,
    shape,
)
from retrograd.ops.decompose import factor, solve, svd
from retrograd.ops.decompose.matrices import (
    LAPACK,
    adjoint,
    adjointed,
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
        tail = zip(rtol.shape[::-1], lead[::-1], strict=False)
        if rtol.ndim > len(lead) or any(n not in (1, m) for n, m in tail):
            raise ShapeError(
                f"pinv: rtol {rtol.shape} must broadcast to the leading axes of x {x.shape}"
            )
        return x.with_shape((*lead, x.shape[-1], x.shape[-2]))

    def forward(self, x, rtol):
        return converged("pinv", lambda x: inverted(x, rtol), x)

    def jvp(self, dx, x, out):
        turned, p = adjoint(dx), adjoint(out)
        # the changes of the column space, of the row space, and within both: each product of
        # three begins with the one that is small
        if x.shape[-2] >= x.shape[-1]:
            gram, along = times(out, p), times(turned, p)
            inner = along - times(times(out, x), along) - times(out, dx)
            inner = inner - times(gram, times(turned, x))
            return times(gram, turned) + times(inner, out)
        gram, along = times(p, out), times(p, turned)
        inner = along - times(along, times(x, out)) - times(dx, out)
        inner = inner - times(times(x, turned), gram)
        return times(turned, gram) + times(out, inner)

    def vjp(self, g, x, out):
        p, o, y, h = linalg.matrix_transpose(out), conj(out), conj(x), adjoint(g)
        if x.shape[-2] >= x.shape[-1]:
            gram, along = times(o, p), times(o, h)
            inner = along - times(along, times(o, y)) - times(g, p)
            return times(h, gram) - times(y, times(along, gram)) + times(p, inner)
        gram, along = times(p, o), times(h, o)
        inner = along - times(times(y, o), along) - times(p, g)
        return times(gram, h) - times(times(gram, along), y) + times(inner, p)

    def batch(self, size, args, mapped):
        x, rtol = front(size, args, mapped)
        lead = x.ndim - 2 - rtol.ndim  # of x, that rtol has not
        return apply(self, x, shape.reshape(rtol, (size, *(1,) * lead, *rtol.shape[1:])))

    @staticmethod
    def samples(rng):
        x, rtol = np.eye(4, 3) + 0.2 * rng.normal(size=(2, 4, 3)), np.asarray(1e-14)
        yield Pinv(), x, rtol
        yield Pinv(), x[0].T.copy(), rtol
        yield Pinv(), x, np.array([1e-14, 1e-13])
        yield Pinv(), x[0] + 1j * x[1], rtol
        yield Pinv(), x[0, :3], rtol
        yield Pinv(), np.zeros((0, 3)), rtol
        yield Pinv(), np.zeros((0, 3, 2)), rtol

    @staticmethod
    def refuses(rng):
        yield Pinv(), np.ones(3), np.asarray(0.1), "at least 2 axes"
        yield Pinv(), np.ones((2, 3, 3)), np.ones(3), "must broadcast to the leading axes"


def inverted(x: np.ndarray, rtol: np.ndarray) -> np.ndarray:
    """The inverses: of large matrices by QR where that is sure, else by singular values."""
    if x.size < LIGHT:
        return np.linalg.pinv(x, rtol)
    tall = x.shape[-2] >= x.shape[-1]
    try:
        out, sure = _independent(x if tall else adjointed(x), rtol)
    except ArgumentError:  # a column is 0, or a copy of others
        return np.linalg.pinv(x, rtol)
    out = out if tall else adjointed(out)
    if not sure.all():
        doubt = ~sure
        out = np.array(out)
        out[doubt] = np.linalg.pinv(x[doubt], np.broadcast_to(rtol, sure.shape)[doubt])
    return out


def _independent(x: np.ndarray, rtol: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The inverses of tall matrices, and where no singular value counts as 0.

    The norm of a matrix times that of its inverse is at least the ratio of its largest singular
    value to its smallest. Where it is so large that half of the digits are lost, we are not
    sure either. It is below 1 only where squares were too small to be numbers.
    """
    with using(RAW):
        q, r = apply(factor.Qr(), x)
        out = apply(solve.SolveTriangular(), r, adjointed(q))
    ratio = np.linalg.norm(r, axis=(-2, -1)) * np.linalg.norm(out, axis=(-2, -1))
    least = np.maximum(rtol, np.sqrt(np.finfo(x.dtype).eps))
    return out, (ratio > 0.5) & (ratio * least < 1)


def _relative(x: Any, rtol: Any) -> Any:
    """How large singular values that count as 0 are beside the largest, in x's own width."""
    own = dt.real_of(x.dtype)
    if rtol is None:
        rtol = max(x.shape[-2:]) * float(dt.finfo(own).eps)
    if isinstance(rtol, (int, float)):
        return constant(np.asarray(rtol, own))
    return cast.astype(lift(rtol), own)


def _inexact(who: str, x: Any) -> Any:
    x = lift(x)
    matrices(who, x)
    return x if dt.is_inexact(x.dtype) else cast.astype(x, dt.float32)


def pinv(x: Any, /, *, rtol: Any = None) -> Tensor:
    """Moore and Penrose's inverse: it gives the least solution of least error.

    Singular values up to `rtol` times the largest count as 0; the default is rounding's share.
    The derivative is for changes that leave the rank as it is.
    """
    x = _inexact("pinv", x)
    return apply(Pinv(), x, _relative(x, rtol))


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Tensor:
    """How many singular values are more than `rtol` times the largest; rounding by default."""
    x = _inexact("matrix_rank", x)
    s = svd.svdvals(x)
    if not s.shape[-1]:
        return create.zeros(s.shape[:-1], dtype=dt.int64)
    rtol = _relative(x, rtol)
    limit = extrema.max(s, axis=-1, keepdims=True) * shape.reshape(rtol, (*rtol.shape, 1))
    return reduce.sum(s > limit, axis=-1, dtype=dt.int64)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """The norm of each matrix.

    `ord` is "fro" for the root of the sum of squares, "nuc" for the sum of singular values,
    2 and -2 for the largest and smallest of them, 1 and -1 for the largest and smallest sum
    of magnitudes of a column, inf and -inf of a row. The zero matrix has gradient 0; equal
    ones share theirs.
    """
    x = _inexact("matrix_norm", x)
    if ord not in ORDERS:
        raise ArgumentError(
            f"matrix_norm: ord must be one of {', '.join(map(repr, ORDERS))}; got {ord!r}"
        )
    if ord == "fro":
        return norm.norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord in ("nuc", 2, -2):
        found = svd.svdvals(x)
    else:
        found = reduce.sum(magnitude.abs(x), axis=-1 if abs(ord) == inf else -2)
    best = reduce.sum if ord == "nuc" else extrema.max if ord > 0 else extrema.min
    out = best(found, axis=-1)
    return shape.reshape(out, (*out.shape, 1, 1)) if keepdims else out


def cond(x: Any, /, *, p: Any = 2) -> Tensor:
    """The condition number: the norm of x times that of its inverse, inf where singular.

    `p` is an `ord` of `matrix_norm`. With 2 or -2, x need not be square.
    """
    x = _inexact("cond", x)
    if p in (2, -2):
        s = svd.svdvals(x)
        ends = extrema.max(s, axis=-1), extrema.min(s, axis=-1)
        return ends[0] / ends[1] if p == 2 else ends[1] / ends[0]
    square("cond", x)
    inverse = apply(solve.Inv(check=False), x)
    out = matrix_norm(x, ord=p) * matrix_norm(inverse, ord=p)
    return select.where(compare.isnan(out) & ~compare.isnan(matrix_norm(x, ord=p)), inf, out)
