"""The kernels of ctc against NumPy's walks, in float64: any machine, any number of threads."""

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
from retrograd.ops.nn.ctc import LogChance, LogChancePull
from retrograd.testing.compare import assert_close

MACHINES = here()
SIZES = [(30, 5, 7, 9), (1, 3, 2, 1), (20, 4, 40, 8), (12, 3, 5, 0)]
LONG = (70, 2, 9, 20)  # of so many frames, float32 keeps too few digits of the logarithms


def operands(rng, steps, rows, classes, labels, dtype):
    """Of rows with as many frames and labels as come; one has no frame, and one has all."""
    log_p = np.log(rng.dirichlet(np.ones(classes), size=(steps, rows)))
    states = np.zeros((rows, 2 * labels + 1), np.int64)
    states[:, 1::2] = rng.integers(1, classes, (rows, labels))
    skip = np.zeros(states.shape, bool)
    skip[:, 2:] = (states[:, 2:] != 0) & (states[:, 2:] != states[:, :-2])
    lengths = rng.integers(0, labels + 1, rows)
    frames = np.minimum(steps, 2 * lengths + rng.integers(1, 9, rows))
    frames[0], lengths[0], frames[1] = 0, 0, steps
    return [log_p.astype(dtype), states, skip, frames, lengths]


def graph_of(op, arrays):
    graph, _ = trace(lambda *a: [rg.apply(op, *a)], [spec_of(a) for a in arrays])
    return graph


def check(op, arrays, machine=None):
    built = compiled(graph_of(op, arrays), machine=named(machine) if machine else None)
    assert [s.what for s in built.steps] == [op.name], "it has a kernel of its own"
    found = [Executable(built, threads)(arrays)[0] for threads in (1, 2, 3)]
    dtype = found[0].dtype
    wanted = op.forward(*(a.astype(np.float64) if a.dtype == dtype else a for a in arrays))
    assert_close(found[0], wanted.astype(dtype))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_both_walks_agree_with_numpy(sizes, dtype, machine, rng):
    arrays = operands(rng, *sizes, dtype)
    check(LogChance(), arrays, machine)
    check(LogChancePull(), [rng.normal(size=sizes[1]).astype(dtype), *arrays], machine)


@pytest.mark.parametrize("machine", MACHINES)
def test_many_frames_and_labels(machine, rng):
    arrays = operands(rng, *LONG, "float64")
    check(LogChance(), arrays, machine)
    check(LogChancePull(), [rng.normal(size=LONG[1]), *arrays], machine)


def test_classes_without_any_chance(rng):
    arrays = operands(rng, 20, 4, 5, 6, "float32")
    arrays[0][rng.random(arrays[0].shape) < 0.3] = -np.inf
    check(LogChance(), arrays)
    check(LogChancePull(), [rng.normal(size=4).astype(np.float32), *arrays])


def test_indices_that_are_none_read_nothing_else(rng):
    log_p, states, skip, frames, lengths = operands(rng, 6, 3, 4, 2, "float32")
    bad = [log_p, states + 10**9, skip, frames + 10**9, lengths - 10**9]
    built = compiled(graph_of(LogChance(), bad))
    assert Executable(built, 1)(bad)[0].shape == (3,)


def test_a_compiled_loss_is_one_kernel_each_way(rng):
    log_p = np.log(rng.dirichlet(np.ones(5), size=(40, 3))).astype(np.float32)
    labels = np.array([[1, 2, 2], [3, 1, 4], [1, 1, 1]])

    def loss(x):
        return rg.nn.ctc(x, labels)

    steps = rg.jit(rg.grad(loss)).explain(rg.asarray(log_p)).steps
    assert len(steps) < 10
    assert_close(rg.jit(rg.grad(loss))(log_p), rg.grad(loss)(log_p))


def test_the_walks_are_written_for_neon(rng):
    arrays = operands(rng, 20, 4, 5, 6, "float32")
    writer = Writer(optimized(graph_of(LogChance(), arrays), kernels_of), named("neon"))
    writer.written()
    assert object_code(writer.module).startswith(b"\x7fELF")
