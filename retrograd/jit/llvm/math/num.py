"""Numbers of a function being written, with operators: formulas instead of instructions.

    z = x * x
    y = where(x < 0.5, z, (1 - x) * 0.5)

A Num is a value together with its writer. Python numbers become constants of the other
operand's type. The integer 0 (not 0.0) is the low part that a number does not have: added it
leaves the other operand, multiplied it stays 0. So one formula serves numbers with and without
a low part.

`goal` says for which dtype the result is meant: "f32" and "f64" are computed in their own
precision; "wide" is a float32 that is computed in float64, where rounding hardly matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.text import F32, F64, I8, I16, I32, Type, Val

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from retrograd.jit.llvm.build import Fn

__all__ = [
    "Low",
    "Num",
    "any_lane",
    "at_least",
    "at_most",
    "full_vector",
    "held_within",
    "looked_up",
    "merge",
    "polynomial",
    "where",
]


class Num:
    """A float, an integer or a truth value, in every lane, that knows its writer."""

    __slots__ = ("f", "goal", "val")

    def __init__(self, f: Fn, val: Val, goal: str) -> None:
        self.f, self.val, self.goal = f, val, goal

    # -- what it is -------------------------------------------------------------------------

    @property
    def type(self) -> Type:
        """Its type."""
        return self.val.type

    @property
    def mantissa(self) -> int:
        """Bits of the fraction of a float: 23 or 52."""
        return 23 if self.type.bits == 32 else 52

    @property
    def bias(self) -> int:
        """The exponent field of 1.0."""
        return 127 if self.type.bits == 32 else 1023

    @property
    def roomy(self) -> bool:
        """Whether the type has many more digits than the result needs."""
        return self.goal == "wide"

    def made(self, val: Val) -> Num:
        """Another value of the same writer, for the same goal."""
        return Num(self.f, val, self.goal)

    def like(self, x: Any, t: Type | None = None) -> Num:
        """A constant of this type, or of `t`; numbers pass."""
        return x if isinstance(x, Num) else self.made(self.f.const(t or self.type, x))

    def pick(self, table: Mapping[str, Any]) -> Any:
        """The entry of a table of constants that belongs to the goal."""
        return table[self.goal]

    # -- arithmetic -------------------------------------------------------------------------

    def _two(self, name: str, a: Any, b: Any) -> Num:
        return self.made(getattr(self.f, name)(self.like(a).val, self.like(b).val))

    def __add__(self, b: Any) -> Num:
        return self if _absent(b) else self._two("add", self, b)

    __radd__ = __add__

    def __sub__(self, b: Any) -> Num:
        return self if _absent(b) else self._two("sub", self, b)

    def __rsub__(self, a: Any) -> Num:
        return -self if _absent(a) else self._two("sub", a, self)

    def __mul__(self, b: Any) -> Any:
        return 0 if _absent(b) else self._two("mul", self, b)

    __rmul__ = __mul__

    def __truediv__(self, b: Any) -> Num:
        return self._two("div", self, b)

    def __rtruediv__(self, a: Any) -> Num:
        return self._two("div", a, self)

    def __neg__(self) -> Num:
        return self.made(self.f.neg(self.val))

    def __abs__(self) -> Num:
        return self.call("fabs")

    def fma(self, b: Any, c: Any) -> Num:
        """self * b + c, fused where the machine can."""
        if _absent(b):
            return c
        if _absent(c):
            return self * b
        return self.made(self.f.fma(self.val, self.like(b).val, self.like(c).val))

    def call(self, name: str, *args: Any) -> Num:
        """An intrinsic of LLVM."""
        return self.made(self.f.intrinsic(name, self.val, *(self.like(a).val for a in args)))

    def sqrt(self) -> Num:
        """The square root, correctly rounded."""
        return self.call("sqrt")

    def signed(self, x: Num) -> Num:
        """The magnitude of this with the sign of x."""
        return self.call("copysign", x)

    # -- comparisons, ordered: false of NaN -------------------------------------------------

    def compare(self, predicate: str, b: Any) -> Num:
        """By a predicate of LLVM."""
        return self.made(self.f.compare(predicate, self.val, self.like(b).val))

    def __lt__(self, b: Any) -> Num:
        return self.compare("olt", b)

    def __le__(self, b: Any) -> Num:
        return self.compare("ole", b)

    def __gt__(self, b: Any) -> Num:
        return self.compare("ogt", b)

    def __ge__(self, b: Any) -> Num:
        return self.compare("oge", b)

    def equals(self, b: Any) -> Num:
        """self == b, of floats or of integers."""
        return self.compare("oeq" if self.type.kind == "f" else "eq", b)

    def differs(self, b: Any) -> Num:
        """self != b; NaN differs from all."""
        return self.compare("une" if self.type.kind == "f" else "ne", b)

    def isnan(self) -> Num:
        """Whether it is NaN."""
        return self.compare("uno", self)

    # -- bits ---------------------------------------------------------------------------------

    def _bitwise(self, op: str, b: Any) -> Num:
        return self.made(self.f.bitwise(op, self.val, self.like(b).val))

    def __and__(self, b: Any) -> Num:
        return self._bitwise("and", b)

    def __or__(self, b: Any) -> Num:
        return self._bitwise("or", b)

    def __xor__(self, b: Any) -> Num:
        return self._bitwise("xor", b)

    def __invert__(self) -> Num:
        return self._bitwise("xor", 1 if self.type.bits == 1 else -1)

    def __lshift__(self, n: int | Num) -> Num:
        return self._bitwise("shl", n)

    def __rshift__(self, n: int | Num) -> Num:  # zeros come in from the left
        return self._bitwise("lshr", n)

    def bits(self) -> Num:
        """The bit pattern of a float."""
        return self.made(self.f.bits(self.val))

    def floats(self) -> Num:
        """The float of a bit pattern."""
        return self.made(self.f.from_bits(self.val))

    def convert(self, op: str, to: Type) -> Num:
        """By an instruction of LLVM: sitofp, trunc, zext, ..."""
        return self.made(self.f.convert(op, self.val, to))

    # -- float32 by way of float64 ----------------------------------------------------------

    def widened(self) -> Num:
        """A float32 as float64; float64 passes."""
        if self.type.bits == 64:
            return self
        return Num(self.f, self.f.convert("fpext", self.val, F64), "wide")

    def narrowed(self) -> Num:
        """Back to the dtype that was meant: undoes `widened`."""
        if self.goal != "wide" or self.type.kind != "f":
            return self
        return Num(self.f, self.f.convert("fptrunc", self.val, F32), "f32")


Low = Num | int  # a low part; 0: none


def _absent(x: Any) -> bool:
    return isinstance(x, int) and x == 0


def where(mask: Num, a: Any, b: Any) -> Num:
    """a where mask, else b; one of the two is a Num."""
    shape = a if isinstance(a, Num) else b
    return shape.made(mask.f.select(mask.val, shape.like(a).val, shape.like(b).val))


def at_most(x: Num, limit: float) -> Num:
    """The smaller of both; NaN passes."""
    bound = x.like(limit)  # first in the comparison: one instruction that lets NaN through
    return where(bound < x, bound, x)


def at_least(x: Num, limit: float) -> Num:
    """The larger of both; NaN passes."""
    bound = x.like(limit)
    return where(bound > x, bound, x)


def held_within(x: Num, limit: float) -> Num:
    """x with a magnitude of at most that of `limit`; of NaN, anything within."""
    smaller = Val("2", I32)  # the one of smaller magnitude, with the sign of the first
    found = full_vector(x, "range", x.like(limit), smaller, x.like(0.0))
    return found or at_least(at_most(x, abs(limit)), -abs(limit))


def polynomial(x: Num, coefficients: Sequence[float]) -> Num:
    """c[0] + c[1] x + c[2] x**2 + ..., by Horner's rule."""
    y = x.like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        y = y.fma(x, c)
    return y


def any_lane(mask: Num) -> Val:
    """Whether the mask holds in some lane, as one truth value to branch on."""
    lanes = mask.type.lanes
    if not lanes:
        return mask.val
    word = mask.f.convert("bitcast", mask.val, Type("i", lanes))
    return mask.f.compare("ne", word, mask.f.const(word.type, 0))


def merge(x: Num, before: str, y: Num, after: str) -> Num:
    """x if control comes from block `before`, y if from `after`."""
    text = f"phi {x.type.text} [ {x.val.ref}, %{before} ], [ {y.val.ref}, %{after} ]"
    return x.made(x.f.make(x.type, text))


def full_vector(x: Num, name: str, *args: Num | Val) -> Num | None:
    """An instruction of AVX-512 on whole vectors; None where there is none."""
    f, t = x.f, x.type
    if not f.machine.masks or not t.lanes or t.bits * t.lanes % 512:
        return None
    if t.bits * t.lanes > 512:
        return _by_halves(lambda x, *own: full_vector(x, name, *own), x, *args)
    suffix, mask = ("ps", I16) if t.bits == 32 else ("pd", I8)
    full = f"llvm.x86.avx512.mask.{name}.{suffix}.512"
    operands = [a.val if isinstance(a, Num) else a for a in (x, *args)]
    operands += [Val("-1", mask), Val("4", I32)]  # all lanes; rounding as always
    f.module.declare(full, t.text, ", ".join(a.type.text for a in operands))
    return x.made(f.make(t, f"call {t.text} @{full}({', '.join(map(str, operands))})"))


def looked_up(index: Num, table: Sequence[float]) -> Num:
    """Entries of a table of 16 or 32 float32, by the last bits of integers; for AVX-512."""
    f, lanes = index.f, index.type.lanes
    if lanes > 16:
        return _by_halves(lambda part: looked_up(part, table), index)
    which = index.val
    if not lanes:
        which = f.splat(which, 16)
    elif lanes < 16:  # what the other lanes find is not read
        which = f.shuffle(which, None, [*range(lanes), *[0] * (16 - lanes)])
    t, name = F32.by(16), "llvm.x86.avx512.permvar.sf.512"
    operands = [f.vector(t, table[:16]), which]
    if len(table) > 16:
        name = "llvm.x86.avx512.vpermi2var.ps.512"
        operands.append(f.vector(t, table[16:]))
    f.module.declare(name, t.text, ", ".join(a.type.text for a in operands))
    found = f.make(t, f"call {t.text} @{name}({', '.join(map(str, operands))})")
    if lanes == 16:
        return index.made(found)
    return index.made(f.shuffle(found, None, range(lanes)) if lanes else f.extract(found, 0))


def _by_halves(g: Callable[..., Any], x: Num, *args: Num | Val) -> Num:
    """g of each half of some vectors side by side."""
    half = x.type.lanes // 2
    low, high = (
        g(*(_lanes(a, part) if isinstance(a, Num) else a for a in (x, *args)))
        for part in (range(half), range(half, 2 * half))
    )
    return x.made(x.f.shuffle(low.val, high.val, range(2 * half)))


def _lanes(x: Num, which: range) -> Num:
    return x.made(x.f.shuffle(x.val, None, which)) if x.type.lanes else x
