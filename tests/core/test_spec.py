"""Spec, broadcasting and axes: the rules of shapes, and the words of their refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import retrograd as rg
from retrograd.core import spec
from retrograd.core.spec import Spec

F32 = np.dtype("float32")
shapes = st.lists(st.integers(0, 3), max_size=4).map(tuple)


def test_a_spec_says_what_a_tensor_is():
    """Shape, dtype, size, bytes, and text as errors show it."""
    s = rg.ones((2, 3)).spec
    assert s == Spec((2, 3), F32)
    assert (s.ndim, s.size, s.nbytes, str(s)) == (2, 6, 24, "float32[2, 3]")
    assert str(Spec((), F32)) == "float32[]"
    assert s.with_shape([4]).shape == (4,)
    assert s.with_dtype(np.dtype("int8")).nbytes == 6
    assert hash(s) == hash(Spec((2, 3), F32))
    assert s != Spec((3, 2), F32)


@given(st.lists(shapes, min_size=1, max_size=3))
def test_broadcasting_is_numpy_s(several):
    """The same shape as NumPy, or a ShapeError that names every operand."""
    named = {f"x{i}": s for i, s in enumerate(several)}
    try:
        wanted = np.broadcast_shapes(*several)
    except ValueError:
        with pytest.raises(rg.ShapeError, match="shapes do not broadcast") as caught:
            spec.broadcast_shapes("f", **named)
        assert all(f"{n} {s}" in str(caught.value) for n, s in named.items())
    else:
        assert spec.broadcast_shapes("f", **named) == wanted


@given(st.integers(0, 4), st.integers(-6, 6))
def test_axes_count_from_either_end(ndim, axis):
    """-1 is the last; outside is an ArgumentError with the range."""
    if -ndim <= axis < ndim:
        assert spec.axis_index("f", axis, ndim) == range(ndim)[axis]
    else:
        with pytest.raises(
            rg.ArgumentError, match=rf"f: axis {axis} is outside a tensor of {ndim}"
        ):
            spec.axis_index("f", axis, ndim)


def test_axes_may_be_any_integer_and_nothing_else():
    """NumPy's integers and integer tensors are axes; floats and None are not."""
    assert spec.axis_index("f", np.int8(1), 3) == 1
    assert spec.axis_index("f", rg.asarray(np.int64(-1)), 3) == 2
    for bad in (1.0, "1", None, [1]):
        with pytest.raises(rg.ArgumentError, match="must be an integer"):
            spec.axis_index("f", bad, 3)


def test_several_axes():
    """One, many or all; sorted, each once."""
    assert spec.axes_tuple("f", None, 3) == (0, 1, 2)
    assert spec.axes_tuple("f", -1, 3) == (2,)
    assert spec.axes_tuple("f", (-1, 0), 3) == (0, 2)
    assert spec.axes_tuple("f", (), 3) == ()
    assert spec.axes_tuple("f", None, 0) == ()
    with pytest.raises(rg.ArgumentError, match="names an axis twice"):
        spec.axes_tuple("f", (0, -3), 3)


def test_shapes_are_integers_that_are_not_negative():
    """One number or a sequence of them."""
    assert spec.shape_tuple("f", 3) == (3,)
    assert spec.shape_tuple("f", [2, np.int32(0)]) == (2, 0)
    for bad in ((1.5,), "ab", None, (None,)):
        with pytest.raises(rg.ArgumentError, match="must be integers"):
            spec.shape_tuple("f", bad)
    with pytest.raises(rg.ArgumentError, match="negative"):
        spec.shape_tuple("f", (2, -1))


def test_same_shape_or_an_error_with_names():
    """`same` is for ops that do not broadcast."""
    a, b = Spec((2,), F32), Spec((3,), F32)
    assert spec.same("f", a=a, b=a) == a
    with pytest.raises(
        rg.ShapeError, match=r"f: operands must have one shape; got a \(2,\), b"
    ):
        spec.same("f", a=a, b=b)
