"""Jitted functions on a tape: one op, whose forward and backward are compiled."""

import numpy as np
import pytest
from hypothesis import given

import retrograd as rg
from retrograd.core import dtype as dt
from retrograd.core.spec import Spec
from retrograd.ir.trace import trace
from retrograd.ir.verify import verify
from retrograd.jit.passes.cut import cut
from retrograd.testing import assert_close
from retrograd.testing.exactly import run_graph
from retrograd.testing.strategies import programs


def loss(x, w, b):
    return rg.sum(rg.nn.softmax(rg.tanh(x @ w + b)) * rg.arange(4.0))


@pytest.fixture
def inputs(rng):
    return [rg.asarray(rng.normal(size=s)) for s in ((5, 3), (3, 4), (4,))]


def derivatives(f):
    return [d for d in f.derivatives._known.values() if d is not None]


@pytest.mark.parametrize("argnums", [0, 1, (0, 2), (0, 1, 2)])
def test_gradients_of_jitted_functions(argnums, inputs):
    f = rg.jit(loss)
    found, wanted = (rg.value_and_grad(g, argnums)(*inputs) for g in (f, loss))
    assert_close(rg.tree.leaves(found), rg.tree.leaves(wanted))
    assert len(derivatives(f)) == 1
    assert f.traces == 1
    rg.grad(f, argnums)(*inputs)
    assert len(derivatives(f)) == 1


@given(programs(max_steps=8))
def test_random_programs(program):
    xs = program.samples(np.random.default_rng(1))
    numbers = tuple(range(len(xs)))
    f = rg.jit(program)
    found, wanted = (rg.value_and_grad(g, numbers)(*xs) for g in (f, program))
    assert_close(rg.tree.leaves(found), rg.tree.leaves(wanted))
    assert derivatives(f)


def test_the_tape_face(inputs):
    x, w, b = inputs
    mine, theirs = (rg.tensor(w.array, requires_grad=True) for _ in range(2))
    f = rg.jit(loss)
    for _ in range(2):
        f(x, mine, b).backward()
        loss(x, theirs, b).backward()
    assert_close(mine.grad, theirs.grad)
    assert len(derivatives(f)) == 1
    with rg.no_grad():
        assert not f(x, mine, b).requires_grad


def test_second_derivatives_run_op_by_op(inputs):
    x, w, b = inputs

    def twice(f):
        return rg.grad(lambda w: rg.sum(rg.grad(f, 1)(x, w, b) ** 2))(w)

    assert_close(twice(rg.jit(loss)), twice(loss))
    assert_close(rg.hvp(rg.jit(loss), (x, w, b), (x, w, b)), rg.hvp(loss, (x, w, b), (x, w, b)))


def test_tensors_that_are_closed_over_are_differentiated(inputs):
    x, w, b = inputs
    leaf, other = (rg.tensor(w.array, requires_grad=True) for _ in range(2))
    rg.jit(lambda x: loss(x, leaf, b))(x).backward()
    loss(x, other, b).backward()
    assert_close(leaf.grad, other.grad)


def test_several_results_trees_numbers_and_integers(rng):
    def f(tree, n):
        y = tree["x"] * n + rg.sum(tree["y"])
        return {"y": y, "most": rg.argmax(y), "text": "static"}, rg.tanh(y)

    tree = {"x": rg.asarray(rng.normal(size=4)), "y": rg.asarray(rng.normal(size=3))}

    def total(g):
        def value(tree):
            found, other = g(tree, 2.5)
            assert found["text"] == "static"
            return rg.sum(found["y"]) + rg.sum(other * other)

        return rg.grad(value)(tree)

    assert_close(rg.tree.leaves(total(rg.jit(f))), rg.tree.leaves(total(f)))


def test_a_result_that_nothing_uses_has_no_part(rng):
    f = rg.jit(lambda x: (rg.sum(x * x), rg.log(x - 100)))
    x = rng.normal(size=3)
    assert_close(rg.grad(lambda x: f(x)[0])(x), 2 * x)


def test_vjp_and_jacobians(rng):
    f, x = rg.jit(lambda x: rg.tanh(x) * 2), rng.normal(size=3)
    assert_close(rg.jacrev(f)(x), rg.jacrev(lambda x: rg.tanh(x) * 2)(x))
    out, pull = rg.vjp(f, x)
    assert_close(pull(out), rg.vjp(lambda x: rg.tanh(x) * 2, x)[1](out))


def test_loops_with_their_own_backward(rng):
    def f(x):
        return rg.sum(rg.scan(lambda c, a: (rg.tanh(c * a), c), x[0], x)[1])

    x = rng.normal(size=6)
    assert_close(rg.grad(rg.jit(f))(x), rg.grad(f)(x))


def test_inside_a_checkpoint_it_is_the_plain_function(inputs):
    f = rg.jit(loss)
    found = rg.grad(rg.checkpoint(f), (0, 1, 2))(*inputs)
    assert_close(list(found), list(rg.grad(loss, (0, 1, 2))(*inputs)))


def test_no_derivative_is_said_as_eager_code_says_it():
    def f(x):
        return rg.sum(rg.special.betainc(x, 2.0, 0.5))

    for g in (f, rg.jit(f)):
        with pytest.raises(rg.DerivativeError, match="it has no closed form"):
            rg.grad(g)(rg.asarray([1.0, 2.0]))


def test_random_draws_are_the_same_forward_and_backward():
    key = rg.random.key(1)
    f = lambda a: rg.sum(rg.random.gamma(key, a) ** 2)
    a = rg.asarray([0.5, 2.0, 9.0], dtype=rg.float64)
    found, wanted = (rg.value_and_grad(g)(a) for g in (rg.jit(f), f))
    assert_close(list(found), list(wanted))


# -- cut -----------------------------------------------------------------------------------


@given(programs(max_steps=8))
def test_both_halves_are_the_whole(program):
    xs = program.samples(np.random.default_rng(0))
    specs = [x.spec for x in xs]

    def both(*given):
        out, pull = rg.vjp(program, *given[:-1])
        return [out, *pull(given[-1])]

    graph, _ = trace(both, [*specs, Spec((), dt.float64)])
    first, second, kept = cut(verify(graph), len(xs), 1)
    verify(first)
    verify(second)
    arrays = [*(x.array for x in xs), np.asarray(0.7)]
    out, *values = run_graph(first, arrays[:-1])
    assert len(values) == kept
    assert_close([out, *run_graph(second, [*values, arrays[-1]])], run_graph(graph, arrays))


def test_constants_and_views_are_made_again():
    def f(x, g):
        wide = rg.broadcast_to(x, (100, 3))
        return [rg.sum(wide), wide * g * rg.arange(3.0)]

    graph, _ = trace(f, [Spec((3,), dt.float64), Spec((100, 3), dt.float64)])
    first, second, kept = cut(graph, 1, 1)
    assert kept == 1
    assert first.outputs[1:] == (0,)  # x itself, and not what it is repeated to
    assert "BroadcastTo" in str(second)
