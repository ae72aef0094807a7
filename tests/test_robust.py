"""Whatever a public function is given: NumPy's values, or an error of ours. Nothing else.

The functions are found, not listed. GOOD says by a parameter's name what it is usually like;
then each parameter in turn is given everything in ODD, and data of every dtype and of shapes
without axes or without elements.
"""

import inspect
import itertools
import re
import signal
from types import FunctionType

import numpy as np
import pytest

import retrograd as rg
from retrograd.core import dtype as dt

# -- the functions, and what they are usually given ------------------------------------------


def floats(*shape):
    return np.linspace(0.15, 0.85, int(np.prod(shape))).reshape(shape).astype(np.float32)


NAMESPACES = {"": rg, "special.": rg.special, "random.": rg.random}
ELSEWHERE = ("apply", "backward", "op")  # what they take are ops, tapes and classes
FUNCTIONS = {
    prefix + name: f
    for prefix, module in NAMESPACES.items()
    for name in module.__all__
    if isinstance(f := getattr(module, name), FunctionType)
    if name not in ELSEWHERE
    if inspect.signature(f).parameters
    if not any(
        "Callable" in str(p.annotation) for p in inspect.signature(f).parameters.values()
    )
}  # transforms, which take functions, have tests of their own
DATA = ("x", "x1", "x2", "a", "b", "p", "y", "re", "im")
GOOD = {
    **dict.fromkeys((*DATA, "alpha", "logits", "obj", "operands", "weight"), floats(2, 3)),
    **dict.fromkeys(
        ("axis", "axis1", "decimals", "low", "offset", "seed", "source", "start"), 0
    ),
    **dict.fromkeys(("axis2", "data", "destination", "dilation", "k", "n", "pad_width"), 1),
    **dict.fromkeys(("fill_value", "minlength", "sections", "shift", "step"), 1),
    **dict.fromkeys(("n_rows", "ord", "repeats", "repetitions", "size", "window_shape"), 2),
    **dict.fromkeys(("bins", "n_cols", "num", "num_classes"), 3),
    **dict.fromkeys(("high", "length", "stop"), 5),
    **dict.fromkeys(
        ("atol", "constant_values", "correction", "loc", "mean", "min", "value"), 0.0
    ),
    **dict.fromkeys(("lam", "max", "scale", "std", "upper"), 1.0),
    **dict.fromkeys(("sorter", "prepend", "append", "padding_idx", "weights")),
    "arrays": [floats(2, 3), floats(2, 3)],
    "arrays_and_dtypes": rg.float32,
    "axes": (1, 0),
    "condition": np.array([[True], [False]]),
    "device": "cpu",
    "dtype": rg.float32,
    "from_": rg.float32,
    "indexing": "xy",
    "indices": np.array([[0, 1, 1]]),
    "key": rg.random.key(0),
    "kind": "bool",
    "lower": -1.0,
    "mask": np.array([[True, False, True]]),
    "method": "linear",
    "mode": "constant",
    "q": 0.5,
    "range": (0.0, 1.0),
    "rtol": 1e-5,
    "shape": (2, 3),
    "side": "left",
    "src": floats(1, 3),
    "subscripts": "ij->ji",
    "to": rg.float64,
    "values": floats(1, 3),
    "w": floats(3, 2),
}
OTHER = {  # where a function's parameter is not like its namesakes
    "array_split": {"sections": 2},
    "bincount": {"x": np.array([0, 1, 1])},
    "choice": {"p": None},
    "dirichlet": {"shape": 2},
    "dot": {"x2": floats(3, 2)},
    "embedding": {"indices": np.array([0, 1])},
    "flatten": {"end": -1},
    "fold": {"x": floats(3, 2)},
    "iinfo": {"dtype": rg.int32},
    "isdtype": {"dtype": rg.float32},
    "linear": {"b": floats(2)},
    "matmul": {"x2": floats(3, 2)},
    "meshgrid": {"arrays": floats(3)},
    "one_hot": {"indices": np.array([0, 1])},
    "poisson": {"dtype": rg.int64},
    "randint": {"dtype": rg.int64},
    "rot90": {"axes": (0, 1)},
    "searchsorted": {"x1": floats(3)},
    "squeeze": {"x": floats(1, 3)},
    "take": {"indices": np.array([0, 1])},
    "tensordot": {"axes": ((0,), (0,))},
}
INTEGERS = np.array([[1, 2, 3], [3, 1, 2]])


def usual(name, *, options=True):
    """Arguments that a function takes: all, or only those without a default."""
    bare = name.split(".")[-1]
    known = GOOD | (dict.fromkeys(DATA, INTEGERS) if bare.startswith("bitwise") else {})
    known = known | OTHER.get(bare, {})
    return {
        p.name: known.get(p.name, floats(2, 3))
        for p in inspect.signature(FUNCTIONS[name]).parameters.values()
        if (options and p.name in known) or p.default is p.empty
    }


def call(f, given):
    """f with arguments by name, positional ones by place."""
    args, named = [], {}
    for p in inspect.signature(f).parameters.values():
        if p.name in given:
            by_place = p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
            if by_place:
                args.append(given[p.name])
            else:
                named[p.name] = given[p.name]
    return f(*args, **named)


@pytest.fixture(autouse=True)
def quick():
    """Nothing hangs."""

    def late(*_):
        pytest.fail("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


WHO = re.compile(r"[a-z_]\w*(\.\w+|\[\])*(: | )")


def says_who(error):
    assert WHO.match(error.message), f"it does not say who speaks: {error.message}"
    return error


def outcome(f, given):
    """What a call returns, or the error of ours that it ends in; anything else goes on."""
    try:
        return call(f, given)
    except rg.RetrogradError as error:
        return says_who(error)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_usual_works(name):
    """The tables above hold for each function: a new parameter may need a line there."""
    call(FUNCTIONS[name], usual(name))


# -- anything at all -------------------------------------------------------------------------


class Thing:
    """Nothing that anyone could use."""


ODD = {
    "none": None,
    "text": "zebra",
    "no text": "",
    "bytes": b"ab",
    "object": Thing(),
    "class": int,
    "function": len,
    "ragged": [[1], [2, 3]],
    "dict": {"a": 1},
    "set": {1, 2},
    "range": range(2),
    "dots": ...,
    "slice": slice(None),
    "texts": np.array(["a", "b"]),
    "objects": np.array([None, 1], dtype=object),
    "dates": np.array(["2020"], dtype="M8[Y]"),
    "records": np.zeros(2, dtype=[("a", "f4")]),
    "long double": np.zeros((2, 3), np.longdouble),
    "masked": np.ma.array([1.0, 2.0]),
    "big endian": floats(2, 3).astype(">f4"),
    "huge": 2**62,
    "huger": 2**70,
    "far below": -(2**70),
    "nan": float("nan"),
    "inf": float("inf"),
    "tiny": 5e-324,
    "complex": 1 + 2j,
    "true": True,
    "-1": -1,
    "-5": -5,
    "0": 0,
    "1": 1,
    "5": 5,
    "0.5": 0.5,
    "1.5": 1.5,
    "NumPy's 1": np.int64(1),
    "NumPy's 0.5": np.float64(0.5),
    "tensor 0": rg.asarray(0),
    "tensor 0.5": rg.asarray(0.5),
    "pair": (0, 1),
    "twice": (0, 0),
    "far": (-5,),
    "nothing": (),
    "empty list": [],
    "list": [0],
    "nested": [[[]]],
    "fractions": (0.5,),
    "words": ("zebra",),
    "huge shape": (2**62, 2**62),
    "huger shape": (2**70,),
    "wrong length": floats(4),
    "wrong shape": floats(4, 5),
    "three axes": floats(1, 2, 3),
    "many axes": np.zeros((1,) * 30, np.float32),
    "int8": np.array([[0, 1, 2]], np.int8),
    "uint64": np.array([[0, 1, 2**63]], np.uint64),
    "int64": np.array([[-(2**63), 0, 1]]),
    "bool": np.array([[True, False, True]]),
    "complex64": floats(2, 3) + 1j,
    "float16": floats(2, 3).astype(np.float16),
    "float64": floats(2, 3).astype(np.float64),
    "nans": np.full((2, 3), np.nan, np.float32),
    "rank 0": floats(),
    **{f"{s}": floats(*s) for s in ((0,), (0, 3), (2, 0), (2, 0, 3))},
    "tracked": rg.tensor(floats(2, 3), requires_grad=True),
}
if dt.bfloat16 is not None:
    ODD["bfloat16"] = floats(2, 3).astype(dt.bfloat16)


def plausible(parameter, value):
    """Flags take what has a truth, words are compared with: no array does either."""
    kind = str(parameter.annotation)
    if kind in ("bool", "str") or parameter.name in ("device", "copy"):
        return not isinstance(value, np.ndarray | rg.Tensor)
    return True


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_argument_may_be_anything(name):
    f, given = FUNCTIONS[name], usual(name)
    faults = []
    for p, (label, value) in itertools.product(
        inspect.signature(f).parameters.values(), ODD.items()
    ):
        if plausible(p, value):
            try:
                outcome(f, given | {p.name: value})
            except MemoryError:
                pass  # NumPy says how much was asked for
            except Exception as error:  # noqa: BLE001 - any other is a fault
                faults.append(f"{p.name} = {label}: {type(error).__name__}: {error}")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_too_few_and_too_many_arguments(name):
    """What Python itself refuses is a TypeError."""
    f = FUNCTIONS[name]
    if not any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(f).parameters.values()):
        with pytest.raises(TypeError):
            f(*[floats(2)] * 9)
        with pytest.raises(TypeError):
            f(floats(2), no_such_option=1)


# -- every dtype, every shape ------------------------------------------------------------------

SHAPES = [(), (0,), (0, 3), (2, 0), (2, 0, 3), (3,), (2, 3)]
NUMPY = {
    name: getattr(np, name, None) or getattr(np.linalg, name, None)
    for name in FUNCTIONS
    if hasattr(np, name) or hasattr(np.linalg, name)
}
UNLIKE = {  # what another meaning was chosen for, or NumPy leaves open
    "diagonal": "of the last two axes, as the standard has it",
    "empty_like": "zeros, not what lay in memory",
    "from_dlpack": "NumPy's takes tensors too",
    "histogram": "edges are rounded once",
    "put_along_axis": "returns what NumPy writes",
    "reciprocal": "of integers, a float",
    "trace": "of the last two axes, as the standard has it",
    "unique_values": "in order",
}


def data(dtype, shape):
    values = np.arange(1, np.prod(shape, dtype=int) + 1)
    inexact = dt.is_inexact(np.dtype(dtype))
    return (floats(*shape) if inexact else values.reshape(shape)).astype(dtype)


def plain(result):
    if isinstance(result, tuple | list):
        return [p for r in result for p in plain(r)]
    return [np.asarray(result)]


def assert_numpy_s(found, wanted):
    ours, theirs = plain(found), plain(wanted)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        half = any(v.dtype in dt.HALF for v in (a, b))
        near = 2e-2 if half else 1e-4
        a, b = (v.astype(np.complex128) for v in (a, b))
        assert np.allclose(a, b, rtol=near, atol=near, equal_nan=True)


def their_outcome(f, given, ours):
    """NumPy's answer, silently, or None; options are given by the names that ours have."""
    kinds = inspect.signature(ours).parameters
    named = {n: v for n, v in given.items() if kinds[n].kind is inspect.Parameter.KEYWORD_ONLY}
    try:
        with np.errstate(all="ignore"):
            return f(*[given[n] for n in kinds if n in given and n not in named], **named)
    except Exception:  # noqa: BLE001 - whatever NumPy says
        return None


@pytest.mark.parametrize("name", sorted(set(NUMPY) - set(UNLIKE)))
def test_of_every_dtype_and_shape_values_are_numpy_s(name):
    """Operands of other shapes beside each other too, so that some do not fit."""
    f = FUNCTIONS[name]
    given = usual(name, options=False)
    operands = [n for n in given if n in DATA]
    if not operands:
        return
    alike = [(dtype, (s,) * len(operands)) for dtype in dt.ALL for s in SHAPES]
    mixed = itertools.product(("float32",), itertools.product(SHAPES, repeat=len(operands)))
    for dtype, shapes in (*alike, *mixed):
        given |= {n: data(dtype, s) for n, s in zip(operands, shapes, strict=True)}
        found = outcome(f, given)
        if not isinstance(found, Exception):
            wanted = their_outcome(NUMPY[name], given, f)
            if wanted is not None:
                assert_numpy_s(found, wanted)


AXES = [*range(-4, 4), None, (), (0,), (0, 1), (-1, 0), (0, 0), (0, -2), (5,), [0], 1.0, "0"]
ALONG = [
    name
    for name in sorted(set(NUMPY) - set(UNLIKE))
    if "axis" in inspect.signature(FUNCTIONS[name]).parameters
]


@pytest.mark.parametrize("name", ALONG)
def test_of_every_axis_values_are_numpy_s(name):
    f = FUNCTIONS[name]
    for shape, axis in itertools.product(SHAPES, AXES):
        given = usual(name, options=False) | {"axis": axis}
        given |= {n: data("float32", shape) for n in given if n in DATA}
        if "arrays" in given:
            given["arrays"] = [data("float32", shape)] * 2
        found = outcome(f, given)
        if not isinstance(found, Exception):
            wanted = their_outcome(NUMPY[name], given, f)
            if wanted is not None:
                assert_numpy_s(found, wanted)


# -- gradients ---------------------------------------------------------------------------------

MOVING = (*DATA, "alpha", "constant_values", "logits", "loc", "max", "mean", "min", "prepend")
MOVING += ("scale", "src", "start", "std", "stop", "value", "values", "w", "weight", "weights")


def total(result):
    """The sum of all floats in a result."""
    if isinstance(result, tuple | list):
        return sum((total(r) for r in result), start=0.0)
    if not isinstance(result, rg.Tensor) or result.dtype.kind in "biu":
        return 0.0
    return rg.sum(rg.real(result))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_without_axes_or_elements(name):
    """Where a value is, its derivative is, in both modes and twice, or is refused by name."""
    f = FUNCTIONS[name]
    moving = [n for n in inspect.signature(f).parameters if n in MOVING]
    for options, n, shape in itertools.product((False, True), moving, SHAPES):
        given = usual(name, options=options) | {n: floats(*shape)}
        given = {m: v for m, v in given.items() if m != "dtype" or name == "astype"}
        if isinstance(outcome(f, given), Exception):
            continue

        def g(x, n=n, given=given):
            return total(call(f, given | {n: x}))

        x = floats(*shape)
        for derivative, wanted in (
            (rg.grad(g), shape),
            (lambda x, g=g: rg.jvp(g, (x,), (x,))[1], ()),
            (rg.hessian(g), (*shape, *shape)),
        ):
            try:
                assert derivative(x).shape == wanted
            except rg.RetrogradError as error:
                says_who(error)


# -- indices -----------------------------------------------------------------------------------

INDICES = ODD | {
    "bools": [True, False],
    "list of three": [0, 1, -1],
    "pairs that do not fit": ([0, 1], [0, 1, 2]),
    "mask": np.array([[True, False, True], [False, True, False]]),
    "None and dots": (None, ..., None),
    "two dots": (..., ...),
    "slice of floats": slice(0.5, 1),
    "step 0": slice(0, 1, 0),
    "far slice": slice(-(2**70), 2**70),
    "far step": slice(None, None, -(2**70)),
    "too far": [-3],
    "unsigned": (np.array([2**64 - 1], np.uint64), np.array([0])),
    "a tensor": rg.asarray([1]),
    "a mask without axes": np.True_,
    "no indices": np.zeros(0, np.int64),
}


def to_numpy(index):
    if isinstance(index, tuple):
        return tuple(map(to_numpy, index))
    return np.asarray(index) if isinstance(index, rg.Tensor) else index


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_index_may_be_anything(shape):
    """Reading and writing are NumPy's, or refused."""

    def written(x, index):
        x[index] = 0.25
        return x

    for index in INDICES.values():
        for act in (lambda x, i: x[i], written):
            try:
                found = act(rg.asarray(floats(*shape)), index)
            except rg.RetrogradError as error:
                says_who(error)
                continue
            assert_numpy_s(found, act(floats(*shape), to_numpy(index)))
        for update in ("set", "add", "subtract", "multiply", "divide", "min", "max"):
            try:
                getattr(rg.asarray(floats(*shape)).at[index], update)(2.0)
            except rg.RetrogradError as error:
                says_who(error)


# -- found by these tests ----------------------------------------------------------------------


def refused(match, f, *args, **options):
    with pytest.raises(rg.RetrogradError, match=match):
        f(*args, **options)


def test_ranges_hold_what_they_say():
    """No wrapping into a small dtype, no warnings of NumPy's at infinity."""
    refused("arange: 0 to 299 does not fit in int8", rg.arange, 300, dtype=rg.int8)
    refused("arange: step 5e-324 is too small", rg.arange, 0, 1, 5e-324)
    refused("more elements than memory has addresses", rg.arange, 2**62)
    assert rg.arange(2**64 - 2, 2**64, dtype=rg.uint64).tolist() == [2**64 - 2, 2**64 - 1]
    assert rg.arange(3, 0, -1, dtype=rg.uint8).tolist() == [3, 2, 1]
    assert rg.arange(0.0, 1e300, 5e299).tolist() == [0.0, np.inf]
    assert rg.linspace(0.0, 1e300, 2).tolist() == [0.0, np.inf]
    assert rg.linspace(0, 1j, 2, dtype=rg.float32).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rounding_to_more_digits_than_there_are(dtype):
    """x times a power of ten may be infinite; x is not."""
    x = np.array([0.0, -0.1234567, 3e4], dtype)
    for decimals in (8, 40, 400, 2**70):
        assert_numpy_s(rg.round(x, decimals), x)
    for decimals in (-40, -(2**70)):
        assert_numpy_s(rg.round(x, decimals), np.zeros(3))
    assert not np.any(np.asarray(rg.grad(lambda x: rg.sum(rg.round(x, 400)))(x)))


def test_unsigned_indices_do_not_become_negative():
    x, far = rg.ones((2, 2)), np.array([2**64 - 1], np.uint64)
    for index in (far, (far, np.array([0])), (rg.asarray(far), np.array([0]))):
        refused("index 18446744073709551615 is outside", lambda i=index: x[i])


def test_histograms_weigh_and_refuse():
    x, weights = floats(2, 3), np.arange(6.0).reshape(2, 3)
    found = rg.histogram(x, 3, weights=weights)[0]
    assert_numpy_s(found, np.histogram(x.astype(np.float64), 3, weights=weights)[0])
    refused("weights .* must have the shape of x", rg.histogram, x, weights=weights[0])
    refused("edges must not fall", rg.histogram, x, [1.0, 0.0])
    refused("range must go from low to high", rg.histogram, x, range=(0, np.inf))


def test_options_beyond_what_an_array_can_be():
    x = floats(2, 3)
    assert rg.diagonal(x, offset=2**70).shape == (0,)
    assert rg.eye(2, k=-(2**70)).tolist() == [[0, 0], [0, 0]]
    assert_numpy_s(rg.tril(x, k=2**70), x)
    assert rg.unfold(x, 2, step=2**70).shape == (2, 1, 2)
    assert rg.diff(x, n=2**70).shape == (2, 0)
    refused("n must be at most 1000", rg.special.polygamma, 2**62, x)
    refused("sections must be from 1 to", rg.array_split, x, 2**40)
    refused("at most 64", rg.reshape, x, (6,) + (1,) * 64)
    for f in (rg.zeros, rg.ones, lambda s: rg.full(s, 1.0), lambda s: rg.broadcast_to(1.0, s)):
        refused("more elements than memory has addresses", f, (2**40, 2**40))
