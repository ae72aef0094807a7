"""Passes: each keeps what a graph computes, its effects, lines and checkpoints."""

import importlib
import pkgutil
import sys
from functools import partial

import numpy as np
import pytest
from hypothesis import given

import retrograd as rg
import retrograd.ops
from retrograd.core import dtype as dt
from retrograd.core.exact import Exact
from retrograd.core.interpret import apply
from retrograd.core.op import REGISTRY, Elementwise, Op, prepare
from retrograd.core.spec import Spec, spec_of
from retrograd.ir.evaluate import evaluate
from retrograd.ir.graph import Graph, Node
from retrograd.ir.parse import parse
from retrograd.ir.text import bodies
from retrograd.ir.trace import trace
from retrograd.ir.verify import verify
from retrograd.jit import passes
from retrograd.jit.passes import PASSES, cse, dce, expand, fold, hoist, optimized, simplify
from retrograd.ops.literal import Literal
from retrograd.ops.nn.softmax import Softmax
from retrograd.testing import assert_close
from retrograd.testing.exactly import assert_same_bits, run_graph
from retrograd.testing.strategies import checkpointed, graphs, programs

for module in pkgutil.walk_packages(retrograd.ops.__path__, "retrograd.ops."):
    importlib.import_module(module.name)

OURS = [cls for cls in REGISTRY.values() if cls.__module__.startswith("retrograd.")]
EXACT = (simplify, fold, cse, dce)  # expand computes another way
F32, F64 = dt.float32, dt.float64
exact_passes = pytest.mark.parametrize("run", EXACT, ids=lambda f: f.__name__)


def traced(f, *specs):
    graph, captured = trace(f, [Spec(s, F64) for s in specs])
    assert not captured
    return graph


def names(graph):
    return [n.op.name for n in graph.nodes]


def computed(graph):
    """The names of the ops that have inputs."""
    return [n.op.name for n in graph.nodes if n.inputs]


def outputs(found):
    return list(found) if isinstance(found, tuple) else [found]


# -- random programs -----------------------------------------------------------------------


@exact_passes
@given(graphs())
def test_graphs_of_all_ops_keep_their_bits(run, case):
    after = verify(run(verify(case.graph)))
    assert_same_bits(case.graph, after, case.arrays)


@given(graphs(max_nodes=5))
def test_all_passes_keep_the_values(case):
    after = verify(optimized(case.graph))
    found, wanted = (run_graph(g, case.arrays) for g in (after, case.graph))
    for a, b in zip(found, wanted, strict=True):
        assert_close(a, b)
    assert parse(str(after)) == after


@exact_passes
@given(checkpointed(max_steps=8))
def test_gradients_keep_their_bits(run, case):
    program, blocks = case
    xs = program.samples(np.random.default_rng(0))
    numbers = tuple(range(len(xs)))
    f = rg.grad(partial(program, blocks=blocks), numbers)
    graph, captured = trace(lambda *a: list(f(*a)), [x.spec for x in xs])
    assert_same_bits(graph, verify(run(graph)), [x.array for x in (*xs, *captured)])


@exact_passes
@given(programs(max_steps=5))
def test_bodies_keep_their_values(run, program):
    """Passes reach into loops and branches."""
    xs = program.samples(np.random.default_rng(0))

    def body(carry, _):
        total = program(*(x * carry for x in xs)) + 0 * 2.0
        return rg.cond(total > 1.0, rg.tanh, lambda t: (t + 1 * t) / 1, total), carry

    def f(x):
        carry, ys = rg.scan(body, x, None, length=3)
        return [carry, ys, rg.while_loop(lambda c: c < 10.0, lambda c: c * 1 + 1.0, x)]

    graph, captured = trace(f, [Spec((), F64)])
    after = verify(run(graph))
    args = [np.asarray(0.5), *(c.array for c in captured)]
    for a, b in zip(run_graph(graph, args), run_graph(after, args), strict=True):
        assert_close(a, b)


@given(checkpointed(max_steps=8))
def test_lines_and_checkpoints_survive(case):
    program, blocks = case
    xs = program.samples(np.random.default_rng(0))
    graph, _ = trace(lambda *a: [program(*a, blocks=blocks)], [x.spec for x in xs])
    regions = {n.tags for n in graph.nodes}
    lines = {n.where for n in graph.nodes}
    for _, after in passes.steps(graph):
        assert {n.tags for n in after.nodes} <= regions | {()}
        assert {n.where for n in after.nodes} <= lines


# -- expand --------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", OURS, ids=lambda cls: cls.__name__)
def test_every_op_expands_to_what_can_be_compiled(cls):
    for op, *arrays in cls.samples(np.random.default_rng(7)):
        arrays = [np.asarray(a) for a in arrays]
        graph, _ = trace(
            lambda *xs, op=op: outputs(apply(op, *xs)), [spec_of(a) for a in arrays]
        )
        after = verify(expand(graph))
        for node in after.nodes:
            assert hasattr(node.op, "lower") or node.op.host, f"{node.op} of {cls.__name__}"
        if after != graph:
            assert_close(run_graph(after, arrays), run_graph(graph, arrays))


def test_native_ops_stay():
    graph = traced(lambda x: [rg.nn.softmax(x)], (3, 4))
    assert computed(graph) == ["softmax"]
    assert expand(graph, lambda op, _specs: isinstance(op, Softmax)) == graph
    assert "softmax" not in computed(expand(graph))


def test_expansions_have_the_line_and_the_checkpoint_of_the_node():
    graph = traced(lambda x: [rg.checkpoint(rg.nn.softmax)(x)], (3, 4))  # here
    (tags,) = {n.tags for n in graph.nodes}
    after = expand(graph)
    assert len(after.nodes) > 3
    assert {n.tags for n in after.nodes} == {tags}
    assert all("# here" in str(n.where) for n in after.nodes)


def test_bodies_are_expanded():
    def f(x):
        return [rg.scan(lambda c, _: (rg.nn.softmax(c), None), x, None, length=2)[0]]

    (node,) = expand(traced(f, (4,))).nodes
    ((_, body),) = bodies(node.op)
    assert "softmax" not in names(body)


def test_functions_with_their_own_derivative_are_expanded(rng):
    """Tensors that they use become literals; `hoist` makes inputs of large ones."""
    weights = rg.asarray(rng.normal(size=(9, 9)))

    @rg.custom_vjp
    def f(x):
        return x @ weights

    f.defvjp(lambda x: (f(x), x), lambda x, g: (g,))
    x = rng.normal(size=9)
    graph = verify(expand(traced(lambda x: [f(x)], (9,))))
    assert names(graph)[0] == "literal"
    assert_close(run_graph(graph, [x])[0], x @ weights.numpy())
    lifted, arrays = hoist(graph)
    assert names(verify(lifted)) == names(graph)[1:]
    assert_close(run_graph(lifted, [x, *arrays])[0], x @ weights.numpy())
    assert hoist(lifted) == (lifted, [])


# -- fold ----------------------------------------------------------------------------------


def test_constants_are_folded():
    graph = traced(lambda x: [x + rg.exp(rg.asarray([1.0, 2.0])) * 3], (2,))
    after = dce(fold(graph))
    assert names(after) == ["literal", "add"]
    assert_same_bits(graph, after, [np.ones(2)])


def test_large_results_host_calls_and_broadcasts_are_not_folded():
    large = traced(lambda x: [rg.asarray([[1.0]] * 9) * rg.asarray([1.0] * 9) + x], ())
    assert fold(large) == large
    host = traced(lambda x: [rg.sort(rg.asarray([2.0, 1.0])) + x], ())
    assert fold(host).nodes[1].op.name == "sort"
    zeros = traced(lambda x: [rg.zeros(5) + x], ())
    assert "broadcast_to" in names(fold(zeros))


def test_what_would_raise_is_left_for_when_it_runs():
    graph = traced(lambda x: [rg.take(rg.asarray([1.0, 2.0]), rg.asarray([7])) + x], ())
    after = fold(expand(graph))
    with pytest.raises(rg.BoundsError):
        run_graph(after, [np.ones(())])


# -- cse and dce ---------------------------------------------------------------------------


class Shout(Op):
    """Says what it is given."""

    effect = "ordered"
    no_derivative = "it is a test"

    def shape(self, x: Spec) -> Spec:
        return x

    def forward(self, x):
        return x


prepare(Shout)


def test_equal_nodes_are_merged():
    graph = traced(lambda x: [rg.sin(x * 2.0) + rg.sin(x * 2.0)], (3,))
    assert computed(cse(graph)) == ["multiply", "sin", "add"]


def test_random_numbers_of_one_key_are_merged():
    key = lambda: rg.random.key(3)
    graph, _ = trace(lambda: [rg.random.bits(key(), 4), rg.random.bits(key(), 4)], [])
    assert len(computed(cse(graph))) == 1


def test_fields_are_told_apart():
    graph = traced(lambda x: [rg.sum(x, axis=0), rg.sum(x, axis=1), x * 0.0, x * -0.0], (3, 3))
    assert cse(graph) == graph


def test_effects_are_neither_merged_nor_removed():
    def f(x):
        y = rg.sin(x)
        apply(Shout(), y)
        apply(Shout(), y)
        rg.cos(x)
        return [x]

    after = optimized(traced(f, (3,)))
    assert names(after) == ["sin", "shout", "shout"]


def test_effects_in_bodies_stay():
    def f(x):
        rg.scan(lambda c, _: (apply(Shout(), c), None), x, None, length=2)
        rg.scan(lambda c, _: (c * 2, None), x, None, length=2)
        return [x]

    after = optimized(traced(f, (3,)))
    assert names(after) == ["scan"]


def test_checkpoints_are_not_merged_with_what_is_outside():
    """A node that is to be dropped and computed again does not keep another one alive."""

    def f(x):
        inside = rg.checkpoint(lambda y: rg.sin(y) * rg.sin(y))
        return [inside(x), inside(x), rg.sin(x)]

    after = cse(traced(f, (3,)))
    assert computed(after) == ["sin", "multiply", "sin", "multiply", "sin"]
    assert len({n.tags for n in after.nodes}) == 3


def test_literals_are_merged_everywhere():
    inside = rg.checkpoint(lambda y: y * 2.0)
    graph = traced(lambda x: [inside(x), inside(x) * 2.0], ())
    assert names(graph).count("literal") == 3
    assert names(cse(graph)).count("literal") == 1


def test_what_nobody_uses_goes():
    def f(x):
        rg.exp(rg.sin(x))
        return [rg.cos(x)]

    assert names(dce(traced(f, (3,)))) == ["cos"]


def test_unused_inputs_stay():
    graph = traced(lambda x, y: [y], (2,), (3,))
    assert dce(graph) == graph
    assert optimized(graph).inputs == graph.inputs


# -- what is traced ------------------------------------------------------------------------


def test_numbers_and_small_lists_are_literals():
    graph = traced(lambda x: [x * 2 + rg.asarray([1.0, 2.0]) + np.float64(3)], (2,))
    assert names(graph).count("literal") == 3


def test_tensors_and_arrays_from_outside_are_hidden_inputs(rng):
    for outside in (rg.asarray(2.0), rg.asarray([1.0, 2.0]), np.ones(2), np.ones(100)):
        graph, captured = trace(lambda x, w=outside: [x * w], [Spec((1,), F64)])
        assert len(captured) == 1
        assert "literal" not in names(graph)


@pytest.mark.parametrize(
    "make",
    [
        lambda: rg.zeros((300, 5)),
        lambda: rg.ones(1000, dtype=rg.bfloat16),
        lambda: rg.full((7, 90), 2.5),
        lambda: rg.full((7, 90), 3),
        lambda: rg.full((), True),
        lambda: rg.full_like(rg.zeros(500), 1),
        lambda: rg.arange(500),
        lambda: rg.arange(1000, 3, -7, dtype=rg.int16),
        lambda: rg.arange(2**63, 2**63 + 500, 3, dtype=rg.uint64),
        lambda: rg.arange(-(2**63), 2**63 - 1, 2**55),
        lambda: rg.arange(0.5, 100, 0.3),
        lambda: rg.arange(3, dtype=rg.complex64),
        lambda: rg.arange(5, 5),
        lambda: rg.eye(70, 30, k=-2),
        lambda: rg.eye(3, k=1, dtype=rg.bool),
        lambda: rg.linspace(0, 1, 50),
        lambda: rg.asarray(1 + 2j),
        lambda: rg.random.key(5),
    ],
)
def test_what_is_made_while_tracing_holds_no_memory(make):
    """The graph has no hidden inputs and no large literals, and gives the eager bits."""
    graph, captured = trace(lambda: [make()], [])
    assert not captured
    assert hoist(verify(graph))[1] == []
    (found,) = evaluate(graph)
    wanted = make()
    assert found.spec == wanted.spec
    assert found.numpy().tobytes() == wanted.numpy().tobytes()


def test_constants_made_while_tracing_can_be_written_to():
    def f(x):
        a, b = rg.asarray([1.0, 2.0]), rg.asarray([1.0, 2.0])
        a[0] = x
        return [a, b]

    graph, _ = trace(f, [Spec((), F32)])
    assert [a.tolist() for a in run_graph(graph, [np.float32(5)])] == [[5, 2], [1, 2]]


# -- linear --------------------------------------------------------------------------------


def calls(f, *args):
    """How many Python functions a call runs, and its result."""
    count = 0

    def look(frame, event, arg):
        nonlocal count
        count += event == "call"

    sys.setprofile(look)
    try:
        found = f(*args)
    finally:
        sys.setprofile(None)
    return count, found


def chain(n):
    def f(x):
        for i in range(n // 4):
            x = rg.sin(-(x * 1.0) + 0.5) if i % 2 else rg.nn.softmax(x.reshape(4)) / 2
        return [x]

    return trace(f, [Spec((4,), F64)])[0]


def test_tracing_and_every_pass_are_linear():
    """Eight times the nodes: eight times the calls."""
    rows = []
    for n in (500, 4000):
        count, graph = calls(chain, n)
        counts = [("trace", count), *((f.__name__, calls(f, graph)[0]) for f in PASSES)]
        counts += [("text", calls(str, graph)[0]), ("verify", calls(verify, graph)[0])]
        rows.append(counts)
    for (name, small), (_, large) in zip(*rows, strict=True):
        assert large <= 8.2 * small, name


def test_a_long_chain(monkeypatch):
    """20,000 nodes: no recursion, and the shape rules run a few times for each node."""
    count, rule = 0, Elementwise.shape

    def shape(self, *specs):
        nonlocal count
        count += 1
        return rule(self, *specs)

    monkeypatch.setattr(Elementwise, "shape", shape)
    graph = chain(20_000)
    after = verify(optimized(graph))
    assert len(graph.nodes) > 15_000
    assert len(after.nodes) < 3 * len(graph.nodes)
    assert count < 8 * len(graph.nodes)


def test_literals_of_nodes_are_compared_by_bits():
    spec = Spec((), F64)
    nodes = [Node(Literal(Exact(v)), (), (spec,)) for v in (0.0, -0.0, np.nan, np.nan)]
    after = cse(Graph((), tuple(nodes), (0, 1, 2, 3)))
    assert after.outputs == (0, 1, 2, 2)
