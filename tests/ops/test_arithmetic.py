"""Arithmetic at the special values: NumPy's numbers forward, a stated slope at each kink."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import retrograd as rg
from retrograd.core.dtype import HALF
from retrograd.core.errors import ArgumentError, DtypeError
from retrograd.core.op import FUNCTIONS

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, math.inf, -math.inf, math.nan]
WIDTHS = {"float32": 32, "float64": 64}
UNARY = {
    "abs": np.abs,
    "absolute": np.abs,
    "ceil": np.ceil,
    "cbrt": np.cbrt,
    "conj": np.conj,
    "floor": np.floor,
    "imag": np.imag,
    "negative": np.negative,
    "positive": np.positive,
    "real": np.real,
    "reciprocal": np.reciprocal,
    "round": np.round,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sign": np.sign,
    "sqrt": np.sqrt,
    "square": np.square,
    "trunc": np.trunc,
}
BINARY = {
    "add": np.add,
    "copysign": np.copysign,
    "divide": np.divide,
    "floor_divide": np.floor_divide,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "nextafter": np.nextafter,
    "pow": np.power,
    "remainder": np.remainder,
    "subtract": np.subtract,
}
STANDARD = [
    "abs",
    "add",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "clip",
    "conj",
    "copysign",
    "divide",
    "equal",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "not_equal",
    "positive",
    "pow",
    "real",
    "reciprocal",
    "remainder",
    "round",
    "sign",
    "signbit",
    "sqrt",
    "square",
    "subtract",
    "trunc",
    "where",
]


def numbers(dtype):
    tiny = np.finfo(dtype).smallest_subnormal
    special = [*SPECIAL, float(tiny), -float(tiny), float(np.finfo(dtype).max)]
    return st.sampled_from(special) | st.floats(width=WIDTHS[dtype], allow_subnormal=True)


def vectors(dtype, length=5):
    return hnp.arrays(dtype, length, elements=numbers(dtype))


def quietly(f, *args):
    with np.errstate(all="ignore"):
        return f(*args)


def pulled(f, *points):
    """The gradients of sum(f) at float64 points, by reverse mode."""
    xs = [rg.asarray(np.asarray(p, np.float64)) for p in points]
    found = rg.grad(lambda *a: rg.sum(f(*a)), argnums=tuple(range(len(xs))))(*xs)
    return [g.tolist() for g in found]


def slopes(f, *points):
    """The gradients of sum(f) at float64 points: by reverse mode, held to forward mode."""
    xs = [rg.asarray(np.asarray(p, np.float64)) for p in points]
    found = pulled(f, *points)
    for i, (x, g) in enumerate(zip(xs, found, strict=True)):
        zeros = [rg.zeros_like(y) for y in xs]
        zeros[i] = rg.ones_like(x)
        _, pushed = rg.jvp(lambda *a: rg.sum(f(*a)), xs, zeros)
        np.testing.assert_array_equal(pushed.numpy(), np.sum(g))
    return found


def slope(f, point):
    (found,) = slopes(f, point)
    return found


def second(f, point):
    return slope(rg.grad(f), point)


# -- forward values ------------------------------------------------------------------------


def test_the_standards_names_exist():
    assert not [name for name in STANDARD if name not in FUNCTIONS]


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("name", UNARY)
@given(data=st.data())
def test_one_operand_agrees_with_numpy(name, dtype, data):
    x = data.draw(vectors(dtype))
    wanted = quietly(UNARY[name], x)
    found = FUNCTIONS[name](rg.asarray(x))
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found.numpy(), wanted)


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("name", BINARY)
@given(data=st.data())
def test_two_operands_agree_with_numpy(name, dtype, data):
    x1, x2 = data.draw(vectors(dtype)), data.draw(vectors(dtype))
    wanted = quietly(BINARY[name], x1, x2)
    found = FUNCTIONS[name](rg.asarray(x1), rg.asarray(x2))
    assert found.dtype == x1.dtype
    np.testing.assert_array_equal(found.numpy(), wanted)


@given(x=numbers("float64"), y=numbers("float64"))
def test_quotients_agree_with_python(x, y):
    if y == 0 or math.isinf(x):
        return  # Python raises there, or says nan for x // y alone
    a, b = rg.asarray(np.asarray(x)), rg.asarray(np.asarray(y))
    np.testing.assert_array_equal((a % b).numpy(), x % y)
    np.testing.assert_array_equal((a // b).numpy(), x // y)


@pytest.mark.parametrize("dtype", WIDTHS)
@given(data=st.data(), n=st.integers(-6, 6))
def test_whole_powers_agree_with_numpy(dtype, data, n):
    x = data.draw(vectors(dtype))
    wanted = quietly(np.power, x, np.asarray(n, dtype))
    for exponent in (n, float(n)):
        found = (rg.asarray(x) ** exponent).numpy()
        assert found.dtype == x.dtype
        tiny = float(np.finfo(dtype).smallest_subnormal)
        np.testing.assert_allclose(found, wanted, rtol=4 * np.finfo(dtype).eps, atol=4 * tiny)


@given(
    x=hnp.arrays(np.int8, 4),
    y=hnp.arrays(np.int8, 4, elements=st.integers(-5, 5)),
    n=st.integers(0, 300),
)
def test_integers_agree_with_numpy(x, y, n):
    a, b = rg.asarray(x), rg.asarray(y)
    for name in ("add", "subtract", "multiply", "floor_divide", "remainder", "fmod", "maximum"):
        found = FUNCTIONS[name](a, b)
        assert found.dtype == np.int8
        np.testing.assert_array_equal(found.numpy(), quietly(BINARY[name], x, y))
    wrapped = [((int(v) ** n) + 128) % 256 - 128 for v in x]  # two's complement
    assert (a**n).tolist() == wrapped
    assert (a ** rg.asarray(np.full(4, n % 8, np.int8))).tolist() == [
        ((int(v) ** (n % 8)) + 128) % 256 - 128 for v in x
    ]


def test_integers_have_no_negative_powers():
    x = rg.asarray(np.array([2, 3]))
    for exponent in (-1, -2, rg.asarray(np.array([1, -2]))):
        with pytest.raises(ArgumentError, match="has no negative powers"):
            rg.pow(x, exponent)
    assert (x**-2.0).dtype == np.float32


@pytest.mark.parametrize("complex_", ["complex64", "complex128"])
@given(data=st.data())
def test_complex_parts_stay_apart(complex_, data):
    dtype = "float32" if complex_ == "complex64" else "float64"
    re, im = data.draw(vectors(dtype)), data.draw(vectors(dtype))
    z = rg.make_complex(rg.asarray(re), rg.asarray(im))
    assert z.dtype == complex_
    np.testing.assert_array_equal(z.real.numpy(), re)
    np.testing.assert_array_equal(z.imag.numpy(), im)
    np.testing.assert_array_equal(rg.conj(z).imag.numpy(), -im)
    np.testing.assert_array_equal(rg.abs(z).numpy(), quietly(np.abs, z.numpy()))
    np.testing.assert_array_equal(rg.angle(z).numpy(), np.angle(z.numpy()))


def test_parts_of_real_numbers():
    x = rg.asarray(np.array([-1.5, 0.0, 2.0]))
    assert rg.real(x).tolist() == rg.conj(x).tolist() == x.tolist()
    assert rg.imag(x).tolist() == [0, 0, 0]
    assert rg.angle(x).tolist() == np.angle(x.numpy()).tolist()
    assert slope(rg.imag, [1.0]) == [0]
    assert slope(rg.real, [1.0]) == slope(rg.conj, [1.0]) == [1]


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_nextafter_steps_in_the_dtype_it_is_given(dtype):
    x = np.array([1.0, 0.0, -2.0], dtype)
    found = rg.nextafter(rg.asarray(x), math.inf)
    assert found.dtype == dtype
    np.testing.assert_array_equal(
        found.numpy().astype(float), np.nextafter(x, np.asarray(np.inf, dtype)).astype(float)
    )


@given(x=hnp.arrays(np.float64, 5, elements=st.floats(-1e6, 1e6)), decimals=st.integers(-3, 3))
def test_round_takes_decimals(x, decimals):
    found = rg.round(rg.asarray(x), decimals=decimals)
    np.testing.assert_array_equal(found.numpy(), np.round(x, decimals))


# -- dtypes --------------------------------------------------------------------------------


def zeros_of(*dtypes):
    return [rg.zeros(2, dtype=d) for d in dtypes]


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "pow", "remainder", "divide"])
def test_kinds_meet_in_the_wider_one_and_integers_widen_no_float(name):
    f = FUNCTIONS[name]
    for low, high in [
        ("int64", "float32"),
        ("bool", "int8"),
        ("bool", "float32"),
        ("uint8", "float16"),
        ("float32", "float64"),
    ]:
        a, b = zeros_of(low, high)
        wanted = "float32" if name == "divide" and high == "int8" else high
        assert f(a, b).dtype == f(b, a).dtype == wanted


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "subtract", "divide", "pow"])
def test_python_numbers_are_weak(name):
    f = FUNCTIONS[name]
    for dtype, number, wanted in [
        ("float64", 0.1, "float64"),
        ("float32", 3, "float32"),
        ("float16", 0.1, "float16"),
        ("int64", 0.1, "float32"),
        ("int8", 3, "float32" if name == "divide" else "int8"),
        ("bool", 3, "float32" if name == "divide" else "int64"),
    ]:
        (x,) = zeros_of(dtype)
        assert f(x, number).dtype == f(number, x + 1 if dtype != "bool" else x).dtype == wanted


def test_complex_numbers_widen_to_the_complex_of_their_peer():
    for dtype, wanted in [("float32", "complex64"), ("float64", "complex128")]:
        (x,) = zeros_of(dtype)
        assert (x + 1j).dtype == (1j * x).dtype == wanted


def test_bools_are_not_numbers_among_themselves():
    yes = rg.asarray(np.array([True, False]))
    for f in (rg.add, rg.subtract, rg.multiply, rg.remainder, rg.pow):
        with pytest.raises(DtypeError, match="got bool"):
            f(yes, yes)
    assert rg.maximum(yes, ~yes).tolist() == [True, True]
    assert rg.clip(yes, max=False).tolist() == [False, False]


def test_a_number_that_does_not_fit_is_refused():
    (x,) = zeros_of("int8")
    with pytest.raises(DtypeError, match="300 does not fit in int8"):
        x + 300


# -- the slopes at the kinks ---------------------------------------------------------------


def test_N17_abs_slope_at_zero_is_zero():
    assert slope(rg.abs, [-2.0, -0.0, 0.0, 3.0]) == [-1, 0, 0, 1]
    assert slope(rg.sign, [-2.0, 0.0]) == [0, 0]
    z = rg.asarray(np.zeros(2, complex))
    assert rg.grad(lambda z: rg.sum(rg.abs(z)))(z).tolist() == [0, 0]
    assert rg.grad(lambda z: rg.sum(rg.real(rg.sign(z))))(z).tolist() == [0, 0]


def test_abs_of_a_complex_number_pulls_towards_it(rng):
    z = rng.normal(size=3) + 1j * rng.normal(size=3)
    found = rg.grad(lambda z: rg.sum(rg.abs(z)))(rg.asarray(z))
    np.testing.assert_allclose(found.numpy(), z / np.abs(z), rtol=1e-14)


def test_N17_pow_slopes_at_zero_are_true_for_numbers_and_for_tensors():
    for exponent, wanted in [(0, 0), (1, 1), (2, 0), (3, 0), (0.5, math.inf), (1.5, 0)]:
        kinds = [exponent, float(exponent), rg.asarray(np.asarray(float(exponent)))]
        for e in kinds:
            assert slope(lambda x, e=e: x**e, [0.0, -0.0]) == [wanted, wanted]


def test_pow_holds_twice_at_zero():
    for exponent, wanted in [(0, 0), (1, 0), (2, 2), (3, 0), (4, 0)]:
        away = exponent * (exponent - 1) * (-2.0) ** max(exponent - 2, 0)
        for e in (exponent, rg.asarray(np.asarray(float(exponent)))):
            assert second(lambda x, e=e: x**e, 0.0) == wanted
            assert second(lambda x, e=e: x**e, -2.0) == away


def test_pow_slope_by_the_exponent():
    base = np.array([2.0, 1.0, 0.0, 0.0, -2.0, -2.0])
    exponent = np.array([3.0, 5.0, 2.0, 0.0, 3.0, 0.5])
    _, found = slopes(rg.pow, base[:-1], exponent[:-1])
    assert found == [2.0**3 * np.log(2.0), 0, 0, 0, 0]
    gradient = rg.grad(lambda y: rg.sum(rg.asarray(base[-1:]) ** y))
    assert math.isnan(gradient(rg.asarray(exponent[-1:])).tolist()[0])
    assert pulled(rg.pow, [0.0], [-1.0])[1] == [-math.inf]
    assert slope(lambda y: 0.0**y, [2.0, 0.5]) == [0, 0]
    assert slope(lambda y: 2.0**y, [3.0]) == [2.0**3 * np.log(2.0)]


@given(
    x=hnp.arrays(np.float64, 9, elements=st.floats(-3, 3, allow_subnormal=False)),
    n=st.integers(0, 5),
)
def test_Y18_pow_of_equal_shapes_is_right_for_negative_bases(x, n):
    """Each lane alike: 9 elements, so that vectors and their tail are both there."""
    exponents = np.full(9, float(n))
    wanted = [v**n for v in x.tolist()]
    np.testing.assert_allclose(rg.pow(rg.asarray(x), rg.asarray(exponents)).numpy(), wanted)
    found, _ = slopes(lambda a, b: rg.pow(a, rg.stop_gradient(b)), x, exponents)
    true = [n * v ** (n - 1) if n else 0.0 for v in x.tolist()]
    np.testing.assert_allclose(found, true, rtol=1e-12)


def test_Y18_pow_of_negative_bases_to_broken_exponents_is_nan():
    x = rg.asarray(np.full(9, -2.0))
    assert np.isnan((x**0.5).numpy()).all()
    assert np.isnan(rg.pow(x, rg.asarray(np.full(9, 1.5))).numpy()).all()


def test_N17_clip_passes_the_gradient_at_its_bounds():
    f = lambda x: rg.clip(x, -1.0, 2.0)
    assert slope(f, [-1.5, -1.0, 0.0, 2.0, 2.5]) == [0, 1, 1, 1, 0]
    assert slope(lambda x: rg.clip(x, min=0.0), [-1.0, 0.0, 1.0]) == [0, 1, 1]
    assert slope(lambda x: rg.clip(x, max=0.0), [-1.0, 0.0, 1.0]) == [1, 1, 0]
    assert slope(rg.clip, [-math.inf, math.inf]) == [1, 1]
    assert slope(lambda x: rg.clip(x, max=0.0), [-math.inf]) == [1]


def test_clip_gives_its_bounds_what_they_hold():
    x, low, high = [-2.0, -1.0, 0.0, 3.0], [-1.0, -1.0, -1.0, -1.0], [1.0, 1.0, 1.0, 1.0]
    assert slopes(rg.clip, x, low, high) == [[0, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]]
    crossed = slopes(rg.clip, [-9.0, 0.0, 9.0], [1.0] * 3, [-1.0] * 3)
    assert crossed == [[0, 0, 0], [0, 0, 0], [1, 1, 1]]
    assert slopes(rg.clip, [-2.0], [1.0], [1.0]) == [[0], [1], [0]]


@pytest.mark.parametrize("dtype", WIDTHS)
@given(data=st.data())
def test_clip_agrees_with_numpy(dtype, data):
    x, low, high = (data.draw(vectors(dtype)) for _ in range(3))
    found = rg.clip(*(rg.asarray(a) for a in (x, low, high)))
    np.testing.assert_array_equal(found.numpy(), np.clip(x, low, high))


def test_clip_keeps_the_dtype_of_integers():
    x = rg.asarray(np.array([0, 100, 255], np.uint8))
    assert rg.clip(x, max=99).dtype == rg.clip(x, 3).dtype == np.uint8
    assert rg.clip(x, max=99).tolist() == [0, 99, 99]
    big = rg.asarray(np.array([2**63, 7], np.uint64))
    assert rg.clip(big, min=8).tolist() == [2**63, 8]


def test_ties_share_the_gradient():
    for f in (rg.maximum, rg.minimum, rg.fmax, rg.fmin):
        assert (
            slopes(f, [1.0, math.inf, -math.inf], [1.0, math.inf, -math.inf]) == [[0.5] * 3] * 2
        )
    assert slopes(rg.maximum, [1.0, 2.0], [2.0, 1.0]) == [[0, 1], [1, 0]]
    assert slopes(rg.minimum, [1.0, 2.0], [2.0, 1.0]) == [[1, 0], [0, 1]]
    assert slopes(rg.fmax, [math.nan], [2.0]) == [[0], [1]]


def test_the_side_not_taken_leaves_no_nan():
    """sqrt has an infinite slope at 0: choosing must not multiply it by 0."""
    for f in (
        lambda x: rg.sqrt(rg.maximum(x, 0.0)),
        lambda x: rg.sqrt(rg.clip(x, 0.0, 1.0)),
        lambda x: rg.sqrt(rg.where(x > 0, x, 0.0)),
    ):
        assert pulled(f, [-1.0]) == [[0]]


def test_where_takes_numbers_on_either_side():
    mask = rg.asarray(np.array([True, False]))
    x = rg.asarray(np.array([5.0, 6.0]))
    assert rg.where(mask, x, 0).tolist() == [5, 0]
    assert rg.where(mask, 0, x).tolist() == [0, 6]
    assert rg.where(mask, 0.1, x).dtype == np.float64
    assert rg.where(mask, 1, 0).dtype == np.int64
    assert rg.where(mask, 1.0, 0).dtype == np.float32
    assert rg.where(mask, True, False).dtype == np.bool_
    assert rg.where(True, x, 0.0).tolist() == [5, 6]
    with pytest.raises(DtypeError, match="condition must be bool; got float64"):
        rg.where(x, x, x)
    assert slopes(lambda a, b: rg.where(mask, a, b), [1.0, 1.0], 3.0) == [[1, 0], 1]


def test_roots_at_zero_have_the_slopes_they_state():
    assert slope(rg.sqrt, [0.0]) == slope(rg.cbrt, [0.0]) == [math.inf]
    assert slope(rg.rsqrt, [0.0]) == [-math.inf]
    assert slopes(rg.hypot, [0.0, 3.0], [0.0, 4.0]) == [[0, 3 / 5], [0, 4 / 5]]


def test_remainder_slopes():
    x, y = [7.5, -7.5, 4.0], [2.0, 2.0, 2.0]
    assert slopes(rg.remainder, x, y) == [[1, 1, 1], [-3, 4, -2]]
    assert slopes(rg.fmod, x, y) == [[1, 1, 1], [-3, 3, -2]]
    assert slopes(rg.floor_divide, x, y) == [[0, 0, 0], [0, 0, 0]]


def test_integers_divided_by_zero_give_zero():
    x, zero = rg.asarray(np.array([5, -5, 0])), rg.asarray(np.array([0, 0, 0]))
    for f in (rg.floor_divide, rg.remainder, rg.fmod):
        assert f(x, zero).tolist() == [0, 0, 0]


def test_staircases_have_slope_zero_also_on_their_steps():
    for f in (rg.floor, rg.ceil, rg.trunc, rg.round, rg.sign):
        assert slope(f, [-1.0, -0.5, 0.0, 0.5, 1.0, 2.5]) == [0] * 6


def test_rounding_leaves_integers_as_they_are():
    x = rg.asarray(np.array([-3, 2**60 + 1]))
    for f in (rg.floor, rg.ceil, rg.trunc, rg.round):
        assert f(x).dtype == np.int64
        assert f(x).tolist() == x.tolist()


def test_copysign_slopes():
    x, y = [2.0, 2.0, -2.0, 0.0, 1.0], [1.0, -1.0, 1.0, -1.0, -0.0]
    assert slopes(rg.copysign, x, y) == [[1, -1, -1, 0, -1], [0] * 5]


# -- stop_gradient -------------------------------------------------------------------------


def test_stop_gradient_makes_constants():
    assert slope(lambda x: x * rg.stop_gradient(x), [3.0]) == [3]
    assert second(lambda x: x * x * rg.stop_gradient(x), 3.0) == 6


def test_stop_gradient_of_trees_and_integers():
    tree = {"a": rg.asarray(np.array([1.0])), "b": [rg.asarray(np.array([2])), None, "name", 3]}
    found = rg.stop_gradient(tree)
    assert found["a"].tolist() == [1]
    assert found["b"][0].tolist() == [2]
    assert found["b"][0].dtype == np.int64
    assert found["b"][1:] == [None, "name", 3]
    f = lambda x: rg.sum(x * rg.stop_gradient({"x": x})["x"])
    assert rg.grad(f)(rg.asarray(np.array([3.0]))).tolist() == [3]


def test_detach_leaves_the_tape():
    x = rg.tensor([2.0], requires_grad=True)
    y = x * 3
    assert y.requires_grad
    assert not y.detach().requires_grad
    rg.sum(y * y.detach()).backward()
    assert x.grad.tolist() == [18]


# -- the peers -----------------------------------------------------------------------------


@pytest.mark.peers("torch")
def test_kinks_agree_with_torch():
    import torch

    table = [
        (rg.abs, torch.abs, [-1.0, 0.0, 1.0]),
        (rg.sign, torch.sign, [-1.0, 0.0, 1.0]),
        (rg.sqrt, torch.sqrt, [0.0, 4.0]),
        (lambda x: x**2, lambda x: x**2, [-1.0, 0.0]),
        (lambda x: x**1, lambda x: x**1, [-1.0, 0.0]),
        (lambda x: x**0, lambda x: x**0, [-1.0, 0.0]),
        (lambda x: x**0.5, lambda x: x**0.5, [0.0, 4.0]),
        (lambda x: rg.clip(x, -1, 1), lambda x: torch.clamp(x, -1, 1), [-2.0, -1.0, 0.0, 1.0]),
        (lambda x: 0.0**x, lambda x: 0.0**x, [0.5, 2.0]),
    ]
    for ours, theirs, points in table:
        t = torch.tensor(points, dtype=torch.float64, requires_grad=True)
        theirs(t).sum().backward()
        assert slope(ours, points) == t.grad.tolist()


@pytest.mark.peers("torch")
def test_two_operands_agree_with_torch():
    import torch

    table = [
        (rg.maximum, torch.maximum, [1.0, 2.0, 3.0], [2.0, 2.0, 2.0]),
        (rg.minimum, torch.minimum, [1.0, 2.0, 3.0], [2.0, 2.0, 2.0]),
        (rg.pow, torch.pow, [2.0, 0.0, 0.0], [3.0, 2.0, 0.0]),
        (rg.remainder, torch.remainder, [7.5, -7.5], [2.0, -2.0]),
        (rg.fmod, torch.fmod, [7.5, -7.5], [2.0, -2.0]),
        (rg.copysign, torch.copysign, [2.0, -2.0, 0.0], [-1.0, -1.0, 1.0]),
    ]
    for ours, theirs, a, b in table:
        ta, tb = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (a, b))
        theirs(ta, tb).sum().backward()
        wanted = [[0.0] * len(a) if t.grad is None else t.grad.tolist() for t in (ta, tb)]
        assert slopes(ours, a, b) == wanted


@pytest.mark.peers("torch")
def test_complex_gradients_agree_with_torch(rng):
    import torch

    z = rng.normal(size=3) + 1j * rng.normal(size=3)
    weights = rng.normal(size=3) + 1j * rng.normal(size=3)
    table = [
        (rg.abs, torch.abs),
        (rg.sign, torch.sgn),
        (rg.real, torch.real),
        (rg.imag, torch.imag),
        (rg.conj, torch.conj),
        (rg.angle, torch.angle),
        (lambda z: z**3, lambda z: z**3),
        (lambda z: z**-2, lambda z: z**-2),
        (lambda z: z ** (0.5 + 1j), lambda z: z ** (0.5 + 1j)),
        (lambda z: (1 + 2j) ** z, lambda z: torch.tensor(1 + 2j) ** z),
        (lambda z: 1 / z, lambda z: 1 / z),
        (rg.sqrt, torch.sqrt),
    ]
    for ours, theirs in table:
        t = torch.tensor(z, requires_grad=True)
        torch.real(torch.tensor(weights) * theirs(t)).sum().backward()
        wanted = t.grad.resolve_conj().numpy()
        f = lambda z, ours=ours: rg.sum(rg.real(rg.asarray(weights) * ours(z)))
        np.testing.assert_allclose(rg.grad(f)(rg.asarray(z)).numpy(), wanted, rtol=1e-12)
