"""Hooks: on a tensor, over a whole backward pass, and gradients that are asked to stay."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.testing import assert_close


def leaf(values, dtype=np.float64):
    return rg.tensor(np.asarray(values, dtype), requires_grad=True)


# -- on a tensor -----------------------------------------------------------------------------


def test_a_hook_sees_the_complete_gradient_once(rng):
    """However often a tensor is used, its hook is called once, with the sum."""
    x, seen = leaf(rng.normal(size=3)), []
    y = rg.sin(x)
    y.register_hook(seen.append)
    rg.sum(y * y + y * 3 + y).backward()
    assert len(seen) == 1
    assert_close(seen[0], 2 * np.sin(x.numpy()) + 4)


def test_a_hook_may_replace_the_gradient(rng):
    """What it returns goes on from there; None leaves the gradient as it was."""
    x = leaf(rng.normal(size=3))
    y = rg.sin(x)
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: None)
    rg.sum(y * y).backward()
    assert_close(x.grad, 20 * np.sin(x.numpy()) * np.cos(x.numpy()))


@pytest.mark.parametrize("kind", [rg.asarray, np.asarray, lambda v: v.tolist(), np.float32])
def test_a_hook_may_return_anything_that_is_a_tensor(kind):
    """Tensors, arrays, lists and numbers, in any float width: the dtype is put right."""
    x = leaf(np.array([1.0, 2.0]) if kind is not np.float32 else 1.5)
    new = np.full(x.shape, 7.0)
    y = x * 1
    y.register_hook(lambda g: kind(new))
    rg.sum(y).backward()
    assert_close(x.grad, new)
    assert x.grad.dtype == np.float64
    z = leaf(2.0)
    w = z * z
    w.register_hook(lambda g: 3)
    w.backward()
    assert_close(z.grad, 6 * z / 2 * 2)


def test_hooks_run_in_the_order_they_came(rng):
    """The second hook sees what the first returned."""
    x, seen = leaf(rng.normal(size=2)), []
    y = x * 1
    y.register_hook(lambda g: g + 1)
    y.register_hook(lambda g: g * 2)
    y.register_hook(seen.append)
    y.backward(np.ones(2))
    assert_close(seen[0], np.full(2, 4.0))
    assert_close(x.grad, np.full(2, 4.0))


def test_a_hook_of_the_wrong_shape_is_refused():
    """Nothing is broadcast: the error shows both shapes."""
    x = leaf([1.0, 2.0])
    y = x * x
    for bad in (np.ones(3), np.ones((1, 2)), 1.0):
        remove = y.register_hook(lambda g, bad=bad: bad)
        with pytest.raises(rg.DerivativeError, match=r"hook returned shape .* shape \(2,\)"):
            rg.sum(y).backward(retain_graph=True)
        remove()


def test_hooks_can_be_removed():
    """register_hook returns its undoing, which may be called twice."""
    x, seen = leaf(1.0), []
    y = x * x
    remove = y.register_hook(seen.append)
    keep = y.register_hook(seen.append)  # the same function, registered again
    y.backward(retain_graph=True)
    assert len(seen) == 2
    remove()
    remove()
    y.backward(retain_graph=True)
    assert len(seen) == 3
    keep()
    y.backward()
    assert len(seen) == 3


def test_hooks_on_leaves_change_what_is_stored(rng):
    """A leaf's hook sees this pass's gradient, and may replace it before it is added."""
    x, seen = leaf(rng.normal(size=2)), []
    x.register_hook(lambda g: seen.append(g) or g * 2)
    (x * 3).backward(np.ones(2))
    (x * 3).backward(np.ones(2))
    assert_close(seen, [np.full(2, 3.0)] * 2)
    assert_close(x.grad, np.full(2, 12.0))


def test_hooks_run_as_ordinary_code(rng):
    """Inside a hook the whole engine works: ops, grad, another backward. It is not recorded."""
    x, other, found = leaf(rng.normal(size=2)), leaf(3.0), []
    square = other * other

    def hook(g):
        found.append(rg.grad(lambda t: rg.sum(t * t))(g))
        square.backward()
        assert not (other * g).requires_grad
        return rg.tanh(g)

    y = x * 2
    y.register_hook(hook)
    y.backward(np.ones(2))
    assert_close(found[0], np.full(2, 2.0))
    assert_close(other.grad, np.asarray(6.0))
    assert_close(x.grad, 2 * np.tanh(np.ones(2)))


def test_hooks_see_infinities_without_warnings():
    """Arithmetic of the engine in a hook is as quiet as anywhere."""
    x = leaf([0.0])
    y = x * 1
    y.register_hook(lambda g: g / 0.0)
    y.backward(np.ones(1))
    assert np.isinf(x.grad.numpy()).all()


def test_hooks_with_create_graph_see_differentiable_gradients():
    """A hook's arithmetic is part of the second derivative."""
    x = leaf(2.0)
    y = x * x
    y.register_hook(lambda g: g * x)  # d/dx of x * 2x = 2 x**2
    y.backward(create_graph=True)
    x.grad.backward(accumulate=False)
    assert_close(x.grad, 4 * x.detach())


def test_a_hook_that_raises_stops_the_pass():
    """The error is the user's own; nothing was stored."""
    x = leaf(2.0)
    y = x * x

    def hook(g):
        raise KeyError("mine")

    y.register_hook(hook)
    with pytest.raises(KeyError, match="mine"):
        y.backward()
    assert x.grad is None


def test_hooks_on_one_of_several_outputs(rng):
    """Each output of an op has its own hooks."""
    x, seen = leaf(rng.normal(size=4)), []
    values, places = rg.topk(x, 2)
    values.register_hook(lambda g: seen.append(g) or g * 0)
    with pytest.raises(rg.ArgumentError, match="does not require a gradient"):
        places.register_hook(print)
    rg.sum(values * values).backward()
    assert_close(seen[0], 2 * values.detach())
    assert_close(x.grad, np.zeros(4))


def test_constants_have_no_hooks():
    """A tensor without a gradient cannot have a hook, nor retain one."""
    for ask in (lambda t: t.register_hook(print), lambda t: t.retain_grad()):
        with pytest.raises(rg.ArgumentError, match="does not require a gradient"):
            ask(rg.ones(2))


# -- retain_grad -----------------------------------------------------------------------------


def test_intermediate_gradients_stay_if_asked(rng):
    """retain_grad leaves .grad on a tensor that is not a leaf; without it there is none."""
    x = leaf(rng.normal(size=3))
    y, z = rg.sin(x), rg.cos(x)
    y.retain_grad()
    out = rg.sum(y * z)
    out.retain_grad()
    out.backward()
    assert_close(y.grad, np.cos(x.numpy()))
    assert_close(out.grad, np.ones(()))
    assert z.grad is None
    assert x.retain_grad().grad is x.grad


def test_retained_gradients_come_after_the_hooks(rng):
    """What is kept is what goes on."""
    x = leaf(rng.normal(size=2))
    y = x * 1
    y.register_hook(lambda g: g * 5)
    y.retain_grad()
    y.backward(np.ones(2))
    assert_close(y.grad, np.full(2, 5.0))


# -- over a whole pass -----------------------------------------------------------------------


def test_the_leaf_hook_is_called_once_for_each_leaf(rng):
    """Each leaf once, with its complete gradient, which is already in .grad."""
    x, w, unused = leaf(rng.normal(size=3)), leaf(rng.normal(size=3)), leaf(1.0)
    seen = []
    with rg.leaf_hook(lambda node, g: seen.append((node, g))):
        y = rg.sin(x * w) + x * x
        rg.sum(y * y + w).backward()
    assert {node for node, _ in seen} == {x.leaf, w.leaf}
    assert len(seen) == 2
    for node, g in seen:
        t = x if node is x.leaf else w
        assert g.numpy().tobytes() == t.grad.numpy().tobytes()
    assert unused.grad is None


def test_the_leaf_hook_comes_the_moment_a_gradient_is_complete(rng):
    """Late layers are reported while earlier ones are still to be differentiated."""
    ws, events = [leaf(rng.normal(size=(3, 3))) for _ in range(4)], []
    names = {w.leaf: f"w{i}" for i, w in enumerate(ws)}
    h = rg.asarray(rng.normal(size=3))
    for i, w in enumerate(ws):
        h = rg.tanh(h @ w)
        h.register_hook(lambda g, i=i: events.append(f"h{i}"))
    with rg.leaf_hook(lambda node, g: events.append(names[node])):
        rg.sum(h).backward()
    assert events == ["h3", "w3", "h2", "w2", "h1", "w1", "h0", "w0"]


def test_a_shared_leaf_waits_for_its_last_use(rng):
    """A weight of the first and the last layer is complete only after the first."""
    shared, own, events = leaf(rng.normal(size=3)), leaf(rng.normal(size=3)), []
    names = {shared.leaf: "shared", own.leaf: "own"}
    first = rg.tanh(rg.ones(3, dtype=np.float64) * shared)
    first.register_hook(lambda g: events.append("first"))
    second = rg.tanh(first * own)
    second.register_hook(lambda g: events.append("second"))
    with rg.leaf_hook(lambda node, g: events.append(names[node])):
        rg.sum(second * shared).backward()
    assert events == ["second", "own", "first", "shared"]


def test_branches_without_a_gradient_do_not_hold_a_leaf_back(rng):
    """A use whose cotangent never comes counts as done."""
    x, w, events = leaf(rng.normal(size=3)), leaf(rng.normal(size=3)), []
    names = {x.leaf: "x", w.leaf: "w"}
    h = rg.tanh(x)
    h.register_hook(lambda g: events.append("h"))
    dead = rg.floor(w * 2)  # its slope is zero
    out = rg.sum(h * w + rg.floor(dead) * 0.0)
    with rg.leaf_hook(lambda node, g: events.append(names[node])):
        out.backward()
    assert sorted(events) == ["h", "w", "x"]
    assert events.index("x") > events.index("h")


def test_gradients_are_the_same_with_and_without_hooks(rng):
    """Looking changes no bit."""
    values = rng.normal(size=(2, 5))

    def run(watch):
        x, w = leaf(values[0]), leaf(values[1])
        y = rg.sum(rg.sin(x * w) * rg.tanh(w + x) * x)
        if watch:
            with rg.leaf_hook(lambda node, g: None):
                y.backward()
        else:
            y.backward()
        return x.grad.numpy().tobytes(), w.grad.numpy().tobytes()

    assert run(watch=True) == run(watch=False)


def test_leaf_hooks_nest_and_end(rng):
    """Several may watch; outside the block none does, also after an error."""
    x, seen = leaf(1.0), []
    with rg.leaf_hook(lambda *_: seen.append("outer")):
        with rg.leaf_hook(lambda *_: seen.append("inner")):
            (x * x).backward()
        with pytest.raises(ZeroDivisionError), rg.leaf_hook(lambda *_: seen.append("x")):
            raise ZeroDivisionError
        (x * x).backward()
    (x * x).backward()
    assert seen == ["outer", "inner", "outer"]


def test_the_leaf_hook_with_checkpoints_and_several_outputs(rng):
    """Regions and ops with several outputs keep the count right."""
    x, w, seen = leaf(rng.normal(size=4)), leaf(rng.normal(size=4)), []

    @rg.checkpoint
    def block(x):
        values, _ = rg.topk(rg.sin(x) * w, 2)
        return rg.tanh(values)

    with rg.leaf_hook(lambda node, g: seen.append(node)):
        rg.sum(block(x) * rg.topk(w, 2)[0]).backward()
    assert sorted(map(id, seen)) == sorted(map(id, (x.leaf, w.leaf)))


def test_a_leaf_that_is_the_result():
    """backward of a leaf reports it too."""
    x, seen = leaf(1.0), []
    with rg.leaf_hook(lambda node, g: seen.append(node)):
        x.backward()
    assert seen == [x.leaf]


def test_the_leaf_hook_adds_what_was_there(rng):
    """With accumulation the hook sees the sum that .grad holds, once a pass."""
    x, seen = leaf(2.0), []
    with rg.leaf_hook(lambda node, g: seen.append(g.item())):
        (x * x).backward()
        (x * x).backward()
    assert seen == [4.0, 8.0]


def test_handles_share_their_leaf(rng):
    """A copy of the handle is the same leaf: same identity, same .grad."""
    import copy

    x = leaf(rng.normal(size=2))
    y = copy.copy(x)
    assert y.leaf is x.leaf
    rg.sum(x * y).backward()
    assert y.grad is x.grad
    assert (x * 1).leaf is None
