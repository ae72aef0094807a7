"""Attention forward, in tiles: a softmax over keys that come block by block."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from retrograd.jit.llvm.attention_block import KERNEL, Block, Column, Keys, Queries
from retrograd.jit.llvm.attention_plan import Geometry, Plan, Tiling
from retrograd.jit.llvm.attention_rows import RowsOut
from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.math import FUNCTIONS
from retrograd.jit.llvm.text import I64, Int, Val

if TYPE_CHECKING:
    from retrograd.jit.llvm.text import Module

__all__ = ["write_forward"]

MANY = 16  # heads, in all of the batch: enough for the threads


def write_forward(
    module: Module, name: str, geometry: Geometry, inputs: int, *, linkage: str = "internal"
) -> KernelInfo:
    """A kernel for attention: its buffers are the `inputs`, q, k and v first, then out, lse."""
    f = Fn(module, name, KERNEL, linkage=linkage)
    plan = Plan(geometry, Tiling.of(module.machine, geometry.size))
    writer = _Forward(f, plan, inputs)
    g, rows = geometry, geometry.batch * geometry.heads
    # A head's keys stay near if one thread has all its queries.
    units = rows if rows >= MANY else rows * plan.blocks
    chunks = plan.chunks(units, 2)
    if rows * g.queries:
        writer.write(units, chunks)
    f.done()
    flops = 2 * g.pairs * (g.features + g.values)
    moved = g.queries * g.heads * (g.features + g.values + 1)
    moved += g.keys * g.kinds * (g.features + g.values)
    return KernelInfo(name, chunks, writer.b.scratch, flops, moved * g.batch * g.size)


class _Forward:
    """Writes the loops: blocks of queries, and for each the blocks of keys that it sees."""

    def __init__(self, f: Fn, plan: Plan, inputs: int) -> None:
        self.f, self.plan, self.g = f, plan, plan.geometry
        self.out, self.lse = inputs, inputs + 1
        self.b = Block(f, plan)
        self.t = self.b.t
        self.b.hold("result", plan.queries * plan.wide)
        for name in ("top", "total", "factors"):
            self.b.hold(name, plan.queries)

    def write(self, units: int, chunks: int) -> None:
        """The whole kernel: the pieces of a chunk lie apart, so that chunks are even."""
        f, g, plan = self.f, self.g, self.plan
        self.b.load_buffers(self.lse + 1)
        many = f.const(I64, g.batch * g.heads)
        with f.loop(f.arg("chunk"), units, chunks) as loop:
            # The last queries may see the most keys: these come first.
            last = f.sub(f.const(I64, plan.blocks - 1), f.div(loop.i, many))
            rest = f.rem(loop.i, many)
            spot = f.div(rest, f.const(I64, g.heads)), f.rem(rest, f.const(I64, g.heads))
            low: Int = 0 if units < g.batch * g.heads * plan.blocks else last
            with f.loop(low, f.plus(last, 1), down=True) as number:
                first = f.mul(number.i, f.const(I64, plan.queries))
                left = f.sub(f.const(I64, g.queries), first)
                count = f.integer(f.lesser(plan.queries, left))
                self._queries(Queries(*spot, first, count))

    def _queries(self, at: Queries) -> None:
        """One block of queries: all its keys, then the result."""
        b, g, plan, f = self.b, self.g, self.plan, self.f
        b.bring_queries(at, 0, "queries", g.features, g.scale)
        b.turn("queries", "turned", plan.deep)
        b.fill("result", plan.queries * plan.wide)
        b.fill("total", plan.queries)
        b.fill("top", plan.queries, -inf)
        slope = b.slope(at)
        with b.key_blocks(at, 0, g.keys) as (keys, start):
            b.bring_keys(at, keys, 1, "keys", g.features)
            b.bring_keys(at, keys, 2, "values", g.values)
            b.bring_added(at, keys)
            with b.query_tiles(at, keys) as column:
                b.products(column, "keys", "turned", g.features, "scores")
                if g.dropout:
                    b.chances(at, keys, column)
                tops = self._tops(column, keys, slope)
                self._weights(column, tops)
            with f.when(f.compare("sgt", keys.first, f.integer(start))):
                fade = RowsOut(g.type, plan.wide, plan.wide, plan.wide, each=True)
                b.take(fade, b.held("result"), b.held("result"), at.count)
            self._gather(at, keys)
        self._finish(at)

    def _tops(self, column: Column, keys: Keys, slope: Val | None) -> list[Val]:
        """Scores as they count, in place, and the largest of each query so far."""
        b, f, count = self.b, self.f, self.plan.tiling.vectors
        places = b.places_of(column)
        tops = [f.load(self.t, self._at("top", column, n)) for n in range(count)]
        changes = bool(slope or self.g.bias or self.g.mask)
        for first, end, hides in b.runs(column):
            with f.loop(first, end, carry=tops) as loop:
                key = f.add(keys.first, loop.i)
                for n in range(count):
                    spot = b.spot("scores", loop.i, column, n)
                    x = f.load(self.t, spot)
                    if changes or hides:
                        x = b.score(x, (loop.i, column, n), key, places[n], slope, hides)
                        f.store(x, spot)
                    # NaN need not be found here: it comes back as a weight.
                    higher = f.compare("ogt", x, loop.carry[n])
                    loop.next[n] = f.select(higher, x, loop.carry[n])
            tops = list(loop.results)
        return tops

    def _weights(self, column: Column, tops: list[Val]) -> None:
        """exp(score - top) in place of scores; their sum, and how old results fade."""
        b, f, t = self.b, self.f, self.t
        bases, totals = [], []
        for n, top in enumerate(tops):
            # Queries that saw no key yet have no top to be measured from.
            blind = f.compare("oeq", top, f.const(t, -inf))
            bases.append(f.select(blind, f.zero(t), top))
            fade = b.weight(f.load(t, self._at("top", column, n)), bases[n], hides=True)
            f.store(top, self._at("top", column, n))
            f.store(fade, self._at("factors", column, n))
            totals.append(f.mul(f.load(t, self._at("total", column, n)), fade))
        for first, end, hides in b.runs(column):
            with f.loop(first, end, carry=totals) as loop:
                for n, base in enumerate(bases):
                    spot = b.spot("scores", loop.i, column, n)
                    weight = b.weight(f.load(t, spot), base, hides=hides)
                    loop.next[n] = f.add(loop.carry[n], weight)
                    if self.g.dropout:
                        chance = f.load(t, b.spot("chances", loop.i, column, n))
                        weight = f.mul(weight, chance)
                    f.store(weight, spot)
            totals = list(loop.results)
        for n, total in enumerate(totals):
            f.store(total, self._at("total", column, n))

    def _at(self, name: str, column: Column, n: int) -> Val:
        return self.b.held(name, self.f.plus(column.at, n * self.t.lanes))

    def _gather(self, at: Queries, keys: Keys) -> None:
        """Add weights times values to the result."""
        b, f, plan = self.b, self.f, self.plan
        with b.query_rows(at, keys) as (row, low, depth):
            place: Int = f.plus(f.times(low, plan.queries), row)
            a = b.held("scores", place), (1, plan.queries)
            values = b.held("values", f.times(low, plan.wide))
            b.add_product(
                a, values, b.held("result", f.times(row, plan.wide)), depth, plan.wide
            )

    def _finish(self, at: Queries) -> None:
        """Results over totals, and their logs: 0 for queries that see no key."""
        b, f, g, plan = self.b, self.f, self.g, self.plan
        with f.loop(0, plan.queries, self.t.lanes) as loop:
            total = f.load(self.t, b.held("total", loop.i))
            top = f.load(self.t, b.held("top", loop.i))
            blind = f.compare("oeq", total, f.zero(self.t))
            one = f.const(self.t, 1.0)
            total = f.select(blind, one, total)
            top = f.select(blind, f.zero(self.t), top)
            f.store(f.div(one, total), b.held("factors", loop.i))
            f.store(f.add(FUNCTIONS["log"](f, total), top), b.held("top", loop.i))
        place = b.row(at.batch, at.first, g.queries, at.head, g.heads, g.values)
        rows = RowsOut(g.type, g.values, plan.wide, g.heads * g.values, each=True)
        b.take(rows, b.held("result"), b.buffer(self.out, place), at.count)
        start = b.row(at.batch, at.first, g.queries, at.head, g.heads, 1)
        with f.loop(0, at.count) as loop:
            x = f.load(g.type, b.held("top", loop.i))
            f.store(x, b.buffer(self.lse, f.plus(start, f.times(loop.i, g.heads))))
