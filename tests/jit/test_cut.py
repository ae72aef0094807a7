"""Loops that are cut where views cut their index: strides in place of divisions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.jit.fuse import Fusion
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.loops.analyse import accesses
from retrograd.jit.loops.cut import finer
from retrograd.jit.passes import optimized
from retrograd.jit.steps import Loops


def numbered(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def kernels(f, *xs):
    graph, _ = trace(lambda *a: [f(*a)], [spec_of(x) for x in xs])
    steps = Fusion(optimized(graph, kernels_of)).run()
    return [s.kernel for s in steps if isinstance(s, Loops)]


def agrees(f, *xs):
    graph, _ = trace(lambda *a: [f(*a)], [spec_of(x) for x in xs])
    (found,) = Executable(compiled(graph))(list(xs))
    np.testing.assert_array_equal(found, f(*map(rg.asarray, xs)).array)


def heads(x):
    """Heads beside each other again."""
    b, h, t, d = x.shape
    return rg.reshape(rg.permute_dims(x, (0, 2, 1, 3)), (b, t, h * d))


MERGED = {
    "heads": (heads, (2, 3, 40, 32)),
    "all": (lambda x: rg.reshape(rg.permute_dims(x, (2, 0, 1)), (-1,)), (24, 32, 48)),
    "in three": (lambda x: rg.reshape(rg.permute_dims(x, (3, 1, 2, 0)), (-1,)), (16, 3, 5, 7)),
    "two at once": (
        lambda x: rg.reshape(rg.permute_dims(x, (1, 0, 3, 2)), (15, 17 * 32)),
        (3, 5, 32, 17),
    ),
    "beside another": (lambda x: heads(x) * 2.0 + rg.flip(heads(x), axis=1), (2, 3, 8, 16)),
    "tiled": (lambda x: rg.tile(x, (3, 4)), (5, 32)),
}


@pytest.mark.parametrize("name", MERGED)
def test_merged_axes_are_read_by_strides(name):
    f, shape = MERGED[name]
    x = numbered(*shape)
    (kernel,) = kernels(f, x)
    assert all(ix.affine for ix in accesses(kernel.body))
    agrees(f, x)


def test_short_pieces_of_the_last_axis_stay_one():
    def f(x):
        return rg.reshape(rg.permute_dims(x, (1, 0)), (-1,))

    (kernel,) = kernels(f, numbered(3, 700))
    assert [a.extent for a in kernel.axes] == [2100]
    agrees(f, numbered(3, 700))


def test_what_is_repeated_is_no_reason_to_cut():
    (kernel,) = kernels(lambda x: rg.repeat(x, 16, axis=1), numbered(8, 32))
    assert len(kernel.axes) == 2


def test_views_whose_cuts_do_not_meet_are_read_all_the_same():
    def f(x):
        x = rg.reshape(rg.permute_dims(x, (1, 0)), (60, 28))
        return rg.reshape(rg.permute_dims(x, (1, 0)), (35, 48))

    agrees(f, numbered(42, 40))


@given(st.permutations(range(4)), st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_any_order_and_any_axes_merged(order, first, last, rows):
    shape = (4, 3, 16, 5)
    low, high = sorted((first, last))

    def f(x):
        x = rg.permute_dims(x, tuple(order))
        s = x.shape
        x = rg.reshape(x, (*s[:low], int(np.prod(s[low : high + 1])), *s[high + 1 :]))
        return rg.cumulative_sum(x, axis=-1) if rows else x + 1.0

    agrees(f, numbered(*shape))


def test_a_shape_is_finer_if_some_of_its_axes_are_cut():
    assert finer((2, 3, 4), (6, 4))
    assert finer((2, 3, 4), (24,))
    assert finer((6, 1, 4), (6, 4))
    assert not finer((6, 4), (4, 6))
    assert not finer((6, 4), (2, 3, 4))
    assert not finer((0, 3), (0,))
