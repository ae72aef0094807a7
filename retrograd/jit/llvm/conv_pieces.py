"""The last axis of a convolution as tiles: which pixels, and what they see."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from retrograd.jit.llvm.conv_shape import Run
from retrograd.jit.llvm.conv_tile import equal_parts

if TYPE_CHECKING:
    from retrograd.jit.llvm.conv_shape import Axis, Phase

__all__ = ["Piece", "pieces", "relative"]

KINDS = 5  # tile functions of one row; beyond, edges go pixel by pixel


class Piece(NamedTuple):
    """Equal tiles along the last axis."""

    phase: Phase
    first: int  # pixel of the phase
    size: int
    many: int
    runs: tuple[Run, ...] | None  # None: pixel by pixel, as a table says


def pieces(axis: Axis, most: int) -> list[Piece]:
    """The last axis as tiles of at most `most` pixels."""
    found = []
    for phase in axis.phases():
        parts = _tiled(axis, phase, 0, phase.length, most)
        if len({(p.size, p.runs) for p in parts}) > KINDS:
            parts = _edged(axis, phase, most)
        found += parts
    return found


def _inner(axis: Axis, phase: Phase) -> tuple[int, int]:
    """The pixels [low, high) of a phase that see all of its taps."""
    offsets = [offset for _, offset in phase.taps] or [0]
    low = min(max(0, -(min(offsets) // phase.advance)), phase.length)
    high = (axis.source - 1 - max(offsets)) // phase.advance + 1
    return low, max(low, min(high, phase.length))


def _tiled(axis: Axis, phase: Phase, first: int, stop: int, most: int) -> list[Piece]:
    found: list[Piece] = []
    low, high = _inner(axis, phase)
    for size, left in equal_parts(stop - first, most):
        while left:
            many, runs = 1, axis.runs(phase, first, size)
            if low <= first and first + size <= high:  # a long row has very many of these
                many = min(left, (high - first) // size)
            last = found[-1] if found else None
            if last and (last.size, last.runs) == (size, runs):
                found[-1] = last._replace(many=last.many + many)
            else:
                found.append(Piece(phase, first, size, many, runs))
            first, left = first + size * many, left - many
    return found


def relative(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """The runs, with taps and offsets from those of the first."""
    if not runs:
        return runs
    tap, offset = runs[0].tap, runs[0].offset
    return tuple(r._replace(tap=r.tap - tap, offset=r.offset - offset) for r in runs)


def _edged(axis: Axis, phase: Phase, most: int) -> list[Piece]:
    """Tiles where all pixels see all taps; pixel by pixel before and after them."""
    low, high = _inner(axis, phase)
    before = Piece(phase, 0, 1, low, None)
    after = Piece(phase, high, 1, phase.length - high, None)
    found = [before, *_tiled(axis, phase, low, high, most), after]
    return [p for p in found if p.many]
