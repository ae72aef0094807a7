"""The machine that programs are compiled for."""

import subprocess
import sys

import pytest

from retrograd.core.errors import ArgumentError
from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.machine import here, host, named
from retrograd.jit.llvm.native import compiled
from retrograd.jit.llvm.text import Module

ALL = ["avx512", "avx2", "sse2", "neon"]
PROGRAM = "import retrograd as rg; print(rg.jit(lambda x: rg.exp(x) + x)(rg.zeros(999))[7])"


def run(target):
    """A process that compiles for a machine."""
    environment = {"RETROGRAD_TARGET": target, "RETROGRAD_CACHE": "off"}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_this_machine_is_one_of_those_whose_code_runs_here():
    assert host().name in here()
    assert "host" not in here()
    assert set(here()) <= set(ALL)


@pytest.mark.parametrize("target", [*ALL, "host", "avx1024"])
def test_code_that_this_cpu_does_not_run_is_refused_and_ends_no_process(target):
    done = run(target)
    if target in (*here(), "host"):
        assert (done.returncode, done.stdout.strip()) == (0, "tensor(1.)")
    else:
        assert done.returncode == 1, "an error, not a signal"
        said = next(t for t in done.stderr.splitlines() if "ArgumentError:" in t)
        assert f"RETROGRAD_TARGET: got {target!r}" in said
        assert here()[0] in said


@pytest.mark.parametrize("name", ALL)
def test_a_module_for_another_cpu_is_not_loaded(name):
    module = Module(named(name))
    Fn(module, "nothing", [], linkage="external").done()
    if name in here():
        assert compiled(module).address("nothing")
    else:
        with pytest.raises(ArgumentError, match=name):
            compiled(module)
