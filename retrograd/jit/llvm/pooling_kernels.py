"""The kernels of pools: the largest and the sum of windows, and their gradients."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from retrograd.jit.llvm.launches import Kernels
from retrograd.jit.llvm.pooling import Pooling, axes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.text import Type

__all__ = ["PoolKernels", "SpanKernels"]

FEW = 4  # channels: fewer are not worth a vector


class PoolKernels(Kernels):
    """MaxPool, WindowSum, and the maps that their gradients are."""

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Floats with some channels; what has no element is left to others."""
        some = all(s.size for s in specs) and specs[0].shape[-1] >= FEW
        return super().takes(op, specs) and some and all(getattr(op, "lengths", ()))

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        """One kernel."""
        kind, many = op.pooling, len(op.kernel)
        given = specs[-1].shape  # of x, but for spread
        sizes = op.lengths if kind == "spread" else given[-1 - many : -1]
        batch, axes = prod(given[: -1 - many]), axes_of(op, sizes)
        kernel = Pooling(self.writer.module, name, kind, batch, axes, given[-1], t, self.after)
        info = kernel.write()
        first = len(specs) + 1
        more = range(first, first + len(self.after.values)) if self.after else ()
        info = info._replace(name=self.writer.share(name))
        self.launches = [(info, (*range(first), *more))]


class Spans(NamedTuple):
    """Windows along an axis that are told one by one, as `Pooling` asks for them."""

    source: int
    result: int
    taps: int  # of the longest
    stride: int  # what merges windows: more than the longest has, where none overlap
    table: tuple[tuple[int, int, int], ...]
    dilation: int = 1


def _spans(size: int, starts: Sequence[int], stops: Sequence[int]) -> Spans:
    rows = list(zip(starts, stops, strict=True))
    taps = max(b - a for a, b in rows)
    seen = [sum(a <= n < b for a, b in rows) for n in range(size)]
    table = tuple((0, b - a, a) for a, b in rows)
    return Spans(size, len(rows), taps, taps if max(seen) <= 1 else 0, table)


class SpanKernels(Kernels):
    """SpanSum, MaxSpan, and the map that the gradient of the latter is."""

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Floats with some channels, and windows with elements."""
        some = all(s.size for s in specs) and _channels(op, specs[-1]) >= FEW
        ends = [
            (a, b) for row in zip(*_told(op), strict=True) for a, b in zip(*row, strict=True)
        ]
        return super().takes(op, specs) and some and all(a < b for a, b in ends)

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        """One kernel."""
        x, (starts, stops) = specs[-1], _told(op)
        first = op.axis if hasattr(op, "axis") else x.ndim - 1 - len(starts)
        sizes = x.shape[first : first + len(starts)]
        axes: Any = tuple(map(_spans, sizes, starts, stops))
        batch, channels = prod(x.shape[:first]), _channels(op, x)
        module = self.writer.module
        info = Pooling(module, name, op.pooling, batch, axes, channels, t).write()
        self.launches = [(info, tuple(range(len(specs) + 1)))]


def _told(op: Any) -> tuple[Any, Any]:
    """Starts and stops, on each axis that windows go over."""
    return ((op.starts,), (op.stops,)) if hasattr(op, "axis") else (op.starts, op.stops)


def _channels(op: Any, x: Spec) -> int:
    """Elements that lie side by side behind those axes."""
    return prod(x.shape[op.axis + 1 :]) if hasattr(op, "axis") else x.shape[-1]
