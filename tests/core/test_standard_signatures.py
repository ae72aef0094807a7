"""The array API standard 2024.12: every function, how it may be called, and what it gives."""

import ast
import inspect
import itertools

import numpy as np
import pytest

import retrograd as rg
from retrograd.testing import assert_close

UNARY = """
    abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag
    isfinite isinf isnan log log10 log1p log2 logical_not matrix_transpose negative nonzero
    positive real reciprocal round sign signbit sin sinh sqrt square tan tanh trunc unique_all
    unique_counts unique_inverse unique_values
"""
BINARY = """
    add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign
    divide equal floor_divide greater greater_equal hypot less less_equal logaddexp logical_and
    logical_or logical_xor matmul maximum minimum multiply nextafter not_equal pow remainder
    subtract
"""
REDUCTION = "all any argmax argmin count_nonzero max mean min"
STANDARD = {
    **dict.fromkeys(UNARY.split(), "x, /"),
    **dict.fromkeys(BINARY.split(), "x1, x2, /"),
    **dict.fromkeys(REDUCTION.split(), "x, /, *, axis=None, keepdims=False"),
    **dict.fromkeys(("empty", "ones", "zeros"), "shape, *, dtype=None, device=None"),
    **dict.fromkeys(
        ("empty_like", "ones_like", "zeros_like"), "x, /, *, dtype=None, device=None"
    ),
    **dict.fromkeys(("prod", "sum"), "x, /, *, axis=None, dtype=None, keepdims=False"),
    **dict.fromkeys(("std", "var"), "x, /, *, axis=None, correction=0.0, keepdims=False"),
    **dict.fromkeys(("sort", "argsort"), "x, /, *, axis=-1, descending=False, stable=True"),
    **dict.fromkeys(
        ("cumulative_prod", "cumulative_sum"),
        "x, /, *, axis=None, dtype=None, include_initial=False",
    ),
    **dict.fromkeys(("concat", "stack"), "arrays, /, *, axis=0"),
    **dict.fromkeys(("tril", "triu"), "x, /, *, k=0"),
    **dict.fromkeys(("finfo", "iinfo"), "type, /"),
    "__array_namespace_info__": "",
    "arange": "start, /, stop=None, step=1, *, dtype=None, device=None",
    "asarray": "obj, /, *, dtype=None, device=None, copy=None",
    "astype": "x, dtype, /, *, copy=True, device=None",
    "broadcast_arrays": "*arrays",
    "broadcast_to": "x, /, shape",
    "can_cast": "from_, to, /",
    "clip": "x, /, min=None, max=None",
    "diff": "x, /, *, axis=-1, n=1, prepend=None, append=None",
    "expand_dims": "x, /, *, axis=0",
    "eye": "n_rows, n_cols=None, /, *, k=0, dtype=None, device=None",
    "flip": "x, /, *, axis=None",
    "from_dlpack": "x, /, *, device=None, copy=None",
    "full": "shape, fill_value, *, dtype=None, device=None",
    "full_like": "x, /, fill_value, *, dtype=None, device=None",
    "isdtype": "dtype, kind",
    "linspace": "start, stop, /, num, *, dtype=None, device=None, endpoint=True",
    "meshgrid": "*arrays, indexing='xy'",
    "moveaxis": "x, source, destination, /",
    "permute_dims": "x, /, axes",
    "repeat": "x, repeats, /, *, axis=None",
    "reshape": "x, /, shape, *, copy=None",
    "result_type": "*arrays_and_dtypes",
    "roll": "x, /, shift, *, axis=None",
    "searchsorted": "x1, x2, /, *, side='left', sorter=None",
    "squeeze": "x, /, axis",
    "take": "x, indices, /, *, axis=None",
    "take_along_axis": "x, indices, /, *, axis=-1",
    "tensordot": "x1, x2, /, *, axes=2",
    "tile": "x, repetitions, /",
    "unstack": "x, /, *, axis=0",
    "vecdot": "x1, x2, /, *, axis=-1",
    "where": "condition, x1, x2, /",
}
METHODS = {
    **dict.fromkeys(
        ["__abs__", "__bool__", "__complex__", "__dlpack_device__", "__float__"], ""
    ),
    **dict.fromkeys(["__index__", "__int__", "__invert__", "__neg__", "__pos__"], ""),
    **{
        f"__{side}{name}__": "other, /"
        for name in (
            *("add", "and", "floordiv", "lshift", "matmul", "mod", "mul", "or", "pow"),
            *("rshift", "sub", "truediv", "xor"),
        )
        for side in ("", "r")
    },
    **{f"__{name}__": "other, /" for name in ("eq", "ge", "gt", "le", "lt", "ne")},
    "__array_namespace__": "*, api_version=None",
    "__dlpack__": "*, stream=None, max_version=None, dl_device=None, copy=None",
    "__getitem__": "key, /",
    "__setitem__": "key, value, /",
    "to_device": "device, /, *, stream=None",
}
REQUIRED = inspect.Parameter.empty


def parsed(text):
    """(place or None, name or None, default) of each parameter, and whether one has a star."""
    given = ast.parse(f"def f({text}): ...").body[0].args
    placed = [*given.posonlyargs, *given.args]
    spare = [REQUIRED] * (len(placed) - len(given.defaults))
    defaults = spare + [ast.literal_eval(d) for d in given.defaults]
    for i, (a, default) in enumerate(zip(placed, defaults, strict=True)):
        yield i, a.arg if a in given.args else None, default
    for a, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield None, a.arg, REQUIRED if default is None else ast.literal_eval(default)


def takes(f, text, *, skip=0):
    """What a function of ours lacks of the standard's signature, as sentences."""
    ours = list(inspect.signature(f).parameters.values())[skip:]
    named = {p.name: p for p in ours if p.kind is not p.POSITIONAL_ONLY}
    placed = [p for p in ours if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = any(p.kind is p.VAR_KEYWORD for p in ours)
    used = set()
    for place, name, default in parsed(text):
        if place is not None and place >= len(placed):
            yield f"it takes no argument at place {place}"
            continue
        p = placed[place] if place is not None else named.get(name)
        if p is None or (name is not None and named.get(name) is not p):
            if not rest:
                yield f"it takes no {name}="
            continue
        used.add(p.name)
        if default is not REQUIRED and p.default != default:
            yield f"{p.name} is {p.default!r} by default, not {default!r}"
    for p in ours:
        if (
            p.name not in used
            and p.default is REQUIRED
            and p.kind
            not in (
                p.VAR_POSITIONAL,
                p.VAR_KEYWORD,
            )
        ):
            yield f"it needs {p.name}, which the standard does not have"


@pytest.mark.parametrize("name", STANDARD)
def test_functions_take_what_the_standard_says(name):
    assert name in rg.__all__
    f, text = getattr(rg, name), STANDARD[name]
    assert not list(takes(f, text))
    if text.startswith("*") and not text.startswith("*,"):
        stars = [
            p.name
            for p in inspect.signature(f).parameters.values()
            if p.kind is p.VAR_POSITIONAL
        ]
        assert stars


@pytest.mark.parametrize("name", METHODS)
def test_methods_take_what_the_standard_says(name):
    assert not list(takes(getattr(rg.Tensor, name), METHODS[name], skip=1))


def test_a_wrong_signature_would_be_seen():
    """The question itself: places, names, defaults, and what is asked for beyond."""
    text = "x, /, shape, *, copy=None"
    assert not list(takes(lambda x, /, shape, *, copy=None, more=1: 0, text))
    assert not list(takes(lambda x, /, shape, **named: 0, text))
    for wrong in (
        lambda x, /: 0,
        lambda x, /, to, *, copy=None: 0,
        lambda x, shape, /, *, copy=None: 0,
        lambda x, /, shape, *, copy=False: 0,
        lambda x, /, shape, more, *, copy=None: 0,
        lambda x, /, *, shape, copy=None: 0,
    ):
        assert list(takes(wrong, text))


def test_attributes_and_constants():
    x = rg.ones((2, 3))
    assert (x.ndim, x.shape, x.size, x.dtype, x.device) == (2, (2, 3), 6, rg.float32, "cpu")
    assert (x.T.shape, x.mT.shape) == ((3, 2), (3, 2))
    assert (rg.e, rg.pi, rg.inf) == (np.e, np.pi, np.inf)
    assert rg.nan != rg.nan
    assert rg.newaxis is None
    assert rg.__array_api_version__ == "2024.12"


def test_the_namespace_says_what_it_offers():
    info = rg.__array_namespace_info__()
    assert info.default_device() in info.devices()
    assert info.default_dtypes()["real floating"] == rg.float32
    assert info.default_dtypes(device="cpu")["indexing"] == rg.int64
    assert set(info.dtypes(kind="integral").values()) == {*SIGNED, *UNSIGNED}
    assert info.dtypes(kind=("bool", "complex floating")).keys() == {
        *("bool", "complex64", "complex128"),
    }
    assert info.capabilities()["boolean indexing"]


# -- dtypes of results -------------------------------------------------------------------------

SIGNED = (rg.int8, rg.int16, rg.int32, rg.int64)
UNSIGNED = (rg.uint8, rg.uint16, rg.uint32, rg.uint64)
FLOATS = (rg.float32, rg.float64)
COMPLEX = (rg.complex64, rg.complex128)
NUMERIC = (*SIGNED, *UNSIGNED, *FLOATS, *COMPLEX)

NEW = {  # what a call gives without a dtype
    "zeros(2)": rg.float32,
    "ones(2)": rg.float32,
    "empty(2)": rg.float32,
    "eye(2)": rg.float32,
    "linspace(0, 1, 3)": rg.float32,
    "arange(3)": rg.int64,
    "arange(3.0)": rg.float32,
    "arange(0, 1, 0.5)": rg.float32,
    "asarray(True)": rg.bool,
    "asarray([1, 2])": rg.int64,
    "asarray([1, 2.0])": rg.float32,
    "asarray([1, 2j])": rg.complex64,
    "full(2, True)": rg.bool,
    "full(2, 1)": rg.int64,
    "full(2, 1.0)": rg.float32,
    "full(2, 1j)": rg.complex64,
    "zeros_like(zeros(2, dtype=int8))": rg.int8,
    "full_like(zeros(2, dtype=int8), 1)": rg.int8,
    "argmax(zeros(2))": rg.int64,
    "argsort(zeros(2))": rg.int64,
    "count_nonzero(zeros(2))": rg.int64,
    "nonzero(zeros(2))[0]": rg.int64,
    "searchsorted(zeros(2), zeros(2))": rg.int64,
    "unique_counts(zeros(2)).counts": rg.int64,
    "unique_all(zeros(2)).indices": rg.int64,
    "divide(asarray(1), asarray(2))": rg.float32,
    "real(asarray(1j))": rg.float32,
    "abs(asarray(1j))": rg.float32,
    "imag(zeros(2, dtype=complex128))": rg.float64,
    "mean(zeros(2, dtype=float64))": rg.float64,
    "all(zeros(2))": rg.bool,
    "equal(zeros(2), 1)": rg.bool,
    "isnan(zeros(2))": rg.bool,
    "logical_and(asarray(True), asarray(False))": rg.bool,
}


@pytest.mark.parametrize("text", NEW)
def test_default_dtypes(text):
    assert eval(text, vars(rg).copy()).dtype == NEW[text]


@pytest.mark.parametrize("dtype", [rg.bool, *NUMERIC], ids=str)
def test_sums_and_products_do_not_overflow_small_integers(dtype):
    """Small integers are summed in 64 bits; floats in their own dtype."""
    wanted = dtype
    if dtype in SIGNED or dtype == rg.bool:
        wanted = rg.int64
    elif dtype in UNSIGNED:
        wanted = rg.uint64
    x = rg.ones(3, dtype=dtype)
    for f in (rg.sum, rg.prod):
        assert f(x).dtype == wanted
    for f in (rg.cumulative_sum, rg.cumulative_prod):
        assert f(x).dtype == wanted
        assert f(x, include_initial=True).dtype == wanted
    assert rg.sum(x, dtype=rg.float64).dtype == rg.float64
    for f in (rg.max, rg.min):
        assert f(x).dtype == dtype if dtype not in COMPLEX else True


SAME_KIND = {
    **{(a, b): max(a, b, key=SIGNED.index) for a, b in itertools.product(SIGNED, repeat=2)},
    **{(a, b): max(a, b, key=UNSIGNED.index) for a, b in itertools.product(UNSIGNED, repeat=2)},
    **{  # signed with unsigned: the signed one that holds both
        (s, u): SIGNED[max(i, j + 1)]
        for (i, s), (j, u) in itertools.product(enumerate(SIGNED), enumerate(UNSIGNED[:3]))
    },
    **{(a, b): max(a, b, key=FLOATS.index) for a, b in itertools.product(FLOATS, repeat=2)},
    **{(a, b): max(a, b, key=COMPLEX.index) for a, b in itertools.product(COMPLEX, repeat=2)},
    **{
        (f, c): COMPLEX[max(i, j)]
        for (i, f), (j, c) in itertools.product(enumerate(FLOATS), enumerate(COMPLEX))
    },
    (rg.bool, rg.bool): rg.bool,
}


@pytest.mark.parametrize("shapes", [((2,), (2,)), ((), (2,)), ((2,), ()), ((), ())], ids=str)
def test_the_promotion_table(shapes):
    """Dtypes decide, shapes do not: what has no axes counts as much as what has."""
    for pair, wanted in SAME_KIND.items():
        for a, b in (pair, pair[::-1]):
            x, y = (rg.ones(s, dtype=d) for s, d in zip(shapes, (a, b), strict=True))
            assert rg.result_type(x, y) == rg.result_type(a, b) == wanted
            assert rg.where(rg.asarray(True), x, y).dtype == wanted
            if wanted != rg.bool:
                assert (x + y).dtype == (x * y).dtype == wanted
            if len(x.shape) == len(y.shape) == 1:
                assert rg.concat([x, y]).dtype == rg.stack([x, y]).dtype == wanted
                if wanted != rg.bool:
                    assert (x @ y).dtype == wanted


def test_python_numbers_take_the_tensor_s_dtype():
    for dtype in NUMERIC:
        x = rg.ones(2, dtype=dtype)
        assert (x + 1).dtype == (2 - x).dtype == dtype
        if dtype in (*FLOATS, *COMPLEX):
            assert (x * 1.5).dtype == dtype
        if dtype in COMPLEX:
            assert (x * 1j).dtype == dtype


# -- without axes ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*UNARY.split(), *BINARY.split()])
def test_without_axes_in_without_axes_out(name):
    """A tensor, not a number; with a vector, a vector."""
    f, bits = getattr(rg, name), name.startswith("bitwise")
    a = rg.asarray(1, dtype=rg.int64) if bits else rg.asarray(0.5)
    if name in ("matmul", "matrix_transpose", "nonzero"):
        with pytest.raises(ValueError, match=f"{name}: "):
            f(*[a] * (1 + (name == "matmul")))
        return
    if name.startswith("unique"):
        found = f(a)
        assert (found if name == "unique_values" else found.values).shape == (1,)
        return
    several = name in BINARY.split()
    found = f(*[a] * (1 + several))
    assert type(found) is rg.Tensor
    assert found.shape == ()
    if several:
        assert f(a, rg.stack([a, a])).shape == (2,)


@pytest.mark.parametrize("name", [*REDUCTION.split(), "prod", "std", "sum", "var"])
def test_reductions_without_axes(name):
    f, x = getattr(rg, name), rg.asarray(2.0)
    for found in (f(x), f(x, keepdims=True)):
        assert type(found) is rg.Tensor
        assert found.shape == ()
    with pytest.raises(rg.ArgumentError, match=f"{name}: axis 0 is outside a tensor of 0 axes"):
        f(x, axis=0)
    assert f(rg.ones((2, 3))).shape == ()
    if name not in ("argmax", "argmin"):
        assert f(x, axis=()).shape == ()
        assert f(rg.ones((2, 3)), axis=()).shape == (2, 3)


def test_moves_without_axes():
    x = rg.asarray(2.0)
    for same in (
        rg.permute_dims(x, ()),
        rg.reshape(x, ()),
        rg.flip(x),
        rg.roll(x, 3),
        rg.squeeze(x, ()),
        rg.broadcast_to(x, ()),
        rg.tile(x, ()),
        rg.clip(x, 0, 3),
        rg.astype(x, rg.float32),
        rg.ones((2, 3))[0, 0] * 2,
        x[()],
        x[...],
        rg.ones(3)[1] * 2,
        rg.where(True, x, 0.0),
    ):
        assert type(same) is rg.Tensor
        assert same.shape == ()
        assert float(same) == 2.0
    assert rg.expand_dims(x, axis=0).shape == (1,)
    assert rg.reshape(x, (1, 1)).shape == (1, 1)
    assert rg.reshape(x, (-1,)).shape == (1,)
    assert rg.stack([x, x]).shape == (2,)
    assert rg.concat([x, x], axis=None).shape == (2,)
    assert rg.broadcast_to(x, (2, 0)).shape == (2, 0)
    assert rg.repeat(x, 3).shape == (3,)
    assert rg.tile(x, (2, 2)).shape == (2, 2)
    assert x[None].shape == (1,)
    assert x[rg.asarray(True)].shape == (1,)
    assert [g.shape for g in rg.meshgrid(x, x)] == [(1, 1), (1, 1)]
    assert rg.tensordot(x, rg.ones(3), axes=0).shape == (3,)
    for refuse in (
        lambda: x[0],
        lambda: rg.sort(x),
        lambda: rg.concat([x, x]),
        lambda: rg.unstack(x),
        lambda: rg.moveaxis(x, 0, 0),
        lambda: rg.vecdot(x, x),
        lambda: rg.cumulative_sum(x),
        lambda: rg.take(x, rg.asarray([0]), axis=0),
        lambda: rg.diff(x),
        lambda: rg.tril(x),
    ):
        with pytest.raises(rg.RetrogradError):
            refuse()


# -- values that the standard writes down ------------------------------------------------------


def test_special_cases_of_the_standard():
    inf, nan = rg.inf, rg.nan
    cases = [
        (rg.pow(rg.asarray(nan), 0.0), 1.0),
        (rg.pow(rg.asarray(1.0), nan), 1.0),
        (rg.pow(rg.asarray(-inf), -3.0), -0.0),
        (rg.atan2(rg.asarray(-0.0), rg.asarray(-1.0)), -np.pi),
        (rg.hypot(rg.asarray(inf), rg.asarray(nan)), inf),
        (rg.logaddexp(rg.asarray(-inf), rg.asarray(-inf)), -inf),
        (rg.remainder(rg.asarray(-3.0), rg.asarray(2.0)), 1.0),
        (rg.remainder(rg.asarray(3.0), rg.asarray(-inf)), -inf),
        (rg.floor_divide(rg.asarray(-3.0), rg.asarray(2.0)), -2.0),
        (rg.round(rg.asarray(2.5)), 2.0),
        (rg.sign(rg.asarray(nan)), nan),
        (rg.maximum(rg.asarray(nan), rg.asarray(1.0)), nan),
        (rg.sum(rg.zeros(0)), 0.0),
        (rg.prod(rg.zeros(0)), 1.0),
        (rg.mean(rg.zeros(0)), nan),
        (rg.var(rg.ones(1), correction=1), nan),
        (rg.sqrt(rg.asarray(-1.0)), nan),
        (rg.max(rg.asarray([1.0, nan])), nan),
    ]
    for found, wanted in cases:
        assert_close(found, np.asarray(wanted, np.float32))
    assert bool(rg.signbit(rg.pow(rg.asarray(-inf), -3.0)))
    assert bool(rg.all(rg.zeros(0)))
    assert not bool(rg.any(rg.zeros(0)))
    for f in (rg.max, rg.min, rg.argmax, rg.argmin):
        with pytest.raises(rg.RetrogradError, match=f"{f.__name__}: "):
            f(rg.zeros(0))
