"""dtypes: one promotion table, weak Python numbers, half precision that computes in single."""

import itertools
import operator

import numpy as np
import pytest

import retrograd as rg
from retrograd.core import dtype as dt
from retrograd.testing import assert_close

KINDS = [dt.INTEGERS, (dt.float16, dt.float32, dt.float64), dt.COMPLEX]
HALF = dt.HALF
needs_bfloat16 = pytest.mark.skipif(dt.bfloat16 is None, reason="needs ml_dtypes")


def leaf(values, dtype):
    return rg.tensor(np.asarray(values, np.float64), dtype=dtype, requires_grad=True)


# -- promotion -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_within_a_kind_the_table_is_numpy_s(kind):
    """Integers with integers, floats with floats, complex with complex: as the standard."""
    for a, b in itertools.product(kind, repeat=2):
        wanted = np.promote_types(a, b)
        if wanted.kind != a.kind and wanted.kind not in "iu":
            with pytest.raises(rg.DtypeError, match="no common integer dtype"):
                rg.result_type(a, b)
        else:
            assert rg.result_type(a, b) == wanted


def test_between_kinds_integers_never_widen():
    """int64 with float32 is float32, and bool yields to all."""
    for low, high in itertools.combinations([(dt.bool,), *KINDS], 2):
        for a, b in itertools.product(low, high):
            found = rg.result_type(a, b)
            assert found == rg.result_type(b, a)
            if a.kind != "f":
                assert found == b
            else:  # a float meets a complex number: whichever is wider decides
                assert found == np.promote_types(b, np.promote_types(a, np.complex64))


def test_promotion_does_not_depend_on_order():
    """Of any three dtypes, all orders give one answer, or all refuse."""
    for three in itertools.combinations(dt.ALL, 3):
        answers = set()
        for order in itertools.permutations(three):
            try:
                answers.add(str(rg.result_type(*order)))
            except rg.DtypeError:
                answers.add("refused")
        answers -= {"refused"} if any(d.kind in "fcV" for d in three) else set()
        assert len(answers) <= 1, f"{three}: {answers}"


def test_tensors_meet_as_their_dtypes_do():
    """What result_type says is what an op gives."""
    for a, b in itertools.product(dt.ALL, repeat=2):
        x, y = rg.ones(2, dtype=a), rg.ones(2, dtype=b)
        try:
            wanted = rg.result_type(a, b)
        except rg.DtypeError:
            with pytest.raises(rg.DtypeError):
                x * y
            continue
        if wanted != dt.bool:
            assert (x * y).dtype == wanted


def test_python_numbers_are_weak():
    """A number takes the tensor's dtype, or the default of its own kind if that is higher."""
    for d in (*dt.INTEGERS, *dt.FLOATS, *dt.COMPLEX):
        assert (rg.ones(2, dtype=d) * 2).dtype == d
    for d in (*dt.FLOATS, *dt.COMPLEX):
        assert (2.5 * rg.ones(2, dtype=d)).dtype == d
    for d in dt.INTEGERS:
        assert (rg.ones(2, dtype=d) * 2.5).dtype == dt.float32
    assert (rg.ones(2, dtype=dt.float64) * 1j).dtype == dt.complex128
    assert (rg.ones(2, dtype=dt.float32) * 1j).dtype == dt.complex64
    assert rg.result_type(1, 2.0) == dt.float32
    assert rg.result_type(True, dt.int8, 3) == dt.int8


def test_numpy_scalars_are_not_weak():
    """np.float64(2) has a dtype, and keeps it."""
    assert (rg.ones(2, dtype=dt.float32) * np.float64(2)).dtype == dt.float64


def test_numbers_that_do_not_fit_are_refused():
    """300 is no int8, -1 no uint8: an error, never another number."""
    for d, value in ((dt.int8, 300), (dt.uint8, -1), (dt.int64, 2**70)):
        with pytest.raises(rg.DtypeError, match="does not fit"):
            rg.ones(2, dtype=d) + value


def test_large_floats_become_infinite_in_silence():
    """1e300 beside float32 is inf, as IEEE has it, and no warning."""
    assert np.isinf((rg.ones(2) * 1e300).numpy()).all()


def test_can_cast_and_isdtype_follow_the_table():
    """can_cast: whether promotion leads there. isdtype: the standard's words."""
    assert rg.can_cast(dt.int32, dt.float32)
    assert not rg.can_cast(dt.float64, dt.float32)
    with rg.debug.strict_promotion():
        assert rg.can_cast(dt.float32, dt.float64)
    assert rg.isdtype(dt.float32, "real floating")
    assert rg.isdtype(dt.int8, ("bool", "signed integer"))
    assert not rg.isdtype(dt.int8, "unsigned integer")
    assert rg.isdtype(dt.complex64, dt.complex64)
    with pytest.raises(rg.ArgumentError, match="isdtype"):
        rg.isdtype(dt.int8, "number")


@pytest.mark.parametrize(
    "bad", ["float99", object, "datetime64[s]", np.dtype("U3"), "float128"]
)
def test_dtypes_that_are_not_ours_are_refused(bad):
    """The error lists what there is."""
    with pytest.raises(rg.DtypeError):
        rg.ones(2, dtype=bad)


def test_python_types_and_words_name_dtypes():
    """float means the default float; byte order is put right."""
    for given, wanted in (
        (float, dt.float32),
        (int, dt.int64),
        (bool, dt.bool),
        (complex, dt.complex64),
        ("float64", dt.float64),
        (np.float16, dt.float16),
        (">f4", dt.float32),
    ):
        assert rg.ones(2, dtype=given).dtype is wanted
    swapped = np.ones(2, ">f8")
    assert rg.asarray(swapped).dtype is dt.float64
    assert_close(rg.grad(rg.sum)(swapped), np.ones(2))


def test_limits():
    """finfo and iinfo of dtypes and of tensors."""
    assert rg.finfo(dt.float32).eps == np.finfo(np.float32).eps
    assert rg.iinfo(rg.ones(1, dtype=dt.int16)).max == np.iinfo(np.int16).max


# -- the strict switch ---------------------------------------------------------------------


def test_strict_promotion_refuses_mixed_widths():
    """float32 with float64 is an error inside the block, naming op and dtypes."""
    x, y = rg.ones(2, dtype=dt.float32), rg.ones(2, dtype=dt.float64)
    with rg.debug.strict_promotion():
        with pytest.raises(
            rg.DtypeError, match="multiply: float32 would be promoted to float64"
        ):
            x * y
        with pytest.raises(rg.DtypeError, match="strict_promotion"):
            rg.ones(2, dtype=dt.complex64) * y
        with pytest.raises(rg.DtypeError, match="strict_promotion"):
            rg.ones(2, dtype=dt.float16) * x
        x * x.astype(np.float64).astype(np.float32)
        x * 2.5 + rg.ones(2, dtype=dt.int64) + True  # numbers and integers are not widths
        rg.ones(2, dtype=dt.complex64) * x
    assert (x * y).dtype == dt.float64


def test_derivatives_never_promote_by_themselves(rng):
    """Under the strict switch every transform of a float32 program runs."""
    x = rg.asarray(rng.normal(size=(3, 3)).astype(np.float32))

    def f(x):
        y = rg.tanh(x @ x * 0.5) / 3 + rg.mean(x, axis=0) ** 2
        return rg.sum(rg.exp(-y) * rg.where(x > 0, y, 0.0))

    with rg.debug.strict_promotion():
        found = [
            rg.grad(f)(x),
            rg.jvp(f, (x,), (x,))[1],
            rg.hvp(f, (x,), (x,)),
            rg.vmap(rg.grad(f))(rg.stack([x, x])),
            rg.hessian(f)(x),
        ]
        t = rg.tensor(x, requires_grad=True)
        f(t).backward(create_graph=True)
        rg.sum(t.grad * t.grad).backward()
    assert {y.dtype for y in (*found, t.grad)} == {dt.float32}


# -- half precision ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_is_stored_and_single_computes(dtype, rng):
    """Every op rounds the float32 result once."""
    x, y = (rg.asarray(rng.normal(size=(4, 4)), dtype=dtype) for _ in range(2))
    wide = [t.numpy().astype(np.float32) for t in (x, y)]
    for f in (operator.add, operator.mul, operator.truediv, operator.matmul):
        assert f(x, y).dtype == dtype
        assert f(x, y).numpy().tobytes() == f(*wide).astype(dtype).tobytes()
    for name in ("exp", "tanh", "sum", "mean"):
        found = getattr(rg, name)(x)
        wanted = getattr(rg, name)(rg.asarray(wide[0])).numpy().astype(dtype)
        assert found.dtype == dtype
        assert found.numpy().tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_sums_of_half_accumulate_in_single(dtype):
    """Ten thousand ones add up, forwards and in a gradient that sums over broadcasting."""
    n = 10_000
    wanted = np.asarray(n, np.float32).astype(dtype)
    assert rg.sum(rg.ones(n, dtype=dtype)).numpy() == wanted
    x = leaf(1.0, dtype)
    (x + rg.zeros(n, dtype=dtype)).backward(rg.ones(n, dtype=dtype))
    assert x.grad.dtype == dtype
    assert x.grad.numpy() == wanted
    g = rg.grad(lambda x: rg.sum(x + rg.zeros(n, dtype=dtype)))(rg.ones((), dtype=dtype))
    assert g.numpy() == wanted


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_gradients_of_half_are_near_those_of_single(dtype, rng):
    """To the width of the storage, in both faces and both modes."""
    values = rng.normal(size=(3, 3))

    def f(x):
        return rg.sum(rg.tanh(x @ x) * rg.exp(-x * x))

    x, wide = rg.asarray(values, dtype=dtype), rg.asarray(values, dtype=np.float32)
    found, wanted = rg.grad(f)(x), rg.grad(f)(wide)
    assert found.dtype == dtype
    assert_close(found, wanted)
    t = leaf(values, dtype)
    f(t).backward()
    assert t.grad.dtype == dtype
    assert_close(t.grad, wanted)
    assert_close(rg.jvp(f, (x,), (x,))[1], rg.jvp(f, (wide,), (wide,))[1])


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_storage_under_single_loss(dtype, rng):
    """Mixed precision: half weights, a float32 loss, half gradients."""
    w = leaf(rng.normal(size=(4, 4)), dtype)
    x = rg.asarray(rng.normal(size=(8, 4)), dtype=dtype)
    loss = rg.sum(rg.tanh(x @ w).astype(np.float32) ** 2)
    assert loss.dtype == dt.float32
    loss.backward()
    assert w.grad.dtype == dtype


@needs_bfloat16
def test_bfloat16_and_float16_meet_in_single():
    """Neither holds the other."""
    assert rg.result_type(dt.bfloat16, dt.float16) == dt.float32
    assert rg.result_type(dt.bfloat16, dt.float32) == dt.float32
    assert rg.ones(2, dtype="bfloat16").dtype == dt.bfloat16


def test_half_loops_round_at_every_op(rng):
    """A scan in half precision has the bits of the loop, tracked or not."""
    for dtype in HALF:
        xs = rg.asarray(rng.normal(size=(5, 3)), dtype=dtype)
        f = lambda c, x: (rg.tanh(c * x) + rg.sum(x), None)
        c = xs[0]
        for x in xs:
            c, _ = f(c, x)
        tracked = rg.tensor(xs, requires_grad=True)
        for found in (rg.scan(f, xs[0], xs)[0], rg.scan(f, tracked[0], tracked)[0]):
            assert found.dtype == dtype
            assert found.numpy().tobytes() == c.numpy().tobytes()
