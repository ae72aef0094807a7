"""Rules about where numbers lie: moves that undo each other, and repeats that nobody needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.core.op import Elementwise
from retrograd.jit.passes.table import View, rule
from retrograd.ops import cast, extrema, join, pad, power, shape, slices, turn

if TYPE_CHECKING:
    from retrograd.jit.passes.table import Found

__all__: list[str] = []


# -- moves that change nothing ---------------------------------------------------------------


@rule(shape.Reshape, shape.BroadcastTo)
def shape_it_has(view: View) -> Found:
    """x in the shape that it has is x."""
    return view.inputs[0] if view.spec(0).shape == view.op.to else None


@rule(shape.PermuteDims)
def order_it_has(view: View) -> Found:
    """The axes in the order that they have."""
    return view.inputs[0] if view.op.axes == tuple(range(len(view.op.axes))) else None


@rule(turn.Flip)
def nothing_to_flip(view: View) -> Found:
    """Backwards along axes of length 1, or along none."""
    short = all(view.spec(0).shape[a] <= 1 for a in view.op.axes)
    return view.inputs[0] if short else None


@rule(slices.Slice)
def slice_of_all(view: View) -> Found:
    """The part that is everything."""
    return view.inputs[0] if slices.whole(view.op.parts, view.spec(0).shape) else None


@rule(slices.Slice)
def slice_of_shape(view: View) -> Found:
    """The part that is everything, with new axes, or without axes of length 1."""
    lengths, parts = iter(view.spec(0).shape), view.op.parts
    old = [(p, next(lengths)) for p in parts if p is not None]
    all_of_it = all(n == 1 if isinstance(p, int) else p == (0, n, 1) for p, n in old)
    return (shape.Reshape(view.out.shape), view.inputs) if all_of_it else None


@rule(pad.Pad)
def pad_with_nothing(view: View) -> Found:
    """A border of no width."""
    return None if any(a or b for a, b in view.op.widths) else view.inputs[0]


@rule(join.Concat)
def concat_of_one(view: View) -> Found:
    """One tensor after no other."""
    return view.inputs[0] if len(view.inputs) == 1 else None


@rule(extrema.Extremum)
def extreme_of_one(view: View) -> Found:
    """The largest of one element is that element; a sum of one is not, for -0.0 + 0.0."""
    if any(view.spec(0).shape[a] != 1 for a in view.op.axis):
        return None
    return shape.Reshape(view.out.shape), view.inputs


# -- moves of moves --------------------------------------------------------------------------


@rule(shape.Reshape, shape.BroadcastTo)
def last_shape_counts(view: View) -> Found:
    """Reshaped twice, or broadcast twice: only the last shape counts."""
    inner = view.made(0, type(view.op))
    return inner and (view.op, inner.inputs)


@rule(shape.PermuteDims)
def permuted_twice(view: View) -> Found:
    """Two orders of axes as one."""
    inner = view.made(0, shape.PermuteDims)
    if not inner:
        return None
    axes = tuple(inner.op.axes[a] for a in view.op.axes)
    return shape.PermuteDims(axes), inner.inputs


@rule(shape.PermuteDims)
def only_ones_move(view: View) -> Found:
    """If axes of length 1 alone change places, no element does: it is another shape."""
    x = view.spec(0).shape
    longer = [a for a in view.op.axes if x[a] != 1]
    return (shape.Reshape(view.out.shape), view.inputs) if longer == sorted(longer) else None


@rule(turn.Flip)
def flipped_twice(view: View) -> Found:
    """Backwards twice is forwards: the axes that are in one of both remain."""
    inner = view.made(0, turn.Flip)
    if not inner:
        return None
    return turn.Flip(tuple(sorted(set(view.op.axes) ^ set(inner.op.axes)))), inner.inputs


# -- repeats ---------------------------------------------------------------------------------


@rule(shape.Reshape, shape.PermuteDims, turn.Flip, slices.Slice)
def moved_number(view: View) -> Found:
    """Where all elements are one number, moving them is only another shape."""
    inner = view.made(0, shape.BroadcastTo)
    if not inner or view.writer.specs[inner.inputs[0]].ndim:
        return None
    return shape.BroadcastTo(view.out.shape), inner.inputs


@rule(shape.Reshape)
def shaped_number(view: View) -> Found:
    """One number without axes in any shape: a broadcast, which others can take in."""
    return None if view.spec(0).ndim else (shape.BroadcastTo(view.op.to), view.inputs)


@rule(Elementwise, cast.Astype)
def computed_once(view: View) -> Found:
    """Where all operands are single numbers, the op is done once and its result repeated.

    But for pow, as below.
    """
    if isinstance(view.op, power.Pow) or not view.out.ndim:
        return None
    found: list[Any] = [_source(view, i) for i in range(len(view.inputs))]
    if any(v is None for v in found):
        return None
    (small,) = view.writer.add(view.op, found, view.node)
    return small


def _source(view: View, i: int) -> int | None:
    """The value without axes that an input repeats, or is."""
    inner = view.made(i, shape.BroadcastTo)
    value = inner.inputs[0] if inner else view.inputs[i]
    return None if view.writer.specs[value].ndim else value


@rule(Elementwise)
def broadcasts_by_itself(view: View) -> Found:
    """Elementwise ops repeat their operands themselves.

    But for pow: NumPy squares where the exponent is one 2.0, and calls pow for many.
    """
    if len(view.inputs) < 2 or isinstance(view.op, power.Pow):
        return None
    for i in range(len(view.inputs)):
        inner = view.made(i, shape.BroadcastTo)
        if inner:
            smaller = (*view.inputs[:i], inner.inputs[0], *view.inputs[i + 1 :])
            rest = [view.writer.specs[v] for v in smaller]
            if view.op.shape(*rest) == view.out:
                return view.op, smaller
    return None
