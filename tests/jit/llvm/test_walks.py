"""Loops along rows in squares that are turned over: the same bits as element by element."""

import mmap
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.interpret import apply
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.execute import Executable
from retrograd.jit.llvm import loops
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.native import object_code
from retrograd.jit.llvm.program import Writer, build
from retrograd.jit.passes import optimized
from retrograd.ops.cumulative import CumulativeMax, CumulativeProd, CumulativeSum, RunPlace
from retrograd.ops.recur import Recurrence, Shift
from retrograd.testing.compare import assert_close

MACHINES = here()
KINDS = [{"told": True}, {"told": False}, {"told": True, "bursts": True}]
SHAPES = [(16, 64), (37, 100), (5, 77), (3, 33), (2, 20, 65), (1, 300), (40, 31), (200, 48)]


@pytest.fixture(params=["cached", "past"])
def stores(request, monkeypatch):
    """Results go to the caches, or all of them past these, which is in whole lines."""
    if request.param == "past":
        monkeypatch.setattr(loops, "PAST", 0)


def graph_of(f, arrays):
    found, _ = trace(lambda *a: [f(*a)], [spec_of(a) for a in arrays])
    return optimized(found, kernels_of)


def ran(f, arrays, machine, **kind):
    """The result, which is the same for every number of threads."""
    program = build(graph_of(f, arrays), replace(named(machine), **kind))
    found = [Executable(program, threads)(arrays)[0] for threads in (1, 2, 3)]
    for other in found[1:]:
        assert found[0].tobytes() == other.tobytes()
    return found[0]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("machine", MACHINES)
def test_running_sums_are_those_of_numpy_to_the_last_bit(machine, dtype, rng):
    for shape in SHAPES:
        x = (rng.normal(size=shape) * 100).astype(dtype)
        axis = len(shape) - 1
        for op in (CumulativeSum(axis), CumulativeSum(axis, backwards=True)):
            got = ran(lambda x, op=op: apply(op, x), [x], machine)
            assert got.tobytes() == np.ascontiguousarray(op.forward(x)).tobytes()


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_not_a_number_stays_in_its_row(machine, rng):
    x = np.round(rng.normal(size=(37, 100))).astype(np.float32)
    x[rng.random(x.shape) < 0.01] = np.nan
    x[rng.random(x.shape) < 0.01] = np.inf
    for op in (CumulativeMax(1), RunPlace(1)):
        got = ran(lambda x, op=op: apply(op, x), [x], machine)
        np.testing.assert_array_equal(got, op.forward(x))


@pytest.mark.parametrize("machine", MACHINES)
def test_products_and_recurrences(machine, rng):
    """Some of them read beside the square, behind a test."""
    for shape in [(20, 90), (3, 17, 40)]:
        axis = len(shape) - 1
        a, b = (rng.uniform(-1, 1, shape).astype(np.float32) for _ in "ab")
        for back in (False, True):
            for op, arrays in (
                (CumulativeProd(axis, back), [a]),
                (CumulativeProd(axis, back, exclusive=True), [a]),
                (Recurrence(back, axis), [a, b]),
                (Shift(-1 if back else 1, axis), [a]),
                (Shift(-30 if back else 30, axis), [a]),
            ):
                got = ran(lambda *xs, op=op: apply(op, *xs), arrays, machine)
                wide = op.forward(*(x.astype(np.float64) for x in arrays))
                assert_close(got, wide.astype(np.float32))


@pytest.mark.parametrize("machine", MACHINES)
def test_rows_that_are_read_backwards_and_beside(machine, rng):
    x, w = rng.normal(size=(24, 70)).astype(np.float32), rng.normal(size=70).astype(np.float32)

    def f(x, w):
        return rg.cumulative_sum(rg.flip(x * w, axis=1), axis=1)

    wanted = np.add.accumulate((x * w)[:, ::-1], axis=1)
    assert ran(f, [x, w], machine).tobytes() == np.ascontiguousarray(wanted).tobytes()


@pytest.mark.parametrize("machine", MACHINES)
def test_elements_that_neighbours_share(machine, rng):
    """One number for 4, 8, 16, ... lanes in a row."""
    for each in (2, 4, 8, 16, 24, 32, 128):
        x = rng.normal(size=(9, 4 * each)).astype(np.float32)
        s = rng.normal(size=(9, 4, 1)).astype(np.float32)

        def f(x, s, each=each):
            wide = rg.broadcast_to(s, (9, 4, each))
            return x * rg.reshape(wide, (9, 4 * each))

        wanted = (x.reshape(9, 4, each) * s).reshape(x.shape)
        assert ran(f, [x, s], machine).tobytes() == wanted.tobytes()


def test_emits_for_neon(rng):
    x = rng.normal(size=(37, 100)).astype(np.float32)
    graph = graph_of(lambda x: apply(CumulativeSum(1), x), [x])
    writer = Writer(graph, named("neon"))
    writer.written()
    assert "@turned_" in writer.module.text()
    assert object_code(writer.module).startswith(b"\x7fELF")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8"])
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.usefixtures("stores")
def test_operands_that_lie_along_another_axis_are_turned_over(machine, dtype, rng):
    """In whole squares and at both edges, with operands that lie as the result does."""
    shapes = [(160, 128), (131, 150), (3, 200, 129), (2, 64, 300), (129, 1030), (1555, 130)]
    shapes += [(300, 1024), (2, 533, 512), (40, 4096)]  # rows of whole pages
    for shape in shapes:
        x = (rng.normal(size=shape) * 100).astype(dtype)
        turned = np.swapaxes(x, -1, -2)
        beside = (rng.normal(size=turned.shape) * 100).astype(dtype)
        row = beside[..., :1, :].copy()

        def f(x, beside, row):
            t = rg.matrix_transpose(x)
            return rg.where(t > row, t, beside) + rg.flip(t, axis=-2)

        want = np.where(turned > row, turned, beside) + np.flip(turned, -2)
        got = ran(f, [x, beside, row], machine)
        assert got.dtype == want.dtype
        assert got.tobytes() == np.ascontiguousarray(want).tobytes()


@pytest.mark.parametrize("kind", KINDS, ids=" ".join)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.usefixtures("stores")
def test_squares_stay_inside_of_what_is_turned_over(machine, kind, rng):
    """Windows and padding: nothing is read beyond the operand's own memory."""
    x = rng.normal(size=(150, 140)).astype(np.float32)
    got = ran(lambda x: rg.pad(rg.matrix_transpose(x[3:, 5:]), 2), [x], machine, **kind)
    np.testing.assert_array_equal(got, np.pad(x[3:, 5:].T, 2))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64"])
@pytest.mark.parametrize("kind", KINDS, ids=" ".join)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.usefixtures("stores")
def test_little_work_on_what_is_turned_over(machine, kind, dtype, rng):
    """Blocks of squares and what is left of them, along both axes; there and back."""
    for shape in [(160, 128), (96, 1600), (1632, 130), (3, 101, 333), (45, 4096), (31, 500)]:
        x = (rng.normal(size=shape) * 100).astype(dtype)
        t = np.swapaxes(x, -1, -2)
        for f, want in (
            (lambda x: rg.matrix_transpose(x) + 1, t + 1),
            (lambda x: rg.flip(rg.matrix_transpose(x), axis=-2) * 2, t[..., ::-1, :] * 2),
            (lambda x: rg.flip(rg.matrix_transpose(x), axis=-1) * 2, t[..., ::-1] * 2),
        ):
            np.testing.assert_array_equal(ran(f, [x], machine, **kind), want)


FENCED = """
import ctypes, mmap
import numpy as np
import retrograd as rg
from retrograd.jit.llvm import loops

loops.PAST = {past}

def fenced(shape, dtype):
    size, page = int(np.prod(shape)) * np.dtype(dtype).itemsize, mmap.PAGESIZE
    room = mmap.mmap(-1, (-(-size // page) + 2) * page)
    memory = np.frombuffer(room, np.uint8)
    first, last = memory.ctypes.data, memory.ctypes.data + memory.size - page
    for fence in (first, last):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(fence), page, 0) == 0
    for start in (page, last - first - size):
        yield memory[start:start + size].view(dtype).reshape(shape)

for dtype in ("float32", "float64"):
    for shape in [(100, 256), (1000, 40), (41, 1024), (17, 1000), (3, 25, 720), (1003, 1024)]:
        for x in fenced(shape, dtype):
            x[...] = np.arange(x.size).reshape(shape)
            t = np.swapaxes(x, -1, -2)
            for f, want in (
                (lambda x: rg.matrix_transpose(x) + 0.0, t),
                (lambda x: rg.tanh(rg.matrix_transpose(x)) * 0.0, t * 0.0),
                (lambda x: rg.flip(rg.matrix_transpose(x), axis=-2) * 2.0, t[..., ::-1, :] * 2),
                (lambda x: rg.cumulative_sum(x, axis=-1) * 0.0, x * 0.0),
            ):
                tensor = rg.asarray(x, copy=False)
                assert np.shares_memory(tensor.array, x)
                np.testing.assert_array_equal(rg.jit(f)(tensor).array, want)
print("inside")
"""


@pytest.mark.skipif(not hasattr(mmap, "PROT_READ"), reason="memory has no fences here")
@pytest.mark.parametrize("past", [0, loops.PAST])
def test_nothing_is_read_outside_of_an_operand(past):
    """Its memory ends with a page behind which is none. In a process that may die of it."""
    command = [sys.executable, "-c", FENCED.replace("{past}", str(past))]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    assert found.stdout == "inside\n", found.stderr[-500:]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS, ids=" ".join)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.usefixtures("stores")
def test_squares_of_operands_that_begin_anywhere_in_a_line(machine, kind, dtype, rng):
    """Squares begin with lines; what is before the first and behind the last is not lost."""
    size = np.dtype(dtype).itemsize
    sizes = [(256, 256), (512, 131), (48, 1024), (333, 512), (512, 336), (1031, 144)]
    for m, n in [*sizes, (1000, 1024)]:
        for skip in (0, 1, 4, 5, 15):
            memory = np.empty(m * n + 64, dtype)
            first = -memory.ctypes.data % 64 // size + skip
            x = memory[first : first + m * n].reshape(m, n)
            x[:] = rng.normal(size=(m, n))
            got = ran(lambda x: rg.matrix_transpose(x) * 2, [x], machine, **kind)
            np.testing.assert_array_equal(got, x.T * 2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("machine", MACHINES)
def test_loops_over_a_row_leave_what_the_next_ones_need(machine, dtype, rng):
    """Rows in whole vectors and not, that fit their memory and do not; many and one."""
    for shape in [(3, 1), (40, 37), (5, 64), (2, 3, 100), (7, 5000), (1200, 1024)]:
        x = (rng.normal(size=shape) * 5).astype(dtype)
        wide = x.astype(np.float64)
        e = np.exp(wide - wide.max(-1, keepdims=True))
        got = ran(rg.nn.softmax, [x], machine)
        assert_close(got, (e / e.sum(-1, keepdims=True)).astype(dtype))

        def f(x):
            t = rg.tanh(x)
            return (t - rg.mean(t, axis=-1, keepdims=True)) * rg.max(t, axis=-1, keepdims=True)

        t = np.tanh(wide)
        want = (t - t.mean(-1, keepdims=True)) * t.max(-1, keepdims=True)
        assert_close(ran(f, [x], machine), want.astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_along_rows_collect_in_vectors(dtype):
    """Of both: to NumPy, float64 == None, which once made these sums run one by one."""
    x = np.ones((5, 64), dtype)
    writer = Writer(graph_of(lambda x: rg.sum(x, axis=-1), [x]), named("avx512"))
    lanes, name = (8, "double") if dtype == "float64" else (16, "float")
    writer.written()
    adds = [t for t in "".join(writer.module.functions.values()).splitlines() if "fadd" in t]
    assert any(f"<{lanes} x {name}>" in t or f"<{2 * lanes} x {name}>" in t for t in adds)
