"""What attention's kernels share: operands and scratch, and the scores of a block.

Scores are held with a row for each key: lanes run along queries, so that a softmax takes no
sums across lanes, and keys and values are read as they are.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from retrograd.core.rng_laws import threefry
from retrograd.jit.llvm.attention_rows import Added, Fill, RowsIn, RowsOut
from retrograd.jit.llvm.attention_window import Window, clip
from retrograd.jit.llvm.gemm_pack import Pack
from retrograd.jit.llvm.gemm_tile import Tile
from retrograd.jit.llvm.math import FUNCTIONS
from retrograd.jit.llvm.math.num import Num
from retrograd.jit.llvm.text import I8, I32, I64, PTR, Int, Type, Val

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retrograd.jit.llvm.attention_plan import Plan
    from retrograd.jit.llvm.build import Fn

__all__ = ["KERNEL", "Block", "Column", "Keys", "Queries"]

KERNEL = [("bufs", PTR), ("chunk", I64), ("scratch", PTR)]


@dataclass(frozen=True)
class Queries:
    """A block of queries of one head."""

    batch: Val
    head: Val
    first: Val
    count: Val


@dataclass(frozen=True)
class Keys:
    """A block of keys, of those that a block of queries sees."""

    first: Val
    count: Val


class Column(NamedTuple):
    """The queries of one tile, and the range of a block's keys that is computed for them."""

    at: Val  # in the block
    query: Val
    keys: tuple[Val, Val]
    plain: tuple[Val, Val]  # the keys among them that all of the queries see


class Block:
    """Writes what forward and backward do alike, in the scratch of a thread."""

    def __init__(self, f: Fn, plan: Plan, *, whole: bool = False) -> None:
        self.f, self.plan, self.g = f, plan, plan.geometry
        self.t = self.g.type.by(plan.tiling.lanes)
        self.whole = whole  # every key of a block for every query: nothing is left out
        self.window = Window(f, self.g)
        self.used = 0  # elements of scratch
        self.places: dict[str, int] = {}
        self.buffers: dict[int, Val] = {}
        self.hold("keys", plan.keys * plan.deep)
        self.hold("values", plan.keys * plan.wide)
        self.hold("queries", plan.queries * plan.deep)
        self.hold("turned", plan.queries * plan.deep)
        self.hold("scores", plan.keys * plan.queries)
        if self.g.bias or self.g.mask:
            self.hold("rows", plan.queries * plan.keys)
            self.hold("added", plan.keys * plan.queries)
        if self.g.dropout:
            self.hold("chances", plan.keys * plan.queries)

    # -- memory --------------------------------------------------------------------------------

    def hold(self, name: str, count: int) -> None:
        """Room for `count` numbers under a name, in whole lines; an odd number of them."""
        line = 64 // self.g.size
        self.places[name] = self.used
        self.used += (-(-count // line) | 1) * line

    @property
    def scratch(self) -> int:
        """Bytes of scratch for a thread."""
        return self.used * self.g.size

    def held(self, name: str, at: Int = 0) -> Val:
        """A place in scratch."""
        return self.f.at(self.f.arg("scratch"), self.f.plus(self.places[name], at), self.t)

    def buffer(self, number: int, at: Int = 0, t: Type | None = None) -> Val:
        """A place in an operand."""
        if number not in self.buffers:
            raise KeyError(number)
        return self.f.at(self.buffers[number], at, t or self.t)

    def load_buffers(self, count: int) -> None:
        """Read the table of operands, once."""
        f = self.f
        self.buffers = {n: f.load(PTR, f.at(f.arg("bufs"), n, I64), 8) for n in range(count)}

    def row(self, batch: Val, i: Val, length: int, head: Val, heads: int, width: int) -> Int:
        """Where row i of a head of [batch, length, heads, width] begins."""
        f = self.f
        down = f.plus(f.times(batch, length), i)
        return f.times(f.plus(f.times(down, heads), head), width)

    # -- rows in and out -----------------------------------------------------------------------

    def fill(self, name: str, count: int, value: float = 0.0) -> None:
        """Set numbers in scratch."""
        f = self.f
        fill = Fill(self.t.scalar, value).write(f.module)
        f.call(fill, None, self.held(name), f.const(I64, count // self.t.lanes))

    def bring_queries(
        self, at: Queries, number: int, name: str, size: int, scale: float
    ) -> None:
        """Rows of q, or of something like it, to scratch, times a number."""
        f, g, plan = self.f, self.g, self.plan
        width = plan.tiling.padded(size)
        place = self.row(at.batch, at.first, g.queries, at.head, g.heads, size)
        copy = RowsIn(g.type, size, width, g.heads * size, scale).write(f.module)
        ends = self.buffer(number, place), self.held(name)
        f.call(copy, None, *ends, at.count, f.const(I64, plan.queries))

    def bring_keys(self, at: Queries, keys: Keys, number: int, name: str, size: int) -> None:
        """Rows of k or v to scratch, whole tiles."""
        f, g, plan = self.f, self.g, self.plan
        width = plan.tiling.padded(size)
        kind = f.div(at.head, f.const(I64, g.group))
        place = self.row(at.batch, keys.first, g.keys, kind, g.kinds, size)
        copy = RowsIn(g.type, size, width, g.kinds * size).write(f.module)
        ends = self.buffer(number, place), self.held(name)
        f.call(copy, None, *ends, keys.count, f.integer(self.tall(keys.count)))

    def turn(self, name: str, to: str, width: int) -> None:
        """Rows of queries in scratch as columns: lanes along queries."""
        f, plan = self.f, self.plan
        turn = Pack(self.g.type, plan.queries, plan.queries, (width, 1), 0).write(f.module)
        f.call(turn, None, self.held(name), self.held(to), f.const(I64, width))

    def take(
        self, rows: RowsOut, source: Val, target: Val, count: Val, more: Val | None = None
    ) -> None:
        """Rows in scratch to where they belong, each times its factor if they have some."""
        f = self.f
        factors = self.held("factors") if rows.each else source
        ends = source, target, count, factors
        f.call(rows.write(f.module), None, *ends, more or f.const(I64, 0))

    def tall(self, count: Int) -> Int:
        """A number of keys in whole tiles."""
        rows = self.plan.tiling.rows
        return self.floor(self.f.plus(count, rows - 1))

    def floor(self, x: Int) -> Int:
        """The start of the tile of keys that x >= 0 is in."""
        rows = self.plan.tiling.rows
        if isinstance(x, int):
            return x // rows * rows
        return self.f.bitwise("and", x, self.f.const(I64, -rows))

    # -- loops ---------------------------------------------------------------------------------

    @contextmanager
    def key_blocks(self, at: Queries, low: Int, high: Int) -> Iterator[tuple[Keys, Int]]:
        """The keys from low to high that some of the queries see; where they begin."""
        f, window, plan = self.f, self.window, self.plan
        last = f.plus(f.plus(at.first, at.count), -1)
        start = self.floor(clip(f, window.first_key(at.first), low, high))
        stop = f.integer(clip(f, window.end_key(last), low, high))
        with f.loop(start, stop, plan.keys) as loop:
            count = f.integer(f.lesser(plan.keys, f.sub(stop, loop.i)))
            yield Keys(loop.i, count), start

    def queries_of(self, first: Val, end: Val) -> tuple[Int, Int]:
        """The queries that see some of the keys: from the start of a block."""
        f, window = self.f, self.window
        low = f.div(f.integer(window.first_query(first)), f.const(I64, self.plan.queries))
        return f.times(low, self.plan.queries), window.end_query(f.plus(end, -1))

    @contextmanager
    def query_tiles(self, at: Queries, keys: Keys) -> Iterator[Column]:
        """The tiles of queries, each with the keys for which scores are made."""
        f, window, step = self.f, self.window, self.plan.tiling.columns
        back, end = f.sub(f.const(I64, 0), keys.first), self.tall(keys.count)
        with f.loop(0, at.count, step) as loop:
            query = f.add(at.first, loop.i)
            last = f.plus(query, step - 1)
            low: Int = 0
            high = end
            if not self.whole:
                low = self.floor(clip(f, f.plus(window.first_key(query), back), 0, end))
                high = self.tall(clip(f, f.plus(window.end_key(last), back), 0, keys.count))
            first = clip(f, f.plus(window.first_key(last), back), low, high)
            until = clip(f, f.plus(window.end_key(query), back), first, high)
            bounds = [f.integer(x) for x in (low, high, first, until)]
            yield Column(loop.i, query, (bounds[0], bounds[1]), (bounds[2], bounds[3]))

    @contextmanager
    def query_rows(self, at: Queries, keys: Keys) -> Iterator[tuple[Val, Val, Val]]:
        """Few queries at a time: where they are, the first key that they see, how many."""
        f, window, rows = self.f, self.window, self.plan.tiling.rows
        back = f.sub(f.const(I64, 0), keys.first)
        with f.loop(0, at.count, rows) as loop:
            query = f.add(at.first, loop.i)
            last = f.plus(query, rows - 1)
            low = clip(f, f.plus(window.first_key(query), back), 0, keys.count)
            high = clip(f, f.plus(window.end_key(last), back), low, keys.count)
            low = f.integer(low)
            yield loop.i, low, f.sub(f.integer(high), low)

    # -- products ------------------------------------------------------------------------------

    def products(self, column: Column, left: str, right: str, size: int, to: str) -> None:
        """left @ right for one tile of queries and all their keys: scores, or blame."""
        f, plan, tiling = self.f, self.plan, self.plan.tiling
        width = tiling.padded(size)
        a, wide = (width, 1), plan.queries
        tile = Tile(self.g.type, tiling.rows, tiling.vectors, a, wide, wide).write(f.module)
        with f.loop(*column.keys, tiling.rows) as loop:
            rows = self.held(left, f.times(loop.i, width))
            target = self.held(to, f.plus(f.times(loop.i, wide), column.at))
            numbers = f.const(I64, size), f.const(I64, 0)
            f.call(tile, None, rows, self.held(right, column.at), target, *numbers)

    def add_product(
        self, a: tuple[Val, tuple[int, int]], b: Val, c: Val, depth: Val, width: int
    ) -> None:
        """c += a @ b for one tile of rows of c, and all columns."""
        f, plan = self.f, self.plan
        for at, vectors in plan.columns(width):
            strides = a[1], width, width
            tile = Tile(self.g.type, plan.tiling.rows, vectors, *strides).write(f.module)
            ends = f.at(b, at, self.t), f.at(c, at, self.t)
            f.call(tile, None, a[0], *ends, depth, f.const(I64, 1))

    # -- what is added to scores ---------------------------------------------------------------

    def bring_added(self, at: Queries, keys: Keys) -> None:
        """Bias and mask of the block, lanes along queries."""
        f, g, plan = self.f, self.g, self.plan
        if not (g.bias or g.mask):
            return
        starts = [self.held("rows")] * 2
        for n, over in enumerate((g.bias, g.mask)):
            if over:
                place = over.start(f, g.lengths, at.batch, at.head)
                place = f.plus(place, f.times(at.first, over.query))
                place = f.plus(place, f.times(keys.first, over.key))
                starts[n] = f.at(self.buffers[over.buffer], place, I8 if n else self.t)
        fill = Added(g.type, plan.keys, g.bias, g.mask).write(f.module)
        f.call(fill, None, *starts, self.held("rows"), at.count, keys.count)
        turn = Pack(g.type, plan.queries, plan.queries, (plan.keys, 1), 0).write(f.module)
        f.call(turn, None, self.held("rows"), self.held("added"), f.const(I64, plan.keys))

    def slope(self, at: Queries) -> Val | None:
        """What a step away costs the scores of a head."""
        f, g = self.f, self.g
        if g.slopes is None:
            return None
        lead = f.div(at.batch, f.const(I64, max(g.lengths[-1], 1)))
        place = f.plus(f.times(lead, g.heads), at.head)
        return f.splat(f.load(g.type, self.buffer(g.slopes, place)), self.t.lanes)

    def distance(self, place: Val, key: Val) -> Val:
        """How far queries at these places are from a key."""
        f = self.f
        away = f.sub(place, f.splat(f.convert("trunc", key, I32), place.type.lanes))
        return f.intrinsic("fabs", f.convert("sitofp", away, self.t.scalar))

    def chances(self, at: Queries, keys: Keys, column: Column) -> None:
        """What dropout multiplies weights by, for one tile of queries: 0 or 1 / (1 - rate).

        Word ((b H + h) Tq + i) W + j of the key decides, W being Tk or one more, so that it
        is even: two keys at a time.
        """
        f, g, plan = self.f, self.g, self.plan
        lanes = self.t.lanes
        lead = f.div(at.batch, f.const(I64, max(g.lengths[-1], 1)))
        inner = f.rem(at.batch, f.const(I64, max(g.lengths[-1], 1)))
        source = self.buffers[g.key or 0]
        low, high = (
            f.load(I32, f.at(source, f.plus(f.times(lead, 2), n), I32)) for n in (0, 1)
        )
        key = Num(f, f.splat(low, lanes), "i32"), Num(f, f.splat(high, lanes), "i32")
        head = f.plus(f.times(inner, g.heads), at.head)
        row = f.plus(f.times(head, g.queries), column.query)
        for n in range(plan.tiling.vectors):
            queries = self.lanes_from(f.integer(f.plus(row, n * lanes)))
            half = f.const(queries.type, (g.keys + 1) // 2)
            count = Num(f, f.mul(queries, half), "i32")
            with f.loop(*column.keys, 2) as loop:
                pair = f.bitwise("lshr", f.add(keys.first, loop.i), f.const(I64, 1))
                block = count + Num(f, f.splat(f.convert("trunc", pair, I32), lanes), "i32")
                found = threefry(key, (block, count.like(0)))
                self._keep(found, loop.i, f.plus(column.at, n * lanes))

    def _keep(self, words: tuple[Num, Num], key: Val, column: Int) -> None:
        f, rate = self.f, self.g.dropout
        limit = min(round(rate * 2**32), 2**32 - 1)
        for n, word in enumerate(words):
            kept = word.compare("uge", word.like(limit)).val
            x = f.select(kept, f.const(self.t, 1 / (1 - rate)), f.zero(self.t))
            place = f.plus(f.times(f.plus(key, n), self.plan.queries), column)
            f.store(x, self.held("chances", place))

    def lanes_from(self, first: Val) -> Val:
        """first, first + 1, ... in the lanes of 32-bit integers."""
        f, lanes = self.f, self.t.lanes
        start = f.splat(f.convert("trunc", first, I32), lanes)
        return f.add(start, f.iota(start.type))

    # -- scores --------------------------------------------------------------------------------

    def places_of(self, column: Column) -> list[Val]:
        """The places of a tile's queries among the keys, vector by vector."""
        f, lanes = self.f, self.t.lanes
        return [
            self.lanes_from(f.integer(f.plus(column.query, n * lanes + self.g.offset)))
            for n in range(self.plan.tiling.vectors)
        ]

    def spot(self, name: str, key: Val, column: Column, n: int) -> Val:
        """Where the n-th vector of a tile's row for a key is."""
        f = self.f
        place = f.plus(f.times(key, self.plan.queries), column.at)
        return self.held(name, f.plus(place, n * self.t.lanes))

    def score(
        self,
        x: Val,
        spot: tuple[Val, Column, int],
        key: Val,
        place: Val,
        slope: Val | None,
        hides: bool,  # noqa: FBT001
    ) -> Val:
        """A product of queries and a key as a score: what is added, and -inf where hidden."""
        f, g = self.f, self.g
        lowest = f.const(self.t, -inf)
        if slope:
            x = f.sub(x, f.mul(slope, self.distance(place, key)))
        if g.bias or g.mask:
            more = f.load(self.t, self.spot("added", *spot))
            x = f.add(x, more)
            x = f.select(f.compare("oeq", more, lowest), lowest, x) if g.mask else x
        return f.select(self.window.seen(place, key), x, lowest) if hides else x

    def weight(self, x: Val, base: Val, *, hides: bool) -> Val:
        """exp(x - base); 0 where x is -inf, found without numbers too small for their digits.

        Such numbers take a processor a hundred times as long, and hidden keys have many.
        """
        f = self.f
        less = f.sub(x, base)
        if not (hides or self.g.bias or self.g.mask):
            return FUNCTIONS["exp_below"](f, less)
        shown = f.compare("une", x, f.const(self.t, -inf))
        found = FUNCTIONS["exp_below"](f, f.select(shown, less, f.zero(self.t)))
        return f.select(shown, found, f.zero(self.t))

    def runs(self, column: Column) -> list[tuple[Val, Val, bool]]:
        """The keys of a tile: (first, end, whether some are hidden)."""
        runs = [(*column.plain, False), (column.plain[1], column.keys[1], True)]
        if self.g.left is not None:
            runs.insert(0, (column.keys[0], column.plain[0], True))
        return runs
