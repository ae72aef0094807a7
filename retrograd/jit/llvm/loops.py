"""Loop kernels as LLVM IR: which axis becomes vectors, and everything said in vectors of it.

Two ways. Vertical: the lanes are neighbours along the last independent axis, and inner loops
run as they are written. Horizontal: the lanes are neighbours along the last inner axis;
sums, products, extrema collect in a vector that is folded after the loop, in one fixed order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.jit.llvm.ahead import called_soon, loop_of, rows_ahead
from retrograd.jit.llvm.aside import Aside, columned
from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.columns import ABREAST, tall
from retrograd.jit.llvm.faults import Faults
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.kept import Kept
from retrograd.jit.llvm.numbers import compute, even, kind_of
from retrograd.jit.llvm.parts import CHUNKS, abreast, divided, holding, together
from retrograd.jit.llvm.stages import ROWS, stages_of
from retrograd.jit.llvm.text import I64, PTR, Type, Val
from retrograd.jit.llvm.values import Num, constant
from retrograd.jit.loops.analyse import expressions, invariants, operands, vector_axis
from retrograd.jit.loops.coalesce import coalesce
from retrograd.jit.loops.expr import Assign, Expr, For, Store, cast, number

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from retrograd.jit.llvm.text import Module
    from retrograd.jit.loops.expr import Buffer, Kernel, Stmt, Var
    from retrograd.jit.loops.index import Axis

__all__ = ["write_loops"]

PARAMETERS = [("bufs", PTR), ("chunk", I64), ("scratch", PTR)]
GRAIN = 1 << 15  # operations that are worth a chunk
LARGE = 4 << 20  # bytes that do not stay in a second cache
PAST = 16 << 20  # bytes that leave past the caches, which most would not hold until read
MOVES = {"load", "place", "number", "guard", "not", "and", "lt", "ge"}  # no arithmetic
FEW = 2  # turns of a loop that ends early, about


def write_loops(
    module: Module,
    name: str,
    kernel: Kernel,
    first: int = 0,
    faults: Faults | None = None,
    leaving: Collection[int] = (),
) -> tuple[KernelInfo, list[Buffer]]:
    """A kernel's function; bufs are the buffers returned, and after them the status word.

    `first` is added to the numbers of nodes in the status word; `faults` get what the kernel
    may refuse. What is `leaving` the program is stored past the caches, if it is large.
    """
    coalesce(kernel)
    order = operands(kernel)
    f = Fn(module, name, PARAMETERS)
    writer = Writer(f, kernel, order)
    writer.first, writer.faults = first, faults or Faults()
    read = {e.data[0] for e in expressions(kernel.body) if e.op == "load"}
    large = [b for b in order if b.name in leaving and _nbytes(b) >= _kept_to(kernel)]
    writer.pass_by(large, read)
    chunks = writer.write()
    f.done()
    work = writer.turns * max(1, len(list(expressions(kernel.body))))
    moved = sum(map(_nbytes, order))
    scratch = writer.aside.nbytes if writer.aside else 0
    return KernelInfo(name, chunks, scratch, work, moved), order


def _kept_to(kernel: Kernel) -> int:
    """Bytes from which on a result had better leave past the caches.

    Of 16 MB concat takes a sixth less time if it does not, norms of rows a quarter more.
    """
    return PAST if {e.op for e in expressions(kernel.body)} - MOVES else 2 * PAST


def _nbytes(b: Buffer) -> int:
    return int(np.prod(b.shape)) * b.dtype.itemsize


def _turns(loop: For) -> int:
    some = int(np.prod([a.extent for a in loop.axes]))
    return max(1, some if loop.until is None else min(some, FEW))


class Writer(Aside):
    """One kernel being written."""

    def __init__(self, f: Fn, kernel: Kernel, order: list[Buffer]) -> None:
        super().__init__(f, order)
        self.kernel = kernel
        self.vector, self.vertical = vector_axis(kernel)
        large = sum(_nbytes(b) for b in order) >= LARGE
        self.tall = tall(kernel, self.vector) if large and self.vertical else None
        self.aside = columned(kernel, self.vector) if self.vertical else None
        self.lanes = self._width()
        loops = [s for s in kernel.body if isinstance(s, For)]
        if large:
            self.soon = called_soon(kernel, f.machine, vertical=self.vertical)
        self.turns = int(np.prod([a.extent for a in kernel.axes], dtype=np.int64))
        self.turns *= max(map(_turns, loops), default=1)
        self.memos: list[dict[Any, Num]] = [{}]
        along = self.vector if self.lanes and not self.vertical else None
        self.stages = stages_of(kernel, along, self.lanes)
        self.kept = Kept(f, kernel, along, self.lanes, self.base)
        self.calls, self.ahead = rows_ahead(kernel, along) if large else (None, [])
        if self.stages and self.calls:
            self.calls = self.stages[0].loop
        self.down = loop_of(kernel) if large and self.vertical else None
        if self.aside and large:
            self.down = self.aside.loop.axes[-1]

    def _width(self) -> int:
        """Lanes: as many as fit of the smallest float, or of 4 bytes where there is none."""
        if self.vector is None:
            return 0
        sizes = {
            max(4, min(8, e.dtype.itemsize // (2 if e.dtype.kind == "c" else 1)))
            for e in expressions(self.kernel.body)
            if e.dtype.kind in "fc"
        }
        self.unit = lanes = self.f.machine.lanes(min(sizes, default=4))
        if self.vector.extent <= 1:
            return 0
        if self.tall:
            return lanes * ABREAST
        if self.aside:
            return self.aside.lanes
        if not self.vertical:
            return lanes * abreast(self.kernel, self.vector, lanes)
        return lanes * together(self.kernel, self.vector, lanes, self.f.machine)

    # -- loops over the independent axes -----------------------------------------------

    def write(self) -> int:
        """The whole kernel; the number of its chunks."""
        axes = [a for a in self.kernel.axes if a.extent != 1]
        if self.turns == 0 or any(a.extent == 0 for a in axes):
            return 1 if self._inner_only() else 0
        self.settle(axes)
        whole = self.vector if self.tall else None  # rows are read from end to end
        shared = [a for a in axes if a is not whole]
        split = self.beside(divided(shared, self.vector, self.lanes))
        chunks = self._chunks(split)
        if chunks > 1:
            assert split is not None
            self.bounds[split] = self._bounds(split, chunks)
        self._outer(axes)
        self.past.done()
        return chunks

    def _inner_only(self) -> bool:
        """Empty inner loops still leave a row to write."""
        if any(a.extent == 0 for a in self.kernel.axes):
            return False
        self._outer([a for a in self.kernel.axes if a.extent != 1])
        return True

    def _chunks(self, split: Axis | None) -> int:
        if split is None:
            return 1
        work = self.turns * max(1, sum(1 for _ in expressions(self.kernel.body)) // 2)
        return max(1, min(CHUNKS, -(-split.extent // self._step(split)), work // GRAIN))

    def _step(self, axis: Axis) -> int:
        """Turns of an axis that stay together."""
        if self.stages and axis is [a for a in self.kernel.axes if a.extent != 1][-1]:
            return ROWS * len(self.stages)
        whole = axis is self.turned or (axis is self.vector and self.vertical)
        squares = self.stay if axis is self.vector else 1
        return max(self.lanes, 1) * squares if whole else 1

    def _bounds(self, axis: Axis, chunks: int) -> tuple[Val, Val]:
        """Where this chunk's part of an axis begins and ends: by shape alone."""
        f, chunk = self.f, self.f.arg("chunk")
        step = self._step(axis)
        blocks = -(-axis.extent // step)

        def bound(c: Val) -> Val:
            at = f.div(f.mul(c, f.integer(blocks)), f.integer(chunks))
            return f.integer(f.lesser(f.times(at, step), axis.extent))

        return bound(chunk), bound(f.add(chunk, f.integer(1)))

    def _outer(self, axes: list[Axis]) -> None:
        if not axes:
            self.vars = {}
            self._block(self.kernel.body)
            return
        axis, rest = axes[0], axes[1:]
        self._hoist(self.kernel.body, set(axes))
        low, high = self.bounds.get(axis, (0, axis.extent))
        if axis is self.turned:
            span = self.bounds.get(rest[0], (0, rest[0].extent))
            self._over(low, high, span, lambda: self._outer([]))
            return
        if axis is self.vector and self.tall:
            self._down(axis, self.tall)
            return
        if axis is self.vector and self.vertical:
            self._strips(axis, low, high, lambda: self.strip(lambda: self._outer(rest)))
            return
        if self.stages and not rest:
            self._staggered(axis, low, high, self.stages)
            return
        with self.f.loop(low, high) as loop:
            self._inside(axis, loop.i, lambda: self._outer(rest))

    def _inside(self, axis: Axis, i: Any, body: Callable[[], None]) -> None:
        self.at[axis] = i
        self.memos.append({})
        body()
        self.memos.pop()

    def _strips(self, axis: Axis, low: Any, high: Any, body: Callable[[], None]) -> None:
        """Vectors along an axis, then what is left over with a mask."""
        f, w = self.f, self.lanes
        if not w:
            with f.loop(low, high) as loop:
                self._inside(axis, loop.i, body)
            return
        full = axis.extent // w * w
        if full:
            with f.loop(low, f.lesser(high, full), w) as loop:
                self._inside(axis, loop.i, body)
        if full == axis.extent:
            return
        if high == axis.extent:
            self._rest(axis, full, body)
            return
        with f.when(f.compare("eq", f.integer(high), f.integer(axis.extent))):
            self._rest(axis, full, body)

    def _rest(self, axis: Axis, start: int, body: Callable[[], None]) -> None:
        """Less than a whole turn, in as few vectors as hold it."""
        wide, left = self.lanes, axis.extent - start
        self.lanes = self.unit * holding(-(-left // self.unit))
        part = self._masked if left < self.lanes else self._inside
        part(axis, start, body)
        self.lanes = wide

    def _masked(self, axis: Axis, start: int, body: Callable[[], None]) -> None:
        left = axis.extent - start
        lanes = [lane < left for lane in range(self.lanes)]
        self.mask = self.f.vector(Type("i", 1, self.lanes), lanes)
        self.left = left
        self._inside(axis, start, body)
        self.mask = self.left = None

    # -- statements --------------------------------------------------------------------------

    def _block(self, stmts: Sequence[Stmt]) -> None:
        for at, s in enumerate(stmts):
            if isinstance(s, Assign):
                self.vars[s.var, s.turn] = self._held(s.var, self.value(s.expr))
            elif isinstance(s, Store):
                self._ahead(stmts, at)
                self.store(s.buffer, s.index, self.value(s.expr))
            elif self.vertical or self.vector not in s.axes:
                self.plain(s)
            else:
                self._horizontal(s)

    def _ahead(self, stmts: Sequence[Stmt], at: int) -> None:
        """Compute all that is stored next before the first store: memory may be shared."""
        if at and isinstance(stmts[at - 1], Store):
            return
        for s in stmts[at:]:
            if not isinstance(s, Store):
                return
            self.value(s.expr)

    def _held(self, var: Var, x: Num) -> Num:
        """A variable's value: in vertical kernels a vector, so that loops can carry it."""
        lanes = self.lanes if self.vertical else 0
        return tuple(self.f.splat(v, lanes) for v in x)

    def _current(self, var: Var, turn: int) -> Num:
        if turn == 0 and (var, 0) not in self.vars:
            start = number(self.kernel.table, var.init, var.dtype or np.asarray(var.init).dtype)
            self.vars[var, 0] = self._held(var, self.value(start))
        return self.vars[var, turn]

    # -- numbers ----------------------------------------------------------------------------

    def _hoist(self, stmts: Sequence[Stmt], inner: set[Axis]) -> None:
        """Compute before a loop what does not change in it."""
        for e in invariants(stmts, inner):
            self.value(e)

    def value(self, e: Expr) -> Num:
        """An expression's number, written where it is first needed."""
        key = (id(e), self.mask if self.vector in e.axes else None)
        if e.op == "var":
            return self._current(*e.data)
        for memo in reversed(self.memos):
            if key in memo:
                return memo[key]
        found = self._left(e) if id(e) in self.kept.rows else self._written(e)
        self.memos[-1][key] = found
        return found

    def _left(self, e: Expr) -> Num:
        """Numbers that a loop leaves for others."""
        assert self.vector is not None
        at = self.at[self.vector]
        known = self.kept.found(e, at, self.lanes)
        if known is not None:
            return (known,)
        (x,) = self._written(e)
        self.kept.leave(e, at, x, self.lanes)
        return (x,)

    def _written(self, e: Expr) -> Num:
        f = self.f
        if e.op == "number":
            parts = np.frombuffer(e.data, e.dtype)
            return constant(f, parts[0], e.dtype)
        if e.op == "load":
            return self.load(*e.data)
        if e.op == "place":
            return (self.number_of(e.data),)
        if e.op == "guard":
            return self._guarded(e)
        if e.op == "checked":
            return (self.checked(self.value(e.args[0])[0], *e.data),)
        if e.op == "required":
            x, (good,) = map(self.value, e.args)
            said, node = e.data
            self.required(x[0], good, said, node, kind_of(e.dtype))
            return x
        args = [self.value(a) for a in e.args]
        return compute(f, e.op, args, [a.dtype for a in e.args], e.dtype)

    def _guarded(self, e: Expr) -> Num:
        """A number whose loads may only be done where a test holds."""
        f, (test, inner, outside) = self.f, e.args
        holds, otherwise = self.value(test)[0], self.value(cast(outside, e.dtype))
        before = self.mask
        if before is None:
            self.mask = holds
        else:
            (a,), (b,) = even(f, (before,), (holds,))
            self.mask = f.bitwise("and", a, b)
        self.memos.append({})
        found = self.value(inner)
        self.memos.pop()
        self.mask = before
        return compute(f, "where", [(holds,), found, otherwise], [e.dtype], e.dtype)
