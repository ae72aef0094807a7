"""Recurrent layers over whole sequences: one product for all inputs, then turn after turn.

Forward, x @ w_ih of all steps is one product, written where the gates will be. Backward, the
blame of all steps is kept, so that gradients of weights and of x are one product each. What
goes round is one kernel, launched in a loop, with the number of the turn as its last word.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from retrograd.jit.llvm.carry import copy
from retrograd.jit.llvm.gemm import Gemm, write_gemm
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.launches import REAL, Kernels
from retrograd.jit.llvm.recurrent_blame import Backward, GruBlame, LstmBlame, RnnBlame
from retrograd.jit.llvm.recurrent_cells import Forward, GruCell, LstmCell, RnnCell
from retrograd.jit.llvm.recurrent_cut import Cut, Sizes, write_pack
from retrograd.jit.llvm.recurrent_rows import (
    write_check,
    write_firsts,
    write_read,
    write_totals,
    zero,
)
from retrograd.jit.llvm.recurrent_spot import length
from retrograd.jit.llvm.recurrent_turn import write_turn
from retrograd.jit.llvm.text import I8, I64, PTR, Module, Type, Val
from retrograd.memory.problem import rounded
from retrograd.ops.nn.gru import Gru, GruGrad
from retrograd.ops.nn.lstm import Lstm, LstmGrad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.recurrent_spot import Cell

__all__ = ["RecurrentGradKernels", "RecurrentKernels"]

NEAR = 1 << 21  # bytes of weights that stay in a near cache from turn to turn
LONG = 1 << 10  # steps: such a loop can be interrupted
_WRITTEN: WeakKeyDictionary[Module, dict[str, KernelInfo]] = WeakKeyDictionary()


class Recurrent(Kernels):
    """What both directions share: sizes, names of buffers, launches by name."""

    fails = True  # lengths may be wrong, and long loops can be interrupted
    names: tuple[str, ...]  # inputs, then outputs
    room: dict[str, int]  # temporaries and their bytes

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """One set of weights, and something to do."""
        x, _, w_hh = specs[:3]
        real = x.dtype.name in REAL and x.ndim == 3 and all(x.shape)
        return real and all(w_hh.shape)

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        """Write the functions."""
        self.who = op.name
        self.begin(op, len(specs))
        key = repr((op, *specs, sorted(self.unread), NEAR))
        digest = hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
        self.name = f"{op.name}_{digest}"  # equal layers share their kernels
        named = dict(zip(self.names, specs, strict=False))
        x, width, lengths = named["x"], named["w_hh"].shape[0], named["lengths"].dtype
        gates = named["w_hh"].shape[1] // width
        kept = 4 if gates > 1 else 1
        steps, batch, inputs = x.shape
        self.s = Sizes(
            steps,
            batch,
            inputs,
            width,
            gates,
            kept,
            op.backwards,
            t,
            Type("i", lengths.itemsize * 8),
            lengths.kind == "i",
            getattr(op, "relu", False),
        )
        self.kernels: dict[str, KernelInfo] = {}
        self.room = {}
        self.prepare()
        self.temporaries = tuple(self.room.values())
        self.launches = [(info, ()) for info in self.kernels.values()]

    @abstractmethod
    def begin(self, op: Any, given: int) -> None:
        """Find the names of the buffers."""

    @abstractmethod
    def prepare(self) -> None:
        """Write the kernels; say what room they need."""

    @abstractmethod
    def body(self, at: dict[str, Val]) -> None:
        """Launch them."""

    def add(self, what: str, write: Any, *args: Any, **options: Any) -> None:
        """A kernel, written unless a layer like this one has it."""
        module = self.writer.module
        known, name = _WRITTEN.setdefault(module, {}), f"{self.name}_{what}"
        if name not in known:
            known[name] = write(module, name, *args, **options)
        self.kernels[what] = known[name]

    def gemm(self, what: str, *sizes: Any, epilogue: Any = None) -> None:
        """A product."""
        m, n, k, a, b, c = sizes
        self.add(what, write_gemm, Gemm(m, n, k, self.s.type, a, b, c), epilogue=epilogue)

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
        self.body(at)

    def launch(self, what: str, *pointers: Val) -> None:
        """One kernel, once."""
        self.writer.launch(self.kernels[what], pointers)

    def turns(self, at: dict[str, Val], cell: Cell) -> None:
        """The loop over all steps."""
        with self.writer.f.loop(0, self.s.steps) as loop:
            self.turn("turn", at, cell, loop.i)
            if self.s.steps >= LONG:
                self.writer.turned()

    def turn(self, what: str, at: dict[str, Val], cell: Cell, number: Val) -> None:
        """One turn of the loop."""
        f = self.writer.f
        word = f.make(PTR, f"inttoptr {number} to ptr")
        self.launch(what, at["packed"], *(at[n] for n in cell.names), word)

    def moved(self, pointer: Val, count: int) -> Val:
        """So many numbers further."""
        return self.writer.f.at(pointer, count, self.s.type)


class RecurrentKernels(Recurrent):
    """Forward."""

    def begin(self, op: Any, given: int) -> None:
        """As the ops have them."""
        self.kind: type[Forward] = RnnCell
        own, more = "b h0", ""
        if isinstance(op, Lstm):
            self.kind, own, more = LstmCell, "b h0 c0", "c gates cells"
        elif isinstance(op, Gru):
            self.kind, own, more = GruCell, "b_ih b_hh h0", "gates"
        self.names = tuple(f"x w_ih w_hh {own} lengths y h {more}".split())

    def prepare(self) -> None:
        """A check, packs, a product unless it is part of the turn, a turn."""
        s = self.s
        cut = Cut.of(self.writer.machine, s, s.gates, s.width)
        other = replace(cut, depth=s.inputs)
        self.cell = self.kind(fused=cut.packed + other.packed <= NEAR)
        self.room = {"packed": cut.packed, "states": 2 * s.batch * s.width * s.size}
        self.add(f"check{self.node}", write_check, s, self.writer.faults, (self.node, self.who))
        self.add("pack", write_pack, cut, s)
        if self.cell.fused:
            self.room["packed_x"] = other.packed
            self.add("pack_x", write_pack, other, s)
        else:
            wide, row = s.gates * s.width, s.kept * s.width
            strides = (s.inputs, 1), (wide, 1), (row, 1)
            self.gemm("project", s.steps * s.batch, wide, s.inputs, *strides)
        self.add("turn", write_turn, cut, s, self.cell, turns=s.steps)

    def body(self, at: dict[str, Val]) -> None:
        """All launches."""
        f, s = self.writer.f, self.s
        self.launch(f"check{self.node}", at["lengths"], self.writer.status())
        self.launch("pack", at["w_hh"], at["packed"])
        if self.cell.fused:
            self.launch("pack_x", at["w_ih"], at["packed_x"])
        else:
            sums = at["gates"] if "gates" in at else at["y"]
            inward = self.moved(sums, (s.kept - s.gates) * s.width)
            self.launch("project", at["x"], at["w_ih"], inward)
        self.turns(at, self.cell)
        if "c" in at:
            size = s.batch * s.width
            last = self.moved(at["cells"], 0 if s.backwards else (s.steps - 1) * size)
            copy(f, at["c"], last, size * s.size)


class RecurrentGradKernels(Recurrent):
    """Backward."""

    def begin(self, op: Any, given: int) -> None:
        """As the ops have them."""
        cell: type[Backward] = RnnBlame
        self.order: tuple[int, ...] = (0,)
        kept, more, outs = "h0 lengths y g_y g_h", "", "db dh"
        if isinstance(op, LstmGrad):
            kept, more = "h0 c0 lengths y gates cells g_y g_h g_c", "g_gates g_cells"
            cell, outs, self.order = LstmBlame, "db dh dc", (0, 1, 2, 3)
        elif isinstance(op, GruGrad):
            kept, more = "h0 lengths y gates g_y g_h", "g_gates"
            cell, outs, self.order = GruBlame, "db db_hh dh", (2, 0, 1)
        first = f"x w_ih w_hh {kept}".split()
        inner = more.split() if given > len(first) else []
        self.names = (*first, *inner, *f"dx dw_ih dw_hh {outs}".split())
        self.cells = [cell(last=last, inner=bool(inner)) for last in (False, True)]

    @property
    def pieces(self) -> list[tuple[int, int, int]]:
        """Columns of the gradient of w_hh: how many, where in the blame, where they go."""
        n, gates = self.s.width, self.s.gates
        return [(2 * n, n, 0), (n, 0, 2 * n)] if gates == 3 else [(gates * n, 0, 0)]

    def prepare(self) -> None:
        """A pack, turns, and the products of all steps."""
        s = self.s
        deep = self.cells[0].deep * s.width
        cut = Cut.of(self.writer.machine, s, 1, deep)
        self.parts = cut.grid[0]
        wide, rows = s.gates * s.width, s.steps * s.batch
        self.room = {
            "d": rows * s.stride * s.size,
            "packed": max(cut.packed, s.width * wide * s.size),
            "sums": self.parts * s.kept * s.width * s.size,
            "firsts": s.batch * s.stride * s.size if s.backwards else 0,
        }
        self.add("pack", write_pack, cut, s, self.order)
        for what, cell, turns in zip(("turn", "end"), self.cells, (s.steps, 1), strict=True):
            self.add(what, write_turn, cut, s, cell, turns=turns)
        self.add("read", write_read, s)
        self.add("totals", write_totals, s, self.parts)
        if s.backwards:
            self.add("firsts", write_firsts, s)
        if 0 not in self.unread:
            self.gemm("dx", rows, s.inputs, wide, (s.stride, 1), (1, wide), (s.inputs, 1))
        self.gemm("dw_ih", s.inputs, wide, rows, (1, s.inputs), (s.stride, 1), (wide, 1))
        for i, (n, _, _) in enumerate(self.pieces):
            strides = (1, s.width), (s.stride, 1), (wide, 1)
            self.gemm(f"first{i}", s.width, n, s.batch, *strides)
            if s.steps > 1:
                more = rows - s.batch
                self.gemm(f"rest{i}", s.width, n, more, *strides, epilogue=self._plus)

    def _plus(self, f: Fn, acc: Val, batch: Val, row: Val, col: Val, mask: Val | None) -> Val:
        """The product of the other steps, and that of the first."""
        skip = f.plus(f.times(row, self.s.gates * self.s.width), col)
        base = f.load(PTR, f.at(f.arg("bufs"), 3, I64), 8)
        at = f.at(base, skip, self.s.type)
        more = f.load(acc.type, at) if mask is None else f.masked_load(acc.type, at, mask)
        return f.add(acc, more)

    def body(self, at: dict[str, Val]) -> None:
        """All launches."""
        f, s = self.writer.f, self.s
        for state, given in (("dh", "g_h"), ("dc", "g_c")):
            if state in at:
                copy(f, at[state], at[given], s.batch * s.width * s.size)
        zero(f, at["sums"], self.room["sums"])
        self.launch("pack", at["w_hh"], at["packed"])
        self.turns(at, self.cells[0])
        self.turn("end", at, self.cells[1], f.const(I64, s.steps))
        self._weights(at)
        self._biases(at)
        inward = self.moved(at["d"], (s.kept - s.gates) * s.width)
        ragged = self._ragged(at["lengths"])
        with f.when(ragged):  # what x holds beyond the lengths may be anything
            self.launch("read", at["x"], at["lengths"], at["dx"])
        x = f.select(ragged, at["dx"], at["x"])
        self.launch("dw_ih", x, inward, at["dw_ih"])
        if "dx" in self.kernels:
            self.launch("dx", inward, at["w_ih"], at["dx"])

    def _weights(self, at: dict[str, Val]) -> None:
        """The gradient of w_hh: the first step's part, and all others'."""
        s, step = self.s, self.s.batch
        d, y, firsts = at["d"], at["y"], at["d"]
        if s.backwards:
            firsts = at["firsts"]
            self.launch("firsts", d, at["lengths"], firsts)
            y = self.moved(y, step * s.width)
        else:
            d = self.moved(d, step * s.stride)
        for i, (_, source, target) in enumerate(self.pieces):
            out, held = (self.moved(at[n], target) for n in ("dw_hh", "packed"))
            if s.steps == 1:
                self.launch(f"first{i}", at["h0"], self.moved(firsts, source), out)
                continue
            self.launch(f"first{i}", at["h0"], self.moved(firsts, source), held)
            self.launch(f"rest{i}", y, self.moved(d, source), out, held)

    def _biases(self, at: dict[str, Val]) -> None:
        f, s = self.writer.f, self.s
        self.launch("totals", at["sums"])
        n, size = s.width, s.size
        inward = self.moved(at["sums"], (s.kept - s.gates) * n)
        copy(f, at["db"], inward, s.gates * n * size)
        if "db_hh" in at:
            for count, source, target in self.pieces:
                there = self.moved(at["db_hh"], target)
                copy(f, there, self.moved(at["sums"], source), count * size)

    def _ragged(self, lengths: Val) -> Val:
        """Whether any sequence is shorter than the others."""
        f, s = self.writer.f, self.s
        most = f.const(I64, s.steps)
        with f.loop(0, s.batch, carry=[most]) as loop:
            n = length(f, s, f.at(lengths, loop.i, s.length))
            loop.next = [f.integer(f.lesser(loop.carry[0], n))]
        return f.compare("slt", loop.results[0], most)
