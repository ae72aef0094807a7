"""Bessel functions of order 0 and 1, ordinary and modified. SciPy, an extra, computes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.interpret import apply
from retrograd.core.op import Elementwise, op
from retrograd.core.tensor import Tensor
from retrograd.ops import magnitude, select
from retrograd.ops.incomplete import scipy_special

__all__ = ["i0", "i0e", "i1", "i1e", "j0", "j1"]


@op
class Bessel(Elementwise):
    """A Bessel function by its SciPy name: j0, j1, i0, i1, i0e, i1e (times exp(-|x|))."""

    kind: str
    takes = "floating"
    host = "SciPy"

    def forward(self, x):
        return getattr(scipy_special(self.kind), self.kind)(x).astype(x.dtype, copy=False)

    def slope(self, x):
        other = {"j0": "j1", "j1": "j0", "i0": "i1", "i1": "i0", "i0e": "i1e", "i1e": "i0e"}
        paired, own = apply(Bessel(other[self.kind]), x), apply(self, x)
        if self.kind == "j0":
            return -paired
        if self.kind == "i0":
            return paired
        if self.kind == "i0e":
            return paired - magnitude.sign(x) * own
        ratio = select.where(x == 0, 0.5, own / select.where(x == 0, 1.0, x))  # its limit
        if self.kind == "i1e":
            return paired - ratio - magnitude.sign(x) * own
        return paired - ratio

    @staticmethod
    def samples(rng):
        x = rng.uniform(0.4, 4, (2, 3)) * np.array([[1.0], [-1.0]])
        for kind in ("j0", "j1", "i0", "i1", "i0e", "i1e"):
            yield Bessel(kind), x


def j0(x: Any, /) -> Tensor:
    """The Bessel function of the first kind, order 0."""
    return apply(Bessel("j0"), x)


def j1(x: Any, /) -> Tensor:
    """The Bessel function of the first kind, order 1."""
    return apply(Bessel("j1"), x)


def i0(x: Any, /) -> Tensor:
    """The modified Bessel function, order 0."""
    return apply(Bessel("i0"), x)


def i1(x: Any, /) -> Tensor:
    """The modified Bessel function, order 1."""
    return apply(Bessel("i1"), x)


def i0e(x: Any, /) -> Tensor:
    """i0(x) exp(-|x|), which does not overflow."""
    return apply(Bessel("i0e"), x)


def i1e(x: Any, /) -> Tensor:
    """i1(x) exp(-|x|), which does not overflow."""
    return apply(Bessel("i1e"), x)
