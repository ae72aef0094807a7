"""checkpoint: the same bits, fewer bytes, and nothing but arithmetic runs twice."""

import gc
import tracemalloc
import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given

import retrograd as rg
from retrograd.core import tree
from retrograd.core.interpret import apply
from retrograd.core.op import REGISTRY, Op, op
from retrograd.testing import assert_close
from retrograd.testing.strategies import checkpointed


class Pair(NamedTuple):
    first: Any
    second: Any


def private(cls):
    """An op of these tests alone: the registry is other tests' table."""
    found = op(cls)
    del REGISTRY[found.__name__]
    return found


RUNS = []


@private
class Counted(Op):
    """tanh, with every run of forward written down."""

    label: str = ""

    def shape(self, x):
        return x

    def forward(self, x):
        RUNS.append(self.label)
        return np.tanh(x)

    def jvp(self, dx, out):
        return dx * (1 - out * out)

    def vjp(self, g, out):
        return g * (1 - out * out)

    def batch(self, size, args, mapped):
        return apply(self, *args)


@private
class Printed(Op):
    """x itself, with an ordered effect: it must happen once."""

    effect = "ordered"

    def shape(self, x):
        return x

    def forward(self, x):
        RUNS.append("effect")
        return x + 0

    def jvp(self, dx):
        return dx

    def vjp(self, g):
        return g


def counted(x, label=""):
    return apply(Counted(label), x)


def leaf(values, dtype=np.float64):
    return rg.tensor(np.asarray(values, dtype), requires_grad=True)


def bits(t):
    return [x.numpy().tobytes() for x in tree.leaves(t)]


def chain(x, n=10):
    for _ in range(n):
        x = rg.sin(x) * x
    return x


def held(make):
    """Bytes that stay allocated after make(), while its result is held.

    Once before: kernels that heavy ops are compiled to stay, whoever asks first.
    """
    make()
    gc.collect()
    tracemalloc.start()
    try:
        result = make()
        gc.collect()
        return tracemalloc.get_traced_memory()[0], result
    finally:
        tracemalloc.stop()


# -- the same gradients --------------------------------------------------------------------


@given(checkpointed())
def test_any_placement_gives_the_same_bits_functional(case):
    """Every program, any checkpoints in it, nested or apart: rg.grad's bits do not change."""
    program, blocks = case
    xs = program.samples(np.random.default_rng(0))
    numbers = tuple(range(len(xs)))
    plain = rg.value_and_grad(program, numbers)(*xs)
    found = rg.value_and_grad(lambda *a: program(*a, blocks=blocks), numbers)(*xs)
    assert bits(found) == bits(plain)


@given(checkpointed())
def test_any_placement_gives_the_same_bits_on_the_tape(case):
    """The same for backward."""
    program, blocks = case
    xs = program.samples(np.random.default_rng(1))

    def run(**options):
        leaves = [rg.tensor(x, requires_grad=True) for x in xs]
        loss = program(*leaves, **options)
        if loss.requires_grad:
            loss.backward()
        return bits([x.grad for x in leaves])

    assert run(blocks=blocks) == run()


@given(checkpointed(max_steps=6))
def test_any_placement_gives_the_same_second_order(case):
    """Hessian products: to the bit, forward over reverse and by create_graph."""
    program, blocks = case
    rng = np.random.default_rng(2)
    xs, ts = program.samples(rng), program.samples(rng)

    def tape(**options):
        leaves = [rg.tensor(x, requires_grad=True) for x in xs]
        loss = program(*leaves, **options)
        if not loss.requires_grad:
            return []
        loss.backward(create_graph=True)
        first = [x.grad for x in leaves]
        inner = sum(
            (rg.sum(g * t) for g, t in zip(first, ts, strict=True) if g is not None),
            start=rg.zeros(()),
        )
        if not inner.requires_grad:
            return bits(first)
        inner.backward(accumulate=False)
        return bits([first, [x.grad for x in leaves]])

    run = lambda **o: rg.hvp(lambda *a: program(*a, **o), xs, ts)
    assert bits(run(blocks=blocks)) == bits(run())
    assert tape(blocks=blocks) == tape()


@given(checkpointed(max_steps=8))
def test_any_placement_under_vmap_jvp_and_linearize(case):
    """The other transforms see through a checkpoint, with the same bits."""
    program, blocks = case
    rng = np.random.default_rng(3)
    xs, ts = program.samples(rng, 2), program.samples(rng, 2)
    within = lambda *a: program(*a, blocks=blocks)
    numbers = tuple(range(len(xs)))
    for transform in (
        lambda g: rg.vmap(g)(*xs),
        lambda g: rg.jvp(rg.vmap(g), xs, ts),
        lambda g: rg.linearize(rg.vmap(g), *xs)[1](*ts),
        lambda g: rg.vmap(rg.grad(g, numbers))(*xs),
        lambda g: rg.grad(lambda *a: rg.sum(rg.vmap(g)(*a)), numbers)(*xs),
    ):
        assert bits(transform(within)) == bits(transform(program))


def test_several_inputs_and_outputs_in_trees(rng):
    """Trees in and out, with tensors, numbers and None in them."""
    p = {"w": leaf(rng.normal(size=(3, 3))), "b": Pair(leaf(rng.normal(size=3)), None)}
    q = tree.map(lambda t: leaf(t.numpy()), p)

    def f(p, x, *, scale):
        h = rg.tanh(x @ p["w"] + p["b"].first) * scale
        return Pair(h, {"sum": rg.sum(h), "name": "h", "none": None})

    x = rg.asarray(rng.normal(size=(2, 3)))
    for params, wrap in ((p, rg.checkpoint), (q, lambda f: f)):
        out = wrap(f)(params, x, scale=2.0)
        assert out.second["name"] == "h"
        (rg.sum(out.first * out.first) * out.second["sum"]).backward()
    assert bits(tree.map(lambda t: t.grad, p)) == bits(tree.map(lambda t: t.grad, q))


def test_the_same_tensor_twice(rng):
    """f(x, x) sums both uses, once each."""
    x = leaf(rng.normal(size=3))
    y = leaf(x.numpy())
    rg.sum(rg.checkpoint(lambda a, b: rg.sin(a) * b)(x, x)).backward()
    rg.sum(rg.sin(y) * y).backward()
    assert bits(x.grad) == bits(y.grad)


def test_captured_tensors_get_their_gradients(rng):
    """What f takes from outside without an argument is differentiated too."""
    x, w = rg.asarray(rng.normal(size=3)), leaf(rng.normal(size=3))
    rg.sum(rg.checkpoint(lambda x: rg.tanh(x * w) * w)(x)).backward()
    wanted = rg.grad(lambda w: rg.sum(rg.tanh(x * w) * w))(w.detach())
    assert bits(w.grad) == bits(wanted)
    inside = rg.grad(lambda w: rg.sum(rg.checkpoint(lambda x: rg.tanh(x * w) * w)(x)))(
        w.detach()
    )
    assert bits(inside) == bits(wanted)


def test_nothing_tracked_nothing_recorded(rng):
    """A checkpoint of constants is a constant, and holds nothing but its result."""
    size = 100_000
    x = rg.asarray(rng.normal(size=size))
    used, y = held(lambda: rg.checkpoint(chain)(x))
    assert not y.requires_grad
    assert used < 1.5 * y.nbytes
    with rg.no_grad():
        assert not rg.checkpoint(chain)(leaf(np.ones(3))).requires_grad


def test_a_result_may_be_an_argument_or_an_intermediate(rng):
    """f may return its input, the same value twice, or a value that it used itself."""
    x = leaf(rng.normal(size=3))
    y = leaf(x.numpy())

    def f(x):
        h = rg.sin(x)
        return x, h, h, rg.tanh(h) * h

    for t, g in ((x, rg.checkpoint(f)), (y, f)):
        a, b, c, d = g(t)
        rg.sum(a * b * c * d).backward()
    assert bits(x.grad) == bits(y.grad)


def test_values_that_leave_by_a_side_door(rng):
    """A tensor taken out of f by appending it to a list is as good as a returned one."""
    x = leaf(rng.normal(size=3))
    y = leaf(x.numpy())
    for t, wrap in ((x, rg.checkpoint), (y, lambda f: f)):
        out = []

        def f(x, out=out):
            out.append(rg.sin(x) * x)
            return rg.tanh(out[0])

        z = wrap(f)(t)
        rg.sum(rg.checkpoint(lambda z, out=out: z * out[0] * out[0])(z)).backward()
    assert bits(x.grad) == bits(y.grad)


def test_single_numbers_inside(rng):
    """Reductions to rank 0 inside a checkpoint are replayed like everything else."""
    x = leaf(rng.normal(size=3))
    y = leaf(x.numpy())

    def f(x):
        s = rg.sum(x * x)
        return s * s * rg.sin(s)

    rg.checkpoint(f)(x).backward()
    f(y).backward()
    assert bits(x.grad) == bits(y.grad)


def test_float32_and_half(rng):
    """dtypes inside are what they were."""
    for dtype in (np.float32, np.float16):
        x, y = (leaf(np.linspace(0.1, 1, 4), dtype) for _ in range(2))
        rg.sum(rg.checkpoint(chain)(x)).backward()
        rg.sum(chain(y)).backward()
        assert x.grad.dtype == dtype
        assert bits(x.grad) == bits(y.grad)


def test_infinities_inside_do_not_warn():
    """Replaying is as quiet as running."""
    x = leaf([0.0, 1.0])
    y = rg.checkpoint(lambda x: rg.sin(rg.log(x)) * rg.exp(x * 1000))(x)
    y.backward(np.ones(2), create_graph=True)
    assert not np.isfinite(x.grad.numpy()).all()


def test_ops_with_several_outputs_inside(rng):
    """topk, sort and the like are replayed whole."""
    x = leaf(rng.normal(size=6))
    y = leaf(x.numpy())

    def f(x):
        values, places = rg.topk(rg.sin(x), 3)
        return values * rg.take(x, places)

    rg.sum(rg.checkpoint(f)(x)).backward()
    rg.sum(f(y)).backward()
    assert bits(x.grad) == bits(y.grad)


def test_recorded_after_a_write(rng):
    """x[i] = v inside f: the tape replays with the values of their time."""
    x = leaf(rng.normal(size=3))
    y = leaf(x.numpy())

    def f(x):
        h = rg.sin(x) * x
        k = h * h
        h[0] = k[1]
        return h * k

    rg.sum(rg.checkpoint(f)(x)).backward()
    rg.sum(f(y)).backward()
    assert bits(x.grad) == bits(y.grad)


# -- what is held --------------------------------------------------------------------------

SIZE = 50_000


def arrays(n):
    """Bytes of n arrays of SIZE numbers, and a little for the objects around them."""
    return n * SIZE * 8 + 60_000


@pytest.mark.parametrize(
    "make",
    [
        lambda f, x: f(x),
        lambda f, x: rg.vjp(f, x.detach()),
        lambda f, x: rg.linearize(f, x.detach()),
        lambda f, x: rg.vjp(rg.vmap(f), x.detach().reshape(10, -1)),
        lambda f, x: rg.vjp(lambda x: rg.jvp(f, (x,), (x,))[1], x.detach()),
    ],
    ids=["tape", "vjp", "linearize", "vjp of vmap", "vjp of jvp"],
)
def test_only_the_inputs_are_held(make):
    """Measured: a plain chain holds an array an op; a checkpoint its input and its result."""
    x = leaf(np.linspace(0.1, 0.2, SIZE))
    plain, _ = held(lambda: make(chain, x))
    assert plain > arrays(10)
    used, _ = held(lambda: make(rg.checkpoint(chain), x))
    assert used < arrays(4), f"{used / 8 / SIZE:.1f} arrays are held"


@pytest.mark.parametrize("kind", ["scan", "custom_vjp", "custom_jvp"])
def test_only_the_inputs_are_held_whatever_is_inside(kind):
    """Loops and functions with their own derivative hold nothing either."""
    own = rg.custom_vjp(lambda x: rg.sin(x) * x).defvjp(
        lambda x: (rg.sin(x) * x, x), lambda x, g: (g * (rg.cos(x) * x + rg.sin(x)),)
    )
    ahead = rg.custom_jvp(lambda x: rg.sin(x) * x).defjvp(
        lambda p, t: (rg.sin(p[0]) * p[0], t[0] * (rg.cos(p[0]) * p[0] + rg.sin(p[0])))
    )

    def f(x):
        if kind == "scan":
            return rg.scan(lambda c, _: (rg.sin(c) * c, None), x, length=10)[0]
        for _ in range(10):
            x = {"custom_vjp": own, "custom_jvp": ahead}[kind](x) * 2.0
        return x

    values = np.linspace(0.1, 0.2, SIZE)
    x, y = leaf(values), leaf(values)
    plain, a = held(lambda: f(x))
    assert plain > arrays(7)
    used, b = held(lambda: rg.checkpoint(f)(y))
    assert used < arrays(2), f"{used / 8 / SIZE:.1f} arrays are held"
    rg.sum(a).backward()
    rg.sum(b).backward()
    assert bits(x.grad) == bits(y.grad)


def test_the_peak_falls():
    """Measured: blocks of checkpoints bring the peak of forward and backward down."""

    def peak(wrap):
        x = leaf(np.linspace(0.1, 0.2, SIZE))
        gc.collect()
        tracemalloc.start()
        y = x
        for _ in range(8):
            y = wrap(lambda t: chain(t, 8))(y)
        rg.sum(y).backward()
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top, bits(x.grad)

    (plain, wanted), (less, found) = peak(lambda f: f), peak(rg.checkpoint)
    assert found == wanted
    assert plain > arrays(64)
    assert less < arrays(8 + 2 * 8 + 8)


def test_nothing_replayed_stays(rng):
    """After a backward that retains the graph, what it replayed is dropped again."""
    x = leaf(np.linspace(0.1, 0.2, SIZE))

    def nested(x):
        x = rg.checkpoint(chain)(x)
        return rg.checkpoint(chain)(chain(x))

    used, y = held(lambda: rg.checkpoint(nested)(x))
    assert used < arrays(2)
    again, _ = held(lambda: rg.sum(y).backward(retain_graph=True))
    assert again < arrays(2), f"{again / 8 / SIZE:.1f} arrays stay"
    _, push = rg.linearize(rg.checkpoint(nested), x.detach())
    again, _ = held(lambda: push(rg.ones_like(x)))
    assert again < arrays(3), f"{again / 8 / SIZE:.1f} arrays stay"


def test_no_value_inside_is_alive():
    """Counted: of the arrays made inside, none lives after the call."""
    refs = []

    def f(x):
        for _ in range(10):
            x = rg.tanh(x)
            refs.append(weakref.ref(x.array))
        return x * 2.0

    x = leaf(np.ones(10))
    y = rg.checkpoint(f)(x)
    assert sum(r() is not None for r in refs) == 0
    rg.sum(y).backward()


# -- what runs, and how often --------------------------------------------------------------


def runs(make):
    RUNS.clear()
    make()
    return len(RUNS)


def test_every_op_is_replayed_once(rng):
    """Forward once, and once more in backward: nothing is computed three times."""

    def f(x):
        for _ in range(5):
            x = counted(x)
        return x * 2.0

    x = leaf(rng.normal(size=3))
    y = []
    assert runs(lambda: y.append(rg.checkpoint(f)(x))) == 5
    assert runs(lambda: rg.sum(y[0]).backward()) == 5
    assert runs(lambda: rg.grad(lambda x: rg.sum(rg.checkpoint(f)(x)))(x.detach())) == 10


def test_nested_checkpoints_replay_once_a_level(rng):
    """The innermost op of depth d runs at most d + 1 times."""

    def f(x):
        return counted(counted(x)) * 2.0

    x = leaf(rng.normal(size=3))
    for depth in range(1, 5):
        f = rg.checkpoint(f)
        total = runs(lambda f=f: rg.sum(f(x)).backward())
        assert total <= 2 * (depth + 1)


def test_what_is_not_needed_is_not_replayed(rng):
    """Ops on the way to nothing that backward needs are not run again."""

    def f(x):
        counted(x, "unused")
        a = counted(x, "used")
        return rg.sin(a)

    x = leaf(rng.normal(size=3))
    rg.sum(rg.checkpoint(f)(x)).backward()
    assert RUNS.count("unused") == 1
    RUNS.clear()


def test_values_somebody_holds_are_not_replayed(rng):
    """A value that the user still has is used as it is."""
    x, kept = leaf(rng.normal(size=3)), []

    def f(x):
        kept.append(counted(x))
        return rg.sin(kept[0])

    y = rg.checkpoint(f)(x)
    assert runs(lambda: rg.sum(y).backward()) == 0


def test_the_function_itself_runs_once(rng):
    """No Python of the user's runs again: side effects happen once."""
    calls = []

    def f(x):
        calls.append(1)
        return rg.sin(rg.tanh(x))

    x = leaf(rng.normal(size=3))
    rg.sum(rg.checkpoint(f)(x)).backward()
    assert len(calls) == 1


def test_hooks_inside_run_once(rng):
    """A hook on a tensor inside f is called once, with the gradient a plain run gives."""
    seen = {}

    def run(wrap, name):
        def f(x):
            h = rg.sin(x)
            h.register_hook(lambda g: seen.setdefault(name, []).append(g.numpy().tobytes()))
            return rg.tanh(h) * h

        x = leaf(values)
        rg.sum(wrap(f)(x)).backward()
        return bits(x.grad)

    values = rng.normal(size=3)
    assert run(rg.checkpoint, "within") == run(lambda f: f, "plain")
    assert seen["within"] == seen["plain"]
    assert len(seen["within"]) == 1


def test_retained_gradients_inside(rng):
    """retain_grad works on a tensor that a checkpoint made."""
    x, inside = leaf(rng.normal(size=3)), []

    def f(x):
        inside.append(rg.sin(x).retain_grad())
        return inside[0] * inside[0]

    rg.sum(rg.checkpoint(f)(x)).backward()
    assert_close(inside[0].grad, 2 * np.sin(x.numpy()))


def test_ordered_effects_happen_once(rng):
    """An op with an effect is never replayed; its result is held instead."""
    x = leaf(rng.normal(size=3))

    def f(x):
        return rg.sin(apply(Printed(), counted(x)) * x)

    RUNS.clear()
    rg.sum(rg.checkpoint(f)(x)).backward()
    assert RUNS.count("effect") == 1
    wanted = rg.grad(lambda x: rg.sum(rg.sin(rg.tanh(x) * x)))(x.detach())
    assert_close(x.grad, wanted)


def test_errors_inside_leave_no_region_open(rng):
    """After an exception in f, later ops keep their values as always."""

    def bad(x):
        rg.sin(x)
        raise ZeroDivisionError

    x = leaf(rng.normal(size=3))
    with pytest.raises(ZeroDivisionError):
        rg.checkpoint(bad)(x)
    y = rg.tanh(x)
    assert y._cell is None
    assert any(isinstance(k, np.ndarray) for k in y._node.kept)


def test_twice_backward_with_retain_graph(rng):
    """A retained checkpoint can be differentiated again, with the same bits."""
    x = leaf(rng.normal(size=3))
    y = rg.sum(rg.checkpoint(chain)(x))
    y.backward(retain_graph=True)
    first = bits(x.grad)
    y.backward(retain_graph=True, accumulate=False)
    y.backward(accumulate=False)
    assert bits(x.grad) == first


def test_a_long_chain_inside(rng):
    """Replaying does not recurse: 5000 ops in one checkpoint."""
    x = leaf(rng.normal(size=2))
    y = leaf(x.numpy())
    rg.sum(rg.checkpoint(lambda t: chain(t, 5000))(x)).backward()
    rg.sum(chain(y, 5000)).backward()
    assert bits(x.grad) == bits(y.grad)


def test_checkpoint_keeps_the_function_s_name():
    """checkpoint(f) is f to whoever reads it."""

    def block(x):
        """A block."""
        return x

    assert rg.checkpoint(block).__name__ == "block"
    assert rg.checkpoint(block).__doc__ == "A block."
