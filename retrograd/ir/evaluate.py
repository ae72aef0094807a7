"""Run a Graph through the seam: under any interpreter, at any depth."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from retrograd.core.interpret import apply
from retrograd.core.replay import Region, region_now
from retrograd.core.value import Value
from retrograd.core.where import retold
from retrograd.ir.graph import Graph
from retrograd.ir.text import bodies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.op import Op


def evaluate(graph: Graph, *args: Any) -> list[Any]:
    """The outputs of a graph; values are dropped after their last use."""
    values: list[Any] = list(args)
    last = graph.last_uses
    regions: dict[Any, Region] = {}
    token = retold.set(None)
    try:
        for at, node in enumerate(graph.nodes):
            retold.set(node.where)
            out = _within(node, [values[i] for i in node.inputs], regions)
            values += out if isinstance(out, tuple) else (out,)
            for i in last.get(at, ()):
                values[i] = None
    finally:
        retold.reset(token)
    return [values[i] for i in graph.outputs]


def silent(graph: Graph) -> Graph:
    """The graph without the nodes that only act: for derivatives, which run it once more."""
    nodes = [n for n in graph.nodes if n.specs or not n.op.effect]
    quiet = [dataclasses.replace(n, op=_quiet(n.op)) if bodies(n.op) else n for n in nodes]
    same = all(a is b for a, b in zip(quiet, graph.nodes, strict=False))
    if same and len(quiet) == len(graph.nodes):
        return graph
    return Graph(graph.inputs, tuple(quiet), graph.outputs)


def _quiet(op: Op) -> Op:
    return op.replace(**{name: _quietly(getattr(op, name)) for name in op.fields})


def _quietly(value: Any) -> Any:
    if isinstance(value, Graph):
        return silent(value)
    if isinstance(value, Value):
        return _quiet(value) if bodies(value) else value  # type: ignore[arg-type]
    return tuple(map(_quietly, value)) if type(value) is tuple else value


def _within(node: Any, args: Sequence[Any], regions: dict[Any, Region]) -> Any:
    """Apply a node in the checkpoint region that it was traced in."""
    tagged = next((value for kind, value in node.tags if kind == "checkpoint"), None)
    if tagged is None:
        return apply(node.op, *args)
    token = region_now.set(_region(tagged, regions))
    try:
        return apply(node.op, *args)
    finally:
        region_now.reset(token)


def _region(tagged: Region, regions: dict[Any, Region]) -> Region:
    if tagged not in regions:
        outer = _region(tagged.outer, regions) if tagged.outer else region_now.get()
        regions[tagged] = Region(outer)
    return regions[tagged]
