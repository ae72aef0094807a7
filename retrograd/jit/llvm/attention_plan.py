"""Attention's geometry, and how it is cut: tiles, blocks for the caches, chunks for threads.

Everything follows from shapes, options and the machine, so that bits do too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from retrograd.jit.llvm.gemm_plan import MOST_CHUNKS, Split

if TYPE_CHECKING:
    from retrograd.jit.llvm.build import Fn
    from retrograd.jit.llvm.machine import Machine
    from retrograd.jit.llvm.text import Int, Type, Val

__all__ = ["Geometry", "Over", "Plan", "Tiling"]

QUERIES, KEYS = 128, 64  # in a block: measured
UNITS = 8  # pieces of work that backward is cut into, if heads and batch do not give them
SHORTEST = 256  # keys in a piece
RANGE, CACHE = 512, 256 * 1024  # keys whose gradients stay in a cache, and their bytes


class Over(NamedTuple):
    """An operand that broadcasts over scores: where its buffer is, and its strides."""

    buffer: int
    batch: tuple[int, ...]  # of each leading axis; 0: it broadcasts
    head: int
    query: int
    key: int

    def start(self, f: Fn, lengths: tuple[int, ...], batch: Val, head: Val) -> Int:
        """The place of the scores of one head."""
        place, rest = f.times(head, self.head), batch
        for count, stride in zip(lengths[::-1], self.batch[::-1], strict=True):
            size = f.integer(count)
            place = f.plus(place, f.times(f.rem(rest, size), stride))
            rest = f.div(rest, size)
        return place


@dataclass(frozen=True)
class Geometry:
    """softmax(scale * q @ kᵀ + ...) @ v of [B, Tq, H, D], [B, Tk, K, D] and [B, Tk, K, V]."""

    type: Type
    lengths: tuple[int, ...]  # of the leading axes: B, and before it what was mapped over
    queries: int
    keys: int
    heads: int
    kinds: int  # heads of keys and values
    features: int
    values: int
    scale: float
    left: int | None = None
    right: int | None = None
    dropout: float = 0.0
    bias: Over | None = None
    mask: Over | None = None
    slopes: int | None = None  # the numbers of their buffers
    key: int | None = None

    @property
    def batch(self) -> int:
        """How many arrays of [T, H, D] there are."""
        return prod(self.lengths)

    @property
    def group(self) -> int:
        """Heads of queries that a head of keys serves."""
        return self.heads // self.kinds

    @property
    def offset(self) -> int:
        """The place of the first query among the keys."""
        return self.keys - self.queries

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return self.type.bits // 8

    @cached_property
    def watched(self) -> np.ndarray:
        """How many queries see each key."""
        key = np.arange(self.keys) - self.offset
        first, end = np.zeros_like(key), np.full_like(key, self.queries)
        if self.right is not None:
            first = np.clip(key - self.right, 0, self.queries)
        if self.left is not None:
            end = np.clip(key + self.left + 1, 0, self.queries)
        return np.maximum(end - first, 0)

    @property
    def pairs(self) -> int:
        """Queries and keys that see each other, of all heads."""
        return int(self.watched.sum()) * self.batch * self.heads


@dataclass(frozen=True)
class Tiling:
    """The register tile: rows x vectors of results; lanes run along columns."""

    lanes: int
    rows: int
    vectors: int

    @classmethod
    def of(cls, machine: Machine, size: int) -> Tiling:
        """A tile whose rows divide its columns: blocks are whole tiles either way."""
        lanes = machine.lanes(size)
        if machine.registers >= 32:
            return cls(lanes, 8, 2) if lanes >= 8 else cls(lanes, 4, 4)
        return cls(lanes, 4, 2)

    @property
    def columns(self) -> int:
        """Columns of a tile."""
        return self.lanes * self.vectors

    def padded(self, length: int) -> int:
        """A length in whole vectors."""
        return ceil(length / self.lanes) * self.lanes


@dataclass(frozen=True)
class Plan:
    """A way to compute attention: its blocks, and the scratch that they are in."""

    geometry: Geometry
    tiling: Tiling

    @cached_property
    def queries(self) -> int:
        """Queries in a block: whole tiles."""
        step = self.tiling.columns
        return max(1, ceil(min(self.geometry.queries, QUERIES) / step)) * step

    @cached_property
    def keys(self) -> int:
        """Keys in a block: whole tiles and vectors."""
        step = max(self.tiling.rows, self.tiling.lanes)
        return max(1, ceil(min(self.geometry.keys, KEYS) / step)) * step

    @cached_property
    def range(self) -> int:
        """Keys whose gradients are added up at a time: whole blocks."""
        most = min(RANGE, CACHE // ((self.deep + self.wide) * self.geometry.size))
        return max(1, min(ceil(self.geometry.keys / self.keys), most // self.keys)) * self.keys

    @property
    def blocks(self) -> int:
        """Blocks of queries of one head."""
        return ceil(self.geometry.queries / self.queries)

    @property
    def deep(self) -> int:
        """The features of q and k, in whole vectors."""
        return self.tiling.padded(self.geometry.features)

    @property
    def wide(self) -> int:
        """The features of v, in whole vectors."""
        return self.tiling.padded(self.geometry.values)

    def columns(self, width: int) -> list[tuple[int, int]]:
        """(first column, vectors) of the tiles that `width` columns are cut into."""
        lanes, most = self.tiling.lanes, max(3 if self.tiling.rows == 8 else 2, 2)
        found, at = [], 0
        for first, end, size, _ in Split.of(width // lanes, most).segments():
            for _ in range(first, end):
                found.append((at, size))
                at += size * lanes
        return found

    def chunks(self, units: int, products: int) -> int:
        """How many chunks: not more than there are pieces, and none too small."""
        g = self.geometry
        flops = 2 * products * g.pairs * max(g.features, g.values)
        return max(1, min(MOST_CHUNKS, units, flops >> 17))

    def cuts(self, units: int, *, most: int = UNITS) -> list[int]:
        """Where pieces of keys begin, and the end: of even work, if there are few units."""
        g, rows = self.geometry, self.tiling.rows
        pieces = min(ceil(most / max(units, 1)), max(1, g.keys // SHORTEST))
        work = np.cumsum(g.watched)
        if pieces == 1 or not work[-1]:
            return [0, g.keys]
        goals = work[-1] * np.arange(1, pieces) / pieces
        inner = np.searchsorted(work, goals) // rows * rows
        return [0, *sorted({int(i) for i in inner} - {0}), g.keys]
