"""Graphs as text: printing and parsing are inverses, and nothing of the text is run."""

import importlib
import pkgutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import retrograd as rg
import retrograd.ops
from retrograd.core import dtype as dt
from retrograd.core import exact
from retrograd.core.exact import Exact
from retrograd.core.interpret import apply
from retrograd.core.op import REGISTRY, Op, op
from retrograd.core.spec import Spec, spec_of
from retrograd.ir.graph import Graph, Node
from retrograd.ir.parse import parse
from retrograd.ir.text import show
from retrograd.ir.trace import trace
from retrograd.ir.verify import verify
from retrograd.jit.passes.rewrite import Writer, rewritten
from retrograd.testing.strategies import checkpointed, programs

for module in pkgutil.walk_packages(retrograd.ops.__path__, "retrograd.ops."):
    importlib.import_module(module.name)

OURS = [cls for cls in REGISTRY.values() if cls.__module__.startswith("retrograd.")]


def again(graph):
    """The graph, printed and parsed."""
    found = parse(str(graph))
    assert found == graph
    assert hash(found) == hash(graph)
    assert uncommented(found) == uncommented(graph)
    return found


def uncommented(graph):
    return [
        line.partition("    # checkpoint")[0] for line in show(graph, lines=False).split("\n")
    ]


@pytest.mark.parametrize("cls", OURS, ids=lambda cls: cls.__name__)
def test_every_op_is_read_back(cls):
    for op_, *arrays in cls.samples(np.random.default_rng(7)):
        specs = [spec_of(np.asarray(a)) for a in arrays]
        graph, _ = trace(lambda *xs, op=op_: outputs(apply(op, *xs)), specs)
        verify(again(graph))


def outputs(found):
    return list(found) if isinstance(found, tuple) else [found]


@given(programs())
def test_programs_are_read_back(program):
    xs = program.samples(np.random.default_rng(0))
    graph, _ = trace(lambda *a: [program(*a)], [x.spec for x in xs])
    again(graph)
    numbers = tuple(range(len(xs)))
    gradient, _ = trace(lambda *a: list(rg.grad(program, numbers)(*a)), [x.spec for x in xs])
    again(gradient)


@given(checkpointed(max_steps=6))
def test_bodies_are_read_back(case):
    """Loops and branches with bodies in bodies; checkpoints are comments."""
    program, blocks = case
    xs = program.samples(np.random.default_rng(0))

    def body(carry, _):
        total = program(*xs, blocks=blocks) * carry
        return rg.cond(total > 0, rg.sin, lambda t: t * 2.0, total), None

    def f(x):
        return [
            rg.scan(body, x, None, length=3)[0],
            rg.while_loop(lambda c: c < 10.0, lambda c: c + 1.0, x),
        ]

    graph, _ = trace(f, [Spec((), dt.float64)])
    assert "@body" in str(graph)
    assert "@yes" in str(graph)
    again(graph)


# -- fields --------------------------------------------------------------------------------


class Noted(Op):
    """Any option whatever."""

    value: object
    no_derivative = "it is a test"

    def shape(self, x: Spec) -> Spec:
        return x

    def forward(self, x):
        return x


@pytest.fixture
def noted():
    op(Noted)
    yield Noted
    del REGISTRY["Noted"]


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text()
    | st.sampled_from(
        [*dt.ALL, np.maximum, np.add, Spec((2, 3), dt.float32), Spec((), dt.bool)]
    )
)


@given(st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3).map(tuple)))
def test_every_kind_of_field(noted, value):
    spec = Spec((2,), dt.float32)
    again(Graph((spec,), (Node(noted(value), (0,), (spec,)),), (1,)))


@pytest.mark.parametrize("value", [Spec((2, 3), dt.float32), (Spec((), dt.bool), 1)], ids=str)
def test_specs_are_fields(noted, value):
    spec = Spec((2,), dt.float32)
    again(Graph((spec,), (Node(noted(value), (0,), (spec,)),), (1,)))


def test_bodies_of_ops_in_fields(noted):
    spec = Spec((2,), dt.float32)
    bodies = [trace(lambda x, n=n: [x * n], [spec])[0] for n in (2.0, 3.0)]
    node = Node(noted((noted(bodies[0]), noted((bodies[1], 1)))), (0,), (spec,))
    graph = Graph((spec,), (node,), (1,))
    assert "@value.0.value = graph" in str(graph)
    again(graph)
    assert "Multiply" not in str(rewritten(graph, Writer.keep, lambda body: Graph((), (), ())))


def test_bodies_in_tuples(noted):
    spec = Spec((2,), dt.float32)
    bodies = [trace(lambda x, n=n: [x * n], [spec])[0] for n in (2.0, 3.0)]
    node = Node(noted((1, (bodies[0], bodies[1]), "x")), (0,), (spec,))
    graph = Graph((spec,), (node, node), (1, 2))
    assert "@value.1.0 = graph" in str(graph)
    again(graph)


def test_nodes_and_graphs_may_make_nothing(noted):
    spec = Spec((0, 2), dt.int8)
    again(Graph((spec,), (Node(noted(None), (0,), ()),), ()))
    again(Graph((), (), ()))


@given(st.binary(min_size=8, max_size=8), st.sampled_from([d for d in dt.ALL if d != dt.bool]))
def test_numbers_keep_their_bits(data, dtype):
    """All bit patterns, also of NaN."""
    array = np.frombuffer((data * 2)[: dtype.itemsize], dtype)
    value = Exact(array)
    assert exact.read(exact.words(array), value.spec) == value
    assert value.array.tobytes() == array.tobytes()


def test_constants_are_compared_by_bits():
    assert Exact(np.float32(np.nan)) == Exact(np.float32(np.nan))
    assert Exact(0.0) != Exact(-0.0)
    assert Exact(np.float32(1)) != Exact(np.float64(1))
    assert Exact(np.zeros((1, 2))) != Exact(np.zeros((2, 1)))
    assert hash(Exact(np.nan)) == hash(Exact(np.nan))
    with pytest.raises(AttributeError):
        Exact(1.0).data = b""


# -- errors --------------------------------------------------------------------------------

TEXT = """graph(%0: float32[2]):
  %1: float32[2] = Sin() %0
  %2: float32[] = Sum(axis=(0,), keepdims=False) %1
  return %2"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("graph", "grph", "line 1 has 'grph'; expected 'graph'"),
        ("float32[2]):", "float31[2]):", "line 1 has 'float31'; expected a dtype"),
        ("float32[2]):", "float32[x]):", "line 1 has 'x'; expected a length"),
        ("%1:", "%3:", "line 2 has '%3'; expected %1, the next value"),
        ("Sin", "Sinn", "line 2 has 'Sinn'; expected the name of a registered op"),
        ("Sin()", "Sin(a=1)", "line 2 has 'Sin'; expected an op with its fields"),
        ("Sin() %0", "Sin() %1", "line 2 has '%1'; expected one of the 1 values made before"),
        ("Sin() %0", "Sin() %0,", "line 3 has '%2'; expected one of the 1 values"),
        ("(0,)", "(0", "line 3 has 'keepdims'; expected a value"),
        ("False", "eval", "line 3 has 'eval'; expected a value"),
        ("(0,)", "0 1", "line 3 has '1'; expected ','"),
        ("(0,)", "@axis", "line 3 has 'Sum'; expected its body @axis on the lines below"),
        ("(0,)", "np.exit", "line 3 has 'exit'; expected the name of a NumPy ufunc"),
        ("(0,)", "int8[1](300)", "line 3 has 'int8'; expected elements of int8[1]"),
        ("(0,)", "$", "line 3 has '$,'; expected a word of a graph's text"),
        ("return %2", "", "line 4 has the end of the text; expected a node, or return"),
        ("return %2", "return %2 )", "line 4 has ')'; expected the end of the text"),
    ],
)
def test_errors_say_the_line_and_what_was_expected(old, new, said):
    assert old in TEXT
    with pytest.raises(rg.ArgumentError) as caught:
        parse(TEXT.replace(old, new, 1))
    assert said in str(caught.value)
    parse(TEXT)
