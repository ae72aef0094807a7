"""What kernels refuse while they run: which node it was, and one of the values.

The status word holds the number of the first node that refused. Behind it is a word for each
refusal that a program may make: of the values that were refused, the least as bits. So both
are the same whatever threads did when.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.errors import ArgumentError, BoundsError
from retrograd.jit.llvm.text import I64, Type
from retrograd.jit.loops.expr import NotLoweredError
from retrograd.ops.decompose.matrices import refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.errors import RetrogradError
    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.text import Val

__all__ = ["MATRIX", "NOTHING", "Fault", "Faults", "of_matrices"]

NOTHING = -1  # in the word of a refusal that was not made
MATRIX = "m"  # the kind of a value that is the number of a matrix in a stack


def of_matrices(who: str, wrong: str, name: str, shape: Sequence[int]) -> str:
    """What is said of a matrix of an operand, when its number in the stack is known."""
    return "\n".join([who, wrong, name, " ".join(map(str, shape))])


@dataclass(frozen=True)
class Fault:
    """A refusal that a node may make."""

    node: int
    said: str | int  # what must hold; or the length of an axis, of an index into it
    kind: str  # NumPy's letter of the value, or MATRIX
    bits: int

    def error(self, word: int, where: Any) -> RetrogradError:
        """The error for a value that was refused."""
        value: Any = word
        if self.kind == MATRIX:
            *words, shape = str(self.said).split("\n")
            who, wrong, name = words
            of = tuple(map(int, shape.split()))
            return refused(who, wrong, name, of, word).located(where)
        if self.kind == "f":
            size = self.bits // 8
            value = np.array([word % 2**self.bits], f"u{size}").view(f"f{size}")[0]
        elif self.kind == "b":
            value = bool(word)
        elif self.kind == "u":
            value = word % 2**64
        if isinstance(self.said, int):
            said = f"index: index {value} is outside an axis of length {self.said}"
            return BoundsError(said, at=where)
        return ArgumentError(f"{self.said}; got {value}", at=where)


@dataclass
class Faults:
    """All refusals that the kernels of a program may make."""

    rows: list[Fault] = field(default_factory=list)

    def note(self, f: Fn, word: Val, node: int, said: Any, x: Val, bad: Val, kind: str) -> None:
        """Note a node and the values that were bad; `word` is the status word."""
        fault = Fault(node, said, kind, x.type.bits)
        if fault not in self.rows:
            self.rows.append(fault)
        f.emit(f"atomicrmw umin {word}, i64 {node} monotonic")
        wide = _word(f, x, kind)
        none = f.const(wide.type, NOTHING)
        least = f.select(bad, wide, none) if x.type.lanes else wide
        if least.type.lanes:
            name = f"llvm.vector.reduce.umin.{least.type.suffix}"
            f.module.declare(name, "i64", least.type.text)
            least = f.make(I64, f"call i64 @{name}({least})")
        spot = f.at(word, 1 + self.rows.index(fault), I64)
        f.emit(f"atomicrmw umin {spot}, {least} monotonic")

    def error(self, node: int, words: Sequence[int], wheres: Any) -> RetrogradError:
        """What the first node that refused says; `wheres` has the user's line of each."""
        found = [(f, w) for f, w in zip(self.rows, words, strict=True) if f.node == node]
        noted = [row for row in found if row[1] != NOTHING]
        fault, word = (noted or found)[0]  # the integer -1 looks as if nothing was noted
        return fault.error(word, wheres[node])


def _word(f: Fn, x: Val, kind: str) -> Val:
    """A number's bits in 64."""
    if x.type.kind == "f":
        x = f.bits(x)
    elif kind == "c":
        raise NotLoweredError("a requirement of complex numbers")
    wide = Type("i", 64)
    return f.convert("sext" if kind == "i" else "zext", x, wide)
