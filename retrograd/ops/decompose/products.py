"""Products of vectors and chains of matrices."""

from __future__ import annotations

from itertools import pairwise
from string import ascii_letters
from typing import Any

from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Multilinear, aligned, op
from retrograd.core.spec import Spec, broadcast_shapes, spec_of
from retrograd.core.tensor import Tensor
from retrograd.ops import einsum, shape, turn

__all__ = ["cross", "multi_dot"]


@op
class Cross(Multilinear):
    """The cross product of vectors of length 3 along the last axis; the others broadcast."""

    def shape(self, x1: Spec, x2: Spec) -> Spec:
        for name, x in (("x1", x1), ("x2", x2)):
            if x.shape[-1:] != (3,):
                raise ShapeError(
                    f"cross: the vectors of {name} {x.shape} must have length 3, along axis"
                )
        return x1.with_shape(broadcast_shapes("cross", x1=x1.shape, x2=x2.shape))

    def forward(self, x1, x2):
        self.shape(spec_of(x1), spec_of(x2))
        after, before = [1, 2, 0], [2, 0, 1]
        return x1[..., after] * x2[..., before] - x1[..., before] * x2[..., after]

    def transpose_x1(self, g, x2):
        return apply(CROSS, x2, g)

    def transpose_x2(self, g, x1):
        return apply(CROSS, g, x1)

    def batch(self, size, args, mapped):
        return apply(CROSS, *aligned(size, args, mapped))

    def expand(self, x1, x2):
        after, before = ([turn.roll(x, k, axis=-1) for x in (x1, x2)] for k in (-1, -2))
        return after[0] * before[1] - before[0] * after[1]

    @staticmethod
    def samples(rng):
        yield Cross(), rng.normal(size=(2, 3)), rng.normal(size=3)
        yield Cross(), rng.normal(size=(4, 1, 3)), rng.normal(size=(2, 3))
        yield Cross(), rng.normal(size=3) + 1j * rng.normal(size=3), rng.normal(size=3) - 1j
        yield Cross(), rng.normal(size=(0, 3)), rng.normal(size=3)

    @staticmethod
    def refuses(rng):
        yield Cross(), rng.normal(size=(2, 2)), rng.normal(size=3), "x1 (2, 2) must have length"
        yield Cross(), rng.normal(size=(2, 3)), rng.normal(size=(4, 3)), "do not broadcast"


CROSS = Cross()


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of length 3 along `axis`; the other axes broadcast."""
    a, b = lift(x1), lift(x2)
    least = min(a.ndim, b.ndim)
    if not -least <= axis < (a.ndim if a.ndim == b.ndim else 0):
        raise ArgumentError(
            f"cross: axis {axis} must be from {-least} to -1, counted from the last axes of "
            f"x1 {a.shape} and x2 {b.shape}"
        )
    out = apply(CROSS, shape.moveaxis(a, axis, -1), shape.moveaxis(b, axis, -1))
    return shape.moveaxis(out, -1, axis)


def multi_dot(arrays: Any, /) -> Tensor:
    """The product of a chain of matrices, in the order that takes least work.

    The first and the last may be vectors, whose axis is then gone from the result.
    """
    xs = [lift(x) for x in arrays]
    ends = {0, len(xs) - 1}
    fits = [x.ndim == 2 or (x.ndim == 1 and i in ends) for i, x in enumerate(xs)]
    if len(xs) < 2 or not all(fits) or any(a.shape[-1] != b.shape[0] for a, b in pairwise(xs)):
        raise ShapeError(
            f"multi_dot: needs two or more matrices, each with as many columns as the next "
            f"has rows, and vectors at the ends only; got {', '.join(str(x.shape) for x in xs)}"
        )
    names = ascii_letters[: len(xs) + 1]
    words = [names[i : i + 2] for i in range(len(xs))]
    words[0] = words[0][-xs[0].ndim :]
    words[-1] = words[-1][: xs[-1].ndim]
    out = words[0][:-1] + words[-1][1:]  # what is not paired
    return einsum.einsum(f"{','.join(words)}->{out}", *xs)
