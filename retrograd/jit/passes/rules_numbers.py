"""Rules about numbers: neutral elements, signs, powers, choices, conversions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.jit.passes.table import View, rule
from retrograd.ops import arithmetic, cast, logic, magnitude, power, rounding, select

if TYPE_CHECKING:
    from retrograd.jit.passes.table import Found

__all__: list[str] = []


# -- neutral elements ------------------------------------------------------------------------


@rule(arithmetic.Multiply)
def times_one(view: View) -> Found:
    """x * 1 and 1 * x are x."""
    for i in (0, 1):
        if view.is_number(i, 1):
            return view.inputs[1 - i]
    return None


@rule(arithmetic.Divide)
def over_one(view: View) -> Found:
    """x / 1 is x."""
    return view.inputs[0] if view.is_number(1, 1) else None


@rule(arithmetic.Add)
def plus_nothing(view: View) -> Found:
    """x + -0.0 is x, also where x is 0.0; x + 0.0 is not where x is -0.0. Integers: x + 0."""
    for i in (0, 1):
        if view.is_number(i, -0.0 if view.floating else 0):
            return view.inputs[1 - i]
    return None


@rule(arithmetic.Subtract)
def minus_nothing(view: View) -> Found:
    """x - 0.0 is x, also where x is -0.0."""
    return view.inputs[0] if view.is_number(1, 0) else None


@rule(arithmetic.Divide)
def over_a_power_of_two(view: View) -> Found:
    """x / 2**n is x * 2**-n where both powers are normal numbers: one exact value, rounded."""
    by = view.number(1)
    if by is None or not view.floating:
        return None
    wide = float(by)
    mantissa, _ = np.frexp(wide)
    if abs(mantissa) != 0.5:
        return None
    inverse, least = 1.0 / wide, float(np.finfo(_computed(by.dtype)).tiny)
    if not least <= abs(inverse) or not least <= abs(wide) or abs(inverse) > _largest(by.dtype):
        return None
    return arithmetic.Multiply(), (view.inputs[0], view.literal(np.asarray(inverse, by.dtype)))


def _computed(dtype: np.dtype) -> Any:
    """The dtype whose normal numbers count; bfloat16 has those of float32."""
    return dt.float32 if dtype == dt.bfloat16 else dtype


def _largest(dtype: np.dtype) -> float:
    return 2.0**127 if dtype == dt.bfloat16 else float(np.finfo(dtype).max)


# -- signs -----------------------------------------------------------------------------------


@rule(arithmetic.Negative)
def negative_of_negative(view: View) -> Found:
    """-(-x) is x."""
    inner = view.made(0, arithmetic.Negative)
    return inner and inner.inputs[0]


@rule(arithmetic.Add)
def plus_negative(view: View) -> Found:
    """x + -y is x - y."""
    for i in (1, 0):
        inner = view.made(i, arithmetic.Negative)
        if inner:
            return arithmetic.Subtract(), (view.inputs[1 - i], inner.inputs[0])
    return None


@rule(arithmetic.Subtract)
def minus_negative(view: View) -> Found:
    """x - -y is x + y."""
    inner = view.made(1, arithmetic.Negative)
    return inner and (arithmetic.Add(), (view.inputs[0], inner.inputs[0]))


@rule(arithmetic.Multiply, arithmetic.Divide)
def signs_cancel(view: View) -> Found:
    """-x * -y is x * y, and so it is divided."""
    if not view.real:
        return None
    both = [view.made(i, arithmetic.Negative) for i in (0, 1)]
    return (view.op, tuple(n.inputs[0] for n in both)) if all(both) else None


@rule(magnitude.Abs, power.Square)
def sign_is_lost(view: View) -> Found:
    """|-x| is |x|, (-x)**2 is x**2."""
    inner = view.made(0, arithmetic.Negative) if view.real else None
    return inner and (view.op, inner.inputs)


@rule(magnitude.Abs)
def absolute_twice(view: View) -> Found:
    """||x|| is |x|."""
    return view.inputs[0] if view.made(0, magnitude.Abs) else None


# -- x itself --------------------------------------------------------------------------------


@rule(arithmetic.Positive, rounding.StopGradient)
def itself(view: View) -> Found:
    """+x is x; a compiled program is not differentiated any more."""
    return view.inputs[0]


@rule(select.Maximum, select.Minimum)
def larger_of_one(view: View) -> Found:
    """The larger of x and x is x."""
    return view.inputs[0] if view.inputs[0] == view.inputs[1] else None


@rule(logic.LogicalNot)
def not_not(view: View) -> Found:
    """Not not x is x, for truth values."""
    inner = view.made(0, logic.LogicalNot)
    ours = inner and view.writer.specs[inner.inputs[0]].dtype == dt.bool
    return inner.inputs[0] if ours else None


# -- powers ----------------------------------------------------------------------------------


@rule(power.IntegerPower)
def whole_powers(view: View) -> Found:
    """x**1 is x, x**2 is x * x."""
    if view.op.n == 1:
        return view.inputs[0]
    return (power.Square(), view.inputs) if view.op.n == 2 and view.real else None


@rule(power.Pow)
def known_powers(view: View) -> Found:
    """x to a literal 1 is x, to a literal 2 is x * x, rounded once."""
    if not view.floating or view.spec(1).ndim:
        return None
    if view.is_number(1, 1):
        return view.inputs[0]
    return (power.Square(), view.inputs[:1]) if view.is_number(1, 2) else None


# -- choices ---------------------------------------------------------------------------------


@rule(select.Where)
def known_choice(view: View) -> Found:
    """where(True, x, y) is x; where(c, x, x) is x."""
    _, x, y = view.inputs
    chosen = view.number(0)
    if x == y:
        return x
    return None if chosen is None else x if chosen else y


@rule(select.Where)
def turned_choice(view: View) -> Found:
    """where(not c, x, y) is where(c, y, x)."""
    inner = view.made(0, logic.LogicalNot)
    if not inner or view.writer.specs[inner.inputs[0]].dtype != dt.bool:
        return None
    return view.op, (inner.inputs[0], view.inputs[2], view.inputs[1])


@rule(select.Where)
def choice_in_choice(view: View) -> Found:
    """where(c, where(c, x, y), z) is where(c, x, z); and on the other side."""
    c, x, y = view.inputs
    for i, keep in ((1, 1), (2, 2)):
        inner = view.made(i, select.Where)
        if inner and inner.inputs[0] == c:
            new = inner.inputs[keep]
            return view.op, (c, new, y) if i == 1 else (c, x, new)
    return None


# -- conversions -----------------------------------------------------------------------------


@rule(cast.Astype)
def cast_to_its_own(view: View) -> Found:
    """x in the dtype that it has is x."""
    return view.inputs[0] if view.spec(0).dtype == view.out.dtype else None


@rule(cast.Astype)
def cast_of_cast(view: View) -> Found:
    """A conversion on the way in which nothing is lost is left out."""
    inner = view.made(0, cast.Astype)
    if not inner:
        return None
    first, middle, last = (
        view.writer.specs[inner.inputs[0]].dtype,
        view.spec(0).dtype,
        view.out.dtype,
    )
    return (view.op, inner.inputs) if _skips(first, middle, last) else None


def _skips(first: np.dtype, middle: np.dtype, last: np.dtype) -> bool:
    """Whether first to middle to last is first to last, also for what does not fit in last."""
    if not lossless(first, middle):
        return False
    if last.kind in "iu":  # floats that do not fit: C does not say what they become
        return dt.rank(first) <= 1 and dt.rank(middle) <= 1
    if last in dt.HALF:  # half precision is reached by way of float32, from floats once
        return first in (*dt.HALF, dt.float32)
    return True


def lossless(first: np.dtype, wide: np.dtype) -> bool:
    """Whether every number of `first` is one of `wide`."""
    if first in (wide, dt.bool):
        return True
    if wide == dt.bool or dt.rank(first) > dt.rank(wide):
        return False
    if dt.rank(first) == 1 == dt.rank(wide):
        own, other = np.iinfo(first), np.iinfo(wide)
        return other.min <= own.min and own.max <= other.max
    a, b = dt.real_of(first), dt.real_of(wide)
    if dt.rank(first) == 1:
        return np.iinfo(first).bits <= _digits(b)
    return a == b or a.itemsize < b.itemsize


def _digits(dtype: np.dtype) -> int:
    """The binary digits of a float's significand."""
    return 8 if dtype == dt.bfloat16 else int(np.finfo(dtype).nmant) + 1
