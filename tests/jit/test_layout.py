"""The pass `layout`: permutations meet and cancel, and what is computed stays the same."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.ir.verify import verify
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.passes import optimized, steps
from retrograd.testing.compare import assert_close
from retrograd.testing.exactly import run_graph

nn = rg.nn
TURNED = (0, 2, 3, 1)


def drawn(rng, *shapes):
    return [rng.normal(size=s).astype(np.float32) for s in shapes]


def after(f, *xs):
    """The graph after all passes, which computes what f does."""

    def flat(*a):
        out = f(*a)
        return list(out) if isinstance(out, (tuple, list)) else [out]

    graph, captured = trace(flat, [spec_of(x) for x in xs])
    wide = [x.astype(np.float64) if x.dtype == np.float32 else x for x in xs]
    wanted = flat(*map(rg.asarray, wide))
    given = [*xs, *(c.array for c in captured)]
    for name, found in steps(graph, kernels_of):
        verify(found)
        for got, want in zip(run_graph(found, given), wanted, strict=True):
            assert_close(got, want.array.astype(got.dtype), what=name)
    return optimized(graph, kernels_of)


def moves(graph, least=0):
    """The permutations of at least so many elements that are left."""
    return [
        n.op.axes
        for n in graph.nodes
        if n.op.name == "permute_dims" and n.specs[0].size >= least
    ]


def test_there_and_back_is_nothing(rng):
    def f(x, b):
        y = rg.tanh(rg.permute_dims(x, (2, 0, 1)) + b)
        return rg.permute_dims(y, (1, 2, 0)) * 2

    assert not moves(after(f, *drawn(rng, (3, 4, 5), ())))


def test_small_operands_are_moved_instead(rng):
    def f(x, b, c):
        y = rg.exp(rg.permute_dims(x, (0, 3, 1, 2)) * b + c)
        return rg.permute_dims(y, TURNED)

    shapes = (2, 8, 9, 16), (16, 1, 1), (1, 16, 1, 1)
    assert not moves(after(f, *drawn(rng, *shapes)), least=17)


def test_reductions_and_broadcasts_go_along(rng):
    def f(x):
        y = rg.permute_dims(x, (0, 3, 1, 2))
        mean = rg.mean(y, axis=(0, 2, 3), keepdims=True)
        most = rg.max(y, axis=(2, 3))[:, :, None, None]
        low = rg.broadcast_to(rg.min(y, axis=2, keepdims=True), y.shape)
        return rg.permute_dims((y - mean) / (1 + rg.abs(most)) + low, TURNED)

    assert not moves(after(f, *drawn(rng, (4, 7, 6, 20))), least=4 * 7 * 6 * 20)


@pytest.mark.parametrize("axis", [0, 1, 2, (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [True, False])
def test_each_reduction_of_a_permutation(axis, keepdims, rng):
    def f(x):
        y = rg.permute_dims(x, (2, 0, 1))
        return rg.sum(y, axis=axis, keepdims=keepdims), rg.max(y, axis=axis)

    after(f, *drawn(rng, (3, 4, 5)))


def test_what_is_mostly_in_order_stays(rng):
    """One permuted operand among three does not turn the others around."""

    def f(x, y, z):
        return rg.permute_dims(x, (1, 0)) + y * 2 + z

    assert moves(after(f, *drawn(rng, (40, 30), (30, 40), (30, 40)))) == [(1, 0)]


def test_a_transposed_product_is_a_product_of_transposes(rng):
    def f(x, w):
        return rg.exp(rg.permute_dims(x @ w, (1, 0)))

    graph = after(f, *drawn(rng, (6, 5), (5, 7)))
    assert [n.op.name for n in graph.nodes][-2:] == ["matmul", "exp"]
    assert graph.nodes[-2].specs[0].shape == (7, 6)


def test_a_product_for_others_too_is_computed_once(rng):
    def f(x, w):
        y = x @ w
        return rg.permute_dims(y, (1, 0)) + 1, rg.exp(y)

    graph = after(f, *drawn(rng, (6, 5), (5, 7)))
    assert sum(n.op.name == "matmul" for n in graph.nodes) == 1


def _norm(h):
    away = h - rg.mean(h, axis=(0, 2, 3), keepdims=True)
    return away * rg.rsqrt(rg.mean(away * away, axis=(0, 2, 3), keepdims=True) + 1e-5)


def _net(w1, w2, b, x):
    """Channels second, as a user from elsewhere writes it."""
    h = nn.relu(_norm(nn.conv(x, w1, padding=1, layout="NCHW")) + b[:, None, None])
    h = nn.relu(_norm(nn.conv(h, w2, padding=1, layout="NCHW")) + h)
    return rg.sum(rg.mean(nn.max_pool(h, 2, layout="NCHW"), axis=(2, 3)) ** 2)


def test_a_network_with_channels_second_moves_only_its_images(rng):
    w1, w2, b, x = drawn(rng, (3, 3, 16, 24), (3, 3, 24, 24), (24,), (4, 16, 8, 8))

    def f(w1, w2, b, x):
        value, grads = rg.value_and_grad(_net, argnums=(0, 1, 2))(w1, w2, b, x)
        return value, *grads

    graph = after(f, w1 * 0.1, w2 * 0.1, b, x)
    inside = [n for n in graph.nodes if n.op.name == "permute_dims" and n.inputs[0] > 3]
    assert sum(n.specs[0].size >= 4 * 8 * 8 * 16 for n in inside) == 0
    assert moves(graph, least=x.size) == [TURNED]


def test_random_numbers_stay_where_they_are(rng):
    def f(x):
        key = rg.random.key(3)
        y = rg.permute_dims(x, (1, 0))
        return rg.permute_dims(nn.dropout(key, y), (1, 0))

    (x,) = drawn(rng, (8, 5))
    graph, _ = trace(lambda x: [f(x)], [spec_of(x)])
    got = run_graph(optimized(graph, kernels_of), [x])
    np.testing.assert_array_equal(got[0], f(rg.asarray(x)).array)
