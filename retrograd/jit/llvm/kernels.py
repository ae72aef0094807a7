"""Ops that have kernels of their own: what to write for each, instead of its composition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.jit.llvm.conv_kernels import ConvKernels
from retrograd.ops.nn.convolution import Conv, ConvInput, ConvWeight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.op import Op
    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.launches import Kernels

__all__ = ["KERNELS", "kernels_of"]

KERNELS: dict[type, type[Kernels]] = {
    Conv: ConvKernels,
    ConvInput: ConvKernels,
    ConvWeight: ConvKernels,
}


def kernels_of(op: Op, specs: Sequence[Spec]) -> type[Kernels] | None:
    """The kernels that an op on such operands is written as, if it has its own."""
    found = KERNELS.get(type(op))
    return found if found and found.takes(op, specs) else None
