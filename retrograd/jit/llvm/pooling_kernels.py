"""The kernels of pools: the largest and the sum of windows, and their gradients."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.launches import Kernels
from retrograd.jit.llvm.pooling import Pooling, axes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.text import Type

__all__ = ["PoolKernels"]

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
