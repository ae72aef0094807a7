"""x between its elements: samples at real positions, linear along each axis, 0 outside.

At a whole position the slope is the one towards the next element.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ShapeError
from retrograd.core.interpret import apply, lift
from retrograd.core.op import Composite, Op, front, op
from retrograd.core.spec import Spec
from retrograd.ops import create, index, join, pad, reduce, rounding, shape
from retrograd.ops.nn.geometry import Sizes


@op
class Corners(Op):
    """Elements around real positions (..., axes): their places in a row; prod(sizes) if none.

    The corners come first, in the order of product((0, 1), repeat=axes).
    """

    sizes: Sizes
    no_derivative = "its result is an index, constant almost everywhere"

    def shape(self, at: Spec) -> Spec:
        if at.shape[-1:] != (len(self.sizes),):
            raise ShapeError(
                f"corners: positions {at.shape} must have {len(self.sizes)} numbers last"
            )
        return Spec((2 ** len(self.sizes), *at.shape[:-1]), dt.int64)

    def forward(self, at):
        low, nowhere = np.floor(at), prod(self.sizes)
        found = np.empty(self.shape(Spec(at.shape, at.dtype)).shape, np.int64)
        for c, corner in enumerate(product((0, 1), repeat=len(self.sizes))):
            place, inside = np.zeros(at.shape[:-1], np.int64), np.ones(at.shape[:-1], bool)
            for a, (n, step) in enumerate(zip(self.sizes, corner, strict=True)):
                i = low[..., a] + step
                inside &= (i >= 0) & (i < n)  # neither is true of NaN
                place = place * n + np.where(inside, i, 0).astype(np.int64)
            found[c] = np.where(inside, place, nowhere)
        return found

    def batch(self, size, args, mapped):
        return shape.moveaxis(apply(self, *args), 1, 0)

    def lower(self, k, at):
        count, lead = len(self.sizes), at.shape[:-1]
        parts = [k.slice(at, (*((0, n, 1) for n in lead), (a, 1, 1))) for a in range(count)]
        lows = [k.view(p, (1, *lead)) for p in parts]
        corners = np.array(list(product((0, 1), repeat=count)), dt.int64)
        steps = [
            k.view(k.literal(corners[:, a]), (len(corners), *(1,) * len(lead)))
            for a in range(count)
        ]

        def place(*both):
            spot = inside = None
            for low, step, n in zip(both[:count], both[count:], self.sizes, strict=True):
                i = k.floor(low) + k.cast(step, low.dtype)
                here = (i >= 0) & (i < n)  # neither is true of NaN
                inside = here if inside is None else inside & here
                i = k.cast(k.where(here, i, 0), dt.int64)
                spot = i if spot is None else spot * n + i
            return k.where(inside, spot, prod(self.sizes))

        return k.map(place, dt.int64, *lows, *steps)

    @staticmethod
    def samples(rng):
        yield Corners((4, 5)), rng.uniform(-2, 7, (2, 3, 2))
        yield Corners((3,)), np.array([[-1.0], [0.0], [2.0], [np.nan], [np.inf]])
        yield Corners((3,)), np.zeros((0, 1))

    @staticmethod
    def refuses(rng):
        yield Corners((4, 5)), np.zeros((3, 1)), "must have 2 numbers last"


def _weight(part: Any, corner: Sizes, without: int = -1) -> Any:
    """How much a corner counts, from the parts (..., axes) of the way to the next element."""
    total = None
    for a, step in enumerate(corner):
        if a != without:
            one = pad.piece(part, part.ndim - 1, a, 1)
            one = one if step else 1 - one
            total = one if total is None else total * one
    return create.ones((*part.shape[:-1], 1), dtype=part.dtype) if total is None else total


@op
class DeformSample(Composite):
    """x [N, *sizes, C] at real positions [N, P, groups, axes]: [N, P, groups, C / groups].

    Each group of channels has positions of its own. Keeps x and the positions.
    """

    uniform = True
    takes = "floating"

    def shape(self, x: Spec, at: Spec) -> Spec:
        axes = x.ndim - 2
        fits = at.ndim == 4 and at.shape[0] == x.shape[0] and at.shape[3] == axes
        if not fits or x.shape[-1] % at.shape[2]:
            raise ShapeError(
                f"deform_sample: positions {at.shape} must be [N, P, groups, {axes}] for "
                f"x {x.shape}, whose channels the groups divide"
            )
        return x.with_shape((*at.shape[:3], x.shape[-1] // at.shape[2]))

    def expand(self, x, at):
        self.shape(Spec(x.shape, x.dtype), Spec(at.shape, at.dtype))
        part = _part(at)
        return _sum(v * _weight(part, corner) for corner, v in _values(x, at))

    def jvp(self, dx, dat, x, at):
        part = _part(at)
        moved = _sum(
            v * reduce.sum(_slopes(part, corner) * dat, axis=-1, keepdims=True)
            for corner, v in _values(x, at)
        )
        return apply(self, dx, at) + moved

    def vjp(self, g, x, at):
        part = _part(at)
        slopes = _sum(
            reduce.sum(g * v, axis=-1, keepdims=True) * _slopes(part, corner)
            for corner, v in _values(x, at)
        )
        return _spread(g, at, x.shape), slopes

    def batch(self, size, args, mapped):
        x, at = front(size, args, mapped)
        out = apply(self, shape.flatten(x, end=1), shape.flatten(at, end=1))
        return shape.reshape(out, (size, x.shape[1], *out.shape[1:]))

    @staticmethod
    def samples(rng):
        def between(low, high, sizes):
            return rng.integers(low, high, sizes) + rng.uniform(0.2, 0.8, sizes)

        yield DeformSample(), rng.normal(size=(2, 3, 4, 4)), between(-2, 5, (2, 5, 2, 2))
        yield DeformSample(), rng.normal(size=(1, 4, 3)), between(-2, 5, (1, 6, 1, 1))
        yield DeformSample(), rng.normal(size=(1, 2, 3, 2, 2)), between(-1, 3, (1, 4, 1, 3))
        yield DeformSample(), rng.normal(size=(2, 3, 4, 4)), between(-2, 5, (2, 0, 2, 2))

    @staticmethod
    def refuses(rng):
        yield DeformSample(), np.ones((2, 3, 4)), np.ones((1, 5, 1, 1)), "whose channels"


def _sum(terms: Iterator[Any]) -> Any:
    total = next(terms)
    for term in terms:
        total = total + term
    return total


def _part(at: Any) -> Any:
    """How far each position is on its way to the next element."""
    return at - rounding.floor(at)


def _values(x: Any, at: Any) -> Iterator[tuple[Sizes, Any]]:
    """(corner, x there), corner by corner."""
    table, rows = _table(x, at.shape[2]), _rows(x.shape, at)
    for c, corner in enumerate(product((0, 1), repeat=x.ndim - 2)):
        v = index.rows_at(table, _one(rows, c))
        yield corner, shape.reshape(v, (*at.shape[:3], table.shape[1]))


def _spread(g: Any, at: Any, to: Sizes) -> Any:
    """The transpose of sampling by x."""
    rows, part = _rows(to, at), _part(at)
    places, groups = prod(to[1:-1]) + 1, at.shape[2]
    flat = (prod(g.shape[:-1]), g.shape[-1])
    total = _sum(
        index.rows_added(
            to[0] * places * groups,
            shape.reshape(g * _weight(part, corner), flat),
            _one(rows, c),
        )
        for c, corner in enumerate(product((0, 1), repeat=len(to) - 2))
    )
    whole = shape.reshape(total, (to[0], places, to[-1]))
    return shape.reshape(pad.piece(whole, 1, 0, places - 1), to)


def _slopes(part: Any, corner: Sizes) -> Any:
    """The derivative of a corner's weight by each axis, on the last axis."""
    found = [
        _weight(part, corner, a) if step else -_weight(part, corner, a)
        for a, step in enumerate(corner)
    ]
    return join.concat(found, axis=-1)


def _table(x: Any, groups: int) -> Any:
    """Rows of C / groups for each place and group; behind each image a place of zeros."""
    n, *sizes, channels = x.shape
    flat = shape.reshape(x, (n, prod(sizes), channels))
    flat = apply(pad.Pad(((0, 0), (0, 1), (0, 0))), flat)
    return shape.reshape(flat, (n * (prod(sizes) + 1) * groups, channels // groups))


def _rows(to: Sizes, at: Any) -> Any:
    """For each corner, the row of each position and group."""
    n, groups = at.shape[0], at.shape[2]
    start = np.arange(n)[:, None, None] * (prod(to[1:-1]) + 1) * groups + np.arange(groups)
    places = apply(Corners(to[1:-1]), at)
    rows = places * groups + lift(start)
    return shape.reshape(rows, (rows.shape[0], prod(rows.shape[1:])))


def _one(rows: Any, c: int) -> Any:
    return shape.reshape(pad.piece(rows, 0, c, 1), rows.shape[1:])
