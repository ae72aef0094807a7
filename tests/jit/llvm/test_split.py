"""Large modules are compiled in two halves, at the same time: what they compute is the same."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import retrograd as rg
from retrograd.jit.llvm import native, split
from retrograd.jit.llvm.machine import host, named
from retrograd.jit.llvm.text import Module


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch: pytest.MonkeyPatch) -> Any:
    before = rg.get_threads()
    rg.set_threads(2)
    monkeypatch.setattr(split, "LARGE", 0)
    yield
    rg.set_threads(before)


def adder(name: str, n: int, linkage: str = "internal ") -> str:
    head = f"define {linkage}i64 @{name}(i64 %x) nounwind noinline"
    return f"{head} {{\nentry:\n  %y = add i64 %x, {n}\n  ret i64 %y\n}}"


def caller(name: str, other: str, linkage: str = "internal ") -> str:
    head = f"define {linkage}i64 @{name}(i64 %x) nounwind noinline"
    return f"{head} {{\nentry:\n  %y = call i64 @{other}(i64 %x)\n  ret i64 %y\n}}"


def tabled(names: list[str], machine: Any = None) -> Module:
    """A function that calls one of others, by a table."""
    m = Module(machine or host())
    rows = ", ".join(f"ptr @{n}" for n in names)
    m.globals[f"[{len(names)} x ptr] [{rows}], align 64"] = "rows"
    m.functions["choose"] = (
        "define i64 @choose(i64 %x) nounwind {\nentry:\n"
        "  %p = getelementptr ptr, ptr @rows, i64 %x\n  %f = load ptr, ptr %p\n"
        "  %r = call i64 %f(i64 %x)\n  ret i64 %r\n}"
    )
    return m


def many(machine: Any = None) -> Module:
    m = tabled(["a", "b", "c", "d"], machine)
    m.functions |= {n: adder(n, 10 * k) for k, n in enumerate("abc")}
    m.functions["e"] = adder("e", 70)
    m.functions["d"] = caller("d", "e")
    return m


def test_two_parts_are_the_whole() -> None:
    whole = many()
    found = split.parts(whole)
    assert found is not None
    first, second, names = found
    assert {*first.functions, *second.functions} == {*whole.functions}
    assert not {*first.functions} & {*second.functions}
    assert "choose" in first.functions
    assert names == sorted({"a", "b", "c", "d"} & {*second.functions})
    assert ("d" in first.functions) == ("e" in first.functions)  # they call each other
    lines = [p.text().count("\n") for p in (first, second)]
    assert max(lines) < 2 * min(lines)


def test_parts_find_each_other() -> None:
    code = native.object_code(many())
    assert code.startswith(native.object_code(many())[:4])
    assert split.objects(code)[1]
    address = native.library(code).address("choose")
    choose = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)
    assert [choose(k) for k in range(4)] == [0, 11, 22, 73]


def test_names_of_another_library_are_not_taken() -> None:
    found = []
    for more in (0, 100):
        m = many()
        m.functions |= {n: adder(n, 10 * k + more) for k, n in enumerate("abc")}
        address = native.library(native.object_code(m)).address("choose")
        found.append(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address))
    assert [[f(k) for k in range(4)] for f in found] == [[0, 11, 22, 73], [100, 111, 122, 73]]


def test_what_calls_each_other_is_one() -> None:
    m = Module(host())
    m.functions = {"a": caller("a", "b", ""), "b": adder("b", 1)}
    assert split.parts(m) is None


def test_functions_of_one_text_are_not_torn_apart() -> None:
    m = many()
    m.functions["a"] += "\n" + adder("inner", 5)
    m.functions["b"] = caller("b", "inner")
    assert split.parts(m) is None


def test_small_modules_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "LARGE", 10**6)
    assert split.parts(many()) is None
    assert split.objects(native.object_code(many()))[1:] == (b"", [])


def test_one_thread_makes_one_object() -> None:
    rg.set_threads(1)
    assert not split.objects(native.object_code(many()))[1]


def test_without_a_way_around_the_lock_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_unlocked", lambda: None)
    assert not split.objects(native.object_code(many()))[1]


@pytest.mark.parametrize("at", [0, 1])
def test_what_goes_wrong_in_a_part_is_raised(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    emit = native._unlocked()
    assert emit is not None
    targets = [native._target(host(), 1), native._other_target(host(), 1)]

    def failing(target: Any, parsed: Any) -> bytes:
        if target is targets[at]:
            raise RuntimeError("no code")
        return emit(target, parsed)

    monkeypatch.setattr(native, "_unlocked", lambda: failing)
    with pytest.raises(RuntimeError, match="no code"):
        native.object_code(many())


def test_for_another_machine() -> None:
    first, second, _ = split.objects(native.object_code(many(named("neon"))))
    assert first.startswith(b"\x7fELF")
    assert second.startswith(b"\x7fELF")


# -- programs ----------------------------------------------------------------------------------


def layers(params: Any, x: Any) -> Any:
    """More nodes than a short program has."""
    for k, w in enumerate(params):
        x = rg.tanh(x @ w + k) * rg.sigmoid(x) + rg.mean(x, axis=-1, keepdims=True)
    return rg.sum(x * x)


def test_programs_compute_the_same_bits(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    params = [rg.asarray(rng.normal(size=(16, 16)).astype(np.float32) / 4) for _ in range(12)]
    x = rg.asarray(rng.normal(size=(8, 16)).astype(np.float32))
    made: list[int] = []
    real = native.library
    monkeypatch.setattr(
        native, "library", lambda c: made.append(len(split.objects(c)[1])) or real(c)
    )
    found = []
    for place, large in (("one", 10**9), ("two", 0), ("two", 0)):  # the last from the cache
        monkeypatch.setenv("RETROGRAD_CACHE", str(tmp_path / place))
        monkeypatch.setattr(split, "LARGE", large)
        value, grads = rg.jit(rg.value_and_grad(layers))(params, x)
        found.append([value.numpy(), *(g.numpy() for g in grads)])
    assert [bool(n) for n in made[-3:]] == [False, True, True]  # before may be the pool
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
