"""The table of kernels: each is there, belongs to an op, and is loaded only when asked for."""

import subprocess
import sys

import pytest

import retrograd as rg
from retrograd.core.op import REGISTRY
from retrograd.jit.llvm.kernels import KERNELS, _loaded
from retrograd.jit.llvm.launches import Kernels


@pytest.mark.parametrize("native", KERNELS)
def test_every_kernel_can_be_loaded(native):
    assert issubclass(_loaded(native), Kernels)
    assert _loaded(native).__name__ == KERNELS[native][1]


def test_ops_say_names_that_are_in_the_table():
    assert all((rg.nn, rg.linalg, rg.fft, rg.ssm, rg.distances))  # which loads all ops
    said = {op.native for op in REGISTRY.values() if isinstance(op.native, str)}
    assert said - {""} == set(KERNELS)


def test_a_program_loads_no_kernels_that_it_has_not():
    program = (
        "import sys, retrograd as rg; rg.jit(lambda x: rg.tanh(x @ x))(rg.ones((8, 8)));"
        "print(*sys.modules)"
    )
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    modules = {f"retrograd.jit.llvm.{module}" for module, _ in KERNELS.values()}
    assert "retrograd.jit.llvm.gemm" in loaded
    assert not modules.intersection(loaded)
