"""expand: ops that are compositions of others, written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from retrograd.core.interpret import PURE, using
from retrograd.core.replay import region_now
from retrograd.ir.trace import trace
from retrograd.jit.passes.rewrite import Writer, rewritten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.op import Op
    from retrograd.core.spec import Spec
    from retrograd.ir.graph import Graph, Node

__all__ = ["Native", "expand", "no_kernels"]

Native = Callable[["Op", "Sequence[Spec]"], object]  # true where the target has kernels


def no_kernels(_op: Op, _specs: Sequence[Spec]) -> bool:
    """A target that has no kernels of its own for any op."""
    return False


def expand(graph: Graph, native: Native = no_kernels) -> Graph:
    """Replace ops that have only `expand`, but for the `native`, by their compositions."""
    return _Expansion(native).run(graph)


class _Expansion:
    """One run: what an op on given specs expands to is found once."""

    def __init__(self, native: Native) -> None:
        self.native = native
        self.known: dict[Any, Graph] = {}

    def run(self, graph: Graph) -> Graph:
        return rewritten(graph, self.visit, self.run)

    def visit(self, writer: Writer, node: Node) -> Sequence[int]:
        op = node.op
        specs = tuple(writer.specs[i] for i in node.inputs)
        stays = hasattr(op, "lower") or op.host or op.effect or self.native(op, specs)
        if stays or not hasattr(op, "expand"):
            return writer.keep(node)
        if (op, specs) not in self.known:
            self.known[op, specs] = self.run(_composition(op, specs))
        return writer.inline(self.known[op, specs], node.inputs, node)


def _composition(op: Any, specs: Sequence[Spec]) -> Graph:
    """An op's expansion as a graph; arrays that it captures become literals of any size."""

    def composed(*args: Any) -> list[Any]:
        found = op.expand(*args)
        return list(found) if isinstance(found, tuple) else [found]

    token = region_now.set(None)  # the node's own tags are what counts
    try:
        with using(PURE):
            graph, captured = trace(composed, specs)
    finally:
        region_now.reset(token)
    writer = Writer(specs)
    hidden = [writer.literal(t.array) for t in captured]
    return writer.graph(writer.inline(graph, [*range(len(specs)), *hidden]))
