"""Determinants, with derivatives that hold where the matrix is singular.

The derivative of det is the matrix of cofactors, which exists for every matrix. It is found
from singular values, as products of all of them but one: nothing is divided.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.interpret import apply, constant, lift
from retrograd.core.op import Op, aligned, op
from retrograd.core.spec import Spec, broadcast_shapes
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, linalg, reduce, select, shape
from retrograd.ops import complex as complex_
from retrograd.ops.decompose import solve
from retrograd.ops.decompose.matrices import (
    LAPACK,
    adjointed,
    converged,
    diagonal_of,
    square,
    times,
)

__all__ = ["det", "logdet", "slogdet"]

GOOD = 1e5  # a condition number so small that the inverse, in float64, has 11 digits


class Determinant(Op):
    """Ops on square matrices."""

    uniform = True
    takes = "inexact"
    host = LAPACK

    def batch(self, size, args, mapped):
        return apply(self, *aligned(size, args, mapped))


def cell(g: Any) -> Any:
    """A number for each matrix, to be multiplied with it."""
    return shape.reshape(g, (*g.shape, 1, 1))


def paired(a: Any, b: Any) -> Any:
    """The sum of products of the elements of two matrices."""
    return reduce.sum(a * b, axis=(-2, -1))


def singular(rng: Any, rank: int, n: int = 3) -> Any:
    """A matrix of less than full rank, for samples."""
    return rng.normal(size=(n, rank)) @ rng.normal(size=(rank, n))


@op
class Det(Determinant):
    """The determinant; its derivative is that of a polynomial, for singular matrices too.

    Keeps x. The second derivative holds at singular matrices as well; higher ones do not.
    """

    native = "determinant"
    quicker = True

    def shape(self, x: Spec) -> Spec:
        square("det", x)
        return x.with_shape(x.shape[:-2])

    def forward(self, x):
        return np.linalg.det(x)

    def jvp(self, dx, x):
        return paired(cofactors(x), dx)

    def vjp(self, g, x):
        return cell(g) * cofactors(x)

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(2, 3, 3))
        yield Det(), x
        yield Det(), x[0] + 1j * x[1]
        yield Det(), np.stack([singular(rng, 2), singular(rng, 1), np.zeros((3, 3))])
        yield Det(), singular(rng, 2, 4) + 0j
        yield Det(), rng.normal(size=(1, 1))
        yield Det(), np.zeros((0, 0))
        yield Det(), np.zeros((0, 2, 2))

    @staticmethod
    def refuses(rng):
        yield Det(), np.ones((2, 3)), "two last axes of equal length"
        yield Det(), np.ones(3), "at least 2 axes"


def det(x: Any, /) -> Tensor:
    """The determinant of each matrix; singular ones have their true gradient, the cofactors."""
    x = lift(x)
    square("det", x)
    return apply(Det(), x)


def parts(x: np.ndarray) -> tuple[np.ndarray, ...]:
    """u, s, vh with (u * s) @ vh = x, and the determinant of u @ vh for each matrix."""
    u, s, vh = converged("det", np.linalg.svd, x)
    return u, s, vh, np.linalg.det(u @ vh)[..., None, None]


def without_two(s: np.ndarray) -> np.ndarray:
    """For each i and j the product of all s but those two (on the diagonal: but that one)."""
    n = s.shape[-1]
    one = np.ones((*s.shape[:-1], 1), s.dtype)
    before = np.cumprod(np.concatenate([one, s[..., :-1]], -1), -1)
    after = np.cumprod(np.concatenate([one, s[..., :0:-1]], -1), -1)[..., ::-1]
    upper = np.tri(n, k=-1, dtype=bool).T  # j > i
    steps = np.where(upper, s[..., None, :], 1)
    running = np.cumprod(steps, -1)
    inside = np.concatenate([np.ones_like(running[..., :1]), running[..., :-1]], -1)
    out = np.where(upper, before[..., :, None] * inside * after[..., None, :], 0)
    out = out + np.swapaxes(out, -2, -1)
    out[..., range(n), range(n)] = before * after
    return out


@op
class Cofactors(Determinant):
    """The derivative of det: each element is det of what is left without its row and column.

    Well-conditioned matrices give det(x) * inv(x).mT; others go by their singular values.
    Both are found in float64, whatever x is.
    """

    native = "minors"
    quicker = True

    def shape(self, x: Spec) -> Spec:
        square("cofactors", x)
        return x

    def forward(self, x):
        n = x.shape[-1]
        if not x.size:
            return np.ones_like(x)
        flat = x.reshape(-1, n, n).astype(np.result_type(x, dt.float64), copy=False)
        out = np.empty_like(flat)
        try:
            inverse = np.linalg.inv(flat)
            size = np.abs(flat).sum(-1).max(-1) * np.abs(inverse).sum(-1).max(-1)
            good = size < GOOD
        except np.linalg.LinAlgError:
            inverse, good = flat, np.zeros(len(flat), bool)
        if good.any():
            found = np.linalg.det(flat[good])[:, None, None] * inverse[good]
            out[good] = np.swapaxes(found, -2, -1)
        if not good.all():
            out[~good] = self._by_values(flat[~good])
        return out.reshape(x.shape).astype(x.dtype, copy=False)

    def _by_values(self, x: np.ndarray) -> np.ndarray:
        u, s, vh, sign = parts(x)
        some = np.diagonal(without_two(s), 0, -2, -1)
        return sign * np.conjugate(u * some[..., None, :]) @ np.conjugate(vh)

    def jvp(self, dx, x):
        return apply(COFACTORS_PUSH, x, dx)

    def vjp(self, g, x):  # second derivatives are symmetric
        return apply(COFACTORS_PUSH, x, g)

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(2, 3, 3))
        yield Cofactors(), x
        yield Cofactors(), x[0] + 1j * x[1]
        yield Cofactors(), rng.normal(size=(1, 1))
        yield Cofactors(), np.zeros((0, 0))

    @staticmethod
    def refuses(rng):
        yield Cofactors(), np.ones((2, 3)), "two last axes of equal length"


@op
class CofactorsPush(Determinant):
    """The derivative of cofactors along y: the second of det, at singular x too."""

    def shape(self, x: Spec, y: Spec) -> Spec:
        square("cofactors_push", x)
        return x.with_shape(broadcast_shapes("cofactors_push", x=x.shape, y=y.shape))

    def forward(self, x, y):
        n = x.shape[-1]
        if not (x.size and y.size):
            return np.zeros(np.broadcast_shapes(x.shape, y.shape), x.dtype)
        u, s, vh, sign = parts(x)
        inner = adjointed(u) @ y @ adjointed(vh)
        without = without_two(s)
        without[..., range(n), range(n)] = 0
        out = -without * np.swapaxes(inner, -2, -1)
        trace = without @ np.diagonal(inner, 0, -2, -1)[..., None]
        out[..., range(n), range(n)] = trace[..., 0]
        return sign * np.conjugate(u) @ out @ np.conjugate(vh)

    def jvp(self, dx=None, dy=None, x=None, y=None):
        straight = None if dy is None else apply(self, x, dy)
        if dx is None:
            return straight
        curved = third(x, y, dx)
        return curved if straight is None else straight + curved

    def vjp_x(self, g, x, y):
        return third(x, y, g)

    def vjp_y(self, g, x):
        return apply(self, x, g)

    @staticmethod
    def samples(rng):
        x, y = rng.normal(size=(2, 2, 3, 3))
        yield CofactorsPush(), x + 2 * np.eye(3), y
        yield CofactorsPush(), x[0] + 1j * x[1], y[0] + 1j * y[1]
        yield CofactorsPush(), rng.normal(size=(1, 1)), rng.normal(size=(1, 1))
        yield CofactorsPush(), np.zeros((0, 0)), np.zeros((0, 0))


COFACTORS, COFACTORS_PUSH = Cofactors(), CofactorsPush()


def cofactors(x: Any) -> Any:
    """The cofactors; of single precision too, their kernels are for double."""
    if x.dtype != dt.float32:
        return apply(COFACTORS, x)
    return cast.astype(apply(COFACTORS, cast.astype(x, dt.float64)), x.dtype)


def third(x: Any, y: Any, z: Any) -> Any:
    """The third derivative of det along y and z, of matrices that are not singular."""
    inverse = apply(solve.Inv(check=False), x)
    a, b = times(inverse, y), times(inverse, z)
    ab, ba = times(a, b), times(b, a)
    ta, tb = (cell(reduce.sum(diagonal_of(m), axis=-1)) for m in (a, b))
    tab = cell(reduce.sum(diagonal_of(ab), axis=-1))
    rest = times(ab + ba - tb * a - ta * b, inverse) + (ta * tb - tab) * inverse
    return cell(apply(Det(), x)) * linalg.matrix_transpose(rest)


@op
class Slogdet(Determinant):
    """The sign of the determinant (a phase, of complex ones), and the log of its magnitude.

    Singular matrices give 0 and -inf, and the gradient nan: there is none. Keeps x.
    """

    outputs = ("sign", "logabsdet")
    native = "signed logarithm of determinant"
    quicker = True

    def shape(self, x: Spec) -> tuple[Spec, Spec]:
        square("slogdet", x)
        one = x.with_shape(x.shape[:-2])
        return one, one.with_dtype(dt.real_of(x.dtype))

    def forward(self, x):
        sign, size = np.linalg.slogdet(x)
        return sign, size

    def jvp(self, dx, x, sign):
        inverse = apply(solve.Inv(check=False), x)
        t = paired(linalg.matrix_transpose(inverse), dx)
        if x.dtype.kind != "c":
            return None, t
        return sign * (complex_.imag(t) * 1j), complex_.real(t)

    def vjp(self, g_sign=None, g_logabsdet=None, x=None, sign=None):
        if x.dtype.kind != "c":
            g = 0.0 * sign if g_logabsdet is None else g_logabsdet
        else:
            g = 0.0 if g_sign is None else complex_.imag(g_sign * sign) * 1j
            g = g if g_logabsdet is None else g + g_logabsdet
        inverse = apply(solve.Inv(check=False), x)
        return cell(g) * linalg.matrix_transpose(inverse)

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(2, 3, 3)) + 2 * np.eye(3)
        yield Slogdet(), x
        yield Slogdet(), -x[0]
        yield Slogdet(), x[0] + 1j * x[1]
        yield Slogdet(), np.zeros((0, 0))
        yield Slogdet(), np.zeros((0, 2, 2))

    @staticmethod
    def refuses(rng):
        yield Slogdet(), np.ones((2, 3)), "two last axes of equal length"


class SlogdetResult(NamedTuple):
    """What slogdet gives."""

    sign: Tensor
    logabsdet: Tensor


def slogdet(x: Any, /) -> SlogdetResult:
    """The sign of the determinant and the logarithm of its magnitude, without overflow.

    Of a singular matrix 0 and -inf; its gradient is nan, for there is none.
    """
    x = lift(x)
    square("slogdet", x)
    return SlogdetResult(*apply(Slogdet(), x))


def logdet(x: Any, /) -> Tensor:
    """The logarithm of the determinant; nan where it is negative, -inf where it is 0."""
    sign, size = slogdet(x)
    if sign.dtype.kind == "c":
        return complex_.make_complex(size, complex_.angle(sign))
    return select.where(sign < 0, constant(np.asarray(np.nan, size.dtype)), size)
