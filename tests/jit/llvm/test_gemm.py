"""Matrix products as kernels, against NumPy in float64."""

import ctypes
import mmap
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrograd.jit.llvm import gemm as gemm_text
from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.gemm import Gemm, write_gemm
from retrograd.jit.llvm.gemm_plan import Split, make_plan
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.native import library, object_code
from retrograd.jit.llvm.text import F32, F64, I8, I16, I32, I64, PTR, Module

KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
DTYPES = {F32: "f4", F64: "f8", I8: "i1", I16: "i2", I32: "i4", I64: "i8"}
TOLERANCE = {F32: 1e-5, F64: 1e-14}  # of the sum of the terms' magnitudes
MACHINES = here()
KINDS = ["nn", "nt", "tn", "tt"]
GUARD = 0xA5


def strides(x):
    return tuple(s // x.itemsize for s in x.strides)


def geometry(a, b, c, t):
    """The Gemm of three NumPy views [..., m, k], [..., k, n], [..., m, n]."""
    batch = tuple(zip(c.shape[:-2], *(strides(x)[:-2] for x in (a, b, c)), strict=True))
    sizes = *c.shape[-2:], a.shape[-1]
    return Gemm(*sizes, t, *(strides(x)[-2:] for x in (a, b, c)), batch)


def compiled(gemm, machine, epilogue=None, *, apart=False, **kind):
    module = Module(replace(named(machine), **{"cores": 2, **kind}))
    info = write_gemm(module, "kernel", gemm, epilogue=epilogue, apart=apart, linkage="")
    return KERNEL(library(object_code(module)).address("kernel")), info


def run(kernel, info, *buffers, order=None):
    """Run the chunks on scratch that is full of NaN."""
    pointers = (ctypes.c_void_p * len(buffers))(*[b.ctypes.data for b in buffers])
    memory = np.full(info.scratch + 128, 0xFF, np.uint8)
    scratch = memory[-memory.ctypes.data % 64 :][: info.scratch + 64]
    scratch[info.scratch :] = GUARD
    for chunk in order or range(info.chunks):
        kernel(ctypes.addressof(pointers), chunk, scratch.ctypes.data)
    assert (scratch[info.scratch :] == GUARD).all()


def numbers(rng, shape, t):
    if t.kind == "f":
        return rng.standard_normal(shape).astype(DTYPES[t])
    return rng.integers(-100, 100, shape).astype(DTYPES[t])


def operand(rng, rows, columns, t, kind="n", batch=()):
    """A matrix, stored as it is or transposed."""
    shape = (*batch, rows, columns) if kind == "n" else (*batch, columns, rows)
    x = numbers(rng, shape, t)
    return x if kind == "n" else x.swapaxes(-1, -2)


def check(a, b, c, t, wanted=None):
    """C is A @ B, within rounding of the terms; integers wrap around."""
    if t.kind == "i":
        np.testing.assert_array_equal(c, a @ b)
        return
    exact, size = (f(a).astype("f8") @ f(b).astype("f8") for f in (np.asarray, np.abs))
    wanted = exact if wanted is None else wanted(exact)
    assert np.all(np.abs(c - wanted) <= TOLERANCE[t] * (size + 1))


def product_of(a, b, c, t, machine):
    kernel, info = compiled(geometry(a, b, c, t), machine)
    assert 1 <= info.chunks <= 32
    run(kernel, info, a, b, c)
    check(a, b, c, t)


SIZES = [1, 2, 3, 5, 15, 16, 17, 31, 33, 64, 65, 100, 257]


@pytest.mark.sampled(100)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("t", [F32, F64], ids=["f32", "f64"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", list(product(SIZES, repeat=3))[::11], ids=str)
def test_sizes_and_transpositions(rng, machine, t, kind, sizes):
    m, n, k = sizes
    a, b = operand(rng, m, k, t, kind[0]), operand(rng, k, n, t, kind[1])
    product_of(a, b, np.full((m, n), np.nan, DTYPES[t]), t, machine)


@pytest.mark.parametrize("kind", KINDS)
def test_large_enough_for_blocks_and_panels(rng, kind):
    """More than one block of rows, of k, and packed operands; odd edges."""
    a, b = operand(rng, 523, 711, F32, kind[0]), operand(rng, 711, 405, F32, kind[1])
    plan = make_plan(geometry(a, b, np.empty((523, 405), "f4"), F32), named("avx512"))
    assert plan.pack_b
    assert plan.depth < 711
    for machine in MACHINES:
        product_of(a, b, np.full((523, 405), np.nan, "f4"), F32, machine)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("k", [1, 7, 16, 24, 31, 32])
def test_few_steps_are_written_out_with_the_same_bits(rng, monkeypatch, machine, k):
    a, b = operand(rng, 33, k, F32, batch=(3,)), operand(rng, k, 50, F32, batch=(3,))
    found = []
    for short in (0, gemm_text.SHORT):
        monkeypatch.setattr(gemm_text, "SHORT", short)
        c = np.full((3, 33, 50), np.nan, "f4")
        product_of(a, b, c, F32, machine)
        found.append(c.tobytes())
    assert found[0] == found[1]


@pytest.mark.skipif("avx512" not in MACHINES, reason="what is emitted is for such CPUs")
@pytest.mark.parametrize("t", [F32, F64], ids=["f32", "f64"])
@pytest.mark.parametrize(
    "sizes", [(16, 16, 16), (9, 13, 24), (33, 5, 8), (7, 8, 30), (32, 32, 32)], ids=str
)
def test_numbers_spread_in_registers_and_calls_change_no_bit(rng, t, sizes):
    m, n, k = sizes
    a, b = operand(rng, m, k, t, batch=(5,)), operand(rng, k, n, t, batch=(5,))
    found, texts = set(), set()
    for kind in ({}, {"spreads": True}, {"bursts": True}):
        c = np.full((5, m, n), np.nan, DTYPES[t])
        gemm, module = geometry(a, b, c, t), Module(replace(named("avx512"), **kind))
        write_gemm(module, "kernel", gemm, linkage="")
        texts.add(module.text())
        run(*compiled(gemm, "avx512", **kind), a, b, c)
        check(a, b, c, t)
        found.add(c.tobytes())
    assert len(found) == 1
    odd = n * t.bits > 512 and n * t.bits % 512
    assert len(texts) == 1 if odd else len(texts) > 1, "if others, then to do the same"


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("sizes", [(0, 3, 4), (3, 0, 4), (0, 0, 0)], ids=str)
def test_nothing_to_do(machine, sizes):
    m, n, k = sizes
    a, b, c = np.ones((m, k), "f4"), np.ones((k, n), "f4"), np.ones((m, n), "f4")
    kernel, info = compiled(Gemm(m, n, k, F32, (k, 1), (n, 1), (n, 1)), machine)
    run(kernel, info, a, b, c)
    empty = Gemm(2, 2, 2, F32, (2, 1), (2, 1), (2, 1), ((0, 4, 4, 4),))
    out = np.full((2, 2), 7, "f4")
    run(*compiled(empty, machine), out, out, out)
    assert (out == 7).all()


def test_without_terms_the_sum_is_zero():
    out = np.full((5, 21), np.nan, "f4")
    gemm = Gemm(5, 21, 0, F32, (0, 1), (21, 1), (21, 1))
    run(
        *compiled(gemm, MACHINES[0], lambda f, x, *_: f.add(x, f.const(x.type, 2))),
        out,
        out,
        out,
    )
    assert (out == 2).all()


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("t", [I8, I16, I32, I64], ids=lambda t: t.suffix)
@pytest.mark.parametrize("kind", ["nn", "tt"])
def test_integers_wrap_around(rng, machine, t, kind):
    a, b = operand(rng, 19, 37, t, kind[0]), operand(rng, 37, 45, t, kind[1])
    product_of(a, b, np.zeros((19, 45), DTYPES[t]), t, machine)


# -- thin matrices ---------------------------------------------------------------------------


@pytest.mark.sampled(60)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("t", [F32, F64], ids=["f32", "f64"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "sizes",
    [(1, 1000, 67), (1000, 1, 67), (1, 1, 1001), (3, 203, 90), (203, 3, 90), (77, 91, 1)],
    ids=str,
)
def test_thin(rng, machine, t, kind, sizes):
    m, n, k = sizes
    a, b = operand(rng, m, k, t, kind[0]), operand(rng, k, n, t, kind[1])
    product_of(a, b, np.full((m, n), np.nan, DTYPES[t]), t, machine)


def test_a_matrix_read_once_is_read_in_slices_of_k(rng):
    a, b = operand(rng, 1, 300, F32), operand(rng, 300, 701, F32)
    product_of(a, b, np.full((1, 701), np.nan, "f4"), F32, MACHINES[0])


# -- strides and batches ---------------------------------------------------------------------


def window(whole, shape, steps):
    """A view of `shape`: steps apart, backwards if negative."""
    view = whole[: shape[0] * abs(steps[0]), : shape[1] * abs(steps[1])]
    return view[:: steps[0], :: steps[1]]


def surroundings(rng, shape, steps, t, *, turned):
    """A larger array, perhaps transposed, that has such a window."""
    order = (1, 0) if turned else (0, 1)
    room = [shape[i] * abs(steps[i]) + 2 for i in order]
    return numbers(rng, room, t).transpose(order)


STEPS = st.tuples(st.sampled_from([1, 1, 2, 3, -1]), st.sampled_from([1, 1, 2, -1, -2]))
VIEWS = st.tuples(STEPS, st.booleans())


@given(
    sizes=st.tuples(st.integers(1, 70), st.integers(1, 70), st.integers(0, 70)),
    views=st.tuples(VIEWS, VIEWS, VIEWS),
    t=st.sampled_from([F32, F64, I32]),
    machine=st.sampled_from(MACHINES),
    seed=st.integers(0, 9),
)
def test_any_strides(sizes, views, t, machine, seed):
    """Views of larger arrays: results right, and nothing else of the arrays changed."""
    rng, (m, n, k) = np.random.default_rng(seed), sizes
    places = [(s, v[0], v[1]) for s, v in zip([(m, k), (k, n), (m, n)], views, strict=True)]
    wholes = [surroundings(rng, s, steps, t, turned=turned) for s, steps, turned in places]
    wanted = [w.copy() for w in wholes]
    a, b, c = (window(w, s, steps) for w, (s, steps, _) in zip(wholes, places, strict=True))
    product_of(a, b, c, t, machine)
    window(wanted[2], *places[2][:2])[...] = c
    for whole, same in zip(wholes, wanted, strict=True):
        np.testing.assert_array_equal(whole, same)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [4, 17, 40])
def test_batches(rng, machine, kind, size):
    batch, shape = (3, 2), (size, size + 1, size + 2)
    m, n, k = shape
    a, b = operand(rng, m, k, F32, kind[0], batch), operand(rng, k, n, F32, kind[1], batch)
    product_of(a, b, np.full((*batch, m, n), np.nan, "f4"), F32, machine)


def test_broadcast_and_permuted_batches(rng):
    a = np.broadcast_to(operand(rng, 5, 6, F64, batch=(4, 1)), (4, 3, 5, 6))
    b = operand(rng, 6, 7, F64, batch=(3, 4)).swapaxes(0, 1)
    c = np.zeros((4, 5, 3, 7)).swapaxes(1, 2)
    product_of(a, b, c, F64, MACHINES[0])


# -- memory ----------------------------------------------------------------------------------


@pytest.fixture
def fenced():
    """Arrays that end, or begin, where memory that may not be touched is."""
    libc, page, kept = ctypes.CDLL(None), mmap.PAGESIZE, []

    def make(values, *, at_end):
        room = -(-values.nbytes // page) * page
        memory = mmap.mmap(-1, room + 2 * page)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for fence in (base, base + page + room):
            assert libc.mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(page), 0) == 0
        start = page + (room - values.nbytes if at_end else 0)
        x = np.frombuffer(memory, values.dtype, values.size, start).reshape(values.shape)
        x[...] = values
        kept.append((memory, base, room))
        return x

    yield make
    for _, base, room in kept:
        libc.mprotect(ctypes.c_void_p(base), ctypes.c_size_t(room + 2 * page), 3)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(7, 21, 19), (1, 37, 33), (37, 1, 33), (70, 3, 5)], ids=str)
def test_nothing_outside_is_touched(rng, fenced, machine, kind, sizes):
    m, n, k = sizes
    for t, at_end in product((F32, F64), (True, False)):
        a = fenced(numbers(rng, (m, k) if kind[0] == "n" else (k, m), t), at_end=at_end)
        b = fenced(numbers(rng, (k, n) if kind[1] == "n" else (n, k), t), at_end=at_end)
        c = fenced(np.zeros((m, n), DTYPES[t]), at_end=at_end)
        product_of(a if kind[0] == "n" else a.T, b if kind[1] == "n" else b.T, c, t, machine)


# -- chunks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sizes", [(130, 140, 150), (9, 1000, 300), (1000, 9, 300), (400, 400, 400)], ids=str
)
@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_the_order_of_chunks(rng, sizes, kind):
    m, n, k = sizes
    a, b = operand(rng, m, k, F32, kind[0]), operand(rng, k, n, F32, kind[1])
    first, second = (np.full((m, n), np.nan, "f4") for _ in range(2))
    kernel, info = compiled(geometry(a, b, first, F32), MACHINES[0])
    assert info.chunks > 1
    run(kernel, info, a, b, first)
    order = rng.permutation(info.chunks).tolist()
    run(kernel, info, a, b, second, order=[*order, *order])
    np.testing.assert_array_equal(first, second)


@given(length=st.integers(1, 5000), most=st.integers(1, 40))
def test_splits_are_even_and_whole(length, most):
    split = Split.of(length, most)
    sizes, edged = (
        [size for first, end, size, _ in split.segments(edge=edge) for _ in range(first, end)]
        for edge in (False, True)
    )
    assert sum(sizes) == length
    assert len(sizes) == split.count
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    assert edged == sizes


# -- epilogues -------------------------------------------------------------------------------


def bias_and_count(f, acc, batch, row, col, mask):
    """acc + bias[batch, row, col], and one more in a buffer that counts the calls."""
    t = acc.type
    bias, seen = (f.load(PTR, f.at(f.arg("bufs"), i, I64), 8) for i in (3, 4))
    place = f.add(f.mul(f.add(f.mul(batch, f.const(I64, 37)), row), f.const(I64, 45)), col)
    at = f.at(bias, place, t)
    x = f.masked_load(t, at, mask) if mask else f.load(t, at)
    spot = f.at(seen, place, t)
    old = f.masked_load(t, spot, mask) if mask else f.load(t, spot)
    new = f.add(old, f.const(t, 1))
    _ = f.masked_store(new, spot, mask) if mask else f.store(new, spot)
    return f.add(acc, x)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "sizes", [(37, 45, 20), (37, 45, 600), (1, 45, 40), (37, 1, 40)], ids=str
)
def test_an_epilogue_sees_each_result_once(rng, machine, kind, turned, sizes):
    m, n, k = sizes
    a, b = operand(rng, m, k, F32, kind[0], (2,)), operand(rng, k, n, F32, kind[1], (2,))
    c = operand(rng, m, n, F32, "t" if turned else "n", (2,))
    bias, seen = rng.standard_normal((2, 37, 45)).astype("f4"), np.zeros((2, 37, 45), "f4")
    kernel, info = compiled(geometry(a, b, c, F32), machine, bias_and_count)
    run(kernel, info, a, b, c, bias, seen)
    check(a, b, c, F32, lambda exact: exact + bias[:, :m, :n])
    assert (seen[:, :m, :n] == 1).all()
    assert seen.sum() == 2 * m * n


# -- other machines --------------------------------------------------------------------------


def test_neon_is_emitted():
    for kind in [(9, 1), (1, 9)]:
        module = Module(named("neon"))
        write_gemm(module, "kernel", Gemm(9, 9, 9, F32, kind, kind, (9, 1)), linkage="")
        Fn(module, "other", [], linkage="").done()
        assert object_code(module)
