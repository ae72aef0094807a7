"""Loops that memory does not tell apart, as one: rows that follow each other are one long row.

Two neighbouring axes become one where every index moves along the outer one just as it would
by running off the end of the inner one. The inner axis then has the length of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.loops.analyse import expressions, statements
from retrograd.jit.loops.expr import For, Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrograd.jit.loops.expr import Kernel, Stmt
    from retrograd.jit.loops.index import Axis, Ix

__all__ = ["coalesce"]


def coalesce(kernel: Kernel) -> None:
    """Lengthen axes and leave others with one turn, where that changes nothing."""
    indices = list(_indices(kernel.body))
    nests = [kernel.axes, *(s.axes for s in _loops(kernel.body))]
    for nest in nests:
        axes = [a for a in nest if a.extent != 1]
        for outer, inner in zip(axes[-2::-1], axes[:0:-1], strict=True):
            together = all(_neighbours(n, outer, inner) for n in nests)
            if together and all(_runs_on(ix, outer, inner) for ix in indices):
                inner.extent, outer.extent = inner.extent * outer.extent, 1
                break
        else:
            continue
        coalesce(kernel)  # with what is left
        return


def _loops(body: Sequence[Stmt]) -> Iterator[For]:
    for s in body:
        if isinstance(s, For):
            yield s
            yield from _loops(s.body)


def _neighbours(nest: Sequence[Axis], outer: Axis, inner: Axis) -> bool:
    """Whether a nest of loops has both, one right inside the other, or neither."""
    axes = [a for a in nest if a.extent != 1]
    if outer not in axes and inner not in axes:
        return True
    both = outer in axes and inner in axes
    return both and axes.index(inner) == axes.index(outer) + 1


def _runs_on(ix: Ix, outer: Axis, inner: Axis) -> bool:
    return ix.terms.get(outer, 0) == ix.terms.get(inner, 0) * inner.extent


def _indices(body: Sequence[Stmt]) -> Iterator[Ix]:
    """Every index of the statements, and those inside of indices."""
    for e in expressions(body):
        if e.op in ("load", "place"):
            yield from _nested(e.data[1] if e.op == "load" else e.data)
    for s in statements(body):
        if isinstance(s, Store):
            yield from _nested(s.index)


def _nested(ix: Ix) -> Iterator[Ix]:
    yield ix
    for a in ix.terms:
        if hasattr(a, "of"):
            yield from _nested(a.of)
