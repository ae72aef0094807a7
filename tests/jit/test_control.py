"""Compiled loops and branches. Always: what eager code gives, in value and derivative."""

import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import retrograd as rg
from retrograd.control.scan import Scan
from retrograd.core.errors import BoundsError
from retrograd.core.spec import Spec
from retrograd.ir.graph import Node
from retrograd.jit.compile import compiled
from retrograd.jit.execute import Executable
from retrograd.jit.passes.rewrite import Writer
from retrograd.testing import assert_close

both_ways = pytest.mark.parametrize("reverse", [False, True])


def array(rng, *shape, dtype=np.float64):
    return rg.asarray(rng.normal(size=shape).astype(dtype))


def total(out):
    return sum((rg.sum(rg.sin(x)) for x in rg.tree.leaves(out)), start=rg.zeros(()))


def agree(f, *args):
    """The compiled function gives what the eager one does, and again; it, for more."""
    made = rg.jit(f).lower(*args).compile()
    wanted = f(*args)
    for _ in range(2):  # memory that is used again
        assert_close(made(*args), wanted)
    return made


def words(made):
    """What a program runs, by name: loops and host calls and kernels."""
    return [s.what.partition(":")[0] for s in made.program.steps]


def cell(w):
    """A recurrent cell: its state is a result too, its sum is updated in place."""

    def f(carry, x):
        h = rg.tanh(carry["h"] @ w + x["in"])
        return {"h": h, "sum": carry["sum"] + h}, (h, h * x["scale"])

    return f


def cell_case(rng, steps=4, dtype=np.float64):
    init = {"h": array(rng, 3, dtype=dtype), "sum": array(rng, 3, dtype=dtype)}
    xs = {"in": array(rng, steps, 3, dtype=dtype), "scale": array(rng, steps, dtype=dtype)}
    return array(rng, 3, 3, dtype=dtype), init, xs


def recurrent(reverse=False):
    return lambda w, init, xs: rg.scan(cell(w), init, xs, reverse=reverse)


# -- scan ------------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 8])
def test_scan(rng, steps, reverse):
    made = agree(recurrent(reverse), *cell_case(rng, steps))
    assert words(made)[0] == "scan"
    assert "host" not in words(made)


def test_scan_of_float32(rng):
    agree(recurrent(), *cell_case(rng, 5, np.float32))


@both_ways
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_gradient_of_scan(rng, steps, reverse):
    w, init, xs = cell_case(rng, steps)
    made = agree(
        rg.grad(lambda *a: total(recurrent(reverse)(*a)), argnums=(0, 1, 2)), w, init, xs
    )
    assert "host" not in words(made)
    assert words(made).count("scan") == 2


def test_second_order_and_forward_mode(rng):
    w, init, xs = cell_case(rng, 3)

    def f(w):
        return total(recurrent()(w, init, xs))

    agree(rg.grad(lambda w: total(rg.grad(f)(w))), w)
    agree(lambda w, t: rg.jvp(f, (w,), (t,)), w, array(rng, 3, 3))
    agree(lambda w, t: rg.jvp(rg.grad(f), (w,), (t,)), w, array(rng, 3, 3))


@both_ways
def test_vmap_of_scan(rng, reverse):
    w, init, xs = cell_case(rng, 4)
    many = rg.tree.map(lambda x: rg.stack([x, x + 0.5, x * 2]), init)

    def f(w, init, xs):
        return rg.vmap(lambda h: recurrent(reverse)(w, h, xs))(init)

    agree(f, w, many, xs)
    agree(rg.grad(lambda *a: total(f(*a)), argnums=(0, 1)), w, many, xs)


@both_ways
@pytest.mark.parametrize("steps", [1, 2, 5, 6])
def test_carries_that_are_passed_on(rng, steps, reverse):
    """Swapped, kept, taken from x or from a constant, returned twice, returned before."""
    c = array(rng, 3)

    def f(c, init, xs):
        def body(carry, x):
            a, b, still, row, fixed, twice, again, old = carry
            new = a * 0.5 + x + old
            out = (b, a, still, x, c, new, new, rg.sin(old) + x)
            return out, (a, x, c, new, new, old, still, twice + again + row + fixed)

        return rg.scan(body, init, xs, reverse=reverse)

    agree(f, c, tuple(array(rng, 3) for _ in range(8)), array(rng, steps, 3))


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_carries_that_are_shifted(rng, steps):
    """Each takes the place of the next: none may be written before it is read."""

    def f(init, xs):
        def body(carry, x):
            a, b, c = carry
            return (x + 0, a, b), a + b + c

        return rg.scan(body, init, xs)

    agree(f, tuple(array(rng, 2) for _ in range(3)), array(rng, steps, 2))


def test_a_carry_that_others_read_is_not_updated_in_place(rng):
    """Of the next element, of a sum over all, and in a kernel that comes after."""
    ws = array(rng, 37, 37)

    def body(carry, x):
        a, b, c, d = carry
        turned = rg.concatenate([a[1:], a[:1]])
        return (turned + x, b / rg.sum(b * b) + x, c + 1.0, d @ ws), rg.exp(c) @ ws

    def f(init, xs):
        return rg.scan(body, init, xs)

    agree(f, tuple(array(rng, 37) for _ in range(4)), array(rng, 4, 37))


def test_results_that_nobody_reads_and_no_results(rng):
    agree(lambda x: rg.scan(lambda h, y: (h + y, h * y), x[0], x)[0], array(rng, 6, 3))
    agree(lambda x: rg.scan(lambda _, y: (None, rg.exp(y)), None, x)[1], array(rng, 6, 3))
    agree(lambda x: rg.scan(lambda h, _: (h * 0.5, None), x, None, length=9)[0], array(rng, 3))


def test_scan_of_nothing(rng):
    empty = rg.zeros((4, 0))
    agree(lambda x: rg.scan(lambda h, y: (h + y, h), x[0], x), empty)


def test_scan_of_many_types(rng):
    xs = {
        "flag": rg.asarray(rng.normal(size=5) > 0),
        "small": rg.asarray(rng.integers(-9, 9, (5, 3)).astype(np.int8)),
        "half": array(rng, 5, 3, dtype=np.float16),
        "pair": rg.asarray(rng.normal(size=(5, 3)) + 1j * rng.normal(size=(5, 3))),
    }

    def body(old, x):
        new = {
            "flag": old["flag"] | x["flag"],
            "small": old["small"] + x["small"],
            "half": old["half"] + x["half"],
            "pair": old["pair"] * x["pair"],
        }
        return new, old

    agree(lambda xs: rg.scan(body, rg.tree.map(lambda x: x[0], xs), xs), xs)


def test_large_bodies_use_the_pool(rng):
    """Kernels of many chunks, products, and rows that are not aligned."""
    w, init = array(rng, 65, 65), array(rng, 301, 65)

    def f(w, init, xs):
        def body(h, x):
            h = rg.tanh(h @ w + x)
            return h, rg.sum(h, axis=1)

        return rg.scan(body, init, xs)

    made = agree(f, w, init, array(rng, 3, 301, 65))
    assert any(s.info and s.info.chunks > 1 for s in made.program.steps)
    agree(rg.grad(lambda *a: total(f(*a)), argnums=(0, 1)), w, init, array(rng, 3, 301, 65))


def test_large_literals(rng):
    """Constants that are not part of the code, as results: of a program and of a body."""
    first, table = rng.normal(size=200), np.linspace(0.0, 1.0, 200)
    writer = Writer([Spec((200,), np.dtype(np.float64))])
    value = writer.literal(table)
    body = writer.graph([value, 0, value])
    assert_close(Executable(compiled(body))([first]), [table, first, table])
    writer = Writer([Spec((200,), np.dtype(np.float64))])
    loop = writer.graph(writer.add(Scan(body, 0, 1, 3), [0], Node(None, (), ())))
    assert_close(Executable(compiled(loop))([first]), list(Scan(body, 0, 1, 3).forward(first)))


# -- cond ------------------------------------------------------------------------------------


def chosen(flag, x, y):
    """Results that are computed, passed on, and returned twice."""

    def yes(x, y):
        z = rg.tanh(x) * y
        return z, z, x, rg.ones(3, dtype=np.float64)

    return rg.cond(flag, yes, lambda x, y: (y, x, x + y, y), x, y)


@pytest.mark.parametrize("flag", [True, False])
def test_cond(rng, flag):
    flag, x, y = rg.asarray(np.asarray(flag)), array(rng, 3), array(rng, 3)
    made = agree(chosen, flag, x, y)
    assert words(made)[0] == "cond"
    assert "host" not in words(made)
    f = lambda x, y: total(chosen(flag, x, y))
    agree(rg.grad(f, argnums=(0, 1)), x, y)
    agree(rg.grad(lambda x, y: total(rg.grad(f)(x, y)), argnums=(0, 1)), x, y)
    agree(lambda x, y, s: rg.jvp(f, (x, y), (s, s)), x, y, array(rng, 3))


def test_vmap_of_cond(rng):
    flags, x, y = rg.asarray(np.array([True, False])), array(rng, 2, 3), array(rng, 3)
    agree(lambda f, x, y: rg.vmap(lambda f, x: chosen(f, x, y))(f, x), flags, x, y)
    agree(lambda f, x, y: rg.vmap(lambda x: chosen(f[0], x, y))(x), flags, x, y)


def test_only_the_chosen_branch_runs(rng):
    """The other would meet an index that is outside."""
    x, i = array(rng, 3), rg.asarray(np.array([9]))

    def f(x, i):
        return rg.cond(i[0] < 3, lambda x: rg.take(x, i), lambda x: x[:1], x)

    agree(f, x, i)


# -- while ------------------------------------------------------------------------------------


def collatz(n):
    def body(state):
        n, steps = state
        return rg.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1

    return rg.while_loop(lambda s: s[0] > 1, body, (n, rg.zeros((), dtype=np.int64)))


@pytest.mark.parametrize("n", [1, 2, 6, 7, 27])
def test_while(n):
    made = agree(collatz, rg.asarray(np.int64(n)))
    assert "while" in words(made)
    assert "host" not in words(made)


def doubling(x, a):
    """The test and the body capture; one carry is swapped, one updated in place."""
    return rg.while_loop(
        lambda s: rg.sum(s[0]) < 50 + a,
        lambda s: (rg.flip(s[0]) * 2 + a, s[1] + 1.0, s[2]),
        (x, rg.zeros(2), x),
    )


@pytest.mark.parametrize("start", [0.5, 1.5, 100.0])
def test_while_that_captures(rng, start):
    x, a = rg.full(3, start, dtype=np.float64), rg.asarray(0.25)
    agree(doubling, x, a)
    agree(lambda x, a, t: rg.jvp(doubling, (x, a), (t, a)), x, a, array(rng, 3))
    agree(
        lambda x, a: rg.vmap(doubling, in_axes=(0, None))(rg.stack([x, x / 3, x * 9]), a), x, a
    )


def test_reverse_mode_of_a_bounded_while(rng):
    def f(x, a):
        return rg.while_loop(
            lambda s: rg.sum(s) < 9, lambda s: s * a + rg.sin(s), x, max_steps=6
        )

    x, a = rg.full(3, 0.5, dtype=np.float64), rg.asarray(1.5)
    agree(f, x, a)
    made = agree(rg.grad(lambda x, a: total(f(x, a)), argnums=(0, 1)), x, a)
    assert "host" not in words(made)
    agree(rg.grad(lambda x, a: total(rg.grad(lambda x: total(f(x, a)))(x))), x, a)
    agree(lambda x, a: rg.vmap(f, in_axes=(0, None))(rg.stack([x, x * 9]), a), x, a)


def test_fori_loop(rng):
    x = array(rng, 3)

    def f(x):
        return rg.fori_loop(2, 9, lambda i, h: rg.sin(h) * i + x, x)

    agree(f, x)
    agree(rg.grad(lambda x: total(f(x))), x)
    dynamic = lambda n, x: rg.fori_loop(0, n, lambda i, h: rg.sin(h) * i + x, x)
    for n in (0, 1, 6):
        agree(dynamic, rg.asarray(np.int64(n)), x)


def test_a_while_that_asks_for_what_it_carries():
    """The test's answer is an input of its graph."""
    f = lambda n: rg.while_loop(lambda s: s[1], lambda s: (s[0] - 1, s[0] > 2), (n, n > 0))
    for n in (-1, 1, 5):
        agree(f, rg.asarray(np.int64(n)))


# -- one in another --------------------------------------------------------------------------


def test_loops_in_loops(rng):
    x = array(rng, 3, 4)

    def f(x):
        def outer(h, row):
            def inner(c, e):
                c = rg.cond(e > 0, lambda c: rg.tanh(c) + e, lambda c: c * e, c)
                return c, rg.sum(c)

            h, ys = rg.scan(inner, h, row, reverse=True)
            h = rg.while_loop(lambda s: rg.sum(s * s) > 1, lambda s: s / 2, h)
            return h, (ys, h)

        return rg.scan(outer, rg.ones(2, dtype=np.float64), x)

    made = agree(f, x)
    assert [w for w in words(made) if w != "loops"] == ["scan", "scan", "cond", "while"]


def test_gradient_of_loops_in_loops(rng):
    def f(x):
        def outer(h, row):
            h, ys = rg.scan(lambda c, e: (rg.tanh(c + e), c * e), h, row)
            h = rg.cond(h[0] > 0, rg.sin, lambda h: h * h, h)
            return h, (ys, h)

        return total(rg.scan(outer, rg.ones(2, dtype=np.float64), x))

    x = array(rng, 3, 4)
    agree(rg.grad(f), x)
    agree(rg.grad(lambda x: total(rg.grad(f)(x))), x)
    agree(lambda x: rg.vmap(rg.grad(f))(rg.stack([x, -x])), x)


def test_python_in_a_body(rng):
    """Sorting is a host call: in a scan, in a branch, in a test."""
    x = array(rng, 4, 5)
    made = agree(lambda x: rg.scan(lambda h, r: (rg.sort(h + r), h[0]), x[0], x), x)
    assert "host" in words(made)
    agree(lambda x: rg.cond(x[0, 0] > 0, rg.sort, lambda x: x, x), x)
    agree(lambda x: rg.while_loop(lambda s: rg.sort(s)[-1] > 0.1, lambda s: s / 2, x[0]), x)


def test_checkpoint_in_a_body(rng):
    w, xs = array(rng, 3, 3), array(rng, 4, 3)

    def f(w, xs):
        @rg.checkpoint
        def step(h, x):
            return rg.tanh(rg.sin(h @ w) + x)

        return total(rg.scan(lambda h, x: (step(h, x), h), xs[0], xs))

    agree(rg.grad(f, argnums=(0, 1)), w, xs)
    agree(rg.grad(rg.checkpoint(f), argnums=(0, 1)), w, xs)


def test_random_numbers_in_a_body():
    key = rg.random.key(3)

    def f(key):
        keys = rg.random.split(key, 4)
        return rg.scan(lambda h, k: (h + rg.random.normal(k, (3,)), None), rg.zeros(3), keys)[0]

    agree(f, key)


@st.composite
def wirings(draw):
    """A body of random steps, whose results are any of its values, and how it is run."""
    carries, ys = draw(st.integers(1, 4)), draw(st.integers(0, 3))
    known, steps = carries + 2, []
    for _ in range(draw(st.integers(0, 4))):
        value = st.integers(0, known - 1)
        steps.append((draw(st.sampled_from("abcd")), draw(value), draw(value)))
        known += 1
    pick = st.integers(0, known - 1)
    outs = [draw(pick) for _ in range(carries + ys)]
    return carries, steps, outs, draw(st.integers(0, 6)), draw(st.booleans())


def wired(steps, outs, values):
    values = list(values)
    for kind, i, j in steps:
        a, b = values[i], values[j]
        # one kernel each way: element by element, another element, all elements, a product
        new = {
            "a": lambda a, b: a * 0.5 + b,
            "b": lambda a, b: rg.flip(a) - b,
            "c": lambda a, b: rg.sum(a) * 0.1 + b,
            "d": lambda a, b: rg.outer(a, rg.tanh(b)) @ rg.sin(a),
        }[kind](a, b)
        values.append(new)
    return [values[i] for i in outs]


@given(wirings())
def test_any_wiring_of_a_body(wiring):
    carries, steps, outs, length, reverse = wiring
    rng = np.random.default_rng(5)
    const, init, xs = (
        array(rng, 3),
        [array(rng, 3) for _ in range(carries)],
        array(rng, length, 3),
    )

    def scanned(const, init, xs):
        def body(carry, x):
            found = wired(steps, outs, [const, x, *carry])
            return found[:carries], found[carries:]

        return rg.scan(body, init, xs, reverse=reverse)

    def looped(const, init, xs):
        def body(state):
            i, *carry = state
            return [i + 1, *wired(steps, outs, [const, const * i, *carry])[:carries]]

        return rg.while_loop(lambda s: s[0] < length, body, [rg.sum(const) * 0, *init])

    agree(scanned, const, init, xs)
    agree(looped, const, init, xs)


# -- errors and ends --------------------------------------------------------------------------


def test_an_index_outside_ends_a_loop(rng):
    """A while whose test would never fail, for what it reads is not there."""
    x = array(rng, 3)

    @rg.jit
    def f(x, i):
        return rg.while_loop(lambda s: rg.sum(rg.take(x, s)) < 1e9, lambda s: s, i)

    @rg.jit
    def g(x, i):
        return rg.scan(lambda h, i: (h + rg.sum(rg.take(x, i)), None), x, i)[0]

    with pytest.raises(BoundsError, match="outside"):
        f(x, np.array([3]))
    with pytest.raises(BoundsError, match="outside"):
        g(x, np.array([[0], [3], [1]]))
    assert_close(g(x, np.array([[0], [2], [1]])), x + rg.sum(x))


def test_an_error_of_python_ends_a_loop(rng):
    @rg.jit
    def f(x):
        return rg.scan(lambda h, r: (rg.linalg.cholesky(h + r), None), x[0], x)[0]

    good = rg.asarray(np.stack([np.eye(2)] * 3))
    assert_close(f(good), f.function(good))
    with pytest.raises(rg.RetrogradError):
        f(-good)
    assert_close(f(good), f.function(good))


def peak():
    """The most bytes that this process has had."""
    resource = pytest.importorskip("resource")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def test_many_turns_take_no_more_memory():
    @rg.jit
    def f(x, n):
        return rg.while_loop(
            lambda s: s[1] < n, lambda s: (rg.flip(s[0]) * 0.999 + 1.0, s[1] + 1), (x, n * 0)
        )

    x = rg.zeros(3, dtype=np.float64)
    f(x, np.int64(10))
    before = peak()
    found, turns = f(x, np.int64(100_000))
    assert int(turns) == 100_000
    assert_close(found, rg.full(3, 1000.0, dtype=np.float64))
    assert peak() - before < 4 << 20


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers on this system")
@pytest.mark.parametrize("kind", ["while", "scan", "host"])
def test_control_c_ends_a_loop(kind):
    """And the next call works."""

    def turn(s):
        return (rg.sort(s[0]) if kind == "host" else s[0]) + 1, s[1]

    @rg.jit
    def f(x, n):
        if kind == "scan":
            return rg.scan(lambda s, _: (turn(s), None), (x, n), None, length=1 << 60)[0]
        return rg.while_loop(lambda s: s[0][0] < s[1], turn, (x, n))

    x = rg.zeros(1, dtype=np.float64)
    run = f.lower(x, 1.0).compile()

    def press():
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    for _ in range(2):
        presser = threading.Thread(target=press)
        presser.start()
        with pytest.raises(KeyboardInterrupt):
            run(x, np.inf)
        presser.join()
        if kind != "scan":
            assert_close(run(x, 5.0), (rg.full(1, 5.0, dtype=np.float64), rg.asarray(5.0)))


def test_loops_run_in_other_threads(rng):
    w, init, xs = cell_case(rng, 6)
    f = rg.jit(recurrent())
    wanted, found = f(w, init, xs), []
    workers = [threading.Thread(target=lambda: found.append(f(w, init, xs))) for _ in range(4)]
    for t in workers:
        t.start()
    for t in workers:
        t.join()
    for one in found:
        assert_close(one, wanted)
    assert len(found) == 4
