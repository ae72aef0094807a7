"""Eigenvalues put in order, and vectors with their signs as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.eigen_turn import DONE, FAILED
from retrograd.jit.llvm.text import F64, I64, PTR, Module, Val
from retrograd.ops.decompose.matrices import weights

if TYPE_CHECKING:
    from retrograd.jit.llvm.eigen_reduce import Symmetric

__all__ = ["write_order", "write_result"]


def write_order(module: Module, s: Symmetric, *, vectors: bool) -> str:
    """(z, d, up, state, order, signs, w): ascending eigenvalues, as they were before `up`.

    `order` has the number of each one's vector, and `signs` what makes its largest component
    positive. All is nan where x was not finite, or sweeps did not come to an end.
    """
    name = f"eigen_order_{s.key}_{vectors:d}"
    args = [(n, PTR) for n in ("z", "d", "up", "state", "order", "signs", "w")]
    f = Fn(module, name, args, attributes="nounwind noinline")
    return module.once(name, lambda: _write_order(f, s, vectors=vectors))


def _write_order(f: Fn, s: Symmetric, *, vectors: bool) -> None:
    t, nan = s.type, f.const(s.type, float("nan"))
    state = f.load(I64, f.at(f.arg("state"), DONE, I64))
    up = f.load(t, f.arg("up"))
    up = f.select(f.compare("eq", state, f.const(I64, FAILED)), nan, up)
    bad = f.compare("uno", up, up)
    with f.loop(0, s.n) as loop:
        d = f.load(F64, f.at(f.arg("d"), loop.i, F64))
        place = _rank(f, s, loop.i, d)
        spot = f.at(f.arg("w"), place, t)
        f.store(f.div(f.convert("fptrunc", d, t), up), spot)
        f.store(loop.i, f.at(f.arg("order"), place, I64))
        if vectors:
            sign = f.select(bad, nan, _sign(f, s, loop.i))
            f.store(sign, f.at(f.arg("signs"), place, t))
    f.done()


def _rank(f: Fn, s: Symmetric, i: Val, d: Val) -> Val:
    """How many come before; of equal ones those with lower numbers."""
    count = f.const(I64, 0)
    for low, high, before in ((0, i, "ole"), (f.add(i, f.const(I64, 1)), s.n, "olt")):
        with f.loop(low, high, carry=[count]) as loop:
            other = f.load(F64, f.at(f.arg("d"), loop.i, F64))
            less = f.convert("zext", f.compare(before, other, d), I64)
            loop.next = [f.add(loop.carry[0], less)]
        count = loop.results[0]
    return count


def _sign(f: Fn, s: Symmetric, i: Val) -> Val:
    """1 or -1: of the component that is the largest, the first of those that tie."""
    t, wide = s.type, s.wide
    table = np.zeros((s.strips, s.across), np.float32 if t.bits == 32 else np.float64)
    table.ravel()[: s.n] = weights(s.n, table.dtype)
    falling = f.module.table(table)
    row = f.at(f.arg("z"), f.times(i, s.across), t)

    with f.loop(0, s.strips, carry=[f.zero(wide)] * 2) as loop:
        high, low = loop.carry
        for j in range(0, s.across, s.lanes):
            x = f.load(wide, f.at(row, f.plus(f.times(loop.i, s.n * s.across), j), t))
            y = f.load(wide, f.at(falling, f.plus(f.times(loop.i, s.across), j), t))
            x = f.mul(x, y)
            high = f.select(f.compare("ogt", x, high), x, high)
            low = f.select(f.compare("olt", x, low), x, low)
        loop.next = [high, low]
    high = f.fold("maximum", loop.results[0])
    low = f.neg(f.fold("minimum", loop.results[1]))
    return f.select(f.compare("olt", high, low), f.const(t, -1), f.const(t, 1))


def write_result(module: Module, s: Symmetric) -> str:
    """(z, order, signs, vectors, row): of the matrix whose columns are the vectors, a row."""
    name = f"eigen_result_{s.key}"
    args = [(n, PTR) for n in ("z", "order", "signs", "vectors")]
    f = Fn(module, name, [*args, ("row", I64)], attributes="nounwind noinline")
    return module.once(name, lambda: _write_result(f, s))


def _write_result(f: Fn, s: Symmetric) -> None:
    t, row = s.type, f.arg("row")
    strip = f.div(row, f.const(I64, s.across), signed=False)
    rest = f.sub(row, f.mul(strip, f.const(I64, s.across)))
    z = f.at(f.arg("z"), f.plus(f.times(strip, s.n * s.across), rest), t)
    to = f.at(f.arg("vectors"), f.times(row, s.n), t)
    with f.loop(0, s.n) as along:
        number = f.load(I64, f.at(f.arg("order"), along.i, I64))
        x = f.load(t, f.at(z, f.times(number, s.across), t))
        sign = f.load(t, f.at(f.arg("signs"), along.i, t))
        f.store(f.mul(x, sign), f.at(to, along.i, t))
    f.done()
