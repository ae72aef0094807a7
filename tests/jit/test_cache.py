"""The cache on disk: it saves time, and nothing that happens to it does more than cost time."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path

import pytest

from retrograd.core.errors import ArgumentError
from retrograd.jit.llvm import cache, native
from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.machine import host, named
from retrograd.jit.llvm.text import I64, Module

ROOT = Path(__file__).resolve().parents[2]
CODE = bytes(range(256)) * 20


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty cache; its directory, which does not exist yet."""
    where = tmp_path / "cache"
    monkeypatch.setenv("RETROGRAD_CACHE", str(where))
    monkeypatch.delenv("RETROGRAD_CACHE_SIZE", raising=False)
    monkeypatch.setattr(cache, "_counts", dict.fromkeys(cache._counts, 0))
    monkeypatch.setattr(cache, "_warned", set())
    return where


class Maker:
    """A `make` that counts how often it was needed."""

    def __init__(self, code=CODE):
        self.code, self.calls = code, 0

    def __call__(self):
        self.calls += 1
        return self.code


def refuse():
    pytest.fail("it was in the cache")


def counts():
    found = cache.stats()
    return found.hits, found.misses, found.faults


def only(where):
    (path,) = where.iterdir()
    return path


# -- in good times -------------------------------------------------------------------------


def test_made_once(place):
    assert cache.load("a", Maker()) == CODE
    assert cache.load("a", refuse) == CODE
    assert counts() == (1, 1, 0)
    assert cache.load("b", Maker(b"other")) == b"other"
    assert cache.load("c", Maker(b"")) == b""
    assert cache.load("c", refuse) == b""
    found = cache.stats()
    assert found.entries == 3
    assert found.bytes == sum(p.stat().st_size for p in place.iterdir())
    assert found.directory == str(place)


def test_only_its_owner_can_read_or_write_it(place):
    cache.load("a", Maker())
    assert place.stat().st_mode & 0o777 == 0o700
    assert only(place).stat().st_mode & 0o077 == 0


def test_an_error_of_the_maker_leaves_nothing(place):
    def broken():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cache.load("a", broken)
    assert list(place.iterdir()) == []
    assert cache.load("a", Maker()) == CODE


def test_clear(place):
    assert cache.clear() == 0
    cache.load("a", Maker())
    cache.load("b", Maker())
    place.joinpath("notes.txt").write_text("not ours")
    place.joinpath("left.part").write_bytes(b"half")
    assert cache.clear() == 2
    assert [p.name for p in place.iterdir()] == ["notes.txt"]
    assert cache.stats().entries == 0


def test_where_it_is(monkeypatch, tmp_path):
    monkeypatch.setattr(cache, "_private", lambda path: True)
    monkeypatch.setenv("RETROGRAD_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.directory() == str(tmp_path / "xdg" / "retrograd")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.directory() == str(tmp_path / ".cache" / "retrograd")
    monkeypatch.setenv("RETROGRAD_CACHE", "~/mine")
    assert cache.directory() == str(tmp_path / "mine")


@pytest.mark.parametrize("told", ["off", "OFF", "0"])
def test_off(told, place, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RETROGRAD_CACHE", told)
    make = Maker()
    assert cache.load("a", make) == cache.load("a", make) == CODE
    assert make.calls == 2
    assert cache.stats()[:3] == (None, 0, 0)
    assert cache.clear() == 0
    assert not (tmp_path / told).exists()


# -- its size ------------------------------------------------------------------------------


def test_the_least_recently_used_go(place, monkeypatch):
    monkeypatch.setattr(cache, "_PRUNE_EVERY", 1)
    monkeypatch.setenv("RETROGRAD_CACHE_SIZE", f"{len(CODE) * 4}")
    past = time.time() - 1000
    for n, key in enumerate("abc"):
        before = set(place.iterdir()) if place.exists() else set()
        cache.load(key, Maker())
        (new,) = set(place.iterdir()) - before
        os.utime(new, (past + n, past + n))
    cache.load("a", refuse)  # used just now: b is the oldest
    cache.load("d", Maker())
    for key in "acd":
        assert cache.load(key, refuse) == CODE
    again = Maker()
    cache.load("b", again)
    assert again.calls == 1
    assert cache.stats().bytes <= cache.limit()


def test_what_is_larger_than_the_cache_is_not_kept(place, monkeypatch):
    monkeypatch.setenv("RETROGRAD_CACHE_SIZE", "1 KB")
    assert cache.load("a", Maker()) == CODE
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ("", 1 << 30),
        ("0", 0),
        ("17", 17),
        ("500 MB", 500 * 10**6),
        ("1.5GiB", 3 << 29),
        (" 2 kib ", 2048),
    ],
)
def test_how_large(monkeypatch, told, wanted):
    monkeypatch.setenv("RETROGRAD_CACHE_SIZE", told)
    assert cache.limit() == wanted


@pytest.mark.parametrize("told", ["much", "-1", "1 XB", "GiB", "1 2"])
def test_a_size_that_is_none(monkeypatch, told):
    monkeypatch.setenv("RETROGRAD_CACHE_SIZE", told)
    with pytest.raises(ArgumentError, match=r"RETROGRAD_CACHE_SIZE: got .*; it is bytes, such"):
        cache.limit()


# -- damage --------------------------------------------------------------------------------

SIZE = len(CODE)
DAMAGE = {
    "empty": lambda b: b"",
    "cut in the header": lambda b: b[:20],
    "only the header": lambda b: b[: len(b) - SIZE],
    "cut in the object": lambda b: b[:-1],
    "longer": lambda b: b + b"x",
    "a byte of the object": lambda b: b[:-100] + bytes([b[-100] ^ 1]) + b[-99:],
    "a byte of the digest": lambda b: b[:30] + bytes([b[30] ^ 1]) + b[31:],
    "another version": lambda b: b[:8] + b"\xff" + b[9:],
    "another kind of file": lambda b: b"\x7fELF" + b[4:],
    "zeros, as after a crash": lambda b: bytes(len(b)),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_made_anew(place, kind):
    cache.load("a", Maker())
    path = only(place)
    whole = path.read_bytes()
    path.write_bytes(DAMAGE[kind](whole))
    make = Maker()
    assert cache.load("a", make) == CODE
    assert make.calls == 1
    assert counts() == (0, 2, 1)
    assert path.read_bytes() == whole
    assert cache.load("a", refuse) == CODE


def test_a_file_under_another_key_is_not_taken(place):
    cache.load("a", Maker())
    path = only(place)
    cache.load("b", Maker(b"b's"))
    (other,) = set(place.iterdir()) - {path}
    other.write_bytes(path.read_bytes())
    assert cache.load("b", Maker(b"b's")) == b"b's"


def test_a_directory_in_place_of_a_file(place):
    cache.load("a", Maker())
    path = only(place)
    path.unlink()
    path.mkdir()
    assert cache.load("a", Maker()) == CODE
    assert cache.load("a", Maker()) == CODE
    assert [p for p in place.iterdir() if p.name.endswith(".part")] == []


# -- the disk ------------------------------------------------------------------------------


def test_the_directory_vanishes(place):
    cache.load("a", Maker())
    only(place).unlink()
    place.rmdir()
    assert cache.stats().entries == 0
    assert cache.load("a", Maker()) == CODE
    assert cache.load("a", refuse) == CODE


def test_no_directory_can_be_made(place):
    place.write_text("a file is in the way")
    make = Maker()
    assert cache.load("a", make) == cache.load("a", make) == CODE
    assert make.calls == 2
    assert cache.stats().directory is None or cache.stats().entries == 0
    assert cache.stats().faults >= 1
    assert cache.clear() == 0


@pytest.mark.parametrize("call", ["open", "fsync", "replace", "makedirs"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_refuses(place, monkeypatch, call, number):
    def refused(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, refused)
    make = Maker()
    assert cache.load("a", make) == CODE
    assert cache.stats().faults == 1
    monkeypatch.undo()
    assert not place.exists() or list(place.iterdir()) == []


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere"
)
def test_a_read_only_directory(place):
    cache.load("a", Maker())
    place.chmod(0o500)
    try:
        assert cache.load("a", refuse) == CODE
        assert cache.load("b", Maker()) == CODE
        assert cache.stats().faults == 1
    finally:
        place.chmod(0o700)


def test_an_interrupted_write_leaves_nothing(place, monkeypatch):
    def interrupted(number):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cache.load("a", Maker())
    assert list(place.iterdir()) == []
    assert cache.load("a", Maker()) == CODE


# -- other users ---------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners on this system")
def test_a_directory_that_others_can_write_is_not_used(place):
    place.mkdir()
    place.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="can be written by, other users"):
        cache.load("a", Maker())
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it was said once
        cache.load("a", Maker())
    assert list(place.iterdir()) == []
    place.chmod(0o700)
    cache.load("a", Maker())
    assert cache.load("a", refuse) == CODE


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners on this system")
def test_a_directory_of_somebody_else_is_not_used(place, monkeypatch):
    place.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: place.stat().st_uid + 1)
    with pytest.warns(RuntimeWarning, match="belongs to"):
        assert cache.load("a", Maker()) == CODE
    assert list(place.iterdir()) == []


# -- several at once -----------------------------------------------------------------------


def python(text, place, **options):
    """A process that runs Python code with `cache` and `CODE`."""
    head = "from retrograd.jit.llvm import cache\nCODE = bytes(range(256)) * 20\n"
    return subprocess.Popen(
        [sys.executable, "-c", head + textwrap.dedent(text)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "RETROGRAD_CACHE": str(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_processes_that_write_the_same_keys(place):
    """Each deletes, writes and reads; nobody ever sees anything but whole files."""
    text = """
        import os
        for turn in range(15):
            for key in "abc":
                assert cache.load(key, lambda: key.encode() * 5000) == key.encode() * 5000
            if turn % 4 == 0:
                cache.clear()
        assert cache.stats().faults == 0, cache.stats()
    """
    # A file that is cleared between a write and its use is a miss; a part that is cleared
    # under its writer is a refused write. Only one process clears, and none shares its parts.
    calm = text.replace("cache.clear()", "pass")
    running = [python(calm, place) for _ in range(3)]
    for process in running:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
    assert sorted(p.suffix for p in place.iterdir()) == [".object"] * 3

    running = [python(text.replace("faults == 0", "faults >= 0"), place) for _ in range(3)]
    for process in running:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_killed_writer_leaves_no_broken_file(place, call):
    text = f"""
        import os, signal
        os.{call} = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
        cache.load("a", lambda: CODE)
    """
    process = python(text, place)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    left = list(place.iterdir())
    assert [p.suffix for p in left] == [".part"]
    assert cache.stats().entries == 0
    long_ago = time.time() - 2 * cache._STALE
    os.utime(left[0], (long_ago, long_ago))
    assert cache.load("a", Maker()) == CODE  # its first write sweeps
    assert only(place).suffix == ".object"
    assert cache.load("a", refuse) == CODE


def test_threads(place):
    faults = []

    def user():
        for n in range(30):
            code = f"{n % 5}".encode() * 1000
            if cache.load(f"{n % 5}", lambda code=code: code) != code:
                faults.append(n)

    threads = [threading.Thread(target=user) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults
    assert cache.stats().entries == 5
    assert cache.stats().faults == 0


# -- what the compiler keeps ---------------------------------------------------------------


def answer(machine, number):
    module = Module(machine)
    f = Fn(module, "answer", [], I64, linkage="")
    f.done(f.const(I64, number))
    return module


def test_a_module_is_compiled_once(place, monkeypatch):
    code = []
    real = native.object_code
    monkeypatch.setattr(native, "object_code", lambda m: code.append(m) or real(m))
    for _ in range(2):
        assert native.compiled(answer(host(), 41)).address("answer")
    assert len(code) == 1
    native.compiled(answer(host(), 42))
    assert len(code) == 2
    only_of = {p.name for p in place.iterdir()}
    assert len(only_of) == 2


def test_a_damaged_object_is_compiled_again(place):
    native.compiled(answer(host(), 41))
    path = only(place)
    path.write_bytes(path.read_bytes()[:-50])
    assert native.compiled(answer(host(), 41)).address("answer")
    assert counts() == (0, 2, 1)


def test_another_cpu_or_version_is_another_key(monkeypatch):
    keys = {native._key(answer(named(kind), 1)) for kind in ("avx512", "avx2", "sse2", "neon")}
    keys.add(native._key(answer(named("avx2"), 2)))
    monkeypatch.setattr(native.llvmlite, "__version__", "0.0")
    keys.add(native._key(answer(named("avx2"), 1)))
    monkeypatch.setattr(sys.modules["retrograd"], "__version__", "0.0")
    keys.add(native._key(answer(named("avx2"), 1)))
    assert len(keys) == 7
