"""What a program is made of when it has no inputs: numbers written into it, and counting.

While a program is traced, numbers become these and never hidden inputs, so that a compiler
sees them; a large array of one number is a literal and a broadcast, a range is counting.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.exact import Exact
from retrograd.core.interpret import apply
from retrograd.core.op import Op, function, op
from retrograd.core.spec import Spec

__all__: list[str] = []


@op
class Literal(Op):
    """A small array that is written into the program."""

    value: Exact
    no_derivative = "it is a constant"

    def shape(self) -> Spec:
        return self.value.spec

    def forward(self):
        return self.value.array

    def lower(self, k):
        return k.literal(self.value.array)

    @staticmethod
    def samples(rng):
        yield (Literal(Exact(np.float32(0.1))),)
        yield (Literal(Exact(np.array([[0.0, -0.0, np.nan], [np.inf, 5e-324, 1e300]]))),)
        yield (Literal(Exact(np.array([True, False]))),)
        yield (Literal(Exact(np.array([1 + 2j, complex(0.0, -0.0)]))),)
        yield (Literal(Exact(np.uint64(2**64 - 1))),)
        yield (Literal(Exact(np.zeros((0, 2), np.int8))),)


@op
class Iota(Op):
    """0, 1, 2, ... in int64."""

    count: int
    no_derivative = "it is a constant"

    def shape(self) -> Spec:
        return Spec((self.count,), dt.int64)

    def forward(self):
        return np.arange(self.count, dtype=np.int64)

    def lower(self, k):
        return k.iota(self.count, dt.int64)

    @staticmethod
    def samples(rng):
        yield (Iota(5),)
        yield (Iota(0),)


@function
def literal(array: Any) -> Any:
    """An array as a number of the program that is being traced."""
    return apply(Literal(Exact(array)))
