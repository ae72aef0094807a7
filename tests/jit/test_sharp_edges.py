"""Sharp edges of compiling: each docstring is the explanation, each test holds it true."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.testing import assert_close

x = rg.asarray([1.0, -2.0, 3.0])


# -- what Python sees is what is there when a function is traced -----------------------------


def test_a_constant_is_frozen():
    """A Python value that a function closes over is read once, when it is traced.

    Make it an argument; a number that is an argument is data, and never traces again.
    """
    rate = 2.0
    f = rg.jit(lambda x: x * rate)
    assert_close(f(x), 2 * x)
    rate = 3.0
    assert_close(f(x), 2 * x)
    g = rg.jit(lambda x, rate: x * rate)
    assert_close(g(x, 2.0), 2 * x)
    assert_close(g(x, 3.0), 3 * x)


def test_a_name_that_is_bound_again():
    """A tensor that a function closes over is a hidden argument: the object, not the name.

    Writing to the tensor is seen; another tensor under the same name is not.
    """
    w = rg.ones(3)
    f = rg.jit(lambda x: x * w)
    assert_close(f(x), x)
    w[:] = 2.0
    assert_close(f(x), 2 * x)
    w = rg.zeros(3)
    assert_close(f(x), 2 * x)


def test_a_branch_is_taken_once():
    """A branch on a Python value is taken when the function is traced, and stays.

    A bool argument is static: another value is another program.
    """
    f = rg.jit(lambda x, up: x + 1 if up else x - 1)
    assert_close(f(x, True), x + 1)
    assert_close(f(x, False), x - 1)
    assert f.traces == 2


def test_effects_happen_once():
    """What a function does beside computing happens when it is traced, not when it runs."""
    seen = []

    def f(x):
        seen.append("traced")
        return x + 1

    compiled = rg.jit(f)
    for _ in range(3):
        compiled(x)
    assert seen == ["traced"]


def test_a_list_that_is_filled_inside_holds_nothing():
    """A tensor of a program has no value; outside of the function it cannot be used."""
    kept = []
    rg.jit(lambda x: kept.append(x * 2))(x)
    with pytest.raises(rg.TraceError, match="used after that transform has ended"):
        kept[0] + 1


def test_a_tensor_that_escaped_through_an_object():
    """The same for attributes; return what is wanted outside."""

    class Holder:
        value = None

    holder = Holder()

    def f(x):
        holder.value = rg.sin(x)
        return x

    rg.jit(f)(x)
    with pytest.raises(rg.TraceError):
        np.asarray(holder.value)
    assert "traced float32[3]" in repr(holder.value)


def test_an_escaped_tensor_in_another_program():
    """Nor can another program use it."""
    kept = []
    rg.jit(lambda x: kept.append(x * 2))(x)
    with pytest.raises(rg.TraceError):
        rg.jit(lambda x: x + kept[0])(x)


def test_random_numbers_are_functions_of_their_key():
    """A key is data: same key, same numbers. NumPy's generators are run at the trace."""
    f = rg.jit(lambda key: rg.random.normal(key, (3,)))
    one, two = rg.random.key(1), rg.random.key(2)
    assert_close(f(one), rg.random.normal(one, (3,)))
    assert_close(f(two), rg.random.normal(two, (3,)))
    assert f.traces == 1
    frozen = rg.jit(lambda x: x + np.random.default_rng().normal())
    assert np.asarray(frozen(x)).tolist() == np.asarray(frozen(x)).tolist()


def test_writing_to_an_argument_stays_inside():
    """x[i] = v changes the function's own handle; the caller's tensor is what it was."""

    def f(x):
        x[0] = 7.0
        return x

    given = rg.zeros(3)
    assert_close(rg.jit(f)(given), rg.asarray([7.0, 0.0, 0.0]))
    assert_close(given, rg.zeros(3))


def test_writing_to_a_tensor_of_the_outside_is_refused():
    """A tensor from outside cannot hold a value of a program."""
    w = rg.zeros(3)

    def f(x):
        w[0] = x[0]
        return w

    with pytest.raises(rg.TraceError, match="setitem"):
        rg.jit(f)(x)
    assert_close(w, rg.zeros(3))


# -- values that are asked for ---------------------------------------------------------------


def branch(x):
    if rg.sum(x) > 0:
        return x
    return -x


def loop(x, n):
    for _ in range(n):
        x = x + 1
    return x


def while_large(x):
    while rg.max(x) > 1:
        x = x / 2
    return x


@pytest.mark.parametrize(
    ("f", "args", "line", "sentence", "hint"),
    [
        (branch, (), "if rg.sum(x) > 0", "`if`, `while`", "rg.where(condition, a, b)"),
        (while_large, (), "while rg.max(x) > 1", "`if`, `while`", "rg.while_loop"),
        (loop, (3,), "for _ in range(n)", "range(), shapes and slices", "static="),
        (lambda x, n: x * int(n), (3,), "int(n)", "int() needs", "static="),
        (lambda x, n: rg.zeros(n), (3,), "rg.zeros(n)", "range(), shapes", "static="),
        (lambda x, n: x.reshape(n, 1), (3,), "x.reshape(n, 1)", "range(), shapes", "static="),
        (lambda x, n: x[:n], (2,), "x[:n]", "range(), shapes and slices", "static="),
        (lambda x: float(x[0]), (), "float(x[0])", "float() needs", "outside"),
        (lambda x: complex(x[0]), (), "complex(x[0])", "complex() needs", "outside"),
        (lambda x: x[0].item(), (), "x[0].item()", ".item() needs", "outside"),
        (lambda x: x.tolist(), (), "x.tolist()", ".tolist() needs", "outside"),
        (lambda x: f"{x[0]:.3f}", (), "x[0]:.3f", "a format needs", "print outside"),
        (lambda x: np.asarray(x + 1), (), "np.asarray(x + 1)", "NumPy needs", "rg's function"),
        (lambda x: x.numpy(), (), "x.numpy()", "NumPy needs", "rg's function"),
        (lambda x: x[x > 0], (), "x[x > 0]", "the shape of the result depends", "size=n"),
        (lambda x: rg.nonzero(x)[0], (), "rg.nonzero(x)", "the shape of the", "size=n"),
        (lambda x: rg.sum(x).backward(), (), ".backward()", "backward: the tape", "rg.grad(f)"),
        (lambda x: x.requires_grad_(), (), "requires_grad_()", "requires_grad:", "rg.grad(f)"),
    ],
)
def test_values_are_not_there_yet(f, args, line, sentence, hint):
    """While a function is traced its tensors have a shape and a dtype, and no values.

    The error says which line asked for one, and what to write instead.
    """
    with pytest.raises(rg.TraceError) as caught:
        rg.jit(f)(x, *args)
    assert sentence in str(caught.value)
    assert line in str(caught.value.at)
    assert hint in caught.value.hint


def test_an_option_that_is_a_number_is_listed_as_static():
    """Numbers are data; where Python needs one, list it."""
    f = rg.jit(loop, static="n")
    assert_close(f(x, 3), x + 3)
    assert_close(f(x, 5), x + 5)
    assert f.traces == 2


def test_a_failed_trace_leaves_nothing_behind():
    """After an error in a trace the function, and the rest of the program, work as before."""
    calls = []

    def f(x):
        calls.append(1)
        if len(calls) == 1:
            raise KeyError("the first time")
        return x + 1

    compiled = rg.jit(f)
    with pytest.raises(KeyError):
        compiled(x)
    assert_close(compiled(x), x + 1)
    assert_close(x + 1, rg.asarray([2.0, -1.0, 4.0]))


def test_shapes_are_known():
    """Shapes, dtypes and lengths are Python values, which branches may use."""

    def f(x):
        total = x
        for i in range(x.shape[0]):
            total = total + x[i] if len(x) > 2 and x.dtype == rg.float32 else total
        return total

    assert_close(rg.jit(f)(x), x + rg.sum(x))


def test_mutable_options_are_refused():
    """A list of numbers is a tree of data; where it is an option, a tuple is hashable."""
    with pytest.raises(rg.ArgumentError, match="axes is a list"):
        rg.jit(lambda x, axes: rg.sum(x, axis=axes), static="axes")(x, [0])
    assert_close(
        rg.jit(lambda x, axes: rg.sum(x, axis=axes), static="axes")(x, (0,)), rg.sum(x)
    )
