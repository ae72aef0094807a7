"""The defects of the documents that the project started from: each has a test with its number.

Here: what belongs to the engine. Elsewhere, and later:

- tests/ops: Y14 (test_scatter), Y15 (test_index), Y18 (test_arithmetic), Y19
  (test_elementary), N1, N18 (test_index), N5, N14, N15 (test_reduce), N17 (test_arithmetic,
  test_elementary, test_special_ops, test_cumulative, test_reduce; tests/test_kinks.py holds
  the whole table of subgradients)
- tests/test_docs.py: Y32, with a test below (everything that the documents show is run)
- tests/ops/nn: Y3, Y4, Y5, Y11, Y12, Y13, Y16, Y17, Y20, Y21, Y28, Y29, Y31, Y33, Y34, N2, N3,
  N4, N25, N29, and what Y22, Y23 and N28 say of those families
- tests/ops/decompose: N23
"""

import copy
import gc
import itertools
import re
import tracemalloc
import weakref
from pathlib import Path

import numpy as np
import pytest

import retrograd as rg
from retrograd.core import dtype as dt
from retrograd.core.op import REGISTRY
from retrograd.core.tensor import Tensor
from retrograd.ir.evaluate import evaluate
from retrograd.ir.trace import trace
from retrograd.testing import assert_close, check
from retrograd.testing.check import check_op, moving, smooth


def leaf(values, dtype=np.float64):
    return rg.tensor(np.asarray(values, dtype), requires_grad=True)


def array(rng, *shape):
    return rg.asarray(rng.normal(size=shape))


def chain(x, n):
    for _ in range(n):
        x = rg.sin(x) * x
    return x


def bits(*tensors):
    return [t.numpy().tobytes() for t in tensors]


def private(cls):
    """An op of these tests alone: the registry is other tests' table."""
    found = rg.op(cls)
    del REGISTRY[found.__name__]
    return found


def differentiable(rows):
    """The samples of every op of ours with a float to differentiate on both sides."""
    for cls in REGISTRY.values():
        if cls.no_derivative or not cls.__module__.startswith("retrograd."):
            continue
        for op, *arrays in itertools.islice(cls.samples(np.random.default_rng(7)), rows):
            f, xs = smooth(op, arrays)
            if xs and f(*xs):
                yield pytest.param(op, arrays, id=repr(op))


# -- 4A: yscv ----------------------------------------------------------------------------------


def test_Y1_checkpoint_really_drops_and_recomputes():
    """Measured: the peak of forward and backward falls, and the gradients are the same bits."""
    size, blocks, ops = 20_000, 10, 10

    def peak(wrap):
        x = leaf(np.linspace(0.1, 0.2, size))
        gc.collect()
        tracemalloc.start()
        y = x
        for _ in range(blocks):
            y = wrap(lambda t: chain(t, ops))(y)
        rg.sum(y).backward()
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top / (8 * size), bits(x.grad)

    (plain, wanted), (less, found) = peak(lambda f: f), peak(rg.checkpoint)
    assert found == wanted
    assert plain > 2 * blocks * ops  # an array for each of the two ops
    assert less < blocks + 3 * ops + 5


def test_Y2_values_are_never_corrupted(rng):
    """After a checkpointed backward every value is what it was; a second one is refused."""
    x = leaf(rng.normal(size=3))
    y = rg.checkpoint(lambda t: chain(t, 4))(x)
    loss = rg.sum(y * y)
    before = bits(x, y, loss)
    loss.backward()
    assert bits(x, y, loss) == before
    gradient = bits(x.grad)
    with pytest.raises(rg.DerivativeError, match="consumed"):
        loss.backward()
    assert bits(x.grad) == gradient


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (3,), (2, 0), (2, 3)])
def test_Y7_any_shape_with_seed(shape, rng):
    """A target of any shape, [1] among them, with a seed of one's own; and vjp."""
    x, seed = leaf(rng.normal(size=shape)), rng.normal(size=shape)
    chain(x, 2).backward(seed)
    _, pull = rg.vjp(lambda t: chain(t, 2), x.detach())
    assert_close(x.grad, pull(seed)[0])
    if x.size == 1:
        chain(x, 2).backward()


def test_Y8_accumulation_by_choice(rng):
    """Gradients add up over calls, unless accumulate=False."""
    x = leaf(rng.normal(size=3))
    chain(x, 2).backward(np.ones(3))
    once = x.grad
    chain(x, 2).backward(np.ones(3))
    assert_close(x.grad, 2 * once)
    chain(x, 2).backward(np.ones(3), accumulate=False)
    assert_close(x.grad, once)


def test_Y9_the_faces_of_an_engine(rng):
    """Intermediate gradients, hooks, detach, no_grad, higher order, forward mode, Jacobians,
    custom ops: all are there, and say the same."""
    x, seen = leaf(rng.normal(size=3)), []
    y = rg.sin(x)
    y.retain_grad()
    y.register_hook(seen.append)
    rg.sum(y * y.detach()).backward()
    assert_close([y.grad, seen[0]], [y.detach(), y.detach()])
    with rg.no_grad():
        assert not rg.sin(x).requires_grad

    @private
    class Cube(rg.Op):
        def shape(self, x):
            return x

        def forward(self, x):
            return x**3

        def jvp(self, dx, x):
            return 3 * x * x * dx

        def vjp(self, g, x):
            return 3 * x * x * g

    f, v = lambda t: rg.apply(Cube(), t), x.detach()
    slope = np.diag(3 * v.numpy() ** 2)
    assert_close([rg.jacfwd(f)(v), rg.jacrev(f)(v)], [slope, slope])
    assert_close(rg.hessian(lambda t: rg.sum(f(t)))(v), np.diag(6 * v.numpy()))


@pytest.mark.parametrize("dtype", [*dt.FLOATS, *dt.COMPLEX], ids=str)
def test_Y10_every_float_dtype(dtype, rng):
    """Single, double, half and complex all compute and differentiate; none panics."""
    x = rg.tensor(rg.asarray(rng.normal(size=3)).astype(dtype), requires_grad=True)
    y = rg.sum(x * x * x)
    y.backward(rg.ones_like(y))
    assert x.grad.dtype == dtype
    assert_close(x.grad, 3 * rg.conj(x.detach()) ** 2)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: rg.reshape(x, (7,)),
        lambda x: rg.sum(rg.ones(()), axis=0),
        lambda x: rg.concat([]),
        lambda x: rg.stack([]),
        lambda x: rg.concat([x, rg.ones(())]),
        lambda x: rg.take(x, rg.asarray(np.array([9])), axis=0),
        lambda x: rg.permute_dims(x, (0, 0)),
        lambda x: rg.squeeze(x, axis=0),
        lambda x: rg.broadcast_to(x, (5, 7)),
        lambda x: rg.split(x, 4, axis=0),
        lambda x: rg.max(rg.ones((0, 3)), axis=0),
        lambda x: rg.argmax(rg.ones(0)),
        lambda x: x @ rg.ones((9, 9)),
        lambda x: x[5],
        lambda x: x[0, 0, 0],
        lambda x: rg.expand_dims(x, axis=9),
        lambda x: rg.repeat(x, -1),
        lambda x: rg.one_hot(x, 3),
    ],
)
def test_Y22_typed_errors_for_bad_operands(wrong):
    """Bad operands of the basic families raise errors of ours, tracked or not."""
    for x in (rg.ones((2, 3)), rg.tensor(np.ones((2, 3)), requires_grad=True)):
        with pytest.raises(rg.RetrogradError):
            wrong(x)


def test_Y23_options_are_whole_integers():
    """Steps and shifts beyond 16 bits mean the same forwards and backwards."""
    n = 65_537
    x = leaf(np.arange(2.0 * n))
    w = rg.asarray(np.random.default_rng(0).normal(size=2 * n))
    rg.sum(rg.roll(x, n) * w).backward()
    assert_close(x.grad, np.roll(w.numpy(), -n))
    x.grad = None
    rg.sum(x[::n] * 3.0).backward()
    wanted = np.zeros(2 * n)
    wanted[::n] = 3
    assert_close(x.grad, wanted)


def test_Y24_mutation_after_recording(rng):
    """Written to after it was recorded: the gradient is of the values that were recorded."""
    values = rng.normal(size=3)
    before = values.copy()
    x = leaf(values)
    y = rg.sin(x)
    loss = rg.sum(y * y)
    y[0] = 100.0
    values[:] = 0.0
    with rg.no_grad():
        x[...] = 0.0
    loss.backward()
    assert_close(x.grad, rg.grad(lambda t: rg.sum(rg.sin(t) * rg.sin(t)))(before))


def test_Y25_wrong_shaped_gradients_refused():
    """As a seed, as .grad, from a hook, from a rule: a gradient has its tensor's shape."""
    x = leaf([1.0, 2.0, 3.0])
    with pytest.raises(rg.ShapeError):
        (x * x).backward(np.ones(2))
    with pytest.raises(rg.ArgumentError):
        x.grad = np.ones((3, 1))
    y = x * x
    y.register_hook(lambda g: np.ones(4))
    with pytest.raises(rg.DerivativeError):
        rg.sum(y).backward()
    bad = rg.custom_vjp(lambda x: x * 2).defvjp(
        lambda x: (x * 2, ()), lambda _, g: (rg.ones(7),)
    )
    with pytest.raises(rg.OpError, match=r"shape \(7,\) for an input of shape \(3,\)"):
        rg.sum(bad(x)).backward()
    _, pull = rg.vjp(rg.sin, x.detach())
    with pytest.raises(rg.ShapeError):
        pull(rg.ones(2))
    assert x.grad is None


@pytest.mark.parametrize(
    "shapes", [((0, 3), (1, 3)), ((0,), ()), ((2, 0), (2, 1)), ((0,), (1,))]
)
@pytest.mark.parametrize(
    "f", [rg.add, rg.multiply, rg.divide, rg.maximum], ids=lambda f: f.__name__
)
def test_Y26_zero_size_broadcast(shapes, f):
    """[0, 3] with [1, 3]: gradients are zeros of each operand's shape."""
    x, y = (leaf(np.ones(s)) for s in shapes)
    rg.sum(f(x, y)).backward()
    assert_close([x.grad, y.grad], [np.zeros(s) for s in shapes])
    g = rg.grad(lambda x, y: rg.sum(f(x, y)), (0, 1))(x.detach(), y.detach())
    assert_close(g, (np.zeros(shapes[0]), np.zeros(shapes[1])))


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-300, 1e300])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: rg.maximum(x, 0.0),
        lambda x: rg.abs(x) + rg.sign(x),
        lambda x: rg.clip(x, -1.0, 1.0),
        lambda x: rg.where(x > 0, x * x, -x),
        lambda x: rg.exp(x) / (1 + rg.exp(x)),
        lambda x: rg.max(x) + rg.min(x) + x,
    ],
)
def test_Y27_one_semantics(f):
    """Eager, tape, functional, mapped, traced, checkpointed, scanned: one answer, NaNs too."""
    x = rg.asarray(SPECIAL)
    total = lambda x: rg.sum(f(x))
    value, gradient = f(x).numpy(), rg.grad(total)(x).numpy()
    tape = leaf(SPECIAL)
    rg.sum(f(tape)).backward()
    graph, captured = trace(lambda x: [f(x)], [x.spec])
    rows = rg.stack([x, x])
    for found, wanted in (
        (tape.grad, gradient),
        (rg.grad(rg.checkpoint(total))(x), gradient),
        (rg.vmap(f)(rows)[1], value),
        (rg.vmap(rg.grad(total))(rows)[0], gradient),
        (evaluate(graph, x, *captured)[0], value),
        (rg.scan(lambda c, r: (c, f(r)), 0.0, rows)[1][0], value),
        (rg.jacfwd(lambda s: f(x + s * 0.0))(rg.ones((), dtype=np.float64)).shape, None),
    ):
        if wanted is not None:
            np.testing.assert_array_equal(found.numpy(), wanted)


def test_Y30_values_live_as_long_as_they_are_needed():
    """A value that no backward needs dies at once; parameters may come at any time."""
    x = leaf(np.ones(1000))
    y = x + 1.0  # addition keeps nothing
    ref = weakref.ref(y.array)
    z = y - 2.0
    del y
    assert ref() is None
    late = leaf(np.ones(1000))  # a parameter made after the graph was begun
    rg.sum(z * late).backward()
    assert_close([x.grad, late.grad], [np.ones(1000), np.zeros(1000)])


class Wrong:
    """Rules with one mistake each, all of the kind that weak tests let through."""

    @private
    class ZeroSlope(rg.Elementwise):
        def forward(self, x):
            return np.sin(x)

        def slope(self, x):
            return 0 * x

    @private
    class ForgotFactor(rg.Elementwise):
        def forward(self, x):
            return x * x

        def slope(self, x):
            return x

    @private
    class OneInput(rg.Op):
        def shape(self, x, y):
            return x

        def forward(self, x, y):
            return x * y

        def jvp(self, dx, dy, x, y):
            return dx * y + x * dy

        def vjp(self, g, x, y):
            return g * y, g * 0

    @private
    class NotTransposed(rg.Op):
        def shape(self, x, y):
            return x.with_shape((x.shape[0], y.shape[1]))

        def forward(self, x, y):
            return x @ y

        def jvp(self, dx, dy, x, y):
            return dx @ y + x @ dy

        def vjp(self, g, x, y):
            return g @ y, rg.matrix_transpose(x) @ g

    @private
    class SecondOrderCut(rg.Elementwise):
        def forward(self, x):
            return x * x * x

        def slope(self, x):
            return 3 * rg.stop_gradient(x * x)

    @private
    class WrongShape(rg.Op):
        def shape(self, x):
            return x

        def forward(self, x):
            return x.sum(keepdims=True)

        def vjp(self, g, x):
            return g + 0 * x

    @private
    class WrongBatch(rg.Op):
        def shape(self, x):
            return x.with_shape(())

        def forward(self, x):
            return x.sum()

        def jvp(self, dx):
            return rg.sum(dx)

        def vjp(self, g, x: rg.Spec):
            return rg.broadcast_to(g, x.shape)

        def batch(self, size, args, mapped):
            return rg.broadcast_to(rg.sum(args[0]), (size,))


@pytest.mark.parametrize("name", [n for n in vars(Wrong) if not n.startswith("_")])
def test_Y31_the_table_catches_wrong_rules(name, rng):
    """check_op finds each of them: a table that lets a zero rule pass tests nothing."""
    made = getattr(Wrong, name)()
    arrays = [rng.normal(size=(3, 3)) for _ in made.inputs]
    with pytest.raises((AssertionError, rg.RetrogradError)):
        check_op(made, *arrays)


# -- 4B: numr ----------------------------------------------------------------------------------


def test_N6_a_cast_to_the_same_dtype_is_the_same_tensor(rng):
    """astype that changes nothing cuts nothing, whichever operand comes first."""
    x = leaf(rng.normal(size=3))
    assert x.astype(np.float64).leaf is x.leaf
    for f in (lambda x: x.astype(np.float64) * x, lambda x: x * x.astype(np.float64)):
        x.grad = None
        rg.sum(f(x)).backward()
        assert_close(x.grad, 2 * x.detach())
    wide = leaf(rng.normal(size=3), np.float32)
    rg.sum(wide.astype(np.float64) * wide).backward()
    assert wide.grad.dtype == np.float32
    assert_close(wide.grad, 2 * wide.detach())


@pytest.mark.parametrize(("op", "arrays"), list(differentiable(1)))
def test_N7_second_order_by_the_tape_is_the_functional_one(op, arrays, rng):
    """Every op: create_graph, then backward again, gives what grad of grad gives."""
    f, xs = smooth(op, arrays)
    weights = check.direction(rng, f(*xs))
    vs = check.direction(rng, xs)

    def loss(*xs):
        parts = [rg.sum(rg.real(o * o * w)) for o, w in zip(f(*xs), weights, strict=True)]
        return sum(parts[1:], start=parts[0])

    def along(grads):
        parts = [
            rg.sum(rg.real(g * v)) for g, v in zip(grads, vs, strict=True) if g is not None
        ]
        return sum(parts, start=rg.zeros((), dtype=np.float64))

    numbers = tuple(range(len(xs)))
    wanted = rg.grad(lambda *xs: along(rg.grad(loss, numbers)(*xs)), numbers)(*xs)
    leaves = [rg.tensor(x, requires_grad=True) for x in xs]
    loss(*leaves).backward(create_graph=True)
    inner = along([x.grad for x in leaves])
    if inner.requires_grad:
        inner.backward(accumulate=False)
        zeros = [rg.zeros_like(x) for x in xs]
        found = [z if x.grad is None else x.grad for x, z in zip(leaves, zeros, strict=True)]
        assert_close(found, list(wanted), tolerance=1e-10)
    else:
        assert_close(list(wanted), [np.zeros_like(x.numpy()) for x in xs])


def test_N7_hessians_do_not_depend_on_operand_order(rng):
    """x * f(x) and f(x) * x have one Hessian."""
    x = array(rng, 3)
    for f in (rg.sin, rg.exp, lambda t: t * t, rg.tanh):
        one = rg.hessian(lambda t, f=f: rg.sum(t * f(t)))(x)
        assert_close(rg.hessian(lambda t, f=f: rg.sum(f(t) * t))(x), one)


def test_N8_same_tensor_twice(rng):
    """checkpoint(f)(x, x): both uses count, once."""
    x, y = leaf(rng.normal(size=3)), rng.normal(size=3)
    rg.sum(rg.checkpoint(lambda a, b: a * b * y)(x, x)).backward()
    assert_close(x.grad, 2 * x.detach() * y)


def test_N9_captured_parameter(rng):
    """A parameter that a checkpointed function captures gets its gradient."""
    x, w = leaf(rng.normal(size=3)), leaf(rng.normal(size=3))
    rg.sum(rg.checkpoint(lambda t: rg.sin(t * w))(x)).backward()
    gx, gw = rg.grad(lambda x, w: rg.sum(rg.sin(x * w)), (0, 1))(x.detach(), w.detach())
    assert bits(x.grad, w.grad) == bits(gx, gw)


def test_N10_keyed_dropout(rng):
    """A mask drawn from a key inside a checkpoint is the same when it is drawn again."""
    x, key = leaf(rng.normal(size=64)), rg.random.key(3)

    def dropout(x):
        kept = rg.random.bernoulli(key, 0.5, shape=(64,))
        return rg.sin(rg.where(kept, rg.sin(x) * 2, 0.0)) * x

    y = rg.checkpoint(dropout)(x)
    rg.sum(y).backward()
    assert bits(x.grad) == bits(rg.grad(lambda t: rg.sum(dropout(t)))(x.detach()))
    dropped = y.numpy() == 0
    assert 0 < dropped.sum() < 64
    assert (x.grad.numpy() == 0).tolist() == dropped.tolist()


def test_N11_checkpoint_passes_flags_outputs_and_second_order(rng):
    """Untracked in, untracked out; several outputs; second order not cut."""
    assert not rg.checkpoint(rg.sin)(array(rng, 3)).requires_grad
    f = rg.checkpoint(lambda t: (rg.sin(t), {"c": rg.cos(t) * t}))
    loss = lambda t: rg.sum(f(t)[0] * f(t)[1]["c"])
    plain = lambda t: rg.sum(rg.sin(t) * rg.cos(t) * t)
    x = array(rng, 3)
    assert_close(rg.hessian(loss)(x), rg.hessian(plain)(x))
    t = leaf(x.numpy())
    loss(t).backward(create_graph=True)
    rg.sum(t.grad * t.grad).backward(accumulate=False)
    inner = rg.grad(plain)
    assert_close(t.grad, rg.grad(lambda t: rg.sum(inner(t) * inner(t)))(x))


@pytest.mark.parametrize("axes", list(itertools.permutations(range(3))))
def test_N12_permutations_that_are_not_their_own_inverse(axes, rng):
    """First and second order of permute_dims for every permutation."""
    x = rng.normal(size=(2, 3, 4))
    w = rng.normal(size=tuple(x.shape[a] for a in axes))
    g = rg.grad(lambda t: rg.sum(rg.permute_dims(t, axes) ** 3 * w))
    wanted = 3 * x**2 * np.transpose(w, np.argsort(axes))
    assert_close(g(x), wanted)
    second = rg.grad(lambda t: rg.sum(g(t)))(x)
    assert_close(second, 6 * x * np.transpose(w, np.argsort(axes)))


def long_chain(n):
    x = leaf(np.ones(2))
    y = x
    for _ in range(n):
        y = y + x
    y.backward(np.ones(2))
    assert_close(x.grad, np.full(2, n + 1.0))


def test_N13_chain_of_a_hundred_thousand():
    """Backward, functional gradients, and freeing, without recursion."""
    n = 100_000
    long_chain(n)
    y = leaf(np.ones(2))
    for _ in range(n):
        y = rg.tanh(y)
    del y  # freed without a backward
    g = rg.grad(lambda x: rg.sum(sum(itertools.repeat(x, n), start=x)))(rg.ones(2))
    assert_close(g, np.full(2, n + 1.0, np.float32))


def test_N13_million_op_chain():
    """The same with 1,000,000 ops."""
    long_chain(1_000_000)


def test_N13_wide_and_deep_with_create_graph():
    """Second order of a long chain: the graph of the gradient is as long, and freed as well."""
    x = leaf(1.0)
    y = x
    for _ in range(3000):
        y = rg.sin(y)
    y.backward(create_graph=True)
    g = x.grad
    g.backward(accumulate=False)
    assert np.isfinite(x.grad.numpy())
    x.grad = None


def test_N16_constants_get_no_gradients_nor_hooks(rng):
    """What does not require a gradient has no .grad, takes no hook, fires none."""
    x, c, seen = leaf(rng.normal(size=3)), array(rng, 3), []
    with rg.leaf_hook(lambda node, g: seen.append(node)):
        rg.sum(x * c + c).backward()
    assert seen == [x.leaf]
    assert c.grad is None
    with pytest.raises(rg.ArgumentError):
        c.register_hook(print)
    with pytest.raises(rg.ArgumentError):
        c.grad = np.ones(3)


def test_N19_handles_share_identity(rng):
    """A copy of a handle is the same leaf: gradients by either reach both."""
    x = leaf(rng.normal(size=3))
    y = copy.copy(x)
    rg.sum(y * y).backward()
    assert x.grad is y.grad
    assert_close(x.grad, 2 * x.detach())
    clone = copy.deepcopy(x)
    assert clone.requires_grad
    assert clone.leaf is not x.leaf
    assert clone.grad is None


@pytest.mark.parametrize(
    "f", [rg.add, rg.subtract, rg.multiply, rg.divide], ids=lambda f: f.__name__
)
def test_N20_broadcast_tangents(f, rng):
    """One tangent, either operand, any broadcasting: tangents broadcast as values do."""
    for sx, sy in (((3,), (2, 3)), ((2, 1), (3,)), ((), (2, 3)), ((2, 3), ())):
        x, y, t = array(rng, *sx), array(rng, *sy), array(rng, *sx)
        value, pushed = rg.jvp(lambda x, y=y: f(x, y), (x,), (t,))
        assert pushed.shape == value.shape
        (wanted,) = check.difference(lambda x, y=y: [f(x, y)], [x], [t])
        assert_close(pushed, wanted, tolerance=1e-7)
        value, pushed = rg.jvp(lambda x, y=y: f(y, x), (x,), (t,))
        assert pushed.shape == value.shape
    with pytest.raises(rg.ShapeError):
        rg.jvp(rg.sin, (rg.ones(3),), (rg.ones(2),))
    with pytest.raises(rg.ShapeError):
        rg.jvp(rg.add, (rg.ones(3), rg.ones(3)), (rg.ones(3),))


def test_N21_every_derivative_of_any_function(rng):
    """jvp, vjp with a seed, Jacobians both ways, Hessian and hvp, of matrices to matrices."""
    x, v = array(rng, 2, 3), array(rng, 2, 3)

    def f(x):
        return rg.tanh(x @ rg.matrix_transpose(x)) * rg.sum(x)

    jacobian = rg.jacfwd(f)(x)
    assert jacobian.shape == (2, 2, 2, 3)
    assert_close(rg.jacrev(f)(x), jacobian)
    assert_close(rg.jvp(f, (x,), (v,))[1], np.tensordot(jacobian.numpy(), v.numpy(), 2))
    g = array(rng, 2, 2)
    assert_close(rg.vjp(f, x)[1](g)[0], np.tensordot(g.numpy(), jacobian.numpy(), 2))
    h = rg.hessian(lambda x: rg.sum(f(x)))(x)
    assert h.shape == (2, 3, 2, 3)
    product = rg.hvp(lambda x: rg.sum(f(x)), (x,), (v,))
    assert_close(product, np.tensordot(h.numpy(), v.numpy(), 2))


@pytest.mark.parametrize(("op", "arrays"), list(differentiable(1)))
def test_N22_one_op_set_both_modes(op, arrays, rng):
    """Every op that reverse mode knows, forward mode knows, by the same name."""
    f, xs = smooth(op, arrays)
    ts = check.direction(rng, xs)
    outs, pushed = rg.jvp(f, xs, ts)
    assert [t.spec for t in pushed] == [o.spec for o in outs]
    _, pull = rg.vjp(f, *xs)
    assert [g.spec for g in pull(outs)] == [x.spec for x in xs]
    assert moving(op, arrays)


def test_N24_consumed_gradients_and_saved_values_are_released():
    """Measured: a backward over a long chain needs a few arrays beyond what the tape kept."""
    size, n = 20_000, 40
    x = leaf(np.full(size, 0.5))
    y = chain(x, n)
    loss = rg.sum(y)
    del y
    gc.collect()
    tracemalloc.start()
    loss.backward()
    now, top = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert top < 6 * 8 * size
    assert now < 1.5 * 8 * size  # x.grad


@pytest.mark.parametrize(
    ("wrong", "kind", "text"),
    [
        (lambda: rg.reshape(rg.ones((2, 3)), (4, 2)), rg.ShapeError, r"reshape"),
        (lambda: rg.jvp(rg.sin, (rg.ones(2),), (rg.ones(3),)), rg.ShapeError, r"jvp"),
        (lambda: rg.ones(2) + rg.ones(3), rg.ShapeError, r"add: shapes do not broadcast"),
        (lambda: rg.grad(rg.sin)(rg.ones(2)), rg.DerivativeError, r"float32\[2\]"),
        (lambda: rg.ones(2) @ rg.ones((3, 2)), rg.ShapeError, r"matmul"),
    ],
)
def test_N26_errors_say_what_is_wrong(wrong, kind, text):
    """The class says what to do about it, the text names op and operands."""
    with pytest.raises(kind, match=text):
        wrong()


def test_N27_integers_cannot_require_grad():
    """Neither tensors nor arguments to differentiate may be integers or bools."""
    for dtype in (*dt.INTEGERS, dt.bool):
        t = rg.ones(2, dtype=dtype)
        with pytest.raises(rg.DtypeError):
            t.requires_grad_()
        with pytest.raises(rg.DtypeError):
            rg.tensor(t, requires_grad=True)
        with pytest.raises(rg.DtypeError):
            rg.grad(lambda t: rg.sum(t) * 1.0)(t)
    assert not rg.argmax(leaf([1.0, 2.0])).requires_grad


@pytest.mark.parametrize(
    "f",
    [
        lambda x: rg.where(x > 0, x, x * x),
        lambda x: x.at[1].set(x[0] * 2),
        lambda x: x[::2],
        lambda x: rg.squeeze(rg.expand_dims(x, axis=0), axis=0),
        rg.sort,
        lambda x: rg.topk(x, 2)[0],
        lambda x: rg.einsum("i,j->ij", x, x),
        lambda x: rg.take(x, rg.asarray(np.array([2, 0, 2])), axis=0),
        lambda x: rg.embedding(rg.asarray(np.array([1, 1])), x[:, None] * x),
        lambda x: rg.pad(x, (1, 2)),
        rg.cumulative_prod,
        rg.logsumexp,
        rg.median,
    ],
)
def test_N28_ops_that_were_missing_have_both_modes(f, rng):
    """where, slice-assign, squeeze, sort, topk, einsum and the rest, twice differentiable."""
    x = rng.permutation(np.linspace(-1.0, 1.0, 5)) + 0.05
    out = f(rg.asarray(x))
    w = rng.normal(size=out.shape)
    rg.testing.check_grads(lambda t: rg.sum(f(t) ** 2 * w), x)


def test_plain_tensors_stay_plain(rng):
    """What these tests call a constant is a Tensor without a node."""
    assert type(array(rng, 2)) is Tensor


def test_Y6_there_is_no_mixed_precision_step_that_does_nothing():
    """Real scaling, or absent: no name of ours promises it before it exists."""
    public = {n.lower() for space in (rg, rg.nn, rg.debug) for n in dir(space)}
    assert not {n for n in public if "amp" in n.split("_") or "mixed" in n or "scaler" in n}


def test_Y32_the_readme_names_only_what_exists():
    """Every `rg.name` of the README is there; that its code runs is tests/test_docs.py."""
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    for name in sorted(set(re.findall(r"\brg\.([a-z_A-Z.0-9]*[a-zA-Z_0-9])", text))):
        found = rg
        for part in name.split("."):
            found = getattr(found, part)
