"""The world outside: NumPy on tensors, operators, DLPack, copies, pickles, texts, numbers."""

import copy
import operator
import pickle
import re

import numpy as np
import pytest

import retrograd as rg
from retrograd.core import dtype as dt
from retrograd.testing import assert_close

needs_bfloat16 = pytest.mark.skipif(dt.bfloat16 is None, reason="needs ml_dtypes")
VALUES = np.array([[3.0, 1.0, 2.0], [4.0, 6.0, 5.0]], np.float32)


@pytest.fixture
def t():
    """A leaf that requires a gradient."""
    return rg.tensor(VALUES, requires_grad=True)


def refused(call, *words, kind=rg.RetrogradError):
    """The text of the error of ours that a call ends in; it begins with who speaks."""
    with pytest.raises(kind) as caught:
        call()
    message = caught.value.message
    assert re.match(r"[\w.\[\]]+(: | )", message), message
    for word in words:
        assert word in message, message
    return message


# -- arrays of tensors -----------------------------------------------------------------------


def test_asarray_is_a_read_only_view(t):
    """Also of what is on the tape; writing to it is refused by NumPy."""
    for x in (t, t * 2, t.detach(), rg.zeros((2, 0)), rg.asarray(1.0)):
        for found in (np.asarray(x), x.numpy(), np.array(x, copy=False)):
            assert type(found) is np.ndarray
            assert not found.flags.writeable
            assert np.shares_memory(found, x.array) == bool(x.size)
            assert found.shape == x.shape
            assert found.dtype == x.dtype
    with pytest.raises(ValueError, match="read-only"):
        t.numpy()[0, 0] = 1
    assert t.array.flags.writeable  # the view is read-only, the tensor's own memory is not


def test_array_copies(t):
    found = np.array(t)
    found[:] = 0
    assert_close(t, VALUES)
    wide = np.asarray(t, dtype=np.float64)
    assert wide.dtype == np.float64
    wide[:] = 0
    assert_close(t, VALUES)
    refused(lambda: np.asarray(t, dtype=np.float64, copy=False), "copy is False")


def test_a_view_keeps_the_values_it_showed(t):
    x = t.detach()
    seen = x.numpy()
    x[0, 0] = 9.0
    assert_close(seen, VALUES)
    assert float(x[0, 0]) == 9.0


# -- NumPy's functions -----------------------------------------------------------------------

DISPATCHED = {  # NumPy's functions that ask their arguments first, and its ufuncs
    f"{module.__name__}.{name}": f
    for module in (np, np.linalg, np.fft, np.emath)
    for name, f in vars(module).items()
    if hasattr(f, "_implementation") or isinstance(f, np.ufunc)
    if "save" not in name  # they write files
}
CALLS = [
    lambda f, x: f(x),
    lambda f, x: f(x, 0),
    lambda f, x: f(x, 1),
    lambda f, x: f(x, 2),
    lambda f, x: f(x, 0.5),
    lambda f, x: f(x, (1, 0)),
    lambda f, x: f(x, (3, 2)),
    lambda f, x: f(x, 1, 0),
    lambda f, x: f(x, 1, 1),
    lambda f, x: f(x, 0.5, 0),
    lambda f, x: f(x, x),
    lambda f, x: f(x, x, x),
    lambda f, x: f(x, x.mT),
    lambda f, x: f(x[0]),
    lambda f, x: f(x[0], 1),
    lambda f, x: f(x[0], x[0]),
    lambda f, x: f(x, axis=0),
    lambda f, x: f(x, axis=None),
    lambda f, x: f(x, keepdims=True),
    lambda f, x: f(x, k=1),
    lambda f, x: f(x, x, axis=0),
]


def parts(result):
    if isinstance(result, tuple | list):
        return [p for r in result for p in parts(r)]
    return [result]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(DISPATCHED))
def test_numpy_s_functions_mean_the_same_or_are_refused(name, t):
    """Whatever is called, however: NumPy's values in tensors, or an error. Never detached."""
    f = DISPATCHED[name]
    for call in CALLS:
        try:
            with np.errstate(all="ignore"):
                wanted = call(f, VALUES.copy())
        except Exception:  # noqa: BLE001 - whatever NumPy says
            wanted = None
        try:
            found = call(f, t)
        except rg.RetrogradError:
            continue
        except Exception:  # noqa: BLE001 - a call that NumPy does not take either
            assert wanted is None
            continue
        if wanted is None or f is np.empty_like:  # whatever lay in memory
            continue
        ours, theirs = parts(found), parts(wanted)
        assert not any(isinstance(p, np.ndarray | np.generic) for p in ours), "detached"
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            if not isinstance(b, np.dtype):
                assert np.shape(a) == np.shape(b)
                assert np.allclose(np.asarray(a), b, rtol=1e-5, equal_nan=True)


KEPT = {
    "sin": lambda np, x: np.sin(x),
    "add": lambda np, x: np.add(VALUES, x),
    "multiply": lambda np, x: np.multiply(x, 2.0),
    "sum": lambda np, x: np.sum(x, axis=0),
    "sum by place": lambda np, x: np.sum(x, 0),
    "mean": lambda np, x: np.mean(x),
    "concatenate": lambda np, x: np.concatenate([x, x], axis=1),
    "stack": lambda np, x: np.stack([x, x * 2]),
    "where": lambda np, x: np.where(VALUES > 2, x, 0.0),
    "transpose": lambda np, x: np.transpose(x),
    "reshape": lambda np, x: np.reshape(x, (3, 2)),
    "maximum.reduce": lambda np, x: np.maximum.reduce(x, axis=1),
    "add.reduce": lambda np, x: np.add.reduce(x),
    "matmul": lambda np, x: np.matmul(VALUES.T, x),
    "clip": lambda np, x: np.clip(x, 1.5, 4.5),
    "cumsum": lambda np, x: np.cumsum(x),
    "sort": lambda np, x: np.sort(x, axis=0),
    "einsum": lambda np, x: np.einsum("ij,kj->ik", x, x),
    "linalg.norm": lambda np, x: np.linalg.norm(x, axis=1),
}


@pytest.mark.parametrize("name", KEPT)
def test_numpy_s_functions_keep_gradients(name, t):
    """On the tape and inside transforms; the gradient is that of differences."""
    f = KEPT[name]
    out = f(np, t)
    assert isinstance(out, rg.Tensor)
    assert out.requires_grad
    weights = np.cos(np.arange(out.size)).reshape(out.shape)
    out.backward(weights.astype(np.float32))
    pulled = rg.grad(lambda x: rg.sum(weights.astype(np.float32) * f(np, x)))(VALUES)
    assert_close(t.grad, pulled)
    wide, step = VALUES.astype(np.float64), np.linspace(-1, 1, 6).reshape(2, 3)
    ahead, behind = (f(np, wide + sign * 1e-6 * step) for sign in (1, -1))
    slope = np.sum(weights * (ahead - behind)) / 2e-6
    assert abs(float(rg.sum(t.grad * step.astype(np.float32))) - slope) < 1e-3


REFUSED = {
    "numpy.add.at": lambda t: np.add.at(t, [0], 1.0),
    "numpy.add.at ": lambda t: np.add.at(VALUES.copy(), [0], t),
    "numpy.add.accumulate": np.add.accumulate,
    "numpy.multiply.outer": lambda t: np.multiply.outer(t, t),
    "numpy.add: out=": lambda t: np.add(t, 1, out=np.empty((2, 3), np.float32)),
    "numpy.sin: out=": lambda t: np.sin(VALUES, out=t),
    "numpy.sum with out": lambda t: np.sum(t, out=np.empty(())),
    "numpy.add with where": lambda t: np.add(t, 1, where=VALUES > 1),
    "numpy.add.reduce with initial": lambda t: np.add.reduce(t, initial=1.0),
    "numpy.linalg.svd": np.linalg.svd,
    "numpy.linalg.norm": lambda t: np.linalg.norm(t, 1),
    "numpy.lib.scimath.sqrt": np.emath.sqrt,
    "numpy.split at places": lambda t: np.split(t, [1]),
    "numpy.put_along_axis": lambda t: np.put_along_axis(t, np.zeros((1, 3), int), 0, 0),
    "numpy.interp": lambda t: np.interp(t, t[0], t[0]),
    "numpy.copyto": lambda t: np.copyto(VALUES.copy(), t),
    "sort: axis": lambda t: np.sort(t, axis=None),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_has_no_counterpart_says_so(text, t):
    refused(lambda: REFUSED[text](t), text.strip())


def test_an_array_does_not_swallow_a_tensor(t):
    """`array += tensor` would have to detach; the hint says what to write."""
    array = VALUES.copy()
    with pytest.raises(rg.ArgumentError, match=r"(?s)numpy.add: out= .*y \+= x"):
        array += t
    assert_close(array, VALUES)


def test_errors_of_transforms_are_not_hidden_by_numpy_s_door():
    """A TraceError is a TypeError; it must not read as a missing counterpart."""
    with pytest.raises(rg.TraceError):
        rg.vmap(np.unique)(VALUES)


def test_shapes_are_asked_for_without_a_detour(t):
    assert (np.shape(t), np.ndim(t), np.size(t)) == ((2, 3), 2, 6)
    np.testing.assert_allclose(t, VALUES)


# -- operators -------------------------------------------------------------------------------

BINARY = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
]
BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]


@pytest.mark.parametrize("f", BINARY)
def test_operators_take_arrays_and_numbers_on_both_sides(f, t):
    for other in (VALUES + 1, VALUES[0], np.float32(2), np.float64(2), 2, 2.5, True):
        for left, right in ((t, other), (other, t)):
            found = f(left, right)
            assert type(found) is rg.Tensor
            plain = [VALUES if v is t else v for v in (left, right)]
            assert_close(found, f(*plain))
            assert found.requires_grad == (found.dtype != rg.bool)


@pytest.mark.parametrize("f", BITS)
def test_operators_of_bits(f):
    x = np.array([[5, 2, 7]])
    for other in (np.array([1, 2, 3]), np.int64(1), 2):
        assert_close(f(rg.asarray(x), other), f(x, other))
        assert_close(f(other, rg.asarray(x)), f(other, x))
    refused(lambda: f(rg.ones(2), 1), "float32")


def test_products_of_matrices_and_unary_operators(t):
    assert_close(VALUES.T @ t, VALUES.T @ VALUES)
    assert_close(t @ VALUES.T, VALUES @ VALUES.T)
    for f in (operator.neg, operator.pos, abs):
        assert_close(f(t), f(VALUES))
    assert_close(~rg.asarray([True, False]), np.array([False, True]))
    refused(lambda: t @ 2, "matmul: operands need axes")


@pytest.mark.parametrize("f", [operator.iadd, operator.imul, operator.isub, operator.itruediv])
def test_in_place_operators_rebind(f):
    """Neither another handle nor the tape sees a change."""
    x = rg.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    other, square = y.handle(), y * y
    before = y
    y = f(y, 2.0)
    assert y is not before
    assert_close(other, np.array([3.0, 6.0], np.float32))
    square.sum().backward()
    assert_close(x.grad, np.array([18.0, 36.0], np.float32))


def test_in_place_operators_of_bits_and_matrices():
    x = rg.asarray([6, 3])
    for f in (operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift):
        assert_close(f(x, 1), f(np.array([6, 3]), 1))
    x = rg.ones((2, 2))
    old = x
    x @= x
    assert_close(x, np.full((2, 2), 2.0, np.float32))
    assert_close(old, np.ones((2, 2), np.float32))


def test_comparisons_with_what_is_no_number(t):
    """Not equal, as Python has it; no order."""
    for other in (None, "a", {}, object()):
        assert (t == other) is False
        assert (other == t) is False
        assert (t != other) is True
        with pytest.raises(TypeError, match="not supported"):
            operator.lt(t, other)
        with pytest.raises(TypeError, match="unsupported operand"):
            operator.sub(t, other)


def test_integers_beyond_a_dtype_compare_by_value():
    x = rg.asarray(np.array([1, 255], np.uint8))
    assert (x < 300).tolist() == [True, True]
    assert (x == -1).tolist() == [False, False]
    refused(lambda: x + 300, "does not fit in uint8", kind=rg.DtypeError)


# -- the standard's namespace, DLPack ----------------------------------------------------------


def test_the_namespace_is_the_package():
    x = rg.ones(2)
    for version in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        assert x.__array_namespace__(api_version=version) is rg
    for version in ("2019.12", 2024, ""):
        refused(lambda v=version: x.__array_namespace__(api_version=v), "no version")
    assert x.device == "cpu"
    assert x.to_device("cpu") is x
    refused(lambda: x.to_device("gpu"), "the one device is 'cpu'")


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float32", "float64", "complex64"])
def test_dlpack_shares_memory(dtype):
    x = rg.asarray(np.arange(6).reshape(2, 3).astype(dtype))
    assert x.__dlpack_device__() == (1, 0)
    found = np.from_dlpack(x)
    assert np.shares_memory(found, x.array)
    assert_close(x, found)
    shared, copied = rg.from_dlpack(found, copy=False), rg.from_dlpack(found)
    assert np.shares_memory(shared.array, found)
    assert not np.shares_memory(copied.array, found)
    assert shared.dtype == x.dtype


def test_dlpack_gives_copies_of_what_must_not_be_written():
    """Others may write: never to a repeated element, nor to read-only memory."""
    wide = rg.broadcast_to(rg.ones(1), (3,))
    found = np.from_dlpack(wide)
    found[0] = 5.0
    assert_close(wide, np.ones(3, np.float32))
    fixed = np.ones(3, np.float32)
    fixed.flags.writeable = False
    x = rg.asarray(fixed, copy=False)
    assert not np.shares_memory(np.from_dlpack(x), fixed)
    with pytest.raises(BufferError, match="copy is False"):
        np.from_dlpack(wide, copy=False)


def test_dlpack_of_tensors_and_of_others(t):
    assert rg.from_dlpack(t) is t
    other = rg.from_dlpack(t, copy=True)
    assert not np.shares_memory(other.array, t.array)
    assert other.requires_grad
    for bad in (None, 1.5, "a", [1.0]):
        refused(lambda b=bad: rg.from_dlpack(b), "has no __dlpack__", kind=rg.DtypeError)
    for bad in (np.ones(2, ">f4"), np.array(["a"]), np.ones(2, np.longdouble)):
        refused(lambda b=bad: rg.from_dlpack(b), "cannot be read", kind=rg.DtypeError)
    refused(lambda: rg.from_dlpack(VALUES, device="gpu"), "the one device is 'cpu'")


@needs_bfloat16
def test_dlpack_has_no_bfloat16():
    x = rg.ones(2, dtype=rg.bfloat16)
    refused(lambda: np.from_dlpack(x), "bfloat16 cannot be exchanged", kind=rg.DtypeError)


# -- copies and pickles ------------------------------------------------------------------------


def test_a_copy_is_another_handle_on_the_same_place(t):
    other = copy.copy(t)
    assert other is not t
    assert other.leaf is t.leaf
    (other * 2).sum().backward()
    assert_close(t.grad, np.full((2, 3), 2.0, np.float32))
    x = rg.zeros(3)
    y = copy.copy(x)
    y[0] = 1.0
    assert_close(x, np.zeros(3, np.float32))


def test_a_deep_copy_of_a_leaf_is_a_new_leaf_without_a_gradient(t):
    (t * t).sum().backward()
    other = copy.deepcopy(t)
    assert other.requires_grad
    assert other.is_leaf
    assert other.leaf is not t.leaf
    assert other.grad is None
    assert not np.shares_memory(other.array, t.array)
    several = copy.deepcopy({"w": t, "b": rg.ones(2)})
    assert several["w"].requires_grad
    assert not several["b"].requires_grad


@pytest.mark.parametrize("dtype", [str(d) for d in dt.ALL])
def test_pickles_keep_values_and_dtype(dtype):
    x = rg.asarray(np.arange(3), dtype=dtype)
    found = pickle.loads(pickle.dumps(x))
    assert found.dtype == x.dtype
    assert_close(found, x)
    assert not found.requires_grad


def test_pickles_keep_whether_a_gradient_is_required(t):
    (t * t).sum().backward()
    for other in (pickle.loads(pickle.dumps(t)), pickle.loads(pickle.dumps(t * 2))):
        assert other.requires_grad
        assert other.is_leaf
        assert other.grad is None
    for shape in ((), (0,), (2, 0)):
        assert pickle.loads(pickle.dumps(rg.zeros(shape))).shape == shape


# -- texts -------------------------------------------------------------------------------------


def test_repr_shows_values_and_what_is_not_the_default(t):
    assert repr(rg.asarray([1.0, 2.5])) == "tensor([1. , 2.5])"
    assert repr(rg.asarray(1.5)) == "tensor(1.5)"
    assert repr(rg.asarray([1, 2])) == "tensor([1, 2])"
    assert repr(rg.asarray([True])) == "tensor([ True])"
    assert repr(rg.asarray([1.0], dtype=rg.float64)) == "tensor([1.], dtype=float64)"
    assert repr(rg.asarray([1], dtype=rg.int8)) == "tensor([1], dtype=int8)"
    assert repr(rg.asarray([1j])) == "tensor([0.+1.j], dtype=complex64)"
    assert repr(rg.zeros((2, 0))) == "tensor([], shape=(2, 0))"
    assert repr(t * 2).endswith("requires_grad=True)")
    assert repr(rg.asarray([1.0], dtype=rg.float16)) == "tensor([1.], dtype=float16)"
    assert str(t) == f"{t}" == repr(t)


def test_repr_of_large_tensors_is_short():
    text = repr(rg.zeros((1000, 1000)))
    assert "..." in text
    assert len(text) < 600


def test_repr_inside_transforms_says_what_it_can():
    seen = []

    def f(x):
        seen.append(repr(x))
        return rg.sum(x * x)

    rg.vmap(f)(VALUES)
    rg.jvp(f, (VALUES,), (VALUES,))
    assert len(seen) == 2
    assert "float32[3]" in seen[0]
    assert "float32[2, 3]" in seen[1] or "tensor(" in seen[1]


def test_number_formats(t):
    assert f"{t[0, 0]:.3f}" == "3.000"
    assert f"{rg.asarray([7]):4d}" == "   7"
    assert f"{rg.asarray(0.5, dtype=rg.float16):.1f}" == "0.5"
    refused(lambda: f"{t:.3f}", "format: needs exactly one element; got shape (2, 3)")


# -- numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [str(d) for d in dt.ALL])
def test_one_element_is_a_number(dtype):
    for shape in ((), (1,), (1, 1)):
        x = rg.ones(shape, dtype=dtype)
        assert bool(x) is True
        assert complex(x) == 1
        assert type(complex(x)) is complex
        assert x.item() == 1
        assert type(x.item()) in (bool, int, float, complex)
        assert np.asarray(x.tolist()).shape == shape
        if x.dtype.kind == "c":
            refused(lambda x=x: float(x), "float: complex", "imaginary", kind=rg.DtypeError)
            refused(lambda x=x: int(x), "int: complex", kind=rg.DtypeError)
        else:
            assert (float(x), int(x)) == (1.0, 1)
            assert type(float(x)) is float
            assert type(int(x)) is int


def test_numbers_that_are_not_there(t):
    for f in (float, int, complex, bool):
        for x in (t, rg.zeros(0), rg.zeros((2, 0))):
            refused(lambda f=f, x=x: f(x), f"{f.__name__}: needs exactly one element")
    refused(lambda: int(rg.asarray(float("nan"))), "int: nan has no integer value")
    refused(lambda: int(rg.asarray(float("inf"))), "int: inf has no integer value")
    refused(t.item, "item: needs exactly one element; got shape (2, 3)")
    assert int(rg.asarray(-2.7)) == -2
    assert int(rg.asarray(2**63, dtype=rg.uint64)) == 2**63


def test_integers_without_axes_are_indices():
    i = rg.asarray(2)
    assert [10, 20, 30][i] == 30
    assert range(5)[i] == 2
    assert operator.index(rg.asarray(3, dtype=rg.uint8)) == 3
    for bad in (rg.asarray(2.0), rg.asarray([2]), rg.asarray(True)):
        refused(lambda b=bad: operator.index(b), "index: only an integer", kind=rg.DtypeError)


def test_lists(t):
    assert t.tolist() == VALUES.tolist()
    assert rg.asarray(2).tolist() == 2
    assert rg.zeros((2, 0)).tolist() == [[], []]


# -- sequences ---------------------------------------------------------------------------------


def test_tensors_are_sequences_along_their_first_axis(t):
    assert len(t) == 2
    rows = list(t)
    assert [r.shape for r in rows] == [(3,), (3,)]
    assert all(r.requires_grad for r in rows)
    a, b = t
    assert_close(a + b, VALUES[0] + VALUES[1])
    assert list(rg.zeros((0, 2))) == []
    refused(lambda: len(t[0, 0]), "len: a tensor without axes")
    refused(lambda: list(t[0, 0]), "iter: a tensor without axes")


def test_membership_is_equality_of_an_element(t):
    assert 3 in t
    assert 3.5 not in t
    assert np.float32(6) in t
    for other in (None, "a", object()):
        assert other not in t
    assert 1 not in rg.zeros(0)


def test_hashes_are_of_the_handle_not_of_the_values(t):
    a, b = rg.ones(2), rg.ones(2)
    assert hash(a) != hash(b)
    table = {a: "a", b: "b", t: "t"}
    assert (table[a], table[b], table[t]) == ("a", "b", "t")
    before = hash(a)
    a[0] = 5.0
    assert hash(a) == before


def test_transposes(t):
    assert_close(t.T, VALUES.T)
    assert_close(t.mT, VALUES.T)
    assert rg.ones((4, 2, 3)).mT.shape == (4, 3, 2)
    for same in (t.transpose(), t.transpose(1, 0), t.transpose((1, 0)), t.transpose(None)):
        assert_close(same, VALUES.T)
    refused(lambda: t.transpose(np.array([1, 0])), "permute_dims: axis must be an integer")
    refused(lambda: t.transpose(0), "permute_dims: axes (0,) must name each")
    refused(lambda: t[0].T, "T: needs 2 axes; got shape (3,)")
    refused(lambda: rg.ones((4, 2, 3)).T, "T: needs 2 axes")
    refused(lambda: t[0].mT, "matrix_transpose: needs at least 2 axes")


METHODS = [
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "max",
    "mean",
    "min",
    "prod",
    "sort",
    "std",
    "sum",
    "var",
]


@pytest.mark.parametrize("name", METHODS)
def test_methods_take_the_axis_first(name, t):
    """x.sum(0) is what people type; the functions of the standard want axis=0."""
    method, f = getattr(t, name), getattr(rg, name)
    for found in (method(0), method(axis=0)):
        assert_close(found, f(t, axis=0))
    assert_close(method(), f(t))
    with pytest.raises(TypeError, match="positional"):
        method(0, 1)


# -- writing -----------------------------------------------------------------------------------

PLACES = [
    0,
    -1,
    slice(None),
    slice(None, None, -1),
    ...,
    (slice(None), 1),
    (..., slice(1, 3)),
    [0, 1],
    ([0, 1], [2, 0]),
    VALUES > 2,
    np.array([True, False]),
    (slice(None), np.array([True, False, True])),
    None,
    (slice(0, 0), slice(None)),
]


@pytest.mark.parametrize("index", PLACES, ids=str)
def test_writing_is_numpy_s(index, t):
    for value in (7.0, 2, np.float32(3)):
        x, wanted = rg.asarray(VALUES), VALUES.copy()
        other = x.handle()
        x[index] = value
        wanted[index] = value
        assert_close(x, wanted)
        assert_close(other, VALUES)
        x[index] += 1
        wanted[index] += 1
        assert_close(x, wanted)


def test_writing_broadcasts_and_refuses_what_does_not_fit():
    x = rg.asarray(VALUES)
    x[:] = np.array([1.0, 2.0, 3.0])
    assert_close(x, np.tile(np.array([1, 2, 3], np.float32), (2, 1)))
    x[...] += rg.asarray([[1.0], [2.0]])
    assert_close(x, np.array([[2, 3, 4], [3, 4, 5]], np.float32))
    whole = rg.asarray([1, 2])
    for write in (
        lambda: x.__setitem__(slice(None), np.ones(4)),
        lambda: x.__setitem__(2, 0.0),
        lambda: x.__setitem__((0, 0, 0), 0.0),
        lambda: x.__setitem__("a", 0.0),
        lambda: x.__setitem__(0, None),
        lambda: x.__setitem__(0, "a"),
        lambda: x.__setitem__(0, 1j),
        lambda: whole.__setitem__(0, 1.5),
        lambda: x.__setitem__(np.array([True, False, True]), 0.0),
        lambda: x.__setitem__(0.5, 0.0),
    ):
        refused(write)
    assert_close(x, np.array([[2, 3, 4], [3, 4, 5]], np.float32))


@pytest.mark.parametrize(
    "same",
    [
        lambda x: x.reshape(x.shape),
        lambda x: x.astype(x.dtype),
        lambda x: rg.broadcast_to(x, x.shape),
        lambda x: rg.permute_dims(x, (0, 1)),
        rg.squeeze,
        rg.atleast_2d,
        lambda x: rg.flip(x, axis=()),
        lambda x: rg.pad(x, 0),
        lambda x: x[...],
        lambda x: x[:],
        lambda x: +x,
        lambda x: x.detach(),
        lambda x: x.T.T,
        lambda x: rg.asarray(x, copy=True),
        rg.real,
        rg.floor,
        rg.stop_gradient,
        lambda x: rg.split(x, 1)[0],
        lambda x: rg.concat([x]),
        lambda x: rg.rot90(x, 4),
        rg.conj,
    ],
)
def test_what_changes_nothing_is_another_handle(same):
    x = rg.asarray(VALUES)
    y = same(x)
    assert y is not x
    assert_close(y, VALUES)
    y[0, 0] = -1.0
    assert_close(x, VALUES)
    x[0, 1] = -2.0
    assert float(y[0, 1]) == 1.0


def test_shared_arrays_are_not_written():
    """copy=False shares memory for reading; a write moves the tensor away from it."""
    array = VALUES.copy()
    x = rg.asarray(array, copy=False)
    assert np.shares_memory(x.array, array)
    x[0] = 0.0
    assert_close(array, VALUES)
    assert not np.shares_memory(x.array, array)
