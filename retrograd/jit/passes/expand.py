"""expand: ops that are compositions of others, written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from retrograd.core.interpret import PURE, using
from retrograd.core.replay import region_now
from retrograd.core.where import retold
from retrograd.ir.trace import trace
from retrograd.jit.passes.parts import Parts, by_parts
from retrograd.jit.passes.rewrite import Writer, rewritten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.op import Op
    from retrograd.core.spec import Spec
    from retrograd.core.where import Where
    from retrograd.ir.graph import Graph, Node

__all__ = ["Native", "expand", "no_kernels"]

Native = Callable[["Op", "Sequence[Spec]"], object]  # true where the target has kernels


def no_kernels(_op: Op, _specs: Sequence[Spec]) -> bool:
    """A target that has no kernels of its own for any op."""
    return False


def expand(graph: Graph, native: Native = no_kernels) -> Graph:
    """Replace ops that have only `expand`, but for the `native`, by their compositions.

    An op's `in_program` is what programs run in its place, where `expand` is another thing.
    Products of complex matrices become real ones.
    """
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
        split = by_parts(op, specs)
        stays = hasattr(op, "lower") or op.host or op.effect or self.native(op, specs)
        if not split and (stays or not hasattr(op, "expand")):
            return writer.keep(node)
        if (op, specs) not in self.known:
            made = _composition(Parts if split else op, specs, node.where)
            self.known[op, specs] = self.run(made)
        return writer.inline(self.known[op, specs], node.inputs, node)


def _composition(op: Any, specs: Sequence[Spec], where: Where | None) -> Graph:
    """An op's expansion as a graph; arrays that it captures become literals of any size."""

    def composed(*args: Any) -> list[Any]:
        found = getattr(op, "in_program", op.expand)(*args)
        return list(found) if isinstance(found, tuple) else [found]

    token = region_now.set(None)  # the node's own tags are what counts
    line = retold.set(where)  # for nodes in bodies
    try:
        with using(PURE):
            graph, captured = trace(composed, specs)
    finally:
        retold.reset(line)
        region_now.reset(token)
    writer = Writer(specs)
    hidden = [writer.literal(t.array) for t in captured]
    return writer.graph(writer.inline(graph, [*range(len(specs)), *hidden]))
