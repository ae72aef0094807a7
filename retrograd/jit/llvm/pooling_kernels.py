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
    """SpanMean, MaxSpan, and the map that the gradient of the latter is."""

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Floats with some channels, and windows with elements."""
        some = all(s.size for s in specs) and specs[-1].shape[-1] >= FEW
        ends = [
            (a, b)
            for row in zip(op.starts, op.stops, strict=True)
            for a, b in zip(*row, strict=True)
        ]
        return super().takes(op, specs) and some and all(a < b for a, b in ends)

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        """One kernel."""
        shape, many = specs[-1].shape, len(op.starts)
        axes: Any = tuple(map(_spans, shape[-1 - many : -1], op.starts, op.stops))
        batch, module = prod(shape[: -1 - many]), self.writer.module
        info = Pooling(module, name, op.pooling, batch, axes, shape[-1], t).write()
        self.launches = [(info, tuple(range(len(specs) + 1)))]
