"""What can go wrong outside of a program: it still runs or raises cleanly, and works again."""

import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import retrograd as rg
from retrograd.testing import assert_close

STEP = """
import numpy as np
import retrograd as rg
from retrograd.jit.llvm import cache

@rg.jit
def f(x):
    return rg.sum(rg.tanh(x @ x)), rg.nn.softmax(x)

x = np.arange(12.0).reshape(3, 4)[:, :3] / 10
x = np.ascontiguousarray(x[:3])
found = f(x)
wanted = f.function(rg.asarray(x))
for a, b in zip(found, wanted):
    assert np.allclose(a, b), (a, b)
print("fine", cache.stats().hits, cache.stats().misses)
"""


def environment(**more):
    return {**os.environ, "PYTHONPATH": os.getcwd(), **{k: str(v) for k, v in more.items()}}


def run(text=STEP, **more):
    """What a new process prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment(**more),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def entries(where):
    return sorted(p for p in where.iterdir() if p.name.endswith(".object"))


# -- the cache on disk -----------------------------------------------------------------------


@pytest.fixture
def filled(tmp_path):
    where = tmp_path / "cache"
    assert run(RETROGRAD_CACHE=where)[:2] == ["fine", "0"]
    assert entries(where)
    return where


def test_the_next_process_compiles_nothing(filled):
    word, _, misses = run(RETROGRAD_CACHE=filled)
    assert (word, misses) == ("fine", "0")


@pytest.mark.parametrize("how", ["cut", "empty", "flipped", "foreign", "directory"])
def test_damaged_files_are_made_again(filled, how):
    for path in entries(filled):
        whole = path.read_bytes()
        middle = len(whole) // 2
        damaged = {
            "cut": whole[:middle],
            "empty": b"",
            "flipped": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
            "foreign": b"\x7fELF" + os.urandom(1000),
            "directory": None,
        }[how]
        path.unlink()
        if damaged is None:
            path.mkdir()
        else:
            path.write_bytes(damaged)
    word, hits, _ = run(RETROGRAD_CACHE=filled)
    assert (word, hits) == ("fine", "0")
    if how != "directory":
        assert run(RETROGRAD_CACHE=filled)[2] == "0"


def test_a_directory_that_is_missing_is_made(tmp_path):
    where = tmp_path / "a" / "b"
    assert run(RETROGRAD_CACHE=where)[0] == "fine"
    assert entries(where)


def test_a_directory_that_cannot_be_written_or_made(tmp_path):
    """Read-only, or under a file: the program runs, and nothing is kept."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    (tmp_path / "file").write_text("")
    for where in (closed, tmp_path / "file" / "below", "/proc/nowhere", "off"):
        assert run(RETROGRAD_CACHE=where)[0] == "fine"


def test_a_full_disk(tmp_path):
    """No more bytes may be written to a file than a few: as on a full disk."""
    head = """
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    """
    text = textwrap.dedent(head) + STEP
    assert run(text, RETROGRAD_CACHE=tmp_path)[0] == "fine"
    assert run(RETROGRAD_CACHE=tmp_path)[0] == "fine"


def test_a_process_that_is_killed_while_it_compiles(tmp_path):
    """At any moment; the next one finds nothing, or a whole object."""
    text = STEP.replace("found =", 'print("started", flush=True)\nfound =', 1)
    for delay in (0.0, 0.02, 0.04, 0.07, 0.1):
        process = subprocess.Popen(
            [sys.executable, "-c", text],
            stdout=subprocess.PIPE,
            env=environment(RETROGRAD_CACHE=tmp_path),
        )
        process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert run(RETROGRAD_CACHE=tmp_path)[0] == "fine"
    assert run(RETROGRAD_CACHE=tmp_path)[2] == "0"


def test_processes_that_compile_the_same_at_once(tmp_path):
    many = [
        subprocess.Popen(
            [sys.executable, "-c", STEP],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(RETROGRAD_CACHE=tmp_path),
        )
        for _ in range(3)
    ]
    for process in many:
        out, _ = process.communicate(timeout=300)
        assert out.startswith("fine")
    assert run(RETROGRAD_CACHE=tmp_path)[2] == "0"


# -- processes and threads -------------------------------------------------------------------

LARGE = np.random.default_rng(0).normal(size=(400, 500)).astype(np.float32)


def work(x):
    return rg.sum(rg.tanh(x) * x, axis=0), rg.nn.softmax(x)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX, where it is loaded
def test_fork_after_use():
    """A child has the program and no threads of the pool: it starts its own."""
    f = rg.jit(work, threads=3)
    wanted = [np.asarray(t).tobytes() for t in f(LARGE)]
    for _ in range(3):
        child = os.fork()
        if child == 0:
            same = [np.asarray(t).tobytes() for t in f(LARGE)] == wanted
            new = rg.jit(lambda x: rg.sum(x * 2), threads=2)(LARGE)
            os._exit(0 if same and np.isfinite(float(new)) else 1)
        assert [np.asarray(t).tobytes() for t in f(LARGE)] == wanted
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def soak(calls):
    """So many calls of one function from four threads; how many bytes the process grew by."""
    f = rg.jit(lambda x, n: (rg.sum(rg.exp(x) * n, axis=0), x + n), threads=2)
    donating = rg.jit(lambda s, n: s + n, donate="s")
    x = rg.asarray(LARGE[:100, :50])
    wanted = [np.asarray(t) for t in f(x, 2.0)]
    failures = []

    def user(number):
        state = rg.zeros(1000)
        for n in range(calls // 8):
            found = f(x, 2.0)
            state = donating(state, 1.0)
            if any(
                np.asarray(a).tobytes() != b.tobytes()
                for a, b in zip(found, wanted, strict=True)
            ):
                failures.append((number, n))
        if np.asarray(state).tolist() != [calls // 8] * 1000:
            failures.append((number, "state"))

    def all_users():
        users = [threading.Thread(target=user, args=(i,)) for i in range(4)]
        for u in users:
            u.start()
        for u in users:
            u.join()

    all_users()
    before = resident()
    all_users()
    assert not failures
    return resident() - before


def resident():
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_four_threads_call_one_function():
    assert soak(2_000) < 8 << 20


@pytest.mark.slow
def test_a_hundred_thousand_calls_from_four_threads():
    assert soak(100_000) < 8 << 20


def test_threads_that_compile_the_same_function_at_once():
    f, found = rg.jit(work), []
    users = [threading.Thread(target=lambda: found.append(f(LARGE))) for _ in range(4)]
    for u in users:
        u.start()
    for u in users:
        u.join()
    assert f.traces == 1
    assert len(found) == 4
    assert len({np.asarray(a).tobytes() for a, _ in found}) == 1


def test_signatures_from_many_threads():
    """Each thread has another shape: programs are found and made at the same time."""
    f = rg.jit(lambda x: rg.sum(x * x))
    wrong = []

    def user(n):
        for k in range(200):
            value = float(f(np.full(n, k, np.float32)))
            if value != n * k * k:
                wrong.append((n, k, value))

    users = [threading.Thread(target=user, args=(n,)) for n in (1, 2, 3, 4)]
    for u in users:
        u.start()
    for u in users:
        u.join()
    assert not wrong
    assert f.traces == 4


# -- errors inside of a call -----------------------------------------------------------------


class Picky(rg.Op):
    """Python code inside of a program."""

    host = "a test"
    calls = 0

    def shape(self, x):
        return x

    def forward(self, x):
        if np.isnan(x).any():
            raise LookupError("not a number")
        if (x < 0).any():
            raise rg.ArgumentError("picky: it is negative")
        return x + 1

    samples = staticmethod(lambda rng: [])


def test_an_exception_in_a_host_call():
    """It is raised as it is, with the user's line; the next call works."""

    @rg.jit
    def f(x):
        y = x * 2
        z = rg.apply(Picky(), y)  # this line
        return z * 3

    x = rg.ones(5)
    for _ in range(2):
        assert_close(f(x), (x * 2 + 1) * 3)
        with pytest.raises(LookupError, match="not a number") as caught:
            f(x * np.nan)
        assert "# this line" in caught.value.__notes__[0]
        with pytest.raises(rg.ArgumentError, match="it is negative") as caught:
            f(-x)
        assert "# this line" in str(caught.value)
    assert f.traces == 1


def test_an_exception_in_a_host_call_of_another_thread():
    f = rg.jit(lambda x: rg.apply(Picky(), x) * 3)
    f(rg.ones(5))
    seen = []

    def user():
        try:
            f(-rg.ones(5))
        except rg.ArgumentError as error:
            seen.append(error)

    thread = threading.Thread(target=user)
    thread.start()
    thread.join()
    assert len(seen) == 1
    assert_close(f(rg.ones(5)), 6 * rg.ones(5))


def test_an_index_out_of_range():
    f = rg.jit(lambda x, i: rg.take(x, i) * 2)
    x = rg.arange(5.0)
    for bad in (np.array([0, 5]), np.array([-6])):
        with pytest.raises(rg.BoundsError, match=r"index (5|-6) is outside an axis"):
            f(x, bad)
    assert_close(f(x, np.array([4, -5])), rg.asarray([8.0, 0.0]))


def test_the_system_has_no_more_memory():
    """An output that cannot be allocated is a MemoryError, and nothing is left behind."""
    f = rg.jit(lambda x: rg.broadcast_to(x, (1 << 44,)) * 2)
    with pytest.raises(MemoryError):
        f(rg.ones(1))
    assert_close(rg.jit(lambda x: x * 2)(rg.ones(1)), 2 * rg.ones(1))


# -- interrupts ------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers on this system")
@pytest.mark.parametrize("heavy", [False, True])
def test_an_interrupt_in_a_long_loop(heavy):
    """Ctrl-C ends a loop that would take hours; the next call works."""

    @rg.jit
    def f(x, n):
        body = (lambda x: rg.tanh(x @ x)) if heavy else (lambda x: x + 1)
        return rg.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, body(s[1])), (0, x))

    x = rg.ones((200, 200))
    f(x, 3)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for _ in range(2):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt):
                f(x, 1 << 60)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    count, _ = f(x, 5)
    assert int(count) == 5
