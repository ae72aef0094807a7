"""Loops over two axes, of which operands lie along one and results along the other.

Lanes run along the last axis; an operand that lies along the one before it would be gathered,
a cache line for every lane. So squares of as many turns of both as there are lanes are turned
over in registers, and the turns find their vectors in a tile.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.fetch import Fetch
from retrograd.jit.llvm.values import in_memory
from retrograd.jit.llvm.walks import Walks, safe
from retrograd.jit.loops.analyse import expressions
from retrograd.jit.loops.expr import For, Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrograd.jit.loops.expr import Buffer, Kernel
    from retrograd.jit.loops.index import Axis, Ix

__all__ = ["Squares"]

MANY = 4  # operands that are turned over, at most
LEAST = 1 << 14  # elements that are worth it
ABREAST = 16  # squares that read neighbouring lines before others are read


class Squares(Walks):
    """The part of a kernel's writer that turns operands over."""

    kernel: Kernel
    wanted: list[tuple[Buffer, Ix]]  # operands that are turned over
    turned: Axis | None = None  # the axis that they lie along

    def settle(self, axes: list[Axis]) -> None:
        """See which operands of a kernel lie along the axis before the lanes'."""
        self.wanted = []
        if len(axes) < 2 or axes[-1] is not self.vector or not (self.vertical and self.lanes):
            return
        axis, n = axes[-2], self.lanes
        if min(axis.extent, axes[-1].extent) < n or axis.extent * axes[-1].extent < LEAST:
            return
        if any(isinstance(s, For) for s in self.kernel.body):
            return
        loads = dict.fromkeys(e.data for e in expressions(self.kernel.body) if e.op == "load")
        written = {s.buffer for s in self.kernel.body if isinstance(s, Store)}
        whole = 0, axis.extent // n * n
        self.wanted = [
            (b, ix)
            for b, ix in loads
            if self._along(b, ix, axis) and safe([(b, ix)], axis, n) == whole
        ]
        if 0 < len(self.wanted) <= MANY and not any(b in written for b, _ in self.wanted):
            self.turned = axis

    def _turn_over(self) -> None:
        """Fill the tiles, and call for the next ones."""
        f, n, axis = self.f, self.lanes, self.turned
        assert axis is not None
        self._fill(self.wanted, axis)
        for buffer, ix in self.wanted:
            t = in_memory(buffer.dtype)
            spot, step, _ = self._ends(buffer, ix, axis)
            fetch = Fetch(t, n, n, step).write(f.module)
            f.call(fetch, None, f.at(spot, n * step, t))

    @abstractmethod
    def _strips(self, axis: Axis, low: Any, high: Any, body: Callable[[], None]) -> None: ...

    def _over(
        self, low: Any, high: Any, span: tuple[Any, Any], body: Callable[[], None]
    ) -> None:
        """Turns of the axis in squares, and what does not fill one turn by turn."""
        f, n, axis, last = self.f, self.lanes, self.turned, self.vector
        assert axis is not None
        assert last is not None
        whole = axis.extent // n * n
        end = f.integer(f.lesser(high, whole))
        with f.loop(low, end, n * ABREAST) as band:

            def squares() -> None:
                self._hoist(self.kernel.body, {axis})
                with f.loop(band.i, f.lesser(f.plus(band.i, n * ABREAST), end), n) as block:
                    self._inside(axis, block.i, self._turn_over)
                    with f.loop(0, n) as turn:
                        self.turn = turn.i
                        self._inside(axis, f.add(block.i, turn.i), body)
                    self.tiles = {}

            self._strips(last, *span, squares)
        if whole < axis.extent:  # chunks end with whole squares, but for the last
            with f.loop(whole, high) as turn:
                self._inside(axis, turn.i, lambda: self._strips(last, *span, body))
