"""Householder's factorization of many small matrices at once: each lane has one of its own."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retrograd.jit.llvm.lu_tiny import Group, Matrix
    from retrograd.jit.llvm.text import Val

__all__ = ["factored"]


def factored(g: Group, a: Matrix) -> tuple[Matrix, Matrix]:
    """q and r of matrices whose diagonal in r is positive."""
    f, m, n = g.f, len(a), len(a[0])
    made = [_reflected(g, a, k) for k in range(n)]
    q = [[g.number(float(i == j)) for j in range(n)] for i in range(m)]
    for k in reversed(range(n)):
        _apply(g, q, k, made[k])
    for k in range(n):
        negative = f.compare("olt", a[k][k], g.number(0))
        sign = f.select(negative, g.number(-1), g.number(1))
        a[k] = [f.mul(x, sign) for x in a[k]]
        for row in q:
            row[k] = f.mul(row[k], sign)
    zero = g.number(0)
    return q, [[a[i][j] if i <= j else zero for j in range(n)] for i in range(n)]


def _reflected(g: Group, a: Matrix, k: int) -> tuple[Val, list[Val]]:
    """Make column k zero below its diagonal: the factor of the reflection, and its vector."""
    f, zero, one = g.f, g.number(0), g.number(1)
    column = [row[k] for row in a[k:]]
    size = reduce(f.maximum, [f.intrinsic("fabs", x) for x in column])
    size = f.select(f.compare("oeq", size, zero), one, size)
    alpha, *below = (f.div(x, size) for x in column)
    total = reduce(lambda s, x: f.fma(x, x, s), below, zero)
    none = f.compare("oeq", total, zero)
    norm = f.intrinsic("sqrt", f.fma(alpha, alpha, total))
    beta = f.neg(f.intrinsic("copysign", norm, alpha))
    by = f.select(none, one, f.sub(alpha, beta))
    tau = f.div(f.sub(beta, alpha), f.select(none, one, beta))
    tau = f.select(none, zero, tau)
    vector = [f.select(none, zero, f.div(x, by)) for x in below]
    a[k][k] = f.mul(f.select(none, alpha, beta), size)
    _apply(g, a, k, (tau, vector), k + 1)
    return tau, vector


def _apply(
    g: Group, x: Matrix, k: int, reflection: tuple[Val, list[Val]], first: int = 0
) -> None:
    """Reflect the columns of x from `first` on; of the identity, those before k stay."""
    f, (tau, vector) = g.f, reflection
    for j in range(max(first, k), len(x[0])):
        pairs = list(zip(x[k + 1 :], vector, strict=True))
        total = x[k][j]
        for row, v in pairs:
            total = f.fma(row[j], v, total)
        by = f.neg(f.mul(total, tau))
        x[k][j] = f.add(x[k][j], by)
        for row, v in pairs:
            row[j] = f.fma(by, v, row[j])
