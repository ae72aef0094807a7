"""Small networks that learn: whole training steps, with statistics, dropout and clipping."""

import numpy as np
import pytest

import retrograd as rg
from retrograd import nn, optim

KEY = rg.random.key(11)


def bars(key, count, side=8):
    """Noisy pictures of one bar, upright or lying, and which: [count, side, side, 1]."""
    keys = rg.random.split(key, 3)
    upright = np.asarray(rg.random.bernoulli(keys[0], 0.5, (count,)))
    place = np.asarray(rg.random.randint(keys[1], (count,), low=0, high=side))
    x = np.asarray(rg.random.normal(keys[2], (count, side, side, 1), std=0.3)).copy()
    for i in range(count):
        rows = (slice(None), place[i]) if upright[i] else (place[i], slice(None))
        x[(i, *rows)] += 1
    return rg.asarray(x), rg.asarray(upright.astype(np.int64))


def network(keys):
    return nn.Sequential(
        nn.Conv(1, 8, (3, 3), padding="same", key=keys[0]),
        nn.BatchNorm(8),
        nn.relu,
        halved,
        nn.Conv(8, 8, (3, 3), key=keys[1]),
        nn.relu,
        flat,
        nn.Dropout(0.2),
        nn.Linear(32, 2, key=keys[2]),
    )


def halved(x):
    return nn.max_pool(x, 2)


def flat(x):
    return x.reshape(x.shape[0], -1)


@pytest.mark.parametrize(
    "optimizer",
    [
        optim.SGD(0.1, momentum=0.9, clip=1.0),
        optim.AdamW(optim.cosine(1e-2, 60, warmup=5), clip=1.0),
    ],
    ids=["SGD", "AdamW"],
)
def test_a_convolutional_net_learns(optimizer):
    keys = rg.random.split(KEY, 6)
    model = network(keys)
    state = optimizer.init(model)
    x, y = bars(keys[3], 256)

    def loss(model, x, y, key):
        scores, model = model(x, key=key, training=True)
        return nn.cross_entropy(scores, y), model

    step = rg.value_and_grad(loss, has_aux=True)
    for i in range(60):
        part = slice(i % 8 * 32, i % 8 * 32 + 32)
        (_, model), grads = step(model, x[part], y[part], rg.random.fold_in(keys[4], i))
        model, state = optimizer.step(model, grads, state)
    unseen, answers = bars(keys[5], 200)
    right = rg.mean(rg.argmax(model(unseen), axis=1) == answers)
    assert float(right) > 0.95
    assert np.any(np.asarray(model[1].mean) != 0)


def test_a_recurrent_net_learns_to_remember():
    """The first of eight numbers is the answer."""
    keys = rg.random.split(KEY, 3)

    class Memory(nn.Module):
        cell: nn.GRU
        head: nn.Linear

        def __call__(self, x):
            return self.head(self.cell(x)[1][-1])

    model = Memory(nn.GRU(1, 12, key=keys[0]), nn.Linear(12, 1, key=keys[1]))
    optimizer = optim.AdamW(1e-2, clip=1.0)
    state = optimizer.init(model)
    x = rg.random.normal(keys[2], (128, 8, 1))
    step = rg.value_and_grad(lambda m: nn.mse(m(x), x[:, 0]))
    losses = []
    for _ in range(150):
        value, grads = step(model)
        model, state = optimizer.step(model, grads, state)
        losses.append(float(value))
    assert losses[-1] < 0.1 * losses[0]


def test_the_tape_face_trains_a_module_too():
    model = nn.MLP([2, 8, 1], activation=rg.tanh, key=KEY)
    x = rg.random.normal(KEY, (64, 2))
    y = x[:, :1] * x[:, 1:]
    optimizer = optim.Adam(3e-2)
    state = optimizer.init(model)
    losses = []
    for _ in range(100):
        live = rg.tree.map(lambda p: rg.tensor(p, requires_grad=True), model)
        loss = nn.mse(live(x), y)
        loss.backward()
        grads = rg.tree.map(lambda p: p.grad, live)
        model, state = optimizer.step(model, grads, state)
        losses.append(float(loss))
    assert losses[-1] < 0.1 * losses[0]
