"""What the factorizations share: checks, transposes, LAPACK's refusals, the phase of vectors.

Matrices are the last two axes, and the axes before them are a batch. Rules are plain
transposes under the pairing Re(sum g * t), as everywhere; where a formula of the books has
the adjoint of a cotangent, it is that of conj(g).
"""

from __future__ import annotations

from functools import reduce as fold
from math import prod
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, RetrogradError, ShapeError
from retrograd.core.executor import LIGHT
from retrograd.core.interpret import apply, constant, current
from retrograd.ops import complex as complex_
from retrograd.ops import diagonal, extrema, linalg, magnitude, reduce, select, shape

LAPACK = "LAPACK"  # why a compiled program calls NumPy for them
LIFT = 0.01  # of two components of nearly equal magnitude the first one counts as larger


# -- operands --------------------------------------------------------------------------------


def matrices(who: str, x: Any, name: str = "x") -> None:
    """Refuse what has no two last axes."""
    if x.ndim < 2:
        raise ShapeError(f"{who}: {name} needs at least 2 axes; got shape {x.shape}")


def square(who: str, x: Any, name: str = "x") -> None:
    """Refuse what are not square matrices."""
    matrices(who, x, name)
    if x.shape[-1] != x.shape[-2]:
        raise ShapeError(
            f"{who}: {name} must have two last axes of equal length; got shape {x.shape}"
        )


def rounding(dtype: np.dtype, n: int) -> float:
    """How far apart numbers are that LAPACK cannot tell apart, beside the largest of n."""
    return 2 * n * float(dt.finfo(dtype).eps)


def vectors_now(x: Any) -> bool:
    """Whether values of x take a gradient so dear that its vectors shall be found with them."""
    if isinstance(x, np.ndarray) or x.size < LIGHT or not x.requires_grad:
        return False
    return getattr(current.get(), "recording", False)


# -- LAPACK ----------------------------------------------------------------------------------


def run(
    who: str, wrong: str, f: Any, x: np.ndarray, *, name: str = "x", check: bool = True
) -> np.ndarray:
    """f of a stack of matrices; the first that LAPACK refuses is named, or gives nan."""
    try:
        return f(x)
    except np.linalg.LinAlgError:
        square(who, x, name)
    flat = x.reshape(prod(x.shape[:-2]), *x.shape[-2:])
    out = np.full_like(flat, np.nan)
    for i, one in enumerate(flat):
        try:
            out[i] = f(one)
        except np.linalg.LinAlgError as error:
            if check:
                raise refused(who, wrong, name, x.shape, i) from error
    return out.reshape(x.shape)


def refused(who: str, wrong: str, name: str, of: tuple[int, ...], i: int) -> RetrogradError:
    """The error for matrix i of a stack of shape `of`."""
    place = ", ".join(str(int(k)) for k in np.unravel_index(i, of[:-2])) if of[:-2] else ""
    which = f"{name}[{place}] of {name} {of}" if place else f"{name} {of}"
    return ArgumentError(f"{who}: {which} {wrong}")


def converged(who: str, f: Any, x: np.ndarray) -> Any:
    """f of a stack of matrices; those that hold nan or infinities give nan, alone."""
    bad = ~np.isfinite(x).all((-2, -1))
    if bad.any():
        x = np.where(bad[..., None, None], np.eye(*x.shape[-2:], dtype=x.dtype), x)
    try:
        out = f(x)
    except np.linalg.LinAlgError as error:
        if "converge" not in str(error):
            raise  # the shape rule says it
        raise ArgumentError(f"{who}: LAPACK's iteration on x {x.shape} diverges") from error
    if bad.any():
        for part in out if isinstance(out, tuple) else (out,):
            part[bad] = np.nan
    return out


# -- in NumPy, for forward -------------------------------------------------------------------


def adjointed(x: np.ndarray) -> np.ndarray:
    """The conjugate transpose."""
    x = np.swapaxes(x, -2, -1)
    return np.conjugate(x) if x.dtype.kind == "c" else x


def symmetric(x: np.ndarray) -> np.ndarray:
    """The Hermitian part; of a Hermitian matrix itself, to the bit."""
    out = np.array(adjointed(x), order="C")  # quicker than to add it as it lies
    out += x
    out /= 2
    return out


def phases(v: np.ndarray) -> np.ndarray:
    """What turns the largest component of each column real and positive."""
    if not v.size:
        return np.ones((*v.shape[:-2], 1, v.shape[-1]), v.dtype)
    falling = weights(v.shape[-2], v.dtype)[:, None]
    if v.dtype.kind != "c":  # the largest and the smallest are found sooner than where it is
        sized = v * falling
        high, low = sized.max(-2, keepdims=True), -sized.min(-2, keepdims=True)
        if (high != low).all():
            return np.where(high < low, -1, 1).astype(v.dtype)
    size = np.abs(v) * falling
    p = np.take_along_axis(v, np.argmax(size, -2, keepdims=True), -2)
    if v.dtype.kind == "c":
        return np.conjugate(p) / np.abs(p)
    return np.where(p < 0, -1, 1).astype(v.dtype)


def weights(n: int, dtype: np.dtype) -> np.ndarray:
    """Slightly falling, so that components that tie but for rounding are told apart."""
    return np.linspace(1, 1 - LIFT, n, dtype=dt.real_of(dtype))


# -- in ops, for rules -----------------------------------------------------------------------


def times(*xs: Any) -> Any:
    """The product of matrices, from the left."""
    return fold(lambda a, b: apply(linalg.MATMUL, a, b), xs)


def conj(x: Any) -> Any:
    """The conjugate, for which real numbers need no op."""
    return complex_.conj(x) if x.dtype.kind == "c" else x


def real(x: Any) -> Any:
    """The real part, for which real numbers need no op."""
    return complex_.real(x) if x.dtype.kind == "c" else x


def adjoint(x: Any) -> Any:
    """The conjugate transpose."""
    return conj(linalg.matrix_transpose(x))


def hermitian(x: Any) -> Any:
    """The Hermitian part."""
    return 0.5 * (x + adjoint(x))


def row(w: Any) -> Any:
    """A vector as one row: it scales columns."""
    return shape.reshape(w, (*w.shape[:-1], 1, w.shape[-1]))


def column(w: Any) -> Any:
    """A vector as one column: it scales rows."""
    return shape.reshape(w, (*w.shape, 1))


def diagonal_of(x: Any) -> Any:
    """The diagonals."""
    return apply(diagonal.Diagonal(0), x)


def on_diagonal(w: Any) -> Any:
    """Vectors as diagonal matrices."""
    return apply(diagonal.OnDiagonal(w.shape[-1], w.shape[-1]), w)


def lower_half(x: Any) -> Any:
    """The lower triangle with half the diagonal: x = its own plus that of the transpose."""
    n = x.shape[-1]
    mask = np.tri(n) - np.eye(n) / 2
    return x * constant(mask.astype(dt.real_of(x.dtype)))


def upper_half(x: Any) -> Any:
    """The upper triangle with half the diagonal."""
    n = x.shape[-1]
    mask = np.tri(n).T - np.eye(n) / 2
    return x * constant(mask.astype(dt.real_of(x.dtype)))


def above(size: Any, scale: Any) -> Any:
    """Where sizes are more than what rounding makes of 0, beside the largest of `scale`."""
    largest = extrema.max(magnitude.abs(scale), axis=-1, keepdims=True)
    tolerance = rounding(largest.dtype, scale.shape[-1]) * largest
    extra = (1,) * (size.ndim - largest.ndim)
    return size > shape.reshape(tolerance, (*largest.shape, *extra))


def inverses(x: Any, live: Any) -> Any:
    """1 / x where `live`, else 0."""
    return select.where(live, 1.0 / select.where(live, x, 1.0), 0.0)


def gaps(w: Any) -> Any:
    """1 / (w[j] - w[i]); 0 on the diagonal, and where two are equal but for rounding."""
    apart = row(w) - column(w)
    return inverses(apart, above(magnitude.abs(apart), w)) if w.shape[-1] else apart


def pivots(v: Any) -> Any:
    """The mask of the largest component of each column, as `phases` chose it."""
    size = magnitude.abs(v) * constant(weights(v.shape[-2], v.dtype)[:, None])
    rows = np.arange(v.shape[-2])[:, None]
    return extrema.argmax(size, axis=-2, keepdims=True) == constant(rows)


def turned(v: Any, dv: Any) -> Any:
    """How fast the largest component of each column leaves the real axis, as an angle."""
    if not v.shape[-2]:
        return complex_.imag(reduce.sum(dv, axis=-2, keepdims=True))
    mask = pivots(v)
    part = reduce.sum(select.where(mask, dv, 0.0), axis=-2, keepdims=True)
    return complex_.imag(part) / _largest(v, mask)


def turned_back(v: Any, q: Any) -> Any:
    """The transpose of `turned`: angles' cotangents q as cotangents of the columns."""
    if not v.shape[-2]:
        return v
    mask = pivots(v)
    return select.where(mask, -1j * (q / _largest(v, mask)), 0.0)


def _largest(v: Any, mask: Any) -> Any:
    part = select.where(mask, v, 0.0)
    return complex_.real(reduce.sum(part, axis=-2, keepdims=True))
