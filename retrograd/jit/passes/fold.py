"""fold: what depends on constants alone, computed once, by NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.errors import RetrogradError
from retrograd.core.interpret import SMALL, compute
from retrograd.core.quiet import loud, quiet
from retrograd.jit.passes.rewrite import Writer, effectful, rewritten
from retrograd.ops.literal import Literal
from retrograd.ops.shape import BroadcastTo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.ir.graph import Graph, Node

__all__ = ["fold"]


def fold(graph: Graph) -> Graph:
    """Compute what depends on literals alone, where the result is small."""
    return rewritten(graph, _visit, fold)


def _visit(writer: Writer, node: Node) -> Sequence[int]:
    makers = [writer.maker(i) for i in node.inputs]
    values = [m.op.value.array for m in makers if m is not None and isinstance(m.op, Literal)]
    if len(values) < len(makers) or not _foldable(node):
        return writer.keep(node)
    found = _computed(node.op, values)
    if found is None:
        return writer.keep(node)
    return [writer.literal(a, node) for a in found]


def _foldable(node: Node) -> bool:
    """Not host calls, nor effects; a broadcast says more than what it repeats."""
    small = all(s.size <= SMALL for s in node.specs)
    special = node.op.host or isinstance(node.op, BroadcastTo) or effectful(node.op)
    return bool(node.inputs) and small and not special


def _computed(op: Any, arrays: list[np.ndarray]) -> list[np.ndarray] | None:
    """The results as eager code would have them; None where it would raise: later, then."""
    token = quiet()
    try:
        out = compute(op, arrays)
    except (RetrogradError, ArithmeticError, LookupError, ValueError):
        return None
    finally:
        loud(token)
    return [np.asarray(o) for o in (out if isinstance(out, tuple) else (out,))]
