"""Ops that have kernels of their own: what to write for each, instead of its composition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.llvm.attention_kernels import AttentionGradKernels, AttentionKernels
from retrograd.jit.llvm.causal_kernels import CausalBackKernels, CausalKernels
from retrograd.jit.llvm.cholesky_kernels import CholeskyGradKernels, CholeskyKernels
from retrograd.jit.llvm.conv_kernels import ConvKernels
from retrograd.jit.llvm.pooling_kernels import PoolKernels
from retrograd.jit.llvm.recurrent import RecurrentGradKernels, RecurrentKernels
from retrograd.jit.llvm.selective_kernels import ScanBackKernels, ScanKernels
from retrograd.jit.llvm.ssd_kernels import (
    DoubleBackKernels,
    DoubleKernels,
    SingleBackKernels,
    SingleKernels,
    SsdBackKernels,
    SsdKernels,
)
from retrograd.jit.llvm.triangle_kernels import TriangleKernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.op import Op
    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.launches import Kernels

__all__ = ["KERNELS", "kernels_of"]

# By what an op says its kernels are (`Op.native`).
KERNELS: dict[str, type[Kernels]] = {
    "attention": AttentionKernels,
    "attention back": AttentionGradKernels,
    "causal convolution": CausalKernels,
    "causal convolution back": CausalBackKernels,
    "cholesky": CholeskyKernels,
    "cholesky back": CholeskyGradKernels,
    "convolution": ConvKernels,
    "double ssd": DoubleKernels,
    "double ssd back": DoubleBackKernels,
    "pool": PoolKernels,
    "recurrent": RecurrentKernels,
    "recurrent back": RecurrentGradKernels,
    "selective scan": ScanKernels,
    "selective scan back": ScanBackKernels,
    "single ssd": SingleKernels,
    "single ssd back": SingleBackKernels,
    "ssd": SsdKernels,
    "ssd back": SsdBackKernels,
    "triangle": TriangleKernels,
}


def kernels_of(op: Op, specs: Sequence[Spec]) -> type[Kernels] | None:
    """The kernels that an op on such operands is written as, if it has its own."""
    found = KERNELS.get(op.native)
    return found if found and found.takes(op, specs) else None
