"""Mutation: a recorded value can never change under the tape's feet unseen."""

import copy
import itertools

import numpy as np
import pytest

import retrograd as rg
from retrograd.testing import assert_close


def leaf(values, dtype=np.float64):
    return rg.tensor(np.asarray(values, dtype), requires_grad=True)


INDICES = [
    0,
    -1,
    slice(1, 3),
    slice(None, None, -2),
    ...,
    (slice(None), 1),
    (..., None, 0),
    np.array([2, 0]),
    np.array([[True, False], [False, True], [True, True]]),
]


@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_writing_is_numpy_s(index, rng):
    """x[index] = v gives the values NumPy's assignment gives, with broadcasting."""
    x = rng.normal(size=(3, 2))
    for value in (7.0, rng.normal(size=x[index].shape)):
        wanted, t = x.copy(), rg.asarray(x)
        wanted[index] = value
        t[index] = value
        assert_close(t, wanted)
        assert t.dtype == x.dtype


def test_writing_swaps_the_handle_and_nothing_else(rng):
    """Other handles, and the array that was imported, keep the old values."""
    values = rng.normal(size=3)
    x = rg.asarray(values)
    other, array = copy.copy(x), np.asarray(x)
    x[0] = 100.0
    assert_close(other, values)
    assert_close(array, values)
    assert x.numpy()[0] == 100.0


def test_in_place_operators_make_new_tensors(rng):
    """x += 1 binds the name anew: who held x before holds it still."""
    x = rg.asarray(rng.normal(size=3))
    before, old = x.numpy().copy(), x
    x += 1
    x *= 2
    assert_close(old, before)
    assert_close(x, 2 * (before + 1))


@pytest.mark.parametrize("when", ["before the write", "after the write", "both"])
def test_the_tape_keeps_the_value_of_its_time(when, rng):
    """Gradients are those of the values that were there when an op ran."""
    values = rng.normal(size=3)

    def program(x, write):
        y = rg.sin(x)
        total = rg.sum(y * y) if when != "after the write" else x[0] * 0
        y = write(y, x)
        return total + (rg.sum(y * y * y) if when != "before the write" else 0)

    def in_place(y, x):
        y[1] = x[0] * x[2]
        return y

    x = leaf(values)
    program(x, in_place).backward()
    wanted = rg.grad(lambda x: program(x, lambda y, x: y.at[1].set(x[0] * x[2])))(values)
    assert_close(x.grad, wanted)


def test_a_written_element_forgets_what_it_was(rng):
    """The overwritten element has no gradient; the value written has one."""
    x, v = leaf(rng.normal(size=3)), leaf(2.0)
    y = x * 3
    y[1] = v * 5
    rg.sum(y).backward()
    assert_close(x.grad, np.array([3.0, 0.0, 3.0]))
    assert_close(v.grad, np.asarray(5.0))


def test_a_constant_that_takes_a_tracked_value_is_tracked(rng):
    """Filling a buffer element by element is differentiable."""
    x = leaf(rng.normal(size=4))
    buffer = rg.zeros(4, dtype=np.float64)
    for i in range(4):
        buffer[i] = x[i] * (buffer[i - 1] + 1)
    rg.sum(buffer).backward()
    wanted = rg.grad(
        lambda x: rg.sum(
            rg.stack(list(itertools.accumulate(x, lambda b, xi: xi * (b + 1), initial=0.0))[1:])
        )
    )(x.detach())
    assert_close(x.grad, wanted)


def test_a_leaf_is_not_written_on_the_tape():
    """Its gradient would have no owner; the error says what to write."""
    x = leaf([1.0, 2.0])
    with pytest.raises(rg.ArgumentError, match=r"(?s)leaf.*x\.at\[index\]\.set.*no_grad"):
        x[0] = 5.0
    assert_close(x, np.array([1.0, 2.0]))


def test_a_leaf_is_written_under_no_grad():
    """That is how parameters are updated by hand: the leaf stays, recorded values stay."""
    x = leaf([1.0, 2.0])
    held, loss = copy.copy(x), rg.sum(x * x * x)
    with rg.no_grad():
        x[...] = x - 0.5
    assert x.is_leaf
    assert x.leaf is held.leaf
    loss.backward()
    assert_close(x.grad, 3 * np.array([1.0, 2.0]) ** 2)
    assert_close(held, np.array([1.0, 2.0]))
    x.grad = None
    rg.sum(x * x).backward()
    assert_close(x.grad, 2 * np.array([0.5, 1.5]))


def test_steps_by_hand_go_downhill():
    """A whole descent with writes under no_grad."""
    x = leaf([3.0, -2.0])
    for _ in range(50):
        rg.sum(x * x).backward(accumulate=False)
        with rg.no_grad():
            x[...] = x - 0.1 * x.grad
    assert_close(x, np.zeros(2), tolerance=1e-3)


# -- inside transforms -------------------------------------------------------------------------


def written(x):
    x[0] = x[1] * 2
    y = x * x
    y[1] = 7.0
    return rg.sum(y * x)


def functional(x):
    x = x.at[0].set(x[1] * 2)
    y = (x * x).at[1].set(7.0)
    return rg.sum(y * x)


@pytest.mark.parametrize(
    "transform",
    [
        lambda g: g,
        rg.grad,
        lambda g: lambda x: rg.jvp(g, (x,), (rg.ones_like(x),)),
        lambda g: lambda x: rg.linearize(g, x)[1](x),
        rg.hessian,
        lambda g: lambda x: rg.vmap(g)(rg.stack([x, 2 * x])),
        lambda g: lambda x: rg.vmap(rg.grad(g))(rg.stack([x, 2 * x])),
        lambda g: rg.grad(lambda x: rg.sum(rg.vmap(g)(rg.stack([x, 2 * x])))),
        lambda g: rg.grad(
            lambda x: rg.scan(lambda c, v: (c + g(v), None), x[0], rg.stack([x, x]))[0]
        ),
        lambda g: rg.grad(rg.checkpoint(lambda x: g(x * 1))),
    ],
)
def test_writes_inside_transforms(transform, rng):
    """x[i] = v on an argument is x = x.at[i].set(v); the caller's tensor is untouched."""
    x = rg.asarray(rng.normal(size=3))
    before = x.numpy().copy()

    def write(x):
        return written(copy.copy(x))

    assert_close(transform(write)(x), transform(functional)(x))
    assert_close(x, before)


def test_writes_to_the_argument_itself_stay_inside(rng):
    """Transforms hand out handles: a write does not reach the caller's tensor."""
    x = rg.asarray(rng.normal(size=3))
    before = x.numpy().copy()
    for run in (
        lambda: rg.grad(written)(x),
        lambda: rg.jvp(written, (x,), (x,)),
        lambda: rg.vmap(written)(rg.stack([x, x])),
        lambda: rg.linearize(written, x),
        lambda: rg.hessian(written)(x),
    ):
        run()
        assert_close(x, before)


def test_a_constant_cannot_hold_a_value_of_a_transform():
    """A tensor that a transform does not carry refuses, with what to write instead."""

    def fill(x):
        buffer = rg.zeros(2)
        buffer[0] = x
        return rg.sum(buffer)

    def filled(x):
        return rg.sum(rg.zeros(2).at[0].set(x))

    one = rg.ones(())
    for run in (
        lambda g: rg.jvp(g, (one,), (one,)),
        lambda g: rg.vmap(g)(rg.ones(3)),
        lambda g: rg.vmap(rg.grad(g))(rg.ones(3)),
    ):
        with pytest.raises(rg.TraceError, match=r"(?s)setitem.*x\.at\[index\]\.set"):
            run(fill)
        run(filled)
    assert_close(rg.grad(fill)(one), rg.grad(filled)(one))
    # in a traced body a constant is a value of the program, which holds what it is given
    numbers = rg.arange(3.0)
    assert_close(rg.scan(lambda c, x: (c, fill(x)), one, numbers)[1], numbers)


def test_a_value_does_not_leave_its_transform_by_a_write():
    """Writing an inner level's value into an outer level's tensor is refused at once."""
    one = rg.ones(())

    def outer(x, inner):
        def g(z):
            x[0] = z
            return z * 2

        inner(g)
        return rg.sum(x)

    for level in (
        lambda f: rg.grad(f)(rg.ones(2)),
        lambda f: rg.jvp(f, (rg.ones(2),), (rg.ones(2),)),
    ):
        for inner in (lambda g: rg.jvp(g, (one,), (one,)), lambda g: rg.vmap(g)(rg.ones(2))):
            with pytest.raises(rg.TraceError, match="setitem"):
                level(lambda x, inner=inner: outer(x, inner))


def test_outer_values_may_be_written_into_inner_tensors(rng):
    """The other way round is a constant of the level below, and differentiable there."""
    x = rg.asarray(rng.normal(size=2))

    def outer(x):
        def inner(z):
            z[0] = x[0] * x[1]
            return rg.sum(z * z * z)

        return rg.sum(rg.grad(inner)(x) * x)

    def plain(x):
        return rg.sum(rg.grad(lambda z: rg.sum(z.at[0].set(x[0] * x[1]) ** 3))(x) * x)

    assert_close(rg.grad(outer)(x), rg.grad(plain)(x))
    assert_close(rg.jvp(outer, (x,), (x,)), rg.jvp(plain, (x,), (x,)))


# -- NumPy's side --------------------------------------------------------------------------


def test_arrays_of_tensors_are_read_only(rng):
    """np.asarray(t) and t.numpy() cannot be written to; a copy can."""
    x = leaf(rng.normal(size=3))
    for array in (np.asarray(x), x.numpy(), np.asarray(rg.sin(x)), np.asarray(x.detach())):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0
    np.array(x)[0] = 1.0
    np.asarray(x, copy=True)[0] = 1.0
    np.asarray(x, np.float32)[0] = 1.0


def test_imports_are_copies(rng):
    """What happens to a NumPy array later does not reach the tensor."""
    values = rng.normal(size=3)
    before = values.copy()
    made = [
        rg.asarray(values),
        rg.tensor(values),
        rg.from_dlpack(values),
        rg.asarray(values, copy=True),
        rg.tensor(values, requires_grad=True),
    ]
    total = sum(rg.sum(x * x) for x in made)
    values[:] = 0
    for x in made:
        assert_close(x, before)
    total.backward()
    assert_close(made[-1].grad, 2 * before)


def test_arrays_among_operands_are_copied_too(rng):
    """x * array keeps the array's values of its time."""
    x, array = leaf(rng.normal(size=3)), rng.normal(size=3)
    before = array.copy()
    y = rg.sum(x * array)
    array[:] = 0
    y.backward()
    assert_close(x.grad, before)


def test_indices_are_copied_too(rng):
    """A NumPy index that changes after it was used does not change the gradient."""
    x, index = leaf(rng.normal(size=3)), np.array([0, 0, 2])
    y = rg.sum(x[index])
    index[:] = 1
    y.backward()
    assert_close(x.grad, np.array([2.0, 0.0, 1.0]))


def test_a_gradient_given_by_the_user_is_copied(rng):
    """.grad = array, backward(array): later changes to the array do not reach the gradients."""
    x, array = leaf(rng.normal(size=3)), np.ones(3)
    x.grad = array
    (x * 1).backward(array)
    array[:] = 9
    assert_close(x.grad, np.full(3, 2.0))


def test_shared_memory_is_watched(rng):
    """With copy=False and rg.debug.aliasing, a change that a backward would use is an error."""
    values = rng.normal(size=3)
    with rg.debug.aliasing():
        x = leaf(np.ones(3))
        shared = rg.asarray(values, copy=False)
        y = rg.sum(x * shared)
        values[0] += 1
        with pytest.raises(rg.AliasError, match=r"(?s)multiply.*changed after it was recorded"):
            y.backward()
        z = rg.sum(x * rg.asarray(values.copy(), copy=False))
        z.backward()  # nothing was changed since
    assert_close(x.grad, values)


def test_shared_memory_may_change_and_be_read_again():
    """What matters is what a node kept when it was made, not what the array was before."""
    shared = np.ones(3)
    w = rg.tensor(np.ones(3), requires_grad=True)
    with rg.debug.aliasing():
        x = rg.asarray(shared, copy=False)
        rg.sum(x * 2.0)
        shared[0] = 5.0
        rg.sum(x * w).backward()
    assert_close(w.grad, shared)
