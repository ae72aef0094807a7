"""trace: a program as data. Evaluating the graph is running the program."""

import numpy as np
import pytest
from hypothesis import given

import retrograd as rg
from retrograd.core.interpret import EVAL, current
from retrograd.core.spec import Spec
from retrograd.ir.evaluate import evaluate
from retrograd.ir.graph import Graph
from retrograd.ir.trace import trace
from retrograd.ir.verify import verify
from retrograd.testing import assert_close
from retrograd.testing.strategies import checkpointed, programs

F64 = np.dtype("float64")


def array(rng, *shape):
    return rg.asarray(rng.normal(size=shape))


def traced(f, *xs):
    """The verified graph of f at the specs of xs, with what f captured."""
    graph, captured = trace(f, [x.spec for x in xs])
    return verify(graph), captured


def run(f, *xs):
    graph, captured = traced(f, *xs)
    return evaluate(graph, *xs, *captured)


# -- random programs -----------------------------------------------------------------------


@given(programs())
def test_evaluating_is_running(program):
    """Every program: the graph gives the bits of the eager run, and verifies."""
    xs = program.samples(np.random.default_rng(0))
    (found,) = run(lambda *a: [program(*a)], *xs)
    assert found.numpy().tobytes() == rg.asarray(program(*xs)).numpy().tobytes()


@given(programs(max_steps=8))
def test_graphs_are_differentiable(program):
    """Every program: the gradient of the evaluated graph has the bits of the program's."""
    xs = program.samples(np.random.default_rng(1))
    graph, captured = traced(lambda *a: [program(*a)], *xs)
    numbers = tuple(range(len(xs)))
    found = rg.grad(lambda *a: evaluate(graph, *a, *captured)[0], numbers)(*xs)
    for a, b in zip(found, rg.grad(program, numbers)(*xs), strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()


@given(programs(max_steps=8))
def test_derivatives_can_be_traced(program):
    """Every program: the gradient as a graph gives what the gradient gives."""
    xs = program.samples(np.random.default_rng(2))
    numbers = tuple(range(len(xs)))
    gradient = rg.grad(program, numbers)
    found = run(lambda *a: list(gradient(*a)), *xs)
    assert_close(found, list(gradient(*xs)))
    mapped = [rg.stack([x, 2 * x]) for x in xs]
    found = run(lambda *a: [rg.vmap(program)(*a)], *mapped)
    assert_close(found[0], rg.vmap(program)(*mapped))


@given(checkpointed(max_steps=8))
def test_checkpoints_survive_tracing(case):
    """Every program: gradients of a traced program with checkpoints have the same bits."""
    program, blocks = case
    xs = program.samples(np.random.default_rng(3))
    numbers = tuple(range(len(xs)))
    graph, captured = traced(lambda *a: [program(*a, blocks=blocks)], *xs)
    found = rg.grad(lambda *a: evaluate(graph, *a, *captured)[0], numbers)(*xs)
    for a, b in zip(found, rg.grad(program, numbers)(*xs), strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()


# -- graphs --------------------------------------------------------------------------------


def test_tensors_from_outside_are_hidden_inputs(rng):
    """Nothing is embedded: each tensor from outside is one input after the given ones."""
    w, b, x = array(rng, 3), array(rng), array(rng, 3)
    graph, captured = traced(lambda x: [x * w + b + w], x)
    assert [c.numpy().tobytes() for c in captured] == [w.numpy().tobytes(), b.numpy().tobytes()]
    assert graph.inputs == (x.spec, w.spec, b.spec)
    assert_close(evaluate(graph, x, w * 2, b)[0], x * w * 2 + b + w * 2)


def test_results_may_be_inputs_constants_or_shared(rng):
    """A graph may return what it was given, one value twice, or a captured tensor."""
    x, w = array(rng, 3), array(rng, 3)

    def f(x):
        y = x * 2
        return [x, y, y, w, 7.0]

    found = run(f, x)
    assert_close(found, [x, 2 * x, 2 * x, w, rg.asarray(7.0)])


def test_equal_programs_are_equal_graphs(rng):
    """Lines do not count, and tensors from outside only by their specs."""
    x = array(rng, 3)
    one, _ = traced(lambda x: [rg.sin(x * 2.0)], x)
    two, _ = traced(lambda y: [rg.sin(y * 2.0)], x)
    other, _ = traced(lambda x: [rg.cos(x * 2.0)], x)
    assert one == two
    assert hash(one) == hash(two)
    assert one != other


def test_text_shows_every_node_with_the_user_s_line(rng):
    """str(graph): one line a node, specs, and where it came from."""
    x = array(rng, 3)
    graph, _ = traced(lambda x: [rg.sum(rg.sin(x))], x)  # the line
    text = str(graph)
    assert text.startswith("graph(%0: float64[3]):")
    assert "%1: float64[3] = Sin() %0" in text
    assert text.endswith("return %2")
    assert text.count("# the line") == 2


def test_the_user_s_line_is_the_user_s(rng):
    """Nodes that methods, operators and derivatives made point at user code as well."""
    x = array(rng, 3)
    graph, _ = traced(lambda x: [rg.grad(lambda y: (y.tanh() * 2).sum())(x)], x)  # mine
    assert all("# mine" in str(node.where) for node in graph.nodes)


def test_values_die_after_their_last_use(rng):
    """evaluate holds what is still needed, and no more."""
    import gc
    import tracemalloc

    n = 50_000

    def f(x):
        for _ in range(20):
            x = rg.sin(x)
        return [rg.sum(x)]

    x = array(rng, n)
    graph, captured = traced(f, x)
    evaluate(graph, x, *captured)  # what is loaded and compiled once is not the values'
    gc.collect()
    tracemalloc.start()
    evaluate(graph, x, *captured)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 8 * n


@pytest.mark.parametrize(
    "ask",
    [
        bool,
        float,
        int,
        lambda x: x.item(),
        lambda x: x.numpy(),
        np.asarray,
        lambda x: x.tolist(),
    ],
)
def test_values_cannot_be_asked_for(ask):
    """While tracing there is a spec and no value: TraceError with what to write."""
    with pytest.raises(rg.TraceError, match=r"(?s)while tracing.*float64\[\].*\n  try "):
        trace(lambda x: [ask(x)], [Spec((), F64)])
    assert current.get() is EVAL


def test_shapes_can_be_asked_for():
    """Shape, dtype, rank and length are known."""
    seen = []

    def f(x):
        seen.append((x.shape, x.dtype, x.ndim, len(x), x.size, x.nbytes))
        return [x.reshape(-1)]

    trace(f, [Spec((2, 3), F64)])
    assert seen == [((2, 3), F64, 2, 2, 6, 48)]


def test_bad_programs_are_refused_while_tracing():
    """Shape rules run when tracing: the error is the eager one, at the user's line."""
    with pytest.raises(rg.ShapeError, match="matmul"):
        trace(lambda x: [x @ x], [Spec((2, 3), F64)])
    with pytest.raises(rg.DtypeError):
        trace(lambda x: [x & x], [Spec((), F64)])


def test_tracing_records_nothing_on_the_tape(rng):
    """Tracked tensors from outside are captured as they are; the tape is untouched."""
    w = rg.tensor(rng.normal(size=3), requires_grad=True)
    x = array(rng, 3)
    graph, captured = traced(lambda x: [rg.sum(x * w)], x)
    assert captured[0].leaf is w.leaf
    evaluate(graph, x, *captured)[0].backward()
    assert_close(w.grad, x)


# -- verify --------------------------------------------------------------------------------


def test_verify_refuses_what_is_not_a_program(rng):
    """Uses before their definition, wrong specs, results that nobody made."""
    x = array(rng, 3)
    graph, _ = traced(lambda x: [rg.sin(rg.exp(x))], x)
    first, second = graph.nodes
    swapped = Graph(graph.inputs, (second, first), graph.outputs)
    with pytest.raises(rg.OpError, match=r"(?s)node 0 uses %1, which is not made before.*> "):
        verify(swapped)
    with pytest.raises(rg.OpError, match=r"returns %9, which is never made"):
        verify(Graph(graph.inputs, graph.nodes, (9,)))
    wrong = type(first)(first.op, first.inputs, (Spec((7,), F64),))
    with pytest.raises(rg.OpError, match=r"has float64\[7\]; its op gives float64\[3\]"):
        verify(Graph(graph.inputs, (wrong, second), graph.outputs))
