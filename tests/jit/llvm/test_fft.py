"""Kernels of Fourier transforms against NumPy's, in float64."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.spec import Spec, spec_of
from retrograd.ir.trace import trace
from retrograd.jit import eager_slot
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.jit.llvm.fft_inline import sides
from retrograd.jit.llvm.fft_kernels import LANES, FourierKernels
from retrograd.jit.llvm.fft_plan import PRIMES, roots, smooth, stages
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.native import object_code
from retrograd.jit.llvm.program import Writer
from retrograd.jit.passes import optimized
from retrograd.ops.fft.transforms import (
    SWAPPED,
    DoubledRealFourier,
    Fourier,
    InverseRealFourier,
    RealFourier,
)
from retrograd.testing.compare import assert_close
from tests.conftest import covering

MACHINES = here()
DTYPES = ["complex64", "complex128"]
SHORT = [n for n in range(1, 65) if smooth(n)]
LONG = [96, 100, 120, 125, 128, 143, 243, 256, 512, 768, 1000, 1024, 2048, 4096]
LINES = [16, 25, 33]
REAL = {"complex64": "float32", "complex128": "float64"}


def traced(op, x):
    graph, _ = trace(lambda a: [rg.apply(op, a)], [spec_of(x)])
    return graph


def run(op, x, machine=None, threads=None):
    """What the op's kernels give; they are the whole program."""
    built = compiled(traced(op, x), machine=named(machine) if machine else None)
    assert [s.what for s in built.steps] == [op.name]
    return Executable(built, threads)([x])[0]


def drawn(rng, shape, dtype):
    wave = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return (wave if dtype in DTYPES else wave.real).astype(dtype)


def check(op, x, machine=None, threads=None):
    """Within the tolerance, of float64: the library's own transform of wider numbers."""
    got = run(op, x, machine, threads)
    wanted = op.forward(x.astype("complex128" if x.dtype.kind == "c" else "float64"))
    assert got.shape == wanted.shape
    assert_close(got, wanted.astype(got.dtype))


def of_length(rng, n, lines, axis, dtype):
    """Ops along an axis of [lines, n], [2, n, lines] or [n, lines], with operands for them."""
    shape = [(lines,), (2, lines), (lines,)][axis]
    at = (1, 1, 0)[axis]

    def sized(length):
        return (*shape[:at], length, *shape[at:])

    yield Fourier((at,)), drawn(rng, sized(n), dtype)
    yield Fourier((at,), "backward", inverse=True), drawn(rng, sized(n), dtype)
    yield Fourier((at,), "ortho"), drawn(rng, sized(n), REAL[dtype])
    yield RealFourier((at,)), drawn(rng, sized(n), REAL[dtype])
    yield InverseRealFourier((at,), length=n), drawn(rng, sized(n // 2 + 1), dtype)


@pytest.mark.sampled(40)
@pytest.mark.parametrize(
    ("n", "axis", "machine", "dtype"), covering(SHORT, [0, 1, 2], MACHINES, DTYPES, times=4)
)
def test_short_lines(n, axis, machine, dtype, rng):
    for lines in (1, 3, 17):
        for op, x in of_length(rng, n, lines, axis, dtype):
            check(op, x, machine)


@pytest.mark.sampled(40)
@pytest.mark.parametrize(
    ("n", "axis", "lines", "machine", "dtype"),
    covering(LONG, [0, 1, 2], LINES, MACHINES, DTYPES, times=10),
)
def test_long_lines(n, axis, lines, machine, dtype, rng):
    for op, x in of_length(rng, n, lines, axis, dtype):
        check(op, x, machine)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [256, 400, 1000, 6000, 1 << 14])
def test_few_lines(n, dtype, machine, rng):
    """A line that has all lanes for itself need not have others beside it."""
    for op, x in of_length(rng, n, 1, 0, dtype):
        if kernels_of(op, [spec_of(x)]):
            check(op, x, machine)
    check(Fourier((0,)), drawn(rng, (n,), dtype), machine)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [512, 800, 2000, 4096])
def test_the_transpose_of_the_inverse_is_one_kernel(n, dtype, machine, rng):
    for norm in SWAPPED:
        check(DoubledRealFourier((1,), norm), drawn(rng, (3, n), REAL[dtype]), machine)


@pytest.mark.parametrize("norm", SWAPPED)
@pytest.mark.parametrize("axes", [(0, 1), (1, 2), (2, 0), (0, 1, 2), (2, 1, 0), (1,)])
def test_several_axes(axes, norm, rng):
    shape = (6, 16, 20)
    for inverse in (False, True):
        check(Fourier(axes, norm, inverse), drawn(rng, shape, "complex128"))
        check(Fourier(axes, norm, inverse), drawn(rng, shape, "float32"))
    check(RealFourier(axes, norm), drawn(rng, shape, "float64"))
    for length in (9, 10):
        half = list(shape)
        half[axes[-1]] = length // 2 + 1
        op = InverseRealFourier(axes, norm, length)
        check(op, drawn(rng, half, "complex128"))
        check(op, drawn(rng, half, "float64"))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("shape", [(9, 16, 20), (8, 32, 256), (3, 4, 33, 8), (12, 6, 64)])
def test_several_axes_of_small_parts(shape, machine, rng):
    """One part after the other, in one kernel."""
    axes = (len(shape) - 2, len(shape) - 1)
    for op, dtype in [
        (Fourier(axes), "complex64"),
        (Fourier(axes, inverse=True), "complex128"),
        (RealFourier(axes), "float32"),
        (InverseRealFourier(axes, length=2 * shape[-1] - 1), "complex64"),
        (InverseRealFourier(axes[::-1], length=2 * shape[-2] - 2), "complex128"),
    ]:
        x = drawn(rng, shape, dtype)
        if kernels_of(op, [spec_of(x)]):
            check(op, x, machine)


def test_axes_of_small_parts_share_a_kernel(rng):
    def kernels(shape):
        built = compiled(traced(Fourier((1, 2)), drawn(rng, shape, "complex64")))
        return len(built.constants)

    assert kernels((16, 32, 64)) == 1
    assert kernels((2, 32, 64)) == 2


@pytest.mark.parametrize("shape", [(64, 2048), (2, 256, 64), (40, 1000), (300, 12)])
def test_bits_do_not_depend_on_threads(shape, rng):
    x = drawn(rng, shape, "complex64")
    for op in (Fourier((1,)), InverseRealFourier((1,), length=2 * shape[1] - 2)):
        if kernels_of(op, [spec_of(x)]):
            one, two, four = (run(op, x, threads=t) for t in (1, 2, 4))
            assert np.array_equal(one, two)
            assert np.array_equal(one, four)
    both = Fourier((0, 1))
    assert np.array_equal(run(both, x, threads=1), run(both, x, threads=2))


def test_imaginary_parts_that_real_numbers_do_not_have_are_not_read(rng):
    for shape, axis, length in [((3, 9), 1, 16), ((2, 1025), 1, 2048), ((8, 40), 0, 15)]:
        x = drawn(rng, shape, "complex128")
        y = x.copy()
        ends = [0, -1] if length % 2 == 0 else [0]
        for k in ends:
            y[(slice(None),) * axis + (k,)] += 1j
        op = InverseRealFourier((axis,), length=length)
        assert np.array_equal(run(op, x), run(op, y))


@pytest.mark.parametrize(
    ("op", "x", "taken"),
    [
        (Fourier((0,)), Spec((2, 44), "complex64"), True),
        (Fourier((1,)), Spec((8, 17), "complex64"), False),
        (Fourier((0, 1)), Spec((8, 34), "complex64"), False),
        (Fourier(()), Spec((8, 8), "complex64"), False),
        (Fourier((1,)), Spec((0, 8), "complex64"), False),
        (Fourier((1,)), Spec((3, 100), "complex64"), False),
        (Fourier((1,)), Spec((1, 1 << 16), "complex128"), True),
        (Fourier((0,)), Spec((1 << 16, 32), "complex128"), False),
        (RealFourier((1,)), Spec((8, 8), "float16"), False),
        (DoubledRealFourier((1,)), Spec((8, 512), "float32"), True),
        (DoubledRealFourier((1,)), Spec((8, 511), "float32"), False),
        (DoubledRealFourier((0,)), Spec((512, 32), "float32"), False),
        (DoubledRealFourier((0, 1)), Spec((512, 512), "float32"), False),
    ],
)
def test_what_is_taken(op, x, taken):
    x = Spec(x.shape, np.dtype(x.dtype))
    assert FourierKernels.takes(op, [x]) == taken


def test_a_long_program_with_equal_transforms_keeps_one_table(rng):
    def f(a):
        for _ in range(3):
            a = rg.fft.ifft(rg.fft.fft(a) * 2)
        return [a]

    x = drawn(rng, (16, 256), "complex64")
    graph, _ = trace(f, [spec_of(x)])
    built = compiled(graph)
    assert len(built.constants) == 1
    assert_close(Executable(built)([x])[0], 8 * x)


def test_gradients_and_vmap_are_kernels_too(rng):
    x = drawn(rng, (24, 64), "float32")

    def loss(a):
        return rg.sum(rg.abs(rg.fft.rfft(a)) ** 2)

    found = rg.jit(rg.grad(loss))(rg.asarray(x))
    weight = np.ones(33)  # those in between stand for two
    weight[[0, -1]] = 2
    half = np.fft.rfft(x.astype("float64")) * weight
    assert_close(found, (np.fft.irfft(half) * 64).astype("float32"))
    rows = rg.jit(rg.vmap(rg.fft.fft))(rg.asarray(x))
    assert_close(rows, np.fft.fft(x.astype("float64")).astype("complex64"))


def test_eager_transforms_of_large_operands_are_kernels(rng):
    eager_slot.load()
    x = drawn(rng, (64, 1024), "complex64")
    assert eager_slot.slot.forward(Fourier((1,)), [x]) is not None
    assert eager_slot.slot.forward(Fourier((1,)), [drawn(rng, (64, 1021), "complex64")]) is None
    for view in (x, x.T, x[:, ::2], x[::-1]):
        got = rg.fft.fft2(rg.asarray(view))
        assert_close(got, np.fft.fft2(view.astype("complex128")).astype("complex64"))


# -- parts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 12, 100, 243, 4096])
def test_roots_have_the_symmetries_of_the_circle(n):
    k = np.arange(n)
    w = roots(n, k)
    assert_close(w, np.exp(-2j * np.pi * k / n))
    assert np.array_equal(w[1:], w[:0:-1].conj())
    if n % 4 == 0:
        assert np.array_equal(roots(n, k + n // 4), w.imag - 1j * w.real)


@pytest.mark.parametrize("machine", ["avx512", "avx2", "sse2", "neon"])
def test_stages_make_up_the_length(machine):
    for n in (m for m in range(1, 5000) if smooth(m)):
        found = stages(n, named(machine))
        assert np.prod([s.radix for s in found]) == n
        assert all(s.radix * s.turns * s.apart == n for s in found)
        assert all(s.radix in (1, 2, 4, 8, *PRIMES) for s in found)
        if two := sides(n, LANES):
            assert two[0] * two[1] == n
            assert min(two) >= LANES


@pytest.mark.parametrize("shape", [(32, 256), (32, 60)])
def test_code_for_another_machine(shape, rng):
    for op in (RealFourier((1,)), RealFourier((0,))):
        graph = optimized(traced(op, drawn(rng, shape, "float32")), kernels_of)
        writer = Writer(graph, named("neon"))
        writer.written()
        assert object_code(writer.module)
