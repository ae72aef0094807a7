"""Attention backward, in tiles: scores are made again, used for all gradients, and dropped.

A piece of work is a head of keys, or a range of its keys: the gradients of these keys and
values add up in scratch, over all queries in order. Where ranges share queries, the gradients
of queries are added up afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from retrograd.jit.llvm.attention_block import KERNEL, Block, Column, Keys, Queries
from retrograd.jit.llvm.attention_plan import Geometry, Plan, Tiling
from retrograd.jit.llvm.attention_rows import RowsOut, Spread
from retrograd.jit.llvm.attention_window import clip
from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm_pack import Pack
from retrograd.jit.llvm.info import KernelInfo
from retrograd.jit.llvm.text import I64, Int, Val

if TYPE_CHECKING:
    from collections.abc import Collection

    from retrograd.jit.llvm.text import Module

__all__ = ["Backward", "Outputs", "write_backward"]

Q, K, V, LSE, G, DELTA = range(6)  # numbers of the buffers that are given


@dataclass(frozen=True)
class Outputs:
    """Numbers of the buffers that are written; `bias` holds zeros before."""

    q: int  # for each piece of the keys, if there are several
    k: int
    v: int
    bias: int | None = None
    slopes: int | None = None  # [batch, heads, pieces]: parts of sums


class Backward:
    """How backward is cut, for the gradients that are wanted beside those of q, k and v."""

    def __init__(
        self, module: Module, geometry: Geometry, wanted: Collection[str] = ("bias", "slopes")
    ) -> None:
        g, bias = geometry, geometry.bias if "bias" in wanted else None
        self.geometry, self.bias = geometry, bias
        self.slopes = geometry.slopes is not None and "slopes" in wanted
        self.plan = Plan(geometry, Tiling.of(module.machine, geometry.size))
        # What adds to the same numbers of a bias's gradient is one piece of work.
        self.batches = g.batch
        if bias is not None:
            self.batches = prod(n for n, s in zip(g.lengths, bias.batch, strict=True) if s)
        self.kinds = g.kinds if bias is None or bias.head else 1
        whole = bias is not None and not bias.key
        units = self.batches * self.kinds
        self.cuts = [0, g.keys] if whole else self.plan.cuts(units)
        self.units = units * self.pieces if g.batch else 0

    @property
    def pieces(self) -> int:
        """Ranges of keys."""
        return len(self.cuts) - 1


def write_backward(
    module: Module,
    name: str,
    cut: Backward,
    outputs: Outputs,
    buffers: int,
    *,
    linkage: str = "internal",
) -> KernelInfo:
    """A kernel for the gradients: q, k, v, lse, cotangent, delta, other operands, outputs."""
    f = Fn(module, name, KERNEL, linkage=linkage)
    g, chunks = cut.geometry, cut.plan.chunks(cut.units, 5)
    writer = _Backward(f, cut, outputs)
    if cut.units:
        writer.b.load_buffers(buffers)
        writer.write(chunks)
    f.done()
    flops = 2 * g.pairs * (3 * g.features + 2 * g.values)
    rows = g.queries * g.heads * (2 * g.features + g.values + 2)
    rows += 2 * g.keys * g.kinds * (g.features + g.values)
    return KernelInfo(name, chunks, writer.b.scratch, flops, rows * g.batch * g.size)


class _Range(NamedTuple):
    """Keys whose gradients are added up in scratch."""

    batch: Val
    kind: Val
    piece: Val
    first: Val
    end: Val
    more: Val  # whether the gradients of queries have parts already: 0 or 1


class _Backward:
    """Writes the loops: pieces, blocks of queries, and the blocks of keys that they see."""

    def __init__(self, f: Fn, cut: Backward, outputs: Outputs) -> None:
        self.f, self.cut, self.to = f, cut, outputs
        self.plan, self.g = cut.plan, cut.geometry
        plan = self.plan
        self.b = Block(f, plan, whole=cut.bias is not None)
        self.t = self.b.t
        sizes = {
            "blame": plan.keys * plan.queries,
            "cotangents": plan.queries * plan.wide,
            "cotangents_turned": plan.queries * plan.wide,
            "lse": plan.queries,
            "delta": plan.queries,
            "dq": plan.queries * plan.deep,
            "dk": plan.range * plan.deep,
            "dv": plan.range * plan.wide,
        }
        sizes |= {"slopes": plan.queries} if cut.slopes else {}
        for name, count in sizes.items():
            self.b.hold(name, count)

    def write(self, chunks: int) -> None:
        """The whole kernel."""
        f, g, cut = self.f, self.g, self.cut
        table = f.module.table(np.array(cut.cuts, np.int64))
        with f.loop(f.arg("chunk"), cut.units, chunks) as loop:
            pieces, kinds = f.const(I64, cut.pieces), f.const(I64, cut.kinds)
            piece, rest = f.rem(loop.i, pieces), f.div(loop.i, pieces)
            low = f.load(I64, f.at(table, piece, I64))
            high = f.load(I64, f.at(table, f.plus(piece, 1), I64))
            batches = self._run(f.div(rest, kinds), cut.batches, g.batch)
            heads = self._run(f.rem(rest, kinds), cut.kinds, g.kinds)
            with f.loop(*batches) as batch, f.loop(*heads) as kind:
                self._keys(batch.i, kind.i, piece, (low, high))

    def _run(self, at: Val, pieces: int, count: int) -> tuple[Int, Int]:
        """What the pieces of work cover of an axis: an even part of it."""
        size = count // pieces
        low = self.f.times(at, size)
        return low, self.f.plus(low, size)

    def _keys(self, batch: Val, kind: Val, piece: Val, keys: tuple[Val, Val]) -> None:
        """One piece: range by range, so that the gradients of its keys stay in a cache."""
        f, g, plan = self.f, self.g, self.plan
        self._start_slopes(batch, kind, piece)
        # Without keys there is one range of none: queries have gradients all the same.
        with f.loop(keys[0], keys[1] if g.keys else 1, plan.range) as loop:
            end = f.integer(f.lesser(f.plus(loop.i, plan.range), keys[1]))
            later = f.compare("ne", loop.i, keys[0])
            # The first range writes to every query, seen or not.
            low, high = self.b.queries_of(loop.i, end)
            low = f.select(later, f.integer(low), f.const(I64, 0))
            high = f.select(later, f.integer(high), f.const(I64, g.queries))
            more = f.convert("zext", later, I64)
            self._range(_Range(batch, kind, piece, loop.i, end, more), low, high)

    def _range(self, keys: _Range, low: Val, high: Val) -> None:
        """One range of keys: all queries that see some, then the gradients of the keys."""
        b, f, g, plan = self.b, self.f, self.g, self.plan
        for name, width in (("dk", plan.deep), ("dv", plan.wide)):
            b.fill(name, plan.range * width)
        with f.loop(0, g.group) as member:
            head = f.integer(f.plus(f.times(keys.kind, g.group), member.i))
            with f.loop(low, high, plan.queries) as loop:
                left = f.sub(f.const(I64, g.queries), loop.i)
                count = f.integer(f.lesser(plan.queries, left))
                self._queries(Queries(keys.batch, head, loop.i, count), keys)
        count = f.sub(keys.end, keys.first)
        for name, number, size in (("dk", self.to.k, g.features), ("dv", self.to.v, g.values)):
            place = b.row(keys.batch, keys.first, g.keys, keys.kind, g.kinds, size)
            rows = RowsOut(g.type, size, plan.tiling.padded(size), g.kinds * size)
            b.take(rows, b.held(name), b.buffer(number, place), count)

    def _queries(self, at: Queries, keys: _Range) -> None:
        """One block of queries: its part of all gradients."""
        b, f, g, plan = self.b, self.f, self.g, self.plan
        b.bring_queries(at, Q, "queries", g.features, g.scale)
        b.turn("queries", "turned", plan.deep)
        b.bring_queries(at, G, "cotangents", g.values, 1.0)
        b.turn("cotangents", "cotangents_turned", plan.wide)
        b.fill("dq", plan.queries * plan.deep)
        if self.cut.slopes:
            b.fill("slopes", plan.queries)
        for name, number in (("lse", LSE), ("delta", DELTA)):
            self._bring(at, number, name)
        slope = b.slope(at)
        with b.key_blocks(at, keys.first, keys.end) as (block, _):
            b.bring_keys(at, block, K, "keys", g.features)
            b.bring_keys(at, block, V, "values", g.values)
            b.bring_added(at, block)
            with b.query_tiles(at, block) as column:
                b.products(column, "keys", "turned", g.features, "scores")
                b.products(column, "values", "cotangents_turned", g.values, "blame")
                if g.dropout:
                    b.chances(at, block, column)
                self._blame(column, block, slope)
            self._to_keys(at, block, keys.first)
            self._to_queries(at, block)
            self._to_bias(at, block)
        rows = RowsOut(g.type, g.features, plan.deep, g.heads * g.features, g.scale, adds=True)
        whole = f.plus(f.times(keys.piece, g.batch), at.batch)
        place = b.row(f.integer(whole), at.first, g.queries, at.head, g.heads, g.features)
        b.take(rows, b.held("dq"), b.buffer(self.to.q, place), at.count, keys.more)
        self._to_slopes(at, keys.piece)

    def _bring(self, at: Queries, number: int, name: str) -> None:
        """A number for each query; 0 for those that are not there."""
        b, f, g = self.b, self.f, self.g
        b.fill(name, self.plan.queries)
        start = b.row(at.batch, at.first, g.queries, at.head, g.heads, 1)
        with f.loop(0, at.count) as loop:
            x = f.load(g.type, b.buffer(number, f.plus(start, f.times(loop.i, g.heads))))
            f.store(x, b.held(name, loop.i))

    def _blame(self, column: Column, keys: Keys, slope: Val | None) -> None:
        """Weights in place of scores, and the gradients of scores in place of blame."""
        b, f, lanes = self.b, self.f, self.t.lanes
        count = self.plan.tiling.vectors
        places = b.places_of(column)
        own = [f.plus(column.at, n * lanes) for n in range(count)]
        lse, delta = ([f.load(self.t, b.held(n, at)) for at in own] for n in ("lse", "delta"))
        sums = [f.load(self.t, b.held("slopes", at)) for at in own] if self.cut.slopes else []
        for first, end, hides in b.runs(column):
            with f.loop(first, end, carry=sums) as loop:
                key = f.add(keys.first, loop.i)
                for n in range(count):
                    here = loop.i, column, n
                    x = f.load(self.t, b.spot("scores", *here))
                    x = b.score(x, here, key, places[n], slope, hides)
                    weight = b.weight(x, lse[n], hides=hides)
                    found = self._vector(weight, here, delta[n])
                    if sums:
                        far = f.mul(found, b.distance(places[n], key))
                        loop.next[n] = f.sub(loop.carry[n], far)
            sums = list(loop.results)
        for x, at in zip(sums, own, strict=False):
            f.store(x, b.held("slopes", at))

    def _vector(self, weight: Val, here: tuple[Val, Column, int], delta: Val) -> Val:
        """Keep one vector of weights, and of the gradients of scores, which are returned."""
        b, f = self.b, self.f
        blame, lasting = f.load(self.t, b.spot("blame", *here)), weight
        if self.g.dropout:
            chance = f.load(self.t, b.spot("chances", *here))
            blame, lasting = f.mul(blame, chance), f.mul(weight, chance)
        found = f.mul(weight, f.sub(blame, delta))
        f.store(lasting, b.spot("scores", *here))
        f.store(found, b.spot("blame", *here))
        return found

    def _to_keys(self, at: Queries, keys: Keys, low: Val) -> None:
        """Add to the gradients of keys and values, a tile of keys at a time."""
        b, f, plan, window = self.b, self.f, self.plan, self.b.window
        rows, back = plan.tiling.rows, f.sub(f.const(I64, 0), at.first)
        with f.loop(0, keys.count, rows) as loop:
            key = f.add(keys.first, loop.i)
            first = f.plus(window.first_query(key), back)
            end = f.plus(window.end_query(f.plus(key, rows - 1)), back)
            first = f.integer(clip(f, first, 0, at.count))
            depth = f.sub(f.integer(clip(f, end, first, at.count)), first)
            place = f.plus(f.times(loop.i, plan.queries), first)
            into = f.sub(key, low)
            todo = (
                ("scores", "cotangents", "dv", plan.wide),
                ("blame", "queries", "dk", plan.deep),
            )
            for left, right, to, width in todo:
                a = b.held(left, place), (plan.queries, 1)
                right_at = b.held(right, f.times(first, width))
                b.add_product(a, right_at, b.held(to, f.times(into, width)), depth, width)

    def _to_queries(self, at: Queries, keys: Keys) -> None:
        """Add to the gradients of queries, a tile of queries at a time."""
        b, f, plan = self.b, self.f, self.plan
        with b.query_rows(at, keys) as (row, low, depth):
            a = b.held("blame", f.plus(f.times(low, plan.queries), row)), (1, plan.queries)
            right = b.held("keys", f.times(low, plan.deep))
            b.add_product(a, right, b.held("dq", f.times(row, plan.deep)), depth, plan.deep)

    # -- gradients of what is added to scores --------------------------------------------------

    def _to_bias(self, at: Queries, keys: Keys) -> None:
        """Add to the gradient of the bias, over the axes along which it broadcasts."""
        b, f, g, plan, over = self.b, self.f, self.g, self.plan, self.cut.bias
        if over is None or self.to.bias is None:
            return
        turn = Pack(g.type, plan.keys, plan.keys, (plan.queries, 1), 0).write(f.module)
        f.call(turn, None, b.held("blame"), b.held("rows"), f.const(I64, plan.queries))
        place = over.start(f, g.lengths, at.batch, at.head)
        place = f.plus(place, f.times(at.first, over.query))
        place = f.plus(place, f.times(keys.first, over.key))
        spread = Spread(g.type, plan.keys, over).write(f.module)
        target = b.buffer(self.to.bias, place)
        f.call(spread, None, b.held("rows"), target, at.count, keys.count)

    def _slopes_place(self, batch: Val, head: Val, piece: Val) -> Val:
        f, g = self.f, self.g
        place = f.plus(f.times(f.plus(f.times(batch, g.heads), head), self.cut.pieces), piece)
        return self.b.buffer(self.to.slopes or 0, place)

    def _start_slopes(self, batch: Val, kind: Val, piece: Val) -> None:
        f, g = self.f, self.g
        if not self.cut.slopes:
            return
        with f.loop(0, g.group) as member:
            head = f.integer(f.plus(f.times(kind, g.group), member.i))
            f.store(f.zero(g.type), self._slopes_place(batch, head, piece))

    def _to_slopes(self, at: Queries, piece: Val) -> None:
        """Add the queries' parts to the gradient of a slope, one after the other."""
        f, g = self.f, self.g
        if not self.cut.slopes:
            return
        place = self._slopes_place(at.batch, at.head, piece)
        with f.loop(0, at.count, carry=[f.load(g.type, place)]) as loop:
            x = f.load(g.type, self.b.held("slopes", loop.i))
            loop.next = [f.add(loop.carry[0], x)]
        f.store(loop.results[0], place)
