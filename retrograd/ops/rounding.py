"""Rounding, neighbouring numbers, signs put on, and stop_gradient: slopes of 0 and 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core import tree
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Elementwise, function, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import arithmetic, cast, compare, magnitude, options, select

__all__ = ["ceil", "copysign", "floor", "nextafter", "round", "stop_gradient", "trunc"]


class Rounding(Elementwise):
    """To a whole number: a staircase, so the slope is 0 everywhere."""

    takes = "floating"

    def slope(self):
        return 0

    @classmethod
    def samples(cls, rng):
        yield cls(), np.array([[0.3, -0.3, 1.7], [-1.7, 2.4, -2.6]])
        yield cls(), np.asarray(-3.2)
        yield cls(), np.zeros((0, 2))


@op
class Floor(Rounding):
    """The largest whole number that is not above x. The slope is 0 everywhere."""

    def forward(self, x):
        return np.floor(x)

    def lower(self, k, x):
        return k.floor(x)


@op
class Ceil(Rounding):
    """The smallest whole number that is not below x. The slope is 0 everywhere."""

    def forward(self, x):
        return np.ceil(x)

    def lower(self, k, x):
        return k.ceil(x)


@op
class Trunc(Rounding):
    """x without its fraction, nearer to 0. The slope is 0 everywhere."""

    def forward(self, x):
        return np.trunc(x)

    def lower(self, k, x):
        return k.trunc(x)


@op
class Round(Rounding):
    """The nearest whole number, halves to the even one. The slope is 0 everywhere."""

    takes = "inexact"

    def forward(self, x):
        return np.rint(x)

    def lower(self, k, x):
        return k.round(x)


FLOOR, CEIL, TRUNC, ROUND = Floor(), Ceil(), Trunc(), Round()


def _rounded(op: Rounding, x: Any) -> Tensor:
    x = lift(x)
    return arithmetic.positive(x) if x.dtype.kind in "iu" else apply(op, x)


@function
def floor(x: Any, /) -> Tensor:
    """Each element rounded down; integers stay. The slope is 0 everywhere."""
    return _rounded(FLOOR, x)


@function
def ceil(x: Any, /) -> Tensor:
    """Each element rounded up; integers stay. The slope is 0 everywhere."""
    return _rounded(CEIL, x)


@function
def trunc(x: Any, /) -> Tensor:
    """Each element without its fraction; integers stay. The slope is 0 everywhere."""
    return _rounded(TRUNC, x)


@function
def round(x: Any, /, decimals: int = 0) -> Tensor:
    """Each element rounded to so many decimals, halves to even. The slope is 0 everywhere.

    Of complex numbers, both parts; integers stay.
    """
    x = lift(x)
    decimals = options.integer("round", "decimals", decimals)
    if not decimals or x.dtype.kind in "iu":
        return _rounded(ROUND, x)
    x = x if dt.is_inexact(x.dtype) else cast.astype(x, dt.float32)
    most = int(np.log10(float(dt.finfo(x.dtype).max)))  # farther, the scale is no number
    scale = 10.0 ** min(abs(decimals), most)
    if decimals < 0:
        return apply(ROUND, x / scale) * (scale if -decimals <= most else 0.0)
    wide = x * scale  # where that is too large, x has no digits to lose
    return select.where(compare.isfinite(wide), apply(ROUND, wide) / scale, stop_gradient(x))


@op
class Nextafter(Elementwise):
    """The number next to x1 on the way to x2. The slope by x1 is 1, by x2 it is 0."""

    half: str = ""  # the dtype to step in, where float32 computes for it
    takes = "floating"

    def forward(self, x1, x2):
        if self.half:
            dtype = dt.as_dtype("nextafter", self.half)
            x1, x2 = x1.astype(dtype), x2.astype(dtype)
        return np.nextafter(x1, x2)

    def slope_x1(self):
        return 1

    def slope_x2(self):
        return 0

    def lower(self, k, x1, x2):
        info = dt.finfo(dt.as_dtype("nextafter", self.half) if self.half else x1.dtype)
        x1, x2 = (k.cast(x, dt.float32) if self.half else x for x in (x1, x2))
        least = float(info.smallest_subnormal)
        outwards = (x2 > x1) == (x1 > 0)
        unit = 1 << ({"float16": 13, "bfloat16": 16}[self.half] if self.half else 0)
        bits = k.bits(x1)
        out = k.from_bits(k.where(outwards, bits + unit, bits - unit))
        if self.half == "float16":  # float32 has more exponents
            normal, size = float(info.tiny), k.abs(x1)
            small = (size < normal) | ((size == normal) & ~outwards)
            size = k.where(
                k.isinf(x1), float(info.max), size + k.where(outwards, least, -least)
            )
            out = k.where(small | k.isinf(x1), k.where(x1 < 0, -size, size), out)
        out = k.where(x1 == 0, k.where(x2 < 0, -least, least), out)
        out = k.where(x1 == x2, x1 if self.half == "float16" else x2, out)  # of zeros, NumPy's
        return k.where((x1 != x1) | (x2 != x2), x1 + x2, out)

    @staticmethod
    def samples(rng):
        yield Nextafter(), *arithmetic.pair(rng)
        yield Nextafter(), np.asarray(1.0), np.zeros((0, 2))


@function
def nextafter(x1: Any, x2: Any, /) -> Tensor:
    """The floating-point number next to x1 on the way to x2, element by element."""
    x1, x2 = (x if type(x) in dt._PYTHON else lift(x) for x in (x1, x2))
    common = dt.result_type(x1, x2)
    return apply(Nextafter(str(common) if common in dt.HALF else ""), x1, x2)


@op
class Copysign(Elementwise):
    """|x1| with the sign of x2. The slope by x1 is 0 at x1 = 0, by x2 it is 0 everywhere."""

    takes = "floating"

    def forward(self, x1, x2):
        return np.copysign(x1, x2)

    def slope_x1(self, x1, out):
        return magnitude.sign(x1) * magnitude.sign(out)

    def slope_x2(self):
        return 0

    def lower(self, k, x1, x2):
        return k.where(k.signbit(x1) ^ k.signbit(x2), -x1, x1)

    @staticmethod
    def samples(rng):
        x1 = np.array([[1.0, -2.0, 3.0], [-1.0, 2.0, -3.0]])
        yield Copysign(), x1, np.array([1.0, -1.0, 2.0])
        yield Copysign(), np.asarray(1.0), np.zeros((0, 2))


COPYSIGN = Copysign()


@function
def copysign(x1: Any, x2: Any, /) -> Tensor:
    """|x1| with the sign of x2, element by element, also that of -0.0.

    The slope by x1 is 1 or -1, and 0 at x1 = 0; the slope by x2 is 0.
    """
    return apply(COPYSIGN, x1, x2)


@op
class StopGradient(Elementwise):
    """x itself, as a constant: the slope is 0 everywhere."""

    fixed = ("x",)
    uniform = False
    view = True

    def shape(self, x: Spec) -> Spec:
        return x

    def forward(self, x):
        return x

    def slope(self):
        return 0

    def lower(self, k, x):
        return x

    @staticmethod
    def samples(rng):
        yield StopGradient(), rng.normal(size=(2, 3))
        yield StopGradient(), np.array([1, 2])
        yield StopGradient(), np.asarray(True)


STOP_GRADIENT = StopGradient()


@function
def stop_gradient(x: Any, /) -> Any:
    """x as a constant: no gradient passes. Of a tree, each tensor and array in it."""
    if isinstance(x, (Tensor, np.ndarray, np.generic)):
        return apply(STOP_GRADIENT, x)
    return tree.map(_stopped, x)


def _stopped(leaf: Any) -> Any:
    return apply(STOP_GRADIENT, leaf) if isinstance(leaf, (Tensor, np.ndarray)) else leaf
