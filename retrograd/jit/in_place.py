"""Which donated inputs a matrix product may overwrite with what is made of its results.

An update such as `w - lr * x.T @ g` is done while the product is stored, and where w was: if
nothing after the product reads w or can fail, and the product is added up in registers, so
that w is whole until its element is replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.ir.text import bodies
from retrograd.jit.steps import Call, Product

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["free", "replaced"]

TERMS = 512  # of a product that is added up in registers alone


def replaced(fusion: Any, values: Sequence[int]) -> set[int]:
    """The donated inputs whose memory outputs that are made of them could take."""
    specs, found = fusion.graph.specs, set()
    for v in (v for v in values if v in fusion.results):
        given = fusion._needed(fusion.maker[v][0]) & fusion.donated
        found |= {i for i in given if specs[v] == specs[i]}
    return found


def free(fusion: Any, product: Any) -> set[int]:
    """The donated inputs that a product may write over."""
    graph, later = fusion.graph, fusion.steps[fusion.place[product.out] + 1 :]
    if not isinstance(product, Product) or any(_fails(graph, s) for s in later):
        return set()
    terms = graph.specs[graph.nodes[product.node].inputs[0]].shape[-1]
    if not 0 < terms <= TERMS:
        return set()
    read = set().union(*(fusion._reads(s) for s in later))
    return set(fusion.donated) - read - {product.a.value, product.b.value}


def _fails(graph: Any, step: Any) -> bool:
    """Whether a step that is not finished yet may raise: a guess, `reusable` knows."""
    if isinstance(step, Call):
        op = graph.nodes[step.node].op
        return bool(op.host or op.effect or bodies(op))
    built = getattr(step, "built", None)
    return built is not None and built.checks
