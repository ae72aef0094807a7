"""Graphs compared to the bit: run so that results depend on the operands' bits alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.interpret import compute
from retrograd.core.quiet import loud, quiet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.ir.graph import Graph

__all__ = ["assert_same_bits", "bits", "run_graph"]


def run_graph(graph: Graph, arrays: Sequence[Any]) -> list[np.ndarray]:
    """The outputs, computed as Eval does, each op on operands in row-major order.

    NumPy adds up in an order that depends on strides, and a pass may turn a copy into a view.
    """
    values = [np.asarray(a) for a in arrays]
    last = graph.last_uses
    token = quiet()
    try:
        for at, node in enumerate(graph.nodes):
            given = [np.array(values[i], order="C", copy=True) for i in node.inputs]
            out = compute(node.op, given)
            values += [np.asarray(o) for o in (out if isinstance(out, tuple) else (out,))]
            for i in last.get(at, ()):
                values[i] = np.empty(0)
    finally:
        loud(token)
    return [values[i] for i in graph.outputs]


def bits(array: Any) -> tuple[Any, ...]:
    """What is compared: dtype, shape and bytes, with one pattern for NaN."""
    array = np.array(array, order="C", copy=True)
    flat = array.reshape(-1)
    parts = flat.view(flat.real.dtype) if array.dtype.kind == "c" else flat
    if array.dtype.kind not in "biu":
        parts[parts != parts] = np.nan
    return array.dtype, array.shape, array.tobytes()


def assert_same_bits(before: Graph, after: Graph, arrays: Sequence[Any]) -> None:
    """Both graphs take and give the same specs, and give the same bits."""
    assert before.inputs == after.inputs
    assert before.output_specs == after.output_specs
    pairs = zip(run_graph(before, arrays), run_graph(after, arrays), strict=True)
    for number, (a, b) in enumerate(pairs):
        if bits(a) != bits(b):
            raise AssertionError(f"output {number}: {a}\nis now {b}\n{before}\n{after}")
