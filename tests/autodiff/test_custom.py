"""Derivatives of the user's own: custom_vjp, custom_jvp, and ops as classes."""

import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest

import retrograd as rg
from retrograd.core import tree
from retrograd.core.errors import ArgumentError, DerivativeError, OpError, ShapeError
from retrograd.core.interpret import apply
from retrograd.core.op import REGISTRY, Composite, Elementwise, Op, op
from retrograd.core.spec import Spec
from retrograd.testing import assert_close, check_op


class Pair(NamedTuple):
    first: Any
    second: Any


def private(cls):
    """An op of these tests alone: the registry is other tests' table."""
    found = op(cls)
    del REGISTRY[found.__name__]
    return found


def array(rng, *shape):
    return rg.asarray(rng.normal(size=shape))


def leaf(values, dtype=np.float64):
    return rg.tensor(np.asarray(values, dtype), requires_grad=True)


CALLS = []


def cube_by_vjp():
    """x**3 with a rule, and a record of what was called."""

    @rg.custom_vjp
    def cube(x):
        CALLS.append("function")
        return x * x * x

    def forward(x):
        CALLS.append("forward")
        return x * x * x, x

    def backward(x, g):
        CALLS.append("backward")
        return (3 * x * x * g,)

    return cube.defvjp(forward, backward)


def cube_by_jvp():
    @rg.custom_jvp
    def cube(x):
        CALLS.append("function")
        return x * x * x

    def rule(primals, tangents):
        CALLS.append("jvp")
        (x,), (t,) = primals, tangents
        return x * x * x, 3 * x * x * t

    return cube.defjvp(rule)


def plain(x):
    return x * x * x


both = pytest.mark.parametrize("make", [cube_by_vjp, cube_by_jvp], ids=["vjp", "jvp"])


def _twice(total, x, t):
    """The Hessian of total at x times t, by the tape."""
    leaf_ = leaf(x.numpy())
    total(leaf_).backward(create_graph=True)
    rg.sum(leaf_.grad * t).backward(accumulate=False)
    return leaf_.grad


def everywhere(g, x, t):
    """What every transform makes of g, as one tree."""
    total = lambda x: rg.sum(g(x) * g(x))
    on_tape = leaf(x.numpy())
    total(on_tape).backward()
    return {
        "value": g(x),
        "grad": rg.grad(total)(x),
        "tape": on_tape.grad,
        "tape twice": _twice(total, x, t),
        "jvp": rg.jvp(g, (x,), (t,)),
        "vjp": rg.vjp(g, x)[1](t),
        "linearize": rg.linearize(g, x)[1](t),
        "jacfwd": rg.jacfwd(g)(x),
        "jacrev": rg.jacrev(g)(x),
        "hessian": rg.hessian(total)(x),
        "reverse over reverse": rg.jacrev(rg.grad(total))(x),
        "third": rg.jacfwd(rg.hessian(total))(x),
        "vmap": rg.vmap(g)(x),
        "grad of vmap": rg.grad(lambda x: rg.sum(rg.vmap(g)(x) * t))(x),
        "vmap of grad": rg.vmap(rg.grad(g))(x),
        "jvp of vmap": rg.jvp(rg.vmap(g), (x,), (t,)),
        "vmap of jvp": rg.vmap(lambda x, t: rg.jvp(g, (x,), (t,)))(x, t),
        "vmap of hessian": rg.vmap(rg.hessian(g))(x),
        "hessian of vmap": rg.hessian(lambda x: rg.sum(rg.vmap(g)(x) * t))(x),
        "vmap of vmap": rg.vmap(rg.vmap(g))(rg.stack([x, t])),
        "checkpoint": rg.grad(lambda x: rg.sum(rg.checkpoint(g)(x) * t))(x),
        "scan": rg.grad(lambda x: rg.scan(lambda c, x: (c + g(x), None), x[0] * 0, x)[0])(x),
        "jvp of scan": rg.jvp(
            lambda x: rg.scan(lambda c, x: (c + g(x), g(c)), x[0], x), (x,), (t,)
        ),
        "hessian of scan": rg.hessian(
            lambda x: rg.scan(lambda c, x: (c + g(x) * g(c), None), x[0], x)[0]
        )(x),
        "tape twice of scan": _twice(
            lambda x: rg.scan(lambda c, x: (g(x) * g(c), c), t[0], x)[0], x, t
        ),
    }


@both
def test_a_right_rule_changes_nothing(make, rng):
    """With the rule that is true anyway, every transform gives what it gave without."""
    x, t = array(rng, 3), array(rng, 3)
    found, wanted = everywhere(make(), x, t), everywhere(plain, x, t)
    for name, value in wanted.items():
        assert_close(found[name], value, what=name)


def crooked(kind):
    """The identity with derivative 10: a rule that shows when it is used."""
    if kind == "vjp":
        return rg.custom_vjp(lambda x: x * 1.0).defvjp(
            lambda x: (x * 1.0, ()), lambda _, g: (10 * g,)
        )
    return rg.custom_jvp(lambda x: x * 1.0).defjvp(lambda p, t: (p[0] * 1.0, 10 * t[0]))


@pytest.mark.parametrize("kind", ["vjp", "jvp"])
def test_the_rule_is_what_every_transform_uses(kind, rng):
    """A rule that is not the true derivative is used in both modes, mapped, in loops, twice."""
    x, t = array(rng, 3), array(rng, 3)
    ten = lambda x: 10 * x - 9 * rg.stop_gradient(x)  # the same value, the same slope
    found, wanted = everywhere(crooked(kind), x, t), everywhere(ten, x, t)
    for name, value in wanted.items():
        assert_close(found[name], value, what=name)


def test_what_is_called_when(rng):
    """Untracked: the function alone. Tracked: the forward rule, then the backward rule."""
    g = cube_by_vjp()
    x = array(rng, 3)
    CALLS.clear()
    g(x)
    assert CALLS == ["function"]
    CALLS.clear()
    y = g(leaf(x.numpy()))
    assert CALLS == ["forward"]
    rg.sum(y).backward()
    assert CALLS == ["forward", "backward"]
    CALLS.clear()
    rg.grad(lambda x: rg.sum(g(x)))(x)
    assert CALLS == ["forward", "backward"]


def test_untracked_calls_keep_nothing(rng):
    """Where nothing needs a gradient, no residual lives."""
    kept = []

    @rg.custom_vjp
    def f(x):
        return x * 2

    def forward(x):
        residual = rg.sin(x)
        kept.append(weakref.ref(residual.array))
        return x * 2, residual

    f.defvjp(forward, lambda r, g: (2 * g,))
    y = f(array(rng, 3))
    assert not kept
    assert not y.requires_grad
    y = f(leaf(np.ones(3)))
    assert kept[0]() is not None
    rg.sum(y).backward()
    assert kept[0]() is None


def test_trees_in_and_out(rng):
    """Arguments, results, residuals and cotangents are trees."""

    @rg.custom_vjp
    def f(p, x):
        return Pair(p["w"] * x, {"b": p["b"] + x})

    def forward(p, x):
        return f.f(p, x), {"w": p["w"], "x": x, "none": None}

    def backward(r, g):
        gw, gb = g.first, g.second["b"]
        return {"w": gw * r["x"], "b": gb}, gw * r["w"] + gb

    f.defvjp(forward, backward)
    p, x = {"w": array(rng, 3), "b": array(rng, 3)}, array(rng, 3)

    def loss(g, p, x):
        out = g(p, x)
        return rg.sum(out.first * out.second["b"] * out.second["b"])

    for argnums in (0, 1, (0, 1)):
        found = rg.grad(lambda p, x: loss(f, p, x), argnums)(p, x)
        assert_close(found, rg.grad(lambda p, x: loss(f.f, p, x), argnums)(p, x))
    tape = tree.map(lambda t: leaf(t.numpy()), (p, x))
    loss(f, *tape).backward()
    assert_close(
        tree.map(lambda t: t.grad, tape), rg.grad(lambda p, x: loss(f, p, x), (0, 1))(p, x)
    )


def test_results_that_are_not_used(rng):
    """A cotangent that never arrived comes to the rule as zeros."""
    seen = []

    @rg.custom_vjp
    def f(x):
        return x * 2, x * 3

    f.defvjp(
        lambda x: ((x * 2, x * 3), ()),
        lambda _, g: seen.append(g) or (2 * g[0] + 3 * g[1],),
    )
    assert_close(rg.grad(lambda x: rg.sum(f(x)[1]))(array(rng, 2)), np.full(2, 3.0))
    assert_close(seen[0][0], np.zeros(2))


def test_arguments_without_a_gradient(rng):
    """None is zero; integers, numbers and fixed tensors ride along."""
    x, scale, n = array(rng, 3), array(rng, 3), rg.asarray(np.array([2, 0, 1]))

    @rg.custom_vjp
    def f(x, scale, n, k):
        return rg.take(x, n) * scale * k

    def backward(r, g):
        n, scale, k = r
        return rg.zeros_like(g).at[n].add(g * scale * k), None, None, None

    f.defvjp(lambda x, scale, n, k: (f.f(x, scale, n, k), (n, scale, k)), backward)
    wanted = rg.grad(lambda x: rg.sum(f.f(x, scale, n, 2.0) ** 2))(x)
    assert_close(rg.grad(lambda x: rg.sum(f(x, scale, n, 2.0) ** 2))(x), wanted)
    gx, gs = rg.grad(lambda x, s: rg.sum(f(x, s, n, 2.0) ** 2), (0, 1))(x, scale)
    assert_close((gx, gs), (wanted, np.zeros(3)))
    mapped = rg.vmap(f, in_axes=(0, None, None, None))
    xs = rg.stack([x, 2 * x])
    assert_close(
        rg.grad(lambda xs: rg.sum(mapped(xs, scale, n, 2.0)))(xs),
        rg.grad(lambda xs: rg.sum(rg.stack([f.f(r, scale, n, 2.0) for r in xs])))(xs),
    )
    t = leaf(x.numpy())
    rg.sum(f(t, scale, n, 2.0) ** 2).backward()
    assert_close(t.grad, wanted)


def test_mapped_beside_shared_arguments(rng):
    """Under vmap a shared argument's gradient is the sum over the mapped axis."""
    f = rg.custom_vjp(lambda x, w: rg.sin(x) * w).defvjp(
        lambda x, w: (rg.sin(x) * w, (x, w)),
        lambda r, g: (g * rg.cos(r[0]) * r[1], g * rg.sin(r[0])),
    )
    h = rg.custom_jvp(lambda x, w: rg.sin(x) * w).defjvp(
        lambda p, t: (
            rg.sin(p[0]) * p[1],
            rg.cos(p[0]) * p[1] * t[0] + rg.sin(p[0]) * t[1],
        )
    )
    xs, w, t = array(rng, 4, 3), array(rng, 3), array(rng, 3)
    for axes, args in (((0, None), (xs, w)), ((None, 0), (w, xs))):
        for g in (f, h):
            loss = lambda *a, g=g, axes=axes: rg.sum(rg.vmap(g, in_axes=axes)(*a) ** 2)
            true = lambda *a, g=g, axes=axes: rg.sum(rg.vmap(g.f, in_axes=axes)(*a) ** 2)
            assert_close(rg.grad(loss, (0, 1))(*args), rg.grad(true, (0, 1))(*args))
            tangents = tuple(rg.sin(a) for a in args)
            assert_close(rg.jvp(loss, args, tangents), rg.jvp(true, args, tangents))
            assert_close(
                rg.hvp(loss, args, tangents), rg.hvp(true, args, tangents), what="second"
            )
    assert t.shape == w.shape


def scaled(w):
    """y times w, where w is captured and no argument."""
    return rg.custom_vjp(lambda y: y * w).defvjp(lambda y: (y * w, ()), lambda _, g: (g * w,))


def test_captured_constants_are_fine(rng):
    """What a custom function captures may be any tensor that nobody differentiates here."""
    w, x = array(rng, 3), array(rng, 3)
    assert_close(rg.grad(lambda x: rg.sum(scaled(w)(x)))(x), w)
    tracked = leaf(w.numpy())  # a leaf of the tape is a constant inside transforms
    assert_close(rg.grad(lambda x: rg.sum(scaled(tracked)(x)))(x), w)
    assert_close(rg.grad(lambda w: rg.sum(scaled(w.detach())(x) * w))(w), x * w)
    assert_close(rg.vmap(scaled(w), in_axes=0)(rg.stack([x, x]))[0], x * w)
    with rg.no_grad():
        assert_close(scaled(tracked)(x), x * w)


@pytest.mark.parametrize(
    "around",
    [
        lambda f, w: rg.grad(f)(w),
        lambda f, w: rg.jvp(f, (w,), (w,)),
        lambda f, w: rg.vmap(f)(rg.stack([w, w])),
        lambda f, w: rg.vmap(rg.grad(f))(rg.stack([w, w])),
        lambda f, w: rg.hessian(f)(w),
        lambda f, w: rg.scan(lambda c, _: (f(c), None), rg.sum(w), length=2),
        lambda f, w: f(leaf(w.numpy())),
    ],
    ids=["grad", "jvp", "vmap", "vmap of grad", "hessian", "scan", "tape"],
)
@pytest.mark.parametrize("tracked", [True, False], ids=["argument too", "captured alone"])
def test_captured_variables_are_refused(around, tracked, rng):
    """What is differentiated must be an argument: captured, its gradient would be lost."""
    w = array(rng, 3)
    f = lambda w: rg.sum(scaled(w)(w * 2 if tracked else rg.ones(3, dtype=np.float64)))
    with pytest.raises(rg.RetrogradError, match=r"captures a tensor|captured by a function"):
        around(f, w)


def test_custom_functions_nest(rng):
    """One inside another, and transforms inside a rule's function."""
    x, inner = array(rng, 3), cube_by_vjp()
    outer = rg.custom_vjp(lambda x: inner(x) * x).defvjp(
        lambda x: (inner(x) * x, x),
        lambda x, g: (g * rg.vmap(rg.grad(lambda t: inner(t) * t))(x),),
    )
    g = lambda f: lambda x: rg.sum(f(x) * f(x))
    plainly = lambda x: x * x * x * x
    for order in (rg.grad, rg.hessian, lambda f: rg.grad(lambda x: rg.sum(rg.grad(f)(x)))):
        assert_close(order(g(outer))(x), order(g(plainly))(x))


def test_parts_of_a_cotangent_may_be_none(rng):
    """None at any place of a cotangent's tree is zero below it."""
    f = rg.custom_vjp(lambda p: p["a"] * p["b"][0]).defvjp(
        lambda p: (p["a"] * p["b"][0], p["b"][0]), lambda b, g: ({"a": g * b, "b": (None,)},)
    )
    p = {"a": array(rng, 3), "b": (array(rng, 3),)}
    found = rg.grad(lambda p: rg.sum(f(p)))(p)
    assert_close(found, {"a": p["b"][0], "b": (np.zeros(3),)})


def test_residuals_do_not_outlive_backward(rng):
    """What the forward rule kept is freed with the rest of the tape."""
    g, x = cube_by_vjp(), leaf(rng.normal(size=3))
    h = rg.sin(x)
    y = rg.sum(g(h))
    ref = weakref.ref(h.array)
    del h
    assert ref() is not None
    y.backward()
    assert ref() is None


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.complex128])
def test_dtypes_pass_through(dtype):
    """The function sees the dtype it was given, and so does the gradient."""
    seen = []
    f = rg.custom_vjp(lambda x: seen.append(x.dtype) or x * x).defvjp(
        lambda x: (x * x, x), lambda x, g: (2 * x * g,)
    )
    x = rg.asarray(np.array([1.0, 2.0], dtype))
    assert f(x).dtype == dtype
    assert seen == [np.dtype(dtype)]
    _, pull = rg.vjp(f, x)
    assert pull(rg.ones_like(x))[0].dtype == dtype


# -- refusals ------------------------------------------------------------------------------


def test_no_rule_no_call():
    """A custom function without a rule says what to write."""

    @rg.custom_vjp
    def lonely(x):
        return x

    with pytest.raises(ArgumentError, match=r"(?s)lonely: no derivative was given.*defvjp"):
        lonely(rg.ones(2))


def test_rules_that_do_not_fit_are_refused(rng):
    """The wrong number, structure or shape of cotangents is an error with the name."""
    x = array(rng, 3)

    def made(forward, backward):
        @rg.custom_vjp
        def f(x, y):
            return x * y

        return f.defvjp(forward, backward)

    right = lambda x, y: (x * y, (x, y))
    for backward, error, text in (
        (
            lambda r, g: (g,),
            DerivativeError,
            "f: the backward rule returned 1 cotangents for 2",
        ),
        (lambda r, g: g, DerivativeError, "f: the backward rule returned 1 cotangents for 2"),
        (
            lambda r, g: (g, {"a": g, "b": g}),
            DerivativeError,
            r"f: the backward rule returned dict\(",
        ),
        (
            lambda r, g: (g, rg.ones(7)),
            OpError,
            r"cotangent of shape \(7,\) for an input of shape \(3,\)",
        ),
    ):
        f = made(right, backward)
        with pytest.raises(error, match=text):
            rg.grad(lambda x, f=f: rg.sum(f(x, x)))(x)
        with pytest.raises(error, match=text):
            rg.sum(f(leaf(np.ones(3)), leaf(np.ones(3)))).backward()
    f = made(lambda x, y: x * y, lambda r, g: (g, g))
    with pytest.raises(DerivativeError, match=r"f: the forward rule must return \(result, res"):
        rg.grad(lambda x: rg.sum(f(x, x)))(x)
    g = rg.custom_jvp(lambda x: x).defjvp(lambda p, t: (p[0], (t[0], t[0])))
    with pytest.raises(ShapeError, match="structure"):
        rg.jvp(g, (x,), (x,))


def test_a_tangent_of_the_wrong_shape_is_refused(rng):
    """A jvp rule's tangent has the result's shape, or may broadcast to it; else an error."""
    x = array(rng, 3)
    g = rg.custom_jvp(lambda x: x).defjvp(lambda p, t: (p[0], rg.ones(7)))
    with pytest.raises(ShapeError):
        rg.jvp(g, (x,), (x,))


def test_errors_of_the_user_pass_through():
    """An exception in the function or in a rule is the user's own, unwrapped."""

    class MineError(Exception):
        pass

    def bad(*args):
        raise MineError

    for f in (
        rg.custom_vjp(bad).defvjp(bad, bad),
        rg.custom_vjp(lambda x: x).defvjp(lambda x: (x * 1, ()), bad),
        rg.custom_jvp(lambda x: x).defjvp(bad),
    ):
        with pytest.raises(MineError):
            rg.grad(lambda x, f=f: rg.sum(f(x)))(rg.ones(2))
        with pytest.raises(MineError):
            rg.sum(f(leaf(np.ones(2)))).backward()
    with pytest.raises(MineError):
        rg.custom_vjp(bad).defvjp(bad, bad)(rg.ones(2))


# -- ops as classes ------------------------------------------------------------------------


@private
class Swish(Elementwise):
    """x times sigmoid of x, by one slope."""

    beta: float = 1.0

    def forward(self, x):
        return x / (1 + np.exp(-self.beta * x))

    def slope(self, x):
        s = rg.sigmoid(self.beta * x)
        return s + self.beta * x * s * (1 - s)


@private
class OnlyJvp(Op):
    """x @ y, known by its tangents alone."""

    def shape(self, x: Spec, y: Spec) -> Spec:
        return x.with_shape((x.shape[0], y.shape[1]))

    def forward(self, x, y):
        return x @ y

    def jvp(self, dx, dy, x, y):
        return dx @ y + x @ dy


@private
class OnlyVjp(Op):
    """x @ y, known by its cotangents alone, input by input."""

    def shape(self, x: Spec, y: Spec) -> Spec:
        return x.with_shape((x.shape[0], y.shape[1]))

    def forward(self, x, y):
        return x @ y

    def vjp_x(self, g, y):
        return g @ y.mT if isinstance(y, rg.ones(()).__class__) else g @ y.swapaxes(-1, -2)

    def vjp_y(self, g, x):
        return x.mT @ g if isinstance(x, rg.ones(()).__class__) else x.swapaxes(-1, -2) @ g


@private
class Distances(Op):
    """Squared distances between rows, with a rule that keeps its inputs only."""

    def shape(self, x: Spec, y: Spec) -> Spec:
        if x.shape[-1] != y.shape[-1]:
            raise ShapeError(
                f"distances: rows of x {x.shape} and of y {y.shape} must have one length"
            )
        return x.with_shape((x.shape[0], y.shape[0]))

    def forward(self, x, y):
        return ((x[:, None] - y[None]) ** 2).sum(-1)

    def jvp(self, dx, dy, x, y):
        return rg.sum(2 * (x[:, None] - y[None]) * (dx[:, None] - dy[None]), axis=-1)

    def vjp(self, g, x, y):
        gap = 2 * g[:, :, None] * (x[:, None] - y[None])
        return rg.sum(gap, axis=1), -rg.sum(gap, axis=0)


@private
class Mean3(Composite):
    """The mean of three tensors, as a composition."""

    def shape(self, x: Spec, y: Spec, z: Spec) -> Spec:
        return x

    def expand(self, x, y, z):
        return (x + y + z) / 3


@pytest.mark.parametrize(
    ("made", "shapes"),
    [
        (Swish(), [(3,)]),
        (Swish(2.0), [(2, 0)]),
        (OnlyJvp(), [(2, 3), (3, 4)]),
        (OnlyVjp(), [(2, 3), (3, 4)]),
        (Distances(), [(2, 3), (4, 3)]),
        (Mean3(), [(3,), (3,), (3,)]),
    ],
    ids=repr,
)
def test_a_user_s_op_has_all_the_rights_of_ours(made, shapes, rng):
    """The questions of our own table: shape, both modes, second order, vmap, keeps."""
    check_op(made, *(rng.normal(size=s) for s in shapes))


def test_a_user_s_op_refuses_in_its_own_words(rng):
    """What forward cannot do, shape explains."""
    with pytest.raises(ShapeError, match=r"distances: rows of x \(2, 3\) and of y \(2, 4\)"):
        apply(Distances(), array(rng, 2, 3), array(rng, 2, 4))


def test_rules_keep_what_they_name_and_no_more(rng):
    """vjp_x asks for y: differentiating x alone keeps y, and not x."""
    x, y = leaf(rng.normal(size=(2, 3))), array(rng, 3, 4)
    out = apply(OnlyVjp(), x, y)
    assert [k.shape for k in out._node.kept] == [y.shape]
    assert apply(OnlyVjp(), x.detach(), y)._node is None


def test_rules_that_ask_for_what_does_not_exist_are_refused_at_birth():
    """OpError when the class is made, not at the first backward pass."""
    with pytest.raises(OpError, match=r"Wrong\.vjp asks for `h`"):

        @private
        class Wrong(Op):
            def shape(self, x: Spec) -> Spec:
                return x

            def forward(self, x):
                return x

            def vjp(self, g, h):
                return g


def test_a_rule_with_the_wrong_number_of_cotangents_is_refused():
    """One for each differentiable input, or an error that counts them."""

    @private
    class Short(Op):
        def shape(self, x: Spec, y: Spec) -> Spec:
            return x

        def forward(self, x, y):
            return x * y

        def vjp(self, g, x, y):
            return (g * y,)

    with pytest.raises(OpError, match=r"Short.*1 cotangents for 2"):
        apply(Short(), leaf([1.0]), leaf([2.0])).backward()


def test_a_number_is_no_cotangent():
    """0 in place of None is refused, with what to write."""

    @private
    class Lazy(Op):
        def shape(self, x: Spec, y: Spec) -> Spec:
            return x

        def forward(self, x, y):
            return x * y

        def vjp(self, g, y):
            return g * y, 0

    with pytest.raises(OpError, match="Lazy: its vjp returns the number 0"):
        apply(Lazy(), leaf([1.0]), leaf([2.0])).backward()


def test_an_op_without_any_rule_says_so_when_asked():
    """Neither vjp, jvp nor no_derivative: an OpError for the author, on use only."""

    @private
    class Mute(Op):
        def shape(self, x: Spec) -> Spec:
            return x

        def forward(self, x):
            return x * 2

    y = apply(Mute(), leaf([1.0]))
    with pytest.raises(OpError, match="Mute has neither vjp nor jvp"):
        y.backward()
    with pytest.raises(OpError, match="Mute has neither vjp nor jvp"):
        rg.jvp(lambda x: apply(Mute(), x), (rg.ones(1),), (rg.ones(1),))


def test_two_ops_of_one_name_are_refused():
    """Names are unique across modules."""

    def make():
        @op
        class Multiply(Elementwise):
            def forward(self, x):
                return x

        return Multiply

    with pytest.raises(OpError, match="is the name of an op of"):
        make()
