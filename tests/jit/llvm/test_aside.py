"""Sums at places of each column's own: strips that are kept aside, and lanes one by one."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.errors import BoundsError
from retrograd.core.interpret import apply
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.native import object_code
from retrograd.jit.llvm.program import Writer
from retrograd.jit.passes import optimized
from retrograd.ops.gather import AddAlongAxis

MACHINES = here()
WIDE = [  # x's shape, axis, places: rows far apart, more than a first cache holds
    ((40, 300), 0, 30),
    ((9, 512), 0, 36),
    ((3, 25, 261), 1, 70),
    ((2, 3, 20, 5, 64), 2, 40),
    ((1300, 260), 0, 5000),  # places of which few columns are aside
    ((60, 1024), 0, 60),
]
PLAIN = [  # near each other, or too few sums for so many places, or more than are kept
    ((40, 30), 0, 30),
    ((40, 300), 0, 8),
    ((3, 300), 0, 40),
    ((8000, 260), 0, 20000),
]
ROWS = [((7, 30), 1, 20), ((3, 40, 9), 1, 50), ((70, 33), 1, 2), ((5, 6, 300), 2, 1)]
DTYPES = ["float32", "float64", "float16", "int8", "int64", "complex64"]


def drawn(rng, case, dtype):
    shape, _, places = case
    x = (rng.normal(size=shape) * 9).astype(dtype)
    return x, rng.integers(-places, places, shape)


def adding(case, f=lambda x: x):
    _, axis, places = case
    return lambda x, i: [apply(AddAlongAxis(axis, places), f(x), i)]


def written(case, x, i, machine, f=lambda x: x):
    graph, _ = trace(adding(case, f), [spec_of(x), spec_of(i)])
    writer = Writer(optimized(graph, kernels_of), named(machine))
    writer.written()
    return writer


def summed(case, x, i):
    """The sums in the order of the indices, in the dtype itself."""
    shape, axis, places = case
    out = np.zeros((*shape[:axis], places, *shape[axis + 1 :]), x.dtype)
    at = list(np.ogrid[tuple(slice(n) for n in shape)])
    at[axis] = i
    np.add.at(out, tuple(at), x)
    return out


def check(case, x, i, wanted, machine, f=lambda x: x):
    graph, captured = trace(adding(case, f), [spec_of(x), spec_of(i)])
    program = compiled(graph, machine=named(machine))
    for threads in (1, 2, 3):
        given = [x, i, *(t.array for t in captured)]
        (found,) = Executable(program, threads)(given)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", [*WIDE, *PLAIN, *ROWS], ids=str)
def test_duplicates_are_summed_in_the_order_of_indices(case, machine, dtype, rng):
    if dtype == "float16" and machine == "sse2":
        pytest.skip("no instructions for it")
    x, i = drawn(rng, case, dtype)
    check(case, x, i, summed(case, x, i), machine)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", WIDE, ids=str)
def test_what_is_computed_from_shorter_numbers_is_kept_in_as_many_lanes(case, machine, rng):
    x, i = drawn(rng, case, "float32")
    wide = x.astype(np.float64)
    check(case, x, i, summed(case, wide, i), machine, lambda x: x.astype(rg.float64))


@pytest.mark.parametrize("machine", ["avx512", "avx2", "sse2", "neon"])
@pytest.mark.parametrize("case", [*WIDE, *PLAIN], ids=str)
def test_strips_are_aside_where_places_are_far_apart(case, machine, rng):
    writer = written(case, *drawn(rng, case, "float32"), machine)
    assert (writer.scratch > 0) == (case in WIDE)
    assert object_code(writer.module).startswith(b"\x7fELF")


@pytest.mark.parametrize("machine", ["avx512", "avx2", "neon"])
@pytest.mark.parametrize("case", ROWS[:1], ids=str)
def test_lanes_that_lie_apart_go_one_by_one(case, machine, rng):
    text = written(case, *drawn(rng, case, "float32"), machine).module.text()
    assert "masked.gather" not in text
    assert "masked.scatter" not in text


def test_few_places_have_as_many_chunks_as_many_places(rng):
    chunks = [
        written(case, *drawn(rng, case, "float32"), "avx512").module.text().count("sdiv")
        for case in (((256, 1000), 1, 3), ((256, 1000), 1, 1000))
    ]
    assert chunks[0] == chunks[1] > 0


@pytest.mark.parametrize("case", [WIDE[0], ROWS[0]], ids=str)
def test_what_is_out_of_range_is_refused(case, rng):
    x, i = drawn(rng, case, "float32")
    add = rg.jit(lambda x, i: adding(case)(x, i)[0])
    i.flat[77] = case[2]
    with pytest.raises(BoundsError, match=f"index {case[2]} is outside"):
        add(x, i)
