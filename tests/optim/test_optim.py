"""Optimizers against NumPy twins over many steps; on trees, traced, mapped, differentiated."""

from typing import ClassVar

import numpy as np
import pytest

import retrograd as rg
from retrograd import nn, optim
from retrograd.core import tree
from retrograd.ir.evaluate import evaluate
from retrograd.ir.trace import trace
from retrograd.testing import assert_close

# -- the twins, one parameter each -----------------------------------------------------------


def sgd(p, gs, *, lr, momentum=0.0, nesterov=False, weight_decay=0.0):
    v = np.zeros_like(p)
    for t, g in enumerate(gs):
        g = g + weight_decay * p
        v = momentum * v + g
        p = p - (lr(t) if callable(lr) else lr) * (g + momentum * v if nesterov else v)
    return p


def adam(p, gs, *, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, apart=False):
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t, g in enumerate(gs):
        rate = lr(t) if callable(lr) else lr
        if apart:
            p = p - rate * weight_decay * p
        else:
            g = g + weight_decay * p
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        mean, square = m / (1 - betas[0] ** (t + 1)), v / (1 - betas[1] ** (t + 1))
        p = p - rate * mean / (np.sqrt(square) + eps)
    return p


def adamw(p, gs, *, weight_decay=0.01, **options):
    return adam(p, gs, weight_decay=weight_decay, apart=True, **options)


CASES = {
    "SGD": (optim.SGD, sgd, {"lr": 0.1}),
    "SGD, decay": (optim.SGD, sgd, {"lr": 0.1, "weight_decay": 0.3}),
    "momentum": (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
    "nesterov": (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.8, "nesterov": True}),
    "Adam": (optim.Adam, adam, {"lr": 0.01}),
    "Adam, decay": (optim.Adam, adam, {"lr": 0.01, "betas": (0.5, 0.9), "weight_decay": 0.2}),
    "Adam, no memory": (optim.Adam, adam, {"lr": 0.01, "betas": (0.0, 0.0), "eps": 0.5}),
    "AdamW": (optim.AdamW, adamw, {"lr": 0.01}),
    "AdamW, all": (
        optim.AdamW,
        adamw,
        {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.5},
    ),
}
each = pytest.mark.parametrize("name", CASES)


def gradients(rng, shapes, steps, dtype=np.float64):
    return [[rng.normal(size=s).astype(dtype) for s in shapes] for _ in range(steps)]


def run(optimizer, params, many):
    state = optimizer.init(params)
    for grads in many:
        params, state = optimizer.step(params, grads, state)
    return params, state


@each
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_steps_equal_the_twin(name, dtype, rng):
    kind, twin, options = CASES[name]
    shapes = [(3, 4), (), (5,)]
    first = [rng.normal(size=s).astype(dtype) for s in shapes]
    many = gradients(rng, shapes, 60, dtype)
    params = {"a": rg.asarray(first[0]), "b": [rg.asarray(first[1]), rg.asarray(first[2])]}
    given = [{"a": rg.asarray(g[0]), "b": [rg.asarray(x) for x in g[1:]]} for g in many]
    found, state = run(kind(**options), params, given)
    for i, leaf in enumerate(tree.leaves(found)):
        wanted = twin(first[i].astype(float), [g[i].astype(float) for g in many], **options)
        assert leaf.dtype == dtype
        assert_close(leaf, wanted.astype(dtype), what=name)
    assert int(state["step"]) == 60
    assert state["step"].dtype == rg.int64
    assert all(x.dtype in (dtype, np.int64) for x in tree.leaves(state))


def test_the_first_steps_of_adam_are_right_in_float32():
    """1 - 0.999 ** t loses four digits in float32; the step must not."""
    p, g = rg.zeros(4), rg.asarray([1e-3, 1.0, -1.0, 1e3])
    optimizer = optim.Adam(1.0, eps=0.0)
    found, _ = optimizer.step(p, g, optimizer.init(p))
    assert_close(found, -np.sign(np.asarray(g)), tolerance=1e-6)


@each
def test_rates_are_numbers_tensors_and_functions(name, rng):
    kind, twin, options = CASES[name]
    p, many = rng.normal(size=3), [g[0] for g in gradients(rng, [(3,)], 10)]
    ours = [rg.asarray(g) for g in many]
    lr, rest = options["lr"], {k: v for k, v in options.items() if k != "lr"}
    plain, _ = run(kind(lr, **rest), rg.asarray(p), ours)
    by_tensor, _ = run(kind(rg.asarray(np.float64(lr)), **rest), rg.asarray(p), ours)
    assert_close(by_tensor, plain)
    falling, _ = run(
        kind(lambda t: lr / (t.astype(rg.float64) + 1), **rest), rg.asarray(p), ours
    )
    assert_close(falling, twin(p, many, lr=lambda t: lr / (t + 1), **rest))


def test_every_number_may_be_a_tensor(rng):
    p, many = rng.normal(size=3), [g[0] for g in gradients(rng, [(3,)], 10)]
    for name, (kind, twin, options) in CASES.items():
        lifted = tree.map(lambda v: v if isinstance(v, bool) else rg.asarray(float(v)), options)
        found, _ = run(kind(**lifted), rg.asarray(p), [rg.asarray(g) for g in many])
        assert_close(found, twin(p, many, **options), tolerance=1e-6, what=name)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_keeps_its_dtype_and_wide_moments(dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    p = rg.ones(3, dtype=dtype)
    optimizer = optim.AdamW(0.125, weight_decay=0.0)
    found, state = optimizer.step(p, rg.ones(3, dtype=dtype), optimizer.init(p))
    assert found.dtype == p.dtype
    assert state["square"].dtype == rg.float32
    assert_close(found.astype(rg.float32), np.full(3, 0.875, np.float32), tolerance=1e-2)


def test_complex_parameters_go_down_with_sgd_only(rng):
    goal = rg.asarray(rng.normal(size=3) + 1j * rng.normal(size=3))

    def loss(z):
        return rg.sum(rg.abs(z - goal) ** 2)

    z, optimizer = rg.zeros_like(goal), optim.SGD(0.1, momentum=0.5)
    state = optimizer.init(z)
    for _ in range(100):
        z, state = optimizer.step(z, rg.grad(loss)(z), state)
    assert_close(z, goal, tolerance=1e-6)
    with pytest.raises(rg.DtypeError, match=r"AdamW: a parameter is complex128\[3\]; .* real"):
        optim.AdamW().init(z)


# -- on trees --------------------------------------------------------------------------------


class Model(nn.Module):
    weight: rg.Tensor
    mean: rg.Tensor
    count: rg.Tensor
    frozen: nn.Module
    layer: nn.Module
    fixed: ClassVar[tuple[str, ...]] = ("mean",)


def model():
    layer = nn.Linear(2, 3, key=rg.random.key(0))
    return Model(rg.ones(2), rg.ones(3), rg.asarray(4), nn.freeze(layer), layer)


@each
def test_what_is_fixed_stays(name):
    kind, _, options = CASES[name]
    before, optimizer = model(), kind(**options)
    grads = tree.map(rg.ones_like, before)
    after, state = run(optimizer, before, [grads] * 3)
    assert tree.structure(after) == tree.structure(before)
    for still in ("mean", "count", "frozen"):
        assert_close(getattr(after, still), getattr(before, still), tolerance=0)
    for moved in (after.weight != before.weight, after.layer.bias != before.layer.bias):
        assert bool(rg.all(moved))
    kept = len(optimizer.kept())
    assert len(tree.leaves(state)) == 1 + 3 * kept  # weight, layer.weight, layer.bias
    assert all(state[n].mean is None for n in optimizer.kept())


@each
def test_without_a_gradient_nothing_moves(name):
    kind, _, options = CASES[name]
    before, optimizer = model(), kind(clip=1.0, **options)
    grads = tree.map(rg.ones_like, before).replace(layer=None)
    after, state = run(optimizer, before, [grads] * 2)
    assert_close(after.layer, before.layer, tolerance=0)
    assert bool(rg.all(after.weight != before.weight))
    for n in optimizer.kept():
        assert not np.any(np.asarray(state[n].layer.weight))


def test_clipping_is_by_the_norm_of_all(rng):
    params = {"a": rg.asarray(rng.normal(size=3)), "b": rg.asarray(rng.normal(size=(2, 2)))}
    grads = tree.map(lambda p: 10 * p, params)
    size = np.sqrt(sum(np.sum(np.asarray(g) ** 2) for g in tree.leaves(grads)))
    for most in (1.0, 2 * size):
        optimizer = optim.SGD(1.0, clip=most)
        found, _ = optimizer.step(params, grads, optimizer.init(params))
        share = min(1, most / size)
        assert_close(found, tree.map(lambda p, g, s=share: p - s * g, params, grads))
    clipped, norm = optim.clip_global_norm(grads, 1.0)
    assert_close(norm, size)
    assert_close(optim.global_norm(clipped), np.float64(1.0))


def test_integer_zeros_among_gradients_are_left_by_clipping():
    grads = rg.grad(lambda m: rg.sum(m.weight * m.count))(model())
    clipped, size = optim.clip_global_norm(grads, 1.0)
    assert clipped.count.dtype == rg.int64
    assert_close(size, np.float32(np.sqrt(32)))


# -- as programs -----------------------------------------------------------------------------


def train_step(optimizer, structure):
    """A whole training step, of flat tensors."""

    def step(*xs):
        params, state, x, y = tree.unflatten(structure, xs)

        def loss(params):
            return nn.mse(params(x), y)

        value, grads = rg.value_and_grad(loss)(params)
        return tree.leaves((*optimizer.step(params, grads, state), value))

    return step


@each
def test_a_training_step_traces(name, rng):
    kind, _, options = CASES[name]
    optimizer = kind(clip=1.0, **options)
    params = nn.MLP([3, 4, 2], activation=rg.tanh, key=rg.random.key(0), dtype=rg.float64)
    x, y = rg.asarray(rng.normal(size=(5, 3))), rg.asarray(rng.normal(size=(5, 2)))
    leaves, structure = tree.flatten((params, optimizer.init(params), x, y))
    step = train_step(optimizer, structure)
    graph, captured = trace(step, [t.spec for t in leaves])
    assert_close(list(evaluate(graph, *leaves, *captured)), step(*leaves))


@each
def test_an_optimizer_is_a_tree_whose_numbers_trace(name, rng):
    kind, _, options = CASES[name]
    optimizer = kind(clip=1.0, **options)
    p = rg.asarray(rng.normal(size=3))
    numbers, structure = tree.flatten(optimizer)
    assert all(isinstance(n, float) for n in numbers)
    state, inner = tree.flatten(optimizer.init(p))
    numbers = [rg.asarray(n, dtype=rg.float64) for n in numbers]

    def step(p, *xs):
        ours = tree.unflatten(structure, xs[: len(numbers)])
        return tree.leaves(ours.step(p, p, tree.unflatten(inner, xs[len(numbers) :])))

    operands = [p, *numbers, *state]
    graph, captured = trace(step, [t.spec for t in operands])
    found = list(evaluate(graph, *operands, *captured))
    assert_close(found, tree.leaves(optimizer.step(p, p, optimizer.init(p))))


def test_steps_map_over_an_ensemble_and_differentiate(rng):
    optimizer = optim.AdamW(0.1)
    ps, gs = rg.asarray(rng.normal(size=(4, 3))), rg.asarray(rng.normal(size=(4, 3)))
    states = rg.vmap(optimizer.init)(ps)
    found, after = rg.vmap(optimizer.step)(ps, gs, states)
    one, _ = optimizer.step(ps[2], gs[2], optimizer.init(ps[2]))
    assert_close(found[2], one)
    assert after["step"].shape == (4,)

    def loss_after(lr):
        p, _ = optim.SGD(lr).step(ps[0], gs[0], optim.SGD(lr).init(ps[0]))
        return rg.sum(p**2)

    lr = rg.asarray(np.float64(0.1))
    assert_close(rg.grad(loss_after)(lr), -2 * rg.sum(gs[0] * (ps[0] - lr * gs[0])))


def test_a_state_that_was_stored_goes_on_to_the_bit(rng):
    optimizer = optim.AdamW(optim.cosine(0.1, 20, warmup=3), clip=1.0)
    p = rg.asarray(rng.normal(size=5).astype(np.float32))
    many = [rg.asarray(rng.normal(size=5).astype(np.float32)) for _ in range(10)]
    whole, state = run(optimizer, p, many)
    half, between = run(optimizer, p, many[:4])
    leaves, structure = tree.flatten((half, between))
    stored = [np.asarray(x).copy() for x in leaves]
    half, between = tree.unflatten(structure, [rg.asarray(a) for a in stored])
    for g in many[4:]:
        half, between = optimizer.step(half, g, between)
    assert_close((half, between), (whole, state), tolerance=0)


# -- schedules -------------------------------------------------------------------------------


def by_hand(kind, peak, steps, warmup, end):
    def rate(n):
        if n < warmup:
            return peak * (n + 1) / warmup
        done = min(1, (n - warmup) / (steps - warmup))
        fall = {"constant": 0, "linear": done, "cosine": (1 - np.cos(np.pi * done)) / 2}[kind]
        return peak + (end - peak) * fall

    return rate


@pytest.mark.parametrize("warmup", [0, 1, 4])
@pytest.mark.parametrize("kind", ["constant", "linear", "cosine"])
def test_schedules(kind, warmup):
    if kind == "constant":
        ours = optim.constant(0.5, warmup=warmup)
    else:
        ours = getattr(optim, kind)(0.5, 20, warmup=warmup, end=0.1)
    wanted = by_hand(kind, 0.5, 20, warmup, 0.1)
    for n in (0, 1, 3, 4, 10, 19, 20, 25):
        assert_close(ours(n), np.float32(wanted(n)))
        assert_close(ours(rg.asarray(n)), ours(n), tolerance=0)
    graph, captured = trace(lambda n: [ours(n)], [rg.asarray(0).spec])
    assert_close(evaluate(graph, rg.asarray(7), *captured)[0], ours(7))


# -- frozen, printed, refused ----------------------------------------------------------------


def test_an_optimizer_does_not_change():
    optimizer = optim.SGD(0.1, momentum=0.9)
    with pytest.raises(rg.FrozenError, match=r"SGD\.lr cannot be set"):
        optimizer.lr = 1.0
    assert optimizer.replace(lr=0.5).lr == 0.5
    assert optimizer.lr == 0.1
    words = "SGD(lr=0.1, weight_decay=0.0, clip=None, momentum=0.9, nesterov=False)"
    assert repr(optimizer) == words


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: optim.SGD(-0.1), "SGD: lr must not be negative; got -0.1"),
        (lambda: optim.SGD("fast"), "SGD: lr must be a number or a tensor; got 'fast'"),
        (lambda: optim.SGD(rg.ones(2)), "SGD: lr is one number; got a tensor float32[2]"),
        (lambda: optim.SGD(0.1, nesterov=True), "nesterov looks ahead along the momentum"),
        (lambda: optim.SGD(0.1, clip=0), "SGD: clip must be positive, or None"),
        (lambda: optim.Adam(betas=0.9), "Adam: betas are a pair, of mean and square; got 0.9"),
        (lambda: optim.AdamW(betas=(0.9, 1)), "AdamW: betas must be from 0 to below 1; got 1"),
        (lambda: optim.AdamW(weight_decay=-1), "weight_decay must not be negative; got -1"),
        (
            lambda: optim.cosine(0.1, 5, warmup=5),
            "cosine: 5 steps must be more than the warmup",
        ),
        (lambda: optim.linear(0.1, 2.5), "linear: steps must be an integer; got 2.5"),
    ],
)
def test_options_out_of_range(make, sentence):
    with pytest.raises((rg.ArgumentError, rg.ShapeError)) as caught:
        make()
    assert sentence in str(caught.value)


def test_trees_that_do_not_fit():
    optimizer, p = optim.SGD(0.1, momentum=0.9), {"a": rg.ones(2)}
    state = optimizer.init(p)
    with pytest.raises(rg.ArgumentError, match=r"grads is list\(\*\), the parameters are dict"):
        optimizer.step(p, [rg.ones(2)], state)
    with pytest.raises(rg.ArgumentError, match="grads is dict"):
        optimizer.step(p, {"b": rg.ones(2)}, state)
    with pytest.raises(
        rg.ShapeError, match=r"a parameter is float32\[2\], its gradient float32"
    ):
        optimizer.step(p, {"a": rg.ones(3)}, state)
    with pytest.raises(
        rg.ArgumentError, match="the state must have 'velocity'; it has the keys"
    ):
        optimizer.step(p, p, optim.Adam().init(p))
    with pytest.raises(rg.ArgumentError, match=r"state\['velocity'\] is"):
        optimizer.step(p, p, optimizer.init([rg.ones(2)]))
