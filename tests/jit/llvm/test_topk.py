"""The kernel of topk against the op: places too, with ties, NaN, both zeros, any machine."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.native import object_code
from retrograd.jit.llvm.program import Writer
from retrograd.jit.passes import optimized
from retrograd.ops.sort import Topk

MACHINES = here()
SIZES = [(4, 1), (5, 1), (64, 16), (70, 17), (131, 3), (400, 96), (1000, 20)]  # length, k


def graph_of(op, x):
    graph, _ = trace(lambda a: [*rg.apply(op, a)], [spec_of(x)])
    return graph


def check(op, x, machine=None, threads=1):
    built = compiled(graph_of(op, x), machine=named(machine) if machine else None)
    assert [s.what for s in built.steps] == ["topk"], "it has a kernel of its own"
    found, wanted = Executable(built, threads)([x]), op.forward(x)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(np.signbit(found[0]), np.signbit(wanted[0]))


def strange(rng, shape):
    """Rows with many equal elements, NaN, infinities, both zeros; and rows of one of them."""
    x = np.round(rng.normal(size=shape))
    for odd in (np.nan, np.inf, -np.inf, -0.0):
        x[rng.random(shape) < 0.1] = odd
    x[:4] = np.array([np.nan, -np.inf, np.inf, -0.0])[:, None]
    return x


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_topk_agrees_with_the_op(n, k, dtype, machine, rng):
    x = rng.normal(size=(6, n))
    for a in (x, np.sort(x), -np.sort(-x), strange(rng, x.shape)):
        for largest in (True, False):
            check(Topk(k, 1, largest), a.astype(dtype), machine)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads(threads, rng):
    check(Topk(5, 2), rng.normal(size=(7, 30, 200)).astype(np.float32), threads=threads)


def test_the_library_takes_what_has_no_kernel(rng):
    x, whole = rng.normal(size=(8, 40)), np.arange(80).reshape(2, 40)
    for op, a in ((Topk(3, 0), x), (Topk(20, 1), x), (Topk(3, 1), whole)):
        assert kernels_of(op, [spec_of(a)]) is None
        for found, wanted in zip(rg.apply(op, rg.asarray(a)), op.forward(a), strict=True):
            np.testing.assert_array_equal(found.array, wanted)


def test_topk_is_written_for_neon(rng):
    x = rng.normal(size=(6, 100)).astype(np.float32)
    writer = Writer(optimized(graph_of(Topk(9, 1), x), kernels_of), named("neon"))
    writer.written()
    assert object_code(writer.module).startswith(b"\x7fELF")
