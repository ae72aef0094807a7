"""Where the results of products and convolutions go: the last value made of them alone.

A product's epilogue may store what is made of its results instead of them. That moves no more
bytes, and all that reads the made value later reads one array instead of many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.core.op import Elementwise
from retrograd.jit.lowering import INLINE, is_movement

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["sink"]

LONG = 16  # ops in an epilogue


def sink(fusion: Any, at: int) -> int | None:
    """The value to store for the first result of node `at`, if that is another one."""
    found = fusion.first[at]
    for _ in range(LONG):
        users = fusion.users.get(found, ())
        if len(users) != 1 or found in fusion.results:
            break
        (user,) = users
        node, specs = fusion.graph.nodes[user], fusion.graph.specs
        if fusion.kinds[user] != INLINE or not isinstance(node.op, Elementwise):
            break
        others = [i for i in node.inputs if i != found]
        if node.specs[0] != specs[found] or not _ready(fusion, others, at):
            break
        found = fusion.first[user]
    return None if found == fusion.first[at] else found


def _ready(fusion: Any, values: Sequence[int], at: int) -> bool:
    """Whether values are in memory before a node runs, or are made of such as elements."""
    stack, seen = list(values), 0
    while stack:
        maker = fusion.maker[stack.pop()][0]
        if maker < at:
            continue
        seen += 1
        node = fusion.graph.nodes[maker]
        plain = isinstance(node.op, Elementwise) or is_movement(node.op)
        if fusion.kinds[maker] != INLINE or not plain or seen > LONG:
            return False
        stack += node.inputs
    return True
