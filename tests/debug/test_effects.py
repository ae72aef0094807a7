"""rg.debug.print and rg.debug.check: once each, in order, under every transform, compiled."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.spec import Spec
from retrograd.ir.trace import trace
from retrograd.ir.verify import verify
from retrograd.jit.passes import steps

X = np.array([1.0, 2.0], np.float32)
PAIR = np.stack([X, X + 1])


def loud(x):
    rg.debug.print("first {}", x)
    y = rg.sum(x * x)
    rg.debug.print("then {:.1f}", y)
    return y


ONCE = ["first [1. 2.]", "then 5.0"]
BOTH = ["first [1. 2.]", "first [2. 3.]", "then 5.0", "then 13.0"]
WAYS = {
    "eager": (loud, ONCE),
    "grad": (rg.grad(loud), ONCE),
    "jvp": (lambda x: rg.jvp(loud, (x,), (x,)), ONCE),
    "linearize": (lambda x: rg.linearize(loud, x), ONCE),
    "hessian": (rg.hessian(loud), ONCE),
    "checkpoint": (rg.grad(rg.checkpoint(loud)), ONCE),
    "vmap": (lambda x: rg.vmap(loud)(rg.stack([x, x + 1])), BOTH),
    "vmap of grad": (lambda x: rg.vmap(rg.grad(loud))(rg.stack([x, x + 1])), BOTH),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "jit"])
@pytest.mark.parametrize("way", WAYS)
def test_every_line_is_printed_once_and_in_order(way, compiled, capsys):
    f, lines = WAYS[way]
    (rg.jit(f) if compiled else f)(rg.asarray(X))
    assert capsys.readouterr().out.splitlines() == lines


def test_the_tape_face_prints_once(capsys):
    x = rg.tensor(X, requires_grad=True)
    loud(x).backward()
    assert capsys.readouterr().out.splitlines() == ONCE


def looped(x):
    def body(c, t):
        rg.debug.print("carry {}", c)
        return c * t, c

    return rg.scan(body, rg.asarray(3.0), x)[0]


def branched(x):
    def yes(a):
        rg.debug.print("yes {}", a)
        return a * a

    return rg.cond(x[0] > 0, yes, lambda a: a, x[1])


def until(x):
    def body(c):
        rg.debug.print("at {}", c)
        return c + x[0]

    return rg.while_loop(lambda c: c < 3, body, x[1] * 0)


BODIES = {
    "scan": (looped, ["carry 3.0", "carry 3.0"]),
    "cond": (branched, ["yes 2.0"]),
    "while": (until, ["at 0.0", "at 1.0", "at 2.0"]),
}
DERIVED = {"plain": lambda f: f, "jvp": lambda f: lambda x: rg.jvp(f, (x,), (x,))}


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "jit"])
@pytest.mark.parametrize("derive", DERIVED)
@pytest.mark.parametrize("body", BODIES)
def test_bodies_of_loops_print_in_each_turn_and_derivatives_do_not(
    body, derive, compiled, capsys
):
    f, lines = BODIES[body]
    g = DERIVED[derive](f)
    (rg.jit(g) if compiled else g)(rg.asarray(X))
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "jit"])
@pytest.mark.parametrize("body", ["scan", "cond"])
def test_reverse_mode_runs_a_body_again_in_silence(body, compiled, capsys):
    f, lines = BODIES[body]
    for g in (rg.grad(f), rg.hessian(f)):
        (rg.jit(g) if compiled else g)(rg.asarray(X))
        assert capsys.readouterr().out.splitlines() == lines


def test_a_compiled_program_prints_at_every_call(capsys):
    f = rg.jit(loud)
    for _ in range(3):
        f(rg.asarray(X))
    assert capsys.readouterr().out.splitlines() == ONCE * 3


def test_passes_keep_effects_and_their_order():
    def f(x):
        for _ in range(2):  # the same twice: neither merged nor removed
            rg.debug.print("here")
            rg.debug.print("{}", x + 1)
        rg.debug.check(x > 0, "no")
        return [x]

    graph, _ = trace(f, [Spec((3,), np.dtype("f4"))])
    wanted = ["print"] * 4 + ["check"]
    for name, after in steps(graph):
        verify(after)
        assert [n.op.name for n in after.nodes if n.op.effect] == wanted, name


def test_values_and_derivatives_are_those_without_it(capsys):
    plain = lambda x: rg.sum(x * x)
    np.testing.assert_array_equal(rg.jit(loud)(X).array, rg.jit(plain)(X).array)
    np.testing.assert_array_equal(rg.grad(loud)(X).array, rg.grad(plain)(X).array)


@pytest.mark.parametrize(
    ("text", "values", "line"),
    [
        ("{:.2f}", [np.array([[1.0, 2.5]])], "[[1.00 2.50]]"),
        ("{1} before {0}", [np.int64(1), np.bool_(True)], "True before 1"),
        ("{{}} {}", [3], "{} 3"),
        ("here", [], "here"),
        ("{:>6}", [np.array(7)], "     7"),
    ],
)
def test_formats(text, values, line, capsys):
    rg.debug.print(text, *values)
    assert capsys.readouterr().out == f"{line}\n"


@pytest.mark.parametrize("text", ["{} {}", "none", "{name}", "{", "{1}"])
def test_a_format_that_does_not_fit_is_refused_where_it_is_written(text):
    with pytest.raises(rg.ArgumentError, match="print: "):
        rg.debug.print(text, X)


# -- check ---------------------------------------------------------------------------------


def careful(x):
    rg.debug.check(x > 0, "x must be positive")  # the line of the check
    return rg.sum(rg.log(x))


@pytest.mark.parametrize(
    "f",
    [careful, rg.jit(careful), rg.grad(careful), rg.jit(rg.grad(careful)), rg.vmap(careful)],
)
def test_check_raises_with_its_message_its_line_and_the_place(f):
    f(rg.asarray(PAIR))
    bad = PAIR.copy()
    bad[1, 0] = -1
    with pytest.raises(rg.CheckError) as error:
        f(rg.asarray(bad))
    text = str(error.value)
    assert text.startswith(
        "check: x must be positive; false in 1 of 4 elements, first at [1, 0]"
    )
    assert "the line of the check" in text
    assert isinstance(error.value, AssertionError)
    f(rg.asarray(PAIR))  # and the next call works


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "jit"])
@pytest.mark.parametrize("derive", [lambda f: f, rg.grad], ids=["value", "grad"])
def test_check_in_a_loop_names_the_line_in_the_body(derive, compiled):
    def f(x):
        def body(c, t):
            rg.debug.check(t > 0, "t must be positive")  # the line in the body
            return c * t, None

        return rg.scan(body, rg.asarray(1.0), x)[0]

    f = derive(f)
    f = rg.jit(f) if compiled else f
    with pytest.raises(rg.CheckError, match="the line in the body"):
        f(rg.asarray([1.0, -1.0]))


def test_a_failing_check_leaves_donated_tensors_as_they_were():
    @rg.jit(donate=("x",))
    def step(x):
        y = x - 1
        rg.debug.check(y > 0, "too small")
        return y

    x = rg.asarray(X)
    with pytest.raises(rg.CheckError):
        step(x)
    np.testing.assert_array_equal(x.array, X)


def test_an_empty_condition_holds_and_a_number_is_one():
    rg.debug.check(rg.zeros((0, 3)) > 1, "nothing")
    rg.debug.check(True, "a bool")
    with pytest.raises(rg.CheckError, match=r"^check: zero\n"):
        rg.debug.check(0, "zero")
