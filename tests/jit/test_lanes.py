"""What lanes of a vector have in common with its first: by counting, and in compiled loops."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.program import Writer
from retrograd.jit.loops.index import Axis, Ix, Quotient, Remainder
from retrograd.jit.loops.lanes import lane_offsets
from retrograd.jit.passes import optimized

MACHINES = here()
LANES = 8


def value(ix, at):
    """An index where the axes have these numbers."""
    total = ix.const
    for atom, times in ix.terms.items():
        if isinstance(atom, Axis):
            total += times * at[atom]
        else:
            inner = value(atom.of, at)
            assert inner >= 0
            whole, rest = divmod(inner, atom.by)
            total += times * (whole if isinstance(atom, Quotient) else rest)
    return total


@st.composite
def indices(draw, axes, depth=2):
    ix = Ix(draw(st.integers(0, 40)))
    for axis in axes:
        ix = ix + Ix.of(axis) * draw(st.sampled_from([0, 1, 1, 2, 3, 8, 64]))
    if depth:
        inner = draw(indices(axes, depth - 1))
        kind = draw(st.sampled_from([Quotient, Remainder]))
        by = draw(st.sampled_from([2, 3, 4, 8, 16, 24, 64]))
        ix = ix + Ix(0, {kind(inner, by): draw(st.sampled_from([1, 2, 5]))})
    return ix


@given(st.data())
def test_lanes_are_as_far_from_the_first_as_is_said(data):
    row, vector = Axis(3), Axis(5 * LANES)
    ix = data.draw(indices((row, vector)))
    apart = lane_offsets(ix, vector, LANES)
    seen = {
        tuple(
            value(ix, {row: r, vector: start + n}) - value(ix, {row: r, vector: start})
            for n in range(LANES)
        )
        for r, start in itertools.product(range(3), range(0, 5 * LANES, LANES))
    }
    assert apart is None or seen == {tuple(apart)}


@pytest.mark.parametrize(
    ("by", "told"), [(2, [n // 2 for n in range(8)]), (64, [0] * 8), (12, None)]
)
def test_what_is_known_of_quotients(by, told):
    vector = Axis(96)
    assert lane_offsets(Ix.of(vector) // by, vector, LANES) == told


def in_pairs(x):
    a, b = x[..., ::2], x[..., 1::2]
    n = min(a.shape[-1], b.shape[-1])
    return rg.reshape(rg.stack([-b[..., :n], a[..., :n]], axis=-1), (*x.shape[:-1], 2 * n))


FUNCTIONS = {
    "pairs": in_pairs,
    "every second": lambda x: x[..., ::2] * 2.0,
    "the other ones": lambda x: x[..., 1::2] + 1.0,
    "every third": lambda x: x[..., ::3] + 1.0,
    "backwards": lambda x: rg.flip(x, axis=-1) + 1.0,
    "each twice": lambda x: rg.repeat(x, 2, axis=-1) + 1.0,
    "again": lambda x: rg.tile(x, (2,) * x.ndim) + 1.0,
    "beside": lambda x: rg.concat([x[..., 1:], -x, x[..., ::2]], axis=-1),
    "summed": lambda x: rg.sum(in_pairs(x) * in_pairs(x), axis=-1),
}


def run(f, x, machine):
    graph, captured = trace(lambda x: [f(x)], [spec_of(x)])
    program = Executable(compiled(graph, machine=named(machine)))
    (found,) = program([x, *(t.array for t in captured)])
    return found


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(2,), (7,), (16,), (41,), (64,), (3, 33), (4, 64)])
def test_loops_read_what_eager_code_reads(shape, name, machine, rng):
    x, f = rng.integers(-9, 10, size=shape).astype(np.float32), FUNCTIONS[name]
    # whole numbers: sums are the same in any order
    np.testing.assert_array_equal(run(f, x, machine), f(rg.asarray(x)).numpy())


@pytest.mark.parametrize("name", ["pairs", "every second", "backwards", "each twice"])
def test_what_lies_close_together_is_not_gathered(name):
    x = np.zeros((64, 64), np.float32)
    graph, _ = trace(lambda x: [FUNCTIONS[name](x)], [spec_of(x)])
    writer = Writer(optimized(graph, kernels_of), named("avx512"))
    writer.written()
    assert "masked.gather" not in writer.module.text()


def test_masked_loads_are_where_memory_is():
    # where no lane is on, a masked load of what is no memory takes some CPUs very long
    x = np.zeros((64, 64), np.float32)
    graph, _ = trace(lambda x: [rg.pad(x, ((3, 4), (5, 6)))], [spec_of(x)])
    writer = Writer(optimized(graph, kernels_of), named("avx512"))
    writer.written()
    lines = writer.module.text().splitlines()
    chosen = {line.split("=")[0].strip() for line in lines if "= select i1" in line}
    loads = [line for line in lines if "call" in line and "masked.load" in line]
    assert loads
    assert {line.split("(ptr ")[1].split(",")[0] for line in loads} <= chosen
