"""One of several, element by element: where, minimum, maximum, clip.

Their derivatives choose among cotangents and do not multiply them by 0 or 1: an infinite
cotangent of the side that was not taken leaves no nan.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from retrograd.core.errors import DtypeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Elementwise, Linear, function, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ops import arithmetic, compare

__all__ = ["clip", "fmax", "fmin", "maximum", "minimum", "where"]


@op
class Where(Elementwise, Linear):
    """x1 where the condition holds, x2 elsewhere."""

    fixed = ("condition",)
    takes = "any"

    def shape(self, condition: Spec, x1: Spec, x2: Spec) -> Spec:
        if condition.dtype.kind != "b":
            raise _not_a_condition(condition.dtype)
        return Elementwise.shape(self, condition, x1, x2)

    def forward(self, condition, x1, x2):
        return np.where(condition, x1, x2)

    def transpose_x1(self, g, condition):
        return apply(self, condition, g, 0.0)

    def transpose_x2(self, g, condition):
        return apply(self, condition, 0.0, g)

    def lower(self, k, condition, x1, x2):
        return k.where(condition, x1, x2)

    @staticmethod
    def samples(rng):
        mask = np.array([[True, False, True], [False, False, True]])
        yield Where(), mask, rng.normal(size=(2, 3)), rng.normal(size=3)
        yield Where(), mask[:, :1], rng.normal(size=()), rng.normal(size=3)
        yield Where(), mask[0, 0], arithmetic.turned(rng), arithmetic.turned(rng, 2)
        yield Where(), mask[:, :0], rng.normal(size=(2, 1)), rng.normal(size=())

    @staticmethod
    def refuses(rng):
        yield Where(), np.ones(2, bool), np.ones(3), np.ones(3), "shapes do not broadcast"


WHERE = Where()


@function
def where(condition: Any, x1: Any, x2: Any, /) -> Tensor:
    """x1 where `condition` holds, x2 elsewhere; only the side taken gets a gradient."""
    condition = lift(condition)
    if condition.dtype.kind != "b":
        raise _not_a_condition(condition.dtype)
    return apply(WHERE, condition, x1, x2)


def _not_a_condition(dtype: np.dtype) -> DtypeError:
    return DtypeError(
        f"where: condition must be bool; got {dtype}", hint="rg.where(condition != 0, x1, x2)"
    )


def _share(g: Any, ahead: Any, behind: Any) -> Any:
    """All of g where ahead, none where behind, half of it at ties."""
    return where(ahead, g, where(behind, 0.0, 0.5 * g))


@op
class Maximum(Elementwise):
    """The larger of two; nan if either is. Ties, and nan, share the gradient equally."""

    takes = "real"

    def forward(self, x1, x2):
        return np.maximum(x1, x2)

    def jvp(self, dx1, dx2, x1, x2):
        return where(x1 > x2, dx1, where(x1 < x2, dx2, 0.5 * (dx1 + dx2)))

    def vjp_x1(self, g, x1, x2):
        return _share(g, x1 > x2, x1 < x2)

    def vjp_x2(self, g, x1, x2):
        return _share(g, x1 < x2, x1 > x2)

    def lower(self, k, x1, x2):
        return k.maximum(x1, x2)

    @staticmethod
    def samples(rng):
        x1 = np.array([[1.0, 2.0, 3.0], [4.0, 0.0, -2.0]])
        yield Maximum(), x1, np.array([2.0, 1.0, 0.0])
        yield Maximum(), np.asarray(0.5), np.zeros((0, 2))

    @staticmethod
    def refuses(rng):
        yield Maximum(), np.ones(2) * 1j, np.ones(2), "maximum: got complex128; it takes real"


@op
class Minimum(Elementwise):
    """The smaller of two; nan if either is. Ties, and nan, share the gradient equally."""

    takes = "real"

    def forward(self, x1, x2):
        return np.minimum(x1, x2)

    def jvp(self, dx1, dx2, x1, x2):
        return where(x1 < x2, dx1, where(x1 > x2, dx2, 0.5 * (dx1 + dx2)))

    def vjp_x1(self, g, x1, x2):
        return _share(g, x1 < x2, x1 > x2)

    def vjp_x2(self, g, x1, x2):
        return _share(g, x1 > x2, x1 < x2)

    def lower(self, k, x1, x2):
        return k.minimum(x1, x2)

    @staticmethod
    def samples(rng):
        x1 = np.array([[1.0, 2.0, 3.0], [4.0, 0.0, -2.0]])
        yield Minimum(), x1, np.array([2.0, 1.0, 0.0])
        yield Minimum(), np.asarray(0.5), np.zeros((0, 2))


MAXIMUM, MINIMUM = Maximum(), Minimum()


@function
def maximum(x1: Any, x2: Any, /) -> Tensor:
    """The larger of two, element by element; nan if either is. Ties share the gradient."""
    return apply(MAXIMUM, x1, x2)


@function
def minimum(x1: Any, x2: Any, /) -> Tensor:
    """The smaller of two, element by element; nan if either is. Ties share the gradient."""
    return apply(MINIMUM, x1, x2)


@function
def fmax(x1: Any, x2: Any, /) -> Tensor:
    """The larger of two, element by element; nan only if both are. Ties share the gradient."""
    return where(compare.isnan(x1), x2, where(compare.isnan(x2), x1, maximum(x1, x2)))


@function
def fmin(x1: Any, x2: Any, /) -> Tensor:
    """The smaller of two, element by element; nan only if both are. Ties share the gradient."""
    return where(compare.isnan(x1), x2, where(compare.isnan(x2), x1, minimum(x1, x2)))


@op
class Clip(Elementwise):
    """min(max(x, low), high). At a bound the gradient is x's; beyond it, the bound's."""

    takes = "real"

    def forward(self, x, low, high):
        return np.clip(x, low, high)

    def jvp(self, dx, dlow, dhigh, x, low, high):
        above = (x > high) | (low > high)
        return where(above, dhigh, where(x < low, dlow, dx))

    def vjp_x(self, g, x, low, high):
        return where((x < low) | (x > high), 0.0, g)

    def vjp_low(self, g, x, low, high):
        return where((x < low) & (low <= high), g, 0.0)

    def vjp_high(self, g, x, low, high):
        return where((x > high) | (low > high), g, 0.0)

    def lower(self, k, x, low, high):
        return k.minimum(k.maximum(x, low), high)

    @staticmethod
    def samples(rng):
        x = np.array([[-2.0, 0.5, 3.0], [1.5, -1.5, 0.0]])
        yield Clip(), x, np.asarray(-1.0), np.asarray(1.0)
        yield Clip(), x, np.array([-1.0, 0.0, 2.0]), np.array([[1.0], [-0.5]])
        yield Clip(), x[:, :0], np.asarray(-1.0), np.asarray(1.0)

    @staticmethod
    def refuses(rng):
        yield Clip(), np.ones(2) * 1j, np.zeros(2), np.ones(2), "clip: got complex128"


CLIP = Clip()


@function
def clip(x: Any, /, min: Any = None, max: Any = None) -> Tensor:
    """x held between `min` and `max`: numbers, tensors, or None for no bound.

    At a bound the whole gradient is x's; beyond it, the bound's. Where min > max, max holds.
    """
    if min is None and max is None:
        return arithmetic.positive(x)
    if min is None or max is None:
        low, high = _limits(lift(x).dtype)
        min, max = low if min is None else min, high if max is None else max
    return apply(CLIP, x, min, max)


def _limits(dtype: np.dtype) -> tuple[Any, Any]:
    """What is no bound: weak numbers, which leave the dtype as it is."""
    if dtype.kind == "b":
        return False, True
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return -inf, inf
