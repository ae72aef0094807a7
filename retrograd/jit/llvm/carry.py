"""Where a loop's carry lives: a body reads the old one while the new one is written.

Each class is one way to do without copies. `start` comes before the loop and returns what goes
round in it; `turn` says where the old carry is and where the new one goes; `finish` comes after
the loop, and then the carry is in its final place, which no other memory of the loop overlaps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from retrograd.jit.llvm.text import I64, Val
from retrograd.memory.problem import rounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.llvm.build import Fn

__all__ = [
    "Carry",
    "Ends",
    "InPlace",
    "Kept",
    "Move",
    "Rows",
    "Still",
    "Swapped",
    "Turn",
    "copy",
]


class Ends(NamedTuple):
    """A carry's first place, its final place, and memory of its own where it needs some."""

    first: Val
    final: Val
    spare: Val


@dataclass
class Turn:
    """One turn of a loop: its number, and the rows of ys in this turn and in the next."""

    f: Fn
    i: Val | None = None
    length: int = 0
    rows: Sequence[Val] = ()
    ahead: Sequence[Val] = ()


@dataclass
class Move:
    """Where a carry is in a turn, where it goes (None: it stays), and what goes round."""

    old: Val
    new: Val | None
    next: list[Val] = field(default_factory=list)


class Carry(Protocol):
    """One carry of a loop."""

    nbytes: int
    need: int  # bytes of arena

    def start(self, f: Fn, ends: Ends, rows: Sequence[Val]) -> list[Val]:
        """Before the loop."""

    def turn(self, turn: Turn, ends: Ends, held: Sequence[Val]) -> Move:
        """In the loop, before the body."""

    def finish(self, f: Fn, ends: Ends, held: Sequence[Val]) -> None:
        """After the loop."""


@dataclass
class Still:
    """A carry that the body passes on: read where it came from."""

    nbytes: int
    need: int = 0

    def start(self, f: Fn, ends: Ends, rows: Sequence[Val]) -> list[Val]:
        """Nothing goes round."""
        return []

    def turn(self, turn: Turn, ends: Ends, held: Sequence[Val]) -> Move:
        """It stays."""
        return Move(ends.first, None)

    def finish(self, f: Fn, ends: Ends, held: Sequence[Val]) -> None:
        """A copy is the result."""
        copy(f, ends.final, ends.first, self.nbytes)


@dataclass
class Rows:
    """A carry that is also the y numbered `y`: the next turn reads it in the row of this."""

    nbytes: int
    y: int
    need: int = 0

    def start(self, f: Fn, ends: Ends, rows: Sequence[Val]) -> list[Val]:
        """Where the carry is."""
        return [ends.first]

    def turn(self, turn: Turn, ends: Ends, held: Sequence[Val]) -> Move:
        """From row to row."""
        new = turn.rows[self.y]
        return Move(held[0], new, [new])

    def finish(self, f: Fn, ends: Ends, held: Sequence[Val]) -> None:
        """The last row is the result too."""
        copy(f, ends.final, held[0], self.nbytes)


@dataclass
class Kept:
    """A carry whose old values are the y numbered `y`: each turn writes the next turn's row."""

    nbytes: int
    y: int
    need: int = 0

    def start(self, f: Fn, ends: Ends, rows: Sequence[Val]) -> list[Val]:
        """The first row is the first carry."""
        copy(f, rows[self.y], ends.first, self.nbytes)
        return []

    def turn(self, turn: Turn, ends: Ends, held: Sequence[Val]) -> Move:
        """From row to row, and at last to the end."""
        assert turn.i is not None
        f = turn.f
        last = f.compare("eq", turn.i, f.const(I64, turn.length - 1))
        return Move(turn.rows[self.y], f.select(last, ends.final, turn.ahead[self.y]))

    def finish(self, f: Fn, ends: Ends, held: Sequence[Val]) -> None:
        """Nothing is left to do."""


@dataclass
class InPlace:
    """A carry that one kernel updates element by element, after which nobody reads the old."""

    nbytes: int
    need: int = 0

    def start(self, f: Fn, ends: Ends, rows: Sequence[Val]) -> list[Val]:
        """The result's memory from the first turn on."""
        copy(f, ends.final, ends.first, self.nbytes)
        return []

    def turn(self, turn: Turn, ends: Ends, held: Sequence[Val]) -> Move:
        """The new one over the old."""
        return Move(ends.final, ends.final)

    def finish(self, f: Fn, ends: Ends, held: Sequence[Val]) -> None:
        """Nothing is left to do."""


class Swapped:
    """A carry with two places, the final one and a spare: old and new by turns.

    Where the number of turns is known, the first is chosen such that the last is the final.
    """

    def __init__(self, nbytes: int, turns: int | None) -> None:
        self.nbytes, self.turns = nbytes, turns
        self.need = 0 if turns == 1 else rounded(nbytes)

    def start(self, f: Fn, ends: Ends, rows: Sequence[Val]) -> list[Val]:
        """Where the carry is, where it goes, and where it goes after that."""
        if self.turns is not None and self.turns % 2 == 0:
            return [ends.first, ends.spare, ends.final]
        return [ends.first, ends.final, ends.spare]

    def turn(self, turn: Turn, ends: Ends, held: Sequence[Val]) -> Move:
        """The places go round."""
        old, new, after = held
        return Move(old, new, [new, after, new])

    def finish(self, f: Fn, ends: Ends, held: Sequence[Val]) -> None:
        """A copy, if the loop ended in the spare place or before its first turn."""
        if self.turns is not None or not self.nbytes:
            return
        with f.when(f.compare("ne", held[0], ends.final)):
            copy(f, ends.final, held[0], self.nbytes)


def copy(f: Fn, to: Val, source: Val, nbytes: int) -> None:
    """Bytes from one place to another, unless the two are one."""
    if not nbytes or to == source:
        return
    name = "llvm.memcpy.p0.p0.i64"
    f.module.declare(name, "void", "ptr, ptr, i64, i1")
    f.emit(f"call void @{name}({to}, {source}, i64 {nbytes}, i1 false)")
