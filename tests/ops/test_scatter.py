"""x.at[index], scatter, scatter_add: against a loop over single elements, duplicates or not."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import retrograd  # noqa: F401 - fills the registry
from retrograd.autodiff.batch import vmap
from retrograd.autodiff.forward import jvp
from retrograd.autodiff.grad import grad
from retrograd.core import errors
from retrograd.core.op import FUNCTIONS
from retrograd.ops import reduce, scatter
from retrograd.testing import assert_close, check_grads

RNG = np.random.default_rng
METHODS = {
    "set": lambda a, b: b,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "min": np.minimum,
    "max": np.maximum,
}
every_method = pytest.mark.parametrize("method", METHODS)


def tensor(x):
    return FUNCTIONS["asarray"](x)


def update(method, index):
    return lambda x, v: getattr(tensor(x).at[index], method)(v)


def loop(method, x, index, values):
    """The update, one element after the other: places[i] is where values[i] goes."""
    places = np.arange(x.size).reshape(x.shape)[index]
    out = x.copy().reshape(-1)
    for place, value in zip(
        np.ravel(places), np.ravel(np.broadcast_to(values, places.shape)), strict=True
    ):
        out[place] = METHODS[method](out[place], value)
    return out.reshape(x.shape)


INDICES = [
    1,
    (slice(None, None, -2), 2),
    (..., None, 0),
    [1, 1, 0, 1],
    ([0, 2, 0, 0], [1, 1, 1, 3]),
    (slice(None), [3, 0, 3]),
    (slice(1, None), [[1, 1], [0, 1]]),
    (0, ..., [2, 2, 1]),
    np.array([True, False, True]),
    np.arange(12).reshape(3, 4) % 3 == 1,
    (np.array([True, False, True]), 1),
    [],
    (),
    ...,
]


@every_method
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_values_and_gradients(method, index, rng):
    x = rng.normal(size=(3, 4))
    to = x[index].shape
    for shape in (to, to[-1:], ()):
        values = rng.uniform(0.5, 2, shape) * rng.choice([-1, 1], shape)
        assert_close(update(method, index)(x, values), loop(method, x, index, values))
        check_grads(update(method, index), x, values)


@given(
    method=st.sampled_from(list(METHODS)),
    places=st.lists(st.integers(-4, 3), max_size=9),
    width=st.integers(0, 3),
    mapped=st.sampled_from([m for m in itertools.product((0, None), repeat=3) if 0 in m]),
    seed=st.integers(0, 99),
)
def test_vmap_is_a_loop(method, places, width, mapped, seed):
    rng = RNG(seed)
    x = rng.normal(size=(3, 4, width))
    values = rng.uniform(0.5, 2, (3, len(places), width))
    index = np.array([places, places[::-1], places[1:] + places[:1]], int)
    given_ = [a if m == 0 else a[0] for a, m in zip((x, values, index), mapped, strict=True)]
    f = lambda x, v, i: getattr(tensor(x).at[i], method)(v)
    rows = [
        loop(
            method,
            *(
                a[k] if m == 0 else a
                for a, m in zip(_order(given_), _order(mapped), strict=True)
            ),
        )
        for k in range(3)
    ]
    assert_close(vmap(f, in_axes=mapped)(*given_), np.stack(rows))


def _order(xvi):
    x, v, i = xvi
    return x, i, v


@pytest.mark.parametrize("mapped", [(0, 0, 0), (None, 0, None), (0, None, 0), (None, 0, 0)])
@every_method
def test_derivatives_under_vmap(method, mapped, rng):
    x, values = rng.normal(size=(2, 4)), rng.uniform(0.5, 2, (2, 5))
    index = np.array([[0, 2, 2, 0, 1], [3, 3, 3, 1, 0]])
    x, values, index = (
        a if m == 0 else a[0] for a, m in zip((x, values, index), mapped, strict=True)
    )
    f = lambda x, v, i: getattr(x.at[i], method)(v)
    check_grads(lambda x, v: vmap(f, in_axes=mapped)(x, v, tensor(index)), x, values)


def test_Y14_scatter_only_winner_gets_gradient():
    x, v, index = np.zeros(4), np.array([1.0, 2.0, 3.0, 4.0]), np.array([2, 0, 2, 0])
    weights = np.array([1.0, 10.0, 100.0, 1000.0])
    for write in (
        lambda x, v: tensor(x).at[index].set(v),
        lambda x, v: scatter.scatter(x, index, v, axis=0),
        lambda x, v: scatter.put_along_axis(x, index, v, axis=0),
    ):
        np.testing.assert_array_equal(write(x, v).array, [4, 0, 3, 0])
        dx, dv = grad(lambda x, v, w=write: reduce.sum(w(x, v) * weights), (0, 1))(x, v)
        np.testing.assert_array_equal(dx.array, [0, 10, 0, 1000])
        np.testing.assert_array_equal(dv.array, [0, 0, 100, 1])


def test_the_last_in_row_major_order_wins(rng):
    index = np.asfortranarray(rng.integers(0, 3, (4, 5)))
    values = rng.normal(size=(4, 5))
    found = tensor(np.zeros(3)).at[index].set(values)
    np.testing.assert_array_equal(found.array, loop("set", np.zeros(3), index, values))


@pytest.mark.parametrize("zeros", [(), (1,), (1, 3), (0, 1, 2, 3, 4)])
def test_products_of_duplicates_at_zeros(zeros, rng):
    index = np.array([1, 0, 1, 1, 0])
    values = rng.uniform(0.5, 2, (5, 2))
    values[list(zeros), 0] = 0
    for x in (rng.normal(size=(3, 2)), np.zeros((3, 2))):
        assert_close(update("multiply", index)(x, values), loop("multiply", x, index, values))
        check_grads(update("multiply", index), x, values)
        weights = rng.normal(size=x.shape)
        loss = lambda x, v, w=weights: reduce.sum(update("multiply", index)(x, v) * w)
        _, found = grad(loss, (0, 1))(x, values)
        for i, k in np.ndindex(values.shape):
            others = [values[j, k] for j in range(5) if index[j] == index[i] and j != i]
            wanted = weights[index[i], k] * x[index[i], k] * np.prod(others)
            assert_close(found.array[i, k], wanted)


def test_products_twice_on_the_tape(rng):
    index, values = np.array([1, 0, 1, 1, 0]), rng.normal(size=5)
    values[2] = 0
    leaf = FUNCTIONS["tensor"](values, requires_grad=True)
    reduce.sum(tensor(np.ones(2)).at[index].multiply(leaf)).backward(create_graph=True)
    first = leaf.grad
    leaf.grad = None
    reduce.sum(first * first).backward()

    def slope(v):
        g = grad(lambda v: reduce.sum(tensor(np.ones(2)).at[index].multiply(v)))(v)
        return reduce.sum(g * g)

    assert_close(leaf.grad, grad(slope)(values))


@pytest.mark.parametrize("method", ["min", "max"])
def test_ties_share_equally(method):
    x, v, index = np.array([1.0, 1.0, 7.0]), np.ones(4), np.array([0, 0, 1, 1])
    weights = np.array([6.0, 12.0, 5.0])
    dx, dv = grad(lambda x, v: reduce.sum(update(method, index)(x, v) * weights), (0, 1))(x, v)
    np.testing.assert_allclose(dx.array, [2, 4, 5])
    np.testing.assert_allclose(dv.array, [2, 2, 4, 4])


@pytest.mark.parametrize("method", ["min", "max"])
def test_nan_is_the_extreme(method):
    x, v = np.array([np.nan, 1.0, 2.0]), np.array([0.0, np.nan])
    found = update(method, [0, 1])(x, v).array
    np.testing.assert_array_equal(found, [np.nan, np.nan, 2])
    dx, dv = grad(lambda x, v: reduce.sum(update(method, [0, 1])(x, v)), (0, 1))(x, v)
    np.testing.assert_array_equal(dx.array, [0.5, 0.5, 1])
    np.testing.assert_array_equal(dv.array, [0.5, 0.5])


def test_infinite_cotangents_stay_where_they_belong():
    x, v = np.zeros(3), np.ones(3)
    g = tensor(np.array([np.inf, 1.0, np.nan]))
    for method, dx, dv in [
        ("set", [0, 0, np.nan], [0, np.inf, 1]),
        ("add", [np.inf, 1, np.nan], [np.inf, np.inf, 1]),
        ("max", [0, 0, np.nan], [np.inf, np.inf, 1]),
    ]:
        _, pull = FUNCTIONS["vjp"](update(method, [0, 0, 1]), x, v)
        found = pull(g)
        np.testing.assert_array_equal(found[0].array, dx)
        np.testing.assert_array_equal(found[1].array, dv)


@every_method
def test_a_mask_inside_vmap(method, rng):
    x, v = rng.normal(size=(3, 4, 2)), rng.uniform(0.5, 2, (3, 2))
    f = lambda x, v: getattr(x.at[x[:, 0] > 0], method)(v)
    rows = [loop(method, a, a[:, 0] > 0, b) for a, b in zip(x, v, strict=True)]
    assert_close(vmap(f)(x, v), np.stack(rows))
    mask = rng.random((3, 4)) < 0.5
    g = lambda x, m, v: getattr(x.at[m], method)(v)
    check_grads(lambda x, v: vmap(g)(x, tensor(mask), v), x, v)
    with pytest.raises(errors.TraceError, match="masked_select"):
        vmap(lambda x: x.at[x > 0].set(np.ones(3)))(x[..., 0])


def test_a_mask_hides_what_would_be_nan():
    x, mask = np.array([0.0, np.inf, 2.0]), np.array([False, False, True])
    for method in ("multiply", "divide"):
        dx, dv = grad(lambda x, v, m=method: reduce.sum(update(m, mask)(x, v)), (0, 1))(x, 2.0)
        assert np.isfinite(dx.array).all()
        assert np.isfinite(dv.array).all()


def test_get():
    x = tensor(np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(x.at[1, ::-1].get().array, [5, 4, 3])


def test_x_itself_does_not_change():
    x = np.arange(4.0)
    t = FUNCTIONS["asarray"](x, copy=False)
    for method in METHODS:
        for index in (1, [1, 1], x > 1, slice(2)):
            getattr(t.at[index], method)(9.0)
    np.testing.assert_array_equal(x, [0, 1, 2, 3])


def test_setitem_writes_one_handle():
    x = FUNCTIONS["tensor"](np.arange(4.0), requires_grad=True)
    y = x * 2.0
    z = y * y
    y[[0, 0]] = tensor(np.array([5.0, 6.0]))
    np.testing.assert_array_equal(y.array, [6, 2, 4, 6])
    (reduce.sum(z) + reduce.sum(y)).backward()
    np.testing.assert_array_equal(x.grad.array, [0, 10, 18, 26])


def test_dtypes():
    x = tensor(np.zeros(3, np.float32))
    assert x.at[0].set(np.float64(2)).dtype == np.float32
    assert x.at[[0, 1]].add(1).dtype == np.float32
    _, dv = grad(lambda x, v: reduce.sum(x.at[[0, 0]].multiply(v)), (0, 1))(x, np.ones(2))
    assert dv.dtype == np.float64
    i = tensor(np.zeros(3, np.int32))
    np.testing.assert_array_equal(i.at[[0, 0, 2]].add(2).array, [4, 0, 2])
    np.testing.assert_array_equal(i.at[[0, 1]].max(np.array([5, -5])).array, [5, 0, 0])
    b = tensor(np.zeros(2, bool))
    np.testing.assert_array_equal(b.at[1].set(True).array, [False, True])
    for bad in (lambda: i.at[0].set(1.5), lambda: x.at[0].set(1j), lambda: b.at[0].set(2)):
        with pytest.raises(errors.DtypeError, match="do not fit into"):
            bad()
    with pytest.raises(errors.DtypeError, match="quotients"):
        i.at[0].divide(2)


def test_values_that_do_not_fit():
    x = tensor(np.zeros((3, 4)))
    np.testing.assert_array_equal(x.at[0].set(np.ones((1, 1, 4))).array[0], np.ones(4))
    for index, values in [(0, np.ones(3)), ([0, 1], np.ones((3, 4))), (0, np.ones((2, 4)))]:
        with pytest.raises(errors.ShapeError, match="do not broadcast"):
            x.at[index].set(values)
    with pytest.raises(errors.ShapeError, match="mask"):
        x.at[np.ones(2, bool)].set(0.0)


def test_complex(rng):
    x, v = rng.normal(size=(2, 4)), rng.normal(size=(2, 5))
    z, w = x[0] + 1j * x[1], v[0] + 1j * v[1]
    index = np.array([1, 3, 1, 0, 1])
    for method in ("set", "add", "multiply", "divide"):
        assert_close(update(method, index)(z, w), loop(method, z, index, w))
    with pytest.raises(errors.DtypeError, match="real"):
        update("max", index)(z, w)


# -- along an axis ---------------------------------------------------------------------------


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_with_smaller_indices(add, axis, rng):
    f = scatter.scatter_add if add else scatter.scatter
    x = rng.normal(size=(3, 4, 5))
    sizes = [2, 3, 4]
    sizes[axis] = 7
    index = rng.integers(0, x.shape[axis], sizes)
    src = rng.normal(size=sizes)
    wanted = x.copy()
    for at in np.ndindex(*sizes):
        to = list(at)
        to[axis] = index[at]
        wanted[tuple(to)] = src[at] + (wanted[tuple(to)] if add else 0)
    assert_close(f(x, index, src, axis=axis), wanted)
    check_grads(lambda x, s: f(x, index, s, axis=axis), x, src)
    many = np.stack([index, index[::-1]])
    rows = vmap(lambda i: f(x, i, src, axis=axis))(many)
    assert_close(rows, np.stack([f(x, i, src, axis=axis).array for i in many]))
    batch = vmap(lambda x, s: f(x, index, s, axis=axis))(
        np.stack([x, -x]), np.stack([src, src])
    )
    assert_close(batch, np.stack([wanted, f(-x, index, src, axis=axis).array]))


def test_scatter_refuses(rng):
    x = rng.normal(size=(3, 4))
    with pytest.raises(errors.ShapeError, match="src"):
        scatter.scatter(x, np.zeros((2, 2), int), np.ones((2, 3)), axis=1)
    with pytest.raises(errors.ShapeError, match="none longer"):
        scatter.scatter(x, np.zeros((4, 2), int), 1.0, axis=1)
    with pytest.raises(errors.DtypeError, match="integers"):
        scatter.scatter_add(x, np.zeros((2, 2)), 1.0, axis=1)
    np.testing.assert_array_equal(
        scatter.scatter(x, np.array([[0, 2]]), 5.0, axis=1).array[0, [0, 2]], [5, 5]
    )


def test_put_along_axis_is_numpys(rng):
    x = rng.normal(size=(3, 4))
    index = np.argsort(x, axis=1)[:, :2]
    wanted = x.copy()
    np.put_along_axis(wanted, index, rng.normal(size=(3, 2)), 1)
    values = np.take_along_axis(wanted, index, 1)
    assert_close(scatter.put_along_axis(x, index, values, axis=1), wanted)


@every_method
def test_wide_rows_and_many_duplicates(method, rng):
    """The ways by sorting and by element agree with the loop."""
    x, index = rng.normal(size=(5, 40)), np.minimum(rng.geometric(0.4, 120) - 1, 4)
    values = rng.uniform(0.9, 1.1, (120, 40))
    assert_close(
        update(method, index)(x, values), loop(method, x, index, values), tolerance=1e-11
    )
    t = rng.normal(size=values.shape)
    _, pushed = jvp(lambda v: update(method, index)(x, v), (values,), (t,))
    g = rng.normal(size=x.shape)
    found = grad(lambda v: reduce.sum(update(method, index)(x, v) * g))(values)
    np.testing.assert_allclose(np.sum(pushed.array * g), np.sum(found.array * t), rtol=1e-9)
