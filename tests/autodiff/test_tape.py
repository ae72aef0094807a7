"""The tape face: requires_grad, backward, .grad, no_grad, detach; what is freed, and when."""

import copy
import gc
import threading
import weakref

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.errors import (
    ArgumentError,
    DerivativeError,
    DtypeError,
    ShapeError,
    TraceError,
)
from retrograd.core.interpret import EVAL, apply, current
from retrograd.core.op import REGISTRY, Op, op
from retrograd.testing import assert_close


def private(cls):
    """An op of these tests alone: the registry is other tests' table."""
    found = op(cls)
    del REGISTRY[found.__name__]
    return found


def leaf(values, dtype=np.float64):
    return rg.tensor(np.asarray(values, dtype), requires_grad=True)


def f(x):
    return rg.tanh(rg.sin(x) * x) * x


# -- backward ------------------------------------------------------------------------------


def test_the_tape_gives_what_grad_gives(rng):
    """Both faces are one engine: .grad has the bits of rg.grad."""
    values = rng.normal(size=(3, 4))
    x = leaf(values)
    rg.sum(f(x)).backward()
    wanted = rg.grad(lambda t: rg.sum(f(t)))(rg.asarray(values))
    assert x.grad.numpy().tobytes() == wanted.numpy().tobytes()


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0,), (2, 0, 3), (1, 1, 1)])
def test_backward_of_any_shape_with_a_seed(shape, rng):
    """backward(gradient) pulls back a cotangent of any shape: the vjp's answer."""
    values, seed = rng.normal(size=shape), rng.normal(size=shape)
    x = leaf(values)
    f(x).backward(seed)
    _, pull = rg.vjp(f, rg.asarray(values))
    assert_close(x.grad, pull(rg.asarray(seed))[0])
    assert x.grad.shape == shape


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_number_of_any_rank_needs_no_seed(shape, rng):
    """A tensor of one element starts from one, whatever its rank."""
    x = leaf(rng.normal(size=shape))
    y = leaf(x.numpy())
    f(x).backward()
    f(y).backward(np.ones(shape))
    assert_close(x.grad, y.grad)


def test_several_numbers_need_a_seed():
    """There is no gradient of many numbers; the error says what to write."""
    x = leaf([1.0, 2.0])
    with pytest.raises(ShapeError, match=r"shape \(2,\) needs a gradient"):
        (x * x).backward()
    with pytest.raises(ShapeError, match=r"needs a gradient"):
        leaf(np.zeros((0, 3))).backward()


def test_a_seed_of_another_shape_is_refused():
    """The seed's shape is the tensor's: nothing is broadcast in silence."""
    x = leaf([1.0, 2.0])
    for bad in (np.ones(3), np.ones((1, 2)), 1.0):
        with pytest.raises(ShapeError, match="must have that shape"):
            (x * x).backward(bad)


def test_a_seed_takes_the_dtype_of_the_tensor(rng):
    """A float64 seed for a float32 tensor gives float32 gradients."""
    x = leaf(rng.normal(size=3), np.float32)
    f(x).backward(np.ones(3))
    assert x.grad.dtype == np.float32


def test_a_seed_may_be_tracked_without_recording(rng):
    """A seed that requires a gradient is a constant, unless create_graph."""
    x, seed = leaf(rng.normal(size=3)), leaf(rng.normal(size=3))
    f(x).backward(seed)
    assert not x.grad.requires_grad
    assert seed.grad is None


def test_backward_needs_something_to_differentiate():
    """A constant has no gradient, and says so."""
    with pytest.raises(DerivativeError, match="does not depend on any tensor"):
        rg.ones(()).backward()


def test_a_leaf_is_its_own_derivative():
    """backward of a leaf leaves the seed there."""
    x = leaf(3.0)
    x.backward()
    assert_close(x.grad, np.ones(()))


def test_unused_leaves_get_nothing():
    """.grad stays None where nothing flows."""
    x, y = leaf(1.0), leaf(2.0)
    (x * x).backward()
    assert y.grad is None


def test_a_tensor_used_many_times_sums_its_uses(rng):
    """x in k places gets the sum of k partial derivatives."""
    values = rng.normal(size=4)
    x = leaf(values)
    total = x * 0
    for i in range(7):
        total = total + x * float(i)
    total.backward(np.ones(4))
    assert_close(x.grad, np.full(4, float(sum(range(7)))))


def test_accumulation_has_one_order(rng):
    """The same program gives the same bits each time, however often a value is used."""
    values = rng.normal(size=50).astype(np.float32)
    weights = rng.normal(size=(40, 50)).astype(np.float32)

    def once():
        x = leaf(values, np.float32)
        y = rg.tanh(x)
        total = y * 0
        for w in weights:
            total = total + rg.sin(y * w)
        rg.sum(total).backward()
        return x.grad.numpy().tobytes()

    assert len({once() for _ in range(5)}) == 1


def test_in_place_sums_do_not_leak_into_other_gradients(rng):
    """Gradients that share an array before a sum do not share it afterwards."""
    x, y = leaf(rng.normal(size=3)), leaf(rng.normal(size=3))
    s = x + y  # both get the very array that s has
    z = s + x  # and x more
    (z + x).backward(np.ones(3))
    assert_close(y.grad, np.ones(3))
    assert_close(x.grad, np.full(3, 3.0))


def test_the_seed_is_never_written():
    """The caller's gradient array is read, not used as scratch."""
    seed = np.ones(3)
    g = rg.asarray(seed, copy=False)
    x = leaf([1.0, 2.0, 3.0])
    y = x + x
    (y + x + x).backward(g)
    assert_close(x.grad, np.full(3, 4.0))
    assert_close(seed, np.ones(3))


# -- .grad ---------------------------------------------------------------------------------


def test_gradients_accumulate_unless_told_not_to(rng):
    """The second backward adds to .grad; with accumulate=False it replaces."""
    values = rng.normal(size=3)
    x = leaf(values)
    f(x).backward(np.ones(3))
    once = x.grad.numpy().copy()
    f(x).backward(np.ones(3))
    assert_close(x.grad, 2 * once)
    f(x).backward(np.ones(3), accumulate=False)
    assert_close(x.grad, once)
    x.grad = None
    f(x).backward(np.ones(3))
    assert_close(x.grad, once)


def test_accumulation_leaves_the_old_gradient_alone(rng):
    """Whoever holds the first .grad holds it unchanged after the second backward."""
    x = leaf(rng.normal(size=3))
    f(x).backward(np.ones(3))
    held, copy = x.grad, x.grad.numpy().copy()
    f(x).backward(np.ones(3))
    assert_close(held, copy)


def test_gradients_are_checked_when_set():
    """.grad takes what fits the tensor: shape and dtype."""
    x = leaf([1.0, 2.0])
    x.grad = np.array([3.0, 4.0])
    assert_close(x.grad, np.array([3.0, 4.0]))
    for bad in (np.ones(3), np.ones((2, 1)), np.ones(2, np.float32)):
        with pytest.raises(ArgumentError, match="must have that shape and dtype"):
            x.grad = bad
    with pytest.raises(ArgumentError, match="does not require a gradient"):
        rg.ones(2).grad = np.ones(2)


def test_integers_cannot_require_gradients():
    """Neither at birth nor later, nor bools."""
    for dtype in (np.int32, np.uint8, np.bool_):
        with pytest.raises(DtypeError, match="cannot require a gradient"):
            rg.tensor(np.ones(2, dtype), requires_grad=True)
        with pytest.raises(DtypeError, match="cannot require a gradient"):
            rg.asarray(np.ones(2, dtype)).requires_grad_()


def test_float32_gradients_stay_float32(rng):
    """Python numbers and reductions do not widen a gradient."""
    x = leaf(rng.normal(size=(3, 4)), np.float32)
    y = rg.mean(x * 2.5 + 1, axis=0) / 3
    rg.sum(y * y).backward()
    assert x.grad.dtype == np.float32


def test_each_leaf_gets_its_own_dtype(rng):
    """Where widths meet, each gradient comes back in its leaf's width."""
    x, y = leaf(rng.normal(size=3), np.float32), leaf(rng.normal(size=3))
    rg.sum(x * y).backward()
    assert (x.grad.dtype, y.grad.dtype) == (np.float32, np.float64)


def test_requires_grad_can_be_taken_back():
    """requires_grad = False makes a tensor a constant again."""
    x = leaf([1.0])
    x.requires_grad = False
    assert not (x * x).requires_grad
    x.requires_grad = True
    assert (x * x).requires_grad
    assert x.is_leaf
    assert not (x * x).is_leaf


# -- retain_graph, create_graph --------------------------------------------------------------


def test_a_second_backward_over_freed_values_is_refused():
    """What the first backward freed is named, with the line that made it and the cure."""
    x = leaf(2.0)
    y = x * x
    z = y * 3
    z.backward()
    with pytest.raises(
        DerivativeError, match=r"(?s)multiply kept was consumed.*retain_graph=True"
    ):
        z.backward()
    with pytest.raises(DerivativeError, match=r"y = x \* x"):
        (y + 1).backward()
    assert_close(x.grad, np.asarray(12.0))


def test_a_refused_backward_changes_no_gradient():
    """A backward that runs into freed values stores nothing."""
    x, w = leaf(2.0), leaf(3.0)
    y = x * x
    (y * w).backward()
    before = x.grad, w.grad
    with pytest.raises(DerivativeError):
        (w * w + y * w).backward()
    assert (x.grad, w.grad) == before


def test_retain_graph_keeps_all(rng):
    """With retain_graph the same backward can be asked again and again."""
    x = leaf(rng.normal(size=3))
    y = f(x)
    y.backward(np.ones(3), retain_graph=True)
    once = x.grad.numpy().copy()
    y.backward(np.ones(3), retain_graph=True)
    y.backward(np.ones(3))
    assert_close(x.grad, 3 * once)


def test_create_graph_makes_gradients_differentiable(rng):
    """Second order by the tape is second order by the functional face."""
    values, v = rng.normal(size=4), rng.normal(size=4)
    x = leaf(values)
    rg.sum(f(x)).backward(create_graph=True)
    g = x.grad
    assert g.requires_grad
    rg.sum(g * v).backward(accumulate=False)
    wanted = rg.hvp(lambda t: rg.sum(f(t)), (rg.asarray(values),), (rg.asarray(v),))
    assert_close(x.grad, wanted)


def test_third_order_by_the_tape():
    """create_graph of create_graph: the third derivative of x**5 is 60 x**2."""
    x = leaf(1.7)
    y = x * x * x * x * x
    for _ in range(2):
        y.backward(create_graph=True, accumulate=False)
        y = x.grad
    y.backward(accumulate=False)
    assert_close(x.grad, 60 * x.numpy() ** 2)


def test_second_order_through_several_outputs(rng):
    """create_graph passes through ops with several outputs."""
    values = rng.normal(size=6)

    def g(x):
        a, b = rg.topk(x * x, 3)[0], rg.sum(x)
        return rg.sum(a * a) * b

    x = leaf(values)
    g(x).backward(create_graph=True)
    rg.sum(x.grad * x.grad).backward(accumulate=False)
    inner = rg.grad(g)
    wanted = rg.grad(lambda t: rg.sum(inner(t) * inner(t)))(rg.asarray(values))
    assert_close(x.grad, wanted)


def test_without_create_graph_gradients_are_constants():
    """An ordinary .grad is no part of any tape."""
    x = leaf(2.0)
    (x * x).backward()
    assert not x.grad.requires_grad


# -- several outputs -------------------------------------------------------------------------


@private
class TwoFaces(Op):
    """sin and cos at once; for tests of ops with several outputs."""

    outputs = ("s", "c")

    def shape(self, x):
        return x, x

    def forward(self, x):
        return np.sin(x), np.cos(x)

    def jvp(self, dx, s, c):
        return dx * c, -(dx * s)

    def vjp(self, g_s, g_c, s, c):
        return g_s * c - g_c * s


@private
class Asked(Op):
    """x * 2 and x * 3, and a list of which cotangents arrived."""

    outputs = ("double", "triple")

    def shape(self, x):
        return x, x

    def forward(self, x):
        return x * 2, x * 3

    def jvp(self, dx):
        return dx * 2, dx * 3

    def vjp(self, g_double: rg.Tensor | None, g_triple: rg.Tensor | None):
        ARRIVED.append((g_double is not None, g_triple is not None))
        parts = [g * k for g, k in ((g_double, 2), (g_triple, 3)) if g is not None]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]


ARRIVED = []


@pytest.mark.parametrize("used", [(True, False), (False, True), (True, True)])
def test_outputs_that_are_not_used_count_as_zero(used, rng):
    """Of several outputs any may be left out: its cotangent is zero."""
    values = rng.normal(size=3)
    x = leaf(values)
    outs = apply(TwoFaces(), x)
    picked = [o for o, u in zip(outs, used, strict=True) if u]
    sum((rg.sum(o * o) for o in picked), start=rg.zeros((), dtype=np.float64)).backward()
    s, c = np.sin(values), np.cos(values)
    assert_close(x.grad, 2 * s * c * used[0] - 2 * s * c * used[1])


@pytest.mark.parametrize("used", [(True, False), (False, True), (True, True)])
def test_a_rule_may_be_told_which_cotangent_never_came(used):
    """g_y: Tensor | None in a rule's signature: no zeros are made for it."""
    x = leaf([1.0, 2.0])
    ARRIVED.clear()
    outs = apply(Asked(), x)
    picked = [o for o, u in zip(outs, used, strict=True) if u]
    sum(map(rg.sum, picked)).backward()
    (found,) = ARRIVED
    assert found == used
    assert_close(x.grad, np.full(2, 2.0 * used[0] + 3.0 * used[1]))


# -- what is not recorded --------------------------------------------------------------------


def test_no_grad_records_nothing():
    """Inside no_grad results are constants, and outside it recording goes on."""
    x = leaf([1.0, 2.0])
    with rg.no_grad():
        y = x * x
        assert not y.requires_grad
    z = x * y
    rg.sum(z).backward()
    assert_close(x.grad, y)


def test_no_grad_nests_and_survives_errors():
    """Leaving no_grad, even by an exception, restores what was before."""
    x = leaf(1.0)
    with rg.no_grad():
        with pytest.raises(ZeroDivisionError), rg.no_grad():
            raise ZeroDivisionError
        assert not (x * x).requires_grad
    assert (x * x).requires_grad
    assert current.get() is EVAL


def test_detach_cuts_and_shares():
    """detach and stop_gradient give the same values as a constant."""
    x = leaf([1.0, 2.0])
    for cut in (x.detach(), rg.stop_gradient(x), rg.stop_gradient(x * 1)):
        assert not cut.requires_grad
        assert_close(cut, x)
    rg.sum(x * x.detach()).backward()
    assert_close(x.grad, x)


def test_constants_keep_nothing():
    """Where nothing requires a gradient there is no tape."""
    y = rg.tanh(rg.ones(3) * 2)
    assert y._node is None


# -- freeing ---------------------------------------------------------------------------------


def alive(refs):
    gc.collect()
    return sum(r() is not None for r in refs)


def test_what_was_kept_is_dead_after_backward():
    """After backward the tape holds no array, though the result is still held."""
    x = leaf(np.ones(1000))
    refs, y = [], x
    for _ in range(10):
        y = rg.tanh(y)
        refs.append(weakref.ref(y.array))
    loss = rg.sum(y)
    last = refs.pop()  # y itself is ours
    assert alive(refs) == 9
    loss.backward()
    assert alive(refs) == 0
    assert last() is not None


def test_values_are_freed_as_they_are_consumed():
    """In the middle of a backward, what lies behind is already freed."""
    x = leaf(np.ones(100))
    refs, y, counts = [], x, []
    for _ in range(10):
        y = rg.tanh(y)
        refs.append(weakref.ref(y.array))
        y.register_hook(lambda g: counts.append(sum(r() is not None for r in refs)))
    loss = rg.sum(y)
    del y
    loss.backward()
    # the hook of the k-th layer runs when its own value, and those before it, are left
    assert counts == [*range(10, 0, -1)]


def test_gradients_are_freed_as_they_are_consumed():
    """Of the cotangents on the way, only a fixed number live at any time."""
    x = leaf(np.ones(100))
    refs, y, most = [], x, []

    def hook(g):
        most.append(sum(r() is not None for r in refs))
        refs.append(weakref.ref(g.array))

    for _ in range(30):
        y = rg.sin(y)
        y.register_hook(hook)
    rg.sum(y).backward()
    assert len(most) == 30
    assert max(most) <= 2


def test_retain_graph_keeps_what_a_plain_backward_frees():
    """With retain_graph the kept arrays live as long as the result."""
    x = leaf(np.ones(10))
    y = rg.tanh(x)
    ref = weakref.ref(y.array)
    loss = rg.sum(rg.sin(y))
    del y
    loss.backward(retain_graph=True)
    assert alive([ref]) == 1
    del loss
    assert alive([ref]) == 0


def test_a_tape_nobody_holds_is_freed_without_the_collector():
    """Tapes have no cycles: reference counts free them at once."""
    gc.disable()
    try:
        x = leaf(np.ones(10))
        y = apply(TwoFaces(), rg.tanh(x))[0]
        node, ref = weakref.ref(y._node), weakref.ref(y.array)
        del y
        assert node() is None
        assert ref() is None
    finally:
        gc.enable()


def test_a_frozen_weight_costs_nothing():
    """x @ w with a frozen x keeps x for w's gradient, and not w."""
    x, w = rg.ones((3, 4)), rg.tensor(np.ones((4, 5), np.float32), requires_grad=True)
    y = x @ w
    kept = [k for k in y._node.kept if isinstance(k, np.ndarray)]
    assert [k.shape for k in kept] == [x.shape]


# -- long chains, threads, transforms --------------------------------------------------------


def test_long_chains_need_no_stack():
    """Twenty thousand ops forward, backward and freed: nothing recurses."""
    x = leaf(1.0)
    y = x
    for _ in range(20_000):
        y = y + x
    y.backward(retain_graph=True)
    assert_close(x.grad, np.asarray(20_001.0))
    del y


def test_threads_have_tapes_of_their_own(rng):
    """Backward passes in several threads at once give what each gives alone."""
    values = rng.normal(size=(4, 200))

    def work(row, out, i):
        for _ in range(20):
            x = leaf(row)
            y = x
            for _ in range(20):
                y = rg.checkpoint(f)(y) * 0.5
            rg.sum(y).backward()
        out[i] = x.grad.numpy()

    alone, together = [None] * 4, [None] * 4
    for i, row in enumerate(values):
        work(row, alone, i)
    threads = [
        threading.Thread(target=work, args=(row, together, i)) for i, row in enumerate(values)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for a, b in zip(alone, together, strict=True):
        assert a.tobytes() == b.tobytes()


def test_no_grad_in_one_thread_leaves_the_others_alone():
    """The current interpreter belongs to the thread."""
    seen = []
    with rg.no_grad():
        t = threading.Thread(target=lambda: seen.append((leaf(1.0) * 2).requires_grad))
        t.start()
        t.join()
    assert seen == [True]


def test_tracked_tensors_are_constants_inside_transforms():
    """A tensor that requires a gradient on the tape is a number to rg.grad and rg.jvp."""
    w = leaf(3.0)
    g = rg.grad(lambda x: x * x * w)(rg.asarray(np.asarray(2.0)))
    assert not g.requires_grad
    assert w.grad is None
    assert_close(g, np.asarray(12.0))
    for result in rg.jvp(lambda x: x * w, (rg.ones(()),), (rg.ones(()),)):
        assert not result.requires_grad


def test_backward_inside_a_transform_is_refused():
    """The tape face does not reach into transforms, whichever tensor is asked."""
    w = leaf(3.0)

    def own(x):
        (x * x).backward()
        return x

    def others(x):
        (w * w).backward()
        return x

    one = rg.ones(())
    for g in (own, others):
        for transformed in (
            lambda g=g: rg.grad(g)(one),
            lambda g=g: rg.jvp(g, (one,), (one,)),
            lambda g=g: rg.vmap(g)(rg.ones(2)),
            lambda g=g: rg.linearize(g, one),
            lambda g=g: rg.grad(lambda x: rg.sum(rg.vmap(g)(x)))(rg.ones(2)),
        ):
            with pytest.raises((TraceError, DerivativeError)):
                transformed()
            assert current.get() is EVAL
    with pytest.raises(TraceError):
        rg.grad(own)(one)
    assert w.grad is None


@pytest.mark.parametrize(
    "clone", [copy.copy, copy.deepcopy, rg.tensor, lambda x: rg.asarray(x, copy=True)]
)
def test_copies_cut_nothing(clone, rng):
    """A copied intermediate is as differentiable as the original, in both faces."""
    values = rng.normal(size=3)
    x = leaf(values)
    y = rg.sin(x)
    rg.sum(clone(y) * y).backward()
    g = lambda t: rg.sum(clone(rg.sin(t)) * rg.sin(t))
    assert_close(x.grad, 2 * np.sin(values) * np.cos(values))
    assert_close(rg.grad(g)(values), x.grad)
    assert_close(rg.vmap(rg.grad(g))(rg.asarray(values)[:, None])[:, 0], x.grad)
    assert_close(
        rg.jvp(g, (rg.asarray(values),), (rg.ones(3, dtype=np.float64),))[1], rg.sum(x.grad)
    )


def test_transforms_leave_no_garbage(rng):
    """Reference counts free everything: no transform leaves cycles for the collector."""
    x = rg.asarray(rng.normal(size=3))
    total = lambda x: rg.sum(f(x))
    step = lambda c, v: (f(c) * v, None)
    for run in (
        lambda: total(rg.tensor(x, requires_grad=True)).backward(),
        lambda: rg.grad(total)(x),
        lambda: rg.jvp(f, (x,), (x,)),
        lambda: rg.linearize(f, x)[1](x),
        lambda: rg.hessian(total)(x),
        lambda: rg.vmap(rg.grad(f))(x),
        lambda: rg.grad(rg.checkpoint(total))(x),
        lambda: rg.grad(lambda x: rg.sum(rg.scan(step, x, rg.stack([x, x]))[0]))(x),
    ):
        run()
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            run()
            gc.collect()
            ours = [o for o in gc.garbage if type(o).__module__.startswith("retrograd")]
            assert not ours
        finally:
            gc.set_debug(0)
            gc.garbage.clear()


def test_a_result_that_nobody_holds_is_differentiated_again(rng):
    """A rule that keeps an output: in a second derivative it depends on the inputs."""
    x = rng.normal(size=(3, 5))

    def f(t):
        return rg.sum(rg.nn.layer_norm(t) ** 3)

    t = rg.tensor(x, requires_grad=True)
    f(t).backward(create_graph=True)
    rg.sum(t.grad**2).backward(accumulate=False)
    wanted = rg.grad(lambda u: rg.sum(rg.grad(f)(u) ** 2))(rg.asarray(x))
    assert_close(t.grad, wanted)
