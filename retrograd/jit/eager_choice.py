"""Which eager ops run as kernels: a rule of the op and its operands' sizes, never a timing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.core.executor import LIGHT
from retrograd.core.op import Composite
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.loops.scatter import FEW
from retrograd.jit.lowering import INLINE, kind_of, price_of
from retrograd.ops.decompose.matrices import LAPACK
from retrograd.ops.gather import AddAlongAxis

if TYPE_CHECKING:
    from retrograd.ir.graph import Graph

__all__ = ["pays"]

WORTH = 1 << 18  # operations, about: what a call costs more than NumPy's is won back
OTHER = 12  # operations for an element of what is not elementwise


def pays(graph: Graph, op: Any = None) -> bool:
    """Whether the program of an op or a rule is worth more than NumPy's calls."""
    if max((s.size for s in graph.specs), default=0) < LIGHT or _work(graph) < WORTH:
        return False
    if op is not None:
        if op.effect or (op.host and not _quicker(graph, op)):
            return False
        own = isinstance(op, Composite) and type(op).forward is not Composite.forward
        if own and not op.fused:
            return kernels_of(op, graph.inputs) is not None
    if any(_sparse(graph, n) for n in graph.nodes):
        return False
    if not all(n.op.view for n in graph.nodes):
        return True
    # an op of views alone: NumPy has to copy where operands do not lie in row-major order
    return op is not None and op.name == "reshape" and len(graph.nodes) > 1


def _quicker(graph: Graph, op: Any) -> bool:
    """Whether a library's op has kernels for such operands that are better."""
    return op.quicker and kernels_of(op, graph.inputs) is not None


def _work(graph: Graph) -> int:
    """A guess at the operations that NumPy would spend, a pass over memory as one more."""
    total = 0
    for node in graph.nodes:
        dear = price_of(graph, node) if kind_of(graph, node) == INLINE else OTHER
        if node.op.host == LAPACK:  # each element of a matrix meets all others of its row
            dear = max(OTHER, *graph.specs[node.inputs[0]].shape[-1:])
        read = max((graph.specs[i].size for i in node.inputs), default=0)
        total += (1 + dear) * max([read, *(s.size for s in node.specs)])
    return total


def _sparse(graph: Graph, node: Any) -> bool:
    """Whether few elements are added to many zeros: the kernel's loop fills them one by one."""
    if not isinstance(node.op, AddAlongAxis):
        return False
    given = graph.specs[node.inputs[0]]
    if given.shape[node.op.axis] <= FEW:
        return False
    return 4 * given.size <= node.specs[0].size
