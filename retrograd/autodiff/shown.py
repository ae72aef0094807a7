"""Cotangents as the faces show them: PyTorch's convention, where rules have plain transposes.

Complex ones are conjugated at both ends of a pass. That is two passes over memory for nothing
where an op knows its adjoint: between such ops they are `Shown`, and stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.op import FUNCTIONS, Linear
from retrograd.core.tensor import Tensor

if TYPE_CHECKING:
    from retrograd.core.tape import Node

__all__ = ["Shown", "adjoint", "face", "public", "seeded"]


class Shown:
    """A complex cotangent that is not conjugated: an array, or a tensor.

    A pass has one at most, and nothing is added to it: it goes from what the pass begins with
    to one parent each time, and ends at a leaf or before an op without an adjoint.
    """

    __slots__ = ("dtype", "shape", "value")

    def __init__(self, value: Any) -> None:
        self.value, self.shape, self.dtype = value, value.shape, value.dtype

    @property
    def _node(self) -> Node | None:
        """Its place on the tape, as a tensor's."""
        return getattr(self.value, "_node", None)


def face(g: Any) -> Any:
    """From one convention to the other: complex numbers are conjugated."""
    return FUNCTIONS["conj"](g) if g.dtype.kind == "c" else g


def public(g: Any) -> Tensor:
    """A cotangent as the faces show it: a tensor."""
    if type(g) is Shown:
        return g.value if isinstance(g.value, Tensor) else Tensor(g.value)
    return face(g if isinstance(g, Tensor) else Tensor(np.asarray(g)))


def seeded(node: Node, g: Tensor, *, raw: bool) -> Any:
    """What a pass on arrays, or on tensors, begins with at a node, of what a face was given."""
    if g.dtype.kind == "c" and _has_adjoint(node.op):
        return Shown(g.array if raw else g)
    return face(g).array if raw else face(g)


def adjoint(node: Node, g: Shown) -> Any:
    """What an op with an adjoint makes of a cotangent, for its one parent."""
    (parent,) = node.parents
    if parent is None:
        return None
    found = node.op.adjoint(g.value, parent)  # type: ignore[union-attr]
    if found.dtype.kind != "c":
        return found
    return Shown(found) if parent.op is None or _has_adjoint(parent.op) else face(found)


def _has_adjoint(op: Any) -> bool:
    return isinstance(op, Linear) and op.adjoint is not None
