"""Direct convolution in LLVM IR: channels last, any number of spatial axes, any geometry.

    forward: x, w -> out      write_forward
    by x:    g, w -> dx       write_input      (also the transposed convolution)
    by w:    x, g -> dw       write_weight

Each returns the kernels to run in sequence. No columns are made and nothing is padded. Where
each sum begins and ends, and in which order, follows from shapes and the machine alone.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from retrograd.jit.llvm import conv_layout
from retrograd.jit.llvm.conv_pack import Arrange
from retrograd.jit.llvm.conv_shape import Convolution, Step, Steps
from retrograd.jit.llvm.conv_sum import write_sum
from retrograd.jit.llvm.conv_tile import best_tile
from retrograd.jit.llvm.conv_weight import WeightGradient
from retrograd.jit.llvm.conv_windows import Epilogue, Windows

if TYPE_CHECKING:
    from retrograd.jit.llvm.conv_layout import Layout
    from retrograd.jit.llvm.machine import Machine
    from retrograd.jit.llvm.text import Module

__all__ = [
    "Convolution",
    "Epilogue",
    "Step",
    "Steps",
    "matrix_product",
    "write_forward",
    "write_input",
    "write_weight",
]

FEW = 128  # pixels for which arranging the weights would cost too much


def matrix_product(conv: Convolution) -> tuple[int, int, int] | None:
    """(pixels, in, out) if out is x as [pixels, in] times w as [in, out], else None.

    Then dx is g times w transposed, and dw is x transposed times g.
    """
    ones = (1,) * len(conv.kernel)
    plain = conv.kernel == conv.stride == ones and not any(map(any, conv.padding))
    if not plain or conv.groups != 1:
        return None
    return conv.batch * prod(conv.in_shape), conv.in_channels, conv.out_channels


def write_forward(
    module: Module,
    name: str,
    conv: Convolution,
    *,
    epilogue: Epilogue | None = None,
    linkage: str = "internal",
) -> Steps:
    """Kernels for out; operands x, w, out. What the epilogue reads follows them."""
    return _windows(module, name, conv, epilogue, linkage, backward=False)


def write_input(
    module: Module,
    name: str,
    conv: Convolution,
    *,
    epilogue: Epilogue | None = None,
    linkage: str = "internal",
) -> Steps:
    """Kernels for the gradient by x; operands g, w, dx."""
    return _windows(module, name, conv, epilogue, linkage, backward=True)


def write_weight(
    module: Module, name: str, conv: Convolution, *, linkage: str = "internal"
) -> Steps:
    """Kernels for the gradient by w; operands x, g, dw."""
    shape = (conv.groups, conv.in_channels // conv.groups, conv.out_channels // conv.groups)
    lanes = module.machine.lanes(conv.type.bits // 8)
    if many := conv_layout.side_by_side(module.machine, conv.type, shape):
        rows = max(shape[1], module.machine.registers // 2 - 2)
        taps = min(conv.kernel[-1], max(1, rows // shape[1]))
        vectors = max(1, min(4, module.machine.registers * 3 // 4 // (taps * shape[1])))
        layout = conv_layout.narrow(shape, conv.taps, lanes, many, vectors)
    else:
        deep = shape[1] if shape[1] > 4 else shape[1] * conv.kernel[-1]
        rows, vectors, _ = best_tile(module.machine, deep, -(-shape[2] // lanes))
        layout = conv_layout.dense(shape, conv.taps, lanes, vectors, packed=False)
    kernel = WeightGradient(module, name, conv, layout, rows, linkage)
    parts = kernel.parts[0]
    info = kernel.write()
    if parts == 1:
        return Steps((Step(info, (0, 1, 2)),))
    total = write_sum(module, f"{name}_sum", conv, parts, linkage=linkage)
    size = parts * conv.counts[1] * conv.type.bits // 8
    return Steps((Step(info, (0, 1, 3)), Step(total, (3, 2))), (size,))


def _windows(
    module: Module,
    name: str,
    conv: Convolution,
    epilogue: Epilogue | None,
    linkage: str,
    *,
    backward: bool,
) -> Steps:
    conv = _flat(conv)
    axes = conv.axes(backward=backward)
    layout, tile = _layout(module.machine, conv, backward=backward)
    source = conv.out_channels if backward else conv.in_channels
    main = Windows(module, name, conv, axes, layout, source, *tile, epilogue, linkage).write()
    if not backward and not layout.packed:
        return Steps((Step(main, (0, 1, 2)),))
    arrange = Arrange(module, f"{name}_weights", conv, layout, backward, linkage)
    first = Step(arrange.write(), (1, 3))
    size = layout.packed_size if layout.packed else conv.counts[1]
    return Steps((first, Step(main, (0, 3, 2))), (size * conv.type.bits // 8,))


def _layout(
    machine: Machine, conv: Convolution, *, backward: bool
) -> tuple[Layout, tuple[int, int]]:
    """Channels over vectors; pixels and images in a tile."""
    groups = conv.groups
    ends = (conv.in_channels // groups, conv.out_channels // groups)
    shape = (groups, *(reversed(ends) if backward else ends))
    lanes = machine.lanes(conv.type.bits // 8)
    if many := conv_layout.side_by_side(machine, conv.type, shape):
        layout = conv_layout.narrow(shape, conv.taps, lanes, many)
        return layout, (machine.registers * 3 // 8, 1)
    results = conv.in_shape if backward else conv.out_shape
    row = -(-results[-1] // conv.stride[-1]) if backward else results[-1]
    pixels, vectors, images = _tile(machine, row, -(-shape[2] // lanes), conv.batch)
    many_pixels = conv.batch * prod(results) >= FEW
    ragged = bool(shape[2] % lanes)
    packed = backward or ragged or (shape[2] > vectors * lanes and many_pixels)
    layout = conv_layout.dense(shape, conv.taps, lanes, vectors, packed=packed)
    return layout, (pixels, images)


def _tile(machine: Machine, row: int, across: int, batch: int) -> tuple[int, int, int]:
    """Pixels, vectors and images of a tile: short rows go with those of other images."""
    pixels, vectors, least = best_tile(machine, row, across)
    found = (pixels, vectors, 1)
    for images in range(2, min(batch, machine.registers // (2 * row)) + 1 if row else 0):
        rows, wide, work = best_tile(machine, row * images, across)
        if batch % images == 0 and row * images <= rows and work <= least * images:
            found, least = (row, wide, images), work // images
    return found


def _flat(conv: Convolution) -> Convolution:
    """A convolution of single places, over one long row."""
    if (found := matrix_product(conv)) is None:
        return conv
    one: tuple[int, ...] = (1,)
    rows, deep, wide = found
    return Convolution(1, (rows,), deep, wide, one, one, ((0, 0),), one, 1, conv.type)
