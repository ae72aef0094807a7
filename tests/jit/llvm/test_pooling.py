"""Kernels of pools against the ops in NumPy: any windows, NaN, infinities, short vectors."""

from functools import partial

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.interpret import apply
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.execute import Executable
from retrograd.jit.llvm.conv_shape import Axis
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.native import object_code
from retrograd.jit.llvm.pooling import Pooling
from retrograd.jit.llvm.program import Writer, build
from retrograd.jit.llvm.text import F32, Module
from retrograd.jit.passes import optimized
from retrograd.ops.nn.geometry import Frame
from retrograd.ops.nn.pool_max import MaxPool, MaxPoolPull, MaxSpan, MaxSpanPull
from retrograd.ops.nn.pool_sum import SpanMean, WindowSpread, WindowSum
from retrograd.testing.compare import assert_close

MACHINES = here()
CASES = [  # kernel, stride, dilation, before, counts; x's shape
    ((2, 2), (2, 2), (1, 1), (0, 0), (3, 4), (3, 6, 8, 20)),
    ((3, 3), (2, 2), (1, 1), (1, 1), (4, 5), (2, 7, 9, 33)),
    ((3, 3), (1, 1), (1, 1), (1, 1), (7, 9), (1, 7, 9, 16)),
    ((9, 9), (1, 1), (1, 1), (4, 4), (9, 9), (1, 9, 9, 5)),  # each window over an edge
    ((3, 3), (2, 2), (2, 2), (2, 2), (5, 5), (2, 10, 10, 4)),
    ((2, 3, 2), (1, 2, 2), (1, 1, 1), (1, 1, 1), (5, 3, 4), (2, 4, 5, 6, 7)),
    ((3,), (2,), (1,), (0,), (5,), (2, 11, 5)),
    ((2, 2), (3, 3), (1, 1), (0, 0), (3, 4), (2, 9, 10, 17)),  # places in no window
    ((20,), (3,), (1,), (10,), (17,), (40, 50, 6)),  # more places than are written out
    ((2,), (2,), (1,), (0,), (2,), (2, 3, 4, 8)),  # two axes of batches
]


def pools(case, rng, *, strange=False):
    """(op, operands) of each of the four."""
    *own, shape = case
    frame, axes = Frame(*own), len(own[0])
    x = rng.normal(size=shape)
    if strange:
        x = np.round(x)  # many are the largest
        x[rng.random(shape) < 0.1] = np.nan
        x[rng.random(shape) < 0.3] = -np.inf
    y = rng.normal(size=(*shape[: -1 - axes], *frame.counts, shape[-1]))
    yield MaxPool(*frame), (x,)
    yield MaxPoolPull(*frame), (y, x)
    if not strange:
        yield WindowSum(*frame), (x,)
        yield WindowSpread(*frame, shape[-1 - axes : -1]), (y,)


def graph_of(op, arrays):
    found, _ = trace(lambda *a: [apply(op, *a)], [spec_of(a) for a in arrays])
    return optimized(found, kernels_of)


def check(op, arrays, dtype, machine):
    arrays = [a.astype(dtype) for a in arrays]
    graph = graph_of(op, arrays)
    assert [n.op.name for n in graph.nodes] == [op.name], "it has kernels of its own"
    program = build(graph, named(machine))
    found = [Executable(program, threads)(arrays)[0] for threads in (1, 2, 3)]
    wanted = op.forward(*(a.astype(np.float64) for a in arrays))
    assert_close(found[0], wanted.astype(dtype))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_pools_agree_with_the_ops(case, machine, rng):
    for op, arrays in pools(case, rng):
        check(op, arrays, "float64" if CASES.index(case) % 3 == 1 else "float32", machine)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nan_infinities_and_equal_elements(case, rng):
    for op, arrays in pools(case, rng, strange=True):
        check(op, arrays, "float32", MACHINES[0])


@pytest.mark.parametrize("case", CASES[:6], ids=str)
def test_pools_emit_for_neon(case, rng):
    for op, arrays in pools(case, rng):
        writer = Writer(graph_of(op, [a.astype(np.float32) for a in arrays]), named("neon"))
        writer.written()
        assert object_code(writer.module).startswith(b"\x7fELF")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("shape", [(8, 7, 5, 60), (4, 5, 4, 32), (16, 4, 5, 90)], ids=str)
@pytest.mark.parametrize("taps", [(3, 3), (4, 4)], ids=str)
def test_vectors_of_channels_side_by_side(taps, shape, machine, rng):
    counts = tuple(n - t + 1 for n, t in zip(shape[1:-1], taps, strict=True))
    case = (taps, (1, 1), (1, 1), (0, 0), counts, shape)
    for dtype, strange in (("float32", False), ("float64", False), ("float32", True)):
        for op, arrays in pools(case, rng, strange=strange):
            if isinstance(op, MaxPoolPull):
                check(op, arrays, dtype, machine)


@pytest.mark.parametrize(("machine", "most"), [("avx512", 4), ("avx2", 2), ("neon", 4)])
def test_vectors_are_side_by_side_where_work_is_left_for_threads(machine, most):
    axes, module = (Axis(56, 9, 8, 1, 6, 1, 0),) * 2, Module(named(machine))
    lanes = named(machine).lanes(4)

    def pull(batch, vectors):
        return Pooling(module, "pull", "pull", batch, axes, vectors * lanes, F32).abreast

    assert [pull(8, n) for n in (1, 2, 3, 4)] == [1, 2, 1, most]
    assert [pull(batch, 4) for batch in (1, 2, 4)] == [1, 1, 2]


def test_what_has_no_kernel_is_written_out(rng):
    for x in (np.ones((2, 4, 1), np.float32), np.ones((2, 4, 8), np.int64)):
        op = MaxPool((2,), (2,), (1,), (0,), (2,))
        assert "max_pool" not in [n.op.name for n in graph_of(op, [x]).nodes]
        found = rg.jit(partial(apply, op))(rg.asarray(x))
        np.testing.assert_array_equal(found.array, op.forward(x))


SPANS = [  # starts, stops; x's shape
    (((0, 6, 12),), ((7, 13, 19),), (3, 19, 20)),
    (((0, 2), (0, 0, 1)), ((3, 4), (1, 2, 2)), (2, 4, 2, 33)),
    (((0, 3, 1),), ((2, 5, 2),), (5, 16)),  # apart, in no order, with a place in none
    (((0, 0, 4), (0, 5)), ((4, 4, 9), (5, 9)), (2, 9, 9, 5)),  # the same one twice
    ((tuple(range(20)),), (tuple(range(3, 23)),), (2, 23, 8)),
]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", SPANS, ids=str)
def test_spans_agree_with_the_ops(case, machine, rng):
    starts, stops, shape = case
    x = np.round(rng.normal(size=shape), 1)
    y = rng.normal(size=(*shape[: -1 - len(starts)], *map(len, starts), shape[-1]))
    for dtype in ("float32", "float64"):
        check(MaxSpan(starts, stops), (x,), dtype, machine)
        check(MaxSpanPull(starts, stops), (y, x), dtype, machine)
        check(SpanMean(starts, stops), (x,), dtype, machine)
    x[rng.random(shape) < 0.1] = np.nan
    check(MaxSpan(starts, stops), (x,), "float32", machine)
    check(MaxSpanPull(starts, stops), (y, x), "float32", machine)
