"""Logic on truth values, and on the bits of integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.errors import DtypeError
from retrograd.core.interpret import apply
from retrograd.core.op import Elementwise, function, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops.compare import Predicate

__all__ = [
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
]

TRUTH = np.array([[True, True], [False, False]])
BITS = np.array([[12, -5], [0, 7]])


class Logical(Predicate):
    """Logic on truth values: everything but 0 is true, nan too."""

    uniform = False

    @classmethod
    def samples(cls, rng):
        pads = (np.array([True, False]),) * (len(cls.inputs) - 1)
        yield cls(), TRUTH, *pads
        yield cls(), np.array([[0.0, 2.0], [np.nan, -0.0]]), *pads
        yield cls(), np.zeros((0, 2)), *pads


@op
class LogicalAnd(Logical):
    """Whether x1 and x2 both hold."""

    def forward(self, x1, x2):
        return np.logical_and(x1, x2)

    def lower(self, k, x1, x2):
        return (x1 != 0) & (x2 != 0)


@op
class LogicalOr(Logical):
    """Whether x1 or x2 holds."""

    def forward(self, x1, x2):
        return np.logical_or(x1, x2)

    def lower(self, k, x1, x2):
        return (x1 != 0) | (x2 != 0)


@op
class LogicalXor(Logical):
    """Whether exactly one of x1 and x2 holds."""

    def forward(self, x1, x2):
        return np.logical_xor(x1, x2)

    def lower(self, k, x1, x2):
        return (x1 != 0) ^ (x2 != 0)


@op
class LogicalNot(Logical):
    """Whether x does not hold."""

    def forward(self, x):
        return np.logical_not(x)

    def lower(self, k, x):
        return x == 0


LOGICAL_AND, LOGICAL_OR = LogicalAnd(), LogicalOr()
LOGICAL_XOR, LOGICAL_NOT = LogicalXor(), LogicalNot()


@function
def logical_and(x1: Any, x2: Any, /) -> Tensor:
    """Whether x1 and x2 both hold, element by element; everything but 0 is true."""
    return apply(LOGICAL_AND, x1, x2)


@function
def logical_or(x1: Any, x2: Any, /) -> Tensor:
    """Whether x1 or x2 holds, element by element; everything but 0 is true."""
    return apply(LOGICAL_OR, x1, x2)


@function
def logical_xor(x1: Any, x2: Any, /) -> Tensor:
    """Whether exactly one of x1 and x2 holds, element by element; everything but 0 is true."""
    return apply(LOGICAL_XOR, x1, x2)


@function
def logical_not(x: Any, /) -> Tensor:
    """Whether x does not hold, element by element; everything but 0 is true."""
    return apply(LOGICAL_NOT, x)


class Bitwise(Elementwise):
    """Logic on the bits of integers; a bool is one bit."""

    takes = "integral"
    no_derivative = "its result is made of bits"

    def shape(self, *specs: Spec) -> Spec:
        if specs[0].dtype.kind not in "biu":
            raise DtypeError(f"{self.name}: got {specs[0].dtype}; it takes bool and integers")
        return Elementwise.shape(self, *specs)

    @classmethod
    def samples(cls, rng):
        pads = (np.array([10, 3]),) * (len(cls.inputs) - 1)
        yield cls(), BITS, *pads
        yield cls(), BITS[:0], *pads
        yield cls(), TRUTH, *(p > 5 for p in pads)

    @classmethod
    def refuses(cls, rng):
        yield cls(), *(np.ones(2),) * len(cls.inputs), "got float64; it takes"


@op
class BitwiseAnd(Bitwise):
    """The bits that are set in both."""

    def forward(self, x1, x2):
        return np.bitwise_and(x1, x2)

    def lower(self, k, x1, x2):
        return x1 & x2


@op
class BitwiseOr(Bitwise):
    """The bits that are set in either."""

    def forward(self, x1, x2):
        return np.bitwise_or(x1, x2)

    def lower(self, k, x1, x2):
        return x1 | x2


@op
class BitwiseXor(Bitwise):
    """The bits that are set in exactly one."""

    def forward(self, x1, x2):
        return np.bitwise_xor(x1, x2)

    def lower(self, k, x1, x2):
        return x1 ^ x2


@op
class BitwiseInvert(Bitwise):
    """All bits turned over."""

    def forward(self, x):
        return np.invert(x)

    def lower(self, k, x):
        return ~x


BITWISE_AND, BITWISE_OR = BitwiseAnd(), BitwiseOr()
BITWISE_XOR, BITWISE_INVERT = BitwiseXor(), BitwiseInvert()


@function
def bitwise_and(x1: Any, x2: Any, /) -> Tensor:
    """The bits that are set in both, element by element; of bools, logical and."""
    return apply(BITWISE_AND, x1, x2)


@function
def bitwise_or(x1: Any, x2: Any, /) -> Tensor:
    """The bits that are set in either, element by element; of bools, logical or."""
    return apply(BITWISE_OR, x1, x2)


@function
def bitwise_xor(x1: Any, x2: Any, /) -> Tensor:
    """The bits that are set in exactly one, element by element; of bools, logical xor."""
    return apply(BITWISE_XOR, x1, x2)


@function
def bitwise_invert(x: Any, /) -> Tensor:
    """All bits turned over, element by element; of bools, logical not."""
    return apply(BITWISE_INVERT, x)


@function
def bitwise_not(x: Any, /) -> Tensor:
    """NumPy's name for `bitwise_invert`."""
    return bitwise_invert(x)


class BitShift(Elementwise):
    """Bits moved by x2 places; by more places than there are, all of them leave."""

    no_derivative = Bitwise.no_derivative

    def shape(self, x1: Spec, x2: Spec) -> Spec:
        if x1.dtype.kind not in "iu":
            raise DtypeError(f"{self.name}: got {x1.dtype}; it takes integers")
        return Elementwise.shape(self, x1, x2)

    @staticmethod
    def places(k, x1, x2):
        """Whether there are so many places, and how many that are."""
        fits = (x2 >= 0) & (x2 < 8 * x1.dtype.itemsize)
        return fits, k.where(fits, x2, 0)

    @classmethod
    def samples(cls, rng):
        yield cls(), BITS, np.array([1, 3])
        yield cls(), np.asarray(-9), np.array([0, 2, 62, 64, 100])

    @classmethod
    def refuses(cls, rng):
        yield cls(), np.ones(2), np.ones(2), "got float64; it takes integers"
        yield cls(), TRUTH, TRUTH, "got bool; it takes numeric"


@op
class BitwiseLeftShift(BitShift):
    """The bits of x1 moved up by x2 places."""

    def forward(self, x1, x2):
        return np.left_shift(x1, x2)

    def lower(self, k, x1, x2):
        fits, by = self.places(k, x1, x2)
        return k.where(fits, x1 << by, 0)


@op
class BitwiseRightShift(BitShift):
    """The bits of x1 moved down by x2 places; the sign moves in."""

    def forward(self, x1, x2):
        return np.right_shift(x1, x2)

    def lower(self, k, x1, x2):
        fits, by = self.places(k, x1, x2)
        gone = k.where(x1 < 0, -1, 0) if x1.dtype.kind == "i" else 0
        return k.where(fits, x1 >> by, gone)


LEFT_SHIFT, RIGHT_SHIFT = BitwiseLeftShift(), BitwiseRightShift()


@function
def bitwise_left_shift(x1: Any, x2: Any, /) -> Tensor:
    """The bits of x1 moved up by x2 places, element by element; zeros move in."""
    return apply(LEFT_SHIFT, x1, x2)


@function
def bitwise_right_shift(x1: Any, x2: Any, /) -> Tensor:
    """The bits of x1 moved down by x2 places, element by element; the sign moves in."""
    return apply(RIGHT_SHIFT, x1, x2)
