"""Whole quotients and exact remainders, as C has them but defined for every operand.

The remainder of floats is exact at any distance of their exponents: long division of their
mantissas in integers, some bits at a time. Dividing an integer by 0 gives 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.text import F64, I64

if TYPE_CHECKING:
    from retrograd.jit.llvm.text import Val

__all__ = ["quotient", "rest", "rest_of_floats"]

NAME = "exact_remainder"
MANTISSA = 52
ROOM = 11  # bits that a mantissa leaves free in 64
BIAS = 1023


def quotient(f: Fn, a: Val, b: Val, *, signed: bool) -> Val:
    """a / b of integers, towards zero; 0 if b is 0, and wrapped if it does not fit."""
    zero = f.compare("eq", b, f.zero(b.type))
    safe = _safe(f, b, zero, signed=signed)
    found = f.div(a, safe, signed=signed)
    if signed:
        found = f.select(_minus_one(f, b), f.neg(a), found)
    return f.select(zero, f.zero(a.type), found)


def rest(f: Fn, a: Val, b: Val, *, signed: bool) -> Val:
    """What that division leaves, with the sign of a; 0 if b is 0."""
    zero = f.compare("eq", b, f.zero(b.type))
    found = f.rem(a, _safe(f, b, zero, signed=signed), signed=signed)
    return f.select(zero, f.zero(a.type), found)


def _minus_one(f: Fn, b: Val) -> Val:
    return f.compare("eq", b, f.const(b.type, -1))


def _safe(f: Fn, b: Val, zero: Val, *, signed: bool) -> Val:
    """A divisor that no processor traps at: not 0, and not -1, whose quotient may not fit."""
    bad = f.bitwise("or", zero, _minus_one(f, b)) if signed else zero
    return f.select(bad, f.const(b.type, 1), b)


def rest_of_floats(f: Fn, a: Val, b: Val) -> Val:
    """a - b * trunc(a / b), exactly; NaN if a is infinite or b is 0."""
    t = a.type
    name = f.module.once(NAME, lambda: _write(f))
    a, b = (x if t.bits == 64 else f.convert("fpext", x, F64) for x in (a, b))
    if not t.lanes:
        found = f.call(name, F64, a, b)
        assert found is not None
    else:
        with f.loop(0, t.lanes, 1, [a]) as loop:
            one = f.call(name, F64, f.extract(a, loop.i), f.extract(b, loop.i))
            assert one is not None
            loop.next = [f.insert(loop.carry[0], one, loop.i)]
        found = loop.results[0]
    return found if t.bits == 64 else f.convert("fptrunc", found, t.scalar)


def _write(outer: Fn) -> None:
    """The function of two float64."""
    f = Fn(outer.module, NAME, [("a", F64), ("b", F64)], F64, attributes="noinline nounwind")
    a, b = f.arg("a"), f.arg("b")
    size, by = f.intrinsic("fabs", a), f.intrinsic("fabs", b)
    infinite = f.compare("oeq", size, f.const(F64, float("inf")))
    bad = f.bitwise("or", infinite, f.compare("ueq", by, f.const(F64, 0.0)))
    bad = f.bitwise("or", bad, f.compare("uno", a, a))
    near = f.compare("olt", size, by)
    plain = f.bitwise("or", bad, near)
    m, e = _parts(f, size)
    n, low = _parts(f, f.select(plain, f.const(F64, 1.0), by))
    far = f.select(plain, f.zero(I64), f.sub(e, low))
    left = f.rem(m, n, signed=False)
    room = f.const(I64, ROOM)
    with f.loop(0, f.div(far, room, signed=False), 1, [left]) as loop:
        more = f.bitwise("shl", loop.carry[0], room)
        loop.next = [f.rem(more, n, signed=False)]
    last = f.bitwise("shl", loop.results[0], f.rem(far, room, signed=False))
    found = f.mul(f.convert("uitofp", f.rem(last, n, signed=False), F64), _power(f, low))
    found = f.select(near, size, found)
    found = f.select(bad, f.const(F64, float("nan")), found)
    f.done(f.intrinsic("copysign", found, a))


def _parts(f: Fn, x: Val) -> tuple[Val, Val]:
    """x >= 0 as mantissa * 2**(exponent - BIAS - MANTISSA), whole numbers both."""
    bits = f.bits(x)
    exponent = f.bitwise("lshr", bits, f.const(I64, MANTISSA))
    fraction = f.bitwise("and", bits, f.const(I64, (1 << MANTISSA) - 1))
    small = f.compare("eq", exponent, f.zero(I64))
    whole = f.bitwise("or", fraction, f.const(I64, 1 << MANTISSA))
    one = f.const(I64, 1)
    return f.select(small, fraction, whole), f.select(small, one, exponent)


def _power(f: Fn, exponent: Val) -> Val:
    """2**(exponent - BIAS - MANTISSA), exactly, where it is subnormal too."""
    normal = f.bitwise("shl", f.sub(exponent, f.const(I64, MANTISSA)), f.const(I64, MANTISSA))
    place = f.select(_large(f, exponent), f.zero(I64), f.sub(exponent, f.const(I64, 1)))
    tiny = f.bitwise("shl", f.const(I64, 1), place)
    return f.from_bits(f.select(_large(f, exponent), normal, tiny))


def _large(f: Fn, exponent: Val) -> Val:
    return f.compare("sgt", exponent, f.const(I64, MANTISSA))
