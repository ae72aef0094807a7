"""Shapes and the order of axes: nothing is computed, only moved."""

from __future__ import annotations

from math import prod
from operator import index
from typing import Any

import numpy as np

from retrograd.core.errors import ArgumentError, BoundsError, ShapeError, TraceError
from retrograd.core.interpret import apply, lift, unchanged
from retrograd.core.op import Linear, function, op
from retrograd.core.spec import Spec, axes_tuple, axis_index, broadcast_shapes
from retrograd.core.tensor import Tensor
from retrograd.ops import options, reduce

__all__ = [
    "atleast_1d",
    "atleast_2d",
    "broadcast_arrays",
    "broadcast_to",
    "expand_dims",
    "flatten",
    "moveaxis",
    "permute_dims",
    "ravel",
    "reshape",
    "squeeze",
    "swapaxes",
    "transpose",
]


@op
class Reshape(Linear):
    """The same elements in row-major order, in another shape."""

    to: tuple[int, ...]
    view = True

    def shape(self, x: Spec) -> Spec:
        if prod(self.to) != x.size:
            raise ShapeError(
                f"reshape: x {x.shape} has {x.size} elements; shape {self.to} has "
                f"{prod(self.to)}"
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
def reshape(x: Any, /, shape: Any, *, copy: bool | None = None) -> Tensor:  # noqa: ARG001
    """x in another shape; one length may be -1 and follows from the others.

    Tensors do not change, so `copy`, which the standard has, makes no difference.
    """
    x = lift(x)
    to = options.possible("reshape", lengths("reshape", shape))
    if to and min(to) < 0:
        to = _inferred(x.shape, to)
    return unchanged(x) if to == x.shape else apply(Reshape(to), x)


def lengths(who: str, shape: Any) -> tuple[int, ...]:
    """Lengths given as an int or a sequence of ints."""
    try:
        return tuple(map(index, shape)) if isinstance(shape, (tuple, list)) else (index(shape),)
    except TraceError:  # an integer of a program, which has no value yet
        raise
    except TypeError as error:
        raise ArgumentError(f"{who}: lengths must be integers; got {shape!r}") from error


def _inferred(old: tuple[int, ...], to: tuple[int, ...]) -> tuple[int, ...]:
    known = prod(n for n in to if n != -1)
    if to.count(-1) != 1 or min(to) < -1 or not known or prod(old) % known:
        raise ShapeError(
            f"reshape: x {old} has {prod(old)} elements, which cannot become {to}; "
            f"one length may be -1 if it follows from the others"
        )
    return tuple(prod(old) // known if n == -1 else n for n in to)


@op
class BroadcastTo(Linear):
    """x repeated along new or length-1 axes; no bytes are copied."""

    to: tuple[int, ...]
    view = True

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
    x = lift(x)
    shape = options.sizes("broadcast_to", shape)
    return unchanged(x) if x.shape == shape else apply(BroadcastTo(shape), x)


@op
class PermuteDims(Linear):
    """The axes in another order."""

    axes: tuple[int, ...]
    view = True

    def shape(self, x: Spec) -> Spec:
        return x.with_shape(tuple(x.shape[a] for a in self.axes))

    def forward(self, x):
        return np.transpose(x, self.axes)

    def transpose(self, g):  # argsort inverts a permutation
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
    if not isinstance(axes, (tuple, list)):
        raise ArgumentError(f"permute_dims: axes must be a sequence of integers; got {axes!r}")
    order = tuple(axis_index("permute_dims", a, x.ndim) for a in axes)
    if sorted(order) != list(range(x.ndim)):
        raise ArgumentError(
            f"permute_dims: axes {tuple(axes)} must name each of the {x.ndim} axes once"
        )
    same = order == tuple(range(x.ndim))
    return unchanged(x) if same else apply(PermuteDims(order), x)


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
    if len(set(from_)) != len(from_) or len(set(to)) != len(to):
        raise ArgumentError(f"moveaxis: {source} to {destination} names an axis twice")
    order = [i for i in range(x.ndim) if i not in from_]
    for place, axis in sorted(zip(to, from_, strict=True)):
        order.insert(place, axis)
    return permute_dims(x, tuple(order))


@function
def swapaxes(x: Any, axis1: int, axis2: int, /) -> Tensor:
    """x with two axes exchanged."""
    x = lift(x)
    a, b = (axis_index("swapaxes", i, x.ndim) for i in (axis1, axis2))
    order = list(range(x.ndim))
    order[a], order[b] = b, a
    return permute_dims(x, tuple(order))


@function
def transpose(x: Any, axes: Any = None, /) -> Tensor:
    """The axes of x in the order `axes`, reversed by default: NumPy's name."""
    x = lift(x)
    return permute_dims(x, tuple(range(x.ndim))[::-1] if axes is None else axes)


@function
def expand_dims(x: Any, /, *, axis: Any = 0) -> Tensor:
    """x with a new axis of length 1 at place `axis` of the result, or several."""
    x = lift(x)
    wanted = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = x.ndim + len(wanted)
    try:
        places = [axis_index("expand_dims", a, ndim) for a in wanted]
    except ArgumentError as error:  # the standard wants an IndexError here
        raise BoundsError(error.message) from error
    if len(set(places)) != len(places):
        raise ArgumentError(f"expand_dims: axis {tuple(wanted)} names a place twice")
    old = iter(x.shape)
    return reshape(x, tuple(1 if i in places else next(old) for i in range(ndim)))


@function
def squeeze(x: Any, /, axis: Any = None) -> Tensor:
    """x without the axes `axis`, which must have length 1; None means all that have."""
    x = lift(x)
    if axis is None:
        return reshape(x, tuple(n for n in x.shape if n != 1))
    axes = axes_tuple("squeeze", axis, x.ndim)
    if any(x.shape[a] != 1 for a in axes):
        raise ShapeError(
            f"squeeze: axis {axis} of x {x.shape} has length "
            f"{', '.join(str(x.shape[a]) for a in axes)}; only length 1 can go"
        )
    return reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in axes))


@function
def flatten(x: Any, /, *, start: int = 0, end: int = -1) -> Tensor:
    """The axes from `start` to `end` as one; without axes, one of length 1."""
    x = lift(x)
    if not x.ndim:
        return reshape(x, (1,))
    a, b = (axis_index("flatten", i, x.ndim) for i in (start, end))
    if a > b:
        raise ArgumentError(f"flatten: start {start} comes after end {end}")
    return reshape(x, (*x.shape[:a], prod(x.shape[a : b + 1]), *x.shape[b + 1 :]))


@function
def ravel(x: Any, /) -> Tensor:
    """All elements along one axis: NumPy's name for flatten."""
    return flatten(x)


@function
def atleast_1d(x: Any, /) -> Tensor:
    """x, or one axis of length 1 if it has none."""
    x = lift(x)
    return unchanged(x) if x.ndim else reshape(x, (1,))


@function
def atleast_2d(x: Any, /) -> Tensor:
    """x with axes of length 1 in front until it has two."""
    x = lift(x)
    return reshape(x, (1,) * (2 - x.ndim) + x.shape)


@function
def broadcast_arrays(*arrays: Any) -> list[Tensor]:
    """The arrays, each repeated to the shape that they have in common."""
    xs = [lift(x) for x in arrays]
    named = {f"x{i}": x.shape for i, x in enumerate(xs)}
    shape = broadcast_shapes("broadcast_arrays", **named)
    return [broadcast_to(x, shape) for x in xs]
