"""New tensors: what they hold, what they share, and what is refused."""

import array
import enum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import retrograd as rg
from retrograd.core import dtype as dt
from retrograd.core.errors import (
    ArgumentError,
    BoundsError,
    DtypeError,
    ShapeError,
    TraceError,
)
from retrograd.core.interpret import RAW, using
from retrograd.core.op import FUNCTIONS
from retrograd.testing.check import check_grads

SIDES = st.integers(0, 4)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


def same(found, wanted):
    """Equal to the bit, in shape and dtype."""
    wanted = np.asarray(wanted)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found.array, wanted)


# -- asarray -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, dt.bool),
        (3, dt.int64),
        (2.5, dt.float32),
        (1 + 2j, dt.complex64),
        ([True, False], dt.bool),
        ([1, 2], dt.int64),
        ([1, 2.5], dt.float32),
        ([[1, 2], [3, 4j]], dt.complex64),
        ([True, 2], dt.int64),
        ([], dt.float32),
        ([[], []], dt.float32),
        (range(3), dt.int64),
        (np.float64(1), dt.float64),
        (np.int8(1), dt.int8),
        ([np.float64(1), 2], dt.float64),
        ([np.float32(1), 2.0], dt.float32),
        ([np.ones(2), np.zeros(2)], dt.float64),
        ([np.ones(2, np.float16), [1.0, 2.0]], dt.float16),
        (array.array("d", [1.0, 2.0]), dt.float64),
        (memoryview(np.ones(2, np.int16)), dt.int16),
        (enum.IntEnum("E", "A B").B, dt.int64),
    ],
)
def test_asarray_keeps_arrays_dtypes_and_gives_numbers_the_defaults(value, dtype):
    found = rg.asarray(value)
    assert found.dtype is dtype
    np.testing.assert_array_equal(found.array, np.asarray(value))


@pytest.mark.peers("torch", "jax")
def test_asarray_reads_arrays_of_others():
    import jax.numpy as jnp
    import torch

    assert rg.asarray(torch.ones(2, dtype=torch.float64)).dtype == np.float64
    assert rg.asarray(jnp.ones(2, dtype=np.float32)).dtype == np.float32


def test_asarray_with_a_dtype():
    same(rg.asarray([1, 2], dtype=np.float64), np.array([1.0, 2.0]))
    same(rg.asarray(np.array([1.5, 2.5]), dtype=np.float32), np.array([1.5, 2.5], np.float32))
    same(rg.asarray(np.array([1 + 2j]), dtype=np.float64), np.array([1.0]))
    same(rg.asarray([2**63], dtype=np.uint64), np.array([2**63], np.uint64))
    same(rg.asarray(1e300), np.array(np.inf, np.float32))
    assert rg.asarray(np.array([1.0], ">f8")).dtype is dt.float64
    assert rg.asarray([1, 0], dtype=bool).dtype is dt.bool


def test_copies_unless_told_not_to():
    values = np.ones(3)
    copied, asked, shared = (rg.asarray(values, copy=c) for c in (None, True, False))
    values[0] = 7
    assert copied.array[0] == asked.array[0] == 1
    assert shared.array[0] == 7
    assert np.shares_memory(shared.array, values)
    apart = rg.asarray(shared, copy=True)
    values[0] = 8
    assert apart.array[0] == 7
    x = rg.asarray(values)
    assert rg.asarray(x) is x
    for bad in (lambda: rg.asarray([1.0], copy=False), lambda: rg.asarray(1.0, copy=False)):
        with pytest.raises(ArgumentError, match="cannot be shared"):
            bad()
    for value in (values, x):
        with pytest.raises(ArgumentError, match="float64 as float32 is a copy"):
            rg.asarray(value, dtype=np.float32, copy=False)


def test_a_copy_stays_on_the_tape(rng):
    x = rg.tensor(rng.normal(size=3), requires_grad=True)
    rg.sum(rg.asarray(x * x, copy=True)).backward()
    same(x.grad, 2 * x.array)


def test_sequences_of_tensors_are_stacked_and_stay_differentiable(rng):
    x = rg.tensor(rng.normal(size=4), requires_grad=True)
    found = rg.asarray([[x[0], 1.0], (x[2] * x[2], x[3])])
    assert found.dtype == np.float64
    assert found.shape == (2, 2)
    rg.sum(found).backward()
    same(x.grad, np.array([1, 0, 2 * x.array[2], 1]))
    rows = rg.asarray([rg.ones(3), np.zeros(3)])
    same(rows, np.array([[1, 1, 1], [0, 0, 0]], np.float64))
    half = rg.asarray([rg.ones((), dtype=np.float16), 2.0])
    assert half.dtype == np.float16
    assert rg.asarray([rg.ones(2)], dtype=np.int32).dtype == np.int32


def test_sequences_of_tensors_inside_transforms(rng):
    x = rng.normal(size=(5, 2))

    def f(v):
        return rg.sum(rg.asarray([[v[0] * v[1], 2.0], [v[0], v[1]]]) * np.array([[1.0], [3.0]]))

    check_grads(f, x[0])
    same(rg.vmap(rg.grad(f))(x), x[:, ::-1] + 3)
    same(rg.vmap(lambda v: rg.tensor([v[1], v[0]]))(x), x[:, ::-1])


@pytest.mark.parametrize(
    ("value", "error", "sentence"),
    [
        (2**63, DtypeError, "does not fit in int64"),
        ([1, -(2**70)], DtypeError, "does not fit in int64"),
        ([2**63, -1], DtypeError, "does not fit in int64"),
        ("text", DtypeError, "str does not hold numbers"),
        (["1.5"], DtypeError, "str does not hold numbers"),
        ([1.0, None], DtypeError, "NoneType does not hold numbers"),
        (b"bytes", DtypeError, "is not one of bool"),
        (np.array(["a"]), DtypeError, "is not one of bool"),
        (np.array(["2024-01-01"], "M8[D]"), DtypeError, "is not one of bool"),
        (np.array([object()]), DtypeError, "is not one of bool"),
        ({"a": 1}, DtypeError, "dict does not hold numbers"),
        ([[1], [1, 2]], ArgumentError, "ragged"),
        ([1, [2]], ArgumentError, "ragged"),
    ],
)
def test_asarray_refuses(value, error, sentence):
    with pytest.raises(error) as caught:
        rg.asarray(value)
    assert sentence in str(caught.value)


def test_asarray_refuses_more():
    one = rg.ones(())
    for ragged in ([one, [one]], [[one], [one, one]], [rg.ones(2), one], [rg.ones(2), 1.0]):
        with pytest.raises(ArgumentError, match="ragged"):
            rg.asarray(ragged)
    endless: list = []
    endless.append(endless)
    with pytest.raises(ArgumentError, match="64 deep"):
        rg.asarray(endless)
    with pytest.raises(DtypeError, match="does not fit in uint8"):
        rg.asarray([300], dtype=np.uint8)
    with pytest.raises(DtypeError, match="'flaot32' does not name a dtype"):
        rg.asarray(1.0, dtype="flaot32")
    with pytest.raises(DtypeError, match="is not one of bool"):
        rg.asarray(1.0, dtype=np.str_)
    with pytest.raises(ArgumentError, match="the one device is 'cpu'; got 'gpu'"):
        rg.asarray(1.0, device="gpu")
    assert rg.asarray(1.0, device="cpu").dtype == np.float32


def test_tensor_makes_leaves(rng):
    values = rng.normal(size=3)
    x = rg.tensor(values, requires_grad=True)
    assert x.is_leaf
    assert not np.shares_memory(x.array, values)
    leaf = rg.tensor(x * x, requires_grad=True)  # a new leaf, cut from what made it
    assert leaf.is_leaf
    assert rg.tensor(x * x).requires_grad  # nothing is cut that was not asked for
    for transform in (rg.grad, rg.vmap, lambda f: rg.grad(rg.grad(f))):
        with pytest.raises(TraceError, match=r"cannot become a leaf|cannot join the tape"):
            transform(lambda v: rg.sum(rg.tensor(v * 1, requires_grad=True)))(values)


# -- shapes and ranges ---------------------------------------------------------------------


@given(SHAPES, st.sampled_from([None, *dt.ALL]))
def test_filled(shape, dtype):
    for name, value in (("zeros", 0), ("ones", 1), ("empty", 0)):
        same(FUNCTIONS[name](shape, dtype=dtype), np.full(shape, value, dtype or np.float32))
        like = FUNCTIONS[f"{name}_like"](np.ones(shape, np.int16), dtype=dtype)
        same(like, np.full(shape, value, dtype or np.int16))
    same(rg.full(shape, 1, dtype=dtype), np.full(shape, 1, dtype or np.int64))
    same(
        rg.full_like(np.ones(shape, np.int16), 1, dtype=dtype),
        np.full(shape, 1, dtype or np.int16),
    )


def test_full_takes_numbers_and_tensors():
    for value, dtype in ((True, bool), (2, int), (2.5, np.float32), (1j, np.complex64)):
        same(rg.full(3, value), np.full(3, value, dtype))
    assert rg.full(2, np.float64(1)).dtype == np.float64
    check_grads(lambda v: rg.full((2, 3), v), 2.0)


def test_created_tensors_have_the_one_dtype_object():
    """The hot path compares dtypes by identity."""
    for dtype in (np.float32, "float32", dt.float32, np.dtype(">f4").newbyteorder()):
        assert rg.zeros(2, dtype=dtype).dtype is dt.float32


def test_inside_rules_that_run_on_arrays_they_give_arrays():
    x = np.ones((2, 3))
    with using(RAW):
        made = [
            rg.zeros(2),
            rg.ones(2),
            rg.full(2, 3.0),
            rg.empty(2),
            rg.zeros_like(x),
            rg.ones_like(x),
            rg.full_like(x, 2.0),
            rg.eye(2),
            rg.arange(3),
            rg.linspace(0, 1, 3),
            rg.tril(x),
            *rg.meshgrid(x[0], x[1]),
            rg.concat([x, x]),
            *rg.split(x, 3, axis=1),
            rg.pad(x, 1, "reflect"),
            rg.einsum("ij,kj->ik", x, x),
            rg.diag(x[0]),
        ]
    assert all(type(m) is np.ndarray for m in made)


@given(st.integers(0, 5), st.one_of(st.none(), SIDES), st.integers(-6, 6))
def test_eye(rows, columns, k):
    same(rg.eye(rows, columns, k=k), np.eye(rows, columns, k=k, dtype=np.float32))
    same(rg.eye(rows, columns, k=k, dtype=int), np.eye(rows, columns, k=k, dtype=int))


INTEGERS = st.integers(-30, 30)


@given(INTEGERS, INTEGERS, INTEGERS.filter(bool))
def test_arange(start, stop, step):
    same(rg.arange(start, stop, step), np.arange(start, stop, step))
    same(rg.arange(start), np.arange(start))
    same(rg.arange(rg.asarray(stop)), np.arange(stop))
    quarters = np.arange(start, stop, step) / 4  # exact in binary
    same(rg.arange(start / 4, stop / 4, step / 4), quarters.astype(np.float32))
    assert rg.arange(start, stop, step, dtype=np.float64).dtype == np.float64


NUMBERS = st.floats(-1e3, 1e3)


@given(NUMBERS, NUMBERS, st.integers(0, 9), st.booleans())
def test_linspace(start, stop, num, endpoint):
    wanted = np.linspace(start, stop, num, endpoint=endpoint)
    same(rg.linspace(start, stop, num, endpoint=endpoint, dtype=np.float64), wanted)
    same(rg.linspace(start, stop, num, endpoint=endpoint), wanted.astype(np.float32))
    ends = rg.asarray(np.array(start)), rg.asarray(np.array(stop))
    found = rg.linspace(*ends, num, endpoint=endpoint)
    np.testing.assert_allclose(found.array, wanted, rtol=1e-12, atol=1e-9)


def test_linspace_of_tensors_is_differentiable():
    check_grads(lambda a, b: rg.linspace(a, b, 5), 1.0, 3.0)
    same(rg.linspace(0, 2j, 3), np.array([0, 1j, 2j], np.complex64))


@given(st.lists(SIDES, max_size=4), st.sampled_from(["xy", "ij"]))
def test_meshgrid(lengths, indexing):
    xs = [np.arange(n) + 10.0 * i for i, n in enumerate(lengths)]
    wanted = np.meshgrid(*xs, indexing=indexing)
    for a, b in zip(rg.meshgrid(*xs, indexing=indexing), wanted, strict=True):
        same(a, b)


def test_one_hot(rng):
    labels = rng.integers(0, 4, (3, 2))
    same(rg.one_hot(labels, 4), np.eye(4, dtype=np.float32)[labels])
    same(rg.one_hot(labels.astype(np.uint8), 300, dtype=bool), np.eye(300, dtype=bool)[labels])
    same(rg.vmap(lambda v: rg.one_hot(v, 4))(labels), np.eye(4, dtype=np.float32)[labels])
    for bad in (-1, 4):
        with pytest.raises(BoundsError, match=f"index {bad} is not from 0 to 3"):
            rg.one_hot([0, bad], 4)


# -- dtypes --------------------------------------------------------------------------------


def test_result_type():
    assert dt.result_type(np.float32, np.float64) is dt.float64
    assert dt.result_type(rg.ones(2), np.ones(2), 3) is dt.float64
    assert dt.result_type(dt.int8, 1.0) is dt.float32
    assert dt.result_type(dt.float16, 1.0, True) is dt.float16
    assert dt.result_type(1) is dt.int64
    with pytest.raises(ArgumentError, match="at least one"):
        dt.result_type()
    with pytest.raises(DtypeError, match="no common integer dtype"):
        dt.result_type(dt.int64, dt.uint64)


@given(st.sampled_from(dt.ALL), st.sampled_from(dt.ALL))
def test_can_cast_is_what_promotion_does(a, b):
    try:
        wanted = dt.result_type(a, b) == b
    except DtypeError:
        wanted = False
    assert dt.can_cast(a, b) is wanted
    assert dt.can_cast(np.ones(1, a), b) is wanted


# -- what is refused -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "error", "sentence"),
    [
        (lambda: rg.zeros((2, -1)), ArgumentError, "negative size"),
        (lambda: rg.zeros(2.5), ArgumentError, "must be integers"),
        (lambda: rg.zeros(2, device="gpu"), ArgumentError, "zeros: the one device"),
        (lambda: rg.ones(2, dtype="text"), DtypeError, "'text' does not name a dtype"),
        (lambda: rg.full(2, [1, 2]), ArgumentError, "must be a number; got shape (2,)"),
        (lambda: rg.full(2, 300, dtype=np.int8), DtypeError, "int8"),
        (lambda: rg.eye(-1), ArgumentError, "negative size"),
        (lambda: rg.arange(1, 2, 0), ArgumentError, "step not 0"),
        (lambda: rg.arange(np.inf), ArgumentError, "must be finite"),
        (lambda: rg.arange("a"), ArgumentError, "must be numbers; got str"),
        (lambda: rg.arange(rg.asarray(2.0)), ArgumentError, "must be numbers; got Tensor"),
        (lambda: rg.arange(2**70, 2**70 + 2), DtypeError, "does not fit in int64"),
        (lambda: rg.linspace(0, 1, -1), ArgumentError, "at least 0"),
        (lambda: rg.linspace(np.ones(2), 1, 3), ArgumentError, "have no axes"),
        (lambda: rg.meshgrid(np.ones(2), indexing="yx"), ArgumentError, "'xy' or 'ij'"),
        (lambda: rg.meshgrid(np.ones((2, 2))), ShapeError, "must have one axis"),
        (lambda: rg.one_hot([1.0], 2), DtypeError, "must be integers"),
        (lambda: rg.one_hot([0], -1), ArgumentError, "at least 0"),
    ],
)
def test_refuses(f, error, sentence):
    with pytest.raises(error) as caught:
        f()
    assert sentence in str(caught.value)


def test_the_names_of_the_standard_are_there():
    creation = "arange asarray empty empty_like eye full full_like linspace meshgrid ones "
    creation += "ones_like tril triu zeros zeros_like"
    moving = "broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims "
    moving += "repeat reshape roll squeeze stack tile unstack"
    products = "matmul matrix_transpose tensordot vecdot"
    assert not set(f"{creation} {moving} {products}".split()) - set(FUNCTIONS)
