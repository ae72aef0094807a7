"""Shapes and the order of axes: nothing is computed, only moved."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from retrograd.core.errors import ArgumentError, ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Linear, function, op
from retrograd.core.spec import Spec, axis_index
from retrograd.core.tensor import Tensor
from retrograd.ops import reduce


@op
class Reshape(Linear):
    """The same elements in row-major order, in another shape."""

    to: tuple[int, ...]

    def shape(self, x: Spec) -> Spec:
        if prod(self.to) != x.size:
            raise ShapeError(
                f"reshape: x {x.shape} has {x.size} elements; shape {self.to} has {prod(self.to)}"
            )
        return x.with_shape(self.to)

    def forward(self, x):
        return np.reshape(x, self.to)

    def transpose(self, g, x: Spec):
        return apply(Reshape(x.shape), g)

    def batch(self, size, args, mapped):
        return apply(Reshape((size, *self.to)), *args)

    def lower(self, k, x):
        return k.view(x, self.to)

    @staticmethod
    def samples(rng):
        yield Reshape((3, 2)), rng.normal(size=(2, 3))
        yield Reshape(()), rng.normal(size=(1, 1))
        yield Reshape((0, 5)), rng.normal(size=(2, 0))

    @staticmethod
    def refuses(rng):
        yield Reshape((4,)), rng.normal(size=3), "3 elements"


@function
def reshape(x: Any, /, shape: Any, *, copy: bool | None = None) -> Tensor:
    """x in another shape; one length may be -1 and follows from the others."""
    x = lift(x)
    to = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    to = tuple(int(n) for n in to)
    if -1 in to:
        to = _inferred(x.shape, to)
    return x if to == x.shape else apply(Reshape(to), x)


def _inferred(old: tuple[int, ...], to: tuple[int, ...]) -> tuple[int, ...]:
    known = prod(n for n in to if n != -1)
    if to.count(-1) > 1 or not known or prod(old) % known:
        raise ShapeError(f"reshape: {old} cannot become {to}; one -1 must follow from the rest")
    return tuple(prod(old) // known if n == -1 else n for n in to)


@op
class BroadcastTo(Linear):
    """x repeated along new or length-1 axes; no bytes are copied."""

    to: tuple[int, ...]

    def shape(self, x: Spec) -> Spec:
        lead = len(self.to) - x.ndim
        fits = lead >= 0 and all(
            n in (1, m) for n, m in zip(x.shape, self.to[lead:], strict=True)
        )
        if not fits:
            raise ShapeError(f"broadcast_to: x {x.shape} does not broadcast to {self.to}")
        return x.with_shape(self.to)

    def forward(self, x):
        return np.broadcast_to(x, self.to)

    def transpose(self, g, x: Spec):
        return reduce.sum_to(g, x.shape)

    def batch(self, size, args, mapped):
        (x,) = args
        pad = (1,) * (len(self.to) - x.ndim + 1)
        return apply(BroadcastTo((size, *self.to)), reshape(x, (size, *pad, *x.shape[1:])))

    def lower(self, k, x):
        return k.broadcast(x, self.to)

    @staticmethod
    def samples(rng):
        yield BroadcastTo((2, 4, 3)), rng.normal(size=(4, 1))
        yield BroadcastTo((0, 3)), rng.normal(size=(1, 3))

    @staticmethod
    def refuses(rng):
        yield BroadcastTo((2, 4)), rng.normal(size=3), "does not broadcast"


@function
def broadcast_to(x: Any, /, shape: tuple[int, ...]) -> Tensor:
    """x repeated to `shape` by the rules of broadcasting."""
    shape = tuple(shape)
    return x if x.shape == shape else apply(BroadcastTo(shape), x)


@op
class PermuteDims(Linear):
    """The axes in another order."""

    axes: tuple[int, ...]

    def shape(self, x: Spec) -> Spec:
        return x.with_shape(tuple(x.shape[a] for a in self.axes))

    def forward(self, x):
        return np.transpose(x, self.axes)

    def transpose(self, g):
        return apply(PermuteDims(tuple(np.argsort(self.axes).tolist())), g)

    def batch(self, size, args, mapped):
        return apply(PermuteDims((0, *(a + 1 for a in self.axes))), *args)

    def lower(self, k, x):
        return k.permute(x, self.axes)

    @staticmethod
    def samples(rng):
        yield PermuteDims((2, 0, 1)), rng.normal(size=(2, 3, 4))
        yield PermuteDims(()), rng.normal(size=())


@function
def permute_dims(x: Any, /, axes: tuple[int, ...]) -> Tensor:
    """The axes of x in the order `axes`."""
    x = lift(x)
    order = tuple(axis_index("permute_dims", a, x.ndim) for a in axes)
    if sorted(order) != list(range(x.ndim)):
        raise ArgumentError(
            f"permute_dims: axes {tuple(axes)} must name each of the {x.ndim} axes once"
        )
    return x if order == tuple(range(x.ndim)) else apply(PermuteDims(order), x)


@function
def moveaxis(x: Any, source: Any, destination: Any, /) -> Tensor:
    """x with axes moved to new places; the others keep their order."""
    x = lift(x)
    sources = source if isinstance(source, (tuple, list)) else (source,)
    targets = destination if isinstance(destination, (tuple, list)) else (destination,)
    if len(sources) != len(targets):
        raise ArgumentError(f"moveaxis: {source} and {destination} must have equal lengths")
    from_ = [axis_index("moveaxis", a, x.ndim) for a in sources]
    to = [axis_index("moveaxis", a, x.ndim) for a in targets]
    order = [i for i in range(x.ndim) if i not in from_]
    for place, axis in sorted(zip(to, from_, strict=True)):
        order.insert(place, axis)
    return permute_dims(x, tuple(order))
