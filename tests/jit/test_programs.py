"""Whole programs: eager = traced = after each pass = compiled, for all widths and threads."""

import numpy as np
import pytest
from hypothesis import given, settings

import retrograd as rg
from retrograd.core.exact import Exact
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.ir.verify import verify
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.jit.llvm import machine
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.passes import steps
from retrograd.ops.literal import Literal
from retrograd.testing import assert_close
from retrograd.testing.exactly import bits, run_graph
from retrograd.testing.strategies import graphs, programs

for namespace in rg.__all__:
    getattr(rg, namespace)

WIDTHS = [machine.named(name) for name in machine.here()]
SMALL = settings(max_examples=settings.default.max_examples // 2)


def pure(kind):
    """Ops whose results depend on their operands alone."""
    return not kind.effect and not kind.bodied


def same(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert_close(a, b)


def same_bits(found, wanted):
    assert [bits(a) for a in found] == [bits(b) for b in wanted]


def everywhere(graph, arrays, wanted):
    """Each pass keeps the values; each width computes them; threads do not change a bit."""
    for _, after in steps(graph, kernels_of):
        same(run_graph(verify(after), arrays), wanted)
    for width in WIDTHS:
        program = compiled(graph, machine=width)
        one = Executable(program, 1)(arrays)
        same(one, wanted)
        for threads in (2, 3):
            same_bits(Executable(program, threads)(arrays), one)


@SMALL
@given(graphs(max_nodes=5, keep=pure))
def test_graphs_of_all_ops(case):
    everywhere(case.graph, case.arrays, run_graph(case.graph, case.arrays))


@SMALL
@given(program=programs(max_steps=10))
def test_programs_as_people_write_them(program):
    """Eager, traced and compiled, with the gradient; in double precision."""
    xs = program.samples(np.random.default_rng(3))
    arrays = [x.array for x in xs]

    def both(*xs):
        value, grads = rg.value_and_grad(lambda xs: program(*xs))(list(xs))
        return [value, *grads]

    graph, captured = trace(both, [spec_of(a) for a in arrays])
    assert not captured
    wanted = [np.asarray(t.array) for t in both(*xs)]
    same(run_graph(graph, arrays), wanted)
    everywhere(graph, arrays, wanted)


def test_constants_of_equal_bytes():
    """Constants that are equal as bytes and differ in shape or dtype, in one kernel."""
    values = np.array([[1.0, 2.0], [3.0, 4.0]])

    def f(x):
        flat, rows, columns, whole = (
            rg.apply(Literal(Exact(v)))
            for v in (values, values[:, None], values[:, :, None], values.view(np.int64))
        )
        return [x * flat, x * rows + columns * x, x + (whole > 0)]

    x = np.arange(4.0).reshape(2, 2)
    graph, _ = trace(f, [spec_of(x)])
    everywhere(graph, [x], [np.asarray(t.array) for t in f(rg.asarray(x))])


# -- large arrays: work is cut into chunks ---------------------------------------------------


def array(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def sums(x):
    return rg.sum(x), rg.sum(x, axis=0), rg.mean(x, axis=1), rg.max(x), rg.argmax(x, axis=1)


def softmax(x):
    return rg.nn.softmax(x, axis=-1), rg.logsumexp(x, axis=0), rg.nn.log_softmax(x, axis=0)


def norms(x, g, b):
    return rg.nn.layer_norm(x, g, b), rg.std(x, axis=0)


def products(x, w, v):
    h = rg.nn.gelu(x @ w + v)
    return h @ w.T, h.T @ x, rg.einsum("ij,kj->ik", x, x)


def scattered(x, i):
    total = rg.zeros((50, x.shape[1])).at[i].add(x)
    return total, rg.take(total, i, axis=0), x.at[i[:100] % 40].max(x[:100])


def cumulative(x):
    return rg.cumulative_sum(x, axis=0), rg.cumulative_sum(x, axis=1), rg.sort(x, axis=0)


def pairs(x, y):
    return rg.sum(rg.exp(-(rg.abs(x[:, None, :] - y[None, :, :]))), axis=(1, 2))


def convolved(x, w):
    return (rg.nn.relu(rg.nn.conv(x, w, padding="same")),)


def trained(x, w, v):
    def loss(p):
        return rg.mean((rg.tanh(x @ p[0]) @ p[1] - x[:, :1]) ** 2)

    value, grads = rg.value_and_grad(loss)([w, v])
    return value, *grads


LARGE = {
    "sums": (sums, [(517, 301)]),
    "softmax": (softmax, [(517, 301)]),
    "norms": (norms, [(517, 301), (301,), (301,)]),
    "products": (products, [(257, 190), (190, 131), (131,)]),
    "scatter": (scattered, [(3000, 33), "indices"]),
    "cumulative": (cumulative, [(517, 133)]),
    "pairs": (pairs, [(150, 7), (170, 7)]),
    "convolution": (convolved, [(5, 37, 31, 8), (3, 3, 8, 19)]),
    "training": (trained, [(401, 90), (90, 70), (70, 1)]),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_programs(name, rng):
    f, shapes = LARGE[name]
    arrays = [rng.integers(0, 50, 3000) if s == "indices" else array(rng, *s) for s in shapes]
    graph, captured = trace(lambda *xs: list(f(*xs)), [spec_of(a) for a in arrays])
    arrays += [t.array for t in captured]
    exact = [a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays]
    wanted = f(*map(rg.asarray, exact[: len(shapes)]))
    chunks = []
    for width in WIDTHS:
        program = compiled(graph, machine=width)
        chunks += [s.info.chunks for s in program.steps if s.info is not None]
        one = Executable(program, 1)(arrays)
        for a, b in zip(one, wanted, strict=True):
            if np.asarray(b).dtype.kind in "iu":
                assert np.array_equal(a, b)
            else:
                assert_close(a, np.asarray(b).astype(np.float32))
        for threads in (2, 3, 5):
            same_bits(Executable(program, threads)(arrays), one)
    assert max(chunks) > 1


def test_the_same_program_again_gives_the_same_bits(rng):
    """From call to call, whatever the arena held before."""
    f, shapes = LARGE["training"]
    arrays = [array(rng, *s) for s in shapes]
    graph, _ = trace(lambda *xs: list(f(*xs)), [spec_of(a) for a in arrays])
    run = Executable(compiled(graph), 2)
    first = run(arrays)
    for _ in range(5):
        run([a + 1 for a in arrays])
        same_bits(run(arrays), first)


# -- shapes and memory that are odd ----------------------------------------------------------


def at_odd_address(a):
    """The same values at an address that is a multiple of nothing."""
    memory = np.empty(a.nbytes + 65, np.uint8)
    start = (1 - memory.ctypes.data) % 64
    out = memory[start : start + a.nbytes].view(a.dtype).reshape(a.shape)
    out[...] = a
    return out


def at_element_address(a):
    """Aligned to its elements, and to no vector."""
    memory = np.empty(a.size + 17, a.dtype)
    start = (-memory.ctypes.data // a.itemsize) % 16 + 1
    out = memory[start : start + a.size].reshape(a.shape)
    out[...] = a
    return out


def backwards(a):
    return np.ascontiguousarray(a[tuple(slice(None, None, -1) for _ in a.shape)])[
        tuple(slice(None, None, -1) for _ in a.shape)
    ]


def spread(a):
    out = np.empty([2 * n for n in a.shape], a.dtype)[
        tuple(slice(None, None, 2) for _ in a.shape)
    ]
    out[...] = a
    return out


ODD = {
    "odd address": at_odd_address,
    "odd elements": at_element_address,
    "backwards": backwards,
    "spread": spread,
    "columns": np.asfortranarray,
    "read-only": lambda a: np.broadcast_to(a, a.shape),
    "other order of bytes": lambda a: a.astype(a.dtype.newbyteorder(">")),
}


def mixed(x, w):
    return rg.tanh(x) @ w + rg.sum(x, axis=1, keepdims=True), rg.nn.softmax(x, axis=0)


@pytest.mark.parametrize("how", ODD)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inputs_in_odd_memory(how, dtype, rng):
    x, w = rng.normal(size=(37, 29)).astype(dtype), rng.normal(size=(29, 31)).astype(dtype)
    f = rg.jit(mixed)
    found = f(ODD[how](x), ODD[how](w))
    same_bits([t.array for t in found], [t.array for t in f(x, w)])
    if how != "other order of bytes":
        shared = [rg.asarray(ODD[how](a), copy=False) for a in (x, w)]
        same_bits([t.array for t in f(*shared)], [t.array for t in found])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (1, 5), (5, 1), (0, 0)])
def test_axes_of_no_and_of_one_element(shape, rng):
    x = rng.normal(size=shape)

    def f(x):
        out = [x * 2, rg.sum(x), rg.sum(x, axis=0), rg.mean(x * x, axis=1), x @ x.T, x.T @ x]
        out += [
            rg.concat([x, x]),
            rg.cumulative_sum(x, axis=0),
            x[::-1],
            rg.reshape(x, (-1, 1)),
        ]
        return [*out, rg.grad(lambda x: rg.sum(rg.sin(x @ x.T)))(x)]

    everywhere(trace(f, [spec_of(x)])[0], [x], [np.asarray(t.array) for t in f(rg.asarray(x))])


@pytest.mark.slow
@SMALL  # half of the examples: each is compiled for every width
@given(graphs(max_nodes=12, keep=pure))
def test_long_graphs_of_all_ops(case):
    everywhere(case.graph, case.arrays, run_graph(case.graph, case.arrays))
