"""What a program does, step by step: loop kernels, matrix products, calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.group import Built
    from retrograd.jit.loops.expr import Kernel
    from retrograd.memory.frontier import Choice

__all__ = [
    "Call",
    "Course",
    "Finished",
    "Loops",
    "Product",
    "Spill",
    "Step",
    "View",
    "contiguous",
]


@dataclass
class View:
    """A strided look at a value in memory."""

    value: int
    offset: int
    strides: tuple[int, ...]


@dataclass
class Loops:
    """A loop kernel; buffers are named by the values they hold."""

    kernel: Kernel
    nodes: list[int]
    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)


@dataclass
class Product:
    """A matrix product of two views, and what is done to its results while they are stored."""

    node: int
    a: View
    b: View
    out: int
    roots: list[int] = field(default_factory=list)  # made of the product, element by element
    built: Built | None = None  # how; it reads the product as if it were in memory
    target: int = -1  # the value that the product's own memory holds in the end
    apart: bool = False  # whether results reach memory finished, where roots read what was

    @property
    def reads(self) -> set[int]:
        """The values in memory that it reads."""
        more = self.built.reads - {self.out} if self.built else set()
        return {self.a.value, self.b.value} | more

    @property
    def writes(self) -> list[int]:
        """The values that it leaves in memory."""
        stores = self.built.stores if self.built else []
        return list(dict.fromkeys([self.target, *stores]))


@dataclass
class Call:
    """A node that runs outside the loop language: on the host, or a loop over a body."""

    node: int
    inputs: tuple[int, ...]  # the values in memory that it reads as the node's inputs


@dataclass
class Finished:
    """A node with kernels of its own, and what is done to its results while they are stored."""

    node: int
    inputs: tuple[int, ...]
    out: int
    roots: list[int] = field(default_factory=list)  # as for a product
    built: Built | None = None
    target: int = -1

    @property
    def reads(self) -> set[int]:
        """The values in memory that it reads."""
        more = self.built.reads - {self.out} if self.built else set()
        return {*self.inputs, *more}

    @property
    def writes(self) -> list[int]:
        """The values that it leaves in memory."""
        stores = self.built.stores if self.built else []
        return list(dict.fromkeys([self.target, *stores]))


Step = Loops | Product | Finished | Call


@dataclass(frozen=True)
class Spill:
    """A value to the file of the call, or back from it."""

    value: int
    nbytes: int
    at: int  # bytes from the file's start
    back: bool

    @property
    def reads(self) -> list[int]:
        """The value, on its way out."""
        return [] if self.back else [self.value]

    @property
    def writes(self) -> list[int]:
        """The value, on its way back."""
        return [self.value] if self.back else []


@dataclass(frozen=True)
class Course:
    """Which steps run in which order, and where their values lie: a plan, for a budget.

    `more` are steps that the graph alone would not have: they run only again.
    """

    choice: Choice
    more: tuple[Loops | Spill, ...] = ()
    file: int = 0  # bytes of the file that values go to


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    out, step = [], 1
    for n in reversed(shape):
        out.append(step)
        step *= n
    return tuple(reversed(out))
