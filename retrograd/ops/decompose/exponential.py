"""The exponential and powers of matrices."""

from __future__ import annotations

from functools import cache
from math import factorial, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ShapeError
from retrograd.core.interpret import RAW, apply, lift, unchanged, using
from retrograd.core.op import Composite, Op, front, op
from retrograd.core.spec import Spec, spec_of
from retrograd.core.tensor import Tensor
from retrograd.ops import create, join, linalg, options, pad, shape
from retrograd.ops.decompose import solve
from retrograd.ops.decompose.matrices import LAPACK, square, times

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["matrix_exp", "matrix_power"]

LEAST = 1 / 8  # how large a change is made, where the matrix is smaller

# The largest norms for which Padé's approximant of a degree is exact to rounding:
# N. Higham, The scaling and squaring method for the matrix exponential revisited (2005).
DEGREES = {
    dt.float32: {3: 4.258730016922831e-1, 5: 1.880152677804762, 7: 3.925724783138660},
    dt.float64: {
        3: 1.495585217958292e-2,
        5: 2.539398330063230e-1,
        7: 9.504178996162932e-1,
        9: 2.097847961257068,
        13: 5.371920351148152,
    },
}


@cache
def pade(degree: int) -> list[float]:
    """The numerator's coefficients, of rising powers; the denominator's alternate in sign."""
    whole = [
        factorial(2 * degree - j) // (factorial(degree - j) * factorial(j))
        for j in range(degree + 1)
    ]
    return [c / whole[0] for c in whole]


class Along(NamedTuple):
    """Matrices `at`, and changes of them: [[at, change], [0, at]] without its zeros."""

    at: np.ndarray
    change: np.ndarray

    def __matmul__(self, other: Along) -> Along:
        """The product: three of matrices that are half as large."""
        change = product(self.at, other.change)
        change += product(self.change, other.at)
        return Along(product(self.at, other.at), change)

    def solved(self, right: Along) -> Along:
        """The x of self @ x = right."""
        at = quotient(self.at, right.at)
        change = quotient(self.at, right.change - product(self.change, at))
        return Along(at, change)


class Alone(NamedTuple):
    """Matrices, without changes of them."""

    at: np.ndarray

    def __matmul__(self, other: Alone) -> Alone:
        """The product."""
        return Alone(product(self.at, other.at))

    def solved(self, right: Alone) -> Alone:
        """The x of self @ x = right."""
        return Alone(quotient(self.at, right.at))


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a @ b, by kernels where they are large."""
    with using(RAW):
        return apply(linalg.MATMUL, a, b)


def quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The x of a @ x = b, by kernels where they are large."""
    with using(RAW):
        return apply(solve.SOLVE, a, b)


def combined(weights: Sequence[float], powers: Sequence[Any], one: float = 0) -> Any:
    """The sum of powers with weights, and `one` times the identity."""
    out = type(powers[0])(*(weights[0] * part for part in powers[0]))
    for w, power in zip(weights[1:], powers[1:], strict=True):
        for total, part in zip(out, power, strict=True):
            total += w * part
    places = range(out.at.shape[-1])
    out.at[..., places, places] += one
    return out


def approximant(x: Any, degree: int) -> Any:
    """exp of matrices whose norms are small enough for the degree."""
    b = pade(degree)
    powers = [x @ x]
    for _ in range(2, min(degree // 2, 4 if degree < 13 else 3) + 1):
        powers.append(powers[-1] @ powers[0])
    if degree < 13:
        odd = combined(b[3::2], powers, b[1])
        even = combined(b[2::2], powers, b[0])
    else:  # x^8 and beyond as x^6 times something: three products fewer
        odd, even = (
            combined([1, *low[1:]], [powers[2] @ combined(high, powers), *powers], low[0])
            for low, high in ((b[1:8:2], b[9::2]), (b[0:7:2], b[8::2]))
        )
    odd = x @ odd
    return combined([1, -1], [even, odd]).solved(combined([1, 1], [even, odd]))


def exponentials(x: Any, norms: np.ndarray) -> Any:
    """exp of a stack of matrices: halve until they are small, approximate, square again."""
    table = DEGREES[dt.real_of(x.at.dtype)]
    largest = norms.max()
    degree = next((d for d, most in table.items() if largest <= most), max(table))
    halvings = np.ceil(np.log2(np.maximum(norms / table[degree], 1))).astype(int)
    scale = np.ldexp(np.ones_like(norms), -halvings)[:, None, None]
    kind = type(x)
    out = approximant(kind(*(part * scale for part in x)), degree)
    for i in range(halvings.max(initial=0)):
        again = halvings > i
        if again.all():
            out = out @ out
            continue
        some = kind(*(part[again] for part in out))
        for part, squared in zip(out, some @ some, strict=True):
            part[again] = squared
    return out


def finite(f: Any, *xs: np.ndarray) -> np.ndarray:
    """f of stacks of matrices and their norms; nan where they hold nan or infinities."""
    flat = [x.reshape(prod(x.shape[:-2]), *x.shape[-2:]) for x in xs]
    norms = [columns(x) for x in flat]
    good = np.isfinite(norms).all(0)
    if good.all():
        return f(*flat, *norms).reshape(xs[0].shape)
    out = np.full_like(flat[0], np.nan)
    if good.any():
        out[good] = f(*(x[good] for x in (*flat, *norms)))
    return out.reshape(xs[0].shape)


def columns(x: np.ndarray) -> np.ndarray:
    """The largest sum of a column, of each matrix."""
    return np.abs(x).sum(-2).max(-1)


@op
class MatrixExp(Op):
    """The exponential of matrices, by Padé's approximants of halved matrices, squared again.

    Keeps x.
    """

    uniform = True
    takes = "inexact"
    host = LAPACK

    def shape(self, x: Spec) -> Spec:
        square("matrix_exp", x)
        return x

    def forward(self, x):
        self.shape(spec_of(x))
        return finite(lambda x, size: exponentials(Alone(x), size).at, x) if x.size else x

    def jvp(self, dx, x):
        return apply(ExpAlong(), x, dx)

    def vjp(self, g, x):
        return apply(ExpAlong(), linalg.matrix_transpose(x), g)

    def batch(self, size, args, mapped):
        return apply(self, *args)

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(2, 3, 3))
        yield MatrixExp(), x
        yield MatrixExp(), x[0] + 1j * x[1]
        yield MatrixExp(), np.stack([0.01 * x[0], 8 * np.tri(3, k=-1)])
        yield MatrixExp(), rng.normal(size=(1, 1))
        yield MatrixExp(), np.zeros((2, 2))
        yield MatrixExp(), np.zeros((0, 0))
        yield MatrixExp(), np.zeros((0, 2, 2))

    @staticmethod
    def refuses(rng):
        yield MatrixExp(), np.ones((1, 3)), "two last axes of equal length"


@op
class ExpAlong(Composite):
    """How fast the exponential of x changes along t: a block of exp of [[x, t], [0, x]]."""

    uniform = True
    takes = "inexact"
    host = LAPACK

    def shape(self, x: Spec, t: Spec) -> Spec:
        square("exp_along", x)
        if x.shape != t.shape:
            raise ShapeError(f"exp_along: t {t.shape} must have x's shape {x.shape}")
        return x

    def expand(self, x, t):
        n, zero = x.shape[-1], create.zeros_like(x)
        upper = join.concat([x, t], axis=-1)
        lower = join.concat([zero, x], axis=-1)
        out = apply(MatrixExp(), join.concat([upper, lower], axis=-2))
        corner = pad.piece(out, out.ndim - 2, 0, n)
        return pad.piece(corner, out.ndim - 1, n, n)

    def forward(self, x, t):
        self.shape(spec_of(x), spec_of(t))
        return finite(self._along, x, t) if x.size else x

    @staticmethod
    def _along(x: np.ndarray, t: np.ndarray, size: np.ndarray, change: np.ndarray) -> Any:
        """It is linear in t, which is made as large as x: what counts is the sum of both."""
        wanted = np.maximum(size, LEAST) / np.where(change > 0, change, 1)
        power = np.clip(np.floor(np.log2(wanted)), -100, 100).astype(int)
        scale = np.ldexp(np.ones_like(size), power)
        both = Along(x, t * scale[:, None, None])
        return exponentials(both, size + scale * change).change / scale[:, None, None]

    def batch(self, size, args, mapped):
        return apply(self, *front(size, args, mapped))

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(2, 3, 3))
        yield ExpAlong(), x, rng.normal(size=(2, 3, 3))
        yield ExpAlong(), x[0] + 1j * x[1], 30 * rng.normal(size=(3, 3)) + 1j
        yield ExpAlong(), np.stack([0.01 * x[0], 8 * np.tri(3, k=-1)]), x
        yield ExpAlong(), np.zeros((2, 2)), rng.normal(size=(2, 2))
        yield ExpAlong(), rng.normal(size=(2, 2)), np.zeros((2, 2))
        yield ExpAlong(), np.zeros((0, 0)), np.zeros((0, 0))
        yield ExpAlong(), np.zeros((0, 2, 2)), np.zeros((0, 2, 2))

    @staticmethod
    def refuses(rng):
        yield ExpAlong(), np.ones((1, 3)), np.ones((1, 3)), "two last axes of equal length"
        yield ExpAlong(), np.eye(2), np.eye(3), "t (3, 3) must have x's shape (2, 2)"


def matrix_exp(x: Any, /) -> Tensor:
    """The matrix exponential of each matrix; nan where it holds nan or infinities."""
    x = lift(x)
    square("matrix_exp", x)
    return apply(MatrixExp(), x)


def matrix_power(x: Any, n: int, /) -> Tensor:
    """Each matrix to the n-th power; negative ones of the inverse, the identity for 0."""
    x, n = lift(x), options.integer("matrix_power", "n", n)
    square("matrix_power", x)
    if n == 0:
        return shape.broadcast_to(create.eye(x.shape[-1], dtype=x.dtype), x.shape)
    x, n = (solve.inv(x), -n) if n < 0 else (x, n)
    out: Any = None
    while True:
        if n & 1:
            out = x if out is None else times(out, x)
        n >>= 1
        if not n:
            return unchanged(out)
        x = times(x, x)
