"""Run a Graph through the seam: under any interpreter, at any depth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.core.interpret import apply
from retrograd.core.replay import Region, region_now

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.ir.graph import Graph


def evaluate(graph: Graph, *args: Any) -> list[Any]:
    """The outputs of a graph; values are dropped after their last use."""
    values: list[Any] = list(args)
    last = graph.last_uses
    regions: dict[Any, Region] = {}
    for at, node in enumerate(graph.nodes):
        out = _within(node, [values[i] for i in node.inputs], regions)
        values += out if isinstance(out, tuple) else (out,)
        for i in last.get(at, ()):
            values[i] = None
    return [values[i] for i in graph.outputs]


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
