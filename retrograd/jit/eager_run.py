"""Calls of eager programs: as short as they can be, in memory that all of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.core.lines import addresses
from retrograd.jit import eager_memory
from retrograd.jit.execute import Executable
from retrograd.jit.llvm.arena import Arenas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.llvm.program import Program

__all__ = ["Runner"]

_SHARED: dict[int, Arenas] = {}  # by size: ops run one after the other


class Runner(Executable):
    """A program whose arena is one of a few sizes, which eager programs share."""

    def __init__(self, program: Program, order: Sequence[int]) -> None:
        super().__init__(program)
        self.order = order if list(order) != list(range(len(order))) else None

    def __call__(self, arrays: Sequence[Any], mine: Any = ()) -> list[Any]:
        """The outputs for plain arrays, some of which may be the same one."""
        made = self.run(arrays, addresses(arrays))
        return made if self.order is None else [made[i] for i in self.order]

    def _fresh(self) -> list[Any]:
        return [eager_memory.new(shape, dtype) for _, _, shape, dtype in self.made]

    def _arenas(self, threads: int) -> Arenas:
        size = self.program.arena + threads * self.program.scratch + 64
        size = 1 << max(16, (size - 1).bit_length())
        shared = _SHARED.setdefault(size, Arenas(size))
        return self.arenas.setdefault(threads, shared)
