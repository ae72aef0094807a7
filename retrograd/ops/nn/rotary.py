"""Rotary position embedding: pairs of features turned by angles that grow with the place."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, DtypeError, ShapeError
from retrograd.core.interpret import apply, constant, lift
from retrograd.core.op import Linear, aligned, front, op
from retrograd.core.spec import Spec, broadcast_shapes
from retrograd.core.tensor import Tensor
from retrograd.ops import cast, join, shape, trigonometric

__all__ = ["rotary"]


@op
class Rotate(Linear):
    """Pairs (a, b) of features as (a cos - b sin, b cos + a sin). Keeps cos and sin.

    Feature i is paired with i + D / 2, or with its neighbour where `interleaved`.
    """

    interleaved: bool = False
    fixed = ("cos", "sin")

    def shape(self, x: Spec, cos: Spec, sin: Spec) -> Spec:
        half = (*x.shape[:-1], x.shape[-1] // 2)
        if x.shape[-1] % 2 or broadcast_shapes("rotate", x=half, cos=cos.shape) != half:
            raise ShapeError(
                f"rotate: cos {cos.shape} does not broadcast to the pairs of x {x.shape}"
            )
        return x

    def forward(self, x, cos, sin):
        out = np.empty(x.shape, x.dtype)
        (a, b), (u, v) = self._pair(x), self._pair(out)
        np.multiply(a, cos, out=u)
        u -= b * sin
        np.multiply(b, cos, out=v)
        v += a * sin
        return out

    def transpose(self, g, cos, sin):  # a turn back
        return apply(self, g, cos, -sin)

    def batch(self, size, args, mapped):
        (x,) = front(size, args[:1], mapped[:1])
        return apply(self, *aligned(size, [x, *args[1:]], [True, *mapped[1:]]))

    def expand(self, x, cos, sin):
        pairs = (*x.shape[:-1], x.shape[-1] // 2, 2)
        if self.interleaved:
            a, b = join.unstack(shape.reshape(x, pairs), axis=-1)
        else:
            a, b = join.split(x, 2, axis=-1)
        turned = [a * cos - b * sin, b * cos + a * sin]
        if self.interleaved:
            return shape.reshape(join.stack(turned, axis=-1), x.shape)
        return join.concat(turned, axis=-1)

    def _pair(self, x):
        if self.interleaved:
            return x[..., 0::2], x[..., 1::2]
        half = x.shape[-1] // 2
        return x[..., :half], x[..., half:]

    @staticmethod
    def samples(rng):
        for interleaved in (False, True):
            angles = rng.normal(size=(3, 1, 2))
            x = rng.normal(size=(2, 3, 2, 4))
            yield Rotate(interleaved), x, np.cos(angles), np.sin(angles)
            yield Rotate(interleaved), x[0, 0, 0], np.cos(angles[0, 0]), np.sin(angles[0, 0])
            yield Rotate(interleaved), x[:0], np.cos(angles), np.sin(angles)

    @staticmethod
    def refuses(rng):
        yield Rotate(), np.ones(3), np.ones(1), np.ones(1), "the pairs of x (3,)"


def rotary(
    x: Any,
    /,
    *,
    base: float = 10000.0,
    positions: Any = None,
    offset: int = 0,
    interleaved: bool = False,
    features: int | None = None,
) -> Tensor:
    """x [.., T, H, D] with each pair of features turned by position * base ** (-2 i / D).

    `positions` are integers [T] or [.., T], 0, 1, 2, ... unless given; `offset` is added. Pair
    i is features i and i + D / 2, or 2 i and 2 i + 1 where `interleaved`. With `features`, only
    so many, the first, are turned, and count as D. The gradient is the turn back; nothing of x
    is kept.
    """
    x = lift(x)
    many = x.shape[-1] if features is None and x.ndim else features
    if x.ndim < 3 or many is None or many % 2 or not 0 <= many <= x.shape[-1]:
        raise ShapeError(
            f"rotary: x is [.., T, H, D], turned in an even number of features, at most D; got "
            f"x {x.shape} and {many} features"
        )
    x = x if dt.is_inexact(x.dtype) else cast.astype(x, dt.float32)
    cos, sin = _turns(x, many, base, positions, offset)
    if many == x.shape[-1]:
        return apply(Rotate(bool(interleaved)), x, cos, sin)
    first, rest = join.split(x, (many, x.shape[-1] - many), axis=-1)
    return join.concat([apply(Rotate(bool(interleaved)), first, cos, sin), rest], axis=-1)


def _turns(x: Any, many: int, base: float, positions: Any, offset: int) -> tuple[Any, Any]:
    """cos and sin as [.., T, 1, many / 2], worked out in float64: places may be large."""
    if not base > 0:
        raise ArgumentError(f"rotary: base must be above 0; got {base}")
    speeds = base ** (-2.0 * np.arange(many // 2) / max(many, 1))
    if positions is None:
        angles = (np.arange(x.shape[-3]) + offset)[:, None, None] * speeds
        cos, sin = (f(angles).astype(x.dtype) for f in (np.cos, np.sin))
        return constant(cos), constant(sin)
    positions = lift(positions)
    if positions.dtype not in dt.INTEGERS:
        raise DtypeError(f"rotary: positions are integers; got {positions.dtype}")
    lead = x.shape[:-2]
    if positions.shape not in (lead, lead[-1:]):
        raise ShapeError(
            f"rotary: positions {positions.shape} must have shape {lead[-1:]} or {lead}"
        )
    places = cast.astype(positions + offset, dt.float64)
    angles = shape.expand_dims(places, axis=(-2, -1)) * lift(speeds)
    found = (trigonometric.cos(angles), trigonometric.sin(angles))
    return tuple(cast.astype(f, x.dtype) for f in found)
