"""Activations and softmax agree with torch's and jax's over many shapes, to second order."""

import pytest
from peers.against import F, agree_twice, jnn, torch
from peers.shapes import SHAPES, away, dtypes, each, over, shapes

import retrograd as rg
from retrograd import nn

# -- one number at a time: ours, theirs, and where the slope jumps ---------------------------

ROWS = {
    "relu": (nn.relu, F.relu, jnn.relu, [0]),
    "relu6": (nn.relu6, F.relu6, jnn.relu6, [0, 6]),
    "selu": (nn.selu, F.selu, jnn.selu, [0]),
    "silu": (nn.silu, F.silu, jnn.silu, []),
    "mish": (nn.mish, F.mish, jnn.mish, []),
    "sigmoid": (nn.sigmoid, torch.sigmoid, jnn.sigmoid, []),
    "logsigmoid": (nn.logsigmoid, F.logsigmoid, jnn.log_sigmoid, []),
    "softplus": (nn.softplus, F.softplus, jnn.softplus, []),
    "softsign": (nn.softsign, F.softsign, jnn.soft_sign, [0]),
    "hardswish": (nn.hardswish, F.hardswish, jnn.hard_swish, [-3, 3]),
    # torch's own hardsigmoid multiplies its gradient by a float32 sixth
    "hardsigmoid": (
        nn.hardsigmoid,
        lambda x: (x / 6 + 0.5).clamp(0, 1),
        jnn.hard_sigmoid,
        [-3, 3],
    ),
    "gelu": (nn.gelu, F.gelu, lambda x: jnn.gelu(x, approximate=False), []),
    "gelu tanh": (
        lambda x: nn.gelu(x, approximate=True),
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: jnn.gelu(x, approximate=True),
        [],
    ),
}
for number in (0.01, 0.2, -0.5, 1.5):
    ROWS[f"leaky_relu {number}"] = (
        lambda x, k=number: nn.leaky_relu(x, slope=k),
        lambda x, k=number: F.leaky_relu(x, k),
        lambda x, k=number: jnn.leaky_relu(x, k),
        [0],
    )
for number in (0.5, 1.0, 2.5):  # exact in float32, to which torch rounds celu's
    ROWS[f"elu {number}"] = (
        lambda x, k=number: nn.elu(x, alpha=k),
        lambda x, k=number: F.elu(x, k),
        lambda x, k=number: jnn.elu(x, k),
        [0],
    )
    ROWS[f"celu {number}"] = (
        lambda x, k=number: nn.celu(x, alpha=k),
        lambda x, k=number: F.celu(x, k),
        lambda x, k=number: jnn.celu(x, k),
        [0],
    )


@pytest.mark.peers("torch")
@over("name", ROWS)
@shapes
@dtypes
def test_torch(name, shape, dtype, rng):
    ours, theirs, _, kinks = ROWS[name]
    agree_twice(ours, theirs, [away(rng, shape, kinks, dtype)], peer="torch", what=name)


JAX = {
    "empty": ((0, 5), "float64", 3),
    "wide": ((2, 1, 9), "float64", 20),
    "single": ((7,), "float32", 3),
}


@pytest.mark.peers("jax")
@over("name", ROWS)
@over("case", JAX)
def test_jax(name, case, rng):
    """Also far out, where torch's softplus is straight; on fewer shapes, since jax compiles."""
    ours, _, theirs, kinks = ROWS[name]
    shape, dtype, spread = JAX[case]
    x = away(rng, shape, kinks, dtype, spread)
    agree_twice(ours, theirs, [x], peer="jax", what=name)


# -- gates: two halves of an axis, or two operands -------------------------------------------

HALVED = [((2,), 0), ((0, 6), 1), ((6, 1), 0), ((3, 4, 5), -2), ((3, 1, 5, 2), -1)]
HALVED += [((4, 3, 2, 2, 3), axis) for axis in (0, 2, -2)]
halved = each(("shape", "axis"), HALVED)


def torch_gate(f):
    """f of the first half, times the second."""
    return lambda x, axis: f(x.chunk(2, axis)[0]) * x.chunk(2, axis)[1]


GATES = {
    "glu": (nn.glu, F.glu),
    "swiglu": (nn.swiglu, torch_gate(F.silu)),
    "geglu": (nn.geglu, torch_gate(F.gelu)),
    "geglu tanh": (
        lambda x, axis: nn.geglu(x, axis=axis, approximate=True),
        torch_gate(lambda x: F.gelu(x, approximate="tanh")),
    ),
}


@pytest.mark.peers("torch")
@over("name", GATES)
@halved
@dtypes
def test_gates(name, shape, axis, dtype, rng):
    ours, theirs = GATES[name]
    agree_twice(
        lambda x: ours(x, axis=axis),
        lambda x: theirs(x, axis),
        [away(rng, shape, [], dtype)],
        peer="torch",
        what=name,
    )


@pytest.mark.peers("jax")
@each(("shape", "axis"), HALVED[1:4])
def test_glu_by_jax(shape, axis, rng):
    x = rng.normal(size=shape)
    agree_twice(lambda x: nn.glu(x, axis=axis), lambda x: jnn.glu(x, axis), [x], peer="jax")


@pytest.mark.peers("torch")
@over("name", ["swiglu", "geglu"])
@shapes
def test_gates_of_two_operands(name, shape, rng):
    f = F.silu if name == "swiglu" else F.gelu
    xs = [rng.normal(size=shape) for _ in range(2)]
    agree_twice(getattr(nn, name), lambda x, y: f(x) * y, xs, peer="torch", what=name)


@pytest.mark.peers("torch")
@each("shape", SHAPES[1:])
@over("many", [False, True], ids=["one slope", "one for each"])
@dtypes
def test_prelu(shape, many, dtype, rng):
    """Channels last, torch's second; of vectors it takes one slope only."""
    slopes = shape[-1] if many and len(shape) > 1 else 1
    xs = [away(rng, shape, [0], dtype), rng.normal(size=slopes).astype(dtype)]
    second = lambda x: x.movedim(-1, 1) if x.ndim > 1 else x
    last = lambda x: x.movedim(1, -1) if x.ndim > 1 else x
    theirs = lambda x, w: last(F.prelu(second(x), w))
    agree_twice(nn.prelu, theirs, xs, peer="torch", what="prelu")


# -- softmax, along every axis ---------------------------------------------------------------

ALONG = [(s, a) for s in SHAPES for a in range(len(s))]
along = each(("shape", "axis"), ALONG)
SOFT = {
    "softmax": (nn.softmax, F.softmax, jnn.softmax),
    "log_softmax": (nn.log_softmax, F.log_softmax, jnn.log_softmax),
    "softmin": (nn.softmin, F.softmin, lambda x, axis: jnn.softmax(-x, axis)),
}


@pytest.mark.peers("torch")
@over("name", SOFT)
@along
@dtypes
def test_softmax(name, shape, axis, dtype, rng):
    ours, theirs, _ = SOFT[name]
    agree_twice(
        lambda x: ours(x, axis=axis - len(shape)),
        lambda x: theirs(x, axis),
        [away(rng, shape, [], dtype)],
        peer="torch",
        what=name,
    )


@pytest.mark.peers("jax")
@over("name", SOFT)
@each(("shape", "axis"), [((7,), 0), ((0, 5), -1), ((3, 1, 5), 0), ((2, 3, 4, 3), 2)])
def test_softmax_by_jax(name, shape, axis, rng):
    ours, _, theirs = SOFT[name]
    x = rng.normal(size=shape) * 30
    agree_twice(
        lambda x: ours(x, axis=axis), lambda x: theirs(x, axis), [x], peer="jax", what=name
    )


@pytest.mark.peers("torch")
@over("hard", [False, True])
@over("temperature", [0.5, 2.0])
@each(("shape", "axis"), ALONG[::3])
def test_gumbel_softmax_of_the_same_noise(shape, axis, temperature, hard, rng):
    key = rg.random.key(3)
    noise = torch.tensor(rg.random.gumbel(key, shape, dtype=rg.float64).numpy())

    def theirs(x):
        soft = F.softmax((x + noise) / temperature, axis)
        if not hard:
            return soft
        chosen = torch.zeros_like(soft).scatter(axis, soft.argmax(axis, keepdim=True), 1.0)
        return (chosen - soft).detach() + soft

    ours = lambda x: nn.gumbel_softmax(key, x, temperature=temperature, hard=hard, axis=axis)
    agree_twice(ours, theirs, [rng.normal(size=shape)], peer="torch", what="gumbel_softmax")
