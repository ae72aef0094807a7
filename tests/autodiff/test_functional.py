"""grad, vjp, jvp, linearize, Jacobians and Hessians: on trees, nested in any order."""

import itertools
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given

import retrograd as rg
from retrograd.core import tree
from retrograd.core.errors import (
    ArgumentError,
    DerivativeError,
    DtypeError,
    RetrogradError,
    ShapeError,
    TraceError,
)
from retrograd.core.interpret import EVAL, apply, current
from retrograd.core.op import REGISTRY, Op, op
from retrograd.testing import assert_close
from retrograd.testing.check import difference
from retrograd.testing.strategies import programs


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass(frozen=True)
class Layer:
    weight: Any
    bias: Any
    name: str = field(default="layer", metadata={"static": True})


def array(rng, *shape):
    return rg.asarray(rng.normal(size=shape))


def f(x):
    return rg.tanh(rg.sin(x) * x) * x


def total(x):
    return rg.sum(f(x))


def model(rng):
    """Parameters in every kind of tree, and a loss of them."""
    params = {
        "layers": [
            Layer(array(rng, 3, 4), array(rng, 4)),
            Layer(array(rng, 4, 2), None, name="last"),
        ],
        "scale": Pair(array(rng), (array(rng, 2), None)),
    }

    def loss(p, x):
        first, last = p["layers"]
        h = rg.tanh(x @ first.weight + first.bias) @ last.weight
        return rg.sum(rg.tanh(h * p["scale"].first) * p["scale"].second[0])

    return params, loss, array(rng, 5, 3)


def moved(params, i, delta):
    """The tree with its i-th leaf moved by delta."""
    leaves, structure = tree.flatten(params)
    leaves[i] = leaves[i] + delta
    return tree.unflatten(structure, leaves)


# -- grad and value_and_grad ---------------------------------------------------------------


def test_grad_of_a_tree_is_a_tree_of_gradients(rng):
    """dict, list, named tuple, dataclass and None in; the same out, each leaf its gradient."""
    params, loss, x = model(rng)
    grads = rg.grad(loss)(params, x)
    assert tree.structure(grads) == tree.structure(params)
    assert grads["layers"][1].name == "last"
    for i, (leaf, g) in enumerate(zip(tree.leaves(params), tree.leaves(grads), strict=True)):
        direction = rng.normal(size=leaf.shape)
        (slope,) = difference(
            lambda t, i=i, d=direction: [loss(moved(params, i, t * d), x)],
            [rg.zeros((), dtype=np.float64)],
            [rg.ones((), dtype=np.float64)],
        )
        assert_close(np.sum(g.numpy() * direction), slope, tolerance=1e-7)


def test_value_and_grad_gives_both(rng):
    """The value is f's, the gradient is grad's, to the bit."""
    params, loss, x = model(rng)
    value, grads = rg.value_and_grad(loss)(params, x)
    assert value.item() == loss(params, x).item()
    for a, b in zip(tree.leaves(grads), tree.leaves(rg.grad(loss)(params, x)), strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()


def test_argnums_choose_arguments(rng):
    """A number gives one gradient, a tuple a tuple in its order; negative counts back."""
    a, b, c = (array(rng, 3) for _ in range(3))

    def g(a, b, c):
        return rg.sum(rg.sin(a) * b + b * c * c)

    da, db, dc = (rg.grad(g, i)(a, b, c) for i in range(3))
    assert_close(rg.grad(g, -1)(a, b, c), dc)
    assert_close(rg.grad(g, (0, 2))(a, b, c), (da, dc))
    assert_close(rg.grad(g, (2, 0))(a, b, c), (dc, da))
    assert_close(rg.grad(g, (1,))(a, b, c), (db,))
    value, (found,) = rg.value_and_grad(g, (-2,))(a, b, c)
    assert_close(found, db)
    assert_close(value, g(a, b, c))


@pytest.mark.parametrize("bad", [3, -4, (0, 3), 0.5, "a", None])
def test_argnums_that_do_not_exist_are_refused(bad):
    """An argument that is not there is an ArgumentError, not an IndexError."""
    one = rg.ones(())
    with pytest.raises(ArgumentError, match="argnums"):
        rg.grad(lambda a, b, c: a * b * c, bad)(one, one, one)


def test_the_same_argument_twice_is_refused_or_right():
    """argnums (0, 0) is a mistake or two equal gradients, never half of each."""
    x = rg.asarray(np.asarray(3.0))
    try:
        first, second = rg.grad(lambda a: a * a, (0, 0))(x)
    except ArgumentError:
        return
    assert_close((first, second), (2 * x, 2 * x))


def test_has_aux_carries_any_tree(rng):
    """aux comes out as a tree of tensors, with the values that it had inside."""
    x = array(rng, 3)

    def g(x):
        y = rg.sin(x)
        return rg.sum(y), {"y": y, "n": Pair(y * 2, None)}

    grads, aux = rg.grad(g, has_aux=True)(x)
    assert_close(grads, np.cos(x.numpy()))
    assert_close(aux, {"y": np.sin(x.numpy()), "n": Pair(2 * np.sin(x.numpy()), None)})
    (value, again), grads = rg.value_and_grad(g, has_aux=True)(x)
    assert_close(again, aux)
    assert_close(value, np.sum(np.sin(x.numpy())))
    with pytest.raises(DerivativeError, match=r"must return \(value, aux\)"):
        rg.grad(rg.sum, has_aux=True)(x)


def test_aux_does_not_reach_the_gradient(rng):
    """What is only in aux has no part in the gradient."""
    x = array(rng, 3)
    grads, _ = rg.grad(lambda x: (rg.sum(x), rg.sum(x * x * 100)), has_aux=True)(x)
    assert_close(grads, np.ones(3))


def test_options_by_keyword_are_passed_on():
    """Keyword arguments reach the function and are not differentiated."""
    x = rg.asarray(np.asarray(2.0))
    assert_close(rg.grad(lambda x, *, k: x**k)(x, k=3), 3 * x * x)


def test_numpy_arrays_and_numbers_are_taken(rng):
    """Arguments may be NumPy arrays or Python numbers."""
    values = rng.normal(size=3)
    assert_close(rg.grad(total)(values), rg.grad(total)(rg.asarray(values)))
    assert rg.grad(lambda x: x * x)(3.0).dtype == np.float32


def test_arguments_that_play_no_part_get_zeros(rng):
    """An argument that the result does not depend on has gradient zero, in its own dtype."""
    x, y = array(rng, 3), rg.ones(2)
    gx, gy = rg.grad(lambda x, y: rg.sum(x), (0, 1))(x, y)
    assert_close(gy, np.zeros(2, np.float32))
    assert gy.dtype == np.float32
    assert_close(rg.grad(lambda x: 7.0)(x), np.zeros(3))
    assert_close(gx, np.ones(3))


def test_grad_wants_one_real_number(rng):
    """What is not one real number is refused, with its spec and what to use."""
    x = array(rng, 3)
    with pytest.raises(DerivativeError, match=r"float64\[3\].*one number"):
        rg.grad(lambda x: x)(x)
    with pytest.raises(DerivativeError, match="real floating"):
        rg.grad(lambda x: rg.sum(x).astype(np.complex128))(x)
    with pytest.raises(DerivativeError, match="real floating"):
        rg.grad(rg.argmax)(x)


@pytest.mark.parametrize(
    "out", [lambda x: (x, x), lambda x: {"a": x}, lambda x: None, lambda x: [x]]
)
def test_grad_of_several_results_is_refused_by_name(out):
    """A function that returns a tree where grad wants a number is told so."""
    with pytest.raises(DerivativeError, match="grad: the function returned"):
        rg.grad(out)(rg.ones(()))


def test_integers_have_no_gradient(rng):
    """Differentiating with respect to an integer is refused; as other arguments they pass."""
    x, i = array(rng, 3), rg.asarray(np.arange(3))
    with pytest.raises(DtypeError, match="integers have no gradient"):
        rg.grad(lambda i: rg.sum(x * i))(i)
    assert_close(rg.grad(lambda x, i: rg.sum(x * i))(x, i), np.arange(3.0))


def test_gradients_have_the_dtype_of_their_arguments(rng):
    """float32 in, float32 out, also where it met float64 on the way."""
    x, y = rg.asarray(rng.normal(size=3).astype(np.float32)), array(rng, 3)
    gx, gy = rg.grad(lambda x, y: rg.sum(x * y * 2.0), (0, 1))(x, y)
    assert (gx.dtype, gy.dtype) == (np.float32, np.float64)


# -- vjp, jvp, linearize -------------------------------------------------------------------


def shear(p, x):
    """A function of trees to a tree."""
    h = rg.tanh(x @ p["w"]) + p["b"][0]
    return Pair(h * rg.sum(x), {"norm": rg.sum(h * h), "none": None})


def tree_case(rng):
    p = {"w": array(rng, 3, 2), "b": (array(rng, 2), None)}
    return p, array(rng, 4, 3)


def random_like(rng, t):
    return tree.map(lambda x: array(rng, *x.shape), t)


def dot(a, b):
    pairs = zip(tree.leaves(a), tree.leaves(b), strict=True)
    return sum(float(np.sum(x.numpy() * y.numpy())) for x, y in pairs)


def test_vjp_is_the_transpose_of_jvp_on_trees(rng):
    """<g, J t> = <J' g, t> for trees in and trees out."""
    p, x = tree_case(rng)
    out, pull = rg.vjp(shear, p, x)
    t = random_like(rng, (p, x))
    value, pushed = rg.jvp(shear, (p, x), t)
    g = random_like(rng, out)
    back = pull(g)
    assert tree.structure(back) == tree.structure((p, x))
    assert tree.structure(pushed) == tree.structure(out)
    assert_close(value, out)
    assert_close(np.asarray(dot(g, pushed)), np.asarray(dot(back, t)))


def test_linearize_is_jvp_with_the_function_run_once(rng):
    """linearize's map is linear, and jvp's tangent; f itself is not run again."""
    p, x = tree_case(rng)
    runs = []

    def counted(p, x):
        runs.append(1)
        return shear(p, x)

    out, push = rg.linearize(counted, p, x)
    for _ in range(3):
        t = random_like(rng, (p, x))
        assert_close(push(*t), rg.jvp(shear, (p, x), t)[1])
    assert_close(out, shear(p, x))
    assert len(runs) == 1
    s, t = random_like(rng, (p, x)), random_like(rng, (p, x))
    both = tree.map(lambda a, b: a + 2 * b, s, t)
    wanted = tree.map(lambda a, b: a + 2 * b, push(*s), push(*t))
    assert_close(push(*both), wanted)


def test_pull_can_be_called_again_and_again(rng):
    """vjp's pull keeps what it needs for as long as it is held."""
    x, g = array(rng, 3), array(rng, 3)
    _, pull = rg.vjp(f, x)
    first = pull(g)[0].numpy().tobytes()
    assert all(pull(g)[0].numpy().tobytes() == first for _ in range(3))


def test_aux_of_vjp_and_jvp(rng):
    """has_aux: aux third, without a derivative."""
    x, t = array(rng, 3), array(rng, 3)
    out, pull, aux = rg.vjp(lambda x: (f(x), {"x": x * 2}), x, has_aux=True)
    assert_close(pull(t), rg.vjp(f, x)[1](t))
    assert_close(aux, {"x": 2 * x.numpy()})
    out, pushed, aux = rg.jvp(lambda x: (f(x), {"x": x * 2}), (x,), (t,), has_aux=True)
    assert_close((out, pushed), rg.jvp(f, (x,), (t,)))
    assert_close(aux, {"x": 2 * x.numpy()})
    for call in (
        lambda: rg.vjp(f, x, has_aux=True),
        lambda: rg.jvp(f, (x,), (t,), has_aux=True),
    ):
        with pytest.raises(DerivativeError, match=r"must return \(result, aux\)"):
            call()


def test_wrong_structures_and_shapes_are_refused(rng):
    """Cotangents and tangents must fit; the error shows both."""
    x, t = array(rng, 3), array(rng, 3)
    _, pull = rg.vjp(lambda x: (x, x), x)
    with pytest.raises(ShapeError, match="structure"):
        pull(t)
    with pytest.raises(ShapeError, match="must have that shape"):
        pull((t, array(rng, 4)))
    with pytest.raises(ShapeError, match="structure"):
        rg.jvp(f, (x,), (t, t))
    with pytest.raises(ShapeError, match="must have that shape"):
        rg.jvp(f, (x,), (array(rng),))
    _, push = rg.linearize(f, x)
    with pytest.raises(ShapeError):
        push(t, t)
    with pytest.raises(ShapeError, match="must have that shape"):
        push(array(rng, 1))


@pytest.mark.parametrize("run", [rg.jvp, rg.hvp])
def test_primals_and_tangents_are_tuples(run, rng):
    """A tensor in place of (x,) is refused, not taken for its rows."""
    x = array(rng, 2)
    for primals, tangents in ((x, x), ((x,), x), (x, (x,))):
        with pytest.raises(ArgumentError, match=r"(?s)must be a tuple.*\(x,\)"):
            run(total, primals, tangents)
    assert_close(run(total, [x], [x]), run(total, (x,), (x,)))


def test_integer_primals_ride_along(rng):
    """jvp and vjp of functions of integers too: those have no tangents, zero cotangents."""
    x, i = array(rng, 3), rg.asarray(np.array([2, 0, 0]))

    def g(x, i):
        return rg.take(x, i, axis=0) * x, i + 1

    (out, ints), (dx, _) = rg.jvp(g, (x, i), (rg.ones_like(x), i))
    assert ints.dtype == i.dtype
    values = x.numpy()
    assert_close(dx, values[[2, 0, 0]] + values)
    _, pull = rg.vjp(lambda x, i: g(x, i)[0], x, i)
    gx, gi = pull(rg.ones_like(out))
    wanted = values[[2, 0, 0]].copy()
    np.add.at(wanted, [2, 0, 0], values)
    assert_close(gx, wanted)
    assert gi.shape == i.shape


# -- Jacobians and Hessians ----------------------------------------------------------------


def columns(g, x):
    """The Jacobian by loops of jvp: one column at a time."""
    out = []
    for i in range(x.size):
        e = np.zeros(x.size)
        e[i] = 1
        out.append(rg.jvp(g, (x,), (rg.asarray(e.reshape(x.shape)),))[1].numpy())
    stacked = np.stack(out, axis=-1) if out else np.zeros((*g(x).shape, 0))
    return stacked.reshape(*g(x).shape, *x.shape)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0,)])
def test_jacobians_of_any_shape(shape, rng):
    """jacfwd = jacrev = a loop over jvp; shape is out's, then in's."""
    x = array(rng, *shape)

    def g(x):
        return rg.stack([f(x), x * rg.sum(x), x])

    wanted = columns(g, x)
    for jacobian in (rg.jacfwd, rg.jacrev):
        found = jacobian(g)(x)
        assert found.shape == (3, *shape, *shape)
        assert_close(found, wanted)


def test_jacobians_of_trees(rng):
    """One block for each output leaf and each input leaf, in both trees' structure."""
    p, x = tree_case(rng)
    forward = rg.jacfwd(shear, (0, 1))(p, x)
    reverse = rg.jacrev(shear, (0, 1))(p, x)
    assert_close(forward, reverse)
    out = shear(p, x)
    block = forward.first[0]["w"]
    assert block.shape == (*out.first.shape, *p["w"].shape)
    t = random_like(rng, (p, x))
    zeros = tree.map(rg.zeros_like, x)
    _, pushed = rg.jvp(shear, (p, x), (t[0], zeros))
    by_hand = np.tensordot(block.numpy(), t[0]["w"].numpy(), 2)
    by_hand = by_hand + np.tensordot(forward.first[0]["b"][0].numpy(), t[0]["b"][0].numpy(), 1)
    assert_close(pushed.first, by_hand)


def test_jacobians_keep_dtypes(rng):
    """A float32 function has float32 Jacobians."""
    x = rg.asarray(rng.normal(size=3).astype(np.float32))
    assert rg.jacfwd(f)(x).dtype == np.float32
    assert rg.jacrev(f)(x).dtype == np.float32
    assert rg.hessian(total)(x).dtype == np.float32


def test_hessian_is_symmetric_and_hvp_multiplies_by_it(rng):
    """hessian = jacrev of grad = jacfwd of grad; hvp is its product without the matrix."""
    x, v = array(rng, 4), array(rng, 4)

    def g(x):
        return rg.sum(f(x)) * rg.sum(x * x)

    h = rg.hessian(g)(x)
    assert_close(h, h.mT)
    assert_close(h, rg.jacrev(rg.grad(g))(x))
    assert_close(h, rg.jacrev(rg.jacfwd(g))(x))
    assert_close(rg.hvp(g, (x,), (v,)), h @ v)


def test_hvp_of_trees(rng):
    """hvp of a tree is the directional derivative of its gradient."""
    params, loss, x = model(rng)
    t = random_like(rng, params)
    found = rg.hvp(lambda p: loss(p, x), (params,), (t,))
    wanted = rg.jvp(rg.grad(lambda p: loss(p, x)), (params,), (t,))[1]
    assert_close(found, wanted)
    a, b = array(rng, 3), array(rng, 3)
    two = rg.hvp(lambda a, b: rg.sum(rg.sin(a * b)), (a, b), (b, a))
    assert isinstance(two, tuple)
    assert len(two) == 2


def test_hessian_of_two_arguments_has_four_blocks(rng):
    """argnums (0, 1): mixed blocks are each other's transposes."""
    a, b = array(rng, 2), array(rng, 3)
    h = rg.hessian(lambda a, b: rg.sum(rg.sin(a)) * rg.sum(b * b * b), (0, 1))(a, b)
    assert_close(h[0][1], h[1][0].mT)
    assert h[0][1].shape == (2, 3)


# -- nesting -------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_derivatives_of_any_order(order):
    """The n-th derivative of x**6 by every mix of forward and reverse mode."""
    x = rg.asarray(np.asarray(1.3))

    def forward(g):
        return lambda x: rg.jvp(g, (x,), (rg.ones_like(x),))[1]

    def linear(g):
        return lambda x: rg.linearize(g, x)[1](rg.ones_like(x))

    wanted = np.prod(np.arange(6, 6 - order, -1)) * x.numpy() ** (6 - order)
    for modes in itertools.product([rg.grad, forward, linear], repeat=order):
        g = lambda x: x * x * x * x * x * x
        for mode in modes:
            g = mode(g)
        assert_close(g(x), wanted)


def test_perturbations_are_not_confused():
    """d/dx (x * d/dy (x + y)) at y = 1 is 1: the inner derivative is of y alone."""
    x = rg.asarray(np.asarray(3.0))
    one = rg.ones((), dtype=np.float64)

    def forward(g):
        return lambda x: rg.jvp(g, (x,), (one,))[1]

    for outer, inner in itertools.product([rg.grad, forward], repeat=2):
        found = outer(lambda x, inner=inner: x * inner(lambda y: x + y)(one))(x)
        assert_close(found, np.ones(()))
        found = outer(lambda x, inner=inner: inner(lambda y: x * y * y)(x))(x)
        assert_close(found, 4 * x)


def test_inner_functions_may_close_over_outer_variables(rng):
    """Three levels, each using the variables of those around it."""
    x = rg.asarray(np.asarray(0.7))

    def g(x):
        def h(y):
            return rg.grad(lambda z: rg.sin(x * y) * z * z * y)(x + y)

        return rg.grad(h)(x * x)

    def flat(x):  # by hand: h(y) = 2 (x + y) y sin(x y)
        y = x * x
        return (
            2 * y * rg.sin(x * y)
            + 2 * (x + y) * rg.sin(x * y)
            + 2 * (x + y) * y * x * rg.cos(x * y)
        )

    assert_close(g(x), flat(x))
    assert_close(rg.grad(g)(x), rg.grad(flat)(x))


def test_transforms_nest_in_any_order(rng):
    """grad, jvp, vmap and linearize around one function, in all orders."""
    xs = array(rng, 3)

    def directional(g):
        return lambda x: rg.jvp(g, (x,), (x,))[1]

    def reverse(g):
        def transformed(x):
            out, pull = rg.vjp(g, x)
            return pull(out)[0]

        return transformed

    def one_by_one(g):
        return lambda x: rg.stack([g(x[i]) for i in range(3)])

    for outer, inner in itertools.product([directional, reverse], repeat=2):
        by_map = [
            rg.vmap(outer(inner(f))),
            outer(rg.vmap(inner(f))),
            outer(inner(rg.vmap(f))),
        ]
        wanted = one_by_one(outer(inner(f)))(xs)
        for g in by_map:
            assert_close(g(xs), wanted)
        assert_close(
            rg.grad(lambda x, g=by_map[0]: rg.sum(g(x)))(xs),
            rg.grad(lambda x, g=by_map[2]: rg.sum(g(x)))(xs),
        )


def test_vjp_inside_grad_sees_its_cotangent(rng):
    """The pull is linear in g: its derivative with respect to g is the Jacobian's transpose."""
    x, g = array(rng, 3), array(rng, 3)
    _, pull = rg.vjp(f, x)
    jacobian = rg.jacfwd(f)(x)
    assert_close(rg.jacrev(lambda g: pull(g)[0])(g), jacobian.mT)
    assert_close(rg.jacfwd(lambda g: pull(g)[0])(g), jacobian.mT)

    def both(x, g):
        return rg.vjp(f, x)[1](g)[0]

    assert_close(rg.jacfwd(both, 1)(x, g), jacobian.mT)
    second = rg.jacfwd(rg.grad(lambda y: rg.sum(f(y) * g)))(x)
    assert_close(rg.jacfwd(both, 0)(x, g), second)


# -- stop_gradient and no_grad -------------------------------------------------------------


@pytest.mark.parametrize("cut", [rg.stop_gradient, lambda x: x.detach()])
def test_stop_gradient_in_both_modes(cut, rng):
    """What is cut is a constant to grad, jvp and vmap of them, at every level."""
    x = array(rng, 3)
    g = lambda x: rg.sum(x * cut(x))
    assert_close(rg.grad(g)(x), x)
    assert_close(rg.jvp(g, (x,), (x,))[1], rg.sum(x * x))
    assert_close(rg.linearize(g, x)[1](x), rg.sum(x * x))
    assert_close(rg.grad(lambda x: rg.sum(rg.vmap(lambda t: t * cut(t))(x)))(x), x)
    assert_close(rg.hessian(g)(x), np.zeros((3, 3)))
    assert_close(rg.grad(lambda x: rg.sum(rg.grad(g)(x)))(x), np.zeros(3))


def test_no_grad_inside_transforms(rng):
    """What runs in no_grad is a constant to every transform around it."""
    x = array(rng, 3)

    def g(x):
        with rg.no_grad():
            y = x * x
        return rg.sum(y * x)

    assert_close(rg.grad(g)(x), x * x)
    assert_close(rg.jvp(g, (x,), (rg.ones_like(x),))[1], rg.sum(x * x))
    assert_close(rg.grad(lambda x: rg.jvp(g, (x,), (x,))[1])(x), x * x)
    assert_close(rg.vmap(lambda t: rg.grad(g)(t.reshape(1)))(x).reshape(3), x * x)


def test_transforms_work_inside_no_grad(rng):
    """no_grad is about the tape: rg.grad inside it differentiates as ever."""
    x = array(rng, 3)
    wanted = rg.grad(total)(x)
    with rg.no_grad():
        assert_close(rg.grad(total)(x), wanted)
        assert_close(rg.hessian(total)(x), rg.jacrev(rg.grad(total))(x))


# -- errors leave nothing behind -----------------------------------------------------------


class StopError(Exception):
    pass


def test_exceptions_leave_the_interpreter_as_it_was(rng):
    """An error inside any transform, at any depth, restores the level before it."""
    x = array(rng, 3)

    def bad(x):
        raise StopError

    for transformed in (
        lambda: rg.grad(bad)(x),
        lambda: rg.jvp(bad, (x,), (x,)),
        lambda: rg.vmap(bad)(x),
        lambda: rg.linearize(bad, x),
        lambda: rg.hessian(bad)(x),
        lambda: rg.checkpoint(bad)(x),
        lambda: rg.scan(lambda c, x: bad(x), x, x),
        lambda: rg.grad(lambda x: rg.sum(rg.vmap(rg.checkpoint(bad))(x)))(x),
    ):
        with pytest.raises(StopError):
            transformed()
        assert current.get() is EVAL
        assert_close(rg.grad(total)(x), rg.grad(total)(x))


def test_errors_in_rules_leave_the_interpreter_as_it_was():
    """The same for an error in a backward rule."""
    x = rg.tensor(np.ones(3), requires_grad=True)
    y = rg.sum(x * x)

    def hook(g):
        raise StopError

    x.register_hook(hook)
    with pytest.raises(StopError):
        y.backward()
    assert current.get() is EVAL
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        np.ones(1) / np.zeros(1)  # NumPy's error state is as the user left it


@pytest.mark.parametrize("leak", ["jvp", "vmap", "linearize", "scan", "grad in vmap"])
def test_tensors_that_escape_a_transform_say_so(leak):
    """A tensor of a transform used after its end is a TraceError, never a silent number."""
    held = []

    def g(x):
        held.append(x * 2)
        return x

    one = rg.ones((), dtype=np.float64)
    {
        "jvp": lambda: rg.jvp(g, (one,), (one,)),
        "vmap": lambda: rg.vmap(g)(rg.ones(2)),
        "linearize": lambda: rg.linearize(g, one),
        "scan": lambda: rg.scan(lambda c, x: (g(c), None), one, length=2),
        "grad in vmap": lambda: rg.vmap(rg.grad(g))(rg.ones(2)),
    }[leak]()
    with pytest.raises(TraceError):
        held[0] + 1
    with pytest.raises(TraceError):
        rg.grad(lambda x: x * held[0])(one)


@pytest.mark.parametrize("transform", [lambda g, x: rg.grad(g)(x), rg.vjp])
@pytest.mark.parametrize("kind", [lambda x: x, lambda x: x * 2])
def test_tensors_that_escape_a_functional_tape_have_no_derivative(transform, kind):
    """Outside it they are numbers: constants to other transforms, refused by backward."""
    held = []
    one = rg.ones((), dtype=np.float64)
    transform(lambda x: held.append(kind(x)) or x * x, one)
    assert_close(rg.grad(lambda x: x * held[0])(one), kind(one))
    w = rg.tensor(np.asarray(3.0), requires_grad=True)
    with pytest.raises(TraceError, match="used after that transform has ended"):
        (w * held[0]).backward()
    assert w.grad is None


# -- ops with odd outputs ------------------------------------------------------------------


def private(cls):
    """An op of these tests alone: the registry is other tests' table."""
    found = op(cls)
    del REGISTRY[found.__name__]
    return found


@private
class IndexFirst(Op):
    """Where the largest element is, and its square: an integer output before a float."""

    outputs = ("index", "y")

    def shape(self, x):
        return x.with_shape(()).with_dtype(np.dtype("int64")), x.with_shape(())

    def forward(self, x):
        i = np.argmax(x)
        return i, x[i] ** 2

    def jvp(self, dx, x, index):
        return None, 2 * rg.take(x, index) * rg.take(dx, index)

    def vjp(self, g_y, x, index):
        hot = rg.one_hot(index, x.shape[0], dtype=x.dtype)
        return 2 * g_y * x * hot


def test_integer_outputs_beside_floats(rng):
    """An op may give indices beside its values: they carry nothing, in every mode."""
    x, t = array(rng, 5), array(rng, 5)
    k = int(np.argmax(x.numpy()))
    g = lambda x: apply(IndexFirst(), x)[1]
    slope = 2 * x.numpy()[k] * (np.arange(5) == k)
    assert_close(rg.grad(g)(x), slope)
    assert_close(rg.jvp(g, (x,), (t,))[1], np.sum(slope * t.numpy()))
    assert_close(rg.linearize(g, x)[1](t), np.sum(slope * t.numpy()))
    (index, _), (zero, _) = rg.jvp(lambda x: apply(IndexFirst(), x), (x,), (t,))
    assert index.item() == k
    assert zero.item() == 0
    assert_close(rg.hessian(g)(x), np.diag(2.0 * (np.arange(5) == k)))


@private
class Rough(Op):
    """A float result without a derivative."""

    no_derivative = "it is nowhere smooth"

    def shape(self, x):
        return x

    def forward(self, x):
        return x * 2


def test_no_derivative_says_why():
    """An op without a derivative raises with its reason, in both modes."""
    x = rg.ones(3)
    for mode in (
        lambda g: rg.grad(lambda x: rg.sum(g(x)))(x),
        lambda g: rg.jvp(g, (x,), (x,)),
        lambda g: rg.linearize(g, x),
    ):
        with pytest.raises(
            DerivativeError, match="rough has no derivative: it is nowhere smooth"
        ):
            mode(lambda x: apply(Rough(), x))


# -- random programs -----------------------------------------------------------------------


@given(programs())
def test_forward_is_reverse(program):
    """Every program: <grad, t> = jvp along t, and linearize says the same."""
    rng = np.random.default_rng(0)
    xs, ts = program.samples(rng), program.samples(rng)
    _, pushed = rg.jvp(program, xs, ts)
    grads = rg.grad(program, tuple(range(len(xs))))(*xs)
    by_grad = sum(np.sum(g.numpy() * t.numpy()) for g, t in zip(grads, ts, strict=True))
    size = sum(np.sum(np.abs(g.numpy() * t.numpy())) for g, t in zip(grads, ts, strict=True))
    assert abs(pushed.item() - by_grad) <= 1e-11 * max(1.0, size)
    assert_close(rg.linearize(program, *xs)[1](*ts), pushed)


@given(programs(max_steps=6))
def test_forward_over_reverse_is_reverse_over_forward(program):
    """Every program: the Hessian times t, both ways."""
    rng = np.random.default_rng(1)
    xs, ts = program.samples(rng), program.samples(rng)
    numbers = tuple(range(len(xs)))
    _, one = rg.jvp(rg.grad(program, numbers), xs, ts)
    other = rg.grad(lambda *a: rg.jvp(program, a, ts)[1], numbers)(*xs)
    assert_close(one, other)


@given(programs())
def test_the_tape_is_the_functional_face(program):
    """Every program: .grad after backward has the bits of rg.grad."""
    rng = np.random.default_rng(2)
    xs = program.samples(rng)
    leaves = [rg.tensor(x, requires_grad=True) for x in xs]
    loss = program(*leaves)
    if not loss.requires_grad:
        return
    loss.backward()
    grads = rg.grad(program, tuple(range(len(xs))))(*xs)
    for x, g in zip(leaves, grads, strict=True):
        found = rg.zeros_like(x) if x.grad is None else x.grad
        assert found.numpy().tobytes() == g.numpy().tobytes()


def test_all_errors_are_ours():
    """What this file expects as errors are all of the package's own tree."""
    for kind in (ArgumentError, DerivativeError, DtypeError, ShapeError, TraceError):
        assert issubclass(kind, RetrogradError)
