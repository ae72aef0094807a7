"""Convolution kernels against the ops' own NumPy, in float64, at every vector width."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import retrograd as rg
from retrograd.jit.llvm import conv as kernels
from retrograd.jit.llvm.conv import Convolution
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.native import library, object_code
from retrograd.jit.llvm.text import F32, F64, I64, PTR, Module
from retrograd.ops.nn.convolution import Conv, ConvInput, ConvWeight
from retrograd.testing.compare import assert_close

MACHINES = here()
TYPES = {"float32": F32, "float64": F64}
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
GUARD = 256  # bytes around each buffer
PASSES = ("forward", "input", "weight")


def geometry(sizes, kernel, channels, *, batch=2, stride=1, before=0, after=None, **more):
    """A Convolution; numbers stand for every axis."""
    each = lambda v: v if isinstance(v, tuple) else (v,) * len(sizes)
    after = before if after is None else after
    padding = tuple(zip(each(before), each(after), strict=True))
    dilation, groups = each(more.get("dilation", 1)), more.get("groups", 1)
    kernel, stride = each(kernel), each(stride)
    return Convolution(batch, sizes, *channels, kernel, stride, padding, dilation, groups)


CASES = [
    geometry((7,), 3, (3, 4), before=1),
    geometry((40,), 3, (8, 33), before=1),
    geometry((61,), 4, (16, 32), before=3, after=0),
    geometry((50,), 3, (4, 20), before=16, after=0, dilation=8),
    geometry((9, 10), 3, (16, 32), before=1),
    geometry((6, 31), 3, (5, 40), before=1),
    geometry((9, 30), 3, (16, 48), before=1, stride=2),
    geometry((8, 15), (2, 5), (3, 17), before=(0, 2), after=(1, 3)),
    geometry((12, 13), 7, (3, 16), before=3, stride=2),
    geometry((12, 12), 4, (3, 24), stride=4),
    geometry((9, 9), 2, (4, 8), stride=3),
    geometry((9, 9), 2, (4, 8), stride=(3, 4), before=1),
    geometry((10, 12), 3, (6, 16), dilation=2, before=2),
    geometry((11, 40), 3, (4, 16), dilation=(2, 3), stride=(3, 2), before=4),
    geometry((6, 7), 1, (33, 18)),
    geometry((6, 7), 1, (16, 16), stride=2),
    geometry((5, 6), 3, (8, 12), before=1, groups=2),
    geometry((5, 6), 3, (64, 64), before=1, groups=2),
    geometry((5, 9), 3, (16, 32), before=1, groups=8),
    geometry((5, 9), 3, (12, 6), before=1, groups=6),
    geometry((5, 18), 3, (19, 19), before=1, groups=19),
    geometry((5, 18), 3, (40, 80), before=1, stride=2, groups=40),
    geometry((5, 18), 3, (6, 18), before=1, groups=6),
    geometry((30,), 4, (24, 24), before=3, after=0, groups=24),
    geometry((60,), 31, (20, 20), before=15, groups=20),
    geometry((3, 4, 5), (2, 3, 2), (3, 20), before=1, stride=(1, 2, 2)),
    geometry((3, 4, 9), 3, (16, 16), before=1),
    geometry((4, 3, 6), 2, (8, 8), groups=8, dilation=(2, 1, 2)),
    geometry((8, 8), 3, (4, 16), before=-1),
    geometry((8, 8), 3, (4, 16), before=(-2, 1), after=(1, -2), stride=2),
    geometry((1, 1), 3, (4, 5), before=1),
    geometry((2, 3), 3, (4, 5), before=7, stride=2),
    geometry((3,), 2, (2, 3), batch=0),
    geometry((3,), 2, (0, 3), batch=1),
    geometry((3,), 2, (2, 0), batch=1),
    geometry((0, 3), 2, (2, 3), before=1),
    geometry((2, 3), 3, (2, 3), batch=1),
    geometry((3, 4), 3, (8, 128), before=1),
    geometry((4, 3), 3, (8, 20), before=1, batch=9),
    geometry((1, 500), (1, 3), (2, 16), batch=1, before=(0, 1)),
]


def described(conv):
    text = f"{conv.batch}x{conv.in_shape}x{conv.in_channels}to{conv.out_channels}"
    return f"{text}k{conv.kernel}s{conv.stride}p{conv.padding}d{conv.dilation}g{conv.groups}"


def operands(conv, which, rng):
    """The pass's inputs in float64, and what its op makes of them."""
    x = rng.normal(size=(conv.batch, *conv.in_shape, conv.in_channels))
    w = rng.normal(size=(*conv.kernel, conv.in_channels // conv.groups, conv.out_channels))
    g = rng.normal(size=(conv.batch, *conv.out_shape, conv.out_channels))
    own = conv.stride, conv.dilation, tuple(b for b, _ in conv.padding), conv.groups
    if which == "forward":
        return (x, w), Conv(*own, conv.out_shape)
    if which == "input":
        return (g, w), ConvInput(*own, conv.in_shape)
    return (x, g), ConvWeight(*own, conv.kernel)


class Buffer:
    """Memory with guards on both sides; its data begins unaligned but for its items."""

    def __init__(self, size, item):
        self.whole = np.full(size + 2 * GUARD + item, 0xA5, np.uint8)
        self.start = GUARD + -self.whole.ctypes.data % item
        self.size = size

    def bytes(self):
        return self.whole[self.start : self.start + self.size]

    def holds(self, array):
        self.bytes()[...] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return self

    def check(self):
        assert (self.whole[: self.start] == 0xA5).all(), "written before a buffer"
        assert (self.whole[self.start + self.size :] == 0xA5).all(), "written after a buffer"


def write(conv, which, machine, **more):
    module = Module(named(machine))
    steps = getattr(kernels, f"write_{which}")(module, "kernel", conv, linkage="", **more)
    return module, steps


def run(built, arrays, result, dtype, *, backwards=False, extra=()):
    """The result of a pass; chunks in rising or falling order."""
    module, steps = built
    loaded = library(object_code(module))
    item = np.dtype(dtype).itemsize
    held = [Buffer(a.size * item, item).holds(a.astype(dtype)) for a in arrays]
    out = Buffer(int(np.prod(result)) * item, item)
    out.bytes()[...] = 0xFF  # a NaN where nothing is written
    more = [Buffer(a.size * item, item).holds(a.astype(dtype)) for a in extra]
    held = [*held, out, *(Buffer(n, item) for n in steps.temporaries)]
    for b in held[3:]:
        b.bytes()[...] = 0xFF
    inputs = [b.bytes().copy() for b in held[:2]]
    for step in steps.steps:
        used = [*(held[n] for n in step.buffers), *more]
        spots = (ctypes.c_void_p * len(used))(*(b.bytes().ctypes.data for b in used))
        call = KERNEL(loaded.address(step.kernel.name))
        chunks = range(step.kernel.chunks)
        assert 1 <= len(chunks) <= 32
        scratch = Buffer(step.kernel.scratch, 64)
        scratch.bytes()[...] = 0xFF
        for chunk in reversed(chunks) if backwards else chunks:
            call(ctypes.addressof(spots), chunk, scratch.bytes().ctypes.data)
        scratch.check()
    for b in (*held, *more):
        b.check()
    for was, b in zip(inputs, held, strict=False):
        assert (was == b.bytes()).all()
    return out.bytes().view(dtype).reshape(result).copy()


def check(conv, which, machine, dtype, rng):
    conv = replace(conv, type=TYPES[dtype])
    arrays, op = operands(conv, which, rng)
    arrays = [a.astype(dtype).astype(np.float64) for a in arrays]
    wanted = op.forward(*arrays)
    built = write(conv, which, machine)
    got = run(built, arrays, wanted.shape, dtype)
    assert_close(got, wanted.astype(dtype), what=f"{which} {described(conv)}")
    return built, arrays, got


@pytest.mark.parametrize("which", PASSES)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("conv", CASES, ids=described)
def test_kernels_agree_with_the_ops(conv, machine, which, rng):
    dtype = "float64" if CASES.index(conv) % 3 == 1 else "float32"
    check(conv, which, machine, dtype, rng)


@st.composite
def geometries(draw):
    """Any convolution of a few thousand products."""
    axes = draw(st.integers(1, 3))
    small = {1: 40, 2: 12, 3: 5}[axes]
    several = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(axes))
    groups = draw(st.sampled_from([1, 1, 1, 2, 3, 5, 8, 17]))
    each = st.sampled_from([1, 2, 3, 4, 7] if groups > 1 else [1, 3, 8, 16, 19, 33])
    sizes, kernel, stride, dilation = (
        several(1, small),
        several(1, 4),
        several(1, 4),
        several(1, 3),
    )
    before = several(-2, 6)
    counts = several(1, small)
    return Convolution.of_windows(
        draw(st.integers(1, 4)),
        (sizes, counts),
        (groups * draw(each), groups * draw(each)),
        kernel,
        stride=stride,
        dilation=dilation,
        before=before,
        groups=groups,
        type=F32,
    )


@given(
    geometries(),
    st.sampled_from(PASSES),
    st.sampled_from(MACHINES),
    st.sampled_from(list(TYPES)),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=settings().max_examples * 2)
def test_any_geometry(conv, which, machine, dtype, seed):
    check(conv, which, machine, dtype, np.random.default_rng(seed))


LARGE = [  # more than one chunk in every pass
    geometry((12, 14), 3, (32, 48), before=1, batch=4),
    geometry((400,), 5, (16, 40), before=2, batch=3),
    geometry((24, 28), 3, (48, 48), before=1, groups=48, batch=4),
    geometry((16, 18), 3, (24, 40), before=1, stride=2, batch=4),
    geometry((7, 7), 3, (64, 100), before=1, batch=6),
    geometry((5, 6, 7), 3, (16, 32), before=1, batch=4),
]


@pytest.mark.parametrize("which", PASSES)
@pytest.mark.parametrize("conv", LARGE, ids=described)
def test_the_order_of_chunks_does_not_matter(conv, which, rng):
    built, arrays, got = check(conv, which, MACHINES[0], "float32", rng)
    assert max(step.kernel.chunks for step in built[1].steps) > 1
    again = run(built, arrays, got.shape, "float32", backwards=True)
    np.testing.assert_array_equal(got, again)


def bias_and_square(f, acc, pixel, channel, mask):
    """(acc + b[channel])^2 + pixel, from a further buffer b."""
    bias = f.load(PTR, f.at(f.arg("bufs"), 3, I64), align=8)
    at = f.at(bias, channel, acc.type)
    b = f.masked_load(acc.type, at, mask) if mask else f.load(acc.type, at)
    z = f.add(acc, b)
    number = f.splat(f.convert("sitofp", pixel, acc.type.scalar), acc.type.lanes)
    return f.add(f.mul(z, z), number)


@pytest.mark.parametrize("which", ["forward", "input"])
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    "conv", [CASES[n] for n in (1, 3, 6, 9, 12, 17, 20, 22, 25, 31)], ids=described
)
def test_an_epilogue_sees_each_result_once(conv, machine, which, rng):
    arrays, op = operands(conv, which, rng)
    arrays = [a.astype(np.float32).astype(np.float64) for a in arrays]
    plain = op.forward(*arrays)
    bias = rng.normal(size=plain.shape[-1]).astype(np.float32).astype(np.float64)
    number = np.arange(plain[..., 0].size).reshape(plain.shape[:-1])[..., None]
    wanted = (plain + bias) ** 2 + number
    built = write(conv, which, machine, epilogue=bias_and_square)
    got = run(built, arrays, wanted.shape, "float32", extra=[bias])
    assert_close(got, wanted.astype(np.float32))


@pytest.mark.parametrize("which", ["forward", "input"])
@pytest.mark.parametrize("conv", [CASES[n] for n in (1, 6, 12, 20, 25)], ids=described)
def test_a_long_epilogue_is_a_function_of_its_own(conv, which, rng):
    """It does the same as one that is written into the tiles."""

    def long(*given):
        return bias_and_square(*given)

    long.work = 10_000
    arrays, op = operands(conv, which, rng)
    shape = op.forward(*arrays).shape
    bias = rng.normal(size=shape[-1])
    found = [
        run(write(conv, which, MACHINES[0], epilogue=e), arrays, shape, "float32", extra=[bias])
        for e in (bias_and_square, long)
    ]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("which", PASSES)
def test_nan_and_infinity_go_where_they_belong(which, rng):
    conv = geometry((6, 9), 3, (5, 20), before=1)
    arrays, op = operands(conv, which, rng)
    arrays[0][0, 0, 0, 0], arrays[0][-1, -1, -1, -1] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        wanted = op.forward(*arrays)
    got = run(write(conv, which, MACHINES[0]), arrays, wanted.shape, "float32")
    assert np.isfinite(wanted).any()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(wanted))


@pytest.mark.parametrize("which", PASSES)
@pytest.mark.parametrize("conv", [CASES[n] for n in (3, 6, 16, 20, 25)], ids=described)
def test_kernels_emit_for_neon(conv, which):
    module, _ = write(conv, which, "neon")
    assert object_code(module).startswith(b"\x7fELF")


def test_layers_of_one_shape_share_their_tiles():
    conv, module = geometry((14, 14), 3, (32, 32), before=1), Module(named("avx2"))
    kernels.write_forward(module, "first", conv)
    first = set(module.functions)
    kernels.write_forward(module, "second", conv)
    assert set(module.functions) - first <= {"second", "second_weights"}


def test_single_places_are_a_matrix_product():
    assert kernels.matrix_product(geometry((6, 7), 1, (3, 5))) == (84, 3, 5)
    for other in (
        geometry((6, 7), 1, (3, 5), stride=2),
        geometry((6, 7), 1, (4, 6), groups=2),
        geometry((6, 7), 1, (3, 5), before=1),
        geometry((6, 7), (1, 2), (3, 5)),
    ):
        assert kernels.matrix_product(other) is None


def test_out_shape_is_that_of_the_windows():
    conv = Convolution.of_windows(
        2,
        ((7, 9), (3, 0)),
        (1, 1),
        (2, 3),
        stride=(2, 3),
        dilation=(2, 1),
        before=(1, -1),
        groups=1,
        type=F32,
    )
    assert conv.out_shape == (3, 0)


def test_long_strides_have_no_code_for_each_pixel(rng):
    x, w = (rg.asarray(rng.normal(size=s)) for s in ((1, 9_000, 2), (2, 2, 3)))
    gradient = rg.grad(lambda x, w: rg.sum(rg.nn.conv(x, w, stride=4_001) ** 2), (0, 1))
    found, wanted = rg.jit(gradient)(x, w), gradient(x, w)
    for a, b in zip(found, wanted, strict=True):
        assert_close(a, b)
