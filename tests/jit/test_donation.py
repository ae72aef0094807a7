"""Donation: memory is used again where nobody else sees it, and nothing is lost on the way."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
from math import prod

import numpy as np
import pytest

import retrograd as rg
from retrograd.jit import execute
from retrograd.testing import assert_close

N = 1000


def where(t):
    return t.array.ctypes.data


def fresh(value=1.0):
    return rg.zeros(N) + value


@pytest.fixture
def add():
    return rg.jit(lambda x, y: x + y, donate="x")


def test_the_result_is_written_where_the_argument_was(add):
    x = fresh()
    at = where(x)
    y = add(x, 2.0)
    assert where(y) == at
    assert_close(y, 3 * rg.ones(N))


def test_what_was_donated_is_dead(add):
    x = fresh()
    y = add(x, 1.0)
    for use in (lambda: x + 1, lambda: x.shape, lambda: np.asarray(x), lambda: add(x, 1.0)):
        with pytest.raises(
            rg.DonatedError, match="donated to <lambda>, which wrote its result"
        ):
            use()
    assert_close(y, 2 * rg.ones(N))


def test_what_is_not_used_in_place_is_dead_too():
    """Whether memory is used again is the compiler's business; the rule is one."""
    f = rg.jit(lambda x: rg.sum(x * x), donate="x")
    x = fresh()
    f(x)
    with pytest.raises(rg.DonatedError):
        x + 1


def test_leaves_of_trees_by_their_names():
    f = rg.jit(lambda state, x: {"a": state["a"] + x, "b": state["b"] * x}, donate="state")
    state = {"a": fresh(1.0), "b": fresh(2.0)}
    places = {k: where(v) for k, v in state.items()}
    for n in range(3):
        state = f(state, 2.0)
        assert {k: where(v) for k, v in state.items()} == places
        assert_close(state["a"], (1 + 2 * (n + 1)) * rg.ones(N))
        assert_close(state["b"], 2 ** (n + 2) * rg.ones(N))


def _descended(x, y):
    loss, grad = rg.value_and_grad(lambda x: rg.mean(rg.tanh(x * y) * x))(x)
    return x - 0.1 * grad, loss


def _by_rows(x, y):
    return rg.sin(x) * y, rg.sum(x * y, axis=-1), rg.max(x, axis=-1)


def _by_columns(x, y):
    return x * x + y, rg.sum(x * x, axis=0)


def _not_read_where_written(x, y):
    t = rg.sin(y)
    return t * 2, rg.sum(t + x, axis=-1), t + x


@pytest.mark.parametrize("f", [_descended, _by_rows, _by_columns, _not_read_where_written])
@pytest.mark.parametrize("shape", [(3, 5), (7, 33), (64, 1000), (301, 257), (5, 40_000)])
def test_what_a_loop_also_adds_up_is_written_in_place_or_apart_with_the_same_bits(f, shape):
    rng = np.random.default_rng(prod(shape))
    x, y = (rng.standard_normal(shape, np.float32) for _ in range(2))
    expected = rg.jit(f)(x, y)
    found = rg.jit(f, donate="x")(rg.asarray(x), rg.asarray(y))
    for a, b in zip(found, expected, strict=True):
        assert np.array_equal(a.numpy(), b.numpy())


def test_an_update_that_adds_up_its_loss_is_done_in_place():
    f = rg.jit(_descended, donate="x")
    x, y = rg.ones(400_000), rg.ones(400_000)
    at = where(x)
    for _ in range(3):
        x, _ = f(x, y)
        assert where(x) == at


@pytest.mark.parametrize(
    "export",
    [
        np.asarray,
        lambda x: x.array,
        lambda x: x.array[3:],
        lambda x: memoryview(x.array),
        np.from_dlpack,
        lambda x: x.detach(),
        lambda x: x.reshape(10, -1),
        lambda x: x.__dlpack__(),
    ],
    ids=["asarray", "array", "view", "memoryview", "dlpack", "handle", "reshaped", "capsule"],
)
def test_exported_memory_is_copied(add, export):
    """What the user holds never changes; the donated tensor is dead all the same."""
    x = fresh()
    at = where(x)
    held = export(x)
    y = add(x, 2.0)
    assert where(y) != at
    if not hasattr(held, "shape") and type(held).__name__ == "PyCapsule":
        return
    assert_close(np.asarray(held).reshape(-1)[:5], np.ones(5, np.float32))
    with pytest.raises(rg.DonatedError):
        x + 1


def test_foreign_memory_is_copied(add):
    """Memory of NumPy arrays, shared or read-only, and arrays given as they are."""
    base = np.ones(N, np.float32)
    assert_close(add(rg.asarray(base, copy=False), 1.0), 2 * base)
    assert_close(add(base, 1.0), 2 * base)
    view = np.ones(2 * N, np.float32)
    assert_close(add(rg.asarray(view[::2], copy=False), 1.0), 2 * base)
    frozen = np.ones(N, np.float32)
    frozen.flags.writeable = False
    assert_close(add(rg.asarray(frozen, copy=False), 1.0), 2 * base)
    for array in (base, view, frozen):
        assert (array == 1).all()


def test_a_value_on_the_tape_keeps_its_memory(add):
    w = rg.tensor(np.ones(N, np.float32), requires_grad=True)
    x = fresh()
    loss = rg.sum(w * x)
    with rg.no_grad():
        add(x, 5.0)
    loss.backward()
    assert_close(w.grad, rg.ones(N))


def test_one_tensor_donated_twice():
    f = rg.jit(lambda a, b: (a["u"] + 1, b + 2), donate=("a", "b"))
    x = fresh()
    for b in (x, x.detach(), x.reshape(N), rg.asarray(x.array, copy=False)):
        with pytest.raises(rg.ArgumentError) as caught:
            f({"u": x}, b)
        assert "f" not in str(caught.value).split(":")[0]
        assert "a['u'] and b are donated and have the same memory" in str(caught.value)
    assert_close(x, rg.ones(N))  # nothing has happened
    f({"u": x}, fresh())


def test_an_argument_that_is_also_not_donated(add):
    x = fresh()
    assert_close(add(x, x), 2 * rg.ones(N))
    w = fresh()
    g = rg.jit(lambda x: rg.sum(w) + x, donate="x")
    assert_close(g(w), (N + 1) * rg.ones(N))


def test_results_that_are_equal_have_memory_of_their_own():
    """Two results that the compiler found to be one can be donated both."""
    init = rg.jit(lambda x: (rg.zeros_like(x), rg.zeros_like(x), x * 1, x * 1))
    step = rg.jit(lambda a, b, c, d: (a + 1, b + 2, c, d), donate=("a", "b", "c", "d"))
    x = fresh()
    for _ in range(2):
        found = step(*init(x))
        assert_close(list(found), [rg.ones(N), 2 * rg.ones(N), x, x])


def test_values_that_are_read_after_the_write_are_not_overwritten():
    """Each result needs the old values of both, at other places than it writes."""

    @rg.jit(donate=("x", "y"))
    def f(x, y):
        return y[::-1] + x, rg.roll(x, 1, axis=0) * y

    x, y = rg.arange(N, dtype=rg.float32), rg.arange(N, dtype=rg.float32) + 0.5
    wanted = f.function(x, y)
    assert_close(list(f(x, y)), list(wanted))


def test_a_matrix_that_is_its_own_operand():
    f = rg.jit(lambda w: w - 0.1 * (w @ w.T @ w), donate="w")
    w = rg.asarray(np.random.default_rng(0).normal(size=(67, 67)))
    wanted = f.function(w)
    assert_close(f(w), wanted)


# -- calls that fail -------------------------------------------------------------------------


def test_an_index_out_of_range_leaves_the_old_values():
    @rg.jit(donate=("x", "y"))
    def f(x, y, i):
        return x + 1, y + rg.sum(rg.take(x, i))

    x, y = fresh(), fresh(2.0)
    with pytest.raises(rg.BoundsError) as caught:
        f(x, y, np.array([3, N]))
    assert "rg.take(x, i)" in str(caught.value)
    assert_close([x, y], [rg.ones(N), 2 * rg.ones(N)])
    found = f(x, y, np.array([3, 4]))
    assert_close(list(found), [2 * rg.ones(N), 4 * rg.ones(N)])
    with pytest.raises(rg.DonatedError):
        x + 1


class Refuses(rg.Op):
    """Python code in a program, which raises when its operand is negative."""

    host = "a test"

    def shape(self, x):
        return x

    def forward(self, x):
        if (x < 0).any():
            raise ZeroDivisionError("of the test")
        return x * 2

    samples = staticmethod(lambda rng: [])


def test_a_host_call_that_raises_leaves_the_old_values():
    f = rg.jit(lambda x, y: (x + y, rg.sum(rg.apply(Refuses(), y))), donate="x")
    x = fresh()
    with pytest.raises(ZeroDivisionError, match="of the test"):
        f(x, fresh(-1.0))
    assert_close(x, rg.ones(N))
    found = f(x, fresh(1.0))
    assert_close(found[0], 2 * rg.ones(N))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers on this system")
def test_an_interrupt_after_the_write_waits_for_the_results():
    """Ctrl-C that comes while a step runs is raised when its results are in their place.

    Python would raise it between the program and the assignment: both states would be lost.
    """
    program = textwrap.dedent(
        """
        import signal, time
        import numpy as np
        import retrograd as rg

        rg.set_threads(1)  # a step takes longer than the 3 ms after which it is interrupted
        step = rg.jit(lambda w, x: w + rg.sum(x @ x) * 0 + 1, donate="w")
        w, x = rg.zeros(1000), rg.ones((1500, 1500))
        w = step(w, x)
        done = interrupts = 0
        while interrupts < 5:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.003)
                while True:
                    w = step(w, x)
                    done += 1
            except KeyboardInterrupt:
                interrupts += 1
                signal.setitimer(signal.ITIMER_REAL, 0)
            values = set(np.asarray(w).tolist())  # alive, and whole
            assert len(values) == 1, values
        print("fine")
        """
    )
    head = "import signal\nsignal.signal(signal.SIGALRM, signal.default_int_handler)\n"
    done = subprocess.run(
        [sys.executable, "-c", head + program],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        check=False,
    )
    assert done.stdout.strip() == "fine", done.stderr


def test_what_was_put_off_is_raised_at_the_next_call(add, monkeypatch):
    monkeypatch.setattr(execute, "_PATIENCE", 60.0)
    monkeypatch.setattr(execute, "_later", [])
    add(fresh(), 1.0)
    execute.defer(TimeoutError("told"))
    for t in threading.enumerate():
        if isinstance(t, threading.Timer):
            t.cancel()
    x = fresh()
    with pytest.raises(TimeoutError, match="told"):
        add(x, 1.0)
    assert_close(add(x, 1.0), 2 * rg.ones(N))


# -- memory ----------------------------------------------------------------------------------


def test_steps_allocate_nothing_but_what_is_not_donated():
    """The same memory for a hundred steps: no garbage, no growth."""
    f = rg.jit(lambda s, x: (s[0] + x, s[1] * 0.5 + x), donate="s")
    s = f((fresh(), fresh()), 1.0)
    places = {where(t) for t in s}
    for _ in range(100):
        s = f(s, 1.0)
        assert {where(t) for t in s} == places
    gc.collect()
    assert not gc.garbage
