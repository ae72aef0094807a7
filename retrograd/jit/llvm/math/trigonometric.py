"""sin, cos and tan of any argument: the rest after multiples of pi/2, and two polynomials."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.math import coefficients as table
from retrograd.jit.llvm.math import constants
from retrograd.jit.llvm.math.num import Low, Num, any_lane, merge, polynomial, where
from retrograd.jit.llvm.math.pairs import exact_product, exact_sum, ordered_sum
from retrograd.jit.llvm.math.registry import function
from retrograd.jit.llvm.text import F64, I64, PTR, Type

__all__ = ["cos", "sin", "tan"]

_HUGE = 2.0**20  # up to here multiples of the parts of pi/2 are exact
_WIDE = Type("i", 256)


class Angle(NamedTuple):
    """|x| = q pi/2 + r + low, |r| at most pi/4; only the last bits of q count."""

    q: Num
    r: Num
    low: Low


def reduce(x: Num) -> Angle:
    """The angle of |x|; the slow way is taken if some lane is huge."""
    a = abs(x)
    near = _reduce_small(a)
    huge = (a > _HUGE) & (a < np.inf)
    before = x.f.block
    with x.f.when(any_lane(huge)):
        far = _reduce_lanes(a, huge, near)
        after = x.f.block
    low = near.low
    if isinstance(low, Num) and isinstance(far.low, Num):
        low = merge(low, before, far.low, after)
    return Angle(merge(near.q, before, far.q, after), merge(near.r, before, far.r, after), low)


def _reduce_small(a: Num) -> Angle:
    """Subtract parts of a multiple of pi/2 one after another."""
    large = 1.5 * 2.0**52
    word = a.fma(constants.TWO_OVER_PI, large)
    n = word - large
    first, second, third, fourth = constants.HALF_PI_PARTS
    r = (-n).fma(first, a)
    if a.roomy:
        return Angle(word.bits(), (-n).fma(third, (-n).fma(second, r)), 0)
    r, low2 = exact_sum(r, n * -second)
    r, low3 = exact_sum(r, n * -third)
    r, low = ordered_sum(r, (-n).fma(fourth, low2 + low3))
    return Angle(word.bits(), r, low)


def _reduce_lanes(a: Num, huge: Num, near: Angle) -> Angle:
    """The angle with all huge lanes reduced by a function of one number."""
    f, lanes = a.f, a.type.lanes
    f.module.once("math_reduce_huge", lambda: _write_huge(f))
    if not lanes:
        return _call_huge(a)
    # Through memory, because a lane is chosen by a running index.
    spots = [f.alloca(F64, lanes) for _ in range(4)]
    held: list[Num] = [near.q.floats(), near.r, near.r.like(near.low)]
    for value, spot in zip([a, *held], spots, strict=True):
        f.store(value.val, spot)
    wanted = f.alloca(I64, lanes)
    f.store(huge.convert("zext", I64).val, wanted)
    with f.loop(0, lanes) as loop:
        flag = f.load(I64, f.at(wanted, loop.i, I64))
        with f.when(f.compare("ne", flag, f.const(I64, 0))):
            one = Num(f, f.load(F64, f.at(spots[0], loop.i, F64)), a.goal)
            found = _call_huge(one)
            held = [found.q.floats(), found.r, one.like(found.low)]
            for value, spot in zip(held, spots[1:], strict=True):
                f.store(value.val, f.at(spot, loop.i, F64))
    q, r, low = (a.made(f.load(a.type, spot)) for spot in spots[1:])
    return Angle(q.bits(), r, 0 if a.roomy else low)


def _call_huge(a: Num) -> Angle:
    f = a.f
    spot = f.alloca(F64, 3)
    f.call("math_reduce_huge", None, a.val, spot)
    q, r, low = (a.made(f.load(F64, f.at(spot, i, F64))) for i in range(3))
    return Angle(q.bits(), r, 0 if a.roomy else low)


def _write_huge(f: Fn) -> None:
    """A function of one number: x * 2/pi by integers, of which only 256 bits matter.

    2/pi is a table of 1280 bits. Of its product with x the whole multiples of 4 are never
    computed, and what is below the window is less than 2**-190.
    """
    g = Fn(f.module, "math_reduce_huge", [("x", F64), ("out", PTR)], attributes=_CALLED)
    bits = Num(g, g.arg("x"), "f64").bits()
    digits = (bits & (1 << 52) - 1) | 1 << 52
    # The lowest bit of the window, rounded up to bytes, and what that was too much.
    lowest = bits.like(1280 - 254 + 1075) - (bits >> 52)
    byte = (lowest + 7) >> 3
    excess = (byte << 3) - lowest
    words = g.module.table(np.array(constants.TWO_OVER_PI_WORDS, np.uint64).view(np.int64))
    start = g.make(PTR, f"getelementptr i8, {words}, {byte.val}")
    window = bits.made(g.load(_WIDE, start, 1))
    product = (window * digits.convert("zext", _WIDE)) << excess.convert("zext", _WIDE)
    rest = product << 2  # a signed fraction of pi/2: half turns the multiple up
    q = (product >> 254) + (rest >> 255)
    top = rest.made(g.bitwise("ashr", rest.val, g.const(_WIDE, 204))).convert("trunc", I64)
    pieces = [top, *((rest >> n & (1 << 52) - 1).convert("trunc", I64) for n in (152, 100))]
    a, b, c = (
        p.convert("sitofp", F64) * 2.0 ** (-52 * i) for i, p in enumerate(pieces, start=1)
    )
    high, low = ordered_sum(a, b)
    first, second = map(high.like, constants.HALF_PI_PAIR)
    r, lost = exact_product(high, first)
    r, low = ordered_sum(r, lost + high * second + (low + c) * first)
    for i, part in enumerate((q.convert("trunc", I64).floats(), r, low)):
        g.store(r.like(part).val, g.at(g.arg("out"), i, F64))
    g.done()


_CALLED = "noinline nounwind"


def _sine(angle: Angle) -> Num:
    _, r, low = angle
    z = r * r
    rest = (r * z).fma(polynomial(z, r.pick(table.SIN)), low * (1.0 - z * 0.5))
    return r + rest


def _cosine(angle: Angle) -> Num:
    _, r, low = angle
    z = r * r
    half = z * 0.5
    one, lost = ordered_sum(r.like(1.0), -half)
    rest = (z * z).fma(polynomial(z, r.pick(table.COS)), lost - r * low)
    return one + rest


def _turned(y: Num, q: Num) -> Num:
    """-y where the second last bit of q is set."""
    return (y.bits() ^ ((q & 2) << 62)).floats()


class HalfTurns(NamedTuple):
    """x = n pi + r, or |x| = (n + 1/2) pi + r, |r| at most pi/2: of float32 in float64."""

    n: Num  # only its last bit counts
    r: Num


def _half_turns(x: Num, *, between: bool) -> HalfTurns:
    """x less a multiple of pi; `between`: |x| less what lies halfway between two of them."""
    x = abs(x) if between else x
    large = 1.5 * 2.0**52
    by = constants.TWO_OVER_PI / 2
    word = x.fma(by, -0.5) + large if between else x.fma(by, large)
    n = word - large
    whole = n + 0.5 if between else n
    r = x
    for part in constants.HALF_PI_PARTS[:3]:
        r = (-whole).fma(part * 2, r)
    near = HalfTurns(word.bits(), r)
    before = x.f.block
    with x.f.when(any_lane((x if between else abs(x)) > _HUGE)):
        far = _half_turns_far(x, near, between=between)
        after = x.f.block
    return HalfTurns(*(merge(a, before, b, after) for a, b in zip(near, far, strict=True)))


def _half_turns_far(x: Num, near: HalfTurns, *, between: bool) -> HalfTurns:
    """The same with huge lanes by way of quarters."""
    a = abs(x)
    huge = (a > _HUGE) & (a < np.inf)
    q, r, _ = _reduce_lanes(a, huge, Angle(near.n, near.r, 0))
    wanted = 1 if between else 0
    moved = (q & 1).differs(wanted)
    down = r < 0.0
    quarter = r.like(constants.HALF_PI_PAIR[0])
    r = where(moved, where(down, r + quarter, r - quarter), r)
    q = where(moved, where(down, q - 1, q + 1), q)
    r = where(x < 0.0, -r, r)
    return HalfTurns(where(huge, (q - wanted) >> 1, near.n), where(huge, r, near.r))


def _long_sine(r: Num, n: Num) -> Num:
    """sin(r), |r| up to pi/2; its negative where n is odd."""
    z = r * r
    y = r * z.fma(polynomial(z, r.pick(table.SIN_LONG)), 1.0)
    return (y.bits() ^ (n << 63)).floats()


@function(f64=1, outline=True, wide=True)
def sin(x: Num) -> Num:
    """The sine."""
    if x.roomy:
        turns = _half_turns(x, between=False)
        return _long_sine(turns.r, turns.n)
    angle = reduce(x)
    odd = (angle.q & 1).differs(0)
    y = _turned(where(odd, _cosine(angle), _sine(angle)), angle.q)
    return (y.bits() ^ (x.bits() & -1 << 63)).floats()


@function(f64=1, outline=True, wide=True)
def cos(x: Num) -> Num:
    """The cosine."""
    if x.roomy:
        turns = _half_turns(x, between=True)
        return _long_sine(turns.r, turns.n + 1)
    angle = reduce(x)
    odd = (angle.q & 1).differs(0)
    return _turned(where(odd, _sine(angle), _cosine(angle)), angle.q + 1)


@function(f64=3, outline=True, wide=True)
def tan(x: Num) -> Num:
    """The tangent: of odd multiples of pi/2, minus the cotangent of the rest."""
    angle = reduce(x)
    odd = (angle.q & 1).differs(0)
    s, c = _sine(angle), _cosine(angle)
    y = where(odd, -c, s) / where(odd, s, c)
    return (y.bits() ^ (x.bits() & -1 << 63)).floats()
