"""Compiled = NumPy, for every op of the registry: values, gradients, second order, vmap."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.control.loops import While
from retrograd.core.op import REGISTRY
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.testing import check
from retrograd.testing.compare import assert_close

for namespace in rg.__all__:
    getattr(rg, namespace)

OURS = [cls for cls in REGISTRY.values() if cls.__module__.startswith("retrograd.")]
CASES = [
    (op, [np.asarray(x) for x in xs])
    for cls in OURS
    if not cls.effect
    for op, *xs in cls.samples(np.random.default_rng(7))
]
IDS = [f"{repr(op)[:60]}-{i}" for i, (op, _) in enumerate(CASES)]
DIFFERENTIABLE = [i for i, (op, xs) in enumerate(CASES) if xs and not op.no_derivative]
SINGLE = {np.dtype("f8"): np.float32, np.dtype("c16"): np.complex64}


def both(f, arrays):
    """What f gives, compiled and eagerly, as arrays."""
    tensors = [rg.asarray(a) for a in arrays]
    eager = [np.asarray(o.array) for o in f(*tensors)]
    graph, captured = trace(f, [spec_of(a) for a in arrays])
    run = Executable(compiled(graph))
    return run([*arrays, *(t.array for t in captured)]), eager


def same(f, arrays):
    found, wanted = both(f, arrays)
    for got, want in zip(found, wanted, strict=True):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        assert_close(got, want)


def applied(op):
    def f(*xs):
        return check.outputs(rg.apply(op, *xs))

    return f


@pytest.mark.sampled(300)
@pytest.mark.parametrize(("op", "arrays"), CASES, ids=IDS)
def test_values(op, arrays):
    same(applied(op), arrays)


@pytest.mark.sampled(150)
@pytest.mark.parametrize(("op", "arrays"), CASES, ids=IDS)
def test_values_in_single_precision(op, arrays):
    if op.bodied:
        pytest.skip("its body says float64")
    same(applied(op), [a.astype(SINGLE.get(a.dtype, a.dtype)) for a in arrays])


def pulled(op, arrays):
    """The gradients of a weighted sum of the outputs, as a function of the inputs."""
    f, at = check.smooth(op, arrays)
    if not at or not f(*at):
        pytest.skip("nothing to differentiate")
    weights = [np.asarray(w.array) for w in check.direction(np.random.default_rng(3), f(*at))]

    def gradients(*xs):
        _, pull = rg.vjp(f, *xs)
        return list(pull(list(map(rg.asarray, weights))))

    return gradients, [t.array for t in at]


@pytest.mark.sampled(150)
@pytest.mark.parametrize(
    ("op", "arrays"), [CASES[i] for i in DIFFERENTIABLE], ids=[IDS[i] for i in DIFFERENTIABLE]
)
def test_gradients(op, arrays):
    if isinstance(op, While):
        pytest.skip("compiled, its reverse mode wants max_steps: tests/jit/test_control.py")
    same(*pulled(op, arrays))


@pytest.mark.sampled(60)
@pytest.mark.parametrize(
    ("op", "arrays"), [CASES[i] for i in DIFFERENTIABLE], ids=[IDS[i] for i in DIFFERENTIABLE]
)
def test_second_order(op, arrays):
    if isinstance(op, While):
        pytest.skip("compiled, its reverse mode wants max_steps: tests/jit/test_control.py")
    gradients, at = pulled(op, arrays)
    try:
        found = gradients(*map(rg.asarray, at))
    except rg.DerivativeError:
        pytest.skip("it has no derivative")
    weights = [w.array for w in check.direction(np.random.default_rng(4), found)]

    def again(*xs):
        _, pull = rg.vjp(gradients, *xs)
        return list(pull(list(map(rg.asarray, weights))))

    same(again, at)


@pytest.mark.sampled(100)
@pytest.mark.parametrize(("op", "arrays"), CASES, ids=IDS)
def test_vmap(op, arrays):
    if not arrays:
        pytest.skip("no inputs to map over")
    stacked = [np.stack([a, a]) for a in arrays]
    same(lambda *xs: list(rg.vmap(applied(op))(*xs)), stacked)
