"""Factorizations: cholesky and qr, and what completes orthonormal columns to a basis."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import apply, constant, lift
from retrograd.core.op import Composite, Op, front, op
from retrograd.core.spec import Spec, spec_of
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, create, diagonal, join, linalg, pad, shape
from retrograd.ops.decompose import solve
from retrograd.ops.decompose.matrices import (
    LAPACK,
    adjoint,
    adjointed,
    conj,
    converged,
    hermitian,
    lower_half,
    matrices,
    run,
    square,
    symmetric,
    times,
    upper_half,
)

__all__ = ["cholesky", "qr"]


@op
class Cholesky(Op):
    """The triangle c with c @ c^H = x (upper: c^H @ c), of the Hermitian part of x.

    Gradients are Hermitian too. What is not positive definite is refused, or with
    `check=False` gives nan. Keeps the result.
    """

    upper: bool = False
    check: bool = True
    uniform = True
    takes = "inexact"
    host = LAPACK
    native = "cholesky factor"
    quicker = True

    def shape(self, x: Spec) -> Spec:
        square("cholesky", x)
        return x

    def forward(self, x):
        self.shape(spec_of(x))
        out = converged("cholesky", self._lower, symmetric(x))
        return adjointed(out) if self.upper else out

    def _lower(self, x: np.ndarray) -> np.ndarray:
        wrong = "is not positive definite"
        return run("cholesky", wrong, np.linalg.cholesky, x, check=self.check)

    def jvp(self, dx, out):
        c = adjoint(out) if self.upper else out
        half = lower_solve(c, hermitian(dx))
        inner = adjoint(lower_solve(c, adjoint(half)))
        pushed = times(c, lower_half(inner))
        return adjoint(pushed) if self.upper else pushed

    def vjp(self, g, out):
        g, out = (adjoint(g), adjoint(out)) if self.upper else (g, out)
        return apply(CholeskyGrad(), g, out)

    def batch(self, size, args, mapped):
        return apply(self, *args)

    @staticmethod
    def samples(rng):  # rearranged, as a test does it, they are not positive definite: nan
        root = rng.normal(size=(2, 3, 3))
        x = root @ root.mT + np.eye(3)
        skew = root[0] + 1j * root[1]
        yield Cholesky(check=False), x
        yield Cholesky(upper=True, check=False), x[0] + 0.1 * root[0]
        yield Cholesky(check=False), skew @ skew.conj().T + np.eye(3) + 0.1 * skew
        yield Cholesky(True, False), skew @ skew.conj().T + np.eye(3)
        yield Cholesky(), np.zeros((0, 0))
        yield Cholesky(), np.zeros((0, 2, 2))

    @staticmethod
    def refuses(rng):
        yield Cholesky(), -np.eye(2), "cholesky: x (2, 2) is not positive definite"
        yield Cholesky(), np.stack([np.eye(2), np.zeros((2, 2))]), "x[1] of x (2, 2, 2)"
        yield Cholesky(), np.ones((1, 3)), "two last axes of equal length"


@op
class CholeskyGrad(Composite):
    """The cotangent of x, from that of the lower triangle `out`, and from it."""

    uniform = True
    takes = "inexact"
    native = "cholesky back"

    def shape(self, g: Spec, out: Spec) -> Spec:
        square("cholesky_grad", out, "out")
        if g.shape != out.shape:
            raise ShapeError(f"cholesky_grad: g {g.shape} must have out's shape {out.shape}")
        return out

    def expand(self, g, out):
        out = diagonal.tril(out)
        inner = hermitian(lower_half(times(linalg.matrix_transpose(out), g)))
        half = lower_solve(out, inner, transpose=True)
        other = lower_solve(conj(out), linalg.matrix_transpose(half), transpose=True)
        return linalg.matrix_transpose(other)

    def batch(self, size, args, mapped):
        return apply(self, *front(size, args, mapped))

    @staticmethod
    def samples(rng):
        out = rng.uniform(0.5, 1.5, (2, 3, 3))
        yield CholeskyGrad(), rng.normal(size=(2, 3, 3)), out
        yield CholeskyGrad(), rng.normal(size=(3, 3)) + 1j, out[0] + 0.5j * out[1]
        yield CholeskyGrad(), np.zeros((0, 0)), np.zeros((0, 0))
        yield CholeskyGrad(), np.zeros((0, 2, 2)), np.zeros((0, 2, 2))

    @staticmethod
    def refuses(rng):
        yield CholeskyGrad(), np.ones((2, 2)), np.ones((2, 3)), "two last axes of equal length"
        yield CholeskyGrad(), np.ones((1, 2)), np.eye(2), "g (1, 2) must have out's shape"


def lower_solve(c: Any, b: Any, *, transpose: bool = False) -> Any:
    """The x of c @ x = b, for lower triangles c."""
    return apply(solve.SolveTriangular(upper=False, turned=transpose), c, b)


def cholesky(x: Any, /, *, upper: bool = False, check: bool = True) -> Tensor:
    """The lower triangle c with c @ c^H = x; with `upper`, the upper with c^H @ c = x.

    x counts as Hermitian: its Hermitian part is what is factored, and gradients are Hermitian.
    What is not positive definite is refused; `check=False` gives nan for those matrices, as
    matrices that hold nan do always.
    """
    x = lift(x)
    square("cholesky", x)
    return apply(Cholesky(bool(upper), bool(check)), x)


@op
class Qr(Op):
    """Orthonormal columns q and an upper triangle r with a positive diagonal, q @ r = x.

    For matrices that have at least as many rows as columns. Keeps both.
    The derivative is for independent columns; there is none where r has 0 on its diagonal.
    """

    outputs = ("q", "r")
    uniform = True
    takes = "inexact"
    host = LAPACK
    native = "householder"
    quicker = True

    def shape(self, x: Spec) -> tuple[Spec, Spec]:
        matrices("qr", x)
        *lead, m, n = x.shape
        if m < n:
            raise ShapeError(f"qr: x {x.shape} has more columns than rows; give the first {m}")
        return x, x.with_shape((*lead, n, n))

    def forward(self, x):
        self.shape(spec_of(x))
        q, r = np.linalg.qr(x)
        d = np.diagonal(r, 0, -2, -1)
        size = np.abs(d)
        sign = np.divide(d, size, out=np.ones_like(d), where=size > 0)
        return q * sign[..., None, :], np.conjugate(sign)[..., :, None] * r

    def jvp(self, dx, q, r):
        c = over_triangle(dx, r)
        inner = times(adjoint(q), c)
        upper = upper_half(inner + adjoint(inner))
        return c - times(q, upper), times(upper, r)

    def vjp(self, g_q: Tensor | None, g_r: Tensor | None, q, r):
        inner = None if g_r is None else times(g_r, linalg.matrix_transpose(r))
        if g_q is not None:
            part = times(linalg.matrix_transpose(q), g_q)
            inner = -part if inner is None else inner - part
        upper = upper_half(inner)
        total = times(conj(q), upper + adjoint(upper))
        total = total if g_q is None else total + g_q
        system = solve.SolveTriangular()
        return linalg.matrix_transpose(apply(system, r, linalg.matrix_transpose(total)))

    def batch(self, size, args, mapped):
        return apply(self, *args)

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(2, 4, 3))
        yield Qr(), x
        yield Qr(), x[0, :3]
        yield Qr(), x[0] + 1j * x[1]
        yield Qr(), x[0, :3] + 1j * x[1, 1:]
        yield Qr(), x[0, :, :1]
        yield Qr(), np.zeros((3, 0))
        yield Qr(), np.zeros((0, 3, 2))

    @staticmethod
    def refuses(rng):
        yield Qr(), np.ones((2, 3)), "more columns than rows; give the first 2"


def over_triangle(x: Any, r: Any) -> Any:
    """x @ inv(r), for upper triangles r."""
    system = solve.SolveTriangular(turned=True)
    return linalg.matrix_transpose(apply(system, r, linalg.matrix_transpose(x)))


class QRResult(NamedTuple):
    """What qr gives."""

    Q: Tensor
    R: Tensor


def qr(x: Any, /, *, mode: str = "reduced") -> QRResult:
    """Orthonormal columns Q and an upper triangle R with Q @ R = x; R's diagonal is positive.

    That makes them unique. With mode "complete", Q is square and R as large as x; the columns
    that complete Q are an orthonormal basis of the rest that moves smoothly with x. The
    derivative is for independent columns: all, or as many of the first as there are rows.
    """
    x = lift(x)
    matrices("qr", x)
    if mode not in ("reduced", "complete"):
        raise ArgumentError(f"qr: mode must be 'reduced' or 'complete'; got {mode!r}")
    m, n = x.shape[-2:]
    if m < n:
        q, r = apply(Qr(), pad.piece(x, x.ndim - 1, 0, m))
        rest = times(adjoint(q), pad.piece(x, x.ndim - 1, m, n - m))
        return QRResult(q, join.concat([r, rest], axis=-1))
    q, r = apply(Qr(), x)
    if mode == "complete" and m > n:
        below = create.zeros((*r.shape[:-2], m - n, n), dtype=r.dtype)
        return QRResult(completed(q), join.concat([r, below], axis=-2))
    return QRResult(q, r)


# -- bases -----------------------------------------------------------------------------------


@op
class Uncovered(Op):
    """Which rows elimination with row exchanges leaves over, where columns are independent."""

    no_derivative = "its result is an index, constant almost everywhere"
    host = LAPACK

    def shape(self, x: Spec) -> Spec:
        *lead, m, n = x.shape
        return x.with_shape((*lead, max(m - n, 0))).with_dtype(dt.int64)

    def forward(self, x):
        m, n = x.shape[-2:]
        left, free = x.copy(), np.ones(x.shape[:-1], bool)
        for j in range(n):
            at = np.argmax(np.where(free, np.abs(left[..., j]), -1), -1)[..., None]
            np.put_along_axis(free, at, False, -1)
            pivot = np.take_along_axis(left, at[..., None], -2)
            scale = left[..., j : j + 1] / pivot[..., j : j + 1]
            left[..., j + 1 :] -= scale * pivot[..., j + 1 :]
        return np.argsort(~free, axis=-1, kind="stable")[..., : m - n]

    def batch(self, size, args, mapped):
        return apply(self, *args)

    @staticmethod
    def samples(rng):
        yield Uncovered(), rng.normal(size=(2, 5, 3))
        yield Uncovered(), rng.normal(size=(4, 2)) + 1j * rng.normal(size=(4, 2))
        yield Uncovered(), np.zeros((3, 0))


def completed(q: Any) -> Any:
    """Orthonormal columns, followed by those of `completion`: a square matrix."""
    return join.concat([q, completion(q)], axis=-1)


def completion(q: Any) -> Any:
    """An orthonormal basis of what the orthonormal columns of q leave over.

    It is that of the unit vectors of some rows, less their part along q. Which rows is chosen
    by elimination, and does not change nearby, so the basis has all derivatives.
    """
    rows = apply(Uncovered(), q)
    places = constant(np.arange(q.shape[-2])[:, None])
    unit = places == shape.reshape(rows, (*rows.shape[:-1], 1, rows.shape[-1]))
    unit = cast.astype(unit, q.dtype)
    return apply(Qr(), unit - times(q, adjoint(q), unit))[0]
