"""Kernels of an op of its own, launched one after the other inside a program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.text import F32, F64, I8, Type, Val
from retrograd.memory.problem import rounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.info import KernelInfo

__all__ = ["PARTS", "REAL", "Kernels"]

REAL = {"float32": F32, "float64": F64}
PARTS = {**REAL, "complex64": F32, "complex128": F64}  # of a number


class Kernels(ABC):
    """Kernels run in sequence; their temporaries are part of the program's arena.

    A launch is a kernel and the numbers of its buffers: the op's inputs, then its outputs,
    then the temporaries, then the buffers of the epilogue `after`. `node` is the node's number
    where failures are noted.
    """

    fails = False  # whether operands may be refused while they run

    def __init__(
        self,
        writer: Any,
        op: Any,
        specs: Sequence[Spec],
        node: int,
        unread: frozenset[int] = frozenset(),
        after: Any = None,
    ) -> None:
        self.writer, self.node, self.after = writer, node, after
        self.unread = unread  # outputs that may hold anything
        self.launches: list[tuple[KernelInfo, tuple[int, ...]]] = []
        self.temporaries: tuple[int, ...] = ()  # bytes of each
        name = f"{op.name}{writer.fresh()}"
        self.make(op, specs, PARTS[specs[0].dtype.name], name)
        self.size = sum(map(rounded, self.temporaries))

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Whether these kernels cover the op on such operands; it is expanded otherwise."""
        return all(s.dtype.name in REAL for s in specs)

    @abstractmethod
    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        """Write the functions; set launches and temporaries."""

    @property
    def info(self) -> KernelInfo:
        """All kernels as one: their work together, and the most chunks."""
        parts = [info for info, _ in self.launches]
        most = max(parts, key=lambda p: p.flops)
        return most._replace(
            chunks=max(p.chunks for p in parts),
            flops=sum(p.flops for p in parts),
            bytes=sum(p.bytes for p in parts),
        )

    def write(
        self,
        given: list[Val],
        outs: list[Val],
        arena: Val,
        offset: int,
        more: Sequence[Val] = (),
    ) -> None:
        """Call them; `more` are the buffers of the epilogue."""
        f = self.writer.f
        pointers = [*given, *outs]
        for need in self.temporaries:
            pointers.append(f.at(arena, offset, I8))
            offset += rounded(need)
        pointers += more
        for info, numbers in self.launches:
            self.writer.launch(info, [pointers[i] for i in numbers])
