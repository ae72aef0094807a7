"""Causal depthwise convolution: taps, states, steps."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.errors import RetrogradError
from retrograd.ops.ssm import causal_conv
from retrograd.ops.ssm.causal_conv import causal_conv1d, causal_conv1d_step
from retrograd.testing.compare import assert_close


def direct(x, w, bias, state):
    both = np.concatenate([state, x], 1)
    k, s = len(w), x.shape[1]
    rows = [(both[:, t : t + k] * w).sum(1) + bias for t in range(s)]
    return np.stack(rows, 1), both[:, both.shape[1] - (k - 1) :]


def whole(x, w, bias, state):
    return causal_conv1d(x, w, bias, state=state)


def stepped(x, w, bias, state):
    ys = []
    for t in range(x.shape[1]):
        y, state = causal_conv1d_step(state, x[:, t], w, bias)
        ys.append(y)
    return rg.stack(ys, axis=1), state


@pytest.fixture(params=[1, 1 << 18])
def cache(request, monkeypatch):
    monkeypatch.setattr(causal_conv, "CACHE", request.param)


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("s", [1, 2, 7])
def test_is_the_sum(rng, cache, k, s, everything):
    args = [rng.normal(size=n) for n in ((2, s, 3), (k, 3), (3,), (2, k - 1, 3))]
    assert_close(whole(*args), direct(*args))
    assert_close(everything(whole, args), everything(stepped, args))


def test_a_split_sequence_is_the_whole(rng, everything):
    args = [rng.normal(size=n) for n in ((2, 7, 3), (4, 3), (3,), (2, 3, 3))]

    def parts(x, w, bias, state):
        ys = []
        for t in (slice(0, 2), slice(2, 3), slice(3, None)):
            y, state = causal_conv1d(x[:, t], w, bias, state=state)
            ys.append(y)
        return rg.concat(ys, axis=1), state

    assert_close(everything(parts, args), everything(whole, args))


def test_without_state_or_bias_zeros_are_meant(rng):
    x, w = rng.normal(size=(2, 7, 3)), rng.normal(size=(4, 3))
    assert_close(causal_conv1d(x, w), direct(x, w, 0.0, np.zeros((2, 3, 3))))
    assert_close(causal_conv1d(x, w[:, None]), causal_conv1d(x, w))
    assert_close(causal_conv1d(x[0], w)[0], np.asarray(causal_conv1d(x, w)[0])[0])


def test_the_last_tap_meets_the_present():
    y, state = causal_conv1d(np.ones((1, 3, 1)), np.array([[0.0], [0.0], [2.0]]))
    assert_close(y, np.full((1, 3, 1), 2.0))
    assert state.shape == (1, 2, 1)


def test_keeps_its_inputs(rng):
    args = [rg.tensor(rng.normal(size=n)) for n in ((2, 64, 8), (4, 8), (8,))]
    y, _ = causal_conv1d(*(a.requires_grad_() for a in args))
    state = 2 * 3 * 8 * 8
    assert rg.debug.graph(y).nbytes == args[0].nbytes + args[1].nbytes + state


def test_refuses(rng):
    x = rng.normal(size=(2, 7, 3))
    with pytest.raises(RetrogradError, match=r"weight .* must have shape"):
        causal_conv1d(x, np.ones((4, 2)))
    with pytest.raises(RetrogradError, match=r"state .* must have shape"):
        causal_conv1d(x, np.ones((4, 3)), state=x)
    with pytest.raises(RetrogradError, match="with taps"):
        causal_conv1d(x, np.ones((0, 3)), state=x)
