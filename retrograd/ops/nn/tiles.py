"""Attention in tiles: scores are made, used and dropped, a cache's worth at a time.

In here q is [B, Tq, H, D], k [B, Tk, K, D], v [B, Tk, K, V]: each of the K heads of keys
serves a group of G = H / K heads of queries, which stand as G rows for each query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.rng import threefry2x32

if TYPE_CHECKING:
    from collections.abc import Iterator

BUFFERS = 1 << 16  # of NumPy's own
ROWS, SCORES = 128, 1 << 17  # rows in a tile, and elements: measured, half a cache in float32


class Tiles:
    """The tiles of one batch, and the scores in them: bias, mask, slopes and window applied.

    `left` and `right` are how many keys before and after its own place a query sees, None for
    all; queries and keys are aligned at their ends.
    """

    def __init__(self, op: Any, q: Any, k: Any, parts: dict[str, Any]) -> None:
        self.batch, self.queries, self.heads, self.features = q.shape
        _, self.keys, self.kinds, _ = k.shape
        self.group = self.heads // self.kinds if self.kinds else 1
        self.left, self.right = op.left, op.right
        self.offset = self.keys - self.queries
        self.dtype, self.drop, self.key = q.dtype, op.dropout, parts.get("key")
        self.bias, self.mask = (self._over(parts.get(n)) for n in ("bias", "mask"))
        slopes = parts.get("slopes")
        self.slopes = None if slopes is None else slopes.reshape(self.kinds, 1, self.group, 1)
        self.tall = max(1, min(self.queries, ROWS // max(self.group, 1)))
        self.wide = max(2, SCORES // (self.tall * self.group) & ~1)  # even, see chances

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """Batch elements and heads of keys that are worked on together."""
        columns = max(1, min(self.wide, self.keys))
        room = max(1, SCORES // (self.tall * self.group * columns))
        heads = max(1, min(self.kinds, room))
        batch = max(1, room // heads) if heads == self.kinds else 1
        for b in range(0, self.batch, batch):
            for h in range(0, self.kinds, heads):
                yield slice(b, b + batch), slice(h, h + heads)

    def rows(self) -> Iterator[slice]:
        """The queries, tile by tile."""
        for i in range(0, self.queries, self.tall):
            yield slice(i, min(i + self.tall, self.queries))

    def columns(self, rows: slice) -> Iterator[slice]:
        """The keys that some of the rows see, tile by tile."""
        first, last = 0, self.keys
        if self.left is not None:
            first = max(0, rows.start + self.offset - self.left)
        if self.right is not None:
            last = min(last, rows.stop + self.offset + self.right)
        for j in range(first - first % 2, last, self.wide):
            yield slice(j, min(j + self.wide, last))

    def workspace(self, values: int, passes: int) -> int:
        """Bytes in use at once: `passes` arrays of scores, keys and values, and their rows."""
        for b, h in self.blocks():  # the first is the largest
            many = (min(b.stop, self.batch) - b.start) * (min(h.stop, self.kinds) - h.start)
            rows = self.tall * self.group
            width = (self.features + values) * self.dtype.itemsize
            each = self.dtype.itemsize * passes + 32 * (self.drop > 0)
            held = (passes // 2 + 1) * self.keys * width + 6 * rows * width
            return many * (rows * min(self.wide, self.keys) * each + held) + BUFFERS
        return 0

    # -- operands ------------------------------------------------------------------------------

    def packed(self, a: np.ndarray, block: tuple[slice, slice], rows: slice) -> np.ndarray:
        """The rows of what has an axis of heads of queries, as [b, h, rows * G, K]."""
        a = a.reshape(*a.shape[:2], self.kinds, self.group, a.shape[-1])[block[0], rows]
        a = np.moveaxis(a[:, :, block[1]], 2, 1)
        rows_of = a.shape[2] * self.group
        return np.ascontiguousarray(a).reshape(*a.shape[:2], rows_of, a.shape[-1])

    def unpack(self, a: np.ndarray, out: np.ndarray, block: Any, rows: slice) -> None:
        """The reverse: write such rows to their place."""
        out = out.reshape(*out.shape[:2], self.kinds, self.group, out.shape[-1])
        out[block[0], rows, block[1]] = np.moveaxis(self.apart(a), 2, 1)

    @staticmethod
    def kept(a: np.ndarray, block: tuple[slice, slice]) -> np.ndarray:
        """Keys or values of a block, as [b, h, Tk, D]."""
        return np.ascontiguousarray(np.swapaxes(a[block[0], :, block[1]], 1, 2))

    def _over(self, part: Any) -> Any:
        """A bias or mask [B or 1, H or 1, Tq or 1, Tk or 1], its heads in kinds and groups."""
        if part is None:
            return None
        b, h, *tail = part.shape
        return part.reshape(b, *((1, 1) if h == 1 else (self.kinds, self.group)), *tail)

    # -- scores --------------------------------------------------------------------------------

    def scores(self, q: np.ndarray, k: np.ndarray, block: Any, rows: slice, columns: slice):
        """q @ kᵀ of a tile as [b, h, rows * G, columns]; -inf where a key is not seen."""
        out = np.matmul(q, np.swapaxes(k[:, :, columns], -1, -2))
        s = self.apart(out)
        if self.slopes is not None:
            s -= self.slopes[block[1]] * self.distance(rows, columns)
        if self.bias is not None:
            s += np.swapaxes(self.bias[_place(self.bias, block, rows, columns)], 2, 3)
        if self.mask is not None:
            seen = np.swapaxes(self.mask[_place(self.mask, block, rows, columns)], 2, 3)
            np.copyto(s, -np.inf, where=~seen)
        self._cut(s, rows, columns)
        return out

    def apart(self, s: np.ndarray) -> np.ndarray:
        """[b, h, rows * G, columns] as [b, h, rows, G, columns]."""
        b, h, r, c = s.shape
        return s.reshape(b, h, r // self.group, self.group, c)

    def distance(self, rows: slice, columns: slice) -> np.ndarray:
        """|place of the query - place of the key| as [rows, 1, columns]."""
        i = np.arange(rows.start + self.offset, rows.stop + self.offset)
        j = np.arange(columns.start, columns.stop)
        return np.abs(i[:, None, None] - j).astype(self.dtype)

    def _cut(self, s: np.ndarray, rows: slice, columns: slice) -> None:
        """-inf outside of the window; only columns that some row does not see are touched."""
        i = np.arange(rows.start, rows.stop)[:, None, None] + self.offset
        if self.right is not None:
            first = max(columns.start, rows.start + self.offset + self.right + 1)
            j = np.arange(first, columns.stop)
            np.copyto(s[..., first - columns.start :], -np.inf, where=j > i + self.right)
        if self.left is not None:
            last = min(columns.stop, rows.stop + self.offset - self.left)
            j = np.arange(columns.start, last)
            np.copyto(s[..., : len(j)], -np.inf, where=j < i - self.left)

    def chances(self, block: Any, rows: slice, columns: slice) -> np.ndarray:
        """What dropout multiplies the weights of a tile by: 0 or 1 / (1 - rate).

        Word ((b H + h) Tq + i) W + j of the key decides, W being Tk or one more, so that it is
        even: the same words in whichever tiles they are drawn.
        """
        b, h, i, g = np.ogrid[
            block[0].start : min(block[0].stop, self.batch),
            block[1].start : min(block[1].stop, self.kinds),
            rows,
            : self.group,
        ]
        row = (b * self.heads + h * self.group + g) * self.queries + i
        pairs = np.arange(columns.start // 2, (columns.stop + 1) // 2)
        count = row[..., None] * ((self.keys + 1) // 2) + pairs  # of blocks of two words
        words = np.stack(
            threefry2x32(self.key, count.astype("u4"), (count >> 32).astype("u4")), -1
        )
        words = words.reshape(
            *row.shape[:2], (rows.stop - rows.start) * self.group, 2 * len(pairs)
        )
        kept = words[..., : columns.stop - columns.start] >= limit(self.drop)
        return kept * self.dtype.type(1 / (1 - self.drop))


def limit(rate: float) -> np.uint32:
    """The first uint32 word that survives dropout."""
    return np.uint32(min(round(rate * 2**32), 2**32 - 1))


def _place(part: np.ndarray, block: Any, rows: slice, columns: slice) -> tuple[slice, ...]:
    """Where a tile lies in a bias or mask that broadcasts along axes of length 1."""
    whole = (block[0], block[1], slice(None), rows, columns)
    return tuple(
        slice(None) if n == 1 else place for n, place in zip(part.shape, whole, strict=True)
    )


def forward(tiles: Tiles, scale: float, q: Any, k: Any, v: Any, out: Any, lse: Any) -> None:
    """Softmax of the scores times v, and the log of its denominator, into out and lse."""
    for block in tiles.blocks():
        ks, vs = tiles.kept(k, block), tiles.kept(v, block)
        for rows in tiles.rows():
            queries = tiles.packed(q, block, rows) * scale
            top = np.full((*queries.shape[:-1], 1), -np.inf, q.dtype)
            total, found = (
                np.zeros_like(top),
                np.zeros((*queries.shape[:-1], v.shape[-1]), q.dtype),
            )
            for columns in tiles.columns(rows):
                s = tiles.scores(queries, ks, block, rows, columns)
                high = np.maximum(top, np.maximum.reduce(s, axis=-1, keepdims=True))
                base = np.where(high == -np.inf, 0, high)  # rows that saw no key yet
                s -= base
                np.exp(s, out=s)
                fade = np.exp(top - base)
                total *= fade
                total += np.add.reduce(s, axis=-1, keepdims=True)
                if tiles.drop:
                    s *= tiles.chances(block, rows, columns)
                found *= fade
                found += np.matmul(s, vs[:, :, columns])
                top = high
            blind = total == 0  # rows that see no key: 0, and 0 for the log of their sum
            total[blind], top[blind] = 1, 0
            found /= total
            tiles.unpack(found, out, block, rows)
            tiles.unpack(np.log(total) + top, lse[..., None], block, rows)


def backward(tiles: Tiles, scale: float, given: tuple[Any, ...], found: dict[str, Any]) -> None:
    """The gradients of q, k, v (and bias, slopes), scores made again tile by tile."""
    q, k, v, lse, g, delta = given
    for block in tiles.blocks():
        ks, vs = tiles.kept(k, block), tiles.kept(v, block)
        dk, dv = np.zeros_like(ks), np.zeros_like(vs)
        for rows in tiles.rows():
            queries = tiles.packed(q, block, rows) * scale
            gs, ds = tiles.packed(g, block, rows), tiles.packed(delta[..., None], block, rows)
            base = tiles.packed(lse[..., None], block, rows)
            dq = np.zeros_like(queries)
            for columns in tiles.columns(rows):
                p = tiles.scores(queries, ks, block, rows, columns)
                p -= base
                np.exp(p, out=p)
                blame = np.matmul(gs, np.swapaxes(vs[:, :, columns], -1, -2))
                lasting = p
                if tiles.drop:
                    chances = tiles.chances(block, rows, columns)
                    blame *= chances
                    lasting = p * chances
                dv[:, :, columns] += np.matmul(np.swapaxes(lasting, -1, -2), gs)
                blame -= ds
                blame *= p
                _beside(tiles, blame, found, block, rows, columns)
                dq += np.matmul(blame, ks[:, :, columns])
                dk[:, :, columns] += np.matmul(np.swapaxes(blame, -1, -2), queries)
            dq *= scale
            tiles.unpack(dq, found["q"], block, rows)
        for name, d in (("k", dk), ("v", dv)):
            found[name][block[0], :, block[1]] = np.swapaxes(d, 1, 2)


def _beside(tiles: Tiles, blame: Any, found: Any, block: Any, rows: slice, columns: slice):
    """Add a tile's part to the gradients of bias and slopes."""
    s = tiles.apart(blame)
    if "bias" in found:
        total = tiles._over(found["bias"])
        place = _place(total, block, rows, columns)
        s_ = np.swapaxes(s, 2, 3)
        axes = tuple(i for i, n in enumerate(total.shape) if n == 1)
        total[place] += np.add.reduce(s_, axis=axes, keepdims=True)
    if "slopes" in found:
        part = found["slopes"].reshape(tiles.kinds, tiles.group)
        part[block[1]] -= np.einsum("bhigj,ij->hg", s, tiles.distance(rows, columns)[:, 0])
