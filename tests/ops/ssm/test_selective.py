"""Mamba-1's selective scan: the loop, chunks of any size, steps, what is kept."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.errors import RetrogradError
from retrograd.ops.ssm import selective_chunks
from retrograd.ops.ssm.selective import selective_scan, selective_step
from retrograd.testing.compare import assert_close


def operands(rng, b=2, s=9, i=3, r=4, dtype=np.float64):
    u, delta, z = rng.normal(size=(3, b, s, i))
    B, C = rng.normal(size=(2, b, s, r))
    D, bias = rng.normal(size=(2, i))
    A, start = -rng.uniform(0.3, 2, (i, r)), rng.normal(size=(b, i, r))
    return [t.astype(dtype) for t in (u, delta, A, B, C, D, z, bias, start)]


def looped(u, delta, A, B, C, D, z, bias, h):
    dt = np.logaddexp(delta + bias, 0)
    y = np.empty_like(u)
    for t in range(u.shape[1]):
        write = (dt[:, t] * u[:, t])[..., None] * B[:, t, None]
        h = np.exp(dt[:, t, :, None] * A) * h + write
        y[:, t] = np.einsum("bir,br->bi", h, C[:, t]) + D * u[:, t]
    return y * z / (1 + np.exp(-z)), h


def whole(u, delta, A, B, C, D, z, bias, h):
    return selective_scan(u, delta, A, B, C, D, z, bias, delta_softplus=True, initial=h)


def stepped(u, delta, A, B, C, D, z, bias, h):
    ys = []
    for t in range(u.shape[1]):
        now = (u[:, t], delta[:, t], A, B[:, t], C[:, t], D, z[:, t], bias)
        y, h = selective_step(h, *now, delta_softplus=True)
        ys.append(y)
    return rg.stack(ys, axis=1), h


@pytest.fixture(params=[1, 1 << 10, 1 << 19])
def cache(request, monkeypatch):
    """From chunks of few steps to one for all."""
    monkeypatch.setattr(selective_chunks, "CACHE", request.param)


def test_is_the_recurrence(rng, cache):
    args = operands(rng, s=21)
    assert_close(whole(*args), looped(*args))


def test_steps_agree_with_gradients(rng, cache, everything):
    args = operands(rng, s=19)
    assert_close(everything(whole, args), everything(stepped, args))


def test_a_split_sequence_is_the_whole(rng, everything):
    args = operands(rng)

    def halves(u, delta, A, B, C, D, z, bias, h):
        ys = []
        for t in (slice(0, 4), slice(4, None)):
            part = (u[:, t], delta[:, t], A, B[:, t], C[:, t], D, z[:, t], bias, h)
            y, h = whole(*part)
            ys.append(y)
        return rg.concat(ys, axis=1), h

    assert_close(everything(halves, args), everything(whole, args))


def test_options_are_what_they_say(rng, everything):
    u, delta, A, B, C, D, z, bias, _ = operands(rng)
    steps = np.logaddexp(delta, 0)
    plain, final = selective_scan(u, steps, A, B, C)
    assert_close(selective_scan(u, delta, A, B, C, delta_softplus=True)[0], plain)
    assert_close(selective_scan(u, steps, A, B, C, D)[0], np.asarray(plain) + D * u)
    gate = z / (1 + np.exp(-z))
    assert_close(selective_scan(u, steps, A, B, C, z=z)[0], np.asarray(plain) * gate)
    biased = selective_scan(u, steps - bias, A, B, C, None, None, bias)
    assert_close(biased, (plain, final))
    alone = selective_scan(u[0], steps[0], A, B[0], C[0])
    assert_close(alone[0], np.asarray(plain)[0])

    def ungated(u, steps):
        return selective_scan(u, steps, A, B, C)

    (_, grads), (_, wanted) = (
        everything(f, (u, steps))
        for f in (ungated, lambda u, d: selective_scan(u, d, A, B, C, 0.0, None, 0.0))
    )
    assert_close(grads, wanted)


@pytest.mark.parametrize("length", [128, 1024])
def test_keeps_only_its_inputs(rng, length):
    args = operands(rng, b=1, s=length, i=8, r=16, dtype=np.float32)
    leaves = [rg.tensor(t).requires_grad_() for t in args]
    y, _ = whole(*leaves)
    assert rg.debug.graph(y).nbytes == sum(t.nbytes for t in args)
    assert {id(k) for k in y._node.parents[0].kept} == {id(t.array) for t in leaves}


def test_gates_far_below_zero_have_finite_gradients(rng, everything):
    """x / (1 + exp(-x)) would give nan here."""
    args = operands(rng, dtype=np.float32)
    args[6] = args[6] - 200
    values, grads = everything(whole, args)
    assert all(np.isfinite(t).all() for t in (*values, *grads))


def test_large_steps_forget(rng, everything):
    args = operands(rng)
    args[1] = np.where(np.arange(9)[None, :, None] == 4, 400.0, args[1])
    values, grads = everything(whole, args)
    assert all(np.isfinite(t).all() for t in (*values, *grads))
    other, _ = whole(*args[:-1], args[-1] + 1)
    assert_close(np.asarray(other)[:, 4:], values[0][:, 4:])


def test_refuses(rng):
    u, delta, A, B, C, *_ = operands(rng)
    with pytest.raises(RetrogradError, match=r"B .* must have shape"):
        selective_scan(u, delta, A, B[..., :2], C)
    with pytest.raises(RetrogradError, match=r"z .* must have shape"):
        selective_scan(u, delta, A, B, C, z=u[0])
