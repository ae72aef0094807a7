"""Donation: which outputs may be written where a donated argument was.

Only if every read of the argument comes before the write, or is of the very element that the
same kernel then writes; and only if nothing that can fail comes after the first such write. So
a call that fails leaves the old values whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.loops.analyse import expressions, statements
from retrograd.jit.loops.expr import CHECKS, For, Store
from retrograd.jit.steps import Call, Loops, Product
from retrograd.ops.literal import Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["may_fail", "reusable"]


def reusable(routine: Any, donated: Sequence[int]) -> dict[int, int]:
    """Output value: donated input, of equal specs, in order of both."""
    graph = routine.graph
    makes = {v: at for at, s in enumerate(routine.steps) for v in routine.traffic(s)[1]}
    last: dict[int, int] = {}
    for at, s in enumerate(routine.steps):
        for v in routine.traffic(s)[0]:
            last[v] = at
    failing = max((at for at, s in enumerate(routine.steps) if may_fail(graph, s)), default=-1)
    found: dict[int, int] = {}
    free = [i for i in donated if i not in graph.outputs]
    for v in routine.stored_outputs():
        if makes[v] <= failing:
            continue
        for i in free:
            if graph.specs[i] == graph.specs[v] and _safe(routine, v, i, makes[v], last):
                found[v] = i
                free.remove(i)
                break
    return found


def _safe(routine: Any, v: int, i: int, at: int, last: dict[int, int]) -> bool:
    if last.get(i, -1) != at:
        return last.get(i, -1) < at
    step = routine.steps[at]
    body = _elementwise(step, i)
    if body is None:
        return False
    writes = [s for s in statements(body) if isinstance(s, Store)]
    where = {s.index for s in writes if s.buffer.name == v}
    reads = {e.data[1] for e in expressions(body) if e.op == "load" and e.data[0].name == i}
    return reads <= where


def _elementwise(step: Any, i: int) -> Any:
    """The statements by which alone a step reads the input i; None if there are others."""
    if isinstance(step, Product):
        known = step.built if step.apart and i not in (step.a.value, step.b.value) else None
        return known.kernel.body if known else None
    if not isinstance(step, Loops) or any(isinstance(s, For) for s in step.kernel.body):
        return None
    return step.kernel.body


def may_fail(graph: Any, step: Any) -> bool:
    """Whether a step can raise: a call of Python, a loop, or an index that is checked."""
    if isinstance(step, Call):
        node = graph.nodes[step.node]
        specs = [graph.specs[i] for i in node.inputs]
        kernels = kernels_of(node.op, specs)
        return not isinstance(node.op, Literal) and (kernels is None or kernels.fails)
    if not isinstance(step, Loops):
        return False
    return any(e.op in CHECKS for e in expressions(step.kernel.body))
