"""Numbers that are read from the factors: determinants, as a fraction and a power of two."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, NamedTuple

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.math import FUNCTIONS
from retrograd.jit.llvm.text import F64, I64, PTR, Module, Val

if TYPE_CHECKING:
    from retrograd.jit.llvm.triangle_tile import Panels

__all__ = ["Product", "determinant", "numbers", "one", "times", "write_determinant"]

DIGITS, BIAS = 52, 1023  # of float64
RAISED = 54  # the power of two that makes a denormal number normal
MOST = 1000  # a power of two that is a number, and so is its inverse


def write_determinant(module: Module, s: Panels, *, logarithm: bool) -> str:
    """(low, pivots, out): the determinant, from the factors; the name of a function.

    With `logarithm`, (low, pivots, sign, size): its sign, and the logarithm of its magnitude.
    """
    name = f"lu_determinant_{s.type.suffix}_{s.n}_{logarithm:d}"
    return module.once(name, lambda: _write(module, name, s, logarithm=logarithm))


def _write(module: Module, name: str, s: Panels, *, logarithm: bool) -> None:
    outs = ("sign", "size") if logarithm else ("out",)
    args = [(n, PTR) for n in ("low", "pivots", *outs)]
    f = Fn(module, name, args, attributes="nounwind noinline")
    product = determinant(f, s, f.arg("low"), f.arg("pivots"))
    for x, where in zip(numbers(f, product, logarithm=logarithm), outs, strict=True):
        f.store(x if s.type.bits == 64 else f.convert("fptrunc", x, s.type), f.arg(where))
    f.done()


def determinant(f: Fn, s: Panels, low: Val, pivots: Val) -> Product:
    """The product of all pivots, signed by exchanges."""
    with f.loop(0, s.n, carry=list(one(f))) as loop:
        block, within = (op(loop.i, f.const(I64, s.block)) for op in (f.div, f.rem))
        skip = f.plus(s.falling(f, block), f.times(within, s.block + 1))
        x = f.load(s.type, f.at(low, skip, s.type))
        other = f.load(I64, f.at(pivots, loop.i, I64), 8)
        x = f.select(f.compare("ne", other, loop.i), f.neg(x), x)
        loop.next = list(times(f, Product(*loop.carry), x))
    return Product(*loop.results)


class Product(NamedTuple):
    """x times a power of two, with 1 <= |x| < 2; 0, infinities and nan are themselves."""

    x: Val
    power: Val


def one(f: Fn, lanes: int = 0) -> Product:
    """Nothing multiplied yet."""
    return Product(f.const(F64.by(lanes), 1.0), f.const(I64.by(lanes), 0))


def times(f: Fn, product: Product, x: Val) -> Product:
    """One more factor."""
    x, power = _parts(f, x if x.type.bits == 64 else f.convert("fpext", x, F64))
    x, more = _parts(f, f.mul(product.x, x))
    return Product(x, f.add(f.add(product.power, power), more))


def numbers(f: Fn, product: Product, *, logarithm: bool) -> list[Val]:
    """The product in float64; or its sign, and the logarithm of its magnitude."""
    t, power = product.x.type, product.power
    x = f.add(product.x, f.zero(t))  # no negative zero
    if not logarithm:
        return [_scaled(f, x, power)]
    other = f.compare("one", x, f.zero(t))
    sign = f.select(other, f.intrinsic("copysign", f.const(t, 1.0), x), x)
    high = f.mul(f.convert("sitofp", power, t.scalar), f.const(t, log(2.0)))
    size = f.add(FUNCTIONS["log"](f, f.intrinsic("fabs", x)), high)
    zero = f.compare("oeq", x, f.zero(t))
    return [sign, f.select(zero, f.const(t, float("-inf")), size)]


def _parts(f: Fn, x: Val) -> tuple[Val, Val]:
    """x as a fraction from 1 to 2, and a power of two."""
    t, whole = x.type, I64.by(x.type.lanes)
    size = f.intrinsic("fabs", x)
    tiny = f.compare("olt", size, f.const(t, 2.0 ** (1 - BIAS)))
    raised = f.select(tiny, f.mul(x, f.const(t, 2.0**RAISED)), x)
    bits = f.bits(raised)
    exponent = f.bitwise("lshr", bits, f.const(whole, DIGITS))
    exponent = f.bitwise("and", exponent, f.const(whole, 2 * BIAS + 1))
    kept = f.bitwise("and", bits, f.const(whole, ~((2 * BIAS + 1) << DIGITS)))
    fraction = f.from_bits(f.bitwise("or", kept, f.const(whole, BIAS << DIGITS)))
    down = f.select(tiny, f.const(whole, RAISED + BIAS), f.const(whole, BIAS))
    left = f.sub(size, size)  # nan if x is not finite
    odd = f.bitwise("or", f.compare("uno", left, left), f.compare("oeq", x, f.zero(t)))
    power = f.select(odd, f.zero(whole), f.sub(exponent, down))
    return f.select(odd, x, fraction), power


def _scaled(f: Fn, x: Val, power: Val) -> Val:
    """x times a power of two, in steps none of which is too large."""
    whole = power.type
    low, high = f.const(whole, -MOST), f.const(whole, MOST)
    for _ in range(3):
        step = f.select(f.compare("slt", power, low), low, power)
        step = f.select(f.compare("sgt", step, high), high, step)
        power = f.sub(power, step)
        field = f.bitwise("shl", f.add(step, f.const(whole, BIAS)), f.const(whole, DIGITS))
        x = f.mul(x, f.from_bits(field))
    return x
