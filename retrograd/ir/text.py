"""Graphs as text: one line a node, bodies indented below the node that holds them.

    graph(%0: float64[3], %1: float64[4, 3]):
      %2: float64[3] = Scan(body=@body, consts=0, carry=1, length=4) %0, %1    # model.py:7
        @body = graph(%0: float64[3], %1: float64[3]):
          %2: float64[3] = Add() %0, %1    # model.py:5
          return %2
      return %2

`retrograd.ir.parse` reads it back. What follows `#` is for people: the checkpoint that a node
belongs to and the user's line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from retrograd.core.spec import Spec
from retrograd.core.value import Value

if TYPE_CHECKING:
    from retrograd.core.replay import Region

Graph: TypeAlias = Any  # the module of both imports this one
Node: TypeAlias = Any

__all__ = ["bodies", "show", "written"]

STEP = "  "


def show(graph: Graph, *, lines: bool = True) -> str:
    """A graph as text; with the user's lines, or without, as files that stay the same want."""
    return "\n".join(_rows(graph, "", "", lines=lines))


def _rows(graph: Graph, head: str, margin: str, *, lines: bool) -> list[str]:
    given = ", ".join(f"%{i}: {s}" for i, s in enumerate(graph.inputs))
    rows, at = [f"{margin}{head}graph({given}):"], len(graph.inputs)
    regions: dict[Region, int] = {}
    for node in graph.nodes:
        made = [f"%{at + i}: {s}" for i, s in enumerate(node.specs)]
        at += len(node.specs)
        used = ", ".join(f"%{i}" for i in node.inputs)
        row = f"{margin}{STEP}{', '.join(made) or '()'} = {written(node.op)} {used}".rstrip()
        rows.append(row + _comment(node, regions, lines=lines))
        for name, body in bodies(node.op):
            rows += _rows(body, f"@{name} = ", margin + 2 * STEP, lines=lines)
    rows.append(f"{margin}{STEP}return {', '.join(f'%{i}' for i in graph.outputs)}".rstrip())
    return rows


def _comment(node: Node, regions: dict[Region, int], *, lines: bool) -> str:
    """The checkpoint, numbered as they come, and the user's line."""
    words = [
        f"checkpoint {regions.setdefault(value, len(regions) + 1)}"
        for kind, value in node.tags
        if kind == "checkpoint"
    ]
    words += [str(node.where)] if lines and node.where else []
    return f"    # {'    '.join(words)}" if words else ""


def written(op: Value, path: str = "") -> str:
    """An op as text, with each body as a name; `path` is where the op itself is held."""
    inner = [f"{n}={_field(getattr(op, n), f'{path}{n}')}" for n in op.fields]
    return f"{type(op).__name__}({', '.join(inner)})"


def _field(value: Any, path: str) -> str:
    """A static option as text; `path` names a body."""
    if isinstance(value, tuple):
        inner = [_field(v, f"{path}.{i}") for i, v in enumerate(value)]
        return f"({inner[0]},)" if len(inner) == 1 else f"({', '.join(inner)})"
    if _is_graph(value):
        return f"@{path}"
    if isinstance(value, (np.dtype, Spec)):
        return str(value)
    if isinstance(value, np.ufunc):
        return f"np.{value.__name__}"
    if isinstance(value, complex):  # repr would lose the sign of a zero
        return f"{value.real!r}:{value.imag!r}"
    if isinstance(value, Value):
        return written(value, f"{path}.")
    return repr(value)


def bodies(op: Value) -> list[tuple[str, Graph]]:
    """The graphs that an op holds, each with its name: of its field, and the place in it."""
    return [found for n in op.fields for found in _within(getattr(op, n), n)]


def _within(value: Any, path: str) -> list[tuple[str, Graph]]:
    if isinstance(value, tuple):
        return [found for i, v in enumerate(value) for found in _within(v, f"{path}.{i}")]
    if isinstance(value, Value):
        return [(f"{path}.{name}", body) for name, body in bodies(value)]
    return [(path, value)] if _is_graph(value) else []


def _is_graph(value: Any) -> bool:
    return hasattr(value, "nodes") and hasattr(value, "outputs")
