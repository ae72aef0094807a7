"""Activations, norms and losses agree with PyTorch on values and gradients, float64."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.ops.nn import activations as a
from retrograd.ops.nn import class_losses as c
from retrograd.ops.nn import losses as n
from retrograd.ops.nn import norms
from retrograd.ops.nn import softmax as s
from retrograd.testing import assert_close

pytestmark = pytest.mark.peers("torch")
RNG = np.random.default_rng(11)
X, Y, P = RNG.normal(size=(4, 6)) * 2, RNG.normal(size=(4, 6)), RNG.uniform(0.1, 0.9, (4, 6))
CLASSES, SIGNS = np.array([0, 3, 1, 5]), np.array([1, -1, 1, -1])
BITS = (P > 0.5).astype(np.float64)
IMAGE, W, B = RNG.normal(size=(3, 5, 4, 6)), RNG.normal(size=6), RNG.normal(size=6)


def first(f):
    """PyTorch's channels-first function on our channels-last arguments."""
    return lambda x, *rest: f(x.movedim(-1, 1), *rest).movedim(1, -1)


def pairs():
    import torch
    import torch.nn.functional as t

    ints, signs = torch.from_numpy(CLASSES), torch.from_numpy(SIGNS)
    bits = torch.from_numpy(BITS)
    for name in [
        "relu",
        "relu6",
        "celu",
        "elu",
        "selu",
        "silu",
        "mish",
        "hardswish",
        "softsign",
        "glu",
    ]:
        yield name, getattr(a, name), getattr(t, name), [X]
    # PyTorch's own hardsigmoid multiplies its gradient by a float32 sixth
    yield "hardsigmoid", a.hardsigmoid, lambda x: (x / 6 + 0.5).clamp(0, 1), [X]
    yield "gelu", a.gelu, t.gelu, [X]
    yield (
        "gelu tanh",
        lambda x: a.gelu(x, approximate=True),
        lambda x: t.gelu(x, approximate="tanh"),
        [X],
    )
    yield "leaky", lambda x: a.leaky_relu(x, slope=0.2), lambda x: t.leaky_relu(x, 0.2), [X]
    yield "prelu", a.prelu, t.prelu, [X, P[0]]
    yield "softmax", s.softmax, lambda x: t.softmax(x, -1), [X]
    yield "log_softmax", s.log_softmax, lambda x: t.log_softmax(x, -1), [X]
    yield "softmin", s.softmin, lambda x: t.softmin(x, -1), [X]
    yield "layer", norms.layer_norm, lambda x, w, b: t.layer_norm(x, (6,), w, b), [X, W, B]
    yield (
        "rms",
        lambda x, w: norms.rms_norm(x, w, eps=1e-6),
        lambda x, w: t.rms_norm(x, (6,), w, 1e-6),
        [X, W],
    )
    yield (
        "group",
        lambda x, w, b: norms.group_norm(x, 3, w, b),
        first(lambda x, w, b: t.group_norm(x, 3, w, b)),
        [IMAGE, W, B],
    )
    yield (
        "instance",
        norms.instance_norm,
        first(lambda x, w, b: t.instance_norm(x, weight=w, bias=b)),
        [IMAGE, W, B],
    )
    zero, one = np.zeros(6), np.ones(6)
    zeros, ones = torch.from_numpy(zero.copy()), torch.from_numpy(one.copy())
    yield (
        "batch",
        lambda x, w, b: norms.batch_norm(x, zero, one, w, b, training=True)[0],
        first(lambda x, w, b: t.batch_norm(x, zeros, ones, w, b, training=True)),
        [IMAGE, W, B],
    )
    yield "mse", n.mse, t.mse_loss, [X, Y]
    yield "mae", n.mae, t.l1_loss, [X, Y]
    yield (
        "huber",
        lambda x, y: n.huber(x, y, delta=0.7),
        lambda x, y: t.huber_loss(x, y, delta=0.7),
        [X, Y],
    )
    yield (
        "smooth",
        lambda x, y: n.smooth_l1(x, y, beta=0.7),
        lambda x, y: t.smooth_l1_loss(x, y, beta=0.7),
        [X, Y],
    )
    yield "bce", lambda x: n.bce(x, BITS), lambda x: t.binary_cross_entropy(x, bits), [P]
    yield (
        "bce_logits",
        lambda x: n.bce_logits(x, BITS),
        lambda x: t.binary_cross_entropy_with_logits(x, bits),
        [X],
    )
    yield "kl", n.kl_div, lambda x, y: t.kl_div(x, y, reduction="sum") / x.numel(), [X, P]
    yield (
        "gaussian",
        lambda m, y, v: n.gaussian_nll(m, y, v, full=True),
        lambda m, y, v: t.gaussian_nll_loss(m, y, v, full=True),
        [X, Y, P],
    )
    yield (
        "poisson",
        lambda x: n.poisson_nll(x, BITS),
        lambda x: t.poisson_nll_loss(x, bits),
        [X],
    )
    yield "ce", lambda x: c.cross_entropy(x, CLASSES), lambda x: t.cross_entropy(x, ints), [X]
    yield (
        "ce smooth",
        lambda x: c.cross_entropy(x, CLASSES, smoothing=0.2),
        lambda x: t.cross_entropy(x, ints, label_smoothing=0.2),
        [X],
    )
    yield (
        "ce ignore",
        lambda x: c.cross_entropy(x, CLASSES, ignore=3),
        lambda x: t.cross_entropy(x, ints, ignore_index=3),
        [X],
    )
    weight = torch.from_numpy(P[0])
    yield (
        "ce weight",
        lambda x: c.cross_entropy(x, CLASSES, weight=P[0]),
        lambda x: t.cross_entropy(x, ints, weight=weight),
        [X],
    )
    yield (
        "ce both",
        lambda x: c.cross_entropy(x, CLASSES, weight=P[0], smoothing=0.3),
        lambda x: (
            t.cross_entropy(x, ints, weight=weight, label_smoothing=0.3, reduction="none").sum()
            / weight[ints].sum()
        ),
        [X],
    )
    yield "ce soft", c.cross_entropy, t.cross_entropy, [X, P]
    yield (
        "multi margin",
        lambda x: c.multi_margin(x, CLASSES),
        lambda x: t.multi_margin_loss(x, ints),
        [X],
    )
    yield "triplet", c.triplet, lambda x, y, z: t.triplet_margin_loss(x, y, z, eps=0), [X, Y, P]
    yield (
        "cosine",
        lambda x, y: c.cosine_embedding(x, y, SIGNS),
        lambda x, y: t.cosine_embedding_loss(x, y, signs),
        [X, Y],
    )


@pytest.mark.parametrize("number", range(42))
def test_values_and_gradients_agree(number):
    import torch

    rows = list(pairs())
    if number >= len(rows):
        assert len(rows) <= 42, "more rows than cases"
        return
    name, ours, theirs, arrays = rows[number]
    tensors = [torch.tensor(x, requires_grad=True) for x in arrays]
    expected = theirs(*tensors)
    out, pull = rg.vjp(ours, *arrays)
    assert_close(out, expected.detach().numpy(), what=name)
    rng = np.random.default_rng(0)
    g = rng.normal(size=out.shape)
    wanted = torch.autograd.grad(expected, tensors, torch.tensor(g), create_graph=True)
    assert_close(list(pull(g)), [w.detach().numpy() for w in wanted], what=f"{name} gradient")
    second_order(name, ours, arrays, tensors, wanted, [g, rng])


def second_order(name, ours, arrays, tensors, wanted, given):
    """The gradient of <gradient, v>, where PyTorch can give it."""
    import torch

    g, rng = given
    vs = [rng.normal(size=x.shape) for x in arrays]
    along = sum((w * torch.tensor(v)).sum() for w, v in zip(wanted, vs, strict=True))
    if not along.requires_grad:
        return  # straight pieces: nothing to differentiate again
    try:
        twice = torch.autograd.grad(along, tensors, allow_unused=True)
    except RuntimeError:  # PyTorch has no second derivative of this one
        return
    _, found = rg.jvp(
        lambda *xs: rg.vjp(ours, *xs)[1](g), arrays, vs
    )  # the Hessian is symmetric
    zeros = [np.zeros_like(x) for x in arrays]
    theirs = [
        z if t is None else t.numpy(force=True) for t, z in zip(twice, zeros, strict=True)
    ]
    assert_close(list(found), theirs, what=f"{name} second order")
