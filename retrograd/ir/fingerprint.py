"""A graph as a short text that another graph has only if it is the same program.

Two graphs with the same fingerprint have equal ops, bits of literals, specs and connections,
and checkpoints and user's lines in the same pattern: nodes of one line in one are nodes of one
line in the other, though the line may be another. It is the same in every process.
"""

from __future__ import annotations

import sys
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from retrograd.core.exact import Exact
from retrograd.core.spec import Spec
from retrograd.core.value import Value
from retrograd.ir.graph import Graph, Node

if TYPE_CHECKING:
    from retrograd.core.where import Where

__all__ = ["Fingerprint", "fingerprint", "line"]

_OURS = "retrograd."


class _StrangeError(Exception):
    """A value that means something in this process alone."""


class Fingerprint(NamedTuple):
    """The text of a graph, and its nodes with those of all bodies, in the order of the text."""

    text: str
    nodes: list[Node]

    def lines(self) -> dict[tuple[int, int], int]:
        """Of each user's line, as `line` has it, the number of the first node made for it."""
        found: dict[tuple[int, int], int] = {}
        for at, node in enumerate(self.nodes):
            if node.where is not None:
                found.setdefault(line(node.where), at)
        return found


def fingerprint(graph: Graph) -> Fingerprint | None:
    """The text; None for graphs that another process could not have, or not in this sense.

    Such are those with functions of the user's in an op, or an op that the package does not
    have.
    """
    writer = _Words()
    try:
        words = writer.graph(graph)
    except _StrangeError:
        return None
    whole = "\n".join(words).encode("utf-8", "surrogatepass")
    return Fingerprint(blake2b(whole, digest_size=24).hexdigest(), writer.nodes)


def line(where: Where) -> tuple[int, int]:
    """A user's line as a key, while its code is there.

    Not the offset: how far an instruction has got depends on what Python made of it.
    """
    return id(where.code), where.line


class _Words:
    """A graph's fingerprint while it is written."""

    def __init__(self) -> None:
        self.regions: dict[int, int] = {}
        self.lines: dict[tuple[int, int], int] = {}
        self.spots: dict[tuple[int, int], tuple[int, int]] = {}
        self.kinds: dict[type, str] = {}
        self.specs: dict[Spec, str] = {}
        self.nodes: list[Node] = []

    def graph(self, graph: Graph) -> list[str]:
        """All of it."""
        rows = [f"graph {self.row(graph.inputs)} {graph.outputs}"]
        for node in graph.nodes:
            marks = f"{self._line(node)} {self._tags(node)}"
            self.nodes.append(node)
            made = self.row(node.specs)
            rows.append(f"{self.value(node.op)} {node.inputs} {made} {marks}")
        return rows

    def row(self, specs: tuple[Spec, ...]) -> str:
        """Some specs."""
        return f"[{' '.join(map(self.spec, specs))}]"

    def spec(self, spec: Spec) -> str:
        """Shape, dtype and device."""
        known = self.specs.get(spec)
        if known is None:
            known = f"{spec.shape} {self.dtype(spec.dtype)} {spec.device}"
            self.specs[spec] = known
        return known

    def dtype(self, dtype: np.dtype) -> str:
        """A plain dtype."""
        if dtype.kind not in "biufc":
            raise _StrangeError
        return dtype.str

    def _line(self, node: Node) -> int:
        where = node.where
        if where is None:
            return -1
        spot = id(where.code), where.offset
        if spot not in self.spots:
            self.spots[spot] = line(where)
        return self.lines.setdefault(self.spots[spot], len(self.nodes))

    def _tags(self, node: Node) -> list[int]:
        found = []
        for kind, region in node.tags:
            if kind != "checkpoint":
                raise _StrangeError
            found.append(self.regions.setdefault(id(region), len(self.regions)))
        return found

    def value(self, value: Any) -> str:
        """An op, or what is in a field of it."""
        kind = type(value)
        if kind in (int, bool, str, bytes, type(None)):
            return repr(value)
        if kind is tuple:
            return f"({' '.join(map(self.value, value))})"
        if kind is float:
            return value.hex()
        if kind is complex:
            return f"{value.real.hex()}:{value.imag.hex()}"
        if kind is Spec:
            return f"<{self.spec(value)}>"
        if kind is Exact:
            return f"{self.spec(value.spec)}:{blake2b(value.data, digest_size=24).hexdigest()}"
        if kind is Graph:
            return "{" + "\n".join(self.graph(value)) + "}"
        if isinstance(value, np.dtype):
            return self.dtype(value)
        if isinstance(value, np.ufunc):
            return self.ufunc(value)
        if isinstance(value, Value):
            inner = " ".join([self.value(getattr(value, n)) for n in value.fields])
            return f"{self.kind(kind)}({inner})"
        raise _StrangeError

    def ufunc(self, value: np.ufunc) -> str:
        """A function of NumPy's."""
        name = str(value.__name__)
        if getattr(np, name, None) is not value:
            raise _StrangeError
        return f"np.{name}"

    def kind(self, kind: type) -> str:
        """A class of the package."""
        known = self.kinds.get(kind)
        if known is None:
            home = sys.modules.get(kind.__module__)
            ours = kind.__module__.startswith(_OURS)
            if not ours or getattr(home, kind.__qualname__, None) is not kind:
                raise _StrangeError
            known = self.kinds[kind] = f"{kind.__module__}.{kind.__qualname__}"
        return known
