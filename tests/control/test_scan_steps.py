"""Steps of loops on arrays: what `evaluate` gives, without what no result needs."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.control.scan_steps import Steps, lean
from retrograd.core.executor import LIGHT
from retrograd.core.interpret import RAW, using
from retrograd.core.spec import spec_of
from retrograd.ir.evaluate import evaluate
from retrograd.ir.trace import trace
from retrograd.testing.exactly import bits


def body(x, y):
    high, at = rg.max(x, axis=1), rg.argmax(y, axis=1)
    low, top = rg.topk(rg.exp(x) + y, 2)
    return [x @ rg.swapaxes(y, 0, 1), high, at, low, top, x]


@pytest.mark.parametrize("columns", [5, LIGHT])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_results_have_the_bits_of_evaluate(rng, dtype, columns):
    arrays = [rng.normal(size=(3, columns)).astype(dtype) for _ in range(2)]
    graph, _ = trace(body, [spec_of(a) for a in arrays])
    with using(RAW):
        wanted = evaluate(graph, *arrays)
        found = Steps(graph)(list(arrays))
    assert [bits(np.asarray(a)) for a in found] == [bits(np.asarray(a)) for a in wanted]


def test_what_no_output_needs_is_left_out(rng):
    def f(x, y):
        unused = rg.exp(x) * y
        rg.sin(unused)
        return [rg.cos(y) + x, y]

    arrays = [rng.normal(size=4) for _ in range(2)]
    graph, _ = trace(f, [spec_of(a) for a in arrays])
    found = lean(graph)
    assert [n.op.name for n in found.nodes] == ["cos", "add"]
    with using(RAW):
        wanted = evaluate(graph, *arrays)
        assert [bits(a) for a in Steps(found)(list(arrays))] == [bits(a) for a in wanted]
    assert lean(found) is found


def test_what_acts_stays():
    def f(x):
        rg.debug.print("{}", rg.exp(x))
        return [x * 2]

    graph, _ = trace(f, [rg.asarray(1.0).spec])
    assert lean(graph) is graph


def test_a_backward_step_does_not_compute_the_next_carry(monkeypatch):
    counts = []
    real = Steps.__init__

    def made(self, graph):
        counts.append([n.op.name for n in graph.nodes].count("add"))
        real(self, graph)

    def value(h, budget):
        f = lambda h, _: (rg.tanh(h) + 1, None)
        return rg.sum(rg.scan(f, h, length=3, budget=budget)[0])

    monkeypatch.setattr(Steps, "__init__", made)
    for budget in (None, "1 MiB"):
        counts.clear()
        rg.grad(value)(rg.ones(3), budget)
        assert counts[0] == 1
        assert counts[-1] == 0
