"""Distances within a set of points, as kernels: against NumPy in float64."""

import numpy as np
import pytest

from retrograd.core.interpret import apply
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.execute import Executable
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.native import object_code
from retrograd.jit.llvm.program import Writer, build
from retrograd.jit.passes import optimized
from retrograd.ops.distances.condensed import PairsWithin, PairsWithinAgain
from retrograd.testing.compare import assert_close

SHAPES = [(2, 3), (5, 1), (40, 3), (70, 16), (2, 33, 5), (3, 2, 17, 4), (150, 9)]
LENGTHS = {
    "squared": lambda d: (d * d).sum(-1),
    "euclidean": lambda d: np.sqrt((d * d).sum(-1)),
    "manhattan": lambda d: np.abs(d).sum(-1),
    "chebyshev": lambda d: np.abs(d).max(-1),
}


def graph_of(op, x):
    found, _ = trace(lambda x: [apply(op, x)], [spec_of(x)])
    return optimized(found, kernels_of)


def wanted(x, metric):
    x = x.astype(np.float64)
    one, other = np.triu_indices(x.shape[-2], 1)
    return LENGTHS[metric](x[..., one, :] - x[..., other, :])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("machine", here())
@pytest.mark.parametrize("metric", LENGTHS)
def test_pairs_agree_with_numpy(metric, machine, dtype, rng):
    for shape in SHAPES:
        x = rng.normal(size=shape).astype(dtype)
        graph = graph_of(PairsWithin(metric), x)
        assert [n.op.name for n in graph.nodes] == ["pairs_within"], "it has kernels of its own"
        program = build(graph, named(machine))
        found = [Executable(program, threads)([x])[0] for threads in (1, 2, 3)]
        assert_close(found[0], wanted(x, metric).astype(dtype))
        for other in found[1:]:
            assert found[0].tobytes() == other.tobytes()


def test_what_is_not_a_number_is_where_it_belongs(rng):
    x = rng.normal(size=(40, 3)).astype(np.float32)
    x[7, 1], x[30, 2] = np.nan, np.inf
    for metric in LENGTHS:
        (found,) = Executable(build(graph_of(PairsWithin(metric), x), named("avx2")))([x])
        with np.errstate(invalid="ignore"):
            assert_close(found, wanted(x, metric).astype(np.float32))


def test_points_that_are_the_same_have_no_distance(rng):
    x = np.repeat(rng.normal(size=(4, 5)), 3, 0).astype(np.float32)
    (found,) = Executable(build(graph_of(PairsWithinAgain("euclidean"), x), named("avx2")))([x])
    np.testing.assert_array_equal(found == 0, wanted(x, "euclidean") == 0)


def test_what_has_no_kernel_is_written_out():
    for shape in [(1, 3), (4, 0)]:
        x = np.zeros(shape, np.float32)
        names = [n.op.name for n in graph_of(PairsWithin("squared"), x).nodes]
        assert "pairs_within" not in names
    x = np.zeros((4, 2), np.float32)
    assert "pairs_within" not in [
        n.op.name for n in graph_of(PairsWithin("minkowski"), x).nodes
    ]


def test_emits_for_neon(rng):
    x = rng.normal(size=(40, 3)).astype(np.float32)
    writer = Writer(graph_of(PairsWithin("euclidean"), x), named("neon"))
    writer.written()
    assert object_code(writer.module).startswith(b"\x7fELF")
