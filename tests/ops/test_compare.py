"""Comparisons, tests and logic at the special values, and with weak Python numbers."""

import math
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import retrograd as rg
from retrograd.core.errors import DtypeError
from retrograd.core.op import FUNCTIONS

SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan]
WIDTHS = {"float32": 32, "float64": 64}
ORDER = {
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
COMPARISONS = {"equal": operator.eq, "not_equal": operator.ne, **ORDER}
LOGICAL = {
    "logical_and": lambda a, b: bool(a) and bool(b),
    "logical_or": lambda a, b: bool(a) or bool(b),
    "logical_xor": lambda a, b: bool(a) != bool(b),
}
BITS = {
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
}


def vectors(dtype):
    tiny = float(np.finfo(dtype).smallest_subnormal)
    elements = st.sampled_from([*SPECIAL, tiny, -tiny]) | st.floats(width=WIDTHS[dtype])
    return hnp.arrays(dtype, 5, elements=elements)


def each(f, *arrays):
    """f of the Python numbers, one by one."""
    return [f(*row) for row in zip(*(a.tolist() for a in arrays), strict=True)]


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("name", [*COMPARISONS, *LOGICAL])
@given(data=st.data())
def test_two_operands_agree_with_python(name, dtype, data):
    x1, x2 = data.draw(vectors(dtype)), data.draw(vectors(dtype))
    found = FUNCTIONS[name](rg.asarray(x1), rg.asarray(x2))
    assert found.dtype == np.bool_
    assert found.tolist() == each({**COMPARISONS, **LOGICAL}[name], x1, x2)


@pytest.mark.parametrize("dtype", WIDTHS)
@given(data=st.data())
def test_one_operand_agrees_with_python(dtype, data):
    x = data.draw(vectors(dtype))
    t = rg.asarray(x)
    assert rg.isnan(t).tolist() == each(math.isnan, x)
    assert rg.isinf(t).tolist() == each(math.isinf, x)
    assert rg.isfinite(t).tolist() == each(math.isfinite, x)
    assert rg.logical_not(t).tolist() == each(operator.not_, x)
    assert rg.signbit(t).tolist() == np.signbit(x).tolist()


@pytest.mark.parametrize("name", COMPARISONS)
@given(x=hnp.arrays(st.sampled_from(["int8", "uint8", "int64", "uint64"]), 4), n=st.integers())
def test_integers_of_any_size_compare_as_numbers(name, x, n):
    f = COMPARISONS[name]
    assert f(rg.asarray(x), n).tolist() == [f(v, n) for v in x.tolist()]
    assert f(n, rg.asarray(x)).tolist() == [f(n, v) for v in x.tolist()]


def test_numbers_are_weak():
    x = rg.asarray(np.array([0.1, 0.2], np.float32))
    assert (x == 0.1).tolist() == [True, False]  # as float32, in which 0.1 was stored
    assert rg.equal(0.1, x).tolist() == [True, False]
    whole = rg.asarray(np.array([1, 2]))
    assert (whole < 1.5).tolist() == [True, False]
    assert (whole == True).tolist() == [True, False]  # noqa: E712 - the number True
    assert (rg.asarray(np.array([True, False])) == 1).tolist() == [True, False]


def test_operands_broadcast():
    x = rg.asarray(np.arange(3.0))
    assert (x[:, None] < x[None, :]).tolist() == np.less.outer(range(3), range(3)).tolist()
    assert (rg.zeros((0, 3)) == x).shape == (0, 3)


@pytest.mark.parametrize("name", ORDER)
def test_complex_numbers_have_no_order(name):
    z = rg.asarray(np.array([1j, 2.0]))
    for other in (z, 1.0, rg.asarray(np.array([1.0, 2.0]))):
        with pytest.raises(DtypeError, match=f"{name}: got complex128; it takes real dtypes"):
            FUNCTIONS[name](z, other)


def test_complex_numbers_are_equal_in_both_parts():
    z = rg.asarray(np.array([1 + 1j, 1, complex(1, math.nan)]))
    assert (z == 1).tolist() == [False, True, False]
    assert (z != z).tolist() == rg.isnan(z).tolist() == [False, False, True]
    assert rg.isfinite(z).tolist() == [True, True, False]


def test_comparisons_carry_no_gradient_and_do_not_stop_others():
    x = rg.tensor([1.0, -1.0], requires_grad=True)
    assert not (x > 0).requires_grad
    rg.sum(rg.where(x > 0, x, 2 * x)).backward()
    assert x.grad.tolist() == [1, 2]


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("equal_nan", [False, True])
@given(data=st.data())
def test_closeness_agrees_with_numpy(dtype, equal_nan, data):
    x1, x2 = data.draw(vectors(dtype)), data.draw(vectors(dtype))
    near = np.nextafter(x1, np.asarray(0, dtype))
    x2 = np.where(data.draw(hnp.arrays(bool, 5)), near, x2)
    for options in ({}, {"rtol": 0.1, "atol": 0.5}, {"rtol": 0.0, "atol": 0.0}):
        with np.errstate(all="ignore"):
            wanted = np.isclose(x1, x2, equal_nan=equal_nan, **options)
        a, b = rg.asarray(x1), rg.asarray(x2)
        assert rg.isclose(a, b, equal_nan=equal_nan, **options).tolist() == wanted.tolist()
        assert bool(rg.allclose(a, b, equal_nan=equal_nan, **options)) == wanted.all()


def test_closeness_of_integers_does_not_wrap():
    low, high = (rg.asarray(np.array([v], np.int8)) for v in (-128, 127))
    assert not bool(rg.allclose(low, high, atol=3))
    big = rg.asarray(np.array([2**60]))
    assert bool(rg.allclose(big, big + 1))


def test_array_equal():
    x = rg.asarray(np.array([1.0, math.nan]))
    assert not bool(rg.array_equal(x, x))
    assert bool(rg.array_equal(x, x, equal_nan=True))
    assert not bool(rg.array_equal(x, x[:1]))
    assert bool(rg.array_equal(rg.zeros((0, 2)), rg.zeros((0, 2))))
    assert bool(rg.array_equal(rg.asarray(np.array([1, 2])), rg.asarray(np.array([1.0, 2.0]))))


@given(x=hnp.arrays(np.int16, 5), y=hnp.arrays(np.int16, 5), by=st.integers(0, 20))
def test_bits_agree_with_python(x, y, by):
    a, b = rg.asarray(x), rg.asarray(y)
    for name, f in BITS.items():
        assert FUNCTIONS[name](a, b).tolist() == each(f, x, y)
        assert FUNCTIONS[name](a, b).dtype == np.int16
        assert f(a, b).tolist() == each(f, x, y)
    assert (~a).tolist() == each(operator.invert, x)
    assert (a >> by).tolist() == [v >> by for v in x.tolist()]
    assert (a << by).tolist() == [((v << by) + 2**15) % 2**16 - 2**15 for v in x.tolist()]


def test_bits_of_bools_are_logic():
    x, y = (rg.asarray(np.array(v)) for v in ([True, True, False], [True, False, False]))
    assert (x & y).tolist() == rg.logical_and(x, y).tolist() == [True, False, False]
    assert (x | y).tolist() == rg.logical_or(x, y).tolist() == [True, True, False]
    assert (x ^ y).tolist() == rg.logical_xor(x, y).tolist() == [False, True, False]
    assert (~x).tolist() == rg.logical_not(x).tolist() == [False, False, True]
    assert (x & y).dtype == (~x).dtype == np.bool_


def test_bits_of_floats_are_refused():
    x = rg.asarray(np.array([1.0, 2.0]))
    for f in (*BITS.values(), operator.lshift, operator.rshift):
        for other in (x, 1):
            with pytest.raises(DtypeError, match="got float64; it takes"):
                f(x, other)
    with pytest.raises(DtypeError, match="got float64; it takes"):
        rg.bitwise_invert(x)


def test_logic_takes_operands_of_different_dtypes():
    x = rg.asarray(np.array([0.0, math.nan, 2.0], np.float32))
    n = rg.asarray(np.array([1, 0, 3], np.uint64))
    assert rg.logical_and(x, n).tolist() == [False, False, True]
    assert rg.logical_or(x, True).tolist() == [True, True, True]
    assert rg.logical_not(x).tolist() == [True, False, False]
