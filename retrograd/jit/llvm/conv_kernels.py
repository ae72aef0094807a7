"""Convolution's kernels: the op, and its gradients by input and by weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.conv import (
    Convolution,
    matrix_product,
    write_forward,
    write_input,
    write_weight,
)
from retrograd.jit.llvm.gemm import Gemm, write_gemm
from retrograd.jit.llvm.launches import Kernels
from retrograd.ops.nn.convolution import Conv, ConvInput, ConvWeight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrograd.core.spec import Spec
    from retrograd.jit.llvm.text import Type

__all__ = ["ConvKernels"]


class ConvKernels(Kernels):
    """Conv, and its gradients by input and by weights; with windows of one, products."""

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        conv = _geometry(op, specs, t)
        pixels = matrix_product(conv)
        module = self.writer.module
        if pixels and all(pixels):
            info = write_gemm(module, name, _product(op, pixels, t))
            self.launches = [(info, (0, 1, 2))]
            return
        write = {Conv: write_forward, ConvInput: write_input, ConvWeight: write_weight}
        found = write[type(op)](module, name, conv)
        self.launches = [(step.kernel, step.buffers) for step in found.steps]
        self.temporaries = found.temporaries


def _geometry(op: Any, specs: Sequence[Spec], t: Type) -> Convolution:
    first, second = (s.shape for s in specs)
    if isinstance(op, Conv):
        sizes, kernel = (first[1:-1], op.counts), second[:-2]
        channels = second[-2] * op.groups, second[-1]
    elif isinstance(op, ConvInput):
        sizes, kernel = (op.sizes, first[1:-1]), second[:-2]
        channels = second[-2] * op.groups, second[-1]
    else:
        sizes, kernel = (first[1:-1], second[1:-1]), op.kernel
        channels = first[-1], second[-1]
    return Convolution.of_windows(
        first[0],
        sizes,
        channels,
        kernel,
        stride=op.stride,
        dilation=op.dilation,
        before=op.before,
        groups=op.groups,
        type=t,
    )


def _product(op: Any, pixels: tuple[int, int, int], t: Type) -> Gemm:
    """A convolution with windows of one pixel as the matrix product that it is."""
    p, deep, wide = pixels
    if isinstance(op, Conv):
        return Gemm(p, wide, deep, t, (deep, 1), (wide, 1), (wide, 1))
    if isinstance(op, ConvInput):
        return Gemm(p, deep, wide, t, (wide, 1), (1, wide), (deep, 1))
    return Gemm(deep, wide, p, t, (1, deep), (wide, 1), (wide, 1))
