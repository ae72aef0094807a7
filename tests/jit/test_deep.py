"""Programs of many equal layers: equal kernels are written once, starts are rows."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.spec import Spec
from retrograd.ir.trace import trace
from retrograd.jit.fuse import Fusion
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import chosen, named
from retrograd.jit.llvm.main import MANY
from retrograd.jit.llvm.native import object_code
from retrograd.jit.llvm.program import Writer
from retrograd.jit.loops.alike import signature
from retrograd.jit.passes import optimized
from retrograd.testing import assert_close

F32 = np.dtype(np.float32)


def layers(depth):
    def step(weights, x):
        def loss(weights):
            y = x
            for w in weights:
                y = rg.nn.gelu(y @ w)
            return rg.mean(y * y)

        value, grads = rg.value_and_grad(loss)(weights)
        return [w - 1e-3 * g for w, g in zip(weights, grads, strict=True)], value

    rng = np.random.default_rng(0)
    draw = [rng.standard_normal((24, 24)).astype(np.float32) / 3 for _ in range(depth)]
    return step, draw, rng.standard_normal((8, 24)).astype(np.float32)


def written(depth):
    step, weights, x = layers(depth)
    graph = rg.jit(step).lower(weights, x).graph
    writer = Writer(optimized(graph, kernels_of), chosen(), tuple(range(depth)))
    writer.written()
    return writer


def test_equal_layers_share_their_kernels():
    few, many = written(6), written(24)
    assert len(many.graph.nodes) > 3 * len(few.graph.nodes)
    names = [{s.info.name for s in w.steps if s.info} for w in (few, many)]
    assert len(names[1]) <= len(names[0]) + 2


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_deep_step_is_what_it_is_eagerly(threads):
    step, weights, x = layers(20)
    f = rg.jit(step, donate="weights", threads=threads)
    found, value = f([rg.asarray(w, copy=True) for w in weights], x)
    assert len(f.programs) == 1
    (made,) = f.programs.values()
    assert len(made.program.graph.nodes) >= MANY
    assert "@launches" in made.program.text
    wanted, loss = step([rg.asarray(w) for w in weights], rg.asarray(x))
    assert_close(value, loss)
    for a, b in zip(found, wanted, strict=True):
        assert_close(a, b)


def test_starts_come_before_what_reads_them():
    """A call of Python, a loop and a check in the midst of many kernels."""

    def f(x, i):
        for n in range(MANY // 3):
            x = rg.cumsum(x * 1.01, axis=0) / (n + 2)
            if n % 10 == 5:
                x = rg.sort(x, axis=0)
                x = rg.fori_loop(0, 3, lambda _, y: rg.cumsum(y, axis=0) * 0.3, x)
                x = rg.take(x, i, axis=0)
        return x

    rng = np.random.default_rng(1)
    x, i = rng.standard_normal((9, 5)), rng.permutation(9)
    run = rg.jit(f)
    assert_close(run(x, i), f(rg.asarray(x), rg.asarray(i)))
    with pytest.raises(rg.BoundsError):
        run(x, i + 1)
    assert_close(run(x, i), f(rg.asarray(x), rg.asarray(i)))


@pytest.mark.parametrize("machine", ["avx512", "avx2", "sse2", "neon"])
def test_the_table_compiles_for_every_machine(machine):
    step, weights, x = layers(20)
    graph = optimized(rg.jit(step).lower(weights, x).graph, kernels_of)
    writer = Writer(graph, named(machine))
    writer.written()
    assert "@launches" in writer.module.text()
    assert object_code(writer.module)


# -- which kernels are the same ------------------------------------------------------------


def kernel(f, *shapes):
    graph, _ = trace(lambda *xs: [f(*xs)], [Spec(s, F32) for s in shapes])
    (step,) = Fusion(optimized(graph)).run()
    return step.kernel


def test_names_of_memory_do_not_matter():
    one = signature(kernel(lambda a, b: rg.exp(a) + b * 2.0, (4, 5), (5,)))
    assert one is not None
    assert one == signature(kernel(lambda a, b: rg.exp(a) + b * 2.0, (4, 5), (5,)))
    assert one == signature(kernel(lambda _, a, b: rg.exp(a) + b * 2.0, (3,), (4, 5), (5,)))


@pytest.mark.parametrize(
    ("f", "shapes"),
    [
        (lambda a, b: rg.exp(a) + b * 2.5, [(4, 5), (5,)]),
        (lambda a, b: rg.exp(a) + b * 2.0, [(4, 5), (4, 5)]),
        (lambda a, b: rg.exp(a) + b * 2.0, [(5, 4), (4,)]),
        (lambda a, b: rg.sqrt(b) + a * 2.0, [(4, 5), (5,)]),
        (lambda a, b: rg.sin(a) + b * 2.0, [(4, 5), (5,)]),
        (lambda a, b: rg.exp(a) - b * 2.0, [(4, 5), (5,)]),
        (lambda a, b: rg.exp(a) + a[0] * 2.0, [(4, 5), (5,)]),
    ],
)
def test_all_else_matters(f, shapes):
    one = kernel(lambda a, b: rg.exp(a) + b * 2.0, (4, 5), (5,))
    assert signature(one) != signature(kernel(f, *shapes))


def test_the_same_memory_twice_is_not_two():
    def f(a, b):
        return rg.exp(a) + b * 2.0

    assert signature(kernel(f, (4,), (4,))) != signature(kernel(lambda a: f(a, a), (4,)))


def test_marks_tell_apart():
    one = kernel(lambda a, b: a - b, (4,), (4,))
    assert signature(one, (0,)) != signature(one, (1,))


def test_what_may_refuse_is_never_the_same():
    def f(a, i):
        return rg.take(a, rg.astype(i, rg.int64), axis=0) * 2.0

    assert signature(kernel(f, (4,), (3,))) is None
