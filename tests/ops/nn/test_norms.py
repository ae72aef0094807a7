"""Norms, softmax, dropout, activations: against NumPy, on the tape, and at their edges."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.ops.nn import activations as a
from retrograd.ops.nn import norms
from retrograd.ops.nn.dropout import dropout
from retrograd.ops.nn.softmax import gumbel_softmax, softmax
from retrograd.testing import assert_close, check_grads


def standard(x, axes, eps):
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(var + eps)


def test_norms_are_what_numpy_says(rng):
    x, w, b = rng.normal(size=(2, 5, 4, 6)) * 3 + 1, rng.normal(size=6), rng.normal(size=6)
    assert_close(norms.layer_norm(x, w, b), standard(x, -1, 1e-5) * w + b)
    assert_close(norms.instance_norm(x, w, b), standard(x, (1, 2), 1e-5) * w + b)
    grouped = standard(x.reshape(2, 5, 4, 3, 2), (1, 2, 4), 1e-5).reshape(x.shape)
    assert_close(norms.group_norm(x, 3, w, b), grouped * w + b)
    rms = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    assert_close(norms.rms_norm(x, w), rms * w)
    y, total = norms.add_rms_norm(x, x[::-1], w)
    assert_close(total, x + x[::-1])
    assert_close(y, norms.rms_norm(total, w))


def test_Y5_batch_norm_trains_and_evaluates(rng):
    """Both modes; running statistics are results, and the batch's own statistics flow back."""
    x, w, b = rng.normal(size=(8, 3, 4)) * 2 + 1, rng.normal(size=4), rng.normal(size=4)
    mean, var = np.zeros(4), np.ones(4)
    y, new_mean, new_var = norms.batch_norm(x, mean, var, w, b, training=True, momentum=0.3)
    assert_close(y, standard(x, (0, 1), 1e-5) * w + b)
    assert_close(new_mean, 0.3 * x.mean((0, 1)))
    assert_close(new_var, 0.7 + 0.3 * x.var((0, 1), ddof=1))
    y, same, _ = norms.batch_norm(x, mean + 1, var * 2, w, b, training=False)
    assert_close(y, (x - 1) / np.sqrt(2 + 1e-5) * w + b)
    assert_close(same, mean + 1)
    check_grads(lambda x, w, b: norms.batch_norm(x, mean, var, w, b, training=True)[0], x, w, b)
    check_grads(lambda x, m, v: norms.batch_norm(x, m, v, training=False)[0], x, mean, var)


def test_N4_fused_norms_have_the_gradient_of_differences(rng):
    x, r, w = rng.normal(size=(3, 7)), rng.normal(size=(3, 7)), rng.normal(size=7)
    check_grads(lambda x, r, w: norms.add_rms_norm(x, r, w)[0], x, r, w)
    check_grads(lambda x, r, w: norms.add_layer_norm(x, r, w)[0], x, r, w)
    check_grads(lambda x, w: norms.group_norm(x, 7, w), x, w)


def test_norms_keep_their_result_and_a_number_for_each_row(rng):
    """Not the input: what lies on the tape is one array of the input's size, and the scales."""
    x = rg.tensor(rng.normal(size=(64, 128)).astype(np.float32), requires_grad=True)
    tape = rg.debug.graph(rg.sum(norms.layer_norm(x)))
    assert tape.nbytes == x.nbytes + 64 * 4


def test_weight_norm_and_spectral_norm(rng):
    v, g = rng.normal(size=(5, 3)), rng.uniform(1, 2, size=3)
    w = norms.weight_norm(v, g)
    assert_close(np.linalg.norm(w.numpy(), axis=0), g)
    check_grads(norms.weight_norm, v, g)
    u = rng.normal(size=3)
    for _ in range(50):
        scaled, u = norms.spectral_norm(v, u)
    assert_close(np.linalg.svd(scaled.numpy())[1][0], np.float64(1))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda x: norms.group_norm(x, 4), "4 groups divide"),
        (lambda x: norms.layer_norm(x, np.ones(9)), "shape of what is normalised"),
        (lambda x: norms.batch_norm(x, np.zeros(2), np.ones(2), training=True), "each channel"),
        (lambda x: norms.instance_norm(x[0]), "spatial"),
        (lambda x: norms.layer_norm(x, eps=-1), "must not be negative"),
    ],
)
def test_Y21_what_does_not_fit_is_refused(rng, call, sentence):
    with pytest.raises(rg.RetrogradError, match=sentence):
        call(rng.normal(size=(2, 5, 6)))


def test_Y4_dropout_is_random_scaled_and_keyed():
    key, x = rg.random.key(7), np.ones((200, 50))
    y = dropout(key, x, p=0.3).numpy()
    assert set(np.unique(y)) == {0.0, 1 / 0.7}
    assert abs((y == 0).mean() - 0.3) < 0.02
    assert (dropout(key, x, p=0.3).numpy() == y).all()
    grad = rg.grad(lambda v: rg.sum(dropout(key, v, p=0.3)))(x)
    assert (grad.numpy() == y).all(), "the backward pass draws the same mask"
    whole = dropout(key, x, p=0.3, whole=(1,)).numpy()
    assert ((whole == 0).all(1) | (whole != 0).all(1)).all()


def test_N29_dropout_of_everything_is_zero_with_zero_gradient():
    x = np.ones(5)
    value, grad = rg.value_and_grad(lambda v: rg.sum(dropout(rg.random.key(0), v, p=1.0)))(x)
    assert float(value) == 0
    assert not grad.numpy().any()
    assert_close(dropout(rg.random.key(0), x, p=0.0), x)
    with pytest.raises(rg.ArgumentError, match="from 0 to 1"):
        dropout(rg.random.key(0), x, p=1.5)


def test_gumbel_softmax_is_a_choice_with_a_gradient(rng):
    logits = rng.normal(size=(6, 4))
    hard = gumbel_softmax(rg.random.key(3), logits, hard=True)
    assert_close(hard.numpy().max(-1), np.ones(6))
    assert_close(hard.numpy().sum(-1), np.ones(6))
    soft = rg.grad(lambda v: rg.sum(gumbel_softmax(rg.random.key(3), v)[:, 0]))(logits)
    same = rg.grad(lambda v: rg.sum(gumbel_softmax(rg.random.key(3), v, hard=True)[:, 0]))(
        logits
    )
    assert_close(soft, same)


def test_activations_at_their_kinks():
    """The table of conventions: relu'(0) = 0, NaN stays NaN (Y27), infinities do no harm."""
    grad = rg.vmap(rg.grad(a.relu))
    x = np.array([-np.inf, -1.0, -0.0, 0.0, 1.0, np.inf])
    assert_close(grad(x), np.array([0.0, 0, 0, 0, 1, 1]))
    assert np.isnan(a.relu(np.array([np.nan])).numpy()).all()
    assert_close(rg.vmap(rg.grad(a.leaky_relu))(np.array([0.0])), np.array([0.01]))
    assert_close(rg.grad(lambda v: rg.sqrt(a.relu(v)) * 0 + a.relu(v))(-1.0), 0.0 * rg.ones(()))
    assert_close(softmax(np.array([1e4, 0.0, -1e4])), np.array([1.0, 0.0, 0.0]))


@pytest.mark.parametrize("name", sorted(set(a.__all__) - {"prelu"}))
def test_activations_are_finite_far_out(name):
    """Values and gradients at large arguments are finite: no overflow on either side."""
    f = getattr(a, name)
    x = np.array([-1e4, -750.0, 750.0, 1e4], np.float32)
    value, grad = rg.value_and_grad(lambda v: rg.sum(f(v)))(x)
    assert np.isfinite(value.numpy()).all()
    assert np.isfinite(grad.numpy()).all()
    assert grad.dtype == np.float32


def test_the_normal_law_of_float32_is_right_in_the_tails():
    x = np.linspace(-12, 12, 20001).astype(np.float32)
    wide = a.normal_law(x.astype(np.float64))
    found = a.normal_law(x)
    assert found.dtype == np.float32
    assert np.abs(found / wide - 1).max() < 2e-5
    assert np.abs(found / wide - 1)[np.abs(x) < 2].max() < 1e-6
    edge = np.array([-np.inf, np.inf, np.nan, -40.0, 40.0], np.float32)
    np.testing.assert_array_equal(
        a.normal_law(edge), a.normal_law(edge.astype(np.float64)).astype(np.float32)
    )
