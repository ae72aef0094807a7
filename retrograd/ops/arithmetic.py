"""Arithmetic, element by element: one slope for each input."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.interpret import apply
from retrograd.core.op import Elementwise, function, op
from retrograd.core.tensor import Tensor

__all__ = [
    "add",
    "divide",
    "multiply",
    "negative",
    "positive",
    "reciprocal",
    "subtract",
    "true_divide",
]


def pair(rng: Any) -> tuple[Any, Any]:
    """Two operands that broadcast, away from zero, for samples."""
    return rng.uniform(0.5, 2, (2, 3)), -rng.uniform(0.5, 2, (3,))


def turned(rng: Any, *shape: int) -> Any:
    """Complex numbers away from zero and from the negative real axis, for samples."""
    return rng.uniform(0.5, 2, shape) * np.exp(1j * rng.uniform(-1.5, 1.5, shape))


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
        yield Add(), turned(rng, 2), turned(rng)
        yield Add(), np.zeros((0, 3)), rng.normal(size=(1, 3))

    @staticmethod
    def refuses(rng):
        yield Add(), rng.normal(size=(2, 3)), rng.normal(size=4), "shapes do not broadcast"
        yield Add(), np.array([True]), np.array([False]), "got bool; it takes numeric"


ADD = Add()


@function
def add(x1: Any, x2: Any, /) -> Tensor:
    """x1 + x2, element by element."""
    return apply(ADD, x1, x2)


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
        yield Subtract(), turned(rng), turned(rng, 2)


SUBTRACT = Subtract()


@function
def subtract(x1: Any, x2: Any, /) -> Tensor:
    """x1 - x2, element by element."""
    return apply(SUBTRACT, x1, x2)


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
        yield Multiply(), turned(rng, 2), turned(rng, 3, 1)
        yield Multiply(), rng.normal(size=()), np.zeros((2, 0))


MULTIPLY = Multiply()


@function
def multiply(x1: Any, x2: Any, /) -> Tensor:
    """x1 * x2, element by element."""
    return apply(MULTIPLY, x1, x2)


@op
class Divide(Elementwise):
    """x1 / x2."""

    takes = "inexact"

    def forward(self, x1, x2):
        return np.divide(x1, x2)

    def slope_x1(self, x2):
        return 1 / x2

    def slope_x2(self, x2, out):
        return -(out / x2)

    def lower(self, k, x1, x2):
        return x1 / x2

    @staticmethod
    def samples(rng):
        yield Divide(), *pair(rng)
        yield Divide(), rng.normal(size=(2, 1)), rng.uniform(1, 2, 3)
        yield Divide(), turned(rng, 2), turned(rng, 3, 1)
        yield Divide(), np.zeros((0, 2)), rng.uniform(1, 2, ())


DIVIDE = Divide()


@function
def divide(x1: Any, x2: Any, /) -> Tensor:
    """x1 / x2, element by element; integers are divided as float32."""
    return apply(DIVIDE, x1, x2)


@function
def true_divide(x1: Any, x2: Any, /) -> Tensor:
    """NumPy's name for `divide`."""
    return divide(x1, x2)


@op
class Reciprocal(Elementwise):
    """1 / x."""

    takes = "inexact"

    def forward(self, x):
        return np.reciprocal(x)

    def slope(self, out):
        return -(out * out)

    def lower(self, k, x):
        return 1 / x

    @staticmethod
    def samples(rng):
        yield Reciprocal(), pair(rng)[1]
        yield Reciprocal(), turned(rng, 2)


RECIPROCAL = Reciprocal()


@function
def reciprocal(x: Any, /) -> Tensor:
    """1 / x, element by element."""
    return apply(RECIPROCAL, x)


@op
class Positive(Elementwise):
    """x itself."""

    def forward(self, x):
        return x

    def slope(self):
        return 1

    def lower(self, k, x):
        return x

    @staticmethod
    def samples(rng):
        yield Positive(), rng.normal(size=(2, 3))
        yield Positive(), turned(rng)


POSITIVE = Positive()


@function
def positive(x: Any, /) -> Tensor:
    """+x: another tensor of the same values."""
    return apply(POSITIVE, x)


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
        yield Negative(), turned(rng, 2)


NEGATIVE = Negative()


@function
def negative(x: Any, /) -> Tensor:
    """-x, element by element."""
    return apply(NEGATIVE, x)
