"""Numbers of twice the precision: a sum of two floats, the low one at most half an ulp.

Where the goal leaves room (a float32 computed in float64) there is no low part: it is 0.
"""

from __future__ import annotations

from retrograd.jit.llvm.math.num import Low, Num

__all__ = ["exact_product", "exact_sum", "high_half", "ordered_sum"]

Pair = tuple[Num, Low]


def exact_sum(a: Num, b: Num) -> Pair:
    """a + b and what its rounding lost."""
    s = a + b
    if s.roomy:
        return s, 0
    back = s - a
    return s, (a - (s - back)) + (b - back)


def ordered_sum(a: Num, b: Num) -> Pair:
    """As `exact_sum`, where |a| >= |b| or a is 0."""
    s = a + b
    return (s, 0) if s.roomy else (s, b - (s - a))


def high_half(a: Num) -> Num:
    """The number with the lower half of its digits cut off: its square is exact."""
    keep = -1 << (a.mantissa + 2) // 2
    return (a.bits() & keep).floats()


def exact_product(a: Num, b: Num) -> Pair:
    """a * b and what its rounding lost; halves of the digits do it where there is no fma."""
    p = a * b
    if p.roomy:
        return p, 0
    if p.f.machine.fma:
        return p, a.fma(b, -p)
    a1 = high_half(a)
    b1 = a1 if b is a else high_half(b)
    a2, b2 = a - a1, b - b1
    return p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2
