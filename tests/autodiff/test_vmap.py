"""vmap: many programs as one. Always: what a loop over the mapped axis would give."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given

import retrograd as rg
from retrograd.core import tree
from retrograd.core.errors import ArgumentError, ShapeError, TraceError
from retrograd.core.interpret import apply
from retrograd.core.op import REGISTRY, Op, op
from retrograd.testing import assert_close
from retrograd.testing.strategies import programs


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class Layer:
    weight: Any
    bias: Any


def private(cls):
    """An op of these tests alone: the registry is other tests' table."""
    found = op(cls)
    del REGISTRY[found.__name__]
    return found


def array(rng, *shape):
    return rg.asarray(rng.normal(size=shape))


def f(x, y):
    return rg.tanh(x @ y) + rg.sum(x)


# -- axes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("x_axis", [None, 0, 1, 2, -1, -3])
@pytest.mark.parametrize("y_axis", [None, 0, 1, -1])
@pytest.mark.parametrize("out_axis", [0, 1, -1])
@pytest.mark.sampled(24)
def test_any_axes_are_a_loop(x_axis, y_axis, out_axis, rng):
    """in_axes and out_axes of every kind equal np.stack over a loop."""
    size = 4
    x, y = rng.normal(size=(2, 3)), rng.normal(size=3)
    xs = x if x_axis is None else np.stack([x + i for i in range(size)], axis=x_axis)
    ys = y if y_axis is None else np.stack([y * i for i in range(size)], axis=y_axis)
    mapped = rg.vmap(f, in_axes=(x_axis, y_axis), out_axes=out_axis)
    if x_axis is None and y_axis is None:
        with pytest.raises(ArgumentError, match="no argument is mapped"):
            mapped(rg.asarray(xs), rg.asarray(ys))
        return
    rows = [
        f(
            rg.asarray(x + i if x_axis is not None else x),
            rg.asarray(y * i if y_axis is not None else y),
        ).numpy()
        for i in range(size)
    ]
    assert_close(mapped(rg.asarray(xs), rg.asarray(ys)), np.stack(rows, axis=out_axis))


def test_axes_are_trees_or_the_beginning_of_one(rng):
    """in_axes follows the arguments' tree, and one number stands for all below it."""
    p = {"a": [array(rng, 3), array(rng, 5, 3)], "b": Pair(array(rng, 3, 5), None)}
    x = array(rng, 5, 3)

    def g(p, x):
        return rg.sum(p["a"][0] * p["a"][1]) + p["b"].first * x

    wanted = np.stack(
        [
            g(
                {"a": [p["a"][0], p["a"][1][i]], "b": Pair(p["b"].first[:, i], None)}, x[i]
            ).numpy()
            for i in range(5)
        ]
    )
    for axes in (
        ({"a": [None, 0], "b": Pair(1, None)}, 0),
        ({"a": (None, 0), "b": 1}, 0),
        [{"b": Pair(-1, 7), "a": [None, -2]}, -2],
    ):
        assert_close(rg.vmap(g, in_axes=axes)(p, x), wanted)


def test_axes_in_every_kind_of_tree(rng):
    """Dataclasses, named tuples, dicts in another order: the axes find their leaves."""
    w, b = array(rng, 4, 3), array(rng, 3)
    wanted = w.numpy() + b.numpy()
    g = lambda p: p.weight + p.bias
    assert_close(rg.vmap(g, in_axes=(Layer(0, None),))(Layer(w, b)), wanted)
    assert_close(
        rg.vmap(lambda p: p.first + p.second, in_axes=(Pair(0, None),))(Pair(w, b)), wanted
    )
    by_name = rg.vmap(lambda p: p["w"] + p["b"], in_axes=({"w": 0, "b": None},))
    assert_close(by_name({"b": b, "w": w}), wanted)
    assert_close(rg.vmap(lambda x: x, in_axes=np.int64(1))(w), w.mT)


def test_out_axes_are_trees_too(rng):
    """Each result has its axis; None for one that is not mapped."""
    x, c = array(rng, 4, 3), array(rng, 2)
    g = lambda x: {"x": x * 2, "both": (x + 1, c * 2)}
    out = rg.vmap(g, out_axes={"x": 1, "both": (-1, None)})(x)
    assert_close(out, {"x": 2 * x.mT, "both": (x.mT + 1, 2 * c)})
    with pytest.raises(ArgumentError, match="out_axes is None for a result that is mapped"):
        rg.vmap(lambda x: x, out_axes=None)(x)


def test_results_that_do_not_depend_are_repeated(rng):
    """A constant result is the same for each element."""
    c = array(rng, 2)
    assert_close(rg.vmap(lambda x: c)(rg.ones(3)), np.stack([c.numpy()] * 3))
    assert_close(rg.vmap(lambda x: 7.0)(rg.ones(3)), np.full(3, 7.0, np.float32))


def test_keyword_arguments_are_not_mapped(rng):
    """Options by keyword reach the function as they are."""
    x = array(rng, 3, 2)
    assert_close(rg.vmap(lambda x, *, k: x * k)(x, k=2.0), 2 * x)


def test_arguments_that_are_not_mapped_may_be_anything(rng):
    """in_axes None lets a Python object through."""
    x = array(rng, 3, 2)
    found = rg.vmap(lambda x, name: getattr(rg, name)(x), in_axes=(0, None))(x, "sin")
    assert_close(found, np.sin(x.numpy()))


@pytest.mark.parametrize("axes", [(0, 0), ((0, 1),), {"a": 0}, "x", (5,), (-4,), (0.5,)])
def test_axes_that_do_not_fit_are_refused(axes):
    """Wrong in_axes are an ArgumentError that shows them."""
    with pytest.raises(ArgumentError, match=r"in_axes"):
        rg.vmap(lambda x: x, in_axes=axes)(rg.ones((2, 3, 4)))


def test_lengths_must_agree():
    """All mapped axes have one length."""
    with pytest.raises(ArgumentError, match=r"lengths \[2, 3\]"):
        rg.vmap(lambda x, y: x)(rg.ones(2), rg.ones(3))
    with pytest.raises(ArgumentError, match="in_axes"):
        rg.vmap(lambda x: x)(rg.ones(()))


def test_an_empty_axis_maps_to_an_empty_axis():
    """Zero elements: zero results of the right shape."""
    out = rg.vmap(lambda x, y: (rg.sum(x), x + y), in_axes=(0, None))(
        rg.ones((0, 3)), rg.ones(3)
    )
    assert [o.shape for o in out] == [(0,), (0, 3)]


def test_results_keep_their_dtype(rng):
    """float32 in, float32 out; integers and bools too."""
    x = rg.asarray(rng.normal(size=4).astype(np.float32))
    out = rg.vmap(lambda x: (x * 2, x > 0, rg.astype(x, np.int32)))(x)
    assert [o.dtype.name for o in out] == ["float32", "bool", "int32"]


# -- what may not be done inside -----------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [lambda x: x.item(), bool, float, lambda x: x.numpy(), np.asarray, lambda x: x.tolist()],
)
def test_the_value_of_a_mapped_tensor_is_refused(ask):
    """There is no one value to look at: TraceError with what to write."""
    with pytest.raises(TraceError, match=r"(?s)vmap: the value of a mapped tensor.*rg\.where"):
        rg.vmap(lambda x: ask(x * 1) or x)(rg.ones(3))


def test_shapes_inside_are_those_of_one(rng):
    """The function sees one element: its shape, rank and length."""
    seen = []
    rg.vmap(lambda x: seen.append((x.shape, x.ndim, len(x), x.size)) or x)(rg.ones((5, 2, 3)))
    assert seen == [((2, 3), 2, 2, 6)]


def test_errors_inside_speak_of_one_element():
    """A shape error under vmap is an error of ours."""
    with pytest.raises(ShapeError):
        rg.vmap(lambda x: x @ rg.ones(7))(rg.ones((2, 3)))


# -- nesting -------------------------------------------------------------------------------


def test_vmap_of_vmap_is_two_loops(rng):
    """Maps nest, over axes of either level in either order."""
    x, y = array(rng, 3, 4), array(rng, 2, 4)
    outer = rg.vmap(rg.vmap(rg.matmul, in_axes=(None, 0)), in_axes=(0, None))
    assert_close(outer(x, y), x @ y.mT)
    swapped = rg.vmap(rg.vmap(rg.matmul, in_axes=(0, None)), in_axes=(None, 0), out_axes=1)
    assert_close(swapped(x, y), x @ y.mT)
    assert_close(rg.vmap(rg.vmap(rg.sin), in_axes=1, out_axes=1)(x), rg.sin(x))


def test_closed_over_tensors_are_shared(rng):
    """A mapped function may use tensors from outside, mapped at an outer level or not."""
    x, w = array(rng, 3, 4), array(rng, 4)
    assert_close(rg.vmap(lambda x: x @ w)(x), x @ w)

    def outer(row):
        return rg.vmap(lambda k: rg.sum(row) * k)(w)

    assert_close(rg.vmap(outer)(x), rg.sum(x, axis=1)[:, None] * w)


def test_per_example_gradients(rng):
    """vmap of grad gives one gradient an example; their sum is the gradient of the sum."""
    w, xs = {"a": array(rng, 4, 2), "b": array(rng, 2)}, array(rng, 5, 4)

    def loss(w, x):
        return rg.sum(rg.tanh(x @ w["a"] + w["b"]) ** 2)

    each = rg.vmap(rg.grad(loss), in_axes=(None, 0))(w, xs)
    for i in range(5):
        assert_close(tree.map(lambda g, i=i: g[i], each), rg.grad(loss)(w, xs[i]))
    whole = rg.grad(lambda w: rg.sum(rg.vmap(loss, in_axes=(None, 0))(w, xs)))(w)
    assert_close(tree.map(lambda g: rg.sum(g, axis=0), each), whole)


@pytest.mark.parametrize(
    "transform",
    [
        lambda g: lambda x, t: rg.jvp(g, (x,), (t,)),
        lambda g: lambda x, t: rg.linearize(g, x)[1](t),
        lambda g: lambda x, t: rg.vjp(g, x)[1](t),
        lambda g: lambda x, t: rg.jacfwd(g)(x),
        lambda g: lambda x, t: rg.jacrev(g)(x),
        lambda g: lambda x, t: rg.hessian(lambda x: rg.sum(g(x)))(x),
        lambda g: lambda x, t: rg.hvp(lambda x: rg.sum(g(x)), (x,), (t,)),
        lambda g: lambda x, t: rg.checkpoint(g)(x) * t,
        lambda g: lambda x, t: rg.scan(lambda c, _: (g(c) * t, c), x, length=3),
    ],
)
def test_every_transform_can_be_mapped(transform, rng):
    """vmap around jvp, vjp, Jacobians, checkpoint and scan is a loop around them."""
    xs, ts = array(rng, 4, 3), array(rng, 4, 3)

    def g(x):
        return rg.tanh(x * rg.sum(x)) * x

    one = transform(g)
    rows = [one(xs[i], ts[i]) for i in range(4)]
    wanted = tree.map(lambda *r: np.stack([v.numpy() for v in r]), *rows)
    assert_close(rg.vmap(one)(xs, ts), wanted)
    only_x = rg.vmap(one, in_axes=(0, None))(xs, ts[0])
    wanted = tree.map(
        lambda *r: np.stack([v.numpy() for v in r]), *[one(xs[i], ts[0]) for i in range(4)]
    )
    assert_close(only_x, wanted)


# -- ops without a batch rule --------------------------------------------------------------

RUNS = []


@private
class Slow(Op):
    """A user's op without a batch rule: x times y, counted."""

    outputs = ("product", "both")

    def shape(self, x, y):
        return x, x

    def forward(self, x, y):
        RUNS.append(x.shape)
        return x * y, x + y

    def jvp(self, dx, dy, x, y):
        return dx * y + x * dy, dx + dy

    def vjp(self, g_product, g_both, x, y):
        return g_product * y + g_both, g_product * x + g_both


def test_ops_without_a_batch_rule_are_mapped_one_by_one(rng):
    """Right for every op, and the op sees the shapes that its author wrote it for."""
    x, y = array(rng, 3, 2), array(rng, 2)
    RUNS.clear()
    out = rg.vmap(lambda x, y: apply(Slow(), x, y), in_axes=(0, None))(x, y)
    assert_close(out, (x * y, x + y))
    assert RUNS == [(2,)] * 3

    def loss(x, y):
        product, both = apply(Slow(), x, y)
        return rg.sum(product * both)

    mapped = rg.grad(lambda x, y: rg.sum(rg.vmap(loss, in_axes=(0, None))(x, y)), (0, 1))(x, y)
    plain = rg.grad(lambda x, y: rg.sum(x * y * (x + y)), (0, 1))(x, y)
    assert_close(mapped, plain)


# -- random programs -----------------------------------------------------------------------


@given(programs())
def test_mapped_programs_are_loops(program):
    """Every program: vmap = a loop, to rounding."""
    xs = program.samples(np.random.default_rng(0), 3)
    rows = [program(*(x[i] for x in xs)).numpy() for i in range(3)]
    assert_close(rg.vmap(program)(*xs), np.stack(rows))


@given(programs(max_steps=8))
def test_grad_of_vmap_is_vmap_of_grad(program):
    """Every program: the gradient of the mapped sum is the mapped gradient."""
    xs = program.samples(np.random.default_rng(1), 3)
    numbers = tuple(range(len(xs)))
    outside = rg.grad(lambda *a: rg.sum(rg.vmap(program)(*a)), numbers)(*xs)
    inside = rg.vmap(rg.grad(program, numbers))(*xs)
    assert_close(outside, inside)


@given(programs(max_steps=8))
def test_jvp_of_vmap_is_vmap_of_jvp(program):
    """Every program: the same for tangents."""
    rng = np.random.default_rng(2)
    xs, ts = program.samples(rng, 3), program.samples(rng, 3)
    outside = rg.jvp(rg.vmap(program), xs, ts)[1]
    inside = rg.vmap(lambda a, t: rg.jvp(program, a, t)[1])(xs, ts)
    assert_close(outside, inside)


def test_what_vmap_computes_is_still_on_the_tape(rng):
    """vmap is not a derivative: tensors that require gradients keep them through it."""
    x, w = rng.normal(size=(3, 4)), rng.normal(size=4)
    t, u = rg.tensor(x, requires_grad=True), rg.tensor(w, requires_grad=True)
    rg.sum(rg.vmap(lambda row: rg.tanh(row * u) * row)(t)).backward()
    wanted = rg.grad(lambda x, w: rg.sum(rg.tanh(x * w) * x), argnums=(0, 1))(x, w)
    assert_close((t.grad, u.grad), wanted)
