"""Loops that become one: bodies over the same axes, where no result is needed between."""

from __future__ import annotations

from typing import Any

from retrograd.jit.loops.analyse import assigned, expressions
from retrograd.jit.loops.expr import Assign, For, Store

__all__ = ["merged"]


def merged(body: list[Any]) -> list[Any]:
    """Statements with loops put into the first loop before them that can take them."""
    out: list[Any] = []
    for s in body:
        at = _home(out, s) if isinstance(s, For) and s.until is None else None
        if at is None:
            out.append(s)
        else:
            out[at] = For(s.axes, [*out[at].body, *s.body], reverse=s.reverse)
    return out


def _home(out: list[Any], loop: For) -> int | None:
    """The earliest loop that another's body can move into, past what it does not need."""
    own = {(s.var, s.turn) for s in loop.body if isinstance(s, Assign)}
    reads = {e.data for e in expressions(loop.body) if e.op == "var" and e.data[1] > 0}
    needs = (reads | set(assigned(loop.body)[0].items())) - own
    loads = {e.data[0] for e in expressions(loop.body) if e.op == "load"}
    loads |= {s.buffer for s in loop.body if isinstance(s, Store)}  # written twice: in order
    best = None
    for at in range(len(out) - 1, -1, -1):
        s = out[at]
        inside = s.body if isinstance(s, For) else [s]
        makes = {(a.var, a.turn) for a in inside if isinstance(a, Assign)}
        if makes & needs or any(isinstance(a, Store) and a.buffer in loads for a in inside):
            break
        alike = isinstance(s, For) and (s.axes, s.reverse) == (loop.axes, loop.reverse)
        if alike and s.until is None:
            best = at
    return best
