"""The kernel of nearest neighbours against the op, on coordinates whose distances are exact."""

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
from retrograd.ops.distances.neighbours import Nearest

MACHINES = here()
METRICS = ["squared", "euclidean", "manhattan", "chebyshev"]


def graph_of(op, *arrays):
    graph, _ = trace(lambda *a: [rg.apply(op, *a)], [spec_of(a) for a in arrays])
    return graph


def whole(rng, *shape):
    """Small whole numbers: many points are equally near."""
    return rng.integers(-4, 5, shape).astype(np.float64)


def check(op, x, y, machine=None):
    built = compiled(graph_of(op, x, y), machine=named(machine) if machine else None)
    assert [s.what for s in built.steps] == ["nearest"], "it has kernels of its own"
    for threads in (1, 2, 3):
        found = Executable(built, threads)([x, y])[0]
        np.testing.assert_array_equal(found, op.forward(x, y))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nearest_agrees_with_the_op(metric, dtype, machine, rng):
    for n, m, d, k in ((5, 9, 1, 2), (7, 130, 3, 20), (40, 64, 16, 1)):
        x, y = (whole(rng, c, d).astype(dtype) for c in (n, m))
        check(Nearest(k, metric), x, y, machine)
        check(Nearest(k, metric, others=True), y, y, machine)


def test_batches_and_points_without_a_place(rng):
    x, y = whole(rng, 2, 3, 11, 4), whole(rng, 2, 3, 50, 4)
    check(Nearest(6, "euclidean"), x, y)
    y[..., ::7, 1], x[..., 2, 0] = np.nan, np.nan
    y[..., 3, 2] = np.inf
    for metric in METRICS:
        check(Nearest(6, metric), x, y)


def test_the_host_takes_what_has_no_kernel(rng):
    x, y = rng.normal(size=(20, 40)), rng.normal(size=(30, 40))
    for op, n in ((Nearest(3, "squared"), 40), (Nearest(20, "squared"), 3)):
        assert kernels_of(op, [spec_of(x[:, :n]), spec_of(y[:, :n])]) is None
    assert kernels_of(Nearest(2, "minkowski", 3.0), [spec_of(x[:, :3])] * 2) is None


def test_nearest_is_written_for_neon(rng):
    x = whole(rng, 60, 5).astype(np.float32)
    graph = graph_of(Nearest(4, "chebyshev", others=True), x, x)
    writer = Writer(optimized(graph, kernels_of), named("neon"))
    writer.written()
    assert object_code(writer.module).startswith(b"\x7fELF")
