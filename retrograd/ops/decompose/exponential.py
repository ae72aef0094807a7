"""The exponential and powers of matrices."""

from __future__ import annotations

from functools import cache
from math import factorial, prod
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.interpret import apply, lift, unchanged
from retrograd.core.op import Op, op
from retrograd.core.spec import Spec, spec_of
from retrograd.core.tensor import Tensor
from retrograd.ops import create, join, linalg, options, pad, shape
from retrograd.ops.decompose import solve
from retrograd.ops.decompose.matrices import LAPACK, square, times

__all__ = ["matrix_exp", "matrix_power"]

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


def approximant(x: np.ndarray, degree: int) -> np.ndarray:
    """exp of matrices whose norms are small enough for the degree."""
    b, one = pade(degree), np.eye(x.shape[-1], dtype=x.dtype)
    powers = [one, x @ x]
    for _ in range(2, min(degree // 2, 4 if degree < 13 else 3) + 1):
        powers.append(powers[-1] @ powers[1])
    if degree < 13:
        odd = sum(c * p for c, p in zip(b[1::2], powers, strict=True))
        even = sum(c * p for c, p in zip(b[::2], powers, strict=True))
    else:  # x^8 and beyond as x^6 times something: three products fewer
        odd, even = (
            powers[3] @ sum(c * p for c, p in zip(high, powers[1:], strict=True))
            + sum(c * p for c, p in zip(low, powers, strict=True))
            for low, high in ((b[1:8:2], b[9::2]), (b[0:7:2], b[8::2]))
        )
    odd = x @ odd
    return np.linalg.solve(even - odd, even + odd)


def exponentials(x: np.ndarray) -> np.ndarray:
    """exp of a stack of matrices: halve until they are small, approximate, square again."""
    table = DEGREES[dt.real_of(x.dtype)]
    norms = np.abs(x).sum(-2).max(-1)
    largest = norms.max()
    if not np.isfinite(largest):
        good = np.isfinite(norms)
        out = np.full_like(x, np.nan)
        out[good] = exponentials(x[good]) if good.any() else 0
        return out
    degree = next((d for d, most in table.items() if largest <= most), max(table))
    halvings = np.ceil(np.log2(np.maximum(norms / table[degree], 1))).astype(int)
    scale = np.ldexp(np.ones_like(norms), -halvings)
    out = approximant(x * scale[:, None, None], degree)
    for i in range(halvings.max(initial=0)):
        again = halvings > i
        out[again] = out[again] @ out[again]
    return out


@op
class MatrixExp(Op):
    """The exponential of matrices, by Padé's approximants of halved matrices, squared again.

    Its derivative along t is the upper right block of exp of [[x, t], [0, x]]. Keeps x.
    """

    uniform = True
    takes = "inexact"
    host = LAPACK

    def shape(self, x: Spec) -> Spec:
        square("matrix_exp", x)
        return x

    def forward(self, x):
        self.shape(spec_of(x))
        if not x.size:
            return x
        return exponentials(x.reshape(prod(x.shape[:-2]), *x.shape[-2:])).reshape(x.shape)

    def jvp(self, dx, x):
        n, zero = x.shape[-1], create.zeros_like(x)
        upper = join.concat([x, dx], axis=-1)
        lower = join.concat([zero, x], axis=-1)
        out = apply(self, join.concat([upper, lower], axis=-2))
        corner = pad.piece(out, out.ndim - 2, 0, n)
        return pad.piece(corner, out.ndim - 1, n, n)

    def vjp(self, g, x):
        return self.jvp(g, linalg.matrix_transpose(x))

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
