"""Arithmetic, element by element: one slope for each input."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.interpret import apply
from retrograd.core.op import Elementwise, function, op
from retrograd.core.tensor import Tensor


def pair(rng: Any) -> tuple[Any, Any]:
    """Two operands that broadcast, away from zero, for samples."""
    return rng.uniform(0.5, 2, (2, 3)), -rng.uniform(0.5, 2, (3,))


@op
class Add(Elementwise):
    """x1 + x2."""

    def forward(self, x1, x2):
        return np.add(x1, x2)

    def slope_x1(self):
        return 1

    def slope_x2(self):
        return 1

    def lower(self, k, x1, x2):
        return x1 + x2

    @staticmethod
    def samples(rng):
        yield Add(), *pair(rng)
        yield Add(), rng.normal(size=(4, 1)), rng.normal(size=(1, 3))

    @staticmethod
    def refuses(rng):
        yield Add(), rng.normal(size=(2, 3)), rng.normal(size=4), "shapes do not broadcast"


ADD = Add()


@function
def add(x1: Any, x2: Any, /) -> Tensor:
    """x1 + x2, element by element."""
    return apply(ADD, x1, x2)


@op
class Multiply(Elementwise):
    """x1 * x2."""

    def forward(self, x1, x2):
        return np.multiply(x1, x2)

    def slope_x1(self, x2):
        return x2

    def slope_x2(self, x1):
        return x1

    def lower(self, k, x1, x2):
        return x1 * x2

    @staticmethod
    def samples(rng):
        yield Multiply(), *pair(rng)


MULTIPLY = Multiply()


@function
def multiply(x1: Any, x2: Any, /) -> Tensor:
    """x1 * x2, element by element."""
    return apply(MULTIPLY, x1, x2)


@op
class Negative(Elementwise):
    """-x."""

    def forward(self, x):
        return np.negative(x)

    def slope(self):
        return -1

    def lower(self, k, x):
        return -x

    @staticmethod
    def samples(rng):
        yield Negative(), rng.normal(size=(2, 3))


@function
def negative(x: Any, /) -> Tensor:
    """-x, element by element."""
    return apply(Negative(), x)


@op
class Subtract(Elementwise):
    """x1 - x2."""

    def forward(self, x1, x2):
        return np.subtract(x1, x2)

    def slope_x1(self):
        return 1

    def slope_x2(self):
        return -1

    def lower(self, k, x1, x2):
        return x1 - x2

    @staticmethod
    def samples(rng):
        yield Subtract(), *pair(rng)


@function
def subtract(x1: Any, x2: Any, /) -> Tensor:
    """x1 - x2, element by element."""
    return apply(Subtract(), x1, x2)
