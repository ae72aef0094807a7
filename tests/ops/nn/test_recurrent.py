"""Recurrent layers: one op a layer and direction, held to loops of cells and to differences."""

import tracemalloc

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.op import REGISTRY
from retrograd.core.spec import spec_of
from retrograd.core.tape import Joint
from retrograd.ops.nn import cells, recurrent
from retrograd.testing import check
from retrograd.testing.compare import assert_close

GATES = {"rnn": 1, "lstm": 4, "gru": 3}
KINDS = pytest.mark.parametrize("kind", GATES)


def weights(rng, kind, *, features=4, hidden=3, layers=1, ways=1):
    """w_ih, w_hh, b_ih and b_hh, a list each."""
    columns, found = GATES[kind] * hidden, []
    for layer in range(layers):
        for _ in range(ways):
            width = ways * hidden if layer else features
            sizes = [(width, columns), (hidden, columns), (columns,), (columns,)]
            found.append([rng.normal(size=s) / 2 for s in sizes])
    return [list(column) for column in zip(*found, strict=True)]


def single(rng, kind, **options):
    return [w[0] for w in weights(rng, kind, **options)]


def states(rng, kind, *shape):
    names = ("h0", "c0") if kind == "lstm" else ("h0",)
    return {name: rng.normal(size=shape) for name in names}


def run(kind, x, ws, **options):
    """(y, [last states]) of the network."""
    y, last = getattr(recurrent, kind)(x, *ws, **options)
    return y, list(last) if isinstance(last, tuple) else [last]


def stepped(kind, x, ws, **given):
    """The same as a loop of cells over one sequence: x [N, T, I]."""
    cell = getattr(cells, f"{kind}_cell")
    state = (given["h0"], given["c0"]) if kind == "lstm" else given["h0"]
    ys = []
    for t in range(x.shape[1]):
        state = cell(x[:, t], state, *ws)
        ys.append(state[0] if kind == "lstm" else state)
    return rg.stack(ys, axis=1), list(state) if kind == "lstm" else [state]


def gradients(f, *xs):
    """Of a sum of all results with weights of their own, all different."""

    def loss(*xs):
        y, last = f(*xs)
        parts = [y, *last]
        return sum(
            (p * rg.asarray(np.sin(1 + i + np.arange(p.size)).reshape(p.shape))).sum()
            for i, p in enumerate(parts)
        )

    return rg.grad(loss, argnums=tuple(range(len(xs))))(*map(rg.asarray, xs))


# -- against loops of cells --------------------------------------------------------------------


@KINDS
def test_a_sequence_is_a_loop_of_cells(kind, rng):
    x, ws, first = rng.normal(size=(2, 6, 4)), single(rng, kind), states(rng, kind, 2, 3)
    assert_close(run(kind, x, ws, **first), stepped(kind, rg.asarray(x), ws, **first))

    def by(f):
        def g(x, *rest):
            given = dict(zip(first, rest[4:], strict=True))
            return f(kind, x, rest[:4], **given)

        return gradients(g, x, *ws, *first.values())

    assert_close(by(run), by(stepped))


@KINDS
def test_absent_states_and_biases_are_zero(kind, rng):
    x, ws = rng.normal(size=(2, 3, 4)), single(rng, kind)
    zero = {name: np.zeros((2, 3)) for name in states(rng, kind, 2, 3)}
    full = [*ws[:2], np.zeros_like(ws[2]), np.zeros_like(ws[3])]
    assert_close(run(kind, x, ws[:2]), run(kind, x, full, **zero))


@KINDS
def test_two_halves_are_the_whole(kind, rng):
    x, ws, first = rng.normal(size=(2, 7, 4)), single(rng, kind), states(rng, kind, 2, 3)
    head, middle = run(kind, x[:, :4], ws, **first)
    tail, last = run(kind, x[:, 4:], ws, **dict(zip(first, middle, strict=True)))
    assert_close((rg.concat([head, tail], axis=1), last), run(kind, x, ws, **first))


@KINDS
def test_backward_is_forward_on_time_reversed(kind, rng):
    x, ws = rng.normal(size=(2, 5, 4)), weights(rng, kind, ways=2)
    y, last = run(kind, x, ws, bidirectional=True)
    there, there_last = run(kind, x, [w[:1] for w in ws])
    back, back_last = run(kind, x[:, ::-1], [w[1:] for w in ws])
    assert_close(y, rg.concat([there, rg.flip(back, axis=1)], axis=-1))
    joined = [rg.concat(pair, axis=0) for pair in zip(there_last, back_last, strict=True)]
    assert_close(last, joined)


@KINDS
def test_layers_are_networks_in_a_row(kind, rng):
    x, ws = rng.normal(size=(2, 5, 4)), weights(rng, kind, layers=3)
    y, lasts = x, []
    for layer in zip(*ws, strict=True):
        y, last = run(kind, y, layer)
        lasts.append(last)
    wanted = [rg.stack(list(column)) for column in zip(*lasts, strict=True)]
    assert_close(run(kind, x, ws), (y, wanted))


@KINDS
def test_time_major_is_a_transpose(kind, rng):
    x, ws = rng.normal(size=(2, 5, 4)), single(rng, kind)
    y, last = run(kind, x.swapaxes(0, 1), ws, time_major=True)
    assert_close((rg.swapaxes(y, 0, 1), last), run(kind, x, ws))


# -- lengths -----------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("ways", [1, 2])
def test_each_sequence_stops_at_its_length(kind, ways, rng):
    """As if each ran alone; what lies beyond is not read, even if it is nan."""
    lengths, steps = [3, 0, 6, 1], 6
    ws = weights(rng, kind, layers=2, ways=ways)
    x = rng.normal(size=(4, steps, 4))
    first = states(rng, kind, 2 * ways, 4, 3)
    for n, length in enumerate(lengths):
        x[n, length:] = np.nan
    options = {"bidirectional": ways == 2}
    y, last = run(kind, x, ws, lengths=np.array(lengths), **first, **options)
    for n, length in enumerate(lengths):
        here = {name: s[:, n : n + 1] for name, s in first.items()}
        alone, ends = run(kind, x[n : n + 1, :length], ws, **here, **options)
        assert_close(y[n : n + 1, :length], alone)
        assert_close([e[:, n : n + 1] for e in last], ends)
        assert not np.asarray(y[n, length:]).any()


@KINDS
@pytest.mark.parametrize("ways", [1, 2])
def test_nothing_flows_beyond_a_length(kind, ways, rng):
    lengths = np.array([2, 4, 0])
    flat = [w for part in weights(rng, kind, ways=ways) for w in part]
    x = rng.normal(size=(3, 4, 4))
    x[0, 2:] = x[2] = np.inf

    def f(x, *flat):
        ws = [list(flat[i * ways : (i + 1) * ways]) for i in range(4)]
        return run(kind, x, ws, lengths=lengths, bidirectional=ways == 2)

    found = [np.asarray(g) for g in gradients(f, x, *flat)]
    assert all(np.isfinite(g).all() for g in found)
    assert not found[0][0, 2:].any()
    assert not found[0][2].any()
    assert found[0][0, :2].all()


# -- named after the defects -------------------------------------------------------------------


@KINDS
def test_Y28_batches_states_layers_and_directions(kind, rng):
    ws = weights(rng, kind, layers=2, ways=2)
    x, first = rng.normal(size=(5, 6, 4)), states(rng, kind, 4, 5, 3)
    y, last = run(kind, x, ws, bidirectional=True, **first)
    assert y.shape == (5, 6, 6)
    assert [s.shape for s in last] == [(4, 5, 3)] * len(first)


@KINDS
def test_Y28_one_op_for_a_sequence_that_keeps_its_states_once(kind, rng):
    """On the tape: x, weights, first states, lengths, y; gates and cells if there are any."""
    n, steps, features, hidden = 5, 16, 4, 8
    ws = [w.astype(np.float32) for w in single(rng, kind, features=features, hidden=hidden)]
    x = rg.tensor(rng.normal(size=(n, steps, features)).astype(np.float32), requires_grad=True)
    ws = [rg.tensor(w, requires_grad=True) for w in ws]
    first = {
        k: rg.tensor(s.astype(np.float32), requires_grad=True)
        for k, s in states(rng, kind, n, hidden).items()
    }
    y, _ = run(kind, x, ws, **first)
    graph = rg.debug.graph(y)
    assert [i.name for i in graph.items].count(kind) == 1
    floats = x.size + sum(w.size for w in ws[:2]) + sum(s.size for s in first.values())
    floats += n * steps * hidden * {"rnn": 1, "lstm": 1 + 4 + 1, "gru": 1 + 4}[kind]
    assert graph.nbytes == 4 * floats + 8 * n


@KINDS
@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize("lengths", [None, [3, 1, 0]])
def test_Y31_every_input_has_the_right_gradient(kind, ways, lengths, rng):
    """float64 against differences along random directions, forward, reverse, twice."""
    ws = weights(rng, kind, ways=ways, features=2, hidden=2)
    flat = [w for part in ws for w in part]
    first = states(rng, kind, ways, 3, 2)
    names = list(first)

    def f(x, *rest):
        given = dict(zip(names, rest[: len(names)], strict=True))
        flat = rest[len(names) :]
        ws = [list(flat[i * ways : (i + 1) * ways]) for i in range(4)]
        y, last = run(kind, x, ws, lengths=lengths, bidirectional=ways == 2, **given)
        return [y, *last]

    check.check_grads(f, rng.normal(size=(3, 3, 2)), *first.values(), *flat)


@KINDS
def test_Y31_each_gradient_alone(kind, rng):
    """An input whose gradient were 0 would pass as part of a sum: each is looked at alone."""
    x, ws, first = rng.normal(size=(2, 3, 4)), single(rng, kind), states(rng, kind, 2, 3)

    def f(x, *rest):
        return run(kind, x, rest[:4], **dict(zip(first, rest[4:], strict=True)))

    found = gradients(f, x, *ws, *first.values())
    for g in found:
        assert np.abs(np.asarray(g)).min() > 0
    total = sum(float((np.asarray(g) ** 2).sum()) for g in found)
    assert np.isfinite(total)


# -- the rest ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["rnn", "lstm"])
def test_both_biases_are_one(kind, rng):
    x, (w_ih, w_hh, b, c) = rng.normal(size=(2, 3, 4)), single(rng, kind)
    assert_close(run(kind, x, (w_ih, w_hh, b, c)), run(kind, x, (w_ih, w_hh, b + c)))


def test_relu_has_slope_0_at_0():
    x = rg.tensor(np.zeros((1, 2, 1)), requires_grad=True)
    y, _ = recurrent.rnn(x, np.ones((1, 2)), np.ones((2, 2)), activation="relu")
    y.sum().backward()
    assert not np.asarray(x.grad).any()


@KINDS
def test_only_the_last_state_is_asked_for(kind, rng):
    x, ws = rng.normal(size=(2, 4, 4)), single(rng, kind)

    def f(x):
        return run(kind, x, ws)[1][0]

    check.check_grads(f, x, order=1)


@KINDS
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_dtypes_stay(kind, dtype, rng):
    x, ws = rng.normal(size=(2, 4, 4)), single(rng, kind)
    low = [rg.tensor(a.astype(dtype), requires_grad=True) for a in (x, *ws)]
    y, last = run(kind, low[0], low[1:])
    (y * y).sum().backward()
    assert {t.dtype for t in (y, *last)} == {np.dtype(dtype)}
    assert {t.grad.dtype for t in low} == {np.dtype(dtype)}
    wanted, _ = run(kind, x, ws)
    assert_close(y, wanted, tolerance=2e-2 if dtype == np.float16 else 1e-5)


@KINDS
def test_vmap_over_sequences_and_over_weights(kind, rng):
    x, ws = rng.normal(size=(3, 2, 4, 4)), [single(rng, kind) for _ in range(3)]
    stacked = [np.stack(column) for column in zip(*ws, strict=True)]

    def f(x, *ws):
        y, last = run(kind, x, ws)
        return [y, *last]

    found = rg.vmap(f, in_axes=(0, None, None, None, None))(x, *ws[0])
    rows = [f(x[i], *ws[0]) for i in range(3)]
    assert_close(found, [rg.stack(list(c)) for c in zip(*rows, strict=True)])
    assert rg.vmap(f, in_axes=(0, *[None] * 4))(x[:0], *ws[0])[0].shape == (0, 2, 4, 3)
    found = rg.vmap(f)(x, *stacked)
    rows = [f(x[i], *ws[i]) for i in range(3)]
    assert_close(found, [rg.stack(list(c)) for c in zip(*rows, strict=True)])


@KINDS
def test_gradients_for_each_sample(kind, rng):
    x, ws = rng.normal(size=(3, 1, 4, 4)), single(rng, kind)

    def loss(w, x):
        y, _ = run(kind, x, [*ws[:1], w, *ws[2:]])
        return (y * y).sum()

    found = rg.vmap(rg.grad(loss), in_axes=(None, 0))(rg.asarray(ws[1]), x)
    assert_close(found, rg.stack([rg.grad(loss)(rg.asarray(ws[1]), x[i]) for i in range(3)]))


@KINDS
def test_no_sequences_and_no_steps(kind, rng):
    ws, first = single(rng, kind), states(rng, kind, 2, 3)
    y, last = run(kind, np.zeros((0, 5, 4)), ws)
    assert y.shape == (0, 5, 3)
    assert last[0].shape == (0, 3)
    y, last = run(kind, np.zeros((2, 0, 4)), ws, **first)
    assert y.shape == (2, 0, 3)
    assert_close(last, list(first.values()))


@KINDS
def test_long_sequences_stay_finite(kind, rng):
    x, ws = rng.normal(size=(1, 512, 4)), single(rng, kind)
    found = gradients(lambda x, *ws: run(kind, x, ws), x, *ws)
    assert all(np.isfinite(np.asarray(g)).all() for g in found)


@KINDS
def test_a_frozen_network_keeps_nothing(kind, rng):
    y, _ = run(kind, rng.normal(size=(2, 4, 4)), single(rng, kind))
    assert not y.requires_grad


@KINDS
def test_a_checkpointed_layer_has_the_same_gradient(kind, rng):
    x, ws = rng.normal(size=(2, 4, 4)), single(rng, kind)
    plain = gradients(lambda x, *ws: run(kind, x, ws), x, *ws)
    kept = rg.checkpoint(lambda x, *ws: run(kind, x, ws))
    for a, b in zip(plain, gradients(kept, x, *ws), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"x": np.ones((2, 4))}, "x is [N, T, I]; got shape (2, 4)"),
        ({"w_ih": np.ones((4, 11))}, "w_ih has shape (4, 11); for 4 features and states of 3"),
        ({"w_hh": np.ones((12, 3))}, "must have (4, 48)"),
        ({"b_ih": np.ones(1)}, "b_ih has shape (1,)"),
        ({"h0": np.ones((1, 3))}, "h0 has shape (1, 3); it must have (2, 3)"),
        ({"lengths": [5]}, "lengths have shape (1,); for a batch of 2"),
        ({"lengths": [5, 6]}, "lengths must be from 0 to 5"),
        ({"lengths": [1.0, 2.0]}, "lengths are integers; got float32"),
        ({"bidirectional": True}, "w_ih has 1 entries; there must be one for each layer"),
        ({"w_hh": [np.ones((3, 12))]}, "both must be of one kind"),
        ({"w_ih": [], "w_hh": []}, "w_ih has 0 entries"),
    ],
)
def test_refusals(change, sentence, rng):
    names = ("w_ih", "w_hh", "b_ih", "b_hh")
    given = {"x": rng.normal(size=(2, 5, 4))}
    given |= dict(zip(names, single(rng, "lstm"), strict=True)) | change
    data = [given.pop(n) for n in ("x", *names)]
    with pytest.raises(rg.RetrogradError) as error:
        recurrent.lstm(*data, **given)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda w: cells.lstm_cell(np.ones(4), np.ones(3), *w), "the state is a pair (h, c)"),
        (lambda w: cells.gru_cell(np.ones(4), np.ones(3), *w), "it must have (4, 9)"),
        (lambda w: cells.rnn_cell(1.0, np.ones(3), *w), "x and h need axes"),
        (
            lambda w: cells.lstm_cell(np.ones((2, 4)), (np.ones(3), np.ones(3)), *w),
            "must have one batch",
        ),
        (
            lambda w: cells.lstm_cell(np.ones(4), (np.ones(3), np.ones(1)), *w),
            "must have one shape",
        ),
        (
            lambda w: recurrent.rnn(np.ones((1, 1, 4)), *w, activation="gelu"),
            "activation must be 'tanh' or 'relu'; got 'gelu'",
        ),
    ],
)
def test_refusals_of_cells(call, sentence, rng):
    with pytest.raises(rg.RetrogradError) as error:
        call(single(rng, "lstm"))
    assert sentence in str(error.value)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("lengths", [[40] * 8, [40, 3] * 4])
@KINDS
def test_workspace_is_enough(kind, lengths, backwards, rng):
    """What forward and backward hold beside their operands and results."""
    op = REGISTRY[kind.title()](backwards)
    xs = [rng.normal(size=(40, 8, 32)), *single(rng, kind, features=32, hidden=64)]
    xs = [*xs[:3], *(xs[3:] if kind == "gru" else xs[3:4])]
    xs += list(states(rng, kind, 8, 64).values())
    lengths = np.array(lengths)
    outs = room(op, *xs, lengths)
    kept = [
        *xs[:3],
        *xs[5 if kind == "gru" else 4 :],
        lengths,
        outs[0],
        *outs[len(outs) // 2 + 1 :],
    ]
    room(REGISTRY[f"{kind.title()}Grad"](backwards), *kept, *outs[: 3 if kind == "lstm" else 2])


def room(op, *xs):
    """Run forward; no more memory than the op says may be used beside the results."""
    tracemalloc.start()
    outs = op.forward(*xs)
    left, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak - left <= op.workspace(*map(spec_of, xs))
    return outs


def test_what_lies_on_the_tape_is_named(rng):
    x = rg.tensor(rng.normal(size=(2, 3, 4)), requires_grad=True)
    y, _ = recurrent.lstm(x, *single(rng, "lstm"))
    node = y._node
    while type(node) is not Joint:
        node = next(p for p in node.parents if p is not None)
    kept = [k.name for k in node.recipe.keeps]
    assert kept == ["x", "w_ih", "w_hh", "h0", "c0", "lengths", "y", "gates", "cells"]
