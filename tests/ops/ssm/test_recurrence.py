"""Linear recurrences: any axis, any start, blocks of steps for narrow rows."""

import numpy as np
import pytest

import retrograd as rg
from retrograd.core.errors import RetrogradError
from retrograd.ops import recur
from retrograd.ops.ssm.recurrence import LinearRecurrence, linear_recurrence
from retrograd.testing.compare import assert_close


def looped(a, b, axis, back, start):
    a, b = (np.moveaxis(np.broadcast_to(x, b.shape), axis, 0) for x in (a, b))
    h, out = start, np.empty_like(b)
    for t in range(len(b))[:: -1 if back else 1]:
        out[t] = h = a[t] * h + b[t]
    return np.moveaxis(out, 0, axis)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("back", [False, True])
def test_is_the_loop(rng, axis, back):
    a, b = rng.uniform(-1, 1, (2, 4, 5, 6))
    start = rng.normal(size=np.delete(b.shape, axis))
    got = linear_recurrence(a, b, axis=axis, reverse=back, initial=start)
    assert_close(got, looped(a, b, axis, back, start))
    assert_close(
        linear_recurrence(a, b, axis=axis, reverse=back), looped(a, b, axis, back, 0.0)
    )


@pytest.mark.parametrize("steps", [65, 100, 1000])
@pytest.mark.parametrize("back", [False, True])
def test_blocks_are_the_loop(rng, steps, back):
    a, b = rng.uniform(-1.1, 1.1, (2, steps, 3))
    want = looped(a, b, 0, back, np.zeros(3))
    assert_close(rg.recurrence(a, b, reverse=back), want)
    assert_close(
        linear_recurrence(a[:, :1], b, reverse=back, initial=b[0]),
        looped(a[:, :1], b, 0, back, b[0]),
    )


def test_blocks_do_not_overflow_where_the_loop_does_not():
    """Products of a alone leave the range; the states, all zero, do not."""
    a, b = np.full(400, 1e200), np.zeros(400)
    b[-1] = 1.0
    assert_close(rg.recurrence(a, b), b)


def test_blocks_give_the_same_bits_each_time(rng):
    a, b = rng.uniform(-1, 1, (2, 500, 2)).astype(np.float32)
    once = recur.solve(a, b, b[0], backwards=False)
    assert (once == recur.solve(a, b, b[0], backwards=False)).all()


def test_halves_join(rng, everything):
    a, b = rng.uniform(-1, 1, (2, 9, 2))
    h0 = rng.normal(size=2)

    def halves(a, b, h0):
        first = linear_recurrence(a[:4], b[:4], initial=h0)
        return (rg.concat([first, linear_recurrence(a[4:], b[4:], initial=first[-1])]),)

    whole = everything(lambda a, b, h0: (linear_recurrence(a, b, initial=h0),), (a, b, h0))
    assert_close(everything(halves, (a, b, h0)), whole)


def test_keeps_what_it_says(rng):
    a, b = (rg.tensor(x) for x in rng.uniform(-1, 1, (2, 50, 7)))
    out = linear_recurrence(a.requires_grad_(), b.requires_grad_(), axis=1)
    assert rg.debug.graph(out).nbytes == a.nbytes + out.nbytes + 8  # and one zero


def test_refuses(rng):
    with pytest.raises(RetrogradError, match="must have the axes of b"):
        linear_recurrence(np.ones((3, 2)), np.ones((4, 2)))
    with pytest.raises(RetrogradError, match="axis 2 is outside"):
        linear_recurrence(np.ones((3, 2)), np.ones((3, 2)), axis=2)


def test_op_is_a_value():
    assert LinearRecurrence(1) == LinearRecurrence(1, False)
