"""The kernel of quantiles against the op: places too, with ties, NaN, both zeros."""

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
from retrograd.jit.llvm.rank_kernels import LONGEST, MOST
from retrograd.jit.passes import optimized
from retrograd.ops.quantile import Ranked
from retrograd.testing.compare import assert_close

MACHINES = here()
CASES = [  # length, ranks
    (128, (0,)),
    (131, (130, 7, 7)),
    (256, (3, 4, 100, 255)),
    (301, (0, 1, 150, 299, 300)),
    (1000, tuple(range(0, 1000, 999 // (MOST - 1)))[:MOST]),
]


def graph_of(op, x):
    graph, _ = trace(lambda a: [*rg.apply(op, a)], [spec_of(x)])
    return graph


def check(op, x, machine=None, threads=1):
    built = compiled(graph_of(op, x), machine=named(machine) if machine else None)
    assert [s.what for s in built.steps] == ["ranked"], "it has a kernel of its own"
    found, wanted = Executable(built, threads)([x]), op.forward(x)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(np.signbit(found[0]), np.signbit(wanted[0]))


def strange(rng, shape):
    """Rows with many equal elements, NaN, infinities, both zeros; and rows of one of them."""
    x = np.round(rng.normal(size=shape))
    for odd in (np.nan, -np.nan, np.inf, -np.inf, -0.0):
        x[rng.random(shape) < 0.1] = odd
    x[:4] = np.array([np.nan, -np.inf, np.inf, -0.0])[:, None]
    return x


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "ranks"), CASES)
def test_ranks_agree_with_the_op(n, ranks, dtype, machine, rng):
    x = rng.normal(size=(6, n))
    for a in (x, np.sort(x), strange(rng, x.shape), x * np.finfo(dtype).tiny):
        check(Ranked(ranks), a.astype(dtype), machine)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads(threads, rng):
    x = rng.normal(size=(7, 30, 200)).astype(np.float32)
    check(Ranked((59, 60, 199)), x, threads=threads)


def test_the_library_takes_what_has_no_kernel(rng):
    x = rng.normal(size=(2, 200))
    short, whole = rng.normal(size=(8, 40)), np.arange(400).reshape(2, 200)
    for op, a in (
        (Ranked((3,)), short),
        (Ranked((3,)), whole),
        (Ranked(tuple(range(MOST + 1))), x),
        (Ranked((3,)), np.zeros((0, 200))),
        (Ranked((3,)), np.zeros((1, LONGEST + 1))),
    ):
        assert kernels_of(op, [spec_of(a)]) is None
        for found, wanted in zip(rg.apply(op, rg.asarray(a)), op.forward(a), strict=True):
            np.testing.assert_array_equal(found.array, wanted)


@pytest.mark.parametrize("q", [0.3, [0.0, 0.5, 1.0]])
def test_a_large_quantile_agrees_with_numpy(q, rng):
    x = rng.normal(size=(300, 257))
    found = rg.quantile(rg.asarray(x), q, axis=1)
    assert_close(found.array, np.quantile(x, q, axis=1))


def test_ranks_are_written_for_neon(rng):
    x = rng.normal(size=(6, 200)).astype(np.float32)
    writer = Writer(optimized(graph_of(Ranked((9, 60)), x), kernels_of), named("neon"))
    writer.written()
    assert object_code(writer.module).startswith(b"\x7fELF")
