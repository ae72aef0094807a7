"""What becomes one kernel, what is never in memory, and that it is right at real sizes."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import named
from retrograd.jit.llvm.native import object_code
from retrograd.jit.llvm.program import Writer
from retrograd.jit.passes import optimized
from retrograd.testing.compare import assert_close

nn = rg.nn


def arrays(*shapes):
    rng = np.random.default_rng(0)
    return [rng.normal(size=s).astype(np.float32) for s in shapes]


def compare(f, *xs):
    """The program of f, after its results were found to be the eager ones."""

    def flat(*a):
        out = f(*a)
        return list(out) if isinstance(out, (tuple, list)) else [out]

    graph, captured = trace(flat, [spec_of(x) for x in xs])
    program = compiled(graph)
    found = Executable(program)([*xs, *(c.array for c in captured)])
    for got, want in zip(found, flat(*map(rg.asarray, xs)), strict=True):
        assert_close(got, want.array)
    return program


def kinds(program):
    return [s.what for s in program.steps]


def test_a_chain_is_one_kernel():
    def chain(x, y):
        for _ in range(10):
            x = rg.tanh(x) * y + 0.5 * x
        return x

    program = compare(chain, *arrays((300, 70), (300, 70)))
    assert kinds(program) == ["loops"]
    assert program.arena == 0


@pytest.mark.parametrize("f", [nn.softmax, nn.log_softmax, nn.layer_norm, nn.rms_norm])
def test_a_row_op_is_one_kernel(f):
    program = compare(f, *arrays((257, 130)))
    assert kinds(program) == ["loops"]
    assert program.arena == 0


def test_the_gradient_of_a_row_op_is_one_kernel():
    def f(x, w):
        return rg.grad(lambda x: rg.sum(nn.softmax(nn.layer_norm(x)) * w))(x)

    assert kinds(compare(f, *arrays((200, 96), (200, 96)))) == ["loops"]


def test_kernels_over_the_same_rows_are_one_though_they_start_on_different_arrays():
    def f(x, y):
        apart = x - rg.mean(x, axis=1, keepdims=True)
        columns = rg.sum(apart, axis=0)
        other = y - rg.mean(y, axis=1, keepdims=True)
        return columns, other * apart

    program = compare(f, *arrays((50, 130), (50, 130)))
    assert kinds(program) == ["loops", "loops"], "rows, and columns"


def test_rows_of_several_axes():
    compare(lambda x: rg.sum(x * x, axis=(0, 2)), *arrays((9, 33, 17)))
    compare(lambda x: nn.softmax(x, axis=1), *arrays((9, 33, 17)))
    compare(lambda x: x / rg.sum(x * x, axis=(1, 2), keepdims=True), *arrays((9, 33, 17)))


def test_what_follows_a_product_is_done_while_it_is_stored():
    def layer(x, w, b):
        return nn.gelu(x @ w + b)

    program = compare(layer, *arrays((67, 40), (40, 90), (90,)))
    assert kinds(program) == ["gemm"]
    assert program.arena == 0


def test_a_product_that_others_read_is_kept_beside_what_follows():
    def layer(x, w):
        z = x @ w
        return rg.tanh(z), rg.sum(z, axis=0), z * 2

    program = compare(layer, *arrays((67, 40), (40, 90)))
    assert kinds(program) == ["gemm", "loops"]


def test_batched_products_and_what_follows():
    compare(lambda x, w, s: rg.exp(x @ w) * s, *arrays((3, 4, 20, 8), (4, 8, 30), (4, 20, 1)))
    compare(lambda x, w: (x @ w).mT * 2, *arrays((5, 20, 8), (8, 30)))


def test_operands_of_products_are_read_where_they_are():
    def f(x, w):
        return rg.permute_dims(x, (2, 0, 1))[1:, ::2] @ w.mT

    program = compare(f, *arrays((6, 20, 7), (9, 20)))
    assert kinds(program) == ["gemm"]


def test_pairs_are_never_in_memory():
    def near(x):
        d = x[:, None, :] - x[None, :, :]
        return rg.sum(rg.exp(-rg.sum(d * d, axis=-1)), axis=1)

    n = 400
    program = compare(near, *arrays((n, 3)))
    assert program.arena < n * n * 4


def test_an_operand_that_many_read_across_its_rows_is_turned_once():
    def far(x, y):
        return rg.sum((x[:, :, None] - y.T[None]) ** 2, axis=1)

    assert kinds(compare(far, *arrays((200, 5), (300, 5)))) == ["loops", "loops"]
    assert kinds(compare(far, *arrays((20, 5), (300, 5)))) == ["loops"]


@pytest.mark.parametrize("shape", [(4096, 64), (131072,), (64, 1024, 2), (65537,)])
def test_long_reductions(shape):
    (x,) = arrays(shape)
    compare(lambda x: rg.sum(x * x), x)
    compare(rg.max, x)
    compare(lambda x: rg.mean(x, axis=0), x)


@pytest.mark.parametrize("count", [128 * 1000, 32 * 1237, 40_007])
def test_the_mean_of_a_long_chain_and_its_gradient(count):
    """Two vectors go side by side; where parts are equal, the sums of them are in the loop."""

    def loss(x):
        y = rg.tanh(rg.sin(x) * x) * rg.exp(-x * x)
        y = nn.sigmoid(y) * rg.log1p(rg.abs(y))
        return rg.mean(rg.cos(y) * y)

    program = compare(rg.value_and_grad(loss), *arrays((count,)))
    if count % 32 == 0:
        assert program.arena < 4 * count


def test_sums_of_all_are_made_in_the_kernel_of_rows():
    def loss(x, w):
        return rg.sum(nn.softmax(nn.layer_norm(x, w, w)) * x)

    program = compare(loss, *arrays((300, 200), (200,)))
    assert kinds(program) == ["loops", "loops"]
    assert program.arena < 4 * 1024


def test_lanes_are_not_left_idle_by_a_narrow_axis():
    def apart(z, heads, tails, w):
        between = rg.take(z, heads, axis=0) - rg.take(z, tails, axis=0)
        return between * rg.expand_dims(rg.tanh(w), axis=1)

    rng = np.random.default_rng(0)
    places = [rng.integers(0, 50, 1003) for _ in range(2)]
    z, w = arrays((50, 2), (1003,))
    compare(apart, z, *places, w)


def test_a_short_last_axis_is_no_loop_of_its_own():
    program = compare(lambda x: rg.tanh(x) + 1, *arrays((64, 40, 3)))
    assert "masked" not in program.text  # one row of 64 * 40 * 3, which vectors divide


def test_equal_layers_share_their_kernels():
    def deep(x, ws):
        for i in range(6):
            x = nn.relu(x @ ws[i])
        return x

    few = compare(lambda x, ws: nn.relu(x @ ws[0]), *arrays((32, 48), (6, 48, 48)))
    many = compare(deep, *arrays((32, 48), (6, 48, 48)))
    assert len(many.text) < 2 * len(few.text)


def test_memory_is_used_again():
    def deep(x, w):
        for _ in range(20):
            x = nn.softmax(x @ w)
        return x

    program = compare(deep, *arrays((64, 64), (64, 64)))
    assert program.arena <= 3 * 64 * 64 * 4


def test_duplicate_targets_add_up():
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 50, 3000)

    def f(w):
        return rg.grad(lambda w: rg.sum(rg.embedding(ids, w) ** 2))(w)

    compare(f, *arrays((50, 33)))


def made(program):
    """The ops of each step, by the step's name."""
    return [(s.what, [s.graph.nodes[n].op.name for n in s.nodes]) for s in program.steps]


CONVS = {  # x, w, options
    "3 x 3": ((2, 9, 7, 16), (3, 3, 16, 24), {"padding": 1}),
    "1 x 1": ((2, 9, 7, 16), (1, 1, 16, 24), {}),
    "1 x 1, wide": ((2, 9, 7, 128), (1, 1, 128, 130), {}),
    "strided": ((2, 9, 7, 5), (3, 3, 5, 7), {"stride": 2, "padding": 1}),
    "depthwise": ((2, 9, 7, 18), (3, 3, 1, 18), {"padding": 1, "groups": 18}),
    "depthwise, strided": ((2, 9, 7, 32), (3, 3, 1, 32), {"stride": 2, "groups": 32}),
    "small images": ((6, 3, 3, 16), (3, 3, 16, 32), {"padding": 1}),
    "sequence": ((2, 30, 8), (4, 8, 1), {"padding": 2}),
    "volume": ((2, 5, 4, 6, 4), (3, 3, 3, 4, 6), {"padding": 1}),
}


@pytest.mark.parametrize("case", CONVS.values(), ids=CONVS)
def test_what_follows_a_convolution_is_done_while_it_is_stored(case):
    """Batch norm as it is evaluated: a scale and a shift, then the residual and relu."""
    x, w, options = case

    def f(x, w, scale, shift, rest):
        return nn.relu(nn.conv(x, w, **options) * scale + shift + rest)

    out = nn.conv(rg.zeros(x), rg.zeros(w), **options).shape
    program = compare(f, *arrays(x, w, w[-1:], w[-1:], out))
    ((what, ops),) = made(program)
    assert what == "conv"
    assert ops[0] == "conv"
    assert ops[-1] == "relu"


@pytest.mark.parametrize("case", CONVS.values(), ids=CONVS)
def test_a_mask_is_applied_to_a_gradient_while_it_is_stored(case):
    x, w, options = case

    def f(x, w, g, more):
        h = nn.relu(x)
        (back,) = rg.vjp(lambda h: nn.conv(h, w, **options), h)[1](g)
        masked = rg.where(h > 0, back + more, 0.0)
        return rg.sum(masked, axis=-1), rg.sum(masked * h)

    out = nn.conv(rg.zeros(x), rg.zeros(w), **options).shape
    program = compare(f, *arrays(x, w, out, x))
    found = dict(made(program))
    assert found["conv_input"][0] == "conv_input"
    assert "where" in found["conv_input"]


def test_a_dear_epilogue():
    def f(x, w):
        y = nn.conv(x, w, padding=1)
        return nn.gelu(y), y

    assert kinds(compare(f, *arrays((2, 9, 7, 16), (3, 3, 16, 40)))) == ["conv"]


def test_what_follows_a_pool_is_done_while_it_is_stored():
    def f(x, b):
        return rg.tanh(nn.avg_pool(x, 2) + b), nn.relu(nn.max_pool(x, 3, stride=2, padding=1))

    assert kinds(compare(f, *arrays((2, 9, 7, 19), (19,)))) == ["window_sum", "max_pool"]


def test_equal_layers_share_the_kernels_of_convolutions():
    def f(x, w, b):
        for _ in range(4):
            x = nn.relu(nn.conv(x, w, padding=1) + b)
        return x

    program = compare(f, *arrays((1, 9, 9, 16), (3, 3, 16, 16), (16,)))
    assert len({s.info.name for s in program.steps if s.what == "conv"}) == 1


BATCHES = [(16, 12, 12, 20), (8, 300, 5), (9, 50, 42, 3), (64, 8, 8, 64), (3000, 40)]


@pytest.mark.parametrize("shape", BATCHES, ids=str)
def test_batch_norm_and_its_gradient(shape):
    """Against float64, with a mean that is large beside the spread."""
    x, w, b, g = arrays(shape, shape[-1:], shape[-1:], shape)

    def f(x, w, b, g):
        start = rg.zeros_like(w), rg.ones_like(w)

        def norm(x, w, b):
            return nn.batch_norm(x, *start, w, b, training=True)

        (y, mean, var), back = rg.vjp(norm, x, w, b)
        return [y, mean, var, *back((g, rg.zeros_like(mean), rg.zeros_like(var)))]

    given = (x * 3 + 20, w, b, g)
    found = rg.jit(f)(*map(rg.asarray, given))
    wanted = f(*(rg.asarray(a.astype(np.float64)) for a in given))
    for got, want in zip(found, wanted, strict=True):
        size = np.abs(want.array).max()
        assert_close(got.array / size, (want.array / size).astype(np.float32))


def step(x, w, y):
    def loss(w):
        image = rg.reshape(nn.gelu(x @ w), (4, 5, 6, 3))
        return nn.cross_entropy(rg.sum(nn.conv(image, K), axis=(1, 2)), y)

    value, g = rg.value_and_grad(loss)(w)
    return [value, w - 0.1 * g, rg.cumulative_sum(g, axis=0), rg.max(g, axis=1)]


K = np.ones((2, 2, 3, 7), np.float32)


@pytest.mark.parametrize("name", ["avx512", "avx2", "sse2", "neon"])
def test_programs_are_written_for_machines_that_are_not_here(name):
    x, w = arrays((4, 20), (20, 90))
    graph, _ = trace(step, [*map(spec_of, (x, w)), spec_of(np.zeros(4, np.int64))])
    writer = Writer(optimized(graph, kernels_of), named(name))
    writer.written()
    assert len(object_code(writer.module)) > 1000
