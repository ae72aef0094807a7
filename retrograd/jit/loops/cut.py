"""Loops cut where an index cuts them, so that it has strides: the way back of coalescing.

A permuted array in another shape, such as heads beside each other again, is read at quotients
and remainders of one axis: an integer division for every element, and no stride that a walk
could follow. As two loops, one inside the other, both are axes.
"""

from __future__ import annotations

from itertools import chain, pairwise
from math import prod
from typing import TYPE_CHECKING

from retrograd.jit.loops.analyse import accesses
from retrograd.jit.loops.index import Axis, Ix, Quotient, Remainder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrograd.jit.loops.expr import Kernel

__all__ = ["finer", "pieces"]

LEAST = 16  # turns that are left of the innermost loop: fewer leave lanes idle


def pieces(kernel: Kernel) -> tuple[int, ...] | None:
    """The lengths of the axes after the cuts; None if there is nothing to cut.

    Quotients alone are no reason: of an element that is repeated, turns share the load.
    """
    found: dict[Axis, set[int]] = {a: set() for a in kernel.axes}
    repeated = dict.fromkeys(kernel.axes, True)
    for atom in _atoms(kernel):
        axis = next(iter(atom.of.terms), None)
        if axis in found and atom.of == Ix.of(axis):
            found[axis].add(atom.by)
            repeated[axis] &= isinstance(atom, Quotient)
    cuts = [[] if repeated[a] else _cuts(a, found[a]) for a in kernel.axes]
    if cuts and cuts[-1] and cuts[-1][-1] < LEAST:
        cuts[-1] = []
    lengths = [some or [a.extent] for a, some in zip(kernel.axes, cuts, strict=True)]
    return tuple(chain(*lengths)) if any(cuts) else None


def finer(shape: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether a shape is another one with some of its axes cut."""
    steps = [{prod(s[i:]) for i in range(len(s) + 1)} for s in (shape, whole)]
    return prod(shape) == prod(whole) > 0 and steps[0] >= steps[1]


def _atoms(kernel: Kernel) -> Iterator[Quotient | Remainder]:
    for ix in accesses(kernel.body):
        yield from _inside(ix)


def _inside(ix: Ix) -> Iterator[Quotient | Remainder]:
    for a in ix.terms:
        if isinstance(a, Quotient | Remainder):
            yield a
            yield from _inside(a.of)


def _cuts(axis: Axis, by: set[int]) -> list[int]:
    """The lengths of the parts of an axis, if each cut is one of the next; none if not."""
    steps = list(pairwise([axis.extent, *sorted(by, reverse=True), 1]))
    if any(large % small or large == small for large, small in steps):
        return []
    return [large // small for large, small in steps]
