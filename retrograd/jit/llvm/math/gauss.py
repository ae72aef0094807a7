"""erf and erfc."""

from __future__ import annotations

from retrograd.jit.llvm.math import coefficients as table
from retrograd.jit.llvm.math.exponential import exp_normal, times_exp
from retrograd.jit.llvm.math.num import Num, at_most, polynomial, where
from retrograd.jit.llvm.math.pairs import exact_product
from retrograd.jit.llvm.math.registry import function

__all__ = ["erf", "erfc"]

_ZERO = {"wide": 11.0, "f64": 28.0}  # erfc is less than half of the smallest number from here


def _small(x: Num) -> Num:
    """erf(x) up to 1."""
    return x.fma(polynomial(x * x, x.pick(table.ERF)), x)


def _tail(a: Num) -> Num:
    """erfc(a) from 1/2 on: exp(-a**2) times a polynomial of (a - 4) / (a + 4)."""
    a = at_most(a, a.pick(_ZERO))
    if a.roomy:  # one division for both
        inverse = 1.0 / ((a + 4.0) * (a + a + 1.0))
        at = (a - 4.0) * (a + a + 1.0) * inverse
        y = polynomial(at, a.pick(table.ERFC)) * ((a + 4.0) * inverse)
    else:
        y = polynomial((a - 4.0) / (a + 4.0), a.pick(table.ERFC)) / (a + a + 1.0)
    square, low = exact_product(a, a)
    return times_exp(y, -square, -low)


@function(f32=1.5, f64=1.25, outline=True)
def erf(x: Num) -> Num:
    """The error function."""
    a = abs(x)
    if x.goal == "f32":
        # From 4 on it is 1 less half an ulp.
        rest = exp_normal(-polynomial(at_most(a, 4.0), table.ERFC_LOG["f32"]))
    else:
        rest = _tail(a)
    return where(a < 0.95, _small(a), 1.0 - rest).signed(x)


@function(f64=3.5, outline=True, wide=True)
def erfc(x: Num) -> Num:
    """1 - erf(x), to full relative precision for large x."""
    a = abs(x)
    rest = _tail(a)
    return where(a < 0.5, 1.0 - _small(x), where(x < 0.0, 2.0 - rest, rest))
