"""fast_math: fewer roundings and cheaper formulas, where they were asked for."""

from fractions import Fraction

import numpy as np
import pytest

import retrograd as rg
from retrograd.core import dtype as dt
from retrograd.core.spec import Spec
from retrograd.ir.trace import trace
from retrograd.ir.verify import verify
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.passes import dce, optimized, relax
from retrograd.testing import assert_close
from retrograd.testing.exactly import run_graph

F32, F64 = dt.float32, dt.float64


def floats(a):
    return map(float, a)


def relaxed(f, *shapes, dtype=F64):
    graph, _ = trace(f, [Spec(s, dtype) for s in shapes])
    after = verify(relax(graph))
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.5, 2, s).astype(dtype) for s in shapes]
    assert_close(run_graph(after, arrays), run_graph(graph, arrays))
    return [n.op.name for n in dce(after).nodes if n.inputs]


@pytest.mark.parametrize(
    ("f", "wanted"),
    [
        (lambda a, b, c: a * b + c, ["multiply_add"]),
        (lambda a, b, c: c + a * b, ["multiply_add"]),
        (lambda a, b, c: a * b - c, ["negative", "multiply_add"]),
        (lambda a, b, c: c - a * b, ["negative", "multiply_add"]),
        (lambda a, b, c: a * b + a * c, ["multiply", "multiply_add"]),
    ],
)
def test_products_and_sums_are_one_node(f, wanted):
    def g(*xs):
        return [f(*xs)]

    found = [n for n in relaxed(g, (3, 4), (4,), (3, 4)) if n in wanted]
    assert sorted(found) == sorted(wanted)


def test_a_product_that_others_read_is_not_computed_twice():
    def f(a, b):
        p = a * b
        return [p + a, p]

    assert "multiply_add" not in relaxed(f, (3,), (3,))


def test_integers_halves_and_complex_numbers_stay_as_they_are():
    for dtype in (dt.int64, dt.float16, dt.complex128):
        graph, _ = trace(lambda a, b: [a * b + a], [Spec((3,), dtype)] * 2)
        assert relax(graph) == graph


def test_repeated_divisors_are_divided_by_once():
    assert relaxed(lambda x, y: [x / y], (5, 3), (3,)) == ["reciprocal", "multiply"]
    assert relaxed(lambda x, y: [x / y], (5, 3), (5, 3)) == ["divide"]
    assert relaxed(lambda x: [x / 3.0], (5,))[-1] == "multiply"


def test_tanh_is_cheaper():
    assert relaxed(lambda x: [rg.tanh(x)], (5,)) == ["fast_tanh"]


def test_loops_are_reached():
    def f(x):
        return [rg.scan(lambda c, _: (c * c + c, None), x, None, length=2)[0]]

    graph, _ = trace(f, [Spec((), F64)])
    assert "MultiplyAdd" in str(relax(graph))


def test_without_it_no_rule_applies():
    graph, _ = trace(lambda a, b: [rg.tanh(a * b + a) / 3.0], [Spec((3,), F64)] * 2)
    exact, fast = optimized(graph), optimized(graph, fast=True)
    assert "MultiplyAdd" not in str(exact)
    assert "FastTanh" not in str(exact)
    assert "MultiplyAdd" in str(fast)
    assert "FastTanh" in str(fast)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("width", here())
def test_a_fused_product_is_rounded_once_where_the_machine_can(width, dtype, rng):
    machine = named(width)
    a, b = (rng.normal(size=999).astype(dtype) for _ in range(2))
    c = -(a * b)  # so that what a rounding loses is all that is left
    graph, _ = trace(lambda a, b, c: [a * b + c], [Spec(a.shape, dtype)] * 3)
    exact, fast = (
        Executable(compiled(graph, machine=machine, fast=f))([a, b, c])[0]
        for f in (False, True)
    )
    assert not exact.any()
    lost = [
        Fraction(x) * Fraction(y) + Fraction(z)
        for x, y, z in zip(*map(floats, (a, b, c)), strict=True)
    ]
    wanted = np.array([float(v) for v in lost], dtype) if machine.fma else exact
    assert fast.tobytes() == wanted.tobytes()


def test_nan_and_infinities_are_as_they_are_without(rng):
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e300, -3.0])
    y = np.array([1.0, 0.0, 2.0])

    def f(x, y):
        return rg.tanh(x), x[:, None] / y, x * y[2] + y[1]

    for a, b in zip(rg.jit(f, fast_math=True)(x, y), rg.jit(f)(x, y), strict=True):
        assert_close(a, b)
        assert np.array_equal(np.signbit(a.array), np.signbit(b.array))


def test_random_numbers_keep_their_bits():
    def draw(key):
        random = rg.random
        return random.normal(key, (99,)), random.gamma(key, rg.ones(99)), random.gumbel(key, 9)

    key = rg.random.key(3)
    for a, b in zip(rg.jit(draw, fast_math=True)(key), draw(key), strict=True):
        assert a.array.tobytes() == b.array.tobytes()


def test_whole_steps_stay_close(rng):
    x, w = rng.normal(size=(33, 20)), rng.normal(size=(20, 7))

    def loss(w):
        h = rg.nn.layer_norm(rg.tanh(x @ w))
        return rg.mean(rg.nn.softmax(h) * h)

    step = rg.value_and_grad(loss)
    for fast in (
        rg.jit(step, fast_math=True)(w),
        rg.value_and_grad(rg.jit(loss, fast_math=True))(w),
    ):
        value, slope = step(rg.asarray(w))
        assert_close(fast[0], value)
        assert_close(fast[1], slope)


def test_it_is_shown_by_explain():
    f = rg.jit(lambda x: x * x + x, fast_math=True)
    found = f.explain(rg.ones(50))
    assert "MultiplyAdd" in str(found.after("relax"))
    assert found.steps[0].ops == ["multiply_add"]
