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

BLOCK = 32  # rows of a triangle that go to LAPACK at once; the rest is matrix products


class System(Op):
    """Ops that solve for matrices of right-hand sides; leading axes broadcast.

    They keep x1 and the solution for x1's gradient, x1 alone for x2's. One solve serves both.
    """

    uniform = True
    takes = "inexact"
    host = LAPACK

    @classmethod
    def _reverse(cls, mask: int) -> Any:  # x2 alone needs no solution kept
        alone = mask == 0b10
        return PullRecipe([(1, cls.rule["vjp_x2"])]) if alone else super()._reverse(mask)

    def shape(self, x1: Spec, x2: Spec) -> Spec:
        square(self.name, x1, "x1")
        if x2.ndim < 2 or x2.shape[-2] != x1.shape[-1]:
            raise ShapeError(
                f"{self.name}: x2 {x2.shape} must have {x1.shape[-1]} rows, "
                f"as x1 {x1.shape} has"
            )
        lead = broadcast_shapes(self.name, x1=x1.shape[:-2], x2=x2.shape[:-2])
        return x2.with_shape((*lead, *x2.shape[-2:]))

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
    """The x of x1 @ x = x2, or x1.mT @ x = x2, for matrices x2. Singular ones are refused."""

    turned: bool = False
    native = "system"
    quicker = True

    def forward(self, x1, x2):
        try:
            a = np.swapaxes(x1, -2, -1) if self.turned and x1.ndim > 1 else x1
            return folded(np.linalg.solve, a, x2)
        except (np.linalg.LinAlgError, ValueError):
            self.shape(spec_of(x1), spec_of(x2))
            run("solve", "is singular", np.linalg.inv, x1, name="x1")
            raise

    def jvp(self, dx1=None, dx2=None, x1=None, out=None):
        if dx1 is None:
            return apply(self, x1, dx2)
        change = times(linalg.matrix_transpose(dx1) if self.turned else dx1, out)
        return apply(self, x1, -change if dx2 is None else dx2 - change)

    def vjp(self, g, x1, out):
        g2 = self.vjp_x2(g, x1)
        pair = (out, g2) if self.turned else (g2, out)
        return -product(*pair, x1), g2

    def vjp_x2(self, g, x1):
        return apply(self.replace(turned=not self.turned), x1, g)

    @staticmethod
    def samples(rng):
        a = rng.normal(size=(2, 3, 3)) + 3 * np.eye(3)
        yield Solve(), a[0], rng.normal(size=(3, 2))
        yield Solve(turned=True), a[0], rng.normal(size=(3, 2))
        yield Solve(turned=True), a, rng.normal(size=(4, 1, 3, 1))
        yield Solve(), a, rng.normal(size=(4, 1, 3, 1))
        yield Solve(), a[0], rng.normal(size=(2, 2, 3, 1))
        yield Solve(), a[0] + 1j * a[1], rng.normal(size=(3, 1)) + 1j * rng.normal(size=(3, 1))
        yield Solve(), np.zeros((0, 0)), np.zeros((0, 2))
        yield Solve(), a[0], np.zeros((3, 0))
        yield Solve(), np.zeros((0, 3, 3)), rng.normal(size=(3, 2))

    @staticmethod
    def refuses(rng):
        ones = np.ones((2, 2))
        yield Solve(), np.ones((2, 3)), ones, "x1 must have two last axes of equal length"
        yield Solve(), np.eye(3), ones, "x2 (2, 2) must have 3 rows, as x1 (3, 3) has"
        yield Solve(), np.eye(2) * np.ones((3, 1, 1)), np.ones((2, 2, 2)), "do not broadcast"
        yield Solve(), ones, ones, "solve: x1 (2, 2) is singular"
        yield (
            Solve(),
            np.stack([np.eye(2), ones]),
            ones,
            "solve: x1[1] of x1 (2, 2, 2) is singular",
        )


SOLVE = Solve()


def solve(x1: Any, x2: Any, /) -> Tensor:
    """The x of x1 @ x = x2, for a vector x2 (one axis) or matrices; leading axes broadcast.

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
    native = "inverse"
    quicker = True

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
        yield Inv(), np.stack([np.eye(2), np.ones((2, 2))]), "inv: x[1] of x (2, 2, 2)"


def inv(x: Any, /) -> Tensor:
    """The inverse of each matrix, which is what is kept. A singular matrix is refused."""
    x = lift(x)
    square("inv", x)
    return apply(Inv(), x)


@op
class SolveTriangular(System):
    """The x of x1 @ x = x2, or x1.mT @ x = x2, where only one triangle of x1 is read."""

    upper: bool = True
    turned: bool = False
    unit_diagonal: bool = False
    native = "triangle"
    quicker = True

    def forward(self, x1, x2):
        self.shape(spec_of(x1), spec_of(x2))
        if not self.unit_diagonal:
            zero = np.argwhere((np.diagonal(x1, 0, -2, -1) == 0).any(-1).reshape(-1))
            if zero.size and x2.size:
                raise refused(self.name, "has 0 on its diagonal", "x1", x1.shape, zero[0, 0])
        return folded(self._substituted, x1, x2)

    def _substituted(self, x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
        """Block after block: those before it are taken off, then LAPACK solves its own."""
        n, lead = x1.shape[-1], np.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
        x1 = np.swapaxes(x1, -2, -1) if self.turned else x1
        lower = self.upper == self.turned
        out = np.empty((*lead, *x2.shape[-2:]), x2.dtype)
        starts = range(0, n, BLOCK)
        for start in starts if lower else reversed(starts):
            now = slice(start, min(start + BLOCK, n))
            done = slice(0, start) if lower else slice(now.stop, n)
            left = x2[..., now, :]
            if done.start != done.stop:
                left = left - x1[..., now, done] @ out[..., done, :]
            out[..., now, :] = self._block(x1[..., now, now], left, lower=lower)
        return out

    def _block(self, x1: np.ndarray, x2: np.ndarray, *, lower: bool) -> np.ndarray:
        """LAPACK's elimination is back substitution if the triangle is upper: then it is."""
        if lower:
            turned = x1[..., ::-1, ::-1], x2[..., ::-1, :]
            return self._block(*turned, lower=False)[..., ::-1, :]
        x1 = np.triu(x1)
        if self.unit_diagonal:
            x1[..., range(x1.shape[-1]), range(x1.shape[-1])] = 1
        return np.linalg.solve(x1, x2)

    def jvp(self, dx1=None, dx2=None, x1=None, out=None):
        if dx1 is None:
            return apply(self, x1, dx2)
        dx1 = self._triangle(dx1)
        change = times(linalg.matrix_transpose(dx1) if self.turned else dx1, out)
        return apply(self, x1, -change if dx2 is None else dx2 - change)

    def vjp(self, g, x1, out):
        g2 = self.vjp_x2(g, x1)
        pair = (out, g2) if self.turned else (g2, out)
        return -self._triangle(product(*pair, x1)), g2

    def vjp_x2(self, g, x1):
        return apply(self.replace(turned=not self.turned), x1, g)

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
    x1: Any,
    x2: Any,
    /,
    *,
    lower: bool = False,
    transpose: bool = False,
    unit_diagonal: bool = False,
) -> Tensor:
    """The x of x1 @ x = x2 (with `transpose`, x1.mT @ x = x2), reading one triangle of x1.

    x2 is a vector (one axis) or matrices; leading axes broadcast. With `unit_diagonal` the
    diagonal counts as ones and is not read. What is not read gets gradient 0.
    """
    a, b = lift(x1), lift(x2)
    square("solve_triangular", a, "x1")
    system = SolveTriangular(not lower, bool(transpose), bool(unit_diagonal))
    return _columns(lambda b: apply(system, a, b), b, "solve_triangular")


def cholesky_solve(c: Any, b: Any, /, *, upper: bool = False) -> Tensor:
    """The x of a @ x = b, given the Cholesky factor c of a: lower, or `upper`."""
    c, b = lift(c), lift(b)
    square("cholesky_solve", c, "c")
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
