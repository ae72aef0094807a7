"""scan: a loop that is one op. Always: what the Python loop gives, in value and derivative."""

import gc
import itertools
import tracemalloc
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import retrograd as rg
from retrograd.testing import assert_close, check_grads


class State(NamedTuple):
    h: Any
    count: Any


def array(rng, *shape):
    return rg.asarray(rng.normal(size=shape))


def loop(f, init, xs=None, *, length=None, reverse=False):
    """scan, as a loop of Python."""
    leaves = rg.tree.leaves(xs)
    steps = range(leaves[0].shape[0] if leaves else length)
    carry, ys = init, []
    for t in reversed(steps) if reverse else steps:
        carry, y = f(carry, rg.tree.map(lambda x, t=t: rg.asarray(x)[t], xs))
        ys.append(y)
    ys = ys[::-1] if reverse else ys
    return carry, rg.tree.map(lambda *rows: rg.stack(list(rows)), *ys)


def cell(w):
    """A recurrent cell with a captured weight and trees all around."""

    def f(carry, x):
        h = rg.tanh(carry["h"] @ w + x["in"])
        return {"h": h, "sum": carry["sum"] + h}, (h * x["scale"], None)

    return f


def cell_case(rng, steps=4):
    init = {"h": array(rng, 3), "sum": rg.zeros(3, dtype=np.float64)}
    return array(rng, 3, 3), init, {"in": array(rng, steps, 3), "scale": array(rng, steps)}


def total(out):
    return sum((rg.sum(rg.sin(x)) for x in rg.tree.leaves(out)), start=rg.zeros(()))


both_ways = pytest.mark.parametrize("reverse", [False, True])


# -- values ------------------------------------------------------------------------------------


@both_ways
def test_scan_is_a_loop(reverse, rng):
    """Carry and ys of any tree, forwards and backwards in time."""
    w, init, xs = cell_case(rng)
    found = rg.scan(cell(w), init, xs, reverse=reverse)
    assert_close(found, loop(cell(w), init, xs, reverse=reverse))


def test_length_in_place_of_xs(rng):
    """Without xs, length says how often; with both they must agree."""
    x = array(rng, 3)
    f = lambda c, _: (rg.sin(c), c)
    assert_close(rg.scan(f, x, length=3), loop(f, x, length=3))
    with pytest.raises(rg.ShapeError, match="give xs or length"):
        rg.scan(f, x)
    with pytest.raises(rg.ShapeError, match=r"\[3, 4\]"):
        rg.scan(lambda c, x: (c, x), x, x, length=4)


def test_no_steps_at_all(rng):
    """Zero steps: the carry as it was, ys with an empty axis, gradients through."""
    x = array(rng, 3)
    f = lambda c, x: (c * x, c)
    carry, ys = rg.scan(f, x, rg.zeros((0, 3), dtype=np.float64))
    assert_close(carry, x)
    assert ys.shape == (0, 3)
    g = rg.grad(lambda x: rg.sum(rg.scan(f, x, rg.zeros((0, 3), dtype=np.float64))[0] ** 2))
    assert_close(g(x), 2 * x)


def test_nothing_carried_and_nothing_returned(rng):
    """Empty trees on either side."""
    xs = array(rng, 3, 2)
    none, ys = rg.scan(lambda c, x: (None, x * 2), None, xs)
    assert none is None
    assert_close(ys, 2 * xs)
    carry, none = rg.scan(lambda c, x: (c + x, None), xs[0], xs)
    assert none is None
    assert_close(carry, xs[0] + rg.sum(xs, axis=0))


def test_integers_and_bools_in_the_carry(rng):
    """Counters and flags ride along, and change nothing in the derivative."""
    xs = array(rng, 5)

    def f(s, x):
        return State(s.h * rg.cos(x), s.count + 1), s.count % 2 == 0

    init = State(rg.ones((), dtype=np.float64), rg.asarray(np.int64(0)))
    carry, flags = rg.scan(f, init, xs)
    assert carry.count.item() == 5
    assert flags.tolist() == [True, False, True, False, True]
    g = lambda xs: rg.scan(f, init, xs)[0].h
    wanted = rg.grad(lambda xs: rg.prod(rg.cos(xs)))(xs)
    assert_close(rg.grad(g)(xs), wanted)
    assert_close(rg.jvp(g, (xs,), (xs,))[1], rg.sum(wanted * xs))
    assert_close(rg.hessian(g)(xs), rg.hessian(lambda xs: rg.prod(rg.cos(xs)))(xs))


def test_a_carry_that_changes_is_refused(rng):
    """Shape, dtype and structure of the carry stay; the error names the leaf."""
    x = array(rng, 3)
    for f, text in (
        (lambda c, _: (rg.stack([c, c]), None), r"goes in as float64\[3\]"),
        (lambda c, _: (rg.astype(c, np.float32), None), "float32"),
        (lambda c, _: ((c, c), None), "the function returns"),
    ):
        with pytest.raises(rg.ShapeError, match=text):
            rg.scan(f, x, length=2)
    for f in (lambda c, _: c, lambda c, _: (c, c, c)):
        with pytest.raises(rg.ArgumentError, match=r"must return \(carry, y\)"):
            rg.scan(f, x, length=2)
    with pytest.raises(rg.ShapeError, match="leading axis"):
        rg.scan(lambda c, x: (c, x), x, rg.ones(()))
    with pytest.raises(rg.ShapeError, match=r"\[2, 3\]"):
        rg.scan(lambda c, x: (c, None), x, (rg.ones(2), rg.ones(3)))


def test_values_cannot_be_read_inside(rng):
    """The body is traced once: `if` on a value is a TraceError."""
    with pytest.raises(rg.TraceError, match=r"(?s)while tracing.*rg\.where"):
        rg.scan(lambda c, _: (c if c > 0 else -c, None), rg.ones(()), length=2)


def test_the_body_is_traced_once(rng):
    """Python of the body runs once, however long the loop."""
    runs = []
    rg.scan(lambda c, _: runs.append(1) or (c * 2, None), rg.ones(()), length=50)
    assert len(runs) == 1


# -- derivatives -------------------------------------------------------------------------------


@both_ways
def test_gradients_are_the_loop_s(reverse, rng):
    """With respect to captured tensors, the first carry and the xs, all at once."""
    w, init, xs = cell_case(rng)
    by = lambda run: rg.grad(
        lambda w, i, x: total(run(cell(w), i, x, reverse=reverse)), (0, 1, 2)
    )
    assert_close(by(rg.scan)(w, init, xs), by(loop)(w, init, xs))


@both_ways
def test_tangents_are_the_loop_s(reverse, rng):
    """jvp and linearize of everything that is differentiable."""
    w, init, xs = cell_case(rng)
    tangents = rg.tree.map(lambda t: array(rng, *t.shape), (w, init, xs))
    f = lambda run: lambda w, i, x: run(cell(w), i, x, reverse=reverse)
    wanted = rg.jvp(f(loop), (w, init, xs), tangents)
    assert_close(rg.jvp(f(rg.scan), (w, init, xs), tangents), wanted)
    assert_close(rg.linearize(f(rg.scan), w, init, xs)[1](*tangents), wanted[1])


@both_ways
def test_the_tape_sees_a_scan(reverse, rng):
    """backward through a scan gives grad's gradients, to captured leaves as well."""
    w, init, xs = cell_case(rng)
    leaves = rg.tree.map(lambda t: rg.tensor(t, requires_grad=True), (w, init, xs))
    total(rg.scan(cell(leaves[0]), *leaves[1:], reverse=reverse)).backward()
    wanted = rg.grad(lambda w, i, x: total(rg.scan(cell(w), i, x, reverse=reverse)), (0, 1, 2))(
        w, init, xs
    )
    assert_close(rg.tree.map(lambda t: t.grad, leaves), wanted)


@both_ways
def test_second_order(reverse, rng):
    """Forward over reverse, reverse over forward, reverse over reverse, and by create_graph."""
    w, init, xs = cell_case(rng, steps=3)
    f = lambda run: lambda w: total(run(cell(w), init, xs, reverse=reverse))
    t = array(rng, 3, 3)
    wanted = rg.hvp(f(loop), (w,), (t,))
    assert_close(rg.hvp(f(rg.scan), (w,), (t,)), wanted)
    assert_close(rg.grad(lambda w: rg.jvp(f(rg.scan), (w,), (t,))[1])(w), wanted)
    assert_close(rg.grad(lambda w: rg.sum(rg.grad(f(rg.scan))(w) * t))(w), wanted)
    x = rg.tensor(w, requires_grad=True)
    f(rg.scan)(x).backward(create_graph=True)
    rg.sum(x.grad * t).backward(accumulate=False)
    assert_close(x.grad, wanted)


def test_third_order_against_differences(rng):
    """check_grads of the gradient of the gradient: all three orders are right."""
    xs = rng.normal(size=3)

    def f(x):
        return rg.scan(lambda c, v: (rg.sin(c * v) + v, None), x[0] * x[1], x)[0]

    check_grads(f, xs, order=3)


@both_ways
def test_mapped_scans(reverse, rng):
    """vmap over any of the operands, and gradients through it either way round."""
    w, init, xs = cell_case(rng)
    stacked = rg.tree.map(lambda t: rg.stack([t, t * 2, t - 1]), (w, init, xs))

    def f(w, init, xs):
        return total(rg.scan(cell(w), init, xs, reverse=reverse))

    for axes in itertools.product([0, None], repeat=3):
        if axes == (None, None, None):
            continue
        given = [
            s if a == 0 else p for s, a, p in zip(stacked, axes, (w, init, xs), strict=True)
        ]
        rows = [
            f(
                *(
                    rg.tree.map(lambda t, i=i: t[i], g) if a == 0 else g
                    for g, a in zip(given, axes, strict=True)
                )
            )
            for i in range(3)
        ]
        mapped = rg.vmap(f, in_axes=axes)
        assert_close(mapped(*given), rg.stack(rows))
        inside = rg.vmap(rg.grad(f, (0, 1, 2)), in_axes=axes)(*given)
        outside = rg.grad(lambda *a, m=mapped: rg.sum(m(*a)), (0, 1, 2))(*given)
        summed = tuple(
            g if a == 0 else rg.tree.map(lambda t: rg.sum(t, axis=0), g)
            for g, a in zip(inside, axes, strict=True)
        )
        assert_close(outside, summed)


def test_scans_nest(rng):
    """A scan in the body of a scan, with captured tensors at both levels."""
    w, x = array(rng, 3), array(rng, 4, 3)

    def run(scan):
        def outer(c, row):
            inner = lambda h, v: (rg.tanh(h * v + c), h)
            h, hs = scan(inner, rg.sum(row * w), row)
            return c + h, hs

        return lambda w_, x_: scan(outer, rg.sum(w_) * 0, x_)

    def f(scan):
        return lambda w, x: total(
            scan(
                lambda c, row: (
                    c + scan(lambda h, v: (rg.tanh(h * v + c), h), rg.sum(row * w), row)[0],
                    scan(lambda h, v: (h * v, h + c), c, row)[1],
                ),
                rg.sum(w),
                x,
            )
        )

    assert_close(run(rg.scan)(w, x), run(loop)(w, x))
    assert_close(rg.grad(f(rg.scan), (0, 1))(w, x), rg.grad(f(loop), (0, 1))(w, x))
    assert_close(rg.hvp(f(rg.scan), (w, x), (w, x)), rg.hvp(f(loop), (w, x), (w, x)))


@pytest.mark.parametrize("used", ["carry", "ys"])
def test_results_that_are_not_used(used, rng):
    """A gradient through the carry alone, or through the ys alone."""
    w, init, xs = cell_case(rng)
    pick = lambda out: out[0] if used == "carry" else out[1]
    by = lambda run: rg.grad(lambda w, x: total(pick(run(cell(w), init, x))), (0, 1))(w, xs)
    assert_close(by(rg.scan), by(loop))


def test_a_carry_that_is_passed_through(rng):
    """Outputs that are inputs of the body, constants, and one value twice."""
    x, c = array(rng, 3), array(rng)
    f = lambda a, v: ((a[1], a[0], c), (v, v, 7.0))
    init = (x[0], x[1], x[2])
    by = lambda run: (
        lambda x, c: total(
            run(lambda a, v: ((a[1], a[0], c), (v * c, a[2], c)), (x[0], x[1], x[2]), x)
        )
    )
    assert_close(rg.scan(f, init, x), loop(f, init, x))
    assert_close(rg.grad(by(rg.scan), (0, 1))(x, c), rg.grad(by(loop), (0, 1))(x, c))


def test_functions_inside_keep_their_own_derivative(rng):
    """Custom derivatives, stop_gradient, checkpoint mean in a body what they mean outside."""
    xs = array(rng, 4)
    through = rg.custom_vjp(rg.round).defvjp(lambda x: (rg.round(x), ()), lambda _, g: (g,))
    ahead = rg.custom_jvp(rg.round).defjvp(lambda p, t: (rg.round(p[0]), t[0]))
    bodies = {
        "custom_vjp": lambda c, x: (c + through(x * 3) * x, c),
        "custom_jvp": lambda c, x: (c + ahead(x * 3) * x, c),
        "stop_gradient": lambda c, x: (c + rg.stop_gradient(x) * x * c, c),
        "checkpoint": lambda c, x: (rg.checkpoint(lambda c: rg.sin(c * x) * c)(c), c),
    }
    for name, f in bodies.items():
        by = lambda run, f=f: lambda x: total(run(f, x[0], x))
        assert_close(rg.grad(by(rg.scan))(xs), rg.grad(by(loop))(xs), what=name)
        assert_close(
            rg.jvp(by(rg.scan), (xs,), (xs,)), rg.jvp(by(loop), (xs,), (xs,)), what=name
        )
        assert_close(rg.hessian(by(rg.scan))(xs), rg.hessian(by(loop))(xs), what=name)


def test_transforms_inside_the_body(rng):
    """grad, jvp and vmap inside a step."""
    xs = array(rng, 4, 2)

    def f(c, x):
        g = rg.grad(lambda c: rg.sum(rg.sin(c) * x) * rg.sum(c))(c)
        _, t = rg.jvp(lambda c: rg.tanh(c) * x, (c,), (g,))
        return rg.vmap(lambda a, b: rg.sin(a * b))(t, x), g

    by = lambda run: lambda x: total(run(f, x[0], x))
    assert_close(rg.scan(f, xs[0], xs), loop(f, xs[0], xs))
    assert_close(rg.grad(by(rg.scan))(xs), rg.grad(by(loop))(xs))
    assert_close(rg.jvp(by(rg.scan), (xs,), (xs,)), rg.jvp(by(loop), (xs,), (xs,)))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.complex128])
def test_dtypes(dtype, rng):
    """Single, half and complex loops keep their dtype and equal the loop of ops."""
    xs = rg.asarray(rng.normal(size=(4, 3)).astype(dtype))
    f = lambda c, x: (rg.tanh(c * x), c + x)
    found, wanted = rg.scan(f, xs[0], xs), loop(f, xs[0], xs)
    assert_close(found, wanted)
    assert {t.dtype for t in rg.tree.leaves(found)} == {np.dtype(dtype)}
    size = lambda out: rg.sum(rg.real(out[0]) if dtype is np.complex128 else out[0])
    by = lambda run: rg.grad(lambda x: size(run(f, x[0], x)))(xs)
    assert by(rg.scan).dtype == dtype
    assert_close(by(rg.scan), by(loop))


def test_captured_tensors_may_change_later(rng):
    """A tensor is captured with the value it has when scan is called."""
    w = array(rng)
    f = lambda c, _: (c * w, None)
    before, _ = rg.scan(f, rg.ones((), dtype=np.float64), length=2)
    wanted = w * w
    w = w * 3
    assert_close(before, wanted)
    after, _ = rg.scan(f, rg.ones((), dtype=np.float64), length=2)
    assert_close(after, w * w)


# -- memory ------------------------------------------------------------------------------------


def test_a_step_keeps_its_carry_and_nothing_else():
    """Measured: a body of ten ops keeps one array a step, where the loop keeps ten."""
    size, steps = 10_000, 20

    def f(c, _):
        for _ in range(10):
            c = rg.sin(c)
        return c, None

    def held(run):
        x = rg.tensor(np.ones(size), requires_grad=True)
        gc.collect()
        tracemalloc.start()
        out = run(f, x, length=steps)[0]
        used = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        rg.sum(out).backward()
        return used / (8 * size * steps), x.grad

    (small, found), (large, wanted) = held(rg.scan), held(loop)
    assert_close(found, wanted)
    assert small < 1.5
    assert large > 9


# -- random loops ------------------------------------------------------------------------------


@given(st.integers(0, 3), st.integers(0, 2), st.booleans(), st.integers(0, 2**16))
def test_random_loops(steps, carried, reverse, seed):
    """Any number of steps, carries and captured tensors: value and gradients are the loop's."""
    rng = np.random.default_rng(seed)
    w = array(rng, carried, 2)
    init = tuple(array(rng, 2) for _ in range(carried))
    xs = (array(rng, steps, 2), array(rng, steps))

    def f(run):
        def body(c, x):
            new = tuple(rg.tanh(ci * w[i] + x[0] * x[1]) for i, ci in enumerate(c))
            return new, (sum(new, start=x[0]) * x[1], x[1])

        return lambda w, init, xs: run(body, init, xs, length=steps, reverse=reverse)

    if steps:
        assert_close(f(rg.scan)(w, init, xs), f(loop)(w, init, xs))
        by = lambda run: rg.grad(lambda i, x: total(f(run)(w, i, x)), (0, 1))(init, xs)
        assert_close(by(rg.scan), by(loop))
    else:
        carry, ys = f(rg.scan)(w, init, xs)
        assert_close(carry, init)
        assert [y.shape[0] for y in ys] == [0, 0]
