"""Recurrent layers agree with PyTorch's: values, gradients of all inputs, second order."""

from itertools import product

import numpy as np
import pytest
from peers.against import agree, floating, torch

import retrograd as rg
from retrograd.ops.nn import cells, recurrent

GATES = {"rnn": 1, "lstm": 4, "gru": 3}
pytestmark = pytest.mark.peers("torch")


def operands(rng, kind, *, n=3, steps=5, features=4, hidden=3, layers=1, ways=1, bias=True):
    """x, the states, then w_ih, w_hh and (b_ih, b_hh) of each layer and direction."""
    columns = GATES[kind] * hidden
    xs = [rng.normal(size=(n, steps, features))]
    xs += [rng.normal(size=(layers * ways, n, hidden)) for _ in range(1 + (kind == "lstm"))]
    for layer in range(layers):
        for _ in range(ways):
            width = ways * hidden if layer else features
            sizes = [(width, columns), (hidden, columns), *[(columns,)] * (2 * bias)]
            xs += [rng.normal(size=size) / 2 for size in sizes]
    return xs


def ours(kind, *, bias=True, **options):
    """Our function of the flat operands."""

    def f(x, *rest):
        states = {"h0": rest[0]} | ({"c0": rest[1]} if kind == "lstm" else {})
        each = 4 if bias else 2
        given = [list(rest[len(states) + i :: each]) for i in range(each)]
        return getattr(recurrent, kind)(x, *given, **states, **options)

    return f


def theirs(kind, *, layers=1, bidirectional=False, bias=True, activation="tanh", **options):
    """The same by torch, with its modules; lengths by packing."""
    lengths, time_major = options.get("lengths"), options.get("time_major", False)

    def f(x, *rest):
        states, weights = (rest[:2], rest[2:]) if kind == "lstm" else (rest[:1], rest[1:])
        more = {"nonlinearity": activation} if kind == "rnn" else {}
        net = getattr(torch.nn, kind.upper())(
            x.shape[2],
            states[0].shape[2],
            num_layers=layers,
            bidirectional=bidirectional,
            bias=bias,
            batch_first=not time_major,
            dtype=x.dtype,
            **more,
        )
        names = [name for name, _ in net.named_parameters()]
        turned = [w.mT if w.ndim == 2 else w for w in weights]
        given = x
        if lengths is not None:
            given = torch.nn.utils.rnn.pack_padded_sequence(
                x, torch.tensor(lengths), batch_first=not time_major, enforce_sorted=False
            )
        y, last = torch.func.functional_call(
            net,
            dict(zip(names, turned, strict=True)),
            (given, states if kind == "lstm" else states[0]),
        )
        if lengths is not None:
            y, _ = torch.nn.utils.rnn.pad_packed_sequence(
                y, batch_first=not time_major, total_length=x.shape[0 if time_major else 1]
            )
        return y, last

    return f


CASES = [
    dict(zip(("layers", "bidirectional", "bias", "ragged"), case, strict=True))
    for case in product((1, 2, 3), (False, True), (True, False), (False, True))
]


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c.values())))
def test_sequences(kind, case, rng):
    options = {"bidirectional": case["bidirectional"], "bias": case["bias"]}
    if case["ragged"]:
        options["lengths"] = np.array([2, 5, 1])
    if kind == "rnn":
        options["activation"] = "relu" if case["layers"] == 2 else "tanh"
    ways = 1 + case["bidirectional"]
    xs = operands(rng, kind, layers=case["layers"], ways=ways, bias=case["bias"])
    agree(
        ours(kind, **options),
        theirs(kind, layers=case["layers"], **options),
        xs,
        floating(xs),
        peer="torch",
        what=f"{kind} {case}",
    )


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_time_major(kind, dtype, rng):
    xs = [x.astype(dtype) for x in operands(rng, kind)]
    xs[0] = np.ascontiguousarray(xs[0].swapaxes(0, 1))
    mine, peer = ours(kind, time_major=True), theirs(kind, time_major=True)
    agree(mine, peer, xs, floating(xs), peer="torch", what=kind)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize(("n", "steps", "features", "hidden"), [(1, 1, 1, 1), (2, 9, 3, 7)])
def test_sizes(kind, n, steps, features, hidden, rng):
    xs = operands(rng, kind, n=n, steps=steps, features=features, hidden=hidden)
    agree(ours(kind), theirs(kind), xs, floating(xs), peer="torch", what=kind)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("ragged", [False, True])
def test_second_order(kind, ragged, rng):
    """The gradient of a nonlinear function of all results, differentiated once more."""
    options = {"bidirectional": True} | ({"lengths": np.array([2, 4, 1])} if ragged else {})
    xs = operands(rng, kind, steps=4, ways=2)

    def slopes(f):
        def loss(*xs):
            y, last = f(*xs)
            parts = (y, *last) if isinstance(last, tuple) else (y, last)
            return sum((p * p * p).sum() for p in parts)

        return loss

    def mine(*xs):
        return list(rg.grad(slopes(ours(kind, **options)), argnums=tuple(range(len(xs))))(*xs))

    def peer(*xs):
        total = slopes(theirs(kind, **options))(*xs)
        return torch.autograd.grad(total, xs, create_graph=True)

    def tracked(*xs):
        return peer(*(x if x.requires_grad else x.requires_grad_() for x in xs))

    agree(mine, tracked, xs, floating(xs), peer="torch", what=kind)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("bias", [True, False])
def test_cells(kind, bias, rng):
    x, *rest = operands(rng, kind, steps=1, bias=bias)
    states = 1 + (kind == "lstm")
    xs = [x[:, 0], *(r[0] for r in rest[:states]), *rest[states:]]

    def mine(x, *rest):
        state = tuple(rest[:2]) if kind == "lstm" else rest[0]
        return getattr(cells, f"{kind}_cell")(x, state, *rest[states:])

    def peer(x, *rest):
        name = "rnn_tanh_cell" if kind == "rnn" else f"{kind}_cell"
        state = rest[:2] if kind == "lstm" else rest[0]
        weights = [w.mT if w.ndim == 2 else w for w in rest[states:]]
        return getattr(torch._VF, name)(x, state, *weights, *([None] * (4 - len(weights))))

    agree(mine, peer, xs, floating(xs), peer="torch", what=f"{kind}_cell")
