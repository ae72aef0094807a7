"""Layers: each is its function with its weights; shapes, starts, gradients, refusals."""

import numpy as np
import pytest

import retrograd as rg
from retrograd import nn
from retrograd.core import tree
from retrograd.ir.evaluate import evaluate
from retrograd.ir.trace import trace
from retrograd.testing import assert_close, check_grads

KEY = rg.random.key(3)
D = rg.float64


def numbers(rng, *shape):
    return rg.asarray(rng.normal(size=shape))


# A layer, the shape of x, and the same by functions of the layer's fields and x.
LAYERS = {
    "Linear": (
        lambda: nn.Linear(3, 4, key=KEY, dtype=D),
        (5, 3),
        lambda m, x: x @ m.weight + m.bias,
    ),
    "Linear, no bias": (
        lambda: nn.Linear(3, 4, bias=False, key=KEY, dtype=D),
        (2, 5, 3),
        lambda m, x: x @ m.weight,
    ),
    "MLP": (
        lambda: nn.MLP([3, 5, 4, 2], activation=rg.tanh, key=KEY, dtype=D),
        (6, 3),
        lambda m, x: m.layers[2](rg.tanh(m.layers[1](rg.tanh(m.layers[0](x))))),
    ),
    "Conv 1-D": (
        lambda: nn.Conv(2, 4, (3,), padding="causal", dilation=2, key=KEY, dtype=D),
        (2, 7, 2),
        lambda m, x: nn.conv(x, m.weight, m.bias, padding="causal", dilation=2),
    ),
    "Conv 2-D": (
        lambda: nn.Conv(4, 6, 3, stride=[2, 1], padding=1, groups=2, key=KEY, dtype=D),
        (2, 6, 5, 4),
        lambda m, x: nn.conv(x, m.weight, m.bias, stride=(2, 1), padding=1, groups=2),
    ),
    "Conv 3-D, channels second": (
        lambda: nn.Conv(2, 3, (2, 1, 2), layout="NCDHW", key=KEY, dtype=D),
        (2, 2, 3, 2, 3),
        lambda m, x: nn.conv(x, m.weight, m.bias, layout="NCDHW"),
    ),
    "ConvTranspose": (
        lambda: nn.ConvTranspose(4, 6, (3, 2), stride=2, groups=2, key=KEY, dtype=D),
        (2, 3, 4, 4),
        lambda m, x: nn.conv_transpose(x, m.weight, m.bias, stride=2, groups=2),
    ),
    "DepthwiseConv": (
        lambda: nn.DepthwiseConv(3, (3, 3), multiplier=2, padding="same", key=KEY, dtype=D),
        (2, 4, 4, 3),
        lambda m, x: nn.depthwise_conv(x, m.weight, m.bias, padding="same"),
    ),
    "LayerNorm": (
        lambda: nn.LayerNorm((4, 3), dtype=D),
        (2, 5, 4, 3),
        lambda m, x: nn.layer_norm(x, m.weight, m.bias, axis=(-2, -1)),
    ),
    "RMSNorm": (
        lambda: nn.RMSNorm(3, eps=0.1, dtype=D),
        (2, 3),
        lambda m, x: nn.rms_norm(x, m.weight, eps=0.1),
    ),
    "GroupNorm": (
        lambda: nn.GroupNorm(2, 4, dtype=D),
        (2, 3, 3, 4),
        lambda m, x: nn.group_norm(x, 2, m.weight, m.bias),
    ),
    "InstanceNorm": (
        lambda: nn.InstanceNorm(4, dtype=D),
        (2, 3, 3, 4),
        lambda m, x: nn.instance_norm(x, m.weight, m.bias),
    ),
    "BatchNorm": (
        lambda: nn.BatchNorm(4, dtype=D),
        (2, 3, 4),
        lambda m, x: nn.batch_norm(x, m.mean, m.var, m.weight, m.bias, training=False)[0],
    ),
    "MultiHeadAttention": (
        lambda: nn.MultiHeadAttention(
            8, 4, kv_heads=2, causal=True, rotary=100.0, key=KEY, dtype=D
        ),
        (2, 5, 8),
        lambda m, x: nn.multi_head_attention(
            x,
            x,
            x,
            m.query.weight,
            m.key.weight,
            m.value.weight,
            m.out.weight,
            heads=4,
            kv_heads=2,
            b_q=m.query.bias,
            b_k=m.key.bias,
            b_v=m.value.bias,
            b_o=m.out.bias,
            rotary=100.0,
            causal=True,
        ),
    ),
    "RNN": (
        lambda: nn.RNN(3, 2, activation="relu", key=KEY, dtype=D),
        (2, 4, 3),
        lambda m, x: nn.rnn(x, m.w_ih, m.w_hh, m.b_ih, m.b_hh, activation="relu"),
    ),
    "LSTM": (
        lambda: nn.LSTM(3, 2, layers=2, bidirectional=True, key=KEY, dtype=D),
        (2, 4, 3),
        lambda m, x: nn.lstm(x, m.w_ih, m.w_hh, m.b_ih, m.b_hh, bidirectional=True),
    ),
    "GRU, no bias": (
        lambda: nn.GRU(3, 2, bias=False, time_major=True, key=KEY, dtype=D),
        (4, 2, 3),
        lambda m, x: nn.gru(x, m.w_ih, m.w_hh, time_major=True),
    ),
    "Sequential": (
        lambda: nn.Sequential(
            nn.Linear(3, 4, key=KEY, dtype=D),
            rg.tanh,
            nn.Dropout(0.5),
            nn.LayerNorm(4, dtype=D),
        ),
        (5, 3),
        lambda m, x: m[3](rg.tanh(m[0](x))),
    ),
}
each = pytest.mark.parametrize("name", LAYERS)


@each
def test_a_layer_is_its_function(name, rng):
    make, shape, by_functions = LAYERS[name]
    layer, x = make(), numbers(rng, *shape)
    assert_close(layer(x), by_functions(layer, x))
    assert all(p.dtype == D for p in tree.leaves(layer))


@each
def test_gradients_reach_every_parameter(name, rng):
    make, shape, _ = LAYERS[name]
    layer, x = make(), numbers(rng, *shape)
    leaves, structure = tree.flatten(layer)
    moved = [p + 0.1 * numbers(rng, *p.shape) for p in leaves]
    g = numbers(rng, *tree.leaves(layer(x))[0].shape)

    def loss(*ps):
        return rg.sum(tree.leaves(tree.unflatten(structure, ps)(x))[0] * g)

    check_grads(loss, *moved)
    grads = rg.grad(lambda layer: rg.sum(tree.leaves(layer(x))[0] * g))(layer)
    assert tree.structure(grads) == structure


@each
def test_a_layer_traces(name, rng):
    make, shape, _ = LAYERS[name]
    layer, x = make(), numbers(rng, *shape)
    leaves, structure = tree.flatten(layer)
    graph, captured = trace(
        lambda x, *ps: tree.leaves(tree.unflatten(structure, ps)(x)),
        [t.spec for t in (x, *leaves)],
    )
    assert_close(list(evaluate(graph, x, *leaves, *captured)), tree.leaves(layer(x)))


@each
def test_float32_unless_told(name):
    layer = LAYERS[name][0]()
    kind = type(layer)
    if kind is nn.Sequential:
        return
    options = {
        "MLP": ([2, 3],),
        "LayerNorm": (3,),
        "RMSNorm": (3,),
        "InstanceNorm": (3,),
        "BatchNorm": (3,),
        "GroupNorm": (1, 3),
        "DepthwiseConv": (2, 3),
        "Conv": (2, 3, 3),
        "ConvTranspose": (2, 3, 3),
        "MultiHeadAttention": (4, 2),
    }.get(kind.__name__, (2, 3))
    key = {} if "Norm" in kind.__name__ else {"key": KEY}
    assert all(p.dtype == rg.float32 for p in tree.leaves(kind(*options, **key)))


# -- how weights start -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "bound"),
    [
        (lambda: nn.Linear(100, 300, key=KEY), 0.1),
        (lambda: nn.Conv(4, 100, (5, 5), key=KEY), 0.1),
        (lambda: nn.Conv(8, 100, (5, 5), groups=2, key=KEY), 0.1),
        (lambda: nn.ConvTranspose(100, 4, (5, 5), key=KEY), 0.1),
        (lambda: nn.DepthwiseConv(200, (5, 5), key=KEY), 0.2),
        (lambda: nn.LSTM(40, 100, key=KEY), 0.1),
    ],
)
def test_weights_fill_their_range_evenly(make, bound):
    for p in tree.leaves(make()):
        p = np.asarray(p, np.float64)
        assert np.abs(p).max() <= bound * (1 + 1e-6)
        if p.size > 4000:  # deviations of the sample's moments: five of them
            spread = bound / np.sqrt(3)
            assert abs(p.mean()) < 5 * spread / np.sqrt(p.size)
            assert abs(p.std() / spread - 1) < 5 / np.sqrt(p.size)


def test_a_table_starts_normal_and_projections_after_glorot():
    table = np.asarray(nn.Embedding(200, 100, std=0.5, key=KEY).weight, np.float64)
    assert abs(table.std() / 0.5 - 1) < 5 / np.sqrt(table.size)
    layer = nn.MultiHeadAttention(64, 8, key=KEY)
    bound = np.sqrt(6 / 128)
    assert 0.99 * bound < np.abs(np.asarray(layer.query.weight)).max() <= bound * (1 + 1e-6)
    assert not np.any(np.asarray(layer.out.bias))


def test_a_key_makes_a_layer_and_parts_differ():
    a, b = nn.LSTM(3, 3, layers=2, key=KEY), nn.LSTM(3, 3, layers=2, key=KEY)
    assert_close(a, b)
    weights = [np.asarray(w) for w in (*a.w_ih, *a.w_hh)]
    assert all(np.any(v != w) for i, v in enumerate(weights) for w in weights[:i])
    other = nn.LSTM(3, 3, layers=2, key=rg.random.key(4))
    assert np.any(np.asarray(other.w_ih[0]) != weights[0])


# -- one by one ------------------------------------------------------------------------------


def test_embedding(rng):
    layer = nn.Embedding(5, 3, key=KEY, dtype=D)
    ids = rg.asarray([[0, 4, 4], [1, 0, 2]])
    assert_close(layer(ids), np.asarray(layer.weight)[np.asarray(ids)])
    grads = rg.grad(lambda m: rg.sum(m(ids)))(layer)
    counts = np.bincount(np.asarray(ids).ravel(), minlength=5)
    assert_close(grads.weight, np.repeat(counts[:, None], 3, axis=1).astype(float))
    with pytest.raises(rg.BoundsError):
        layer(rg.asarray([5]))


def test_attention_between_sequences_with_dropout(rng):
    layer = nn.MultiHeadAttention(6, 2, head_size=5, dropout=0.5, key=KEY, dtype=D)
    q, k = numbers(rng, 2, 3, 6), numbers(rng, 2, 4, 6)
    assert layer(q, k).shape == (2, 3, 6)
    assert_close(layer(q, k), layer(q, k, k))
    dropped = layer(q, k, key=KEY)
    assert_close(dropped, layer(q, k, key=KEY))
    assert np.any(np.asarray(dropped) != np.asarray(layer(q, k)))
    mask = rg.asarray([True, True, False, False])
    assert_close(layer(q, k, mask=mask), layer(q, k[:, :2]))


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_states_go_on_where_they_were(kind, rng):
    layer, x = kind(3, 2, layers=2, key=KEY, dtype=D), numbers(rng, 2, 6, 3)
    whole, last = layer(x)
    first, state = layer(x[:, :4])
    rest, end = layer(x[:, 4:], state)
    assert_close(rg.concat([first, rest], axis=1), whole)
    assert_close(end, last)
    assert tree.leaves(state)[0].shape == (2, 2, 2)
    lengths = rg.asarray([6, 4])
    assert_close(layer(x, lengths=lengths)[0][1, :4], whole[1, :4])


def test_dropout():
    layer, x = nn.Dropout(0.25), rg.ones((100, 100))
    assert_close(layer(x, key=None), x)
    assert_close(layer(x, key=KEY), nn.dropout(KEY, x, p=0.25))
    whole = np.asarray(nn.Dropout(0.5, whole=1)(x, key=KEY))
    assert np.all(whole == whole[:, :1])
    with pytest.raises(TypeError, match="key"):
        layer(x)


# -- statistics ------------------------------------------------------------------------------


def test_running_statistics_are_results(rng):
    norm, x = nn.BatchNorm(3, momentum=0.2, dtype=D), numbers(rng, 10, 3)
    y, after = norm(x, training=True)
    values = np.asarray(x)
    assert_close(y, (values - values.mean(0)) / np.sqrt(values.var(0) + 1e-5))
    assert_close(after.mean, 0.2 * values.mean(0))
    assert_close(after.var, 0.8 + 0.2 * values.var(0, ddof=1))
    assert_close(norm.mean, np.zeros(3))
    assert tree.structure(after) == tree.structure(norm)
    assert_close(after(x), (values - after.mean.array) / np.sqrt(after.var.array + 1e-5))


def test_statistics_come_out_of_a_gradient_and_have_none(rng):
    model = nn.Sequential(nn.Linear(2, 3, key=KEY, dtype=D), nn.BatchNorm(3, dtype=D))
    x = numbers(rng, 8, 2)

    def loss(model, training):
        y, model = model(x, training=True) if training else (model(x), model)
        return rg.sum(y**3), model

    for training in (True, False):
        (_, after), grads = rg.value_and_grad(loss, has_aux=True)(model, training)
        assert not np.any(np.asarray(grads[1].mean))
        assert not np.any(np.asarray(grads[1].var))
        assert np.any(np.asarray(grads[1].weight))
        assert_close(after, loss(model, training)[1])


def test_sequential_hands_out_keys_and_training(rng):
    inner = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm(3, dtype=D))
    model = nn.Sequential(nn.Linear(2, 3, key=KEY, dtype=D), inner, nn.Dropout(0.5))
    x = numbers(rng, 8, 2)
    keys = rg.random.split(KEY, 3)
    y, after = model(x, key=KEY, training=True)
    wanted, moved = inner(model[0](x), key=keys[1], training=True)
    assert_close(y, model[2](wanted, key=keys[2]))
    assert_close(after[1], moved)
    assert tree.structure(after) == tree.structure(model)
    assert_close(model(x), model[0](x) / np.sqrt(1 + 1e-5))
    assert len(model) == len(list(model)) == 3
    assert len(model[1:]) == 2
    with pytest.raises(rg.ArgumentError, match="a Dropout, needs a key in training"):
        model(x, training=True)


# -- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: nn.Linear(2.5, 3, key=KEY), "Linear: in_size must be an integer; got 2.5"),
        (lambda: nn.Linear(2, -3, key=KEY), "Linear: out_size must not be negative; got -3"),
        (
            lambda: nn.Linear(2, 3, key=None),
            "Linear: its weights are random, so it needs a key",
        ),
        (lambda: nn.MLP([3], key=KEY), "MLP: sizes are (in, hidden, .., out); got (3,)"),
        (lambda: nn.Conv(4, 6, 3, groups=4, key=KEY), "Conv: 4 groups must divide the 4 in"),
        (
            lambda: nn.Conv(4, 6, (), key=KEY),
            "kernel_size has one number for each axis; got ()",
        ),
        (lambda: nn.Conv(4, 6, (0,), key=KEY), "Conv: kernel_size must be at least 1; got 0"),
        (lambda: nn.GroupNorm(3, 4), "GroupNorm: 3 groups must divide the 4 channels"),
        (lambda: nn.LayerNorm(()), "LayerNorm: shape is a size, or one for each axis; got ()"),
        (lambda: nn.Dropout(1.5), "Dropout: p must be from 0 to 1; got 1.5"),
        (
            lambda: nn.MultiHeadAttention(8, 4, kv_heads=3, key=KEY),
            "heads must be a multiple of kv_heads; got 4 and 3",
        ),
        (
            lambda: nn.MultiHeadAttention(9, 4, key=KEY),
            "MultiHeadAttention: 4 heads must divide the size 9",
        ),
        (
            lambda: nn.RNN(2, 3, activation="elu", key=KEY),
            "must be 'tanh' or 'relu'; got 'elu'",
        ),
        (
            lambda: nn.LSTM(2, 3, key=KEY)(rg.ones((1, 2, 2)), rg.ones((1, 1, 3))),
            "LSTM: the state is a pair (h, c); got a Tensor",
        ),
        (
            lambda: nn.Sequential([nn.Dropout()]),
            "Sequential: layer 0 must be a module with a call, or a function; got a list",
        ),
    ],
)
def test_refusals(make, sentence):
    with pytest.raises(rg.ArgumentError) as caught:
        make()
    assert sentence in str(caught.value)


def test_words():
    assert repr(nn.Linear(784, 256, key=KEY)) == "Linear(784 -> 256, 200,960 numbers)"
    assert repr(nn.Linear(2, 3, bias=False, key=KEY)) == "Linear(2 -> 3, no bias, 6 numbers)"
    assert repr(nn.LayerNorm((3, 4))) == "LayerNorm((3, 4), 24 numbers)"
    conv = nn.Conv(4, 6, (3,), stride=2, groups=2, key=KEY)
    assert repr(conv) == "Conv(4 -> 6, kernel (3,), stride 2, groups 2, 42 numbers)"
    deep = nn.DepthwiseConv(3, (2, 2), multiplier=2, key=KEY)
    assert repr(deep) == "DepthwiseConv(3 -> 6, kernel (2, 2), 30 numbers)"
    layer = nn.MultiHeadAttention(8, 4, kv_heads=2, causal=True, dropout=0.1, key=KEY)
    first = "MultiHeadAttention(4 heads, 2 kv_heads, causal, dropout 0.1, 216 numbers)"
    assert repr(layer).split("\n")[:2] == [first, "  query: Linear(8 -> 8, 72 numbers)"]
    assert repr(tree.map(lambda _: None, conv)).startswith("Conv(? -> ?")
