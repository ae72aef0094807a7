"""Losses: every one is differentiable, in both modes, twice (Y3); and refuses nonsense."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.ops.nn import class_losses as c
from retrograd.ops.nn import losses as n
from retrograd.testing import assert_close, check_grads

ROWS = np.random.default_rng(5)
X, Y = ROWS.normal(size=(4, 5)), ROWS.normal(size=(4, 5))
P = ROWS.uniform(0.1, 0.9, size=(4, 5))
CLASSES, SIGNS = np.array([0, 3, 1, 4]), np.array([1, -1, 1, -1])
BITS = (P > 0.5).astype(np.int64)
LOSSES = {
    "mse": (n.mse, X, Y),
    "mae": (n.mae, X, Y),
    "huber": (lambda x, y: n.huber(x, y, delta=0.7), X, Y),
    "smooth_l1": (lambda x, y: n.smooth_l1(x, y, beta=0.7), X, Y),
    "bce": (n.bce, P, P[::-1].copy()),
    "bce_logits": (n.bce_logits, X, P),
    "bce_logits weighted": (lambda x: n.bce_logits(x, BITS, positive_weight=3.0), X),
    "focal": (lambda x: n.focal(x, BITS, alpha=0.3), X),
    "dice": (n.dice, P, P[::-1].copy()),
    "kl_div": (n.kl_div, X, P),
    "kl_div of logs": (lambda x, t: n.kl_div(x, t, log_target=True, reduction="batch"), X, Y),
    "hinge": (lambda x: n.hinge(x[:, 0], SIGNS), X),
    "gaussian_nll": (lambda m, t, v: n.gaussian_nll(m, t, v, full=True), X, Y, P + 0.5),
    "poisson_nll": (lambda x: n.poisson_nll(x, BITS, full=True), X),
    "poisson_nll of rates": (lambda x: n.poisson_nll(x, BITS, log_input=False), P),
    "cross_entropy": (lambda x: c.cross_entropy(x, CLASSES), X),
    "cross_entropy smoothed": (lambda x: c.cross_entropy(x, CLASSES, smoothing=0.2), X),
    "cross_entropy ignoring": (lambda x: c.cross_entropy(x, CLASSES, ignore=3), X),
    "cross_entropy weighted": (lambda x, w: c.cross_entropy(x, CLASSES, weight=w), X, P[0]),
    "cross_entropy of probabilities": (c.cross_entropy, X, P),
    "cross_entropy along 0": (lambda x: c.cross_entropy(x, CLASSES[:3] % 3, axis=0), X[:4, :3]),
    "nll": (lambda x: c.nll(x, CLASSES), X),
    "multi_margin": (lambda x: c.multi_margin(x, CLASSES, power=2), X),
    "triplet": (lambda a, b, d: c.triplet(a, b, d, margin=9.0), X, Y, P),
    "contrastive": (lambda a, b: c.contrastive(a, b, SIGNS > 0, margin=9.0), X, Y),
    "cosine_embedding": (lambda a, b: c.cosine_embedding(a, b, SIGNS, margin=-0.9), X, Y),
    "info_nce": (c.info_nce, X, Y),
    "distillation": (lambda s, t: c.distillation(s, t, CLASSES), X, Y),
}


@pytest.mark.parametrize("name", LOSSES)
def test_Y3_every_loss_is_differentiable(name):
    f, *args = LOSSES[name]
    value, grads = rg.value_and_grad(f, argnums=tuple(range(len(args))))(*args)
    assert value.shape == ()
    assert all(np.abs(g.numpy()).max() > 0 for g in grads), "no gradient at all"
    check_grads(f, *args)


@pytest.mark.parametrize("scale", [1.0, 50.0, 1e4])
def test_Y20_log_softmax_and_cross_entropy_have_no_floor(scale):
    """Values far from the maximum are right, not capped; so is the gradient."""
    x = X * scale
    from retrograd.ops.nn.softmax import log_softmax, softmax

    shifted = x - x.max(-1, keepdims=True)
    wanted = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    assert_close(log_softmax(x), wanted)
    grad = rg.grad(lambda v: c.cross_entropy(v, CLASSES, reduction="sum"))(x)
    assert_close(grad, softmax(x).numpy() - np.eye(5)[CLASSES])


def test_ignored_rows_get_no_gradient_and_do_not_count():
    kept = CLASSES != 3
    some = c.cross_entropy(X, CLASSES, ignore=3)
    assert_close(some, c.cross_entropy(X[kept], CLASSES[kept]))
    grad = rg.grad(lambda x: c.cross_entropy(x, CLASSES, ignore=3))(X)
    assert not grad.numpy()[~kept].any()


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: n.mse(X, Y[:, 0]), rg.ShapeError, "must have one shape"),
        (lambda: n.mse(X, Y, reduction="average"), rg.ArgumentError, "mean, sum or none"),
        (lambda: n.mse(X[:0], Y[:0]), rg.ShapeError, "mean of no elements"),
        (lambda: n.huber(X, Y, delta=0), rg.ArgumentError, "delta must be positive"),
        (
            lambda: c.cross_entropy(X, CLASSES + 1),
            rg.BoundsError,
            "class 5 is not one of the 5",
        ),
        (lambda: c.cross_entropy(X, CLASSES[:2]), rg.ShapeError, "without the class axis"),
        (lambda: c.cross_entropy(X, P[:2]), rg.ShapeError, "shape of logits"),
        (lambda: c.cross_entropy(X, CLASSES, weight=P[0, :2]), rg.ShapeError, "each of the 5"),
        (lambda: c.nll(X, P[:, 0]), rg.DtypeError, "must be integers"),
        (lambda: c.info_nce(X, Y, temperature=0), rg.ArgumentError, "must be positive"),
    ],
)
def test_refusals(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()
