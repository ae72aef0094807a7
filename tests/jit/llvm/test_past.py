"""Large results are stored past the caches, where they lie as registers do: the same bits."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.spec import spec_of
from retrograd.ir.trace import trace
from retrograd.jit.execute import Executable
from retrograd.jit.llvm import loops
from retrograd.jit.llvm.kernels import kernels_of
from retrograd.jit.llvm.machine import here, named
from retrograd.jit.llvm.native import object_code
from retrograd.jit.llvm.program import Writer, build
from retrograd.jit.passes import optimized

MACHINES = here()


def several(x):
    return [x * 2 + 1, rg.matrix_transpose(x), rg.nn.softmax(x), rg.sum(x, axis=0), x > 0]


def graph_of(f, *arrays):
    return optimized(trace(f, [spec_of(a) for a in arrays])[0], kernels_of)


@pytest.mark.parametrize("dtype", ["int8", "float32", "float64", "complex64", "int32"])
@pytest.mark.parametrize("machine", MACHINES)
def test_the_same_bits_as_through_the_caches(machine, dtype, rng, monkeypatch):
    f = several if dtype.startswith("f") else lambda x: [x * 3, x - 1]
    for shape in [(1, 1), (40, 37), (64, 256), (129, 1030)]:
        x = (rng.normal(size=shape) * 100).astype(dtype)
        wanted = Executable(build(graph_of(f, x), named(machine)))([x])
        with monkeypatch.context() as patch:
            patch.setattr(loops, "PAST", 0)
            program = build(graph_of(f, x), named(machine))
        for threads in (1, 2, 3):
            for got, want in zip(Executable(program, threads)([x]), wanted, strict=True):
                assert got.tobytes() == want.tobytes()


def donated(size, offset):
    """An array that begins so many numbers after a line."""
    room = np.zeros(size + 32, np.float32)
    start = -(room.ctypes.data // 4) % 16 + offset
    return room[start : start + size]


@pytest.mark.parametrize("offset", [0, 1, 4])
@pytest.mark.parametrize("same", [True, False])
def test_any_memory_of_the_result(offset, same, rng, monkeypatch):
    """On a line or off it; where the operand is, or beside it."""
    monkeypatch.setattr(loops, "PAST", 0)
    x, to = donated(100_003, offset), donated(100_003, offset)
    x[:] = rng.normal(size=x.size)
    wanted = x * 2 + 1
    f = (lambda x: [x * 2 + 1]) if same else (lambda to, x: [x * 2 + 1])
    given = [x] if same else [to, x]
    run = Executable(build(graph_of(f, *given), named(MACHINES[0]), (0,)))
    (found,) = run(given, (0,))
    np.testing.assert_array_equal(found, wanted)
    assert np.shares_memory(found, given[0])


@pytest.mark.parametrize("machine", ["avx512", "avx2", "sse2", "neon"])
def test_what_is_large_is_stored_past_the_caches_and_fenced(machine):
    def text(n, f=lambda x: x + 1):
        graph, _ = trace(lambda x: [f(x)], [spec_of(np.zeros(n, np.float32))])
        writer = Writer(optimized(graph, kernels_of), named(machine))
        writer.written()
        assert object_code(writer.module).startswith(b"\x7fELF")
        return writer.module.text()

    fence = "fence seq_cst" if machine == "neon" else "@llvm.x86.sse.sfence()"
    large, small = text(loops.PAST // 4), text(loops.PAST // 8)
    assert "!nontemporal" in large
    assert fence in large
    assert "!nontemporal" not in small
    copies = [text(n, lambda x: rg.concat([x, x])) for n in (loops.PAST // 8, loops.PAST // 4)]
    assert ["!nontemporal" in c for c in copies] == [False, True], "what is moved stays longer"


def test_what_is_read_again_stays_in_the_caches(monkeypatch):
    monkeypatch.setattr(loops, "PAST", 0)

    def text(f):
        writer = Writer(graph_of(f, np.zeros((64, 64), np.float32)), named("avx2"))
        writer.written()
        return writer.module.text()

    assert "!nontemporal" in text(lambda x: [x + 1])
    assert "!nontemporal" not in text(lambda x: [(x + 1) @ x])
    assert "!nontemporal" not in text(lambda x: [y := x + 1, y @ x])
