"""hoist: large constants as hidden inputs, so that no data is embedded in code or cache."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from retrograd.core.interpret import SMALL
from retrograd.ir.graph import Graph
from retrograd.ops.literal import Literal

if TYPE_CHECKING:
    import numpy as np

__all__ = ["hoist"]


def hoist(graph: Graph, most: int = SMALL) -> tuple[Graph, list[np.ndarray]]:
    """Make literals of more than `most` elements hidden inputs, the last; and their arrays.

    `expand` writes down what an op's composition captures: that may be large. Bodies keep
    theirs, for the op that holds a body says what its inputs are.
    """
    large = [n for n in graph.nodes if isinstance(n.op, Literal) and n.specs[0].size > most]
    if not large:
        return graph, []
    first = len(graph.inputs)
    inputs = (*graph.inputs, *(n.specs[0] for n in large))
    numbers, end, taken = list(range(first)), len(inputs), iter(range(first, len(inputs)))
    nodes: list[Any] = []
    for node in graph.nodes:
        if isinstance(node.op, Literal) and node.specs[0].size > most:
            numbers.append(next(taken))
            continue
        nodes.append(dataclasses.replace(node, inputs=tuple(numbers[i] for i in node.inputs)))
        numbers += range(end, end + len(node.specs))
        end += len(node.specs)
    outputs = tuple(numbers[i] for i in graph.outputs)
    return Graph(inputs, tuple(nodes), outputs), [_array(n.op) for n in large]


def _array(op: Any) -> np.ndarray:
    return op.value.array
