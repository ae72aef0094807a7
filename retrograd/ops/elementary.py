"""Exponentials, logarithms, trigonometric and hyperbolic functions: one slope each."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.interpret import apply
from retrograd.core.op import Elementwise, function, op
from retrograd.core.tensor import Tensor


@op
class Tanh(Elementwise):
    """The hyperbolic tangent."""

    takes = "inexact"

    def forward(self, x):
        return np.tanh(x)

    def slope(self, out):
        return 1 - out * out

    def lower(self, k, x):
        return k.tanh(x)

    @staticmethod
    def samples(rng):
        yield Tanh(), rng.normal(size=(2, 3))


TANH = Tanh()


@function
def tanh(x: Any, /) -> Tensor:
    """The hyperbolic tangent of x."""
    return apply(TANH, x)
