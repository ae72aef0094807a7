"""What a weight gradient calls for while it sums a band: the next band, the next weights.

The tiles of a band read the same rows of x and g again and again, from the caches. But the
first of them would wait for rows that no cache has: twice as long as it works, where two
multiply-adds are done in a cycle. So each tile calls for its share of the next band's rows, a
few lines at each row of its own, since many calls at a time are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from retrograd.jit.llvm.conv_chunks import parted
from retrograd.jit.llvm.gemm_tile import prefetch
from retrograd.jit.llvm.text import LINE, Int, Type, Val

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.llvm.build import Fn

__all__ = ["Band", "Calls", "Target"]

MOST = 24  # lines of x, and of g, at a time: of long rows not all that comes is called for


class Calls(NamedTuple):
    """What a tile calls for at each of its rows."""

    x: int  # elements, side by side
    g: int  # pixels
    pixel: int  # in g, from pixel to pixel
    rows: int  # of the next tile's weights

    def write(
        self, f: Fn, t: Type, spots: Sequence[Val], shape: tuple[int, int, int]
    ) -> list[Val]:
        """Call for what is at spots in x, g and dw; where to go on. t: of the numbers.

        `shape`: vectors, elements of each, and elements of dw from row to row.
        """
        (x, g, dw), (vectors, lanes, row) = spots, shape
        for at in range(0, self.x, LINE * 8 // t.bits):
            prefetch(f, f.at(x, at, t), near=False)
        for n in range(self.g):
            for j in range(vectors):
                prefetch(f, f.at(g, n * self.pixel + j * lanes, t), near=False)
        for n in range(self.rows):
            for j in range(vectors):
                prefetch(f, f.at(dw, n * row + j * lanes, t))
        steps = self.x, self.g * self.pixel, self.rows * row
        return [f.at(spot, step, t) for spot, step in zip(spots, steps, strict=True)]


class Target(NamedTuple):
    """Where the weights of a tile are."""

    dw: Val
    row: Int  # [tap][source channel]
    next: tuple[Val, Val] | None = None  # what follows the band, in x and in g

    def on(self, f: Fn, rows: Int, size: int, t: Type) -> Target:
        """Some rows further; size: elements of each."""
        dw, row = f.at(self.dw, f.times(rows, size), t), f.plus(self.row, rows)
        return self._replace(dw=dw, row=row)


@dataclass(frozen=True)
class Band:
    """Rows of images that stay in the caches while all of `weights` rows are summed."""

    rows: int  # of g
    x: int  # elements that come for each
    pixels: int  # of g, in each
    pixel: int
    weights: int

    def calls(self, size: int, vectors: int, t: Type) -> Calls:
        """Of a tile of so many rows of weights; t: of the numbers."""
        x, g = (-(-size * n // self.weights) for n in (self.x, self.pixels))
        x, g = min(x, MOST * LINE * 8 // t.bits), min(g, MOST // vectors)
        return Calls(x, g, self.pixel, -(-size // self.rows))

    def spots(self, f: Fn, target: Target, t: Type) -> list[Val]:
        """Where a tile's share of the next band begins, in x and in g."""
        if target.next is None:
            return []
        x, g = target.next
        at, pixel = (
            parted(f, f.times(target.row, n * self.rows), self.weights)[0]
            for n in (self.x, self.pixels)
        )
        return [f.at(x, at, t), f.at(g, f.times(pixel, self.pixel), t)]
