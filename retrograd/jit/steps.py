"""What a program does, step by step: loop kernels, matrix products, calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.group import Built
    from retrograd.jit.loops.expr import Kernel

__all__ = ["Call", "Loops", "Product", "Step", "View", "contiguous"]


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


Step = Loops | Product | Call


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    out, step = [], 1
    for n in reversed(shape):
        out.append(step)
        step *= n
    return tuple(reversed(out))
