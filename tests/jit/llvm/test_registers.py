"""Sums of products stay in registers: through memory they take three times as long."""

import dataclasses
import re

import pytest

from retrograd.jit.llvm.gemm import Gemm, write_gemm
from retrograd.jit.llvm.machine import named
from retrograd.jit.llvm.native import assembly
from retrograd.jit.llvm.text import F32, Module

STACKED = re.compile(r"[yz]mm\d+, -?\d*\(%(r[sb]p)\)|\(%(r[sb]p)\)(\{\w+\})?, %[yz]mm")
FRAME = "%rsp, %rbp"  # without it rbp is a register like others
SIZES = [  # rows, columns, steps of k
    (14, 32, 300),
    (18, 45, 200),
    (28, 30, 100),
    (200, 27, 333),
    (256, 256, 256),
    (520, 40, 520),
    (1000, 1000, 1000),
]
PLAIN = [s for s in SIZES if s[1] % 8 == 0]  # AVX2's mask of a last vector takes a register
KINDS = ["nn", "nt", "tn", "tt"]


def stacked(module):
    """Instructions of tiles that move vectors to the stack or from there."""
    function, stack, found = "", set(), []
    for line in assembly(module).splitlines():
        if line.endswith(":") and not line.startswith("."):
            function, stack = line, {"rsp"}
        if FRAME in line:
            stack.add("rbp")
        moved = STACKED.search(line)
        if function.startswith("gemm_tile") and moved and stack & {*moved.groups()}:
            found.append(function + line)
    return found


@pytest.mark.sampled(12)
@pytest.mark.parametrize("cpu", ["", "cascadelake", "haswell", "graniterapids"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("machine", "size"),
    [*(("avx512", s) for s in SIZES), *(("avx2", s) for s in PLAIN)],
    ids=str,
)
def test_sums_stay_in_registers(machine, cpu, kind, size):
    m, n, k = size
    a = (k, 1) if kind[0] == "n" else (1, m)
    b = (n, 1) if kind[1] == "n" else (1, k)
    target = dataclasses.replace(named(machine), tune=cpu, frugal=bool(cpu))
    module = Module(target)
    write_gemm(module, "product", Gemm(m, n, k, F32, a, b, (n, 1)), linkage="")
    assert not stacked(module)
