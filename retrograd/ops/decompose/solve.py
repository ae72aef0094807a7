"""Linear systems: solve, inv, and those whose matrix is triangular or of full rank only."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.errors import ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Op, aligned, op
from retrograd.core.rules import PullRecipe
from retrograd.core.spec import Spec, broadcast_shapes, spec_of
from retrograd.core.tensor import Tensor
from retrograd.ops import diagonal, linalg, shape
from retrograd.ops.decompose import factor
from retrograd.ops.decompose.matrices import (
    LAPACK,
    adjoint,
    conj,
    refused,
    run,
    square,
    times,
)

__all__ = ["cholesky_solve", "inv", "lstsq", "solve", "solve_triangular"]

BLOCK = 64  # rows of a triangle that go to LAPACK at once; the rest is matrix products


class System(Op):
    """Ops that solve for matrices of right-hand sides; leading axes broadcast.

    They keep a and the solution for a's gradient, a alone for b's. One more solve serves both.
    """

    uniform = True
    takes = "inexact"
    host = LAPACK

    @classmethod
    def _reverse(cls, mask: int) -> Any:  # b alone needs no solution kept
        only_b = mask == 0b10
        return PullRecipe([(1, cls.rule["vjp_b"])]) if only_b else super()._reverse(mask)

    def shape(self, a: Spec, b: Spec) -> Spec:
        square(self.name, a, "a")
        if b.ndim < 2 or b.shape[-2] != a.shape[-1]:
            raise ShapeError(
                f"{self.name}: b {b.shape} must have {a.shape[-1]} rows, as a {a.shape} has"
            )
        lead = broadcast_shapes(self.name, a=a.shape[:-2], b=b.shape[:-2])
        return b.with_shape((*lead, *b.shape[-2:]))

    def batch(self, size, args, mapped):
        return apply(self, *aligned(size, args, mapped))


def product(left: Any, right: Any, a: Spec) -> Any:
    """left @ right.T, summed over leading axes that one matrix `a` was used for."""
    if a.ndim == 2 < left.ndim:
        over = (*range(left.ndim - 2), -1)
        return linalg.tensordot(left, right, axes=(over, over))
    return times(left, linalg.matrix_transpose(right))


def folded(f: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """f(a, b); with one matrix a for a stack of b, all columns of the stack at once."""
    if not (a.ndim == 2 < b.ndim and b.size):
        return f(a, b)
    wide = np.moveaxis(b, -2, 0)
    out = f(a, wide.reshape(wide.shape[0], -1))
    return np.moveaxis(out.reshape(wide.shape), 0, -2)


@op
class Solve(System):
    """The x of a @ x = b, for matrices b. A singular matrix is refused."""

    def forward(self, a, b):
        try:
            return folded(np.linalg.solve, a, b)
        except (np.linalg.LinAlgError, ValueError):
            self.shape(spec_of(a), spec_of(b))
            run("solve", "is singular: no solution, or many", np.linalg.inv, a)
            raise

    def jvp(self, da=None, db=None, a=None, out=None):
        if da is None:
            return apply(self, a, db)
        change = times(da, out)
        return apply(self, a, -change if db is None else db - change)

    def vjp(self, g, a, out):
        gb = self.vjp_b(g, a)
        return -product(gb, out, a), gb

    def vjp_b(self, g, a):
        return apply(self, linalg.matrix_transpose(a), g)

    @staticmethod
    def samples(rng):
        a = rng.normal(size=(2, 3, 3)) + 3 * np.eye(3)
        yield Solve(), a[0], rng.normal(size=(3, 2))
        yield Solve(), a, rng.normal(size=(4, 1, 3, 1))
        yield Solve(), a[0], rng.normal(size=(2, 2, 3, 1))
        yield Solve(), a[0] + 1j * a[1], rng.normal(size=(3, 1)) + 1j * rng.normal(size=(3, 1))
        yield Solve(), np.zeros((0, 0)), np.zeros((0, 2))
        yield Solve(), a[0], np.zeros((3, 0))
        yield Solve(), np.zeros((0, 3, 3)), rng.normal(size=(3, 2))

    @staticmethod
    def refuses(rng):
        ones = np.ones((2, 2))
        yield Solve(), np.ones((2, 3)), ones, "a must have two last axes of equal length"
        yield Solve(), np.eye(3), ones, "b (2, 2) must have 3 rows, as a (3, 3) has"
        yield Solve(), np.eye(2) * np.ones((3, 1, 1)), np.ones((2, 2, 2)), "do not broadcast"
        yield Solve(), ones, ones, "solve: x (2, 2) is singular"
        yield Solve(), np.stack([np.eye(2), ones]), ones, "matrix (1,) of x (2, 2, 2)"


SOLVE = Solve()


def solve(x1: Any, x2: Any, /) -> Tensor:
    """The x of x1 @ x = x2, where x2 is a vector (one axis) or matrices; leading axes broadcast.

    A singular matrix is refused. Kept for the gradient: x1, and the solution if x1 needs one.
    """
    a, b = lift(x1), lift(x2)
    square("solve", a, "x1")
    return _columns(lambda b: apply(SOLVE, a, b), b, "solve")


def _columns(f: Any, b: Any, who: str) -> Any:
    """f of b as matrices; a vector becomes one column and back."""
    if not b.ndim:
        raise ShapeError(f"{who}: the right-hand side needs axes; got shape ()")
    if b.ndim > 1:
        return f(b)
    out = f(shape.reshape(b, (b.shape[0], 1)))
    return shape.reshape(out, out.shape[:-1])


@op
class Inv(Op):
    """The inverse. A singular matrix is refused, or with `check=False` nan. Keeps it."""

    check: bool = True
    uniform = True
    takes = "inexact"
    host = LAPACK

    def shape(self, x: Spec) -> Spec:
        square("inv", x)
        return x

    def forward(self, x):
        return run("inv", "is singular", np.linalg.inv, x, check=self.check)

    def jvp(self, dx, out):
        return -times(out, dx, out)

    def vjp(self, g, out):
        turned = linalg.matrix_transpose(out)
        return -times(turned, g, turned)

    def batch(self, size, args, mapped):
        return apply(self, *args)

    @staticmethod
    def samples(rng):
        x = rng.normal(size=(2, 3, 3)) + 3 * np.eye(3)
        yield Inv(), x
        yield Inv(), x[0] + 1j * x[1]
        yield Inv(check=False), x[0]
        yield Inv(), np.zeros((0, 0))
        yield Inv(), np.zeros((0, 2, 2))

    @staticmethod
    def refuses(rng):
        yield Inv(), np.ones((3, 2)), "two last axes of equal length"
        yield Inv(), np.ones(3), "at least 2 axes"
        yield Inv(), np.zeros((2, 2)), "inv: x (2, 2) is singular"
        yield Inv(), np.stack([np.eye(2), np.ones((2, 2))]), "matrix (1,) of x (2, 2, 2)"


def inv(x: Any, /) -> Tensor:
    """The inverse of each matrix, which is what is kept. A singular matrix is refused."""
    x = lift(x)
    square("inv", x)
    return apply(Inv(), x)


@op
class SolveTriangular(System):
    """The x of a @ x = b, or a.mT @ x = b, where only one triangle of a is read."""

    upper: bool = True
    turned: bool = False
    unit_diagonal: bool = False

    def forward(self, a, b):
        self.shape(spec_of(a), spec_of(b))
        return folded(self._substituted, a, b)

    def _substituted(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Block after block: those before it are taken off, then LAPACK solves its own."""
        n, lead = a.shape[-1], np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        lower = self.upper == self.turned
        a = np.swapaxes(a, -2, -1) if self.turned else a
        out = np.empty((*lead, *b.shape[-2:]), b.dtype)
        starts = range(0, n, BLOCK)
        for start in starts if lower else reversed(starts):
            now = slice(start, min(start + BLOCK, n))
            done = slice(0, start) if lower else slice(now.stop, n)
            left = b[..., now, :]
            if done.start != done.stop:
                left = left - a[..., now, done] @ out[..., done, :]
            out[..., now, :] = self._block(a[..., now, now], left, lower, start)
        return out

    def _block(self, a: np.ndarray, b: np.ndarray, lower: bool, start: int) -> np.ndarray:
        """LAPACK's elimination of an upper triangle is back substitution, so all are made it."""
        if lower:
            return self._block(a[..., ::-1, ::-1], b[..., ::-1, :], False, start)[..., ::-1, :]
        a = np.triu(a)
        if self.unit_diagonal:
            a[..., range(a.shape[-1]), range(a.shape[-1])] = 1
        zero = np.argwhere(np.diagonal(a, 0, -2, -1) == 0)
        if zero.size:
            raise refused(
                self.name, "has 0 on its diagonal, so it is singular", a.shape[-2:], 0
            )
        return np.linalg.solve(a, b)

    def jvp(self, da=None, db=None, a=None, out=None):
        if da is None:
            return apply(self, a, db)
        da = self._triangle(da)
        change = times(linalg.matrix_transpose(da) if self.turned else da, out)
        return apply(self, a, -change if db is None else db - change)

    def vjp(self, g, a, out):
        gb = self.vjp_b(g, a)
        pair = (out, gb) if self.turned else (gb, out)
        return -self._triangle(product(*pair, a)), gb

    def vjp_b(self, g, a):
        return apply(self.replace(turned=not self.turned), a, g)

    def _triangle(self, x: Any) -> Any:
        skip = int(self.unit_diagonal)
        return diagonal.triu(x, k=skip) if self.upper else diagonal.tril(x, k=-skip)

    @staticmethod
    def samples(rng):
        a = rng.uniform(0.5, 1.5, (2, 3, 3))
        for upper in (False, True):
            for turned in (False, True):
                yield SolveTriangular(upper, turned), a[0], rng.normal(size=(3, 2))
        yield SolveTriangular(upper=False, unit_diagonal=True), a, rng.normal(size=(3, 2))
        yield SolveTriangular(), a[0], rng.normal(size=(2, 3, 1))
        yield SolveTriangular(), a, rng.normal(size=(4, 1, 3, 2))
        yield SolveTriangular(False, True), a[0] + 1j * a[1], rng.normal(size=(3, 1)) + 1j
        yield SolveTriangular(), np.zeros((0, 0)), np.zeros((0, 2))
        yield SolveTriangular(), a[0], np.zeros((0, 3, 2))

    @staticmethod
    def refuses(rng):
        yield SolveTriangular(), np.ones((2, 3)), np.ones((2, 2)), "axes of equal length"
        yield SolveTriangular(), np.eye(3), np.ones((2, 2)), "must have 3 rows"
        yield SolveTriangular(), np.diag([1.0, 0.0]), np.ones((2, 2)), "has 0 on its diagonal"


def solve_triangular(
    a: Any,
    b: Any,
    /,
    *,
    lower: bool = False,
    transpose: bool = False,
    unit_diagonal: bool = False,
) -> Tensor:
    """The x of a @ x = b (with `transpose`, of a.mT @ x = b), reading one triangle of a.

    b is a vector (one axis) or matrices; leading axes broadcast. With `unit_diagonal` the
    diagonal counts as ones and is not read. What is not read gets gradient 0.
    """
    a, b = lift(a), lift(b)
    square("solve_triangular", a, "a")
    system = SolveTriangular(not lower, bool(transpose), bool(unit_diagonal))
    return _columns(lambda b: apply(system, a, b), b, "solve_triangular")


def cholesky_solve(factor: Any, b: Any, /, *, upper: bool = False) -> Tensor:
    """The x of a @ x = b, given the Cholesky factor of a: lower, or `upper`."""
    c, b = lift(factor), lift(b)
    square("cholesky_solve", c, "factor")
    c = adjoint(c) if upper else c

    def both(b: Any) -> Any:
        half = solve_triangular(c, b, lower=True)
        return solve_triangular(conj(c), half, lower=True, transpose=True)

    return _columns(both, b, "cholesky_solve")


def lstsq(a: Any, b: Any, /) -> Tensor:
    """The x of least |a @ x - b|, for matrices a of full rank; of many, that of least |x|.

    b is a vector (one axis) or matrices. For other matrices: `pinv(a) @ b`.
    """
    a, b = lift(a), lift(b)
    tall = a.ndim > 1 and a.shape[-2] >= a.shape[-1]
    q, r = factor.qr(a if tall else adjoint(a))

    def least(b: Any) -> Any:
        if b.shape[-2] != a.shape[-2]:
            raise ShapeError(
                f"lstsq: b {b.shape} must have {a.shape[-2]} rows, as a {a.shape} has"
            )
        if tall:
            return solve_triangular(r, times(adjoint(q), b))
        return times(q, solve_triangular(conj(r), b, transpose=True))

    return _columns(least, b, "lstsq")
