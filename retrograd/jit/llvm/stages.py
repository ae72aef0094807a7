"""The stages of a row: from the end of one of its loops to the end of the next.

Which kernels have rows whose stages may be staggered, and how one stage of a row hands its
variables to those that come turns later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from retrograd.jit.llvm.values import Num, in_register
from retrograd.jit.loops.analyse import Reduction, expressions, reductions, statements
from retrograd.jit.loops.expr import CHECKS, Assign, For, Store, Var
from retrograd.jit.lowering import DEAR, price

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.text import Int, Type, Val
    from retrograd.jit.loops.expr import Kernel, Stmt
    from retrograd.jit.loops.index import Axis

__all__ = ["ROWS", "Handed", "Stage", "handed", "stages_of"]

NEAR = 8 * 1024  # bytes of a row, of which the first cache holds several
TURNS = 8  # of a loop that is worth the trouble
ROWS = 2  # of a chunk, for each stage: the first and the last few go one by one

Key = tuple[Var, int]  # a variable, and which of its values


@dataclass
class Stage:
    """What is done for a row from the end of one loop to the end of the next."""

    number: int
    before: Sequence[Stmt]
    loop: For
    found: list[Reduction]
    after: Sequence[Stmt]  # of the last stage: what follows all loops
    axis: Axis | None = None  # of rows, if they are staggered
    row: Int = 0
    place: Int = 0  # where numbers of this row are kept
    vars: dict[Key, Num] = field(default_factory=dict)
    memo: dict[Any, Num] = field(default_factory=dict)
    sums: list[Num] = field(default_factory=list)

    @property
    def stmts(self) -> list[Stmt]:
        """All of its statements."""
        return [*self.before, self.loop, *self.after]

    def reads(self) -> set[Key]:
        """Values that it needs; some are its own."""
        found = {e.data for e in expressions(self.stmts) if e.op == "var"}
        return found | {(r.var, r.entry) for r in self.found}

    def writes(self) -> dict[Key, np.dtype]:
        """Values that it makes."""
        made = [s for s in statements(self.stmts) if isinstance(s, Assign)]
        return {(s.var, s.turn): s.expr.dtype for s in made}


def stages_of(kernel: Kernel, axis: Axis | None, lanes: int) -> list[Stage]:
    """The stages of rows along `axis` that may be staggered, and are worth it; else none."""
    loops = [s for s in kernel.body if isinstance(s, For)]
    if axis is None or not lanes or len(loops) < 2 or any(s.axes != (axis,) for s in loops):
        return []
    found = [reductions(s) for s in loops]
    if not _plain(kernel) or not _pays(kernel, axis, lanes):
        return []
    stages, start = [], 0
    for number, (loop, own) in enumerate(zip(loops, found, strict=True)):
        if own is None:
            return []
        at = kernel.body.index(loop)
        after = kernel.body[at + 1 :] if loop is loops[-1] else ()
        stages.append(Stage(number, kernel.body[start:at], loop, own, after))
        start = at + 1
    return stages


def _plain(kernel: Kernel) -> bool:
    """Whether nothing but numbers goes from stage to stage, and no test guards memory."""
    seen = list(expressions(kernel.body))
    if any(e.op in CHECKS or e.op == "guard" or e.dtype.kind == "c" for e in seen):
        return False
    read = {e.data[0] for e in seen if e.op == "load"}
    return not any(isinstance(s, Store) and s.buffer in read for s in statements(kernel.body))


def _pays(kernel: Kernel, axis: Axis, lanes: int) -> bool:
    """Whether rows are many and short, their loops are not, and one number at most is dear."""
    inner = [e for e in expressions(kernel.body) if axis in e.axes]
    size = axis.extent * max(e.dtype.itemsize for e in inner)
    dear = sum(price(e) >= DEAR for e in inner)  # of two, registers would not hold all
    loops = sum(isinstance(s, For) for s in kernel.body)
    rows = [a.extent for a in kernel.axes if a.extent > 1][-1:]
    many = bool(rows) and rows[0] >= ROWS * loops
    return many and dear <= 1 and size <= NEAR and axis.extent >= TURNS * lanes


class Handed(NamedTuple):
    """A value that a stage hands to later ones: the newest first, older ones after it."""

    key: Key
    stage: int  # that makes it
    readers: frozenset[int]
    memory: Val
    type: Type

    def known(self, stage: Stage) -> bool:
        """Whether a stage is given it."""
        return stage.number in self.readers

    def read(self, f: Fn, stage: Stage) -> Num:
        """As it was made for the row of a stage."""
        age = stage.number - self.stage
        return (f.load(self.type, f.at(self.memory, age, self.type)),)

    def write(self, f: Fn, x: Num) -> None:
        """The newest."""
        f.store(x[0], self.memory)

    def grow_older(self, f: Fn) -> None:
        """Make room for the next."""
        for age in range(max(self.readers) - self.stage, 0, -1):
            x = f.load(self.type, f.at(self.memory, age - 1, self.type))
            f.store(x, f.at(self.memory, age, self.type))


def handed(f: Fn, stages: Sequence[Stage]) -> list[Handed]:
    """All values that go from stage to stage."""
    found = []
    for s in stages:
        for key, dtype in s.writes().items():
            later = [t.number for t in stages[s.number + 1 :] if key in t.reads()]
            if later:
                t = in_register(dtype)
                memory = f.alloca(t, max(later) - s.number + 1)
                found.append(Handed(key, s.number, frozenset(later), memory, t))
    return found
