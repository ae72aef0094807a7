"""Kernels in stages, on buffers by name: launched one by one, or all by one thread.

A stage is a function of the builder, the buffers, a word (the number of a turn or of a matrix)
and the chunk, of how many. As a kernel of its own it is shared by all threads. In a kernel that
goes through matrices it is done as a whole by the thread that has the matrix.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.conv_chunks import ARGUMENTS, chunk_bounds, chunk_count
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.launches import Kernels
from retrograd.jit.llvm.text import I8, I64, PTR, Int, Type, Val
from retrograd.memory.problem import rounded

if TYPE_CHECKING:
    from retrograd.core.spec import Spec

__all__ = ["Dims", "Places", "Stage", "Staged", "moved"]

Places = dict[str, Val]
Stage = Callable[[Fn, Places, Val, Val, Val], None]
Dims = Sequence[tuple[int, ...]]  # of a stack: a length, and a stride for each of some buffers


class Staged(Kernels):
    """Kernels that are told their buffers by name, and a word."""

    names: tuple[str, ...]  # inputs, then outputs

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Real floats, and something to do."""
        return super().takes(op, specs) and all(s.size for s in specs)

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        """Write the functions."""
        self.type, self.name = t, name
        self.room: dict[str, int] = {}  # temporaries, and their bytes
        self.kernels: dict[str, KernelInfo] = {}
        self.prepare(op, specs)
        self.temporaries = tuple(self.room.values())
        self.launches = [(info, ()) for info in self.kernels.values()]

    @abstractmethod
    def prepare(self, op: Any, specs: Sequence[Spec]) -> None:
        """Say what room there must be, and write the kernels."""

    @abstractmethod
    def body(self, at: Places) -> None:
        """Launch them."""

    @property
    def all_names(self) -> list[str]:
        """As kernels get their buffers."""
        return [*self.names, *self.room, "status"]

    def stage(
        self, what: str, stage: Stage, chunks: int, work: tuple[int, int], scratch: int = 0
    ) -> None:
        """A kernel of a stage; its work is multiplications and additions, and bytes."""
        f, at, word = self._begun(what)
        stage(f, at, word, f.arg("chunk"), f.const(I64, chunks))
        f.done()
        self.kernels[what] = KernelInfo(f.name, chunks, scratch, *work)

    def whole(
        self, what: str, scratch: dict[str, int], dims: Dims, work: tuple[int, int], one: Any
    ) -> None:
        """A kernel that goes through a stack: one(f, places, number) for each matrix.

        `dims` have strides for the named buffers; `scratch` is what a thread needs beside.
        """
        count = 1
        for length, *_ in dims:
            count *= length
        chunks = chunk_count(count, 8 * work[0])
        f, at, _ = self._begun(what)
        skip = 0
        for name, need in scratch.items():
            at[name] = f.at(f.arg("scratch"), skip, I8)
            skip += rounded(need)
        with f.loop(*chunk_bounds(f, f.arg("chunk"), chunks, count)) as loop:
            one(f, {**at, **moved(f, self.type, self.names, at, loop.i, dims)}, loop.i)
        f.done()
        self.kernels[what] = KernelInfo(f.name, chunks, skip, *work)

    def _begun(self, what: str) -> tuple[Fn, Places, Val]:
        f = Fn(self.writer.module, f"{self.name}_{what}", ARGUMENTS)
        names, bufs = self.all_names, f.arg("bufs")
        at = {n: f.load(PTR, f.at(bufs, i, I64), 8) for i, n in enumerate(names)}
        return f, at, f.load(I64, f.at(bufs, len(names), I64), 8)

    def write(
        self,
        given: list[Val],
        outs: list[Val],
        arena: Val,
        offset: int,
        more: Sequence[Val] = (),
    ) -> None:
        """Call them, on buffers by name."""
        f = self.writer.f
        at = dict(zip(self.names, [*given, *outs], strict=True))
        for name, need in self.room.items():
            at[name] = f.at(arena, offset, I8)
            offset += rounded(need)
        self.body({**at, "status": self.writer.status()})

    def launch(self, what: str, at: Places, word: Int = 0) -> None:
        """One kernel, once."""
        number = self.writer.f.make(PTR, f"inttoptr i64 {_spelt(word)} to ptr")
        self.writer.launch(self.kernels[what], [*(at[n] for n in self.all_names), number])


def _spelt(word: Int) -> str:
    return word.ref if isinstance(word, Val) else str(word)


def moved(f: Fn, t: Type, names: Sequence[str], at: Places, number: Val, dims: Dims) -> Places:
    """The buffers at a matrix of the stack."""
    skips: dict[str, Int] = dict.fromkeys(names, 0)
    for length, *strides in dims[::-1]:
        size = f.const(I64, length)
        index, number = f.rem(number, size), f.div(number, size)
        for name, stride in zip(names, strides, strict=True):
            skips[name] = f.plus(skips[name], f.times(index, stride))
    return {n: f.at(at[n], skip, t) for n, skip in skips.items()}
