"""The ops of pair_reduce: sums over all pairs of points, and their pull-back.

The function is traced once, for one tile of pairs. Forward and backward walk over tiles;
each is made, used and dropped, so that memory is linear in the number of points. Tiles at
the end overlap those before them: what was counted already is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.autodiff.reverse import flat_vjp
from retrograd.control import pair_tiles
from retrograd.core import dtype as dt
from retrograd.core.interpret import PURE, RAW, apply, current, lift, using
from retrograd.core.op import Composite, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ir.evaluate import evaluate
from retrograd.ir.graph import Graph
from retrograd.ir.trace import trace
from retrograd.ops import create, join, linalg, select
from retrograd.ops.distances import pairwise, tiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["PairSum", "PairSumPull"]


def _windows(length: int, size: int) -> Iterator[tuple[slice, int]]:
    """Slices of one size that cover a length; and how much of each the one before covers."""
    done = 0
    while done < length:
        start = min(done, length - size)
        yield slice(start, start + size), done - start
        done = start + size


class PairSums(Composite):
    """What pair sums and their gradient share: the traced function and how pairs are walked.

    Inputs: x (n, d), y (m, d) but for pairs within x, weights (m, c), and the tensors that the
    function captures.
    """

    body: Graph  # of a tile of squared distances, then of captured tensors
    root: bool  # whether the function is of the distance, not of its square
    others: bool  # pairs of a point with itself are left out
    within: bool  # y is x, and not given again

    def both(self, x: Any, *rest: Any) -> tuple[Any, ...]:
        """The inputs, y among them."""
        return (x, x, *rest) if self.within else (x, *rest)

    def slopes(self) -> Graph:
        """Of a tile of distances and one of cotangents: the function, and its pull-back."""
        tile = self.body.inputs[0]

        def pulled(far: Any, blame: Any) -> list[Any]:
            (value,), pull = flat_vjp(lambda d: evaluate(self.body, d), [far], current.get())
            (slope,) = pull([blame])
            return [value, create.zeros_like(far) if slope is None else slope]

        with using(PURE):
            return trace(pulled, [tile, tile])[0]

    def walk(self, x: Any, y: Any) -> Iterator[tuple[Any, Any, np.ndarray, Any]]:
        """Rows and columns with what is new in them, the distances, and which are left out."""
        tall, wide = self.body.inputs[0].shape
        for rows in _windows(len(x), tall):
            for columns in _windows(len(y), wide):
                found = tiles.squared(x[rows[0]], y[columns[0]], root=self.root)
                yield rows, columns, found, self._self(rows[0], columns[0], found)

    def _self(self, rows: slice, columns: slice, found: np.ndarray) -> Any:
        """Where pairs of a point with itself are; the function is not asked about these."""
        both = range(max(rows.start, columns.start), min(rows.stop, columns.stop))
        if not self.others or not both:
            return None
        i = np.asarray(both)
        where = i - rows.start, i - columns.start
        found[where] = found.max()  # of another pair, so that nothing is divided by zero
        return where

    def expand_forward(self, x: Any, y: Any, w: Any, *captured: Any) -> Any:
        """The same with the whole matrix of pairs, in ops."""
        name = "euclidean" if self.root else "squared"
        far = apply(pairwise.PairwiseAgain(name), x, y)
        keep = None
        if self.others:
            keep = lift(~np.eye(x.shape[0], dtype=bool))
            far = select.where(keep, far, 1.0)
        found = self._whole(far, captured)
        found = found if keep is None else select.where(keep, found, 0.0)
        return linalg.matmul(found, w)

    def _whole(self, far: Any, captured: Sequence[Any]) -> Any:
        """The body on a matrix of any size: tile by tile, joined again."""
        tall, wide = self.body.inputs[0].shape
        n, m = far.shape
        out = create.zeros((n, m), dtype=far.dtype)
        for rows, top in _windows(n, tall):
            for columns, left in _windows(m, wide):
                part = far[rows, columns]
                (found,) = evaluate(self.body, part, *captured)
                at = (
                    slice(rows.start + top, rows.stop),
                    slice(columns.start + left, columns.stop),
                )
                out = out.at[at].set(found[top:, left:])
        return out


@op
class PairSum(PairSums):
    """The sum of f(distance of x_i and y_j) w_j over j; keeps its inputs."""

    body: Graph
    root: bool
    others: bool
    within: bool
    bodied = True
    native = "pair sums"
    quicker = True

    def shape(self, *args: Spec) -> Spec:
        x, _, w = self.both(*args)[:3]
        return x.with_shape((x.shape[0], w.shape[1]))

    def forward(self, *args):
        x, y, w, *captured = self.both(*args)
        out = np.zeros((len(x), w.shape[1]), x.dtype)
        with using(RAW):
            for (rows, top), (columns, left), far, out_of in self.walk(x, y):
                (found,) = evaluate(self.body, far, *captured)
                if out_of is not None:
                    found = _zeroed(found, out_of)
                out[rows][top:] += found[top:, left:] @ w[columns][left:]
        return out

    def expand(self, *args):
        return self.expand_forward(*self.both(*args))

    def in_program(self, *args):
        return pair_tiles.summed(self, *self.both(*args))

    def vjp(self, g, *args):
        pull = PairSumPull(self.body, self.root, self.others, self.within)
        return apply(pull, g, *args)[1:]

    def batch(self, size, args, mapped):
        return _each(self, size, args, mapped)

    @staticmethod
    def samples(rng):
        for options, *args in _cases(rng):
            yield PairSum(*options), *args


@op
class PairSumPull(PairSums):
    """The cotangents of PairSum's inputs, tile by tile: f is pulled back on each.

    The first output is what PairSum gives: who has computed f for its slope has it.
    """

    body: Graph
    root: bool
    others: bool
    within: bool
    outputs = ("*results",)
    bodied = True
    native = "pair sums back"
    quicker = True

    def twin(self) -> PairSum:
        return PairSum(self.body, self.root, self.others, self.within)

    def shape(self, *args: Spec) -> tuple[Spec, ...]:
        return args

    def forward(self, g, *args):
        x, y, w, *captured = self.both(*args)
        sums = np.zeros_like(g)
        gx, gy, gw = np.zeros_like(x), np.zeros_like(y), np.zeros_like(w)
        gc = [np.zeros(c.shape, c.dtype) for c in captured]
        kept = [Tensor(np.asarray(c)) for c in captured]
        with using(PURE):
            for (rows, top), (columns, left), far, out_of in self.walk(x, y):
                g_rows, w_columns = g[rows].copy(), w[columns].copy()
                g_rows[:top], w_columns[:left] = 0, 0
                blame = g_rows @ w_columns.T
                if out_of is not None:
                    blame[out_of] = 0
                (value,), pull = flat_vjp(self._body, [Tensor(far), *kept])
                found, *rest = pull([Tensor(blame)], consume=True)
                known = value.array if out_of is None else _zeroed(value.array, out_of)
                sums[rows][top:] += known[top:, left:] @ w[columns][left:]
                gw[columns][left:] += known[:, left:].T @ g_rows
                for total, part in zip(gc, rest, strict=True):
                    if part is not None:
                        total += part.array
                if found is not None:
                    back = found.array if out_of is None else _zeroed(found.array, out_of)
                    a, b = tiles.pulled(back, x[rows], y[columns], far if self.root else None)
                    gx[rows] += a
                    gy[columns] += b
        points = (gx + gy,) if self.within else (gx, gy)
        return sums, *points, gw, *gc

    def _body(self, *args: Any) -> list[Any]:
        return evaluate(self.body, *args)

    def in_program(self, g, *args):
        sums = apply(self.twin(), *args)
        gx, gy, *rest = pair_tiles.pulled(self, g, *self.both(*args))
        return sums, *((gx + gy,) if self.within else (gx, gy)), *rest

    def expand(self, g, *inputs):
        raw = current.get() is RAW
        with using(PURE if raw else current.get()):
            given = [lift(a) for a in inputs]
            (sums,), pull = flat_vjp(
                lambda *a: [self.expand_forward(*self.both(*a))], given, current.get()
            )
            found = pull([lift(g)])
            whole = [sums] + [
                create.zeros(a.shape, dtype=a.dtype) if c is None else c
                for c, a in zip(found, given, strict=True)
            ]
        return tuple(c.array if raw else c for c in whole)

    def batch(self, size, args, mapped):
        return _each(self, size, args, mapped)

    @staticmethod
    def samples(rng):
        for options, *args in _cases(rng):
            columns = args[2 - options[-1]].shape[1]
            yield PairSumPull(*options), rng.normal(size=(len(args[0]), columns)), *args


def _cases(rng: Any) -> Iterator[Any]:
    """Bodies for tiles smaller than the sets of points, and inputs."""
    tile, number = Spec((2, 3), dt.float64), Spec((), dt.float64)
    graph, hidden = trace(lambda far, s: [1.0 / (1.0 + far * s)], [tile, number])
    captured = [np.asarray(rng.uniform(0.5, 1)), *(t.array for t in hidden)]
    x, y, w = (rng.normal(size=n) for n in ((5, 2), (4, 2), (4, 2)))
    y = y + 4  # apart: a small distance has a steep slope
    yield (graph, False, False, False), x, y, w, *captured
    yield (graph, True, False, False), x, y, w, *captured
    w = rng.normal(size=(5, 2))
    yield (graph, False, True, False), x, x.copy(), w, *captured
    yield (graph, False, True, True), x, w, *captured
    alone, _ = trace(lambda far: [1.0 / (1.0 + far)], [tile])
    w = rng.normal(size=(5, 1))
    yield (alone, False, False, True), x, w
    yield (alone, True, True, True), x, w
    yield (alone, True, False, False), x, y, w[:4]


def _zeroed(found: np.ndarray, where: Any) -> np.ndarray:
    """A copy with zeros at some places."""
    found = np.array(found)
    found[where] = 0
    return found


def _each(op_: Any, size: int, args: Sequence[Any], mapped: Sequence[bool]) -> Any:
    """One by one: each is a walk over many tiles, to which the loop adds nothing."""
    rows = [
        apply(op_, *(a[i] if m else a for a, m in zip(args, mapped, strict=True)))
        for i in range(size)
    ]
    if isinstance(rows[0], tuple):
        return tuple(join.stack(list(column)) for column in zip(*rows, strict=True))
    return join.stack(rows)
