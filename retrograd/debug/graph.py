"""graph(loss): the tape behind a tensor, with the bytes that it keeps, as data or a page."""

from __future__ import annotations

import html
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from retrograd.core.errors import ArgumentError
from retrograd.core.record import Deferred
from retrograd.core.tape import Node, Pick
from retrograd.core.tensor import Tensor
from retrograd.debug.picture import Item, page
from retrograd.jit.write_file import write_file

if TYPE_CHECKING:
    import os
    from pathlib import Path


class TapeGraph:
    """The tape behind a tensor: its nodes in program order, and the bytes they keep."""

    def __init__(self, items: list[Item]) -> None:
        self.items = items

    @property
    def nbytes(self) -> int:
        """Bytes kept for the backward pass, each array counted once."""
        return sum(i.bytes for i in self.items)

    def by_line(self) -> list[tuple[str, int, int]]:
        """(user's line, bytes, nodes), the most bytes first."""
        total: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for item in self.items:
            total[item.where][0] += item.bytes
            total[item.where][1] += 1
        rows = [(line, b, n) for line, (b, n) in total.items()]
        return sorted(rows, key=lambda r: (-r[1], r[0]))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a self-contained page; the file is whole or not there."""
        return write_file("graph.save", path, page(self.items, self.by_line()))

    def __repr__(self) -> str:
        """How much there is."""
        return f"<tape of {len(self.items)} nodes keeping {self.nbytes} bytes>"


def graph(tensor: Tensor) -> TapeGraph:
    """The tape behind `tensor`; `.save("tape.html")` draws it, `.nbytes` counts it."""
    if tensor._node is None:
        raise ArgumentError(
            "graph: this tensor does not depend on any that requires a gradient"
        )
    nodes = _reachable(tensor._node)
    nodes.sort(key=lambda n: -n.order)
    numbers = {n: i for i, n in enumerate(nodes)}
    seen: set[int] = set()
    items: list[Item] = []
    for node in nodes:
        inputs = [numbers[_real(p)] for p in node.parents if p is not None]
        depth = 1 + max((items[i].depth for i in inputs), default=-1)
        items.append(
            Item(
                numbers[node],
                node.op.name if node.op else "leaf",
                str(node.spec),
                html.unescape(str(node.where)),
                _kept(node, seen),
                inputs,
                depth,
            )
        )
    return TapeGraph(items)


def _real(node: Node) -> Node:
    return node.parents[0] if isinstance(node, Pick) and node.parents else node  # type: ignore[return-value]


def _reachable(root: Node) -> list[Node]:
    root = _real(root)
    seen, stack = {root}, [root]
    while stack:
        for p in stack.pop().parents:
            if p is not None and _real(p) not in seen:
                seen.add(_real(p))
                stack.append(_real(p))
    return list(seen)


def _kept(node: Node, seen: set[int]) -> list[tuple[str, int]]:
    names = [k.name for k in getattr(node.recipe, "keeps", None) or ()]
    kept = node.kept if isinstance(node.kept, tuple) else ()
    names += [f"value {i}" for i in range(len(names), len(kept))]
    out = []
    for name, value in zip(names, kept, strict=False):
        for v in value if isinstance(value, tuple) else (value,):
            if isinstance(v, np.ndarray):
                base = v if v.base is None else v.base
                first = id(base) not in seen
                seen.add(id(base))
                out.append((name, v.nbytes if first else 0))
            elif isinstance(v, Deferred):
                out.append((f"{name} (recomputed)", 0))
    return out
