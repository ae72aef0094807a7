"""Eigenvalues and eigenvectors: of Hermitian matrices (eigh), and of any (eig).

An eigenvector is determined up to a factor. Ours have length 1, and their component of largest
magnitude (the first of those that tie) is real and positive; derivatives are those of exactly
these vectors, so that any function of them has its true gradient.

Where eigenvalues are equal (but for rounding), eigenvectors have no derivative: the terms
between them, which would be divided by 0, are left out. That is exact for what depends on the
space that they span together, and for symmetric functions of their eigenvalues.
"""

from __future__ import annotations

from math import nan
from typing import Any, NamedTuple

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Op, op
from retrograd.core.spec import Spec, spec_of
from retrograd.core.tensor import Tensor
from retrograd.ops import complex as complex_
from retrograd.ops import extrema, linalg, magnitude, reduce, select
from retrograd.ops.decompose import single, solve
from retrograd.ops.decompose.matrices import (
    LAPACK,
    adjoint,
    conj,
    converged,
    diagonal_of,
    gaps,
    hermitian,
    on_diagonal,
    phases,
    real,
    rounding,
    row,
    square,
    symmetric,
    times,
    turned,
    turned_back,
    vectors_now,
)

__all__ = ["eig", "eigh", "eigvals", "eigvalsh"]


class Eigen(Op):
    """Ops on square matrices."""

    uniform = True
    takes = "inexact"
    host = LAPACK

    def batch(self, size, args, mapped):
        return apply(self, *args)


def sums(x: Any) -> Any:
    """The sum of each column, as one row."""
    return reduce.sum(x, axis=-2, keepdims=True)


def hermitians(rng: Any) -> Any:
    """Hermitian and nearly Hermitian matrices for samples, with eigenvalues apart."""
    q = np.linalg.qr(rng.normal(size=(2, 3, 3)) + 1j * rng.normal(size=(2, 3, 3)))[0]
    w = np.array([-1.0, 0.5, 3.0])
    turn = np.linalg.qr(rng.normal(size=(2, 3, 3)))[0]
    real_ones = (turn * w) @ turn.mT
    yield real_ones
    yield real_ones[0] + 0.1 * rng.normal(size=(3, 3))
    yield (q[0] * w) @ q[0].conj().T
    yield (q[1] * w) @ q[1].conj().T + 0.1 * q[0]
    yield rng.normal(size=(1, 1))
    yield np.zeros((0, 0))
    yield np.zeros((0, 2, 2))


@op
class Eigh(Eigen):
    """The eigenvalues, ascending, and eigenvectors of the Hermitian part of x. Keeps both.

    Vectors have length 1, and their largest component is real and positive. Terms between
    equal eigenvalues are left out of the derivative.
    """

    outputs = ("eigenvalues", "eigenvectors")
    native = "eigenvectors"
    quicker = True

    def shape(self, x: Spec) -> tuple[Spec, Spec]:
        square("eigh", x)
        return x.with_shape(x.shape[:-1]).with_dtype(dt.real_of(x.dtype)), x

    def forward(self, x):
        self.shape(spec_of(x))
        w, v = converged("eigh", single.eigh, symmetric(x))
        return w, v * phases(v)

    def jvp(self, dx, eigenvalues, eigenvectors):
        v = eigenvectors
        inner = times(adjoint(v), hermitian(dx), v)
        dv = times(v, gaps(eigenvalues) * inner)
        if v.dtype.kind == "c":
            dv = dv - v * (1j * turned(v, dv))
        return real(diagonal_of(inner)), dv

    def vjp(
        self,
        g_eigenvalues: Tensor | None,
        g_eigenvectors: Tensor | None,
        eigenvalues,
        eigenvectors,
    ):
        g, v = g_eigenvectors, eigenvectors
        if g is None:
            return weighted(v, g_eigenvalues)
        if v.dtype.kind == "c":
            g = g + turned_back(v, complex_.imag(sums(g * v)))
        inner = gaps(eigenvalues) * times(linalg.matrix_transpose(v), g)
        if g_eigenvalues is not None:
            inner = inner + on_diagonal(g_eigenvalues)
        return hermitian(times(conj(v), inner, linalg.matrix_transpose(v)))

    @staticmethod
    def samples(rng):
        for x in hermitians(rng):
            yield Eigh(), x

    @staticmethod
    def refuses(rng):
        yield Eigh(), np.ones((1, 3)), "two last axes of equal length"


def weighted(v: Any, g: Any) -> Any:
    """The cotangent of a Hermitian matrix, from those of its eigenvalues alone."""
    return times(conj(v) * row(g), linalg.matrix_transpose(v))


class EighResult(NamedTuple):
    """What eigh gives."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def eigh(x: Any, /) -> EighResult:
    """The eigenvalues, ascending, and eigenvectors (columns) of Hermitian matrices.

    x counts as Hermitian: its Hermitian part is decomposed, and gradients are Hermitian.
    Each vector has length 1 and its largest component real and positive. Where eigenvalues
    are equal, vectors have no derivative: the terms between them are left out.
    """
    x = lift(x)
    square("eigh", x)
    return EighResult(*apply(Eigh(), x))


@op
class Eigvalsh(Eigen):
    """The eigenvalues, ascending, of the Hermitian part of x. Keeps x; vectors come later."""

    native = "eigenvalues"
    quicker = True

    def shape(self, x: Spec) -> Spec:
        square("eigvalsh", x)
        return x.with_shape(x.shape[:-1]).with_dtype(dt.real_of(x.dtype))

    def forward(self, x):
        self.shape(spec_of(x))
        return converged("eigvalsh", single.eigvalsh, symmetric(x))

    def jvp(self, dx, x):
        v = apply(Eigh(), x)[1]
        return reduce.sum(real(conj(v) * times(hermitian(dx), v)), axis=-2)

    def vjp(self, g, x):
        return weighted(apply(Eigh(), x)[1], g)

    @staticmethod
    def samples(rng):
        for x in hermitians(rng):
            yield Eigvalsh(), x

    @staticmethod
    def refuses(rng):
        yield Eigvalsh(), np.ones(3), "at least 2 axes"


def eigvalsh(x: Any, /) -> Tensor:
    """The eigenvalues of Hermitian matrices, ascending; see `eigh`.

    Kept for the gradient: x, or of a large x on the tape its vectors, which are found once.
    """
    x = lift(x)
    square("eigvalsh", x)
    return apply(Eigh(), x)[0] if vectors_now(x) else apply(Eigvalsh(), x)


def generals(rng: Any) -> Any:
    """Matrices for samples whose eigenvalues are apart."""
    base = rng.normal(size=(2, 3, 3))
    w = np.array([-1.0, 0.5, 2.0])
    v = np.eye(3) + 0.3 * base
    yield (v * w) @ np.linalg.inv(v)
    yield np.array([[0.5, -1.0, 0.2], [1.5, 0.3, 0.1], [0.3, -0.2, -1.0]])  # a pair, one real
    yield base[0] + 1j * base[1] + np.diag([0, 2, 4j])
    yield rng.normal(size=(1, 1))
    yield np.zeros((0, 0))
    yield np.zeros((0, 2, 2))


def pairs(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and vectors, complex also where LAPACK finds them real, and in order."""
    w, v = converged("eig", np.linalg.eig, x)
    wide = dt.complex_of(x.dtype)
    order = np.argsort(w.astype(wide), -1)  # complex numbers by real part, then imaginary
    w = np.take_along_axis(w, order, -1)
    v = np.take_along_axis(v * phases(v), order[..., None, :], -1)
    return w.astype(wide), v.astype(wide)


@op
class Eig(Eigen):
    """The eigenvalues and eigenvectors of any square matrix, complex. Keeps both.

    Values ascend by real part, then imaginary part. Vectors have length 1, and their largest
    component is real and positive. Terms between equal eigenvalues are left out of the
    derivative. Where vectors are dependent there is none, and it is nan.
    """

    outputs = ("eigenvalues", "eigenvectors")

    def shape(self, x: Spec) -> tuple[Spec, Spec]:
        square("eig", x)
        wide = x.with_dtype(dt.complex_of(x.dtype))
        return wide.with_shape(x.shape[:-1]), wide

    def forward(self, x):
        return pairs(x)

    def jvp(self, dx, eigenvalues, eigenvectors):
        v = eigenvectors
        inner = times(inverse(v), dx, v)
        dv = times(v, gaps(eigenvalues) * inner)
        along = complex_.real(sums(conj(v) * dv))
        return diagonal_of(inner), dv - v * (along + 1j * turned(v, dv))

    def vjp(
        self,
        g_eigenvalues: Tensor | None,
        g_eigenvectors: Tensor | None,
        x: Spec,
        eigenvalues,
        eigenvectors,
    ):
        g, v = g_eigenvectors, eigenvectors
        inner = None if g_eigenvalues is None else on_diagonal(g_eigenvalues)
        if g is not None:
            q = sums(g * v)
            g = g - conj(v) * complex_.real(q) + turned_back(v, complex_.imag(q))
            part = gaps(eigenvalues) * times(linalg.matrix_transpose(v), g)
            inner = part if inner is None else inner + part
        turned_v = linalg.matrix_transpose(v)
        found = times(linalg.matrix_transpose(inverse(v)), inner, turned_v)
        return found if x.dtype.kind == "c" else complex_.real(found)

    @staticmethod
    def samples(rng):
        for x in generals(rng):
            yield Eig(), x

    @staticmethod
    def refuses(rng):
        yield Eig(), np.ones((2, 3)), "two last axes of equal length"


def inverse(v: Any) -> Any:
    """The inverse of eigenvectors; nan where they are dependent, but for rounding."""
    found = apply(solve.Inv(check=False), v)
    if not found.size:
        return found
    size = extrema.max(magnitude.abs(found), axis=(-2, -1), keepdims=True)
    return select.where(size < 1 / rounding(size.dtype, v.shape[-1]), found, nan)


class EigResult(NamedTuple):
    """What eig gives."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def eig(x: Any, /) -> EigResult:
    """The eigenvalues and eigenvectors (columns) of any square matrices; always complex.

    Values ascend by real part, then by imaginary part. Each vector has length 1 and its largest
    component real and positive. Where eigenvalues are equal, the terms between their vectors
    are left out of the derivative; without a basis of eigenvectors it is nan.
    """
    x = lift(x)
    square("eig", x)
    return EigResult(*apply(Eig(), x))


def eigvals(x: Any, /) -> Tensor:
    """The eigenvalues of any square matrices; always complex. See `eig`."""
    return eig(x).eigenvalues
