"""Sums over all pairs as kernels: against NumPy in float64, which holds the matrix of pairs."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.control.pair_ops import PairSum, PairSumPull
from retrograd.core.interpret import apply
from retrograd.core.spec import Spec, spec_of
from retrograd.ir.trace import trace
from retrograd.jit.execute import Executable
from retrograd.jit.llvm.formula import Formula
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.native import object_code
from retrograd.jit.llvm.program import Writer, build
from retrograd.jit.passes import optimized
from retrograd.testing.compare import assert_close

SHAPES = [(1, 1, 1), (5, 40, 1), (17, 16, 3), (300, 33, 16), (70, 520, 5), (33, 9, 40)]
# whether of the root, of other points, within one set: a point is itself only there
KINDS = [(r, o, w) for r in (False, True) for o, w in ((0, 0), (0, 1), (1, 1))]


def function(far):
    return rg.exp(-far) + 1 / (1 + far * far)


def body(dtype):
    return trace(lambda far: [function(far)], [Spec((2, 3), np.dtype(dtype))])[0]


def graph_of(op, arrays):
    def run(*args):
        found = apply(op, *args)
        return list(found) if isinstance(found, tuple) else [found]

    return optimized(trace(run, [spec_of(a) for a in arrays])[0], kernels_of)


def wanted(g, x, y, w, *, root, others):
    """The sums, and cotangents of x, y and w, all with the matrix of pairs."""
    g, x, y, w = (a.astype(np.float64) for a in (g, x, y, w))
    apart = x[:, None] - y
    square = (apart * apart).sum(-1)
    on = ~np.eye(*square.shape, dtype=bool) if others else np.ones(square.shape, bool)
    far = np.where(on, np.sqrt(square) if root else square, 1.0)
    value = np.where(on, np.exp(-far) + 1 / (1 + far * far), 0)
    slope = -np.exp(-far) - 2 * far / (1 + far * far) ** 2
    slope = np.where(on, slope, 0) * (g * w.T)
    scale = np.where(far == 0, 0, slope / np.where(far == 0, 1, far)) if root else 2 * slope
    moved = scale[:, :, None] * apart
    return value @ w, moved.sum(1), -moved.sum(0), value.T @ g


def operands(rng, shape, dtype, within):
    n, m, d = shape
    x, y = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    y = x if within else y
    g, w = rng.normal(size=(n, 1)), rng.normal(size=(len(y), 1))
    return [a.astype(dtype) for a in (g, x, y, w)]


def run_all(op, arrays, machine):
    """The op as a program of its kernels, with 1, 2 and 3 threads: the same bits."""
    graph = graph_of(op, arrays)
    assert [n.op.name for n in graph.nodes] == [op.name], "it has kernels of its own"
    program = build(graph, named(machine))
    found = [Executable(program, threads)(arrays) for threads in (1, 2, 3)]
    for other in found[1:]:
        assert [a.tobytes() for a in found[0]] == [a.tobytes() for a in other]
    return found[0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("machine", here())
@pytest.mark.parametrize(("root", "others", "within"), KINDS)
def test_sums_and_cotangents_agree_with_numpy(root, others, within, machine, dtype, rng):
    kind = (body(dtype), root, bool(others), bool(within))
    for shape in SHAPES:
        g, x, y, w = operands(rng, shape, dtype, within)
        given = [x, w] if within else [x, y, w]
        sums, gx, gy, gw = (
            a.astype(dtype) for a in wanted(g, x, y, w, root=root, others=others)
        )
        (found,) = run_all(PairSum(*kind), given, machine)
        assert_close(found, sums)
        pulled = run_all(PairSumPull(*kind), [g, *given], machine)
        points = [gx + gy] if within else [gx, gy]
        for a, b in zip(pulled, [sums, *points, gw], strict=True):
            assert_close(a, b)
        assert pulled[0].tobytes() == found.tobytes(), "the same sums, whoever computes them"


def test_they_are_written_for_other_processors():
    x, w = np.ones((40, 3), np.float32), np.ones((40, 1), np.float32)
    op = PairSumPull(body("float32"), True, True, True)
    writer = Writer(graph_of(op, [w, x, w]), named("neon"))
    writer.written()
    assert object_code(writer.module).startswith(b"\x7fELF")


@pytest.mark.parametrize("name", ["max", "cumulative_sum", "sort", "flip"])
def test_only_arithmetic_is_a_formula(name):
    tile = Spec((4, 4), np.dtype("float32"))
    f = getattr(rg, name)
    assert Formula.of(trace(lambda t: [t + f(t, axis=1)[..., :1]], [tile])[0]) is None
    assert Formula.of(trace(lambda t: [rg.exp(t)], [tile])[0]) is not None


def test_the_loss_is_taken_from_its_gradient(rng):
    """Value and gradient are one walk over the pairs, with the bits of two."""
    x = rg.asarray(rng.normal(size=(50, 3)))
    loss = lambda x: rg.distances.pair_reduce(function, x) / 7

    both = rg.jit(rg.value_and_grad(loss))
    graph = optimized(both.lower(x).graph, kernels_of)
    assert [n.op.name for n in graph.nodes].count("pair_sum") == 0
    value, slope = both(x)
    assert value.numpy().tobytes() == rg.jit(loss)(x).numpy().tobytes()
    assert slope.numpy().tobytes() == rg.jit(rg.grad(loss))(x).numpy().tobytes()


def test_a_loss_that_its_gradient_needs_is_computed_first(rng):
    x = rg.asarray(rng.normal(size=(50, 3)))
    loss = lambda x: rg.exp(-rg.distances.pair_reduce(function, x) / 99)
    value, slope = rg.jit(rg.value_and_grad(loss))(x)
    assert_close(value, loss(x))
    assert_close(slope, rg.grad(loss)(x))
