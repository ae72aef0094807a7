"""What convolutions call for before it is read: all that comes next, a few lines at a time."""

import ctypes
import dataclasses
import re

import numpy as np
import pytest

from retrograd.jit.llvm import conv as kernels
from retrograd.jit.llvm import conv_soon, conv_tile, conv_weight
from retrograd.jit.llvm.conv import Convolution
from retrograd.jit.llvm.conv_weight import WeightGradient
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.native import assembly, library, object_code
from retrograd.jit.llvm.text import LINE, Module

KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
CALLED = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
STACKED = re.compile(r"[yz]mm\d+, -?\d*\(%rsp\)|\(%rsp\)(\{\w+\})?, %[yz]mm")
MOST = 0.7  # of what comes; at edges of images tiles have fewer rows, and call for less


def same(batch, side, channels, taps=3):
    """A convolution with as many results as sources."""
    pad = taps // 2
    ones = (1, 1)
    ends = ((pad, pad),) * 2
    return Convolution(batch, (side, side), *channels, (taps, taps), ones, ends, ones)


SHAPES = [
    same(3, 20, (32, 48)),
    same(2, 9, (40, 33)),
    same(2, 12, (64, 128), 5),
    same(6, 4, (48, 32)),
]


def called(which, conv, machine, monkeypatch):
    """Lines that are called for in the second cache, and where the operands begin."""
    found = set()
    note = CALLED(lambda at: found.add(at // LINE))
    spot = ctypes.cast(note, ctypes.c_void_p).value

    def prefetch(f, at, *, near=True):
        if not near:
            f.emit(f"call void inttoptr (i64 {spot} to ptr)({at})")

    for module in (conv_soon, conv_tile):
        monkeypatch.setattr(module, "prefetch", prefetch)
    module = Module(named(machine))
    steps = getattr(kernels, f"write_{which}")(module, "kernel", conv, linkage="")
    x, w, out = conv.counts
    counts = {"forward": (x, w, out), "input": (out, w, x), "weight": (x, out, w)}[which]
    sizes = [4 * n for n in counts]
    held = [np.zeros(n + LINE, np.uint8) for n in (*sizes, *steps.temporaries)]
    starts = [a.ctypes.data + -a.ctypes.data % LINE for a in held]
    loaded = library(object_code(module))
    for kernel, buffers in steps.steps:
        spots = (ctypes.c_void_p * len(buffers))(*(starts[n] for n in buffers))
        scratch = np.zeros(kernel.scratch + LINE, np.uint8)
        data = scratch.ctypes.data
        function = KERNEL(loaded.address(kernel.name))
        for chunk in range(kernel.chunks):
            function(ctypes.addressof(spots), chunk, data + -data % LINE)
    return found, starts


def share(found, start, first, last):
    """How many of the lines from element `first` to `last` were found."""
    lines = range((start + 4 * first) // LINE, (start + 4 * last) // LINE)
    return len(found.intersection(lines)) / len(lines)


@pytest.mark.parametrize("machine", here()[:2])
@pytest.mark.parametrize("conv", SHAPES, ids=lambda c: f"{c.in_shape}{c.kernel}")
def test_a_weight_gradient_calls_for_the_next_bands(conv, machine, monkeypatch):
    monkeypatch.setattr(conv_weight, "NEAREST", 1 << 13)
    found, (x, g, *_) = called("weight", conv, machine, monkeypatch)
    size, _, out = conv.counts
    images = conv.batch // 2  # more than a band has
    assert share(found, x, size * images // conv.batch, size) > MOST
    assert share(found, g, out * images // conv.batch, out) > MOST


@pytest.mark.parametrize("machine", here()[:2])
@pytest.mark.parametrize("which", ["forward", "input"])
@pytest.mark.parametrize("conv", SHAPES[:3], ids=lambda c: f"{c.in_shape}{c.kernel}")
def test_windows_call_for_the_next_row(conv, which, machine, monkeypatch):
    found, (x, *_) = called(which, conv, machine, monkeypatch)
    size = conv.counts[2 if which == "input" else 0]
    assert share(found, x, size // conv.batch, size) > MOST


@pytest.mark.parametrize("cpu", ["", "haswell", "sapphirerapids"])
@pytest.mark.parametrize("machine", ["avx512", "avx2"])
@pytest.mark.parametrize("which", ["forward", "input", "weight"])
def test_sums_stay_in_registers(which, machine, cpu):
    target = dataclasses.replace(named(machine), tune=cpu)
    for conv in (same(4, 56, (64, 64)), same(4, 7, (512, 64))):
        module = Module(target)
        getattr(kernels, f"write_{which}")(module, "kernel", conv, linkage="")
        assert not STACKED.search(assembly(module))


def test_parts_of_a_weight_gradient_have_as_many_images(monkeypatch):
    conv = same(16, 28, (128, 128))
    made = []
    write = WeightGradient.write
    monkeypatch.setattr(WeightGradient, "write", lambda k: made.append(k) or write(k))
    kernels.write_weight(Module(named("avx512")), "kernel", conv)
    (kernel,) = made
    assert kernel.parts[0] > 1
    assert not kernel.units % kernel.parts[0]


@pytest.mark.parametrize("which", ["forward", "weight"])
def test_long_rows_have_no_call_for_each_pixel(which):
    def calls(pixels):
        ones = (1, 1)
        row = Convolution(2, (1, pixels), 64, 64, (1, 3), ones, ((0, 0), (1, 1)), ones)
        module = Module(named("avx512"))
        getattr(kernels, f"write_{which}")(module, "kernel", row, linkage="")
        return module.text().count("call void @llvm.prefetch")

    assert calls(100_000) <= calls(1000) * 2
