"""Causal convolution's kernels: the op, and its gradient."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.causal import Causal, write_causal, write_causal_back
from retrograd.jit.llvm.launches import Kernels
from retrograd.jit.llvm.selective import strides
from retrograd.jit.llvm.sums import write_sum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.text import Type

__all__ = ["CausalBackKernels", "CausalKernels"]

MOST_TAPS = 8  # that registers hold


class CausalKernels(Kernels):
    """CausalConv."""

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Real floats, few taps, nothing empty."""
        return super().takes(op, specs) and _short(specs[0], specs[2])

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        n = _geometry(specs[0], specs[2], specs[3].shape, t, self.writer)
        self.launches = [(write_causal(self.writer.module, name, n), (0, 1, 2, 3, 4))]


class CausalBackKernels(Kernels):
    """CausalConvGrad: one kernel, then sums over segments of time, and the batch."""

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Real floats, few taps, nothing empty."""
        return super().takes(op, specs) and _short(specs[1], specs[3])

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        n = _geometry(specs[1], specs[3], op.bias, t, self.writer)
        module, spots, sums = self.writer.module, list(range(8)), []
        parts = n.segments * n.batch * n.channels
        for out, count, shape in ((6, n.taps, specs[3].shape), (7, 1, op.bias)):
            length = prod(shape)
            if parts * count > length:
                spots[out] = 8 + len(self.temporaries)
                self.temporaries = (*self.temporaries, parts * count * n.size)
                many = parts * count // length
                info = write_sum(module, f"{name}_sum{out}", many, length, t)
                sums.append((info, (spots[out], out)))
        self.launches = [(write_causal_back(module, name, n), tuple(spots)), *sums]


def _short(x: Spec, weight: Spec) -> bool:
    return bool(x.size) and weight.shape[-2] <= MOST_TAPS


def _geometry(x: Spec, weight: Spec, bias: tuple[int, ...], t: Type, writer: Any) -> Causal:
    *lead, s, c = x.shape
    by = strides(weight.shape, (weight.shape[-2], c))
    lanes = writer.machine.lanes(t.bits // 8)
    taps, added = weight.shape[-2], strides(bias, (c,))
    return Causal(prod(lead), s, c, taps, by[0], (added[0], added[1]), t, lanes)
