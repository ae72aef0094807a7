"""Products that call for what the next one reads: which, and that nothing else changes."""

import itertools

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.execute import Executable
from retrograd.jit.llvm import later, routine
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.native import object_code
from retrograd.jit.llvm.program import Writer, build
from retrograd.jit.passes import optimized
from retrograd.jit.steps import Product

MACHINES = here()


def step(x, *weights):
    """A step of training a network of several layers."""

    def loss(weights):
        y = x
        for w in weights:
            y = rg.tanh(y @ w)
        return rg.sum(y * y)

    value, grads = rg.value_and_grad(loss)(list(weights))
    return [value, *(w - g * 0.1 for w, g in zip(weights, grads, strict=True))]


def arrays_of(rng, batch, *widths):
    shapes = [(batch, widths[0]), *itertools.pairwise(widths)]
    return [(rng.normal(size=s) / np.sqrt(s[0])).astype(np.float32) for s in shapes]


def graph_of(arrays):
    return optimized(trace(step, [spec_of(a) for a in arrays])[0], kernels_of)


@pytest.fixture
def seen(monkeypatch):
    """What is called for, by the programs that are written: (products, value of each)."""
    found, real = [], later.called_for

    def spy(routine, runs):
        values = real(routine, runs)
        steps = [routine.steps[n] for n in runs]
        found.append(
            ([t for t, s in enumerate(steps) if isinstance(s, Product)], values, steps)
        )
        return values

    monkeypatch.setattr(routine, "called_for", spy)
    return found


@pytest.mark.parametrize("machine", MACHINES)
def test_bits_are_those_without(machine, rng, monkeypatch):
    for sizes in [(256, 256, 256, 256, 256), (130, 300, 200, 310, 90), (64, 256, 1, 400, 256)]:
        arrays = arrays_of(rng, *sizes)
        monkeypatch.setattr(later, "FAR", 1 << 60)
        wanted = Executable(build(graph_of(arrays), named(machine)))(arrays)
        monkeypatch.setattr(later, "FAR", 0)
        program = build(graph_of(arrays), named(machine))
        for threads in (1, 2, 3):
            for got, want in zip(Executable(program, threads)(arrays), wanted, strict=True):
                assert got.tobytes() == want.tobytes()


def test_each_product_calls_for_what_the_next_has_from_afar(seen, rng):
    arrays = arrays_of(rng, 256, *[256] * 9)
    build(graph_of(arrays), named(MACHINES[0]))
    products, values, steps = max(seen, key=lambda s: len(s[0]))
    assert len(products) == 3 * 8 - 1
    forward = products[:7]  # each calls for the weights after its own, which are inputs
    assert [values[t] for t in forward] == list(range(2, 9))
    for t, then in itertools.pairwise(products):
        if t in values:
            assert values[t] in {steps[then].a.value, steps[then].b.value}
            assert values[t] not in {steps[t].a.value, steps[t].b.value}


@pytest.mark.parametrize("widths", [[64] * 5, [1024] * 4])
def test_what_caches_hold_or_cannot_hold_is_not_called_for(widths, seen, rng):
    build(graph_of(arrays_of(rng, 1024, *widths)), named(MACHINES[0]))
    assert seen
    assert not any(values for _, values, _ in seen)


@pytest.mark.parametrize("machine", ["avx512", "avx2", "sse2", "neon"])
def test_equal_layers_still_share_kernels(machine, rng):
    def products(depth):
        writer = Writer(graph_of(arrays_of(rng, 256, *[256] * (depth + 1))), named(machine))
        writer.written()
        text = writer.module.text()
        assert object_code(writer.module).startswith(b"\x7fELF")
        assert "%later" in text
        return sum(line.startswith("define") and "@gemm" in line for line in text.splitlines())

    assert products(8) == products(16)
