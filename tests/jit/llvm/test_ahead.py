"""What is called for before it is read: by kind of CPU, and by how many buffers stream."""

import dataclasses

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import named
from retrograd.jit.llvm.program import Writer
from retrograd.jit.passes import optimized

LARGE = np.zeros((2048, 1024), np.float32)
SMALL = np.zeros((64, 1024), np.float32)
FIRST, SECOND = "i32 3, i32 1)", "i32 2, i32 1)"  # caches, as llvm.prefetch says them


def calls(f, x, *, told):
    """Into which caches a function of four arrays calls for lines."""
    spec = spec_of(x)
    graph, _ = trace(lambda *xs: [f(*xs)], [spec] * 4)
    machine = dataclasses.replace(named("avx512"), told=told)
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


def test_other_cpus_are_told_of_all_that_streams():
    assert calls(lambda a, b, c, d: rg.exp(a), LARGE, told=True) == {FIRST}
    assert not calls(lambda a, b, c, d: rg.sum(a), LARGE, told=True)
