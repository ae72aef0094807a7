"""Convolution's kernels: the op, and its gradients by input and by weights."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.conv import (
    Convolution,
    Steps,
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

PHASES = 64  # code paths of a kernel
WIDE = 128  # channels from which on convolution keeps the registers as busy as a product


class ConvKernels(Kernels):
    """Conv, and its gradients by input and by weights; with windows of one, products."""

    @classmethod
    def takes(cls, op: Any, specs: Sequence[Spec]) -> bool:
        """Floats, and short strides: by input, each pixel of one has code of its own."""
        phases = prod(op.stride) if isinstance(op, ConvInput) else 1
        return super().takes(op, specs) and phases <= PHASES

    def make(self, op: Any, specs: Sequence[Spec], t: Type, name: str) -> None:
        conv = _geometry(op, specs, t)
        pixels = matrix_product(conv)
        module = self.writer.module
        if pixels and all(pixels) and _as_product(op, pixels):
            after = self.after.row if self.after else None
            info = write_gemm(module, name, _product(op, pixels, t), epilogue=after)
            self.launches = [(info, (0, 1, 2))]
        elif isinstance(op, ConvWeight):
            self._steps(write_weight(module, name, conv))
        else:
            write = write_forward if isinstance(op, Conv) else write_input
            self._steps(write(module, name, conv, epilogue=self.after))
        if self.after:
            first = 3 + len(self.temporaries)
            more = tuple(range(first, first + len(self.after.values)))
            info, buffers = self.launches[-1]
            self.launches[-1] = info, (*buffers, *more)
        self._share(name)

    def _steps(self, found: Steps) -> None:
        self.launches = [(step.kernel, step.buffers) for step in found.steps]
        self.temporaries = found.temporaries

    def _share(self, name: str) -> None:
        """Let layers of the same sizes have the same kernels."""
        writer, functions = self.writer, self.writer.module.functions
        for helper in [n for n in functions if n.startswith(f"{name}_finish")]:
            final = writer.share(helper)
            for info, _ in self.launches:
                writer.rename(info.name, helper, final)
        self.launches = [
            (info._replace(name=writer.share(info.name)), buffers)
            for info, buffers in self.launches
        ]


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


def _as_product(op: Any, pixels: tuple[int, int, int]) -> bool:
    """Whether the product's kernel is the faster one: not where the sum is over pixels."""
    return not isinstance(op, ConvWeight) and min(pixels[1:]) < WIDE


def _product(op: Any, pixels: tuple[int, int, int], t: Type) -> Gemm:
    """A convolution with windows of one pixel as the matrix product that it is."""
    p, deep, wide = pixels
    if isinstance(op, Conv):
        return Gemm(p, wide, deep, t, (deep, 1), (wide, 1), (wide, 1))
    if isinstance(op, ConvInput):
        return Gemm(p, deep, wide, t, (wide, 1), (1, wide), (deep, 1))
    return Gemm(deep, wide, p, t, (1, deep), (wide, 1), (wide, 1))
