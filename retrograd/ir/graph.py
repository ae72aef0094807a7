"""Graph: a typed program in single-assignment form, immutable, each node with the user's line.

Values are numbered: the inputs first, then the outputs of each node in order. A Graph
equals another if it computes the same thing the same way; lines and tags are not compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from retrograd.ir.text import show

if TYPE_CHECKING:
    from retrograd.core.op import Op
    from retrograd.core.spec import Spec
    from retrograd.core.where import Where


@dataclass(frozen=True)
class Node:
    """One op applied to values of the graph."""

    op: Op
    inputs: tuple[int, ...]
    specs: tuple[Spec, ...]  # one for each output
    where: Where | None = field(default=None, compare=False)
    tags: tuple[Any, ...] = field(default=(), compare=False)


@dataclass(frozen=True, repr=False)
class Graph:
    """Inputs, nodes in program order, and which values are the outputs."""

    inputs: tuple[Spec, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]

    @cached_property
    def specs(self) -> tuple[Spec, ...]:
        """The spec of every value, by its number."""
        found = list(self.inputs)
        for node in self.nodes:
            found += node.specs
        return tuple(found)

    @property
    def output_specs(self) -> tuple[Spec, ...]:
        """The specs of the outputs."""
        return tuple(self.specs[i] for i in self.outputs)

    @cached_property
    def last_uses(self) -> dict[int, list[int]]:
        """For each node, the values that nothing after it reads and no output is."""
        last = {i: at for at, node in enumerate(self.nodes) for i in node.inputs}
        kept = set(self.outputs)
        uses: dict[int, list[int]] = {}
        for i, at in last.items():
            if i not in kept:
                uses.setdefault(at, []).append(i)
        return uses

    @cached_property
    def _hash(self) -> int:
        return hash((self.inputs, self.nodes, self.outputs))

    def __hash__(self) -> int:
        """Computed once: graphs are cache keys."""
        return self._hash

    def __repr__(self) -> str:
        """How much there is; str shows the program."""
        return f"Graph({len(self.inputs)} in, {len(self.nodes)} nodes, {len(self.outputs)} out)"

    def __str__(self) -> str:
        """The program as text, one line a node, with the user's lines beside it."""
        return show(self)
