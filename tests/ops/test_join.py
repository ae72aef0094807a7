"""Joining, splitting, padding and windows, against NumPy; transposes against each other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.lib.stride_tricks import sliding_window_view

import retrograd as rg
from retrograd.core.errors import ArgumentError, DtypeError, ShapeError
from retrograd.testing.check import check_grads

SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)


def same(found, wanted):
    """Equal to the bit, in shape and dtype."""
    wanted = np.asarray(wanted)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found.array, wanted)


def counted(shape, start=0):
    return np.arange(start, start + np.prod(shape, dtype=int), dtype=float).reshape(shape)


@st.composite
def joinable(draw):
    """An axis, and arrays that differ in length along it alone."""
    shape = list(draw(SHAPES))
    axis = draw(st.integers(0, len(shape) - 1))
    xs = []
    for i in range(draw(st.integers(1, 4))):
        shape[axis] = draw(st.integers(0, 4))
        xs.append(counted(shape, 100 * i))
    return axis, xs


# -- concat, stack and back ----------------------------------------------------------------


@given(joinable())
def test_concat(case):
    axis, xs = case
    same(rg.concat(xs, axis=axis), np.concatenate(xs, axis))
    same(rg.concat(xs, axis=axis - xs[0].ndim), np.concatenate(xs, axis))
    same(rg.concat(xs, axis=None), np.concatenate(xs, None))


@given(joinable())
def test_split_undoes_concat(case):
    axis, xs = case
    pieces = rg.split(rg.concat(xs, axis=axis), [x.shape[axis] for x in xs], axis=axis)
    for piece, x in zip(pieces, xs, strict=True):
        same(piece, x)


@given(
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    st.integers(1, 4),
    st.data(),
)
def test_stack_and_unstack(shape, count, data):
    xs = [counted(shape, 100 * i) for i in range(count)]
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    stacked = rg.stack(xs, axis=axis)
    same(stacked, np.stack(xs, axis))
    for piece, x in zip(rg.unstack(stacked, axis=axis), xs, strict=True):
        same(piece, x)


@given(SHAPES, st.integers(1, 5), st.data())
def test_array_split(shape, sections, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = counted(shape)
    pieces = rg.array_split(x, sections, axis=axis)
    for piece, wanted in zip(pieces, np.array_split(x, sections, axis), strict=True):
        same(piece, wanted)


def test_hstack_and_vstack():
    for xs in (
        [1.0, np.ones(3)[0]],
        [np.ones(2), np.zeros(3)],
        [np.ones((2, 1)), np.ones((2, 2))],
    ):
        same(rg.hstack(xs), np.hstack(xs))
    for xs in ([np.ones(3), np.zeros((2, 3))], [np.array(1.0), np.array(2.0)]):
        same(rg.vstack(xs), np.vstack(xs))


def test_an_empty_axis_unstacks_to_nothing():
    assert rg.unstack(np.ones((0, 2))) == ()
    assert rg.split(np.ones((0, 2)), []) == ()


def test_dtypes_meet():
    a, b = np.ones(2, np.float32), np.ones(2, np.float64)
    assert rg.concat([a, b]).dtype == np.float64
    assert rg.concat([a, np.ones(2, np.int64)]).dtype == np.float32
    assert rg.stack([a[0], 2.0]).dtype == np.float32  # Python's numbers are weak
    assert rg.stack([True, False]).dtype == np.bool_


# -- variadic ops in every interpreter -----------------------------------------------------


def test_gradients_flow_to_those_who_ask_in_their_dtype(rng):
    a = rg.tensor(rng.normal(size=(2, 3)), requires_grad=True)
    b = rg.asarray(rng.normal(size=(1, 3)))
    c = rg.tensor(rng.normal(size=(2, 3)).astype(np.float32), requires_grad=True)
    w = rng.normal(size=(5, 3))
    rg.sum(rg.concat([a, b, c]) * w).backward()
    same(a.grad, w[:2])
    same(c.grad, w[3:].astype(np.float32))
    a.grad = None
    rg.sum(rg.stack([b[0], a[1], b[0]], axis=1) * w.T[:, :3]).backward()
    same(a.grad, np.stack([np.zeros(3), w.T[:, 1]]))


def test_a_piece_that_is_not_used_gives_zeros(rng):
    x = rg.tensor(rng.normal(size=(6, 2)), requires_grad=True)
    _, middle, _ = rg.split(x, 3)
    rg.sum(middle * middle).backward()
    wanted = np.zeros((6, 2))
    wanted[2:4] = 2 * x.array[2:4]
    same(x.grad, wanted)


def cubed(x):
    first, *others = rg.split(x, (1, 2, 0))
    rows = rg.stack([row * row for row in rg.unstack(x)])
    return rg.concat([first, *others]) * rows


def test_second_order_both_ways(rng):
    check_grads(cubed, rng.normal(size=(3, 2)))


def test_vmap_and_linearize(rng):
    x = rng.normal(size=(4, 3, 2))
    gradient = rg.vmap(rg.grad(lambda v: rg.sum(cubed(v))))(x)
    np.testing.assert_allclose(gradient.array, 3 * x**2)
    mapped = rg.vmap(lambda v: rg.concat([v, np.ones((1, 2))]), in_axes=0)(x)
    same(mapped, np.concatenate([x, np.ones((4, 1, 2))], 1))
    _, push = rg.linearize(lambda v: rg.concat([v, np.ones((1, 2))]), x[0])
    same(push(x[1]), np.concatenate([x[1], np.zeros((1, 2))]))


def test_checkpoint(rng):
    x = rg.tensor(rng.normal(size=(3, 2)), requires_grad=True)
    rg.sum(rg.checkpoint(cubed)(x)).backward()
    np.testing.assert_allclose(x.grad.array, 3 * x.array**2)


def test_many_pieces_cost_what_one_tensor_costs(rng):
    """Each piece's cotangent goes to its place: none is padded to the size of the whole."""
    x = rg.tensor(rng.normal(size=(3000, 2)), requires_grad=True)
    total = rg.asarray(np.zeros(2))
    for row in rg.unstack(x):
        total = total * 0.5 + row
    rg.sum(total).backward()
    np.testing.assert_allclose(x.grad.array[:, 0], 0.5 ** np.arange(3000)[::-1])


# -- pad -----------------------------------------------------------------------------------

MODES = ["constant", "edge", "reflect", "symmetric", "wrap"]


@st.composite
def padded(draw):
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4))
    width = st.integers(0, 7)
    per_axis = st.tuples(*[st.tuples(width, width) for _ in shape])
    return counted(shape), draw(st.one_of(width, st.tuples(width, width), per_axis))


@given(padded(), st.sampled_from(MODES))
def test_pad(case, mode):
    x, widths = case
    same(rg.pad(x, widths, mode), np.pad(x, widths, mode))


def test_pad_by_other_names_and_a_dict():
    x = counted((2, 3))
    same(rg.pad(x, 2, "circular"), np.pad(x, 2, "wrap"))
    same(rg.pad(x, 2, "replicate"), np.pad(x, 2, "edge"))
    same(rg.pad(x, {-1: (1, 2)}), np.pad(x, ((0, 0), (1, 2))))
    same(rg.pad(x, {0: 1}, constant_values=5), np.pad(x, ((1, 1), (0, 0)), constant_values=5))


@pytest.mark.parametrize("value", [0, -1.5, np.inf, np.nan, np.float64(2)])
def test_pad_with_a_number(value):
    x = counted((2, 3))
    same(rg.pad(x, 1, constant_values=value), np.pad(x, 1, constant_values=value))
    assert rg.pad(x.astype(np.float32), 1, constant_values=value).dtype == np.float32


def test_pad_with_a_tensor_is_differentiable_in_it():
    check_grads(
        lambda x, v: rg.pad(x, ((1, 0), (2, 3)), constant_values=v), counted((2, 3)), 2.0
    )
    v = rg.tensor(np.array(np.inf), requires_grad=True)  # inside, it must not touch anything
    x = rg.tensor(counted((2,)), requires_grad=True)
    rg.sum(rg.pad(x, (1, 2), constant_values=v)).backward()
    same(x.grad, np.ones(2))
    assert v.grad.item() == 3


@pytest.mark.parametrize("mode", MODES)
def test_pad_twice_differentiable(mode, rng):
    check_grads(lambda x: rg.pad(x, ((1, 0), (5, 2)), mode), rng.normal(size=(2, 3)))


def test_y22_pad_without_axes_and_without_elements():
    same(rg.pad(np.array(2.0), 3), np.pad(np.array(2.0), 3))
    x = rg.tensor(np.array(2.0), requires_grad=True)
    rg.pad(x, 3).backward()
    assert x.grad.item() == 1
    nothing = np.ones((0, 2))
    same(rg.pad(nothing, 1), np.pad(nothing, 1))
    same(rg.pad(nothing, ((0, 0), (1, 1)), "edge"), np.pad(nothing, ((0, 0), (1, 1)), "edge"))
    x = rg.tensor(nothing, requires_grad=True)
    rg.sum(rg.pad(x, 1)).backward()
    same(x.grad, nothing)
    with pytest.raises(ShapeError, match=r"axis 0 of x .* is empty"):
        rg.pad(nothing, 1, "reflect")


# -- windows -------------------------------------------------------------------------------


@given(
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 2),
)
def test_unfold_and_fold_are_transposes(length, size, step, dilation, axis):
    shape = [2, 3, 2]
    shape[axis] = length
    x = counted(shape)
    span = dilation * (size - 1) + 1
    if span > length:
        with pytest.raises(ShapeError, match=f"spans {span}"):
            rg.unfold(x, size, axis=axis, step=step, dilation=dilation)
        return
    windows = rg.unfold(x, size, axis=axis, step=step, dilation=dilation)
    dense = np.moveaxis(sliding_window_view(x, span, axis)[..., ::dilation], axis, 0)[::step]
    same(windows, np.moveaxis(dense, 0, axis))
    g = counted(windows.shape, 7)
    back = rg.fold(g, length, axis=axis, step=step, dilation=dilation)
    assert back.shape == x.shape
    assert np.sum(back.array * x) == np.sum(g * windows.array)  # whole numbers: exact


def test_unfold_is_a_view():
    x = rg.asarray(counted((1000,)))
    assert np.shares_memory(rg.unfold(x, 500).array, x.array)


@given(hnp.array_shapes(min_dims=1, max_dims=3, min_side=2, max_side=5), st.data())
def test_sliding_window_view(shape, data):
    x = counted(shape)
    sizes = tuple(data.draw(st.integers(1, n)) for n in shape)
    same(rg.sliding_window_view(x, sizes), sliding_window_view(x, sizes))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    same(rg.sliding_window_view(x, 2, axis), sliding_window_view(x, 2, axis))


def test_windows_of_nothing():
    assert rg.unfold(np.ones((3, 0)), 2, axis=0).shape == (2, 0, 2)
    same(rg.fold(np.ones((0, 2)), 3, axis=0), np.zeros(3))


# -- what is refused -----------------------------------------------------------------------

X = counted((2, 3))


@pytest.mark.parametrize(
    ("f", "error", "sentence"),
    [
        (lambda: rg.concat([]), ArgumentError, "at least one array; got none"),
        (lambda: rg.concat(3.0), ArgumentError, "at least one array; got float"),
        (lambda: rg.concat([X, X[:, :2]]), ShapeError, "x0 (2, 3), x1 (2, 2)"),
        (lambda: rg.concat([X, X[0]]), ShapeError, "same number of axes"),
        (lambda: rg.concat([1.0, 2.0]), ShapeError, "same number of axes"),
        (lambda: rg.concat([X, X], axis=2), ArgumentError, "axis 2 is outside"),
        (lambda: rg.stack([X, X[0]]), ShapeError, "must have one shape"),
        (lambda: rg.stack([X], axis=3), ArgumentError, "axis 3 is outside"),
        (lambda: rg.split(X, 2, axis=1), ShapeError, "no 2 equal pieces"),
        (lambda: rg.split(X, (1, 1), axis=1), ShapeError, "add up to 3"),
        (lambda: rg.split(X, (-1, 4), axis=1), ShapeError, "at least 0"),
        (lambda: rg.split(X, 0), ArgumentError, "at least 1"),
        (lambda: rg.split(X, 1.5), ArgumentError, "a number or lengths"),
        (lambda: rg.unstack(np.array(1.0)), ArgumentError, "it has none"),
        (lambda: rg.pad(X, -1), ArgumentError, "must not be negative"),
        (lambda: rg.pad(X, 0.5), ArgumentError, "must be integers"),
        (lambda: rg.pad(X, ((1, 1),) * 3), ArgumentError, "a pair for each of the 2 axes"),
        (lambda: rg.pad(X, 1, "linear_ramp"), ArgumentError, "is not one of constant, edge"),
        (lambda: rg.pad(X, 1, constant_values=(1, 2)), ArgumentError, "must be one number"),
        (lambda: rg.pad(X.astype(int), 1, constant_values=0.5), DtypeError, "does not fit"),
        (lambda: rg.unfold(X, 0), ArgumentError, "size must be an integer of at least 1"),
        (lambda: rg.unfold(X, 2, step=0), ArgumentError, "step must be"),
        (lambda: rg.unfold(X, 4), ShapeError, "spans 4"),
        (lambda: rg.fold(X, 3, axis=0), ShapeError, "too short"),
        (lambda: rg.fold(X[0], 3), ShapeError, "needs an axis of windows"),
        (lambda: rg.sliding_window_view(X, 2), ArgumentError, "1 lengths for 2 axes"),
    ],
)
def test_refuses(f, error, sentence):
    with pytest.raises(error) as caught:
        f()
    assert sentence in str(caught.value)
