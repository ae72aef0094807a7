"""The table of rules that `simplify` goes by, and what rules are written with.

    @rule(arithmetic.Negative)
    def negative_of_negative(view):
        '''-(-x) is x.'''
        inner = view.made(0, arithmetic.Negative)
        return inner and inner.inputs[0]

A rule looks at one node and returns the value that equals its result, a simpler op with its
inputs, or None where it does not apply. Every rule is exact: to the bit for every number,
infinities and signed zeros included; NaN stays NaN (which of its bit patterns is not said).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from retrograd.ops.literal import Literal
from retrograd.ops.shape import BroadcastTo

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrograd.core.op import Op
    from retrograd.core.spec import Spec
    from retrograd.ir.graph import Node
    from retrograd.jit.passes.rewrite import Writer

__all__ = ["RULES", "Found", "View", "rule", "rules_of"]

Found: TypeAlias = "int | tuple[Op, tuple[int, ...]] | None"
T = TypeVar("T", bound="Callable[[View], Any]")
RULES: dict[type[Op], list[Any]] = {}  # by the class of op, families included


def rule(*kinds: type[Op]) -> Callable[[T], T]:
    """Enter a rule for ops of some classes, or of classes below them."""

    def enter(f: T) -> T:
        for kind in kinds:
            RULES.setdefault(kind, []).append(f)
        return f

    return enter


_known: dict[type[Op], list[Any]] = {}


def rules_of(kind: type[Op]) -> list[Any]:
    """The rules for a class of op, its own before those of its families."""
    if kind not in _known:
        _known[kind] = [f for base in kind.__mro__ for f in RULES.get(base, ())]
    return _known[kind]


class View:
    """A node as a rule sees it: its op, inputs, specs, and what made the inputs."""

    def __init__(self, writer: Writer, node: Node) -> None:
        self.writer, self.node = writer, node
        self.op: Any = node.op
        self.inputs = node.inputs
        self.out: Spec = node.specs[0]

    def spec(self, i: int) -> Spec:
        """The spec of an input."""
        return self.writer.specs[self.inputs[i]]

    def made(self, i: int, kind: type[Op]) -> Any:
        """The node that made an input, if it is of a class; else None."""
        node = self.writer.maker(self.inputs[i])
        return node if node is not None and isinstance(node.op, kind) else None

    def number(self, i: int) -> Any:
        """The one number that an input is everywhere, as a NumPy scalar; None otherwise."""
        node: Node | None = self.writer.maker(self.inputs[i])
        while node is not None and isinstance(node.op, BroadcastTo):
            node = self.writer.maker(node.inputs[0])
        if node is None or not isinstance(node.op, Literal) or not node.specs[0].size:
            return None
        array = node.op.value.array.reshape(-1)
        same = all(v.tobytes() == array[0].tobytes() for v in array[1:])
        return array[0] if same else None

    def is_number(self, i: int, wanted: float) -> bool:
        """Whether an input is one real number everywhere; 0.0 is not -0.0."""
        found = self.number(i)
        if found is None or found.dtype.kind == "c":
            return False
        return found.tobytes() == np.asarray(wanted, found.dtype).tobytes()

    def literal(self, array: Any) -> int:
        """A new constant of the program."""
        return self.writer.literal(array, self.node)

    @property
    def real(self) -> bool:
        """Whether the result is of real numbers: complex zeros and infinities mix."""
        return self.out.dtype.kind != "c"

    @property
    def floating(self) -> bool:
        """Whether the result is of floats, half precision included."""
        return self.real and self.out.dtype.kind not in "biu"
