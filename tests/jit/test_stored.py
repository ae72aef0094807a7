"""Programs on disk: found by what was traced, they do all that a program just built does."""

import os
import subprocess
import sys

import numpy as np
import pytest

import retrograd as rg
from retrograd.core import sources
from retrograd.core.errors import BoundsError
from retrograd.core.exact import Exact
from retrograd.core.interpret import apply
from retrograd.ir.fingerprint import fingerprint
from retrograd.jit.llvm import cache, stored
from retrograd.jit.llvm.machine import chosen, named
from retrograd.ops.literal import Literal


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """An empty cache, and sources that nobody is just writing."""
    monkeypatch.setenv("RETROGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "stamp", lambda: "these")
    monkeypatch.setattr(sources, "unchanged", lambda: True)
    return tmp_path / "cache"


def program(f, *args, **options):
    """The program of a function that is jitted anew, and whether it came from the cache."""
    made = rg.jit(f, **options).lower(*args).compile()
    return made, "written" not in made.program.__dict__ and _from_cache(made.program)


def _from_cache(found):
    return found.how.__qualname__.startswith("compiled.")


def loss(x, w):
    return rg.sum(rg.tanh(x @ w) * 0.5), rg.nn.softmax(x)


def data(*shape, seed=0):
    return rg.asarray(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def test_the_second_is_found_and_gives_the_same_bits():
    x, w = data(5, 7), data(7, 3)
    first, found = program(loss, x, w)
    assert not found
    second, found = program(loss, x, w)
    assert found
    for a, b in zip(first(x, w), second(x, w), strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()
    assert second.program.taken(2) == first.program.taken(2)


def test_what_was_written_is_worked_out_when_asked():
    x, w = data(5, 7), data(7, 3)
    first, _ = program(loss, x, w)
    second, found = program(loss, x, w)
    assert found
    assert second.program.text == first.program.text
    assert second.program.graph == first.program.graph
    assert [s.what for s in second.program.steps] == [s.what for s in first.program.steps]
    assert second.program.spans == first.program.spans


def test_donated_memory_is_used():
    def step(w, g):
        return w - 0.1 * g

    w, g = data(300), data(300, seed=1)
    program(step, w, g, donate="w")
    made, found = program(step, w, g, donate="w")
    assert found
    assert made.program.reuse
    wanted = step(w, g)
    mine = rg.asarray(w.numpy(), copy=True)
    assert (made(mine, g).numpy() == wanted.numpy()).all()
    with pytest.raises(rg.RetrogradError):
        mine.numpy()


def test_large_literals_are_kept():
    table = np.random.default_rng(0).standard_normal(1000)

    def f(x):
        return apply(Literal(Exact(table))) + x, apply(Literal(Exact(table[::2]))) * x[::2]

    x = rg.asarray(np.ones(1000))
    first, _ = program(f, x)
    second, found = program(f, x)
    assert found
    assert len(second.program.constants) == 2
    assert (second(x)[0].numpy() == table + 1).all()
    assert (second(x)[1].numpy() == table[::2]).all()
    assert (first(x)[1].numpy() == table[::2]).all()


def test_errors_name_the_line_of_this_process():
    def one(x, i):
        return 0 + rg.take(x, i, axis=0)

    def other(x, i):  # the same in another place
        return 0 + rg.take(x, i, axis=0)

    x, i = data(4, 3), rg.asarray(np.array([0, 9]))
    program(one, x, i)
    made, found = program(other, x, i)
    assert found
    with pytest.raises(BoundsError, match="index 9") as caught:
        made(x, i)
    line = other.__code__.co_firstlineno + 1
    assert f"test_stored.py:{line}" in str(caught.value)


def test_calls_of_python_are_found_again():
    def f(x):
        return rg.sort(rg.linalg.eigvalsh(x @ x.T)) * 2

    x = data(6, 6)
    first, _ = program(f, x)
    second, found = program(f, x)
    assert len(second.program.hosts) == len(first.program.hosts)
    assert found
    assert (second(x).numpy() == first(x).numpy()).all()


def test_functions_of_the_user_are_not_kept(capsys):
    def f(x):
        rg.debug.print("x is {}", x)
        return x + 1

    x = data(3)
    program(f, x)
    made, _ = program(f, x)
    made(x)
    assert "x is" in capsys.readouterr().out


# -- keys ----------------------------------------------------------------------------------


def key(f, *args, donated=(), machine="avx2", fast=False):
    graph = rg.jit(f).lower(*args).graph
    found = stored.key_of(graph, donated, named(machine), fast=fast)
    return found and found.name


def test_all_that_matters_is_in_the_key(monkeypatch):
    x = data(4)
    keys = [
        key(lambda x: x * 2.0 + 1.0, x),
        key(lambda x: x * 2.0 - 1.0, x),
        key(lambda x: x * 2.0 + np.nextafter(np.float32(1), np.float32(2)), x),
        key(lambda x: x * 2.0 + 0.0, x),
        key(lambda x: x * 2.0 + -0.0, x),
        key(lambda x: x * 2.0 + 1.0, data(5)),
        key(lambda x: x * 2.0 + 1.0, rg.astype(x, rg.float64)),
        key(lambda x: x * 2.0 + 1.0, x, donated=(0,)),
        key(lambda x: x * 2.0 + 1.0, x, fast=True),
        key(lambda x: x * 2.0 + 1.0, x, machine="sse2"),
        key(lambda x: (x * 2.0 + 1.0, x), x),
        key(lambda x: rg.fori_loop(0, 3, lambda i, y: y * 2.0, x), x),
        key(lambda x: rg.fori_loop(0, 3, lambda i, y: y * 3.0, x), x),
    ]
    monkeypatch.setattr(sources, "stamp", lambda: "others")
    keys.append(key(lambda x: x * 2.0 + 1.0, x))
    monkeypatch.setattr(np, "__version__", "0.0")
    keys.append(key(lambda x: x * 2.0 + 1.0, x))
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_lines_matter_only_as_a_pattern():
    def one(x):
        return rg.exp(x) + rg.sin(x)

    def apart(x):
        y = rg.exp(x)
        return y + rg.sin(x)

    def renamed(z):
        return rg.exp(z) + rg.sin(z)

    x = data(3)
    assert key(one, x) == key(renamed, x)
    prints = {fingerprint(rg.jit(f).lower(x).graph).text for f in (one, apart, renamed)}
    assert len(prints) <= 2


def test_doubt_is_no_key(monkeypatch):
    x = data(3)
    monkeypatch.setattr(sources, "stamp", lambda: "")
    assert key(lambda x: x + 1, x) is None
    monkeypatch.setattr(sources, "stamp", lambda: "these")
    monkeypatch.setenv("RETROGRAD_CACHE", "off")
    assert key(lambda x: x + 1, x) is None


def test_sources_that_changed_meanwhile_keep_nothing(place, monkeypatch):
    monkeypatch.setattr(sources, "unchanged", lambda: False)
    x, w = data(5, 7), data(7, 3)
    program(loss, x, w)
    assert not program(loss, x, w)[1]


# -- damage --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cut", "flipped", "gone"])
@pytest.mark.parametrize("which", ["smaller", "larger", "all"])
def test_damaged_files_are_made_again(place, how, which):
    x, w = data(5, 7), data(7, 3)
    program(loss, x, w)
    files = sorted(place.glob("*.object"), key=lambda p: p.stat().st_size)
    for path in {"smaller": files[:1], "larger": files[-1:], "all": files}[which]:
        whole = path.read_bytes()
        middle = len(whole) // 2
        if how == "gone":
            path.unlink()
        elif how == "cut":
            path.write_bytes(whole[:middle])
        else:
            path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    made, _ = program(loss, x, w)
    assert np.allclose(made(x, w)[0].numpy(), loss(x, w)[0].numpy())
    assert program(loss, x, w)[1]


@pytest.mark.parametrize("text", [b"", b"\0" * 8, b"\xff" * 40, b"\2\0\0\0\0\0\0\0{}", b"[]"])
def test_a_whole_file_with_strange_contents(place, text):
    x, w = data(5, 7), data(7, 3)
    graph = rg.jit(loss).lower(x, w).graph
    cache.keep(stored.key_of(graph, (), chosen(), fast=False).name, text)
    made, found = program(loss, x, w)
    assert not found
    assert np.allclose(made(x, w)[0].numpy(), loss(x, w)[0].numpy())


def test_another_process_neither_plans_nor_writes(place):
    code = """
import sys, numpy as np, retrograd as rg
from retrograd.core import sources
sources.stamp, sources.unchanged = lambda: "these", lambda: True
f = rg.jit(lambda x: rg.sum(rg.tanh(x @ x)))
print(f(np.eye(5)).numpy().tobytes().hex(), "retrograd.jit.fuse" in sys.modules)
"""
    found = []
    for _ in range(2):
        env = {**os.environ, "RETROGRAD_CACHE": str(place), "PYTHONPATH": os.getcwd()}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        found.append(done.stdout.split())
    assert found[0][0] == found[1][0]
    assert [wrote for _, wrote in found] == ["True", "False"]


def test_literals_of_the_user_are_not_in_the_file(place):
    table = np.random.default_rng(3).standard_normal(500)

    def f(x):
        return apply(Literal(Exact(table))) * x

    program(f, rg.asarray(np.ones(500)))
    for path in place.glob("*.object"):
        assert table.tobytes()[:64] not in path.read_bytes()
    made, found = program(f, rg.asarray(np.ones(500)))
    assert found
    assert (made(np.ones(500)).numpy() == table).all()
