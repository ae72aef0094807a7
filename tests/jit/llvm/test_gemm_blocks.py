"""Matrix products that are packed, cut into blocks, or finished apart from their memory."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from retrograd.jit.llvm.gemm import Gemm
from retrograd.jit.llvm.gemm_plan import LARGE, make_plan
from retrograd.jit.llvm.machine import named
from retrograd.jit.llvm.text import F32, F64, I64, PTR
from tests.jit.llvm.test_gemm import (
    DTYPES,
    KINDS,
    MACHINES,
    check,
    compiled,
    geometry,
    operand,
    product_of,
    run,
)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("t", [F32, F64], ids=["f32", "f64"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [611, 483, 211])
def test_both_packed(rng, machine, t, kind, m):
    """Tiles of two heights, blocks of rows, of columns and of k; odd edges."""
    n, k = 533, 621
    a, b = operand(rng, m, k, t, kind[0]), operand(rng, k, n, t, kind[1])
    c = np.full((m, n), np.nan, DTYPES[t])
    plan = make_plan(geometry(a, b, c, t), named(machine))
    many = m >= LARGE * named(machine).registers
    assert plan.pack_a == many, "few rows are read where they are"
    assert plan.pack_b
    assert plan.keeps == (kind[1] == "n" and (plan.woven or not plan.pack_a))
    product_of(a, b, c, t, machine)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("t", [F32, F64], ids=["f32", "f64"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "sizes", [(611, 1117, 621), (1025, 1040, 515), (526, 2090, 737)], ids=str
)
def test_rows_of_tiles_that_pack_the_next(rng, machine, t, kind, sizes):
    """Tiles of two heights, uneven blocks of columns and of k: all is packed in time."""
    m, n, k = sizes
    a, b = operand(rng, m, k, t, kind[0]), operand(rng, k, n, t, kind[1])
    c = np.full((m, n), np.nan, DTYPES[t])
    product_of(a, b, c, t, machine)


@pytest.mark.parametrize("kind", KINDS)
def test_they_do_so_where_instructions_are_idle_and_change_no_bit(rng, kind):
    m, n, k = 1025, 1040, 515
    a, b = operand(rng, m, k, F32, kind[0]), operand(rng, k, n, F32, kind[1])
    for name in MACHINES:
        bits = set()
        for frugal in (False, True):
            c = np.full((m, n), np.nan, np.float32)
            machine = replace(named(name), frugal=frugal, cores=2)
            woven = make_plan(geometry(a, b, c, F32), machine).woven
            assert woven == (machine.masks and not frugal)
            run(*compiled(geometry(a, b, c, F32), name, frugal=frugal), a, b, c)
            bits.add(c.tobytes())
        assert len(bits) == 1


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(130, 700, 16), (37, 1031, 33), (600, 515, 1)], ids=str)
def test_few_terms_for_many_columns(rng, machine, kind, sizes):
    m, n, k = sizes
    for t in (F32, F64):
        a, b = operand(rng, m, k, t, kind[0]), operand(rng, k, n, t, kind[1])
        product_of(a, b, np.full((m, n), np.nan, DTYPES[t]), t, machine)


def test_blocks_of_rows_are_alike():
    for m, k in product((100, 256, 611, 2048), (256, 300, 1024)):
        gemm = Gemm(m, 2048, k, F32, (1, m), (2048, 1), (2048, 1))
        plan = make_plan(gemm, named("avx512"))
        mine = -(-plan.rows.count // plan.grid[1])
        blocks = -(-mine // plan.row_block)
        assert plan.row_block - mine // blocks <= 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(611, 533, 621), (300, 64, 64), (700, 300, 90)], ids=str)
def test_cores_cut_the_work_and_change_no_bit(rng, kind, sizes):
    m, n, k = sizes
    a, b = operand(rng, m, k, F32, kind[0]), operand(rng, k, n, F32, kind[1])
    chunks, bits = set(), set()
    for cores in (1, 2, 4, 16):
        c = np.full((m, n), np.nan, np.float32)
        kernel, info = compiled(geometry(a, b, c, F32), "host", cores=cores)
        run(kernel, info, a, b, c)
        chunks.add(info.chunks)
        bits.add(c.tobytes())
    assert len(chunks) > 1
    assert len(bits) == 1


def test_turns_that_share_an_operand_are_rows():
    rows, columns = (8, 1), (5, 1)
    gemm = Gemm(3, 5, 8, F32, rows, columns, columns, ((4, 48, 0, 30), (2, 24, 0, 15)))
    assert gemm.folded() == Gemm(24, 5, 8, F32, rows, columns, columns)
    single = Gemm(1, 5, 8, F32, (0, 1), columns, (0, 1), ((7, 8, 0, 5),))
    assert single.folded() == Gemm(7, 5, 8, F32, rows, columns, columns)
    other = Gemm(3, 5, 8, F32, rows, columns, columns, ((2, 24, 40, 15),))
    assert other.folded() == other


# -- results that replace what they are made of ----------------------------------------------


def update(c):
    """old - acc / 8, where old is what C holds."""
    steps = [s // c.itemsize for s in c.strides]

    def epilogue(f, acc, batch, row, col, mask):
        t, where = acc.type, zip((batch, row, col), steps, strict=True)
        old = f.load(PTR, f.at(f.arg("bufs"), 2, I64), 8)
        place = 0
        for index, step in where:
            place = f.plus(place, f.times(index, step))
        at = f.at(old, place, t)
        x = f.masked_load(t, at, mask) if mask else f.load(t, at)
        return f.sub(x, f.mul(acc, f.const(t, 0.125)))

    return epilogue


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "sizes", [(37, 45, 20), (37, 45, 500), (1, 45, 40), (37, 1, 40), (301, 257, 512)], ids=str
)
def test_an_update_in_place(rng, machine, kind, turned, sizes):
    m, n, k = sizes
    a, b = operand(rng, m, k, F32, kind[0], (2,)), operand(rng, k, n, F32, kind[1], (2,))
    c = operand(rng, m, n, F32, "t" if turned else "n", (2,))
    old = c.astype("f8")
    kernel, info = compiled(geometry(a, b, c, F32), machine, update(c), apart=True)
    run(kernel, info, a, b, c)
    check(a, b, c, F32, lambda exact: old - exact / 8)
