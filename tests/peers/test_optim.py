"""Optimizers agree with torch.optim over many steps of the same training."""

import numpy as np
import pytest
from peers.against import torch

import retrograd as rg
from retrograd import nn, optim
from retrograd.core import tree
from retrograd.testing import assert_close

pytestmark = pytest.mark.peers("torch")

CASES = {
    "SGD": ({"lr": 0.1}, {}),
    "SGD, decay": ({"lr": 0.1, "weight_decay": 0.1}, {}),
    "SGD, momentum": ({"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}, {}),
    "SGD, nesterov": ({"lr": 0.05, "momentum": 0.9, "nesterov": True}, {}),
    "SGD, clip": ({"lr": 0.5, "momentum": 0.5}, {"clip": 0.1}),
    "Adam": ({"lr": 0.01}, {}),
    "Adam, decay": ({"lr": 0.01, "betas": (0.8, 0.9), "weight_decay": 0.1}, {}),
    "AdamW": ({"lr": 0.01}, {}),
    "AdamW, all": ({"lr": 0.01, "betas": (0.7, 0.8), "eps": 1e-3, "weight_decay": 0.5}, {}),
    "AdamW, clip": ({"lr": 0.01}, {"clip": 0.05}),
}


def theirs(kind, options, more, model, x, y, steps):
    """The same network in torch, trained; its parameters in our order."""
    net = torch.nn.Sequential(
        *(torch.nn.Linear(*layer.weight.shape, dtype=x.dtype) for layer in model.layers)
    )
    with torch.no_grad():
        for layer, ours in zip(net, model.layers, strict=True):
            layer.weight.copy_(torch.tensor(np.asarray(ours.weight).T.copy()))
            layer.bias.copy_(torch.tensor(np.asarray(ours.bias)))
    optimizer = getattr(torch.optim, kind)(net.parameters(), **options)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = ((net[1](torch.tanh(net[0](x))) - y) ** 2).mean()
        loss.backward()
        if "clip" in more:
            torch.nn.utils.clip_grad_norm_(net.parameters(), more["clip"])
        optimizer.step()
        losses.append(loss.item())
    found = [p.numpy(force=True) for layer in net for p in (layer.weight.mT, layer.bias)]
    return found, losses


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_same_training(name, dtype, rng):
    options, more = CASES[name]
    kind, steps = name.partition(",")[0], 40 if dtype == "float64" else 8
    x, y = rng.normal(size=(16, 3)).astype(dtype), rng.normal(size=(16, 2)).astype(dtype)
    model = nn.MLP([3, 8, 2], activation=rg.tanh, key=rg.random.key(0), dtype=dtype)
    wanted, wanted_losses = theirs(
        kind, options, more, model, torch.tensor(x), torch.tensor(y), steps
    )
    optimizer = getattr(optim, kind)(**options, **more)
    state, losses = optimizer.init(model), []
    step = rg.value_and_grad(lambda m: nn.mse(m(rg.asarray(x)), rg.asarray(y)))
    for _ in range(steps):
        value, grads = step(model)
        model, state = optimizer.step(model, grads, state)
        losses.append(float(value))
    # torch adds 1e-6 to the norm before it divides by it; nothing is added here
    rough = 1e-4 if "clip" in more else None
    assert_close(tree.leaves(model), wanted, tolerance=rough, what=name)
    assert_close(np.array(losses), np.array(wanted_losses), tolerance=rough or 1e-6, what=name)
