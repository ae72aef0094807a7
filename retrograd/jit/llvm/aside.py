"""Results that are added to at places of each column's own, kept aside while that is done.

Memory has the places of a column a whole row apart: rows of some kilobytes, a power of two, all
fall on the few lines of a cache that such addresses share, and each number comes from memory.
So a kernel adds to a strip of columns in scratch, where the places follow each other, and puts
it where it belongs when all is added: of each place the same numbers in the same order.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from retrograd.jit.llvm.columns import Columns
from retrograd.jit.llvm.gemm_tile import store_some
from retrograd.jit.llvm.places import FAR
from retrograd.jit.llvm.values import in_memory
from retrograd.jit.loops.analyse import expressions, statements, stride
from retrograd.jit.loops.expr import For, Store
from retrograd.jit.loops.index import Dynamic, Ix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from retrograd.jit.llvm.values import Num
    from retrograd.jit.loops.expr import Buffer, Kernel, Stmt
    from retrograd.jit.loops.index import Axis

__all__ = ["Aside", "Columned", "columned"]

COLUMNS = 16  # lanes of the longest vectors, or several that fill a line
NEAR = 32 << 10  # bytes that a first cache holds
ROOM = 512 << 10  # bytes of a strip, about what a second cache holds
FEW = 4  # places for each number that is added: more are not worth a copy


class Columned(NamedTuple):
    """A result that a loop adds to, in each column at places of its own."""

    buffer: Buffer
    loop: For
    step: int  # elements from place to place
    places: int
    rest: Ix  # of every index: the column, and what is around it

    @property
    def lanes(self) -> int:
        """Columns of a strip."""
        return COLUMNS * (2 if self._room(2 * COLUMNS) <= ROOM else 1)

    def _room(self, columns: int) -> int:
        return self.places * columns * self.buffer.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Of a strip."""
        return self._room(self.lanes)

    @property
    def far(self) -> bool:
        """Whether places are far apart, but those of a strip fit into a second cache."""
        row = self.step * self.buffer.dtype.itemsize
        return row >= FAR and self.places * row > NEAR and self.nbytes <= ROOM


def columned(kernel: Kernel, vector: Axis | None) -> Columned | None:
    """The result of a kernel that is to be kept aside, if there is one."""
    if vector is None or [a for a in kernel.axes if a.extent != 1][-1:] != [vector]:
        return None
    loops = [s for s in kernel.body if isinstance(s, For)]
    found = [c for loop in loops for s in loop.body for c in _jumps(loop, s, vector)]
    if len(found) != 1:
        return None
    (own,), turns = found, prod(a.extent for a in found[0].loop.axes)
    pays = own.far and own.places <= FEW * turns
    return own if pays and _begun(kernel, own) and _alone(kernel, own, vector) else None


def _jumps(loop: For, s: Stmt, vector: Axis) -> Iterator[Columned]:
    """What a statement stores at places that differ from lane to lane."""
    if not isinstance(s, Store):
        return
    for atom, step in s.index.terms.items():
        if isinstance(atom, Dynamic) and vector in atom.expr.axes:
            rest = s.index - Ix(0, {atom: step})
            yield Columned(s.buffer, loop, step, atom.below, rest)


def _begun(kernel: Kernel, own: Columned) -> bool:
    """Whether a kernel first writes all places of a column."""
    first = kernel.body[0]
    if not isinstance(first, For) or len(first.axes) != 1 or len(first.body) != 1:
        return False
    (axis,), (s,) = first.axes, first.body
    if not isinstance(s, Store) or s.buffer is not own.buffer:
        return False
    return axis.extent == own.places and s.index == own.rest + Ix(0, {axis: own.step})


def _alone(kernel: Kernel, own: Columned, vector: Axis) -> bool:
    """Whether each index of the result is a place of the column that is written."""
    stores = (s for s in statements(kernel.body) if isinstance(s, Store))
    used = [(s.buffer, s.index) for s in stores]
    used += [e.data for e in expressions(kernel.body) if e.op == "load"]
    if own.buffer.dtype.kind == "c" or not own.rest.affine or stride(own.rest, vector) != 1:
        return False
    places = [ix - own.rest for b, ix in used if b is own.buffer]
    return all(not p.const and [*p.terms.values()] == [own.step] for p in places)


class Aside(Columns):
    """The part of a kernel's writer that keeps strips of a result aside."""

    aside: Columned | None

    def load(self, buffer: Buffer, ix: Ix) -> Num:
        """Elements of a buffer, ready to compute with."""
        return super().load(buffer, self._moved(buffer, ix))

    def store(self, buffer: Buffer, ix: Ix, x: Num) -> None:
        """Write elements of a buffer."""
        super().store(buffer, self._moved(buffer, ix), x)

    def _moved(self, buffer: Buffer, ix: Ix) -> Ix:
        """Where an element is; in a strip, from where column 0 of all would be."""
        if self.aside is None or buffer is not self.aside.buffer:
            return ix
        assert self.vector
        ((place, _),) = (ix - self.aside.rest).terms.items()
        return Ix(0, {place: self.aside.lanes, self.vector: 1})

    def strip(self, body: Callable[[], None]) -> None:
        """All statements for some columns; what is aside then goes where it belongs."""
        own, f = self.aside, self.f
        if own is None:
            body()
            return
        assert self.vector
        t, here, there = in_memory(own.buffer.dtype), f.arg("scratch"), self.base[own.buffer]
        self.base[own.buffer] = f.at(here, f.times(self.at[self.vector], -1), t)
        body()
        self.base[own.buffer] = there
        column, _, _ = self.spread(own.rest)
        with f.loop(0, own.places) as place:
            row = f.at(here, f.times(place.i, own.lanes), t)
            spot = f.at(there, f.plus(column, f.times(place.i, own.step)), t)
            count = self.lanes if self.left is None else self.left
            store_some(f, f.load(t.by(self.lanes), row), spot, count)
