"""Well-formedness of graphs: an error shows the nodes around the fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.core.errors import OpError
from retrograd.core.spec import Spec

if TYPE_CHECKING:
    from retrograd.ir.graph import Graph

AROUND = 5


def verify(graph: Graph) -> Graph:
    """The graph itself, if every value is made before its use and every spec is the op's."""
    known = len(graph.inputs)
    for at, node in enumerate(graph.nodes):
        for i in node.inputs:
            if not 0 <= i < known:
                raise _fault(graph, at, f"uses %{i}, which is not made before it")
        specs = node.op.shape(*(graph.specs[i] for i in node.inputs))
        told = (specs,) if isinstance(specs, Spec) else tuple(specs)
        if told != node.specs:
            raise _fault(graph, at, f"has {_list(node.specs)}; its op gives {_list(told)}")
        known += len(node.specs)
    for i in graph.outputs:
        if not 0 <= i < known:
            raise _fault(graph, len(graph.nodes), f"returns %{i}, which is never made")
    return graph


def _list(specs: tuple[Spec, ...]) -> str:
    return ", ".join(map(str, specs))


def _fault(graph: Graph, at: int, what: str) -> OpError:
    lines = str(graph).splitlines()
    low, high = max(1, at + 1 - AROUND), at + 2 + AROUND
    shown = [
        ("> " if i == at + 1 else "  ") + lines[i] for i in range(low, min(high, len(lines)))
    ]
    where = graph.nodes[at].where if at < len(graph.nodes) else None
    return OpError(f"verify: node {at} {what}\n" + "\n".join(shown), at=where)
