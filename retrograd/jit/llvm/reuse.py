"""Donation: which outputs may be written where a donated argument was.

Only if every read of the argument comes before the write, or is of the very element that the
same kernel then writes; and only if nothing that can fail comes after the first such write. So
a call that fails leaves the old values whole.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.loops.analyse import expressions, statements
from retrograd.jit.loops.expr import CHECKS, For, Store
from retrograd.jit.steps import Call, Loops, Product
from retrograd.ops.literal import Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.jit.loops.expr import Expr, Kernel, Stmt

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
    if isinstance(step, Product):
        known = step.built if step.apart and i not in (step.a.value, step.b.value) else None
        return known is not None and _same(known.kernel.body, v, i)
    if not isinstance(step, Loops) or not _same(step.kernel.body, v, i):
        return False
    loops = [s for s in step.kernel.body if isinstance(s, For)]
    return not loops or any(_ordered(s, step.kernel, v, i) for s in loops)


def _same(body: Sequence[Stmt], v: int, i: int) -> bool:
    """Whether statements read of the input i only what they write of v."""
    writes = [s for s in statements(body) if isinstance(s, Store)]
    where = {s.index for s in writes if s.buffer.name == v}
    return {e.data[1] for e in expressions(body) if _reads(e, i)} <= where


def _ordered(loop: For, kernel: Kernel, v: int, i: int) -> bool:
    """Whether this loop alone reads i, and writes v: each element once, after reading it."""
    stores = [s for s in loop.body if isinstance(s, Store) and s.buffer.name == v]
    plain = loop.until is None and not any(isinstance(s, For) for s in loop.body)
    if len(stores) != 1 or not plain:
        return False
    turns = prod(a.extent for a in (*kernel.axes, *loop.axes))
    others = [s for s in kernel.body if s is not loop]
    others += loop.body[loop.body.index(stores[0]) + 1 :]
    once = turns == prod(stores[0].buffer.shape)
    return once and not any(_reads(e, i) for e in expressions(others))


def _reads(e: Expr, i: int) -> bool:
    return e.op == "load" and e.data[0].name == i


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
