"""x[index], take, gather, embedding, masks: against NumPy, and gradients against np.add.at."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import retrograd  # noqa: F401 - fills the registry
from retrograd.autodiff.batch import vmap
from retrograd.autodiff.forward import jvp
from retrograd.autodiff.grad import grad
from retrograd.autodiff.reverse import vjp
from retrograd.core import errors
from retrograd.core.interpret import PURE, RAW, using
from retrograd.core.op import FUNCTIONS, REGISTRY
from retrograd.core.tensor import Tensor
from retrograd.ops import gather, masks, reduce
from retrograd.testing import assert_close, check_grads

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)
RNG = np.random.default_rng


def tensor(x):
    return FUNCTIONS["asarray"](x)


@st.composite
def slices(draw, n):
    ends = st.none() | st.integers(-n - 2, n + 2)
    return slice(draw(ends), draw(ends), draw(st.none() | st.sampled_from([1, 2, 3, -1, -2])))


@st.composite
def expressions(draw, shape, *, masks_too=True):
    """An index expression for a shape: NumPy takes it; tensors are put in later."""
    seed = draw(st.integers(0, 2**31))
    rng = RNG(seed)
    batch = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    axes, items = list(shape), []
    while axes and draw(st.integers(0, 5)):
        n = axes.pop(0)
        kind = draw(st.sampled_from(["int", "slice", "slice", "array", "point", "mask"]))
        if kind == "mask" and masks_too:
            more = draw(st.integers(0, min(len(axes), 1)))
            mask = rng.random((n, *axes[:more])) < 0.5
            fits = not batch or batch[-1] in (1, mask.sum())
            del axes[:more]
            items.append(mask if fits else (slice(None),) * (1 + more))
            batch = (
                (*batch[:-1], int(mask.sum())) if fits and batch and mask.sum() != 1 else batch
            )
            batch = batch or ((int(mask.sum()),) if fits else ())
        elif kind == "int" and n:
            items.append(draw(st.integers(-n, n - 1)))
        elif kind in ("array", "point") and n:
            free = (
                tuple(m if draw(st.booleans()) else 1 for m in batch) if kind == "array" else ()
            )
            items.append(rng.integers(-n, n, free[draw(st.integers(0, len(free))) :]))
        else:
            items.append(draw(slices(n)))
    flat = []
    for item in items:
        flat += item if isinstance(item, tuple) else [item]
    for extra in draw(st.lists(st.sampled_from([None, None, ...]), max_size=2)):
        if extra is None or not any(i is Ellipsis for i in flat):
            flat.insert(draw(st.integers(0, len(flat))), extra)
    return tuple(flat)


def axes_of(i):
    """How many axes an item of an index is for: a mask has its own, integers have one."""
    if i is None:
        return 0
    return i.ndim if isinstance(i, np.ndarray) and i.dtype == bool else 1


def taken(shape, index):
    """x[index] of zeros by NumPy, or None where NumPy refuses.

    It lets masks of wrong lengths pass where x has no elements; we do not.
    """
    x, axis = np.zeros(shape), 0
    try:
        found = x[index]
    except IndexError:
        return None
    dots = len(shape) - sum(axes_of(i) for i in index if i is not ...)
    for i in index:
        if (
            isinstance(i, np.ndarray)
            and i.dtype == bool
            and i.shape != shape[axis : axis + i.ndim]
        ):
            return None
        axis += dots if i is ... else axes_of(i)
    return found


def ours(index, draw_tensor):
    """The same expression with tensors (or lists) for arrays."""
    return tuple(
        draw_tensor(i) if isinstance(i, np.ndarray) and i.dtype != object else i for i in index
    )


def test_an_array_of_indices_is_for_one_axis_whatever_its_shape():
    """So the mask after it is for the next one, also where there are no elements."""
    for shape in ((0, 1, 0), (2, 1, 3)):
        index = slice(None), np.array([[0]]), np.zeros(shape[2], bool)
        x = np.zeros(shape)
        assert tensor(x)[index].shape == x[index].shape == taken(shape, index).shape


@given(st.data())
def test_values_are_numpys(data):
    shape = data.draw(SHAPES)
    index = data.draw(expressions(shape))
    x = RNG(0).normal(size=shape)
    if taken(shape, index) is None:
        with pytest.raises(errors.RetrogradError):
            tensor(x)[index]
        return
    wanted = x[index]
    for form in (lambda i: i, tensor, lambda i: i.tolist() if i.ndim and i.size else i):
        found = tensor(x)[ours(index, form)]
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found.array, wanted)


@given(st.data())
def test_gradient_is_add_at(data):
    shape = data.draw(SHAPES)
    index = data.draw(expressions(shape))
    x = RNG(0).normal(size=shape)
    if taken(shape, index) is None:
        return
    weights = RNG(1).normal(size=x[index].shape)
    wanted = np.zeros(shape)
    np.add.at(wanted, index, weights)
    found = grad(lambda x: reduce.sum(x[ours(index, tensor)] * weights))(x)
    assert_close(found, wanted)
    _, pushed = jvp(lambda x: x[index], (x,), (wanted,))
    assert_close(pushed, wanted[index])
    leaf = FUNCTIONS["tensor"](x, requires_grad=True)
    reduce.sum(leaf[index] * weights).backward()
    assert_close(leaf.grad, wanted)


@given(st.data())
def test_vmap_over_x_and_over_indices(data):
    shape = data.draw(SHAPES)
    index = data.draw(expressions(shape, masks_too=False))
    if taken(shape, index) is None:
        return
    x = RNG(0).normal(size=(3, *shape))
    where = [k for k, i in enumerate(index) if isinstance(i, np.ndarray)]
    many = [np.stack([index[k], -1 - index[k], index[k]]) for k in where]

    def f(x, *arrays):
        full = list(index)
        for k, a in zip(where, arrays, strict=True):
            full[k] = a
        return tensor(x)[tuple(full)]

    for mapped in itertools.product((True, False), repeat=min(1 + len(where), 3)):
        mapped = (*mapped, *(True,) * (1 + len(where) - len(mapped)))
        if not any(mapped):
            continue
        given_ = [v if m else v[0] for v, m in zip((x, *many), mapped, strict=True)]
        axes = tuple(0 if m else None for m in mapped)
        found = vmap(f, in_axes=axes)(*given_)
        rows = [
            f(*(g[i] if m else g for g, m in zip(given_, mapped, strict=True)))
            for i in range(3)
        ]
        assert_close(found, np.stack([r.array for r in rows]))
        weights = RNG(2).normal(size=found.shape)
        _, pull = vjp(lambda *a, axes=axes: vmap(f, in_axes=axes)(*a), *map(tensor, given_))
        wanted = np.zeros_like(given_[0])
        for i in range(3):
            full = list(index)
            for k, a, m in zip(where, given_[1:], mapped[1:], strict=True):
                full[k] = a[i] if m else a
            np.add.at(wanted[i, ...] if mapped[0] else wanted, tuple(full), weights[i])
        assert_close(pull(tensor(weights))[0], wanted)


def test_the_forms_that_people_write():
    x = tensor(np.arange(24.0).reshape(2, 3, 4))
    y = x.array
    for index in [
        1, -1, (1, 2), (1, 2, 3), ..., None, (), slice(None), [0, 1, 1], ([0, 1], [2, 2]),
        (0, ..., [1, 3]), (slice(None), [0, 2], None), True, False, np.True_, np.int8(1),
        np.array(1), (np.array([0, 1], np.uint8), ..., 2), y > 5, (0, y[0] > 3), [], ([],),
        (slice(None), [True, False, True]), [[0, 1], [1, 0]], range(2), (None, True, [0]),
        slice(5, -9, -2), (slice(None, None, -1), 0, slice(3, 0, -2)),
    ]:  # fmt: skip
        np.testing.assert_array_equal(x[index].array, y[index], err_msg=str(index))


def test_a_tensor_without_axes_is_an_index():
    x, i = tensor(np.arange(6.0).reshape(2, 3)), tensor(np.array(-1))
    np.testing.assert_array_equal(x[i].array, x.array[-1])
    np.testing.assert_array_equal(x[:, i].array, x.array[:, -1])
    np.testing.assert_array_equal(x[i, i].array, x.array[-1, -1])
    np.testing.assert_array_equal(x[tensor(0) : tensor(1)].array, x.array[:1])


def test_basic_indices_are_views():
    x = tensor(np.arange(6.0).reshape(2, 3))
    for index in [1, (slice(None), 2), slice(None, None, -1), (None, ...), (1, 2)]:
        assert np.shares_memory(x[index].array, x.array)


def test_all_of_x_is_another_handle():
    x = tensor(np.arange(3.0))
    y = x[:]
    x[0] = 7.0
    np.testing.assert_array_equal(y.array, [0, 1, 2])
    np.testing.assert_array_equal(x.array, [7, 1, 2])


def test_small_integers_count_from_the_end():
    x = tensor(np.arange(300.0))
    for dtype in (np.int8, np.int16, np.int64):
        np.testing.assert_array_equal(x[np.array([-1, 2], dtype)].array, [299, 2])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64])
def test_indices_of_any_integer_dtype(dtype, rng):
    x, i = rng.normal(size=(3, 4)), np.array([2, 0, 2], dtype)
    j = tensor(np.zeros(3, np.int64))
    np.testing.assert_array_equal(tensor(x)[i].array, x[i])
    np.testing.assert_array_equal(tensor(x)[tensor(i), j].array, x[i, 0])
    np.testing.assert_array_equal(tensor(x)[i, np.zeros(3, int)].array, x[i, 0])
    wanted = x.copy()
    np.add.at(wanted, i, 1.0)
    assert_close(tensor(x).at[i].add(1.0), wanted)
    along = i.reshape(3, 1)
    assert_close(gather.gather(x, along, axis=1), np.take_along_axis(x, along.astype(int), 1))
    assert_close(
        grad(lambda x: reduce.sum(x[i]))(x), np.eye(3)[i.astype(int)].sum(0)[:, None] + 0 * x
    )


def test_booleans_are_not_integers():
    mask = np.array([True, False, True])
    for read in (gather.take, gather.take_along_axis):
        with pytest.raises(errors.DtypeError, match="integers"):
            read(np.zeros(3), mask, axis=0)
    with pytest.raises(errors.DtypeError, match="integers"):
        FUNCTIONS["scatter_add"](np.zeros(3), mask, np.ones(3), axis=0)


def test_maps_may_be_nested(rng):
    x, i = rng.normal(size=(2, 3, 4, 5)), rng.integers(0, 4, (2, 3, 6))
    found = vmap(vmap(lambda x, i: x[i]))(x, i)
    np.testing.assert_array_equal(found.array, np.take_along_axis(x, i[..., None], 2))
    found = vmap(vmap(lambda x, i: x[i], in_axes=(0, None)), in_axes=(0, None))(x, i[0, 0])
    np.testing.assert_array_equal(found.array, x[:, :, i[0, 0]])
    found = vmap(vmap(lambda x, i: x[:, i], in_axes=(None, 0)), in_axes=(0, 0))(x, i)
    rows = [[a[:, k] for k in j] for a, j in zip(x, i, strict=True)]
    np.testing.assert_array_equal(found.array, np.array(rows))


def test_rules_may_index_bare_arrays(rng):
    x = rng.normal(size=(3, 4))
    with using(RAW):
        for index in (1, (slice(None), None, 2), [0, 0, 2], ([0, 1], [2, 3]), x > 0):
            np.testing.assert_array_equal(FUNCTIONS["getitem"](x, index), x[index])


@pytest.mark.parametrize(
    ("index", "error", "sentence"),
    [
        (3, errors.BoundsError, "index 3 is outside axis 0 of length 3"),
        (-4, errors.BoundsError, "index -4 is outside axis 0 of length 3"),
        ((0, [0, 4]), errors.BoundsError, "index 4 is outside an axis of length 4"),
        ((slice(None), [0, -5]), errors.BoundsError, "index -5 is outside an axis of length 4"),
        ((0, 0, 0), errors.BoundsError, "3 indices for a tensor of shape (3, 4)"),
        ((..., ...), errors.ArgumentError, "one ellipsis"),
        (1.0, errors.DtypeError, "got float"),
        ("a", errors.DtypeError, "got str"),
        ([0.5], errors.DtypeError, "got float64"),
        (np.ones(2, bool), errors.ShapeError, "length 2 where axis 0 has length 3"),
        (([0, 1], [0, 1, 2]), errors.ShapeError, "do not broadcast"),
        (slice(None, None, 0), errors.ArgumentError, "step"),
        (slice(0.5), errors.DtypeError, "must be integers"),
        ([[0], [1, 2]], errors.ArgumentError, "ragged"),
    ],
)
def test_what_is_refused(index, error, sentence):
    with pytest.raises(error) as caught:
        tensor(np.zeros((3, 4)))[index]
    assert sentence in str(caught.value)


def test_N1_gather_duplicates_are_summed():
    x, index = np.zeros(4), np.array([1, 1, 3, 1])
    weights = np.array([1.0, 10.0, 100.0, 1000.0])
    for read in (
        lambda x: x[index],
        lambda x: gather.take(x, index),
        lambda x: gather.gather(x, index, axis=0),
        lambda x: gather.take_along_axis(x, index, axis=0),
        lambda x: gather.embedding(index, x.reshape(4, 1)).reshape(4),
    ):
        found = grad(lambda x, read=read: reduce.sum(read(x) * weights))(x)
        np.testing.assert_array_equal(found.array, [0, 1011, 0, 100])


def test_N18_out_of_range_is_an_error():
    x = tensor(np.zeros((2, 3)))
    bad = np.array([[0, 3]])
    for call in (
        lambda: x[:, [3]],
        lambda: gather.take(x, np.array([-4]), axis=1),
        lambda: gather.gather(x, bad, axis=1),
        lambda: gather.take_along_axis(x, np.array([[2], [-3]]), axis=0),
        lambda: FUNCTIONS["scatter"](x, bad, np.ones((1, 2)), axis=1),
        lambda: FUNCTIONS["scatter_add"](x, bad, np.ones((1, 2)), axis=1),
        lambda: x.at[:, np.array([-4])].set(1.0),
        lambda: x.at[[2]].add(1.0),
        lambda: x.at[7].set(1.0),
    ):
        with pytest.raises(errors.BoundsError, match="is outside"):
            call()


def test_Y15_gather_smaller_index_is_adjoint(rng):
    x, w = rng.normal(size=(4, 5, 6)), rng.normal(size=(2, 7, 3))
    index = rng.integers(0, 5, (2, 7, 3))
    i, _, k = np.ogrid[:2, :7, :3]
    np.testing.assert_array_equal(gather.gather(x, index, axis=1).array, x[i, index, k])
    wanted = np.zeros_like(x)
    np.add.at(
        wanted, (np.broadcast_to(i, index.shape), index, np.broadcast_to(k, index.shape)), w
    )
    assert_close(grad(lambda x: reduce.sum(gather.gather(x, index, axis=1) * w))(x), wanted)
    with pytest.raises(errors.ShapeError, match="none longer but axis 1"):
        gather.gather(x, np.zeros((5, 1, 1), int), axis=1)


def test_Y22_embedding_out_of_range():
    weight = np.zeros((5, 2))
    for bad in (5, -1, -5):
        with pytest.raises(
            errors.BoundsError, match=f"embedding: index {bad} is outside the 5"
        ):
            gather.embedding(np.array([[0, bad]]), weight)
    with pytest.raises(errors.DtypeError, match="integers"):
        gather.embedding(np.array([0.0]), weight)
    with pytest.raises(errors.ShapeError, match="weight"):
        gather.embedding(np.array([0]), np.zeros(3))


def test_embedding(rng):
    weight, ids = rng.normal(size=(5, 3)), np.array([[1, 4, 1], [0, 1, 4]])
    np.testing.assert_array_equal(gather.embedding(ids, weight).array, weight[ids])
    scale = rng.normal(size=(2, 3, 3))
    wanted = np.zeros_like(weight)
    np.add.at(wanted, ids, scale)
    loss = lambda w, **o: reduce.sum(gather.embedding(ids, w, **o) * scale)
    assert_close(grad(loss)(weight), wanted)
    wanted[4] = 0
    for row in (4, -1):
        assert_close(grad(lambda w, row=row: loss(w, padding_idx=row))(weight), wanted)
    np.testing.assert_array_equal(
        gather.embedding(ids, weight, padding_idx=4).array, weight[ids]
    )
    check_grads(lambda w: gather.embedding(ids, w * w), weight)
    found = vmap(lambda i: gather.embedding(i, weight))(ids)
    np.testing.assert_array_equal(found.array, weight[ids])


def test_take(rng):
    x = rng.normal(size=(3, 4, 2))
    for index in (np.array([2, -1, 0, 0]), np.array([[1, 0], [2, 2]]), np.array(1), [0, 1]):
        for axis in (0, -2, 2):
            index_ = np.asarray(index) % x.shape[axis]
            found = gather.take(x, index_, axis=axis)
            np.testing.assert_array_equal(found.array, np.take(x, index_, axis))
    with pytest.raises(errors.ArgumentError, match="needs an axis"):
        gather.take(x, [0])


def test_take_along_axis_broadcasts(rng):
    x, index = rng.normal(size=(3, 1, 4)), rng.integers(0, 4, (1, 2, 5))
    found = gather.take_along_axis(x, index, axis=2)
    np.testing.assert_array_equal(found.array, np.take_along_axis(x, index, 2))
    check_grads(lambda x: gather.take_along_axis(x, index, axis=2), x)
    with pytest.raises(errors.ShapeError):
        gather.take_along_axis(x, index[0], axis=2)


def test_a_mask_under_grad(rng):
    x = rng.normal(size=(3, 4))
    wanted = np.where(x > 0, 2 * x, 0)
    assert_close(grad(lambda x: reduce.sum(x[x > 0] ** 2))(x), wanted)
    assert_close(grad(lambda x: reduce.sum(masks.masked_select(x, x > 0) ** 2))(x), wanted)
    check_grads(lambda y: y[x > 0] ** 3, x)


def test_a_mask_under_vmap_is_refused(rng):
    x = rng.normal(size=(3, 4))
    for f in (
        lambda x: x[x > 0],
        lambda x: masks.nonzero(x)[0],
        grad(lambda y: reduce.sum(y[y > 0])),
    ):
        with pytest.raises(errors.TraceError) as caught:
            vmap(f)(x)
        assert "masked_select(x, mask, size=n)" in str(caught.value)
        assert "rg.where" in str(caught.value)


def test_a_mask_that_is_not_mapped_works_under_vmap(rng):
    x, mask = rng.normal(size=(3, 4)), np.array([True, False, True, True])
    np.testing.assert_array_equal(vmap(lambda x: x[mask])(x).array, x[:, mask])


def test_masked_select_of_a_size(rng):
    x = rng.normal(size=(3, 4))
    mask = x > 0
    for size in (0, 3, 20):
        found = masks.masked_select(x, mask, size=size, fill_value=-7).array
        wanted = [*x[mask][:size], *[-7] * (size - mask.sum())]
        np.testing.assert_array_equal(found, wanted)
        rows = vmap(lambda x, m, n=size: masks.masked_select(x, m, size=n))(x, mask)
        each = [
            masks.masked_select(a, m, size=size).array for a, m in zip(x, mask, strict=True)
        ]
        np.testing.assert_array_equal(rows.array, each)
    check_grads(lambda x: masks.masked_select(x, mask, size=5) ** 2, x)
    check_grads(lambda x: vmap(lambda x, m: masks.masked_select(x, m, size=3) ** 2)(x, mask), x)
    assert masks.masked_select(np.zeros(0), np.zeros(0, bool), size=2).shape == (2,)
    with pytest.raises(errors.DtypeError, match="bool"):
        masks.masked_select(x, x)


def test_nonzero(rng):
    x = rng.integers(0, 2, (3, 4)) * rng.normal(size=(3, 4))
    for found, wanted in zip(masks.nonzero(x), np.nonzero(x), strict=True):
        np.testing.assert_array_equal(found.array, wanted)
    np.testing.assert_array_equal(masks.argwhere(x).array, np.argwhere(x))
    for size in (2, 20):
        padded = masks.nonzero(x, size=size, fill_value=9)
        for found, wanted in zip(padded, np.nonzero(x), strict=True):
            more = size - len(wanted)
            np.testing.assert_array_equal(found.array, [*wanted[:size], *[9] * more])
    with pytest.raises(errors.ArgumentError, match="no axes"):
        masks.nonzero(np.asarray(1.0))


def test_masked_fill(rng):
    x, mask = rng.normal(size=(3, 4)), np.array([True, False, False, True])
    np.testing.assert_array_equal(masks.masked_fill(x, mask, 0.5).array, np.where(mask, 0.5, x))
    check_grads(lambda x, v: masks.masked_fill(x, mask, v), x, np.asarray(2.0))


EXPANDED = [
    (op, arrays)
    for cls in REGISTRY.values()
    if cls.__module__ in {f"retrograd.ops.{m}" for m in ("index", "slices", "row_products")}
    if hasattr(cls, "expand")
    for op, *arrays in cls.samples(RNG(7))
]


@pytest.mark.parametrize(
    ("op", "arrays"), EXPANDED, ids=lambda v: "" if type(v) is list else str(v)
)
def test_expand_is_forward(op, arrays):
    with using(PURE):
        found = op.expand(*map(tensor, arrays))
    assert_close(found, op.forward(*arrays))


def test_half_precision_sums_in_float32():
    ids, ones = np.zeros((1, 5000), int), np.ones(5000, np.float16)
    found = grad(lambda x: reduce.sum(x[ids[0]] * ones).astype("float32"))(
        np.ones(2, np.float16)
    )
    np.testing.assert_array_equal(found.array, [5000, 0])


def test_the_same_bits_each_time(rng):
    weights = rng.normal(size=(3000, 40)).astype(np.float32)
    ids = np.minimum(rng.zipf(1.5, 3000) - 1, 99)
    loss = grad(lambda w: reduce.sum(gather.embedding(ids, w) * weights))
    table = np.zeros((100, 40), np.float32)
    found = [loss(Tensor(table)).array for _ in range(3)]
    assert all((f == found[0]).all() for f in found)
    wanted = np.zeros((100, 40))
    np.add.at(wanted, ids, weights.astype(np.float64))
    assert_close(found[0], wanted)
