"""Singular values and vectors.

A pair of singular vectors is determined up to a common factor. Ours have length 1, and the
component of largest magnitude of each column of U (the first of those that tie) is real and
positive; derivatives are those of exactly these vectors.

Where singular values are equal (but for rounding), the vectors have no derivative. Of the two
terms between a pair, the one divided by the difference of the values is left out; the other,
divided by their sum, stays: so U @ Vh, and what depends on spaces, have their true gradients.
A value that is 0 (but for rounding) has slope 0, as abs has, and its vectors get the part of
their derivative that stays finite.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Op, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import complex as complex_
from retrograd.ops import linalg, reduce, select
from retrograd.ops.decompose import factor, single
from retrograd.ops.decompose.matrices import (
    LAPACK,
    above,
    adjoint,
    column,
    conj,
    converged,
    diagonal_of,
    gaps,
    inverses,
    matrices,
    on_diagonal,
    phases,
    real,
    row,
    times,
    turned,
    turned_back,
    vectors_now,
)

__all__ = ["svd", "svdvals"]


def rectangles(rng: Any) -> Any:
    """Matrices for samples whose singular values are apart."""
    base = rng.normal(size=(3, 4, 4))
    q = np.linalg.qr(base)[0]
    u = np.linalg.qr(base[0] + 1j * base[1])[0]
    v = np.linalg.qr(base[1, :2, :2] + 1j * base[2, :2, :2])[0]
    r = np.linalg.qr(base[0, :3, :3])[0]
    tall = (q[:, :, :3] * [5.0, 3.0, 1.0]) @ r
    yield tall[:2]
    yield tall[2].T.copy()
    yield (q[0] * [7.0, 5.0, 3.0, 1.0]) @ q[1]
    yield (u[:, :2] * [3.0, 1.0]) @ v
    yield ((u[:, 2:] * [3.0, 1.0]) @ v).T.copy()
    yield (u * [7.0, 5.0, 3.0, 1.0]) @ u
    yield rng.normal(size=(3, 1))
    yield np.zeros((0, 3))
    yield np.zeros((0, 3, 2))


@op
class Svd(Op):
    """u, s, vh with u * s @ vh = x: as many columns as singular values, descending. Keeps all.

    The largest component of each column of u is real and positive. Derivatives leave out what
    would be divided by 0: where values are equal, or are 0.
    """

    outputs = ("u", "s", "vh")
    uniform = True
    takes = "inexact"
    host = LAPACK

    def shape(self, x: Spec) -> tuple[Spec, Spec, Spec]:
        matrices("svd", x)
        *lead, m, n = x.shape
        k = min(m, n)
        s = x.with_shape((*lead, k)).with_dtype(dt.real_of(x.dtype))
        return x.with_shape((*lead, m, k)), s, x.with_shape((*lead, k, n))

    def forward(self, x):
        u, s, vh = converged("svd", single.svd, x)
        turn = phases(u)
        return u * turn, s, vh * np.conjugate(np.swapaxes(turn, -2, -1))

    def jvp(self, dx, u, s, vh):
        right = times(dx, adjoint(vh))
        inner = times(adjoint(u), right)
        a = gaps(s) * (inner + adjoint(inner))
        b = over_sums(s) * (inner - adjoint(inner))
        du, dvh = times(u, 0.5 * (a + b)), times(0.5 * (b - a), vh)
        if u.shape[-2] > s.shape[-1]:
            du = du + (right - times(u, inner)) * row(over(s))
        if vh.shape[-1] > s.shape[-1]:
            dvh = dvh + column(over(s)) * (times(adjoint(u), dx) - times(inner, vh))
        if u.dtype.kind == "c":
            turn = 1j * turned(u, du)
            du, dvh = du - u * turn, dvh + linalg.matrix_transpose(turn) * vh
        return du, live(s, real(diagonal_of(inner))), dvh

    def vjp(self, g_u: Tensor | None, g_s: Tensor | None, g_vh: Tensor | None, u, s, vh):
        if g_u is None and g_vh is None:
            return weighted(u, live(s, g_s), vh)
        if u.dtype.kind == "c":
            g_u = self._turned(g_u, g_vh, u, vh)
        zero = 0.0 * on_diagonal(s)
        mu = zero if g_u is None else times(adjoint(u), conj(g_u))
        mv = zero if g_vh is None else times(vh, linalg.matrix_transpose(g_vh))
        a, b = gaps(s) * (mu + mv), over_sums(s) * (mu - mv)
        inner = 0.5 * (a + adjoint(a) + b - adjoint(b))
        inner = inner if g_s is None else inner + on_diagonal(live(s, g_s))
        out = times(u, inner, vh)
        if u.shape[-2] > s.shape[-1] and g_u is not None:
            out = out + times((conj(g_u) - times(u, mu)) * row(over(s)), vh)
        if vh.shape[-1] > s.shape[-1] and g_vh is not None:
            out = out + times(u * row(over(s)), conj(g_vh) - times(adjoint(mv), vh))
        return conj(out)

    @staticmethod
    def _turned(g_u: Any, g_vh: Any, u: Any, vh: Any) -> Any:
        """The cotangent of u, when u and vh turn so that the largest of u stays real."""
        q = 0.0
        if g_u is not None:
            q = complex_.imag(reduce.sum(g_u * u, axis=-2, keepdims=True))
        if g_vh is not None:
            q = q - complex_.imag(row(reduce.sum(g_vh * vh, axis=-1)))
        back = turned_back(u, q)
        return back if g_u is None else g_u + back

    def batch(self, size, args, mapped):
        return apply(self, *args)

    @staticmethod
    def samples(rng):
        for x in rectangles(rng):
            yield Svd(), x

    @staticmethod
    def refuses(rng):
        yield Svd(), np.ones(3), "at least 2 axes"


def over(s: Any) -> Any:
    """1 / s; 0 where s is 0 but for rounding."""
    return inverses(s, above(s, s)) if s.shape[-1] else s


def over_sums(s: Any) -> Any:
    """1 / (s[i] + s[j]); 0 where both are 0 but for rounding."""
    both = row(s) + column(s)
    return inverses(both, above(both, s)) if s.shape[-1] else both


def live(s: Any, t: Any) -> Any:
    """t, but 0 where s is 0 but for rounding."""
    return select.where(above(s, s), t, 0.0) if s.shape[-1] else t


def weighted(u: Any, g: Any, vh: Any) -> Any:
    """The cotangent of a matrix, from those of its singular values alone."""
    return times(conj(u) * row(g), conj(vh))


class SVDResult(NamedTuple):
    """What svd gives."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    """U, S, Vh with (U * S) @ Vh = x, where the columns of U and rows of Vh are orthonormal.

    S descends. With `full_matrices`, U and Vh are square: the vectors beyond len(S) complete
    the bases, chosen so that they move smoothly with x. The largest component of the others is
    real and positive in U. Where values are equal or 0 the vectors have no derivative, and what
    would be divided by 0 is left out; a value that is 0 has slope 0.
    """
    x = lift(x)
    matrices("svd", x)
    u, s, vh = apply(Svd(), x)
    if full_matrices and x.shape[-2] > s.shape[-1]:
        u = factor.completed(u)
    if full_matrices and x.shape[-1] > s.shape[-1]:
        vh = adjoint(factor.completed(adjoint(vh)))
    return SVDResult(u, s, vh)


@op
class Svdvals(Op):
    """The singular values, descending. Keeps x; the vectors come later. At 0 the slope is 0."""

    uniform = True
    takes = "inexact"
    host = LAPACK

    def shape(self, x: Spec) -> Spec:
        matrices("svdvals", x)
        k = min(x.shape[-2:])
        return x.with_shape((*x.shape[:-2], k)).with_dtype(dt.real_of(x.dtype))

    def forward(self, x):
        return converged("svdvals", single.svdvals, x)

    def jvp(self, dx, x):
        u, s, vh = apply(Svd(), x)
        moved = times(dx, adjoint(vh))
        return live(s, reduce.sum(real(conj(u) * moved), axis=-2))

    def vjp(self, g, x):
        u, s, vh = apply(Svd(), x)
        return weighted(u, live(s, g), vh)

    def batch(self, size, args, mapped):
        return apply(self, *args)

    @staticmethod
    def samples(rng):
        for x in rectangles(rng):
            yield Svdvals(), x

    @staticmethod
    def refuses(rng):
        yield Svdvals(), np.ones(3), "at least 2 axes"


def svdvals(x: Any, /) -> Tensor:
    """The singular values, descending; the slope of one that is 0 is 0.

    Kept for the gradient: x, or of a large x on the tape its vectors, which are found once.
    """
    x = lift(x)
    matrices("svdvals", x)
    return apply(Svd(), x)[1] if vectors_now(x) else apply(Svdvals(), x)
