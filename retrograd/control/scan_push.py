"""What a scan's derivatives share: scanning another body, and the jvp."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from retrograd.autodiff.forward import jvp
from retrograd.control.scan_steps import lean
from retrograd.core import dtype as dt
from retrograd.core.interpret import apply
from retrograd.ir.evaluate import evaluate, silent
from retrograd.ir.graph import Graph
from retrograd.ir.trace import trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec

__all__ = ["ScanPush", "captured_first", "looped", "smooth"]


def looped(f: Any, specs: Sequence[Spec], counts: tuple[int, int], like: Any, args: Any) -> Any:
    """Scan f over args, with the length of `like`; what f captures becomes more consts."""
    graph, captured = trace(f, specs)
    consts, carry = counts
    k = len(captured)
    op = like.replace(body=captured_first(lean(graph), k), consts=consts + k, carry=carry)
    return apply(op, *captured, *args)


def smooth(specs: Sequence[Spec]) -> list[int]:
    """Positions of the specs that have derivatives."""
    return [i for i, s in enumerate(specs) if dt.is_inexact(s.dtype)]


class ScanPush:
    """jvp: a scan over values and tangents side by side."""

    def keep(self, values: Any) -> Any:
        """The inputs."""
        return values[0]

    def push(self, op: Any, tangents: Sequence[Any], kept: Sequence[Any]) -> list[Any]:
        """The tangents of the results."""
        inputs, n, carry, once = op.body.inputs, op.consts, op.carry, silent(op.body)
        where = smooth(inputs)

        def body(*a: Any) -> list[Any]:
            primals, given = _unsplit(a, inputs, where, n, carry)
            outs, pushed = jvp(lambda *p: evaluate(once, *p), primals, given)
            hot = smooth([o.spec for o in outs])
            done = [outs[:carry], [pushed[i] for i in hot if i < carry]]
            more = [outs[carry:], [pushed[i] for i in hot if i >= carry]]
            return [x for part in (*done, *more) for x in part]

        ts = [op.zeros(kept[i].spec) if tangents[i] is None else tangents[i] for i in where]
        args, specs, parts = _split(kept, ts, inputs, where, n, carry)
        return _tangents(op, looped(body, specs, parts, op, args))


def _sections(
    values: Sequence[Any], tangents: Sequence[Any], where: list[int], n: int, carry: int
):
    """consts, their tangents, carry, its tangents, xs, their tangents."""
    bounds = [(0, n), (n, n + carry), (n + carry, len(values))]
    out = []
    for low, high in bounds:
        out.append(list(values[low:high]))
        out.append([t for i, t in zip(where, tangents, strict=True) if low <= i < high])
    return out


def _split(
    values: Any, tangents: Any, inputs: Any, where: list[int], n: int, carry: int
) -> Any:
    parts = _sections(values, tangents, where, n, carry)
    kinds = _sections(inputs, [inputs[i] for i in where], where, n, carry)
    sizes = [len(p) for p in parts]
    counts = (sizes[0] + sizes[1], sizes[2] + sizes[3])
    return [a for p in parts for a in p], [s for k in kinds for s in k], counts


def _unsplit(a: Sequence[Any], inputs: Any, where: list[int], n: int, carry: int) -> Any:
    order = _sections(range(len(inputs)), [("t", i) for i in where], where, n, carry)
    flat = [key for part in order for key in part]
    found = dict(zip(flat, a, strict=True))
    primals = [found[i] for i in range(len(inputs))]
    given = [found.get(("t", i), found[i]) for i in range(len(inputs))]
    return primals, given


def _tangents(op: Any, outs: Sequence[Any]) -> list[Any]:
    specs = op.body.output_specs
    hot = smooth(specs)
    first = [i for i in hot if i < op.carry]
    rest = [i for i in hot if i >= op.carry]
    found: list[Any] = [None] * len(specs)
    for i, t in zip(first, outs[op.carry :], strict=False):
        found[i] = t
    start = op.carry + len(first) + len(specs) - op.carry
    for i, t in zip(rest, outs[start:], strict=False):
        found[i] = t
    return found


def captured_first(graph: Graph, hidden: int) -> Graph:
    """The graph with its last `hidden` inputs put first."""
    given = len(graph.inputs) - hidden

    def moved(i: int) -> int:
        return i + hidden if i < given else i - given if i < given + hidden else i

    nodes = tuple(
        dataclasses.replace(node, inputs=tuple(map(moved, node.inputs))) for node in graph.nodes
    )
    inputs = (*graph.inputs[given:], *graph.inputs[:given])
    return Graph(inputs, nodes, tuple(map(moved, graph.outputs)))
