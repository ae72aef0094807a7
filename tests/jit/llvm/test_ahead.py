"""What is called for before it is read: by kind of CPU, and by how many buffers stream."""

import dataclasses

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.execute import Executable
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.program import Writer, build
from retrograd.jit.passes import optimized

LARGE = np.zeros((2048, 1024), np.float32)
SMALL = np.zeros((64, 1024), np.float32)
FIRST, SECOND = "i32 3, i32 1)", "i32 2, i32 1)"  # caches, as llvm.prefetch says them


def calls(f, x, **kind):
    """Into which caches a function of four arrays calls for lines."""
    spec = spec_of(x)
    graph, _ = trace(lambda *xs: [f(*xs)], [spec] * 4)
    machine = dataclasses.replace(named("avx512"), **kind)
    writer = Writer(optimized(graph, kernels_of), machine)
    writer.written()
    lines = [s for s in writer.module.text().splitlines() if "call void @llvm.prefetch" in s]
    return {cache for cache in (FIRST, SECOND) if any(s.endswith(cache) for s in lines)}


SEVERAL = [
    lambda a, b, c, d: rg.sum(a * b),
    lambda a, b, c, d: rg.mean((a - b) ** 2, axis=1),
    lambda a, b, c, d: a + b,
    lambda a, b, c, d: a * b + c,
]
OTHERS = [
    lambda a, b, c, d: rg.exp(a),
    lambda a, b, c, d: rg.sum(a),
    lambda a, b, c, d: a * b + c * d,
]


@pytest.mark.parametrize("f", SEVERAL)
def test_cpus_that_look_ahead_are_told_of_two_or_three_buffers(f):
    assert calls(f, LARGE, told=False) == {SECOND}


@pytest.mark.parametrize("f", OTHERS)
def test_and_of_one_or_four_they_are_not(f):
    assert not calls(f, LARGE, told=False)


@pytest.mark.parametrize("f", [*SEVERAL, *OTHERS])
def test_nobody_is_told_of_what_a_cache_holds(f):
    assert not calls(f, SMALL, told=False)
    assert not calls(f, SMALL, told=True)


def test_cpus_that_read_in_bursts_are_told_of_one_buffer_two_pages_ahead():
    one, several = lambda a, b, c, d: rg.exp(a), lambda a, b, c, d: a + b
    assert calls(one, LARGE, told=True, bursts=True) == {SECOND}
    assert calls(several, LARGE, told=True, bursts=True) == {FIRST}


def test_other_cpus_are_told_of_all_that_streams():
    assert calls(lambda a, b, c, d: rg.exp(a), LARGE, told=True) == {FIRST}
    assert not calls(lambda a, b, c, d: rg.sum(a), LARGE, told=True)


def convolved(x, w):
    return rg.sum(rg.nn.relu(rg.nn.conv(x, w, padding=1)) ** 2)


BLOCKS = {  # kernels that read blocks from the second cache, and what they are called with
    "product": (lambda a, b: a.mT @ b, (600, 530), (600, 640)),
    "convolution": (rg.grad(convolved, argnums=(0, 1)), (2, 17, 19, 48), (3, 3, 48, 40)),
    "transpose": (lambda a: a.mT * 2.0, (515, 1024)),
}


@pytest.mark.parametrize("machine", here())
@pytest.mark.parametrize("name", BLOCKS)
def test_calls_and_their_order_change_no_bits(name, machine, rng):
    f, *shapes = BLOCKS[name]
    arrays = [rng.standard_normal(s, np.float32) for s in shapes]
    graph, _ = trace(lambda *xs: rg.tree.leaves(f(*xs)), [spec_of(a) for a in arrays])
    graph = optimized(graph, kernels_of)
    kinds = {"told": False}, {"told": True}, {"told": True, "frugal": True}
    programs = [build(graph, dataclasses.replace(named(machine), **kind)) for kind in kinds]
    untold, told, frugal = (p.text for p in programs)
    assert untold != told
    assert told != frugal or name != "product"
    found = [Executable(p, 2)(arrays) for p in programs]
    for results in zip(*found, strict=True):
        assert len({r.tobytes() for r in results}) == 1
