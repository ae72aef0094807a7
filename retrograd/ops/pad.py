"""A border around a tensor; its transpose is the part inside."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.errors import ArgumentError, DtypeError, ShapeError
from retrograd.core.interpret import apply, lift, unchanged
from retrograd.core.op import Op, function, op
from retrograd.core.spec import Spec, axis_index
from retrograd.core.tensor import Tensor
from retrograd.ops import create, join, options, select, shape, slices, turn

__all__ = ["pad"]

Widths = tuple[tuple[int, int], ...]


@op
class Pad(Op):
    """One number before and after x, so many times along each axis."""

    widths: Widths
    value: complex = 0

    def shape(self, x: Spec) -> Spec:
        return x.with_shape([a + n + b for n, (a, b) in zip(x.shape, self.widths, strict=True)])

    def forward(self, x):
        pairs = list(zip(x.shape, self.widths, strict=True))
        out = np.full([a + n + b for n, (a, b) in pairs], self.value, x.dtype)
        out[tuple(slice(a, a + n) for n, (a, _) in pairs)] = x
        return out

    def jvp(self, dx):
        return apply(Pad(self.widths), dx)

    def vjp(self, g, x: Spec):
        pairs = zip(x.shape, self.widths, strict=True)
        return slices.part(g, tuple((a, n, 1) for n, (a, _) in pairs))

    def batch(self, size, args, mapped):
        return apply(Pad(((0, 0), *self.widths), self.value), *args)

    def lower(self, k, x):
        return k.pad(x, self.widths, self.value)

    @staticmethod
    def samples(rng):
        yield Pad(((1, 2), (0, 3))), rng.normal(size=(2, 3))
        yield Pad(((0, 0), (2, 1)), -1.5), rng.normal(size=(3, 0))
        yield Pad((), 2.0), rng.normal(size=())
        yield Pad(((1, 0),), 1j), rng.normal(size=2) + 1j * rng.normal(size=2)


def piece(x: Any, axis: int, start: int, count: int) -> Any:
    """`count` places of x along one axis, from `start`; x itself if that is all."""
    parts = [(0, n, 1) for n in x.shape]
    parts[axis] = (start, count, 1)
    return slices.part(x, tuple(parts))


@function
def pad(x: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Tensor:
    """x with a border: `pad_width` places before and after, on all axes or on each.

    `pad_width` is a number, a pair (before, after), a pair for each axis, or a dict of axes
    to numbers or pairs. Modes: "constant"; "edge" repeats the outermost value ("replicate"
    elsewhere); "reflect" mirrors without it, "symmetric" with it; "wrap" ("circular")
    continues from the other end.
    """
    x = lift(x)
    widths = _widths(pad_width, x.ndim)
    if mode not in ("constant", *_SOURCES):
        raise ArgumentError(f"pad: mode {mode!r} is not one of constant, {', '.join(_SOURCES)}")
    if not any(a or b for a, b in widths):
        return unchanged(x)
    options.possible("pad", tuple(a + n + b for n, (a, b) in zip(x.shape, widths, strict=True)))
    if mode == "constant":
        return _constant(x, widths, constant_values)
    for axis, (before, after) in enumerate(widths):
        if before or after:
            x = _continued(x, axis, before, after, mode)
    return x


def _widths(given: Any, ndim: int) -> Widths:
    """(before, after) for each axis, by NumPy's rules."""
    if isinstance(given, dict):
        found = [(0, 0)] * ndim
        for axis, width in given.items():
            (found[axis_index("pad", axis, ndim)],) = _widths(width, 1)
        return tuple(found)
    try:
        array = np.asarray(given)
        if array.dtype.kind not in "iu" and array.size:
            raise TypeError
        pairs = np.broadcast_to(array, (ndim, 2)) if ndim else np.zeros((0, 2), int)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"pad: pad_width must be integers: a number, a pair, or a pair for each of the "
            f"{ndim} axes; got {given!r}"
        ) from error
    if (pairs < 0).any():
        raise ArgumentError(f"pad: pad_width must not be negative; got {given!r}")
    return tuple((int(a), int(b)) for a, b in pairs)


def _constant(x: Any, widths: Widths, value: Any) -> Tensor:
    if isinstance(value, Tensor) and not value.ndim:
        inside = apply(Pad(widths, value=False), create.ones(x.shape, dtype=dt.bool))
        return select.where(inside, apply(Pad(widths), x), value)
    number = value.item() if isinstance(value, np.generic) else value
    if type(number) not in dt._PYTHON:
        raise ArgumentError(f"pad: constant_values must be one number; got {value!r}")
    if dt.of_number(number, x.dtype) != x.dtype:
        raise DtypeError(f"pad: constant_values {number!r} does not fit in {x.dtype}")
    return apply(Pad(widths, number), x)


# Which place of an axis of length n a place outside it shows.
_SOURCES: dict[str, Any] = {
    "edge": lambda i, n: np.clip(i, 0, n - 1),
    "replicate": lambda i, n: np.clip(i, 0, n - 1),
    "reflect": lambda i, n: n - 1 - np.abs(n - 1 - i % max(2 * n - 2, 1)),
    "symmetric": lambda i, n: np.minimum(i % (2 * n), 2 * n - 1 - i % (2 * n)),
    "wrap": lambda i, n: i % n,
    "circular": lambda i, n: i % n,
}


def _continued(x: Any, axis: int, before: int, after: int, mode: str) -> Any:
    """x with places of its own before and after it: pieces, some of them backwards."""
    n = x.shape[axis]
    if not n:
        raise ShapeError(
            f"pad: axis {axis} of x {x.shape} is empty; mode {mode!r} has nothing to repeat"
        )
    source = _SOURCES[mode](np.arange(-before, n + after), n).tolist()
    ahead, behind = _runs(source[:before]), _runs(source[before + n :])
    pieces = [_run(x, axis, *run) for run in (*ahead, (0, n, 1), *behind)]
    return join.concat(pieces, axis=axis)


def _runs(places: list[int]) -> list[tuple[int, int, int]]:
    """Places as runs (first, count, step), where step is 1, 0 or -1."""
    runs: list[list[int]] = []
    for place in places:
        if runs:
            first, count, step = runs[-1]
            moved = place - (first + step * (count - 1))
            if count == 1 and abs(moved) <= 1:
                runs[-1] = [first, 2, moved]
                continue
            if count > 1 and moved == step:
                runs[-1][1] += 1
                continue
        runs.append([place, 1, 1])
    return [(first, count, step) for first, count, step in runs]


def _run(x: Any, axis: int, first: int, count: int, step: int) -> Any:
    if step == 1:
        return piece(x, axis, first, count)
    if step == -1:
        return turn.flip(piece(x, axis, first - count + 1, count), axis=axis)
    wide = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return shape.broadcast_to(piece(x, axis, first, 1), wide)
