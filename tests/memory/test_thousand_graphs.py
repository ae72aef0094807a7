"""Random graphs within budgets, eager and compiled: 1,000 of them in 20 budgets at full size.

Never more bytes than the budget, or a refusal that leaves everything as it was; the bits of the
run without a budget; compiled, more budget never recomputes more.
"""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.execute import Executable
from retrograd.jit.llvm.budget import plans
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import chosen
from retrograd.jit.llvm.program import build
from retrograd.jit.passes import optimized
from retrograd.testing.exactly import bits
from tests.conftest import FULL, generator

BLOCKS, GRAPHS, BUDGETS = (20, 50, 20) if FULL else (1, 12, 8)
WIDTH = 8  # of all values: so that compiled kernels are few, and small

# All take the weights, any earlier value, and one of the last two.
STEPS = (
    lambda w, x, y: x @ w,
    lambda w, x, y: y @ w if y.shape == w.shape else rg.sin(y),
    lambda w, x, y: rg.tanh(x) * y if x.shape == y.shape else rg.tanh(y),
    lambda w, x, y: x + y if x.shape == y.shape else x - rg.mean(y),
    lambda w, x, y: rg.exp(-y * y),
    lambda w, x, y: rg.concat([x, y]) if len(x) + len(y) <= 32 else y - rg.mean(x, axis=0),
)


class Random:
    """A graph to one number, its gradient, and arguments."""

    def __init__(self, number):
        rng = generator("thousand graphs", number)
        shapes = [WIDTH, *rng.choice([WIDTH, 2 * WIDTH], size=rng.integers(1, 4))]
        # most are small: it is compiling that takes the time
        self.arrays = [rng.normal(size=(int(n), WIDTH)).astype(np.float32) for n in shapes]
        count = len(shapes)
        self.steps = [
            (int(rng.integers(len(STEPS))), int(rng.integers(n)), n - 1 - int(rng.integers(2)))
            for n in range(count, count + int(rng.integers(3, 11 if number % 5 == 0 else 6)))
        ]

    def __call__(self, values):
        """The mean of squares of all that no step uses."""
        weights, values = values[0], list(values)
        for what, a, b in self.steps:
            values.append(STEPS[what](weights, values[a], values[b]))
        used = {i for _, *operands in self.steps for i in operands}
        ends = [v for i, v in enumerate(values) if i not in used]
        return sum((rg.mean(v * v) for v in ends), start=rg.mean(weights * weights))

    def gradients(self, *values):
        """The number, and the cotangent of each argument."""
        value, found = rg.value_and_grad(self)(list(values))
        return [value, *found]


@pytest.mark.parametrize("block", range(BLOCKS))
def test_compiled(block):
    for number in range(block * GRAPHS, (block + 1) * GRAPHS):
        graph = Random(number)
        traced, _ = trace(graph.gradients, [spec_of(a) for a in graph.arrays])
        traced = optimized(traced, kernels_of)
        free = Executable(build(traced, chosen()), 1)
        wanted = [bits(a) for a in free(graph.arrays)]
        found = plans(traced, chosen(), (), 1)
        assert found.bound <= found.minimum
        top = found.choices[-1].size + found.fixed
        courses = []
        for budget in np.linspace(found.minimum - 64, top + 64, BUDGETS).astype(int):
            if budget < found.minimum:
                with pytest.raises(rg.BudgetError):
                    found.within("test", int(budget))
                continue
            courses.append(found.within("test", int(budget)))
            assert courses[-1].choice.size + found.fixed <= budget
        costs = [c.choice.cost for c in courses]
        assert costs == sorted(costs, reverse=True)
        for course in {c.choice.size: c for c in courses}.values():
            program = build(traced, chosen(), course=course)
            assert program.arena == course.choice.size
            assert program.taken(1) <= course.choice.size + found.fixed
            assert [bits(a) for a in Executable(program, 1)(graph.arrays)] == wanted
        assert [bits(a) for a in free(graph.arrays)] == wanted


@pytest.mark.parametrize("block", range(BLOCKS))
def test_eager(block):
    counts = {"ran": 0, "refused": 0, "dropped": 0, "replayed": 0}
    for number in range(block * GRAPHS, (block + 1) * GRAPHS):
        graph = Random(number)
        values = [rg.asarray(a) for a in graph.arrays]
        wanted = [bits(t.array) for t in graph.gradients(*values)]
        with rg.memory.track() as whole:
            graph.gradients(*values)
        early = bits(rg.tanh(values[1]).array)
        for budget in np.linspace(whole.peak * 0.4, whole.peak * 1.2, BUDGETS).astype(int):
            with rg.budget(int(budget)) as ledger:
                before = rg.tanh(values[1])
                try:
                    assert [bits(t.array) for t in graph.gradients(*values)] == wanted
                    counts["ran"] += 1
                except rg.BudgetError:
                    counts["refused"] += 1
                assert bits(before.array) == early
                assert rg.memory.stats().dropped == ledger.dropped
            assert ledger.peak <= budget
            counts["dropped"] += ledger.dropped
            counts["replayed"] += ledger.replayed
        assert [bits(t.array) for t in graph.gradients(*values)] == wanted
    print(counts)  # pytest -rP shows them
    assert min(counts.values()) > 0, counts
