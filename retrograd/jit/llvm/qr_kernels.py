"""The kernels of Qr: turns as in elimination, then each panel of q on its own."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.conv_chunks import MOST_CHUNKS
from retrograd.jit.llvm.lu_tiny import Group, Lanes
from retrograd.jit.llvm.qr import Tall, write_apply, write_columns, write_reflect
from retrograd.jit.llvm.qr_tiny import factored
from retrograd.jit.llvm.text import I64, Val
from retrograd.jit.llvm.triangle_pack import Lines, clear, dealt, kinds, trim
from retrograd.jit.llvm.triangle_stages import moved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.triangle_stages import Places

__all__ = ["QrKernels"]

TINY = 36  # numbers of a matrix that a lane has
SMALL = 1 << 14  # numbers of a matrix that one thread takes alone
MEDIUM, MANY = 1 << 18, 8  # the same if there are many matrices, and how many are
LONG = 64  # turns: such a loop can be interrupted


class QrKernels(Lanes):
    """Qr."""

    fails = True  # long loops can be interrupted
    names = ("x", "q", "r")

    def prepare(self, op: Any, specs: Sequence[Spec]) -> None:
        """One kernel for all, or one for each stage."""
        *lead, m, n = specs[0].shape
        self.stack = prod(lead)
        s = self.s = Tall.shaped(self.writer.machine, m, n, self.type)
        self.dims = [(self.stack, m * n, m * n, n * n)]
        panels = s.count * s.rows * s.block * s.size
        room = dict.fromkeys(("work", "v", "vt", "side"), panels)
        room |= {"t": 2 * s.count * s.block**2 * s.size, "signs": s.count * s.block * s.size}
        flops, nbytes = self.stack * 2 * m * n * n, self.stack * (2 * m + n) * n * s.size
        if m * n <= TINY:
            self.many(self.stack, (flops, nbytes), lambda at, g: self.lanes(at, g, (m, n)))
            return
        self.together = m * n > (MEDIUM if self.stack >= MANY else SMALL)
        if not self.together:
            self.whole("all", room, self.dims, (flops, nbytes), self.alone)
            return
        self.room = room
        chunks = min(MOST_CHUNKS, s.count)
        for what in ("begin", "turn", "result"):
            cost = (0, nbytes) if what == "begin" else (flops, 0)
            self.stage(what, getattr(self, what), chunks, cost)

    def lanes(self, at: Places, g: Group, shape: tuple[int, int]) -> None:
        """All of some small matrices."""
        m, n = shape
        q, r = factored(g, g.read(at["x"], m * n, shape))
        g.write(q, at["q"], m * n)
        g.write(r, at["r"], n * n)

    def alone(self, f: Fn, at: Places, number: Val) -> None:
        """All stages of one matrix."""
        only = f.const(I64, 0), f.const(I64, 1)
        self.begin(f, at, number, *only)
        with f.loop(0, self.s.count - 1) as loop:
            self.turn(f, at, loop.i, *only)
        self.result(f, at, number, *only)

    def body(self, at: Places) -> None:
        """All launches."""
        if "lanes" in self.kernels:
            self.launch("lanes", at)
            return
        if not self.together:
            self.launch("all", at)
            return
        f = self.writer.f
        with f.loop(0, self.stack) as loop:
            here = {**at, **moved(f, self.type, self.names, at, loop.i, self.dims)}
            self.launch("begin", here)
            with f.loop(0, self.s.count - 1) as turn:
                self.launch("turn", here, turn.i)
                if self.s.count > LONG:
                    self.writer.turned()
            self.launch("result", here)

    # -- stages ------------------------------------------------------------------------------

    def begin(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """Fill all panels, and reflect the first."""
        fill = write_columns(f.module, self.s)
        with dealt(f, 0, self.s.count, chunk, chunks) as j:
            f.call(fill, None, at["x"], f.at(at["work"], self.s.full(f, j), self.type), j)
            with f.when(f.compare("eq", j, f.const(I64, 0))):
                self.reflect(f, at, j)

    def turn(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """What the reflections of panel `word` make of all after it; the next is reflected."""
        following = f.integer(f.plus(word, 1))
        with dealt(f, following, self.s.count, chunk, chunks) as j:
            self.apply(f, at, (word, j), "work")
            with f.when(f.compare("eq", j, following)):
                self.reflect(f, at, j)

    def result(self, f: Fn, at: Places, word: Val, chunk: Val, chunks: Val) -> None:
        """Panels of q and r."""
        with dealt(f, 0, self.s.count, chunk, chunks) as j:
            self.triangle(f, at, j)
            self.columns(f, at, j)

    # -- panels ------------------------------------------------------------------------------

    def place(self, f: Fn, at: Places, name: str, j: Val, row: Val) -> Val:
        """A block of rows of a panel."""
        s = self.s
        return f.at(at[name], f.plus(s.full(f, j), f.times(row, s.block**2)), s.type)

    def reflect(self, f: Fn, at: Places, j: Val) -> None:
        """Reflect a panel; where its diagonal is negative, rows change sign in the end."""
        s, t = self.s, self.type
        own = f.at(at["t"], f.times(j, 2 * s.block**2), t)
        panel, v, vt = (self.place(f, at, n, j, j) for n in ("work", "v", "vt"))
        f.call(write_reflect(f.module, s), None, panel, v, vt, own, j)
        with f.loop(0, s.block) as loop:
            x = f.load(t, f.at(panel, f.times(loop.i, s.block + 1), t))
            negative = f.compare("olt", x, f.zero(t))
            sign = f.select(negative, f.const(t, -1), f.const(t, 1))
            spot = f.plus(f.times(j, s.block), loop.i)
            f.store(sign, f.at(at["signs"], spot, t))

    def apply(self, f: Fn, at: Places, pair: tuple[Val, Val], name: str) -> None:
        """The reflections of panel k, of a panel; of those of q backwards."""
        s, (k, j) = self.s, pair
        skip = f.times(f.plus(f.times(k, 2), int(name == "side")), s.block**2)
        own = f.at(at["t"], skip, s.type)
        v, vt = (self.place(f, at, n, k, k) for n in ("v", "vt"))
        blocks = f.sub(f.const(I64, s.rows // s.block), k)
        x = self.place(f, at, name, j, k)
        f.call(write_apply(f.module, s), None, v, vt, own, x, blocks)

    def triangle(self, f: Fn, at: Places, j: Val) -> None:
        """Columns of r: rows with their signs, and zeros."""
        s, t = self.s, self.type
        lanes = f.machine.lanes(s.size)
        trim(f, s, self.place(f, at, "work", j, j), upper=True)
        panel = f.at(at["work"], s.full(f, j), t)
        end = f.times(f.plus(j, 1), s.block)
        with f.loop(0, end) as down:
            sign = f.splat(f.load(t, f.at(at["signs"], down.i, t)), lanes)
            for column in range(0, s.block, lanes):
                here = f.at(panel, f.plus(f.times(down.i, s.block), column), t)
                f.store(f.mul(f.load(t.by(lanes), here), sign), here)
        left = f.plus(f.times(end, -1), s.rows)
        clear(f, f.at(panel, f.times(end, s.block), t), f.times(left, s.block * s.size))
        self.out(f, (panel, at["r"]), j, s.n)

    def columns(self, f: Fn, at: Places, j: Val) -> None:
        """Columns of q: of the identity, reflected by all panels up to their own."""
        s, t = self.s, self.type
        lanes, panel = f.machine.lanes(s.size), f.at(at["side"], s.full(f, j), t)
        clear(f, panel, s.rows * s.block * s.size)
        own = self.place(f, at, "side", j, j)
        with f.loop(0, s.block) as loop:
            f.store(f.const(t, 1), f.at(own, f.times(loop.i, s.block + 1), t))
        with f.loop(0, f.plus(j, 1), down=True) as loop:
            self.apply(f, at, (loop.i, j), "side")
        wide, steps = t.by(lanes), range(0, s.block, lanes)
        begin = f.at(at["signs"], f.times(j, s.block), t)
        signs = [f.load(wide, f.at(begin, column, t)) for column in steps]
        with f.loop(0, s.m) as down:
            for column, sign in zip(steps, signs, strict=True):
                here = f.at(panel, f.plus(f.times(down.i, s.block), column), t)
                f.store(f.mul(f.load(wide, here), sign), here)
        self.out(f, (panel, at["q"]), j, s.m)

    def out(self, f: Fn, ends: tuple[Val, Val], j: Val, rows: int) -> None:
        """A panel, to its place in a matrix."""
        s = self.s
        target = f.at(ends[1], f.times(j, s.block), s.type)
        for columns in kinds(f, j, s.n, s.block):
            lines = Lines(s.type, columns, s.block, s.n).write(f.module)
            f.call(lines, None, ends[0], target, f.const(I64, rows))
