"""Which keys a query sees, and which queries see a key: numbers of a kernel being written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.llvm.text import I32, Int, Val

if TYPE_CHECKING:
    from retrograd.jit.llvm.attention_plan import Geometry
    from retrograd.jit.llvm.build import Fn

__all__ = ["Window", "clip"]


def greater(f: Fn, a: Int, b: Int) -> Int:
    """The larger of 64-bit integers."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    x, y = f.integer(a), f.integer(b)
    return f.select(f.compare("sgt", x, y), x, y)


def clip(f: Fn, x: Int, low: Int, high: Int) -> Int:
    """x, at least low and at most high; low if high is less."""
    return greater(f, f.lesser(x, high), low)


class Window:
    """Bounds that follow from causality and windows: they rise with the query and the key."""

    def __init__(self, f: Fn, geometry: Geometry) -> None:
        self.f, self.g = f, geometry

    def first_key(self, query: Int) -> Int:
        """The first key that a query sees."""
        g = self.g
        if g.left is None:
            return 0
        return clip(self.f, self.f.plus(query, g.offset - g.left), 0, g.keys)

    def end_key(self, query: Int) -> Int:
        """The key after the last that a query sees."""
        g = self.g
        if g.right is None:
            return g.keys
        return clip(self.f, self.f.plus(query, g.offset + g.right + 1), 0, g.keys)

    def first_query(self, key: Int) -> Int:
        """The first query that sees a key."""
        g = self.g
        if g.right is None:
            return 0
        return clip(self.f, self.f.plus(key, -g.right - g.offset), 0, g.queries)

    def end_query(self, key: Int) -> Int:
        """The query after the last that sees a key."""
        g = self.g
        if g.left is None:
            return g.queries
        return clip(self.f, self.f.plus(key, g.left - g.offset + 1), 0, g.queries)

    def seen(self, place: Val, key: Val) -> Val:
        """Which queries, at these places among the keys, see a key; all by 32-bit integers."""
        f, g, t = self.f, self.g, place.type
        key = f.splat(f.convert("trunc", key, I32), t.lanes)
        found = f.compare("slt", key, f.const(t, g.keys))
        if g.right is not None:
            limit = f.add(place, f.const(t, min(g.right, g.keys + g.queries)))
            found = f.bitwise("and", found, f.compare("sle", key, limit))
        if g.left is not None:
            limit = f.sub(place, f.const(t, min(g.left, g.keys + g.queries)))
            found = f.bitwise("and", found, f.compare("sge", key, limit))
        return found
