"""What the kernels of all SSDs share: sizes, matrices in scratch, products of them.

A chunk of time is L steps, a whole number of vectors; matrices in scratch are dense, their
sides L, P (channels of a head) and R (state) in whole vectors, zeros beyond what exists: so
the last chunk is as long as the others, and tiles have no edges. States are held as (R, P).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm_pack import Pack
from retrograd.jit.llvm.gemm_tile import load_some, store_some
from retrograd.jit.llvm.text import I64, PTR, Int, Module, Type, Val

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.llvm.selective import Strides

__all__ = ["Matrix", "Room", "Ssd", "call_rows", "dense", "transpose"]

INNER = "nounwind noinline"


@dataclass(frozen=True)
class Ssd:
    """The sizes of one SSD.

    `kind` says what weighs a token: "dt", its step, which also is its log decay over A;
    "one", nothing; "two", gamma at its own time and scale ever after.
    """

    batch: int
    time: int
    heads: int
    groups: int
    p: int
    r: int
    L: int
    lanes: int
    kind: str
    type: Type
    A: Strides
    D: Strides
    initial: Strides

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return self.type.bits // 8

    @property
    def P(self) -> int:  # noqa: N802
        """Channels of a head in whole vectors."""
        return whole(self.p, self.lanes)

    @property
    def R(self) -> int:  # noqa: N802
        """The state in whole vectors."""
        return whole(self.r, self.lanes)

    @property
    def chunks(self) -> int:
        """Of time."""
        return -(-self.time // self.L)

    @property
    def q(self) -> int:
        """Heads of a group."""
        return self.heads // self.groups

    @property
    def states(self) -> int:
        """Bytes of the states before, between and after all chunks."""
        return self.batch * self.heads * (self.chunks + 1) * self.R * self.P * self.size

    def flops(self, inner: int) -> int:
        """Of products over all times and heads with so many numbers for each."""
        return 2 * self.batch * self.chunks * self.L * self.heads * inner

    def rows(self, f: Fn, pointer: Val, batch: Int, t: Int, which: tuple[Int, int, int]) -> Val:
        """Item `which[0]` of `which[1]`, each `which[2]` long, in (batch, time, items, ...)."""
        item, items, length = which
        at = f.plus(f.times(f.plus(f.times(batch, self.time), t), items), item)
        return f.at(pointer, f.times(at, length), self.type)

    def state(self, f: Fn, pointer: Val, batch: Int, head: Int, slot: Int) -> Val:
        """A state of those before, between and after the chunks."""
        unit = f.plus(f.times(batch, self.heads), head)
        at = f.plus(f.times(unit, self.chunks + 1), slot)
        return f.at(pointer, f.times(at, self.R * self.P), self.type)

    def shared(self, f: Fn, pointer: Val, by: Strides, batch: Int, head: Int) -> Val:
        """The place of what A, D or initial have for a head."""
        return f.at(pointer, f.plus(f.times(batch, by[0]), f.times(head, by[1])), self.type)


def whole(n: int, lanes: int) -> int:
    """n, up to whole vectors."""
    return -(-n // lanes) * lanes


@dataclass(frozen=True)
class Matrix:
    """A dense matrix in scratch."""

    at: Val
    rows: int
    columns: int

    @property
    def T(self) -> Matrix:  # noqa: N802
        """Transposed, as the left side of a product."""
        return Turned(self.at, self.columns, self.rows)

    @property
    def steps(self) -> tuple[int, int]:
        """Between rows and between columns."""
        return self.columns, 1


class Turned(Matrix):
    """A dense matrix read by columns."""

    @property
    def steps(self) -> tuple[int, int]:
        """Between rows and between columns."""
        return 1, self.rows


class Room:
    """Scratch being given out."""

    def __init__(self, f: Fn, t: Type) -> None:
        self.f, self.t, self.used = f, t, 0

    def matrix(self, rows: int, columns: int = 1) -> Matrix:
        """Memory of its own."""
        at = self.f.at(self.f.arg("scratch"), self.used, self.t)
        self.used += -(-rows * columns // 16) * 16
        return Matrix(at, rows, columns)

    @property
    def bytes(self) -> int:
        """Of all."""
        return self.used * self.t.bits // 8


def transpose(f: Fn, t: Type, source: Matrix, target: Matrix) -> None:
    """target = source transposed."""
    pack = Pack(t, target.columns, target.columns, (source.columns, 1), 0).write(f.module)
    f.call(pack, None, source.at, target.at, f.const(I64, target.rows))


def dense(
    f: Fn,
    t: Type,
    source: tuple[Val, int, int],
    target: Matrix,
    valid: Int,
    weights: Val | None = None,
) -> None:
    """Rows to a matrix, zeros beyond; `source`: where, numbers in a row, and between rows."""
    at, count, step = source
    name = f"ssd_rows_{t.suffix}_{count}_{step}_{target.rows}_{target.columns}"
    name += "_weighed" if weights else ""
    f.module.once(name, lambda: _write_dense(f.module, name, t, (count, step), target, weights))
    f.call(name, None, at, target.at, f.integer(valid), weights or target.at)


def _write_dense(
    module: Module,
    name: str,
    t: Type,
    rows: tuple[int, int],
    target: Matrix,
    weights: Val | None,
) -> None:
    args = [("source", PTR), ("target", PTR), ("valid", I64), ("weights", PTR)]
    f = Fn(module, name, args, attributes=INNER)
    (count, step), lanes = rows, module.machine.lanes(t.bits // 8)
    wide = t.by(lanes)
    with f.loop(0, f.arg("valid")) as down:
        here = f.at(f.arg("source"), f.times(down.i, step), t)
        there = f.at(f.arg("target"), f.times(down.i, target.columns), t)
        weight = f.load(t, f.at(f.arg("weights"), down.i, t)) if weights else None

        def move(at: Int, have: int) -> None:
            x = load_some(f, wide, f.at(here, at, t), have)
            x = f.mul(x, f.splat(weight, lanes)) if weight else x
            f.store(x, f.at(there, at, t))

        with f.loop(0, count // lanes * lanes, lanes) as across:
            move(across.i, 0)
        if count % lanes:
            move(count // lanes * lanes, count % lanes)
    first = f.times(f.arg("valid"), target.columns)
    with f.loop(first, target.rows * target.columns, lanes) as rest:
        f.store(f.zero(wide), f.at(f.arg("target"), rest.i, t))
    f.done()


def call_rows(f: Fn, t: Type, source: Matrix, target: tuple[Val, int, int], valid: Int) -> None:
    """Rows of a matrix to where they belong: where, numbers in a row, and between rows."""
    at, count, step = target
    name = f"ssd_out_{t.suffix}_{count}_{step}_{source.columns}"
    f.module.once(name, lambda: _write_rows(f.module, name, t, source.columns, (count, step)))
    f.call(name, None, source.at, at, f.integer(valid))


def _write_rows(module: Module, name: str, t: Type, wide: int, to: Sequence[int]) -> None:
    args = [("source", PTR), ("target", PTR), ("valid", I64)]
    f = Fn(module, name, args, attributes=INNER)
    (count, step), lanes = to, module.machine.lanes(t.bits // 8)
    with f.loop(0, f.arg("valid")) as down:
        here = f.at(f.arg("source"), f.times(down.i, wide), t)
        there = f.at(f.arg("target"), f.times(down.i, step), t)
        with f.loop(0, count // lanes * lanes, lanes) as across:
            x = f.load(t.by(lanes), f.at(here, across.i, t))
            f.store(x, f.at(there, across.i, t))
        if rest := count % lanes:
            at = count // lanes * lanes
            store_some(f, f.load(t.by(lanes), f.at(here, at, t)), f.at(there, at, t), rest)
    f.done()
