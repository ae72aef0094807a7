"""Shapes and orders of axes, against NumPy; both orders of derivative by the table."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import retrograd as rg
from retrograd.core.errors import ArgumentError, BoundsError, DtypeError, ShapeError
from retrograd.core.tensor import Tensor
from retrograd.testing.check import check_grads

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
arrays = hnp.arrays(np.int64, SHAPES, elements=st.integers(-9, 9))
matrices = hnp.arrays(
    np.int64,
    hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4),
    elements=st.integers(-9, 9),
)


def same(found, wanted):
    """Equal to the bit, in shape and dtype."""
    wanted = np.asarray(wanted)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found.array, wanted)


def axis_of(data, x):
    return data.draw(st.integers(-x.ndim, x.ndim - 1))


# -- against NumPy -------------------------------------------------------------------------


@given(arrays, st.data())
def test_permute_dims_and_its_relatives(x, data):
    order = data.draw(st.permutations(range(x.ndim)))
    same(rg.permute_dims(x, tuple(order)), np.transpose(x, order))
    same(rg.transpose(x), x.T)


@given(matrices, st.data())
def test_moveaxis_and_swapaxes(x, data):
    a, b = axis_of(data, x), axis_of(data, x)
    same(rg.moveaxis(x, a, b), np.moveaxis(x, a, b))
    same(rg.swapaxes(x, a, b), np.swapaxes(x, a, b))


@given(arrays, st.data())
def test_expand_dims_and_squeeze(x, data):
    axis = data.draw(st.integers(-x.ndim - 1, x.ndim))
    wide = np.expand_dims(x, axis)
    same(rg.expand_dims(x, axis=axis), wide)
    same(rg.squeeze(wide, axis), np.squeeze(wide, axis))
    same(rg.squeeze(wide), np.squeeze(wide))


@given(arrays)
def test_flatten(x):
    same(rg.flatten(x), x.reshape(-1))
    same(rg.ravel(x), x.reshape(-1))
    same(rg.atleast_1d(x), np.atleast_1d(x))
    same(rg.atleast_2d(x), np.atleast_2d(x))


def test_flatten_some_axes():
    x = np.arange(24).reshape(2, 3, 4)
    same(rg.flatten(x, start=1), x.reshape(2, 12))
    same(rg.flatten(x, end=1), x.reshape(6, 4))
    same(rg.flatten(x, start=-2, end=-2), x)


@given(hnp.mutually_broadcastable_shapes(num_shapes=3, min_side=0, max_dims=4))
def test_broadcast_arrays(shapes):
    xs = [np.arange(np.prod(s)).reshape(s) for s in shapes.input_shapes]
    for found, wanted in zip(rg.broadcast_arrays(*xs), np.broadcast_arrays(*xs), strict=True):
        same(found, wanted)


@given(matrices, st.data())
def test_flip_and_roll(x, data):
    axis, by = axis_of(data, x), data.draw(st.integers(-9, 9))
    same(rg.flip(x, axis=axis), np.flip(x, axis))
    same(rg.flip(x), np.flip(x))
    same(rg.roll(x, by, axis=axis), np.roll(x, by, axis))
    same(rg.roll(x, by), np.roll(x, by))
    same(rg.roll(x, (by, 1), axis=(axis, axis)), np.roll(x, (by, 1), (axis, axis)))


@given(arrays, hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=3))
def test_tile(x, times):
    same(rg.tile(x, times), np.tile(x, times))


@given(matrices, st.integers(0, 3), st.data())
def test_repeat(x, times, data):
    axis = axis_of(data, x)
    same(rg.repeat(x, times, axis=axis), np.repeat(x, times, axis))
    same(rg.repeat(x, times), np.repeat(x, times))
    counts = data.draw(hnp.arrays(np.int64, x.shape[axis], elements=st.integers(0, 3)))
    same(rg.repeat(x, counts, axis=axis), np.repeat(x, counts, axis))
    same(rg.repeat(x, rg.asarray(counts), axis=axis), np.repeat(x, counts, axis))


@pytest.mark.parametrize("k", range(-1, 5))
@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (2, 0)])
def test_rot90(k, axes):
    x = np.arange(24).reshape(2, 3, 4)
    same(rg.rot90(x, k, axes), np.rot90(x, k, axes))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.roll(x, 1),
        lambda x: np.roll(x, 1, 0),
        lambda x: np.repeat(x, 2),
        lambda x: np.repeat(x, 2, 1),
        lambda x: np.repeat(x, [1, 2], axis=0),
        lambda x: np.tile(x, 2),
        lambda x: np.pad(x, 1),
        lambda x: np.pad(x, ((0, 1), (2, 0), (0, 0)), "edge"),
        lambda x: np.split(x, 2)[1],
        lambda x: np.split(x, 3, 1)[2],
        lambda x: np.concatenate([x, x], 1),
        lambda x: np.stack([x, x], 1),
        lambda x: np.flip(x, 1),
        lambda x: np.rot90(x, 1),
        lambda x: np.moveaxis(x, 0, 2),
        lambda x: np.swapaxes(x, 0, 1),
        lambda x: np.expand_dims(x, 1),
        lambda x: np.squeeze(x[:1], 0),
        lambda x: np.transpose(x, (1, 2, 0)),
        np.diagonal,
        np.trace,
        np.tril,
        lambda x: np.einsum("ijk,lmk->il", x, x),
        lambda x: np.tensordot(x, x, axes=((1, 2), (1, 2))),
        lambda x: np.kron(x, x),
        lambda x: np.dot(x, x[0].T),
    ],
)
def test_numpys_functions_mean_on_tensors_what_they_mean_on_arrays(f):
    x = np.arange(24.0).reshape(2, 3, 4)
    found = f(rg.asarray(x))
    assert isinstance(found, Tensor)
    same(found, f(x))


def test_numpys_split_at_places_is_not_our_split_by_lengths():
    with pytest.raises(DtypeError, match="split at places"):
        np.split(rg.asarray(np.ones(4)), [1, 3])


# -- derivatives of what is composed ---------------------------------------------------------


@pytest.mark.parametrize(
    "f",
    [
        lambda x: rg.repeat(x, 3, axis=1),
        lambda x: rg.repeat(x, [2, 0, 1], axis=1),
        lambda x: rg.tile(x, (2, 1, 2)),
        lambda x: rg.roll(x, 4),
        lambda x: rg.rot90(x, 3),
        lambda x: rg.squeeze(rg.expand_dims(x, axis=(0, 2)), (0, 2)),
        lambda x: rg.broadcast_arrays(x, np.ones((4, 1, 1)))[0],
        rg.flatten,
    ],
)
def test_derivatives(f, rng):
    check_grads(f, rng.normal(size=(2, 3)))


def test_n12_a_three_cycle_of_axes_is_right_in_second_order(rng):
    """The inverse of a permutation that is not its own inverse, applied once and not twice."""
    x, w = rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 2, 3))

    def f(v):
        return rg.sum(rg.permute_dims(v, (2, 0, 1)) * w * rg.permute_dims(v, (2, 0, 1)))

    check_grads(lambda v: rg.permute_dims(v, (2, 0, 1)), x)
    gradient = rg.grad(lambda v: rg.sum(rg.grad(f)(v) * x))(rg.asarray(x))
    np.testing.assert_allclose(gradient.array, 2 * np.transpose(w, (1, 2, 0)) * x)


def test_y22_without_axes_and_without_elements():
    number, nothing = np.array(5.0), np.zeros((0, 3))
    same(rg.repeat(number, 2), np.repeat(number, 2))
    same(rg.tile(number, 2), np.tile(number, 2))
    same(rg.flatten(nothing), nothing.reshape(0))
    same(rg.flip(number), number)
    same(rg.roll(number, 1), number)
    for f in (lambda x: rg.repeat(x, 2), lambda x: rg.tile(x, (2, 1)), rg.flatten):
        x = rg.tensor(nothing, requires_grad=True)
        rg.sum(f(x)).backward()
        assert x.grad.shape == (0, 3)
    x = rg.tensor(number, requires_grad=True)
    rg.sum(rg.repeat(x, 3)).backward()
    assert x.grad.item() == 3
    with pytest.raises(ArgumentError, match="repeat: axis 0 is outside"):
        rg.repeat(number, 2, axis=0)


def test_y26_broadcasting_against_no_elements_has_a_gradient():
    a = rg.tensor(np.ones((0, 3)), requires_grad=True)
    b = rg.tensor(np.ones((1, 3)), requires_grad=True)
    rg.sum(a + b).backward()
    same(a.grad, np.zeros((0, 3)))
    same(b.grad, np.zeros((1, 3)))


def test_n6_a_cast_to_the_same_dtype_is_the_same_tensor(rng):
    x = rg.tensor(rng.normal(size=3), requires_grad=True)
    y = x * x
    assert y.astype(np.float64)._node is y._node
    for product in (y * y.astype(np.float64), y.astype(np.float64) * y):  # in either order
        x.grad = None
        rg.sum(product).backward(retain_graph=True)
        np.testing.assert_allclose(x.grad.array, 4 * x.array**3)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: rg.reshape(x, (2, 3)),
        lambda x: rg.broadcast_to(x, (2, 3)),
        lambda x: rg.permute_dims(x, (0, 1)),
        lambda x: rg.flip(x, axis=()),
        lambda x: rg.roll(x, 0, axis=()),
        lambda x: rg.rot90(x, 4),
        lambda x: rg.pad(x, 0),
        lambda x: rg.tile(x, 1),
        lambda x: rg.einsum("ij->ij", x),
        rg.atleast_1d,
        rg.atleast_2d,
    ],
)
def test_where_nothing_changes_the_result_is_still_another_tensor(f, rng):
    x = rg.asarray(rng.normal(size=(2, 3)))
    before = x.array.copy()
    y = f(x)
    y[0, 0] = 7
    assert y.array[0, 0] == 7
    np.testing.assert_array_equal(x.array, before)


# -- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize("to", [(4,), (2, 4), (-1, 4), (-1, -1), (-2, 3), (0, -1)])
def test_n26_a_wrong_reshape_tells_the_sizes(to):
    with pytest.raises(ShapeError, match=r"reshape: x \(2, 3\) has 6 elements"):
        rg.reshape(np.ones((2, 3)), to)


@pytest.mark.parametrize(
    ("f", "error", "sentence"),
    [
        (lambda x: rg.reshape(x, (1.5, 4)), ArgumentError, "lengths must be integers"),
        (lambda x: rg.permute_dims(x, (0, 0)), ArgumentError, "each of the 2 axes once"),
        (lambda x: rg.permute_dims(x, (0,)), ArgumentError, "each of the 2 axes once"),
        (lambda x: rg.moveaxis(x, (0, 0), (0, 1)), ArgumentError, "names an axis twice"),
        (lambda x: rg.moveaxis(x, (0, 1), 0), ArgumentError, "equal lengths"),
        (lambda x: rg.squeeze(x, 0), ShapeError, "has length 2; only length 1 can go"),
        (lambda x: rg.expand_dims(x, axis=3), BoundsError, "axis 3 is outside"),
        (lambda x: rg.expand_dims(x, axis=(0, 0)), ArgumentError, "names a place twice"),
        (lambda x: rg.flatten(x, start=1, end=0), ArgumentError, "comes after"),
        (lambda x: rg.broadcast_to(x, (2, 4)), ShapeError, "does not broadcast"),
        (lambda x: rg.broadcast_arrays(x, np.ones(4)), ShapeError, "x0 (2, 3), x1 (4,)"),
        (lambda x: rg.roll(x, (1, 2)), ArgumentError, "names several axes"),
        (lambda x: rg.roll(x, (1, 2), axis=0), ArgumentError, "equal lengths"),
        (lambda x: rg.rot90(x, axes=(0, -2)), ArgumentError, "two different ones"),
        (lambda x: rg.repeat(x, -1), ArgumentError, "must not be negative"),
        (lambda x: rg.repeat(x, 1.5), DtypeError, "must be integers"),
        (lambda x: rg.repeat(x, [1, 2], axis=1), ShapeError, "one for each of the 3 places"),
        (lambda x: rg.tile(x, -1), ArgumentError, "must not be negative"),
        (lambda x: rg.swapaxes(x, 0, 2), ArgumentError, "axis 2 is outside"),
    ],
)
def test_refuses(f, error, sentence):
    with pytest.raises(error) as caught:
        f(np.ones((2, 3)))
    assert sentence in str(caught.value)
